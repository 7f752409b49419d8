"""Compares a shown output with a real one."""

import re

_NUMBER = r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?"


def _line_pattern(line: str, tolerance: float) -> str:
    """Regular expression of a line; with a tolerance, numbers are groups and any number of spaces is one."""
    pieces = []
    for piece in re.split(r"(\.\.\.)", line):
        if piece == "...":
            pieces.append(".*?")
        elif not tolerance:
            pieces.append(re.escape(piece))
        else:
            for part in re.split(rf"({_NUMBER}| +)", piece):
                if re.fullmatch(_NUMBER, part):
                    pieces.append(f"({_NUMBER})")
                else:
                    pieces.append(r" +" if part and not part.strip(" ") else re.escape(part))
    return "".join(pieces)


def matches(shown: str, real: str, tolerance: float = 0.0) -> bool:
    """Whether the real output is the one that is shown.

    Args:
        shown: `...` stands for any text in a line, and alone on a line for any number of lines.
        real: what was printed.
        tolerance: relative difference that numbers may have.
    """
    pattern = ""
    for line in shown.strip("\n").splitlines():
        line = line.rstrip()
        pattern += r"(?:.*\n)*?" if line.strip() == "..." else _line_pattern(line, tolerance) + r"\n"
    text = "".join(line.rstrip() + "\n" for line in real.strip("\n").splitlines())
    match = re.fullmatch(pattern, text)
    if match is None:
        return False
    numbers = re.findall(_NUMBER, shown.replace("...", "\n")) if tolerance else []
    pairs = zip(numbers, match.groups(), strict=True)
    return all(abs(float(a) - float(b)) <= tolerance * abs(float(a)) for a, b in pairs)

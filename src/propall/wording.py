"""Wording that messages share: counts, lists of names, suggestions, durations, text that is no formula."""

import re
import unicodedata
from collections.abc import Hashable, Iterable, Sequence
from difflib import get_close_matches
from typing import Literal

#: How a formula begins; the wide signs are those of East Asian input. A sign alone is none.
_SIGN = r"[=+\-@\t\r\n＝＋－＠]"
_FORMULA, _GUARDED = re.compile(rf"'*{_SIGN}.", re.DOTALL), re.compile(rf"'+{_SIGN}.", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def plural(count: int, noun: str) -> str:
    """Count things: `1 row`, `3 rows`, `0 classes`."""
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count} {noun}{ending}"


def join_names(words: Sequence[str], conjunction: Literal["and", "or"] = "and") -> str:
    """Join words as a sentence does: `a`, `a and b`, `a, b and c`."""
    return f" {conjunction} ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def list_names(names: Sequence[Hashable], limit: int = 6) -> str:
    """List quoted names; after the first `limit`, only how many more there are."""
    shown = [repr(name) for name in names[:limit]]
    return ", ".join([*shown, f"... {len(names) - limit} more"] if len(names) > limit else shown)


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """Suggest the known names closest to a mistyped one; empty if none is close."""
    return suggest(get_close_matches(str(name), [other for other in known if isinstance(other, str)], n=3))


def suggest(names: Sequence[str]) -> str:
    """Suggest the first three names: `did you mean 'cat' or 'cut'?`; empty without names."""
    return f"did you mean {' or '.join(map(repr, names[:3]))}?" if names else ""


def class_hint(label: Hashable, classes: Sequence[Hashable]) -> str:
    """Suggest, in parentheses, which class an unknown label may be; empty if none is close."""
    for name in classes:
        if str(name) == str(label):
            return f" (the label has type {type(label).__name__}, that class {type(name).__name__})"
    suggestion = did_you_mean(label, classes)
    return f" ({suggestion})" if suggestion else ""


def printable(text: str) -> str:
    r"""Escape what a terminal would obey: control characters and marks of the writing direction.

    Examples:
        >>> printable("\x1b[31mred")
        '\\x1b[31mred'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(sign if _is_safe(sign) else ascii(sign)[1:-1] for sign in text)


def _is_safe(sign: str) -> bool:
    # Joiners change how words of some scripts look; other format characters can reorder a line.
    return sign in "\n\t\u200c\u200d" or unicodedata.category(sign) not in ("Cc", "Cf", "Cs")


def duration(seconds: int | float) -> str:
    """Format a measured time: `0.31 s`, `12 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def approximate_duration(seconds: int | float) -> str:
    """Format an estimated time: `5 s`, `2 min`, `2.0 h`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 60 else f"{minutes / 60:.1f} h"


def guard_formula(text: str) -> str:
    """Put an apostrophe before a text that a spreadsheet program would run; numbers stay as they are.

    Examples:
        >>> guard_formula("=1+1"), guard_formula("-1.5"), guard_formula("cat")
        ("'=1+1", '-1.5', 'cat')
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def unguard_formula(text: str) -> str:
    """Undo `guard_formula`.

    Examples:
        >>> unguard_formula("'=1+1"), unguard_formula("'quoted'")
        ('=1+1', "'quoted'")
    """
    return text[1:] if _GUARDED.match(text) else text

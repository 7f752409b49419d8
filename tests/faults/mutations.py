"""Malformed versions of valid files: of their bytes, of JSON documents, of text tables."""

import copy
import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

from tests.faults.harness import Case

#: Values that a JSON document should not hold where it holds another.
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3.5, -0.0, 10**400, 1e308, "", "x", "\ud800", "\u0000", [], {}, [[]], [None],
    {"a": None}, "9" * 5000, [1, "a", None], {"": {}},
)  # fmt: skip


def byte_mutations(name: str, valid: bytes, suffix: str, count: int, seed: int) -> Iterator[Case]:
    """Cut, flip, delete, repeat, insert, overwrite and zero random parts of a file."""
    draw = random.Random(f"{name} {seed}")
    for number in range(count):
        content = bytearray(valid)
        steps = []
        for _ in range(draw.choice((1, 1, 1, 2, 5))):
            size = len(content)
            at = draw.randrange(size) if size else 0
            length = min(draw.choice((1, 2, 4, 16, 64, 512)), max(1, size - at))
            kind = draw.choice(
                ("cut", "flip", "flip", "delete", "repeat", "insert", "overwrite", "zero", "head")
            )
            if kind == "cut":
                del content[at:]
            elif kind == "head":
                del content[:at]
            elif kind == "flip" and size:
                content[at] ^= 1 << draw.randrange(8)
            elif kind == "delete":
                del content[at : at + length]
            elif kind == "repeat":
                content[at:at] = content[at : at + length] * draw.choice((1, 2, 50))
            elif kind == "insert":
                content[at:at] = draw.randbytes(length)
            elif kind == "overwrite":
                content[at : at + length] = draw.randbytes(length)
            elif kind == "zero":
                content[at : at + length] = bytes(length)
            steps.append(f"{kind}@{at}+{length}")
        yield Case(f"{name}: bytes {' '.join(steps)} (seed {seed}, input {number})", bytes(content), suffix)


def json_mutations(name: str, valid: Any, suffix: str, count: int, seed: int) -> Iterator[Case]:
    """Replace, delete, rename and nest parts of a JSON document."""
    draw = random.Random(f"{name} {seed}")
    for number in range(count):
        document = copy.deepcopy(valid)
        steps = []
        for _ in range(draw.choice((1, 1, 2, 3))):
            places = list(_places(document))
            if not places:
                break
            holder, key = draw.choice(places)
            kind = draw.choice(("replace", "replace", "delete", "rename", "nest", "double"))
            if kind == "replace":
                holder[key] = copy.deepcopy(draw.choice(ODD_VALUES))
            elif kind == "delete":
                del holder[key]
            elif kind == "rename" and isinstance(holder, dict):
                holder[f"{key}?"] = holder.pop(key)
            elif kind == "nest":
                value = holder[key]
                for _ in range(draw.choice((1, 3, 700))):
                    value = [value]
                holder[key] = value
            elif kind == "double" and isinstance(holder, list):
                holder.append(copy.deepcopy(holder[key]))
            steps.append(f"{kind} {key!r}")
        text = _dumped(document)
        yield Case(f"{name}: JSON {'; '.join(steps)} (seed {seed}, input {number})", text, suffix)


def _dumped(document: Any) -> bytes:
    import sys

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    try:
        return json.dumps(document).encode("utf-8", "surrogatepass")
    finally:
        sys.setrecursionlimit(limit)


def _places(document: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) of a document, outside of deep nesting."""
    if depth > 12:
        return
    keys: Sequence[Any] = ()
    if isinstance(document, dict):
        keys = list(document)
    elif isinstance(document, list):
        keys = range(len(document))
    for key in keys:
        yield document, key
        yield from _places(document[key], depth + 1)


def text_mutations(name: str, valid: str, suffix: str, count: int, seed: int) -> Iterator[Case]:
    """Break the lines, cells, quotes, separators and encoding of a text table."""
    draw = random.Random(f"{name} {seed}")
    odd = (
        '"', "'", '""', "\x00", "\r", "\t", ";", ",", ",,,,,", "|", "!", "|!", "!!", "\ufeff", "\u200b",
        "\u202e", "=1+1", "@x", "[", "{}", "[/b]", "[red]x", "\x1b[31m", "<script>alert(1)</script>",
        "9" * 400, "1e999", "-inf", "nan", "x" * 140_000, "\ud7ff", "é", "e\u0301", "\\N", "#REF!",
        "\x0c", "\x85", "\u2028",
    )  # fmt: skip
    for number in range(count):
        lines = valid.splitlines()
        steps = []
        for _ in range(draw.choice((1, 1, 2, 4))):
            at = draw.randrange(len(lines)) if lines else 0
            cells = lines[at].split(",") if lines else []
            column = draw.randrange(len(cells)) if cells else 0
            kind = draw.choice(("cell", "cell", "line", "join", "drop", "swap", "repeat", "heading", "blank"))
            if kind == "cell" and cells:
                word = draw.choice(odd)
                cells[column] = draw.choice((word, cells[column] + word, word + cells[column]))
                lines[at] = ",".join(cells)
            elif kind == "heading" and lines:
                heading = lines[0].split(",")
                heading[draw.randrange(len(heading))] = draw.choice((*odd, heading[0]))
                lines[0] = ",".join(heading)
            elif kind == "line":
                lines.insert(at, draw.choice(odd))
            elif kind == "join" and at + 1 < len(lines):
                lines[at : at + 2] = [lines[at] + lines[at + 1]]
            elif kind == "drop" and lines:
                del lines[at]
            elif kind == "swap" and lines:
                lines[at] = ",".join(reversed(cells))
            elif kind == "repeat" and lines:
                lines[at:at] = [lines[at]] * draw.choice((1, 30))
            elif kind == "blank":
                lines[at:at] = [""] * draw.choice((1, 200))
            steps.append(f"{kind}@{at}")
        encoding = draw.choice(("utf-8",) * 6 + ("utf-16", "utf-8-sig", "latin-1"))
        ending = draw.choice(("\n",) * 4 + ("\r\n", "\r", ""))
        text = ending.join(lines) if ending else "\n".join(lines)
        content = text.encode(encoding, "replace")
        yield Case(
            f"{name}: text {' '.join(steps)} {encoding} (seed {seed}, input {number})", content, suffix
        )

"""Wording that messages share: counts, lists of names, suggestions, durations."""

from collections.abc import Hashable, Sequence
from difflib import get_close_matches


def counted(n: int) -> str:
    """`1 row` or `n rows`."""
    return f"{n} row{'s' * (n != 1)}"


def listed(names: Sequence[Hashable], most: int = 6) -> str:
    """The first names, and how many more there are."""
    shown = [repr(name) for name in names[:most]]
    return ", ".join([*shown, f"... {len(names) - most} more"] if len(names) > most else shown)


def nearest(label: Hashable, classes: tuple[Hashable, ...]) -> str:
    """A hint at the class that may be meant, in brackets; empty where none is near."""
    for name in classes:
        if str(name) == str(label):
            return f" (the label is of type {type(label).__name__}, that class {type(name).__name__})"
    near = get_close_matches(str(label), [name for name in classes if isinstance(name, str)], n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def human_time(seconds: int | float) -> str:
    """A time that was measured: `0.31 s`, `12 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def rough_time(seconds: int | float) -> str:
    """An estimate, or a headline, with no more digits than it deserves: `5 s`, `2 min`, `2.0 h`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 60 else f"{minutes / 60:.1f} h"

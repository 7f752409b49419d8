"""Find typos in label names."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

#: A name is a typo of a similar one that is at least this many times as frequent.
TYPO_RATIO = 20
#: A name may be a typo of a similar one that is at least this many times as frequent.
DOUBT_RATIO = 3


def edit_distance(one: str, other: str, limit: int = 2) -> int:
    """Count the letters to insert, delete, replace or swap with a neighbor to get the other word.

    Distances above `limit` are returned as `limit + 1`, so that long words are compared in linear time.
    """
    if abs(len(one) - len(other)) > limit:
        return limit + 1
    start = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    if start is None:
        return abs(len(one) - len(other))
    one, other = one[start:], other[start:]
    far = limit + 1
    previous: dict[int, int] = {}
    row = {j: j for j in range(min(len(other), limit) + 1)}
    for i, a in enumerate(one, 1):
        before_previous, previous, row = previous, row, {}
        for j in range(max(0, i - limit), min(len(other), i + limit) + 1):
            if j == 0:
                row[0] = i
                continue
            b = other[j - 1]
            best = min(previous.get(j, far) + 1, row.get(j - 1, far) + 1, previous.get(j - 1, far) + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                best = min(best, before_previous.get(j - 2, far) + 1)
            row[j] = min(best, far)
        if min(row.values()) == far:
            return far
    return row.get(len(other), far)


def is_similar(one: str, other: str) -> bool:
    """Whether one name may be a typo of the other: one or two letters differ, but no number."""
    a, b = _normalize(one), _normalize(other)
    return _numbers(a) == _numbers(b) and _differ_little(a, b)


def _differ_little(a: str, b: str) -> bool:
    if a == b:
        return True
    shorter, longer = sorted((len(a), len(b)))
    if shorter < 3 or longer - shorter > 2:
        return False
    if longer == 3:  # one letter tells most three-letter words apart, so only swapped letters count
        return sorted(a) == sorted(b) and edit_distance(a, b) == 1
    return edit_distance(a, b) <= (2 if shorter >= 8 else 1)


def _numbers(normalized: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\d+", normalized))


_WHOLE_NUMBER = re.compile(r"([+-]?)0*(\d+)(?:\.0+)?")


def _normalize(name: str) -> str:
    """Return what spellings of one name share: case and spaces do not count, `01` and `1.0` are 1."""
    number = _WHOLE_NUMBER.fullmatch(name.strip()) if name.isascii() else None
    if number is not None:
        return number[1].removeprefix("+") + number[2]
    return re.sub(r"[\s_\-]+", " ", name.casefold()).strip()


def _letters(normalized: str) -> int:
    """Return the letters of a word as a set of bits."""
    return sum({1 << ord(letter) % 64 for letter in set(normalized)})


class SimilarNames:
    """An index that finds similar names with few letter-by-letter comparisons."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names: dict[tuple[tuple[str, ...], int], list[tuple[int, int, str, str]]] = {}
        self._size = 0
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        """Add a name."""
        normalized = _normalize(name)
        bucket = self._names.setdefault((_numbers(normalized), len(normalized)), [])
        bucket.append((self._size, _letters(normalized), normalized, name))
        self._size += 1

    def find(self, name: str) -> list[str]:
        """Return the similar names, in the order they were added."""
        normalized = _normalize(name)
        numbers, letters = _numbers(normalized), _letters(normalized)
        # Replacing two letters removes at most two from the set and adds at most two.
        similar = [
            (position, other)
            for length in range(len(normalized) - 2, len(normalized) + 3)
            for position, other_letters, other_normalized, other in self._names.get((numbers, length), ())
            if (letters ^ other_letters).bit_count() <= 4 and _differ_little(normalized, other_normalized)
        ]
        return [other for _, other in sorted(similar)]


class Typos(NamedTuple):
    """Typos among names."""

    corrections: dict[str, str]  # the name that each typo stands for
    doubtful: list[tuple[str, str]]  # pairs of similar names that may be one, the rarer first


def find_typos(counts: Mapping[str, int], known: Sequence[str] | None = None) -> Typos:
    """Find names that are typos of others, by the number of rows with each name.

    If the valid names are known, an invalid name with one similar valid name is a typo of it in any case.
    """
    corrections: dict[str, str] = {}
    doubtful: list[tuple[str, str]] = []
    by_frequency = sorted(counts, key=lambda name: (-counts[name], len(name), name))
    if known is not None:
        index, valid = SimilarNames(known), frozenset(known)
        for name in by_frequency:
            if name not in valid and len(similar := index.find(name)) == 1:
                corrections[name] = similar[0]
        return Typos(corrections, doubtful)
    by_normalized: dict[str, str] = {}
    accepted = SimilarNames()
    for name in by_frequency:
        same = by_normalized.setdefault(_normalize(name), name)
        if same != name:
            corrections[name] = same
            continue
        similar = accepted.find(name)
        if len(similar) == 1 and counts[name] * TYPO_RATIO <= counts[similar[0]]:
            corrections[name] = by_normalized[_normalize(name)] = similar[0]
            continue
        doubtful += [(name, other) for other in similar if counts[name] * DOUBT_RATIO <= counts[other]]
        accepted.add(name)
    return Typos(corrections, doubtful)

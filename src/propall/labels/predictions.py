"""Candidate sets from models: scores of all classes, or lists of names that a language model wrote."""

import json
import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike, NDArray

from propall.labels.inputs import is_blank, is_collection
from propall.labels.parsing import to_float_matrix
from propall.wording import plural

#: Smallest similarity (0 to 1) of a misspelled name to a class.
MIN_SIMILARITY = 0.85
#: Between two names in a free text: a comma, semicolon, bar, slash, line break, or the word `or` or `and`.
_BETWEEN = re.compile(r"[,;|/\n]|\bor\b|\band\b", re.IGNORECASE)
#: Around a name: numbering, bullets, quotes, brackets and punctuation.
_AROUND = re.compile(r"^(?:\s|\d+[.)]|[-*•\"'`\[({])+|[\s\"'`\])}.!:]+$")
#: Between the words of a name.
_SPACES = re.compile(r"[\s_\-]+")


@dataclass(frozen=True, eq=False)
class Conformal:
    """Rows with known labels, from which the size of sets follows that miss the truth at a given rate.

    A class is a candidate if its score is at least that of all but a share `miss_rate` of the true classes of
    the calibration rows. On rows like these, sets then lack the true class at most that often.

    Attributes:
        scores: (c, k) of the calibration rows, from the same model.
        labels: (c,) column of the true class of each.
        miss_rate: share of sets that may lack the true class.

    References:
        [sadinle2019least].

    Examples:
        >>> scores = np.array([[0.7, 0.3], [0.6, 0.4], [0.2, 0.8], [0.45, 0.55]] * 10)
        >>> Conformal(scores, np.array([0, 0, 1, 0] * 10), miss_rate=0.1).threshold()
        0.45
    """

    scores: ArrayLike
    labels: ArrayLike
    miss_rate: float = 0.1

    def threshold(self) -> float:
        """Return the smallest score of a candidate."""
        scores, labels = to_float_matrix(self.scores, "conformal"), np.asarray(self.labels)
        n = len(labels)
        if labels.shape != (len(scores),) or not n:
            raise ValueError(
                f"conformal: got {len(scores)} rows of scores and labels of shape {labels.shape}; expected "
                "one label per row, and at least one row."
            )
        if not 0 < self.miss_rate < 1:
            raise ValueError(f"conformal: got miss_rate {self.miss_rate}; expected a number between 0 and 1.")
        allowed = int(np.floor((n + 1) * self.miss_rate))
        true_scores = np.sort(scores[np.arange(n), labels])
        return float(true_scores[allowed - 1]) if allowed else -np.inf


def select_candidates(
    scores: Any,
    *,
    top_k: int | None = None,
    mass: float | None = None,
    conformal: Conformal | None = None,
    parameter: str = "scores",
) -> NDArray[np.bool_]:
    """Return which classes of each row a model considers possible; see `CandidateLabels.from_scores`."""
    values = to_float_matrix(scores, parameter)
    rules = {"top_k": top_k, "mass": mass, "conformal": conformal}
    chosen = [name for name, value in rules.items() if value is not None]
    if len(chosen) != 1:
        named = "none" if not chosen else " and ".join(chosen)
        raise ValueError(f"top_k: got {named}; expected exactly one of top_k, mass and conformal.")
    if not np.isfinite(values).all():
        row = int((~np.isfinite(values)).any(1).argmax())
        raise ValueError(f"{parameter}: row {row} has values that are not finite; expected numbers.")
    n, k = values.shape
    order = np.argsort(-values, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(k), (n, k)), axis=1)
    if top_k is not None:
        if not 1 <= top_k <= k:
            raise ValueError(f"top_k: got {top_k}; expected 1 to {k}, the number of classes.")
        highest: NDArray[np.bool_] = rank < top_k
        return highest
    if mass is not None:
        if not 0 < mass <= 1:
            raise ValueError(f"mass: got {mass}; expected a number above 0 and up to 1.")
        probabilities = as_probabilities(values, parameter)
        sorted_mass = np.take_along_axis(probabilities, order, axis=1)
        before = sorted_mass.cumsum(1) - sorted_mass
        # A class is needed unless the classes above it already reach the mass.
        needed = np.take_along_axis(before < mass - 1e-9, rank, axis=1)
        likely: NDArray[np.bool_] = needed & (probabilities > 0)
        likely |= rank == 0
        return likely
    assert conformal is not None
    possible: NDArray[np.bool_] = (values >= conformal.threshold()) | (rank == 0)
    return possible


def as_probabilities(values: NDArray[np.float64], parameter: str) -> NDArray[np.float64]:
    """Check that rows are non-negative with a positive sum, and scale each to a sum of one."""
    total = values.sum(1, keepdims=True)
    bad = (values < 0).any(1) | (total[:, 0] <= 0)
    if bad.any():
        raise ValueError(
            f"{parameter}: {plural(int(bad.sum()), 'row')} (first: {int(bad.argmax())}) are no "
            "probabilities; expected non-negative numbers. Apply a softmax to logits first, or use top_k."
        )
    probabilities: NDArray[np.float64] = values / total
    return probabilities


def estimate_miss_rate(
    candidates: Bool[np.ndarray, "n k"], scores: Sequence[Float[np.ndarray, "n k"]]
) -> float:
    r"""Estimate the share of sets that lack the true class, without true labels.

    .. math:: \frac1n \sum_i \sum_{y \notin S_i} \bar p_i(y)

    with the mean probabilities of all models. This is correct for calibrated probabilities, and too low if
    they are overconfident; `propall fit` estimates the rate again with a model that it trains.

    Args:
        candidates: the sets.
        scores: probabilities of one or several models.
    """
    mean = np.mean([as_probabilities(part, "scores") for part in scores], axis=0)
    return float(np.where(candidates, 0.0, mean).sum(1).mean())


class ParsedLists(NamedTuple):
    """Free-text lists of class names, one or several per row.

    Attributes:
        mask: True for the classes that any list of a row names.
        each: for every list of every row, the columns it names.
        unknown: names that match no class, and how often they occur.
        matched: spellings that were read as a class although they differ from its name.
        unknown_rows: rows with an unknown name.
    """

    mask: NDArray[np.bool_]
    each: list[list[frozenset[int]]]
    unknown: Counter[str]
    matched: dict[str, str]
    unknown_rows: list[int]

    @property
    def miss_rate(self) -> float | None:
        """Share of lists without a class in common with the other lists of their row; None if no row has two.

        Such a list, or all others, lacks the true class.
        """
        alone = total = 0
        for lists in self.each:
            named = [names for names in lists if names]
            if len(named) < 2:
                continue
            for i, names in enumerate(named):
                others = frozenset().union(*(other for j, other in enumerate(named) if j != i))
                alone += not names & others
                total += 1
        return alone / total if total else None


def parse_lists(lists: Sequence[Any], classes: Sequence[Hashable]) -> ParsedLists:
    """Read free-text lists of class names.

    A row is a text (`cat, dog`, `1. cat`, `["cat", "dog"]`, `a cat or a dog`), a list of names, or a list of
    lists, one for each prompt or model. Upper and lower case, punctuation around names, and hyphens or
    underscores in place of spaces do not matter; a name that is close to exactly one class is read as that
    class, and a longer text is searched for the names of classes.
    """
    match = _matcher(classes)
    mask = np.zeros((len(lists), len(classes)), dtype=bool)
    unknown: Counter[str] = Counter()
    matched: dict[str, str] = {}
    unknown_rows, each = [], []
    for row, value in enumerate(lists):
        row_lists = []
        before = sum(unknown.values())
        for names in _split_row(value):
            columns: set[int] = set()
            for name in names:
                found = match(name)
                columns |= set(found)
                if not found:
                    unknown[name] += 1
                elif len(found) == 1 and name != str(classes[found[0]]):
                    matched[name] = str(classes[found[0]])
            row_lists.append(frozenset(columns))
            mask[row, list(columns)] = True
        each.append(row_lists)
        if sum(unknown.values()) > before:
            unknown_rows.append(row)
    return ParsedLists(mask, each, unknown, matched, unknown_rows)


def _split_row(value: Any) -> list[list[str]]:
    """Split a row into lists of names."""
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("[") and text.endswith("]"):
            try:
                return _split_row(json.loads(text))
            except json.JSONDecodeError:
                pass
        return [_names_in(text)]
    if is_collection(type(value)):
        parts = list(value)
        if any(is_collection(type(part)) for part in parts):
            return [names for part in parts for names in _split_row(part)]
        return [[str(part).strip() for part in parts if not is_blank(part)]]
    return [[]] if is_blank(value) else [[str(value)]]


def _names_in(text: str) -> list[str]:
    return [name for part in _BETWEEN.split(text) if (name := _clean(part))]


def _clean(text: str) -> str:
    previous = None
    while previous != text:
        previous, text = text, _AROUND.sub("", text)
    return text


def _normal(text: object) -> str:
    return _SPACES.sub(" ", _clean(str(text)).casefold()).strip()


def _matcher(classes: Sequence[Hashable]) -> Callable[[str], tuple[int, ...]]:
    """Return a function from a name to the columns of the classes it names; empty if it names none."""
    by_name: dict[str, list[int]] = {}
    for i, name in enumerate(classes):
        by_name.setdefault(_normal(name), []).append(i)
    # Longer names first, so that `sea lion` is not read as `lion`.
    names = sorted((name for name in by_name if name), key=lambda name: (-len(name), name))
    words = re.compile(r"\b(?:" + "|".join(map(re.escape, names)) + r")\b") if names else None
    cache: dict[str, tuple[int, ...]] = {}

    def match(name: str) -> tuple[int, ...]:
        if name not in cache:
            normal = _normal(name)
            found = by_name.get(normal)
            if found is None:
                close = get_close_matches(normal, names, n=2, cutoff=MIN_SIMILARITY)
                found = by_name[close[0]] if len(close) == 1 else None
            if found is None and words is not None:
                found = [i for hit in dict.fromkeys(words.findall(normal)) for i in by_name[hit]]
            cache[name] = tuple(found or ())
        return cache[name]

    return match

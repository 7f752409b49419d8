"""Candidate sets from models: scores of all classes, or lists of names that a language model wrote."""

import json
import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain, permutations
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike, NDArray

from propall.labels.inputs import is_blank, is_collection
from propall.labels.parsing import as_text, to_float_matrix
from propall.wording import plural

#: Smallest similarity (0 to 1) of a misspelled name to a class.
MIN_SIMILARITY = 0.85
#: Between two names in a free text: a comma, semicolon, bar, slash, line break, or the word `or` or `and`.
_BETWEEN = re.compile(r"[,;|/\n]|\bor\b|\band\b", re.IGNORECASE)
#: Around a name: numbering, bullets, quotes, brackets and punctuation. A number at the end is a name.
_AROUND = re.compile(r"^(?:\s|\d+[.)](?=\s*\S)|[-*•\"'`\[({])+|[\s\"'`\])}.!:]+$")
#: Around a block of code.
_FENCE = re.compile(r"```\w*")
#: Before a name that does not apply.
_NEGATION = re.compile(r"\b(?:not(?! only)|isn't|neither|nor|never)\b")
#: Smallest number of rows with several lists from which their errors are estimated.
MIN_COMPARED = 20
#: Between the words of a name.
_SPACES = re.compile(r"[\s_\-]+")
#: Numbers in a name.
_NUMBERS = re.compile(r"\d+")


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
        n, k = scores.shape
        if labels.shape != (n,) or not n:
            raise ValueError(
                f"conformal: got {n} rows of scores and labels of shape {labels.shape}; expected "
                "one label per row, and at least one row."
            )
        if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= k:
            wrong = labels[0] if labels.dtype.kind not in "iu" else labels[(labels < 0) | (labels >= k)][0]
            raise ValueError(
                f"conformal: got label {wrong.item()!r}; expected columns of true classes, 0 to {k - 1}."
            )
        if not np.isfinite(scores).all():
            raise ValueError("conformal: some scores are not finite; expected numbers.")
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
        r"""Estimated share of rows of whose lists none names the true class; None if too few rows have two.

        Two lists of a row without a class in common cannot both name the true one. If a list lacks it with
        probability :math:`\varepsilon`, independently of the others, and its other names are drawn at random,

        .. math:: P(A \cap B = \emptyset) = \bigl(1 - (1 - \varepsilon)^2\bigr) \cdot
            \binom{k - |B|}{|A|} \Big/ \binom{k - 1}{|A|}

        on average over the pairs; all :math:`m` lists of a row lack it with probability
        :math:`\varepsilon^m`. This is too low if the lists err together.
        """
        k = self.mask.shape[1]
        rows = [[names for names in lists if names] for lists in self.each]
        disjoint = chance = 0.0
        n_rows = 0
        for lists in rows:
            pairs = list(permutations(lists, 2))
            n_rows += bool(pairs)
            for one, other in pairs:
                disjoint += one.isdisjoint(other) / len(pairs)
                if len(one) < k:
                    ways = math.comb(k - len(other), len(one)) / math.comb(k - 1, len(one))
                    chance += ways / len(pairs)
        if n_rows < MIN_COMPARED or not chance:
            return None
        rate = 1 - math.sqrt(1 - min(1.0, disjoint / chance))
        return sum(rate ** len(lists) for lists in rows if lists) / len(rows)


def parse_lists(lists: Sequence[Any], classes: Sequence[Hashable]) -> ParsedLists:
    """Read free-text lists of class names.

    A row is a text (`cat, dog`, `1. cat`, `["cat", "dog"]`, `a cat or a dog`), a list of names, or a list of
    lists, one for each prompt or model. Upper and lower case, punctuation around names, and hyphens or
    underscores in place of spaces do not matter; a name that is close to exactly one class is read as that
    class, and a longer text is searched for the names of classes, except after a `not`.
    """
    known = _ClassNames(classes)
    mask = np.zeros((len(lists), len(classes)), dtype=bool)
    unknown: Counter[str] = Counter()
    matched: dict[str, str] = {}
    unknown_rows, each = [], []
    for row, value in enumerate(lists):
        row_lists = []
        before = sum(unknown.values())
        for names in _split_row(value, known):
            columns: set[int] = set()
            for name in names:
                matches = known.find(name)
                columns |= set(matches)
                if not matches:
                    unknown[name] += 1
                elif len(matches) == 1 and name != str(classes[matches[0]]):
                    matched[name] = str(classes[matches[0]])
            row_lists.append(frozenset(columns))
            mask[row, list(columns)] = True
        each.append(row_lists)
        if sum(unknown.values()) > before:
            unknown_rows.append(row)
    return ParsedLists(mask, each, unknown, matched, unknown_rows)


def _split_row(value: Any, known: "_ClassNames") -> list[list[str]]:
    """Split a row into lists of names."""
    if isinstance(value, str):
        text = _FENCE.sub("\n", value).strip()
        if text.startswith("[") and text.endswith("]"):
            try:
                return _split_row(json.loads(text), known)
            except json.JSONDecodeError:
                pass
        return [known.split(text)]
    if is_collection(type(value)):
        parts = list(value)
        if any(is_collection(type(part)) for part in parts):
            return [names for part in parts for names in _split_row(part, known)]
        return [[as_text(part) for part in parts if not is_blank(part)]]
    return [[]] if is_blank(value) else [[as_text(value)]]


def _clean(text: str) -> str:
    previous = None
    while previous != text:
        previous, text = text, _AROUND.sub("", text)
    return text


def _normal(text: object) -> str:
    return _SPACES.sub(" ", _clean(str(text)).casefold()).strip()


class _ClassNames:
    """The names of all classes, to be found in free text."""

    def __init__(self, classes: Sequence[Hashable]) -> None:
        self._columns: dict[str, list[int]] = {}
        for i, name in enumerate(classes):
            self._columns.setdefault(_normal(name), []).append(i)
        # Longer names first, so that `sea lion` is not read as `lion`.
        self._names = sorted(filter(None, self._columns), key=lambda name: (-len(name), name))
        self._any = _pattern(self._names)
        self._unsplit = _pattern(name for name in self._names if _BETWEEN.search(name))
        self._found: dict[str, tuple[int, ...]] = {}

    def split(self, text: str) -> list[str]:
        """Split a text into names; a class such as `rock and roll` or `Sci/Tech` is not taken apart."""
        whole = [] if self._unsplit is None else [hit.span() for hit in self._unsplit.finditer(text)]
        cuts = [
            cut.span()
            for cut in _BETWEEN.finditer(text)
            if not any(start <= cut.start() < end for start, end in whole)
        ]
        edges = [0, *chain.from_iterable(cuts), len(text)]
        parts = (text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True))
        return [name for part in parts if (name := _clean(part))]

    def find(self, name: str) -> tuple[int, ...]:
        """Return the columns of the classes that a text names; empty if it names none."""
        if name not in self._found:
            normal = _normal(name)
            columns = self._columns.get(normal)
            if columns is None:
                columns = self._find_inside(normal)
                # A misspelling may contain a shorter name: `sae lion` is a sea lion, not a lion.
                if len(columns) < 2:
                    columns = self._find_close(normal) or columns
            self._found[name] = tuple(columns)
        return self._found[name]

    def _find_close(self, normal: str) -> list[int]:
        """The only class of a similar name. `class 11` is no misspelling of `class 1`."""
        close = get_close_matches(normal, self._names, n=max(1, len(self._names)), cutoff=MIN_SIMILARITY)
        close = [name for name in close if _NUMBERS.findall(name) == _NUMBERS.findall(normal)]
        close = [name for name in close if _NEGATION.findall(name) == _NEGATION.findall(normal)]
        return self._columns[close[0]] if len(close) == 1 else []

    def _find_inside(self, normal: str) -> list[int]:
        """All classes whose name is a part of a longer text."""
        hits = list(self._any.finditer(normal)) if self._any is not None else []
        hits = [hit for hit in hits if not _NEGATION.search(normal[: hit.start()])]
        names = dict.fromkeys(hit[0] for hit in hits)
        return [column for name in names for column in self._columns[_normal(name)]]


def _pattern(names: Iterable[str]) -> re.Pattern[str] | None:
    """A pattern of whole names in any case, with any spaces; None if there are none."""
    spelled = [r"[\s_\-]+".join(map(re.escape, name.split(" "))) for name in names]
    # A word boundary would not do: there is none after `C++`.
    return re.compile(rf"(?<!\w)(?:{'|'.join(spelled)})(?!\w)", re.IGNORECASE) if spelled else None

"""Ranks of methods over data sets: Friedman, Iman-Davenport and Nemenyi tests, and what they say together."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

#: What one block of the tests is: a data set (mean over its runs), or every single run.
Blocks = Literal["data sets", "runs"]

#: A score, higher is better. Whole numbers are no `float` to a checker of types at run time.
Number = int | float
#: Method to its scores, one per block; None or NaN where a score is missing.
Scores = Mapping[str, Sequence[Number | None]]


class RepeatedBlocksWarning(UserWarning):
    """Runs on one data set are taken for independent blocks, which makes differences look significant."""


class Friedman(NamedTuple):
    """Whether all methods can be equally good.

    Attributes:
        chi2: Friedman's statistic, corrected for ties.
        p: its p-value by the chi-squared law, which is rough below about ten blocks.
        f: Iman and Davenport's statistic; infinite where all blocks agree.
        f_p: its p-value; the one to prefer.
    """

    chi2: float
    p: float
    f: float
    f_p: float


@dataclass(frozen=True)
class Ranking:
    """Average ranks over blocks, the tests on them, and which methods they cannot tell apart.

    Attributes:
        ranks: average rank by method, 1 is best; best first.
        friedman: the test of all methods at once; what follows means something only where it rejects.
        critical_difference: smallest difference of average ranks that is significant.
        p: Nemenyi's p-value of every pair.
        groups: largest sets of methods, neighbours in rank, whose ranks differ by less than that.
        alpha: level of the tests.
        blocks: number of blocks that were ranked.
        dropped: blocks left out because a score is missing.
        unit: what a block is.
    """

    ranks: dict[str, float]
    friedman: Friedman
    critical_difference: float
    p: dict[str, dict[str, float]]
    groups: list[tuple[str, ...]]
    alpha: float
    blocks: int
    dropped: list[str]
    unit: Blocks = "data sets"


def paired_p(ours: Sequence[Number], theirs: Sequence[Number]) -> float | None:
    """Two-sided p-value of the paired t-test: the same seeds or folds, two methods.

    None where a single pair leaves nothing to test; with equal differences everywhere, 0, or 1 if they are 0.
    """
    if len(ours) != len(theirs):
        raise ValueError(f"ours, theirs: {len(ours)} and {len(theirs)} values; pairs need as many of each.")
    gaps = np.subtract(ours, theirs)
    if len(gaps) < 2:
        return None
    # Differences that agree to rounding would be divided by the noise of their last digits.
    scale = max(1.0, float(np.abs(np.concatenate([ours, theirs])).max()))
    if np.ptp(gaps) <= 1e-9 * scale:
        return 1.0 if abs(gaps[0]) <= 1e-9 * scale else 0.0
    return float(stats.ttest_1samp(gaps, 0.0).pvalue)


def sign_p(positive: int, negative: int) -> float:
    """Two-sided p-value of the sign test; zeros are left out beforehand. 1 where there is nothing to test."""
    total = positive + negative
    return float(stats.binomtest(positive, total).pvalue) if total else 1.0


def block_ranks(scores: Scores) -> dict[str, list[float]]:
    """Rank of every method in every block: 1 for the highest score, ties share the average."""
    table = _complete(scores)
    ranks = stats.rankdata(-table, axis=1)
    return {name: ranks[:, j].tolist() for j, name in enumerate(scores)}


def average_ranks(scores: Scores) -> dict[str, float]:
    """Mean over the blocks of `block_ranks`."""
    return {name: float(np.mean(ranks)) for name, ranks in block_ranks(scores).items()}


def friedman(scores: Scores) -> Friedman:
    r"""Friedman's test with Iman and Davenport's correction.

    .. math:: \chi^2 = \frac{12 N}{k (k + 1)} \Bigl(\sum_j R_j^2 - \frac{k (k + 1)^2}{4}\Bigr) \Big/
        \Bigl(1 - \frac{\sum (t^3 - t)}{N k (k^2 - 1)}\Bigr), \qquad
        F = \frac{(N - 1) \chi^2}{N (k - 1) - \chi^2}

    with average ranks R over N blocks of k methods and groups of t ties. F follows the F law with k - 1 and
    (k - 1)(N - 1) degrees of freedom; with the tie-corrected statistic inside it is the F of a two-way
    analysis of variance on the ranks.

    Args:
        scores: three methods or more, two blocks or more, none missing.

    References:
        [demsar2006statistical].
    """
    table = _complete(scores)
    n, k = table.shape
    if k < 3 or n < 2:
        raise ValueError(
            f"scores: {k} methods in {n} blocks; the test needs at least 3 methods and 2 blocks."
        )
    if (table == table[:, :1]).all():
        return Friedman(0.0, 1.0, 0.0, 1.0)  # all tied everywhere: 0/0 in the formula, no difference in fact
    chi2, p = (float(value) for value in stats.friedmanchisquare(*table.T))
    left = n * (k - 1) - chi2
    if left <= 1e-9 * n * k:
        return Friedman(chi2, p, math.inf, 0.0)
    f = (n - 1) * chi2 / left
    return Friedman(chi2, p, f, float(stats.f.sf(f, k - 1, (k - 1) * (n - 1))))


def nemenyi_quantile(n_methods: int, alpha: float = 0.05) -> float:
    """Upper quantile of the studentised range of k groups, infinite degrees of freedom, over sqrt(2)."""
    return float(stats.studentized_range.isf(alpha, n_methods, np.inf)) / math.sqrt(2)


def critical_difference(n_methods: int, n_blocks: int, alpha: float = 0.05) -> float:
    r"""Smallest significant difference of two average ranks, :math:`q_\alpha \sqrt{k (k + 1) / (6 N)}`.

    Args:
        n_methods: k.
        n_blocks: N.
        alpha: level.

    References:
        [demsar2006statistical].
    """
    return nemenyi_quantile(n_methods, alpha) * math.sqrt(n_methods * (n_methods + 1) / (6 * n_blocks))


def nemenyi_p(scores: Scores) -> dict[str, dict[str, float]]:
    """Nemenyi's p-value of every pair: the studentised range beyond their difference of average ranks."""
    ranks = average_ranks(scores)
    k, n = len(ranks), len(next(iter(scores.values())))
    scale = math.sqrt(2) / math.sqrt(k * (k + 1) / (6 * n))
    # One call for all differences that occur: the quantile is an integral, and pairs repeat.
    distances = sorted({abs(a - b) for a in ranks.values() for b in ranks.values()})
    chances = np.atleast_1d(stats.studentized_range.sf(np.array(distances) * scale, k, np.inf))
    p = dict(zip(distances, np.clip(chances, 0, 1).tolist(), strict=True))
    return {a: {b: p[abs(ranks[a] - ranks[b])] for b in ranks} for a in ranks}


def groups_within(ranks: Mapping[str, Number], difference: Number) -> list[tuple[str, ...]]:
    """Largest sets of two or more methods, neighbours in rank, whose extremes differ by less than that."""
    ordered = sorted(ranks, key=lambda name: ranks[name])
    found: list[tuple[str, ...]] = []
    reach = 0
    for start, first in enumerate(ordered):
        end = start
        while end < len(ordered) and ranks[ordered[end]] - ranks[first] < difference:
            end += 1
        if end > reach and end - start > 1:
            found.append(tuple(ordered[start:end]))
        reach = max(reach, end)
    return found


def ranking(scores: Scores, *, alpha: float = 0.05, names: Sequence[str] | None = None) -> Ranking:
    """Everything at once, from one score per method and block.

    Args:
        scores: method to its scores; a block with a missing score is dropped and named.
        alpha: level of the tests.
        names: of the blocks, for those that are dropped; their numbers by default.
    """
    table = np.array([_as_floats(own) for own in scores.values()]).T
    whole = ~np.isnan(table).any(1)
    labels = [str(i) for i in range(len(table))] if names is None else list(names)
    kept = {name: table[whole, j].tolist() for j, name in enumerate(scores)}
    n, k = int(whole.sum()), len(scores)
    test = friedman(kept)
    ranks = average_ranks(kept)
    difference = critical_difference(k, n, alpha)
    return Ranking(
        ranks=dict(sorted(ranks.items(), key=lambda item: item[1])),
        friedman=test,
        critical_difference=difference,
        p=nemenyi_p(kept),
        groups=groups_within(ranks, difference),
        alpha=alpha,
        blocks=n,
        dropped=[label for label, complete in zip(labels, whole, strict=True) if not complete],
    )


def ranking_of_runs(
    runs: Mapping[str, Mapping[str, Sequence[Number]]], *, blocks: Blocks = "data sets", alpha: float = 0.05
) -> Ranking:
    """The same from single runs.

    Args:
        runs: method to data set to the scores of its runs, in the order of their seeds or folds.
        blocks: "data sets" takes the mean over a data set's runs. "runs" takes every run for a block, which
            is how the paper's diagrams seem to have been drawn; it warns, because runs on one data set are
            no independent blocks.
        alpha: level of the tests.
    """
    names = list(dict.fromkeys(data for own in runs.values() for data in own))
    if blocks == "data sets":
        means = {
            method: [float(np.mean(own[data])) if own.get(data) else None for data in names]
            for method, own in runs.items()
        }
        return ranking(means, alpha=alpha, names=names)
    if blocks != "runs":
        raise ValueError(f"blocks: {blocks!r} given; expected 'data sets' or 'runs'.")
    warnings.warn(
        "blocks='runs': runs on one data set are not independent, so significance is overstated. "
        "Use blocks='data sets' for conclusions.",
        RepeatedBlocksWarning,
        stacklevel=2,
    )
    counts = {data: max(len(own.get(data, ())) for own in runs.values()) for data in names}
    single: dict[str, list[Number | None]] = {method: [] for method in runs}
    labels = []
    for data in names:
        for i in range(counts[data]):
            labels.append(f"{data}, run {i}")
            for method, own in runs.items():
                scores = own.get(data, ())
                single[method].append(scores[i] if i < len(scores) else None)
    found = ranking(single, alpha=alpha, names=labels)
    return Ranking(**{**vars(found), "unit": "runs"})


def _as_floats(scores: Sequence[Number | None]) -> list[float]:
    return [math.nan if score is None else float(score) for score in scores]


def _complete(scores: Scores) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
    """Blocks by methods; refuses missing scores and methods with different numbers of blocks."""
    lengths = {name: len(own) for name, own in scores.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"scores: methods have different numbers of blocks ({lengths}).")
    table = np.array([_as_floats(own) for own in scores.values()]).T
    missing = np.isnan(table).any(1).nonzero()[0]
    if len(missing):
        raise ValueError(
            f"scores: {len(missing)} blocks lack a score (first: {missing[0]}); leave them out, as `ranking` "
            "does."
        )
    return table

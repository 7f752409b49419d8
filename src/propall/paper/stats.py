"""Statistical tests: paired t-test, sign test, and Friedman, Iman-Davenport and Nemenyi tests on ranks."""

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from propall.report.numbers import Number

#: A block of the rank tests: a data set (mean over its runs) or a single run.
Blocks = Literal["data sets", "runs"]

#: Scores of each method, one per block, higher is better; None or NaN if missing.
Scores = Mapping[str, Sequence[Number | None]]

#: Relative difference below which two numbers count as equal.
ROUNDING = 1e-9


class RepeatedBlocksWarning(UserWarning):
    """Runs on one data set are treated as independent blocks, which overstates significance."""


class Friedman(NamedTuple):
    """Omnibus test of whether all methods are equally good."""

    chi2: float  # Friedman statistic, corrected for ties
    p: float  # by the chi-squared distribution, which is rough below about ten blocks
    f: float  # Iman-Davenport statistic; infinite if all blocks agree
    f_p: float  # its p-value, to be preferred


@dataclass(frozen=True)
class Ranking:
    """Average ranks over blocks, the tests on them, and the groups they do not separate."""

    ranks: dict[str, float]  # best (1) first
    friedman: Friedman  # the pairwise results are meaningful only if it rejects
    critical_difference: float
    p: dict[str, dict[str, float]]  # Nemenyi p-value of every pair
    groups: list[tuple[str, ...]]  # see `groups_within`
    alpha: float
    blocks: int  # those without a missing score
    unit: Blocks = "data sets"


def paired_p(ours: Sequence[Number], theirs: Sequence[Number]) -> float | None:
    """Return the two-sided p-value of the paired t-test of two methods over the same seeds or folds.

    None for a single pair. If all differences are equal: 1 if they are 0, else 0.
    """
    if len(ours) != len(theirs):
        raise ValueError(f"ours, theirs: got {len(ours)} and {len(theirs)} values; expected equal lengths.")
    gaps = np.subtract(ours, theirs)
    if len(gaps) < 2:
        return None
    # Differences equal up to rounding would be divided by rounding noise.
    scale = max(1.0, float(np.abs(np.concatenate([ours, theirs])).max()))
    if np.ptp(gaps) <= ROUNDING * scale:
        return 1.0 if abs(gaps[0]) <= ROUNDING * scale else 0.0
    return float(stats.ttest_1samp(gaps, 0.0).pvalue)


class Spread(NamedTuple):
    """Standard deviation of single runs, pooled over groups of equal runs, and its degrees of freedom."""

    deviation: float
    degrees: int


def pooled_spread(groups: Iterable[Sequence[Number]]) -> Spread | None:
    """Return the pooled standard deviation of groups with means of their own; None without two values in any.

    Examples:
        >>> pooled_spread([[1.0, 3.0], [10.0, 12.0], [7.0]])
        Spread(deviation=1.4142135623730951, degrees=2)
    """
    repeated = [group for group in groups if len(group) > 1]
    degrees = sum(len(group) - 1 for group in repeated)
    if not degrees:
        return None
    squares = sum((len(group) - 1) * float(np.var(group, ddof=1)) for group in repeated)
    return Spread(math.sqrt(squares / degrees), degrees)


def rank_ranges(
    means: Mapping[str, Number], counts: Mapping[str, int], spread: Spread, alpha: float = 0.05
) -> dict[str, tuple[int, int]]:
    r"""Return the best and the worst rank of each method that chance leaves open; 1 is the highest mean.

    Two methods differ beyond chance if their means do by the Tukey-Kramer test [kramer1956extension]: by
    more than :math:`q_\alpha s \sqrt{(1 / n_a + 1 / n_b) / 2}`, with the quantile :math:`q_\alpha` of the
    studentized range and the common standard deviation s of single runs.

    Args:
        means: mean score of each method.
        counts: number of runs of each method.
        spread: of single runs; all methods are taken to have the same.
        alpha: bound on the probability that any two equally good methods are told apart.

    Examples:
        >>> rank_ranges({"a": 95.0, "b": 94.9, "c": 90.0}, {"a": 3, "b": 1, "c": 1}, Spread(0.1, 8))
        {'a': (1, 2), 'b': (1, 2), 'c': (3, 3)}
    """
    if len(means) < 2:
        return dict.fromkeys(means, (1, 1))
    if (fewest := min(counts[name] for name in means)) < 1:
        raise ValueError(f"counts: got {fewest}; expected at least one run of each method.")
    quantile = float(stats.studentized_range.isf(alpha, len(means), spread.degrees))

    def is_better(one: str, other: str) -> bool:
        scale = spread.deviation * math.sqrt((1 / counts[one] + 1 / counts[other]) / 2)
        return _is_larger(means[one], means[other]) and means[one] - means[other] > quantile * scale

    return _open_ranks(means, is_better)


def rank_ranges_of_runs(
    runs: Mapping[str, Sequence[Number]], alpha: float = 0.05
) -> dict[str, tuple[int, int]]:
    r"""Return what `rank_ranges` does, for methods that each have a spread of their own.

    Two methods differ beyond chance if their means do by Tamhane's T2 test [tamhane1979comparison], which is
    Welch's t-test of every pair at the level :math:`1 - (1 - \alpha)^{2 / k (k - 1)}` for k methods: by more
    than :math:`t \sqrt{v_a + v_b}`, with the squared standard errors v of the means, and t with
    :math:`(v_a + v_b)^2 / (v_a^2 / (n_a - 1) + v_b^2 / (n_b - 1))` degrees of freedom.

    Args:
        runs: scores of each method, at least two of each.
        alpha: about the largest probability that any two equally good methods are told apart, from five runs
            of each; with fewer and unequal numbers it can be somewhat larger.

    Notes:
        The Games-Howell test is less strict, but not at its level with few runs: in a simulation with 17
        equally good methods and 5 runs of each, it told two apart in 10 % of the cases instead of 5 %.

    Examples:
        >>> rank_ranges_of_runs({"a": [95.0, 95.2, 95.1], "b": [94.0, 96.0, 95.0], "c": [70.0, 70.1, 70.2]})
        {'a': (1, 2), 'b': (1, 2), 'c': (3, 3)}
    """
    if len(runs) < 2:
        return dict.fromkeys(runs, (1, 1))
    if (fewest := min(map(len, runs.values()))) < 2:
        raise ValueError(f"runs: got a method with {fewest}; expected at least two scores of each.")
    means = {name: float(np.mean(scores)) for name, scores in runs.items()}
    errors = {name: float(np.var(scores, ddof=1)) / len(scores) for name, scores in runs.items()}
    level = 1 - (1 - alpha) ** (1 / math.comb(len(runs), 2))

    def is_better(one: str, other: str) -> bool:
        gap, error = means[one] - means[other], errors[one] + errors[other]
        larger = _is_larger(means[one], means[other])
        if not larger or error <= (ROUNDING * max(1.0, abs(means[one]))) ** 2:  # no spread but rounding
            return larger
        parts = (errors[name] ** 2 / (len(runs[name]) - 1) for name in (one, other))
        quantile = stats.t.isf(level / 2, error**2 / sum(parts))
        return gap > float(quantile) * math.sqrt(error)

    return _open_ranks(means, is_better)


def _is_larger(one: Number, other: Number) -> bool:
    """Whether one number is larger than another by more than rounding."""
    return one - other > ROUNDING * max(1.0, abs(one))


def _open_ranks(names: Iterable[str], is_better: Callable[[str, str], bool]) -> dict[str, tuple[int, int]]:
    """Return the best and the worst rank of each name; `is_better` holds beyond chance."""
    names = list(names)
    return {
        name: (
            1 + sum(is_better(other, name) for other in names),
            len(names) - sum(is_better(name, other) for other in names),
        )
        for name in names
    }


def sign_p(positive: int, negative: int) -> float:
    """Return the two-sided p-value of the sign test, ties excluded; 1 if there is nothing to test."""
    total = positive + negative
    return float(stats.binomtest(positive, total).pvalue) if total else 1.0


def average_ranks(scores: Scores) -> dict[str, float]:
    """Return each method's mean rank over blocks: 1 for the highest score; ties share their average rank."""
    ranks = stats.rankdata(-_complete(scores), axis=1)
    return {name: float(np.mean(ranks[:, j])) for j, name in enumerate(scores)}


def friedman(scores: Scores) -> Friedman:
    r"""Run the Friedman test with the Iman-Davenport correction.

    .. math:: \chi^2 = \frac{12 N}{k (k + 1)} \Bigl(\sum_j R_j^2 - \frac{k (k + 1)^2}{4}\Bigr) \Big/
        \Bigl(1 - \frac{\sum (t^3 - t)}{N k (k^2 - 1)}\Bigr), \qquad
        F = \frac{(N - 1) \chi^2}{N (k - 1) - \chi^2}

    with average ranks R over N blocks of k methods and groups of t ties. F has an F distribution with k - 1
    and (k - 1)(N - 1) degrees of freedom; with the tie-corrected statistic it equals the F of a two-way ANOVA
    on the ranks [demsar2006statistical].
    """
    table = _complete(scores)
    n, k = table.shape
    if k < 3 or n < 2:
        raise ValueError(
            f"scores: got {k} methods in {n} blocks; the test needs at least 3 methods and 2 blocks."
        )
    if (table == table[:, :1]).all():
        return Friedman(0.0, 1.0, 0.0, 1.0)  # all tied: the formula gives 0/0
    chi2, p = (float(value) for value in stats.friedmanchisquare(*table.T))
    left = n * (k - 1) - chi2
    if left <= 1e-9 * n * k:
        return Friedman(chi2, p, math.inf, 0.0)
    f = (n - 1) * chi2 / left
    return Friedman(chi2, p, f, float(stats.f.sf(f, k - 1, (k - 1) * (n - 1))))


def nemenyi_quantile(n_methods: int, alpha: float = 0.05) -> float:
    """Return the upper quantile of the studentized range (infinite degrees of freedom) over sqrt(2)."""
    return float(stats.studentized_range.isf(alpha, n_methods, np.inf)) / math.sqrt(2)


def critical_difference(n_methods: int, n_blocks: int, alpha: float = 0.05) -> float:
    r"""Return the smallest significant difference of ranks [demsar2006statistical].

    For k methods and N blocks, it is :math:`q_\alpha \sqrt{k (k + 1) / (6 N)}`.
    """
    return nemenyi_quantile(n_methods, alpha) * math.sqrt(n_methods * (n_methods + 1) / (6 * n_blocks))


def nemenyi_p(scores: Scores) -> dict[str, dict[str, float]]:
    """Return the Nemenyi p-value of every pair of methods."""
    ranks = average_ranks(scores)
    k, n = len(ranks), len(next(iter(scores.values())))
    scale = math.sqrt(2) / math.sqrt(k * (k + 1) / (6 * n))
    # One call for all distinct differences: each p-value is an integral, and pairs repeat.
    distances = sorted({abs(a - b) for a in ranks.values() for b in ranks.values()})
    p_values = np.atleast_1d(stats.studentized_range.sf(np.array(distances) * scale, k, np.inf))
    p = dict(zip(distances, np.clip(p_values, 0, 1).tolist(), strict=True))
    return {a: {b: p[abs(ranks[a] - ranks[b])] for b in ranks} for a in ranks}


def groups_within(ranks: Mapping[str, Number], difference: Number) -> list[tuple[str, ...]]:
    """Return maximal sets of two or more methods, adjacent in rank, that differ by less than `difference`."""
    ordered = sorted(ranks, key=lambda name: ranks[name])
    groups: list[tuple[str, ...]] = []
    reach = 0
    for start, first in enumerate(ordered):
        end = start
        while end < len(ordered) and ranks[ordered[end]] - ranks[first] < difference:
            end += 1
        if end > reach and end - start > 1:
            groups.append(tuple(ordered[start:end]))
        reach = max(reach, end)
    return groups


def ranking(scores: Scores, *, alpha: float = 0.05) -> Ranking:
    """Rank the methods and run all tests; blocks with a missing score are dropped."""
    table = _as_array(scores)
    is_complete = ~np.isnan(table).any(1)
    kept = {name: table[is_complete, j].tolist() for j, name in enumerate(scores)}
    n = int(is_complete.sum())
    test, ranks = friedman(kept), average_ranks(kept)
    difference = critical_difference(len(scores), n, alpha)
    return Ranking(
        ranks=dict(sorted(ranks.items(), key=lambda item: item[1])),
        friedman=test,
        critical_difference=difference,
        p=nemenyi_p(kept),
        groups=groups_within(ranks, difference),
        alpha=alpha,
        blocks=n,
    )


def ranking_of_runs(
    runs: Mapping[str, Mapping[str, Sequence[Number]]], *, blocks: Blocks = "data sets", alpha: float = 0.05
) -> Ranking:
    """Rank the methods from the scores of single runs, by method and data set in order of seeds or folds.

    With blocks "data sets", a score is the mean over the runs of a data set. With "runs", every run is a
    block, as the paper's diagrams seem to do; this warns, because runs on one data set are not independent.
    """
    names = list(dict.fromkeys(data for by_data in runs.values() for data in by_data))
    if blocks == "data sets":
        means = {
            method: [float(np.mean(by_data[data])) if by_data.get(data) else None for data in names]
            for method, by_data in runs.items()
        }
        return ranking(means, alpha=alpha)
    if blocks != "runs":
        raise ValueError(f"blocks: got {blocks!r}; expected 'data sets' or 'runs'.")
    warnings.warn(
        "blocks='runs': runs on one data set are not independent, so significance is overstated. "
        "Use blocks='data sets' for conclusions.",
        RepeatedBlocksWarning,
        stacklevel=2,
    )
    single: dict[str, list[Number | None]] = {method: [] for method in runs}
    for data in names:
        count = max(len(by_data.get(data, ())) for by_data in runs.values())
        for method, by_data in runs.items():
            scores = by_data.get(data, ())
            single[method] += [*scores, *[None] * (count - len(scores))]
    return replace(ranking(single, alpha=alpha), unit="runs")


def _as_array(scores: Scores) -> NDArray[np.float64]:
    """Return a (blocks, methods) array with NaN for missing scores."""
    return np.array([np.array(values, dtype=np.float64) for values in scores.values()]).T


def _complete(scores: Scores) -> NDArray[np.float64]:
    """Return a (blocks, methods) array; raises on missing scores or unequal numbers of blocks."""
    lengths = {name: len(values) for name, values in scores.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"scores: methods have different numbers of blocks ({lengths}); expected the same.")
    table = _as_array(scores)
    missing = np.flatnonzero(np.isnan(table).any(axis=1))
    if len(missing):
        raise ValueError(
            f"scores: {len(missing)} blocks lack a score (first: {missing[0]}); drop them or use `ranking`."
        )
    return table

"""Rank tests against formulas, printed quantiles and the paper's tables."""

import json
import math
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats as scipy_stats

from propall.paper import stats

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden/cases/statistics_friedman_nemenyi.json").read_text("utf-8")
)["cases"]


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["name"])
def test_tables_of_the_paper(case):
    ranking = stats.ranking(case["scores"])
    assert ranking.ranks == pytest.approx(case["average_ranks"], rel=1e-12)
    assert list(ranking.ranks.values()) == sorted(ranking.ranks.values())
    test = ranking.friedman
    expected = (case["friedman_chi2_scipy"], case["friedman_p_scipy"], case["iman_davenport_F"], case["F_p"])
    assert tuple(test) == pytest.approx(expected, rel=1e-9)
    assert ranking.critical_difference == pytest.approx(case["CD_005"], rel=1e-9)
    assert stats.critical_difference(case["k"], case["N"], 0.1) == pytest.approx(case["CD_010"], rel=1e-9)
    assert stats.nemenyi_quantile(case["k"]) == pytest.approx(case["q_005"], rel=1e-9)
    for name, values in case["nemenyi_p"].items():
        assert ranking.p[name] == pytest.approx(values, abs=1e-12)
    assert ranking.blocks == case["N"]


def test_nemenyi_matches_scikit_posthocs():
    posthocs, pandas = pytest.importorskip("scikit_posthocs"), pytest.importorskip("pandas")
    scores = GOLDEN[0]["scores"]
    table = posthocs.posthoc_nemenyi_friedman(pandas.DataFrame(scores))
    for name, values in stats.nemenyi_p(scores).items():
        assert values == pytest.approx(dict(table.loc[name]), abs=1e-12)


def test_quantiles_match_printed_tables():
    printed = [1.960, 2.344, 2.569, 2.728, 2.850, 2.948, 3.031, 3.102, 3.164, 3.219, 3.268]
    assert [stats.nemenyi_quantile(k) for k in range(2, 13)] == pytest.approx(printed, abs=6e-4)


def test_ties_share_ranks_and_f_equals_anova_on_ranks():
    rng = np.random.default_rng(0)
    table = rng.integers(0, 4, (6, 4)).astype(float)
    scores = {str(j): table[:, j].tolist() for j in range(4)}
    ranks = np.array([scipy_stats.rankdata(-row) for row in table])
    assert stats.average_ranks(scores) == pytest.approx(dict(zip(scores, ranks.mean(0), strict=True)))
    centred = ranks - ranks.mean()
    methods = len(table) * (centred.mean(0) ** 2).sum()
    blocks = 4 * (centred.mean(1) ** 2).sum()
    rest = (centred**2).sum() - methods - blocks
    f = (methods / 3) / (rest / (3 * 5))
    assert stats.friedman(scores).f == pytest.approx(f, rel=1e-10)


def test_full_agreement_and_full_ties():
    agree = {"a": [3, 3, 3], "b": [2, 2, 2], "c": [1, 1, 1]}
    assert stats.friedman(agree).f == math.inf
    assert stats.friedman(agree).f_p == 0
    tied = {"a": [1, 2], "b": [1, 2], "c": [1, 2]}
    assert stats.friedman(tied) == (0, 1, 0, 1)
    with pytest.raises(ValueError, match="at least 3 methods"):
        stats.friedman({"a": [1, 2], "b": [2, 1]})


def test_blocks_with_a_missing_score_are_dropped():
    scores = {"a": [3, 2, None, 3], "b": [2, 3, 1, 2], "c": [1, 1, 2, math.nan]}
    ranking = stats.ranking(scores)
    assert ranking == stats.ranking({name: values[:2] for name, values in scores.items()})
    assert ranking.blocks == 2
    assert ranking.ranks == {"a": 1.5, "b": 1.5, "c": 3.0}
    with pytest.raises(ValueError, match="2 blocks lack a score"):
        stats.average_ranks(scores)
    with pytest.raises(ValueError, match="different numbers of blocks"):
        stats.average_ranks({"a": [1], "b": [1, 2]})


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ({"a": 1, "b": 2, "c": 3}, [("a", "b"), ("b", "c")]),
        ({"a": 1, "b": 1.2, "c": 1.4}, [("a", "b", "c")]),
        ({"a": 1, "b": 3, "c": 5}, []),
        ({"c": 2.5, "a": 1, "b": 2}, [("a", "b"), ("b", "c")]),
        ({"a": 1, "b": 2, "c": 2.5, "d": 4}, [("a", "b"), ("b", "c")]),
    ],
)
def test_groups_are_maximal(ranks, expected):
    assert stats.groups_within(ranks, 1.5) == expected


def test_runs_as_blocks_warn():
    rng = np.random.default_rng(1)
    runs = {
        name: {data: (base + rng.normal(size=5)).tolist() for data in ("x", "y", "z")}
        for name, base in {"a": 3, "b": 2, "c": 0}.items()
    }
    means = {
        name: [float(np.mean(values[data])) for data in ("x", "y", "z")] for name, values in runs.items()
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert stats.ranking_of_runs(runs) == stats.ranking(means)
    with pytest.warns(stats.RepeatedBlocksWarning, match="not independent"):
        each = stats.ranking_of_runs(runs, blocks="runs")
    assert each.unit == "runs"
    assert each.blocks == 15
    assert each.critical_difference < stats.ranking(means).critical_difference
    del runs["a"]["y"]
    assert stats.ranking_of_runs(runs).blocks == 2
    runs["b"]["z"].pop()
    complete = {name: [*by_data["x"], *by_data["z"][:4]] for name, by_data in runs.items()}
    with pytest.warns(stats.RepeatedBlocksWarning):
        without_y = stats.ranking_of_runs(runs, blocks="runs")
    assert without_y == replace(stats.ranking(complete), unit="runs")
    with pytest.raises((ValueError, TypeError), match="data sets"):
        stats.ranking_of_runs(runs, blocks="seeds")


def test_paired_p():
    ours, theirs = [0.9, 0.8, 0.95, 0.7], [0.85, 0.79, 0.9, 0.72]
    assert stats.paired_p(ours, theirs) == pytest.approx(scipy_stats.ttest_rel(ours, theirs).pvalue)
    assert stats.paired_p([1.0], [2.0]) is None
    assert stats.paired_p([1.0, 2.0], [1.0, 2.0]) == 1.0
    assert stats.paired_p([0.1, 0.2, 0.3], [0.0, 0.1, 0.2]) == 0.0  # equal up to rounding
    with pytest.raises(ValueError, match="3 and 2 values"):
        stats.paired_p([1, 2, 3], [1, 2])


def test_sign_p():
    assert stats.sign_p(9, 0) == pytest.approx(2 / 2**9)
    assert stats.sign_p(3, 3) == 1.0
    assert stats.sign_p(0, 0) == 1.0


def ranges_by_p_values(groups, p_values, level):
    """Best and worst rank by the pairwise p-values of another library."""
    means = [values.mean() for values in groups.values()]
    ranges = {}
    for i, name in enumerate(groups):
        differs = [p < level for p in p_values[i]]
        better = sum(d and other > means[i] for d, other in zip(differs, means, strict=True))
        worse = sum(d and other < means[i] for d, other in zip(differs, means, strict=True))
        ranges[name] = (1 + better, len(means) - worse)
    return ranges


def test_rank_ranges_agree_with_the_tukey_test_of_scipy():
    rng, seen = np.random.default_rng(0), set()
    for _ in range(40):
        groups = {name: rng.normal(i, 1.0, 3 + i) for i, name in enumerate("abcde")}
        spread = stats.pooled_spread(list(groups.values()))
        within = sum(((values - values.mean()) ** 2).sum() for values in groups.values())
        assert spread.degrees == 20
        assert spread.deviation == pytest.approx(math.sqrt(within / 20))
        means = {name: values.mean() for name, values in groups.items()}
        counts = {name: len(values) for name, values in groups.items()}
        ranges = stats.rank_ranges(means, counts, spread)
        p_values = scipy_stats.tukey_hsd(*groups.values()).pvalue
        assert ranges == ranges_by_p_values(groups, p_values, 0.05)
        seen.add(tuple(ranges.values()))
    assert len(seen) > 10
    # More runs narrow the ranges, and a single method has the only rank.
    narrow = stats.rank_ranges(means, dict.fromkeys(means, 1000), spread)
    assert narrow["a"] == (5, 5)
    assert stats.rank_ranges({"a": 1.0}, {"a": 1}, spread) == {"a": (1, 1)}
    assert stats.pooled_spread([[1.0], [2.0], []]) is None
    # At another level, and without spread: only rounding is no difference.
    pair, counts = {"a": 1.0, "b": 0.0}, {"a": 2, "b": 2}
    levels = {
        alpha: stats.rank_ranges(pair, counts, stats.Spread(0.4, 4), alpha)["a"] for alpha in (0.2, 0.01)
    }
    assert levels == {0.2: (1, 1), 0.01: (1, 2)}
    thirds = {name: sum([100 / 3] * count) / count for name, count in (("a", 1), ("b", 7), ("c", 10))}
    ranges = stats.rank_ranges(thirds, dict.fromkeys(thirds, 1), stats.Spread(0.0, 3))
    assert set(ranges.values()) == {(1, 3)}
    with pytest.raises(ValueError, match="counts: got 0; expected at least one run"):
        stats.rank_ranges(pair, {"a": 0, "b": 2}, spread)


def test_rank_ranges_of_runs_agree_with_welch_tests_of_scipy():
    rng, seen = np.random.default_rng(1), set()
    for _ in range(40):
        scales = rng.uniform(0.2, 2.0, 5)
        groups = {name: rng.normal(1.5 * i, scales[i], 4 + i) for i, name in enumerate("abcde")}
        p_values = [
            [scipy_stats.ttest_ind(a, b, equal_var=False).pvalue for b in groups.values()]
            for a in groups.values()
        ]
        ranges = stats.rank_ranges_of_runs(groups)
        assert ranges == ranges_by_p_values(groups, p_values, 1 - 0.95 ** (1 / 10))
        seen.add(tuple(ranges.values()))
    assert len(seen) > 10


def test_equally_good_methods_are_rarely_told_apart():
    rng, wrong = np.random.default_rng(2), 0
    for _ in range(400):
        runs = {str(i): rng.normal(0, 1 + i % 3, 5) for i in range(9)}
        wrong += any(span != (1, 9) for span in stats.rank_ranges_of_runs(runs).values())
    assert wrong / 400 < 0.06  # the Games-Howell test has about 0.08 here


def test_methods_without_spread_are_told_apart_by_any_difference_but_rounding():
    assert stats.rank_ranges_of_runs({"a": [1, 1], "b": [1, 1], "c": [2, 2]}) == {
        "a": (2, 3),
        "b": (2, 3),
        "c": (1, 1),
    }
    thirds = {name: [100 / 3] * count for name, count in (("a", 5), ("b", 7), ("c", 10))}
    assert set(stats.rank_ranges_of_runs(thirds).values()) == {(1, 3)}
    assert stats.rank_ranges_of_runs({"a": [1.0, 2.0]}) == {"a": (1, 1)}
    with pytest.raises(ValueError, match="runs: got a method with 1; expected at least two"):
        stats.rank_ranges_of_runs({"a": [1.0, 2.0], "b": [1.0]})
    runs = {"a": [1.0, 1.1, 0.9], "b": [0.7, 0.8, 0.6]}
    assert [stats.rank_ranges_of_runs(runs, alpha)["a"] for alpha in (0.2, 0.001)] == [(1, 1), (1, 2)]

"""Comparison of methods: the paper's settings, deviation over folds, refusals with their reason."""

import statistics

import pytest

from propall.paper import comparison
from propall.paper.store import Store
from propall.paper.tables import TABLES
from propall.paper.tables.paper_table import PaperCell


def test_all_is_the_papers_real_world_table_with_its_settings(root):
    entered = comparison.find_contenders(["lost"])
    assert [entry.name for entry in entered] == list(comparison.ALL)
    assert len(entered) == 14
    real = TABLES["real"]
    for entry in entered:
        cell = PaperCell("real", "lost", entry.name)
        # The runs of the table, so that both commands can share a store.
        assert [spec.key for spec in entry.specs] == [spec.key for spec in real.specs(cell, "folds5")]
        assert entry.published == real.published(cell)
        assert entry.in_paper
        assert not entry.refused


def test_other_folds_and_epochs_are_other_protocols(root):
    (entry,) = comparison.find_contenders(["lost"], ["propall"], folds=3, seeds=2, epochs=7)
    assert {spec.protocol for spec in entry.specs} == {"folds3, 7 epochs"}
    assert [(spec.seed, spec.split.fold) for spec in entry.specs] == [
        (s, f) for s in (0, 1) for f in range(3)
    ]


def test_methods_that_cannot_take_the_data_are_listed_with_the_reason(root, tmp_path):
    entered = comparison.find_contenders(["lost"], ["pc_ishida", "pl_knn", "lws"], folds=2, epochs=1)
    refused, able, outside = entered
    assert "do not exclude exactly one label" in refused.refused
    assert not outside.in_paper
    assert outside.published is None
    assert outside.specs[0].recipe.batch_size == 100
    with Store(tmp_path / "r.sqlite") as store:
        scores = comparison.compare_methods(entered, store, device="cpu")
        assert len(store) == 4
    assert [score.contender.name for score in scores] == ["pl_knn", "lws"]
    rows = comparison.as_dicts(entered, scores)
    assert rows[0]["refused"] == refused.refused
    assert rows[1]["mean"] == scores[0].mean
    assert able.title == "PL-KNN"


def test_spread_is_over_folds_after_the_mean_over_seeds(root, tmp_path):
    entered = comparison.find_contenders(["lost", "msrcv2"], ["propall", "ipal"], folds=3, seeds=2, epochs=2)
    with Store(tmp_path / "r.sqlite") as store:
        scores = comparison.compare_methods(entered, store, device="cpu")
        results = store.find(scores[0].contender.specs)
    by_fold = [
        statistics.fmean(100 * r.accuracy for r in results.values() if r.spec.split.fold == fold)
        for fold in range(3)
    ]
    assert scores[0].mean == pytest.approx(statistics.fmean(by_fold))
    assert scores[0].std == pytest.approx(statistics.stdev(by_fold))
    assert scores[0].seconds == pytest.approx(sum(r.seconds for r in results.values()))
    line = comparison.summarize_scores(scores, 61.0)
    assert line.startswith("24 runs; wall-clock time of this call 1 min 01 s. Best: Lost ")
    assert "MSRCv2" in line


def test_says_which_names_are_wrong(root):
    with pytest.raises(KeyError, match="propall"):
        comparison.find_contenders(["lost"], ["propal"])
    with pytest.raises(ValueError, match="digits has no candidate sets"):
        comparison.find_contenders(["digits"], ["propall"])


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("method", "lost", "msrcv2"),
    [("ipal", 71.4, 52.7), ("pl_knn", 38.9, 44.7), ("clpl", 72.2, 43.4), ("plle-explored", 69.7, 46.7)],
)
def test_numbers_of_the_published_sets(tmp_path, method, lost, msrcv2):
    entered = comparison.find_contenders(["lost", "msrcv2"], [method])
    with Store(tmp_path / "r.sqlite") as store:
        scores = comparison.compare_methods(entered, store, device="cpu")
    assert [score.mean for score in scores] == pytest.approx([lost, msrcv2], abs=0.2)

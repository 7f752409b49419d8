"""The experiment with pairs of classes: its sets, what it counts, and that it resumes."""

import pytest
import torch

from propall.paper.studies import head_starts, paired_classes
from propall.paper.studies.paired_classes import (
    MODELED_BASES,
    PairedClasses,
    PairSetting,
    count_pairs,
    draw_pairs,
    list_cells,
    mean_accuracies,
    model_head_starts,
    run_pairs,
    swallowed_shares,
    table_rows,
    teacher_runs,
)
from propall.registry import UnknownNameError

TINY = PairSetting(epochs=6, seeds=2, q=0.0, together=(0.3, 1.0))


def test_pairs_are_mutual_and_differ_by_seed():
    pairs = [draw_pairs(10, seed) for seed in range(5)]
    for partner in pairs:
        assert all(partner[partner[one]] == one != partner[one] for one in range(10))
    assert len(set(pairs)) > 1
    odd = draw_pairs(3, 0)
    assert sum(odd[one] == one for one in range(3)) == 1


def test_probabilities_of_candidates():
    truth = torch.arange(4).repeat(5000)
    sets = PairedClasses((2, 3, 0, 1), together=0.8, q=0.1)(truth, 4, seed=0).double()
    shares = torch.stack([sets[truth == label].mean(0) for label in range(4)])
    expected = torch.full((4, 4), 0.1).fill_diagonal_(1)
    expected[torch.arange(4), torch.tensor([2, 3, 0, 1])] = 0.8
    assert torch.allclose(shares, expected.double(), atol=0.02)


def test_a_pair_is_told_apart_swallowed_or_swapped():
    kept = torch.tensor([1.0, 0.1, 0.2, 0.3, 0.9, 0.8])
    counted = count_pairs(torch.diag(kept), (1, 0, 3, 2, 5, 4))
    assert counted == {"pairs": 3, "swallowed": 1, "swapped": 1}


def test_classes_that_always_come_together_are_lost_and_others_are_not(tmp_path):
    path, notes = tmp_path / paired_classes.FILE_NAME, []
    run_pairs(path, setting=TINY, cells=["cc/one-view"], note=notes.append)
    report = run_pairs(path, setting=TINY, cells=["cc/one-view", "cc/balanced"], note=notes.append)
    assert notes == ["cc/one-view (1 of 1)", "cc/balanced (1 of 1)"]
    few, always = swallowed_shares(report, "cc/one-view")
    assert few <= 0.2
    assert always >= 0.8
    assert mean_accuracies(report, "cc/one-view")[1] < 0.7 < mean_accuracies(report, "cc/one-view")[0]
    columns, rows = table_rows(report)
    assert columns[1:] == ["r = 0.3", "r = 1"]
    assert [row[0] for row in rows] == ["cc/one-view", "cc/balanced"]
    with pytest.raises(ValueError, match="another setting"):
        run_pairs(path, setting=PairSetting(), note=notes.append)


def test_sets_of_a_teacher(tmp_path):
    setting = PairSetting(epochs=3, seeds=2, rates=(0.05, 0.4), teacher_epochs=3)
    report = run_pairs(tmp_path / "out.json", setting=setting, cells=["cc/one-view/teacher"], note=str)
    few, many = (teacher_runs(report, "cc/one-view", rate) for rate in setting.rates)
    assert [run["seed"] for run in many] == [0, 1]
    assert max(run["candidates"] for run in few) < min(run["candidates"] for run in many)
    assert all(0 <= run["swallowed"] <= 10 for run in few + many)
    assert min(run["test"] for run in few) > max(run["test"] for run in many)
    _, (row,) = table_rows(report)
    assert row[0] == "cc/one-view/teacher"
    assert row[2].endswith("at rate 0.4")


def test_the_model_covers_every_base_loss_without_memory(monkeypatch):
    monkeypatch.setattr(head_starts, "HALVINGS", 3)
    starts = model_head_starts(PairSetting(together=(0.2, 1.0)))
    assert set(starts) == {f"{base}/{t}" for base in MODELED_BASES for t in ("one-view", "views")}
    few, always = starts["propall/views"]
    assert few is None or few > always


def test_trainings_and_cells_by_name():
    assert PairSetting().recipe("one-view").views.n_strong == 0
    assert PairSetting().recipe("views").views.n_strong == 1
    assert PairSetting().recipe("balanced").views.balance > 0
    assert list_cells(["cc/*"])[:3] == ["cc/one-view", "cc/views", "cc/balanced"]
    assert list_cells(["cc/views*"]) == ["cc/views", "cc/views/teacher"]
    with pytest.raises(UnknownNameError, match="ccc"):
        list_cells(["ccc/*"])

"""The study of base losses: what it measures, that it resumes, and its page."""

import pytest
import torch

from propall.methods.cc import CC
from propall.methods.propall import ProPaLL
from propall.paper.pages.base_losses import base_loss_sections
from propall.paper.studies import base_losses
from propall.paper.studies.base_losses import (
    BaseLossSetting,
    Condition,
    TeacherKind,
    gaps,
    list_conditions,
    measure_candidates,
    most_confusable,
    run_study,
)
from propall.registry import UnknownNameError

TINY = BaseLossSetting("digits", "small_cnn", epochs=2, per_class=6, measured_rows=40)
TEACHER = TeacherKind(epochs=1, augmented=False, rate=0.3)
CONDITIONS = [Condition(base, True, TEACHER) for base in ("propall", "cc")]


def test_most_confusable_is_the_teachers_best_wrong_candidate():
    teacher = torch.tensor([[9.0, 5.0, 7.0], [9.0, 5.0, 7.0], [1.0, 2.0, 3.0]])
    candidates = torch.tensor([[True, True, False], [True, False, False], [True, True, True]])
    truth = torch.tensor([0, 0, 2])
    assert most_confusable(teacher, candidates, truth).tolist() == [1, -1, 1]


def test_measurements_by_hand():
    # Two ambiguous rows with uniform logits and one clean row that must not count.
    logits = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    candidates = torch.tensor([[True, True, False], [True, True, False], [True, False, False]])
    truth, confusable = torch.tensor([0, 0, 0]), torch.tensor([1, 1, -1])
    measured = measure_candidates(logits, candidates, truth, confusable, CC())
    p = torch.tensor([1.0, torch.e]) / (1 + torch.e)
    entropy = (torch.tensor(2.0).log() - (p * p.log()).sum()) / 2
    assert measured["resolved"] == 0.5
    assert measured["confusable_wins"] == 1.0
    assert measured["entropy"] == pytest.approx(float(entropy), abs=1e-6)
    # CC pushes candidate j by (its share of S) - p_j, labels outside by -p_j.
    outside = -(1 / 3 + 1 / (2 + torch.e)) / 2
    assert measured["push_outside"] == pytest.approx(outside, abs=1e-6)
    truth_push = ((1 / 2 - 1 / 3) + (float(p[0]) - 1 / (2 + torch.e))) / 2
    assert measured["push_truth"] == pytest.approx(truth_push, abs=1e-6)
    total = sum(measured[f"push_{name}"] for name in ("truth", "confusable", "others", "outside"))
    assert total == pytest.approx(0, abs=1e-6)
    # ProPaLL's candidates do not compete through a softmax: at p = 1/2 each, its pushes differ from CC's.
    assert measure_candidates(logits, candidates, truth, confusable, ProPaLL())["push_outside"] != outside


def test_conditions_are_selected_by_pattern():
    names = [condition.name for condition in list_conditions()]
    assert len(set(names)) == len(names)
    assert names[0] == "propall/views/20-augmented-0.4"
    assert "cc/one-view/20-plain-0.4" in names
    assert all(c.base == "cc" for c in list_conditions(["cc/*"]))
    with pytest.raises(UnknownNameError, match="ccc"):
        list_conditions(["ccc/*"])


def test_resumes_and_draws_its_page(tmp_path, monkeypatch):
    path, notes = tmp_path / base_losses.FILE_NAME, []
    run_study(path, CONDITIONS[:1], setting=TINY, device="cpu", note=notes.append)
    report = run_study(path, CONDITIONS, setting=TINY, device="cpu", note=notes.append)
    assert notes == [f"{CONDITIONS[0].name} (1 of 1)", f"{CONDITIONS[1].name} (1 of 1)"]
    runs = report["runs"]
    assert [len(run["epochs"]) for run in runs.values()] == [2, 2]
    # Both base losses learn from the same sets.
    assert len({run["candidates"] for run in runs.values()}) == 1
    assert base_losses.read_study(path) == report
    ((key, gap),) = gaps(report).items()
    assert key == (True, TEACHER.name)
    tests = [run["epochs"][-1]["test"] for run in runs.values()]
    assert gap == pytest.approx(100 * (tests[0] - tests[1]))
    (section,) = base_loss_sections(report)
    assert "ProPaLL" in section.heading
    table = section.blocks[0].block
    assert [row.title for row in table.rows] == [f"views, {TEACHER.title}"] * 2
    assert "<svg" in section.blocks[1].to_html("s")
    with pytest.raises(ValueError, match="another setting"):
        run_study(path, CONDITIONS, setting=BaseLossSetting(), device="cpu")
    assert base_loss_sections({}) == []

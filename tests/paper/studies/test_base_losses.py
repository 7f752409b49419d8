"""The study of base losses: what it measures, that it resumes, and its page."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from propall.data import load
from propall.data.corruption import InstanceDependent, flip_probabilities
from propall.methods.cc import CC
from propall.methods.propall import ProPaLL
from propall.paper.pages.base_losses import base_loss_sections
from propall.paper.runner import ProblemCache
from propall.paper.studies import base_losses
from propall.paper.studies.base_losses import (
    TEACHERS,
    BaseLossSetting,
    Condition,
    TeacherKind,
    condition_of,
    describe_swallowed,
    find_swallowed,
    gaps,
    list_conditions,
    measure_candidates,
    most_confusable,
    run_study,
    table_rows,
)
from propall.registry import UnknownNameError

RESULTS = Path(__file__).parents[3] / "results"
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
    ((key, differences),) = gaps(report).items()
    assert key == ("views", TEACHER.name)
    tests = [run["epochs"][-1]["test"] for run in runs.values()]
    assert differences == pytest.approx([100 * (tests[0] - tests[1])])
    (section,) = base_loss_sections(report)
    assert "ProPaLL" in section.heading
    table = section.blocks[0].block
    assert [row.title for row in table.rows] == [f"views, {TEACHER.title}"] * 2
    assert "<svg" in section.blocks[1].to_html("s")
    with pytest.raises(ValueError, match="another setting"):
        run_study(path, CONDITIONS, setting=BaseLossSetting(), device="cpu")
    assert base_loss_sections({}) == []


def test_a_run_says_where_the_rows_of_every_class_went(tmp_path):
    path = tmp_path / base_losses.FILE_NAME
    condition = Condition("cc", False, TEACHER, seed=3)
    setting = dataclasses.replace(TINY, measured_rows=60)  # all of them
    (run,) = run_study(path, [condition], setting=setting, device="cpu", note=str)["runs"].values()
    assert condition_of(run) == condition
    assert condition.name == f"cc/one-view/{TEACHER.name}/seed-3"
    shares, resolution = torch.tensor(run["candidate_shares"]), torch.tensor(run["resolution"])
    assert torch.all(shares.diagonal() == 1)
    # A row can only go to a label in its set.
    assert torch.all(resolution <= shares + 1e-3)
    assert run["class_resolved"][-1] == pytest.approx(resolution.diagonal().tolist(), abs=1e-3)
    assert len(run["class_resolved"]) == 2
    assert torch.tensor(run["class_test"]).mean() == pytest.approx(run["epochs"][-1]["test"], abs=0.1)
    lost = int((resolution.diagonal() < 0.5).sum())
    assert len(find_swallowed(run)) == lost > 0
    assert describe_swallowed(run).count(" by ") == lost
    columns, (row,) = table_rows(base_losses.read_study(path))
    assert len(columns) == len(row)
    assert row[-1] == str(lost)


def test_a_killed_run_continues_with_its_measurements(tmp_path):
    condition = Condition("cc", True, TEACHER)
    spec = condition.spec(TINY)
    problems = ProblemCache(spec.source(load("digits")), torch.device("cpu"), tmp_path)
    problem, teacher = problems.get(spec), problems.teacher(spec)
    recorders = [base_losses.CandidateRecorder(problem, teacher, CC(), 40) for _ in range(2)]
    scores = torch.randn(400, 10, generator=torch.Generator().manual_seed(0))
    for epoch in (1, 2):
        recorders[0].epoch(epoch, [0], torch.zeros(1), lambda x: scores[None, : len(x)])
    assert recorders[1].state() == {}
    recorders[1].restore({})
    recorders[1].restore(recorders[0].state())
    assert recorders[1].epochs == recorders[0].epochs
    assert recorders[1].class_resolved == recorders[0].class_resolved
    assert torch.equal(recorders[1].resolution, recorders[0].resolution)


def test_files_with_one_seed_for_all_runs_can_be_read(tmp_path):
    path = tmp_path / base_losses.FILE_NAME
    old = {"base": "cc", "with_views": True, "teacher": {"epochs": 20, "augmented": False, "rate": 0.4}}
    run = {**old, "candidates": 4.5, "epochs": [{"epoch": 1, "test": 0.5}]}
    setting = {"data": "cifar10", "seed": 2}
    path.write_text(json.dumps({"setting": setting, "runs": {"cc/views/20-plain-0.4": run}}))
    report = base_losses.read_study(path)
    assert report["setting"] == {"data": "cifar10"}
    assert list(report["runs"]) == ["cc/views/20-plain-0.4/seed-2"]
    (run,) = report["runs"].values()
    assert condition_of(run) == Condition("cc", True, TeacherKind(augmented=False), seed=2)
    assert find_swallowed(run) is None
    assert describe_swallowed(run) == "not measured"


def test_stored_results_have_the_setting_of_the_study():
    report = base_losses.read_study(RESULTS / base_losses.FILE_NAME)
    assert report["setting"] == dataclasses.asdict(BaseLossSetting())
    assert all(name == condition_of(run).name for name, run in report["runs"].items())
    assert gaps(report)


def scores_and_truth():
    generator = torch.Generator().manual_seed(0)
    return 3 * torch.randn(400, 10, generator=generator), torch.randint(10, (400,), generator=generator)


def test_scores_are_scaled_to_a_mean_number_of_candidates():
    scores, truth = scores_and_truth()
    kind = TeacherKind(candidates=2.7)
    sizes = InstanceDependent(0.4).mean_size(kind.change_scores(scores, truth), truth)
    assert sizes == pytest.approx(2.7, abs=0.01)
    assert abs(InstanceDependent(0.4).mean_size(scores, truth) - 2.7) > 0.1
    with pytest.raises(ValueError, match="candidates: got 9"):
        TeacherKind(candidates=9).change_scores(scores, truth)


def test_sets_of_class_means_depend_on_the_class_alone():
    scores, truth = scores_and_truth()
    changed = TeacherKind(by_class=True).change_scores(scores, truth)
    flips = flip_probabilities(changed, truth)
    for label in range(10):
        of_class = flips[truth == label]
        assert torch.allclose(of_class, of_class[:1].expand_as(of_class))
    wrong = flip_probabilities(scores, truth, 0.01)  # too small to be clipped
    means = torch.stack([wrong[truth == label].mean(0) for label in range(10)])
    assert torch.allclose(flip_probabilities(changed, truth, 0.01), means[truth], atol=1e-6)


def test_teachers_and_balance_have_names_and_recipes_of_their_own():
    names = [teacher.name for teacher in TEACHERS]
    assert len(set(names)) == len(names)
    titles = [teacher.title for teacher in TEACHERS]
    assert len(set(titles)) == len(titles)
    specs = [condition.spec(TINY) for condition in list_conditions()]
    assert len({spec.key for spec in specs}) == len(specs)
    cutout = Condition("cc", True, TeacherKind(cutout=3)).spec(TINY)
    assert cutout.teacher.recipe.views.weak.cutout == 3
    assert cutout.recipe.views.weak.cutout == 0
    balanced = Condition("cc", True, TEACHER, balance=0.5)
    assert balanced.name.startswith("cc/balanced/")
    assert balanced.spec(TINY).recipe.views.balance == 0.5
    with pytest.raises(ValueError, match="without views"):
        Condition("cc", False, TEACHER, balance=0.5)
    seeds = list_conditions(["cc/views/20-plain-0.4"], range(2))
    assert [condition.name for condition in seeds] == [
        "cc/views/20-plain-0.4",
        "cc/views/20-plain-0.4/seed-1",
    ]

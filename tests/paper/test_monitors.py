"""CurveRecorder: each run is measured on its own test set."""

import pytest
import torch

from propall.data.dataset import PartialDataset, Problem
from propall.paper.monitors import EARLY_EPOCHS, LATE_EPOCHS, AccuracyListener, CurveRecorder


def problem(seed, rows=7, k=3):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, k, generator=g)
    truth = torch.randint(k, (rows,), generator=g)
    train = PartialDataset(x, torch.ones(rows, k, dtype=torch.bool))
    return Problem(train, truth, x, truth, ("a", "b", "c"))


def scorer(factors):
    """Scores of runs that multiply the features by a factor each."""
    return lambda x: torch.stack([factor * x for factor in factors])


def expected(problem, factor):
    return float(((factor * problem.test_x).argmax(-1) == problem.test_truth).double().mean())


def test_runs_with_different_test_sets_are_measured_each_on_its_own():
    one, other = problem(0), problem(1, rows=9)
    problems, factors = [one, other, one], [1.0, -1.0, -2.0]
    curves = CurveRecorder(problems, confusions=[1])
    curves.begin(1, [2, 0, 1], 0)
    # The stack's order is not the order of the runs.
    curves.epoch(1, [2, 0, 1], torch.zeros(3), scorer([factors[2], factors[0], factors[1]]))
    for run in range(3):
        assert curves.accuracies(run) == {1: expected(problems[run], factors[run])}
    (counts,) = curves.confusion_matrices(1).values()
    assert torch.tensor(counts).diag().sum() == round(expected(other, -1.0) * 9)
    assert sum(map(sum, counts)) == 9
    assert curves.confusion_matrices(0) == {}


def test_measures_the_first_the_last_and_every_so_many_epochs():
    curves = CurveRecorder([problem(0)], every=50)
    curves.begin(200, [0], 0)
    measured = [epoch for epoch in range(1, 201) if curves.due(epoch)]
    assert measured == [*range(1, EARLY_EPOCHS + 1), 50, 100, 150, *range(200 - LATE_EPOCHS + 1, 201)]


def test_goes_on_from_what_was_remembered_and_tells_a_listener():
    received = []

    class Listener(AccuracyListener):
        def measured(self, epoch, accuracies):
            received.append((epoch, accuracies))

    problems = [problem(0), problem(1)]
    before = CurveRecorder(problems, confusions=[0])
    before.begin(2, [0, 1], 0)
    before.epoch(1, [0, 1], torch.zeros(2), scorer([1.0, 1.0]))
    after = CurveRecorder(problems, confusions=[0], listener=Listener())
    after.restore(before.state())
    after.begin(2, [0, 1], 1)
    after.epoch(2, [0, 1], torch.zeros(2), scorer([-1.0, 1.0]))
    assert after.accuracies(0) == {1: expected(problems[0], 1.0), 2: expected(problems[0], -1.0)}
    assert list(after.confusion_matrices(0)) == [1, 2]
    assert received == [(2, {0: expected(problems[0], -1.0), 1: expected(problems[1], 1.0)})]


@pytest.mark.parametrize("run", [1, 11])
def test_run_numbers_are_not_confused_with_longer_ones(run):
    curves = CurveRecorder([problem(i) for i in range(12)])
    curves.begin(1, range(12), 0)
    curves.epoch(1, range(12), torch.zeros(12), scorer([1.0] * 12))
    assert curves.accuracies(run) == {1: expected(problem(run), 1.0)}


def test_sensitivity_is_kept_class_by_class_for_those_who_ask():
    problems = [problem(0), problem(1, rows=9), problem(2)]
    curves = CurveRecorder(problems, recalls=[2, 1], confusions=[2])
    curves.begin(1, [0, 1, 2], 0)
    curves.epoch(1, [0, 1, 2], torch.zeros(3), scorer([1.0, -1.0, 1.0]))
    assert curves.class_recalls(0) == {}
    for run, factor in ((1, -1.0), (2, 1.0)):
        tested = problems[run]
        right = (factor * tested.test_x).argmax(-1) == tested.test_truth
        shares = [
            float(right[tested.test_truth == c].double().mean()) if (tested.test_truth == c).any() else 0.0
            for c in range(3)
        ]
        assert curves.class_recalls(run)[1] == pytest.approx(shares, abs=1e-5)


def test_a_run_by_itself_is_timed_without_the_measuring_and_across_a_kill(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("propall.paper.monitors.time.perf_counter", lambda: now[0])

    def slow(x):
        now[0] += 5.0  # measuring takes its time
        return torch.stack([x])

    before = CurveRecorder([problem(0)])
    before.begin(3, [0], 0)
    for epoch in (1, 2):
        now[0] += 1.0
        before.epoch(epoch, [0], torch.zeros(1), slow)
    assert before.times() == {1: 1.0, 2: 2.0}
    assert before.seconds == 12.0
    state = before.state()
    now[0] += 1000.0
    after = CurveRecorder([problem(0)])
    after.restore(state)
    after.begin(3, [0], 2)
    now[0] += 1.0
    after.epoch(3, [0], torch.zeros(1), slow)
    assert after.times() == {1: 1.0, 2: 2.0, 3: 3.0}
    assert after.seconds == 18.0
    both = CurveRecorder([problem(0), problem(1)])
    both.begin(1, [0, 1], 0)
    both.epoch(1, [0, 1], torch.zeros(2), scorer([1.0, 1.0]))
    assert both.times() == {}

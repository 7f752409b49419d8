"""Sweeps: stored runs are not repeated, and a kill at any moment loses no finished run."""

import io
import multiprocessing
import random
import signal
import time
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from propall.data.corruption import Exactly, InstanceDependent
from propall.methods.cc import CC
from propall.methods.pc_ishida import PCIshida
from propall.methods.pl_knn import PLKNN
from propall.methods.proden import PRODEN
from propall.methods.propall import ProPaLL
from propall.paper import progress as progress_module
from propall.paper import scheduler, workers
from propall.paper.progress import RunProgress
from propall.paper.runtime_estimates import RuntimeEstimates
from propall.paper.specs import Spec, Split
from propall.paper.store import Store
from propall.provenance import hardware
from propall.training.checkpoint import Checkpoint
from propall.training.recipe import Recipe

QUICK = Recipe(epochs=2, batch_size=50, learning_rate=0.1)


def small(seeds=2, recipe=QUICK):
    return [
        Spec("blobs", method, "linear", recipe, Exactly(2), seed=seed)
        for method in (ProPaLL(), CC(), PLKNN())
        for seed in range(seeds)
    ]


class Reporting(RunProgress):
    """Reports every epoch and every stored stack to a pipe, and waits for the answer."""

    def __init__(self, pipe):
        super().__init__()
        self.pipe = pipe

    def report(self, word):
        self.pipe.send(word)
        self.pipe.recv()

    def epoch(self, epoch, runs, losses, scores):
        self.report("epoch")

    def finished(self, results):
        self.report("stored")


def sweep_and_report(path, pipe):
    torch.set_num_threads(1)
    # Save a checkpoint at every epoch, so that a short training can be interrupted.
    Checkpoint.due = lambda self, epoch, epochs: True
    with Store(path) as store:
        scheduler.run_missing(killed_specs(), store, device="cpu", progress=Reporting(pipe))
    pipe.send("end")


def killed_specs():
    recipe = Recipe(epochs=12, batch_size=125, learning_rate=0.05)
    teacher = replace(recipe, epochs=5)
    law = InstanceDependent(0.4)
    return [
        *(Spec("blobs", m, "mlp", recipe, Exactly(2), seed=s) for m in (ProPaLL(), PRODEN()) for s in (0, 1)),
        *(Spec("blobs", PLKNN(neighbours=k), corruption=Exactly(2)) for k in (3, 5)),
        *(
            Spec("blobs", m, "linear", replace(recipe, optimizer="adam"), law, teacher=teacher)
            for m in (ProPaLL(), CC())
        ),
    ]


def start_sweep(path):
    """Start a sweep in another process; returns the process and the pipe it reports to."""
    # The server imports everything once, so that its children start quickly.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    ours, theirs = context.Pipe()
    process = context.Process(target=sweep_and_report, args=(path, theirs))
    process.start()
    theirs.close()
    return process, ours


def run_sweep(path, kill_after=None, delay=0.0):
    """Run a sweep in another process, and kill it some time after a message; returns its messages."""
    process, ours = start_sweep(path)
    messages = []
    try:
        while True:
            messages.append(ours.recv())
            ours.send("ok")
            if len(messages) == kill_after:
                time.sleep(delay)
                process.kill()
                break
    except (EOFError, ConnectionError):
        pass
    process.join(60)
    assert process.exitcode == (0 if kill_after is None else -signal.SIGKILL)
    return messages


def test_killed_again_and_again_it_ends_as_if_undisturbed(tmp_path):
    undisturbed, disturbed = tmp_path / "a" / "results.sqlite", tmp_path / "b" / "results.sqlite"
    total = run_sweep(undisturbed).count("epoch")
    assert total == 24
    chance, kills = random.Random(0), 10
    # Fewer messages in total than a sweep sends, so that every kill interrupts it.
    messages = [run_sweep(disturbed, chance.randint(1, 3), 0.02 * chance.random()) for _ in range(kills)]
    messages.append(run_sweep(disturbed))
    seen = sum(words.count("epoch") for words in messages)
    # A kill costs only the epoch in progress.
    assert seen <= total + kills
    with Store(undisturbed) as a, Store(disturbed) as b:
        assert len(a) == len(b) == len(killed_specs())  # one result each: nothing was run twice
        alike = ("accuracy", "last10", "covered", "transductive", "candidates", "curve", "confusions", "spec")
        resumed = b.find(killed_specs())
        for key, expected in a.find(killed_specs()).items():
            for name in alike:
                assert getattr(resumed[key], name) == getattr(expected, name)
    for folder in ("a", "b"):
        assert not any((tmp_path / folder / "results.progress").iterdir())
        assert len(list((tmp_path / folder / "teachers").iterdir())) == 1


def test_two_processes_share_the_work_and_one_takes_over_from_a_dead_one(tmp_path):
    path = tmp_path / "results.sqlite"
    first, first_pipe = start_sweep(path)
    assert first_pipe.recv() == "epoch"  # it runs the first group, and waits for the answer
    second, pipe = start_sweep(path)
    messages = []
    while pipe.poll(60 if messages.count("stored") < 3 else 2.5 * scheduler.POLL_SECONDS):
        messages.append(pipe.recv())
        pipe.send("ok")
    assert messages.count("stored") == 3  # all groups but that one
    assert second.is_alive()
    first.kill()
    first.join(60)
    while messages[-1] != "end":
        assert pipe.poll(60)
        messages.append(pipe.recv())
        if messages[-1] != "end":
            pipe.send("ok")
    second.join(60)
    assert messages.count("epoch") <= 24
    with Store(path) as store:
        assert len(store) == len(store.keys()) == len(killed_specs())
    assert not any((tmp_path / "results.progress").iterdir())


def test_progress_hears_of_what_another_process_did(tmp_path):
    specs, lines = small(seeds=1), []
    with (
        Store(tmp_path / "r.sqlite") as store,
        RunProgress({"all": [s.key for s in specs]}, lines.append) as bar,
    ):
        bar.planned(specs, [], RuntimeEstimates(store, "cpu"))
        bar.finished_elsewhere(specs[:2])
        assert lines == [
            "blobs: ProPaLL, CC (2 runs): done by another process; 0 of 1 cells done, 1 run left"
        ]


def test_runs_only_what_is_missing(tmp_path):
    with Store(tmp_path / "r.sqlite") as store:
        first = scheduler.run_missing(small(seeds=1), store, device="cpu")
        assert (first.stored, len(first.missing)) == (0, 3)
        second = scheduler.run_missing(small(seeds=2), store, device="cpu")
        assert second.stored == 3
        assert {spec.seed for spec in second.missing} == {1}
        assert len(store) == 6
        third = scheduler.run_missing([*small(), *small()], store, device="cpu")
        assert (third.stored, third.missing) == (6, [])
        assert len(store) == 6


def test_a_plan_leaves_out_what_is_not_there(root, tmp_path):
    recipe = replace(QUICK, epochs=1)
    specs = [Spec(data, CC(), recipe=recipe, split=Split(fold=0)) for data in ("lost", "soccer_player")]
    with Store(tmp_path / "r.sqlite") as store:
        planned = scheduler.run_missing(specs, store, device="cpu")
        assert [spec.data for spec in planned.absent] == ["soccer_player"]
        assert store.keys() == {specs[0].key}
    assert scheduler.is_data_available("lost")
    assert scheduler.is_data_available("digits")
    assert not scheduler.is_data_available("yahoo_news")


def test_what_another_process_stored_meanwhile_is_not_run(tmp_path):
    """Another process stores the second group while the first one trains."""
    specs = [*small(seeds=1)[:1], Spec("blobs", PLKNN(), corruption=Exactly(2), seed=7)]
    with Store(tmp_path / "r.sqlite") as other:
        scheduler.run_missing(specs[1:], other, device="cpu")
        (theirs,) = list(other)
    path = tmp_path / "s.sqlite"

    class Meddler(RunProgress):
        def finished(self, results):
            with Store(path) as theirs_too:
                theirs_too.add(theirs)

    with Store(path) as store:
        scheduler.run_missing(specs, store, device="cpu", progress=Meddler())
        assert [result.spec.key for result in store] == [spec.key for spec in specs]


def test_a_group_that_fails_does_not_take_the_others_with_it(tmp_path):
    one_excluded = Spec("blobs", PCIshida(), "mlp", QUICK, Exactly(2))
    lines = []
    with Store(tmp_path / "r.sqlite") as store, RunProgress(write_line=lines.append) as progress:
        done = scheduler.run_missing([one_excluded, *small(seeds=1)], store, device="cpu", progress=progress)
        assert len(store) == 3
        (failure,) = done.failures
        assert failure.specs == [one_excluded]
        assert "PC (Ishida) (1 run) failed: candidates: 500 of 500 rows do not exclude" in str(failure)
        assert str(failure) in lines
        again = scheduler.run_missing([one_excluded, *small(seeds=1)], store, device="cpu")
        assert (again.stored, again.missing) == (3, [one_excluded])


def test_forecasts_from_earlier_times(tmp_path):
    with Store(tmp_path / "r.sqlite") as store:
        (result,) = (
            scheduler.run_missing(small(seeds=1)[:1], store, device="cpu") and store.find(small(seeds=1)[:1])
        ).values()
        store.add(replace(result, seconds=8.0, hardware="another machine", when="2030"))
        rates = RuntimeEstimates(store, "cpu")
        longer = replace(result.spec, recipe=replace(QUICK, epochs=20), seed=5)
        assert rates.seconds(longer) == pytest.approx(10 * result.seconds)
        assert rates.seconds(replace(longer, method=CC())) == pytest.approx(10 * result.seconds)
        assert rates.seconds(replace(longer, net="mlp")) is None
        planned = scheduler.plan_runs([longer, replace(longer, net="mlp"), result.spec], store)
        first, second = rates.forecast(planned.groups)
        assert (first.runs, first.methods, first.epochs) == (1, ("ProPaLL",), 20)
        assert first.seconds == pytest.approx(10 * result.seconds)
        assert second.seconds is None
        nearest = rates.forecast(scheduler.plan_runs(small(seeds=4), store).groups)[-1]
        assert nearest == ("blobs", ("PL-KNN",), "", None, 4, None, None)
        knn = small(seeds=1)[-1]
        rates.add(knn, 3.0)
        other = replace(knn, recipe=replace(QUICK, epochs=500), net="mlp")
        assert rates.seconds(other) == 3.0  # the method uses neither the network nor the epochs
        assert result.hardware == hardware("cpu")


def test_progress_counts_cells_and_says_how_it_goes(tmp_path):
    specs = small()
    cells = {"both": [specs[0].key, specs[1].key], "nearest": [specs[4].key], "absent": ["no such run", "x"]}
    lines = []
    with Store(tmp_path / "r.sqlite") as store, RunProgress(cells, lines.append) as progress:
        scheduler.run_missing(specs, store, device="cpu", progress=progress)
    assert lines[0].startswith("blobs: ProPaLL, CC (4 runs): ")
    assert "2 of 3 cells done, 2 runs left" in lines[0]
    assert "3 of 3 cells done, 1 run left" in lines[1]
    assert "0 runs left" in lines[-1]


def test_on_a_terminal_one_line_moves(tmp_path, monkeypatch):
    monkeypatch.setattr(progress_module, "UPDATE_SECONDS", 0.0)
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=160)
    cells = {"one": [spec.key for spec in small(seeds=1)]}
    with Store(tmp_path / "r.sqlite") as store, RunProgress(cells, print, console) as progress:
        scheduler.run_missing(small(seeds=1), store, device="cpu", progress=progress)
    shown = out.getvalue()
    assert "blobs: ProPaLL, CC (2 runs), epoch 2/2" in shown
    assert "%, 0 of 1 cells done, 3 runs left" in shown
    assert "blobs: PL-KNN (1 run), 0 of 1 cells done" in shown


class Ticking(scheduler.ProgressListener):
    """Moves a clock by a second per epoch."""

    def __init__(self, monkeypatch):
        self.now, self.epochs = 1_000_000.0, 0
        monkeypatch.setattr(time, "time", lambda: self.now)

    def epoch(self, epoch, runs, losses, scores):
        self.now += 1.0
        self.epochs += 1


def test_a_time_limit_stops_in_the_middle_of_a_run_and_the_next_call_goes_on(tmp_path, monkeypatch):
    specs, clock = killed_specs(), Ticking(monkeypatch)
    with Store(tmp_path / "a" / "results.sqlite") as store:
        plan = scheduler.run_missing(specs, store, device="cpu", progress=clock)
        undisturbed = store.find(specs)
    assert not plan.unfinished
    total, clock.epochs, calls = clock.epochs, 0, 0
    with Store(tmp_path / "b" / "results.sqlite") as store:
        while len(store) < len(specs):
            done, before = len(store), clock.epochs
            plan = scheduler.run_missing(specs, store, device="cpu", progress=clock, time_limit=5.0)
            assert clock.epochs - before <= 5
            assert {spec.key for spec in plan.unfinished} == {s.key for s in specs} - store.keys()
            assert not plan.failures
            assert clock.epochs > before or len(store) > done
            calls += 1
        limited = store.find(specs)
    assert calls > 3
    assert clock.epochs == total  # no epoch was trained twice
    for key, expected in undisturbed.items():
        assert limited[key].curve == expected.curve
        assert limited[key].accuracy == expected.accuracy


@pytest.mark.parametrize(("limit", "epochs"), [(0.5, 1), (1.5, 2), (2.5, 2), (3.5, 3)])
def test_an_epoch_that_would_end_after_the_time_limit_does_not_start(tmp_path, monkeypatch, limit, epochs):
    clock = Ticking(monkeypatch)
    specs = [replace(spec, recipe=replace(spec.recipe, epochs=9)) for spec in small(seeds=1)[:1]]
    with Store(tmp_path / "results.sqlite") as store:
        plan = scheduler.run_missing(specs, store, device="cpu", progress=clock, time_limit=limit)
    assert plan.unfinished == specs
    assert clock.epochs == epochs  # of a second each; how long one takes is known after the second


def test_a_teacher_stops_at_the_time_limit_too(tmp_path, monkeypatch):
    (spec,) = [spec for spec in killed_specs() if spec.teacher is not None][:1]
    clock = Ticking(monkeypatch)
    due = Checkpoint.due

    def count(self, epoch, epochs):
        clock.now += 1.0
        return due(self, epoch, epochs)

    monkeypatch.setattr(Checkpoint, "due", count)
    with Store(tmp_path / "results.sqlite") as store:
        plan = scheduler.run_missing([spec], store, device="cpu", time_limit=3.0)
        assert plan.unfinished == [spec]
        assert list((tmp_path / "results.progress").glob("teacher-*/*.safetensors"))
        assert not list((tmp_path / "teachers").glob("*.safetensors"))
        assert not scheduler.run_missing([spec], store, device="cpu").unfinished


class Started(RunProgress):
    """Notes what has started."""

    def __init__(self):
        super().__init__()
        self.specs = []

    def started(self, specs):
        self.specs += specs


def test_failed_and_absent_runs_are_not_left_by_the_time_limit(tmp_path, monkeypatch):
    def fail(task, monitor=None):
        raise RuntimeError("no")
        yield

    monkeypatch.setattr(workers, "run_stacks", fail)
    absent = Spec("cifar10", CC(), "linear", small()[0].recipe, Exactly(2))
    with Store(tmp_path / "results.sqlite") as store:
        plan = scheduler.run_missing([*small(), absent], store, device="cpu", root=tmp_path, time_limit=100)
    assert plan.failures
    assert plan.absent == [absent]
    assert plan.unfinished == []


def test_no_time_runs_nothing(tmp_path):
    with Store(tmp_path / "results.sqlite") as store:
        listener = Started()
        plan = scheduler.run_missing(small(), store, device="cpu", progress=listener, time_limit=0)
        assert plan.unfinished == plan.missing
        assert len(store) == 0
        assert not listener.specs

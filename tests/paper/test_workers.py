"""Workers: all busy, groups of dead workers repeated, and the same results as in one process."""

import os
import signal
import subprocess
import sys
import time
from collections import deque
from dataclasses import replace
from importlib.util import find_spec
from multiprocessing import active_children
from pathlib import Path

import pytest

from propall.cli import main
from propall.data.corruption import Exactly, InstanceDependent
from propall.methods.cc import CC
from propall.methods.pc_ishida import PCIshida
from propall.methods.pl_knn import PLKNN
from propall.methods.propall import ProPaLL
from propall.paper import reproduction, scheduler, workers
from propall.paper.progress import RunProgress
from propall.paper.results import RunResult
from propall.paper.runner import RunTask, group_stackable
from propall.paper.specs import Spec
from propall.paper.store import Store
from propall.paper.workers import ATTEMPTS, ProcessPool, WorkerMessage, WorkerPool, execute
from propall.training.recipe import Recipe

QUICK = Recipe(epochs=2, batch_size=50, learning_rate=0.1)
NEEDS_RAY = pytest.mark.skipif(find_spec("ray") is None, reason="needs ray: pip install 'propall[ray]'")


def specs():
    law, teacher = InstanceDependent(0.4), replace(QUICK, epochs=1)
    return [
        *(
            Spec("blobs", method, "linear", QUICK, Exactly(2), seed=seed)
            for method in (ProPaLL(), CC())
            for seed in (0, 1)
        ),
        *(Spec("blobs", PLKNN(neighbours=k), corruption=Exactly(2)) for k in (3, 5)),
        Spec("blobs", CC(), "linear", replace(QUICK, optimizer="adam"), law, teacher=teacher),
        Spec("blobs", ProPaLL(), "mlp", QUICK, law, teacher=teacher),
    ]


def tasks(runs):
    return [RunTask(group, "cpu", 1) for group in group_stackable(runs)]


def result(spec):
    return RunResult(spec, 0.5, 0.5, 0.5, 0.5, 2.0, 1.0)


class Scripted(WorkerPool):
    """A pool with a predetermined outcome for each group."""

    def __init__(self, slots, fates):
        self.slots, self.fates = range(slots), deque(fates)
        self.started, self.most, self.running = [], 0, {}

    def start(self, slot, task):
        assert slot not in self.running, "a worker has one group at a time"
        self.started.append(task)
        self.running[slot] = deque(self.news(slot, task, self.fates.popleft() if self.fates else "done"))
        self.most = max(self.most, len(self.running))

    def news(self, slot, task, fate):
        half = [result(spec) for spec in task.specs[: len(task.specs) // 2]]
        if fate == "lost":
            return [WorkerMessage(slot, "lost", reason="killed")]
        if fate == "lost half-way":
            return [WorkerMessage(slot, "results", half), WorkerMessage(slot, "lost", reason="killed")]
        if fate == "stopped":
            return [WorkerMessage(slot, "results", half), WorkerMessage(slot, "done")]
        if fate == "failed":
            return [WorkerMessage(slot, "failed", reason="no")]
        return [
            WorkerMessage(slot, "results", [result(spec) for spec in task.specs]),
            WorkerMessage(slot, "done"),
        ]

    def next_message(self):
        slot = next(iter(self.running))
        news = self.running[slot].popleft()
        if news.kind != "results":
            del self.running[slot]
        return news


def execute_all(workers, runs):
    kept, failed = [], []
    execute(
        tasks(runs),
        workers,
        finished=kept.extend,
        failed=lambda task, reason: failed.append((task, reason)),
    )
    return [stored.spec.key for stored in kept], failed


def test_all_workers_are_busy_and_everything_is_run_once():
    workers = Scripted(2, [])
    kept, failed = execute_all(workers, specs())
    assert sorted(kept) == sorted(spec.key for spec in specs())
    assert not failed
    assert workers.most == 2


def test_a_dead_workers_group_is_run_again_without_what_was_stored():
    workers = Scripted(2, ["lost half-way", "lost", "done", "lost"])
    kept, failed = execute_all(workers, specs())
    assert sorted(kept) == sorted(spec.key for spec in specs())
    assert not failed
    assert len(workers.started) == len(tasks(specs())) + 3
    assert [len(task.specs) for task in workers.started if task.specs[0].method.name == "cc"][-1] <= 2


def test_a_group_that_kills_its_workers_is_given_up_and_the_rest_goes_on():
    workers = Scripted(1, ["lost", *["done"] * 4, *["lost"] * 2])
    kept, failed = execute_all(workers, specs())
    ((task, reason),) = failed
    assert reason == f"its worker died {ATTEMPTS} times; last: killed"
    assert set(kept) | {spec.key for spec in task.specs} == {spec.key for spec in specs()}
    assert len(kept) == len(specs()) - len(task.specs)


def test_a_group_with_an_error_is_not_tried_again():
    workers = Scripted(1, ["failed"])
    _, failed = execute_all(workers, specs())
    assert [reason for _, reason in failed] == ["no"]
    assert len(workers.started) == len(tasks(specs()))


def test_a_group_that_stops_at_the_time_limit_neither_failed_nor_is_started_again():
    workers = Scripted(1, ["stopped"])
    kept, failed = execute_all(workers, specs())
    assert not failed
    assert len(workers.started) == len(tasks(specs()))
    first = workers.started[0].specs
    assert set(kept) == {spec.key for spec in specs()} - {spec.key for spec in first[len(first) // 2 :]}


def test_processes_stop_at_the_time_limit(tmp_path):
    long = [Spec("blobs", CC(), "linear", replace(QUICK, epochs=10**6), Exactly(2), seed=s) for s in (0, 1)]
    with Store(tmp_path / "results.sqlite") as store, ProcessPool(["cpu"]) as pool:
        for seconds in (5, 15, 60):  # a process on a busy core may take longer to start
            plan = scheduler.run_missing(long, store, device="cpu", pool=pool, time_limit=seconds)
            assert plan.unfinished == long
            assert not plan.failures
            saved = list((tmp_path / "results.progress").glob("*/*.safetensors"))
            if saved:
                break
    assert saved


def test_a_task_survives_the_trip_as_text():
    task = RunTask(
        specs(), "cuda:1", 5, Path("a"), None, Path("b"), confusions=["x"], recalls=[], deadline=9.5
    )
    assert RunTask.from_json(task.to_json()) == task


def assert_same_results(store, other, runs):
    names = (
        "accuracy",
        "last10",
        "covered",
        "transductive",
        "candidates",
        "curve",
        "recalls",
        "spec",
        "stack",
    )
    mine, theirs = store.find(runs), other.find(runs)
    assert len(store) == len(other) == len(runs)
    for key, stored in mine.items():
        for name in names:
            assert getattr(stored, name) == getattr(theirs[key], name)


@pytest.fixture
def undisturbed(tmp_path):
    with Store(tmp_path / "alone" / "r.sqlite") as store:
        scheduler.run_missing(specs(), store, device="cpu", recalls=reproduction.needs_recalls)
        yield store


class Assassin(RunProgress):
    """Kills a worker once, as soon as one has started."""

    kills = 0

    def started(self, specs):
        super().started(specs)
        if self.kills == 0 and active_children():
            os.kill(active_children()[0].pid, signal.SIGKILL)
            self.kills += 1


def test_a_process_per_device_gives_the_same_results_though_one_is_killed(tmp_path, undisturbed):
    with Store(tmp_path / "two" / "r.sqlite") as store, ProcessPool(["cpu", "cpu"]) as workers:
        killer = Assassin()
        plan = scheduler.run_missing(
            [*specs(), Spec("blobs", PCIshida(), "mlp", replace(QUICK, batch_size=20), Exactly(2))],
            store,
            progress=killer,
            pool=workers,
            recalls=reproduction.needs_recalls,
        )
        assert killer.kills == 1
        (failure,) = plan.failures
        assert "do not exclude" in str(failure)
        assert_same_results(store, undisturbed, specs())
        pids = [process.pid for process in active_children()]
        assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_workers_end_when_their_parent_is_killed(tmp_path):
    """Orphaned workers would compete with the sweep that resumes."""
    script = (
        "import time\n"
        "from multiprocessing import active_children\n"
        "from propall.paper.runner import RunTask\n"
        "from propall.paper.workers import ProcessPool\n"
        "from propall.paper.specs import Spec\n"
        "from propall.data.corruption import Exactly\n"
        "from propall.methods.cc import CC\n"
        "from propall.training.recipe import Recipe\n"
        "if __name__ == '__main__':\n"
        "    workers = ProcessPool(['cpu'])\n"
        "    spec = Spec('blobs', CC(), 'linear', Recipe(epochs=10**6, batch_size=250), Exactly(2))\n"
        "    workers.start(0, RunTask([spec], 'cpu', 10**6))\n"
        "    print(*(process.pid for process in active_children()), flush=True)\n"
        "    time.sleep(60)\n"
    )
    (tmp_path / "parent.py").write_text(script)
    parent = subprocess.Popen(
        [sys.executable, str(tmp_path / "parent.py")], stdout=subprocess.PIPE, text=True
    )
    pid = int(parent.stdout.readline())
    time.sleep(1.0)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    for _ in range(200):
        if _gone(pid):
            break
        time.sleep(0.05)
    assert _gone(pid)


def _gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] == "Z"
    except OSError:
        return True


def test_timed_runs_do_not_share_a_device(tmp_path):
    timed = reproduction.select_cells("uniform", protocol="timed", data=["mnist"])
    with Store(tmp_path / "r.sqlite") as store, pytest.raises(ValueError, match=r"cuda:0 is named twice"):
        reproduction.run_cells(timed, store, device="cuda:0,cuda:1,cuda:0")


def test_devices_in_words(monkeypatch):
    assert workers.parse_devices("cuda:0, cuda:1") == ["cuda:0", "cuda:1"]
    assert workers.parse_devices("cpu") == ["cpu"]
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert workers.parse_devices("auto") == ["cuda:0", "cuda:1"]
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert workers.parse_devices("auto") == ["cpu"]
    with pytest.raises(ValueError, match="device: got ','"):
        workers.parse_devices(",")


@pytest.mark.skipif(find_spec("ray") is not None, reason="ray is installed here")
def test_without_ray_the_launcher_says_what_to_install(root, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "real", "--protocol", "short", "--data", "lost", "--launcher", "ray"])
    assert stop.value.code == 1
    assert "launcher: ray is not installed; run pip install 'propall[ray]'" in capsys.readouterr().err


@pytest.fixture
def cluster():
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False, logging_level="ERROR")
    yield ray
    ray.shutdown()


@NEEDS_RAY
@pytest.mark.filterwarnings("ignore")
def test_tasks_on_a_ray_cluster_give_the_same_results(tmp_path, undisturbed, cluster):
    with Store(tmp_path / "ray" / "r.sqlite") as store, workers.RayPool("cpu") as ray_workers:
        assert len(ray_workers.slots) == 2
        runs = [*specs(), Spec("blobs", PCIshida(), "mlp", replace(QUICK, batch_size=20), Exactly(2))]
        plan = scheduler.run_missing(runs, store, pool=ray_workers, recalls=reproduction.needs_recalls)
        (failure,) = plan.failures
        assert "do not exclude" in str(failure)
        assert_same_results(store, undisturbed, specs())


@NEEDS_RAY
@pytest.mark.filterwarnings("ignore")
def test_a_cell_lost_with_its_ray_worker_is_run_again(tmp_path, undisturbed, cluster, monkeypatch):
    flag = tmp_path / "died"

    def die_once(text, flag=str(flag)):
        import os
        import signal
        from pathlib import Path

        from propall.paper.workers import execute_task

        if not Path(flag).exists():
            Path(flag).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return execute_task(text)

    monkeypatch.setattr(workers, "execute_task", die_once)
    with Store(tmp_path / "ray" / "r.sqlite") as store, workers.RayPool("cpu") as ray_workers:
        plan = scheduler.run_missing(specs(), store, pool=ray_workers, recalls=reproduction.needs_recalls)
        assert flag.exists()
        assert not plan.failures
        assert_same_results(store, undisturbed, specs())


@NEEDS_RAY
@pytest.mark.filterwarnings("ignore")
def test_no_cluster_is_said_so(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(ValueError, match="no Ray cluster answers"):
        workers.RayPool("cpu")

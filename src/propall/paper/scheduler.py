"""Run the specs that have no result in a store yet; an interrupted sweep resumes where it stopped.

`plan_runs` finds what is missing and groups it, `run_missing` executes the groups on a `workers.WorkerPool`
and stores the results. Several processes may work on the same store: locks prevent two
of them from executing the same run.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import torch

from propall.data import DATASETS
from propall.data.files import data_root
from propall.paper.progress import ProgressListener, describe_group
from propall.paper.results import RunResult
from propall.paper.runner import RunTask, group_stackable, remove_finished_checkpoints
from propall.paper.runtime_estimates import RuntimeEstimates
from propall.paper.specs import Spec
from propall.paper.store import Store
from propall.paper.workers import InProcess, WorkerPool, execute
from propall.training.checkpoint import is_past
from propall.training.compiled import best_device

#: Epochs between measurements of the test accuracy; the first and last epochs are all measured.
MEASURE_EVERY = 10
#: Seconds between checks on runs that another process executes, when nothing else is left to do.
POLL_SECONDS = 1.0


def is_data_available(data: str, root: Path | None = None) -> bool:
    """Return whether all files of a data set are present."""
    folder = data_root(root)
    return all(None not in files.locate(folder).values() for files in DATASETS[data].files)


class GroupFailure(NamedTuple):
    """A group of runs that ended with an error."""

    specs: Sequence[Spec]
    reason: str

    def __str__(self) -> str:
        return f"{describe_group(self.specs)} failed: {self.reason}"


@dataclass(frozen=True)
class RunPlan:
    """The runs a sweep has to execute."""

    stored: int  # number of distinct runs that already have a result
    groups: list[list[Spec]]  # the other runs, grouped by what is trained together
    absent: list[Spec]  # runs whose data set is not available
    failures: list[GroupFailure] = field(default_factory=list)  # the other groups still ran
    unfinished: list[Spec] = field(default_factory=list)  # runs that the time limit left

    @property
    def missing(self) -> list[Spec]:
        """All runs to execute."""
        return [spec for group in self.groups for spec in group]


def plan_runs(specs: Iterable[Spec], store: Store, root: Path | None = None) -> RunPlan:
    """Find the specs without a result in a store, and group them."""
    distinct = {spec.key: spec for spec in specs}
    stored = store.keys() & distinct.keys()
    available = {data: is_data_available(data, root) for data in {spec.data for spec in distinct.values()}}
    missing = [spec for key, spec in distinct.items() if key not in stored]
    groups = group_stackable([spec for spec in missing if available[spec.data]])
    return RunPlan(len(stored), groups, absent=[spec for spec in missing if not available[spec.data]])


def run_missing(
    specs: Iterable[Spec],
    store: Store,
    *,
    device: torch.device | str = "auto",
    root: Path | None = None,
    progress: ProgressListener | None = None,
    confusions: Callable[[Spec], bool] = lambda spec: False,
    recalls: Callable[[Spec], bool] = lambda spec: False,
    pool: WorkerPool | None = None,
    fast: bool | None = None,
    time_limit: float | None = None,
) -> RunPlan:
    """Run the specs without a result; returns the executed plan.

    The results of a stack are stored in one transaction. Checkpoints, and the teachers of instance-dependent
    candidate sets, are kept in folders next to the store. `confusions` and `recalls` select the specs whose
    confusion matrices and per-class recalls are recorded. Without a `pool`, this process runs everything. For
    `fast` see `TrainingSetup`. After `time_limit` seconds no stack starts, and networks in training are saved
    at the end of an epoch; a later call continues with them.
    """
    deadline = None if time_limit is None else time.time() + time_limit
    device = best_device(device) if isinstance(device, str) else device
    listener = progress or ProgressListener()
    plan, estimates = plan_runs(specs, store, root), RuntimeEstimates(store, device)
    checkpoints = store.path.parent / f"{store.path.stem}.progress"
    remove_finished_checkpoints(checkpoints, store.keys())
    listener.planned(plan.missing, plan.absent, estimates)

    def make_task(group: list[Spec]) -> RunTask:
        return RunTask(
            group,
            str(device),
            MEASURE_EVERY,
            checkpoint=checkpoints.resolve(),  # a worker may run in another folder
            root=None if root is None else root.resolve(),
            teachers=(store.path.parent / "teachers").resolve(),
            confusions=[spec.key for spec in group if confusions(spec)],
            recalls=[spec.key for spec in group if recalls(spec)],
            fast=fast,
            deadline=deadline,
        )

    def keep(results: Sequence[RunResult]) -> None:
        store.add(*results)
        for result in results:
            estimates.add(result.spec, result.seconds)
        listener.finished([(result.spec, result.accuracy) for result in results])

    def note_failure(task: RunTask, reason: str) -> None:
        plan.failures.append(GroupFailure(task.specs, reason))
        listener.failed(task.specs, str(plan.failures[-1]))

    waiting = plan.groups
    if not waiting:
        return plan
    with RunLocks(checkpoints / "claims") as locks:
        while waiting:
            held: list[list[Spec]] = []
            in_time = takewhile(lambda _: not is_past(deadline), waiting)
            execute(
                map(make_task, _lock_groups(in_time, locks, store, held, listener)),
                pool or InProcess(progress),
                started=lambda task: listener.started(task.specs),
                finished=keep,
                failed=note_failure,
            )
            if held == waiting:
                listener.started(held[0])
                time.sleep(POLL_SECONDS)
            waiting = held
    stored = store.keys()
    failed = {spec.key for failure in plan.failures for spec in failure.specs}
    plan.unfinished.extend(spec for spec in plan.missing if spec.key not in stored | failed)
    return plan


def _lock_groups(
    groups: Iterable[list[Spec]],
    locks: "RunLocks",
    store: Store,
    held: list[list[Spec]],
    progress: ProgressListener,
) -> Iterator[list[Spec]]:
    """Yield the runs of each group that are neither stored nor locked; `held` receives the locked ones."""
    for group in groups:
        locked = locks.acquire(group)
        stored = store.keys()  # after locking: a run that another process released is stored by now
        available = {spec.key for spec in locked}
        if others := [spec for spec in group if spec.key not in stored | available]:
            held.append(others)
        if done := [spec for spec in group if spec.key in stored]:
            progress.finished_elsewhere(done)
        if missing := [spec for spec in locked if spec.key not in stored]:
            yield missing


class RunLocks(AbstractContextManager["RunLocks"]):
    """Locks on runs, so that processes with the same store do not run the same spec. A context manager.

    Each run locks one byte of the file until the context ends or the process dies. On systems without file
    locks, every run can be acquired.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._file = path, path.open("wb")

    def __exit__(self, *_: object) -> None:
        # A process that opens the file now holds locks that others cannot see: a run may be executed twice.
        if self._lock():
            self._path.unlink(missing_ok=True)
        self._file.close()

    def acquire(self, specs: Iterable[Spec]) -> list[Spec]:
        """Lock runs; returns those that no other process holds."""
        return [spec for spec in specs if self._lock(1, int(spec.key[:15], 16))]

    def _lock(self, length: int = 0, start: int = 0) -> bool:
        try:
            import fcntl

            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
        except ImportError:
            return True
        except (BlockingIOError, PermissionError):
            return False
        return True

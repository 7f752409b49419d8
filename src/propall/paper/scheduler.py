"""Runs what a store does not hold yet, stack by stack; killed at any moment, it goes on where it was."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import torch

from propall.data import DATASETS
from propall.data.files import data_root
from propall.paper.monitors import AccuracyListener
from propall.paper.results import RunResult
from propall.paper.runner import run_stacks, stackable, tidy_progress
from propall.paper.runtime_estimates import RuntimeEstimates
from propall.paper.specs import Spec
from propall.paper.store import Store, StoreError
from propall.paper.workers import Task, WorkerPool, execute
from propall.training.compiled import best_device
from propall.wording import approximate_duration, plural

if TYPE_CHECKING:
    from rich.console import Console

#: Epochs between measurements of the test accuracy; the first and the last epochs are all measured.
EVERY = 10
#: Seconds without a line of text, where stacks are done faster than cells.
QUIET = 30.0
#: Seconds between looks at what is left, where the line moves.
LOOK = 0.5
#: Seconds between looks at what other processes are at, where nothing else is left.
WAIT = 1.0


def is_data_available(data: str, root: Path | None = None) -> bool:
    """Whether all files of a data set are there."""
    folder = data_root(root)
    return all(None not in files.locate(folder).values() for files in DATASETS[data].files)


class GroupFailure(NamedTuple):
    """A group of runs that ended with an error."""

    specs: list[Spec]
    error: Exception

    def __str__(self) -> str:
        return f"{_named(self.specs)} failed: {self.error}"


@dataclass(frozen=True)
class RunPlan:
    """What a sweep has to do.

    Attributes:
        stored: number of different runs that have a result already.
        groups: the others, by what is trained together.
        absent: runs whose data set is not there.
        failures: what went wrong while it was carried out; the other groups were run all the same.
    """

    stored: int
    groups: list[list[Spec]]
    absent: list[Spec]
    failures: list[GroupFailure] = field(default_factory=list)

    @property
    def missing(self) -> list[Spec]:
        """What is to be run."""
        return [spec for group in self.groups for spec in group]


def plan_runs(specs: Iterable[Spec], store: Store, root: Path | None = None) -> RunPlan:
    """What of the specs is missing in a store, and how it is grouped."""
    different = {spec.key: spec for spec in specs}
    done = store.keys() & different.keys()
    here = {data: is_data_available(data, root) for data in {spec.data for spec in different.values()}}
    missing = [spec for key, spec in different.items() if key not in done]
    return RunPlan(
        stored=len(done),
        groups=stackable([spec for spec in missing if here[spec.data]]),
        absent=[spec for spec in missing if not here[spec.data]],
    )


class RunLocks:
    """Which runs this process is at, told to others by locks that a dead process gives back.

    A context manager; what was claimed stays so until its end. Where the system has no such locks, everything
    can be claimed.

    Args:
        path: a file in which a byte stands for a run.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._file = path, path.open("wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Whoever opened it just now has claims that nobody sees: that may cost work, never results.
        if self._lock():
            self._path.unlink(missing_ok=True)
        self._file.close()

    def take(self, specs: Iterable[Spec]) -> list[Spec]:
        """Claim runs; returns those that no other process is at."""
        return [spec for spec in specs if self._lock(1, int(spec.key[:15], 16))]

    def _lock(self, length: int = 0, start: int = 0) -> bool:
        try:
            import fcntl
        except ImportError:
            return True
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
        except (BlockingIOError, PermissionError):
            return False
        return True


class RuntimeForecast(NamedTuple):
    """Runs of one kind that a plan has, and how long they would take.

    Attributes:
        data: name of the data set.
        methods: titles of the methods.
        net: name of the network; empty for methods without one.
        epochs: passes over the training set; None for methods without any.
        runs: number of runs.
        seconds: expected time; None where no such run was timed yet on this hardware.
        guess: the time on the hardware `RuntimeEstimates.elsewhere`; None where that is not known.
    """

    data: str
    methods: tuple[str, ...]
    net: str
    epochs: int | None
    runs: int
    seconds: float | None
    guess: float | None


def forecast_runtimes(plan: RunPlan, rates: RuntimeEstimates) -> list[RuntimeForecast]:
    """What a plan's groups are, and what earlier runs say about their length; equal ones are put together."""
    groups: dict[tuple[str, tuple[str, ...], str, int | None], list[Spec]] = {}
    for group in plan.groups:
        first, trains = group[0], group[0].trains_a_net
        kind = (
            first.data,
            tuple(dict.fromkeys(spec.method.title for spec in group)),
            first.net if trains else "",
            first.recipe.epochs if trains else None,
        )
        groups.setdefault(kind, []).extend(group)
    return [
        RuntimeForecast(*kind, len(specs), _total(map(rates.seconds, specs)), _total(map(rates.guess, specs)))
        for kind, specs in groups.items()
    ]


def _total(times: Iterable[float | None]) -> float | None:
    """The sum; None where a time is not known."""
    known = list(times)
    return None if None in known else sum(time or 0.0 for time in known)


def run_missing(
    specs: Iterable[Spec],
    store: Store,
    *,
    device: torch.device | str = "auto",
    root: Path | None = None,
    progress: "RunProgress | None" = None,
    confusions: Callable[[Spec], bool] = lambda spec: False,
    recalls: Callable[[Spec], bool] = lambda spec: False,
    every: int = EVERY,
    workers: "WorkerPool | None" = None,
) -> RunPlan:
    """Run what is missing; returns the plan that was carried out.

    The results of a stack are added in one transaction. Progress within a stack is kept in a folder beside
    the store's file, and so are the teachers of instance-dependent candidate sets. Several processes may run
    the same specs: each leaves alone what another one is at, and waits for it in the end.

    Args:
        specs: what is wanted.
        store: where results are and go.
        device: where to run.
        root: folder of the data sets.
        progress: shows how far it is.
        confusions: says for which specs confusion matrices are kept.
        recalls: says for which specs the accuracy is kept class by class.
        every: epochs between measurements of the test accuracy.
        workers: who carries the groups out; None for this process.
    """
    device = best_device(device) if isinstance(device, str) else device
    planned = plan_runs(specs, store, root)
    rates = RuntimeEstimates(store, device)
    folder = store.path.parent / f"{store.path.stem}.progress"
    tidy_progress(folder, store.keys())
    if progress is not None:
        progress.planned(planned, rates)

    def keep(results: Sequence[RunResult]) -> None:
        store.add(*results)
        for result in results:
            rates.learn(result.spec, result.seconds)
        if progress is not None:
            progress.finished([(result.spec, result.accuracy) for result in results])

    def note(failure: GroupFailure) -> None:
        planned.failures.append(failure)
        if progress is not None:
            progress.failed(failure)

    teachers = store.path.parent / "teachers"

    def carry(groups: Iterable[list[Spec]]) -> None:
        if workers is not None:
            tasks = (
                Task(
                    group,
                    str(device),
                    every,
                    checkpoint=str(folder.resolve()),  # a worker may be in another folder
                    root=None if root is None else str(root.resolve()),
                    teachers=str(teachers.resolve()),
                    confusions=[spec.key for spec in group if confusions(spec)],
                    recalls=[spec.key for spec in group if recalls(spec)],
                )
                for group in groups
            )
            execute(
                tasks,
                workers,
                started=lambda task: None if progress is None else progress.start(task.specs),
                finished=keep,
                failed=lambda task, reason: note(GroupFailure(list(task.specs), RuntimeError(reason))),
            )
            return
        for group in groups:
            if progress is not None:
                progress.start(group)
            try:
                for results in run_stacks(
                    group,
                    device=device,
                    monitor=progress,
                    checkpoint=folder,
                    root=root,
                    teachers=teachers,
                    every=every,
                    confusions=confusions,
                    recalls=recalls,
                ):
                    keep(results)
            except StoreError:
                raise
            except (ValueError, RuntimeError, OSError) as error:
                # Out of memory, say: a night's other work is not lost for it.
                note(GroupFailure(group, error))

    if not planned.groups:
        return planned
    with RunLocks(folder / "claims") as claims:
        waiting = planned.groups
        while waiting:
            held: list[list[Spec]] = []
            carry(_claimed(waiting, claims, store, held, progress))
            if held == waiting:
                if progress is not None:
                    progress.start(held[0])
                time.sleep(WAIT)
            waiting = held
    return planned


def _claimed(
    groups: Iterable[list[Spec]],
    claims: RunLocks,
    store: Store,
    held: list[list[Spec]],
    progress: "RunProgress | None",
) -> Iterator[list[Spec]]:
    """Of each group what neither is stored nor another process is at; `held` gets what one is at."""
    for group in groups:
        mine = claims.take(group)
        done = store.keys()  # after the claims: what another process gave back is stored, or was not done
        seen = done | {spec.key for spec in mine}
        others = [spec for spec in group if spec.key not in seen]
        if others:
            held.append(others)
        if progress is not None and (theirs := [spec for spec in group if spec.key in done]):
            progress.elsewhere(theirs)
        if left := [spec for spec in mine if spec.key not in done]:
            yield left


class RunProgress(AccuracyListener):
    """What is being run, what is done, the current accuracy and the time left. A context manager.

    On a terminal one line that moves; elsewhere a line of text for every stack that is done.

    Args:
        cells: names of what the specs belong to, to their keys; counted as done when all of theirs are.
        say: where lines of text go; None for nowhere.
        console: where the moving line goes; by default where errors do.
    """

    def __init__(
        self,
        cells: Mapping[str, Sequence[str]] | None = None,
        say: Callable[[str], None] | None = None,
        console: "Console | None" = None,
    ) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        console = console or Console(stderr=True)
        self._moves = console.is_terminal
        self._say = None if self._moves else say
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:.0f} %"),
            console=console,
            transient=True,
            disable=not self._moves,
        )
        self._task = self._bar.add_task("", total=1.0)
        self._cells = {name: set(keys) for name, keys in (cells or {}).items()}
        self._n_cells = len(self._cells)
        self._waiting: dict[str, Spec] = {}
        self._current: list[Spec] = []
        self._epochs, self._epoch, self._accuracy = 0, 0, ""
        self._rates: RuntimeEstimates | None = None
        self._begun = time.monotonic()
        self._said_cells, self._said_at, self._shown_at = -1, 0.0, 0.0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def planned(self, plan: RunPlan, rates: RuntimeEstimates) -> None:
        """The sweep knows what to do."""
        self._waiting = {spec.key: spec for spec in plan.missing}
        self._rates = rates
        self._begun = time.monotonic()
        waiting = set(self._waiting) | {spec.key for spec in plan.absent}
        for keys in self._cells.values():
            keys &= waiting

    def start(self, specs: Sequence[Spec]) -> None:
        """A group of runs starts."""
        self._current, self._epoch, self._epochs, self._accuracy = list(specs), 0, 0, ""
        self._show(now=True)

    def begin(self, epochs: int, runs: Sequence[int], done: int) -> None:
        """A stack of the group starts."""
        self._epochs, self._epoch = epochs, done
        self._show()

    def epoch(self, epoch: int, runs: Sequence[int], losses: Any, scores: Any) -> None:
        """An epoch is over."""
        self._epoch = epoch
        self._show()

    def measured(self, epoch: int, accuracies: dict[int, float]) -> None:
        """Some runs were tested."""
        if accuracies:
            self._accuracy = f"{100 * sum(accuracies.values()) / len(accuracies):.1f} % right, "
        self._show()

    def finished(self, results: Sequence[tuple[Spec, float]]) -> None:
        """A stack is done and stored."""
        self._drop([spec for spec, _ in results])
        self._epoch = 0
        done = sum(not keys for keys in self._cells.values())
        news = done > self._said_cells or time.monotonic() - self._said_at > QUIET or not self._waiting
        if self._say is not None and news:
            self._said_cells, self._said_at = done, time.monotonic()
            mean = 100 * sum(accuracy for _, accuracy in results) / len(results)
            self._say(f"{_named([spec for spec, _ in results])}: {mean:.1f} % right; {self._status()}")
        self._show()

    def elsewhere(self, specs: Sequence[Spec]) -> None:
        """Another process did some runs."""
        self._drop(specs)
        if self._say is not None:
            self._say(f"{_named(specs)}: done by another process; {self._status()}")
        self._show()

    def _drop(self, specs: Sequence[Spec]) -> None:
        for spec in specs:
            self._waiting.pop(spec.key, None)
            for keys in self._cells.values():
                keys.discard(spec.key)
        self._current = [spec for spec in self._current if spec.key in self._waiting]

    def failed(self, failure: GroupFailure) -> None:
        """A group ended with an error."""
        for spec in failure.specs:
            self._waiting.pop(spec.key, None)
        self._current = []
        if self._say is not None:
            self._say(str(failure))
        self._show(now=True)

    def _left(self) -> float | None:
        """Seconds left: from earlier times of such runs, the unknown ones taken for average."""
        if self._rates is None:
            return None
        share = 1 - min(1.0, self._epoch / max(1, self._epochs))
        current = {spec.key for spec in self._current}
        known, unknown = [], 0.0
        for key, spec in self._waiting.items():
            part = share if key in current else 1.0
            seconds = self._rates.seconds(spec)
            if seconds is None:
                unknown += part
            else:
                known.append(seconds * part)
        if not known:
            return None if unknown else 0.0
        return sum(known) + unknown * sum(known) / len(known)

    def _status(self) -> str:
        done = sum(not keys for keys in self._cells.values())
        parts = [f"{done} of {self._n_cells} cells done"] if self._n_cells else []
        parts.append(f"{plural(len(self._waiting), 'run')} left")
        left = self._left()
        if left:
            parts.append(f"about {approximate_duration(left)}")
        return ", ".join(parts)

    def _show(self, *, now: bool = False) -> None:
        # Looking through everything that waits takes its time; an eye does not need it more often.
        if not self._moves or (not now and time.monotonic() - self._shown_at < LOOK):
            return
        self._shown_at = time.monotonic()
        spent, left = time.monotonic() - self._begun, self._left()
        share = spent / (spent + left) if left is not None and spent + left > 0 else 0.0
        epoch = f"epoch {self._epoch}/{self._epochs}, " if self._epochs else ""
        text = f"{_named(self._current)}, {epoch}{self._accuracy}{self._status()}"
        self._bar.update(self._task, description=text, completed=share, refresh=True)


def _named(specs: Sequence[Spec]) -> str:
    """A group of runs in a few words."""
    if not specs:
        return "done"
    methods = list(dict.fromkeys(spec.method.title for spec in specs))
    shown = ", ".join(methods[:4]) + (f" and {len(methods) - 4} more" if len(methods) > 4 else "")
    return f"{specs[0].data}: {shown} ({plural(len(specs), 'run')})"

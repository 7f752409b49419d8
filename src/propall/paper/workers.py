"""Where groups of runs are carried out when not in this very process: a process per device, or a Ray cluster.

Workers only compute. Results come back as text and are stored by the one process that was asked, so a worker
may die at any moment: the group it had is run again.
"""

import itertools
import json
import multiprocessing
import os
import socket
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from propall.paper.monitors import AccuracyListener
from propall.paper.results import RunResult
from propall.paper.runner import run_stacks
from propall.paper.specs import Spec

#: How often a group is begun when its worker dies again and again, before it counts as failed.
ATTEMPTS = 3

Launcher = Literal["local", "ray"]


@dataclass(frozen=True)
class Task:
    """A group of runs and what else a worker has to know; survives a trip as text.

    Attributes:
        specs: the group.
        device: where the worker runs it.
        every: epochs between measurements.
        checkpoint: folder for progress; None for none.
        root: folder of the data sets; None for the worker's own default.
        teachers: folder of the teachers' scores; None for the worker's own default.
        confusions: keys of the runs whose confusion matrices are kept.
        recalls: keys of the runs whose accuracy is kept class by class.
    """

    specs: Sequence[Spec]
    device: str
    every: int
    checkpoint: str | None = None
    root: str | None = None
    teachers: str | None = None
    confusions: Sequence[str] = ()
    recalls: Sequence[str] = ()

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(vars(self) | {"specs": [spec.to_json() for spec in self.specs]})

    @classmethod
    def from_json(cls, text: str) -> "Task":
        """The task that `to_json` wrote."""
        values = json.loads(text)
        return cls(**{**values, "specs": [Spec.from_json(spec) for spec in values["specs"]]})

    def stacks(self, watcher: AccuracyListener | None = None) -> Iterator[list[RunResult]]:
        """Carry it out; the results of one stack after another."""
        return run_stacks(
            self.specs,
            device=self.device,
            monitor=watcher,
            checkpoint=_path(self.checkpoint),
            root=_path(self.root),
            teachers=_path(self.teachers),
            every=self.every,
            confusions=lambda spec: spec.key in self.confusions,
            recalls=lambda spec: spec.key in self.recalls,
        )


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


class WorkerMessage(NamedTuple):
    """What is heard of a worker: results of a stack, the end of its group, an error, or its death."""

    slot: Hashable
    kind: Literal["results", "done", "failed", "lost"]
    results: Sequence[RunResult] = ()
    reason: str = ""


class WorkerPool(ABC):
    """Some places, by name, where one group each can be carried out at a time. A context manager."""

    @property
    @abstractmethod
    def slots(self) -> Sequence[Hashable]:
        """The places."""

    @abstractmethod
    def start(self, slot: Hashable, task: Task) -> None:
        """Begin a group in a place that is free."""

    @abstractmethod
    def listen(self) -> WorkerMessage:
        """Wait for news of any of them."""

    @abstractmethod
    def close(self) -> None:
        """Let them go."""

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def execute(
    tasks: Iterable[Task],
    workers: WorkerPool,
    *,
    started: Callable[[Task], None] = lambda task: None,
    finished: Callable[[Sequence[RunResult]], None],
    failed: Callable[[Task, str], None],
) -> None:
    """Keep all workers busy until everything is done; what a dead one had is begun again.

    Args:
        tasks: the groups; the next one is asked for when a worker is free.
        workers: where.
        started: is told when a group begins.
        finished: takes the results of a stack.
        failed: takes a group that ended with an error, or whose workers died `ATTEMPTS` times.
    """
    fresh, again = ((task, 1) for task in tasks), deque[tuple[Task, int]]()
    free = deque(workers.slots)
    busy: dict[Hashable, tuple[Task, int, set[str]]] = {}
    while True:
        while free and (begun := next(fresh, None) or (again.popleft() if again else None)):
            slot, (task, attempt) = free.popleft(), begun
            busy[slot] = (task, attempt, set())
            started(task)
            workers.start(slot, task)
        if not busy:
            return
        news = workers.listen()
        task, attempt, stored = busy[news.slot]
        if news.kind == "results":
            stored |= {result.spec.key for result in news.results}
            finished(news.results)
            continue
        del busy[news.slot]
        free.append(news.slot)
        left = [spec for spec in task.specs if spec.key not in stored]
        if news.kind == "lost" and left:
            rest = Task(**{**vars(task), "specs": left})
            if attempt < ATTEMPTS:
                again.append((rest, attempt + 1))
            else:
                failed(rest, f"its worker died {attempt} times, last: {news.reason}")
        elif news.kind == "failed":
            failed(task, news.reason)


class _Orphaned(AccuracyListener):
    """Ends a worker whose parent is gone: another sweep may be at the same runs already."""

    def epoch(self, epoch: int, runs: Sequence[int], losses: Any, scores: Any) -> None:
        """Look once per epoch."""
        parent = multiprocessing.parent_process()
        if parent is not None and not parent.is_alive():
            os._exit(1)


def _work(pipe: Connection) -> None:
    """A worker: one group after another until the pipe is closed."""
    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        while True:
            task = Task.from_json(pipe.recv_bytes().decode())
            try:
                for results in task.stacks(_Orphaned()):
                    _send(pipe, "results", [result.to_dict() for result in results])
                _send(pipe, "done", None)
            except (ValueError, RuntimeError, OSError) as error:
                if isinstance(error, BrokenPipeError):
                    raise
                _send(pipe, "failed", str(error))


def _send(pipe: Connection, kind: str, content: Any) -> None:
    # Text, not objects: nothing that comes from another process is ever unpickled.
    pipe.send_bytes(json.dumps([kind, content]).encode())


class ProcessPool(WorkerPool):
    """One process per device on this machine.

    Args:
        devices: their names, such as "cuda:0" and "cuda:1"; a device named twice gets two processes.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        self._devices = list(devices)
        # A process that has used a GPU cannot be forked.
        self._context = multiprocessing.get_context("spawn")
        self._running: dict[int, tuple[multiprocessing.process.BaseProcess, Connection]] = {}

    @property
    def slots(self) -> Sequence[int]:
        """Numbers of the devices."""
        return range(len(self._devices))

    def start(self, slot: Hashable, task: Task) -> None:
        """Hand the group to the device's process; a new one where there is none."""
        assert isinstance(slot, int)
        if slot not in self._running:
            ours, theirs = self._context.Pipe()
            process = self._context.Process(target=_work, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._running[slot] = (process, ours)
        placed = Task(**{**vars(task), "device": self._devices[slot]})
        with suppress(BrokenPipeError):  # it died meanwhile, which `listen` finds out
            self._running[slot][1].send_bytes(placed.to_json().encode())

    def listen(self) -> WorkerMessage:
        """Wait for what a process says, or for its end."""
        by_pipe = {pipe: slot for slot, (_, pipe) in self._running.items()}
        pipe = next(iter(wait(list(by_pipe))))
        assert isinstance(pipe, Connection)
        slot = by_pipe[pipe]
        try:
            kind, content = json.loads(pipe.recv_bytes())
        except (EOFError, ConnectionError):
            process, _ = self._running.pop(slot)
            process.join()
            pipe.close()
            return WorkerMessage(
                slot, "lost", reason=f"exit code {process.exitcode} on {self._devices[slot]}"
            )
        if kind == "results":
            return WorkerMessage(slot, "results", [RunResult.from_dict(values) for values in content])
        return WorkerMessage(slot, kind, reason=content or "")

    def pids(self) -> list[int]:
        """The numbers of the processes."""
        return [process.pid for process, _ in self._running.values() if process.pid is not None]

    def close(self) -> None:
        """Close the pipes, at which idle processes end; busy ones are ended."""
        for process, pipe in self._running.values():
            pipe.close()
            process.join(0.5)
            if process.is_alive():
                process.terminate()
                process.join()
        self._running.clear()


class RayPool(WorkerPool):
    """Tasks on a Ray cluster that exists: the one this process is connected to, or the one at RAY_ADDRESS.

    Each group is one task that asks for a CPU, and for a GPU where it runs on one. The nodes need propall and
    the data sets (`PROPALL_DATA` or their default folder); results come back to this process.

    Args:
        device: "cuda" or "cpu", where groups run; "auto" for GPUs where the cluster has some.
        at_once: how many groups are handed over at once; as many as the cluster has places for by default.
    """

    def __init__(self, device: str = "auto", *, at_once: int | None = None) -> None:
        try:
            import ray
        except ImportError as error:
            raise ValueError(
                "launcher: ray is not installed here; pip install 'propall[ray]', or leave --launcher out."
            ) from error
        self._ray = ray
        if not ray.is_initialized():
            address = os.environ.get("RAY_ADDRESS", "auto")
            try:
                _knock(address)
                ray.init(address=address, log_to_driver=False)
            except (OSError, ConnectionError) as error:
                raise ValueError(
                    "launcher: no Ray cluster answers; start one with `ray start --head`, or set RAY_ADDRESS."
                ) from error
        resources = ray.cluster_resources()
        gpu = resources.get("GPU", 0) >= 1 if device == "auto" else device.startswith("cuda")
        self._device = "cuda" if gpu else "cpu"  # a task sees the GPUs it was given and no other
        places = resources.get("GPU" if gpu else "CPU", 0)
        if places < 1:
            raise ValueError(f"launcher: the Ray cluster has no {'GPU' if gpu else 'CPU'}; see --device.")
        self._slots = range(at_once or int(places))
        # Dead workers are counted by `execute`, for all launchers alike.
        self._remote = ray.remote(max_retries=0, num_cpus=1, num_gpus=1 if gpu else 0)(execute_task)
        self._running: dict[Any, int] = {}
        self._news: deque[WorkerMessage] = deque()

    @property
    def slots(self) -> Sequence[int]:
        """Numbers, one for each group at a time."""
        return self._slots

    def start(self, slot: Hashable, task: Task) -> None:
        """Submit the group."""
        assert isinstance(slot, int)
        # Where a node has the same folder of data sets it is used; where not, the node's own.
        root = task.root or os.environ.get("PROPALL_DATA")
        placed = Task(**{**vars(task), "device": self._device, "checkpoint": None, "root": root})
        self._running[self._remote.remote(placed.to_json())] = slot

    def listen(self) -> WorkerMessage:
        """Wait for a task to end."""
        if self._news:
            return self._news.popleft()
        ended, _ = self._ray.wait(list(self._running), num_returns=1)
        slot = self._running.pop(ended[0])
        errors = self._ray.exceptions
        try:
            kind, content = json.loads(self._ray.get(ended[0]))
        except (
            errors.WorkerCrashedError,
            errors.NodeDiedError,
            errors.OutOfMemoryError,
            errors.LocalRayletDiedError,
        ) as error:
            return WorkerMessage(slot, "lost", reason=type(error).__name__)
        except errors.RayTaskError as error:
            return WorkerMessage(slot, "failed", reason=str(error.cause or error).splitlines()[-1])
        if kind == "failed":
            return WorkerMessage(slot, "failed", reason=content)
        self._news.append(WorkerMessage(slot, "done"))
        return WorkerMessage(slot, "results", [RunResult.from_dict(values) for values in content])

    def close(self) -> None:
        """Cancel what still runs; the cluster stays, and so does the connection to it."""
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._running.clear()


def _knock(address: str) -> None:
    """Fail at once where nobody listens at host:port; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=5).close()


def execute_task(text: str) -> str:
    """What a Ray worker does with a task as text; returns what came of it as text."""
    task = Task.from_json(text)
    if task.root is not None and not Path(task.root).is_dir():
        task = Task(**{**vars(task), "root": None})
    try:
        stacks = list(task.stacks())
    except (ValueError, RuntimeError, OSError) as error:
        return json.dumps(["failed", str(error)])
    return json.dumps(["results", [result.to_dict() for result in itertools.chain(*stacks)]])


def parse_devices(name: str) -> list[str]:
    """The devices a word names: separated by commas, or for "auto" every GPU where there are some."""
    if name == "auto":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        return [f"cuda:{i}" for i in range(count)] or ["cpu"]
    devices = [part.strip() for part in name.split(",") if part.strip()]
    if not devices:
        raise ValueError(f"device: {name!r} names none; give auto, cpu, cuda, or cuda:0,cuda:1.")
    return devices

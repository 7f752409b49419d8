"""Where groups of runs execute: in this process, in one process per device, or on a Ray cluster.

The scheduler passes `RunTask`s to `execute`, which keeps every worker of a `WorkerPool` busy. Workers only
compute: results come back as JSON and the scheduling process stores them. A worker may therefore die at any
moment; its group is run again.
"""

import json
import multiprocessing
import os
import socket
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from propall.paper.results import RunResult
from propall.paper.runner import RunTask, run_stacks
from propall.training.checkpoint import TimeLimitReached
from propall.training.contract import Monitor

#: How often a group is started before it counts as failed because its workers die.
ATTEMPTS = 3

Launcher = Literal["local", "ray"]


class WorkerMessage(NamedTuple):
    """A message from a worker: results of a stack, how its group ended, or its death."""

    slot: int
    kind: Literal["results", "done", "failed", "lost"]  # done: also at the time limit
    results: Sequence[RunResult] = ()
    reason: str = ""


class WorkerPool(AbstractContextManager["WorkerPool"]):
    """Numbered slots that execute one group of runs at a time. A context manager."""

    slots: Sequence[int]

    @abstractmethod
    def start(self, slot: int, task: RunTask) -> None:
        """Start a group in a free slot."""

    @abstractmethod
    def next_message(self) -> WorkerMessage:
        """Wait for a message from any slot."""

    def __exit__(self, *_: object) -> None:
        """Stop all workers."""


def execute(
    tasks: Iterable[RunTask],
    pool: WorkerPool,
    *,
    started: Callable[[RunTask], None] = lambda task: None,
    finished: Callable[[Sequence[RunResult]], None],
    failed: Callable[[RunTask, str], None],
) -> None:
    """Execute groups, keeping all workers busy; a group whose worker died is started again.

    The next group is taken when a worker is free. `started` receives a group that starts, `finished` the
    results of each stack, `failed` a group that raised an error or whose workers died `ATTEMPTS` times.
    """
    new_tasks, retries = ((task, 1) for task in tasks), deque[tuple[RunTask, int]]()
    free = deque(pool.slots)
    busy: dict[int, tuple[RunTask, int, set[str]]] = {}
    while True:
        while free and (pending := next(new_tasks, None) or (retries.popleft() if retries else None)):
            slot, (task, attempt) = free.popleft(), pending
            busy[slot] = (task, attempt, set())
            started(task)
            pool.start(slot, task)
        if not busy:
            return
        message = pool.next_message()
        task, attempt, stored = busy[message.slot]
        if message.kind == "results":
            stored |= {result.spec.key for result in message.results}
            finished(message.results)
            continue
        del busy[message.slot]
        free.append(message.slot)
        rest = replace(task, specs=[spec for spec in task.specs if spec.key not in stored])
        if message.kind == "failed":
            failed(task, message.reason)
        elif message.kind == "lost" and rest.specs:
            if attempt < ATTEMPTS:
                retries.append((rest, attempt + 1))
            else:
                failed(rest, f"its worker died {attempt} times; last: {message.reason}")


def _run(slot: int, task: RunTask, monitor: Monitor | None = None) -> Iterator[WorkerMessage]:
    """Run a group; yields every message a worker sends about it."""
    try:
        for results in run_stacks(task, monitor):
            yield WorkerMessage(slot, "results", results)
    except TimeLimitReached:
        yield WorkerMessage(slot, "done")
    except (ValueError, RuntimeError, OSError) as error:  # out of memory, for example
        yield WorkerMessage(slot, "failed", reason=str(error))
    else:
        yield WorkerMessage(slot, "done")


# JSON, not objects: nothing from another process is ever unpickled.
def _encode(message: WorkerMessage) -> str:
    return json.dumps([message.kind, [result.to_dict() for result in message.results], message.reason])


def _decode(slot: int, text: str | bytes) -> WorkerMessage:
    kind, results, reason = json.loads(text)
    return WorkerMessage(slot, kind, [RunResult.from_dict(values) for values in results], reason)


class InProcess(WorkerPool):
    """Runs groups in this process, one after another; `monitor` receives the progress of training."""

    slots = (0,)

    def __init__(self, monitor: Monitor | None = None) -> None:
        self._monitor = monitor

    def start(self, slot: int, task: RunTask) -> None:
        """Prepare the group; `next_message` runs it."""
        self._messages = _run(slot, task, self._monitor)

    def next_message(self) -> WorkerMessage:
        """Run the next stack."""
        return next(self._messages)


class ProcessPool(WorkerPool):
    """One process per device on this machine; a device named twice gets two processes."""

    def __init__(self, devices: Sequence[str]) -> None:
        self._devices, self.slots = devices, range(len(devices))
        # A process that has used a GPU cannot be forked.
        self._context = multiprocessing.get_context("spawn")
        self._running: dict[int, tuple[multiprocessing.process.BaseProcess, Connection]] = {}

    def start(self, slot: int, task: RunTask) -> None:
        """Send the group to the process of the device, which is started first if there is none."""
        if slot not in self._running:
            ours, theirs = self._context.Pipe()
            process = self._context.Process(target=_work, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._running[slot] = (process, ours)
        placed = replace(task, device=self._devices[slot])
        with suppress(BrokenPipeError):  # the process died; `next_message` reports it
            self._running[slot][1].send_bytes(placed.to_json().encode())

    def next_message(self) -> WorkerMessage:
        """Wait for a message from a process, or for its end."""
        by_pipe = {pipe: slot for slot, (_, pipe) in self._running.items()}
        pipe = next(iter(wait(list(by_pipe))))
        assert isinstance(pipe, Connection)
        slot = by_pipe[pipe]
        try:
            return _decode(slot, pipe.recv_bytes())
        except (EOFError, ConnectionError):
            process, _ = self._running.pop(slot)
            process.join()
            pipe.close()
            reason = f"exit code {process.exitcode} on {self._devices[slot]}"
            return WorkerMessage(slot, "lost", reason=reason)

    def __exit__(self, *_: object) -> None:
        """Close the pipes, which ends idle processes; terminate busy ones."""
        for process, pipe in self._running.values():
            pipe.close()
            process.join(0.5)
            if process.is_alive():
                process.terminate()
                process.join()
        self._running.clear()


def _work(pipe: Connection) -> None:
    """Run one group after another until the pipe is closed."""
    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        while True:
            for message in _run(0, RunTask.from_json(pipe.recv_bytes().decode()), _ExitIfOrphaned()):
                pipe.send_bytes(_encode(message).encode())


class _ExitIfOrphaned(Monitor):
    """Ends a worker whose parent died: a new sweep may already run the same specs."""

    def epoch(self, epoch: int, runs: Sequence[int], losses: Any, scores: Any) -> None:
        """Check once per epoch."""
        parent = multiprocessing.parent_process()
        if parent is not None and not parent.is_alive():
            os._exit(1)


class RayPool(WorkerPool):
    """Tasks on an existing Ray cluster: the one this process is connected to, or the one at RAY_ADDRESS.

    Each group is one task that requests a CPU, and a GPU if it runs on one. The nodes need propall and the
    data sets (in `PROPALL_DATA` or the default folder). Results come back to this process. There are as many
    slots as the cluster has devices; device "auto" uses GPUs if there are any.
    """

    def __init__(self, device: str = "auto") -> None:
        try:
            import ray
        except ImportError as error:
            hint = "run pip install 'propall[ray]', or omit --launcher."
            raise ValueError(f"launcher: ray is not installed; {hint}") from error
        self._ray = ray
        if not ray.is_initialized():
            address = os.environ.get("RAY_ADDRESS", "auto")
            try:
                _check_reachable(address)
                ray.init(address=address, log_to_driver=False)
            except (OSError, ConnectionError) as error:
                hint = "start one with `ray start --head`, or set RAY_ADDRESS."
                raise ValueError(f"launcher: no Ray cluster answers; {hint}") from error
        resources = ray.cluster_resources()
        gpu = resources.get("GPU", 0) >= 1 if device == "auto" else device.startswith("cuda")
        self._device = "cuda" if gpu else "cpu"  # a task sees only the GPUs assigned to it
        count = resources.get("GPU" if gpu else "CPU", 0)
        if count < 1:
            raise ValueError(f"launcher: the Ray cluster has no {'GPU' if gpu else 'CPU'}; see --device.")
        self.slots = range(int(count))
        # `execute` counts retries, for all pools alike.
        self._remote = ray.remote(max_retries=0, num_cpus=1, num_gpus=1 if gpu else 0)(execute_task)
        self._running: dict[Any, int] = {}
        self._messages: deque[WorkerMessage] = deque()

    def start(self, slot: int, task: RunTask) -> None:
        """Submit the group."""
        # A node uses this folder of data sets if it has the same one, else its own default.
        folder = task.root or os.environ.get("PROPALL_DATA")
        root = None if folder is None else Path(folder)
        placed = replace(task, device=self._device, checkpoint=None, root=root)
        self._running[self._remote.remote(placed.to_json())] = slot

    def next_message(self) -> WorkerMessage:
        """Wait for a task to end."""
        if self._messages:
            return self._messages.popleft()
        ended, _ = self._ray.wait(list(self._running), num_returns=1)
        slot = self._running.pop(ended[0])
        errors = self._ray.exceptions
        deaths = (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError)
        try:
            messages = self._ray.get(ended[0])
        except (*deaths, errors.LocalRayletDiedError) as error:
            return WorkerMessage(slot, "lost", reason=type(error).__name__)
        except errors.RayTaskError as error:
            return WorkerMessage(slot, "failed", reason=str(error.cause or error).splitlines()[-1])
        self._messages.extend(_decode(slot, message) for message in messages)
        return self._messages.popleft()

    def __exit__(self, *_: object) -> None:
        """Cancel running tasks; the cluster and the connection to it stay."""
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._running.clear()


def _check_reachable(address: str) -> None:
    """Fail at once if nothing listens at host:port; Ray itself would retry for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=5).close()


def execute_task(text: str) -> list[str]:
    """Run a task given as JSON on a Ray worker; returns its messages as JSON."""
    task = RunTask.from_json(text)
    if task.root is not None and not task.root.is_dir():
        task = replace(task, root=None)
    return [_encode(message) for message in _run(0, task)]


def parse_devices(name: str) -> list[str]:
    """Return the devices in a comma-separated list; "auto" means every GPU, or the CPU without one."""
    if name == "auto":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        return [f"cuda:{i}" for i in range(count)] or ["cpu"]
    devices = [part.strip() for part in name.split(",") if part.strip()]
    if not devices:
        raise ValueError(f"device: got {name!r}; expected auto, cpu, cuda, or a list such as cuda:0,cuda:1.")
    return devices

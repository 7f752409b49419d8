"""Timing: after a warm-up, many times, implementations interleaved."""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch

from propall.training.compiled import synchronize

#: Work on a GPU: called with the number of the input set to use.
Work = Callable[[int], object]
#: Bytes of input sets to cycle through, so that a GPU finds none of them in its cache.
BEYOND_CACHE = 256 << 20
#: Maximum numbers of input sets and of samples that are worth the wait.
MAX_SETS, MAX_SAMPLES = 32, 200
#: Calls that are queued before the device is synchronized.
QUEUED_CALLS = 100


class Times(NamedTuple):
    """Samples of one implementation, in seconds."""

    wall: list[float]
    cpu: list[float]


@contextmanager
def thread_limit(count: int) -> Iterator[None]:
    """Limit torch and the linear algebra behind numpy to `count` threads."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(count):
            yield
    finally:
        torch.set_num_threads(before)


def time_in_turn(implementations: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, Times]:
    """Time several implementations on the host in turn, so that a change of load affects all of them."""
    for work in implementations.values():
        work()
    samples = {name: Times([], []) for name in implementations}
    for _ in range(repeats):
        for name, work in implementations.items():
            wall, cpu = time.perf_counter(), time.process_time()
            work()
            samples[name].wall.append(time.perf_counter() - wall)
            samples[name].cpu.append(time.process_time() - cpu)
    return samples


def input_sets(size: int, device: torch.device) -> int:
    """Number of input sets of `size` bytes to cycle through."""
    return 1 if device.type == "cpu" else max(1, min(MAX_SETS, BEYOND_CACHE // max(1, size)))


def time_on_device(work: Work, sets: int, device: torch.device, *, seconds: float = 0.5) -> list[float]:
    """Seconds per call without launch overhead: on a GPU replayed from a CUDA graph, timed by events.

    A replay goes through all input sets. `seconds` is the approximate duration of the measurement.
    """
    if device.type != "cuda":
        estimate = time_in_turn({"": lambda: work(0)}, 3)[""].wall
        return time_in_turn({"": lambda: work(0)}, _repeats(estimate, seconds, least=3))[""].wall
    replay = _graph_or_calls(work, sets)
    repeats = _repeats(_between_events(replay, 3), seconds, least=10)
    return [sample / sets for sample in _between_events(replay, repeats)]


def time_queued(
    implementations: Mapping[str, Work], sets: int, device: torch.device, *, seconds: float = 0.5
) -> dict[str, list[float]]:
    """Seconds per eager call as a training loop sees it: calls are queued, then the device is synchronized.

    Calls cycle through the input sets. `seconds` is the approximate duration for each implementation.
    """

    def queue(work: Work) -> None:
        for call in range(QUEUED_CALLS):
            work(call % sets)
        synchronize(device)

    queues = {name: partial(queue, work) for name, work in implementations.items()}
    estimates = time_in_turn(queues, 3)
    repeats = max(_repeats(times.wall, seconds, least=10) for times in estimates.values())
    times = time_in_turn(queues, repeats)
    return {name: [sample / QUEUED_CALLS for sample in times[name].wall] for name in queues}


def _repeats(estimate: list[float], seconds: float, least: int) -> int:
    return max(least, min(MAX_SAMPLES, int(seconds / max(1e-6, min(estimate)))))


def _graph_or_calls(work: Work, sets: int) -> Callable[[], None]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for i in (*range(sets), 0, 0):
            work(i)
    torch.cuda.current_stream().wait_stream(stream)

    def call_all() -> None:
        for i in range(sets):
            work(i)

    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            call_all()
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        warnings.warn(
            f"not captured in a CUDA graph, called instead ({reason}).", RuntimeWarning, stacklevel=2
        )
        torch.cuda.synchronize()
        return call_all
    return graph.replay


def _between_events(work: Callable[[], None], repeats: int) -> list[float]:
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for start, end in events:
        start.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) / 1e3 for start, end in events]

"""Time, taken the same way for everybody: after a warm-up, many times, turn by turn."""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch

#: Work on a GPU: called with the number of the input set to use.
Work = Callable[[int], object]
#: Bytes of input sets to go round in, so that a GPU finds none of them in its cache.
BEYOND_CACHE = 256 << 20
#: Most input sets, and most replays, that are worth the wait.
MOST_SETS, MOST_REPLAYS = 32, 200


class Times(NamedTuple):
    """Samples of one contender, in seconds."""

    wall: list[float]
    cpu: list[float]


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads for torch and for the linear algebra behind numpy."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(count):
            yield
    finally:
        torch.set_num_threads(before)


def in_turn(contenders: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, Times]:
    """Times of several contenders on the host, turn by turn, so that a change of load meets all of them."""
    for work in contenders.values():
        work()
    samples = {name: Times([], []) for name in contenders}
    for _ in range(repeats):
        for name, work in contenders.items():
            wall, cpu = time.perf_counter(), time.process_time()
            work()
            samples[name].wall.append(time.perf_counter() - wall)
            samples[name].cpu.append(time.process_time() - cpu)
    return samples


def input_sets(size: int, device: torch.device) -> int:
    """How many input sets of so many bytes to go round in."""
    return 1 if device.type == "cpu" else max(1, min(MOST_SETS, BEYOND_CACHE // max(1, size)))


def on_device(work: Work, sets: int, device: torch.device, *, seconds: float = 0.5) -> list[float]:
    """Seconds of one piece of work: on a GPU replayed from a graph, between events; else by the clock.

    Args:
        work: takes the number of an input set.
        sets: how many there are; a replay goes through all of them.
        device: where it runs.
        seconds: about how long to measure.
    """
    if device.type != "cuda":
        times = in_turn({"": lambda: work(0)}, 3)[""].wall
        repeats = max(3, min(MOST_REPLAYS, int(seconds / min(times))))
        return in_turn({"": lambda: work(0)}, repeats)[""].wall
    replay = _graph_or_calls(work, sets)
    estimate = _between_events(replay, 3)
    repeats = max(10, min(MOST_REPLAYS, int(seconds / max(1e-6, min(estimate)))))
    return [sample / sets for sample in _between_events(replay, repeats)]


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
        warnings.warn(f"not captured in a graph, called instead ({reason}).", RuntimeWarning, stacklevel=2)
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


def wait(device: torch.device) -> None:
    """Until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)

"""How long runs take: from a store's own results, else from times that come with the library."""

import csv
import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from importlib.resources import files
from typing import NamedTuple, TextIO

import torch

from propall.paper.results import RunResult
from propall.paper.specs import Spec
from propall.paper.store import Store
from propall.provenance import hardware

#: What comes with the library, written by `propall results export FILE --format rates`.
SHIPPED = "runtime_estimates.csv"


class RunKind(NamedTuple):
    """What runs have in common that take equally long per pass over the rows.

    Attributes:
        data: name of the data set.
        split: its rows, in JSON.
        net: name of the network; empty for methods without one.
        method: name of the method; empty for any.
    """

    data: str
    split: str
    net: str
    method: str


class RunRate(NamedTuple):
    """Seconds of a run of some kind, for each of its passes over the rows where it trains a network.

    Attributes:
        hardware: where it was measured.
        kind: what was run.
        seconds: their mean.
        runs: how many runs it is the mean of.
    """

    hardware: str
    kind: RunKind
    seconds: float
    runs: int


class RuntimeEstimates:
    """How long runs took on this hardware, from the results in a store or the times shipped.

    Args:
        store: earlier results; where it has some of a kind, they count alone.
        device: where the runs to come will happen.

    Attributes:
        elsewhere: the hardware of the same sort that `guess` goes by; empty where times of this very
            hardware are shipped, or none of its sort.
    """

    def __init__(self, store: Store, device: torch.device | str) -> None:
        here = hardware(device)
        self._seconds: dict[RunKind, list[float]] = {}
        for line in store.lines():
            if line["hardware"] == here:
                self.learn(Spec.from_json(line["spec"]), line["seconds"])
        on_cpu = torch.device(device).type == "cpu"
        rates = [rate for rate in shipped_rates() if _is_cpu(rate.hardware) == on_cpu]
        measured_on = list(dict.fromkeys(rate.hardware for rate in rates))
        source = here if here in measured_on else next(iter(measured_on), "")
        self.elsewhere = "" if source == here else source
        self._shipped = {rate.kind: rate.seconds for rate in rates if rate.hardware == source}

    def learn(self, spec: Spec, seconds: float) -> None:
        """Take a run's time into account."""
        for kind in _kinds(spec):
            self._seconds.setdefault(kind, []).append(seconds / _work(spec))

    def seconds(self, spec: Spec) -> float | None:
        """The expected time of a run: by its method on its data, else by its network, if it has one."""
        for kind in _kinds(spec):
            if own := self._seconds.get(kind):
                return sum(own) / len(own) * _work(spec)
        return None if self.elsewhere else self._from_shipped(spec)

    def guess(self, spec: Spec) -> float | None:
        """The time such a run took on the hardware `elsewhere`."""
        return self._from_shipped(spec) if self.elsewhere else None

    def _from_shipped(self, spec: Spec) -> float | None:
        known = (self._shipped[kind] for kind in _kinds(spec) if kind in self._shipped)
        rate = next(known, None)
        return None if rate is None else rate * _work(spec)


def _is_cpu(name: str) -> bool:
    return " CPU, " in name


def _kinds(spec: Spec) -> list[RunKind]:
    split = json.dumps(dataclasses.asdict(dataclasses.replace(spec.split, fold=None)))
    if not spec.trains_a_net:
        return [RunKind(spec.data, split, "", spec.method.name)]
    return [RunKind(spec.data, split, spec.net, spec.method.name), RunKind(spec.data, split, spec.net, "")]


def _work(spec: Spec) -> int:
    """What a run's time is divided by: its passes; methods without a network are timed as a whole."""
    return max(1, spec.passes)


def measure_rates(store: Store) -> list[RunRate]:
    """The rates of every kind of run in a store; of processes that shared a device, each one's share."""
    found: dict[tuple[str, RunKind], list[float]] = {}
    results = list(store.newest())
    for result, seconds in zip(results, exclusive_seconds(results), strict=True):
        for kind in _kinds(result.spec):
            found.setdefault((result.hardware, kind), []).append(seconds / _work(result.spec))
    rates = [
        RunRate(name, kind, sum(seconds) / len(seconds), len(seconds))
        for (name, kind), seconds in found.items()
    ]
    return sorted(rates)


def exclusive_seconds(results: Sequence[RunResult]) -> list[float]:
    """The seconds of each run, where several ran at a time only its part of them.

    A moment in which three processes were at work on one sort of hardware counts a third for each; the runs
    of a stack part what is theirs. When a run was at work follows from when it ended and how long it took.
    """
    spans = []
    for index, result in enumerate(results):
        end = datetime.fromisoformat(result.when).timestamp()
        begin = end - result.seconds * result.stack
        spans += [(begin, index, True), (end, index, False)]
    found = [0.0] * len(results)
    active: dict[str, set[int]] = {}
    last = 0.0
    for moment, index, begins in sorted(spans):
        for together in active.values():
            load = sum(1 / results[one].stack for one in together)
            for one in together:
                found[one] += (moment - last) / results[one].stack / load
        last = moment
        of = active.setdefault(results[index].hardware, set())
        if begins:
            of.add(index)
        else:
            of.discard(index)
    return found


def shipped_rates() -> list[RunRate]:
    """The rates that come with the library."""
    text = files("propall.paper").joinpath(SHIPPED).read_text(encoding="utf-8")
    return list(read_rates(text.splitlines()))


def read_rates(lines: Iterable[str]) -> Iterator[RunRate]:
    """RuntimeEstimates from CSV."""
    for values in csv.DictReader(lines):
        kind = RunKind(*(values[name] for name in RunKind._fields))
        yield RunRate(values["hardware"], kind, float(values["seconds"]), int(values["runs"]))


def export_rates(store: Store, out: TextIO) -> int:
    """Write a store's rates as CSV; returns how many."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("hardware", *RunKind._fields, "seconds", "runs"))
    rates = measure_rates(store)
    writer.writerows((rate.hardware, *rate.kind, f"{rate.seconds:.4g}", rate.runs) for rate in rates)
    return len(rates)

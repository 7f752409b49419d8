"""Expected run times: from the results in a store, or else from times shipped with the library.

The scheduler shows them as the time left, `propall reproduce --dry-run` as a forecast.
"""

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

#: The shipped times, written by `propall results export FILE --format rates`.
_SHIPPED = "runtime_estimates.csv"


class RunKind(NamedTuple):
    """What runs with the same time per epoch have in common."""

    data: str
    split: str  # as JSON
    net: str  # empty for methods without one
    method: str  # empty for any


class RunRate(NamedTuple):
    """Mean time of runs of one kind: per epoch, or of a whole run if it trains no network."""

    hardware: str
    kind: RunKind
    seconds: float
    runs: int


class RuntimeForecast(NamedTuple):
    """Expected time of runs of one kind."""

    data: str
    methods: tuple[str, ...]  # titles
    net: str  # empty for methods without one
    epochs: int | None  # None for methods without epochs
    runs: int
    seconds: float | None  # None if no such run was timed on this hardware
    guess: float | None  # time on `RuntimeEstimates.other_hardware`, if known


class RuntimeEstimates:
    """Expected run times on a device; for kinds of runs that a store contains, only its results count.

    Attributes:
        other_hardware: similar hardware that `guess` refers to; empty if times of this very hardware are
            shipped, or none of similar hardware.
    """

    def __init__(self, store: Store, device: torch.device | str) -> None:
        here = hardware(device)
        self._seconds: dict[RunKind, list[float]] = {}
        for line in store.lines():
            if line["hardware"] == here:
                self.add(Spec.from_json(line["spec"]), line["seconds"])
        on_cpu = torch.device(device).type == "cpu"
        rates = [rate for rate in shipped_rates() if (" CPU, " in rate.hardware) == on_cpu]
        measured_on = list(dict.fromkeys(rate.hardware for rate in rates))
        source = here if here in measured_on else next(iter(measured_on), "")
        self.other_hardware = "" if source == here else source
        self._shipped = {rate.kind: rate.seconds for rate in rates if rate.hardware == source}

    def add(self, spec: Spec, seconds: float) -> None:
        """Take the time of a finished run into account."""
        for kind in _kinds(spec):
            self._seconds.setdefault(kind, []).append(seconds / _units(spec))

    def seconds(self, spec: Spec) -> float | None:
        """Return the expected time of a run: from its method on its data, else from its network."""
        for kind in _kinds(spec):
            if times := self._seconds.get(kind):
                return sum(times) / len(times) * _units(spec)
        return None if self.other_hardware else self._from_shipped(spec)

    def guess(self, spec: Spec) -> float | None:
        """Return the time of such a run on `other_hardware`."""
        return self._from_shipped(spec) if self.other_hardware else None

    def _from_shipped(self, spec: Spec) -> float | None:
        rate = next((self._shipped[kind] for kind in _kinds(spec) if kind in self._shipped), None)
        return None if rate is None else rate * _units(spec)

    def forecast(self, groups: Iterable[Sequence[Spec]]) -> list[RuntimeForecast]:
        """Return the expected times of groups of runs; groups of the same kind are merged."""
        merged: dict[tuple[str, tuple[str, ...], str, int | None], list[Spec]] = {}
        for group in groups:
            first, trains = group[0], group[0].trains_network
            methods = tuple(dict.fromkeys(spec.method.title for spec in group))
            kind = (first.data, methods, first.net if trains else "", first.recipe.epochs if trains else None)
            merged.setdefault(kind, []).extend(group)
        forecasts = []
        for kind, specs in merged.items():
            seconds, guess = _total(map(self.seconds, specs)), _total(map(self.guess, specs))
            forecasts.append(RuntimeForecast(*kind, len(specs), seconds, guess))
        return forecasts


def _total(times: Iterable[float | None]) -> float | None:
    """Return the sum; None if a time is unknown."""
    known = list(times)
    return None if None in known else sum(time or 0.0 for time in known)


def _kinds(spec: Spec) -> list[RunKind]:
    """Return the kinds a run belongs to: its method on its data, then any method with its network."""
    split = json.dumps(dataclasses.asdict(dataclasses.replace(spec.split, fold=None)))
    if not spec.trains_network:
        return [RunKind(spec.data, split, "", spec.method.name)]
    return [RunKind(spec.data, split, spec.net, method) for method in (spec.method.name, "")]


def _units(spec: Spec) -> int:
    """Return what a run time is divided by: epochs, or 1 for methods without a network."""
    return max(1, spec.total_epochs)


def measure_rates(store: Store) -> list[RunRate]:
    """Return the rates of every kind of run in a store, see `exclusive_seconds`."""
    times: dict[tuple[str, RunKind], list[float]] = {}
    results = store.newest()
    for result, seconds in zip(results, exclusive_seconds(results), strict=True):
        for kind in _kinds(result.spec):
            times.setdefault((result.hardware, kind), []).append(seconds / _units(result.spec))
    return sorted(RunRate(*of, sum(seconds) / len(seconds), len(seconds)) for of, seconds in times.items())


def exclusive_seconds(results: Sequence[RunResult]) -> list[float]:
    """Return the seconds of each run, counting only its share of time when several ran at once.

    While three processes use the same kind of hardware, each is charged a third of the time; the runs of a
    stack divide the time of their process. The start of a run follows from its end and its length.
    """
    events = []
    for index, result in enumerate(results):
        end = datetime.fromisoformat(result.when).timestamp()
        begin = end - result.seconds * result.stack
        events += [(begin, index, True), (end, index, False)]
    charged = [0.0] * len(results)
    active: dict[str, set[int]] = {}
    last = 0.0
    for moment, index, begins in sorted(events):
        for running in active.values():
            load = sum(1 / results[i].stack for i in running)
            for i in running:
                charged[i] += (moment - last) / results[i].stack / load
        last = moment
        on_hardware = active.setdefault(results[index].hardware, set())
        (on_hardware.add if begins else on_hardware.discard)(index)
    return charged


def shipped_rates() -> list[RunRate]:
    """Return the rates that come with the library."""
    text = files("propall.paper").joinpath(_SHIPPED).read_text(encoding="utf-8")
    return list(read_rates(text.splitlines()))


def read_rates(lines: Iterable[str]) -> Iterator[RunRate]:
    """Read rates from CSV."""
    for values in csv.DictReader(lines):
        kind = RunKind(*(values[name] for name in RunKind._fields))
        yield RunRate(values["hardware"], kind, float(values["seconds"]), int(values["runs"]))


def export_rates(store: Store, out: TextIO) -> int:
    """Write the rates of a store as CSV; returns their number."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("hardware", *RunKind._fields, "seconds", "runs"))
    rates = measure_rates(store)
    writer.writerows((rate.hardware, *rate.kind, f"{rate.seconds:.4g}", rate.runs) for rate in rates)
    return len(rates)

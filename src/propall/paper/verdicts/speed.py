"""Claim: ProPaLL trains faster than PRODEN and VALEN."""

from collections.abc import Mapping
from typing import NamedTuple

from propall.data import DATASETS
from propall.paper.evidence import Evidence
from propall.paper.results import RunResult
from propall.paper.specs import TIMED
from propall.paper.verdicts.claim import Claim, overall_verdict

#: Relative differences in time below this count as equal: a single run each allows no test.
MARGIN = 0.05


class Timing(NamedTuple):
    """A run that was trained alone on its device."""

    title: str
    data: str
    seconds: float  # training time, with compilation and without testing
    epochs: int
    per_epoch: float  # see `seconds_per_epoch`
    curve: list[tuple[float, float]]  # (seconds at that rate, accuracy in percent) by epoch
    result: RunResult


def seconds_per_epoch(times: Mapping[int, float]) -> float:
    """Return the mean over the second half of the epochs, from the seconds since the start by epoch.

    This excludes all compilation: in the first epoch, and for VALEN when its second phase begins.
    """
    last = max(times)
    middle = max((epoch for epoch in times if 2 * epoch <= last), default=min(times))
    return (times[last] - times[middle]) / (last - middle)


def collect_timings(evidence: Evidence) -> list[Timing]:
    """Return the timed runs by data set and row; the longest if there are several."""
    longest: dict[tuple[str, str], Timing] = {}
    for protocol in evidence.protocols("uniform"):
        if not protocol.startswith(TIMED):
            continue
        for entry in evidence.entries("uniform", protocol):
            for result in entry.results:
                if len(result.times) < 2:
                    continue
                last, per_epoch = max(result.times), seconds_per_epoch(result.times)
                curve = [(e * per_epoch, 100 * result.curve[e]) for e in result.times if e in result.curve]
                place = entry.title, entry.cell.data
                if place not in longest or longest[place].epochs < last:
                    longest[place] = Timing(*place, result.times[last], last, per_epoch, curve, result)
    return list(longest.values())


def judge_speed(evidence: Evidence) -> Claim:
    """Compare the training times of ProPaLL, PRODEN and VALEN, each run alone."""
    measured, used = [], []
    supporting, opposing = 0, 0
    runs = collect_timings(evidence)
    for data in dict.fromkeys(run.data for run in runs):
        by_title = {run.title: run for run in runs if run.data == data}
        if by_title.keys() != {"ProPaLL", "PRODEN", "VALEN"}:
            continue  # the claim is about both of the others
        ours = by_title["ProPaLL"]
        parts = []
        for run in by_title.values():
            ratio = run.per_epoch / ours.per_epoch
            if run is not ours:
                supporting += ratio >= 1 + MARGIN
                opposing += ratio < 1 + MARGIN
            relative = "" if run is ours else f", {ratio:.2f} times ProPaLL's"
            parts.append(
                f"{run.title} {1000 * run.per_epoch:.1f} ms per epoch{relative} ({run.seconds:.1f} s for "
                f"{run.epochs} epochs including compilation)"
            )
            used.append(run.result)
        measured.append(f"{DATASETS[data].title} on {ours.result.hardware}: {'; '.join(parts)}.")
    tested = supporting + opposing
    return Claim(
        "speed",
        "ProPaLL trains faster than PRODEN and VALEN for the same number of epochs.",
        overall_verdict(supporting, opposing),
        f"the other method takes over {100 * MARGIN:.0f} % more time per epoch in {supporting} of {tested} "
        "comparisons; all methods use this library's training engine, each run alone"
        if tested
        else "no data set has timed runs of all three methods; run `propall reproduce uniform --protocol "
        "timed`",
        f"Holds if both other methods take over {100 * MARGIN:.0f} % more time per epoch on every data set "
        "that has all three; does not hold if neither does on any. The time per epoch is the mean over the "
        "second half of a run's epochs, which excludes compilation.",
        measured,
        used,
    )

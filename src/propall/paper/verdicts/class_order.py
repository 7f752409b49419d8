"""Claim: ProPaLL learns one class after another, PRODEN all classes at once."""

import statistics
from collections.abc import Mapping, Sequence

from propall.paper.evidence import Evidence
from propall.paper.reproduction import CellResult
from propall.paper.results import RunResult
from propall.paper.stats import sign_p
from propall.paper.tables import TABLES
from propall.paper.verdicts.claim import ALPHA, OURS, Claim, Verdict, protocol_label

#: A class counts as learned from the first sensitivity on, and as not started up to the second.
LEARNED, NOT_STARTED = 0.5, 0.1


def late_classes(recalls: Mapping[int, Sequence[float]]) -> int | None:
    """Count the classes not started when half of the classes are learned; None if half never are."""
    for epoch in sorted(recalls):
        shares = recalls[epoch]
        if sum(share >= LEARNED for share in shares) * 2 >= len(shares):
            return sum(share <= NOT_STARTED for share in shares)
    return None


def judge_class_order(evidence: Evidence) -> Claim:
    """Compare `late_classes` of ProPaLL and PRODEN, run by run."""
    measured, used = [], []
    counted: list[tuple[int, int]] = []
    for table in ("uniform", "instance", "candidates10", "candidates5", "complementary"):
        for protocol in evidence.full_protocols(table):
            pairs = []
            for column in evidence.columns(table, protocol).values():
                if {OURS, "proden"} - column.keys():
                    continue
                ours, theirs = (_late_by_unit(column[row]) for row in (OURS, "proden"))
                for unit in (unit for unit in ours if unit in theirs):
                    pairs.append((ours[unit][0], theirs[unit][0]))
                    used += [ours[unit][1], theirs[unit][1]]
            if pairs:
                mean, other_mean = map(statistics.fmean, zip(*pairs, strict=True))
                measured.append(
                    f"{table}, {protocol_label(table, protocol)}, {len(pairs)} pairs of runs: when half of "
                    f"the classes are learned, {mean:.2f} are not started with ProPaLL and {other_mean:.2f} "
                    "with PRODEN."
                )
            if TABLES[table].is_judged(protocol):
                counted += pairs
    verdict, reason = Verdict.NOT_MEASURED, "no pair of runs has sensitivities by class"
    if counted:
        more, fewer = sum(a > b for a, b in counted), sum(a < b for a, b in counted)
        p, (mean, other_mean) = sign_p(more, fewer), map(statistics.fmean, zip(*counted, strict=True))
        reason = (
            f"when half of the classes are learned, on average {mean:.2f} are not started with ProPaLL and "
            f"{other_mean:.2f} with PRODEN; more with ProPaLL in {more} of {len(counted)} pairs of runs, "
            f"fewer in {fewer} (sign test p = {p:.2g})"
        )
        verdict = Verdict.FAILS
        if p < ALPHA and more > fewer:
            verdict = Verdict.HOLDS if mean >= 1 else Verdict.PARTLY
    return Claim(
        "consecutive learning of classes",
        "ProPaLL learns one class after another, PRODEN all classes at once.",
        verdict,
        reason,
        f"A class is learned at a sensitivity of {LEARNED} or more and not started at {NOT_STARTED} or less. "
        "Holds if, when half of the classes are learned, on average one or more are not started with "
        "ProPaLL, and more than with PRODEN in significantly many pairs of runs (sign test); partly holds if "
        "only the latter. Measured after whole epochs, so the order within the first epoch is not seen.",
        measured,
        used,
    )


def _late_by_unit(entry: CellResult) -> dict[tuple[int, int | None], tuple[int, RunResult]]:
    """Return `late_classes` and the run, by seed and fold, for runs that learn half of the classes."""
    return {
        (result.spec.seed, result.spec.split.fold): (late, result)
        for result in entry.results
        if result.recalls and (late := late_classes(result.recalls)) is not None
    }

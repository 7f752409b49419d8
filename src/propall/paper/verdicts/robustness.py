"""Claim: ProPaLL loses less accuracy than other methods as the number of candidates grows."""

import statistics

from propall.data import DATASETS
from propall.paper.evidence import Evidence
from propall.paper.reproduction import CellResult
from propall.paper.tables import TABLES
from propall.paper.verdicts.claim import (
    OURS,
    Claim,
    compare,
    mean_text,
    overall_verdict,
    protocol_label,
    runs_of,
)

_LOSES = {
    "better": ", significantly more than ProPaLL",
    "worse": ", significantly less than ProPaLL",
    "equal": ", not significantly different from ProPaLL",
    "untested": "",
}


def judge_robustness(evidence: Evidence) -> Claim:
    """Compare what each method loses from one candidate to the maximum number, seed by seed."""
    measured, used = [], []
    supporting, opposing = 0, 0
    for table in ("candidates10", "candidates5"):
        most = max(TABLES[table].candidates)
        for protocol in evidence.full_protocols(table):
            columns, is_judged = evidence.columns(table, protocol), TABLES[table].is_judged(protocol)
            for data in TABLES[table].data:
                first, last = columns.get((data, 1), {}), columns.get((data, most), {})
                losses = {row: _points_lost(first[row], last[row]) for row in last if row in first}
                if OURS not in losses:
                    continue
                parts = []
                for row, lost in losses.items():
                    comparison = compare(lost, losses[OURS]) if row != OURS else None
                    if comparison is not None and is_judged:
                        supporting += comparison.outcome == "better"
                        opposing += comparison.outcome in ("equal", "worse")
                    outcome = "" if comparison is None else _LOSES[comparison.outcome]
                    drop = f", {statistics.fmean(lost.values()):.2f} below n = 1" if lost else ""
                    parts.append(f"{last[row].title} {mean_text(last[row])}{drop}{outcome}")
                    used += [first[row], last[row]]
                measured.append(
                    f"{DATASETS[data].title}, {most} candidates of {most + 1} classes, "
                    f"{protocol_label(table, protocol)}: {'; '.join(parts)}."
                )
    tested = supporting + opposing
    return Claim(
        "robustness to the number of candidates",
        "With more candidates, ProPaLL loses far less accuracy than the other methods.",
        overall_verdict(supporting, opposing),
        "from one candidate to the maximum number, ProPaLL loses significantly less accuracy in "
        f"{supporting} of {tested} comparisons"
        if tested
        else "one candidate and the maximum number were not both run with two or more seeds",
        "Holds if, from one candidate to the maximum number, ProPaLL loses significantly less accuracy "
        "(paired by seed) than every other method on every data set; does not hold if in no comparison.",
        measured,
        runs_of(used),
    )


def _points_lost(first: CellResult, last: CellResult) -> dict[int, float]:
    """Return the points lost from one entry to another, by seed."""
    return {unit: first.values[unit] - value for unit, value in last.values.items() if unit in first.values}

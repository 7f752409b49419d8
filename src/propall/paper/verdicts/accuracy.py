"""Claims about accuracy: superiority, robustness to the number of candidates, and the effect of noise."""

import statistics
from collections import Counter

from propall.data import DATASETS
from propall.paper.evidence import Evidence
from propall.paper.reproduction import CellResult
from propall.paper.stats import sign_p
from propall.paper.tables import TABLES
from propall.paper.verdicts.claim import (
    ALPHA,
    OURS,
    Claim,
    Verdict,
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


def judge_superiority(evidence: Evidence) -> Claim:
    """Compare ProPaLL with the best other method on every data set with uniform candidates."""
    measured, used = [], []
    outcomes: Counter[str] = Counter()
    rows = {row.name for row in TABLES["uniform"].rows if row.name == row.published}
    for protocol in evidence.full_protocols("uniform"):
        for (data, _), column in evidence.columns("uniform", protocol).items():
            if not rows <= column.keys():
                continue  # the best of all methods requires all of them
            others = [entry for row, entry in column.items() if row != OURS]
            best = max(others, key=lambda entry: entry.mean or 0.0)
            comparison = compare(column[OURS].values, best.values)
            if comparison is None:
                continue
            if TABLES["uniform"].is_judged(protocol):
                outcomes[comparison.outcome] += 1
            used += [column[OURS], best]
            measured.append(
                f"{DATASETS[data].title}, {protocol_label('uniform', protocol)}: "
                f"ProPaLL {mean_text(column[OURS])}, best other method {best.title} "
                f"{mean_text(best)}: {comparison.describe()}."
            )
    tested = outcomes["better"] + outcomes["equal"] + outcomes["worse"]
    return Claim(
        "uniform superiority",
        "With uniform candidate sets, ProPaLL is more accurate than every other method on every data set.",
        overall_verdict(outcomes["better"], tested - outcomes["better"]),
        f"ProPaLL is significantly better than the best other method in {outcomes['better']} of {tested} "
        f"settings, not significantly different in {outcomes['equal']}, significantly worse in "
        f"{outcomes['worse']}"
        if tested
        else "no data set has two or more runs of every method",
        "Holds if ProPaLL is significantly better than the best other method in every setting (data set and "
        "protocol) that has results for all methods; does not hold if in none.",
        measured,
        runs_of(used),
    )


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


def judge_noise(evidence: Evidence) -> Claim:
    """Compare ProPaLL with and without noise in all cells of the six tables that have two or more pairs."""
    measured: list[str] = []
    used: list[CellResult] = []
    total: Counter[str] = Counter()
    seen: set[frozenset[str]] = set()
    for table in (name for name in TABLES if name.startswith("noise_")):
        for protocol in evidence.full_protocols(table):
            counts: Counter[str] = Counter()
            for column in evidence.columns(table, protocol).values():
                if {OURS, "propall-no-noise"} - column.keys():
                    continue
                runs = frozenset(column[OURS].keys)
                comparison = compare(column[OURS].values, column["propall-no-noise"].values)
                if comparison is None or comparison.pairs < 2 or runs in seen:
                    continue
                seen.add(runs)
                counts["higher"] += comparison.gap > 0
                counts["lower"] += comparison.gap < 0
                counts[comparison.outcome] += 1
                used += column.values()
            if counts["higher"] + counts["lower"]:
                measured.append(
                    f"{table.removeprefix('noise_')}, {protocol_label(table, protocol)}: higher with noise "
                    f"in {counts['higher']} of {counts['higher'] + counts['lower']} cells (significantly in "
                    f"{counts['better']}), lower in {counts['lower']} (significantly in {counts['worse']})."
                )
            if TABLES[table].is_judged(protocol):
                total += counts
    n_cells = total["higher"] + total["lower"]
    p = sign_p(total["higher"], total["lower"])
    verdict = Verdict.INCONCLUSIVE if n_cells else Verdict.NOT_MEASURED
    if n_cells and p < ALPHA:
        verdict = Verdict.HOLDS if total["higher"] > total["lower"] else Verdict.FAILS
    return Claim(
        "noise",
        "Noise on the logits usually raises ProPaLL's accuracy.",
        verdict,
        f"with noise, the mean is higher in {total['higher']} of {n_cells} cells (sign test p = {p:.2g}), "
        f"significantly in {total['better']}; it is significantly lower in {total['worse']}"
        if n_cells
        else "no cell has two or more runs both with and without noise",
        "Holds if the mean is higher with noise in significantly more cells than it is lower (sign test over "
        "cells; cells of one data set are not independent); does not hold if in significantly fewer.",
        measured,
        runs_of(used),
    )

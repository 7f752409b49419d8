"""Claim: noise on the logits usually raises ProPaLL's accuracy."""

from collections import Counter

from propall.paper.evidence import Evidence
from propall.paper.reproduction import CellResult
from propall.paper.stats import sign_p
from propall.paper.tables import TABLES
from propall.paper.verdicts.claim import ALPHA, OURS, Claim, Verdict, compare, protocol_label, runs_of


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

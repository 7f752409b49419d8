"""Claim: ProPaLL is the most accurate method with uniform candidate sets."""

from collections import Counter

from propall.data import DATASETS
from propall.paper.evidence import Evidence
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

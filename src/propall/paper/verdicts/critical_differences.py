"""Claims from the paper's critical-difference diagrams: which methods rank significantly worse."""

import warnings
from collections.abc import Sequence
from typing import NamedTuple

from propall.paper.evidence import Evidence, primary_rows
from propall.paper.reproduction import CellResult
from propall.paper.stats import Blocks, Ranking, RepeatedBlocksWarning, ranking_of_runs
from propall.paper.tables import TABLES, published_accuracies
from propall.paper.verdicts.claim import ALPHA, Claim, Verdict, runs_of


class Diagram(NamedTuple):
    """A critical-difference diagram of the paper.

    `not_worse` are the methods that the paper calls no worse than ProPaLL; None if it only claims that no
    method is better.
    """

    tables: tuple[str, ...]
    statement: str
    not_worse: tuple[str, ...] | None


DIAGRAMS = {
    "uniform and instance-dependent candidates": Diagram(
        ("uniform", "instance"),
        "ProPaLL is significantly better than all methods but VALEN and PRODEN.",
        ("VALEN", "PRODEN"),
    ),
    "real-world candidates": Diagram(("real",), "No method is significantly better than ProPaLL.", None),
    "one complementary label": Diagram(
        ("complementary",), "ProPaLL is significantly better than all methods but PRODEN.", ("PRODEN",)
    ),
}

_TESTS = "Average ranks over data sets, Iman-Davenport test, then Nemenyi test at the 0.05 level"


def rank_methods(
    name: str, evidence: Evidence, *, blocks: Blocks = "data sets"
) -> tuple[Ranking, list[CellResult]] | None:
    """Rank the methods of one of `DIAGRAMS` under each table's first protocol; None if too little was run.

    Uses the blocks in which every row of the paper is complete. Of several rows of ours for one published row
    only the first is used, since the others would count a method twice.
    """
    tables = DIAGRAMS[name].tables
    scores: dict[str, dict[str, list[float]]] = {}
    used: list[CellResult] = []
    for table in tables:
        rows = primary_rows(table)
        for entry in evidence.entries(table):
            if entry.cell.row in rows and entry.runs == entry.expected > 0:
                block = f"{table}/{entry.cell.data}"
                scores.setdefault(_base_title(entry.title), {})[block] = list(entry.values.values())
                used.append(entry)
    titles = {_base_title(TABLES[t].row(row).title) for t in tables for row in primary_rows(t)}
    ranking = _rank(scores, blocks) if scores.keys() == titles else None
    return None if ranking is None else (ranking, used)


def rank_published(name: str) -> Ranking:
    """Rank the paper's own numbers in the same way, one block per data set."""
    scores: dict[str, dict[str, list[float]]] = {}
    for table in DIAGRAMS[name].tables:
        for cell, accuracy in published_accuracies().items():
            if cell.table == table:
                title = next(row.title for row in TABLES[table].rows if row.published == cell.row)
                scores.setdefault(_base_title(title), {})[f"{table}/{cell.data}"] = [accuracy.mean]
    ranking = _rank(scores, "data sets")
    assert ranking is not None
    return ranking


def _base_title(title: str) -> str:
    """Return a row's title without the setting after a comma."""
    return title.partition(",")[0]


def _rank(scores: dict[str, dict[str, list[float]]], blocks: Blocks) -> Ranking | None:
    """Rank over the blocks that all methods have; None if there are too few."""
    shared = set.intersection(*map(set, scores.values())) if scores else set()
    if len(scores) < 3 or len(shared) < 2:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RepeatedBlocksWarning)  # the page carries this warning
        return ranking_of_runs(scores, blocks=blocks, alpha=ALPHA)


def worse_than_propall(ranking: Ranking) -> list[str]:
    """Return the methods significantly worse than ProPaLL; none if the omnibus test does not reject."""
    if ranking.friedman.f_p >= ALPHA:
        return []
    ours = ranking.ranks["ProPaLL"]
    return [name for name, rank in ranking.ranks.items() if rank - ours >= ranking.critical_difference]


def incomplete_blocks(name: str, used: Sequence[CellResult]) -> list[str]:
    """Return the blocks of a diagram that lack a method."""
    missing = []
    for table in DIAGRAMS[name].tables:
        for data in TABLES[table].data:
            rows = {entry.cell.row for entry in used if (entry.cell.table, entry.cell.data) == (table, data)}
            if rows != primary_rows(table):
                missing.append(f"{table}/{data}")
    return missing


def judge_critical_differences(evidence: Evidence) -> list[Claim]:
    """Judge one claim per diagram, with one block per data set."""
    claims = []
    for name, diagram in DIAGRAMS.items():
        ranked = rank_methods(name, evidence)
        if ranked is None:
            used: list[CellResult] = []
            verdict, measured = Verdict.NOT_MEASURED, list[str]()
            reason = f"fewer than two data sets have all methods of {' and '.join(diagram.tables)}"
        else:
            ranking, used = ranked
            verdict, reason = _judge(ranking, diagram.not_worse)
            measured = _describe(name, ranking, used)
        rule = (
            f"{_TESTS}; one block per data set. Holds if every method that the claim names is significantly "
            "worse."
            if diagram.not_worse is not None
            else f"{_TESTS}. Holds if no method has a significantly better average rank than ProPaLL; "
            "inconclusive if some rank better but none could do so significantly, because ProPaLL's rank is "
            "less than one critical difference from 1."
        )
        title = f"critical differences, {name}"
        claims.append(Claim(title, diagram.statement, verdict, reason, rule, measured, runs_of(used)))
    return claims


def _judge(ranking: Ranking, not_worse: tuple[str, ...] | None) -> tuple[Verdict, str]:
    """Return the verdict and its reason."""
    ranks, ours, difference = ranking.ranks, ranking.ranks["ProPaLL"], ranking.critical_difference
    average = f"over {ranking.blocks} data sets ProPaLL has average rank {ours:.2f}"
    if difference > len(ranks) - 1:
        reason = f"{ranking.blocks} data sets are too few for any significant difference"
        return Verdict.INCONCLUSIVE, reason
    if not_worse is None and min(ranks.values()) < ours < 1 + difference:
        reason = f"{average}; a rank would have to be better by {difference:.2f} to be significantly better"
        return Verdict.INCONCLUSIVE, reason
    worse = worse_than_propall(ranking)
    rejects = ranking.friedman.f_p < ALPHA
    better = [method for method in ranks if rejects and ours - ranks[method] >= difference]
    reason = (
        f"{average}; significantly worse: {', '.join(worse) or 'none'}; significantly better: "
        f"{', '.join(better) or 'none'}"
    )
    if not_worse is None:
        return Verdict.FAILS if better else Verdict.HOLDS, reason
    claimed = set(ranks) - {"ProPaLL", *not_worse}
    if claimed <= set(worse):
        return Verdict.HOLDS, reason
    return Verdict.PARTLY if worse else Verdict.FAILS, reason


def _describe(name: str, ranking: Ranking, used: Sequence[CellResult]) -> list[str]:
    """Describe our ranks and what the paper's numbers give under the same test."""
    missing = incomplete_blocks(name, used)
    left_out = f" Left out because of incomplete methods: {', '.join(missing)}." if missing else ""
    ranks = ", ".join(f"{method} {rank:.2f}" for method, rank in ranking.ranks.items())
    published = rank_published(name)
    return [
        f"Average ranks: {ranks}; critical difference {ranking.critical_difference:.2f}; Iman-Davenport p = "
        f"{ranking.friedman.f_p:.2g}.{left_out}",
        f"The paper's own numbers under the same test ({published.blocks} data sets): significantly worse "
        f"than ProPaLL: {', '.join(worse_than_propall(published)) or 'none'}.",
    ]

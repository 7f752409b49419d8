"""Tables of the page on base losses and dropped classes, from `results/`."""

import csv
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from propall.methods import METHODS
from propall.paper.studies import base_losses, paired_classes
from propall.paper.studies.base_losses import Condition
from propall.paper.studies.class_resolution import find_companions
from propall.paper.studies.paired_classes import TRAININGS
from propall.paper.studies.study_files import read_json

RESULTS = Path(__file__).resolve().parents[2] / "results"


def _pairs() -> dict[str, Any]:
    return read_json(RESULTS / paired_classes.FILE_NAME)


def _table(columns: list[str], rows: list[list[str]], texts: int) -> str:
    """A Markdown table whose first columns are texts and the others numbers."""
    line = ["---"] * texts + ["--:"] * (len(columns) - texts)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [columns, line, *rows])


def paired_classes_table() -> str:
    """Pairs with one class swallowed in percent, by base loss, training and r; swapped pairs at r = 1."""
    report = _pairs()
    columns = ["training", "base loss", *(f"r = {r:g}" for r in report["setting"]["together"])]
    rows = []
    for name in _cells(report):
        base, _, training = name.partition("/")
        always = [run for run in report["cells"][name]["runs"] if run["together"] == 1]
        swapped = sum(run["swapped"] for run in always) / sum(run["pairs"] for run in always)
        shares = [*paired_classes.swallowed_shares(report, name), swapped]
        rows.append([TRAININGS[training], METHODS[base].title, *(f"{100 * share:.0f}" for share in shares)])
    return _table([*columns, "swapped at r = 1"], rows, 2)


def _cells(report: dict[str, Any]) -> list[str]:
    """The cells of the part of pairs."""
    return [name for name in report["cells"] if not name.endswith(paired_classes.TEACHER_PART)]


def teacher_classes_table() -> str:
    """Mean number of swallowed classes and mean accuracy with the sets of a teacher, by rate."""
    report = _pairs()
    rates = report["setting"]["rates"]
    columns = ["training", "base loss"]
    for rate in rates:
        sizes = [run["candidates"] for run in paired_classes.teacher_runs(report, "cc/views", rate)]
        columns.append(f"rate {rate:g}, {fmean(sizes):.1f} candidates")
    rows = []
    for name in _cells(report):
        base, _, training = name.partition("/")
        cells = []
        for rate in rates:
            runs = paired_classes.teacher_runs(report, name, rate)
            lost, accuracy = (fmean(run[key] for run in runs) for key in ("swallowed", "test"))
            cells.append(f"{lost:.1f} ({100 * accuracy:.1f} %)")
        rows.append([TRAININGS[training], METHODS[base].title, *cells])
    return _table(columns, rows, 2)


def teacher_gaps(rate: float) -> dict[str, str]:
    """ProPaLL minus CC in points with views and the sets of a teacher: mean and range over seeds."""
    report = _pairs()
    ours, theirs = (paired_classes.teacher_runs(report, f"{base}/views", rate) for base in ("propall", "cc"))
    gaps = [100 * (one["test"] - other["test"]) for one, other in zip(ours, theirs, strict=True)]
    numbers = {"mean": fmean(gaps), "low": min(gaps), "high": max(gaps)}
    return {name: f"{value:+.1f}" for name, value in numbers.items()}


def head_starts_table() -> str:
    """The smallest head starts in logits."""
    report = _pairs()
    columns = ["training", "base loss", *(f"r = {r:g}" for r in report["setting"]["together"])]
    rows = []
    for name, starts in report["head_starts"].items():
        base, _, training = name.partition("/")
        cells = ["none" if start is None else f"{start:.2f}" for start in starts]
        rows.append([TRAININGS[training], METHODS[base].title, *cells])
    return _table(columns, rows, 2)


def _companions(run: dict[str, Any]) -> str:
    """Mean share of the closest companion, and the mutual pair that is most often together."""
    if "candidate_shares" not in run:
        return "not measured"
    found = find_companions(torch.tensor(run["candidate_shares"]))
    text = f"{100 * fmean(one.share for one in found):.0f} %"
    both = {one.label: one for one in found if one.mutual}
    if not both:
        return text
    share, one = max((min(one.share, both[one.companion].share), one) for one in both.values())
    names = sorted([run["classes"][one.label], run["classes"][one.companion]])
    return f"{text}; {' and '.join(names)} {100 * share:.0f} %"


def base_losses_table() -> str:
    """All runs of the study on images: accuracy and swallowed classes."""
    report = base_losses.read_study(RESULTS / base_losses.FILE_NAME)
    runs = {base_losses.condition_of(run): run for run in report["runs"].values()}
    order = list(TRAININGS)

    def place(condition: Condition) -> tuple[Any, ...]:
        return (*_setting(condition, order), condition.seed, base_losses.BASES.index(condition.base))

    rows = []
    for condition in sorted(runs, key=place):
        run = runs[condition]
        rows.append(
            [
                condition.teacher.title,
                _companions(run),
                TRAININGS[condition.training],
                METHODS[condition.base].title,
                base_losses.describe_swallowed(run),
                str(condition.seed),
                f"{run['candidates']:.2f}",
                f"{100 * run['epochs'][-1]['resolved']:.2f}",
                f"{100 * run['epochs'][-1]['test']:.2f}",
            ]
        )
    columns = ["teacher", "closest companion", "training", "base loss", "swallowed classes"]
    return _table([*columns, "seed", "candidates", "resolved, %", "test, %"], rows, len(columns))


def _setting(condition: Condition, order: list[str]) -> tuple[int, int]:
    teachers = list(base_losses.TEACHERS)
    known = teachers.index(condition.teacher) if condition.teacher in teachers else len(teachers)
    return known, order.index(condition.training)


def base_losses_summary() -> str:
    """For every teacher and training: runs with a swallowed class, and ProPaLL minus CC."""
    report = base_losses.read_study(RESULTS / base_losses.FILE_NAME)
    gaps = base_losses.gaps(report)
    groups: dict[tuple[Any, ...], list[tuple[Condition, dict[str, Any]]]] = {}
    for run in report["runs"].values():
        condition = base_losses.condition_of(run)
        place = _setting(condition, list(TRAININGS))
        groups.setdefault((*place, condition.teacher.title), []).append((condition, run))
    rows = []
    for key in sorted(groups):
        members = groups[key]
        first = members[0][0]
        found = [base_losses.find_swallowed(run) for _, run in members]
        measured = [classes for classes in found if classes is not None]
        count = f"{sum(map(bool, measured))} of {len(measured)}" if measured else "not measured"
        differences = gaps.get((first.training, first.teacher.name), [])
        gap = f"{fmean(differences):+.2f} ({len(differences)})" if differences else ""
        rows.append([first.teacher.title, TRAININGS[first.training], count, gap])
    columns = ["teacher", "training", "runs with a swallowed class", "ProPaLL minus CC, points (seeds)"]
    return _table(columns, rows, 2)


#: Terms of `results/balance_term.csv` in words, and whether its classes are equally frequent.
_TERMS = {"none": "no term", "constant": "0.5 throughout", "fading": "0.5, fading"}
_FREQUENCIES = {"False": "equal", "True": "unequal"}


def balance_term_table(data: str, measure: str = "accuracy", *, unequal: bool = False) -> str:
    """Mean accuracy in percent (standard deviation) by law, frequency of classes and balance term.

    Args:
        data: "digits", "eights" or "pairs", see `results/scripts/balance_term.py`.
        measure: "accuracy", or "class_mean" for the mean over classes.
        unequal: show unequal classes alone.
    """
    by_cell: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in _balance_runs(data):
        if row["unequal"] == "True" or not unequal:
            cell = by_cell.setdefault((row["law"], row["unequal"]), {})
            cell.setdefault(row["term"], []).append(100 * float(row[measure]))
    terms = [term for term in _TERMS if any(term in cell for cell in by_cell.values())]
    rows = [
        [
            law,
            _FREQUENCIES[kind],
            *(f"{fmean(cell[term]):.1f} ({stdev(cell[term]):.1f})" for term in terms),
        ]
        for (law, kind), cell in sorted(by_cell.items(), key=lambda item: item[0][1])
    ]
    return _table(["candidate sets", "classes", *(_TERMS[term] for term in terms)], rows, 2)


def lost_classes(term: str, data: str = "digits") -> str:
    """Number of trainings in which a class was lost, of how many: `3 of 50`.

    Args:
        term: "none", "constant" or "fading".
        data: as for `balance_term_table`.
    """
    lost = [float(row["lost"]) > 0 for row in _balance_runs(data) if row["term"] == term]
    return f"{sum(lost)} of {len(lost)}"


def _balance_runs(data: str) -> list[dict[str, str]]:
    with (RESULTS / "balance_term.csv").open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["data"] == data]

"""The study of base losses on confusable candidates: a table of all conditions, and learning curves."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from propall.methods import METHODS
from propall.paper.studies.base_losses import Condition, condition_of, describe_swallowed, gaps
from propall.report.charts.lines import Line, LineChart
from propall.report.exhibits import Exhibit
from propall.report.page import PageSection
from propall.report.tables import Column, ReportTable, TableCell, TableRow
from propall.wording import plural

_HOW = (
    "The wrong candidates are those that a teacher finds probable; the most confusable one is the teacher's "
    "best. Teachers differ in their number of epochs, in whether their training images were augmented, and "
    "in the rate of the candidate sets. Resolved: share of ambiguous training rows whose highest-scoring "
    "candidate is the true label. Wrong winners: share of the other rows in which the most confusable "
    "candidate wins. A class is swallowed if less than half of its training rows are resolved to it. "
    "Pushes are negative gradients of the base loss in the logits of the truth, of the most confusable "
    "candidate, of the other candidates and of the labels outside the set, on average over rows."
)
_COLUMNS = [
    Column("base loss", kind="text"),
    Column("candidates"),
    Column("test %"),
    Column("resolved %"),
    Column("swallowed classes", kind="text"),
    Column("entropy of targets", decimals=3),
    Column("wrong winners: most confusable %", decimals=1),
    Column("truth", "push", decimals=4),
    Column("most confusable", "push", decimals=4),
    Column("other candidates", "push", decimals=4),
    Column("outside", "push", decimals=4),
]
_PERCENT = ("test", "resolved")
_PUSHES = ("push_truth", "push_confusable", "push_others", "push_outside")


def base_loss_sections(report: Mapping[str, Any]) -> list[PageSection]:
    """Return the section about the study; none if it has not been run."""
    if not report:
        return []
    setting = report["setting"]
    names = ("hardware", "version", "commit")
    provenance = {
        "data": setting["data"],
        "epochs": str(setting["epochs"]),
        "seeds": ", ".join(map(str, sorted({run["seed"] for run in report["runs"].values()}))),
        **{name: str(report[name]) for name in names if report.get(name)},
    }
    exhibits = [Exhibit("base-losses", _table(report), provenance)]
    exhibits += [Exhibit(f"base-losses-{name}", chart, provenance) for name, chart in _charts(report).items()]
    return [PageSection(_finding(report), exhibits, _HOW, label="Base losses on confusable candidates")]


def _where(condition: Condition) -> str:
    return f"{condition.training.replace('-', ' ')}, {condition.teacher.title}"


def _runs(report: Mapping[str, Any]) -> dict[Condition, dict[str, Any]]:
    return {condition_of(run): run for run in report["runs"].values()}


def _table(report: Mapping[str, Any]) -> ReportTable:
    rows = []
    for condition, run in sorted(_runs(report).items(), key=lambda item: (_where(item[0]), item[0].seed)):
        last = run["epochs"][-1]
        cells = [
            TableCell(text=METHODS[condition.base].title),
            TableCell(run["candidates"]),
            *(TableCell(100 * last[name]) for name in _PERCENT),
            TableCell(text=describe_swallowed(run)),
            TableCell(last["entropy"]),
            TableCell(100 * last["confusable_wins"]),
            *(TableCell(last[name]) for name in _PUSHES),
        ]
        rows.append(TableRow(_where(condition), cells, condition.base))
    caption = "Base losses after the last epoch, by views and teacher; one line per run."
    return ReportTable(_COLUMNS, rows, caption, row_title="training and teacher")


def _charts(report: Mapping[str, Any]) -> dict[str, LineChart]:
    """Draw the resolved share by epoch, for the teacher with the largest gap between ProPaLL and CC."""
    differences = gaps(report)
    if not differences:
        return {}
    largest = max(differences, key=lambda key: abs(fmean(differences[key])))
    runs = {
        condition: run
        for condition, run in _runs(report).items()
        if (condition.training, condition.teacher.name) == largest
    }
    seed = min(condition.seed for condition in runs)
    runs = {condition: run for condition, run in runs.items() if condition.seed == seed}
    first = next(iter(runs))
    epochs = [int(measured["epoch"]) for measured in runs[first]["epochs"]]
    charts = {}
    for name, title in (("resolved", "rows resolved to the truth (%)"), ("test", "test accuracy (%)")):
        lines = [
            Line(METHODS[condition.base].title, [100 * measured[name] for measured in run["epochs"]])
            for condition, run in runs.items()
        ]
        caption = f"{title.capitalize()} by epoch; {_where(first)}, seed {seed}."
        charts[name] = LineChart(caption, epochs, lines, y_title=title)
    return charts


def _finding(report: Mapping[str, Any]) -> str:
    differences = gaps(report)
    if not differences:
        return "Base losses on confusable candidates: ProPaLL and CC have not both been run"
    means = [fmean(values) for values in differences.values()]
    runs = sum(map(len, differences.values()))
    points = f"{means[0]:+.1f}" if len(means) == 1 else f"{min(means):+.1f} to {max(means):+.1f}"
    count = f"{plural(len(means), 'setting')} ({plural(runs, 'pair')} of runs)"
    return f"With instance-dependent candidates, ProPaLL minus CC is {points} points in {count}"

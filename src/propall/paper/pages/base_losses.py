"""The study of base losses on confusable candidates: a table of all conditions, and learning curves."""

from collections.abc import Mapping
from typing import Any

from propall.methods import METHODS
from propall.paper.studies.base_losses import TeacherKind, gaps
from propall.report.charts.lines import Line, LineChart
from propall.report.exhibits import Exhibit
from propall.report.page import PageSection
from propall.report.tables import Column, ReportTable, TableCell, TableRow

_HOW = (
    "The wrong candidates are those that a teacher finds probable; the most confusable one is the teacher's "
    "best. Teachers differ in their number of epochs, in whether their training images were augmented, and "
    "in the rate of the candidate sets. Resolved: share of ambiguous training rows whose highest-scoring "
    "candidate is the true label. Wrong winners: share of the other rows in which the most confusable "
    "candidate wins. Pushes are negative gradients of the base loss in the logits of the truth, of the most "
    "confusable candidate, of the other candidates and of the labels outside the set, on average over rows."
)
_COLUMNS = [
    Column("base loss", kind="text"),
    Column("candidates"),
    Column("test %"),
    Column("resolved %"),
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
        "seed": str(setting["seed"]),
        **{name: str(report[name]) for name in names if report.get(name)},
    }
    exhibits = [Exhibit("base-losses", _table(report), provenance)]
    exhibits += [Exhibit(f"base-losses-{name}", chart, provenance) for name, chart in _charts(report).items()]
    return [PageSection(_finding(report), exhibits, _HOW, label="Base losses on confusable candidates")]


def _where(run: Mapping[str, Any]) -> str:
    return f"{'views' if run['with_views'] else 'one view'}, {TeacherKind(**run['teacher']).title}"


def _table(report: Mapping[str, Any]) -> ReportTable:
    runs = sorted(report["runs"].values(), key=_where)
    rows = []
    for run in runs:
        last = run["epochs"][-1]
        cells = [
            TableCell(text=METHODS[run["base"]].title),
            TableCell(run["candidates"]),
            *(TableCell(100 * last[name]) for name in _PERCENT),
            TableCell(last["entropy"]),
            TableCell(100 * last["confusable_wins"]),
            *(TableCell(last[name]) for name in _PUSHES),
        ]
        rows.append(TableRow(_where(run), cells, run["base"]))
    caption = "Base losses after the last epoch, one run each, by views and teacher."
    return ReportTable(_COLUMNS, rows, caption, row_title="training and teacher")


def _charts(report: Mapping[str, Any]) -> dict[str, LineChart]:
    """Draw the resolved share by epoch, for the teacher with the largest gap between ProPaLL and CC."""
    differences = gaps(report)
    if not differences:
        return {}
    with_views, teacher = max(differences, key=lambda key: abs(differences[key]))
    runs = [
        run
        for run in report["runs"].values()
        if (run["with_views"], TeacherKind(**run["teacher"]).name) == (with_views, teacher)
    ]
    epochs = [int(measured["epoch"]) for measured in runs[0]["epochs"]]
    charts = {}
    for name, title in (("resolved", "rows resolved to the truth (%)"), ("test", "test accuracy (%)")):
        lines = [
            Line(METHODS[run["base"]].title, [100 * measured[name] for measured in run["epochs"]])
            for run in runs
        ]
        caption = f"{title.capitalize()} by epoch; {_where(runs[0])}."
        charts[name] = LineChart(caption, epochs, lines, y_title=title)
    return charts


def _finding(report: Mapping[str, Any]) -> str:
    differences = gaps(report)
    if not differences:
        return "Base losses on confusable candidates: ProPaLL and CC have not both been run"
    low, high = min(differences.values()), max(differences.values())
    points, count = f"{low:+.1f} to {high:+.1f}", f"{len(differences)} settings (one seed each)"
    if len(differences) == 1:
        points, count = f"{low:+.1f}", "one setting (one seed)"
    return f"With instance-dependent candidates, ProPaLL minus CC is {points} points in {count}"

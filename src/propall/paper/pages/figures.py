"""The paper's figures: ranks, accuracy by number of candidates, classes during training, and time."""

from collections.abc import Sequence
from typing import NamedTuple

from propall.data import DATASETS
from propall.paper.evidence import Evidence
from propall.paper.pages.provenance import run_provenance
from propall.paper.reproduction import CellResult
from propall.paper.results import RunResult
from propall.paper.results_io import select_frames
from propall.paper.stats import Blocks, Ranking
from propall.paper.tables import TABLES
from propall.paper.verdicts import ALPHA
from propall.paper.verdicts.class_order import LEARNED
from propall.paper.verdicts.critical_differences import (
    DIAGRAMS,
    incomplete_blocks,
    rank_methods,
    rank_published,
)
from propall.paper.verdicts.speed import Timing, timings
from propall.report.charts.figure import Reference
from propall.report.charts.heat import FilmStrip, Grid, HeatMap
from propall.report.charts.lines import Curve, Line, LineChart, LogLineChart
from propall.report.charts.ranks import CDDiagram
from propall.report.exhibits import Exhibit
from propall.report.tables import Column, ReportTable, TableCell, TableRow
from propall.wording import plural

#: Settings (table, number of candidates) whose classes are shown during training; the paper does not name its
#: setting.
CLASS_SETTINGS = (("candidates10", 9), ("uniform", None))
#: Columns of a heat map over time, and confusion matrices in a strip.
MAX_EPOCHS_SHOWN, MAX_FRAMES = 40, 6
#: Appended to a method's name for the paper's numbers.
PAPER_SUFFIX = ", paper"
_PUBLISHED = {"numbers": "as published [struski2022propall]"}


class RankDiagrams(NamedTuple):
    """Critical-difference diagrams of our and of the paper's numbers, with our ranking."""

    name: str
    exhibits: list[Exhibit]
    ranking: Ranking


def rank_diagrams(evidence: Evidence, blocks: Blocks = "data sets") -> list[RankDiagrams]:
    """Draw the critical-difference diagrams of our numbers, each followed by that of the paper's."""
    diagrams = []
    for name, diagram in DIAGRAMS.items():
        ranked = rank_methods(name, evidence, blocks=blocks)
        if ranked is None:
            continue
        ranking, used = ranked
        label = "cd-" + "-".join(diagram.tables)
        ours = _rank_diagram(f"Our numbers, {name}.", ranking, incomplete_blocks(name, used))
        theirs = _rank_diagram(f"The paper's numbers, {name}.", rank_published(name), [])
        provenance = run_provenance(result for entry in used for result in entry.results)
        exhibits = [Exhibit(label, ours, provenance), Exhibit(f"{label}-published", theirs, _PUBLISHED)]
        diagrams.append(RankDiagrams(name, exhibits, ranking))
    return diagrams


def _rank_diagram(title: str, ranking: Ranking, incomplete: Sequence[str]) -> CDDiagram:
    test, unit, notes = ranking.friedman, "data sets", ""
    if test.f_p >= ALPHA:
        notes += " The omnibus test does not reject, so no difference is significant."
    if ranking.unit == "runs":
        unit = "single runs"
        notes += " Runs on one data set are not independent blocks, so significance is overstated."
    if incomplete:
        notes += f" Left out because of incomplete methods: {', '.join(incomplete)}."
    caption = (
        f"{title} Average ranks over {ranking.blocks} {unit}, smaller is better; bars join methods that the "
        f"Nemenyi test at {ranking.alpha} does not separate. Iman-Davenport p = {test.f_p:.2g} (Friedman "
        f"p = {test.p:.2g}).{notes}"
    )
    return CDDiagram(caption, ranking.ranks, ranking.critical_difference, ranking.groups)


class CandidateChart(NamedTuple):
    """Accuracy over the number of candidates on one data set."""

    exhibit: Exhibit
    table: str
    protocol: str
    data: str
    entries: list[CellResult]


def candidate_charts(evidence: Evidence) -> list[CandidateChart]:
    """Draw one chart per table, protocol and data set, with the paper's numbers dashed."""
    charts = []
    for table in ("candidates10", "candidates5"):
        for protocol in evidence.accuracy_protocols(table):
            for data in TABLES[table].data:
                entries = [
                    entry
                    for entry in evidence.entries(table, protocol)
                    if entry.cell.data == data and entry.mean is not None
                ]
                chart = _candidate_chart(entries, data, protocol, len(TABLES[table].candidates) + 1)
                if chart is not None:
                    provenance = run_provenance(result for entry in entries for result in entry.results)
                    exhibit = Exhibit(f"{table}-{protocol}-{data}-chart", chart, provenance)
                    charts.append(CandidateChart(exhibit, table, protocol, data, entries))
    return charts


def _candidate_chart(
    entries: Sequence[CellResult], data: str, protocol: str, classes: int
) -> LineChart | None:
    by_row: dict[str, dict[int, CellResult]] = {}
    for entry in entries:
        by_row.setdefault(entry.title, {})[entry.cell.candidates or 0] = entry
    counts = sorted(set.intersection(*map(set, by_row.values()))) if by_row else []
    if len(counts) < 2:
        return None
    lines = []
    for title, by_count in by_row.items():
        stds = [by_count[n].std for n in counts]
        lines.append(Line(title, [by_count[n].mean or 0.0 for n in counts], () if None in stds else stds))
    for title, by_count in by_row.items():
        published = [by_count[n].published for n in counts]
        if None not in published:
            means = [accuracy.mean for accuracy in published if accuracy is not None]
            lines.append(Line(title + PAPER_SUFFIX, means))
    runs = sorted({entry.runs for entry in entries})
    runs_text = plural(runs[0], "run") if len(runs) == 1 else f"{runs[0]} to {runs[-1]} runs"
    caption = (
        f"{DATASETS[data].title}, {classes} classes: test accuracy over the number n of candidates. Protocol "
        f"{protocol}, {runs_text} per point; bands show one sample standard deviation, dashed lines the "
        "paper's means."
    )
    chance = Reference("chance", 100 / classes, "chance")
    return LineChart(caption, counts, lines, x_title="n", references=[chance])


class ClassProgress(NamedTuple):
    """One run by class: a heat map of sensitivity over time, and confusion matrices."""

    title: str
    setting: str
    exhibits: list[Exhibit]
    result: RunResult


def class_progress(evidence: Evidence) -> list[ClassProgress]:
    """Show one run of ProPaLL and of PRODEN, on the first data set of each of `CLASS_SETTINGS` with both."""
    runs = []
    for table, n in CLASS_SETTINGS:
        for data in TABLES[table].data:
            pair = _class_progress(evidence, table, data, n)
            if pair:
                runs += pair
                break
    return runs


def _class_progress(evidence: Evidence, table: str, data: str, n: int | None) -> list[ClassProgress]:
    runs = []
    for entry in evidence.entries(table):
        if (entry.cell.data, entry.cell.candidates) != (data, n):
            continue
        if entry.cell.row not in ("propall", "proden"):
            continue
        run = next((result for result in entry.results if result.recalls and result.confusions), None)
        if run is None:
            return []
        where = f"{n} candidates of 10" if n else f"protocol {entry.protocol}"
        setting = f"{DATASETS[data].title}, {where}"
        label = f"{entry.cell.row}-{table}-{data}" + (f"-{n}" if n else "")
        provenance = run_provenance([run])
        exhibits = [
            Exhibit(f"classes-{label}", _class_map(run, entry.title, setting), provenance),
            Exhibit(f"confusions-{label}", _confusion_strip(run, entry.title, setting), provenance),
        ]
        runs.append(ClassProgress(entry.title, setting, exhibits, run))
    return runs if len(runs) == 2 else []


def epochs_learned(recalls: dict[int, list[float]]) -> list[int | None]:
    """Return for every class the first measured epoch at which it is learned."""
    epochs = sorted(recalls)
    classes = range(len(recalls[epochs[0]]))
    return [next((e for e in epochs if recalls[e][c] >= LEARNED), None) for c in classes]


def _class_map(run: RunResult, title: str, setting: str) -> HeatMap:
    epochs = list(select_frames(dict.fromkeys(run.recalls), MAX_EPOCHS_SHOWN))
    classes = [str(c) for c in run.spec.split.classes or range(len(run.recalls[epochs[0]]))]
    values = [[run.recalls[epoch][c] for epoch in epochs] for c in range(len(classes))]
    marks = []
    for c, epoch in enumerate(epochs_learned(run.recalls)):
        if epoch is not None:
            column = next(i for i, shown in enumerate(epochs) if shown >= epoch)
            marks.append((c, column, f"learned at epoch {epoch}"))
    grid = Grid(classes, [str(epoch) for epoch in epochs], values)
    caption = (
        f"{title}, {setting}, one run: sensitivity of each class after each shown epoch, with more epochs "
        f"shown at the beginning. Rings mark where a class first reaches {LEARNED}."
    )
    return HeatMap(caption, grid, "class", "epoch", "sensitivity", high=1.0, marks=marks)


def _confusion_strip(run: RunResult, title: str, setting: str) -> FilmStrip:
    moments = []
    for epoch, counts in select_frames(run.confusions, MAX_FRAMES).items():
        names = [str(c) for c in run.spec.split.classes or range(len(counts))]
        shares = [[value / (sum(row) or 1) for value in row] for row in counts]
        moments.append((f"epoch {epoch}", Grid(names, names, shares)))
    caption = (
        f"{title}, {setting}, the same run: share of each true class (rows) by predicted class (columns)."
    )
    return FilmStrip(caption, moments)


def time_exhibits(evidence: Evidence) -> list[Exhibit]:
    """Tabulate the times of the timed methods, and draw accuracy over seconds per data set."""
    runs = timings(evidence)
    exhibits = [_time_table(runs)] if runs else []
    for data in dict.fromkeys(run.data for run in runs):
        of_data = [run for run in runs if run.data == data]
        ordered = sorted(of_data, key=lambda run: run.title != "ProPaLL")
        curves = [Curve(run.title, _thinned(run.curve)) for run in ordered if run.curve]
        if len(curves) < 2:
            continue
        epochs = ", ".join(f"{run.title} {run.epochs}" for run in ordered)
        caption = (
            f"{DATASETS[data].title}: test accuracy over training time (logarithmic). Time is the number of "
            "epochs times the seconds per epoch, each run alone on the device, without compilation and "
            f"testing. Epochs: {epochs}."
        )
        provenance = run_provenance(run.result for run in of_data)
        exhibits.append(Exhibit(f"time-{data}", LogLineChart(caption, curves), provenance))
    return exhibits


def _time_table(runs: Sequence[Timing]) -> Exhibit:
    data_sets = list(dict.fromkeys(run.data for run in runs))
    by_place = {(run.title, run.data): run for run in runs}
    columns = [
        column
        for data in data_sets
        for column in (
            Column("ms/epoch", DATASETS[data].title, decimals=1, best="lowest"),
            Column("epochs", DATASETS[data].title, decimals=0),
            Column("total seconds", DATASETS[data].title, decimals=1),
        )
    ]
    rows = []
    for title in dict.fromkeys(run.title for run in runs):
        cells = []
        for data in data_sets:
            run = by_place.get((title, data))
            numbers = () if run is None else (1000 * run.per_epoch, run.epochs, run.seconds)
            cells += [TableCell(number) for number in numbers] or [TableCell(text="not run")] * 3
        rows.append(TableRow(title, cells, title))
    caption = (
        "Milliseconds per epoch (mean over the second half, lowest in bold), epochs, and total seconds of "
        "one run alone on the device; testing is not included. Only the total includes compilation, and the "
        "first run of a process also loads the compiler."
    )
    return Exhibit("time", ReportTable(columns, rows, caption), run_provenance(run.result for run in runs))


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Keep fewer points, evenly spread over a logarithmic axis."""
    return list(select_frames(dict(enumerate(points, 1)), MAX_EPOCHS_SHOWN).values())

"""The paper's figures: ranks, accuracy by number of candidates, classes during training, and time."""

from collections.abc import Sequence
from statistics import fmean

from propall.data import DATASETS
from propall.paper.evidence import Evidence
from propall.paper.pages.provenance import entry_provenance, run_provenance
from propall.paper.reproduction import CellResult
from propall.paper.results import RunResult
from propall.paper.results_io import select_frames
from propall.paper.stats import Blocks, Ranking
from propall.paper.tables import TABLES
from propall.paper.verdicts import ALPHA
from propall.paper.verdicts.class_order import LEARNED, late_classes
from propall.paper.verdicts.critical_differences import (
    DIAGRAMS,
    incomplete_blocks,
    rank_methods,
    rank_published,
    worse_than_propall,
)
from propall.paper.verdicts.speed import Timing, collect_timings
from propall.report.charts.figure import Reference
from propall.report.charts.heat import FilmStrip, Grid, HeatMap
from propall.report.charts.lines import Curve, Line, LineChart, LogLineChart
from propall.report.charts.ranks import CDDiagram
from propall.report.exhibits import Exhibit
from propall.report.numbers import format_number
from propall.report.page import PageSection
from propall.report.tables import Column, ReportTable, TableCell, TableRow
from propall.wording import join_names, plural

#: Settings (table, number of candidates) whose classes are shown during training; the paper does not name its
#: setting.
CLASS_SETTINGS = (("candidates10", 9), ("uniform", None))
#: Columns of a heat map over time, and confusion matrices in a strip.
MAX_EPOCHS_SHOWN, MAX_FRAMES = 40, 6
#: Appended to a method's name for the paper's numbers.
PAPER_SUFFIX = ", paper"
_RUNS_AS_BLOCKS = (
    "Warning: every run counts as a block here, as the paper's diagrams seem to do. Runs on one data set are "
    "not independent, so significance is overstated; do not draw conclusions from it."
)
_CLASSES_TEXT = (
    "The paper shows one run and does not name its setting. Measured after whole epochs, so the order within "
    "the first epoch is not seen."
)
_TIME_TEXT = (
    "Every run was alone on the device and used the same training engine, so the times compare methods, not "
    "implementations. Compilation is separate from the time per epoch; testing is not included."
)


def rank_sections(evidence: Evidence, blocks: Blocks) -> list[PageSection]:
    """Show the critical-difference diagrams of our numbers, each followed by that of the paper's."""
    sections = []
    for name, diagram in DIAGRAMS.items():
        ranked = rank_methods(name, evidence, blocks=blocks)
        if ranked is None:
            continue
        ranking, used = ranked
        stem = "cd-" + "-".join(diagram.tables)
        ours = _rank_diagram(f"Our numbers, {name}.", ranking, incomplete_blocks(name, used))
        theirs = _rank_diagram(f"The paper's numbers, {name}.", rank_published(name), [])
        published = {"numbers": "as published [struski2022propall]"}
        exhibits = [
            Exhibit(stem, ours, entry_provenance(used)),
            Exhibit(f"{stem}-published", theirs, published),
        ]
        worse = worse_than_propall(ranking)
        result = "No method ranks significantly worse than ProPaLL"
        if worse:
            result = f"ProPaLL ranks significantly better than {join_names(worse)}"
        text = _RUNS_AS_BLOCKS if blocks == "runs" else ""
        label = f"Ranks: {name}"
        sections.append(PageSection(f"{label}. {result}", exhibits, text, label=label))
    return sections


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


def candidate_sections(evidence: Evidence) -> list[PageSection]:
    """Show accuracy by number of candidates: one chart per protocol and data set, with the paper's."""
    sections = []
    for name in ("candidates10", "candidates5"):
        table, exhibits = TABLES[name], []
        most, least = max(table.candidates), min(table.candidates)
        drops: dict[str, list[float]] = {}
        for protocol in evidence.accuracy_protocols(name):
            for data in table.data:
                entries = [
                    entry
                    for entry in evidence.entries(name, protocol)
                    if entry.cell.data == data and entry.mean is not None
                ]
                chart = _candidate_chart(entries, data, protocol, len(table.candidates) + 1)
                if chart is None:
                    continue
                stem = f"{name}-{protocol}-{data}-chart"
                exhibits.append(Exhibit(stem, chart, entry_provenance(entries)))
                if not table.is_judged(protocol):
                    continue  # shown, but not counted
                means = {(entry.title, entry.cell.candidates): entry.mean or 0.0 for entry in entries}
                for title, n in means:
                    if n == most and (title, least) in means:
                        drops.setdefault(title, []).append(means[title, least] - means[title, most])
        mean_drops = sorted((fmean(values), title) for title, values in drops.items())
        result = ", ".join(f"{title} {format_number(drop, 1)}" for drop, title in mean_drops)
        label = f"Accuracy by number of candidates, {most + 1} classes"
        heading = f"Points lost from {least} to {most} candidates of {most + 1} classes: {result}"
        heading = heading if mean_drops else f"{label}; {most} were not run"
        if exhibits:
            sections.append(PageSection(heading, exhibits, label=label))
    return sections


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


def class_sections(evidence: Evidence) -> list[PageSection]:
    """Show the classes of one run of ProPaLL and PRODEN on the first data set of each setting with both."""
    sections = []
    for table, n in CLASS_SETTINGS:
        runs: list[tuple[CellResult, RunResult]] = []
        for data in TABLES[table].data:
            runs = _runs_with_classes(evidence, table, data, n)
            if runs:
                break
        exhibits, late = [], []
        for entry, run in runs:
            where = f"{n} candidates of 10" if n else f"protocol {entry.protocol}"
            setting = f"{DATASETS[entry.cell.data].title}, {where}"
            stem = f"{entry.cell.row}-{table}-{entry.cell.data}" + (f"-{n}" if n else "")
            provenance = run_provenance([run])
            exhibits += [
                Exhibit(f"classes-{stem}", _class_map(run, entry.title, setting), provenance),
                Exhibit(f"confusions-{stem}", _confusion_strip(run, entry.title, setting), provenance),
            ]
            count = late_classes(run.recalls)
            late.append(f"{entry.title} {'(half never learned)' if count is None else count}")
        if exhibits:
            label = f"Classes during training: {setting}"
            heading = f"{label}. Not started when half are learned: {', '.join(late)}"
            sections.append(PageSection(heading, exhibits, _CLASSES_TEXT, label=label))
    return sections


def _runs_with_classes(
    evidence: Evidence, table: str, data: str, n: int | None
) -> list[tuple[CellResult, RunResult]]:
    """Return the first run of ProPaLL and of PRODEN with results by class; empty unless both have one."""
    runs = []
    for entry in evidence.entries(table):
        if (entry.cell.data, entry.cell.candidates) == (data, n) and entry.cell.row in ("propall", "proden"):
            runs += [(entry, run) for run in entry.results if run.recalls and run.confusions][:1]
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


def time_sections(evidence: Evidence) -> list[PageSection]:
    """Tabulate the times of the timed methods, and draw accuracy over seconds per data set."""
    runs = collect_timings(evidence)
    if not runs:
        return []
    exhibits = [_time_table(runs)]
    ratios: dict[str, list[float]] = {}
    for data in dict.fromkeys(run.data for run in runs):
        data_results = [run for run in runs if run.data == data]
        ordered = sorted(data_results, key=lambda run: run.title != "ProPaLL")
        ours = ordered[0]
        if ours.title == "ProPaLL":
            for run in ordered[1:]:
                ratios.setdefault(run.title, []).append(run.per_epoch / ours.per_epoch)
        curves = [Curve(run.title, _thinned(run.curve)) for run in ordered if run.curve]
        if len(curves) < 2:
            continue
        epochs = ", ".join(f"{run.title} {run.epochs}" for run in ordered)
        caption = (
            f"{DATASETS[data].title}: test accuracy over training time (logarithmic). Time is the number of "
            "epochs times the seconds per epoch, each run alone on the device, without compilation and "
            f"testing. Epochs: {epochs}."
        )
        provenance = run_provenance(run.result for run in data_results)
        exhibits.append(Exhibit(f"time-{data}", LogLineChart(caption, curves), provenance))
    relative = join_names([f"{title} takes {fmean(values):.2f}" for title, values in ratios.items()])
    heading = f"Time: {relative} times as long per epoch as ProPaLL" if relative else "Time: per epoch"
    return [PageSection(heading, exhibits, _TIME_TEXT, label="Accuracy over training time")]


def _time_table(runs: Sequence[Timing]) -> Exhibit:
    data_sets = list(dict.fromkeys(run.data for run in runs))
    by_place = {(run.title, run.data): run for run in runs}
    columns, rows = [], []
    for title in (DATASETS[data].title for data in data_sets):
        columns.append(Column("ms/epoch", title, decimals=1, best="lowest"))
        columns += [Column("epochs", title, decimals=0), Column("total seconds", title, decimals=1)]
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

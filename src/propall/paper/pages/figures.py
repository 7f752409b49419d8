"""The paper's figures: ranks, accuracy against the number of candidates, classes over training, time."""

from collections.abc import Sequence
from typing import NamedTuple

from propall.data import DATASETS
from propall.paper.evidence import Evidence
from propall.paper.pages.item import Item, provenance
from propall.paper.reproduction import CellResult
from propall.paper.results import RunResult
from propall.paper.results_io import frames
from propall.paper.stats import Blocks, Ranking
from propall.paper.tables import TABLES
from propall.paper.verdicts import (
    ALPHA,
    DIAGRAMS,
    LEARNT,
    Timing,
    left_out,
    ranked,
    ranked_as_published,
    timings,
)
from propall.report.charts import (
    CDDiagram,
    Curve,
    FilmStrip,
    Grid,
    HeatMap,
    Line,
    LineChart,
    LogLineChart,
    Reference,
)
from propall.report.tables import Column, ReportTable, TableCell, TableRow
from propall.wording import plural

#: Where classes are followed, the first that has runs on one of these; the paper does not name its setting.
FOLLOWED = (("candidates10", 9), ("uniform", None))
#: Columns of a map over time, and confusion matrices in a strip.
MOMENTS, FRAMES = 40, 6
#: What is appended to a line's name where it holds the paper's numbers.
PAPER = ", paper"


class RanksSection(NamedTuple):
    """A diagram of ranks from our numbers and one from the paper's, and what the first says."""

    name: str
    items: list[Item]
    ranking: Ranking


def ranks(evidence: Evidence, blocks: Blocks = "data sets") -> list[RanksSection]:
    """Critical-difference diagrams of ours, the paper's numbers under the same test below each."""
    sections = []
    for name in DIAGRAMS:
        found = ranked(name, evidence, blocks=blocks)
        if found is None:
            continue
        ranking, used = found
        missing = left_out(name, used)
        results = [result for entry in used for result in entry.results]
        label = "cd-" + "-".join(DIAGRAMS[name][0])
        ours = _diagram(f"Measured here, {name}.", ranking, missing)
        theirs = _diagram(f"The paper's numbers, {name}.", ranked_as_published(name), [])
        items = [Item(label, ours, provenance(results)), Item(f"{label}-published", theirs, _PUBLISHED)]
        sections.append(RanksSection(name, items, ranking))
    return sections


_PUBLISHED = {"numbers": "as published [struski2022propall]"}


def _diagram(what: str, ranking: Ranking, missing: Sequence[str]) -> CDDiagram:
    unit = "data sets" if ranking.unit == "data sets" else "single runs"
    warning = (
        " Runs on one data set are not independent blocks, so significance is overstated."
        if ranking.unit == "runs"
        else ""
    )
    test = ranking.friedman
    rejects = (
        "" if test.f_p < ALPHA else " The omnibus test does not reject: no difference is to be read off."
    )
    gone = f" Left out, because not every method is finished: {', '.join(missing)}." if missing else ""
    caption = (
        f"{what} Average ranks over {ranking.blocks} {unit}, smaller is better; bars join methods that "
        f"Nemenyi's test at {ranking.alpha} does not tell apart. Iman-Davenport p = {test.f_p:.2g} (Friedman "
        f"p = {test.p:.2g}).{rejects}{warning}{gone}"
    )
    return CDDiagram(caption, ranking.ranks, ranking.critical_difference, ranking.groups)


class CandidatesFigure(NamedTuple):
    """Accuracy over the number of candidates on one data set."""

    item: Item
    table: str
    protocol: str
    data: str
    entries: list[CellResult]


def against_candidates(evidence: Evidence) -> list[CandidatesFigure]:
    """One chart per table, protocol and data set: our lines, and the paper's dashed."""
    found = []
    for table in ("candidates10", "candidates5"):
        for protocol in evidence.serious_protocols(table):
            entries = evidence.entries(table, protocol)
            for data in TABLES[table].data:
                own = [entry for entry in entries if entry.cell.data == data and entry.mean is not None]
                chart = _candidates_chart(own, data, protocol, len(TABLES[table].candidates) + 1)
                if chart is not None:
                    results = [result for entry in own for result in entry.results]
                    item = Item(f"{table}-{protocol}-{data}-chart", chart, provenance(results))
                    found.append(CandidatesFigure(item, table, protocol, data, own))
    return found


def _candidates_chart(
    entries: Sequence[CellResult], data: str, protocol: str, classes: int
) -> LineChart | None:
    by_row: dict[str, dict[int, CellResult]] = {}
    for entry in entries:
        by_row.setdefault(entry.title, {})[entry.cell.candidates or 0] = entry
    counts = sorted(set.intersection(*(set(own) for own in by_row.values()))) if by_row else []
    if len(counts) < 2:
        return None
    lines = []
    for title, own in by_row.items():
        stds = [own[n].std for n in counts]
        lines.append(Line(title, [own[n].mean or 0.0 for n in counts], () if None in stds else stds))
    for title, own in by_row.items():
        printed = [own[n].published for n in counts]
        if None not in printed:
            lines.append(Line(title + PAPER, [number.mean for number in printed if number is not None]))
    runs = sorted({entry.runs for entry in entries})
    caption = (
        f"{DATASETS[data].title}, {classes} classes: test accuracy over the number n of candidates. Protocol "
        f"{protocol}, {_count(runs)} per point; bands are one sample deviation, dashed lines the paper's "
        "means."
    )
    chance = Reference("chance", 100 / classes, "chance")
    return LineChart(caption, counts, lines, x_title="n", references=[chance])


def _count(runs: Sequence[int]) -> str:
    return plural(runs[0], "run") if len(runs) == 1 else f"{runs[0]} to {runs[-1]} runs"


class Followed(NamedTuple):
    """One run, class by class: a map of sensitivity over time, and confusion matrices under it."""

    title: str
    setting: str
    items: list[Item]
    result: RunResult


def classes_over_training(evidence: Evidence) -> list[Followed]:
    """ProPaLL and PRODEN, one run each, in the settings of `FOLLOWED` that have runs."""
    found = []
    for table, n in FOLLOWED:
        for data in TABLES[table].data:
            own = _followed(evidence, table, data, n)
            if own:
                found += own
                break
    return found


def _followed(evidence: Evidence, table: str, data: str, n: int | None) -> list[Followed]:
    found = []
    for entry in evidence.entries(table):
        if (entry.cell.data, entry.cell.candidates) != (data, n) or entry.cell.row not in (
            "propall",
            "proden",
        ):
            continue
        run = next((result for result in entry.results if result.recalls and result.confusions), None)
        if run is None:
            return []
        setting = f"{DATASETS[data].title}, " + (
            f"{n} candidates of 10" if n else f"protocol {entry.protocol}"
        )
        label = f"{table}-{data}" + (f"-{n}" if n else "")
        items = [
            Item(
                f"classes-{entry.cell.row}-{label}", _class_map(run, entry.title, setting), provenance([run])
            ),
            Item(
                f"confusions-{entry.cell.row}-{label}", _strip(run, entry.title, setting), provenance([run])
            ),
        ]
        found.append(Followed(entry.title, setting, items, run))
    return found if len(found) == 2 else []


def learnt_at(recalls: dict[int, list[float]]) -> list[int | None]:
    """For every class the first measured epoch at which it is learnt."""
    epochs = sorted(recalls)
    classes = range(len(recalls[epochs[0]]))
    return [next((e for e in epochs if recalls[e][c] >= LEARNT), None) for c in classes]


def _class_map(run: RunResult, title: str, setting: str) -> HeatMap:
    epochs = list(frames(dict.fromkeys(run.recalls), MOMENTS))
    classes = [str(c) for c in run.spec.split.classes or range(len(run.recalls[epochs[0]]))]
    values = [[run.recalls[epoch][c] for epoch in epochs] for c in range(len(classes))]
    marks = []
    for c, epoch in enumerate(learnt_at(run.recalls)):
        if epoch is not None:
            nearest = next(i for i, shown in enumerate(epochs) if shown >= epoch)
            marks.append((c, nearest, f"learnt at epoch {epoch}"))
    grid = Grid(classes, [str(epoch) for epoch in epochs], values)
    caption = (
        f"{title}, {setting}, one run: sensitivity of each class after each shown epoch, closer together in "
        f"the beginning. Rings mark where a class first reaches {LEARNT}."
    )
    return HeatMap(caption, grid, "class", "epoch", "sensitivity", high=1.0, marks=marks)


def _strip(run: RunResult, title: str, setting: str) -> FilmStrip:
    moments = []
    for epoch, counts in frames(run.confusions, FRAMES).items():
        names = [str(c) for c in run.spec.split.classes or range(len(counts))]
        shares = [[value / (sum(row) or 1) for value in row] for row in counts]
        moments.append((f"epoch {epoch}", Grid(names, names, shares)))
    caption = (
        f"{title}, {setting}, the same run: share of each true class (down) by predicted class (across)."
    )
    return FilmStrip(caption, moments)


def _times(runs: Sequence[Timing]) -> Item:
    data = list(dict.fromkeys(run.data for run in runs))
    by_place = {(run.title, run.data): run for run in runs}
    columns = [
        column
        for of in data
        for column in (
            Column("ms/epoch", DATASETS[of].title, decimals=1, best="lowest"),
            Column("epochs", DATASETS[of].title, decimals=0),
            Column("seconds in all", DATASETS[of].title, decimals=1),
        )
    ]
    rows = []
    for title in dict.fromkeys(run.title for run in runs):
        cells = []
        for of in data:
            run = by_place.get((title, of))
            numbers = () if run is None else (1000 * run.per_epoch, run.epochs, run.seconds)
            cells += [TableCell(number) for number in numbers] or [TableCell(text="not run")] * 3
        rows.append(TableRow(title, cells, title))
    caption = (
        "Milliseconds of an epoch (mean over the second half, lowest bold), epochs, and seconds of training "
        "in all, of one run by itself; testing not counted. Compiling counts only in the last: the first run "
        "of a process loads the compiler as well."
    )
    return Item("time", ReportTable(columns, rows, caption), provenance(run.result for run in runs))


def _thinned(trace: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Fewer points, evenly spread over a logarithmic axis."""
    return list(frames(dict(enumerate(trace, 1)), MOMENTS).values())


def over_time(evidence: Evidence) -> list[Item]:
    """Times of the methods that were timed, and a chart of accuracy over seconds per data set."""
    runs = timings(evidence)
    items = [_times(runs)] if runs else []
    for data in dict.fromkeys(run.data for run in runs):
        own = [run for run in runs if run.data == data]
        ordered = sorted(own, key=lambda run: run.title != "ProPaLL")
        traces = [Curve(run.title, _thinned(run.trace)) for run in ordered if run.trace]
        if len(traces) < 2:
            continue
        epochs = ", ".join(f"{run.title} {run.epochs}" for run in ordered)
        caption = (
            f"{DATASETS[data].title}: test accuracy over seconds of training (logarithmic), epochs times the "
            f"time of one, each run by itself, neither compiling nor testing counted; epochs: {epochs}."
        )
        results = [run.result for run in own]
        items.append(Item(f"time-{data}", LogLineChart(caption, traces), provenance(results)))
    return items

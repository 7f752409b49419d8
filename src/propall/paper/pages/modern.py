"""Images trained with views: the table of all settings, and the comparison of methods with ranks."""

from collections.abc import Sequence

from propall.data import DATASETS
from propall.nets import NETS
from propall.paper import modern
from propall.paper.evidence import Evidence
from propall.paper.modern import RowResult
from propall.paper.pages.provenance import run_provenance
from propall.paper.tables.modern import (
    COMPARED,
    MODERN,
    NOT_COMPARED,
    TITLE,
    candidate_laws,
    contenders,
)
from propall.report.exhibits import Exhibit
from propall.report.page import PageSection
from propall.report.tables import Column, ReportTable, TableCell, TableRow
from propall.wording import join_names

_HOW = (
    "Test accuracy after the last epoch, of one network and without test-time augmentation. Training seconds "
    "are those of one run, without evaluation and compiling; a compiled step is reused by the next run of "
    "the same kind, so compiling is that of the run that compiled it. Where runs shared the GPU, both "
    "are longer than for a run alone. Published numbers were "
    "trained with other recipes, and their candidate sets agree with ours only as far as the text says."
)
_SETTINGS = [
    Column("accuracy %"),
    Column("seeds", kind="text"),
    Column("method", kind="text"),
    Column("network", kind="text"),
    Column("epochs", kind="text"),
    Column("candidates"),
    Column("training s", decimals=1),
    Column("compiling s", decimals=1),
    Column("published, %", kind="text", wraps=True),
]


def modern_sections(evidence: Evidence) -> list[PageSection]:
    """Return the sections about images with views, for every protocol with results."""
    sections = []
    for protocol in modern.protocols_with_results(evidence.results):
        results = modern_results(evidence, protocol)
        if any(result.results for result in results):
            exhibits = modern_exhibits(results)
            remark = "" if protocol == MODERN else f" Protocol {protocol}: shorter runs, not comparable."
            label = TITLE if protocol == MODERN else f"{TITLE}, {protocol}"
            sections.append(
                PageSection(f"{TITLE}. {_finding(results)}", exhibits, _HOW + remark, label=label)
            )
    return sections


def modern_results(evidence: Evidence, protocol: str | None = None) -> list[RowResult]:
    """Return the results of all rows under a protocol."""
    return modern.row_results(modern.select_rows(protocol=protocol), evidence.results)


def modern_exhibits(results: Sequence[RowResult]) -> list[Exhibit]:
    """Return the table of settings and, if any two methods can be compared, the comparison."""
    label = results[0].protocol
    measured = [result for result in results if "/" not in result.row.name]
    exhibits = [Exhibit(label, settings_table(measured), _provenance(measured))]
    if modern.method_ranks(results):
        compared = [result for result in results if result.row.setting in COMPARED]
        exhibits.append(Exhibit(f"{label}-methods", methods_table(results), _provenance(compared)))
    return exhibits


def _provenance(results: Sequence[RowResult]) -> dict[str, str]:
    return dict(run_provenance([run for result in results for run in result.results]))


def settings_table(results: Sequence[RowResult]) -> ReportTable:
    """Tabulate the settings; one row each."""
    rows = []
    for result in results:
        row, spec = result.row, result.row.specs(result.protocol, 1)[0]
        seconds = (None, None) if result.time is None else result.time
        cells = [
            _accuracy_cell(result),
            TableCell(text=str(len(result.results))),
            TableCell(text=row.title),
            TableCell(text=NETS[spec.net].title),
            TableCell(text=str(spec.recipe.epochs)),
            TableCell(result.candidates, text="–"),
            *(TableCell(value, text="–") for value in seconds),
            TableCell(text="; ".join(map(str, row.published)) or "–"),
        ]
        title = row.law.title if spec.data == "cifar10n" else f"{DATASETS[spec.data].title}, {row.law.title}"
        rows.append(TableRow(title, cells, spec.method.name))
    caption = f"{TITLE}: mean (sample standard deviation) of the test accuracy over seeds."
    return ReportTable(_SETTINGS, rows, caption, row_title="candidate sets")


def _accuracy_cell(result: RowResult) -> TableCell:
    if result.mean is None:
        return TableCell(text=result.note)
    return TableCell(result.mean, result.std, remark=result.note)


def methods_table(results: Sequence[RowResult]) -> ReportTable:
    """Tabulate methods by setting, with ranks and what chance leaves open of them.

    Args:
        results: of all rows.
    """
    ranks, ranges = modern.method_ranks(results), modern.rank_ranges(results)
    by_name = {(result.row.setting, result.row.method): result for result in results}
    laws = candidate_laws("cifar10")
    columns = []
    for setting in COMPARED:
        columns += [Column("accuracy %", laws[setting].title, best="highest")]
        columns += [Column("rank", laws[setting].title, decimals=1)]
        columns += [Column("range", laws[setting].title, kind="text")]
    columns.append(Column("mean rank", best="lowest"))
    order = sorted(ranks, key=lambda name: ranks[name].get("mean", float("inf")))
    rows = []
    for name in (*order, *(name for name in contenders() if name not in ranks)):
        cells = []
        for setting in COMPARED:
            cells.append(_accuracy_cell(by_name[setting, name]))
            cells.append(TableCell(ranks.get(name, {}).get(setting), text="–"))
            cells.append(TableCell(text=format_range(ranges.get(setting, {}).get(name))))
        cells.append(TableCell(ranks.get(name, {}).get("mean"), text="–"))
        rows.append(TableRow(contenders()[name].title, cells, contenders()[name].method.name))
    first = next(result for result in results if result.row.setting in COMPARED)
    spec = first.row.specs(first.protocol, 1)[0]
    caption = (
        f"CIFAR-10, {NETS[spec.net].title}, {spec.recipe.epochs} epochs, the same recipe for all methods: "
        f"mean (sample standard deviation) over seeds. Ranks are of the means, 1 is best. "
        f"{describe_ranges(results)}{NOT_COMPARED}"
    )
    return ReportTable(columns, rows, caption)


def format_range(ranks: tuple[int, int] | None) -> str:
    """Return `3–7`, or `3` if only that rank is left open."""
    if ranks is None:
        return "–"
    best, worst = ranks
    return str(best) if best == worst else f"{best}–{worst}"


def describe_ranges(results: Sequence[RowResult]) -> str:
    """Return a sentence on how the ranges of ranks are computed; empty without any."""
    known = modern.run_spread(results)
    if known is None:
        return ""
    spread = known.spread
    return (
        f"Ranges: ranks that chance leaves open (Tukey-Kramer, 5 %) if single runs of all methods vary like "
        f"the rows of this network and number of epochs that have several seeds (pooled standard deviation "
        f"{spread.deviation:.2f} points, {spread.degrees} degrees of freedom). Methods below {known.lowest} "
        "%, as none of these rows is, have no range: less accurate methods vary more. "
    )


def _finding(results: Sequence[RowResult]) -> str:
    """Return ProPaLL's place among the compared methods, or how much was run."""
    ranks = modern.method_ranks(results)
    place = ranks.get("propall", {}).get("mean")
    if place is None:
        return modern.summarize_rows(results)
    means = [by_setting["mean"] for by_setting in ranks.values() if "mean" in by_setting]
    better = sum(mean < place for mean in means)
    ranges = modern.rank_ranges(results)
    open_ranks = [format_range(ranges.get(setting, {}).get("propall")) for setting in COMPARED]
    chance = f"; chance leaves ranks {join_names(open_ranks)} open" if any(ranges.values()) else ""
    return f"ProPaLL's mean rank is {place:.1f}, place {better + 1} of {len(means)} methods{chance}"

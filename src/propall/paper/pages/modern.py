"""Images trained with views: the table of all settings, and the comparison of methods with ranks."""

from collections.abc import Mapping, Sequence

from propall.data import DATASETS
from propall.nets import NETS
from propall.paper import modern
from propall.paper.evidence import Evidence
from propall.paper.modern import OpenRanks, RowResult
from propall.paper.pages.provenance import run_provenance
from propall.paper.tables.modern import (
    COMPARISONS,
    MODERN,
    NOT_COMPARED,
    TITLE,
    Comparison,
    candidate_laws,
    contenders,
)
from propall.paper.tables.paper_table import parse_protocol
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
#: Remark on a row whose candidate sets are not those of the others.
OTHER_SETS = "other candidate sets by the same law"
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
            label = TITLE if protocol == MODERN else f"{TITLE}, {protocol}"
            text = f"{_HOW}{_remark(protocol)}"
            sections.append(
                PageSection(f"{TITLE}. {_finding(results)}", modern_exhibits(results), text, label=label)
            )
    return sections


def _remark(protocol: str) -> str:
    """Return what a protocol other than that of the table means for its numbers."""
    if protocol == MODERN:
        return ""
    parts = parse_protocol(protocol)
    if parts.base == MODERN:
        return f" Protocol {protocol}: {parts.epochs} epochs instead of the table's number."
    return f" Protocol {protocol}: not comparable."


def modern_results(evidence: Evidence, protocol: str | None = None) -> list[RowResult]:
    """Return the results of all rows under a protocol."""
    return modern.row_results(modern.select_rows(protocol=protocol), evidence.results)


def modern_exhibits(results: Sequence[RowResult]) -> list[Exhibit]:
    """Return the table of settings, and each comparison in which two methods have results."""
    label = results[0].protocol
    measured = [result for result in _shown(results) if "/" not in result.row.name]
    exhibits = [Exhibit(label, settings_table(measured), _provenance(measured))]
    for data, comparison in COMPARISONS.items():
        if modern.method_ranks(results, comparison):
            compared = [result for result in results if modern.is_compared(result, comparison)]
            name = f"{label}-methods" if data == "cifar10" else f"{label}-methods-{data}"
            exhibits.append(Exhibit(name, methods_table(results, comparison), _provenance(compared)))
    return exhibits


def _shown(results: Sequence[RowResult]) -> list[RowResult]:
    """Return all rows under the protocol of the table; under another one, those that were run."""
    return [result for result in results if result.results or result.protocol == MODERN]


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


def _accuracy_cell(result: RowResult, remark: str = "") -> TableCell:
    if result.mean is None:
        return TableCell(text=result.note)
    remarks = [text for text in (result.note, remark) if text]
    return TableCell(result.mean, result.std, remark="; ".join(remarks))


def methods_table(
    results: Sequence[RowResult], comparison: Comparison = COMPARISONS["cifar10"]
) -> ReportTable:
    """Tabulate methods by law, with ranks and what chance leaves open of them.

    Args:
        results: of all rows.
        comparison: which methods and laws.
    """
    ranks, found = modern.method_ranks(results, comparison), modern.open_ranks(results, comparison)
    others = {law: modern.with_other_sets(results, comparison, law) for law in comparison.settings}
    by_name = {(result.row.setting, result.row.method): result for result in results}
    titles = {law: candidate_laws(comparison.data)[law].title for law in comparison.settings}
    columns = []
    for title in titles.values():
        columns += [Column("accuracy %", title, best="highest"), Column("rank", title, decimals=1)]
        columns += [Column("range", title, kind="text")]
    columns.append(Column("mean rank", best="lowest"))
    order = sorted(ranks, key=lambda name: ranks[name].get("mean", float("inf")))
    rows = []
    for name in (*order, *(name for name in contenders() if name not in ranks)):
        cells = []
        for law, setting in comparison.settings.items():
            remark = OTHER_SETS if name in others[law] else ""
            cells.append(_accuracy_cell(by_name[setting, name], remark))
            cells.append(TableCell(ranks.get(name, {}).get(law), text="–"))
            cells.append(TableCell(text=format_range(found, law, name)))
        cells.append(TableCell(ranks.get(name, {}).get("mean"), text="–"))
        rows.append(TableRow(contenders()[name].title, cells, contenders()[name].method.name))
    first = next(result for result in results if modern.is_compared(result, comparison))
    spec = first.row.specs(first.protocol, 1)[0]
    caption = (
        f"{comparison.title}, {NETS[spec.net].title}, {spec.recipe.epochs} epochs, the same recipe for all "
        f"methods: mean (sample standard deviation) over seeds. Ranks are of the means, 1 is best; a mean "
        f"rank is among the methods that have results under all laws. {describe_ranges(found, comparison)}"
        f"{NOT_COMPARED}"
    )
    return ReportTable(columns, rows, caption)


def format_range(found: Mapping[str, OpenRanks], law: str, method: str) -> str:
    """Return the range of ranks of a method under a law: `3–7`, `3` if only that is open, `–` if unknown."""
    if law not in found or method not in found[law].ranges:
        return "–"
    best, worst = found[law].ranges[method]
    return str(best) if best == worst else f"{best}–{worst}"


def describe_ranges(found: Mapping[str, OpenRanks], comparison: Comparison) -> str:
    """Return sentences on how the ranges of ranks were found; empty without any."""
    if not found:
        return ""
    titles = {law: candidate_laws(comparison.data)[law].title for law in found}
    own = [titles[law] for law, ranks in found.items() if ranks.pooled is None]
    pooled = {titles[law]: ranks.pooled for law, ranks in found.items() if ranks.pooled is not None}
    text = "Ranges: ranks that chance in training leaves open, on these test images (5 % per law)"
    if own:
        where = f" under {join_names(own)}" if pooled else ""
        text += f", by the spread of each method's own runs{where} (Tamhane's T2)"
    text += ". "
    if pooled:
        known = next(iter(pooled.values()))  # the same for all
        where = f"Under {join_names(list(pooled))}, ranges" if own else "They"
        text += (
            f"{where} take single runs of all methods to vary like the rows of this comparison that have "
            f"several seeds (Tukey-Kramer; pooled standard deviation {known.spread.deviation:.2f} points, "
            f"{known.spread.degrees} degrees of freedom). Methods below {known.lowest} %, as none of these "
            "rows is, have no range, since less accurate methods vary more; to the others, they count as "
            "varying alike. "
        )
    return text


def _finding(results: Sequence[RowResult]) -> str:
    """Return ProPaLL's place among the compared methods, or how much was run."""
    comparison = COMPARISONS["cifar10"]
    ranks = modern.method_ranks(results, comparison)
    place = ranks.get("propall", {}).get("mean")
    if place is None:
        return modern.summarize_rows(_shown(results))
    means = [by_law["mean"] for by_law in ranks.values() if "mean" in by_law]
    better = sum(mean < place for mean in means)
    found = modern.open_ranks(results, comparison)
    ours = [format_range(found, law, "propall") for law in comparison.settings]
    chance = "" if "–" in ours else f"; chance leaves ranks {join_names(ours)} open"
    return f"ProPaLL's mean rank is {place:.1f}, place {better + 1} of {len(means)} methods{chance}"

"""The paper's tables, with our numbers next to the published ones."""

from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Literal

from propall.data import DATASETS
from propall.paper.evidence import Evidence
from propall.paper.pages.provenance import entry_provenance
from propall.paper.reproduction import CellResult, describe_steps
from propall.paper.specs import TIMED
from propall.paper.tables import TABLES
from propall.paper.tables.paper_table import PaperCell
from propall.paper.verdicts import ALPHA, compare
from propall.report.exhibits import Exhibit
from propall.report.tables import Column, ReportTable, TableCell, TableRow

#: Placeholder for the data folder, which differs between machines.
DATA_FOLDER = Path("$PROPALL_DATA")
#: Why a data set may be empty.
NO_DOWNLOAD = "its data has no download"


def table_exhibits(name: str, evidence: Evidence) -> list[Exhibit]:
    """Return a table under every protocol that has results; one per data set if candidates vary.

    Under the first protocol all published numbers are shown; under others, only rows and data sets with runs.
    Timings have their own figure, and cells that a protocol leaves out are not shown.
    """
    exhibits = []
    for protocol in evidence.protocols(name):
        if protocol.startswith(TIMED):
            continue
        entries = [entry for entry in evidence.entries(name, protocol) if entry.expected]
        if protocol != TABLES[name].protocol():
            entries = _with_runs(entries)
        label = f"{name}-{protocol}".replace("+", "-")
        if not TABLES[name].candidates:
            exhibits.append(Exhibit(label, _by_data_set(entries), entry_provenance(entries)))
            continue
        for data in dict.fromkeys(entry.cell.data for entry in entries):
            data_results = [entry for entry in entries if entry.cell.data == data]
            exhibits.append(
                Exhibit(f"{label}-{data}", _by_candidates(data_results), entry_provenance(data_results))
            )
    return exhibits


def _with_runs(entries: Sequence[CellResult]) -> list[CellResult]:
    """Return the entries whose data set and row have a run."""
    data = {entry.cell.data for entry in entries if entry.runs}
    rows = {entry.cell.row for entry in entries if entry.runs}
    return [entry for entry in entries if entry.cell.data in data and entry.cell.row in rows]


def missing_data(name: str, evidence: Evidence) -> list[str]:
    """Return how to run each data set of a table that has no download and no runs."""
    sentences = []
    entries = evidence.entries(name)
    for data in dict.fromkeys(entry.cell.data for entry in entries):
        data_results = [entry for entry in entries if entry.cell.data == data]
        if all(entry.has_no_download for entry in data_results):
            steps = describe_steps(data_results[0].cell, data_results[0].protocol, DATA_FOLDER)
            instructions = ", then ".join(f"`{s}`" if s.startswith("propall") else s for s in steps)
            sentences.append(f"{DATASETS[data].title}: not run, {NO_DOWNLOAD}. To run it: {instructions}.")
    return sentences


def _by_data_set(entries: Sequence[CellResult]) -> ReportTable:
    """Tabulate methods by data set."""
    columns = list(dict.fromkeys(entry.cell.data for entry in entries))
    close = {
        entry.cell
        for data in columns
        for entry in _not_worse([entry for entry in entries if entry.cell.data == data])
    }
    by_row: dict[str, list[CellResult]] = {}
    for entry in entries:
        by_row.setdefault(entry.cell.row, []).append(entry)
    rows = {}
    for row_results in by_row.values():
        by_data = {
            entry.cell.data: (_our_cell(entry, close), _published_cell(entry)) for entry in row_results
        }
        empty = (TableCell(text="–"), TableCell(text="–"))
        rows[row_results[0].title] = [by_data.get(data, empty) for data in columns]
    return compare_with_paper([DATASETS[data].title for data in columns], rows, caption=_caption(entries))


def _by_candidates(entries: Sequence[CellResult]) -> ReportTable:
    """Tabulate numbers of candidates by method, for one data set."""
    rows = {}
    for n in dict.fromkeys(entry.cell.candidates for entry in entries):
        of_n = [entry for entry in entries if entry.cell.candidates == n]
        close = {entry.cell for entry in _not_worse(of_n)}
        rows[str(n)] = [(_our_cell(entry, close), _published_cell(entry)) for entry in of_n]
    titles = list(dict.fromkeys(entry.title for entry in entries))
    caption = f"{DATASETS[entries[0].cell.data].title}. {_caption(entries)}"
    return compare_with_paper(titles, rows, caption=caption, row_title="n", best_in="rows")


def _not_worse(entries: Sequence[CellResult]) -> list[CellResult]:
    """Return the entries that the paired t-test does not call worse than the best."""
    measured = [entry for entry in entries if entry.mean is not None]
    if len(measured) < 2:
        return []
    best = max(measured, key=lambda entry: entry.mean or 0.0)
    close = []
    for entry in measured:
        comparison = compare(best.values, entry.values) if entry is not best else None
        if comparison is not None and comparison.p is not None and comparison.p >= ALPHA:
            close.append(entry)
    return close


def _our_cell(entry: CellResult, close: Set[PaperCell]) -> TableCell:
    if entry.mean is None:
        return TableCell(text=entry.note, remark=NO_DOWNLOAD if entry.has_no_download else "")
    remark = "" if entry.runs == entry.expected else f"{entry.runs} of {entry.expected} runs"
    return TableCell(entry.mean, entry.std, close=entry.cell in close, remark=remark)


def _published_cell(entry: CellResult) -> TableCell:
    if entry.published is None:
        return TableCell(text="not in the paper")
    reason = entry.caveat if entry.mean is not None else ""
    return TableCell(*entry.published, hatched=reason)


def _caption(entries: Sequence[CellResult]) -> str:
    table, protocol = TABLES[entries[0].cell.table], entries[0].protocol
    counts = {len(entry.values) for entry in entries if entry.runs == entry.expected and entry.runs}
    unit = "folds" if protocol.startswith("folds") else "seeds"
    over = f" over {min(counts)} {unit}" if len(counts) == 1 and counts != {1} else ""
    over = ", one run each" if counts == {1} else over
    return (
        f"Protocol {protocol}: {table.describe(protocol)}. Percent, mean (sample standard deviation){over}; "
        "highest in bold, not significantly lower underlined (paired t-test, 0.05)."
    )


def compare_with_paper(
    columns: Sequence[str],
    rows: Mapping[str, Sequence[tuple[TableCell, TableCell]]],
    *,
    caption: str = "",
    row_title: str = "method",
    best_in: Literal["columns", "rows"] = "columns",
) -> ReportTable:
    """Tabulate ours, the paper's number and their difference in adjacent columns.

    Each row has one pair (ours, published) per column; a hatched cell is not compared.
    """
    subcolumns, table_rows = [], []
    for group in columns:
        subcolumns += [Column("ours", group, best="highest"), Column("paper", group)]
        subcolumns.append(Column("difference", group, kind="difference"))
    for title, pairs in rows.items():
        cells: list[TableCell] = []
        for ours, paper in pairs:
            comparable = not (ours.hatched or paper.hatched)
            difference = TableCell(text="–")
            if ours.mean is not None and paper.mean is not None and comparable:
                difference = TableCell(ours.mean - paper.mean)
            cells += [ours, paper, difference]
        table_rows.append(TableRow(title, cells, title if row_title == "method" else ""))
    return ReportTable(subcolumns, table_rows, caption, row_title, best_in=best_in)

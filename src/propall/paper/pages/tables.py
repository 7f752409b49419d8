"""The paper's tables: ours and the published numbers side by side."""

from collections.abc import Sequence
from pathlib import Path

from propall.data import DATASETS
from propall.paper.evidence import Evidence
from propall.paper.pages.item import Item, provenance
from propall.paper.reproduction import CellResult, steps_to_run
from propall.paper.results import RunResult
from propall.paper.specs import TIMED
from propall.paper.tables import TABLES
from propall.paper.verdicts import ALPHA, compared
from propall.report.tables import ReportTable, TableCell, beside_paper

#: Where data sets are put, in words that fit every machine; nothing is there.
DATA_FOLDER = Path("$PROPALL_DATA")
#: Why a data set may be empty.
NO_DOWNLOAD = "its data has no download"


def table_items(name: str, evidence: Evidence) -> list[Item]:
    """A table under every protocol that has a run; one per data set where the number of candidates varies.

    All the paper's numbers are there beside the first protocol; beside others, lines and data sets with runs.
    Timings have a figure of their own, and cells that a protocol leaves out are not shown.
    """
    items = []
    for protocol in evidence.protocols(name):
        if protocol.startswith(TIMED):
            continue
        entries = [entry for entry in evidence.entries(name, protocol) if entry.expected]
        if protocol != TABLES[name].protocol():
            entries = _begun(entries)
        label = f"{name}-{protocol}".replace("+", "-")
        if not TABLES[name].candidates:
            items.append(Item(label, _by_data_set(entries), provenance(_results(entries))))
            continue
        for data in dict.fromkeys(entry.cell.data for entry in entries):
            own = [entry for entry in entries if entry.cell.data == data]
            items.append(Item(f"{label}-{data}", _by_candidates(own), provenance(_results(own))))
    return items


def _begun(entries: Sequence[CellResult]) -> list[CellResult]:
    """The data sets and lines that have a run."""
    data = {entry.cell.data for entry in entries if entry.runs}
    rows = {entry.cell.row for entry in entries if entry.runs}
    return [entry for entry in entries if entry.cell.data in data and entry.cell.row in rows]


def missing_data(name: str, evidence: Evidence) -> list[str]:
    """A sentence for every data set of a table that has no download and was not run: how to run it."""
    sentences = []
    entries = evidence.entries(name)
    for data in dict.fromkeys(entry.cell.data for entry in entries):
        own = [entry for entry in entries if entry.cell.data == data]
        if all(entry.missing for entry in own):
            steps = steps_to_run(own[0].cell, own[0].protocol, DATA_FOLDER)
            said = ", then ".join(f"`{step}`" if step.startswith("propall") else step for step in steps)
            sentences.append(f"{DATASETS[data].title}: not run, {NO_DOWNLOAD}. To run it: {said}.")
    return sentences


def _results(entries: Sequence[CellResult]) -> list[RunResult]:
    return [result for entry in entries for result in entry.results]


def _by_data_set(entries: Sequence[CellResult]) -> ReportTable:
    """Lines down, data sets across."""
    columns = list(dict.fromkeys(entry.cell.data for entry in entries))
    close = {entry.cell for data in columns for entry in _not_worse(_of(entries, data))}
    rows = {}
    for own in _grouped(entries):
        by_data = {entry.cell.data: (_ours(entry, entry.cell in close), _paper(entry)) for entry in own}
        rows[own[0].title] = [
            by_data.get(data, (TableCell(text="–"), TableCell(text="–"))) for data in columns
        ]
    titles = [DATASETS[data].title for data in columns]
    return beside_paper(titles, rows, caption=_caption(entries))


def _by_candidates(entries: Sequence[CellResult]) -> ReportTable:
    """Numbers of candidates down, lines across: one data set."""
    counts = list(dict.fromkeys(entry.cell.candidates for entry in entries))
    rows = {}
    for n in counts:
        own = [entry for entry in entries if entry.cell.candidates == n]
        close = {entry.cell for entry in _not_worse(own)}
        rows[str(n)] = [(_ours(entry, entry.cell in close), _paper(entry)) for entry in own]
    titles = list(dict.fromkeys(entry.title for entry in entries))
    caption = f"{DATASETS[entries[0].cell.data].title}. {_caption(entries)}"
    return beside_paper(titles, rows, caption=caption, row_title="n", best_in="rows")


def _of(entries: Sequence[CellResult], data: str) -> list[CellResult]:
    return [entry for entry in entries if entry.cell.data == data]


def _grouped(entries: Sequence[CellResult]) -> list[list[CellResult]]:
    by_row: dict[str, list[CellResult]] = {}
    for entry in entries:
        by_row.setdefault(entry.cell.row, []).append(entry)
    return list(by_row.values())


def _not_worse(entries: Sequence[CellResult]) -> list[CellResult]:
    """Those that the paired t-test does not call worse than the best."""
    measured = [entry for entry in entries if entry.mean is not None]
    if len(measured) < 2:
        return []
    best = max(measured, key=lambda entry: entry.mean or 0.0)
    found = []
    for entry in measured:
        against = compared(best, entry) if entry is not best else None
        if against is not None and against.p is not None and against.p >= ALPHA:
            found.append(entry)
    return found


def _ours(entry: CellResult, close: bool) -> TableCell:
    if entry.mean is None:
        return TableCell(text=entry.note, remark=NO_DOWNLOAD if entry.missing else "")
    remark = "" if entry.runs == entry.expected else f"{entry.runs} of {entry.expected} runs"
    return TableCell(entry.mean, entry.std, close=close, remark=remark)


def _paper(entry: CellResult) -> TableCell:
    if entry.published is None:
        return TableCell(text="not in the paper")
    reason = entry.incomparable if entry.mean is not None else ""
    return TableCell(*entry.published, hatched=reason)


def _caption(entries: Sequence[CellResult]) -> str:
    table, protocol = TABLES[entries[0].cell.table], entries[0].protocol
    units = {len(entry.values) for entry in entries if entry.runs == entry.expected and entry.runs}
    unit = "folds" if protocol.startswith("folds") else "seeds"
    over = f" over {min(units)} {unit}" if len(units) == 1 and units != {1} else ""
    over = ", one run each" if units == {1} else over
    return (
        f"Protocol {protocol}: {table.describe(protocol)}. Percent, mean (sample deviation){over}; highest "
        "bold, not significantly lower underlined (paired t-test, 0.05)."
    )

"""Stored results as entries of the paper's tables."""

from functools import cached_property

from propall.paper import reproduction
from propall.paper.reproduction import CellResult
from propall.paper.results import RunResult
from propall.paper.specs import TIMED
from propall.paper.store import Store
from propall.paper.tables import TABLES
from propall.paper.tables.paper_table import SHORT, parse_protocol


class Evidence:
    """The newest result of each run in a store, arranged by table and protocol, and cached."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._entries: dict[tuple[str, str], list[CellResult]] = {}
        self._protocols: dict[str, list[str]] = {}

    @cached_property
    def results(self) -> dict[str, RunResult]:
        """The newest result of every run, by key."""
        return {result.spec.key: result for result in self.store.newest()}

    def protocols(self, table: str) -> list[str]:
        """Return the protocols of a table that have results."""
        if table not in self._protocols:
            self._protocols[table] = reproduction.protocols_with_results(table, self.store)
        return self._protocols[table]

    def accuracy_protocols(self, table: str) -> list[str]:
        """Return `protocols` without smoke runs and timings."""
        return [name for name in self.protocols(table) if parse_protocol(name).base not in (SHORT, TIMED)]

    def full_protocols(self, table: str) -> list[str]:
        """Return `accuracy_protocols` that do not override the number of epochs."""
        return [name for name in self.accuracy_protocols(table) if parse_protocol(name).epochs is None]

    def judged_protocols(self, table: str) -> list[str]:
        """Return `full_protocols` that verdicts are based on."""
        return [name for name in self.full_protocols(table) if TABLES[table].is_judged(name)]

    def entries(self, table: str, protocol: str | None = None) -> list[CellResult]:
        """Return all entries of a table under a protocol (default: the table's first)."""
        resolved = TABLES[table].protocol(protocol)
        if (table, resolved) not in self._entries:
            cells = reproduction.select_cells(table, protocol=resolved)
            self._entries[table, resolved] = reproduction.cell_results_from(cells, self.results)
        return self._entries[table, resolved]

    def columns(self, table: str, protocol: str) -> dict[tuple[str, int | None], dict[str, CellResult]]:
        """Return entries with a result, by (data set, number of candidates) and then by row."""
        columns: dict[tuple[str, int | None], dict[str, CellResult]] = {}
        for entry in self.entries(table, protocol):
            if entry.mean is not None:
                columns.setdefault((entry.cell.data, entry.cell.candidates), {})[entry.cell.row] = entry
        return columns


def primary_rows(table: str) -> set[str]:
    """Return the first of our rows for each row of the paper; several of ours may share one."""
    first: dict[str, str] = {}
    for row in TABLES[table].rows:
        first.setdefault(row.published, row.name)
    return set(first.values())

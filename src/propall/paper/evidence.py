"""What a store knows of the paper's tables, read once and asked many times."""

from functools import cached_property

from propall.paper import reproduction
from propall.paper.reproduction import CellResult
from propall.paper.results import RunResult
from propall.paper.specs import TIMED
from propall.paper.store import Store
from propall.paper.tables import TABLES
from propall.paper.tables.paper_table import SHORT, parse_protocol


class Evidence:
    """A store's results as entries of the paper's tables.

    Args:
        store: the results; only the newest of every run counts.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._entries: dict[tuple[str, str], list[CellResult]] = {}
        self._protocols: dict[str, list[str]] = {}

    @cached_property
    def results(self) -> dict[str, RunResult]:
        """The newest result of every run, by key."""
        return {result.spec.key: result for result in self.store.newest()}

    def protocols(self, table: str) -> list[str]:
        """The protocols of a table with a run."""
        if table not in self._protocols:
            self._protocols[table] = reproduction.protocols_with_results(table, self.store)
        return self._protocols[table]

    def serious_protocols(self, table: str) -> list[str]:
        """The same but for smoke runs and timings."""
        return [name for name in self.protocols(table) if parse_protocol(name).base not in (SHORT, TIMED)]

    def uncut_protocols(self, table: str) -> list[str]:
        """Those of them that give every network its own number of epochs."""
        return [name for name in self.serious_protocols(table) if parse_protocol(name).epochs is None]

    def judged_protocols(self, table: str) -> list[str]:
        """Those of them that verdicts rest on."""
        return [name for name in self.uncut_protocols(table) if TABLES[table].is_judged(name)]

    def entries(self, table: str, protocol: str | None = None) -> list[CellResult]:
        """All cells of a table under a protocol, the first one by default."""
        resolved = TABLES[table].protocol(protocol)
        if (table, resolved) not in self._entries:
            cells = reproduction.select_cells(table, protocol=resolved)
            self._entries[table, resolved] = reproduction.cell_results_from(cells, self.results)
        return self._entries[table, resolved]

    def columns(self, table: str, protocol: str) -> dict[tuple[str, int | None], dict[str, CellResult]]:
        """Entries with a number, by data set and number of candidates, then by line."""
        found: dict[tuple[str, int | None], dict[str, CellResult]] = {}
        for entry in self.entries(table, protocol):
            if entry.mean is not None:
                found.setdefault((entry.cell.data, entry.cell.candidates), {})[entry.cell.row] = entry
        return found


def first_rows(table: str) -> set[str]:
    """The first line of ours for every line of the paper: several of ours may share one."""
    first: dict[str, str] = {}
    for row in TABLES[table].rows:
        first.setdefault(row.published, row.name)
    return set(first.values())

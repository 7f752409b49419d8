"""How much of the paper's tables a store covers."""

from typing import NamedTuple

from propall.paper.evidence import Evidence, primary_rows
from propall.paper.reproduction import CellResult
from propall.paper.tables import TABLES


class Coverage(NamedTuple):
    """Counts of distinct published cells."""

    complete: int  # with all runs of their table's first protocol
    started: int  # with some runs under any protocol but smoke runs and timings
    no_download: int  # without any run, because their data has no download
    total: int


def measure_coverage(evidence: Evidence) -> Coverage:
    """Count the published cells; a cell that two tables print counts once."""
    states: dict[frozenset[str], set[str]] = {}
    for table in TABLES:
        keys = {}
        for entry in _published_entries(evidence, table):
            keys[entry.cell] = frozenset(entry.keys)
            state = {"no download"} if entry.has_no_download else ()
            states.setdefault(keys[entry.cell], set()).update(state)
        for protocol in evidence.accuracy_protocols(table):
            for entry in evidence.entries(table, protocol):
                if entry.runs and entry.cell in keys:
                    states[keys[entry.cell]].add("started")
    return Coverage(
        len(complete_cells(evidence)),
        sum("started" in state for state in states.values()),
        sum(state == {"no download"} for state in states.values()),
        len(states),
    )


def complete_cells(evidence: Evidence) -> dict[frozenset[str], set[str]]:
    """Return the run keys of every complete published cell, by the run keys of its first protocol.

    Runs of the table's other judged protocols are included if they are complete too.
    """
    runs: dict[frozenset[str], set[str]] = {}
    for table in TABLES:
        first = {}
        for entry in _published_entries(evidence, table):
            if entry.runs == entry.expected:
                first[entry.cell] = frozenset(entry.keys)
                runs.setdefault(first[entry.cell], set()).update(entry.keys)
        for protocol in evidence.judged_protocols(table):
            for entry in evidence.entries(table, protocol):
                if entry.cell in first and entry.runs == entry.expected:
                    runs[first[entry.cell]].update(entry.keys)
    return runs


def _published_entries(evidence: Evidence, table: str) -> list[CellResult]:
    """Return one entry for each published number of a table, under its first protocol."""
    rows = primary_rows(table)
    return [
        entry for entry in evidence.entries(table) if entry.cell.row in rows and entry.published is not None
    ]

"""Text tables: CSV, JSON lines and JSON, read by `propall inspect`."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

from tests.faults.harness import Case, Door, run_command
from tests.faults.mutations import byte_mutations, json_mutations, text_mutations
from tests.fixtures.tables import birds

HEADING, ROWS, _ = birds(40)


def csv_text() -> str:
    """A valid table as CSV text."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([HEADING, *ROWS])
    return out.getvalue()


def records() -> list[dict[str, object]]:
    """A valid table as JSON records."""
    return [dict(zip(HEADING, row, strict=True)) for row in ROWS]


def inspect(path: Path) -> None:
    """`propall inspect FILE --label species`."""
    run_command("inspect", str(path), "--label", "species")


def _csv(count: int, seed: int) -> Iterator[Case]:
    half = count // 2
    yield from byte_mutations("CSV", csv_text().encode(), ".csv", half, seed)
    yield from text_mutations("CSV", csv_text(), ".csv", count - half, seed)


def _json(count: int, seed: int) -> Iterator[Case]:
    third = count // 3
    yield from json_mutations("JSON", records(), ".json", third, seed)
    yield from byte_mutations("JSON", json.dumps(records()).encode(), ".json", third, seed)
    lines = "\n".join(map(json.dumps, records()))
    yield from byte_mutations("JSON lines", lines.encode(), ".jsonl", count - 2 * third, seed)


DOORS = [Door("CSV", inspect, _csv), Door("JSON", inspect, _json)]

"""Read the label cells of a large table in parts: every distinct cell is parsed once."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from propall.labels.parsing import as_texts, visible_text
from propall.tables.label_columns import find_classes, read_label_columns
from propall.tables.label_source import LabelSource, cell_fault
from propall.tables.reading import DataNote, RawTable

#: Most distinct cells that are remembered.
MOST_CELLS = 200_000
#: Row numbers that a note on a large table lists.
NOTED_ROWS = 100
#: Kinds of notes that are about single cells.
_OF_CELLS = (
    "unusable label",
    "typo",
    "stray separator",
    "invisible characters",
    "unlabeled",
    "uninformative",
)


def check_label_column(source: LabelSource) -> str:
    """Return the label column; raise ValueError if the labels need all rows at once."""
    others = (source.annotators, source.votes, source.scores, source.lists, source.item)
    if source.label is None or any(others):
        raise ValueError(
            f"label: a table that is read in parts needs one column of labels; got {source.describe()}. "
            "Write the candidates of each row into one column, such as cat|dog."
        )
    return source.label


@dataclass
class NameCounts:
    """Counts in how many rows each name occurs."""

    source: LabelSource
    names: Counter[str] = field(default_factory=Counter)
    rows: int = 0

    def add(self, raw: RawTable) -> None:
        """Count the names in a part of the table."""
        texts = as_texts(raw.column(check_label_column(self.source), "label"))
        self.rows += len(texts)
        grammar = self.source.grammar
        for text, count in Counter(texts).items():
            cell = grammar.parse(visible_text(text))
            if not cell_fault(cell):
                self.names.update(dict.fromkeys(cell.names, count))

    def classes(self, name: str) -> tuple[tuple[str, ...], list[DataNote]]:
        """Return the classes of the table of this name, with notes on typos."""
        what = f"column {self.source.label!r} of {name}"
        return find_classes(self.names, self.source, self.rows, what)


class PartLabels(NamedTuple):
    """The labels of a part of a table."""

    rows: NDArray[np.int64]  # positions in the part of the rows that can be used
    candidates: NDArray[np.bool_]  # (m, k) of these rows
    kinds: Counter[str]  # how they are written
    notes: list[DataNote]


class _Cell(NamedTuple):
    mask: NDArray[np.bool_] | None  # None for a cell that cannot be used
    kind: str
    notes: tuple[DataNote, ...]


class CellReader:
    """Reads candidate sets in terms of known classes, part by part, as `read_label_columns` reads a whole.

    Args:
        source: where the labels are.
        classes: all classes.
    """

    def __init__(self, source: LabelSource, classes: tuple[str, ...]) -> None:
        self.label = check_label_column(source)
        self.source = source if source.hierarchy is not None else replace(source, classes=classes)
        self.classes = classes
        self._cells: dict[str, _Cell] = {}

    def read(self, raw: RawTable) -> PartLabels:
        """Read a part of the table; rows in notes are numbered as in its index."""
        texts = np.array(as_texts(raw.column(self.label, "label")), dtype=object)
        codes, distinct = pd.factorize(texts)
        new = [text for text in distinct if text not in self._cells]
        if len(self._cells) + len(new) > MOST_CELLS:
            self._cells.clear()
            new = list(distinct)
        self._learn(new)
        cells = [self._cells[text] for text in distinct]
        usable = np.array([cell.mask is not None for cell in cells])
        empty = np.zeros(len(self.classes), dtype=bool)
        masks = np.array([empty if cell.mask is None else cell.mask for cell in cells])
        rows = np.flatnonzero(usable[codes])
        kinds: Counter[str] = Counter()
        for cell, count in zip(cells, np.bincount(codes, minlength=len(cells)), strict=True):
            if cell.mask is not None:
                kinds[cell.kind] += int(count)
        index = raw.frame.index.to_numpy()
        notes = [
            replace(note, rows=tuple(index[codes == code].tolist()))
            for code, cell in enumerate(cells)
            for note in cell.notes
        ]
        return PartLabels(rows, masks[codes[rows]], kinds, notes)

    def _learn(self, texts: list[str]) -> None:
        if not texts:
            return
        # The last row has a label in any case: a table without any is rejected.
        table = RawTable(pd.DataFrame({self.label: [*texts, self.classes[0]]}, dtype=object))
        labeled = read_label_columns(table, self.source)
        masks = dict(zip(labeled.rows.tolist(), labeled.labels.to_numpy(), strict=True))
        kinds = dict(zip(labeled.rows.tolist(), labeled.row_kinds, strict=True))
        notes: dict[int, list[DataNote]] = {}
        for note in labeled.notes:
            for row in note.rows if note.kind in _OF_CELLS else ():
                notes.setdefault(row, []).append(replace(note, rows=()))
        for row, text in enumerate(texts):
            self._cells[text] = _Cell(masks.get(row), kinds.get(row, ""), tuple(notes.get(row, ())))


@dataclass
class NoteLog:
    """Collects notes on a large table; of each, the first rows and their number."""

    _notes: dict[tuple[str, str, Any], tuple[list[int], int]] = field(default_factory=dict)

    def add(self, notes: Iterable[DataNote]) -> None:
        """Add notes of another part."""
        for note in notes:
            rows, count = self._notes.get((note.kind, note.text, note.action), ([], 0))
            rows += note.rows[: NOTED_ROWS - len(rows)]
            self._notes[note.kind, note.text, note.action] = rows, count + len(note.rows)

    def __iter__(self) -> Iterator[DataNote]:
        for (kind, text, action), (rows, count) in self._notes.items():
            shown = f"{text}; {count} rows, the first of them" if count > len(rows) else text
            yield DataNote(kind, shown, action, tuple(sorted(rows)))

    @property
    def dropped(self) -> int:
        """Number of rows that were dropped."""
        return sum(count for (_, _, action), (_, count) in self._notes.items() if action == "row dropped")

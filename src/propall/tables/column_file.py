"""A large table on disk, of which one column after the other is in memory."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from propall.tables.label_columns import LabeledTable, read_label_columns
from propall.tables.label_source import LabelSource
from propall.tables.reading import DataNote, RawTable, read_table
from propall.tables.streaming import merge_notes, read_parts


@dataclass
class StoredTable(RawTable):
    """A table whose columns are read from a Parquet file; `frame` holds the label columns only."""

    file: Path = field(default_factory=Path)
    stored_names: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Names of all columns."""
        return list(self.stored_names)

    def cells(self, name: str) -> "pd.Series[Any]":
        """Return a column."""
        return _read_column(self.file, name, self.frame.index)


def _read_column(file: Path, name: str, index: "pd.Index[Any]") -> "pd.Series[Any]":
    import pyarrow as pa
    from pyarrow import parquet

    with parquet.ParquetFile(file) as source:
        table = source.read(columns=[name], use_threads=False)
    # Arrow text stays as it is; numbers and dates of Parquet files become those of pandas.
    types = {pa.string(): pd.ArrowDtype(pa.string())}
    column: pd.Series[Any] = table.to_pandas(types_mapper=types.get).iloc[:, 0]
    return column.set_axis(index)


@contextmanager
def open_stored_table(
    source: str | Path,
    labels: LabelSource | None = None,
    *,
    read: Callable[[Path], RawTable] = read_table,
) -> Iterator[LabeledTable]:
    """Copy a large table to a temporary file of columns and read its labels, as `open_table` does.

    Args:
        source: the file, or a folder of Parquet files.
        labels: where the labels are, if it is known.
        read: reader of a part.
    """
    with tempfile.TemporaryDirectory() as folder:
        raw = _store(Path(source), read, Path(folder) / "columns.parquet")
        if labels is None:
            yield LabeledTable(raw)
            return
        for name in dict.fromkeys(labels.columns):
            if name in raw.stored_names:
                raw.frame[name] = raw.cells(name).astype(object)
        yield LabeledTable(raw, labels, read_label_columns(raw, labels))


def _store(path: Path, read: Callable[[Path], RawTable], file: Path) -> StoredTable:
    import pyarrow as pa
    from pyarrow import parquet

    parts = read_parts(path, read=read)
    notes: list[DataNote] = []
    index: list[NDArray[np.int64]] = []
    part: RawTable | None
    first = part = next(parts)
    schema = _schema(first.frame)
    with parquet.ParquetWriter(file, schema, use_dictionary=False, write_statistics=False) as writer:
        while part is not None:
            notes = merge_notes(notes, part.notes)
            index.append(part.frame.index.to_numpy(dtype=np.int64))
            writer.write_table(pa.Table.from_pandas(part.frame, schema=schema, preserve_index=False))
            part = next(parts, None)
    frame = pd.DataFrame(index=np.concatenate(index))
    names = tuple(map(str, first.frame.columns))
    return StoredTable(
        frame,
        first.source,
        notes,
        folder=path.parent,
        separator=first.separator,
        file=file,
        stored_names=names,
    )


def _schema(frame: pd.DataFrame) -> Any:
    """Types of the columns; one that is blank in the first part may hold text later."""
    import pyarrow as pa

    schema = pa.Schema.from_pandas(frame, preserve_index=False)
    is_text = (pa.types.is_null, pa.types.is_large_string)
    fields = [f.with_type(pa.string()) if any(test(f.type) for test in is_text) else f for f in schema]
    return pa.schema(fields)

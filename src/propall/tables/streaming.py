"""Predict and resolve tables larger than memory, one part after the other."""

import gzip
import itertools
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from propall.atomic_files import replacing
from propall.estimators.resolution import Resolution
from propall.tables.arrow_text import write_plain
from propall.tables.consensus import doubt_at, estimate_rate, set_error_odds
from propall.tables.evaluation import read_candidates
from propall.tables.file_formats import (
    FileFormat,
    check_compression,
    compress_into,
    is_compressed,
    is_larger,
    kind_of,
    open_text,
)
from propall.tables.formulas import guard_answers
from propall.tables.label_source import LabelSource
from propall.tables.model import TableModel
from propall.tables.reading import SEPARATOR_LINE, DataNote, RawTable, no_rows, read_table
from propall.tables.resolution import (
    LabelCount,
    ResolvedTable,
    predict_file,
    resolve_file,
)
from propall.tables.writing import csv_text, json_lines, writable_format, write_table

#: Rows of a Parquet file and bytes of a text file that are read at once.
PART_ROWS, PART_BYTES = 1 << 15, 1 << 23
#: Largest record of a text file; a quotation mark that is never closed makes the rest of the file one record.
MAX_RECORD_BYTES = 1 << 26
#: Files of at least this size are resolved in parts.
LARGE_BYTES = 1 << 28


def is_large(file: str | Path) -> bool:
    """Whether a file is a folder of tables, or so large that it should be read in parts."""
    path = Path(file)
    if path.is_dir():
        return bool(table_files(path))
    is_read_in_parts = kind_of(path) in ("CSV", "TSV", "Parquet")
    return is_read_in_parts and path.is_file() and is_larger(path, LARGE_BYTES - 1)


def table_files(folder: Path) -> list[Path]:
    """Return the Parquet files in a folder, by name; if there are none, its CSV or TSV files."""
    files = [path for path in folder.iterdir() if path.is_file() and not path.name.startswith((".", "_"))]
    for kinds in (("Parquet",), ("CSV", "TSV")):
        if chosen := sorted(path for path in files if kind_of(path) in kinds):
            _check_copies(chosen)
            return chosen
    return []


def _check_copies(files: list[Path]) -> None:
    """Raise ValueError if a file is there both compressed and not, since its rows would be read twice."""
    names = {file.name.lower(): file.name for file in files}
    for file in files:
        if is_compressed(file) and (copy := names.get(file.stem.lower())) is not None:
            raise ValueError(
                f"file: {file.parent} holds {copy} and {file.name}; the rows of both would be used. "
                "Move one of them away."
            )


def read_parts(
    file: str | Path,
    *,
    rows: int = PART_ROWS,
    size: int = PART_BYTES,
    read: Callable[..., RawTable] = read_table,
) -> Iterator[RawTable]:
    """Read a table in parts whose rows are numbered through; every part has rows.

    CSV and Parquet files, and folders of such files, are read in parts; other files as a whole. CSV files
    that are compressed are unpacked part by part.

    Args:
        file: the file or folder.
        rows: rows of a part of a Parquet file.
        size: bytes of a part of a CSV file, unpacked; its last record is completed.
        read: reader of one file, with the parameter `allow_empty` of `read_table`.
    """
    path = Path(file)
    files = table_files(path) if path.is_dir() else []
    if files and kind_of(files[0]) == "Parquet":
        parts = _parquet_parts(files, path.name, rows)
    elif files:
        parts = itertools.chain.from_iterable(_text_parts(file, size, read) for file in files)
    elif not path.is_file() or not is_larger(path, size):
        yield read(path)
        return
    elif kind_of(path) == "Parquet":
        parts = _parquet_parts([path], path.name, rows)
    elif kind_of(path) in ("CSV", "TSV"):
        parts = _text_parts(path, size, read)
    else:
        yield read(path)
        return
    first, columns = 0, None
    notes: list[DataNote] = []  # on blank rows before the first others
    held: RawTable | None = None  # until it is known which blank rows follow
    for part in parts:
        names = part.frame.columns.tolist()
        if columns is not None and names != columns:
            raise ValueError(
                f"file: {path.name} has other columns from row {first + 1} on; expected the columns of the "
                "first rows throughout. Give every column of the header one name of its own."
            )
        columns, part.folder, part.source = names, path.parent, path.name or str(path)
        n = part.n_file_rows
        part.frame.index = part.frame.index + first
        part.notes = [replace(note, rows=tuple(row + first for row in note.rows)) for note in part.notes]
        first += n
        if not len(part.frame):
            (notes if held is None else held.notes).extend(part.notes)
            continue
        if held is not None:
            yield held
        part.notes, notes, held = notes + part.notes, [], part
    if held is None:
        raise no_rows(path, columns or [], notes)
    yield held


def _text_parts(path: Path, size: int, read: Callable[..., RawTable]) -> Iterator[RawTable]:
    """Read a text file in parts, if it is large and its bytes are characters."""
    if not is_larger(path, size):
        return iter([read(path)])
    if not _is_wide_encoding(path):
        return _csv_parts(path, size, read)
    if is_compressed(path) and is_larger(path, LARGE_BYTES):
        # A small file may unpack to any number of zeros, which look like UTF-16.
        raise ValueError(
            f"file: {path.name} unpacks to more than {LARGE_BYTES >> 20} MiB of text in UTF-16 or UTF-32, "
            "which is not read in parts. Save it as UTF-8."
        )
    return iter([read(path)])


def _is_wide_encoding(path: Path) -> bool:
    """Whether the text is in UTF-16 or UTF-32, in which a byte is not a character."""
    with open_text(path) as file:
        start = file.read(4)
    check_compression(path, start)
    return b"\0" in start or start[:2] in (b"\xff\xfe", b"\xfe\xff")


def _csv_parts(path: Path, size: int, read: Callable[..., RawTable]) -> Iterator[RawTable]:
    records = _records(path, size)
    header, noted, lines = next(records), set[str](), 0
    with tempfile.TemporaryDirectory() as folder:
        # Every part is a file of its own, so that there is one reader of CSV files.
        part = Path(folder) / path.name
        for text in records:
            # A compressed file has parts with the same suffix, since errors name it; level 0 only copies.
            content = header + text
            part.write_bytes(gzip.compress(content, 0) if is_compressed(path) else content)
            try:
                table = read(part, allow_empty=True)
            except ValueError as error:
                raise ValueError(_later_lines(str(error), lines)) from error
            # What is said about the whole file, such as its encoding, is said once.
            table.notes = [note for note in table.notes if note.rows or note.kind not in noted]
            noted |= {note.kind for note in table.notes if not note.rows}
            table.notes = [replace(note, text=_later_lines(note.text, lines)) for note in table.notes]
            lines += len(_LINE_END.findall(text))
            yield table


def _later_lines(message: str, lines: int) -> str:
    """Count the lines in a message about a part from the beginning of the file."""
    pattern = r"((?:, line|\(line|lines up to) )(\d+)"
    return re.sub(pattern, lambda match: f"{match[1]}{int(match[2]) + lines}", message)


def _records(path: Path, size: int) -> Iterator[bytes]:
    """Yield the header, then whole records of together about `size` bytes."""
    with open_text(path) as file:
        rest, header_found = b"", False
        while block := file.read(size):
            rest += block
            if not header_found:
                end = _header_end(rest)
                if end:
                    yield rest[:end]
                    rest, header_found = rest[end:], True
            end = _last_record_end(rest) if header_found else 0
            if end:
                yield rest[:end]
                rest = rest[end:]
            if len(rest) > max(size, MAX_RECORD_BYTES):
                raise ValueError(
                    f"file: {path.name} has a record of more than {MAX_RECORD_BYTES >> 20} MiB; a quotation "
                    "mark is probably not closed. Close it, or double it if it belongs to the text."
                )
        if rest:
            yield rest


def _header_end(text: bytes) -> int:
    """End of the header, with a line before it that names the separator; 0 if it is not complete."""
    end = _first_record_end(text)
    if SEPARATOR_LINE.fullmatch(text[:end].removeprefix(b"\xef\xbb\xbf").decode("latin-1")):
        length = _first_record_end(text[end:])
        return end + length if length else 0
    return end


#: As in the general reader, which also ends a line at a carriage return alone.
_LINE_END = re.compile(rb"\r\n?|\n")


def _first_record_end(text: bytes) -> int:
    """End of the first line up to which all quotation marks are closed, or 0."""
    marks = start = 0
    for line_end in _LINE_END.finditer(text):
        marks += text.count(b'"', start, line_end.start())
        start = line_end.end()
        if marks % 2 == 0:
            return start
    return 0


def _last_record_end(text: bytes) -> int:
    """End of the last line up to which all quotation marks are closed, or 0."""
    end = len(text)
    marks = text.count(b'"')
    while (found := max(text.rfind(b"\n", 0, end), text.rfind(b"\r", 0, end))) >= 0:
        marks -= text.count(b'"', found + 1, end)
        if marks % 2 == 0:
            return found + 1
        end = found
    return 0


def _parquet_parts(files: list[Path], name: str, rows: int) -> Iterator[RawTable]:
    import pyarrow as pa
    from pyarrow import dataset

    try:
        source = dataset.dataset([str(file) for file in files], format="parquet")
        with_gaps = _columns_with_gaps(files, source.schema)
        for batch in source.to_batches(batch_size=rows, use_threads=False, batch_readahead=1):
            # Arrow trusts the offsets in a file, so that a damaged one can crash the interpreter.
            batch.validate(full=True)
            if not batch.num_rows:
                continue
            frame = batch.to_pandas()
            # pandas stores integers beside missing values as floats; all parts must agree.
            frame = frame.astype(dict.fromkeys(with_gaps, np.float64))
            yield RawTable(frame.rename(columns=str).reset_index(drop=True), name)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"file: {name} cannot be read as Parquet ({reason}); it is damaged or its files differ in their "
            "columns. Write it again."
        ) from error


def _columns_with_gaps(files: list[Path], schema: Any) -> list[str]:
    """Integer columns with a missing value somewhere, according to the statistics in the files."""
    import pyarrow as pa
    from pyarrow import parquet

    integers = [column.name for column in schema if pa.types.is_integer(column.type)]
    found = set()
    for file in files:
        metadata = parquet.read_metadata(file)
        for group in range(metadata.num_row_groups):
            for number in range(metadata.num_columns):
                column = metadata.row_group(group).column(number)
                statistics = column.statistics
                if statistics is None or not statistics.has_null_count or statistics.null_count:
                    found.add(column.path_in_schema)
    return [name for name in integers if name in found]


class TableWriter:
    """Writes a table part by part, in the format of the file's suffix.

    The file stays open: one that is deleted meanwhile is missed at the end, not begun again.
    """

    def __init__(self, path: Path, file_format: FileFormat, separator: str | None) -> None:
        self.kind = file_format.kind
        self.separator = "\t" if self.kind == "TSV" else separator or ","
        self._plain = path.open("wb")
        self._file = compress_into(self._plain) if file_format.is_compressed else self._plain
        self._parquet: Any = None
        self._is_new = True

    def write(self, frame: pd.DataFrame) -> None:
        """Append rows."""
        if self.kind == "Parquet":
            self._write_parquet(frame)
        elif self.kind == "JSON lines":
            self._file.writelines(line.encode() for line in json_lines(frame))
        elif not write_plain(frame := guard_answers(frame), self._file, self.separator, header=self._is_new):
            self._file.write(csv_text(frame, self.separator, header=self._is_new).encode())
        self._is_new = False

    def _write_parquet(self, frame: pd.DataFrame) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        if self._parquet is None:
            schema = pa.Schema.from_pandas(frame, preserve_index=False)
            # A column that is blank so far may hold text later.
            fields = [f.with_type(pa.string()) if pa.types.is_null(f.type) else f for f in schema]
            self._parquet = parquet.ParquetWriter(self._file, pa.schema(fields, schema.metadata))
        self._parquet.write_table(
            pa.Table.from_pandas(frame, schema=self._parquet.schema, preserve_index=False)
        )

    def close(self) -> None:
        """Finish the file."""
        with self._plain, self._file:
            if self._parquet is not None:
                self._parquet.close()


@contextmanager
def table_writer(path: Path, separator: str | None) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Yield a function that appends rows; the file appears under its name when all are written.

    Formats that cannot be appended to (Excel, Feather, JSON) are kept in memory until the end.
    """
    file_format = writable_format(path)
    if file_format.kind not in ("CSV", "TSV", "Parquet", "JSON lines"):
        frames: list[pd.DataFrame] = []
        yield frames.append
        write_table(pd.concat(frames), path)
        return
    with replacing(path) as part:
        writer = TableWriter(part, file_format, separator)
        try:
            yield writer.write
        finally:
            writer.close()


def merge_notes(notes: list[DataNote], new: list[DataNote]) -> list[DataNote]:
    """Join notes of several parts; notes that differ only in their rows become one."""
    merged = {(note.kind, note.text, note.action): note for note in notes}
    for note in new:
        key = (note.kind, note.text, note.action)
        known = merged.get(key)
        merged[key] = note if known is None else replace(known, rows=known.rows + note.rows)
    return list(merged.values())


@dataclass
class PredictionSummary:
    """What was predicted: rows and mean probability of each label."""

    notes: list[DataNote] = field(default_factory=list)
    totals: dict[str, tuple[int, float]] = field(default_factory=dict)  # rows and sum of probabilities

    def add(self, counts: Mapping[str, tuple[int, float]], notes: list[DataNote]) -> None:
        """Add rows and mean probability by label of another part."""
        for name, (rows, mean) in counts.items():
            known_rows, total = self.totals.get(name, (0, 0.0))
            self.totals[name] = (known_rows + rows, total + rows * mean)
        self.notes = merge_notes(self.notes, notes)

    @property
    def rows(self) -> int:
        """Number of rows predicted."""
        return sum(rows for rows, _ in self.totals.values())

    @property
    def mean_probability(self) -> float:
        """Mean probability of the predicted labels."""
        return sum(total for _, total in self.totals.values()) / self.rows if self.rows else float("nan")

    def counts(self) -> list[tuple[str, int, float]]:
        """Label, number of rows and mean probability, most frequent first."""
        rows = [(name, rows, total / rows) for name, (rows, total) in self.totals.items()]
        return sorted(rows, key=lambda row: (-row[1], row[0]))

    def as_dict(self) -> dict[str, Any]:
        """Convert to plain JSON."""
        names = ("label", "rows", "mean_probability")
        return {
            "rows": self.rows,
            "labels": [dict(zip(names, row, strict=True)) for row in self.counts()],
            "mean_probability": self.mean_probability,
            "remarks": [note.as_dict() for note in self.notes],
        }


def predict_to_file(
    model: TableModel,
    parts: Iterator[RawTable],
    out: str | Path,
    *,
    embedding: Any = None,
    all_probabilities: bool = False,
) -> PredictionSummary:
    """Predict a table part by part and write it with the predictions.

    Args:
        model: the model.
        parts: from `read_parts`, or a single table.
        out: the file to write.
        embedding: precomputed features of a single table.
        all_probabilities: add the probabilities of all classes.
    """
    summary = PredictionSummary()
    first = next(parts)
    with table_writer(Path(out), first.separator) as write:
        part: RawTable | None = first
        while part is not None:
            predicted = predict_file(model, part, embedding=embedding, all_probabilities=all_probabilities)
            write(predicted.frame)
            counts = {name: (rows, mean) for name, rows, mean in predicted.counts()}
            summary.add(counts, predicted.notes)
            part = next(parts, None)
    return summary


@dataclass
class ResolutionSummary:
    """What was resolved; the fields and methods of a `ResolvedTable` that do not need its rows."""

    rate: float | None
    unfinished: bool
    n_rows: int = 0
    n_resolved: int = 0
    ambiguous: int = 0
    sure: int = 0
    doubted: int = 0
    n_seen: int = 0
    notes: list[DataNote] = field(default_factory=list)
    totals: dict[str, tuple[int, int, float]] = field(default_factory=dict)
    annotators: tuple[tuple[str, float], ...] = ()

    def add(self, part: ResolvedTable) -> None:
        """Add a part of the table."""
        self.n_rows += len(part.raw.frame)
        self.n_resolved += len(part.resolution)
        self.ambiguous += part.ambiguous
        self.sure += part.sure
        self.doubted += part.doubted
        self.n_seen += int(part.seen.sum())
        self.notes = merge_notes(self.notes, part.notes)
        for row in part.counts():
            before, after, total = self.totals.get(row.name, (0, 0, 0.0))
            part_total = row.after * row.probability if row.after else 0.0
            self.totals[row.name] = (before + row.before, after + row.after, total + part_total)

    def merge(self, other: "ResolutionSummary") -> None:
        """Add what was resolved of another file."""
        for name in ("n_rows", "n_resolved", "ambiguous", "sure", "doubted", "n_seen"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.notes = merge_notes(self.notes, other.notes)
        for name, (before, after, total) in other.totals.items():
            known = self.totals.get(name, (0, 0, 0.0))
            self.totals[name] = (known[0] + before, known[1] + after, known[2] + total)

    def counts(self) -> list[LabelCount]:
        """All labels before and after resolving, most frequent first."""
        rows = [
            LabelCount(name, before, after, total / after if after else float("nan"))
            for name, (before, after, total) in self.totals.items()
        ]
        return sorted(rows, key=lambda row: (-row.after, row.name))

    def as_dict(self) -> dict[str, Any]:
        """Convert to plain JSON, as `ResolvedTable.as_dict`."""
        return {
            "rows": self.n_rows,
            "resolved": self.n_resolved,
            "ambiguous": self.ambiguous,
            "sure": self.sure,
            "doubted": self.doubted,
            "sets_without_truth": self.rate,
            "fitted_on": self.n_seen,
            "annotators": [],
            "labels": [
                {**row._asdict(), "probability": None if np.isnan(row.probability) else row.probability}
                for row in self.counts()
            ],
            "remarks": [note.as_dict() for note in self.notes],
        }


def can_resolve_in_parts(model: TableModel, source: LabelSource | None) -> bool:
    """Whether rows can be resolved without knowing all answers of all annotators or models."""
    labels = model.labels if source is None else source
    by_people = labels.item or labels.votes or labels.annotators
    by_models = labels.scores or labels.lists
    return not (by_people or by_models) and model.features.images is None


def resolve_to_file(
    model: TableModel,
    parts: Callable[[], Iterator[RawTable]],
    out: str | Path,
    source: LabelSource | None = None,
    *,
    alternatives: int = 3,
) -> ResolutionSummary:
    """Resolve a table part by part and write it with the resolved labels.

    The table is read twice: the share of candidate sets without the true label is estimated from all rows
    first. The result is that of `resolve_file` on the whole table.

    Args:
        model: the model.
        parts: returns the parts of the table from the beginning.
        out: the file to write.
        source: where the labels are, if not where they were in the fit.
        alternatives: maximum number of alternatives per row.
    """
    odds = np.concatenate([part_odds(model, part, source) for part in parts()])
    return write_resolved(model, parts(), out, estimate_set_rate(model, odds, source), source, alternatives)


class SetRate(NamedTuple):
    """Share of candidate sets without the true label: for the doubts of single rows, and the estimate."""

    last: float
    rate: float


def estimate_set_rate(
    model: TableModel, odds: NDArray[np.float64], source: LabelSource | None = None
) -> SetRate:
    """Estimate the share of candidate sets without the true label from the `part_odds` of all rows."""
    known_rate = model.account.get("sets_without_truth") if source is None else None
    return SetRate(*estimate_rate(odds, known_rate))


def part_odds(model: TableModel, part: RawTable, source: LabelSource | None = None) -> NDArray[np.float64]:
    """Log-odds of each row of a part that its candidate set lacks the true label."""
    labeled = read_candidates(model, part, source)
    if labeled is None:
        return _odds(resolve_file(model, part, source).resolution)  # raises an error
    resolution, _ = model.resolve(part.frame.iloc[labeled.rows], labeled.labels, folder=part.folder)
    return _odds(resolution)


def write_resolved(
    model: TableModel,
    reader: Iterator[RawTable],
    out: str | Path,
    set_rate: SetRate,
    source: LabelSource | None = None,
    alternatives: int = 3,
) -> ResolutionSummary:
    """Write the parts of a table with the resolved labels, given the share of sets without the true one."""
    last, rate = set_rate
    summary = ResolutionSummary(rate, unfinished=model.is_unfinished)
    first = next(reader)
    with table_writer(Path(out), first.separator) as write:
        part: RawTable | None = first
        while part is not None:
            resolved = resolve_file(model, part, source)
            doubt = doubt_at(_odds(resolved.resolution), last)
            resolved.consensus = resolved.consensus._replace(doubt=doubt, rate=rate)
            write(resolved.frame(alternatives))
            summary.add(resolved)
            part = next(reader, None)
    return summary


def _odds(resolution: Resolution) -> NDArray[np.float64]:
    return set_error_odds(resolution.log_probabilities, resolution.candidates)

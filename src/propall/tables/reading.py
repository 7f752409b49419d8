"""Read tables from files, with cells as they are written; repairs are noted."""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from propall.labels import votes
from propall.labels.inputs import is_missing
from propall.wording import did_you_mean, list_names

#: What was done about something noted, most severe first.
Action = Literal[
    "row dropped",
    "left blank",
    "repaired",
    "column left out",
    "used as requested",
    "held out together",
    "noted",
]
ACTIONS: tuple[Action, ...] = get_args(Action)

#: File formats by suffix.
FORMATS = {
    ".csv": "CSV",
    ".txt": "CSV",
    ".tsv": "TSV",
    ".parquet": "Parquet",
    ".pq": "Parquet",
    ".feather": "Feather",
    ".arrow": "Feather",
    ".jsonl": "JSON lines",
    ".ndjson": "JSON lines",
    ".json": "JSON",
    ".xlsx": "Excel",
    ".xls": "Excel",
    ".ods": "Excel",
}
#: Libraries that pandas needs to read or write a spreadsheet; other binary formats need pyarrow.
SPREADSHEET_LIBRARIES = {".xlsx": "openpyxl", ".xls": "xlrd", ".ods": "odfpy"}


@dataclass(frozen=True)
class DataNote:
    """An observation about a table that its owner should know, and what was done about it."""

    kind: str  # a category of two or three words
    text: str
    action: Action = "noted"
    rows: tuple[int, ...] = ()  # counted from 0 below the header

    def __str__(self) -> str:
        if not self.rows:
            return self.text
        shown = ", ".join(str(row + 1) for row in self.rows[:5])
        more = f" and {len(self.rows) - 5} more" if len(self.rows) > 5 else ""
        return f"{self.text} ({'row' if len(self.rows) == 1 else 'rows'} {shown}{more})"

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON, with rows counted from 1 below the header."""
        return {**vars(self), "rows": [row + 1 for row in self.rows]}


def note_rows(notes: list[DataNote], kind: str, text: str, action: Action, rows: Iterable[Any]) -> None:
    """Add a note on some rows, if there are any."""
    numbers = tuple(map(int, rows))
    if numbers:
        notes.append(DataNote(kind, text, action, numbers))


@dataclass
class RawTable:
    """A table as read from a file: one row per line, numbered from 0; cells of text files are text."""

    frame: pd.DataFrame
    source: str = "table"  # a description of where it came from
    notes: list[DataNote] = field(default_factory=list)
    tasks: list[dict[str, Any]] | None = None  # of a Label Studio export; their data fields are the frame
    answers: list[list[Any]] | None = None  # the answers on each row, if the file has one answer per line
    annotators: list[list[str]] | None = None  # who gave each of these answers, if known
    folder: Path = field(default_factory=Path)  # base of relative paths in cells
    separator: str | None = None  # between the columns of a CSV file

    @property
    def n_file_rows(self) -> int:
        """Number of rows in the file, including those that were dropped."""
        return len(self.frame) + sum(len(note.rows) for note in self.notes if note.action == "row dropped")

    def select_rows(self, embedding: NDArray[Any]) -> NDArray[Any]:
        """Select the frame's rows from precomputed features with one row per row of the file."""
        if self.answers is not None:
            raise ValueError("embeddings: not supported with one answer per line; use one row per item.")
        if len(embedding) != self.n_file_rows:
            n = self.n_file_rows
            raise ValueError(
                f"embeddings: got {len(embedding)} rows for {n} rows in the table; pass one each."
            )
        kept: NDArray[Any] = np.asarray(embedding)[self.frame.index.to_numpy()]
        return kept

    def column(self, name: str, parameter: str = "column") -> "pd.Series[Any]":
        """Return a column by name; the error about an unknown one suggests similar names."""
        if name not in self.frame.columns:
            names = [str(column) for column in self.frame.columns]
            hint = did_you_mean(name, names) or f"it has {list_names(names, 12)}."
            raise ValueError(f"{parameter}: {self.source} has no column {name!r}; {hint}")
        return self.frame[name]


def read_table(source: str | Path | pd.DataFrame) -> RawTable:
    """Read a table from a data frame, a file in one of the `FORMATS`, or a Label Studio export."""
    if isinstance(source, pd.DataFrame):
        frame, notes = _name_columns(source.reset_index(drop=True), [str(c) for c in source.columns])
        return RawTable(frame, "data frame", notes)
    path = Path(source)
    if path.is_dir():
        raise ValueError(f"file: {path} is a folder; expected a file with a suffix such as .csv.")
    kind = FORMATS.get(path.suffix.lower())
    if kind is None:
        suffix = f"the suffix {path.suffix}" if path.suffix else "no suffix"
        raise ValueError(f"file: {path.name} has {suffix}; expected {', '.join(FORMATS)}.")
    if not path.exists():
        here = [other.name for other in path.parent.glob("*")] if path.parent.is_dir() else []
        hint = did_you_mean(path.name, here) or "check the path."
        raise FileNotFoundError(f"file: {path} does not exist; {hint}")
    readers = {"CSV": _read_csv, "TSV": _read_csv, "JSON lines": _read_json_lines, "JSON": _read_json}
    table = readers.get(kind, _read_binary)(path)
    table.folder = path.parent
    if not len(table.frame):
        problem = "has no rows below its header" if path.stat().st_size else "is empty"
        raise ValueError(f"file: {path} {problem}.")
    return table


def _read_csv(path: Path) -> RawTable:
    text, notes = decode_text(path.read_bytes(), path.name)
    separator = "\t" if path.suffix.lower() == ".tsv" else _guess_separator(text)
    if separator != "," and path.suffix.lower() != ".tsv":
        what = {";": "semicolons", "\t": "tabs"}[separator]
        notes.append(DataNote("separator", f"columns are separated by {what}"))
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        header = next(lines, [])
        rows = [row for row in lines if row]  # skip blank lines
    except csv.Error as error:
        raise ValueError(f"file: {path.name}, line {lines.line_num}: {error}. Correct this line.") from error
    header = [name.strip() for name in header]
    while header and not header[-1] and all(len(row) < len(header) or not row[-1] for row in rows):
        header.pop()  # every line ends with a separator
        rows = [row[: len(header)] for row in rows]
    width = len(header)
    empty = [i for i, row in enumerate(rows) if not any(map(str.strip, row))]
    long = [i for i, row in enumerate(rows) if len(row) > width and any(map(str.strip, row[width:]))]
    short = [i for i in np.setdiff1d(np.arange(len(rows)), empty).tolist() if len(rows[i]) < width]
    note_rows(notes, "empty row", "every cell is blank", "row dropped", empty)
    than_header = f"cells than the {width} columns of the header"
    note_rows(notes, "too many cells", f"more {than_header}", "row dropped", long)
    text = f"fewer {than_header}; the last are read as missing"
    note_rows(notes, "too few cells", text, "repaired", short)
    cells = [(row + [""] * (width - len(row)))[:width] for row in rows]
    frame = pd.DataFrame(np.array(cells, dtype=object).reshape(len(cells), width), dtype=object)
    frame, renamed = _name_columns(frame, header)
    # Rows are dropped last, so that all notes count rows of the file.
    csv_separator = None if path.suffix.lower() == ".tsv" else separator
    return RawTable(frame.drop(index=long + empty), path.name, notes + renamed, separator=csv_separator)


def decode_text(data: bytes, name: str) -> tuple[str, list[DataNote]]:
    """Decode a text file, with a note if it is neither UTF-8 nor UTF-16."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    elif b"\0" in data[:2]:  # UTF-16 without a byte order mark: half of the first letter is zero
        encoding = "utf-16-be" if data[0] == 0 else "utf-16-le"
    else:
        encoding = "utf-8-sig"
    try:
        return data.decode(encoding), []
    except UnicodeDecodeError:
        text = data.decode("cp1252", errors="replace")
        return text, [DataNote("encoding", f"{name} is not UTF-8; read as Windows-1252", "repaired")]


def _guess_separator(text: str) -> str:
    header = re.split(r"[\r\n]", text, maxsplit=1)[0]
    counts = {sign: len(next(csv.reader([header], delimiter=sign), [])) for sign in (",", ";", "\t")}
    return max(counts, key=lambda sign: (counts[sign], sign == ","))


def _name_columns(frame: pd.DataFrame, header: Sequence[str]) -> tuple[pd.DataFrame, list[DataNote]]:
    """Give every column a unique name; repeated columns with equal cells are dropped."""
    notes, names, kept = [], [], []
    unnamed = [number for number, name in enumerate(header, 1) if not name]
    if unnamed:
        text = f"columns {list_names(unnamed)} have no name; named by position"
        notes.append(DataNote("unnamed column", text, "repaired"))
    titles = [name or f"column {number}" for number, name in enumerate(header, 1)]
    seen: Counter[str] = Counter()
    first: dict[str, int] = {}
    for i, title in enumerate(titles):
        seen[title] += 1
        name = title if seen[title] == 1 else f"{title} ({seen[title]})"
        if seen[title] == 1:
            first[title] = i
        else:
            text = f"{title!r} is in the header {_times(titles.count(title))}"
            if frame.iloc[:, i].equals(frame.iloc[:, first[title]]):
                text = f"{text} with the same cells; one is kept"
                notes.append(DataNote("duplicate heading", text, "column left out"))
                continue
            notes.append(DataNote("duplicate heading", f"{text}; another is renamed {name!r}", "repaired"))
        names.append(name)
        kept.append(i)
    frame = frame.iloc[:, kept].copy()
    frame.columns = pd.Index(names, dtype=object)
    return frame, notes


def _read_json_lines(path: Path) -> RawTable:
    text, notes = decode_text(path.read_bytes(), path.name)
    records, bad = [], []
    for number, line in enumerate(line for line in text.split("\n") if line.strip()):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            record = None
        if not isinstance(record, dict):
            bad.append(number)
            record = {}
        records.append(record)
    note_rows(notes, "broken line", "not a JSON object", "row dropped", bad)
    frame = pd.DataFrame(_columns(records), dtype=object)
    return RawTable(frame.drop(index=bad), path.name, notes)


def _columns(records: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for record in records for name in record)
    return {str(name): [record.get(name) for record in records] for name in names}


def _read_json(path: Path) -> RawTable:
    text, notes = decode_text(path.read_bytes(), path.name)
    try:
        records = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"file: {path.name} is not JSON ({error}); use the suffix .jsonl for one JSON object per line."
        ) from error
    if not isinstance(records, list) or not records or not all(isinstance(r, dict) for r in records):
        raise ValueError(f"file: {path.name} is not a list of JSON objects.")
    if all(isinstance(r.get("data"), dict) and ("annotations" in r or "completions" in r) for r in records):
        tasks = votes.label_studio_tasks(records, "file")
        frame = pd.DataFrame(_columns([task["data"] for task in tasks]), dtype=object)
        return RawTable(frame, f"{path.name} (Label Studio export)", notes, tasks)
    return RawTable(pd.DataFrame(_columns(records), dtype=object), path.name, notes)


def _read_binary(path: Path) -> RawTable:
    ending = path.suffix.lower()
    kind = FORMATS[ending]
    reader = getattr(pd, f"read_{kind.lower()}")
    try:
        frame = reader(path)
    except ImportError as error:
        library = SPREADSHEET_LIBRARIES.get(ending, "pyarrow")
        raise ValueError(f"file: reading {ending} needs {library}; pip install {library}.") from error
    names = frame.columns
    if kind == "Excel":
        # pandas renames repeated names to "name.1", so the header is read again as it is written.
        names = reader(path, header=None, nrows=1).iloc[0]
    header = ["" if kind == "Excel" and is_missing(name) else str(name) for name in names]
    frame, notes = _name_columns(frame.reset_index(drop=True), header)
    return RawTable(frame, path.name, notes)


def _times(count: int) -> str:
    return {2: "twice", 3: "three times"}.get(count, f"{count} times")

"""Files to tables of cells as they are written; whatever had to be mended on the way is remarked."""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from propall.labels import votes
from propall.labels.parsing import is_missing
from propall.wording import did_you_mean, listed

#: What was done about something, the gravest first: rows or columns left out, a repair, nothing.
Action = Literal[
    "row dropped", "left blank", "repaired", "column left out", "used as asked", "held out together", "noted"
]
ACTIONS: tuple[Action, ...] = get_args(Action)

#: Endings that are read, and what they are.
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
#: What pandas reads and writes them with, where that is a library of its own.
NEEDED = {
    ".parquet": "pyarrow",
    ".pq": "pyarrow",
    ".feather": "pyarrow",
    ".arrow": "pyarrow",
    ".xlsx": "openpyxl",
    ".xls": "xlrd",
    ".ods": "odfpy",
}


@dataclass(frozen=True)
class Remark:
    """Something about a file that its owner should know.

    Attributes:
        kind: what it is, in two or three words; remarks of one kind are counted together.
        text: what was found and what was done.
        action: whether anything was changed.
        rows: the rows concerned, counted from 0 below the heading.
    """

    kind: str
    text: str
    action: Action = "noted"
    rows: tuple[int, ...] = ()

    def __str__(self) -> str:
        if not self.rows:
            return self.text
        shown = ", ".join(str(row + 1) for row in self.rows[:5])
        more = f" and {len(self.rows) - 5} more" if len(self.rows) > 5 else ""
        return f"{self.text} (row{'s' * (len(self.rows) > 1)} {shown}{more})"

    def as_dict(self) -> dict[str, Any]:
        """For JSON; rows counted from 1 below the heading, as people count."""
        return {
            "kind": self.kind,
            "text": self.text,
            "action": self.action,
            "rows": [r + 1 for r in self.rows],
        }


@dataclass
class Sheet:
    """A table as it was read.

    Attributes:
        frame: one row per line of the file, numbered from 0; cells of text files are text.
        source: where it came from, in words.
        remarks: what had to be mended.
        tasks: the tasks of a Label Studio export, whose data fields are the frame.
        answers: what people answered on each row, where the file has a line per answer.
        people: who gave each of these answers, where that is known.
        folder: where relative paths in cells start from.
        separator: what stands between two columns of a CSV file.
    """

    frame: pd.DataFrame
    source: str = "table"
    remarks: list[Remark] = field(default_factory=list)
    tasks: list[dict[str, Any]] | None = None
    answers: list[list[Any]] | None = None
    people: list[list[str]] | None = None
    folder: Path = field(default_factory=Path)
    separator: str | None = None

    @property
    def whole(self) -> int:
        """Rows of the file, those that could not be read included."""
        return len(self.frame) + sum(len(r.rows) for r in self.remarks if r.action == "row dropped")

    def rows_of(self, embedding: NDArray[Any]) -> NDArray[Any]:
        """The rows of precomputed features, one for each of the file, that belong to the frame's."""
        if self.answers is not None:
            raise ValueError(
                "embeddings: a file with a line per answer cannot have any; make a table with a row per item."
            )
        if len(embedding) != self.whole:
            raise ValueError(
                f"embeddings: {len(embedding)} rows for {self.whole} rows of the table; give one for each."
            )
        kept: NDArray[Any] = np.asarray(embedding)[self.frame.index.to_numpy()]
        return kept

    def column(self, name: str, parameter: str = "column") -> "pd.Series[Any]":
        """A column by name; an unknown one is answered with the near ones."""
        if name not in self.frame.columns:
            names = [str(column) for column in self.frame.columns]
            hint = did_you_mean(name, names) or f"there are {listed(names, 12)}."
            raise ValueError(f"{parameter}: {self.source} has no column {name!r}; {hint}")
        return self.frame[name]


def read(source: str | Path | pd.DataFrame) -> Sheet:
    """Read a table.

    Args:
        source: the path of a CSV, TSV, Parquet, Feather, JSON-lines or Excel file or of a Label Studio export
            (JSON), or a data frame.
    """
    if isinstance(source, pd.DataFrame):
        frame, remarks = _named_apart(source.reset_index(drop=True), [str(c) for c in source.columns])
        return Sheet(frame, "data frame", remarks)
    path = Path(source)
    kind = FORMATS.get(path.suffix.lower())
    if kind is None:
        raise ValueError(
            f"file: {path.name} ends in {path.suffix or 'nothing'}; expected {', '.join(FORMATS)}."
        )
    if not path.exists():
        here = [other.name for other in path.parent.glob("*")] if path.parent.is_dir() else []
        hint = did_you_mean(path.name, here) or "check its name and folder."
        raise FileNotFoundError(f"file: there is no {path}; {hint}")
    readers = {
        "CSV": _read_separated,
        "TSV": _read_separated,
        "JSON lines": _read_json_lines,
        "JSON": _read_json,
        "Parquet": _read_binary,
        "Feather": _read_binary,
        "Excel": _read_binary,
    }
    sheet = readers[kind](path)
    sheet.folder = path.parent
    if not len(sheet.frame):
        raise ValueError(f"file: {path} has no rows below its heading.")
    return sheet


def _read_separated(path: Path) -> Sheet:
    text, remarks = decoded(path.read_bytes(), path.name)
    separator = "\t" if path.suffix.lower() == ".tsv" else _separator(text)
    if separator != "," and path.suffix.lower() != ".tsv":
        what = {";": "semicolons", "\t": "tabs"}[separator]
        remarks.append(Remark("separator", f"columns are separated by {what}"))
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        heading = next(lines, [])
        rows = [row for row in lines if row]  # a line break alone is no row
    except csv.Error as error:
        raise ValueError(f"file: {path.name}, line {lines.line_num}: {error}. Mend this line.") from error
    heading = [name.strip() for name in heading]
    while heading and not heading[-1] and all(len(row) < len(heading) or not row[-1] for row in rows):
        heading.pop()  # a separator at the end of every line
        rows = [row[: len(heading)] for row in rows]
    width = len(heading)
    empty = [i for i, row in enumerate(rows) if not any(map(str.strip, row))]
    long = [i for i, row in enumerate(rows) if len(row) > width and any(map(str.strip, row[width:]))]
    short = [i for i, row in enumerate(rows) if len(row) < width and i not in set(empty)]
    if empty:
        remarks.append(Remark("empty row", "nothing in any cell", "row dropped", tuple(empty)))
    if long:
        text = f"more cells than the heading's {width} names: which is which is not known"
        remarks.append(Remark("cells too many", text, "row dropped", tuple(long)))
    if short:
        text = f"fewer cells than the heading's {width} names; the last ones are taken as missing"
        remarks.append(Remark("cells too few", text, "repaired", tuple(short)))
    cells = [(row + [""] * (width - len(row)))[:width] for row in rows]
    frame = pd.DataFrame(np.array(cells, dtype=object).reshape(len(cells), width), dtype=object)
    frame, renamed = _named_apart(frame, heading)
    # Dropped rows keep their places until the end, so that all remarks count the file's own rows.
    own = None if path.suffix.lower() == ".tsv" else separator
    return Sheet(frame.drop(index=long + empty), path.name, remarks + renamed, separator=own)


def decoded(data: bytes, name: str) -> tuple[str, list[Remark]]:
    """The text of a file, and a remark where it is neither UTF-8 nor UTF-16."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    elif b"\0" in data[:2]:  # UTF-16 that does not say so: half of its first letter is zero
        encoding = "utf-16-be" if data[0] == 0 else "utf-16-le"
    else:
        encoding = "utf-8-sig"
    try:
        return data.decode(encoding), []
    except UnicodeDecodeError:
        text = data.decode("cp1252", errors="replace")
        return text, [Remark("encoding", f"{name} is not UTF-8; read as Windows-1252", "repaired")]


def _separator(text: str) -> str:
    heading = re.split(r"[\r\n]", text, maxsplit=1)[0]
    counts = {sign: len(next(csv.reader([heading], delimiter=sign), [])) for sign in (",", ";", "\t")}
    return max(counts, key=lambda sign: (counts[sign], sign == ","))


def _named_apart(frame: pd.DataFrame, heading: Sequence[str]) -> tuple[pd.DataFrame, list[Remark]]:
    """The frame with every column named, each name once; a repeated column that says the same goes."""
    remarks, names, kept = [], [], []
    given = [name or f"column {place}" for place, name in enumerate(heading, 1)]
    blank = [place for place, name in enumerate(heading, 1) if not name]
    if blank:
        remarks.append(
            Remark("nameless column", f"columns {listed(blank)} have no name; called so", "repaired")
        )
    seen: Counter[str] = Counter()
    first: dict[str, int] = {}
    for place, name in enumerate(given):
        seen[name] += 1
        if seen[name] == 1:
            first[name] = place
        elif frame.iloc[:, place].equals(frame.iloc[:, first[name]]):
            text = (
                f"{name!r} stands {_times(given.count(name))} in the heading with the same cells; one is kept"
            )
            remarks.append(Remark("duplicate heading", text, "column left out"))
            continue
        names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
        kept.append(place)
        if seen[name] > 1:
            text = (
                f"{name!r} stands {_times(given.count(name))} in the heading; another is called {names[-1]!r}"
            )
            remarks.append(Remark("duplicate heading", text, "repaired"))
    frame = frame.iloc[:, kept].copy()
    frame.columns = pd.Index(names, dtype=object)
    return frame, remarks


def _read_json_lines(path: Path) -> Sheet:
    text, remarks = decoded(path.read_bytes(), path.name)
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
    if bad:
        text = "no JSON object on the line"
        remarks.append(Remark("broken line", text, "row dropped", tuple(bad)))
    frame = pd.DataFrame(_columns(records), dtype=object)
    return Sheet(frame.drop(index=bad), path.name, remarks)


def _columns(records: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for record in records for name in record)
    return {str(name): [record.get(name) for record in records] for name in names}


def _read_json(path: Path) -> Sheet:
    text, remarks = decoded(path.read_bytes(), path.name)
    try:
        records = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"file: {path.name} is not JSON ({error}); end its name in .jsonl if it has a "
            "JSON object on every line."
        ) from error
    if not isinstance(records, list) or not records or not all(isinstance(r, dict) for r in records):
        raise ValueError(f"file: {path.name} is not a list of JSON objects.")
    if all(isinstance(r.get("data"), dict) and ("annotations" in r or "completions" in r) for r in records):
        tasks = votes.label_studio_tasks(records, "file")
        frame = pd.DataFrame(_columns([task["data"] for task in tasks]), dtype=object)
        return Sheet(frame, f"{path.name} (Label Studio export)", remarks, tasks)
    return Sheet(pd.DataFrame(_columns(records), dtype=object), path.name, remarks)


def _read_binary(path: Path) -> Sheet:
    ending = path.suffix.lower()
    kind = FORMATS[ending]
    readers: dict[str, Callable[..., Any]] = {
        "Parquet": pd.read_parquet,
        "Feather": pd.read_feather,
        "Excel": pd.read_excel,
    }
    reader = readers[kind]
    try:
        frame = reader(path)
    except ImportError as error:
        needed = NEEDED[ending]
        raise ValueError(f"file: reading {ending} needs {needed}; pip install {needed}.") from error
    if kind == "Excel":
        # pandas numbers repeated names itself, as "name.1"; the file's own heading tells them from others.
        heading = [
            "" if is_missing(name) else str(name) for name in reader(path, header=None, nrows=1).iloc[0]
        ]
    else:
        heading = [str(name) for name in frame.columns]
    frame, remarks = _named_apart(frame.reset_index(drop=True), heading)
    return Sheet(frame, path.name, remarks)


def _times(count: int) -> str:
    return {2: "twice", 3: "three times"}.get(count, f"{count} times")

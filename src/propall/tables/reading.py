"""Read tables from files, with cells as they are written; repairs are noted."""

import csv
import io
import json
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from propall.input_files import check_input_file
from propall.labels import votes
from propall.labels.inputs import is_missing
from propall.tables.arrow_text import split_plain
from propall.tables.encodings import decode_text
from propall.tables.file_formats import (
    MAX_UNPACKED,
    check_compression,
    describe_formats,
    describe_suffix,
    find_format,
    is_larger,
    kind_of,
    read_text,
)
from propall.tables.formulas import find_formulas, may_have_formulas, unguard_answers
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

#: Libraries that pandas needs to read or write a spreadsheet; other binary formats need pyarrow.
SPREADSHEET_LIBRARIES = {".xlsx": "openpyxl", ".xls": "xlrd", ".ods": "odfpy"}
#: Most columns of a table, and levels of lists in a JSON cell.
MAX_COLUMNS, MAX_NESTING = 50_000, 20
#: Kinds of the notes on sheets of a spreadsheet that are not read, and on rows longer than the header.
OTHER_SHEETS, TOO_MANY_CELLS = "other sheets", "too many cells"
#: First line of a CSV file that tells Excel the separator; it is not the header.
SEPARATOR_LINE = re.compile(r'"?sep=([,;\t])"?(?:\r\n?|\n)', re.IGNORECASE)


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


def holds_numbers(column: "pd.Series[Any]") -> bool:
    """Whether the cells of a column are numbers or missing, so that none needs to be parsed."""
    return pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype)


@dataclass
class RawTable:
    """A table as read from a file: one row per line, numbered from 0.

    Cells of text files are text; that of large, plain files is kept by Arrow (see `arrow_text`).
    """

    frame: pd.DataFrame
    source: str = "table"  # a description of where it came from
    notes: list[DataNote] = field(default_factory=list)
    tasks: list[dict[str, Any]] | None = None  # of a Label Studio export; their data fields are the frame
    answers: list[list[Any]] | None = None  # the answers on each row, if the file has one answer per line
    annotators: list[list[str]] | None = None  # who gave each of these answers, if known
    folder: Path = field(default_factory=Path)  # base of relative paths in cells
    separator: str | None = None  # between the columns of a CSV file

    @property
    def names(self) -> list[str]:
        """Names of all columns."""
        return [str(name) for name in self.frame.columns]

    def cells(self, name: str) -> "pd.Series[Any]":
        """Return a column."""
        return self.frame[name]

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
        """Return a column by name; see `check_column`."""
        self.check_column(name, parameter)
        return self.frame[name]

    def check_column(self, name: str, parameter: str = "column") -> None:
        """Raise ValueError for an unknown column; the error suggests similar names."""
        names = self.names
        if name not in names:
            hint = did_you_mean(name, names) or f"it has {list_names(names, 12)}."
            raise ValueError(f"{parameter}: {self.source} has no column {name!r}; {hint}")


def read_table(
    source: str | Path | pd.DataFrame, *, encoding: str | None = None, allow_empty: bool = False
) -> RawTable:
    """Read a table from a data frame, a file in one of the formats of `FORMATS`, or a Label Studio export.

    Text files may be compressed with gzip: `table.csv.gz`.

    Args:
        source: a data frame or the path of a file.
        encoding: of a text file; by default UTF-8, UTF-16, UTF-32 or Windows-1252, whichever it reads like.
        allow_empty: return a file without rows as a table without rows; by default it is an error.
    """
    if isinstance(source, pd.DataFrame):
        frame, notes = _name_columns(source.reset_index(drop=True), [str(c) for c in source.columns])
        return RawTable(frame, "data frame", notes)
    path = Path(source)
    if path.is_dir():
        raise ValueError(f"file: {path} is a folder; expected a file with a suffix such as .csv.")
    file_format = find_format(path)
    if file_format is None:
        raise ValueError(f"file: {path.name} has {describe_suffix(path)}; expected {describe_formats()}.")
    check_input_file(path)
    kind = file_format.kind
    if kind in ("Excel", "Parquet", "Feather"):
        table = _read_binary(path, kind)
    else:
        content = read_text(path)
        if content.startswith(b"PK\x03\x04"):
            raise ValueError(
                f"file: {path.name} is a zip file, as spreadsheets are, not {kind}. If it is one, rename "
                "it to .xlsx or .ods."
            )
        check_compression(path, content)
        text, remark = decode_text(content, path.name, encoding)
        readers = {"CSV": _read_csv, "TSV": _read_csv, "JSON lines": _read_json_lines, "JSON": _read_json}
        table = readers[kind](path, text)
        if remark:
            table.notes.insert(0, DataNote("encoding", remark, "repaired"))
    table.folder = path.parent
    if not len(table.frame) and not allow_empty:
        raise no_rows(path, table.names, table.notes)
    if len(table.frame.columns) > MAX_COLUMNS:
        raise ValueError(
            f"file: {path.name} has {len(table.frame.columns)} columns; at most {MAX_COLUMNS} are supported. "
            "Check the separator, or pass the numbers as embeddings."
        )
    return table


def no_rows(path: Path, names: Sequence[str], notes: Sequence[DataNote]) -> ValueError:
    """Return the error about a file of which no row is left."""
    problem = "has no rows below its header" if is_larger(path, 0) else "is empty"
    if any(note.kind == TOO_MANY_CELLS for note in notes):
        problem = f"has more cells in every row than in its header {list_names(names, 3)}"
        problem += "; expected the names of the columns in the first line. Remove what is above them"
    sheets = "".join(f" {note.text}." for note in notes if note.kind == OTHER_SHEETS)
    return ValueError(f"file: {path} {problem}.{sheets}")


def _read_csv(path: Path, text: str) -> RawTable:
    notes: list[DataNote] = []
    first_line = 1
    is_tsv = kind_of(path) == "TSV"
    if named := SEPARATOR_LINE.match(text):
        text, first_line = text[named.end() :], 2
    separator = "\t" if is_tsv else named[1] if named else _guess_separator(text)
    if separator != "," and not is_tsv:
        what = {";": "semicolons", "\t": "tabs"}[separator]
        notes.append(DataNote("separator", f"columns are separated by {what}"))
    csv_separator = None if is_tsv else separator
    plain = split_plain(text, separator)
    if plain is not None:
        notes += _note_formulas(text, plain)
        return RawTable(unguard_answers(plain), path.name, notes, separator=csv_separator)
    records = split_records(text, separator, path.name, first_line)
    header = [name.strip() for name in next(records, [])]
    rows = [row for row in records if row]  # skip blank lines
    width = _used_width(header, rows)
    header = header[:width]
    empty = [i for i, row in enumerate(rows) if not any(map(str.strip, row))]
    long = [i for i, row in enumerate(rows) if len(row) > width and any(map(str.strip, row[width:]))]
    short = [i for i in np.setdiff1d(np.arange(len(rows)), empty).tolist() if len(rows[i]) < width]
    note_rows(notes, "empty row", "every cell is blank", "row dropped", empty)
    than_header = f"cells than the {width} columns of the header"
    note_rows(notes, TOO_MANY_CELLS, f"more {than_header}", "row dropped", long)
    few = f"fewer {than_header}; the last are read as missing"
    note_rows(notes, "too few cells", few, "repaired", short)
    cells = [(row + [""] * (width - len(row)))[:width] for row in rows]
    frame = pd.DataFrame(np.array(cells, dtype=object).reshape(len(cells), width), dtype=object)
    frame, renamed = _name_columns(frame, header)
    # Rows are dropped last, so that all notes count rows of the file.
    frame = frame.drop(index=long + empty)
    notes += renamed + _note_formulas(text, frame)
    return RawTable(unguard_answers(frame), path.name, notes, separator=csv_separator)


def _note_formulas(text: str, frame: pd.DataFrame) -> list[DataNote]:
    if not may_have_formulas(text):
        return []
    advice = "a spreadsheet program may run them in a .csv file. Write .xlsx, in which they are text"
    return [
        DataNote(
            "formulas",
            f"{name!r}: cells such as {cell[:40]!r} look like formulas; {advice}",
            "noted",
            tuple(rows),
        )
        for name, (cell, rows) in find_formulas(frame).items()
    ]


def split_records(text: str, separator: str, name: str, first_line: int = 1) -> Iterator[list[str]]:
    """Split CSV text into records; an unclosed quotation mark is an error, since it would swallow rows.

    Errors count the lines of the file `name`, in which the text begins at `first_line`.
    """
    _allow_long_fields(text)
    lines_of_record: list[str] = []

    def lines() -> Iterator[str]:
        for line in io.StringIO(text, newline=""):
            lines_of_record.append(line)
            yield line

    reader = csv.reader(lines(), delimiter=separator)
    while True:
        first = reader.line_num + first_line
        lines_of_record.clear()
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            last = reader.line_num + first_line - 1
            raise ValueError(f"file: {name}, line {last}: {error}. Correct this line.") from error
        if len(lines_of_record) > 1 or (record and record[-1].endswith("\n")):
            try:
                list(csv.reader(lines_of_record, delimiter=separator, strict=True))
            except csv.Error:
                raise ValueError(
                    f"file: {name}, line {first}: a quotation mark is not closed, so that the lines up to "
                    f"{reader.line_num + first_line - 1} would be one cell. Close it, or double it if it "
                    "belongs to the text."
                ) from None
        yield record


def _allow_long_fields(text: str) -> None:
    # The limit belongs to the whole process. It is only raised, so that threads do not disturb each other.
    if csv.field_size_limit() < len(text):
        csv.field_size_limit(len(text))


def _used_width(header: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return the number of columns without those at the end that have neither a name nor a cell."""
    width = max((i for i, name in enumerate(header, 1) if name), default=0)
    for row in rows:
        end = min(len(row), len(header))
        while end > width and not row[end - 1]:
            end -= 1
        width = max(width, end)
    return width


def _guess_separator(text: str) -> str:
    header = re.split(r"[\r\n]", text, maxsplit=1)[0]
    _allow_long_fields(header)
    counts = {sign: len(next(csv.reader([header], delimiter=sign), [])) for sign in (",", ";", "\t")}
    return max(counts, key=lambda sign: (counts[sign], sign == ","))


def _name_columns(frame: pd.DataFrame, header: Sequence[str]) -> tuple[pd.DataFrame, list[DataNote]]:
    """Give every column a unique name; repeated columns with equal cells are dropped."""
    notes, names, kept = [], [], []
    unnamed = [number for number, name in enumerate(header, 1) if not name]
    if unnamed:
        which = "column {} has" if len(unnamed) == 1 else "columns {} have"
        text = f"{which.format(list_names(unnamed))} no name; named by position"
        notes.append(DataNote("unnamed column", text, "repaired"))
    titles = [name or f"column {number}" for number, name in enumerate(header, 1)]
    total, seen = Counter(titles), Counter[str]()
    first: dict[str, int] = {}
    copies: dict[str, list[str]] = {}  # the new names of further columns with the same title
    taken = set(titles)
    for i, title in enumerate(titles):
        seen[title] += 1
        name = title
        if seen[title] == 1:
            first[title] = i
        elif frame.iloc[:, i].equals(frame.iloc[:, first[title]]):
            copies.setdefault(title, [])
            continue
        else:
            name = f"{title} ({seen[title]})"
            while name in taken:
                name += "'"
            copies.setdefault(title, []).append(name)
            taken.add(name)
        names.append(name)
        kept.append(i)
    for title, new_names in copies.items():
        text = f"{title!r} is in the header {_times(total[title])}"
        dropped = total[title] - 1 - len(new_names)
        if dropped:
            note = DataNote(
                "duplicate heading", f"{text} with the same cells; one is kept", "column left out"
            )
            notes.append(note)
        if new_names:
            renamed = f"{text}; {'another is' if len(new_names) == 1 else 'others are'} renamed "
            notes.append(DataNote("duplicate heading", renamed + list_names(new_names), "repaired"))
    frame = frame.iloc[:, kept].copy()
    frame.columns = pd.Index(names, dtype=object)
    return frame, notes


def parse_json(text: str, where: str, hint: str = "Save it again as JSON.") -> Any:
    """Parse JSON text; `where` begins the error message, as in `file: a.json`.

    Half of a surrogate pair, which no text file can hold, becomes U+FFFD.
    """
    if _SURROGATE.search(text):
        text = _SURROGATE_PAIR.sub(lambda match: r"\ufffd" if match[1] else match[0], text)
    try:
        return json.loads(text)
    except RecursionError:
        reason = "it is nested too deeply"
    except json.JSONDecodeError as error:
        reason = str(error)
    except ValueError:
        reason = "a number has too many digits"
    raise ValueError(f"{where} is not JSON ({reason}). {hint}")


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
#: An escaped backslash, a whole pair, or (group 1) half a pair.
_SURROGATE_PAIR = re.compile(
    r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


def _read_json_lines(path: Path, text: str) -> RawTable:
    records, bad = [], []
    for number, line in enumerate(line for line in text.split("\n") if line.strip()):
        try:
            record = parse_json(line, "line")
        except ValueError:
            record = None
        if not isinstance(record, dict) or _is_deep(record):
            bad.append(number)
            record = {}
        records.append(record)
    if records and len(bad) == len(records):
        raise ValueError(
            f"file: no line of {path.name} is a JSON object; expected one per line. Use the suffix .json if "
            "the file is a list of objects."
        )
    notes: list[DataNote] = []
    note_rows(notes, "broken line", "not a JSON object", "row dropped", bad)
    frame = pd.DataFrame(_columns(records), dtype=object)
    return RawTable(frame.drop(index=bad), path.name, notes)


def _is_deep(value: Any) -> bool:
    """Whether lists and objects are nested in more than `MAX_NESTING` levels."""
    level = [value]
    for _ in range(MAX_NESTING):
        members = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]
        level = [child for child in members if isinstance(child, list | dict)]
        if not level:
            return False
    return True


def _columns(records: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for record in records for name in record)
    return {str(name): [record.get(name) for record in records] for name in names}


def _read_json(path: Path, text: str) -> RawTable:
    hint = "Use the suffix .jsonl for one JSON object per line."
    records = parse_json(text, f"file: {path.name}", hint)
    if not isinstance(records, list) or not records or not all(isinstance(r, dict) for r in records):
        raise ValueError(
            f"file: {path.name} is not a list of JSON objects; expected one object per row, such as "
            '[{"x": 1}, {"x": 2}].'
        )
    deep = next((number for number, record in enumerate(records, 1) if _is_deep(record)), None)
    if deep is not None:
        raise ValueError(
            f"file: {path.name}, object {deep}: lists and objects are nested in more than {MAX_NESTING} "
            "levels; expected a table. Flatten it."
        )
    if all(isinstance(r.get("data"), dict) and ("annotations" in r or "completions" in r) for r in records):
        tasks = votes.label_studio_tasks(records, f"file: {path.name}")
        frame = pd.DataFrame(_columns([task["data"] for task in tasks]), dtype=object)
        return RawTable(frame, f"{path.name} (Label Studio export)", tasks=tasks)
    return RawTable(pd.DataFrame(_columns(records), dtype=object), path.name)


def _read_binary(path: Path, kind: str) -> RawTable:
    ending = path.suffix.lower()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # openpyxl warns of every extension it does not know
            frame, header, notes = _read_excel(path) if kind == "Excel" else _read_arrow(path, kind)
        frame, renamed = _name_columns(frame.reset_index(drop=True), header)
    except ImportError as error:
        library = SPREADSHEET_LIBRARIES.get(ending, "pyarrow")
        raise ValueError(f"file: reading {ending} needs {library}; pip install {library}.") from error
    except MemoryError:  # not a defect of the file
        raise
    except Exception as error:  # a damaged file can raise almost anything
        raise ValueError(
            f"file: {path.name} cannot be read as {kind} ({_reason(error)}); it is damaged or in another "
            "format. Save it again, or as CSV."
        ) from error
    return RawTable(frame, path.name, notes + renamed)


def _read_excel(path: Path) -> tuple[pd.DataFrame, list[str], list[DataNote]]:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            size = sum(part.file_size for part in archive.infolist())
        if size > MAX_UNPACKED:
            raise ValueError(f"it unpacks to {size / 1e9:.1f} GB")
    with pd.ExcelFile(path) as book:
        # Words such as NA are cells like any other, as they are in a text file. Without this dtype, pandas
        # would turn the text 007 into the number 7, and TRUE and FALSE beside an empty cell into 1 and 0.
        cells = pd.read_excel(book, keep_default_na=False, na_values=[""], dtype="object")
        frame = cells.infer_objects().map(_unescaped)
        # pandas renames repeated names to "name.1", so the header is read again as it is written.
        names = pd.read_excel(
            book, header=None, nrows=1, keep_default_na=False, na_values=[""], dtype="object"
        )
        notes = _note_other_sheets(book)
    titles = names.iloc[0].map(_unescaped) if len(names) else ()
    header = ["" if is_missing(name) else str(name) for name in titles]
    if len(header) != len(frame.columns):
        raise ValueError(f"{len(header)} names for {len(frame.columns)} columns")
    return frame, header, notes + _note_merged_cells(path)


def _note_other_sheets(book: pd.ExcelFile) -> list[DataNote]:
    first, *others = map(str, book.sheet_names)
    filled = [name for name in others if not book.parse(name, header=None, nrows=1).empty]
    if not filled:
        return []
    text = (
        f"Only the first sheet, {first!r}, is read, not {list_names(filled)}; if the table is there, move "
        "that sheet to the front or save it as CSV"
    )
    return [DataNote(OTHER_SHEETS, text)]


def _note_merged_cells(path: Path) -> list[DataNote]:
    """Note merged cells below the header, of which all but the first are empty."""
    if path.suffix.lower() != ".xlsx":
        return []
    with zipfile.ZipFile(path) as archive:
        sheets = [name for name in archive.namelist() if name.startswith("xl/worksheets/")]
        if not any(b"mergeCell " in archive.read(name) for name in sheets):
            return []
    from openpyxl import load_workbook

    merged = load_workbook(path).worksheets[0].merged_cells.ranges
    below = sorted((area.min_row, area.min_col, str(area.coord)) for area in merged if area.max_row > 1)
    if not below:
        return []
    text = (
        f"{list_names([coord for *_, coord in below], 3)}: only the first cell of a merged range has its "
        "value, the others are read as missing; unmerge and fill them if it is meant for all"
    )
    return [DataNote("merged cells", text)]


def _unescaped(cell: Any) -> Any:
    """Replace the escapes of a spreadsheet for characters that XML forbids, such as _x001B_."""
    if not isinstance(cell, str) or "_x" not in cell:
        return cell
    return re.sub("_x([0-9A-Fa-f]{4})_", lambda match: chr(int(match[1], 16)), cell)


def _read_arrow(path: Path, kind: str) -> tuple[pd.DataFrame, list[str], list[DataNote]]:
    from pyarrow import feather, parquet

    # Arrow trusts the offsets in a file, so that a damaged one can crash the interpreter: they are checked
    # before pandas sees them.
    with path.open("rb") as file:
        table = parquet.read_table(file) if kind == "Parquet" else feather.read_table(file)
    table.validate(full=True)
    del table
    with path.open("rb") as file:
        frame = pd.read_parquet(file) if kind == "Parquet" else pd.read_feather(file)
    return frame, [str(name) for name in frame.columns], []


def _reason(error: Exception) -> str:
    """Return the first line of an error's text, or its type if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0][:200].rstrip(".") if lines else type(error).__name__


def _times(count: int) -> str:
    return {2: "twice", 3: "three times"}.get(count, f"{count} times")

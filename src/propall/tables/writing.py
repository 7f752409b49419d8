"""Writing a table with a model's answers as added columns."""

import csv
import datetime as dt
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from propall.atomic_files import replacing
from propall.labels.inputs import is_missing
from propall.labels.parsing import as_text
from propall.tables.file_formats import (
    FileFormat,
    compress_into,
    describe_formats,
    describe_suffix,
    find_format,
)
from propall.tables.formulas import PREFIX, guard_answers
from propall.tables.reading import SPREADSHEET_LIBRARIES

#: Modules of packages with another name.
_MODULES = {"odfpy": "odf"}
#: Largest table and longest text of a cell that Excel opens.
EXCEL_ROWS, EXCEL_COLUMNS, EXCEL_CELL = 1_048_575, 16_384, 32_767


def add_columns(frame: pd.DataFrame, rows: NDArray[Any], columns: Mapping[str, Any]) -> pd.DataFrame:
    """Add columns with values for some rows, given as a mask or positions; the other rows are left blank.

    No column of the table is replaced: if one of the names is taken, all added names get a number.
    """
    number, ending = 1, ""
    while any(f"{PREFIX}{name}{ending}" in frame.columns for name in columns):
        number += 1
        ending = f"_{number}"
    added = {}
    for name, values in columns.items():
        is_number = np.asarray(values).dtype.kind == "f"
        column = np.full(len(frame), np.nan if is_number else None, dtype=float if is_number else object)
        column[rows] = values
        added[f"{PREFIX}{name}{ending}"] = pd.Series(column, index=frame.index, dtype=column.dtype)
    return frame.assign(**added)


def format_alternatives(alternatives: Sequence[tuple[Any, float]]) -> str:
    """Format labels and probabilities as `tern 0.21; skua 0.03`."""
    return "; ".join(f"{name} {probability:.2f}" for name, probability in alternatives)


def writable_format(path: str | Path) -> FileFormat:
    """The file format by the name's suffix; raise ValueError if it cannot be written."""
    path = Path(path)
    found = find_format(path)
    if found is None or found.suffix == ".xls":
        expected = describe_formats(without=".xls")
        raise ValueError(f"out: {path.name} has {describe_suffix(path)}; expected {expected}.")
    if found.kind in ("Excel", "Parquet", "Feather"):
        package = SPREADSHEET_LIBRARIES.get(found.suffix, "pyarrow")
        if find_spec(_MODULES.get(package, package)) is None:
            raise ValueError(f"out: writing {found.suffix} requires {package}; pip install {package}.")
    return found


def write_table(frame: pd.DataFrame, path: str | Path, *, separator: str | None = None) -> Path:
    """Write a table in the format of the file's suffix; a CSV has commas unless `separator` is given."""
    path, file_format = Path(path), writable_format(path)
    kind = file_format.kind
    with replacing(path) as part:
        if kind in ("CSV", "TSV"):
            text = csv_text(guard_answers(frame), "\t" if kind == "TSV" else separator or ",")
            _write_text(part, text, file_format)
        elif kind == "JSON lines":
            _write_text(part, "".join(json_lines(frame)), file_format)
        elif kind == "JSON":
            _write_text(part, f"[{','.join(json_lines(frame))}]\n", file_format)
        elif kind == "Excel":
            _write_excel(frame, part)
        else:
            plain = frame.reset_index(drop=True)
            (plain.to_parquet if kind == "Parquet" else plain.to_feather)(part)
    return path


def _write_text(path: Path, text: str, file_format: FileFormat) -> None:
    with path.open("wb") as file:
        if not file_format.is_compressed:
            file.write(text.encode())
            return
        with compress_into(file) as packed:
            packed.write(text.encode())


def csv_text(frame: pd.DataFrame, separator: str, *, header: bool = True) -> str:
    """Return a table as CSV."""
    text = frame.to_csv(sep=separator, index=False, header=header, lineterminator="\n")
    if "\r" in text:
        # pandas does not quote it, though readers take it for the end of a line.
        text = frame.to_csv(
            sep=separator,
            index=False,
            header=header,
            lineterminator="\n",
            quoting=csv.QUOTE_NONNUMERIC,
        )
    return text


def json_lines(frame: pd.DataFrame) -> Iterator[str]:
    """Yield every row as a line of JSON; missing values and infinity are null, and dates are ISO 8601.

    Not `DataFrame.to_json`, which rounds numbers to 15 digits after the point and makes dates numbers.

    Examples:
        >>> list(json_lines(pd.DataFrame({"x": [0.1 + 0.2], "label": ["cat"]})))
        ['{"x":0.30000000000000004,"label":"cat"}\\n']
    """
    names = [str(name) for name in frame.columns]
    columns = [map(_json_value, frame.iloc[:, i].tolist()) for i in range(len(names))]
    encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
    for cells in zip(*columns, strict=True):
        yield encoder.encode(dict(zip(names, cells, strict=True))) + "\n"


def _json_value(value: Any) -> Any:
    if isinstance(value, str | bool | int):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return _json_value(value.tolist())
    if isinstance(value, list | tuple):
        return [_json_value(part) for part in value]
    if isinstance(value, dict):
        return {str(key): _json_value(part) for key, part in value.items()}
    if is_missing(value) or (isinstance(value, float) and math.isinf(value)):
        return None
    if isinstance(value, dt.date):
        return value.isoformat()
    return value if isinstance(value, float) else as_text(value)


def _write_excel(frame: pd.DataFrame, path: Path) -> None:
    """Write a spreadsheet in which text is text: neither formulas nor control characters."""
    if len(frame) > EXCEL_ROWS or len(frame.columns) > EXCEL_COLUMNS:
        raise ValueError(
            f"out: Excel cannot hold {len(frame)} rows and {len(frame.columns)} columns; write a .csv file."
        )
    plain = frame.map(_excel_cell)
    plain.columns = pd.Index([_excel_cell(str(name)) for name in frame.columns], dtype=object)
    # As text: for a Path, pandas would write an .xlsx file whatever the suffix is.
    with pd.ExcelWriter(str(path)) as writer:
        plain.to_excel(writer, index=False)
        if path.suffix.lower() != ".xlsx":
            return
        for sheet_row in writer.sheets["Sheet1"].iter_rows():
            for cell in sheet_row:
                if cell.data_type == "f":
                    cell.data_type = "s"
                    cell.style = "Normal"
                    cell.quotePrefix = True  # remains text when it is edited


def _excel_cell(value: Any) -> Any:
    if isinstance(value, list | tuple | dict | np.ndarray):
        value = as_text(value)
    if not isinstance(value, str):
        return value
    if len(value) > EXCEL_CELL:
        raise ValueError(
            f"out: a cell has {len(value)} characters ({value[:20]!r}...); Excel holds {EXCEL_CELL}. Write a "
            ".csv file."
        )
    # Excel writes characters that XML forbids, and text that looks like such an escape, as _x0001_.
    return _EXCEL_ESCAPED.sub(lambda match: f"_x{ord(match[0][0]):04X}_{match[0][1:]}", value)


_EXCEL_ESCAPED = re.compile(r"[\x00-\x08\x0b\x0c\x0d\x0e-\x1f\ufffe\uffff]|_x[0-9A-Fa-f]{4}_")

"""Writing a table with a model's answers as added columns."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from propall.atomic_files import replacing
from propall.tables.reading import FORMATS, SPREADSHEET_LIBRARIES

#: Prefix of added columns, so that they do not clash with the table's columns.
PREFIX = "propall_"


def add_columns(frame: pd.DataFrame, rows: NDArray[Any], columns: Mapping[str, Any]) -> pd.DataFrame:
    """Add columns with values for some rows, given as a mask or positions; the other rows are left blank."""
    added = {}
    for name, values in columns.items():
        is_number = np.asarray(values).dtype.kind == "f"
        column = np.full(len(frame), np.nan if is_number else None, dtype=float if is_number else object)
        column[rows] = values
        added[PREFIX + name] = pd.Series(column, index=frame.index, dtype=column.dtype)
    return frame.assign(**added)


def format_alternatives(alternatives: Sequence[tuple[Any, float]]) -> str:
    """Format labels and probabilities as `tern 0.21; skua 0.03`."""
    return "; ".join(f"{name} {probability:.2f}" for name, probability in alternatives)


def format_of(path: str | Path) -> str:
    """The file format by the name's suffix; raise ValueError if it cannot be written."""
    path = Path(path)
    writable = {suffix: kind for suffix, kind in FORMATS.items() if suffix != ".xls"}
    if path.suffix.lower() not in writable:
        suffix = f"suffix {path.suffix!r}" if path.suffix else "no suffix"
        raise ValueError(f"out: {path.name} has {suffix}; expected {', '.join(writable)}.")
    return writable[path.suffix.lower()]


def write_table(frame: pd.DataFrame, path: str | Path, *, separator: str | None = None) -> Path:
    """Write a table in the format of the file's suffix; a CSV has commas unless `separator` is given."""
    path, kind = Path(path), format_of(path)
    try:
        with replacing(path) as part:
            if kind in ("CSV", "TSV"):
                sep = "\t" if kind == "TSV" else separator or ","
                frame.to_csv(part, sep=sep, encoding="utf-8", index=False)
            elif kind in ("JSON", "JSON lines"):
                frame.to_json(part, orient="records", lines=kind == "JSON lines", force_ascii=False)
            elif kind == "Excel":
                frame.to_excel(part, index=False)
            else:
                plain = frame.reset_index(drop=True)
                (plain.to_parquet if kind == "Parquet" else plain.to_feather)(part)
    except ImportError as error:
        package = SPREADSHEET_LIBRARIES.get(path.suffix.lower(), "pyarrow")
        raise ValueError(f"out: writing {path.suffix} requires {package}; pip install {package}.") from error
    return path

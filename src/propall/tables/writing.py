"""Writing a table with a model's answers as added columns."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from propall.atomic_files import replacing
from propall.estimators.resolution import Resolution
from propall.tables.label_columns import LabeledRows
from propall.tables.model import TableModel
from propall.tables.reading import FORMATS, REQUIRED_LIBRARY, RawTable

#: Prefix of added columns, so that they do not clash with the table's columns.
PREFIX = "propall_"
#: Above this probability that no candidate is correct, a row gets a note.
DOUBTFUL = 0.5


def resolved_table(
    raw: RawTable,
    labeled: LabeledRows,
    resolution: Resolution,
    doubt: NDArray[np.float64],
    *,
    seen: NDArray[np.bool_] | None = None,
    n_alternatives: int = 3,
) -> pd.DataFrame:
    """Add the resolved label, its probability and margin, the doubt and alternatives to a table.

    Args:
        raw: the table.
        labeled: the rows with candidates; the others get a note.
        resolution: resolved labels of these rows.
        doubt: probability of each that no candidate is correct.
        seen: which of these rows the model was fitted on; they were resolved by models that did not see them.
        n_alternatives: number of alternative labels per row.
    """
    resolved = resolution.to_frame(most=n_alternatives)
    columns: dict[str, Sequence[Any]] = {
        "label": resolved["label"].tolist(),
        "probability": np.round(resolved["probability"].to_numpy(dtype=float), 6).tolist(),
        "margin": np.round(resolved["margin"].to_numpy(dtype=float), 6).tolist(),
        "doubt": np.round(doubt, 6).tolist(),
        "alternatives": [format_alternatives(labels) for labels in resolved["alternatives"]],
        "note": ["all candidates are probably wrong" if value > DOUBTFUL else "" for value in doubt],
    }
    if seen is not None:
        columns["by"] = ["models that did not see it" if was_seen else "the model" for was_seen in seen]
    out = raw.frame.copy()
    for name, values in columns.items():
        column: list[Any] = [None] * len(out)
        for place, value in zip(labeled.rows.tolist(), values, strict=True):
            column[place] = value
        out[PREFIX + name] = pd.Series(column, index=out.index, dtype=object)
    for note in labeled.notes:
        for row in note.rows if note.action == "row dropped" else ():
            if row in out.index:
                out.loc[row, PREFIX + "note"] = f"left out: {note.text}"
    return out


def predicted_table(
    model: TableModel,
    raw: RawTable,
    log_probabilities: NDArray[np.float64],
    readable: NDArray[np.bool_],
    *,
    all_probabilities: bool = False,
) -> pd.DataFrame:
    """Add the predicted label and its probability to a table.

    Args:
        model: the model, for its class names.
        raw: the table.
        log_probabilities: (n, k) predictions for the readable rows.
        readable: which rows were predicted; the others get no label.
        all_probabilities: also add the probability of every class.
    """
    out = raw.frame.copy()
    best = log_probabilities.argmax(1)
    probabilities = np.exp(log_probabilities)
    columns = {"label": model.classes[best], "probability": probabilities.max(1).round(6)}
    if all_probabilities:
        columns |= {f"p_{name}": probabilities[:, i].round(6) for i, name in enumerate(model.classes)}
    for name, values in columns.items():
        out[PREFIX + name] = pd.Series(
            values, index=out.index[readable], dtype=object if name == "label" else None
        )
    return out


def format_alternatives(alternatives: Sequence[tuple[Any, float]]) -> str:
    """Format labels and probabilities as `tern 0.21; skua 0.03`."""
    return "; ".join(f"{name} {probability:.2f}" for name, probability in alternatives)


def format_of(path: str | Path) -> str:
    """The file format by the name's suffix; one that cannot be written is refused."""
    path = Path(path)
    kind = FORMATS.get(path.suffix.lower())
    if kind is None or path.suffix.lower() == ".xls":
        supported = ", ".join(suffix for suffix in FORMATS if suffix != ".xls")
        suffix = f"suffix {path.suffix!r}" if path.suffix else "no suffix"
        raise ValueError(f"out: {path.name} has {suffix}; expected {supported}.")
    return kind


def write_table(frame: pd.DataFrame, path: str | Path, *, separator: str | None = None) -> Path:
    """Write a table in the format of the file's suffix.

    Args:
        frame: the table.
        path: the file.
        separator: column separator of a CSV file; a comma by default.
    """
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
        package = REQUIRED_LIBRARY[path.suffix.lower()]
        raise ValueError(f"out: writing {path.suffix} requires {package}; pip install {package}.") from error
    return path

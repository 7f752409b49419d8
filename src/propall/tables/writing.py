"""The table a person gave, with what a model says about each row beside it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from propall import atomic_files
from propall.estimators.classifier import Resolution
from propall.tables.label_columns import Labelled
from propall.tables.model import TableModel
from propall.tables.reading import FORMATS, NEEDED, Sheet

#: Begins the names of all columns that are added, so that none is taken for one of the table's own.
PREFIX = "propall_"
#: Above this probability that the truth is outside the candidates, a row is worth a second look.
DOUBTFUL = 0.5


def resolved_table(
    sheet: Sheet,
    labelled: Labelled,
    resolution: Resolution,
    doubt: NDArray[np.float64],
    *,
    seen: NDArray[np.bool_] | None = None,
    most: int = 3,
) -> pd.DataFrame:
    """All rows of the sheet with the resolved label, its probability and margin, doubt and alternatives.

    Args:
        sheet: the table.
        labelled: which of its rows have candidates; the others get a note instead.
        resolution: of those rows.
        doubt: the probability that the truth is outside the candidates.
        seen: which of them the model was fitted on and were therefore answered by others.
        most: how many alternatives to name.
    """
    n = len(sheet.frame)
    found = resolution.to_frame(most=most)
    alternatives = [ranked(own) for own in found["alternatives"]]
    notes = ["the truth may be outside the candidates" if own > DOUBTFUL else "" for own in doubt]
    columns: dict[str, Sequence[Any]] = {
        "label": found["label"].tolist(),
        "probability": np.round(found["probability"].to_numpy(dtype=float), 6).tolist(),
        "margin": np.round(found["margin"].to_numpy(dtype=float), 6).tolist(),
        "doubt": np.round(doubt, 6).tolist(),
        "alternatives": alternatives,
        "note": notes,
    }
    if seen is not None:
        columns["by"] = ["models that had not seen it" if own else "the model" for own in seen]
    out = sheet.frame.copy()
    for name, values in columns.items():
        column: list[Any] = [None] * n
        for place, value in zip(labelled.rows.tolist(), values, strict=True):
            column[place] = value
        out[PREFIX + name] = pd.Series(column, index=out.index, dtype=object)
    dropped = {row: r.text for r in labelled.remarks if r.action == "row dropped" for row in r.rows}
    for row, why in dropped.items():
        if row in out.index:
            out.loc[row, PREFIX + "note"] = f"left out: {why}"
    return out


def predicted_table(
    model: TableModel,
    sheet: Sheet,
    log_probabilities: NDArray[np.float64],
    known: NDArray[np.bool_],
    *,
    every: bool = False,
) -> pd.DataFrame:
    """All rows of the sheet with the predicted label and its probability.

    Args:
        model: whose classes the columns are.
        sheet: the table.
        log_probabilities: of those of its rows that could be read.
        known: which these are; the others get no label.
        every: also the probability of every class.
    """
    out = sheet.frame.copy()
    best = log_probabilities.argmax(1)
    chances = np.exp(log_probabilities)
    columns = {"label": model.classes[best], "probability": chances.max(1).round(6)}
    if every:
        columns |= {f"p_{name}": chances[:, i].round(6) for i, name in enumerate(model.classes)}
    for name, values in columns.items():
        out[PREFIX + name] = pd.Series(
            values, index=out.index[known], dtype=object if name == "label" else None
        )
    return out


def ranked(alternatives: Sequence[tuple[Any, float]]) -> str:
    """`tern 0.21; skua 0.03`: what else it may be, the likeliest first."""
    return "; ".join(f"{name} {chance:.2f}" for name, chance in alternatives)


def format_of(path: str | Path) -> str:
    """What kind of table a name stands for; one that cannot be written is refused."""
    path = Path(path)
    kind = FORMATS.get(path.suffix.lower())
    if kind is None or path.suffix.lower() == ".xls":
        known = ", ".join(ending for ending in FORMATS if ending != ".xls")
        raise ValueError(f"out: {path.name} ends in {path.suffix or 'nothing'}; expected {known}.")
    return kind


def write_table(frame: pd.DataFrame, path: str | Path, *, separator: str | None = None) -> Path:
    """Write a table in the format its name ends in; nothing is left half written.

    Args:
        frame: the table.
        path: the file.
        separator: what stands between two columns of a CSV file; a comma by default.
    """
    path, kind = Path(path), format_of(path)
    text: Mapping[str, Any] = {"index": False}
    try:
        with atomic_files.replacing(path) as part:
            if kind in ("CSV", "TSV"):
                frame.to_csv(part, sep="\t" if kind == "TSV" else separator or ",", encoding="utf-8", **text)
            elif kind in ("JSON", "JSON lines"):
                frame.to_json(part, orient="records", lines=kind == "JSON lines", force_ascii=False)
            elif kind == "Excel":
                frame.to_excel(part, **text)
            else:
                plain = frame.reset_index(drop=True)
                (plain.to_parquet if kind == "Parquet" else plain.to_feather)(part)
    except ImportError as error:
        needed = NEEDED[path.suffix.lower()]
        raise ValueError(f"out: writing {path.suffix} needs {needed}; pip install {needed}.") from error
    return path

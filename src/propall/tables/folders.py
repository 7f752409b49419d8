"""Predict and resolve a folder of tables by several processes, one file after the other in each."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from propall.estimators.workers import Workers
from propall.tables.label_source import LabelSource
from propall.tables.model import TableModel
from propall.tables.reading import DataNote
from propall.tables.streaming import (
    PredictionSummary,
    ResolutionSummary,
    SetRate,
    can_resolve_in_parts,
    estimate_set_rate,
    merge_notes,
    part_odds,
    predict_to_file,
    read_parts,
    table_files,
    write_resolved,
)


class _FileOdds(NamedTuple):
    rows: int
    odds: NDArray[np.float64]


def predict_folder(
    model: str | Path,
    folder: str | Path,
    out: str | Path,
    workers: Workers,
    *,
    all_probabilities: bool = False,
) -> PredictionSummary:
    """Predict every file of a folder of tables; the results are files of the same names.

    Args:
        model: folder of the model, visible to all workers.
        folder: of Parquet or CSV files, visible to all workers.
        out: a new or empty folder to write to.
        workers: the processes.
        all_probabilities: add the probabilities of all classes.
    """
    files, out = _files(folder), _new_folder(out)
    tasks = [(Path(model), file, out / file.name, all_probabilities) for file in files]
    total, first = PredictionSummary(), 0
    for summary in workers.map(_predict_file, tasks):
        total.notes = merge_notes(total.notes, _shifted(summary.notes, first))
        for name, (rows, sum_of_probabilities) in summary.totals.items():
            known_rows, known = total.totals.get(name, (0, 0.0))
            total.totals[name] = (known_rows + rows, known + sum_of_probabilities)
        first += summary.rows + sum(len(note.rows) for note in summary.notes if note.action == "row dropped")
    return total


def _predict_file(model: Path, file: Path, out: Path, all_probabilities: bool) -> PredictionSummary:
    return predict_to_file(TableModel.load(model), read_parts(file), out, all_probabilities=all_probabilities)


def resolve_folder(
    model: str | Path,
    folder: str | Path,
    out: str | Path,
    workers: Workers,
    source: LabelSource | None = None,
    *,
    alternatives: int = 3,
) -> ResolutionSummary:
    """Resolve every file of a folder of tables; the results are files of the same names.

    The share of candidate sets without the true label is estimated from all files first, so the result is
    that of the whole table.

    Args:
        model: folder of the model, visible to all workers.
        folder: of Parquet or CSV files, visible to all workers.
        out: a new or empty folder to write to.
        workers: the processes.
        source: where the labels are, if not where they were in the fit.
        alternatives: maximum number of alternatives per row.
    """
    loaded = TableModel.load(model)
    if not can_resolve_in_parts(loaded, source):
        raise ValueError(
            "workers: these labels need the answers of all rows at once. Resolve the table with one worker."
        )
    files, out = _files(folder), _new_folder(out)
    found: list[_FileOdds] = workers.map(_file_odds, [(Path(model), file, source) for file in files])
    set_rate = estimate_set_rate(loaded, np.concatenate([part.odds for part in found]), source)
    tasks = [(Path(model), file, out / file.name, set_rate, source, alternatives) for file in files]
    total, first = ResolutionSummary(set_rate.rate, unfinished=loaded.is_unfinished), 0
    for part, summary in zip(found, workers.map(_resolve_file, tasks), strict=True):
        summary.notes = _shifted(summary.notes, first)
        total.merge(summary)
        first += part.rows
    return total


def _file_odds(model: Path, file: Path, source: LabelSource | None) -> _FileOdds:
    loaded, rows, odds = TableModel.load(model), 0, []
    for part in read_parts(file):
        rows += part.n_file_rows
        odds.append(part_odds(loaded, part, source))
    return _FileOdds(rows, np.concatenate(odds))


def _resolve_file(
    model: Path, file: Path, out: Path, set_rate: SetRate, source: LabelSource | None, alternatives: int
) -> ResolutionSummary:
    return write_resolved(TableModel.load(model), read_parts(file), out, set_rate, source, alternatives)


def _shifted(notes: list[DataNote], first: int) -> list[DataNote]:
    """Notes on a file with rows numbered as in the whole folder."""
    return [replace(note, rows=tuple(row + first for row in note.rows)) for note in notes]


def _files(folder: str | Path) -> list[Path]:
    path = Path(folder)
    files = table_files(path.resolve()) if path.is_dir() else []
    if not files:
        raise ValueError(
            f"workers: {path} is not a folder of Parquet or CSV files; several workers share such files. "
            "Split the table into several files, or use one worker."
        )
    return files


def _new_folder(out: str | Path) -> Path:
    path = Path(out)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(
            f"out: {path} exists; several workers write a new folder, with a file for every file of the "
            "table. Use another name."
        )
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()

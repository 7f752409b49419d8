"""Fit a model to a table larger than memory: one pass for statistics, one that encodes, then training."""

import re
import shutil
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from propall import counter_rng
from propall.atomic_files import working_folder
from propall.data.stored import RowWriter, bytes_per_row
from propall.estimators.ensemble import content_keys
from propall.estimators.resolution import Resolution
from propall.estimators.scorers import CRITERIA
from propall.estimators.stored_fitting import Rows, StoredPortfolio, StoredSettings, fit_stored_portfolio
from propall.estimators.workers import ONE_PROCESS, Workers
from propall.labels.candidates import UninformativeRowsWarning
from propall.provenance import hardware
from propall.tables.consensus import DOUBTFUL, SetErrors, estimate_set_errors
from propall.tables.features import Features
from propall.tables.file_formats import is_larger, kind_of
from propall.tables.fitting import LISTED_CRITERIA, FitOptions, check_names, plain_value, report_label_copies
from propall.tables.label_cells import CellReader, NameCounts, NoteLog, check_label_column
from propall.tables.label_columns import LabeledTable, read_label_columns
from propall.tables.label_source import LabelSource
from propall.tables.model import TableModel
from propall.tables.reading import DataNote, RawTable
from propall.tables.streaming import table_files
from propall.tables.trust import Trust
from propall.wording import duration, plural

#: Rows from which kinds, encodings and scaling of the columns are taken: all rows of a smaller table.
SURVEY_ROWS = 100_000
#: Rows that are held out to weigh and calibrate the models: a tenth of the table, at most this many.
HELD_OUT_ROWS, HELD_OUT_SHARE = 100_000, 0.1
#: Training rows for models that need them in memory.
SAMPLE_ROWS = 50_000
#: Default memory above which a table is fitted in parts.
MEMORY = 2 << 30
#: Memory that a fit of a whole table takes: per cell and per row of a table, and per byte of a text file.
BYTES_PER_CELL, BYTES_PER_TABLE_ROW, BYTES_PER_TEXT_BYTE = 60, 1500, 12
#: Memory of a fit in parts: in any case, and per row besides one byte for each class.
FIXED_BYTES, BYTES_PER_ORDERED_ROW = 400 << 20, 70


def parse_size(text: str) -> int:
    """Return a number of bytes written as `500MB` or `2GiB`; raise ValueError for other texts."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)B?\s*", text.upper())
    if match is None or (match[3] and not match[2]):
        raise ValueError(f"memory: got {text!r}; expected a size such as 500MB or 2GiB.")
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** " KMGT".index(match[2] or " "))


def needs_parts(file: str | Path, memory: int = MEMORY) -> bool:
    """Whether a fit of the whole table would take more than this memory, or the file is a folder."""
    path = Path(file)
    if path.is_dir():
        return bool(table_files(path))
    kind = kind_of(path)
    if kind == "Parquet" and path.is_file():
        return _parquet_memory(path) > memory
    if kind in ("CSV", "TSV") and path.is_file():
        return is_larger(path, memory // BYTES_PER_TEXT_BYTE)
    return False


def _parquet_memory(path: Path) -> int:
    try:
        from pyarrow import ArrowException, parquet

        metadata = parquet.read_metadata(path)
    except (ImportError, ArrowException, OSError):
        return 0  # reading it will say what is wrong
    return int(metadata.num_rows * (BYTES_PER_CELL * metadata.num_columns + BYTES_PER_TABLE_ROW))


@dataclass
class FittedInParts:
    """A model fitted in parts, and what a report about it shows."""

    model: TableModel
    portfolio: StoredPortfolio
    held_out: Rows
    notes: list[DataNote] = field(default_factory=list)
    seconds: float = 0.0
    hardware: str = ""
    trust: None = None  # every label is believed


def fit_in_parts(
    parts: Callable[[], Iterator[RawTable]],
    source: LabelSource,
    out: str | Path,
    options: FitOptions | None = None,
    *,
    columns: Sequence[str] | None = None,
    without: Sequence[str] = (),
    memory: int = MEMORY,
    workers: Workers = ONE_PROCESS,
) -> FittedInParts:
    """Fit a model to a table that is read in parts.

    The first pass counts the labels and draws a sample of the rows, from which the columns are encoded; if
    the table has at most `SURVEY_ROWS` rows, the encoding is that of `fit_table`. The second pass writes the
    encoded rows to a folder beside `out`, which is removed at the end. Networks are then trained on these
    rows, and weighed and calibrated by held-out rows. For the same seed, the networks are those that
    `PartialLabelClassifier.fit` trains on the same rows in memory.

    Args:
        parts: returns the parts of the table from the beginning, as `read_parts`.
        source: where the labels are: one column.
        out: the folder that the model will be saved to.
        options: how to fit; folds, trust and search do not apply.
        columns: use only these columns as features.
        without: columns to ignore; label columns are never features.
        memory: bytes that the fit may take besides the interpreter.
        workers: processes that train every network together; the passes over the table are made by this one.
    """
    start = time.perf_counter()
    options = options or FitOptions()
    check_label_column(source)
    _check_options(options)
    report = options.report or (lambda line: None)
    survey = _survey(parts(), source, options.seed, report)
    features, notes = _fit_features(survey, source, options, columns, without)
    with working_folder(out) as folder:
        _check_sizes(folder, survey, features.out_shape[0], memory)
        encoded = _encode(parts(), survey, features, source, folder, options.seed, report)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UninformativeRowsWarning)
            portfolio = fit_stored_portfolio(
                folder,
                np.array(survey.classes),
                encoded.held_out,
                encoded.sample,
                _settings(options, workers),
            )
    fitted = FittedInParts(TableModel(portfolio.mixture, features, source), portfolio, encoded.held_out)
    # The second pass repeats some notes of the first, such as on typos, with the rows.
    repeated = {(note.kind, note.text, note.action) for note in encoded.notes}
    others = [note for note in survey.notes if (note.kind, note.text, note.action) not in repeated]
    fitted.notes = [*others, *encoded.notes, *notes]
    fitted.hardware = hardware("cpu")
    fitted.seconds = time.perf_counter() - start
    fitted.model.account = _account(fitted, survey, encoded, options)
    return fitted


def _check_options(options: FitOptions) -> None:
    trust: Trust | None = options.trust
    if trust not in (None, "full"):
        raise ValueError(
            f"trust: got {trust!r}; a table that is read in parts is fitted with trust in every label. Leave "
            "it out, or fit a sample of the rows that fits into memory."
        )
    if not options.device.startswith(("auto", "cpu")):
        raise ValueError(
            f"device: got {options.device!r}; a table that is read in parts is fitted by the CPU. Leave it "
            "out."
        )


def _settings(options: FitOptions, workers: Workers) -> StoredSettings:
    return StoredSettings(
        effort=options.effort,
        methods=options.methods,
        nets=options.nets,
        epochs=options.epochs,
        members=options.members,
        time_limit=options.time_limit,
        seed=options.seed,
        report=options.report,
        workers=workers,
    )


@dataclass
class _Survey:
    """What one pass over a table tells."""

    rows: int
    sample: RawTable  # a random sample of the rows, in their order
    classes: tuple[str, ...]
    notes: list[DataNote]


def _survey(
    parts: Iterator[RawTable], source: LabelSource, seed: int, report: Callable[[str], None]
) -> _Survey:
    counts, log = NameCounts(source), NoteLog()
    sample = _Sample(counter_rng.seed_for(seed, "survey"))
    clock, first = _Clock(report, "reading"), None
    for part in parts:
        first = part if first is None else first
        counts.add(part)
        log.add(part.notes)
        sample.add(part.frame)
        clock.tick(counts.rows)
    if first is None:
        raise ValueError("file: it has no rows.")
    classes, notes = counts.classes(first.source)
    raw = replace(first, frame=sample.frame(), notes=[])
    report(f"{first.source}: {counts.rows} rows, {len(classes)} classes ({duration(clock.seconds)})")
    return _Survey(counts.rows, raw, classes, [*log, *notes])


class _Sample:
    """A random sample of rows: those with the smallest random numbers, which depend on the row's number."""

    def __init__(self, seed: int) -> None:
        self.seed, self.limit = seed, np.inf
        self._frames: list[pd.DataFrame] = []
        self._draws: list[NDArray[np.float64]] = []

    def add(self, frame: pd.DataFrame) -> None:
        numbers = torch.from_numpy(frame.index.to_numpy().astype(np.int64))
        draws = counter_rng.uniform(self.seed, numbers, dtype=torch.float64).numpy()
        kept = draws < self.limit
        self._frames.append(frame[kept].copy())
        self._draws.append(draws[kept])
        if sum(map(len, self._draws)) > 2 * SURVEY_ROWS:
            self._shrink()

    def _shrink(self) -> None:
        draws, frame = np.concatenate(self._draws), pd.concat(self._frames)
        if len(draws) > SURVEY_ROWS:
            self.limit = float(np.partition(draws, SURVEY_ROWS)[SURVEY_ROWS])
            frame, draws = frame[draws < self.limit], draws[draws < self.limit]
        self._frames, self._draws = [frame], [draws]

    def frame(self) -> pd.DataFrame:
        self._shrink()
        return self._frames[0]


@dataclass
class _Clock:
    """Reports how many rows of a pass are done, every 15 seconds."""

    report: Callable[[str], None]
    what: str
    start: float = field(default_factory=time.perf_counter)
    last: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.start

    def tick(self, rows: int, total: int | None = None) -> None:
        if time.perf_counter() - self.last > 15:
            self.last = time.perf_counter()
            self.report(f"{self.what}: {rows}{f' of {total}' if total else ''} rows")


def _fit_features(
    survey: _Survey,
    source: LabelSource,
    options: FitOptions,
    columns: Sequence[str] | None,
    without: Sequence[str],
) -> tuple[Features, list[DataNote]]:
    """Fit the encoding of the columns to the sample of the survey."""
    known = source if source.hierarchy is not None else replace(source, classes=survey.classes)
    table = LabeledTable(survey.sample, source, read_label_columns(survey.sample, known))
    check_names(table, source, options, columns or (), without)
    ignored = (*source.columns, *without)
    copies = report_label_copies(table, ignored, columns)
    features = Features.fit(
        table.frame, columns=columns, without=(*ignored, *copies), separator=survey.sample.separator
    )
    return features, [*copies.values(), *features.notes]


def _check_sizes(folder: Path, survey: _Survey, width: int, memory: int) -> None:
    """Raise ValueError, before anything is written, if memory or disk cannot hold the rows."""
    rows, k = survey.rows, len(survey.classes)
    needed = FIXED_BYTES + rows * (BYTES_PER_ORDERED_ROW + k)
    if needed > memory:
        raise ValueError(
            f"memory: {rows} rows of {k} classes need {needed / 2**30:.1f} GiB besides the interpreter; the "
            f"limit is {memory / 2**30:.1f} GiB. Allow more with --options memory=..., or use fewer rows."
        )
    on_disk, free = rows * bytes_per_row(width, k), shutil.disk_usage(folder).free
    if on_disk > free:
        raise ValueError(
            f"out: {rows} rows of {width} features need {on_disk / 2**30:.1f} GiB beside the model while it "
            f"is fitted; {free / 2**30:.1f} GiB are free. Free some, or write the model to another disk."
        )


@dataclass
class _Encoded:
    """What the second pass keeps in memory."""

    held_out: Rows
    sample: Rows
    used: int
    candidates: int  # in all rows together
    kinds: Counter[str]
    notes: list[DataNote]


def _encode(
    parts: Iterator[RawTable],
    survey: _Survey,
    features: Features,
    source: LabelSource,
    folder: Path,
    seed: int,
    report: Callable[[str], None],
) -> _Encoded:
    """Write the encoded rows to files, all but the held-out ones."""
    reader, log, kinds = CellReader(source, survey.classes), NoteLog(), Counter[str]()
    held_out_share = min(HELD_OUT_SHARE, HELD_OUT_ROWS / survey.rows)
    seeds = [counter_rng.seed_for(seed, purpose) for purpose in ("held out", "sample in memory")]
    held_out, sample = _RowList(), _RowList()
    used = candidates = full = done = 0
    clock = _Clock(report, "encoding")
    with RowWriter(folder, features.out_shape[0], len(survey.classes)) as writer:
        for part in parts:
            labels = reader.read(part)
            frame, mask = part.frame.iloc[labels.rows], labels.candidates
            log.add(labels.notes)
            kinds.update(labels.kinds)
            done += len(part.frame)
            if not len(frame):
                continue
            X = features.transform(frame)
            keys = content_keys(X, torch.from_numpy(mask))
            used, candidates = used + len(X), candidates + int(mask.sum())
            full += int(mask.all(1).sum())
            chances = [counter_rng.uniform(s, keys, dtype=torch.float64).numpy() for s in seeds]
            is_held_out = chances[0] < held_out_share
            held_out.add(X, mask, is_held_out)
            sample.add(X, mask, ~is_held_out & (chances[1] < SAMPLE_ROWS / survey.rows))
            writer.append(X[~is_held_out], mask[~is_held_out], keys.numpy()[~is_held_out])
            clock.tick(done, survey.rows)
    if full == used:
        raise ValueError(
            f"label: every class is possible in every row of {survey.sample.source}, so there is nothing to "
            "learn. Exclude some classes in some rows."
        )
    if not held_out.masks or not sample.masks:
        raise ValueError(
            f"file: {plural(used, 'row')} are too few to hold some out. Use `propall fit` on one file."
        )
    report(f"encoded as {features.out_shape[0]} features ({duration(clock.seconds)})")
    return _Encoded(held_out.rows(), sample.rows(), used, candidates, kinds, list(log))


@dataclass
class _RowList:
    """Rows collected from parts."""

    features: list[NDArray[np.float32]] = field(default_factory=list)
    masks: list[NDArray[np.bool_]] = field(default_factory=list)

    def add(self, X: NDArray[np.float32], mask: NDArray[np.bool_], kept: NDArray[np.bool_]) -> None:
        if kept.any():
            self.features.append(X[kept])
            self.masks.append(mask[kept])

    def rows(self) -> Rows:
        return Rows(np.concatenate(self.features), np.concatenate(self.masks))


def _account(
    fitted: FittedInParts, survey: _Survey, encoded: _Encoded, options: FitOptions
) -> dict[str, Any]:
    """Return settings and results of a fit as JSON values, as `propall.tables.fitting.account`."""
    portfolio, held_out = fitted.portfolio, fitted.held_out
    logs, mixture = portfolio.log_probabilities, fitted.portfolio.mixture
    errors: SetErrors = estimate_set_errors(logs, held_out.candidates)
    resolved = Resolution(logs, held_out.candidates, mixture.classes_)
    names, counts = np.unique(resolved.label, return_counts=True)
    weights = dict(zip(mixture.names, mixture.weights.tolist(), strict=True))
    chances = np.exp(logs)
    return {
        "source": survey.sample.source,
        "rows": survey.rows,
        "used": encoded.used,
        "classes": list(survey.classes),
        "mean_candidates": encoded.candidates / encoded.used,
        "written": dict(encoded.kinds.most_common()),
        "columns": [list(row) for row in fitted.model.features.describe()],
        "features": list(fitted.model.features.out_shape),
        "settings_compared": len(portfolio.results),
        "chosen": {name: round(weight, 4) for name, weight in weights.items()},
        "criterion": "cooccurrence_log_likelihood",
        "held_out": {name: CRITERIA[name](chances, held_out.candidates, None) for name in LISTED_CRITERIA},
        "members": len(mixture.components),
        "folds": 1,
        "effort": options.effort,
        "portfolio": [{name: plain_value(value) for name, value in row.items()} for row in portfolio.results],
        "portfolio_score": portfolio.score,
        "streamed": {
            "held_out_rows": len(held_out.candidates),
            "sampled_rows": len(encoded.sample.candidates),
            "surveyed_rows": min(survey.rows, SURVEY_ROWS),
            "training_score": portfolio.training_score,
        },
        "temperature": float(mixture.temperature_),
        "seed": options.seed,
        "resolved": {str(name): int(count) for name, count in zip(names, counts, strict=True)},
        "sets_without_truth": errors.rate,
        "doubted": int((errors.doubt > DOUBTFUL).sum()),
        "trust": None,
        "remarks": [note.as_dict() for note in fitted.notes],
        "curves": None,
        "seconds": round(fitted.seconds, 2),
    }

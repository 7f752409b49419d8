"""Evaluation of a model on rows with known true labels."""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from propall.estimators.calibration import Reliability, reliability
from propall.estimators.resolution import Resolution
from propall.labels.parsing import as_text
from propall.tables.consensus import reach_consensus
from propall.tables.label_columns import ONE, LabeledRows, cell_kind, group_by_item, read_label_columns
from propall.tables.label_source import NO_LABEL, LabelSource
from propall.tables.model import TableModel
from propall.tables.reading import DataNote, RawTable
from propall.tables.spelling import find_typos
from propall.wording import plural


@dataclass
class Evaluation:
    """Metrics of a model on rows with known true labels.

    Attributes:
        classes: class names.
        rows: number of rows with a true label.
        accuracy: share of correct predictions.
        confusion: (k, k) counts of true and predicted class.
        reliability: accuracy by predicted probability.
        resolved: share of rows whose resolved candidate is the true label; None if no row has candidates.
        covered: share of rows whose candidates include the true label.
        with_candidates: number of rows with both a true label and candidates.
        seen: number of training rows; these are predicted by models that did not see them.
        notes: rows that could not be used.
    """

    classes: tuple[str, ...]
    rows: int
    accuracy: float
    confusion: NDArray[np.int64]
    reliability: Reliability
    resolved: float | None = None
    covered: float | None = None
    with_candidates: int = 0
    seen: int = 0
    notes: list[DataNote] = field(default_factory=list)

    @property
    def recalls(self) -> list[tuple[str, int, float]]:
        """Name, number of rows and recall of every class; NaN for a class without rows."""
        counts = self.confusion.sum(1)
        with np.errstate(invalid="ignore"):
            shares = np.diag(self.confusion) / counts
        return [(name, int(n), float(s)) for name, n, s in zip(self.classes, counts, shares, strict=True)]

    def as_dict(self) -> dict[str, Any]:
        """Convert to plain JSON."""
        return {
            "rows": self.rows,
            "accuracy": self.accuracy,
            "recall": {name: None if np.isnan(share) else share for name, _, share in self.recalls},
            "confusion": self.confusion.tolist(),
            "classes": list(self.classes),
            "expected_calibration_error": self.reliability.error,
            "calibration": [
                {"probability": float(stated), "right": float(right), "rows": int(rows)}
                for stated, right, rows in zip(
                    self.reliability.confidence,
                    self.reliability.accuracy,
                    self.reliability.counts,
                    strict=True,
                )
                if rows
            ],
            "resolved_accuracy": self.resolved,
            "truth_among_candidates": self.covered,
            "rows_with_candidates": self.with_candidates,
            "rows_fitted_on": self.seen,
            "remarks": [note.as_dict() for note in self.notes],
        }


def evaluate(
    model: TableModel, raw: RawTable, truth: str, *, embedding: NDArray[Any] | None = None
) -> Evaluation:
    """Compare a model's predictions with the true labels of a table.

    Args:
        model: the model to evaluate.
        raw: the table; if it has the label columns that the model was fitted with, its candidate sets are
            resolved and evaluated too.
        truth: column of true labels; rows without one are skipped.
        embedding: precomputed features of all rows, if the model was fitted with embeddings.
    """
    item = model.labels.item
    if item is not None and item in raw.frame.columns and raw.answers is None:
        raw = group_by_item(raw, model.labels)
    notes = list(raw.notes)
    columns = read_true_labels(model, raw, truth, notes)
    usable = columns >= 0
    if model.features.images is not None:
        openable, broken = model.features.images.openable(raw.frame, raw.folder)
        usable &= openable
        notes += broken
    known = np.flatnonzero(usable)
    if not len(known):
        raise ValueError(
            f"truth: no row of {raw.source} has a class of the model in column {truth!r}; check the column."
        )
    frame = raw.frame.iloc[known]
    known_embedding = None if embedding is None else raw.select_rows(embedding)[known]
    all_classes = np.ones((len(known), len(model.classes)), dtype=bool)
    predictions, seen = model.resolve(frame, all_classes, embedding=known_embedding, folder=raw.folder)
    true, predicted = columns[known], predictions.column
    confusion = np.zeros((len(model.classes),) * 2, dtype=np.int64)
    np.add.at(confusion, (true, predicted), 1)
    evaluation = Evaluation(
        tuple(map(str, model.classes)),
        len(known),
        float((predicted == true).mean()),
        confusion,
        reliability(predictions.probability, predicted == true),
        seen=int(seen.sum()),
        notes=notes,
    )
    labeled = read_candidates(model, raw)
    if labeled is not None:
        both = np.isin(labeled.rows, known)
        if both.any():
            labeled = labeled.select(both)
            place = np.searchsorted(known, labeled.rows)
            mask = labeled.labels.to_numpy()
            resolution = Resolution(predictions.log_probabilities[place], mask, model.classes)
            resolved = reach_consensus(resolution, labeled).resolution
            evaluation.resolved = float((resolved.column == true[place]).mean())
            evaluation.covered = float(mask[np.arange(len(mask)), true[place]].mean())
            evaluation.with_candidates = len(mask)
    return evaluation


def read_true_labels(
    model: TableModel, raw: RawTable, truth: str, notes: list[DataNote]
) -> NDArray[np.int64]:
    """Look up the class number of every row's true label; -1 if it is missing or not a class of the model."""
    words = [as_text(cell) for cell in raw.column(truth, "truth")]
    names = [str(name) for name in model.classes]
    counts = {word: n for word, n in Counter(words).items() if word.lower() not in NO_LABEL}
    grammar = replace(model.labels.grammar, known=frozenset(names))
    lists = {word for word in counts if cell_kind(grammar.parse(word)) != ONE}
    counts = {word: n for word, n in counts.items() if word not in lists}
    corrections = find_typos(counts, names).corrections
    place = {name: i for i, name in enumerate(names)}
    columns = np.array([place.get(corrections.get(word, word), -1) for word in words], dtype=np.int64)

    def rows_with(*labels: str) -> tuple[int, ...]:
        return tuple(int(row) for row, word in zip(raw.frame.index, words, strict=True) if word in labels)

    for word, name in corrections.items():
        notes.append(DataNote("typo", f"{word!r} is read as {name!r}", "repaired", rows_with(word)))
    if lists:
        rows = rows_with(*lists)
        text = (
            f"--truth has several labels in {plural(len(rows), 'row')}; choose a column with one true label"
        )
        notes.append(DataNote("unknown true label", text, "row dropped", rows))
    for word in counts:
        if corrections.get(word, word) not in place:
            text = f"{word!r} is not a class of the model"
            notes.append(DataNote("unknown true label", text, "row dropped", rows_with(word)))
    return columns


def read_candidates(
    model: TableModel, raw: RawTable, source: LabelSource | None = None
) -> LabeledRows | None:
    """Read the candidate sets of a table in terms of the model's classes; None if it has no label columns.

    Args:
        model: the model.
        raw: the table.
        source: where the labels are; by default where they were in the fit.
    """
    labels = model.labels if source is None else source
    if source is None and raw.tasks is None and not all(name in raw.frame.columns for name in labels.columns):
        return None
    if labels.hierarchy is None:
        labels = replace(labels, classes=tuple(map(str, model.classes)))
    if labels.votes and set(labels.votes) != set(map(str, model.classes)):
        raise ValueError("votes: these columns are not the model's classes; pass one column per class.")
    return read_label_columns(raw, labels)

"""Evaluation of a model on rows with known true labels."""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix

from propall.estimators.calibration import Reliability, reliability
from propall.estimators.resolution import Resolution
from propall.labels.parsing import as_text, visible_text
from propall.tables.consensus import reach_consensus
from propall.tables.label_columns import ONE, LabeledRows, cell_kind, group_by_item, read_label_columns
from propall.tables.label_source import NO_LABEL, LabelSource
from propall.tables.model import TableModel
from propall.tables.reading import DataNote, RawTable
from propall.tables.spelling import find_typos
from propall.wording import plural


@dataclass
class Evaluation:
    """Metrics of a model on rows with known true labels."""

    classes: tuple[str, ...]
    rows: int  # with a true label
    accuracy: float
    confusion: NDArray[np.int64]  # (k, k) counts of true and predicted class
    reliability: Reliability
    resolved: float | None = None  # share of rows resolved to the true label; None without candidates
    covered: float | None = None  # share of rows whose candidates include the true label
    with_candidates: int = 0  # number of rows with both a true label and candidates
    seen: int = 0  # number of training rows; these are predicted by models that did not see them
    notes: list[DataNote] = field(default_factory=list)  # rows that could not be used

    @property
    def recalls(self) -> list[tuple[str, int, float]]:
        """Name, number of rows and recall of every class; NaN for a class without rows."""
        counts = self.confusion.sum(1)
        with np.errstate(invalid="ignore"):
            shares = np.diag(self.confusion) / counts
        return [(name, int(n), float(s)) for name, n, s in zip(self.classes, counts, shares, strict=True)]

    def as_dict(self) -> dict[str, Any]:
        """Convert to plain JSON."""
        bins = self.reliability
        return {
            "rows": self.rows,
            "accuracy": self.accuracy,
            "recall": {name: None if np.isnan(share) else share for name, _, share in self.recalls},
            "confusion": self.confusion.tolist(),
            "classes": list(self.classes),
            "expected_calibration_error": bins.error,
            "calibration": [
                {"probability": float(stated), "right": float(right), "rows": int(rows)}
                for stated, right, rows in zip(bins.confidence, bins.accuracy, bins.counts, strict=True)
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
    """Compare a model's predictions with the true labels in column `truth`; rows without one are skipped.

    If the table has the label columns that the model was fitted with, its candidate sets are evaluated too.

    Examples:
        >>> import pandas as pd
        >>> from propall.tables.fitting import FitOptions, fit_table
        >>> from propall.tables.label_columns import open_table
        >>> from propall.tables.label_source import LabelSource
        >>> labels = ["cat", "cat|dog", "dog", "dog|cat"]
        >>> frame = pd.DataFrame({"size": [1.0, 1.2, 3.0, 3.1] * 10, "label": labels * 10})
        >>> table = open_table(frame, LabelSource(label="label"))
        >>> options = FitOptions(methods=("cc",), nets=("linear",), epochs=100, members=1, search=False)
        >>> model = fit_table(table, options).model
        >>> checked = frame.assign(checked=["cat", "cat", "dog", "dog"] * 10)
        >>> evaluate(model, open_table(checked).raw, "checked").accuracy
        1.0
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
    predictions, training_rows = model.resolve(
        frame, all_classes, embedding=known_embedding, folder=raw.folder
    )
    true, predicted = columns[known], predictions.column
    evaluation = Evaluation(
        tuple(map(str, model.classes)),
        len(known),
        float((predicted == true).mean()),
        confusion_matrix(true, predicted, labels=np.arange(len(model.classes))),
        reliability(predictions.probability, predicted == true),
        seen=int((training_rows >= 0).sum()),
        notes=notes,
    )
    labeled = read_candidates(model, raw)
    if labeled is not None and (both := np.isin(labeled.rows, known)).any():
        labeled = labeled.select(both)
        place = np.searchsorted(known, labeled.rows)
        mask = labeled.labels.to_numpy()
        resolution = Resolution(predictions.log_probabilities[place], mask, model.classes)
        earlier = model.earlier_answers(labeled, training_rows[place])
        consensus = reach_consensus(resolution, labeled, earlier=earlier, like_0_1_0=model.is_of_0_1_0)
        resolved = consensus.resolution
        evaluation.resolved = float((resolved.column == true[place]).mean())
        evaluation.covered = float(mask[np.arange(len(mask)), true[place]].mean())
        evaluation.with_candidates = len(mask)
    return evaluation


def read_true_labels(
    model: TableModel, raw: RawTable, truth: str, notes: list[DataNote]
) -> NDArray[np.int64]:
    """Look up the class number of every row's true label; -1 if it is missing or not a class of the model."""
    words = [visible_text(as_text(cell)) for cell in raw.column(truth, "truth")]
    names = [str(name) for name in model.classes]
    counts = {word: n for word, n in Counter(words).items() if word.lower() not in NO_LABEL}
    grammar = replace(model.labels.grammar, known=frozenset(names))
    lists = {word for word in counts if cell_kind(grammar.parse(word)) != ONE}
    counts = {word: n for word, n in counts.items() if word not in lists}
    corrections = find_typos(counts, names).corrections
    place = {name: i for i, name in enumerate(names)}
    place = {visible_text(name): i for name, i in place.items()} | place
    columns = np.array([place.get(corrections.get(word, word), -1) for word in words], dtype=np.int64)

    def rows_with(*labels: str) -> tuple[int, ...]:
        return tuple(int(row) for row, word in zip(raw.frame.index, words, strict=True) if word in labels)

    for word, name in corrections.items():
        notes.append(DataNote("typo", f"{word!r} is read as {name!r}", "repaired", rows_with(word)))
    if lists:
        rows = rows_with(*lists)
        several = f"--truth has several labels in {plural(len(rows), 'row')}"
        text = f"{several}; choose a column with one true label"
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

    By default, labels are where they were in the fit.
    """
    labels = model.labels if source is None else source
    if source is None and raw.tasks is None and not all(name in raw.frame.columns for name in labels.columns):
        return None
    if labels.hierarchy is None and not labels.scores:
        labels = replace(labels, classes=tuple(map(str, model.classes)))
    if labels.votes and set(labels.votes) != set(map(str, model.classes)):
        raise ValueError("votes: these columns are not the model's classes; pass one column per class.")
    if labels.scores and set(labels.score_classes) != set(map(str, model.classes)):
        raise ValueError("scores: these columns are not the model's classes; pass one column per class.")
    return read_label_columns(raw, labels)

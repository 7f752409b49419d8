"""How good a model is where true labels are known."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from propall.estimators.calibration import Reliability, reliability
from propall.estimators.classifier import Resolution
from propall.tables.consensus import reach_consensus
from propall.tables.label_columns import (
    NO_LABEL,
    ONE,
    Labelled,
    LabelSource,
    as_text,
    one_row_per_item,
    parse_cell,
    read_labels,
    spelling,
)
from propall.tables.model import TableModel
from propall.tables.reading import Remark, Sheet


@dataclass
class Evaluation:
    """What true labels say about a model.

    Attributes:
        classes: class names.
        rows: rows with a true label.
        accuracy: share of them that is predicted right.
        confusion: (k, k) counts of true and predicted class.
        reliability: how often predictions are right, by how sure they are.
        resolved: share of rows with candidates whose resolved candidate is the true label; None without any.
        covered: share of those rows whose candidates hold the true label.
        with_candidates: rows with both a true label and candidates.
        seen: rows that the model was fitted on; they are answered by models that had not seen them.
        remarks: rows that could not be used.
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
    remarks: list[Remark] = field(default_factory=list)

    @property
    def recalls(self) -> list[tuple[str, int, float]]:
        """Name, rows, and share predicted right of every class; NaN for a class without rows."""
        counts = self.confusion.sum(1)
        with np.errstate(invalid="ignore"):
            shares = np.diag(self.confusion) / counts
        return [(name, int(n), float(s)) for name, n, s in zip(self.classes, counts, shares, strict=True)]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
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
            "remarks": [remark.as_dict() for remark in self.remarks],
        }


def evaluate(
    model: TableModel, sheet: Sheet, truth: str, *, embedding: NDArray[Any] | None = None
) -> Evaluation:
    """Compare a model's answers with the true labels of a table.

    Args:
        model: to be judged.
        sheet: the table; where it has the label columns the model was fitted with, too, its candidate sets
            are resolved.
        truth: the column of true labels; rows without one are left aside.
        embedding: precomputed features of all rows of the file, where the model was fitted with some.
    """
    item = model.labels.item
    if item is not None and item in sheet.frame.columns and sheet.answers is None:
        sheet = one_row_per_item(sheet, model.labels)
    remarks = list(sheet.remarks)
    columns = true_columns(model, sheet, truth, remarks)
    usable = columns >= 0
    if model.features.images is not None:
        openable, broken = model.features.images.openable(sheet.frame, sheet.folder)
        usable &= openable
        remarks += broken
    known = np.flatnonzero(usable)
    if not len(known):
        raise ValueError(
            f"truth: no row of {sheet.source} has a true label in {truth!r} that the model knows."
        )
    frame = sheet.frame.iloc[known]
    own = None if embedding is None else sheet.rows_of(embedding)[known]
    everything = np.ones((len(known), len(model.classes)), dtype=bool)
    answers, seen = model.resolve(frame, everything, embedding=own, folder=sheet.folder)
    right = columns[known]
    chosen = answers.column
    confusion = np.zeros((len(model.classes),) * 2, dtype=np.int64)
    np.add.at(confusion, (right, chosen), 1)
    found = Evaluation(
        tuple(map(str, model.classes)),
        len(known),
        float((chosen == right).mean()),
        confusion,
        reliability(answers.probability, chosen == right),
        seen=int(seen.sum()),
        remarks=remarks,
    )
    labelled = candidates_of(model, sheet)
    if labelled is not None:
        both = np.isin(labelled.rows, known)
        if both.any():
            theirs = np.searchsorted(known, labelled.rows[both])
            said = labelled.only(both)
            mask = said.labels.to_numpy()
            resolution = Resolution(answers.log_probabilities[theirs], mask, model.classes)
            among = reach_consensus(resolution, said).resolution
            found.resolved = float((among.column == right[theirs]).mean())
            found.covered = float(mask[np.arange(len(mask)), right[theirs]].mean())
            found.with_candidates = len(mask)
    return found


def true_columns(model: TableModel, sheet: Sheet, truth: str, remarks: list[Remark]) -> NDArray[np.int64]:
    """The class number of every row's true label; -1 without one, or with one the model does not know."""
    words = [as_text(cell) for cell in sheet.column(truth, "truth")]
    names = [str(name) for name in model.classes]
    counts = {word: words.count(word) for word in dict.fromkeys(words) if word.lower() not in NO_LABEL}
    lists = {
        word for word in counts if parse_cell(word, model.labels.separator, frozenset(names)).kind != ONE
    }
    counts = {word: times for word, times in counts.items() if word not in lists}
    meant = spelling(counts, names).meant
    place = {name: i for i, name in enumerate(names)}
    columns = np.array([place.get(meant.get(word, word), -1) for word in words], dtype=np.int64)
    index = [int(row) for row in sheet.frame.index]
    for word, name in meant.items():
        rows = tuple(index[i] for i, own in enumerate(words) if own == word)
        remarks.append(Remark("slip of the pen", f"{word!r} is read as {name!r}", "repaired", rows))
    if lists:
        rows = tuple(index[i] for i, word in enumerate(words) if word in lists)
        text = f"--truth holds several labels in {len(rows)} rows; name a column with one true label"
        remarks.append(Remark("unknown truth", text, "row dropped", rows))
    for word in counts:
        if meant.get(word, word) not in place:
            rows = tuple(index[i] for i, own in enumerate(words) if own == word)
            remarks.append(Remark("unknown truth", f"{word!r} is no class of the model", "row dropped", rows))
    return columns


def candidates_of(model: TableModel, sheet: Sheet, source: LabelSource | None = None) -> Labelled | None:
    """The candidate sets of a table in the model's classes; None where it has no such columns.

    Args:
        model: whose classes and, by default, whose label columns are meant.
        sheet: the table.
        source: where its labels stand.
    """
    own = model.labels if source is None else source
    if (
        source is None
        and sheet.tasks is None
        and not all(name in sheet.frame.columns for name in own.columns)
    ):
        return None
    if own.hierarchy is None:
        own = replace(own, classes=tuple(map(str, model.classes)))
    if own.votes and set(own.votes) != set(map(str, model.classes)):
        raise ValueError("votes: the model has other classes than these columns; give one column for each.")
    return read_labels(sheet, own)

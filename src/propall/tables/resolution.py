"""Resolving and predicting the labels of a table."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from propall.estimators.resolution import Resolution
from propall.tables.consensus import Consensus, reach_consensus
from propall.tables.evaluation import read_candidates
from propall.tables.fitting import Fitted
from propall.tables.images import ImageColumn
from propall.tables.label_columns import LabeledRows, group_by_item
from propall.tables.label_source import LabelSource
from propall.tables.learning_curves import LearningCurves
from propall.tables.model import TableModel
from propall.tables.reading import DataNote, RawTable, read_table
from propall.tables.writing import DOUBTFUL, predicted_table, resolved_table

#: A resolved label with at least this probability counts as sure.
SURE = 0.9


class LabelCount(NamedTuple):
    """A label: rows that had only this label, rows resolved to it, and its mean probability there."""

    name: str
    before: int
    after: int
    probability: float


@dataclass
class ResolvedTable:
    """A table with resolved candidate sets.

    Attributes:
        raw: the table.
        labeled: its candidate sets.
        consensus: the resolved labels, which take the annotators' answers into account.
        seen: training rows; these are resolved by models that did not see them.
        account: record of the model's fit.
        notes: everything noticed, dropped or repaired.
        images: the column of image files, if any.
        curves: learning curves of the model, if it has a network.
        unfinished: whether the fit was interrupted, so that the model itself resolves its training rows.
    """

    raw: RawTable
    labeled: LabeledRows
    consensus: Consensus
    seen: NDArray[np.bool_]
    account: dict[str, Any] = field(default_factory=dict)
    notes: list[DataNote] = field(default_factory=list)
    images: ImageColumn | None = None
    curves: LearningCurves | None = None
    unfinished: bool = False

    @property
    def resolution(self) -> Resolution:
        """The resolved labels and their probabilities."""
        return self.consensus.resolution

    @property
    def doubt(self) -> NDArray[np.float64]:
        """The probability of each row that no candidate is correct."""
        return self.consensus.doubt

    @property
    def annotators(self) -> tuple[tuple[str, float], ...]:
        """Name and estimated accuracy of each annotator, if there are several."""
        return self.consensus.annotators

    @property
    def is_ambiguous(self) -> NDArray[np.bool_]:
        """Which rows have more than one candidate."""
        mask: NDArray[np.bool_] = self.resolution.candidates.sum(1) > 1
        return mask

    @property
    def ambiguous(self) -> int:
        """Number of rows with more than one candidate."""
        return int(self.is_ambiguous.sum())

    @property
    def sure(self) -> int:
        """Number of ambiguous rows whose label has a probability of at least `SURE`."""
        return int((self.is_ambiguous & (self.resolution.probability >= SURE)).sum())

    @property
    def doubted(self) -> int:
        """Number of rows whose candidates are probably all wrong."""
        return int((self.doubt > DOUBTFUL).sum())

    def frame(self, alternatives: int = 3) -> pd.DataFrame:
        """The table with added columns, see `resolved_table`."""
        return resolved_table(
            self.raw,
            self.labeled,
            self.resolution,
            self.doubt,
            seen=self.seen,
            n_alternatives=alternatives,
        )

    def counts(self) -> list[LabelCount]:
        """All labels before and after resolving, most frequent first."""
        mask, column = self.resolution.candidates, self.resolution.column
        alone = mask[mask.sum(1) == 1].sum(0)
        rows = []
        for i, name in enumerate(self.resolution.classes):
            resolved = column == i
            mean = float(self.resolution.probability[resolved].mean()) if resolved.any() else float("nan")
            rows.append(LabelCount(str(name), int(alone[i]), int(resolved.sum()), mean))
        return sorted(rows, key=lambda row: (-row.after, row.name))

    def as_dict(self) -> dict[str, Any]:
        """Convert to plain JSON."""
        return {
            "rows": len(self.raw.frame),
            "resolved": len(self.resolution),
            "ambiguous": self.ambiguous,
            "sure": self.sure,
            "doubted": self.doubted,
            "sets_without_truth": self.consensus.rate,
            "fitted_on": int(self.seen.sum()),
            "annotators": [{"name": name, "estimated_accuracy": share} for name, share in self.annotators],
            "labels": [
                {**row._asdict(), "probability": None if np.isnan(row.probability) else row.probability}
                for row in self.counts()
            ],
            "remarks": [note.as_dict() for note in self.notes],
        }


def resolve_training_rows(fitted: Fitted) -> ResolvedTable:
    """Resolve the training rows of a fit, each by models that did not see it."""
    assert fitted.table.labeled is not None
    return ResolvedTable(
        fitted.table.raw,
        fitted.table.labeled,
        fitted.consensus,
        np.ones(len(fitted.consensus.resolution), dtype=bool),
        fitted.model.account,
        fitted.notes,
        fitted.model.features.images,
        fitted.curves,
    )


def resolve_file(
    model: TableModel,
    file: str | Path | pd.DataFrame,
    source: LabelSource | None = None,
    *,
    embedding: NDArray[Any] | None = None,
) -> ResolvedTable:
    """Resolve the candidate sets of a file with a model.

    Args:
        model: the model.
        file: a table with the columns that the model was fitted with.
        source: where the labels are; by default where they were in the fit.
        embedding: precomputed features of all rows, if the model was fitted with embeddings.
    """
    raw = read_table(file)
    labels = model.labels if source is None else source
    if labels.item is not None and raw.tasks is None:
        raw = group_by_item(raw, labels)
    labeled = read_candidates(model, raw, source)
    if labeled is None:
        absent = [name for name in labels.columns if name not in raw.frame.columns]
        raise ValueError(
            f"label: {raw.source} has no column {', '.join(map(repr, absent))}; specify where the labels "
            "are, or use `propall predict` for rows without labels."
        )
    if model.features.images is not None:
        frame = raw.frame.iloc[labeled.rows]
        labeled = labeled.select(*model.features.images.openable(frame, raw.folder))
    frame = raw.frame.iloc[labeled.rows]
    kept_embedding = None if embedding is None else raw.select_rows(embedding)[labeled.rows]
    resolution, seen = model.resolve(frame, labeled.labels, embedding=kept_embedding, folder=raw.folder)
    # The fit estimated how often sets lack the true label; labels from another source may differ.
    rate = model.account.get("sets_without_truth") if source is None else None
    curves = model.account.get("curves")
    return ResolvedTable(
        raw,
        labeled,
        reach_consensus(resolution, labeled, rate),
        seen,
        model.account,
        [*raw.notes, *labeled.notes, *model.features.check_new_rows(frame)],
        model.features.images,
        None if curves is None else LearningCurves.from_dict(curves),
        unfinished=model.held_out is None,
    )


@dataclass
class PredictedTable:
    """A table with predictions.

    Attributes:
        frame: the table with added columns, see `predicted_table`.
        labels: predicted labels of the rows that could be read.
        probabilities: probabilities of these labels.
        notes: what was repaired or left out.
        separator: column separator of the file, if it is a CSV.
    """

    frame: pd.DataFrame
    labels: NDArray[Any]
    probabilities: NDArray[np.float64]
    notes: list[DataNote] = field(default_factory=list)
    separator: str | None = None

    @property
    def mean_probability(self) -> float:
        """Mean probability of the predicted labels."""
        return float(self.probabilities.mean())

    def counts(self) -> list[tuple[str, int, float]]:
        """Label, number of rows and mean probability, most frequent first."""
        rows = [
            (
                str(name),
                int((self.labels == name).sum()),
                float(self.probabilities[self.labels == name].mean()),
            )
            for name in np.unique(self.labels)
        ]
        return sorted(rows, key=lambda row: (-row[1], row[0]))

    def as_dict(self) -> dict[str, Any]:
        """Convert to plain JSON."""
        names = ("label", "rows", "mean_probability")
        return {
            "rows": len(self.labels),
            "labels": [dict(zip(names, row, strict=True)) for row in self.counts()],
            "mean_probability": self.mean_probability,
            "remarks": [note.as_dict() for note in self.notes],
        }


def predict_file(
    model: TableModel,
    file: str | Path | pd.DataFrame,
    *,
    embedding: NDArray[Any] | None = None,
    all_probabilities: bool = False,
) -> PredictedTable:
    """Predict the class of every row of a file.

    Args:
        model: the model.
        file: a table with the columns that the model was fitted with.
        embedding: precomputed features of all rows, if the model was fitted with embeddings.
        all_probabilities: also add the probability of every class.
    """
    raw = read_table(file)
    readable, notes = np.ones(len(raw.frame), dtype=bool), list(raw.notes)
    if model.features.images is not None:
        readable, broken = model.features.images.openable(raw.frame, raw.folder)
        notes += [replace(note, text=f"{note.text}; not predicted", action="left blank") for note in broken]
    notes += model.features.check_new_rows(raw.frame)
    kept_embedding = None if embedding is None else raw.select_rows(embedding)[readable]
    logs = model.log_probabilities(raw.frame[readable], embedding=kept_embedding, folder=raw.folder)
    frame = predicted_table(model, raw, logs, readable, all_probabilities=all_probabilities)
    labels, probabilities = model.classes[logs.argmax(1)], np.exp(logs.max(1))
    return PredictedTable(frame, labels, probabilities, notes, raw.separator)

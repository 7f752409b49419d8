"""Resolving and predicting the labels of a table."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from propall.estimators.resolution import Resolution
from propall.tables.consensus import Consensus, reach_consensus
from propall.tables.evaluation import candidates_of
from propall.tables.fitting import Curves, Fitted
from propall.tables.images import ImageColumn
from propall.tables.label_columns import Labelled, LabelSource, one_row_per_item
from propall.tables.model import TableModel
from propall.tables.reading import Remark, Sheet, read
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
class Resolved:
    """A table with resolved candidate sets.

    Attributes:
        sheet: the table.
        labelled: its candidate sets.
        consensus: the resolved labels, which take the annotators' answers into account.
        seen: training rows; these are resolved by models that did not see them.
        account: record of the model's fit.
        remarks: everything noticed, dropped or repaired.
        images: the column of image files, if any.
        curves: learning curves of the model, if it has a network.
        unfinished: whether the fit was interrupted, so that the model itself resolves its training rows.
    """

    sheet: Sheet
    labelled: Labelled
    consensus: Consensus
    seen: NDArray[np.bool_]
    account: dict[str, Any] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)
    images: ImageColumn | None = None
    curves: Curves | None = None
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
            self.sheet,
            self.labelled,
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
            "rows": len(self.sheet.frame),
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
            "remarks": [remark.as_dict() for remark in self.remarks],
        }


def resolved_by_fit(fitted: Fitted) -> Resolved:
    """Resolve the training rows of a fit, each by models that did not see it."""
    assert fitted.table.labelled is not None
    return Resolved(
        fitted.table.sheet,
        fitted.table.labelled,
        fitted.consensus,
        np.ones(len(fitted.consensus.resolution), dtype=bool),
        fitted.model.account,
        fitted.remarks,
        fitted.model.features.images,
        fitted.curves,
    )


def resolve_file(
    model: TableModel,
    file: str | Path | pd.DataFrame,
    source: LabelSource | None = None,
    *,
    embedding: NDArray[Any] | None = None,
) -> Resolved:
    """Resolve the candidate sets of a file with a model.

    Args:
        model: the model.
        file: a table with the columns that the model was fitted with.
        source: where the labels are; by default where they were in the fit.
        embedding: precomputed features of all rows, if the model was fitted with embeddings.
    """
    sheet = read(file)
    labels = model.labels if source is None else source
    if labels.item is not None and sheet.tasks is None:
        sheet = one_row_per_item(sheet, labels)
    labelled = candidates_of(model, sheet, source)
    if labelled is None:
        absent = [name for name in labels.columns if name not in sheet.frame.columns]
        raise ValueError(
            f"label: {sheet.source} has no column {', '.join(map(repr, absent))}; specify where the labels "
            "are, or use `propall predict` for rows without labels."
        )
    if model.features.images is not None:
        frame = sheet.frame.iloc[labelled.rows]
        labelled = labelled.only(*model.features.images.openable(frame, sheet.folder))
    frame = sheet.frame.iloc[labelled.rows]
    kept_embedding = None if embedding is None else sheet.rows_of(embedding)[labelled.rows]
    resolution, seen = model.resolve(frame, labelled.labels, embedding=kept_embedding, folder=sheet.folder)
    # The fit estimated how often sets lack the true label; labels from another source may differ.
    rate = model.account.get("sets_without_truth") if source is None else None
    curves = model.account.get("curves")
    return Resolved(
        sheet,
        labelled,
        reach_consensus(resolution, labelled, rate),
        seen,
        model.account,
        [*sheet.remarks, *labelled.remarks, *model.features.check_new_rows(frame)],
        model.features.images,
        None if curves is None else Curves.from_dict(curves),
        unfinished=model.held_out is None,
    )


@dataclass
class Predicted:
    """A table with predictions.

    Attributes:
        frame: the table with added columns, see `predicted_table`.
        labels: predicted labels of the rows that could be read.
        probabilities: probabilities of these labels.
        remarks: what was repaired or left out.
        separator: column separator of the file, if it is a CSV.
    """

    frame: pd.DataFrame
    labels: NDArray[Any]
    probabilities: NDArray[np.float64]
    remarks: list[Remark] = field(default_factory=list)
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
            "remarks": [remark.as_dict() for remark in self.remarks],
        }


def predict_file(
    model: TableModel,
    file: str | Path | pd.DataFrame,
    *,
    embedding: NDArray[Any] | None = None,
    all_probabilities: bool = False,
) -> Predicted:
    """Predict the class of every row of a file.

    Args:
        model: the model.
        file: a table with the columns that the model was fitted with.
        embedding: precomputed features of all rows, if the model was fitted with embeddings.
        all_probabilities: also add the probability of every class.
    """
    sheet = read(file)
    readable, remarks = np.ones(len(sheet.frame), dtype=bool), list(sheet.remarks)
    if model.features.images is not None:
        readable, broken = model.features.images.openable(sheet.frame, sheet.folder)
        remarks += [replace(r, text=f"{r.text}; not predicted", action="left blank") for r in broken]
    remarks += model.features.check_new_rows(sheet.frame)
    kept_embedding = None if embedding is None else sheet.rows_of(embedding)[readable]
    logs = model.log_probabilities(sheet.frame[readable], embedding=kept_embedding, folder=sheet.folder)
    frame = predicted_table(model, sheet, logs, readable, all_probabilities=all_probabilities)
    labels, probabilities = model.classes[logs.argmax(1)], np.exp(logs.max(1))
    return Predicted(frame, labels, probabilities, remarks, sheet.separator)

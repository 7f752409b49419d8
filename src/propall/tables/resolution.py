"""Answers about the rows of a file: labels for a table to go on with."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from propall.estimators.classifier import Resolution
from propall.tables.consensus import Consensus, reach_consensus
from propall.tables.evaluation import candidates_of
from propall.tables.fitting import Curves, Fitted
from propall.tables.images import ImageColumn
from propall.tables.label_columns import Labelled, LabelSource, one_row_per_item
from propall.tables.model import TableModel
from propall.tables.reading import Remark, Sheet, read
from propall.tables.writing import DOUBTFUL, predicted_table, resolved_table

#: A resolved label with at least this probability is called sure.
SURE = 0.9


class LabelCount(NamedTuple):
    """A label: rows it was certain for before, rows resolved to it, and how probable it is there."""

    name: str
    before: int
    after: int
    probability: float


@dataclass
class Resolved:
    """A file whose candidate sets are resolved.

    Attributes:
        sheet: the file.
        labelled: its candidate sets.
        consensus: what they resolve to, with all that people said weighed in it.
        seen: rows the model was fitted on, answered by models that had not seen them.
        account: how the model came about.
        remarks: everything noticed, dropped or repaired.
        images: the column of images, where there is one.
        curves: how the model learnt, where it has a network.
        unfinished: whether the fit was interrupted, so that rows it saw are answered by the model itself.
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
        """What the candidate sets resolve to."""
        return self.consensus.resolution

    @property
    def doubt(self) -> NDArray[np.float64]:
        """The probability that the truth is outside each candidate set."""
        return self.consensus.doubt

    @property
    def annotators(self) -> tuple[tuple[str, float], ...]:
        """Name and estimated share of right answers of each person, where several answered."""
        return self.consensus.annotators

    @property
    def _several(self) -> NDArray[np.bool_]:
        several: NDArray[np.bool_] = self.resolution.candidates.sum(1) > 1
        return several

    @property
    def ambiguous(self) -> int:
        """Rows with more than one candidate."""
        return int(self._several.sum())

    @property
    def sure(self) -> int:
        """Ambiguous rows whose label has a high probability."""
        return int((self._several & (self.resolution.probability >= SURE)).sum())

    @property
    def doubted(self) -> int:
        """Rows whose truth is more likely outside the candidates than among them."""
        return int((self.doubt > DOUBTFUL).sum())

    def frame(self, most: int = 3) -> pd.DataFrame:
        """The file's table with the answers beside it."""
        return resolved_table(
            self.sheet, self.labelled, self.resolution, self.doubt, seen=self.seen, most=most
        )

    def counts(self) -> list[LabelCount]:
        """Every label before and after, the most frequent first."""
        mask, column = self.resolution.candidates, self.resolution.column
        alone = mask[mask.sum(1) == 1].sum(0)
        rows = []
        for i, name in enumerate(self.resolution.classes):
            own = column == i
            chance = float(self.resolution.probability[own].mean()) if own.any() else float("nan")
            rows.append(LabelCount(str(name), int(alone[i]), int(own.sum()), chance))
        return sorted(rows, key=lambda row: (-row.after, row.name))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
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
    """The rows a model was just fitted on, each answered by models that had not seen it."""
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
        model: that knows the classes.
        file: a table with the columns the model was fitted with.
        source: where its labels stand; where they stood in the file the model was fitted on, by default.
        embedding: precomputed features of all rows, where the model was fitted with some.
    """
    sheet = read(file)
    own = model.labels if source is None else source
    if own.item is not None and sheet.tasks is None:
        sheet = one_row_per_item(sheet, own)
    labelled = candidates_of(model, sheet, source)
    if labelled is None:
        absent = [name for name in own.columns if name not in sheet.frame.columns]
        raise ValueError(
            f"label: {sheet.source} has no column {', '.join(map(repr, absent))}; say where its labels "
            "stand, or use `propall predict` for rows without labels."
        )
    if model.features.images is not None:
        frame = sheet.frame.iloc[labelled.rows]
        labelled = labelled.only(*model.features.images.openable(frame, sheet.folder))
    frame = sheet.frame.iloc[labelled.rows]
    given = None if embedding is None else sheet.rows_of(embedding)[labelled.rows]
    resolution, seen = model.resolve(frame, labelled.labels, embedding=given, folder=sheet.folder)
    # The fit tells how often sets lack the truth, unless these labels come from elsewhere.
    rate = model.account.get("sets_without_truth") if source is None else None
    curves = model.account.get("curves")
    return Resolved(
        sheet,
        labelled,
        reach_consensus(resolution, labelled, rate),
        seen,
        model.account,
        [*sheet.remarks, *labelled.remarks, *model.features.unfamiliar(frame)],
        model.features.images,
        None if curves is None else Curves.from_dict(curves),
        unfinished=model.held_out is None,
    )


@dataclass
class Predicted:
    """A file with predictions.

    Attributes:
        frame: the file's table with label and probability beside it.
        labels: the predicted labels, of rows that could be read.
        probabilities: of these labels.
        remarks: what was mended when the file was read.
        separator: what stands between two columns of the file, if it is a CSV.
    """

    frame: pd.DataFrame
    labels: NDArray[Any]
    probabilities: NDArray[np.float64]
    remarks: list[Remark] = field(default_factory=list)
    separator: str | None = None

    @property
    def mean_probability(self) -> float:
        """Of the predicted labels."""
        return float(self.probabilities.mean())

    def counts(self) -> list[tuple[str, int, float]]:
        """Label, rows and mean probability, the most frequent first."""
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
        """For JSON."""
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
    every: bool = False,
) -> Predicted:
    """Predict the class of every row of a file.

    Args:
        model: to be asked.
        file: a table with the columns the model was fitted with.
        embedding: precomputed features of all rows, where the model was fitted with some.
        every: also write the probability of every class.
    """
    sheet = read(file)
    known, remarks = np.ones(len(sheet.frame), dtype=bool), list(sheet.remarks)
    if model.features.images is not None:
        known, broken = model.features.images.openable(sheet.frame, sheet.folder)
        remarks += [replace(r, text=f"{r.text}; not predicted", action="left blank") for r in broken]
    remarks += model.features.unfamiliar(sheet.frame)
    given = None if embedding is None else sheet.rows_of(embedding)[known]
    logs = model.log_probabilities(sheet.frame[known], embedding=given, folder=sheet.folder)
    frame = predicted_table(model, sheet, logs, known, every=every)
    labels, chances = model.classes[logs.argmax(1)], np.exp(logs.max(1))
    return Predicted(frame, labels, chances, remarks, sheet.separator)

"""Resolving and predicting the labels of a table."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from propall.estimators.resolution import Resolution
from propall.labels.annotators import EarlierAnswers
from propall.tables.consensus import DOUBTFUL, Consensus, reach_consensus
from propall.tables.evaluation import read_candidates
from propall.tables.fitting import Fitted
from propall.tables.images import ImageColumn
from propall.tables.label_columns import LabeledRows, group_by_item
from propall.tables.label_source import LabelSource
from propall.tables.learning_curves import LearningCurves
from propall.tables.model import TableModel
from propall.tables.reading import DataNote, RawTable, read_table
from propall.tables.writing import add_columns, format_alternatives
from propall.wording import list_names

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
    """A table with resolved candidate sets."""

    raw: RawTable
    labeled: LabeledRows
    consensus: Consensus  # takes the annotators' answers into account
    seen: NDArray[np.bool_]  # training rows; these are resolved by models that did not see them
    account: dict[str, Any] = field(default_factory=dict)  # record of the model's fit
    notes: list[DataNote] = field(default_factory=list)  # everything noticed, dropped or repaired
    images: ImageColumn | None = None
    curves: LearningCurves | None = None
    unfinished: bool = False  # the fit was interrupted, so the model itself resolves its training rows
    resolver: str = "the model"  # what resolves rows that are not in the training data
    item: str | None = None  # the column with the name of each row, if it is known

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
    def any_class_is_possible(self) -> bool:
        """Whether labels may be outside the candidates: those of annotators and models may all be wrong."""
        return self.consensus.posterior is not None or self.labeled.from_model

    @property
    def probability(self) -> NDArray[np.float64]:
        """Probability of each label, among its row's candidates or, if any class is possible, among all."""
        if not self.any_class_is_possible:
            return self.resolution.probability
        probabilities = self.resolution.probabilities
        return probabilities[np.arange(len(probabilities)), self.resolution.column]

    @property
    def margin(self) -> NDArray[np.float64]:
        """Difference between `probability` and that of the second."""
        if not self.any_class_is_possible:
            return self.resolution.margin
        two = np.partition(self.resolution.probabilities, -2, axis=1)[:, -2:]
        lead: NDArray[np.float64] = two[:, 1] - two[:, 0]
        return lead

    @property
    def is_ambiguous(self) -> NDArray[np.bool_]:
        """Which rows have more than one candidate, as they were read."""
        mask: NDArray[np.bool_] = self.labeled.labels.to_numpy().sum(1) > 1
        return mask

    @property
    def ambiguous(self) -> int:
        """Number of rows with more than one candidate."""
        return int(self.is_ambiguous.sum())

    @property
    def sure(self) -> int:
        """Number of ambiguous rows whose label has a probability of at least `SURE`."""
        return int((self.is_ambiguous & (self.probability >= SURE)).sum())

    @property
    def doubted(self) -> int:
        """Number of rows whose candidates are probably all wrong."""
        return int((self.doubt > DOUBTFUL).sum())

    def frame(self, alternatives: int = 3) -> pd.DataFrame:
        """Return the table with the resolved label and what is known about it as added columns."""
        wrong = "all candidates are probably wrong"
        notes = np.full(len(self.raw.frame), None, dtype=object)
        notes[self.labeled.rows] = np.where(self.doubt > DOUBTFUL, wrong, "")
        for note in self.labeled.notes:
            if note.action == "row dropped":
                notes[self.raw.frame.index.isin(note.rows)] = f"left out: {note.text}"
        columns: dict[str, Any] = {
            "label": self.resolution.label,
            "probability": self.probability.astype(float).round(6),
            "margin": self.margin.astype(float).round(6),
            "doubt": self.doubt.round(6),
            "alternatives": [format_alternatives(row) for row in self.resolution.alternatives(alternatives)],
            "note": notes[self.labeled.rows],
            "by": np.where(self.seen, "models that did not see it", self.resolver),
        }
        out = add_columns(self.raw.frame, self.labeled.rows, columns)
        position = len(self.raw.frame.columns) + list(columns).index("note")
        out.isetitem(position, notes)
        return out

    def counts(self) -> list[LabelCount]:
        """All labels before and after resolving, most frequent first."""
        mask, column = self.labeled.labels.to_numpy(), self.resolution.column
        alone, probability = mask[mask.sum(1) == 1].sum(0), self.probability
        rows = []
        for i, name in enumerate(self.resolution.classes):
            resolved = column == i
            mean = float(probability[resolved].mean()) if resolved.any() else float("nan")
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
        item=None if fitted.table.source is None else fitted.table.source.item,
    )


def resolve_file(
    model: TableModel,
    file: str | Path | pd.DataFrame | RawTable,
    source: LabelSource | None = None,
    *,
    embedding: NDArray[Any] | None = None,
) -> ResolvedTable:
    """Resolve the candidate sets of a file; by default, labels are where they were in the fit.

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
        >>> resolve_file(model, frame).resolution.label[:4].tolist()
        ['cat', 'cat', 'dog', 'dog']
    """
    raw = file if isinstance(file, RawTable) else read_table(file)
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
    prepared = model.features.prepared(frame)
    resolution, training_rows = model.resolve(
        frame, labeled.labels, embedding=kept_embedding, folder=raw.folder, prepared=prepared
    )
    # The fit estimated how often sets lack the true label; labels from another source may differ.
    rate = model.account.get("sets_without_truth") if source is None else None
    curves = model.account.get("curves")
    earlier = model.earlier_answers(labeled, training_rows)
    return ResolvedTable(
        raw,
        labeled,
        reach_consensus(resolution, labeled, rate, earlier=earlier, like_0_1_0=model.is_of_0_1_0),
        training_rows >= 0,
        model.account,
        [
            *raw.notes,
            *labeled.notes,
            *model.features.check_new_rows(frame, prepared),
            *_note_known_annotators(labeled, earlier),
        ],
        model.features.images,
        None if curves is None else LearningCurves.from_dict(curves),
        unfinished=model.is_unfinished,
        item=labels.item,
    )


def _note_known_annotators(labeled: LabeledRows, earlier: EarlierAnswers | None) -> list[DataNote]:
    if earlier is None:
        return []
    answers = earlier.answers.n_answers
    known = [name for name, count in zip(labeled.annotators, answers, strict=True) if count]
    text = f"{list_names(known)}: {answers.sum():.0f} answers in the fit count for how reliable they are"
    return [DataNote("known annotators", text)]


@dataclass
class PredictedTable:
    """A table with predictions for the rows that could be read."""

    frame: pd.DataFrame
    labels: NDArray[Any]
    probabilities: NDArray[np.float64]  # of these labels
    notes: list[DataNote] = field(default_factory=list)
    separator: str | None = None  # of the file, if it is a CSV

    @property
    def mean_probability(self) -> float:
        """Mean probability of the predicted labels."""
        return float(self.probabilities.mean())

    def counts(self) -> list[tuple[str, int, float]]:
        """Label, number of rows and mean probability, most frequent first."""
        of_label = {str(name): self.probabilities[self.labels == name] for name in np.unique(self.labels)}
        rows = [(name, len(values), float(values.mean())) for name, values in of_label.items()]
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
    file: str | Path | pd.DataFrame | RawTable,
    *,
    embedding: NDArray[Any] | None = None,
    all_probabilities: bool = False,
) -> PredictedTable:
    """Predict the class, or the probabilities of all classes, of every row of a file.

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
        >>> predict_file(model, frame[["size"]]).frame["propall_label"][:4].tolist()
        ['cat', 'cat', 'dog', 'dog']
    """
    raw = file if isinstance(file, RawTable) else read_table(file)
    readable, notes = np.ones(len(raw.frame), dtype=bool), list(raw.notes)
    if model.features.images is not None:
        readable, broken = model.features.images.openable(raw.frame, raw.folder)
        notes += [replace(note, text=f"{note.text}; not predicted", action="left blank") for note in broken]
    prepared = model.features.prepared(raw.frame)
    notes += model.features.check_new_rows(raw.frame, prepared)
    kept_embedding = None if embedding is None else raw.select_rows(embedding)[readable]
    frame, prepared = (part if readable.all() else part[readable] for part in (raw.frame, prepared))
    logs = model.log_probabilities(frame, embedding=kept_embedding, folder=raw.folder, prepared=prepared)
    labels, probabilities = model.classes[logs.argmax(1)], np.exp(logs)
    columns = {"label": labels, "probability": probabilities.max(1).round(6)}
    if all_probabilities:
        columns |= {f"p_{name}": probabilities[:, i].round(6) for i, name in enumerate(model.classes)}
    frame = add_columns(raw.frame, readable, columns)
    return PredictedTable(frame, labels, probabilities.max(1), notes, raw.separator)

"""What a file holds: its columns, and what its labels look like before anything is learnt from them."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from propall.labels.candidates import CandidateLabels
from propall.tables.features import FeatureColumn, Features, is_gap, on_copies
from propall.tables.label_columns import NEGATED, NOTHING, Labelled, Table, as_text, copies_of_labels
from propall.tables.reading import Remark

#: Pairs of labels that are shown.
PAIRS = 10
#: What a column is that nothing is learnt from.
LABEL, LEFT_OUT = "label", "left out"


class ColumnSummary(NamedTuple):
    """A column at a glance: what it is used as, and what stands in it."""

    name: str
    role: str
    missing: int
    distinct: int
    example: str


class ClassSummary(NamedTuple):
    """A class at a glance: rows that name it alone, name it among others, and rule it out."""

    name: str
    alone: int
    among: int
    ruled_out: int


class Pair(NamedTuple):
    """Two labels that stand in one set: in how many rows, and in which share of the rarer one's."""

    one: str
    other: str
    rows: int
    share: float


class Agreement(NamedTuple):
    """How far people agree.

    Attributes:
        pairwise: share of pairs of answers on one row that are the same.
        alpha: Krippendorff's alpha for nominal data: 1 for full agreement, 0 for what chance would give.
        annotators: name, number of answers, and share of them that agree with most of the others' answers.
    """

    pairwise: float
    alpha: float
    annotators: tuple[tuple[str, int, float], ...] = ()


@dataclass
class Summary:
    """A file at a glance.

    Attributes:
        source: where it came from.
        rows: rows of the file, and how many of them have a usable label.
        used: rows with a usable label.
        columns: all of them.
        where: where the labels stand, in words; empty where nobody said.
        kinds: how many rows are written how.
        sizes: how many rows have how many candidates.
        classes: all of them.
        pairs: labels that occur together, the most frequent first.
        agreement: of annotators, where there are several.
        uninformative: rows for which every class is possible.
        remarks: everything noticed, dropped or repaired.
    """

    source: str
    rows: int
    used: int
    columns: list[ColumnSummary]
    where: str = ""
    kinds: dict[str, int] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    classes: list[ClassSummary] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    agreement: Agreement | None = None
    uninformative: int = 0
    remarks: list[Remark] = field(default_factory=list)

    @property
    def mean_size(self) -> float:
        """Mean number of candidates."""
        total = sum(self.sizes.values())
        return sum(size * rows for size, rows in self.sizes.items()) / total if total else float("nan")

    @property
    def has_features(self) -> bool:
        """Whether there is a column to learn from."""
        return any(column.role not in (LABEL, LEFT_OUT) for column in self.columns)

    @property
    def never_alone(self) -> list[str]:
        """Classes that no row names for certain."""
        return [row.name for row in self.classes if not row.alone]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "source": self.source,
            "rows": self.rows,
            "used": self.used,
            "columns": [column._asdict() for column in self.columns],
            "labels": {
                "where": self.where,
                "written": self.kinds,
                "set_sizes": {str(size): rows for size, rows in self.sizes.items()},
                "mean_candidates": None if not self.sizes else self.mean_size,
                "classes": [row._asdict() for row in self.classes],
                "never_alone": self.never_alone,
                "together": [pair._asdict() for pair in self.pairs],
                "without_information": self.uninformative,
                "agreement": None if self.agreement is None else self.agreement._asdict(),
            },
            "remarks": [remark.as_dict() for remark in self.remarks],
        }


def summarise(table: Table, features: Features | None = None) -> Summary:
    """Look at a table.

    Args:
        table: what was read.
        features: how its columns are read; found out where it is not given.
    """
    frame = table.sheet.frame
    reserved = table.source.columns if table.source is not None else ()
    copies = copies_of_labels(table, reserved) if table.labelled is not None else {}
    if features is None:
        try:
            features = Features.fit(
                table.frame, without=(*reserved, *copies), separator=table.sheet.separator
            )
        except ValueError as error:
            text = str(error).removeprefix("features: ")
            features = Features((), remarks=[Remark("no features", text)])
    used = {column.name: column for column in features.columns}
    columns = []
    for name in frame.columns:
        gaps = frame[name].map(is_gap).to_numpy(dtype=bool)
        words = frame[name][~gaps].map(as_text)
        role = LABEL if name in reserved else _role(used.get(str(name)), features, str(name))
        example = str(words.iloc[0]) if len(words) else ""
        columns.append(ColumnSummary(str(name), role, int(gaps.sum()), int(words.nunique()), example))
    found = Summary(table.sheet.source, table.sheet.whole, len(table.frame), columns)
    found.remarks = [*table.remarks, *copies.values(), *features.remarks]
    if features.columns:
        contents = pd.util.hash_pandas_object(features.prepared(table.frame), index=False)
        found.remarks += on_copies(pd.factorize(contents)[0], table.frame.index)
    if table.labelled is not None and table.source is not None:
        found.where = table.source.says()
        _describe_labels(found, table.labelled)
    return found


def _role(column: FeatureColumn | None, features: Features, name: str) -> str:
    if column is not None:
        return column.kind
    if features.images is not None and features.images.name == name:
        return "images"
    return LEFT_OUT


def _describe_labels(found: Summary, labelled: Labelled) -> None:
    labels = labelled.labels
    mask = labels.to_numpy()
    sizes = mask.sum(1)
    found.kinds = labelled.kinds
    found.sizes = {
        int(size): int(rows) for size, rows in zip(*np.unique(sizes, return_counts=True), strict=True)
    }
    found.uninformative = labels.n_full
    written = np.array(labelled.written, dtype=object)
    negated, named = written == NEGATED, ~np.isin(written, [NEGATED, NOTHING])
    alone, among = mask[named & (sizes == 1)].sum(0), mask[named & (sizes > 1)].sum(0)
    ruled_out = (~mask[negated]).sum(0)
    found.classes = [
        ClassSummary(str(name), *map(int, counts))
        for name, *counts in zip(labels.classes, alone, among, ruled_out, strict=True)
    ]
    found.pairs = together(labels, named)
    found.remarks += _inseparable(labels)
    if labelled.counts is not None:
        found.agreement = agreement(labelled.counts, labelled.answers, labelled.annotators)


def together(
    labels: CandidateLabels, named: NDArray[np.bool_] | None = None, most: int = PAIRS
) -> list[Pair]:
    """Pairs of labels by how often both are candidates; rows that hold every class are left aside.

    Args:
        labels: candidate sets.
        named: rows that list their candidates instead of ruling out others; all by default.
        most: how many pairs.
    """
    mask = labels.to_numpy()
    telling = mask.sum(1) < labels.n_classes
    listed = mask[telling if named is None else telling & named].astype(np.float64)
    both = listed.T @ listed
    own = np.diag(both)
    pairs = []
    for i, j in zip(*np.triu(both, 1).nonzero(), strict=True):
        one, other = str(labels.classes[i]), str(labels.classes[j])
        pairs.append(Pair(one, other, int(both[i, j]), float(both[i, j] / min(own[i], own[j]))))
    return sorted(pairs, key=lambda pair: (-pair.rows, pair.one, pair.other))[:most]


def _inseparable(labels: CandidateLabels) -> list[Remark]:
    mask = labels.to_numpy()
    telling = mask[mask.sum(1) < labels.n_classes]
    groups: dict[bytes, list[str]] = {}
    for i, name in enumerate(labels.classes):
        if telling[:, i].any():
            groups.setdefault(telling[:, i].tobytes(), []).append(str(name))
    return [
        Remark(
            "inseparable classes",
            f"{', '.join(map(repr, names))} are candidates of the same rows: nothing tells them apart",
        )
        for names in groups.values()
        if len(names) > 1
    ]


def agreement(
    counts: NDArray[np.int64], answers: NDArray[np.int64] | None = None, annotators: tuple[str, ...] = ()
) -> Agreement:
    r"""How far people agree.

    .. math:: \alpha = 1 - \frac{D_o}{D_e}

    with the observed disagreement of pairs of answers on one row and that expected if the same answers were
    spread over the rows by chance.

    Args:
        counts: (n, k) votes.
        answers: (n, m) what each annotator said, -1 for nothing.
        annotators: their names.

    References:
        Hayes and Krippendorff, Answering the call for a standard reliability measure for coding data (2007).
    """
    per_row = counts.sum(1)
    paired = counts[per_row >= 2].astype(np.float64)
    size = paired.sum(1)
    if not len(paired):
        return Agreement(float("nan"), float("nan"))
    same = (paired * (paired - 1)).sum(1)
    pairs = size * (size - 1)
    total, of_class = size.sum(), paired.sum(0)
    observed = ((pairs - same) / (size - 1)).sum() / total
    expected = (total**2 - (of_class**2).sum()) / (total * (total - 1))
    alpha = 1.0 if expected == 0 else float(1 - observed / expected)
    people = []
    if answers is not None:
        for place, name in enumerate(annotators):
            said = answers[:, place]
            others = counts.copy()
            given = said >= 0
            others[np.flatnonzero(given), said[given]] -= 1
            judged = given & (others.sum(1) > 0)
            top = others[judged] == others[judged].max(1, keepdims=True)
            agreed = top[np.arange(int(judged.sum())), said[judged]] if judged.any() else np.array([np.nan])
            people.append((name, int(given.sum()), float(agreed.mean())))
    return Agreement(float(same.sum() / pairs.sum()), alpha, tuple(people))

"""Summary of a table: its columns and its labels."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, triu, vstack

from propall.estimators.cooccurrence import entangled_pairs
from propall.labels.candidates import CandidateLabels
from propall.labels.parsing import as_text
from propall.tables.features import (
    FeatureColumn,
    count_distinct_words,
    detect_kind,
    find_gaps,
    no_features,
    report_duplicates,
    with_terms,
    without_answers,
)
from propall.tables.label_columns import NEGATED, NOTHING, LabeledRows, LabeledTable, find_label_copies
from propall.tables.reading import DataNote

#: Number of label pairs in a summary.
PAIRS = 10
#: Roles of columns that are not features.
LABEL, LEFT_OUT = "label", "left out"


class ColumnSummary(NamedTuple):
    """A column: its role, number of missing and distinct values, and an example."""

    name: str
    role: str
    missing: int
    distinct: int
    example: str


class ClassSummary(NamedTuple):
    """A class: number of rows with it as the only label, among others, and excluded."""

    name: str
    alone: int
    among: int
    ruled_out: int


class LabelPair(NamedTuple):
    """Two labels in one candidate set: number of rows, and share of the rows of the rarer label."""

    one: str
    other: str
    rows: int
    share: float


class Agreement(NamedTuple):
    """Agreement between annotators."""

    pairwise: float  # share of equal answers among pairs of answers on the same row
    alpha: float  # Krippendorff's alpha for nominal data: 1 is full agreement, 0 is chance
    annotators: tuple[tuple[str, int, float], ...] = ()  # name, answers, share equal to the others' majority


@dataclass
class Summary:
    """Summary of a table."""

    source: str
    rows: int
    used: int  # number of rows with a usable label
    columns: list[ColumnSummary]
    where: str = ""  # description of the label columns; empty if unknown
    kinds: dict[str, int] = field(default_factory=dict)  # number of rows by how the label is written
    sizes: dict[int, int] = field(default_factory=dict)  # number of rows by number of candidates
    classes: list[ClassSummary] = field(default_factory=list)
    pairs: list[LabelPair] = field(default_factory=list)  # labels that occur together, most frequent first
    agreement: Agreement | None = None
    uninformative: int = 0  # number of rows for which every class is possible
    notes: list[DataNote] = field(default_factory=list)

    @property
    def mean_size(self) -> float:
        """Mean number of candidates."""
        total = sum(self.sizes.values())
        return sum(size * rows for size, rows in self.sizes.items()) / total if total else float("nan")

    @property
    def has_features(self) -> bool:
        """Whether any column is usable as a feature."""
        return any(column.role not in (LABEL, LEFT_OUT) for column in self.columns)

    @property
    def never_alone(self) -> list[str]:
        """Classes that are never the only label of a row."""
        return [row.name for row in self.classes if not row.alone]

    def as_dict(self) -> dict[str, Any]:
        """Convert to plain JSON."""
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
            "remarks": [note.as_dict() for note in self.notes],
        }


def summarize(table: LabeledTable, *, without: Sequence[str] = ()) -> Summary:
    """Summarize a table; the columns in `without` are not features."""
    table.check_ignored(without)
    raw = table.raw
    reserved = table.source.columns if table.source is not None else ()
    ignored = (*reserved, *without)
    copies = find_label_copies(table, ignored) if table.labeled is not None else {}
    features, contents, notes = _detect_features(table, (*ignored, *copies))
    columns = []
    for name in raw.names:
        cells = raw.cells(name)
        gaps = find_gaps(cells)
        column = features.get(name)
        role = LABEL if name in reserved else LEFT_OUT if column is None else column.kind
        example = "" if gaps.all() else as_text(cells.iloc[int(gaps.argmin())])
        distinct = count_distinct_words(cells, gaps)
        columns.append(ColumnSummary(name, role, int(gaps.sum()), distinct, example))
    rows = raw.frame.index if table.labeled is None else raw.frame.index[table.labeled.rows]
    summary = Summary(raw.source, raw.n_file_rows, len(rows), columns)
    summary.notes = [*table.notes, *copies.values(), *notes]
    if features:
        summary.notes += report_duplicates(pd.factorize(contents)[0], rows)
    if table.labeled is not None and table.source is not None:
        summary.where = table.source.describe()
        _add_labels(summary, table.labeled)
    return summary


def _detect_features(
    table: LabeledTable, without: Sequence[str]
) -> tuple[dict[str, FeatureColumn], NDArray[np.uint64], list[DataNote]]:
    """Detect the usable columns one by one; return them, a hash of each row's cells in them, and notes.

    The columns are those of `Features.fit`, which needs all of them in memory.
    """
    notes: list[DataNote] = []
    names = without_answers([name for name in table.raw.names if name not in without], notes)
    features: dict[str, FeatureColumn] = {}
    contents = np.zeros(1, dtype=np.uint64)
    for name in names:
        cells = table.cells(name)
        column = detect_kind(cells, notes, separator=table.raw.separator)
        if column is None:
            continue
        values = column.read(cells)
        if column.kind == "text":
            column = with_terms(column, pd.Series(values), notes)
        if column is not None:
            features[name] = column
            # A constant of Knuth's, so that equal cells in two columns do not cancel out.
            contents = contents * np.uint64(6364136223846793005) + pd.util.hash_array(values)
    if not features:
        text = str(no_features(names, table.cells, notes)).removeprefix("features: ")
        notes = [DataNote("no features", text)]
    return features, contents, notes


def _add_labels(summary: Summary, labeled: LabeledRows) -> None:
    labels = labeled.labels
    mask = labels.to_numpy()
    sizes = mask.sum(1)
    summary.kinds = labeled.kind_counts
    summary.sizes = dict(sorted(Counter(sizes.tolist()).items()))
    summary.uninformative = labels.n_full
    written = np.array(labeled.row_kinds, dtype=object)
    negated, named = written == NEGATED, ~np.isin(written, [NEGATED, NOTHING])
    # Summed without copies, since the matrix of thousands of classes is large.
    alone = mask.sum(0, where=(named & (sizes == 1))[:, None])
    among = mask.sum(0, where=(named & (sizes > 1))[:, None])
    ruled_out = negated.sum() - mask.sum(0, where=negated[:, None])
    summary.classes = [
        ClassSummary(str(name), *map(int, counts))
        for name, *counts in zip(labels.classes, alone, among, ruled_out, strict=True)
    ]
    summary.pairs = _frequent_pairs(labels, named)
    summary.notes += _inseparable_classes(labels)
    if labeled.counts is not None:
        summary.agreement = measure_agreement(labeled.counts, labeled.answers, labeled.annotators)


def _frequent_pairs(labels: CandidateLabels, named: NDArray[np.bool_]) -> list[LabelPair]:
    """The pairs of labels that are most often candidates of the same row, among rows that list candidates."""
    mask = labels.to_numpy()
    # Sparse: a matrix of all pairs of 10 000 classes would be 800 MB, and take a minute.
    listed = _sparse_rows(mask, named & (mask.sum(1) < labels.n_classes)).astype(np.int32)
    both = triu(listed.T @ listed).tocoo()
    of_class = both.diagonal()
    i, j, rows = (part[both.row != both.col] for part in (both.row, both.col, both.data))
    names = np.array([str(name) for name in labels.classes], dtype=object)
    place = np.argsort(np.argsort(names, kind="stable"))
    first = np.lexsort((place[j], place[i], -rows))[:PAIRS]
    return [
        LabelPair(names[a], names[b], int(count), float(count / min(of_class[a], of_class[b])))
        for a, b, count in zip(i[first], j[first], rows[first], strict=True)
    ]


def _sparse_rows(mask: NDArray[np.bool_], kept: NDArray[np.bool_], step: int = 1000) -> Any:
    """Convert some rows of a matrix to a sparse one, a few at a time."""
    rows = np.flatnonzero(kept)
    parts = [csr_array(mask[rows[i : i + step]]) for i in range(0, max(1, len(rows)), step)]
    return vstack(parts, format="csr")


def _inseparable_classes(labels: CandidateLabels) -> list[DataNote]:
    mask = labels.to_numpy()
    rows_of = csc_array(_sparse_rows(mask, mask.sum(1) < labels.n_classes))
    groups: dict[bytes, list[str]] = {}
    for i, name in enumerate(labels.classes):
        rows = rows_of.indices[rows_of.indptr[i] : rows_of.indptr[i + 1]]
        if len(rows):
            groups.setdefault(rows.tobytes(), []).append(str(name))
    why = "are always candidates together, so they cannot be told apart"
    inseparable = [names for names in groups.values() if len(names) > 1]
    notes = [DataNote("inseparable classes", f"{', '.join(map(repr, names))} {why}") for names in inseparable]
    for pair in entangled_pairs(mask):
        one, other = (str(labels.classes[i]) for i in (pair.one, pair.other))
        if not any(one in names and other in names for names in inseparable):
            text = (
                f"{one!r} and {other!r} seem to be candidates together in nearly all of their rows (about "
                f"{100 * pair.share:.0f} %, estimated from the sets alone); training may drop one of them. "
                "Rows with only one of the two help most"
            )
            notes.append(DataNote("entangled classes", text))
    return notes


def measure_agreement(
    counts: NDArray[np.int64], answers: NDArray[np.integer] | None = None, annotators: tuple[str, ...] = ()
) -> Agreement:
    r"""Measure how well annotators agree.

    .. math:: \alpha = 1 - \frac{D_o}{D_e}

    with the observed disagreement :math:`D_o` of pairs of answers on one row, and the disagreement
    :math:`D_e` expected if the same answers were assigned to the rows at random.

    `counts` are (n, k) votes; `answers` (n, m) class numbers given by each annotator, -1 for none.

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
    rows = []
    if answers is not None:
        for name, answer in zip(annotators, answers.T, strict=True):
            answered = np.flatnonzero(answer >= 0)
            others = counts[answered]
            others[np.arange(len(answered)), answer[answered]] -= 1
            compared = others.sum(1) > 0
            top = others == others.max(1, keepdims=True)
            agree = top[np.arange(len(answered)), answer[answered]][compared]
            rows.append((name, len(answered), float(agree.mean()) if compared.any() else float("nan")))
    return Agreement(float(same.sum() / pairs.sum()), alpha, tuple(rows))

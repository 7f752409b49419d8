"""Read the labels of a table; rows that were dropped or repaired are noted."""

import functools
import re
import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from propall.labels.candidates import CandidateLabels, UninformativeRowsWarning
from propall.labels.hierarchy import read_tree
from propall.labels.parsing import CellGrammar, LabelCell, as_text, as_texts, visible_text
from propall.labels.predictions import estimate_miss_rate, parse_lists, select_candidates
from propall.labels.votes import (
    apply_rule,
    is_count,
    label_studio_annotators,
    label_studio_answers,
    label_studio_names,
)
from propall.tables.arrow_text import count_texts, is_arrow_text, plain_numbers
from propall.tables.formulas import is_answer_column
from propall.tables.label_source import (
    MIN_LABEL_SHARE,
    NO_LABEL,
    LabelSource,
    cell_fault,
    choices_name,
    suggest_label_column,
)
from propall.tables.reading import DataNote, RawTable, holds_numbers, note_rows, read_table
from propall.tables.spelling import SimilarNames, Typos, find_typos
from propall.wording import list_names, plural, suggest

#: More classes than this must be in two rows each on average; otherwise the column is hardly one of labels.
PLAUSIBLE_CLASSES = 50
#: Names of classes, in lower case, that may mean that there is no label.
UNCLEAR_NAMES = frozenset(
    {"unknown", "unk", "unsure", "not sure", "unclear", "uncertain", "undefined", "undetermined", "missing"}
    | {"none", "nil", "nothing", "no label", "unlabeled", "unlabelled", "tbd", "todo", "-", "--", ".", "#n/a"}
)

ONE, SEVERAL, NEGATED, NOTHING = "one label", "several labels", "ruled out", "no label"
AGREED, DISAGREED, ALONE = "all agree", "disagree", "one answer"


@dataclass
class LabeledRows:
    """The rows of a table with usable labels."""

    labels: CandidateLabels
    rows: NDArray[np.int64]  # the position of each row in the raw table's frame
    row_kinds: list[str]  # how the labels of each row are written
    counts: NDArray[np.int64] | None = None  # (n, k) votes, if any
    answers: NDArray[np.integer] | None = None  # (n, m) class each known annotator answered, -1 for none
    annotators: tuple[str, ...] = ()
    from_model: bool = False  # whether a model made the candidate sets
    miss_rate: float | None = None  # estimated share of these sets that lack the true label, if known
    notes: list[DataNote] = field(default_factory=list)  # on dropped and repaired rows

    def select(self, kept: NDArray[np.bool_], notes: Sequence[DataNote] = ()) -> Self:
        """Return some of the rows, with notes on the others."""
        return replace(
            self,
            labels=self.labels[kept],
            rows=self.rows[kept],
            row_kinds=[kind for kind, keep in zip(self.row_kinds, kept, strict=True) if keep],
            counts=None if self.counts is None else self.counts[kept],
            answers=None if self.answers is None else self.answers[kept],
            notes=[*self.notes, *notes],
        )

    @property
    def kind_counts(self) -> dict[str, int]:
        """Number of rows of each kind, most frequent first."""
        return dict(Counter(self.row_kinds).most_common())


@dataclass
class LabeledTable:
    """A table with one row per instance and, if it is known where they are, its labels."""

    raw: RawTable
    source: LabelSource | None = None
    labeled: LabeledRows | None = None

    @property
    def notes(self) -> list[DataNote]:
        """Notes on the file and on its labels."""
        return [*self.raw.notes, *(self.labeled.notes if self.labeled is not None else ())]

    @property
    def frame(self) -> pd.DataFrame:
        """The rows that were kept; their index is the position in the file."""
        return self.raw.frame if self.labeled is None else self.raw.frame.iloc[self.labeled.rows]

    def check_ignored(self, names: Sequence[str]) -> None:
        """Raise ValueError for a column to ignore that the table does not have."""
        # Reshaping a file with one answer per line may already have dropped columns.
        for name in () if self.raw.answers is not None else names:
            self.raw.check_column(name, "ignore")

    def cells(self, name: str) -> "pd.Series[Any]":
        """A column of the rows that were kept."""
        column = self.raw.cells(name)
        if self.labeled is None or len(self.labeled.rows) == len(column):
            return column
        return column.iloc[self.labeled.rows]


def open_table(
    source: Any, labels: LabelSource | None = None, *, encoding: str | None = None
) -> LabeledTable:
    """Read a file or data frame and, if `labels` says where they are, its labels; see `read_table`.

    Examples:
        >>> import pandas as pd
        >>> from propall.tables.label_columns import open_table
        >>> from propall.tables.label_source import LabelSource
        >>> labels = ["cat", "cat|dog", "dog", "dog|cat"]
        >>> frame = pd.DataFrame({"size": [1.0, 1.2, 3.0, 3.1] * 10, "label": labels * 10})
        >>> table = open_table(frame, LabelSource(label="label"))
        >>> table.labeled.labels[:2].strings()
        ['cat', 'cat|dog']
    """
    raw = read_table(source, encoding=encoding)
    if labels is None:
        return LabeledTable(raw)
    if labels.item is not None and raw.tasks is None:
        raw = group_by_item(raw, labels)
    return LabeledTable(raw, labels, read_label_columns(raw, labels))


def find_label_copies(table: LabeledTable, ignore: Sequence[str] = ()) -> dict[str, DataNote]:
    """Return a note on each column that contains class names, which would leak the labels as a feature."""
    assert table.labeled is not None
    assert table.source is not None
    names = frozenset(str(name).casefold() for name in table.labeled.labels.classes)
    grammar = replace(table.source.grammar, separator=table.source.separator.casefold(), known=names)
    # A cell with a number can only be, or list, a class if a class is a number.
    numbers_may_be_labels = any(map(_may_be_number, names)) or grammar.separator in "0123456789+-.einf"
    notes = {}
    for column in table.raw.names:
        if column in ignore or is_answer_column(column):
            continue
        cells = table.cells(column)
        if holds_numbers(cells):
            continue
        if not numbers_may_be_labels and is_arrow_text(cells) and plain_numbers(cells) is not None:
            continue
        texts: Counter[str] = Counter()
        for text, count in count_texts(cells).items():
            if text.casefold() not in NO_LABEL:
                texts[text.casefold()] += count
        if _hold_labels(texts, names, grammar) and not all(map(_NUMBER.fullmatch, texts)):
            text = f"{column!r} contains class names; it is a label, not a feature"
            notes[column] = DataNote("copy of the labels", text, "column left out")
    return notes


def _may_be_number(text: str) -> bool:
    return any(sign.isdigit() for sign in text) or text.strip("+-") in ("inf", "infinity", "nan")


#: Numbers may be measurements even if the classes are numbers.
_NUMBER = re.compile(r"[\d.\-]+")


def _hold_labels(texts: Counter[str], names: Collection[str], grammar: CellGrammar) -> bool:
    """Whether more than `MIN_LABEL_SHARE` of the texts are labels; ends as soon as that is impossible."""
    others, total = 0, texts.total()
    for text, count in texts.items():
        others += 0 if text in names or _lists_known_names(text, grammar) else count
        if total - others <= MIN_LABEL_SHARE * total:
            return False
    return bool(texts)


def _lists_known_names(text: str, grammar: CellGrammar) -> bool:
    if not (grammar.is_compound(text) or text.startswith("[")):
        return False
    cell = grammar.parse(text)
    return not cell.mixed and grammar.known.issuperset(cell.names)


def cell_kind(cell: LabelCell) -> str:
    """Return how a cell is written: one label, several, labels ruled out, or no label."""
    if not cell.names:
        return NOTHING
    if cell.negated:
        return NEGATED
    return SEVERAL if cell.mixed or len(cell.names) > 1 else ONE


def group_by_item(raw: RawTable, source: LabelSource) -> RawTable:
    """Convert a table in long form to one row per item, with all its answers in one cell."""
    items, answers = raw.column(source.item or "", "item"), raw.column(source.label or "", "label")
    lines: list[int] = [int(line) for line in raw.frame.index]
    item_names = [as_text(item) for item in items]
    notes = list(raw.notes)
    lines_of: dict[str, list[int]] = {}
    for line, item in zip(lines, item_names, strict=True):
        lines_of.setdefault(item, []).append(line)
    note_rows(notes, "missing item", "the item is blank", "row dropped", lines_of.pop("", ()))
    others = raw.frame[[name for name in raw.frame.columns if name not in source.columns]].map(as_text)
    keys = np.array(item_names, dtype=object)
    varying = [name for name in others.columns if (others[name].groupby(keys).nunique() > 1).any()]
    if varying:
        text = f"{list_names(varying)} vary between lines on the same item"
        notes.append(DataNote("varying cells", text, "column left out"))
    notes.append(DataNote("long form", f"{len(lines)} answers on {len(lines_of)} items"))
    frame = raw.frame.loc[[item_lines[0] for item_lines in lines_of.values()]].drop(columns=varying)
    item_answers = [[answers.loc[line] for line in item_lines] for item_lines in lines_of.values()]
    frame[source.label] = [f" {source.separator} ".join(map(as_text, cells)) for cells in item_answers]
    annotators = None
    if source.annotator is not None:
        names = raw.column(source.annotator, "annotator").map(as_text)
        annotators = [[names.loc[line] for line in item_lines] for item_lines in lines_of.values()]
        frame[source.annotator] = [f" {source.separator} ".join(row) for row in annotators]
    return replace(raw, frame=frame, notes=notes, answers=item_answers, annotators=annotators)


def read_label_columns(raw: RawTable, source: LabelSource) -> LabeledRows:
    """Read the candidate sets of a table, a long one after `group_by_item`; unusable rows are noted."""
    if raw.tasks is not None:
        answers = label_studio_answers(raw.tasks, _chosen_choices(raw, source), f"label: {raw.source}")
        cells = [[list(answer) for answer in row] for row in answers]
        return _read_answers(raw, cells, source, annotators=label_studio_annotators(raw.tasks))
    if raw.answers is not None:
        return _read_answers(raw, raw.answers, source, annotators=raw.annotators)
    if source.annotators:
        columns = [raw.column(name, "annotators") for name in source.annotators]
        names = [list(source.annotators)] * len(raw.frame)
        return _read_answers(raw, list(zip(*columns, strict=True)), source, annotators=names)
    if source.votes:
        return _read_votes(raw, source)
    if source.scores:
        return _read_scores(raw, source)
    if source.lists is not None:
        return _read_lists(raw, source)
    if source.label is None:
        known = list_names([str(name) for name in raw.frame.columns], 12)
        suggestion = suggest_label_column(raw)
        raise ValueError(f"label: no label column is named.{suggestion} The columns are {known}.")
    return _read_cells(raw, source)


def _chosen_choices(raw: RawTable, source: LabelSource) -> str | None:
    names, name = label_studio_names(raw.tasks or ()), choices_name(raw, source.label)
    if names and name not in names:
        raise ValueError(
            f"label: {raw.source} has the choices {list_names(names)}; choose one of them with --label NAME."
        )
    return name


@dataclass
class _Draft:
    """Labels being read, by the row's number in the file."""

    mask: dict[int, NDArray[np.bool_]] = field(default_factory=dict)
    counts: dict[int, NDArray[np.int64]] = field(default_factory=dict)  # votes, from which the mask follows
    kinds: dict[int, str] = field(default_factory=dict)
    faults: dict[int, str] = field(default_factory=dict)
    notes: list[DataNote] = field(default_factory=list)


@dataclass
class _Vocabulary:
    """The names that cells may use."""

    classes: tuple[str, ...]
    columns: dict[str, NDArray[np.int64]]  # the classes each name stands for
    corrections: dict[str, str]  # the correct spelling of every usable name in the cells

    def columns_of(self, name: str) -> NDArray[np.int64]:
        return self.columns[self.corrections[name]]

    def fault_of(self, names: Sequence[str]) -> str:
        """Return a message about the first unknown name; empty if all are known."""
        unknown = next((name for name in names if name not in self.corrections), None)
        if unknown is None:
            return ""
        similar = self._similar.find(unknown)
        return f"{unknown!r} is not a class{'; ' * bool(similar)}{suggest(similar)}"

    @functools.cached_property
    def _similar(self) -> SimilarNames:
        return SimilarNames(self.columns)


def _build_vocabulary(
    named_rows: Sequence[tuple[Sequence[str], Sequence[int]]], source: LabelSource, notes: list[DataNote]
) -> _Vocabulary:
    """Collect the names in the cells, given with the rows that hold them."""
    counts: Counter[str] = Counter()
    groups_of: dict[str, list[int]] = {}
    for group, (names, rows) in enumerate(named_rows):
        for name in names:
            counts[name] += len(rows)
            groups_of.setdefault(name, []).append(group)

    def rows_of(name: str) -> tuple[int, ...]:
        return tuple(sorted(row for group in groups_of[name] for row in named_rows[group][1]))

    return _spell_names(counts, rows_of, source, notes)


def find_classes(
    counts: Mapping[str, int], source: LabelSource, n_rows: int, what: str
) -> tuple[tuple[str, ...], list[DataNote]]:
    """Return the classes of a label column by how many rows have each name, with notes on typos.

    Args:
        counts: number of rows by name.
        source: where the labels are.
        n_rows: number of rows of the table.
        what: a description of the column for error messages.
    """
    notes: list[DataNote] = []
    _reject_free_text(counts, n_rows, source, what)
    vocabulary = _spell_names(counts, lambda name: (), source, notes)
    _reject_implausible(len(vocabulary.classes), n_rows, what)
    return vocabulary.classes, notes


def _spell_names(
    counts: Mapping[str, int],
    rows_of: Callable[[str], tuple[int, ...]],
    source: LabelSource,
    notes: list[DataNote],
) -> _Vocabulary:
    """Correct typos by the number of rows that have each name."""
    tree = None if source.hierarchy is None else read_tree(source.hierarchy)
    known = source.classes if tree is None else tuple(map(str, tree.nodes))
    typos = find_typos(counts, known) if source.repair else Typos({}, [])
    for name, other in typos.corrections.items():
        notes.append(DataNote("typo", f"{name!r} is read as {other!r}", "repaired", rows_of(name)))
    for name, other in typos.doubtful:
        text = (
            f"{name!r} ({plural(counts[name], 'row')}) looks like {other!r} "
            f"({plural(counts[other], 'row')}); kept apart. If they are one class, use --options classes=..."
        )
        notes.append(DataNote("similar names", text, "noted", rows_of(name)[:5]))
    # Cells were read without invisible characters, which the names of known classes may have.
    spelled = {visible_text(name): name for name in known or ()}
    corrections = {name: typos.corrections.get(name, spelled.get(name, name)) for name in counts}
    if tree is not None:
        classes = tuple(map(str, tree.leaves))
        columns = {str(n): np.flatnonzero(row) for n, row in zip(tree.nodes, tree.stands_for, strict=True)}
    else:
        classes = known if known is not None else tuple(_sort_names(set(corrections.values())))
        columns = {name: np.array([i]) for i, name in enumerate(classes)}
    return _Vocabulary(classes, columns, {name: to for name, to in corrections.items() if to in columns})


def _sort_names(names: set[str]) -> list[str]:
    """Sort numerically if all names are numbers, else and among equal numbers alphabetically."""
    alphabetical = sorted(names)
    try:
        numbers = [float(name) for name in alphabetical]
    except ValueError:
        return alphabetical
    return sorted(alphabetical, key=float) if np.isfinite(numbers).all() else alphabetical


def _reject_implausible(n_classes: int, n_rows: int, what: str, left_out: str = "") -> None:
    if n_classes > PLAUSIBLE_CLASSES and n_classes * 2 > n_rows:
        raise ValueError(
            f"label: {what} has {n_classes} different labels in {n_rows} rows; check the column and the "
            "separator."
        )
    if n_classes < 2:
        raise ValueError(
            f"label: {what} has {plural(n_classes, 'class')}; expected at least two.{left_out} Check the "
            "column, or list all classes with --options classes=..."
        )


def _reject_free_text(names: Collection[str], n_rows: int, source: LabelSource, what: str) -> None:
    """Reject a column with far too many names before they are compared with each other."""
    if source.classes is None and source.hierarchy is None and len(names) > 4 * PLAUSIBLE_CLASSES:
        _reject_implausible(len(set(map(str.casefold, names))), n_rows, what)


@dataclass
class _DistinctCells:
    """The different texts of a column in the order of their first rows, each with the rows that hold it."""

    texts: list[str]
    rows: list[NDArray[np.int64]]  # numbers of rows in the file
    positions: list[NDArray[np.int64]]  # positions in the frame

    @classmethod
    def of(cls, column: "pd.Series[Any]") -> Self:
        codes, values = pd.factorize(np.array(as_texts(column), dtype=object))
        order = np.argsort(codes, kind="stable")
        positions = np.split(order, np.cumsum(np.bincount(codes, minlength=len(values)))[:-1])
        index = column.index.to_numpy()
        return cls(values.tolist(), [index[place] for place in positions], positions)

    def rows_with(self, numbers: Iterable[int]) -> tuple[int, ...]:
        """Rows of some of the texts, in the order of the file."""
        return tuple(sorted(chain.from_iterable(self.rows[i].tolist() for i in numbers)))


def _visible_texts(cells: _DistinctCells, notes: list[DataNote]) -> list[str]:
    """Compose letters and remove invisible characters of label cells, with a note on the rows."""
    visible = list(map(visible_text, cells.texts))
    changed = [i for i, text in enumerate(cells.texts) if visible[i] != text]
    if changed:
        example = cells.texts[changed[0]].encode("ascii", "backslashreplace").decode()
        text = f"labels such as '{example:.60}' have invisible or decomposed characters; read without them"
        note_rows(notes, "invisible characters", text, "repaired", cells.rows_with(changed))
    return visible


def _read_cells(raw: RawTable, source: LabelSource) -> LabeledRows:
    """Read one column of labels; equal cells, of which a large table has many, are read once."""
    assert source.label is not None
    column = raw.column(source.label, "label")
    if source.rule != "union":
        raise ValueError(
            f"rule: {source.rule!r} needs the answers of several annotators, but {source.label!r} is one "
            "column; omit the rule, or name annotators, votes or item."
        )
    notes: list[DataNote] = []
    distinct = _DistinctCells.of(column)
    texts = _visible_texts(distinct, notes)
    cells = source.grammar.parse_all(texts)
    stray = distinct.rows_with(i for i, cell in enumerate(cells) if cell.stray)
    text = f"{source.separator!r} with nothing on one side is ignored"
    note_rows(notes, "stray separator", text, "repaired", stray)
    blank = [i for i, cell in enumerate(cells) if not cell.names and texts[i]]
    words: Counter[str] = Counter()
    for i in blank:
        if not cells[i].stray:
            words[texts[i]] += len(distinct.rows[i])
    if words:
        shown = ", ".join(f"{word!r} ({plural(count, 'row')})" for word, count in words.items())
        rows = distinct.rows_with(blank)
        notes.append(DataNote("no label", f"{shown} read as no label", "noted", rows))
    faults = {i: fault for i, cell in enumerate(cells) if (fault := cell_fault(cell))}
    usable = [i for i in range(len(cells)) if i not in faults]
    names = dict.fromkeys(name for i in usable for name in cells[i].names)
    notes += _suggest_separator([name for name in names if name not in source.grammar.known])
    what = f"column {source.label!r} of {raw.source}"
    _reject_free_text(names, len(column), source, what)
    named_rows = [(cells[i].names, distinct.rows[i].tolist()) for i in usable]
    vocabulary = _build_vocabulary(named_rows, source, notes)
    k = len(vocabulary.classes)
    is_listed = source.classes is not None or source.hierarchy is not None
    # A part of a table, or a small one to resolve, need not have rows of every class.
    left_out = ""
    if faults:
        first, n_faulty = next(iter(faults)), len(distinct.rows_with(faults))
        left_out = f" {plural(n_faulty, 'row')} cannot be used: {texts[first]!r} {faults[first]}."
    _reject_implausible(k, max(len(column), 2 * k) if is_listed else len(column), what, left_out)
    mask, kinds = np.zeros((len(column), k), dtype=bool), np.full(len(column), None, dtype=object)
    for i in usable:
        cell, place = cells[i], distinct.positions[i]
        fault = vocabulary.fault_of(cell.names)
        if not fault:
            candidates = np.zeros(k, dtype=bool)
            for name in cell.names:
                candidates[vocabulary.columns_of(name)] = True
            candidates = ~candidates if cell.negated or not cell.names else candidates
            fault = "" if candidates.any() else "rules out every class"
        if fault:
            faults[i] = fault
        else:
            mask[place], kinds[place] = candidates, cell_kind(cell)
    rows_of_fault: dict[str, list[int]] = {}
    for i, fault in faults.items():
        rows_of_fault.setdefault(fault, []).extend(distinct.rows[i].tolist())
    for fault, fault_rows in rows_of_fault.items():
        notes.append(DataNote("unusable label", fault, "row dropped", tuple(sorted(fault_rows))))
    usable_rows = np.array([kind is not None for kind in kinds], dtype=bool)
    read = _ReadRows(np.arange(len(column)), mask, kinds.tolist())
    read = read if usable_rows.all() else read.select(usable_rows)
    return _finish(raw, source, vocabulary.classes, read, notes)


def _suggest_separator(names: Sequence[str]) -> list[DataNote]:
    """Suggest another separator if names contain one, with names of other cells on its sides."""
    for sign in (",", ";", "/", "+", "&"):
        parts_of = {name: [part.strip() for part in name.split(sign)] for name in names}
        counts = Counter(part for parts in parts_of.values() for part in set(parts))
        split = [name for name, parts in parts_of.items() if len(parts) > 1]
        lists = [name for name in split if all(part and counts[part] > 1 for part in parts_of[name])]
        if lists and len(lists) >= MIN_LABEL_SHARE * len(split):
            option = shlex.quote(f"separator={sign}")
            text = f"cells such as {lists[0]!r} look like lists; split them with --options {option}"
            return [DataNote("lists", text)]
    return []


def _read_answers(
    raw: RawTable,
    answers: Sequence[Sequence[Any]],
    source: LabelSource,
    *,
    annotators: Sequence[Sequence[str]] | None = None,
) -> LabeledRows:
    """Read the answers of several annotators on each row; an answer may be several labels."""
    parse = functools.cache(source.grammar.parse)
    draft = _Draft()
    cells: dict[int, list[LabelCell]] = {}
    for row, values in zip(map(int, raw.frame.index), answers, strict=True):
        parsed = [parse(visible_text(as_text(value))) for value in values]
        if any(cell.negated for cell in parsed):
            draft.faults[row] = "an annotator rules out labels, which cannot be counted as votes"
        elif fault := next(filter(None, map(cell_fault, parsed)), ""):
            draft.faults[row] = fault
        else:
            cells[row] = parsed
    names = {row: [name for cell in parsed for name in cell.names] for row, parsed in cells.items()}
    what = f"the answers of {raw.source}"
    _reject_free_text(set(chain.from_iterable(names.values())), len(cells), source, what)
    named_rows = [(row_names, [row]) for row, row_names in names.items()]
    vocabulary = _build_vocabulary(named_rows, source, draft.notes)
    k = len(vocabulary.classes)
    _reject_implausible(k, len(cells), what)
    for row, parsed in cells.items():
        if fault := vocabulary.fault_of(names[row]):
            draft.faults[row] = fault
            continue
        votes = draft.counts[row] = np.zeros(k, dtype=np.int64)
        for cell in parsed:
            votes[list({int(i) for name in cell.names for i in vocabulary.columns_of(name)})] += 1
        draft.kinds[row] = _agreement(parsed, vocabulary)
    labeled = _finish_draft(raw, source, vocabulary.classes, draft)
    if annotators is not None:
        _add_annotators(labeled, raw, source, (annotators, cells), vocabulary)
    return labeled


def _add_annotators(
    labeled: LabeledRows,
    raw: RawTable,
    source: LabelSource,
    answers: tuple[Sequence[Sequence[str]], Mapping[int, list[LabelCell]]],
    vocabulary: _Vocabulary,
) -> None:
    """Add who answered what, with notes on answers that cannot be assigned to one annotator and class.

    Args:
        labeled: the rows to add it to.
        raw: the table.
        source: where the labels are.
        answers: the annotators of every row of the table, and the answers of its usable rows.
        vocabulary: the classes.
    """
    names_in, cells = answers
    names = source.annotators or tuple(sorted({name for row in names_in for name in row if name}))
    if not names:
        return
    class_index = {name: i for i, name in enumerate(vocabulary.classes)}
    annotator_index = {name: i for i, name in enumerate(names)}
    # The smallest type: with as many annotators as rows, this is the largest array of a table.
    smallest = np.min_scalar_type(-len(vocabulary.classes))
    matrix = np.full((len(labeled.rows), len(names)), -1, dtype=smallest)
    several, repeated, anonymous = [], [], []
    for i, position in enumerate(labeled.rows):
        row = int(raw.frame.index[position])
        for name, cell in zip(names_in[position], cells[row], strict=True):
            if not cell.names:
                continue
            answer = class_index.get(vocabulary.corrections[cell.names[0]])
            if name not in annotator_index:
                anonymous.append(row)
            elif len(cell.names) > 1 or answer is None:
                several.append(row)
            else:
                place = i, annotator_index[name]
                if matrix[place] != -1:
                    repeated.append(row)
                matrix[place] = answer
    labeled.annotators, labeled.answers = names, matrix
    left_out = "candidates, but not counted as an annotator's answer"
    for kind, text, rows in (
        ("answer of nobody", f"without the name of an annotator; {left_out}", anonymous),
        ("several labels in an answer", f"with several labels; {left_out}", several),
        (
            "several answers of an annotator",
            "of an annotator who had answered the row before; all are candidates, the last counts as theirs",
            repeated,
        ),
    ):
        note_rows(labeled.notes, kind, f"{plural(len(rows), 'answer')} {text}", "noted", dict.fromkeys(rows))


def _agreement(cells: Sequence[LabelCell], vocabulary: _Vocabulary) -> str:
    answers = [frozenset(vocabulary.corrections[name] for name in cell.names) for cell in cells if cell.names]
    if not answers:
        return NOTHING
    if len(answers) == 1:
        return ALONE
    return AGREED if len(set(answers)) == 1 else DISAGREED


def _read_votes(raw: RawTable, source: LabelSource) -> LabeledRows:
    draft = _Draft()
    columns = [pd.to_numeric(raw.column(name, "votes"), errors="coerce") for name in source.votes]
    values = np.stack([column.to_numpy(dtype=float) for column in columns], axis=1)
    texts = raw.frame[list(source.votes)].map(as_text).to_numpy()
    blank = np.isnan(values) & (texts == "")
    values[blank] = 0.0
    index = [int(row) for row in raw.frame.index]
    blank_rows = raw.frame.index[blank.any(1)]
    note_rows(draft.notes, "blank votes", "empty cells read as no vote", "repaired", blank_rows)
    for name, bad, cells in zip(source.votes, ~is_count(values).T, texts.T, strict=True):
        if not bad.any():
            continue
        text = f"{name!r} has cells that are not vote counts, such as {cells[bad.argmax()]!r}"
        if bad.sum() * 2 > len(bad):
            raise ValueError(f"votes: {text}, in {bad.sum()} of {len(bad)} rows; name one column per class.")
        draft.faults |= {index[i]: text for i in np.flatnonzero(bad)}
    for row, votes in zip(index, values, strict=True):
        if row not in draft.faults:
            draft.counts[row] = votes.astype(np.int64)
            draft.kinds[row] = (NOTHING, ONE, SEVERAL)[min(2, int((votes > 0).sum()))]
    return _finish_draft(raw, source, source.votes, draft)


def _note_odd_classes(
    classes: Sequence[Hashable],
    mask: NDArray[np.bool_],
    named: NDArray[np.bool_],
    rows: NDArray[np.int64],
) -> list[DataNote]:
    """Note classes that no or one row names, and those that may mean that there is no label."""
    counts = mask.sum(0, where=named[:, None])
    never = [name for name, count in zip(classes, counts, strict=True) if count == 0]
    once = [i for i, count in enumerate(counts) if count == 1]
    notes = []
    if never:
        kind = "class" if len(never) == 1 else "classes"
        text = f"no row names {kind} {list_names(never)}; candidates only where others are ruled out"
        notes.append(DataNote("class never named", text))
    if once:
        text = f"class {classes[once[0]]!r} is in one row only"
        if len(once) > 1:
            text = f"{len(once)} classes are in one row only: {list_names([classes[i] for i in once])}"
        text += ", too few to learn; --options classes=... can exclude such classes"
        seen_in = tuple(int(rows[(mask[:, i] & named).argmax()]) for i in once)
        notes.append(DataNote("label seen once", text, "noted", seen_in))
    # Many programs write -1 where there is no class; beside 1 alone, it is the other one of two classes.
    others = {str(name) for name in classes} - {"-1"}
    are_numbered = len(others) > 1 and all(name.isdecimal() for name in others)
    unclear = {*UNCLEAR_NAMES, *(["-1"] if are_numbered else [])}
    for i, name in enumerate(classes):
        if str(name).casefold() in unclear:
            size = plural(int(counts[i]), "row")
            text = f"{name!r} is a class ({size}); leave cells empty if it means no label"
            notes.append(DataNote("unclear class", text, "noted", tuple(rows[mask[:, i] & named].tolist())))
    return notes


def _read_scores(raw: RawTable, source: LabelSource) -> LabeledRows:
    draft = _Draft()
    columns = [pd.to_numeric(raw.column(name, "scores"), errors="coerce") for name in source.scores]
    values = np.stack([column.to_numpy(dtype=float) for column in columns], axis=1)
    usable = np.isfinite(values).all(1) & (values >= 0).all(1) & (values.sum(1) > 0)
    index = [int(row) for row in raw.frame.index]
    fault = "the scores are not all non-negative numbers"
    draft.faults = {index[i]: fault for i in np.flatnonzero(~usable)}
    if not usable.any():
        raise ValueError(f"scores: no row of {raw.source} has probabilities in {list_names(source.scores)}.")
    mask = select_candidates(values[usable], **source.selection())
    for i, row_mask in zip(np.flatnonzero(usable), mask, strict=True):
        draft.mask[index[i]] = row_mask
        draft.kinds[index[i]] = SEVERAL if row_mask.sum() > 1 else ONE
    miss_rate = estimate_miss_rate(mask, [values[usable]])
    return _from_model(_finish_draft(raw, source, source.score_classes, draft), miss_rate)


def _read_lists(raw: RawTable, source: LabelSource) -> LabeledRows:
    assert source.lists is not None
    assert source.classes is not None
    draft = _Draft()
    cells = raw.column(source.lists, "lists")
    index = [int(row) for row in raw.frame.index]
    parsed = parse_lists(list(cells), source.classes)
    for name, row_mask in zip(index, parsed.mask, strict=True):
        draft.mask[name] = row_mask if row_mask.any() else ~row_mask
        draft.kinds[name] = (NOTHING, ONE, SEVERAL)[min(2, int(row_mask.sum()))]
    if parsed.unknown:
        shown = ", ".join(f"{name!r} ({count})" for name, count in parsed.unknown.most_common(8))
        more = f" and {len(parsed.unknown) - 8} more" if len(parsed.unknown) > 8 else ""
        rows = tuple(index[i] for i in parsed.unknown_rows)
        draft.notes.append(DataNote("unknown names", f"{shown}{more} match no class", "noted", rows))
    renamed = [
        f"{name!r} as {to!r}" for name, to in parsed.matched.items() if name.casefold() != to.casefold()
    ]
    if renamed:
        more = f" and {len(renamed) - 8} more" if len(renamed) > 8 else ""
        draft.notes.append(DataNote("names", f"read {', '.join(renamed[:8])}{more}", "repaired"))
    labeled = _finish_draft(raw, source, source.classes, draft)
    return _from_model(labeled, parsed.miss_rate)


def _from_model(labeled: LabeledRows, miss_rate: float | None) -> LabeledRows:
    """Mark candidate sets as made by a model, and note how large and how reliable they are."""
    size = float(labeled.labels.sizes.double().mean())
    missing = "unknown before training"
    if miss_rate is not None:
        missing = f"estimated at {100 * miss_rate:.1f} % before training, without true labels"
    text = f"{size:.2f} candidates per row; share of sets without the true label: {missing}"
    labeled.notes.append(DataNote("candidate sets of a model", text))
    if len(labeled.labels) and int(labeled.labels.sizes.min()) > 1:
        # Two classes that always come together cannot be told apart.
        text = (
            "no row has a single candidate, so nothing shows which class the model prefers; training may end "
            "below it. Sets of different sizes, some of them single (a smaller mass, such as sets=mass=0.5, "
            "or lists of several prompts), keep that"
        )
        labeled.notes.append(DataNote("no single candidates", text))
    return replace(labeled, from_model=True, miss_rate=miss_rate)


@dataclass
class _ReadRows:
    """Rows whose labels could be read."""

    positions: NDArray[np.int64]  # in the frame
    mask: NDArray[np.bool_]  # (n, k) candidates
    kinds: list[str]  # how the labels of each row are written
    counts: NDArray[np.int64] | None = None  # (n, k) votes

    def select(self, kept: NDArray[np.bool_]) -> Self:
        kinds = [kind for kind, keep in zip(self.kinds, kept, strict=True) if keep]
        counts = None if self.counts is None else self.counts[kept]
        return type(self)(self.positions[kept], self.mask[kept], kinds, counts)


def _finish_draft(raw: RawTable, source: LabelSource, classes: Sequence[str], draft: _Draft) -> LabeledRows:
    """Assemble the rows of a draft in the order of the file, with notes on dropped rows."""
    rows_of: dict[str, list[int]] = {}
    for row, fault in draft.faults.items():
        rows_of.setdefault(fault, []).append(row)
    for fault, rows in rows_of.items():
        draft.notes.append(DataNote("unusable label", fault, "row dropped", tuple(rows)))
    for row, votes in draft.counts.items():
        voted = apply_rule(votes[None], source.rule)[0]
        draft.mask[row] = voted if voted.any() else ~voted
    index = raw.frame.index.tolist()
    positions = [i for i, row in enumerate(index) if row in draft.mask]
    kept = [index[i] for i in positions]
    if not kept:
        raise _no_usable_label(raw)
    read = _ReadRows(
        np.array(positions, dtype=np.int64),
        np.stack([draft.mask[row] for row in kept]),
        [draft.kinds[row] for row in kept],
        np.stack([draft.counts[row] for row in kept]) if draft.counts else None,
    )
    return _finish(raw, source, classes, read, draft.notes)


def _no_usable_label(raw: RawTable) -> ValueError:
    return ValueError(f"label: no row of {raw.source} has a usable label.")


def _finish(
    raw: RawTable, source: LabelSource, classes: Sequence[str], read: _ReadRows, notes: list[DataNote]
) -> LabeledRows:
    """Assemble the rows that were read, with notes on unlabeled and uninformative rows."""
    index = raw.frame.index.to_numpy()
    unlabeled = np.array([kind == NOTHING for kind in read.kinds], dtype=bool)
    unlabeled_rows = index[read.positions][unlabeled]
    if source.unlabeled == "drop":
        note_rows(notes, "unlabeled", "no label", "row dropped", unlabeled_rows)
        read = read.select(~unlabeled)
        unlabeled = unlabeled[~unlabeled]
    else:
        note_rows(notes, "unlabeled", "no label; every class is possible", "noted", unlabeled_rows)
    if not len(read.positions):
        raise _no_usable_label(raw)
    kept, mask = index[read.positions], read.mask
    note_rows(notes, "uninformative", "every class is a candidate", "noted", kept[mask.all(1) & ~unlabeled])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UninformativeRowsWarning)
        labels = CandidateLabels.from_matrix(mask, classes)
    named = np.array([kind not in (NOTHING, NEGATED) for kind in read.kinds])
    notes += _note_odd_classes(labels.classes, mask, named, kept)
    labeled = LabeledRows(labels, read.positions, read.kinds, notes=notes)
    if read.counts is not None:
        labeled.counts = read.counts
        if isinstance(source.rule, int):
            split = np.asarray(labeled.counts.any(1) & (labeled.counts < source.rule).all(1))
            text = f"no label has {source.rule} votes; every answer remains possible"
            note_rows(notes, "no agreement", text, "noted", kept[split])
    return labeled

"""Where a table's labels stand, how they are written, and what is made of cells that are not quite right."""

import csv
import json
import re
import shlex
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from propall.labels.candidates import CandidateLabels, UninformativeRowsWarning
from propall.labels.hierarchy import Tree, read_tree
from propall.labels.parsing import NEGATION, is_missing
from propall.labels.votes import Rule, chosen, label_studio_answers
from propall.tables.reading import Remark, Sheet, decoded, read
from propall.wording import listed, plural

#: Words in a label cell that say there is none; a class that is called so has to be listed in `classes`.
NO_LABEL = frozenset({"", "na", "n/a", "nan", "null", "<na>", "?"})
#: A name this many times rarer than a near one is taken for a slip of the pen.
SLIP = 20
#: A column is labels if this share of its cells can be read as some.
MOSTLY = 0.9
#: Columns that are taken for the labels when nobody says which are.
USUAL_NAMES = ("label", "labels", "class", "target", "category", "candidates", "y")

ONE, SEVERAL, NEGATED, NOTHING = "one label", "several labels", "ruled out", "no label"
AGREED, DISAGREED, ALONE = "all agree", "disagree", "one answer"


@dataclass(frozen=True)
class LabelSource:
    """Where the labels of a table stand.

    Attributes:
        label: the column whose cells hold one label, several (`cat|dog`, or a JSON list), what is ruled out
            (`!cat`), or nothing. In long form, the column of answers; of a Label Studio export, the name of
            the choices.
        annotators: one column per person.
        votes: one column per class, with 0 and 1 or a number of votes.
        item: in long form, the column that names the instance an answer belongs to.
        annotator: in long form, the column that names who gave an answer, if any.
        separator: what stands between two names.
        rule: how several people's answers are combined, see `CandidateLabels.from_annotators`.
        classes: all class names in order; those seen otherwise.
        hierarchy: which labels stand below which, as `CandidateLabels.from_hierarchy` takes it.
        unlabelled: "keep" rows without a label, for which every class is possible, or "drop" them.
        repair: put right what is clearly a slip of the pen in a label.
    """

    label: str | None = None
    annotators: tuple[str, ...] = ()
    votes: tuple[str, ...] = ()
    item: str | None = None
    annotator: str | None = None
    separator: str = "|"
    rule: Rule = "union"
    classes: tuple[str, ...] | None = None
    hierarchy: Any = None
    unlabelled: Literal["keep", "drop"] = "keep"
    repair: bool = True

    def __post_init__(self) -> None:
        ways = {"label": bool(self.label), "annotators": bool(self.annotators), "votes": bool(self.votes)}
        if sum(ways.values()) > 1:
            named = " and ".join(f"--{name}" for name, given in ways.items() if given)
            raise ValueError(f"label: {named} are given; labels stand in one place. Choose one of them.")
        if self.item and not self.label:
            raise ValueError("item: given without label; name the column of answers too.")
        if self.annotator and not self.item:
            raise ValueError(
                "annotator: given without item; name the column of items too, or use annotators."
            )
        if not self.separator:
            raise ValueError("separator: it is empty; expected what stands between two names, such as '|'.")
        if not (self.rule in ("union", "plurality") or (isinstance(self.rule, int) and self.rule >= 1)):
            raise ValueError(
                f"rule: {self.rule!r}; expected union, plurality or a number of votes from 1 on."
            )
        if self.annotators and isinstance(self.rule, int) and self.rule > len(self.annotators):
            raise ValueError(
                f"rule: {self.rule} votes for a label, but there are {len(self.annotators)} annotators; give "
                f"1 to {len(self.annotators)}."
            )
        if self.unlabelled not in ("keep", "drop"):
            raise ValueError(f"unlabelled: {self.unlabelled!r}; expected keep or drop.")

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that hold labels or name items: none of them is a feature."""
        single = (name for name in (self.label, self.item, self.annotator) if name)
        return (*single, *self.annotators, *self.votes)

    @property
    def is_given(self) -> bool:
        """Whether it says where labels stand."""
        return bool(self.label or self.annotators or self.votes)

    def says(self) -> str:
        """In words."""
        if self.annotators:
            return f"{len(self.annotators)} annotators ({', '.join(self.annotators)}), {self.rule}"
        if self.votes:
            return f"votes in {len(self.votes)} columns, {self.rule}"
        if self.item:
            return f"answers in {self.label!r}, one line each, items in {self.item!r}, {self.rule}"
        return f"column {self.label!r}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """From JSON, where tuples have become lists."""
        lists = ("annotators", "votes", "classes")
        plain: dict[str, Any] = {
            n: tuple(v) if n in lists and v is not None else v for n, v in values.items()
        }
        return cls(**plain)


@dataclass
class Labelled:
    """The rows of a table that can be learnt from, and what is known of their labels.

    Attributes:
        labels: the candidate sets.
        rows: the place of each in the sheet's frame.
        written: how each row is written.
        counts: votes of each row and class where people voted.
        answers: (n, m) what each annotator said where that is known: class numbers, -1 for nothing.
        annotators: their names.
        remarks: every row that was dropped or repaired, and what else there is to say.
    """

    labels: CandidateLabels
    rows: NDArray[np.int64]
    written: list[str]
    counts: NDArray[np.int64] | None = None
    answers: NDArray[np.int64] | None = None
    annotators: tuple[str, ...] = ()
    remarks: list[Remark] = field(default_factory=list)

    def only(self, kept: NDArray[np.bool_], remarks: Sequence[Remark] = ()) -> Self:
        """Some of the rows, and why not the others."""
        return replace(
            self,
            labels=self.labels[kept],
            rows=self.rows[kept],
            written=[kind for kind, keep in zip(self.written, kept, strict=True) if keep],
            counts=None if self.counts is None else self.counts[kept],
            answers=None if self.answers is None else self.answers[kept],
            remarks=[*self.remarks, *remarks],
        )

    @property
    def kinds(self) -> dict[str, int]:
        """How many rows are written how, the most first."""
        return dict(Counter(self.written).most_common())


class Cell(NamedTuple):
    """A label cell taken apart: the names in it, how it is written, and why it cannot be used, if so."""

    names: tuple[str, ...]
    kind: str
    fault: str = ""
    stray: bool = False


def read_hierarchy(path: str | Path) -> Any:
    """A tree from a file: nested JSON objects, a CSV of parents and children, or one path `a/b/c` a line."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"hierarchy: there is no file {path}.")
    text, _ = decoded(path.read_bytes(), path.name)
    if path.suffix.lower() == ".json":
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"hierarchy: {path} is not JSON ({error}).") from error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if path.suffix.lower() == ".csv":
        pairs = [[cell.strip() for cell in row] for row in csv.reader(lines)]
        pairs = pairs[1:] if pairs and [c.lower() for c in pairs[0]] == ["parent", "child"] else pairs
        odd = next((number for number, pair in enumerate(pairs, 1) if len(pair) != 2), None)
        if odd is not None:
            raise ValueError(f"hierarchy: {path}, line {odd}: expected two names, parent and child.")
        return pairs
    return lines


def looks_like_labels(sheet: Sheet) -> list[str]:
    """Columns in which some cell lists several names or rules some out, and few different names stand."""
    found = []
    for name in sheet.frame.columns:
        written = dict.fromkeys(as_text(cell) for cell in sheet.frame[name])
        cells = [parse_cell(text, "|") for text in written if "|" in text or text.startswith(NEGATION)]
        good = [cell for cell in cells if not cell.fault]
        names = {own for cell in good for own in cell.names}
        if good and len(good) >= MOSTLY * len(cells) and len(names) * 2 <= len(sheet.frame):
            found.append(str(name))
    return found


def likely_label(sheet: Sheet) -> str:
    """A sentence that names the column which looks like labels; empty where none does."""
    likely = looks_like_labels(sheet)
    return f" It may be {likely[0]!r}: --label {shlex.quote(likely[0])}." if likely else ""


def guess_source(sheet: Sheet) -> LabelSource | None:
    """The label column by its name, if there is one that is usually called so."""
    if sheet.tasks is not None:
        return LabelSource(label=_choices_of(sheet) or "choices")
    for usual in USUAL_NAMES:
        for name in sheet.frame.columns:
            if str(name).lower() == usual:
                return LabelSource(label=str(name))
    return None


def one_row_per_item(sheet: Sheet, source: LabelSource) -> Sheet:
    """Long form: the sheet with a row for every item, all answers to it in one cell."""
    items, answers = sheet.column(source.item or "", "item"), sheet.column(source.label or "", "label")
    lines: list[int] = [int(line) for line in sheet.frame.index]
    named = [as_text(item) for item in items]
    remarks = list(sheet.remarks)
    nameless = tuple(line for line, item in zip(lines, named, strict=True) if not item)
    if nameless:
        remarks.append(Remark("nameless item", "no item is named", "row dropped", nameless))
    by_item: dict[str, list[int]] = {}
    for line, item in zip(lines, named, strict=True):
        if item:
            by_item.setdefault(item, []).append(line)
    rest = sheet.frame[[name for name in sheet.frame.columns if name not in source.columns]].map(as_text)
    keys = np.array(named, dtype=object)
    varying = [name for name in rest.columns if (rest[name].groupby(keys).nunique() > 1).any()]
    if varying:
        text = f"{listed(varying)} differ between lines on one item, so they say nothing about it"
        remarks.append(Remark("varying cells", text, "column left out"))
    remarks.append(Remark("long form", f"{len(lines)} answers on {len(by_item)} items"))
    first = [own[0] for own in by_item.values()]
    frame = sheet.frame.loc[first].drop(columns=varying)
    said = [[answers.loc[line] for line in own] for own in by_item.values()]
    frame[source.label] = [f" {source.separator} ".join(map(as_text, own)) for own in said]
    people = None
    if source.annotator is not None:
        who = sheet.column(source.annotator, "annotator").map(as_text)
        people = [[who.loc[line] for line in own] for own in by_item.values()]
        frame[source.annotator] = [f" {source.separator} ".join(own) for own in people]
    return replace(sheet, frame=frame, remarks=remarks, answers=said, people=people)


def read_labels(sheet: Sheet, source: LabelSource) -> Labelled:
    """The candidate sets of a sheet's rows; rows that cannot be used are dropped and remarked.

    Args:
        sheet: what was read; in long form, as `one_row_per_item` leaves it.
        source: where its labels stand.
    """
    if sheet.tasks is not None:
        answers = label_studio_answers(sheet.tasks, _choices_of(sheet, source.label), "label")
        said = [[list(answer) for answer in row] for row in answers]
        return _from_answers(sheet, said, source, people=_label_studio_people(sheet.tasks))
    if sheet.answers is not None:
        return _from_answers(sheet, sheet.answers, source, people=sheet.people)
    if source.annotators:
        columns = [sheet.column(name, "annotators") for name in source.annotators]
        people = [list(source.annotators)] * len(sheet.frame)
        return _from_answers(sheet, list(zip(*columns, strict=True)), source, people=people)
    if source.votes:
        return _from_votes(sheet, source)
    if source.label is None:
        names = listed([str(name) for name in sheet.frame.columns], 12)
        hint = likely_label(sheet)
        raise ValueError(f"label: no column is named; say where the labels stand.{hint} There are {names}.")
    return _from_cells(sheet, source)


def as_text(value: Any) -> str:
    """A cell as it would be written in a text file; empty where it is missing."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list | tuple | np.ndarray):
        return json.dumps([as_text(part) for part in value], ensure_ascii=False)
    if is_missing(value):
        return ""
    if isinstance(value, float | np.floating):
        number = float(value)
        return str(int(number)) if number.is_integer() and abs(number) < 1e15 else str(value)
    return str(value)


def parse_cell(value: Any, separator: str, known: frozenset[str] = frozenset()) -> Cell:
    """A label cell taken apart: `cat`, `cat|dog`, `["cat", "dog"]`, `!cat`, or nothing.

    Args:
        value: the cell.
        separator: what stands between two names.
        known: names that are taken as they are, whatever signs are in them.
    """
    text = as_text(value)
    if text in known:
        return Cell((text,), ONE)
    if text.lower() in NO_LABEL:
        return Cell((), NOTHING)
    parts = _json_list(text)
    if parts is None:
        parts = [part.strip() for part in text.split(separator)]
    stray = "" in parts
    names = tuple(dict.fromkeys(part for part in parts if part))
    ruled_out = [name not in known and name.startswith(NEGATION) for name in names]
    if not names:
        return Cell((), NOTHING, stray=stray)
    if all(ruled_out):
        bare = tuple(dict.fromkeys(name.removeprefix(NEGATION).strip() for name in names))
        fault = "" if all(bare) else "rules out a name that is blank"
        return Cell(bare, NEGATED, fault, stray)
    fault = "says both what is possible and what is not" if any(ruled_out) else ""
    return Cell(names, ONE if len(names) == 1 else SEVERAL, fault, stray)


def _json_list(text: str) -> list[str] | None:
    if not (text.startswith("[") and text.endswith("]")):
        return None
    try:
        parts = json.loads(text)
    except json.JSONDecodeError:
        return None
    return [as_text(part) for part in parts]


def _choices_of(sheet: Sheet, name: str | None = None) -> str | None:
    """The name of a Label Studio project's choices: as asked for, else the only ones."""
    found = dict.fromkeys(
        str(result["from_name"])
        for task in sheet.tasks or ()
        for annotation in task.get("annotations", task.get("completions", ()))
        for result in annotation.get("result", ())
        if result.get("type") == "choices"
    )
    return name if name in found or len(found) != 1 else next(iter(found))


def _label_studio_people(tasks: Sequence[Mapping[str, Any]]) -> list[list[str]] | None:
    """Who gave each answer that was not skipped; None where some are not signed."""
    given = [
        [
            annotation.get("completed_by")
            for annotation in task.get("annotations", task.get("completions", ()))
            if not (annotation.get("was_cancelled") or annotation.get("skipped"))
        ]
        for task in tasks
    ]
    named = [
        [who.get("email", who.get("id")) if isinstance(who, dict) else who for who in own] for own in given
    ]
    if any(who is None for own in named for who in own):
        return None
    return [[str(who) for who in own] for own in named]


# Names: which are one, and which are slips of the pen.


def distance(one: str, other: str) -> int:
    """Letters to add, drop, change or swap with their neighbour to get from one word to the other."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        older, before, row = before, row, [i]
        for j, b in enumerate(other, 1):
            best = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                best = min(best, older[j - 2] + 1)
            row.append(best)
    return row[-1]


def is_near(one: str, other: str) -> bool:
    """Whether one word may be a slip for the other: a letter or two, and never another number."""
    a, b = _plain(one), _plain(other)
    if _numbers(a) != _numbers(b):
        return False
    if a == b:
        return True
    shorter, longer = sorted((len(a), len(b)))
    if shorter < 3 or longer - shorter > 2:
        return False
    if longer == 3:  # cat and car differ in one letter, and so do most words of three
        return sorted(a) == sorted(b) and distance(a, b) == 1
    return distance(a, b) <= (2 if shorter >= 8 else 1)


def _numbers(plain: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\d+", plain))


def _plain(name: str) -> str:
    return re.sub(r"[\s_\-]+", " ", name.casefold()).strip()


def _signs(plain: str) -> int:
    """The signs of a word as a set of bits."""
    return sum({1 << ord(sign) % 64 for sign in plain})


class _Lookup:
    """Names by what a near one shares with them, so that few have to be compared letter by letter."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names: dict[tuple[tuple[str, ...], int], list[tuple[int, int, str]]] = {}
        self._size = 0
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        plain = _plain(name)
        alike = self._names.setdefault((_numbers(plain), len(plain)), [])
        alike.append((self._size, _signs(plain), name))
        self._size += 1

    def near(self, name: str) -> list[str]:
        """Names that may be meant, in the order they were added."""
        plain = _plain(name)
        numbers, signs = _numbers(plain), _signs(plain)
        # Two letters changed take two signs away and bring two.
        alike = [
            (place, other)
            for length in range(len(plain) - 2, len(plain) + 3)
            for place, own, other in self._names.get((numbers, length), ())
            if (signs ^ own).bit_count() <= 4
        ]
        return [other for _, other in sorted(alike) if is_near(name, other)]


class Spelling(NamedTuple):
    """What names stand for: repaired ones, and pairs that look alike without being clearly the same."""

    meant: dict[str, str]
    doubtful: list[tuple[str, str]]


def spelling(counts: Mapping[str, int], known: Sequence[str] | None = None) -> Spelling:
    """Which names are slips for which.

    Args:
        counts: how many rows each name is in.
        known: the only names there are; a near one is then meant whatever the counts.
    """
    meant: dict[str, str] = {}
    doubtful: list[tuple[str, str]] = []
    ranked = sorted(counts, key=lambda name: (-counts[name], name))
    if known is not None:
        lookup, allowed = _Lookup(known), frozenset(known)
        for name in ranked:
            if name in allowed:
                continue
            near = lookup.near(name)
            if len(near) == 1:
                meant[name] = near[0]
        return Spelling(meant, doubtful)
    by_plain: dict[str, str] = {}
    kept = _Lookup()
    for name in ranked:
        same = by_plain.setdefault(_plain(name), name)
        if same != name:
            meant[name] = same
            continue
        near = kept.near(name)
        clear = [other for other in near if counts[name] * SLIP <= counts[other]]
        if len(near) == 1 and clear:
            meant[name] = near[0]
            by_plain[_plain(name)] = near[0]
            continue
        doubtful += [(name, other) for other in near if counts[name] * 3 <= counts[other]]
        kept.add(name)
    return Spelling(meant, doubtful)


class _Names(NamedTuple):
    """What cells may name: classes, and labels that stand for several of them."""

    classes: tuple[str, ...]
    stands_for: dict[str, NDArray[np.int64]]


def _names(
    counts: Mapping[str, int],
    rows_of: Mapping[str, Sequence[int]],
    source: LabelSource,
    remarks: list[Remark],
) -> tuple[_Names, dict[str, str]]:
    """The classes, and what every written name means; unknown names are left out."""
    tree = None if source.hierarchy is None else read_tree(source.hierarchy)
    known = _known(source, tree)
    found = spelling(counts, known) if source.repair else Spelling({}, [])
    for name, other in found.meant.items():
        text = f"{name!r} is read as {other!r}"
        remarks.append(Remark("slip of the pen", text, "repaired", tuple(rows_of[name])))
    for name, other in found.doubtful:
        text = (
            f"{name!r} ({plural(counts[name], 'row')}) looks like {other!r} "
            f"({plural(counts[other], 'row')}); kept apart. If they are one, use --options classes=..."
        )
        remarks.append(Remark("near names", text, "noted", tuple(rows_of[name][:5])))
    meant = {name: found.meant.get(name, name) for name in counts}
    if tree is not None:
        leaves = tuple(map(str, tree.leaves))
        stands_for = {str(n): np.flatnonzero(row) for n, row in zip(tree.nodes, tree.stands_for, strict=True)}
    else:
        leaves = known if known is not None else tuple(_sorted(set(meant.values())))
        stands_for = {name: np.array([i]) for i, name in enumerate(leaves)}
    return _Names(leaves, stands_for), {name: to for name, to in meant.items() if to in stands_for}


def _known(source: LabelSource, tree: Tree | None) -> tuple[str, ...] | None:
    if tree is not None:
        return tuple(map(str, tree.nodes))
    return source.classes


def _sorted(names: set[str]) -> list[str]:
    """Numbers by size, words by the alphabet."""
    try:
        return sorted(names, key=float)
    except ValueError:
        return sorted(names)


def _refuse_odd_column(n_names: int, n_rows: int, what: str) -> None:
    if n_names > 50 and n_names * 2 > n_rows:
        raise ValueError(
            f"label: {what} has {n_names} different labels in {n_rows} rows; is it the right column, and the "
            "right separator?"
        )
    if n_names < 2:
        raise ValueError(f"label: {what} names {plural(n_names, 'class')}; two or more are needed.")


def _dropped(faults: Mapping[int, str], remarks: list[Remark]) -> None:
    by_fault: dict[str, list[int]] = {}
    for row, fault in faults.items():
        by_fault.setdefault(fault, []).append(row)
    for fault, rows in by_fault.items():
        remarks.append(Remark("unusable label", fault, "row dropped", tuple(rows)))


# One reader per place where labels stand.


def _from_cells(sheet: Sheet, source: LabelSource) -> Labelled:
    assert source.label is not None
    column = sheet.column(source.label, "label")
    if source.rule != "union":
        raise ValueError(
            f"rule: {source.rule!r} given, but a cell of {source.label!r} is not what several people "
            "answered; leave the rule out, or name annotators, votes or item."
        )
    remarks: list[Remark] = []
    known = frozenset(source.classes or ())
    parsed: dict[int, Cell] = {}
    cache: dict[str, Cell] = {}
    for row, value in column.items():
        text = as_text(value)
        if text not in cache:
            cache[text] = parse_cell(value, source.separator, known)
        parsed[int(row)] = cache[text]  # type: ignore[call-overload]
    stray = tuple(row for row, cell in parsed.items() if cell.stray)
    if stray:
        text = f"{source.separator!r} with nothing on one of its sides; left away"
        remarks.append(Remark("stray separator", text, "repaired", stray))
    words = Counter(
        as_text(column.loc[row]) for row, cell in parsed.items() if cell.kind == NOTHING and not cell.stray
    )
    spoken = {word: times for word, times in words.items() if word}
    if spoken:
        shown = ", ".join(f"{word!r} ({plural(times, 'row')})" for word, times in spoken.items())
        text = f"{shown} read as no label"
        rows = tuple(r for r, cell in parsed.items() if cell.kind == NOTHING and as_text(column.loc[r]))
        remarks.append(Remark("no label", text, "noted", rows))
    faults = {row: cell.fault for row, cell in parsed.items() if cell.fault}
    usable = {row: cell for row, cell in parsed.items() if not cell.fault}
    rows_of = _rows_by_name({row: cell.names for row, cell in usable.items()})
    remarks += _remark_on_lists([name for name in rows_of if name not in known])
    names, meant = _names({n: len(r) for n, r in rows_of.items()}, rows_of, source, remarks)
    _refuse_odd_column(len(names.classes), len(column), f"column {source.label!r}")
    mask: dict[int, NDArray[np.bool_]] = {}
    for row, cell in usable.items():
        unknown = [name for name in cell.names if name not in meant]
        if unknown:
            faults[row] = f"{unknown[0]!r} is no class{_hint(unknown[0], names)}"
            continue
        marked = np.zeros(len(names.classes), dtype=bool)
        for name in cell.names:
            marked[names.stands_for[meant[name]]] = True
        if cell.kind == NEGATED:
            marked = ~marked
        elif cell.kind == NOTHING:
            marked[:] = True
        if not marked.any():
            faults[row] = "rules out every class"
            continue
        mask[row] = marked
    kinds = {row: usable[row].kind for row in mask}
    return _finished(sheet, source, names.classes, mask, kinds, faults, remarks)


def _remark_on_lists(names: Sequence[str]) -> list[Remark]:
    """A remark where names hold another separator than was said, with other cells' names on both sides."""
    for sign in (",", ";", "/", "+", "&"):
        parts = {name: [part.strip() for part in name.split(sign)] for name in names}
        times = Counter(part for own in parts.values() for part in set(own))
        several = [name for name, own in parts.items() if len(own) > 1]
        lists = [name for name in several if all(part and times[part] > 1 for part in parts[name])]
        if lists and len(lists) >= MOSTLY * len(several):
            option = shlex.quote(f"separator={sign}")
            text = f"cells such as {lists[0]!r} look like lists; split them with --options {option}"
            return [Remark("lists", text)]
    return []


def _hint(name: str, names: _Names) -> str:
    near = [other for other in names.stands_for if is_near(name, other)]
    return f"; did you mean {' or '.join(map(repr, near[:3]))}?" if near else ""


def _rows_by_name(names: Mapping[int, Sequence[str]]) -> dict[str, list[int]]:
    rows_of: dict[str, list[int]] = {}
    for row, own in names.items():
        for name in own:
            rows_of.setdefault(name, []).append(row)
    return rows_of


def _from_answers(
    sheet: Sheet,
    answers: Sequence[Sequence[Any]],
    source: LabelSource,
    *,
    people: Sequence[Sequence[str]] | None = None,
) -> Labelled:
    """Several people's answers on every row; each may name several labels."""
    remarks: list[Remark] = []
    known = frozenset(source.classes or ())
    parsed: dict[int, list[Cell]] = {}
    faults: dict[int, str] = {}
    for row, own in zip(map(int, sheet.frame.index), answers, strict=True):
        said = [parse_cell(value, source.separator, known) for value in own]
        fault = next((cell.fault for cell in said if cell.fault), "")
        if any(cell.kind == NEGATED for cell in said):
            fault = "an annotator rules out labels, which cannot be counted as votes"
        if fault:
            faults[row] = fault
        else:
            parsed[row] = said
    every = {row: [name for cell in said for name in cell.names] for row, said in parsed.items()}
    rows_of = _rows_by_name(every)
    mentions = Counter(name for own in every.values() for name in own)
    names, meant = _names(mentions, rows_of, source, remarks)
    _refuse_odd_column(len(names.classes), len(parsed), "the answers")
    k = len(names.classes)
    counts = {row: np.zeros(k, dtype=np.int64) for row in parsed}
    for row, said in list(parsed.items()):
        unknown = next((name for cell in said for name in cell.names if name not in meant), None)
        if unknown is not None:
            faults[row] = f"{unknown!r} is no class{_hint(unknown, names)}"
            del parsed[row]
            continue
        for cell in said:
            voted = np.unique(np.concatenate([[], *(names.stands_for[meant[n]] for n in cell.names)])).astype(
                int
            )
            counts[row][voted] += 1
    kept = {row: chosen(counts[row][None], source.rule)[0] for row in parsed}
    mask = {row: own if own.any() else np.ones(k, dtype=bool) for row, own in kept.items()}
    kinds = {row: _answers_kind(said, meant) for row, said in parsed.items()}
    found = _finished(sheet, source, names.classes, mask, kinds, faults, remarks)
    at = [int(sheet.frame.index[i]) for i in found.rows]
    found.counts = np.stack([counts[row] for row in at])
    if people is not None:
        who = dict(zip(map(int, sheet.frame.index), people, strict=True))
        found.annotators = source.annotators or tuple(
            sorted({name for own in people for name in own if name})
        )
        place = {name: i for i, name in enumerate(names.classes)}
        seat = {name: i for i, name in enumerate(found.annotators)}
        found.answers = np.full((len(at), len(seat)), -1, dtype=np.int64)
        for i, row in enumerate(at):
            for name, cell in zip(who[row], parsed[row], strict=True):
                if name in seat and len(cell.names) == 1:
                    found.answers[i, seat[name]] = place.get(meant[cell.names[0]], -1)
    _remark_on_agreement(found.counts, at, source, remarks)
    return found


def _remark_on_agreement(
    counts: NDArray[np.int64], rows: Sequence[int], source: LabelSource, remarks: list[Remark]
) -> None:
    if isinstance(source.rule, int):
        split = tuple(
            row for row, own in zip(rows, counts, strict=True) if own.any() and (own < source.rule).all()
        )
        if split:
            text = f"no label has {source.rule} votes; everything that was answered stays possible"
            remarks.append(Remark("no agreement", text, "noted", split))


def _answers_kind(said: Sequence[Cell], meant: Mapping[str, str]) -> str:
    given = [frozenset(meant[name] for name in cell.names) for cell in said if cell.names]
    if not given:
        return NOTHING
    if len(given) == 1:
        return ALONE
    return AGREED if len(set(given)) == 1 else DISAGREED


def _from_votes(sheet: Sheet, source: LabelSource) -> Labelled:
    remarks: list[Remark] = []
    columns = [pd.to_numeric(sheet.column(name, "votes"), errors="coerce") for name in source.votes]
    values = np.stack([column.to_numpy(dtype=float) for column in columns], axis=1)
    written = sheet.frame[list(source.votes)].map(as_text).to_numpy()
    blank = np.isnan(values) & (written == "")
    values[blank] = 0.0
    index = [int(row) for row in sheet.frame.index]
    if blank.any():
        rows = tuple(index[i] for i in np.flatnonzero(blank.any(1)))
        remarks.append(Remark("blank votes", "empty cells read as no vote", "repaired", rows))
    bad = ~(np.isfinite(values) & (values >= 0) & (values == np.floor(values)))
    faults: dict[int, str] = {}
    for name, own, cells in zip(source.votes, bad.T, written.T, strict=True):
        if not own.any():
            continue
        text = f"{name!r} holds what is no number of votes, such as {cells[own.argmax()]!r}"
        if own.sum() * 2 > len(own):
            raise ValueError(
                f"votes: {text}, in {own.sum()} of {len(own)} rows; name one column of votes per class."
            )
        faults |= {index[i]: text for i in np.flatnonzero(own)}
    good = [i for i in range(len(index)) if index[i] not in faults]
    counts = {index[i]: values[i].astype(np.int64) for i in good}
    kept = {row: chosen(own[None], source.rule)[0] for row, own in counts.items()}
    mask = {row: own if own.any() else np.ones(len(own), dtype=bool) for row, own in kept.items()}
    kinds = {
        row: NOTHING if not own.any() else ONE if (own > 0).sum() == 1 else SEVERAL
        for row, own in counts.items()
    }
    found = _finished(sheet, source, source.votes, mask, kinds, faults, remarks)
    found.counts = np.stack([counts[index[i]] for i in found.rows])
    _remark_on_agreement(found.counts, [index[i] for i in found.rows], source, remarks)
    return found


def _finished(
    sheet: Sheet,
    source: LabelSource,
    classes: Sequence[str],
    mask: Mapping[int, NDArray[np.bool_]],
    kinds: Mapping[int, str],
    faults: Mapping[int, str],
    remarks: list[Remark],
) -> Labelled:
    """The kept rows in the sheet's order, with remarks on what all of them have in common."""
    _dropped(faults, remarks)
    place = {int(row): i for i, row in enumerate(sheet.frame.index)}
    kept = [row for row in place if row in mask]
    unlabelled = [row for row in kept if kinds[row] == NOTHING]
    if unlabelled and source.unlabelled == "drop":
        remarks.append(Remark("unlabelled", "no label at all", "row dropped", tuple(unlabelled)))
        kept = [row for row in kept if kinds[row] != NOTHING]
    elif unlabelled:
        text = "no label at all: every class is possible"
        remarks.append(Remark("unlabelled", text, "noted", tuple(unlabelled)))
    if not kept:
        raise ValueError(f"label: no row of {sheet.source} has a usable label.")
    matrix = np.stack([mask[row] for row in kept])
    full = [row for row, own in zip(kept, matrix, strict=True) if own.all() and kinds[row] != NOTHING]
    if full:
        text = "all classes are named, which says nothing"
        remarks.append(Remark("without information", text, "noted", tuple(full)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UninformativeRowsWarning)
        labels = CandidateLabels.from_matrix(matrix, classes)
    written = [kinds[row] for row in kept]
    _remark_on_classes(labels, written, kept, remarks)
    rows = np.array([place[row] for row in kept], dtype=np.int64)
    return Labelled(labels, rows, written, remarks=remarks)


def _remark_on_classes(
    labels: CandidateLabels, kinds: Sequence[str], rows: Sequence[int], remarks: list[Remark]
) -> None:
    mask = labels.to_numpy()
    named = np.array([kind not in (NOTHING, NEGATED) for kind in kinds])
    for i, name in enumerate(labels.classes):
        seen = np.flatnonzero(mask[:, i] & named)
        if len(seen) == 0:
            text = f"class {name!r} is named in no row; it can only be reached by ruling out the others"
            remarks.append(Remark("class never named", text))
        elif len(seen) == 1:
            text = (
                f"class {name!r} is in one row only, too few to learn; --options classes=... can exclude it"
            )
            remarks.append(Remark("label seen once", text, "noted", (rows[seen[0]],)))


@dataclass
class Table:
    """A sheet, and the rows of it that have labels to learn from.

    Attributes:
        sheet: what was read, one row per instance.
        source: where its labels stand; None where nobody said.
        labelled: the labels; None without a source.
    """

    sheet: Sheet
    source: LabelSource | None = None
    labelled: Labelled | None = None

    @property
    def remarks(self) -> list[Remark]:
        """Everything that was noticed, dropped or repaired."""
        return [*self.sheet.remarks, *(self.labelled.remarks if self.labelled is not None else ())]

    @property
    def frame(self) -> pd.DataFrame:
        """The rows that were kept; their index is the place in the file."""
        return self.sheet.frame if self.labelled is None else self.sheet.frame.iloc[self.labelled.rows]


def copies_of_labels(table: Table, aside: Sequence[str] = ()) -> dict[str, Remark]:
    """Columns that name classes themselves: an answer under another heading, not something to learn from.

    Args:
        table: with labels.
        aside: columns that are not looked at.

    Returns:
        A remark on each of them.
    """
    assert table.labelled is not None
    assert table.source is not None
    separator = table.source.separator.casefold()
    names = frozenset(str(name).casefold() for name in table.labelled.labels.classes)
    found = {}
    for column in table.frame.columns:
        if column in aside:
            continue
        words = table.frame[column].map(lambda cell: as_text(cell).casefold())
        words = words[~words.isin(list(NO_LABEL))]
        answers = words.map(lambda text: text in names or _lists(text, separator, names))
        # Numbers may well be numbers, whatever the classes are called.
        if len(words) and answers.mean() > MOSTLY and not words.str.fullmatch(r"[\d.\-]+").all():
            text = f"{str(column)!r} names classes: it is an answer, and nothing to learn from"
            found[str(column)] = Remark("label under another name", text, "column left out")
    return found


def _lists(text: str, separator: str, names: frozenset[str]) -> bool:
    """Whether a cell lists names or rules some out, and all of them are known."""
    return (separator in text or text.startswith((NEGATION, "["))) and names.issuperset(
        parse_cell(text, separator, names).names
    )


def open_table(source: Any, labels: LabelSource | None = None) -> Table:
    """Read a file or a data frame, and its labels where it is said where they stand."""
    sheet = read(source)
    if labels is None:
        return Table(sheet)
    if labels.item is not None and sheet.tasks is None:
        sheet = one_row_per_item(sheet, labels)
    return Table(sheet, labels, read_labels(sheet, labels))

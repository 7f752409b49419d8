"""Describe or guess where the labels of a table are."""

import itertools
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

from propall.input_files import read_input
from propall.labels.hierarchy import read_tree
from propall.labels.parsing import CellGrammar, LabelCell, visible_text
from propall.labels.votes import Rule, label_studio_names
from propall.schema import check_fields
from propall.tables.arrow_text import count_texts
from propall.tables.encodings import decode_text
from propall.tables.reading import RawTable, parse_json, split_records
from propall.wording import join_names

#: Words in a label cell that mean there is no label; a class with such a name must be listed in `classes`.
NO_LABEL = frozenset({"", "na", "n/a", "nan", "null", "<na>", "?"})
#: Smallest share of a column's cells that must be labels for the column to be recognized as labels.
MIN_LABEL_SHARE = 0.9
#: Names of columns that are guessed to be the labels, in order of preference.
USUAL_NAMES = ("label", "labels", "class", "target", "category", "candidates", "y")


@dataclass(frozen=True)
class LabelSource:
    """Where the labels of a table are.

    Attributes:
        label: the column whose cells are one label, several (`cat|dog`, or a JSON list), labels ruled out
            (`!cat`), or blank. In long form, the column of answers; for a Label Studio export, the name of
            the choices.
        annotators: one column per annotator.
        votes: one column per class, with 0 and 1 or numbers of votes.
        item: in long form, the column with the instance each answer belongs to.
        annotator: in long form, the column with the annotator who gave each answer, if any.
        scores: one column per class with a model's probability of it. Whatever the names of the columns have
            in common, such as `p_`, is not part of the class.
        lists: the column of free-text lists of class names, such as a language model writes; `classes` is
            required.
        sets: which classes the scores make candidates: `top_k=2`, or `mass=0.9` for the most probable classes
            that together have this probability.
        separator: the text between two names.
        rule: how the answers of several annotators are combined, see `CandidateLabels.from_votes`.
        classes: all class names in order; by default those seen.
        hierarchy: the label hierarchy, as in `CandidateLabels.from_hierarchy`.
        unlabeled: "keep" rows without a label, with every class possible, or "drop" them.
        repair: fix obvious label typos.
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
    unlabeled: Literal["keep", "drop"] = "keep"
    repair: bool = True
    scores: tuple[str, ...] = ()
    lists: str | None = None
    sets: str = "mass=0.9"

    def __post_init__(self) -> None:
        names = ("label", "annotators", "votes", "scores", "lists")
        places = {name: getattr(self, name) for name in names}
        chosen = [f"--{name}" for name, columns in places.items() if columns]
        if len(chosen) > 1:
            raise ValueError(f"label: {join_names(chosen)} are mutually exclusive. Choose one of them.")
        if self.item and not self.label:
            raise ValueError(
                "item: needs the column of answers too; name it with --label, such as --label answer."
            )
        if self.annotator and not self.item:
            raise ValueError("annotator: needs an item column too; specify it, or use annotators.")
        if not self.separator:
            raise ValueError("separator: empty; expected the text between two names, such as '|'.")
        if not (self.rule in ("union", "plurality") or (isinstance(self.rule, int) and self.rule >= 1)):
            raise ValueError(
                f"rule: got {self.rule!r}; expected union, plurality or a number of votes from 1 on."
            )
        if self.annotators and isinstance(self.rule, int) and self.rule > len(self.annotators):
            n = len(self.annotators)
            raise ValueError(f"rule: got {self.rule} votes for {n} annotators; expected 1 to {n}.")
        if self.lists and not self.classes:
            raise ValueError(
                "classes: missing; names in free-text lists are matched to classes. Pass all class names, "
                "such as --options classes=cat,dog."
            )
        self.selection()  # raises if it cannot be read
        if self.unlabeled not in ("keep", "drop"):
            raise ValueError(f"unlabeled: got {self.unlabeled!r}; expected keep or drop.")

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns with labels, items or annotators, none of which is a feature."""
        single = (name for name in (self.label, self.item, self.annotator, self.lists) if name)
        return (*single, *self.annotators, *self.votes, *self.scores)

    def selection(self) -> dict[str, Any]:
        """Return `sets` as arguments of `CandidateLabels.from_scores`."""
        rule, _, number = self.sets.partition("=")
        try:
            return {rule: {"top_k": int, "mass": float}[rule](number)}
        except (KeyError, ValueError):
            problem = "expected top_k= and a number of classes, or mass= and a probability"
            raise ValueError(f"sets: got {self.sets!r}; {problem}.") from None

    @property
    def score_classes(self) -> tuple[str, ...]:
        """The class of each column of scores: its name without what all names have in common."""
        letters = itertools.takewhile(lambda signs: len(set(signs)) == 1, zip(*self.scores, strict=False))
        shared = "".join(signs[0] for signs in letters) if len(self.scores) > 1 else ""
        cut = max(shared.rfind(sign) for sign in "_:/ ") + 1
        return tuple(name[cut:] for name in self.scores)

    @property
    def grammar(self) -> CellGrammar:
        """How label cells are written."""
        known = frozenset(self.classes or ()).union(map(visible_text, self.classes or ()))
        return CellGrammar(self.separator, known=known, json_lists=True, blanks=NO_LABEL)

    def describe(self) -> str:
        """Describe where the labels are."""
        if self.annotators:
            return f"{len(self.annotators)} annotators ({', '.join(self.annotators)}), {self.rule}"
        if self.votes:
            return f"votes in {len(self.votes)} columns, {self.rule}"
        if self.scores:
            return f"a model's scores in {len(self.scores)} columns, {self.sets}"
        if self.lists:
            return f"lists in column {self.lists!r}"
        if self.item:
            return f"answers in {self.label!r}, one per line, items in {self.item!r}, {self.rule}"
        return f"column {self.label!r}"

    def as_dict(self) -> dict[str, Any]:
        """Return the fields; `unlabeled` has the key of version 0.1.0, later ones are omitted at defaults."""
        values = asdict(self)
        for name in ("scores", "lists", "sets"):
            if values[name] == type(self).__dataclass_fields__[name].default:
                del values[name]
        return values | {"unlabelled": values.pop("unlabeled")}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build from JSON, in which tuples have become lists; raise ValueError for other values."""
        fields = {name: value for name, value in values.items() if name != "unlabelled"}
        fields["unlabeled"] = values.get("unlabelled", "keep")
        check_fields(fields, cls, "labels")
        names = ("annotators", "votes", "classes", "scores")
        tuples = {name: tuple(fields[name]) for name in names if fields.get(name) is not None}
        return cls(**{**fields, **tuples})


def read_hierarchy(path: str | Path) -> Any:
    """Read a tree from a file: nested JSON objects, a CSV of parents and children, or one path per line."""
    path = Path(path)
    text = decode_text(read_input(path, "hierarchy"), path.name).text
    if path.suffix.lower() == ".json":
        tree = parse_json(text, f"hierarchy: {path}")
    elif path.suffix.lower() == ".csv":
        tree = _read_edges(text, path)
    else:
        tree = [line.strip() for line in text.splitlines() if line.strip()]
    try:
        read_tree(tree)
    except (TypeError, ValueError) as error:
        raise ValueError(f"hierarchy: {path}: {str(error).removeprefix('tree: ')}") from error
    return tree


def _read_edges(text: str, path: Path) -> list[list[str]]:
    rows = [[cell.strip() for cell in row] for row in split_records(text, ",", path.name)]
    edges = {number: row for number, row in enumerate(rows, 1) if any(row)}
    first = next(iter(edges), 0)
    if first and [name.lower() for name in edges[first]] == ["parent", "child"]:
        del edges[first]
    bad = next((number for number, edge in edges.items() if len(edge) != 2), None)
    if bad is not None:
        raise ValueError(f"hierarchy: {path}, line {bad}: expected two names, parent and child.")
    return list(edges.values())


def find_label_columns(raw: RawTable) -> list[str]:
    """Return columns in which some cells list several names or rule some out, out of few distinct names."""
    grammar = LabelSource().grammar
    columns = []
    for column in raw.names:
        texts = count_texts(raw.cells(column))
        cells = [grammar.parse(text) for text in texts if grammar.is_compound(text)]
        usable = [cell for cell in cells if not cell_fault(cell)]
        names = {name for cell in usable for name in cell.names}
        if usable and len(usable) >= MIN_LABEL_SHARE * len(cells) and len(names) * 2 <= len(raw.frame):
            columns.append(column)
    return columns


def suggest_label_column(raw: RawTable) -> str:
    """Return a sentence that names a column that looks like labels; empty if there is none."""
    columns = find_label_columns(raw)
    return f" It may be {columns[0]!r}: --label {shlex.quote(columns[0])}." if columns else ""


def guess_source(raw: RawTable) -> LabelSource | None:
    """Return the label column if one has a usual name."""
    if raw.tasks is not None:
        return LabelSource(label=choices_name(raw) or "choices")
    for usual in USUAL_NAMES:
        for name in raw.frame.columns:
            if str(name).lower() == usual:
                return LabelSource(label=str(name))
    return None


def choices_name(raw: RawTable, name: str | None = None) -> str | None:
    """Return the name of a Label Studio project's choices: the requested ones, else the only ones."""
    names = label_studio_names(raw.tasks or ())
    return name if name in names or len(names) != 1 else names[0]


def cell_fault(cell: LabelCell) -> str:
    """Return why a cell cannot be used; empty if it can."""
    if cell.mixed:
        return "lists both candidates and labels that are ruled out"
    return "rules out a blank name" if cell.nameless else ""

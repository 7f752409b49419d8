"""Candidate sets: one bool tensor (n, k), how it is built, and how a distribution is read on it."""

import sys
import warnings
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, overload

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from propall.labels import hierarchy, parsing, votes
from propall.labels.parsing import Marks, class_names, column_names, described, set_sizes
from propall.wording import listed, plural

#: What becomes of a row that names nothing: it is refused, or every class is possible.
Empty = Literal["refuse", "all"]


class UninformativeRowsWarning(UserWarning):
    """Some rows hold every class: they are allowed, but say nothing about the class."""


def check(candidates: object, *, quiet: bool = False) -> None:
    """Refuse a candidate matrix that no method can train on; warn where rows hold every class.

    For a matrix that comes straight from a user: `CandidateLabels` says the same while it is built.

    Args:
        candidates: a bool tensor (n, k) with at least one row, two classes and one True per row.
        quiet: no warning, for sets that the caller drew or has warned about already.

    Raises:
        TypeError: it is no tensor, or its dtype is not bool.
        ValueError: it has another shape, no rows, fewer than two classes, or empty rows.
    """
    mask = _bool_matrix(candidates, "candidates")
    if len(mask) == 0:
        raise ValueError("candidates: there are no rows; give at least one instance.")
    _inspect_rows(mask, "candidates", quiet=quiet)


@dataclass(frozen=True, eq=False, repr=False)
class CandidateLabels:
    """What is known about each instance's class: a set of candidates, one of which is right.

    The constructors `from_labels`, `from_sets`, `from_matrix`, `from_strings`, `from_complementary`,
    `from_votes`, `from_annotators`, `from_hierarchy` and `from_label_studio` read one form of data each;
    `from_any` recognises the form. All refuse what cannot be a candidate set and say in which row (counted
    from 0) and what to do; rows that hold every class are kept, with one warning, unless `empty="all"` asks
    for them.

    Classes come in the order of `classes=` where it is given, else of a categorical column's categories or a
    data frame's columns, else sorted, and where they cannot be sorted (numbers beside strings) in order of
    first appearance.

    Labels are indexed like an array of rows: `labels[3]` is a tuple of class names; a slice, whole numbers or
    bools give the `CandidateLabels` of those rows. scikit-learn's splitters take them as `y`.

    Attributes:
        mask: True on the candidates of each row; never to be written to.
        classes: the name of each column; any hashable values but None and NaN.

    Examples:
        >>> labels = CandidateLabels.from_strings(["cat|dog", "emu"])
        >>> labels
        CandidateLabels(2 rows, 3 classes ('cat', 'dog', 'emu'), 1 to 2 candidates a row, mean 1.5)
        >>> labels.mask.tolist()
        [[True, True, False], [False, False, True]]
        >>> labels.equals(CandidateLabels.from_complementary(["emu", {"cat", "dog"}], labels.classes))
        True
    """

    mask: Bool[Tensor, "n k"]
    classes: tuple[Hashable, ...]

    def __post_init__(self) -> None:
        mask = _bool_matrix(self.mask, "mask")
        object.__setattr__(self, "classes", column_names(self.classes, mask.shape[1], "mask"))
        _inspect_rows(mask, "mask")

    @classmethod
    def _inspected(cls, mask: Bool[Tensor, "n k"], classes: tuple[Hashable, ...]) -> Self:
        # Past `__post_init__`: some rows of accepted labels need no second look and no second warning.
        labels = object.__new__(cls)
        object.__setattr__(labels, "mask", mask)
        object.__setattr__(labels, "classes", classes)
        return labels

    @classmethod
    def _accept(cls, marks: Marks, parameter: str, empty: Empty = "refuse") -> Self:
        if empty not in ("refuse", "all"):
            raise ValueError(f"empty: {empty!r}; expected 'refuse' or 'all'.")
        mask, classes = marks.candidates(parameter)
        unlabelled = None
        if empty == "all":
            unlabelled = set_sizes(mask).to(mask.device) == 0
            mask = mask | unlabelled[:, None]
        _inspect_rows(mask, parameter, meant=unlabelled)
        return cls._inspected(mask, classes)

    @classmethod
    def from_labels(cls, y: Any, classes: Iterable[Hashable] | None = None) -> Self:
        """One candidate per row, from ordinary labels.

        Args:
            y: one label per row: list, 1-D array or tensor, or anything with `to_numpy` or `to_list`.
            classes: names of all classes in order; by default those seen (see the class).
        """
        return cls._accept(parsing.read_labels(y, classes, "y"), "y")

    @classmethod
    def from_sets(
        cls, sets: Any, classes: Iterable[Hashable] | None = None, *, empty: Empty = "refuse"
    ) -> Self:
        """The candidates of each row as a set, list, tuple or array of class names.

        Args:
            sets: one collection per row; a label named twice in a row counts once.
            classes: names of all classes in order; by default those seen (see the class).
            empty: "all" gives rows without a label every class; "refuse" refuses them.
        """
        return cls._accept(parsing.read_sets(sets, classes, "sets", blanks=empty == "all"), "sets", empty)

    @classmethod
    def from_matrix(cls, matrix: Any, classes: Iterable[Hashable] | None = None) -> Self:
        """A matrix with True or 1 on the candidates and False or 0 elsewhere; it is copied.

        Args:
            matrix: (n, k) numpy array, tensor (the mask stays on its device), scipy sparse matrix or array,
                nested list, or data frame whose columns are the classes.
            classes: names of the columns; by default the data frame's own, else 0 to k - 1. Given the names
                of a data frame's columns in another order, the columns are put in that order.
        """
        return cls._accept(parsing.read_matrix(matrix, classes, "matrix"), "matrix")

    @classmethod
    def from_strings(
        cls,
        strings: Any,
        separator: str = "|",
        classes: Iterable[Hashable] | None = None,
        *,
        negation: str | None = "!",
        empty: Empty = "refuse",
    ) -> Self:
        """The candidates of each row in one string: `cat|dog`, or `!emu` for every class but one.

        Space around a name is dropped. `!cat|!dog` rules out both; a row names candidates or rules out, not
        both at once.

        Args:
            strings: one string per row.
            separator: what stands between two names.
            classes: names of all classes in order; by default those seen (see the class), ruled out or not.
                A name that is listed here is taken as it is, even if it begins with `negation`.
            negation: what stands before a name that is ruled out; None where `!` belongs to names.
            empty: "all" gives rows without a label every class; "refuse" refuses them.
        """
        blanks = empty == "all"
        marks = parsing.read_strings(strings, separator, classes, "strings", negation=negation, blanks=blanks)
        return cls._accept(marks, "strings", empty)

    @classmethod
    def from_complementary(cls, labels: Any, classes: Iterable[Hashable] | None = None) -> Self:
        """Every class but those known to be wrong.

        Args:
            labels: what each instance is not, in any form `from_any` takes: one label per row, several, or a
                matrix with 1 on the classes ruled out. An empty set rules out nothing and leaves every class.
            classes: names of all classes in order. Needed unless a matrix has a column for each or a
                categorical column lists them: a class that no row rules out is nowhere in the labels.
        """
        given = isinstance(labels, CandidateLabels) or parsing.is_matrix(labels)
        if classes is None and not given and parsing.category_names(labels) is None:
            raise ValueError(
                "classes: not given; a class that no row rules out is nowhere in labels, so they cannot tell "
                "which classes there are. Pass classes= with the names of all."
            )
        ruled_out, names = _marks_of(labels, classes, "labels", scalars_among_sets=True).candidates("labels")
        turned = Marks(ruled_out, names, negated=np.ones(len(ruled_out), dtype=bool))
        return cls._accept(turned, "labels")

    @classmethod
    def from_votes(
        cls,
        counts: Any,
        classes: Iterable[Hashable] | None = None,
        *,
        rule: votes.Rule = "union",
        empty: Empty = "refuse",
    ) -> Self:
        """Candidates from how many times each label was given.

        Args:
            counts: (n, k) whole numbers, in any form `from_matrix` takes.
            classes: names of the columns, as in `from_matrix`.
            rule: "union" for every label with a vote; "plurality" for those with the most votes, ties
                included; a number for those with at least so many votes, and every label with a vote in rows
                where none has so many.
            empty: "all" gives rows without a vote every class; "refuse" refuses them.
        """
        return cls._accept(votes.read_counts(counts, classes, rule, "counts"), "counts", empty)

    @classmethod
    def from_annotators(
        cls,
        answers: Any,
        classes: Iterable[Hashable] | None = None,
        *,
        rule: votes.Rule = "union",
        items: Any = None,
        empty: Empty = "refuse",
    ) -> Self:
        """Candidates from what several people answered.

        Args:
            answers: a table with a row per instance and a column per annotator (data frame, 2-D array, list
                of rows), or a mapping from annotators to their columns. An entry is a label, a set or list of
                labels, or missing (None, NaN, "") where the person gave no answer. With `items`, one answer
                per entry.
            classes: names of all classes in order; by default those seen (see the class).
            rule: "union" keeps what anyone answered; "plurality" what most answered, ties included; a number
                what at least so many answered, and everything answered in rows where no label reaches it.
            items: for answers in long form, the instance each belongs to. The rows are then the distinct
                items in order of appearance.
            empty: "all" gives rows without an answer every class; "refuse" refuses them.

        Examples:
            >>> answers = [["cat", "cat", "dog"], ["dog", None, "emu"], ["emu", "emu", "emu"]]
            >>> CandidateLabels.from_annotators(answers, rule="plurality").strings()
            ['cat', 'dog|emu', 'emu']
        """
        marks = votes.read_answers(answers, classes, rule, "answers", items=items)
        return cls._accept(marks, "answers", empty)

    @classmethod
    def from_hierarchy(cls, tree: Any, labels: Any, *, separator: str = "|", empty: Empty = "refuse") -> Self:
        """Candidates from labels of a hierarchy: a label that has others below it stands for all of them.

        The classes are the leaves, in the tree's order.

        Args:
            tree: a nested mapping (`{"bird": {"gull": ["herring gull", "mew gull"]}, "fish": None}`), a list
                of edges (parent, child), or a list of paths such as `bird/gull/mew gull`.
            labels: one name per row, a string of several with `separator` between them and `!` before those
                ruled out, or a collection of names. A name is a leaf's, an inner label's, or a whole path.
            separator: what stands between two names in a string.
            empty: "all" gives rows without a label every leaf; "refuse" refuses them.

        Examples:
            >>> tree = {"bird": ["gull", "tern"], "fish": ["cod"]}
            >>> CandidateLabels.from_hierarchy(tree, ["bird", "cod", "!gull"]).strings()
            ['gull|tern', 'cod', 'tern|cod']
        """
        marks = hierarchy.read_nodes(tree, labels, separator, "labels", blanks=empty == "all")
        return cls._accept(marks, "labels", empty)

    @classmethod
    def from_label_studio(
        cls,
        export: Any,
        classes: Iterable[Hashable] | None = None,
        *,
        rule: votes.Rule = "union",
        name: str | None = None,
        empty: Empty = "refuse",
    ) -> Self:
        """Candidates from the choices of a Label Studio export (JSON), one row per task.

        Every annotation that was not skipped is one person's answer; several choices in it are all possible.

        Args:
            export: the list of tasks, the export's text, or the path of its file.
            classes: names of all classes in order; by default those seen (see the class).
            rule: how annotations are combined, as in `from_annotators`.
            name: which of the tasks' choices to read (`from_name` in the export), where there are several.
            empty: "all" gives tasks without an annotation every class; "refuse" refuses them.
        """
        tasks = votes.label_studio_tasks(export, "export")
        answers = votes.label_studio_answers(tasks, name, "export")
        return cls._accept(votes.tallied(answers, classes, rule, "export"), "export", empty)

    @classmethod
    def from_any(
        cls,
        y: Any,
        classes: Iterable[Hashable] | None = None,
        *,
        empty: Empty = "refuse",
        parameter: str = "y",
    ) -> Self:
        """Candidate sets from whatever form they come in.

        Two dimensions (array, tensor, sparse, data frame) are read as a matrix. One dimension is read as sets
        where its entries are collections, as strings where some entry is a string with a "|" in it or a "!"
        at its beginning (unless `classes` holds these very strings), and as ordinary labels otherwise.
        `CandidateLabels` stay as they are, or are brought to `classes`.

        Args:
            y: the labels.
            classes: names of all classes in order; by default those seen (see the class).
            empty: "all" gives rows without a label every class; "refuse" refuses them.
            parameter: what errors call y.

        Raises:
            ValueError: besides all that the other constructors refuse, nested lists of 0 and 1: they may be
                a matrix or sets of the labels 0 and 1.
        """
        classes = None if classes is None else class_names(classes)
        if isinstance(y, cls) and classes in (None, y.classes):
            return y
        return cls._accept(_marks_of(y, classes, parameter, blanks=empty == "all"), parameter, empty)

    @property
    def n_classes(self) -> int:
        """Number of classes k."""
        return len(self.classes)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of classes."""
        return len(self), self.n_classes

    @property
    def sizes(self) -> Int[Tensor, "n"]:
        """Number of candidates in each row."""
        return set_sizes(self.mask)

    @property
    def n_full(self) -> int:
        """Number of rows without information: those that hold every class."""
        return int((self.sizes == self.n_classes).sum())

    def __len__(self) -> int:
        return self.mask.shape[0]

    def __iter__(self) -> Iterator[tuple[Hashable, ...]]:
        return iter(self.sets())

    @overload
    def __getitem__(self, key: int) -> tuple[Hashable, ...]: ...

    @overload
    def __getitem__(self, key: slice | Sequence[int] | NDArray[Any] | Tensor) -> Self: ...

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple) and len(key) == 2 and key[1] is Ellipsis:
            key = key[0]  # scikit-learn writes `y[rows, ...]` for the rows of an array
        if isinstance(key, slice):
            key = np.arange(len(self))[key]
        index = key.cpu().numpy() if isinstance(key, Tensor) else np.asarray(key)
        if index.size == 0 and index.dtype.kind == "f":
            index = index.astype(np.int64)  # the empty list
        if index.dtype.kind not in "biu" or index.ndim > 1 or isinstance(key, tuple):
            raise TypeError(
                f"index: {described(key)}; rows are taken by a whole number, a slice, or a list or array of "
                "whole numbers or bools."
            )
        n = len(self)
        if index.dtype.kind == "b" and index.shape != (n,):
            raise IndexError(f"index: {index.size} bools for {n} rows; give one for each row.")
        if index.dtype.kind != "b" and index.size and not (-n <= index.min() and index.max() < n):
            beyond = index.min() if index.min() < -n else index.max()
            raise IndexError(f"index: there is no row {beyond} among {n} rows.")
        if index.ndim == 0:
            row = self.mask[int(index)].tolist()
            return tuple(name for name, candidate in zip(self.classes, row, strict=True) if candidate)
        rows = np.flatnonzero(index) if index.dtype.kind == "b" else index.astype(np.int64)
        return self._inspected(self.mask[torch.from_numpy(rows).to(self.mask.device)], self.classes)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self.to_numpy() if dtype is None else self.to_numpy().astype(dtype, copy=False)

    def __repr__(self) -> str:
        text = f"{plural(len(self), 'row')}, {self.n_classes} classes ({listed(self.classes)})"
        if len(self):
            sizes = self.sizes.double()
            low, high = int(sizes.min()), int(sizes.max())
            spread = f"{low} to {high}" if low < high else f"{low}"
            text += f", {spread} candidate{'s' * (high > 1)} a row, mean {float(sizes.mean()):.4g}"
            text += f", {plural(self.n_full, 'row')} with every class" * (high == self.n_classes)
        return f"{type(self).__name__}({text})"

    def sets(self) -> list[tuple[Hashable, ...]]:
        """The candidates of each row by name, in class order."""
        names = [self.classes[column] for column in self.mask.nonzero()[:, 1].tolist()]
        ends = self.sizes.cumsum(0).tolist()
        return [tuple(names[start:end]) for start, end in zip([0, *ends], ends, strict=False)]

    def strings(self, separator: str = "|") -> list[str]:
        """The candidates of each row in one string that `from_strings` reads back, such as `cat|dog`.

        Names that are not strings are written as `str` writes them.

        Raises:
            ValueError: a class name would be read back as another, or as several.
        """
        written = {name: str(name) for name in self.classes}
        for text, times in Counter(written.values()).items():
            if times > 1 or not text or text != text.strip() or not separator or separator in text:
                raise ValueError(
                    f"separator: with {separator!r} the class {text!r} cannot be read back; it holds the "
                    "separator, begins or ends with space, is empty, or is written like another class. "
                    "Choose another separator, or use sets()."
                )
        return [separator.join(written[name] for name in row) for row in self.sets()]

    def to_numpy(self) -> NDArray[np.bool_]:
        """The mask as a numpy array, copied."""
        return np.array(self.mask.cpu().numpy())

    def decode(self, index: Any) -> NDArray[Any]:
        """Class names for column numbers, as an array of the same shape.

        Names that are all bool, int, float, str or bytes give an array of that dtype, others one of objects.

        Args:
            index: whole numbers from 0 to k - 1, such as predictions.
        """
        numbers = index.cpu().numpy() if isinstance(index, Tensor) else np.asarray(index)
        if numbers.size and numbers.dtype.kind not in "iu":
            raise TypeError(
                f"index: dtype {numbers.dtype}; expected whole numbers. Take the argmax of scores."
            )
        beyond = numbers[(numbers < 0) | (numbers >= self.n_classes)]
        if beyond.size:
            raise ValueError(
                f"index: there is no column {beyond[0]}; the {self.n_classes} classes are numbered from 0 to "
                f"{self.n_classes - 1}."
            )
        names: NDArray[Any] = np.fromiter(self.classes, dtype=object, count=self.n_classes)
        kinds = set(map(type, self.classes))
        if len(kinds) == 1 and kinds <= {bool, int, float, str, bytes}:
            plain = np.array(self.classes)
            # Whole numbers beyond 64 bits and text that ends in NUL do not survive in a plain array.
            names = plain if plain.tolist() == names.tolist() else names
        return names[numbers.astype(np.int64).ravel()].reshape(numbers.shape)

    def equals(self, other: object) -> bool:
        """Whether the other has the same classes in the same order and the same candidates."""
        return (
            isinstance(other, CandidateLabels)
            and self.classes == other.classes
            and torch.equal(self.mask.cpu(), other.mask.cpu())
        )


def _marks_of(y: Any, classes: Iterable[Hashable] | None, parameter: str, **options: bool) -> Marks:
    if isinstance(y, CandidateLabels):
        return parsing.read_sets(y.sets(), y.classes if classes is None else classes, parameter)
    return parsing.read_any(y, classes, parameter, **options)


def _bool_matrix(candidates: object, parameter: str) -> Bool[Tensor, "n k"]:
    if not isinstance(candidates, Tensor):
        raise TypeError(
            f"{parameter}: {described(candidates)}; expected a bool tensor (n, k). Build it with "
            "CandidateLabels.from_any(...).mask."
        )
    if candidates.ndim != 2:
        raise ValueError(
            f"{parameter}: shape {tuple(candidates.shape)}; expected two dimensions (n, k). Build it with "
            "CandidateLabels.from_any(...).mask."
        )
    if candidates.dtype != torch.bool:
        raise TypeError(
            f"{parameter}: dtype {candidates.dtype}; expected torch.bool. Build it with "
            "CandidateLabels.from_matrix(...).mask, which checks that all values are 0 or 1."
        )
    if candidates.shape[1] < 2:
        raise ValueError(
            f"{parameter}: shape {tuple(candidates.shape)}; expected two or more classes. Add a column for "
            "every class, seen or not."
        )
    return candidates


def _inspect_rows(
    mask: Bool[Tensor, "n k"],
    parameter: str,
    *,
    quiet: bool = False,
    meant: Bool[Tensor, "n"] | None = None,
) -> None:
    """Refuse empty rows, count full ones; no warning about those that are `meant` to be full."""
    sizes = set_sizes(mask).cpu().numpy()
    parsing.refuse_empty(sizes == 0, parameter)
    full = sizes == mask.shape[1]
    if meant is not None:
        full &= ~meant.cpu().numpy()
    if full.any() and not quiet:
        level, frame = 1, sys._getframe()
        while frame.f_back is not None and frame.f_globals.get("__name__") == __name__:
            level, frame = level + 1, frame.f_back
        warnings.warn(
            f"{parameter}: {int(full.sum())} of {plural(len(full), 'row')} with every class (first: "
            f"{full.argmax()}); kept, though they say nothing. Drop them unless that is meant.",
            UninformativeRowsWarning,
            stacklevel=level,
        )

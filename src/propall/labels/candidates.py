"""Candidate sets: a bool mask (n, k) with class names, built from labels in any form."""

import inspect
import warnings
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, overload

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from propall.labels import hierarchy, parsing, predictions, votes
from propall.labels.inputs import (
    Classes,
    category_names,
    class_names,
    column_names,
    describe_type,
    is_frame,
    is_matrix,
    reject_empty,
    reject_rows,
    set_sizes,
)
from propall.labels.parsing import ParsedLabels
from propall.wording import list_names, plural

#: How to treat a row without a label: raise an error, or make every class a candidate.
Empty = Literal["refuse", "all"]
#: With more classes than this, sets are small compared with all classes, and what takes time or memory for
#: every pair of a row and a class visits only candidates or a sample of the rows. Fewer classes keep the
#: last digit of every stored number.
MANY_CLASSES = 256
#: Mean of the squared set sizes, relative to the number of classes, up to which pairs of candidates are few.
MOST_PAIRS = 4


def has_few_candidates(candidates: NDArray[np.bool_]) -> bool:
    """Whether there are many classes, and visiting every pair of candidates of a row takes less time."""
    n_classes = candidates.shape[1]
    return n_classes > MANY_CLASSES and bool((candidates.sum(1) ** 2).mean() <= MOST_PAIRS * n_classes)


class UnknownNamesWarning(UserWarning):
    """Some names in free-text lists match no class."""


class UninformativeRowsWarning(UserWarning):
    """Some rows have every class as a candidate: allowed, but they carry no information.

    Examples:
        >>> import warnings
        >>> import torch
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     check(torch.tensor([[True, True], [True, False]]))
        >>> caught[0].category.__name__
        'UninformativeRowsWarning'
    """


def check(candidates: object, *, quiet: bool = False) -> None:
    """Check that a method can train on a candidate matrix; warn if rows have every class.

    `CandidateLabels` makes the same checks when it is built.

    Args:
        candidates: a bool tensor (n, k) with at least one row, two classes and one True per row.
        quiet: do not warn, for sets that the caller drew or has already warned about.

    Raises:
        TypeError: `candidates` is not a tensor, or its dtype is not bool.
        ValueError: it has another shape, no rows, fewer than two classes, or empty rows.

    Examples:
        >>> import torch
        >>> check(torch.tensor([[True, False], [True, True]]), quiet=True)
        >>> check(torch.tensor([[True, False], [False, False]]))
        Traceback (most recent call last):
            ...
        ValueError: candidates: 1 row is empty (first: 1); ...
    """
    mask = _bool_matrix(candidates, "candidates")
    if len(mask) == 0:
        raise ValueError("candidates: there are no rows; pass at least one.")
    _check_rows(mask, "candidates", quiet=quiet)


@dataclass(frozen=True, eq=False, repr=False)
class CandidateLabels:
    """Candidate labels: a set of classes per instance, one of which is the true one.

    The constructors `from_labels`, `from_sets`, `from_matrix`, `from_strings`, `from_complementary`,
    `from_votes`, `from_annotators`, `from_hierarchy`, `from_label_studio`, `from_scores` and `from_lists`
    read one form of data each; `from_any` recognizes the form. Errors name the first bad row (counted from 0)
    and what to do about it.
    Rows with every class are kept, with one warning unless `empty="all"` produced them.

    Classes are in the order of `classes=` if given, else of a categorical column's categories or a data
    frame's columns, else sorted, else (if they cannot be compared, such as numbers and strings) in order of
    first appearance.

    Labels can be indexed like an array of rows: `labels[3]` is a tuple of class names; a slice, integers or
    bools select the `CandidateLabels` of those rows. scikit-learn's splitters accept them as `y`.

    Attributes:
        mask: (n, k), True for the candidates of each row; do not modify it.
        classes: the name of each column; any hashable values except None and NaN.

    Examples:
        >>> labels = CandidateLabels.from_strings(["cat|dog", "emu"])
        >>> labels
        CandidateLabels(2 rows, 3 classes ('cat', 'dog', 'emu'), 1 to 2 candidates per row, mean 1.5)
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
        _check_rows(mask, "mask")

    @classmethod
    def _unchecked(cls, mask: Bool[Tensor, "n k"], classes: tuple[Hashable, ...]) -> Self:
        # Skips `__post_init__`: rows of accepted labels need no second check and no second warning.
        labels = object.__new__(cls)
        object.__setattr__(labels, "mask", mask)
        object.__setattr__(labels, "classes", classes)
        return labels

    @classmethod
    def _accept(cls, parsed: ParsedLabels, parameter: str, empty: Empty = "refuse") -> Self:
        if empty not in ("refuse", "all"):
            raise ValueError(f"empty: got {empty!r}; expected 'refuse' or 'all'.")
        mask, classes = parsed.candidates(parameter)
        unlabeled = None
        if empty == "all":
            unlabeled = set_sizes(mask).to(mask.device) == 0
            mask = mask | unlabeled[:, None]
        _check_rows(mask, parameter, expected_full=unlabeled)
        return cls._unchecked(mask, classes)

    @classmethod
    def from_labels(cls, y: Any, classes: Classes = None) -> Self:
        """Build from ordinary labels: one candidate per row.

        Args:
            y: one label per row: a list, 1-D array or tensor, or anything with `to_numpy` or `to_list`.
            classes: names of all classes in order; by default those seen (see the class).
        """
        return cls._accept(parsing.read_labels(y, classes, "y"), "y")

    @classmethod
    def from_sets(cls, sets: Any, classes: Classes = None, *, empty: Empty = "refuse") -> Self:
        """Build from one set, list, tuple or array of class names per row.

        Args:
            sets: one collection per row; a label repeated in a row counts once.
            classes: names of all classes in order; by default those seen (see the class).
            empty: "all" gives rows without a label every class; "refuse" raises an error.
        """
        parsed = parsing.read_sets(sets, classes, "sets", allow_blank=empty == "all")
        return cls._accept(parsed, "sets", empty)

    @classmethod
    def from_matrix(cls, matrix: Any, classes: Classes = None) -> Self:
        """Build from a matrix with True or 1 for candidates and False or 0 elsewhere; it is copied.

        Args:
            matrix: (n, k) NumPy array, tensor (the mask stays on its device), SciPy sparse matrix or array,
                nested list, or data frame whose columns are the classes.
            classes: names of the columns; by default those of the data frame, else 0 to k - 1. If they are
                the names of a data frame's columns in another order, its columns are reordered.
        """
        return cls._accept(parsing.read_matrix(matrix, classes, "matrix"), "matrix")

    @classmethod
    def from_strings(
        cls,
        strings: Any,
        separator: str = "|",
        classes: Classes = None,
        *,
        negation: str | None = "!",
        empty: Empty = "refuse",
    ) -> Self:
        """Build from one string per row: `cat|dog`, or `!emu` for every class but one.

        Whitespace around names is ignored. `!cat|!dog` rules out both; a row lists either its candidates or
        the classes ruled out, not both.

        Args:
            strings: one string per row.
            separator: the text between two names.
            classes: names of all classes in order; by default those seen (see the class), ruled out or not.
                Names listed here are taken literally, even if they start with `negation` or contain the
                separator.
            negation: the prefix of names that are ruled out; None if `!` may be part of names.
            empty: "all" gives rows without a label every class; "refuse" raises an error.
        """
        parsed = parsing.read_strings(
            strings, separator, classes, "strings", negation=negation, allow_blank=empty == "all"
        )
        return cls._accept(parsed, "strings", empty)

    @classmethod
    def from_complementary(cls, labels: Any, classes: Classes = None) -> Self:
        """Build from complementary labels: every class except those known to be wrong.

        Args:
            labels: the classes ruled out, in any form `from_any` accepts: one label per row, several, or a
                matrix with 1 for the classes ruled out. An empty set leaves every class.
            classes: names of all classes in order. Required unless a matrix has a column for each or a
                categorical column lists them, since a class that no row rules out is not in the labels.
        """
        has_all_classes = isinstance(labels, CandidateLabels) or is_matrix(labels)
        if classes is None and not has_all_classes and category_names(labels) is None:
            raise ValueError(
                "classes: missing; classes that no row rules out do not appear in labels. Pass the names of "
                "all classes."
            )
        ruled_out, names = _parse(labels, classes, "labels", allow_scalars=True).candidates("labels")
        inverted = ParsedLabels(ruled_out, names, negated=np.ones(len(ruled_out), dtype=bool))
        return cls._accept(inverted, "labels")

    @classmethod
    def from_votes(
        cls, counts: Any, classes: Classes = None, *, rule: votes.Rule = "union", empty: Empty = "refuse"
    ) -> Self:
        """Build from vote counts.

        Args:
            counts: (n, k) integers, in any form `from_matrix` accepts.
            classes: names of the columns, as in `from_matrix`.
            rule: "union" keeps every label with a vote; "plurality" those with the most votes, including
                ties; a number those with at least that many votes, or every label with a vote in rows where
                no label reaches it.
            empty: "all" gives rows without a vote every class; "refuse" raises an error.
        """
        return cls._accept(votes.read_counts(counts, classes, rule, "counts"), "counts", empty)

    @classmethod
    def from_annotators(
        cls,
        answers: Any,
        classes: Classes = None,
        *,
        rule: votes.Rule = "union",
        items: Any = None,
        empty: Empty = "refuse",
    ) -> Self:
        """Build from the answers of several annotators.

        Args:
            answers: a table with one row per instance and one column per annotator (data frame, 2-D array,
                list of rows), or a mapping from annotators to their columns. An entry is a label, a set or
                list of labels, or missing (None, NaN, "") if there is no answer. With `items`, one answer per
                entry.
            classes: names of all classes in order; by default those seen (see the class).
            rule: how votes are combined, as in `from_votes`.
            items: for answers in long form, the instance each belongs to. The rows are then the distinct
                items in order of appearance.
            empty: "all" gives rows without an answer every class; "refuse" raises an error.

        Examples:
            >>> answers = [["cat", "cat", "dog"], ["dog", None, "emu"], ["emu", "emu", "emu"]]
            >>> CandidateLabels.from_annotators(answers, rule="plurality").strings()
            ['cat', 'dog|emu', 'emu']
        """
        parsed = votes.read_answers(answers, classes, rule, "answers", items=items)
        return cls._accept(parsed, "answers", empty)

    @classmethod
    def from_hierarchy(cls, tree: Any, labels: Any, *, separator: str = "|", empty: Empty = "refuse") -> Self:
        """Build from labels of a hierarchy, in which an inner label stands for all leaves below it.

        The classes are the leaves, in the tree's order.

        Args:
            tree: a nested mapping (`{"bird": {"gull": ["herring gull", "mew gull"]}, "fish": None}`), a list
                of edges (parent, child), or a list of paths such as `bird/gull/mew gull`.
            labels: one name, string or collection of names per row. A string may list several names, as in
                `from_strings`. A name is that of a leaf, of an inner label, or a whole path.
            separator: the text between two names in a string.
            empty: "all" gives rows without a label every leaf; "refuse" raises an error.

        Examples:
            >>> tree = {"bird": ["gull", "tern"], "fish": ["cod"]}
            >>> CandidateLabels.from_hierarchy(tree, ["bird", "cod", "!gull"]).strings()
            ['gull|tern', 'cod', 'tern|cod']
        """
        parsed = hierarchy.read_nodes(tree, labels, separator, "labels", allow_blank=empty == "all")
        return cls._accept(parsed, "labels", empty)

    @classmethod
    def from_label_studio(
        cls,
        export: Any,
        classes: Classes = None,
        *,
        rule: votes.Rule = "union",
        name: str | None = None,
        empty: Empty = "refuse",
    ) -> Self:
        """Build from the choices in a Label Studio export (JSON), one row per task.

        Each annotation that was not skipped is one answer; all choices in it are possible.

        Args:
            export: the list of tasks, the export's text, or the path of its file.
            classes: names of all classes in order; by default those seen (see the class).
            rule: how votes are combined, as in `from_votes`.
            name: which choices to read (`from_name` in the export) if the tasks have several.
            empty: "all" gives tasks without an annotation every class; "refuse" raises an error.
        """
        tasks = votes.label_studio_tasks(export, "export")
        answers = votes.label_studio_answers(tasks, name, "export")
        return cls._accept(votes.tally(answers, classes, rule, "export"), "export", empty)

    @classmethod
    def from_scores(
        cls,
        scores: Any,
        classes: Classes = None,
        *,
        top_k: int | None = None,
        mass: float | None = None,
        conformal: predictions.Conformal | None = None,
    ) -> Self:
        """Build from a model's scores: the classes that the model considers possible.

        Args:
            scores: (n, k), in any form `from_matrix` accepts, or (j, n, k) of several models or prompts,
                whose sets are united.
            classes: names of the columns, as in `from_matrix`.
            top_k: keep this many classes with the highest scores.
            mass: keep the most probable classes that together have at least this probability; scores must be
                probabilities.
            conformal: keep classes with scores as high as those of true classes in calibration rows.

        Examples:
            >>> scores = [[0.7, 0.2, 0.1], [0.4, 0.35, 0.25]]
            >>> CandidateLabels.from_scores(scores, ["cat", "dog", "emu"], mass=0.7).strings()
            ['cat', 'cat|dog']
        """
        first = None if is_frame(scores) or hasattr(scores, "tocoo") or not len(scores) else scores[0]
        several = first is not None and (is_frame(first) or np.ndim(first) == 2)
        models = list(scores) if several else [scores]
        rule = {"top_k": top_k, "mass": mass, "conformal": conformal}
        masks = [predictions.select_candidates(part, **rule) for part in models]  # type: ignore[arg-type]
        shapes = {mask.shape for mask in masks}
        if len(shapes) != 1:
            raise ValueError(
                f"scores: models have shapes {sorted(shapes)}; expected one score per row and class of each."
            )
        names = list(models[0].columns) if is_frame(models[0]) else None
        union = torch.from_numpy(np.logical_or.reduce(masks))
        return cls._accept(parsing.name_columns(union, names, classes, "scores"), "scores")

    @classmethod
    def from_lists(cls, lists: Any, classes: Classes, *, empty: Empty = "refuse") -> Self:
        """Build from lists of class names in free text, such as a language model writes.

        Names are matched to classes regardless of case, punctuation and small misspellings; names that match
        no class are ignored, with one warning that lists them.

        Args:
            lists: one text (`cat, dog`), JSON list or list of names per row, or a list of lists, one per
                prompt or model, which are united.
            classes: names of all classes in order.
            empty: "all" gives rows that name no class every class; "refuse" raises an error.

        Examples:
            >>> lists = ["1. Cat, 2. dog", ["EMU"], "a sea-lion or a cat"]
            >>> CandidateLabels.from_lists(lists, ["cat", "dog", "emu", "sea lion"]).strings()
            ['cat|dog', 'emu', 'cat|sea lion']
        """
        if classes is None:
            raise ValueError(
                "classes: missing; free-text names are matched to classes. Pass all their names."
            )
        names = class_names(classes)
        parsed = predictions.parse_lists(list(lists), names)
        if parsed.unknown:
            common = [name for name, _ in parsed.unknown.most_common()]
            warnings.warn(
                f"lists: {plural(sum(parsed.unknown.values()), 'name')} in "
                f"{plural(len(parsed.unknown_rows), 'row')} match no class: {list_names(common)}. They are "
                "ignored.",
                UnknownNamesWarning,
                stacklevel=2,
            )
        if empty == "refuse":
            reject_rows(
                ~parsed.mask.any(1),
                "lists",
                ("names no class", "name no class"),
                'every row needs at least one candidate. Drop them, or pass empty="all" to keep them with '
                "every class as candidate.",
            )
        return cls._accept(ParsedLabels(torch.from_numpy(parsed.mask), names), "lists", empty)

    @classmethod
    def from_any(
        cls, y: Any, classes: Classes = None, *, empty: Empty = "refuse", parameter: str = "y"
    ) -> Self:
        """Build from labels in any form.

        Two dimensions (array, tensor, sparse matrix, data frame) are read as a matrix. One dimension is read
        as sets if its entries are collections, as strings if some entry is a string that contains "|" or
        starts with "!" (and is not itself in `classes`), and as ordinary labels otherwise. `CandidateLabels`
        are returned as they are, or converted to `classes`.

        Args:
            y: the labels.
            classes: names of all classes in order; by default those seen (see the class).
            empty: "all" gives rows without a label every class; "refuse" raises an error.
            parameter: the name of `y` in errors.

        Raises:
            ValueError: in addition to the errors of the other constructors, for nested lists of 0 and 1,
                which could be a matrix or sets of the labels 0 and 1.
        """
        classes = None if classes is None else class_names(classes)
        if isinstance(y, cls) and classes in (None, y.classes):
            return y
        return cls._accept(_parse(y, classes, parameter, allow_blank=empty == "all"), parameter, empty)

    @property
    def n_classes(self) -> int:
        """Number of classes k."""
        return len(self.classes)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and classes."""
        return len(self), self.n_classes

    @property
    def sizes(self) -> Int[Tensor, "n"]:
        """Number of candidates in each row."""
        return set_sizes(self.mask)

    @property
    def n_full(self) -> int:
        """Number of uninformative rows, which have every class."""
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
            key = key[0]  # scikit-learn selects rows with `y[rows, ...]`
        if isinstance(key, slice):
            key = np.arange(len(self))[key]
        index = key.cpu().numpy() if isinstance(key, Tensor) else np.asarray(key)
        if index.size == 0 and index.dtype.kind == "f":
            index = index.astype(np.int64)  # the empty list
        if index.dtype.kind not in "biu" or index.ndim > 1 or isinstance(key, tuple):
            raise TypeError(
                f"index: got {describe_type(key)}; expected an integer, a slice, or a list or array of "
                "integers or bools."
            )
        n = len(self)
        if index.dtype.kind == "b" and index.shape != (n,):
            raise IndexError(f"index: got {index.size} bools for {n} rows; pass one for each row.")
        if index.dtype.kind != "b" and index.size and not (-n <= index.min() and index.max() < n):
            wrong = index.min() if index.min() < -n else index.max()
            raise IndexError(f"index: row {wrong} is out of range for {plural(n, 'row')}.")
        if index.ndim == 0:
            row = self.mask[int(index)].tolist()
            return tuple(name for name, candidate in zip(self.classes, row, strict=True) if candidate)
        rows = np.flatnonzero(index) if index.dtype.kind == "b" else index.astype(np.int64)
        return self._unchecked(self.mask[torch.from_numpy(rows).to(self.mask.device)], self.classes)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self.to_numpy() if dtype is None else self.to_numpy().astype(dtype, copy=False)

    def __repr__(self) -> str:
        text = f"{plural(len(self), 'row')}, {self.n_classes} classes ({list_names(self.classes)})"
        if len(self):
            sizes = self.sizes.double()
            low, high = int(sizes.min()), int(sizes.max())
            spread = f"{low} to {high}" if low < high else f"{low}"
            text += f", {spread} candidate{'s' * (high > 1)} per row, mean {float(sizes.mean()):.4g}"
            text += f", {plural(self.n_full, 'row')} with every class" * (high == self.n_classes)
        return f"{type(self).__name__}({text})"

    def sets(self) -> list[tuple[Hashable, ...]]:
        """Return the names of each row's candidates, in class order."""
        names = [self.classes[column] for column in self.mask.nonzero()[:, 1].tolist()]
        ends = self.sizes.cumsum(0).tolist()
        return [tuple(names[start:end]) for start, end in zip([0, *ends], ends, strict=False)]

    def strings(self, separator: str = "|") -> list[str]:
        """Return each row's candidates as one string, such as `cat|dog`, that `from_strings` can read.

        Names that are not strings are converted with `str`.

        Raises:
            ValueError: a class name would be read back as another name or as several.
        """
        written = {name: str(name) for name in self.classes}
        for text, count in Counter(written.values()).items():
            if count > 1 or not text or text != text.strip() or not separator or separator in text:
                raise ValueError(
                    f"separator: with {separator!r} the class {text!r} cannot be read back; it contains the "
                    "separator, starts or ends with whitespace, is empty, or looks like another class. "
                    "Choose another separator, or use sets()."
                )
        return [separator.join(written[name] for name in row) for row in self.sets()]

    def to_numpy(self) -> NDArray[np.bool_]:
        """Return the mask as a NumPy array (a copy)."""
        return np.array(self.mask.cpu().numpy())

    def decode(self, index: Any) -> NDArray[Any]:
        """Convert class indices to class names, in an array of the same shape.

        The array has the dtype of the names if all are bool, int, float, str or bytes, else dtype object.

        Args:
            index: integers from 0 to k - 1, such as predictions.
        """
        numbers = index.cpu().numpy() if isinstance(index, Tensor) else np.asarray(index)
        if numbers.size and numbers.dtype.kind not in "iu":
            raise TypeError(
                f"index: got dtype {numbers.dtype}; expected integers. Take the argmax of scores first."
            )
        wrong = numbers[(numbers < 0) | (numbers >= self.n_classes)]
        if wrong.size:
            raise ValueError(f"index: {wrong[0]} is out of range; expected 0 to {self.n_classes - 1}.")
        names: NDArray[Any] = np.fromiter(self.classes, dtype=object, count=self.n_classes)
        kinds = set(map(type, self.classes))
        if len(kinds) == 1 and kinds <= {bool, int, float, str, bytes}:
            plain = np.array(self.classes)
            # Integers beyond 64 bits and text ending in NUL do not survive in a plain array.
            names = plain if plain.tolist() == names.tolist() else names
        return names[numbers.astype(np.int64).ravel()].reshape(numbers.shape)

    def equals(self, other: object) -> bool:
        """Whether `other` has the same classes in the same order and the same candidates."""
        return (
            isinstance(other, CandidateLabels)
            and self.classes == other.classes
            and torch.equal(self.mask.cpu(), other.mask.cpu())
        )


def _parse(y: Any, classes: Classes, parameter: str, **options: bool) -> ParsedLabels:
    if isinstance(y, CandidateLabels):
        return parsing.read_sets(y.sets(), y.classes if classes is None else classes, parameter)
    return parsing.read_any(y, classes, parameter, **options)


def _bool_matrix(candidates: object, parameter: str) -> Bool[Tensor, "n k"]:
    if not isinstance(candidates, Tensor) or candidates.dtype != torch.bool:
        kind = f"dtype {candidates.dtype}" if isinstance(candidates, Tensor) else describe_type(candidates)
        raise TypeError(
            f"{parameter}: got {kind}; expected a bool tensor (n, k). Build it with "
            "CandidateLabels.from_any(...).mask."
        )
    if candidates.ndim != 2 or candidates.shape[1] < 2:
        raise ValueError(
            f"{parameter}: got shape {tuple(candidates.shape)}; expected two dimensions (n, k), with one "
            "column per class, seen or not, and at least two."
        )
    return candidates


def _check_rows(
    mask: Bool[Tensor, "n k"],
    parameter: str,
    *,
    quiet: bool = False,
    expected_full: Bool[Tensor, "n"] | None = None,
) -> None:
    """Raise ValueError for empty rows, and warn about full ones unless they are expected."""
    sizes = set_sizes(mask).cpu().numpy()
    reject_empty(sizes == 0, parameter)
    full = sizes == mask.shape[1]
    if expected_full is not None:
        full &= ~expected_full.cpu().numpy()
    if full.any() and not quiet:
        level, frame = 1, inspect.currentframe()
        while frame is not None and frame.f_back is not None and frame.f_globals.get("__name__") == __name__:
            level, frame = level + 1, frame.f_back
        warnings.warn(
            f"{parameter}: {int(full.sum())} of {plural(len(full), 'row')} with every class (first: "
            f"{full.argmax()}); they carry no information. Drop them unless this is intended.",
            UninformativeRowsWarning,
            stacklevel=level,
        )

"""Candidate sets: one bool tensor (n, k), how it is read from data, and how a distribution is read on it."""

import math
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain
from typing import Any, Self, overload

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor


def full_precision(logits: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Half precisions as float32, anything else as it is: losses are always computed in 32 bits or more."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def uniform_weights(
    candidates: Bool[Tensor, "*b k"], dtype: torch.dtype = torch.float32
) -> Float[Tensor, "*b k"]:
    """Equal weight 1/|S| on every candidate, 0 elsewhere."""
    return candidates.to(dtype) / candidates.sum(-1, keepdim=True, dtype=dtype)


def restricted_softmax(
    logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]
) -> Float[Tensor, "*b k"]:
    """Softmax over the candidates alone, exactly 0 elsewhere.

    Notes:
        Public code takes the softmax over all classes and divides by its sum over S, which is 0/0 as soon as
        all candidates lie about 103 logits (float32) below another class. Masking first has no such limit.
    """
    return full_precision(logits).masked_fill(~candidates, -torch.inf).softmax(-1)


def negative_log_mass(logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    r"""Minus the log of the softmax probability of the candidate set, to full relative accuracy.

    .. math:: -\log \sum_{j \in S} p_j = \operatorname{softplus}\bigl(
        \operatorname{LSE}_{j \notin S} r_j - \operatorname{LSE}_{j \in S} r_j\bigr)

    Zero where the set holds every class.
    """
    logits = full_precision(logits)
    full = candidates.all(-1, keepdim=True)
    inside = logits.masked_fill(~candidates, -torch.inf).logsumexp(-1)
    # A full set has nothing outside; any finite input keeps the unused branch's gradient finite.
    outside = logits.masked_fill(candidates & ~full, -torch.inf).logsumexp(-1)
    return torch.where(full.squeeze(-1), 0.0, torch.nn.functional.softplus(outside - inside, threshold=40))


def probabilities_and_complements(
    logits: Float[Tensor, "*b k"],
) -> tuple[Float[Tensor, "*b k"], Float[Tensor, "*b k"]]:
    """Softmax p and 1 - p, the latter without cancellation: for the largest p it is the sum of the others."""
    p = full_precision(logits).softmax(-1)
    top = torch.arange(p.shape[-1], device=p.device) == p.argmax(-1, keepdim=True)
    rest = p.masked_fill(top, 0.0).sum(-1, keepdim=True)
    return p, torch.where(top, rest, 1 - p)


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

    The constructors `from_labels`, `from_sets`, `from_matrix`, `from_strings` and `from_complementary` read
    one form of data each; `from_any` recognises the form. All refuse what cannot be a candidate set and say
    in which row (counted from 0) and what to do; rows that hold every class are kept, with one warning.

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
        object.__setattr__(self, "classes", _column_names(self.classes, mask.shape[1], "mask"))
        _inspect_rows(mask, "mask")

    @classmethod
    def _inspected(cls, mask: Bool[Tensor, "n k"], classes: tuple[Hashable, ...]) -> Self:
        # Past `__post_init__`: some rows of accepted labels need no second look and no second warning.
        labels = object.__new__(cls)
        object.__setattr__(labels, "mask", mask)
        object.__setattr__(labels, "classes", classes)
        return labels

    @classmethod
    def _accept(cls, mask: Bool[Tensor, "n k"], classes: tuple[Hashable, ...], parameter: str) -> Self:
        _inspect_rows(mask, parameter)
        return cls._inspected(mask, classes)

    @classmethod
    def from_labels(cls, y: Any, classes: Iterable[Hashable] | None = None) -> Self:
        """One candidate per row, from ordinary labels.

        Args:
            y: one label per row: list, 1-D array or tensor, or anything with `to_numpy` or `to_list`.
            classes: names of all classes in order; by default those seen (see the class).
        """
        return cls._accept(*_read_labels(y, classes, "y"), "y")

    @classmethod
    def from_sets(cls, sets: Any, classes: Iterable[Hashable] | None = None) -> Self:
        """The candidates of each row as a set, list, tuple or array of class names.

        Args:
            sets: one collection per row; a label named twice in a row counts once.
            classes: names of all classes in order; by default those seen (see the class).
        """
        return cls._accept(*_read_sets(sets, classes, "sets"), "sets")

    @classmethod
    def from_matrix(cls, matrix: Any, classes: Iterable[Hashable] | None = None) -> Self:
        """A matrix with True or 1 on the candidates and False or 0 elsewhere; it is copied.

        Args:
            matrix: (n, k) numpy array, tensor (the mask stays on its device), scipy sparse matrix or array,
                nested list, or data frame whose columns are the classes.
            classes: names of the columns; by default the data frame's own, else 0 to k - 1. Given the names
                of a data frame's columns in another order, the columns are put in that order.
        """
        return cls._accept(*_read_matrix(matrix, classes, "matrix"), "matrix")

    @classmethod
    def from_strings(
        cls, strings: Any, separator: str = "|", classes: Iterable[Hashable] | None = None
    ) -> Self:
        """The candidates of each row in one string, such as `cat|dog`; space around a name is dropped.

        Args:
            strings: one string per row.
            separator: what stands between two names.
            classes: names of all classes in order; by default those seen (see the class).
        """
        return cls._accept(*_read_strings(strings, separator, classes, "strings"), "strings")

    @classmethod
    def from_complementary(cls, labels: Any, classes: Iterable[Hashable] | None = None) -> Self:
        """Every class but those known to be wrong.

        Args:
            labels: what each instance is not, in any form `from_any` takes: one label per row, several, or a
                matrix with 1 on the classes ruled out. An empty set rules out nothing and leaves every class.
            classes: names of all classes in order. Needed unless a matrix has a column for each or a
                categorical column lists them: a class that no row rules out is nowhere in the labels.
        """
        known = isinstance(labels, CandidateLabels) or _is_matrix(labels) or _categories(labels) is not None
        if classes is None and not known:
            raise ValueError(
                "classes: not given; a class that no row rules out is nowhere in labels, so they cannot tell "
                "which classes there are. Pass classes= with the names of all."
            )
        ruled_out, names = _read_any(labels, classes, "labels", scalars_among_sets=True)
        _refuse_rows(
            (_sizes(ruled_out) == len(names)).cpu().numpy(),
            "labels",
            ("rules out every class", "rule out every class"),
            "one class has to remain. Correct these rows or drop them.",
        )
        return cls._accept(~ruled_out, names, "labels")

    @classmethod
    def from_any(cls, y: Any, classes: Iterable[Hashable] | None = None) -> Self:
        """Candidate sets from whatever form they come in.

        Two dimensions (array, tensor, sparse, data frame) are read as a matrix. One dimension is read as sets
        where its entries are collections, as strings where some entry is a string with a "|" in it (unless
        `classes` holds these very strings), and as ordinary labels otherwise. `CandidateLabels` stay as they
        are, or are brought to `classes`.

        Args:
            y: the labels.
            classes: names of all classes in order; by default those seen (see the class).

        Raises:
            ValueError: besides all that the other constructors refuse, nested lists of 0 and 1: they may be
                a matrix or sets of the labels 0 and 1.
        """
        classes = None if classes is None else _class_names(classes)
        if isinstance(y, cls) and classes in (None, y.classes):
            return y
        return cls._accept(*_read_any(y, classes, "y"), "y")

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
        return _sizes(self.mask)

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
                f"index: {_described(key)}; rows are taken by a whole number, a slice, or a list or array of "
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
        text = f"{_counted(len(self))}, {self.n_classes} classes ({_listed(self.classes)})"
        if len(self):
            sizes = self.sizes.double()
            low, high = int(sizes.min()), int(sizes.max())
            spread = f"{low} to {high}" if low < high else f"{low}"
            text += f", {spread} candidate{'s' * (high > 1)} a row, mean {float(sizes.mean()):.4g}"
            text += f", {_counted(self.n_full)} with every class" * (high == self.n_classes)
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


# One reader per form. Each gives the mask, whose rows may still be empty or full, and the class names.


def _read_any(
    y: Any, classes: Iterable[Hashable] | None, parameter: str, *, scalars_among_sets: bool = False
) -> tuple[Bool[Tensor, "n k"], tuple[Hashable, ...]]:
    if isinstance(y, CandidateLabels):
        return _read_sets(y.sets(), y.classes if classes is None else classes, parameter)
    if _is_matrix(y):
        return _read_matrix(y, classes, parameter)
    values = _column(y, parameter)
    kinds = set(map(type, values)) if isinstance(values, list) else set()
    if any(map(_is_collection, kinds)):
        if not any(issubclass(kind, Set) for kind in kinds) and _may_be_matrix(values):
            raise ValueError(
                f"{parameter}: {len(values)} lists of {len(values[0])} numbers, all 0 or 1, may be a matrix "
                "or sets of the labels 0 and 1. Say which: CandidateLabels.from_matrix or from_sets."
            )
        return _read_sets(values, classes, parameter, scalars_allowed=scalars_among_sets)
    classes = None if classes is None else _class_names(classes)
    if any(issubclass(kind, str) for kind in kinds):
        known = frozenset(classes or ())
        if any(isinstance(value, str) and "|" in value and value not in known for value in values):
            return _read_strings(values, "|", classes, parameter)
    return _read_labels(values, _categories(y) if classes is None else classes, parameter)


def _read_labels(
    y: Any, classes: Iterable[Hashable] | None, parameter: str
) -> tuple[Bool[Tensor, "n k"], tuple[Hashable, ...]]:
    values = _column(y, parameter)
    classes = _categories(y) if classes is None else classes
    return _mark(values, np.arange(len(values)), len(values), classes, parameter)


def _read_sets(
    sets: Any, classes: Iterable[Hashable] | None, parameter: str, *, scalars_allowed: bool = False
) -> tuple[Bool[Tensor, "n k"], tuple[Hashable, ...]]:
    values = _column(sets, parameter)
    values = values if isinstance(values, list) else values.tolist()
    kinds = set(map(type, values))
    if not all(map(_is_collection, kinds)):
        alone = np.array([not _is_collection(type(value)) for value in values])
        missing = np.array([_is_missing(value) for value in values])
        _refuse_missing(missing, values[int(missing.argmax())], parameter)
        if not scalars_allowed:
            _refuse_rows(
                alone,
                parameter,
                ("is no collection", "are no collections"),
                "every row is a set or list of labels. Write a single label as [label], and strings such as "
                "cat|dog with CandidateLabels.from_strings.",
                lambda row: repr(_native(values[row])),
                TypeError,
            )
        values = [[value] if single else value for value, single in zip(values, alone, strict=True)]
    sizes = np.fromiter(map(len, values), np.int64, len(values))
    labels = _unboxed(list(chain.from_iterable(values)))
    rows = np.repeat(np.arange(len(values)), sizes)
    unordered = any(issubclass(kind, Set) for kind in kinds)
    return _mark(labels, rows, len(values), classes, parameter, unordered=unordered)


def _read_strings(
    strings: Any, separator: str, classes: Iterable[Hashable] | None, parameter: str
) -> tuple[Bool[Tensor, "n k"], tuple[Hashable, ...]]:
    if not isinstance(separator, str) or not separator:
        raise ValueError(f"separator: {separator!r}; expected what stands between two names, such as '|'.")
    values = _column(strings, parameter)
    if not all(issubclass(kind, str) for kind in set(map(type, values))):
        missing = np.array([_is_missing(value) for value in values])
        _refuse_missing(missing, values[int(missing.argmax())], parameter)
        _refuse_rows(
            np.array([not isinstance(value, str) for value in values]),
            parameter,
            ("is no string", "are no strings"),
            f"every row is a string such as 'cat{separator}dog'. Use CandidateLabels.from_labels or from_sets"
            " for labels of other kinds.",
            lambda row: repr(_native(values[row])),
            TypeError,
        )
    names = [name.strip() for value in values for name in value.split(separator)]
    sizes = np.array([1 + value.count(separator) for value in values], dtype=np.int64)
    rows = np.repeat(np.arange(len(values)), sizes)
    if "" in names:
        blank = np.array([not name for name in names])
        _refuse_rows(
            np.bincount(rows[blank], minlength=len(values)).astype(bool) & (sizes > 1),
            parameter,
            ("has a blank name", "have blank names"),
            f"a name stands on each side of {separator!r}. Take out the separators that are too many.",
            lambda row: repr(values[row]),
        )
        # What is left are strings without any name: empty sets.
        names, rows = [name for name in names if name], rows[~blank]
    return _mark(names, rows, len(values), classes, parameter)


def _read_matrix(
    matrix: Any, classes: Iterable[Hashable] | None, parameter: str
) -> tuple[Bool[Tensor, "n k"], tuple[Hashable, ...]]:
    columns = list(matrix.columns) if _is_frame(matrix) else None
    mask = _binary(matrix.to_numpy() if columns is not None else matrix, parameter)
    k = mask.shape[1]
    if k < 2:
        raise ValueError(
            f"{parameter}: shape {tuple(mask.shape)}; expected a column for each of two or more classes. "
            "Pass ordinary labels in one dimension, such as y.ravel() or frame['name']."
        )
    if classes is None:
        return mask, _column_names(range(k) if columns is None else columns, k, parameter)
    names = _column_names(classes, k, parameter)
    # The columns of a data frame made without names are numbered, and then names apply to them in order.
    if columns is None or (columns == list(range(k)) and set(names) != set(columns)):
        return mask, names
    position = {column: i for i, column in enumerate(_class_names(columns))}
    for name in names:
        if name not in position:
            raise ValueError(
                f"classes: {name!r} is no column of {parameter}, which has {_listed(columns)}. Rename the "
                "columns, or leave classes= out to take their names."
            )
    return mask[:, [position[name] for name in names]], names


def _binary(matrix: Any, parameter: str) -> Bool[Tensor, "n k"]:
    """A bool copy of a matrix of 0 and 1, made without a copy in any other type."""
    if hasattr(matrix, "tocoo"):
        return _binary_sparse(matrix, parameter)
    _refuse_masked(matrix, parameter)
    if isinstance(matrix, list | tuple):
        lengths = np.array([len(row) if hasattr(row, "__len__") else -1 for row in matrix])
        _refuse_rows(
            lengths != lengths[:1],
            parameter,
            ("differs in length from row 0", "differ in length from row 0"),
            "every row has one entry per class. Use CandidateLabels.from_sets where rows list labels.",
        )
    matrix = matrix.detach().to_dense() if isinstance(matrix, Tensor) else np.asarray(matrix)
    if matrix.ndim != 2:
        raise ValueError(
            f"{parameter}: {_described(matrix)}; expected two dimensions (n, k). Give a row per instance, "
            "a column per class, or one label per row to CandidateLabels.from_labels."
        )
    if isinstance(matrix, Tensor):
        return matrix.clone() if matrix.dtype == torch.bool else _ones(matrix, parameter)
    if matrix.dtype.kind not in "biufO":
        raise TypeError(
            f"{parameter}: dtype {matrix.dtype}; expected bools or the numbers 0 and 1. Use "
            "CandidateLabels.from_sets(y.tolist()) where rows list labels."
        )
    if matrix.dtype.kind == "O":  # a data frame with columns of several types, or with missing entries
        _encoded(matrix.ravel().tolist(), np.repeat(np.arange(len(matrix)), matrix.shape[1]), parameter)
    if matrix.dtype.kind == "b":
        return torch.from_numpy(np.array(matrix, order="C"))
    return torch.from_numpy(np.ascontiguousarray(_ones(matrix, parameter)))


def _ones(matrix: Any, parameter: str) -> Any:
    ones, binary = matrix == 1, matrix == 0
    binary |= ones
    if not binary.all():
        _refuse_other_values(~binary, matrix, parameter)
    return ones


def _binary_sparse(matrix: Any, parameter: str) -> Bool[Tensor, "n k"]:
    if matrix.ndim != 2:
        raise ValueError(
            f"{parameter}: {_described(matrix)}; expected two dimensions (n, k). Give a row per instance, "
            "a column per class."
        )
    # By way of coordinates, because only that conversion adds up entries that are stored twice.
    stored = matrix.tocoo().tocsr()
    wrong = stored.copy()
    wrong.data = (stored.data != 0) & (stored.data != 1)
    if wrong.data.any():
        _refuse_other_values(wrong, stored, parameter)
    rows = np.repeat(np.arange(stored.shape[0]), np.diff(stored.indptr))
    mask = np.zeros(stored.shape, dtype=bool)
    mask[rows, stored.indices] = stored.data != 0
    return torch.from_numpy(mask)


def _mark(
    values: list[Any] | NDArray[Any],
    rows: NDArray[np.int64],
    n: int,
    classes: Iterable[Hashable] | None,
    parameter: str,
    *,
    unordered: bool = False,
) -> tuple[Bool[Tensor, "n k"], tuple[Hashable, ...]]:
    """The mask of n rows with True where a value names a class; `rows[i]` is the row of `values[i]`."""
    codes, seen = _encoded(values, rows, parameter)
    names = _class_names(classes) if classes is not None else tuple(_ordered(seen, codes, rows, unordered))
    if len(names) < 2:
        _refuse_empty(np.bincount(rows, minlength=n) == 0, parameter)
        raise ValueError(
            f"{parameter}: {f'only {names[0]!r}' if names else 'no class'} in {_counted(n)}; a classifier "
            "needs two or more classes. Name those not seen with classes=."
        )
    column_of = {name: column for column, name in enumerate(names)}
    columns = np.array([column_of.get(name, -1) for name in seen], dtype=np.int64)[codes]
    outside = columns < 0
    if outside.any():
        label = seen[codes[outside.argmax()]]
        _refuse_rows(
            np.bincount(rows[outside], minlength=n) > 0,
            parameter,
            ("holds a label outside classes", "hold labels outside classes"),
            f"classes are {_listed(names)}{_nearest(label, names)}. Add it to classes= or correct the rows.",
            lambda _: repr(label),
        )
    mask = np.zeros((n, len(names)), dtype=bool)
    mask[rows, columns] = True
    return torch.from_numpy(mask), names


def _encoded(
    values: list[Any] | NDArray[Any], rows: NDArray[np.int64], parameter: str
) -> tuple[NDArray[np.int64], list[Hashable]]:
    """The distinct labels and each value's position among them; missing and infinite ones are refused."""
    if isinstance(values, np.ndarray):
        distinct, codes = np.unique(values, return_inverse=True)
        labels = distinct.tolist() if values.dtype.kind in "biuf" else list(distinct)
    else:
        try:
            labels = list(dict.fromkeys(values))
        except TypeError:
            at = next(i for i, value in enumerate(values) if not _is_hashable(value))
            raise TypeError(
                f"{parameter}: row {rows[at]} has {values[at]!r} for a label; a label is hashable, as a str "
                "is. Use CandidateLabels.from_sets where rows hold several."
            ) from None
        position = {label: i for i, label in enumerate(labels)}
        codes = np.fromiter(map(position.__getitem__, values), np.int64, len(values))
    if set(map(type, labels)) <= {str, int, bool}:  # always usable, and up to a million of them
        return codes, labels
    labels = [_native(label) for label in labels]
    bad = np.array([_is_missing(label) or _is_infinite(label) for label in labels], dtype=bool)
    if bad.any():
        rows_bad = np.zeros(int(rows.max()) + 1, dtype=bool)
        rows_bad[rows[bad[codes]]] = True
        _refuse_missing(rows_bad, labels[codes[bad[codes].argmax()]], parameter)
    return codes, labels


def _ordered(
    labels: list[Hashable], codes: NDArray[np.int64], rows: NDArray[np.int64], unordered: bool
) -> list[Hashable]:
    try:
        return sorted(labels)  # type: ignore[type-var]
    except TypeError:
        if not unordered:
            return labels
    # A set of strings is walked in another order by every Python process, so its row alone counts.
    first_row = np.full(len(labels), len(rows))
    np.minimum.at(first_row, codes, rows)
    key = {
        label: (row, type(label).__name__, repr(label)) for label, row in zip(labels, first_row, strict=True)
    }
    return sorted(labels, key=key.__getitem__)


# What came: recognising, unwrapping, naming.


def _column(y: Any, parameter: str) -> list[Any] | NDArray[Any]:
    """One entry per row: an array of numbers or dates, or a list of anything else."""
    if isinstance(y, str | bytes | Mapping | Set) or not (isinstance(y, Iterable) or hasattr(y, "to_list")):
        raise TypeError(
            f"{parameter}: {_described(y)}; expected one entry per row. Give a list, an array or a column."
        )
    _refuse_masked(y, parameter)
    if isinstance(y, Tensor):
        y = y.detach().cpu()
        y = (y.float() if y.dtype == torch.bfloat16 else y).numpy()
    elif hasattr(y, "to_numpy"):
        y = y.to_numpy()
    elif hasattr(y, "to_list"):
        y = y.to_list()
    if not isinstance(y, np.ndarray):
        return _unboxed(list(y))
    if y.ndim != 1:
        raise ValueError(
            f"{parameter}: {_described(y)}; expected one dimension. Use CandidateLabels.from_matrix for a "
            "matrix of 0 and 1, y.ravel() for a column of labels, from_sets(y.tolist()) for rows of labels."
        )
    return np.asarray(y) if y.dtype.kind in "biufmM" else _unboxed(y.tolist())


def _unboxed(values: list[Any]) -> list[Any]:
    """Arrays, tensors and columns among the values as lists, or as the scalars they hold."""
    boxed = {kind: method for kind in set(map(type, values)) if (method := _unboxing(kind)) is not None}
    return [getattr(v, boxed[type(v)])() if type(v) in boxed else v for v in values] if boxed else values


def _unboxing(kind: type) -> str | None:
    if issubclass(kind, np.generic):
        return None
    return next((method for method in ("tolist", "to_list") if hasattr(kind, method)), None)


def _is_frame(y: Any) -> bool:
    return hasattr(y, "columns") and hasattr(y, "to_numpy")


def _is_matrix(y: Any) -> bool:
    return _is_frame(y) or hasattr(y, "tocoo") or getattr(y, "ndim", 1) > 1


def _is_collection(kind: type) -> bool:
    return issubclass(kind, Set | Sequence) and not issubclass(kind, str | bytes | bytearray)


def _may_be_matrix(rows: Sequence[Any] | NDArray[Any]) -> bool:
    if not all(_is_collection(type(row)) for row in rows) or len(set(map(len, rows))) > 1 or len(rows[0]) < 2:
        return False
    number = int | float | np.number | np.bool_
    return all(isinstance(value, number) and value in (0, 1) for value in chain.from_iterable(rows))


def _categories(y: Any) -> list[Hashable] | None:
    """The names a categorical column comes with, seen or not (pandas categories, polars Enum)."""
    categories = getattr(getattr(y, "dtype", None), "categories", None)
    return None if categories is None or not hasattr(categories, "to_list") else list(categories.to_list())


def _class_names(classes: Any) -> tuple[Hashable, ...]:
    if isinstance(classes, set | frozenset):
        raise TypeError("classes: a set has no order; give a list, such as sorted(classes).")
    if isinstance(classes, str):
        raise TypeError(f"classes: {classes!r} is one name; give a list of all names.")
    if isinstance(classes, int):
        raise TypeError(f"classes: {classes}; expected the names of the classes, such as range({classes}).")
    values = _column(list(classes) if isinstance(classes, Set) else classes, "classes")
    for i, value in enumerate(values):
        if not _is_hashable(value):
            raise TypeError(f"classes: entry {i} is {_described(value)}; names are hashable, such as a str.")
        if _is_missing(value) or _is_infinite(value):
            raise ValueError(f"classes: entry {i} is {value!r}, which names nothing. Leave it out.")
    names = tuple(map(_native, values))
    if len(names) < 2:
        raise ValueError(
            f"classes: {_listed(names) or 'none'}; a classifier needs two or more. Name them all."
        )
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"classes: {_listed(twice)} more than once; name every class once.")
    return names


def _column_names(classes: Any, k: int, parameter: str) -> tuple[Hashable, ...]:
    names = _class_names(classes)
    if len(names) != k:
        raise ValueError(
            f"classes: {len(names)} names for {k} columns of {parameter}; give one for each column."
        )
    return names


def _native(label: Any) -> Hashable:
    """A numpy number or string as Python's own, which prints as it was written."""
    plain = isinstance(label, np.number | np.bool_ | np.str_ | np.bytes_) and not isinstance(
        label, np.timedelta64
    )
    return label.item() if plain else label  # type: ignore[no-any-return]


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _is_missing(value: Any) -> bool:
    # NaN and NaT differ from themselves; pandas' NA refuses to say and is known by its type.
    if value is None or type(value).__name__ == "NAType":
        return True
    return not isinstance(value, Set | Sequence) and bool(value != value)


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float | np.floating) and math.isinf(value)


def _sizes(mask: Bool[Tensor, "n k"]) -> Int[Tensor, "n"]:
    # On the CPU numpy counts bytes about ten times faster than torch sums them.
    if mask.device.type == "cpu":
        return torch.from_numpy(np.count_nonzero(mask.numpy(), axis=1))
    return mask.sum(1)


# What to say.


def _bool_matrix(candidates: object, parameter: str) -> Bool[Tensor, "n k"]:
    if not isinstance(candidates, Tensor):
        raise TypeError(
            f"{parameter}: {_described(candidates)}; expected a bool tensor (n, k). Build it with "
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


def _inspect_rows(mask: Bool[Tensor, "n k"], parameter: str, *, quiet: bool = False) -> None:
    """Refuse empty rows, count full ones."""
    sizes = _sizes(mask).cpu().numpy()
    _refuse_empty(sizes == 0, parameter)
    full = sizes == mask.shape[1]
    if full.any() and not quiet:
        level, frame = 1, sys._getframe()
        while frame.f_back is not None and frame.f_globals.get("__name__") == __name__:
            level, frame = level + 1, frame.f_back
        warnings.warn(
            f"{parameter}: {int(full.sum())} of {_counted(len(full))} with every class (first: "
            f"{full.argmax()}); kept, though they say nothing. Drop them unless that is meant.",
            UninformativeRowsWarning,
            stacklevel=level,
        )


def _refuse_rows(
    bad: NDArray[np.bool_],
    parameter: str,
    wrong: tuple[str, str],
    remedy: str,
    detail: Callable[[int], str] | None = None,
    error: type[Exception] = ValueError,
) -> None:
    """Raise if any row is bad, saying what is wrong with it (in words for one row and for several)."""
    if bad.any():
        count, first = int(bad.sum()), int(bad.argmax())
        shown = f"first: {first}" if detail is None else f"first: {first}, {detail(first)}"
        raise error(f"{parameter}: {_counted(count)} {wrong[count > 1]} ({shown}); {remedy}")


def _refuse_empty(bad: NDArray[np.bool_], parameter: str) -> None:
    remedy = "every instance needs a label. Drop these rows, or give them every class where nothing is known."
    _refuse_rows(bad, parameter, ("is empty", "are empty"), remedy)


def _refuse_missing(bad: NDArray[np.bool_], first: object, parameter: str) -> None:
    remedy = "None, NaN and infinity name no class. Drop these rows, or give them every class as candidates."
    _refuse_rows(
        bad, parameter, ("has no usable label", "have no usable label"), remedy, lambda _: str(first)
    )


def _refuse_masked(values: Any, parameter: str) -> None:
    if np.ma.is_masked(values):
        masked = np.ma.getmaskarray(values)
        rows = np.isin(np.arange(len(masked)), masked.nonzero()[0])
        _refuse_missing(rows, "masked", parameter)


def _refuse_other_values(wrong: Any, matrix: Any, parameter: str) -> None:
    rows, columns = wrong.nonzero(as_tuple=True) if isinstance(wrong, Tensor) else wrong.nonzero()
    bad = np.zeros(matrix.shape[0], dtype=bool)
    bad[np.asarray(rows.cpu() if isinstance(rows, Tensor) else rows)] = True
    row = int(bad.argmax())
    column = int(columns[rows == row].min())
    value = matrix[row, column]
    value = value.item() if hasattr(value, "item") else value
    _refuse_rows(
        bad,
        parameter,
        ("holds values other than 0 and 1", "hold values other than 0 and 1"),
        "1 marks a candidate, 0 any other class. Compare scores with a threshold, such as matrix > 0.5; use "
        "CandidateLabels.from_sets where rows list labels.",
        lambda _: f"{value!r} in column {column}",
    )


def _described(value: Any) -> str:
    shape = getattr(value, "shape", None)
    kind = "None" if value is None else type(value).__name__
    return kind if shape is None else f"{kind} of shape {tuple(shape)}"


def _counted(n: int) -> str:
    return f"{n} row{'s' * (n != 1)}"


def _listed(names: Sequence[Hashable], most: int = 6) -> str:
    shown = [repr(name) for name in names[:most]]
    return ", ".join([*shown, f"... {len(names) - most} more"] if len(names) > most else shown)


def _nearest(label: Hashable, classes: tuple[Hashable, ...]) -> str:
    for name in classes:
        if str(name) == str(label):
            return f" (the label is of type {type(label).__name__}, that class {type(name).__name__})"
    near = get_close_matches(str(label), [name for name in classes if isinstance(name, str)], n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""

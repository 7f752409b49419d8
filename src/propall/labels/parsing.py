"""Labels as people write them, to marks: names, sets, strings, matrices. Every refusal says where and why."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from propall.wording import class_hint, listed, plural

#: What stands before a name that is ruled out.
NEGATION = "!"


class Marks(NamedTuple):
    """What rows name, before it is known whether they say enough.

    Attributes:
        mask: True where a row names a class; rows may be empty or full.
        classes: the name of each column.
        negated: True on rows whose names are ruled out instead of possible.
    """

    mask: Bool[Tensor, "n k"]
    classes: tuple[Hashable, ...]
    negated: NDArray[np.bool_] | None = None

    def candidates(self, parameter: str) -> tuple[Bool[Tensor, "n k"], tuple[Hashable, ...]]:
        """The candidates, negated rows turned around; a row that rules out everything is refused."""
        if len(self.classes) < 2:
            refuse_empty((set_sizes(self.mask) == 0).cpu().numpy(), parameter)
            found = f"only {self.classes[0]!r}" if self.classes else "no class"
            raise ValueError(
                f"{parameter}: {found} in {plural(len(self.mask), 'row')}; a classifier needs two or more "
                "classes. Name those not seen with classes=."
            )
        if self.negated is None or not self.negated.any():
            return self.mask, self.classes
        everything = (set_sizes(self.mask) == len(self.classes)).cpu().numpy()
        refuse_ruled_out(self.negated & everything, parameter)
        turned = torch.from_numpy(self.negated).to(self.mask.device)
        return self.mask ^ turned[:, None], self.classes


# One reader per form. Each gives what the rows name; with `blanks`, a missing entry is an empty row.


def read_any(
    y: Any,
    classes: Iterable[Hashable] | None,
    parameter: str,
    *,
    scalars_among_sets: bool = False,
    blanks: bool = False,
) -> Marks:
    """Reads the form it recognises, see `CandidateLabels.from_any`."""
    if is_matrix(y):
        return read_matrix(y, classes, parameter)
    values = entries(y, parameter)
    kinds = set(map(type, values)) if isinstance(values, list) else set()
    if any(map(is_collection, kinds)):
        if not any(issubclass(kind, Set) for kind in kinds) and _may_be_matrix(values):
            raise ValueError(
                f"{parameter}: {len(values)} lists of {len(values[0])} numbers, all 0 or 1, may be a matrix "
                "or sets of the labels 0 and 1. Say which: CandidateLabels.from_matrix or from_sets."
            )
        return read_sets(values, classes, parameter, scalars_allowed=scalars_among_sets, blanks=blanks)
    classes = None if classes is None else class_names(classes)
    if any(issubclass(kind, str) for kind in kinds):
        known = frozenset(classes or ())
        if any(isinstance(value, str) and _is_written(value) and value not in known for value in values):
            return read_strings(values, "|", classes, parameter, blanks=blanks)
    return read_labels(values, category_names(y) if classes is None else classes, parameter, blanks=blanks)


def with_new_names(
    classes: Sequence[Hashable], y: Any, parameter: str, *, blanks: bool = False
) -> list[Hashable] | None:
    """Some classes and after them the other names in y, as it is read where it may name anything.

    None where y has named columns, which then are its classes; of a bare matrix they are the classes given.
    """
    if is_matrix(y):
        return None if is_frame(y) else list(classes)
    seen = category_names(y) or read_any(y, None, parameter, blanks=blanks).classes
    return list(dict.fromkeys([*classes, *seen]))


def _is_written(text: str) -> bool:
    return "|" in text or text.lstrip().startswith(NEGATION)


def read_labels(y: Any, classes: Iterable[Hashable] | None, parameter: str, *, blanks: bool = False) -> Marks:
    """One label per row."""
    values = entries(y, parameter)
    classes = category_names(y) if classes is None else classes
    rows = np.arange(len(values))
    if blanks:
        present = np.array([not is_blank(value) for value in values], dtype=bool)
        kept = values[present] if isinstance(values, np.ndarray) else [values[i] for i in rows[present]]
        return mark(kept, rows[present], len(values), classes, parameter)
    return mark(values, rows, len(values), classes, parameter)


def read_sets(
    sets: Any,
    classes: Iterable[Hashable] | None,
    parameter: str,
    *,
    scalars_allowed: bool = False,
    blanks: bool = False,
) -> Marks:
    """One collection of labels per row."""
    values = entries(sets, parameter)
    values = values if isinstance(values, list) else values.tolist()
    if blanks:
        values = [() if not is_collection(type(v)) and is_blank(v) else v for v in values]
    kinds = set(map(type, values))
    if not all(map(is_collection, kinds)):
        alone = np.array([not is_collection(type(value)) for value in values])
        missing = np.array([is_missing(value) for value in values])
        refuse_missing(missing, values[int(missing.argmax())], parameter)
        if not scalars_allowed:
            refuse_rows(
                alone,
                parameter,
                ("is no collection", "are no collections"),
                "every row is a set or list of labels. Write a single label as [label], and strings such as "
                "cat|dog with CandidateLabels.from_strings.",
                lambda row: repr(native(values[row])),
                TypeError,
            )
        values = [[value] if single else value for value, single in zip(values, alone, strict=True)]
    sizes = np.fromiter(map(len, values), np.int64, len(values))
    labels = _unboxed(list(chain.from_iterable(values)))
    rows = np.repeat(np.arange(len(values)), sizes)
    unordered = any(issubclass(kind, Set) for kind in kinds)
    return mark(labels, rows, len(values), classes, parameter, unordered=unordered)


def read_strings(
    strings: Any,
    separator: str,
    classes: Iterable[Hashable] | None,
    parameter: str,
    *,
    negation: str | None = NEGATION,
    blanks: bool = False,
) -> Marks:
    """One string per row that names candidates, or with `!` before each name what is ruled out."""
    if not isinstance(separator, str) or not separator:
        raise ValueError(f"separator: {separator!r}; expected what stands between two names, such as '|'.")
    if negation is not None and (not isinstance(negation, str) or not negation or negation in separator):
        raise ValueError(
            f"negation: {negation!r}; expected what stands before a name that is ruled out, such as '!', "
            "other than the separator, or None."
        )
    values = entries(strings, parameter)
    if blanks:
        values = ["" if is_blank(value) else value for value in values]
    if not all(issubclass(kind, str) for kind in set(map(type, values))):
        missing = np.array([is_missing(value) for value in values])
        refuse_missing(missing, values[int(missing.argmax())], parameter)
        refuse_rows(
            np.array([not isinstance(value, str) for value in values]),
            parameter,
            ("is no string", "are no strings"),
            f"every row is a string such as 'cat{separator}dog'. Use CandidateLabels.from_labels or from_sets"
            " for labels of other kinds.",
            lambda row: repr(native(values[row])),
            TypeError,
        )
    names = [name.strip() for value in values for name in value.split(separator)]
    sizes = np.array([1 + value.count(separator) for value in values], dtype=np.int64)
    rows = np.repeat(np.arange(len(values)), sizes)
    classes = None if classes is None else class_names(classes)
    ruled_out = np.zeros(len(names), dtype=bool)
    if negation is not None:
        known = frozenset(classes or ())
        ruled_out = np.array([n.startswith(negation) and n not in known for n in names], dtype=bool)
        if ruled_out.any():
            pairs = zip(names, ruled_out, strict=True)
            names = [name.removeprefix(negation).strip() if out else name for name, out in pairs]
    if "" in names:
        blank = np.array([not name for name in names])
        refuse_rows(
            np.bincount(rows[blank & (ruled_out | (sizes > 1)[rows])], minlength=len(values)).astype(bool),
            parameter,
            ("has a blank name", "have blank names"),
            f"a name stands on each side of {separator!r}. Take out the separators that are too many.",
            lambda row: repr(values[row]),
        )
        # What is left are strings without any name: empty sets.
        names, rows, ruled_out = [name for name in names if name], rows[~blank], ruled_out[~blank]
    negated = np.bincount(rows[ruled_out], minlength=len(values)).astype(bool)
    refuse_rows(
        negated & np.bincount(rows[~ruled_out], minlength=len(values)).astype(bool),
        parameter,
        ("mixes names and negations", "mix names and negations"),
        "a row says what is possible or what is not. Leave out one of the two.",
        lambda row: repr(values[row]),
    )
    return mark(names, rows, len(values), classes, parameter)._replace(negated=negated)


def read_matrix(matrix: Any, classes: Iterable[Hashable] | None, parameter: str) -> Marks:
    """True or 1 on the candidates, a column per class."""
    columns = list(matrix.columns) if is_frame(matrix) else None
    mask = _binary(matrix.to_numpy() if columns is not None else matrix, parameter)
    k = mask.shape[1]
    if k < 2:
        raise ValueError(
            f"{parameter}: shape {tuple(mask.shape)}; expected a column for each of two or more classes. "
            "Pass ordinary labels in one dimension, such as y.ravel() or frame['name']."
        )
    if classes is None:
        return Marks(mask, column_names(range(k) if columns is None else columns, k, parameter))
    names = column_names(classes, k, parameter)
    # The columns of a data frame made without names are numbered, and then names apply to them in order.
    if columns is None or (columns == list(range(k)) and set(names) != set(columns)):
        return Marks(mask, names)
    position = {column: i for i, column in enumerate(class_names(columns))}
    for name in names:
        if name not in position:
            raise ValueError(
                f"classes: {name!r} is no column of {parameter}, which has {listed(columns)}. Rename the "
                "columns, or leave classes= out to take their names."
            )
    return Marks(mask[:, [position[name] for name in names]], names)


def _binary(matrix: Any, parameter: str) -> Bool[Tensor, "n k"]:
    """A bool copy of a matrix of 0 and 1, made without a copy in any other type."""
    if hasattr(matrix, "tocoo"):
        return _binary_sparse(matrix, parameter)
    _refuse_masked(matrix, parameter)
    if isinstance(matrix, list | tuple):
        lengths = np.array([len(row) if hasattr(row, "__len__") else -1 for row in matrix])
        refuse_rows(
            lengths != lengths[:1],
            parameter,
            ("differs in length from row 0", "differ in length from row 0"),
            "every row has one entry per class. Use CandidateLabels.from_sets where rows list labels.",
        )
    matrix = matrix.detach().to_dense() if isinstance(matrix, Tensor) else np.asarray(matrix)
    if matrix.ndim != 2:
        raise ValueError(
            f"{parameter}: {described(matrix)}; expected two dimensions (n, k). Give a row per instance, "
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


def numbers(matrix: Any, parameter: str) -> NDArray[np.float64]:
    """A matrix of numbers from any form a matrix comes in."""
    if is_frame(matrix):
        matrix = matrix.to_numpy()
    if hasattr(matrix, "tocoo"):
        matrix = matrix.tocoo().toarray()
    _refuse_masked(matrix, parameter)
    if isinstance(matrix, Tensor):
        matrix = matrix.detach().to_dense().cpu()
        matrix = (matrix.float() if matrix.dtype == torch.bfloat16 else matrix).numpy()
    try:
        values = np.asarray(matrix, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{parameter}: {error}; expected a number in every entry.") from error
    if values.ndim != 2:
        raise ValueError(f"{parameter}: {described(values)}; expected two dimensions (n, k).")
    return values


def _ones(matrix: Any, parameter: str) -> Any:
    ones, binary = matrix == 1, matrix == 0
    binary |= ones
    if not binary.all():
        _refuse_other_values(~binary, matrix, parameter)
    return ones


def _binary_sparse(matrix: Any, parameter: str) -> Bool[Tensor, "n k"]:
    if matrix.ndim != 2:
        raise ValueError(
            f"{parameter}: {described(matrix)}; expected two dimensions (n, k). Give a row per instance, "
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


def mark(
    values: list[Any] | NDArray[Any],
    rows: NDArray[np.int64],
    n: int,
    classes: Iterable[Hashable] | None,
    parameter: str,
    *,
    unordered: bool = False,
) -> Marks:
    """The mask of n rows with True where a value names a class; `rows[i]` is the row of `values[i]`."""
    codes, seen = _encoded(values, rows, parameter)
    names = class_names(classes) if classes is not None else tuple(_ordered(seen, codes, rows, unordered))
    column_of = {name: column for column, name in enumerate(names)}
    columns = np.array([column_of.get(name, -1) for name in seen], dtype=np.int64)[codes]
    outside = columns < 0
    if outside.any():
        label = seen[codes[outside.argmax()]]
        refuse_rows(
            np.bincount(rows[outside], minlength=n) > 0,
            parameter,
            ("holds a label outside classes", "hold labels outside classes"),
            f"classes are {listed(names)}{class_hint(label, names)}. Add it to classes= or correct the rows.",
            lambda _: repr(label),
        )
    mask = np.zeros((n, len(names)), dtype=bool)
    mask[rows, columns] = True
    return Marks(torch.from_numpy(mask), names)


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
    labels = [native(label) for label in labels]
    bad = np.array([is_missing(label) or _is_infinite(label) for label in labels], dtype=bool)
    if bad.any():
        rows_bad = np.zeros(int(rows.max()) + 1, dtype=bool)
        rows_bad[rows[bad[codes]]] = True
        refuse_missing(rows_bad, labels[codes[bad[codes].argmax()]], parameter)
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


def entries(y: Any, parameter: str) -> list[Any] | NDArray[Any]:
    """One entry per row: an array of numbers or dates, or a list of anything else."""
    if isinstance(y, str | bytes | Mapping | Set) or not (isinstance(y, Iterable) or hasattr(y, "to_list")):
        raise TypeError(
            f"{parameter}: {described(y)}; expected one entry per row. Give a list, an array or a column."
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
            f"{parameter}: {described(y)}; expected one dimension. Use CandidateLabels.from_matrix for a "
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


def is_frame(y: Any) -> bool:
    """Whether it is a data frame: something with named columns."""
    return hasattr(y, "columns") and hasattr(y, "to_numpy")


def is_matrix(y: Any) -> bool:
    """Whether it has two dimensions or more: a data frame, a sparse matrix, an array, a tensor."""
    return is_frame(y) or hasattr(y, "tocoo") or getattr(y, "ndim", 1) > 1


def is_collection(kind: type) -> bool:
    """Whether values of this type hold several labels: sets, lists, tuples; no text."""
    return issubclass(kind, Set | Sequence) and not issubclass(kind, str | bytes | bytearray)


def _may_be_matrix(rows: Sequence[Any] | NDArray[Any]) -> bool:
    if not all(is_collection(type(row)) for row in rows) or len(set(map(len, rows))) > 1 or len(rows[0]) < 2:
        return False
    number = int | float | np.number | np.bool_
    return all(isinstance(value, number) and value in (0, 1) for value in chain.from_iterable(rows))


def category_names(y: Any) -> list[Hashable] | None:
    """The names a categorical column comes with, seen or not (pandas categories, polars Enum)."""
    categories = getattr(getattr(y, "dtype", None), "categories", None)
    return None if categories is None or not hasattr(categories, "to_list") else list(categories.to_list())


def class_names(classes: Any) -> tuple[Hashable, ...]:
    """The names as a tuple; two or more, each once, none missing."""
    if isinstance(classes, set | frozenset):
        raise TypeError("classes: a set has no order; give a list, such as sorted(classes).")
    if isinstance(classes, str):
        raise TypeError(f"classes: {classes!r} is one name; give a list of all names.")
    if isinstance(classes, int):
        raise TypeError(f"classes: {classes}; expected the names of the classes, such as range({classes}).")
    values = entries(list(classes) if isinstance(classes, Set) else classes, "classes")
    for i, value in enumerate(values):
        if not _is_hashable(value):
            raise TypeError(f"classes: entry {i} is {described(value)}; names are hashable, such as a str.")
        if is_missing(value) or _is_infinite(value):
            raise ValueError(f"classes: entry {i} is {value!r}, which names nothing. Leave it out.")
    names = tuple(map(native, values))
    if len(names) < 2:
        raise ValueError(
            f"classes: {listed(names) or 'none'}; a classifier needs two or more. Name them all."
        )
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"classes: {listed(twice)} more than once; name every class once.")
    return names


def column_names(classes: Any, k: int, parameter: str) -> tuple[Hashable, ...]:
    """The names as a tuple, one for each of k columns."""
    names = class_names(classes)
    if len(names) != k:
        raise ValueError(
            f"classes: {len(names)} names for {k} columns of {parameter}; give one for each column."
        )
    return names


def native(label: Any) -> Hashable:
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


def is_missing(value: Any) -> bool:
    """Whether it is None, NaN, NaT or pandas' NA."""
    # NaN and NaT differ from themselves; pandas' NA refuses to say and is known by its type.
    if value is None or type(value).__name__ == "NAType":
        return True
    return not isinstance(value, Set | Sequence) and bool(value != value)


def is_blank(value: Any) -> bool:
    """Whether it says nothing: missing, or text without a sign in it."""
    return not value.strip() if isinstance(value, str) else is_missing(value)


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float | np.floating) and math.isinf(value)


def set_sizes(mask: Bool[Tensor, "n k"]) -> Int[Tensor, "n"]:
    """Number of True in each row."""
    # On the CPU numpy counts bytes about ten times faster than torch sums them.
    if mask.device.type == "cpu":
        return torch.from_numpy(np.count_nonzero(mask.numpy(), axis=1))
    return mask.sum(1)


# What to say.


def refuse_rows(
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
        raise error(f"{parameter}: {plural(count, 'row')} {wrong[count > 1]} ({shown}); {remedy}")


def refuse_empty(bad: NDArray[np.bool_], parameter: str) -> None:
    """Raise if any row is without a candidate."""
    remedy = "every instance needs a label. Drop these rows, or give them every class where nothing is known."
    refuse_rows(bad, parameter, ("is empty", "are empty"), remedy)


def refuse_ruled_out(bad: NDArray[np.bool_], parameter: str) -> None:
    """Raise if any row leaves no class."""
    refuse_rows(
        bad,
        parameter,
        ("rules out every class", "rule out every class"),
        "one class has to remain. Correct these rows or drop them.",
    )


def refuse_missing(bad: NDArray[np.bool_], first: object, parameter: str) -> None:
    """Raise if any row has None, NaN or infinity for a label."""
    remedy = "None, NaN and infinity name no class. Drop these rows, or give them every class as candidates."
    refuse_rows(bad, parameter, ("has no usable label", "have no usable label"), remedy, lambda _: str(first))


def _refuse_masked(values: Any, parameter: str) -> None:
    if np.ma.is_masked(values):
        masked = np.ma.getmaskarray(values)
        rows = np.isin(np.arange(len(masked)), masked.nonzero()[0])
        refuse_missing(rows, "masked", parameter)


def _refuse_other_values(wrong: Any, matrix: Any, parameter: str) -> None:
    rows, columns = wrong.nonzero(as_tuple=True) if isinstance(wrong, Tensor) else wrong.nonzero()
    bad = np.zeros(matrix.shape[0], dtype=bool)
    bad[np.asarray(rows.cpu() if isinstance(rows, Tensor) else rows)] = True
    row = int(bad.argmax())
    column = int(columns[rows == row].min())
    value = matrix[row, column]
    value = value.item() if hasattr(value, "item") else value
    refuse_rows(
        bad,
        parameter,
        ("holds values other than 0 and 1", "hold values other than 0 and 1"),
        "1 marks a candidate, 0 any other class. Compare scores with a threshold, such as matrix > 0.5; use "
        "CandidateLabels.from_sets where rows list labels.",
        lambda _: f"{value!r} in column {column}",
    )


def described(value: Any) -> str:
    """The type of a value, and its shape if it has one."""
    shape = getattr(value, "shape", None)
    kind = "None" if value is None else type(value).__name__
    return kind if shape is None else f"{kind} of shape {tuple(shape)}"

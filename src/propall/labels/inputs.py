"""Input handling for labels and class names, with shared error messages."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from propall.wording import list_names, plural

#: Names of all classes in order; None for those seen in the labels.
Classes: TypeAlias = Iterable[Hashable] | None


def row_entries(y: Any, parameter: str) -> list[Any] | NDArray[Any]:
    """Return one entry per row: an array of numbers or dates, or a list of anything else."""
    if isinstance(y, str | bytes | Mapping | Set) or not (isinstance(y, Iterable) or hasattr(y, "to_list")):
        raise TypeError(
            f"{parameter}: got {describe_type(y)}; expected one entry per row. Pass a list or a column."
        )
    reject_masked(y, parameter)
    if isinstance(y, Tensor):
        y = (y.float() if y.dtype == torch.bfloat16 else y).detach().cpu().numpy()
    elif hasattr(y, "to_numpy"):
        y = y.to_numpy()
    elif hasattr(y, "to_list"):
        y = y.to_list()
    if not isinstance(y, np.ndarray):
        return unbox(list(y))
    if y.ndim != 1:
        raise ValueError(
            f"{parameter}: got {describe_type(y)}; expected one dimension. Use CandidateLabels.from_matrix "
            "for a matrix of 0 and 1, y.ravel() for a column of labels, from_sets(y.tolist()) for label sets."
        )
    return np.asarray(y) if y.dtype.kind in "biufmM" else unbox(y.tolist())


def unbox(values: list[Any]) -> list[Any]:
    """Convert arrays, tensors and columns among the values to lists, or to the scalars they hold."""
    boxed = {kind: method for kind in set(map(type, values)) if (method := _unboxing(kind)) is not None}
    return [getattr(v, boxed[type(v)])() if type(v) in boxed else v for v in values] if boxed else values


def _unboxing(kind: type) -> str | None:
    methods = () if issubclass(kind, np.generic) else ("tolist", "to_list")
    return next((method for method in methods if hasattr(kind, method)), None)


def is_frame(y: Any) -> bool:
    """Whether y is a data frame: an object with named columns."""
    return hasattr(y, "columns") and hasattr(y, "to_numpy")


def is_matrix(y: Any) -> bool:
    """Whether y is a data frame, a sparse matrix, or an array or tensor of at least two dimensions."""
    return is_frame(y) or hasattr(y, "tocoo") or getattr(y, "ndim", 1) > 1


def is_collection(kind: type) -> bool:
    """Whether values of this type hold several labels: sets, lists and tuples, but not text."""
    return issubclass(kind, Set | Sequence) and not issubclass(kind, str | bytes | bytearray)


def category_names(y: Any) -> list[Hashable] | None:
    """Return the categories of a categorical column (pandas categories, polars Enum), seen or not."""
    categories = getattr(getattr(y, "dtype", None), "categories", None)
    return None if categories is None or not hasattr(categories, "to_list") else list(categories.to_list())


def class_names(classes: Any) -> tuple[Hashable, ...]:
    """Check class names: at least two, unique, none missing."""
    if isinstance(classes, set | frozenset):
        raise TypeError("classes: a set has no order; pass a list, such as sorted(classes).")
    if isinstance(classes, str):
        raise TypeError(f"classes: {classes!r} is a single name; pass a list of all names.")
    if isinstance(classes, int):
        raise TypeError(
            f"classes: got {classes}; expected the names of the classes, such as range({classes})."
        )
    values = row_entries(list(classes) if isinstance(classes, Set) else classes, "classes")
    for i, value in enumerate(values):
        if not is_hashable(value):
            raise TypeError(
                f"classes: entry {i} is {describe_type(value)}; names must be hashable, such as str."
            )
        if is_missing(value) or is_infinite(value):
            raise ValueError(f"classes: entry {i} is {value!r}, which is not a name. Remove it.")
    names = tuple(map(to_python, values))
    if len(names) < 2:
        raise ValueError(
            f"classes: got {list_names(names) or 'none'}; a classifier needs at least two. Pass all of them."
        )
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(f"classes: {list_names(repeated)} more than once; names must be unique.")
    return names


def column_names(classes: Any, k: int, parameter: str) -> tuple[Hashable, ...]:
    """Check class names, one for each of k columns."""
    names = class_names(classes)
    if len(names) != k:
        raise ValueError(
            f"classes: got {len(names)} names for {k} columns of {parameter}; pass one for each column."
        )
    return names


def to_python(label: Any) -> Hashable:
    """Convert a NumPy number or string to the built-in type, which prints as it was written."""
    plain = isinstance(label, np.number | np.bool_ | np.str_ | np.bytes_)
    keep = not plain or isinstance(label, np.timedelta64)
    return label if keep else label.item()  # type: ignore[no-any-return]


def is_hashable(value: Any) -> bool:
    """Whether a value can be hashed."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT or pandas' NA."""
    # NaN and NaT differ from themselves; comparing pandas' NA raises, so its type is checked.
    if value is None or type(value).__name__ == "NAType":
        return True
    return not isinstance(value, Set | Sequence) and bool(value != value)


def is_blank(value: Any) -> bool:
    """Whether a value is missing or blank text."""
    return not value.strip() if isinstance(value, str) else is_missing(value)


def is_infinite(value: Any) -> bool:
    """Whether a value is an infinite float."""
    return isinstance(value, float | np.floating) and math.isinf(value)


def set_sizes(mask: Bool[Tensor, "n k"]) -> Int[Tensor, "n"]:
    """Count the True entries of each row."""
    # On the CPU NumPy counts bytes about ten times faster than torch sums them.
    if mask.device.type == "cpu":
        return torch.from_numpy(np.count_nonzero(mask.numpy(), axis=1))
    return mask.sum(1)


def reject_rows(
    bad: ArrayLike,
    parameter: str,
    problem: tuple[str, str],
    remedy: str,
    detail: Callable[[int], str] | None = None,
    error: type[Exception] = ValueError,
) -> None:
    """Raise an error that counts the bad rows, if there are any, and describes the first in `detail`.

    `problem` says what is wrong, for one row and for several; `remedy` what was expected and what to do.
    """
    bad_rows = np.flatnonzero(bad)
    if len(bad_rows):
        count, first = len(bad_rows), int(bad_rows[0])
        shown = f"first: {first}" if detail is None else f"first: {first}, {detail(first)}"
        raise error(f"{parameter}: {plural(count, 'row')} {problem[count > 1]} ({shown}); {remedy}")


def reject_empty(bad: ArrayLike, parameter: str) -> None:
    """Raise an error if any row has no candidate."""
    remedy = (
        "every row needs at least one candidate. Drop them, or keep them with every class as candidate: "
        'CandidateLabels.from_any(..., empty="all").'
    )
    reject_rows(bad, parameter, ("is empty", "are empty"), remedy)


def reject_missing(bad: ArrayLike, parameter: str, detail: Callable[[int], str]) -> None:
    """Raise an error if the label of any row is None, NaN or infinite."""
    remedy = (
        "None, NaN and infinity are not labels. Drop them, or keep them with every class as candidate: "
        'CandidateLabels.from_any(..., empty="all").'
    )
    reject_rows(bad, parameter, ("has no usable label", "have no usable label"), remedy, detail)


def reject_other_types(
    values: list[Any] | NDArray[Any],
    is_valid: Callable[[type], bool],
    parameter: str,
    problem: tuple[str, str],
    remedy: str,
) -> None:
    """Raise an error if any value is missing or of a type that is not valid."""
    if not all(map(is_valid, set(map(type, values)))):
        reject_missing(list(map(is_missing, values)), parameter, lambda row: str(values[row]))
        invalid = [not is_valid(type(value)) for value in values]
        reject_rows(invalid, parameter, problem, remedy, lambda row: repr(to_python(values[row])), TypeError)


def reject_masked(values: Any, parameter: str) -> None:
    """Raise an error if any entry of a NumPy masked array is masked."""
    if np.ma.is_masked(values):
        masked = np.ma.getmaskarray(values)
        reject_missing(masked.reshape(len(masked), -1).any(1), parameter, lambda _: "masked")


def describe_type(value: Any) -> str:
    """Return the type of a value, with its shape if it has one."""
    shape = getattr(value, "shape", None)
    kind = "None" if value is None else type(value).__name__
    return kind if shape is None else f"{kind} of shape {tuple(shape)}"

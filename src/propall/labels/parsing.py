"""Parse labels in any form (names, sets, strings, negations, matrices) into a mask of classes."""

import functools
import json
import unicodedata
from collections.abc import Hashable, Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool
from numpy.typing import NDArray
from torch import Tensor

from propall.labels.inputs import (
    Classes,
    category_names,
    class_names,
    column_names,
    describe_type,
    is_blank,
    is_collection,
    is_frame,
    is_hashable,
    is_infinite,
    is_matrix,
    is_missing,
    reject_empty,
    reject_masked,
    reject_missing,
    reject_other_types,
    reject_rows,
    row_entries,
    set_sizes,
    to_python,
    unbox,
)
from propall.wording import class_hint, list_names, plural

#: Prefix of a name that is ruled out.
NEGATION = "!"


class ParsedLabels(NamedTuple):
    """The classes each row names, before checking that the rows can be used."""

    mask: Bool[Tensor, "n k"]  # True where a row names a class; rows may be empty or full
    classes: tuple[Hashable, ...]
    negated: NDArray[np.bool_] | None = None  # True for rows whose classes are ruled out

    def candidates(self, parameter: str) -> tuple[Bool[Tensor, "n k"], tuple[Hashable, ...]]:
        """Return the candidate mask, with negated rows inverted, and the classes."""
        if len(self.classes) < 2:
            reject_empty((set_sizes(self.mask) == 0).cpu().numpy(), parameter)
            seen = f"only {self.classes[0]!r}" if self.classes else "no class"
            raise ValueError(
                f"{parameter}: {seen} in {plural(len(self.mask), 'row')}; a classifier needs at least two "
                "classes. Pass all of them as classes=."
            )
        if self.negated is None or not self.negated.any():
            return self.mask, self.classes
        full = (set_sizes(self.mask) == len(self.classes)).cpu().numpy()
        reject_rows(
            self.negated & full,
            parameter,
            ("rules out every class", "rule out every class"),
            "at least one class must remain. Correct or drop them.",
        )
        inverted = torch.from_numpy(self.negated).to(self.mask.device)
        return self.mask ^ inverted[:, None], self.classes


# The grammar of a label cell: `cat`, `cat|dog`, `!cat|!dog`, `["cat", "dog"]`, or blank.


class LabelCell(NamedTuple):
    """A parsed label cell."""

    names: tuple[str, ...] = ()  # distinct, without negation signs
    negated: bool = False  # the names are ruled out rather than possible
    mixed: bool = False  # some names are ruled out and others are not
    stray: bool = False  # a separator has nothing on one of its sides
    nameless: bool = False  # a negation sign has no name after it


@dataclass(frozen=True)
class CellGrammar:
    """How label cells are written."""

    separator: str = "|"
    negation: str | None = NEGATION  # the prefix of names that are ruled out
    known: frozenset[Hashable] = frozenset()  # names taken literally, even with a separator or negation sign
    json_lists: bool = False  # whether a cell may also be a JSON list
    blanks: frozenset[str] = frozenset()  # words (in lower case) that mean there is no label

    def parse(self, text: str) -> LabelCell:
        """Parse one cell."""
        text = text.strip()
        if text in self.known:
            return LabelCell((text,))
        if not text or text.lower() in self.blanks:
            return LabelCell()
        parts = _json_list(text) if self.json_lists else None
        if parts is None:
            parts = [part.strip() for part in text.split(self.separator)]
        names = list(filter(None, dict.fromkeys(parts)))
        stray = "" in parts
        sign = self.negation
        ruled_out = {name for name in names if sign and name.startswith(sign) and name not in self.known}
        if sign is None or not ruled_out:
            return LabelCell(tuple(names), stray=stray)
        bare = dict.fromkeys(name.removeprefix(sign).strip() if name in ruled_out else name for name in names)
        mixed = len(ruled_out) < len(names)
        return LabelCell(tuple(bare), negated=not mixed, mixed=mixed, stray=stray, nameless="" in bare)

    def parse_all(self, texts: Iterable[str]) -> list[LabelCell]:
        """Parse many cells, each distinct text once."""
        parse = functools.cache(self.parse)
        return [parse(text) for text in texts]

    def is_compound(self, text: str) -> bool:
        """Whether a text lists several names or rules some out, and is not itself a known name."""
        negated = self.negation is not None and text.lstrip().startswith(self.negation)
        return (negated or self.separator in text) and text not in self.known


def _json_list(text: str) -> list[str] | None:
    if not (text.startswith("[") and text.endswith("]")):
        return None
    try:
        return [as_text(part) for part in json.loads(text)]
    except (ValueError, RecursionError):  # not JSON, a number of too many digits, or nested too deeply
        return None


def as_text(value: Any) -> str:
    """Return a value as a text file would hold it: stripped, lists as JSON, missing values as ''."""
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


def as_texts(values: Iterable[Any]) -> list[str]:
    """`as_text` of many values; equal lists of names, as a Parquet file has them, are converted once."""
    known: dict[tuple[Any, ...], str] = {}

    def convert(value: Any) -> str:
        if not isinstance(value, np.ndarray) or value.dtype != object:
            return as_text(value)
        names = tuple(value)
        if not all(type(name) is str for name in names):
            return as_text(value)
        text = known.get(names)
        if text is None:
            text = known[names] = as_text(value)
        return text

    return [convert(value) for value in values]


def visible_text(text: str) -> str:
    """Return text in composed form (NFC), without invisible characters.

    Zero-width spaces, byte order marks, soft hyphens and marks of the writing direction are removed: with
    them, two labels that look the same would be two classes. Joiners, which change how a word of some scripts
    looks, are kept.

    Examples:
        >>> visible_text("cafe\u0301\u200b") == "caf\u00e9"
        True
    """
    if text.isascii():
        return text
    # Removed first: an invisible character may stand between a letter and its accent.
    visible = "".join(sign for sign in text if not _is_invisible(sign))
    return unicodedata.normalize("NFC", visible).strip()


def _is_invisible(sign: str) -> bool:
    # U+200C and U+200D are joiners; above the first plane, format characters are parts of flags.
    return unicodedata.category(sign) == "Cf" and sign not in "\u200c\u200d" and sign <= "\uffff"


# One reader per form. With `allow_blank`, a missing entry gives an empty row.


def read_any(
    y: Any, classes: Classes, parameter: str, *, allow_scalars: bool = False, allow_blank: bool = False
) -> ParsedLabels:
    """Recognize the form and read it, see `CandidateLabels.from_any`."""
    if is_matrix(y):
        return read_matrix(y, classes, parameter)
    values = row_entries(y, parameter)
    kinds = set(map(type, values)) if isinstance(values, list) else set()
    if any(map(is_collection, kinds)):
        if not any(issubclass(kind, Set) for kind in kinds) and _may_be_matrix(values):
            raise ValueError(
                f"{parameter}: {len(values)} lists of {len(values[0])} numbers, all 0 or 1, could be a "
                "matrix or sets of the labels 0 and 1. Use CandidateLabels.from_matrix or from_sets."
            )
        return read_sets(values, classes, parameter, allow_scalars=allow_scalars, allow_blank=allow_blank)
    classes = None if classes is None else class_names(classes)
    if any(issubclass(kind, str) for kind in kinds):
        grammar = CellGrammar(known=frozenset(classes or ()))
        if any(isinstance(value, str) and grammar.is_compound(value) for value in values):
            return read_strings(values, "|", classes, parameter, allow_blank=allow_blank)
    classes = category_names(y) if classes is None else classes
    return read_labels(values, classes, parameter, allow_blank=allow_blank)


def _may_be_matrix(rows: Sequence[Any] | NDArray[Any]) -> bool:
    if not all(is_collection(type(row)) for row in rows) or len(set(map(len, rows))) > 1 or len(rows[0]) < 2:
        return False
    number = int | float | np.number | np.bool_
    return all(isinstance(value, number) and value in (0, 1) for value in chain.from_iterable(rows))


def extend_classes(
    classes: Sequence[Hashable], y: Any, parameter: str, *, allow_blank: bool = False
) -> list[Hashable] | None:
    """Append to `classes` the other names in y; None if y has named columns, which then are its classes."""
    if is_matrix(y):
        return None if is_frame(y) else list(classes)
    seen = category_names(y) or read_any(y, None, parameter, allow_blank=allow_blank).classes
    return list(dict.fromkeys([*classes, *seen]))


def read_labels(y: Any, classes: Classes, parameter: str, *, allow_blank: bool = False) -> ParsedLabels:
    """Read one label per row."""
    values = row_entries(y, parameter)
    classes = category_names(y) if classes is None else classes
    n, rows = len(values), np.arange(len(values))
    if allow_blank:
        rows = np.array([row for row in rows if not is_blank(values[row])], dtype=np.int64)
        values = [values[row] for row in rows]
    return build_mask(values, rows, n, classes, parameter)


def read_sets(
    sets: Any, classes: Classes, parameter: str, *, allow_scalars: bool = False, allow_blank: bool = False
) -> ParsedLabels:
    """Read one collection of labels per row."""
    values = list(row_entries(sets, parameter))
    if allow_blank:
        values = [() if not is_collection(type(v)) and is_blank(v) else v for v in values]
    if allow_scalars:
        reject_missing(list(map(is_missing, values)), parameter, lambda row: str(values[row]))
        values = [value if is_collection(type(value)) else [value] for value in values]
    reject_other_types(
        values,
        is_collection,
        parameter,
        ("is not a collection", "are not collections"),
        "every row must be a set or list of labels. Write a single label as [label]; read strings such as "
        "cat|dog with CandidateLabels.from_strings.",
    )
    labels = unbox(list(chain.from_iterable(values)))
    rows = np.repeat(np.arange(len(values)), np.fromiter(map(len, values), np.int64, len(values)))
    unordered = any(issubclass(kind, Set) for kind in set(map(type, values)))
    return build_mask(labels, rows, len(values), classes, parameter, unordered=unordered)


def read_strings(
    strings: Any,
    separator: str,
    classes: Classes,
    parameter: str,
    *,
    negation: str | None = NEGATION,
    allow_blank: bool = False,
) -> ParsedLabels:
    """Read one string per row that names its candidates or, negated, the classes ruled out."""
    if not isinstance(separator, str) or not separator:
        raise ValueError(f"separator: got {separator!r}; expected the text between two names, such as '|'.")
    if negation is not None and (not isinstance(negation, str) or not negation or negation in separator):
        raise ValueError(
            f"negation: got {negation!r}; expected the prefix of names that are ruled out, such as '!' (not "
            "part of the separator), or None."
        )
    values = row_entries(strings, parameter)
    if allow_blank:
        values = ["" if is_blank(value) else value for value in values]
    reject_other_types(
        values,
        lambda kind: issubclass(kind, str),
        parameter,
        ("is not a string", "are not strings"),
        f"every row must be a string such as 'cat{separator}dog'. Use CandidateLabels.from_labels or "
        "from_sets for other labels.",
    )
    classes = None if classes is None else class_names(classes)
    cells = CellGrammar(separator, negation, frozenset(classes or ())).parse_all(values)
    reject_rows(
        [cell.stray or cell.nameless for cell in cells],
        parameter,
        ("has a blank name", "have blank names"),
        f"a name must stand on each side of {separator!r}. Remove extra separators.",
        lambda row: repr(values[row]),
    )
    reject_rows(
        [cell.mixed for cell in cells],
        parameter,
        ("mixes names and negations", "mix names and negations"),
        "a row lists either the candidates or the classes ruled out. Remove one of the two.",
        lambda row: repr(values[row]),
    )
    names = list(chain.from_iterable(cell.names for cell in cells))
    rows = np.repeat(np.arange(len(cells)), [len(cell.names) for cell in cells])
    negated = np.array([cell.negated for cell in cells], dtype=bool)
    return build_mask(names, rows, len(cells), classes, parameter)._replace(negated=negated)


def read_matrix(matrix: Any, classes: Classes, parameter: str) -> ParsedLabels:
    """Read a matrix with True or 1 for candidates and one column per class."""
    mask = _binary(matrix.to_numpy() if is_frame(matrix) else matrix, parameter)
    return name_columns(mask, list(matrix.columns) if is_frame(matrix) else None, classes, parameter)


def name_columns(
    mask: Bool[Tensor, "n k"], columns: list[Hashable] | None, classes: Classes, parameter: str
) -> ParsedLabels:
    """Name the columns of a mask after `classes`, which may reorder a data frame's columns."""
    k = mask.shape[1]
    if k < 2:
        raise ValueError(
            f"{parameter}: got shape {tuple(mask.shape)}; expected one column per class, at least two. "
            "Pass ordinary labels in one dimension, such as y.ravel() or frame['name']."
        )
    if classes is None:
        return ParsedLabels(mask, column_names(range(k) if columns is None else columns, k, parameter))
    names = column_names(classes, k, parameter)
    # A data frame built without column names has numbered columns; the class names then apply in order.
    if columns is None or (columns == list(range(k)) and set(names) != set(columns)):
        return ParsedLabels(mask, names)
    position = {column: i for i, column in enumerate(class_names(columns))}
    for name in names:
        if name not in position:
            raise ValueError(
                f"classes: {parameter} has no column {name!r}; it has {list_names(columns)}. Rename the "
                "columns, or omit classes= to use their names."
            )
    return ParsedLabels(mask[:, [position[name] for name in names]], names)


def _binary(matrix: Any, parameter: str) -> Bool[Tensor, "n k"]:
    """Return a bool copy of a matrix of 0 and 1, without copying it in any other dtype."""
    is_sparse = hasattr(matrix, "tocoo")
    reject_masked(matrix, parameter)
    if isinstance(matrix, list | tuple):
        lengths = np.array([len(row) if hasattr(row, "__len__") else -1 for row in matrix])
        reject_rows(
            lengths != lengths[:1],
            parameter,
            ("differs in length from row 0", "differ in length from row 0"),
            "every row needs one entry per class. Use CandidateLabels.from_sets if rows list labels.",
        )
    if isinstance(matrix, Tensor):
        matrix = matrix.detach().to_dense()
    elif not is_sparse:
        matrix = np.asarray(matrix)
    if matrix.ndim != 2:
        raise ValueError(
            f"{parameter}: got {describe_type(matrix)}; expected two dimensions (n, k): one row per instance "
            "and one column per class. Use CandidateLabels.from_labels for one label per row."
        )
    if is_sparse:
        # Only the conversion from COO sums duplicate entries; the conversion back sorts them by row.
        entries = matrix.tocoo().tocsr().tocoo()
        mask = np.zeros(matrix.shape, dtype=bool)
        mask[entries.row, entries.col] = _equals_one(entries.data, parameter, entries)
        return torch.from_numpy(mask)
    if isinstance(matrix, Tensor):
        return matrix.clone() if matrix.dtype == torch.bool else _equals_one(matrix, parameter)
    if matrix.dtype.kind not in "biufO":
        raise TypeError(
            f"{parameter}: got dtype {matrix.dtype}; expected bools or the numbers 0 and 1. Use "
            "CandidateLabels.from_sets(y.tolist()) if rows list labels."
        )
    if matrix.dtype.kind == "O":  # a data frame with columns of several dtypes, or with missing entries
        _encode(matrix.ravel().tolist(), np.repeat(np.arange(len(matrix)), matrix.shape[1]), parameter)
    if matrix.dtype.kind == "b":
        return torch.from_numpy(np.array(matrix, order="C"))
    return torch.from_numpy(np.ascontiguousarray(_equals_one(matrix, parameter)))


def to_float_matrix(matrix: Any, parameter: str) -> NDArray[np.float64]:
    """Convert a data frame, sparse matrix, tensor, array or nested list to a float64 matrix."""
    if is_frame(matrix):
        matrix = matrix.to_numpy()
    if hasattr(matrix, "tocoo"):
        matrix = matrix.tocoo().toarray()
    reject_masked(matrix, parameter)
    if isinstance(matrix, Tensor):
        matrix = matrix.detach().to_dense().to("cpu", torch.float64)
    try:
        values = np.asarray(matrix, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{parameter}: {error}; expected a number in every entry.") from error
    if values.ndim != 2:
        raise ValueError(f"{parameter}: got {describe_type(values)}; expected two dimensions (n, k).")
    return values


def _equals_one(values: Any, parameter: str, entries: Any = None) -> Any:
    """Return where the values of a matrix, or of sparse `entries`, equal 1; all others must equal 0."""
    ones, binary = values == 1, values == 0
    binary |= ones
    if not binary.all():
        wrong = np.asarray((~binary).cpu() if isinstance(binary, Tensor) else ~binary)
        rows, columns = wrong.nonzero() if entries is None else (entries.row[wrong], entries.col[wrong])
        value = values[~binary][0]
        value = value.item() if hasattr(value, "item") else value
        reject_rows(
            np.bincount(rows),
            parameter,
            ("has values other than 0 and 1", "have values other than 0 and 1"),
            "1 marks a candidate, 0 any other class. Threshold scores first, such as matrix > 0.5; use "
            "CandidateLabels.from_sets if rows list labels.",
            lambda _: f"{value!r} in column {columns[0]}",
        )
    return ones


def build_mask(
    labels: list[Any] | NDArray[Any],
    rows: NDArray[np.int64],
    n: int,
    classes: Classes,
    parameter: str,
    *,
    unordered: bool = False,
) -> ParsedLabels:
    """Build the mask of n rows in which row `rows[i]` names `labels[i]`.

    Classes are those seen by default. `unordered`: the labels of a row come in no particular order.
    """
    codes, seen = _encode(labels, rows, parameter)
    names = class_names(classes) if classes is not None else tuple(_sorted(seen, codes, rows, unordered))
    column_of = {name: column for column, name in enumerate(names)}
    columns = np.array([column_of.get(name, -1) for name in seen], dtype=np.int64)[codes]
    outside = columns < 0
    if outside.any():
        label = seen[codes[outside.argmax()]]
        reject_rows(
            np.bincount(rows[outside]),
            parameter,
            ("has a label outside classes", "have labels outside classes"),
            f"classes are {list_names(names)}{class_hint(label, names)}. Add it to classes= or fix the rows.",
            lambda _: repr(label),
        )
    mask = np.zeros((n, len(names)), dtype=bool)
    mask[rows, columns] = True
    return ParsedLabels(torch.from_numpy(mask), names)


def _encode(
    values: list[Any] | NDArray[Any], rows: NDArray[np.int64], parameter: str
) -> tuple[NDArray[np.int64], list[Hashable]]:
    """Return each value's index among the distinct labels, and the distinct labels; reject missing ones."""
    if isinstance(values, np.ndarray):
        distinct, codes = np.unique(values, return_inverse=True)
        labels = distinct.tolist() if values.dtype.kind in "biuf" else list(distinct)
    else:
        try:
            labels = list(dict.fromkeys(values))
        except TypeError:
            at = next(i for i, value in enumerate(values) if not is_hashable(value))
            raise TypeError(
                f"{parameter}: row {rows[at]} has the label {values[at]!r}; labels must be hashable, such as "
                "str. Use CandidateLabels.from_sets if rows have several labels."
            ) from None
        position = {label: i for i, label in enumerate(labels)}
        codes = np.fromiter(map(position.__getitem__, values), np.int64, len(values))
    if set(map(type, labels)) <= {str, int, bool}:  # never missing: skips up to a million checks
        return codes, labels
    labels = [to_python(label) for label in labels]
    bad = np.array([is_missing(label) or is_infinite(label) for label in labels], dtype=bool)
    if bad.any():
        first = labels[codes[bad[codes].argmax()]]
        reject_missing(np.bincount(rows[bad[codes]]), parameter, lambda _: str(first))
    return codes, labels


def _sorted(
    labels: list[Hashable], codes: NDArray[np.int64], rows: NDArray[np.int64], unordered: bool
) -> list[Hashable]:
    try:
        return sorted(labels)  # type: ignore[type-var]
    except TypeError:
        if not unordered:
            return labels
    # The iteration order of a set differs between Python processes, so only the row counts.
    first_row = np.full(len(labels), len(rows))
    np.minimum.at(first_row, codes, rows)
    row_of = dict(zip(labels, first_row, strict=True))
    return sorted(labels, key=lambda label: (row_of[label], type(label).__name__, repr(label)))

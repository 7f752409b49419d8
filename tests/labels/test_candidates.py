"""Candidate sets from labels in every form, and every error."""

import copy
import doctest
import enum
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

from propall.labels import CandidateLabels, UninformativeRowsWarning, check
from propall.labels import candidates as labels_module

CLASSES = ("cat", "dog", "emu")
SETS = [{"cat", "dog"}, {"emu"}, {"dog", "emu"}]
MASK = [[True, True, False], [False, False, True], [False, True, True]]
LABELS = CandidateLabels(torch.tensor(MASK), CLASSES)
NUMBERS = np.array(MASK, dtype=np.int64)


class PolarsLike:
    """A column with only those methods of a polars Series that readers may use."""

    def __init__(self, values: list[Any], categories: list[Any] | None = None) -> None:
        self.values = values
        self.dtype = enum_dtype(categories) if categories else object()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def to_list(self) -> list[Any]:
        return self.values


class PolarsLikeFrame:
    """A frame whose `columns` is a plain list and whose cells are one NumPy array."""

    def __init__(self, columns: dict[str, list[int]]) -> None:
        self.columns = list(columns)
        self.values = np.array(list(columns.values())).T

    def to_numpy(self) -> np.ndarray:
        return self.values


def enum_dtype(categories: list[Any]) -> Any:
    class Enum:
        pass

    dtype = Enum()
    dtype.categories = PolarsLike(categories)
    return dtype


def object_array(values: list[Any]) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        array[i] = value
    return array


# Forms


SAME_LABELS = {
    "sets": SETS,
    "tuple of sets": tuple(SETS),
    "frozensets": [frozenset(s) for s in SETS],
    "lists": [["dog", "cat"], ["emu"], ["dog", "emu", "dog"]],
    "tuples": [("cat", "dog"), ("emu",), ("emu", "dog")],
    "arrays": [np.array(sorted(s)) for s in SETS],
    "object array of sets": object_array(SETS),
    "object array of lists": object_array([sorted(s) for s in SETS]),
    "pandas column of sets": pd.Series(SETS),
    "pandas column of arrays": pd.Series([np.array(sorted(s)) for s in SETS]),
    "polars-like column of lists": PolarsLike([sorted(s) for s in SETS]),
    "polars-like column of columns": PolarsLike([PolarsLike(sorted(s)) for s in SETS]),
    "generator": (s for s in SETS),
    "strings": ["cat|dog", "emu", "dog|emu"],
    "strings with space": ["cat | dog", " emu", "emu|dog "],
    "string array": np.array(["cat|dog", "emu", "dog|emu"]),
    "object array of strings": np.array(["cat|dog", "emu", "dog|emu"], dtype=object),
    "pandas strings": pd.Series(["cat|dog", "emu", "dog|emu"]),
    "pandas nullable strings": pd.Series(["cat|dog", "emu", "dog|emu"], dtype="string"),
    "pandas categories of strings": pd.Series(["cat|dog", "emu", "dog|emu"], dtype="category"),
    "pandas index": pd.Index(["cat|dog", "emu", "dog|emu"]),
    "polars-like strings": PolarsLike(["cat|dog", "emu", "dog|emu"]),
    "data frame": pd.DataFrame(NUMBERS, columns=list(CLASSES)),
    "data frame of bools": pd.DataFrame(NUMBERS.astype(bool), columns=list(CLASSES)),
    "data frame of mixed types": pd.DataFrame(
        {"cat": [True, False, False], "dog": [1.0, 0.0, 1.0], "emu": pd.array([0, 1, 1], dtype="Int64")}
    ),
    "polars-like frame": PolarsLikeFrame({"cat": [1, 0, 0], "dog": [1, 0, 1], "emu": [0, 1, 1]}),
    "itself": LABELS,
}

SAME_MATRIX = {
    "bool": NUMBERS.astype(bool),
    "int": NUMBERS,
    "uint8": NUMBERS.astype(np.uint8),
    "float": NUMBERS.astype(np.float32),
    "object": NUMBERS.astype(object),
    "Fortran order": np.asfortranarray(NUMBERS),
    "read only": np.frombuffer(NUMBERS.astype(np.int8).tobytes(), dtype=np.int8).reshape(3, 3),
    "backwards": NUMBERS[::-1].copy()[::-1],
    "big endian": NUMBERS.astype(">i4"),
    "nested lists": NUMBERS.tolist(),
    "torch bool": torch.tensor(MASK),
    "torch int": torch.tensor(NUMBERS),
    "torch bfloat16": torch.tensor(NUMBERS, dtype=torch.bfloat16),
    "torch with gradient": torch.tensor(NUMBERS, dtype=torch.float32, requires_grad=True),
    "torch sparse": torch.tensor(NUMBERS).to_sparse(),
    "csr matrix": sp.csr_matrix(NUMBERS),
    "csr array": sp.csr_array(NUMBERS),
    "csc array": sp.csc_array(NUMBERS.astype(bool)),
    "coo array": sp.coo_array(NUMBERS.astype(float)),
    "lil array": sp.lil_array(NUMBERS),
    "dok array": sp.dok_array(NUMBERS),
    "unnamed data frame": pd.DataFrame(NUMBERS),
}


@pytest.mark.parametrize("form", SAME_LABELS.values(), ids=SAME_LABELS)
def test_every_form_gives_the_same_labels(form: Any) -> None:
    labels = CandidateLabels.from_any(form)
    assert labels.classes == CLASSES
    assert labels.mask.tolist() == MASK
    assert labels.mask.dtype == torch.bool
    assert labels.mask.is_contiguous()


@pytest.mark.parametrize("form", SAME_MATRIX.values(), ids=SAME_MATRIX)
def test_every_matrix_gives_the_same_labels(form: Any) -> None:
    numbered = CandidateLabels.from_matrix(form)
    assert numbered.classes == (0, 1, 2)
    assert numbered.mask.tolist() == MASK
    assert not numbered.mask.requires_grad
    assert CandidateLabels.from_matrix(form, CLASSES).equals(LABELS)
    if not isinstance(form, list):
        assert CandidateLabels.from_any(form, CLASSES).equals(LABELS)


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        ([3, 1, 3], (1, 3)),
        (np.array([3, 1, 3], dtype=np.int32), (1, 3)),
        (np.array([3.0, 1.5, 3.0]), (1.5, 3.0)),
        (np.array([True, False, True]), (False, True)),
        (np.array(["b", "a", "b"]), ("a", "b")),
        (np.array(["b", "a", "b"], dtype=object), ("a", "b")),
        (np.array([b"b", b"a", b"b"]), (b"a", b"b")),
        ([np.int64(3), np.int64(1), np.int64(3)], (1, 3)),
        ([torch.tensor(3), torch.tensor(1), torch.tensor(3)], (1, 3)),
        (torch.tensor([3, 1, 3]), (1, 3)),
        (torch.tensor([3, 1, 3], dtype=torch.bfloat16), (1.0, 3.0)),
        (pd.Series([3, 1, 3], index=[7, 7, 9]), (1, 3)),
        (pd.Series([3, 1, 3], dtype="Int64"), (1, 3)),
        (pd.Series([True, False, True], dtype="boolean"), (False, True)),
        (pd.Series(["b", "a", "b"]), ("a", "b")),
        (pd.Series(["b", "a", "b"], dtype="category"), ("a", "b")),
        (pd.Categorical(["b", "a", "b"]), ("a", "b")),
        (PolarsLike(["b", "a", "b"]), ("a", "b")),
        (iter([3, 1, 3]), (1, 3)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_ordinary_labels_are_single_candidates(y: Any, classes: tuple[Any, ...]) -> None:
    labels = CandidateLabels.from_any(y)
    assert labels.classes == classes
    assert [type(name) for name in labels.classes] == [type(name) for name in classes]
    assert labels.mask.tolist() == [[False, True], [True, False], [False, True]]


def test_dates_and_times_are_labels_too() -> None:
    days = pd.Series(pd.to_datetime(["2024-02-01", "2024-01-01", "2024-02-01"]))
    labels = CandidateLabels.from_any(days)
    assert labels.classes == (np.datetime64("2024-01-01"), np.datetime64("2024-02-01"))
    assert labels.mask.int().tolist() == [[0, 1], [1, 0], [0, 1]]


def test_explicit_constructors_take_a_form_literally() -> None:
    joined = CandidateLabels.from_labels(["a|b", "c"])
    assert joined.classes == ("a|b", "c")
    pairs = CandidateLabels.from_labels([(0, 1), (2, 3)])
    assert pairs.classes == ((0, 1), (2, 3))
    with pytest.warns(UninformativeRowsWarning, match="sets: 1 of 2 rows"):
        assert CandidateLabels.from_sets([[0, 1], [1, 1]]).sets() == [(0, 1), (1,)]
    assert CandidateLabels.from_strings(["a;b", "c"], separator=";").sets() == [("a", "b"), ("c",)]
    assert CandidateLabels.from_strings(["a|| b", "c"], separator="||").sets() == [("a", "b"), ("c",)]


def test_classes_decide_whether_a_bar_is_part_of_a_name() -> None:
    assert CandidateLabels.from_any(["a|b", "c"], classes=["a|b", "c"]).sets() == [("a|b",), ("c",)]
    assert CandidateLabels.from_any(["a|b", "c"], classes=["a", "b", "c"]).sets() == [("a", "b"), ("c",)]


# Class order


def test_given_classes_keep_their_order_and_those_not_seen() -> None:
    labels = CandidateLabels.from_any(SETS, classes=["emu", "fox", "dog", "cat"])
    assert labels.classes == ("emu", "fox", "dog", "cat")
    assert labels.mask.int().tolist() == [[0, 0, 1, 1], [1, 0, 0, 0], [1, 0, 1, 0]]


@pytest.mark.parametrize(
    "classes",
    [
        ["b", "a"],
        ("b", "a"),
        np.array(["b", "a"]),
        pd.Index(["b", "a"]),
        pd.Series(["b", "a"]),
        PolarsLike(["b", "a"]),
        {"b": 1, "a": 2}.keys(),
        (name for name in "ba"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_classes_come_in_any_ordered_container(classes: Any) -> None:
    labels = CandidateLabels.from_any(["a", "b"], classes=classes)
    assert labels.classes == ("b", "a")
    assert all(type(name) is str for name in labels.classes)


def test_categories_set_the_order() -> None:
    categories = ["small", "large", "huge"]
    column = pd.Series(["large", "small"]).astype(pd.CategoricalDtype(categories, ordered=True))
    for y in (column, column.array, pd.CategoricalIndex(column), PolarsLike(["large", "small"], categories)):
        assert CandidateLabels.from_any(y).classes == ("small", "large", "huge")
        assert CandidateLabels.from_labels(y).classes == ("small", "large", "huge")
        assert CandidateLabels.from_complementary(y).sets() == [("small", "huge"), ("large", "huge")]
    assert CandidateLabels.from_any(column, classes=["large", "small"]).classes == ("large", "small")


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        ([10, 9, 2], (2, 9, 10)),
        (["10", "9", "2"], ("10", "2", "9")),
        (["b", 1, "a"], ("b", 1, "a")),
        ([Color.RED, Color.BLUE], (Color.RED, Color.BLUE)),
        ([["b", 1], ["a"]], ("b", 1, "a")),
        ([{"b", 1}, {"a", "b"}], (1, "b", "a")),
    ],
)
def test_classes_are_sorted_or_in_order_of_appearance(y: Any, classes: tuple[Any, ...]) -> None:
    assert CandidateLabels.from_any(y).classes == classes


class Unsortable:
    """A name whose hash collides with all others, so that sets iterate in insertion order."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unsortable) and self.name == other.name

    def __repr__(self) -> str:
        return self.name


def test_order_does_not_depend_on_set_iteration() -> None:
    a, b, c = map(Unsortable, "abc")
    one, other = {b, a}, {a, b}
    assert list(one) != list(other)
    assert CandidateLabels.from_sets([{c}, one]).classes == (c, a, b)
    assert CandidateLabels.from_sets([{c}, other]).classes == (c, a, b)
    assert CandidateLabels.from_sets([[c], [b, a]]).classes == (c, b, a)


def test_columns_of_a_frame_follow_given_classes() -> None:
    frame = pd.DataFrame(NUMBERS, columns=list(CLASSES))
    labels = CandidateLabels.from_matrix(frame, classes=["emu", "cat", "dog"])
    assert labels.classes == ("emu", "cat", "dog")
    assert labels.sets() == [("cat", "dog"), ("emu",), ("emu", "dog")]
    unnamed = pd.DataFrame(NUMBERS)
    assert CandidateLabels.from_matrix(unnamed, classes=[2, 1, 0]).mask.tolist() == [
        row[::-1] for row in MASK
    ]
    assert CandidateLabels.from_matrix(unnamed, classes=CLASSES).equals(LABELS)


def test_labels_can_be_converted_to_other_classes() -> None:
    assert CandidateLabels.from_any(LABELS, classes=CLASSES) is LABELS
    wider = CandidateLabels.from_any(LABELS, classes=["fox", "emu", "dog", "cat"])
    assert wider.sets() == [("dog", "cat"), ("emu",), ("emu", "dog")]
    with pytest.raises(ValueError, match=r"y: 2 rows have labels outside classes \(first: 1, 'emu'\)"):
        CandidateLabels.from_any(LABELS, classes=["cat", "dog"])


# Complementary labels


@pytest.mark.parametrize(
    "labels",
    [
        ["emu", {"cat", "dog"}, "cat"],
        [["emu"], ("cat", "dog"), {"cat"}],
        ["emu", "cat|dog", "cat"],
        pd.Series(["emu", "cat|dog", "cat"]),
        ~NUMBERS.astype(bool),
        sp.csr_array(1 - NUMBERS),
        pd.DataFrame(1 - NUMBERS, columns=list(CLASSES)),
        PolarsLike([["emu"], ["cat", "dog"], ["cat"]]),
        CandidateLabels(~torch.tensor(MASK), CLASSES),
    ],
    ids=lambda value: type(value).__name__,
)
def test_complementary_labels_leave_the_other_classes(labels: Any) -> None:
    assert CandidateLabels.from_complementary(labels, CLASSES).equals(LABELS)


def test_complementary_numbers() -> None:
    labels = CandidateLabels.from_complementary(np.array([2, 0]), classes=range(3))
    assert labels.sets() == [(0, 1), (1, 2)]


def test_an_empty_complementary_set_leaves_every_class() -> None:
    with pytest.warns(UninformativeRowsWarning, match=r"labels: 1 of 2 rows with every class \(first: 0\)"):
        labels = CandidateLabels.from_complementary([[], ["cat"]], CLASSES)
    assert labels.sets() == [CLASSES, ("dog", "emu")]


def test_columns_of_a_matrix_name_all_classes_of_complementary_labels() -> None:
    frame = pd.DataFrame({"cat": [1, 0], "dog": [0, 1], "emu": [0, 0]})
    assert CandidateLabels.from_complementary(frame).sets() == [("dog", "emu"), ("cat", "emu")]


# Errors


BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "empty set": (
        lambda: CandidateLabels.from_sets([{"a"}, {"b"}, set(), []]),
        ValueError,
        "sets: 2 rows are empty (first: 2); every row needs at least one candidate. Drop them",
    ),
    "empty set, one class": (
        lambda: CandidateLabels.from_any([{"a"}, set()]),
        ValueError,
        "y: 1 row is empty (first: 1)",
    ),
    "empty row of a matrix": (
        lambda: CandidateLabels.from_matrix([[0, 1], [0, 0]]),
        ValueError,
        "matrix: 1 row is empty (first: 1)",
    ),
    "empty row of a sparse matrix": (
        lambda: CandidateLabels.from_any(sp.csr_array([[0, 1], [0, 0]])),
        ValueError,
        "y: 1 row is empty (first: 1)",
    ),
    "empty row of a mask": (
        lambda: CandidateLabels(torch.tensor([[True, False], [False, False]]), ("a", "b")),
        ValueError,
        "mask: 1 row is empty (first: 1)",
    ),
    "blank string": (
        lambda: CandidateLabels.from_strings(["a|b|c", " ", "a"]),
        ValueError,
        "strings: 1 row is empty (first: 1)",
    ),
    "loose separator": (
        lambda: CandidateLabels.from_strings(["a|b", "a|", "a||b"]),
        ValueError,
        "strings: 2 rows have blank names (first: 1, 'a|'); a name must stand on each side of '|'",
    ),
    "label outside classes": (
        lambda: CandidateLabels.from_labels(["cat", "cow", "dog", "cow"], classes=["cat", "dog"]),
        ValueError,
        "y: 2 rows have labels outside classes (first: 1, 'cow'); classes are 'cat', 'dog'. "
        "Add it to classes= or fix the rows.",
    ),
    "misspelt label": (
        lambda: CandidateLabels.from_sets([{"cat"}, {"dig", "cat"}], classes=["cat", "dog"]),
        ValueError,
        "sets: 1 row has a label outside classes (first: 1, 'dig'); classes are 'cat', 'dog' (did you mean "
        "'dog'?). Add it",
    ),
    "label of another type": (
        lambda: CandidateLabels.from_strings(["0|1", "2"], classes=range(3)),
        ValueError,
        "strings: 2 rows have labels outside classes (first: 0, '0'); classes are 0, 1, 2 "
        "(the label has type str, that class int)",
    ),
    "number outside classes": (
        lambda: CandidateLabels.from_any(np.array([0, 1, 7]), classes=range(3)),
        ValueError,
        "y: 1 row has a label outside classes (first: 2, 7)",
    ),
    "complement outside classes": (
        lambda: CandidateLabels.from_complementary(["cat", "cow"], classes=CLASSES),
        ValueError,
        "labels: 1 row has a label outside classes (first: 1, 'cow')",
    ),
    "NaN among numbers": (
        lambda: CandidateLabels.from_any(np.array([0.0, 1.0, np.nan, np.nan])),
        ValueError,
        "y: 2 rows have no usable label (first: 2, nan); None, NaN and infinity are not labels. Drop them",
    ),
    "infinity among numbers": (
        lambda: CandidateLabels.from_any(np.array([0.0, np.inf, 1.0])),
        ValueError,
        "y: 1 row has no usable label (first: 1, inf)",
    ),
    "None among strings": (
        lambda: CandidateLabels.from_any(["a", None, "b"]),
        ValueError,
        "y: 1 row has no usable label (first: 1, None)",
    ),
    "NaN among joined strings": (
        lambda: CandidateLabels.from_any(pd.Series(["a|b", "b", None])),
        ValueError,
        "y: 1 row has no usable label (first: 2, nan)",
    ),
    "pandas NA": (
        lambda: CandidateLabels.from_any(pd.Series([1, None, 2], dtype="Int64")),
        ValueError,
        "y: 1 row has no usable label (first: 1, ",
    ),
    "missing category": (
        lambda: CandidateLabels.from_any(pd.Categorical(["a", None, "b"])),
        ValueError,
        "y: 1 row has no usable label (first: 1, nan)",
    ),
    "NaT": (
        lambda: CandidateLabels.from_any(pd.to_datetime(pd.Series(["2024-01-01", None]))),
        ValueError,
        "y: 1 row has no usable label (first: 1, NaT)",
    ),
    "masked array": (
        lambda: CandidateLabels.from_any(np.ma.array([0, 1, 2], mask=[0, 0, 1])),
        ValueError,
        "y: 1 row has no usable label (first: 2, masked)",
    ),
    "masked matrix": (
        lambda: CandidateLabels.from_any(np.ma.array([[0, 1], [1, 0]], mask=[[0, 0], [0, 1]])),
        ValueError,
        "y: 1 row has no usable label (first: 1, masked)",
    ),
    "None for a set": (
        lambda: CandidateLabels.from_any([{"a"}, None, {"b"}]),
        ValueError,
        "y: 1 row has no usable label (first: 1, None)",
    ),
    "None in a set": (
        lambda: CandidateLabels.from_sets([{"a"}, {"b", None}]),
        ValueError,
        "sets: 1 row has no usable label (first: 1, None)",
    ),
    "NaN in a matrix": (
        lambda: CandidateLabels.from_any(np.array([[0, 1.0], [1, np.nan]])),
        ValueError,
        "y: 1 row has values other than 0 and 1 (first: 1, nan in column 1)",
    ),
    "NA in a data frame": (
        lambda: CandidateLabels.from_any(
            pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [0, 1]})
        ),
        ValueError,
        "y: 1 row has no usable label (first: 1, ",
    ),
    "other value in a matrix": (
        lambda: CandidateLabels.from_matrix(np.array([[0, 1], [1, 0], [2, 3], [0, -1]])),
        ValueError,
        "matrix: 2 rows have values other than 0 and 1 (first: 2, 2 in column 0); 1 marks a candidate, 0 any "
        "other class. Threshold scores first, such as matrix > 0.5",
    ),
    "other value in a tensor": (
        lambda: CandidateLabels.from_matrix(torch.tensor([[0.0, 1.0], [0.25, 1.0]])),
        ValueError,
        "matrix: 1 row has values other than 0 and 1 (first: 1, 0.25 in column 0)",
    ),
    "other value in a sparse matrix": (
        lambda: CandidateLabels.from_matrix(sp.csc_array([[0, 1], [1, 2]])),
        ValueError,
        "matrix: 1 row has values other than 0 and 1 (first: 1, 2 in column 1)",
    ),
    "entry stored twice": (
        lambda: CandidateLabels.from_matrix(sp.coo_array(([1, 1, 1], ([0, 1, 1], [0, 1, 1])), shape=(2, 2))),
        ValueError,
        "matrix: 1 row has values other than 0 and 1 (first: 1, 2 in column 1)",
    ),
    "other object in a matrix": (
        lambda: CandidateLabels.from_matrix(np.array([[0, 1], ["1", 0]], dtype=object)),
        ValueError,
        "matrix: 1 row has values other than 0 and 1 (first: 1, '1' in column 0)",
    ),
    "matrix of strings": (
        lambda: CandidateLabels.from_any(np.array([["a", "b"], ["b", "c"]])),
        TypeError,
        "y: got dtype <U1; expected bools or the numbers 0 and 1. Use CandidateLabels.from_sets(y.tolist())",
    ),
    "lists of 0 and 1": (
        lambda: CandidateLabels.from_any([[0, 1, 1], [1, 0, 0]]),
        ValueError,
        "y: 2 lists of 3 numbers, all 0 or 1, could be a matrix or sets of the labels 0 and 1. Use",
    ),
    "rows of different length": (
        lambda: CandidateLabels.from_matrix([[0, 1, 1], [1, 0]]),
        ValueError,
        "matrix: 1 row differs in length from row 0 (first: 1); every row needs one entry per class",
    ),
    "one dimension for a matrix": (
        lambda: CandidateLabels.from_matrix(np.array([0, 1])),
        ValueError,
        "matrix: got ndarray of shape (2,); expected two dimensions (n, k): one row per instance",
    ),
    "one sparse dimension": (
        lambda: CandidateLabels.from_any(sp.coo_array(np.array([0, 1]))),
        ValueError,
        "y: got coo_array of shape (2,); expected two dimensions (n, k): one row per instance",
    ),
    "three dimensions": (
        lambda: CandidateLabels.from_any(np.zeros((2, 3, 4))),
        ValueError,
        "y: got ndarray of shape (2, 3, 4); expected two dimensions",
    ),
    "matrix for labels": (
        lambda: CandidateLabels.from_labels(NUMBERS),
        ValueError,
        "y: got ndarray of shape (3, 3); expected one dimension. Use CandidateLabels.from_matrix",
    ),
    "matrix for sets": (
        lambda: CandidateLabels.from_sets(NUMBERS),
        ValueError,
        "sets: got ndarray of shape (3, 3); expected one dimension",
    ),
    "no dimension": (
        lambda: CandidateLabels.from_any(np.array(3)),
        ValueError,
        "y: got ndarray of shape (); expected one dimension",
    ),
    "column vector": (
        lambda: CandidateLabels.from_any(np.array([[0], [1]])),
        ValueError,
        "y: got shape (2, 1); expected one column per class, at least two. Pass ordinary labels in one "
        "dimension, such as y.ravel()",
    ),
    "one class": (
        lambda: CandidateLabels.from_any(["a", "a"]),
        ValueError,
        "y: only 'a' in 2 rows; a classifier needs at least two classes. Pass all of them as classes=.",
    ),
    "no rows": (
        lambda: CandidateLabels.from_any([]),
        ValueError,
        "y: no class in 0 rows; a classifier needs at least two classes",
    ),
    "one class given": (
        lambda: CandidateLabels.from_any(["a"], classes=["a"]),
        ValueError,
        "classes: got 'a'; a classifier needs at least two. Pass all of them.",
    ),
    "no class given": (
        lambda: CandidateLabels.from_any(["a"], classes=[]),
        ValueError,
        "classes: got none; a classifier needs at least two",
    ),
    "class given twice": (
        lambda: CandidateLabels.from_any(["a"], classes=["a", "b", "a"]),
        ValueError,
        "classes: 'a' more than once; names must be unique.",
    ),
    "equal classes": (
        lambda: CandidateLabels.from_any([0, 1], classes=[0, 1, True]),
        ValueError,
        "classes: 1 more than once",
    ),
    "missing class": (
        lambda: CandidateLabels.from_any(["a"], classes=["a", None]),
        ValueError,
        "classes: entry 1 is None, which is not a name. Remove it.",
    ),
    "NaN class": (
        lambda: CandidateLabels.from_any(["a"], classes=["a", float("nan")]),
        ValueError,
        "classes: entry 1 is nan",
    ),
    "unhashable class": (
        lambda: CandidateLabels.from_any(["a"], classes=["a", ["b"]]),
        TypeError,
        "classes: entry 1 is list; names must be hashable",
    ),
    "classes without order": (
        lambda: CandidateLabels.from_any(["a"], classes={"a", "b"}),
        TypeError,
        "classes: a set has no order; pass a list, such as sorted(classes).",
    ),
    "classes in a string": (
        lambda: CandidateLabels.from_any(["a"], classes="ab"),
        TypeError,
        "classes: 'ab' is a single name; pass a list of all names.",
    ),
    "number of classes": (
        lambda: CandidateLabels.from_any([0, 1], classes=3),  # type: ignore[arg-type]
        TypeError,
        "classes",
    ),
    "names for other columns": (
        lambda: CandidateLabels.from_matrix(NUMBERS, classes=["a", "b"]),
        ValueError,
        "classes: got 2 names for 3 columns of matrix; pass one for each column.",
    ),
    "names for another mask": (
        lambda: CandidateLabels(torch.tensor(MASK), ("a", "b")),
        ValueError,
        "classes: got 2 names for 3 columns of mask",
    ),
    "column not in the frame": (
        lambda: CandidateLabels.from_any(
            pd.DataFrame(NUMBERS, columns=list(CLASSES)), classes=["a", "b", "c"]
        ),
        ValueError,
        "classes: y has no column 'a'; it has 'cat', 'dog', 'emu'. Rename the columns",
    ),
    "columns of one name": (
        lambda: CandidateLabels.from_any(pd.DataFrame(NUMBERS, columns=["a", "b", "a"])),
        ValueError,
        "classes: 'a' more than once",
    ),
    "string among sets": (
        lambda: CandidateLabels.from_any([{"a"}, "ab", 7]),
        TypeError,
        "y: 2 rows are not collections (first: 1, 'ab'); every row must be a set or list of labels. Write a "
        "single label as [label]",
    ),
    "strings for sets": (
        lambda: CandidateLabels.from_sets(["cat", "dog"]),
        TypeError,
        "sets: 2 rows are not collections (first: 0, 'cat')",
    ),
    "numbers for sets": (
        lambda: CandidateLabels.from_sets(np.array([1, 2])),
        TypeError,
        "sets: 2 rows are not collections (first: 0, 1)",
    ),
    "numbers for strings": (
        lambda: CandidateLabels.from_strings(np.array([1, 2])),
        TypeError,
        "strings: 2 rows are not strings (first: 0, 1); every row must be a string such as 'cat|dog'",
    ),
    "number among strings": (
        lambda: CandidateLabels.from_any(["a|b", 3]),
        TypeError,
        "y: 1 row is not a string (first: 1, 3)",
    ),
    "sets for labels": (
        lambda: CandidateLabels.from_labels([{"a"}, {"b"}]),
        TypeError,
        "y: row 0 has the label {'a'}; labels must be hashable, such as str. Use CandidateLabels.from_sets",
    ),
    "list in a set": (
        lambda: CandidateLabels.from_sets([["a"], ["b", ["c"]]]),
        TypeError,
        "sets: row 1 has the label ['c']",
    ),
    "blank separator": (
        lambda: CandidateLabels.from_strings(["a", "b"], separator=""),
        ValueError,
        "separator: got ''; expected the text between two names, such as '|'.",
    ),
    "one string": (
        lambda: CandidateLabels.from_any("cat|dog"),
        TypeError,
        "y: got str; expected one entry per row. Pass a list or a column.",
    ),
    "nothing": (lambda: CandidateLabels.from_any(None), TypeError, "y: got None; expected one entry per row"),
    "one number": (
        lambda: CandidateLabels.from_labels(3),
        TypeError,
        "y: got int; expected one entry per row",
    ),
    "dictionary": (
        lambda: CandidateLabels.from_any({0: "a"}),
        TypeError,
        "y: got dict; expected one entry per row",
    ),
    "one set": (
        lambda: CandidateLabels.from_sets({"a", "b"}),
        TypeError,
        "sets: got set; expected one entry per row",
    ),
    "complementary without classes": (
        lambda: CandidateLabels.from_complementary(["a", "b"]),
        ValueError,
        "classes: missing; classes that no row rules out do not appear in labels. Pass the names of all "
        "classes.",
    ),
    "everything ruled out": (
        lambda: CandidateLabels.from_complementary([{"a"}, {"a", "b"}], classes=["a", "b"]),
        ValueError,
        "labels: 1 row rules out every class (first: 1); at least one class must remain. Correct or drop",
    ),
    "missing complement": (
        lambda: CandidateLabels.from_complementary(["a", None], classes=["a", "b"]),
        ValueError,
        "labels: 1 row has no usable label (first: 1, None)",
    ),
    "mask of another kind": (lambda: CandidateLabels(NUMBERS, CLASSES), TypeError, "mask"),  # type: ignore[arg-type]
    "mask of numbers": (
        lambda: CandidateLabels(torch.tensor(NUMBERS), CLASSES),
        TypeError,
        "mask: got dtype torch.int64; expected a bool tensor (n, k). Build it with CandidateLabels.from_any",
    ),
    "check: no tensor": (
        lambda: check(NUMBERS.astype(bool)),
        TypeError,
        "candidates: got ndarray of shape (3, 3); expected a bool tensor (n, k). Build it with",
    ),
    "check: one dimension": (
        lambda: check(torch.tensor([True, False])),
        ValueError,
        "candidates: got shape (2,); expected two dimensions (n, k)",
    ),
    "check: numbers": (
        lambda: check(torch.ones(2, 3)),
        TypeError,
        "candidates: got dtype torch.float32; expected a bool tensor (n, k)",
    ),
    "check: one class": (
        lambda: check(torch.ones(2, 1, dtype=torch.bool)),
        ValueError,
        "candidates: got shape (2, 1); expected two dimensions (n, k), with one column per class, seen or "
        "not",
    ),
    "check: empty rows": (
        lambda: check(torch.tensor([[True, False], [False, False], [False, False]])),
        ValueError,
        "candidates: 2 rows are empty (first: 1); every row needs at least one candidate.",
    ),
    "check: no rows": (
        lambda: check(torch.ones(0, 3, dtype=torch.bool)),
        ValueError,
        "candidates: there are no rows; pass at least one.",
    ),
    "decode: scores": (
        lambda: LABELS.decode([0.5, 1.0]),
        TypeError,
        "index: got dtype float64; expected integers",
    ),
    "decode: no such class": (
        lambda: LABELS.decode([0, 3]),
        ValueError,
        "index: 3 is out of range; expected 0 to 2.",
    ),
    "decode: negative": (
        lambda: LABELS.decode(torch.tensor([[-1]])),
        ValueError,
        "index: -1 is out of range",
    ),
    "row: no such": (lambda: LABELS[3], IndexError, "index: row 3 is out of range for 3 rows."),
    "row: no such among several": (
        lambda: LABELS[[0, -4]],
        IndexError,
        "index: row -4 is out of range for 3 rows.",
    ),
    "row: too few bools": (
        lambda: LABELS[[True, False]],
        IndexError,
        "index: got 2 bools for 3 rows; pass one for each row.",
    ),
    "row: name": (lambda: LABELS["cat"], TypeError, "index: got str; expected an integer"),  # type: ignore[call-overload]
    "row: row and column": (lambda: LABELS[0, 1], TypeError, "index: got tuple; expected an integer"),  # type: ignore[call-overload]
    "written: bar in a name": (
        lambda: CandidateLabels.from_labels(["a|b", "c"]).strings(),
        ValueError,
        "separator: with '|' the class 'a|b' cannot be read back; it contains the separator",
    ),
    "written: alike": (
        lambda: CandidateLabels.from_labels([1, "1"]).strings(),
        ValueError,
        "separator: with '|' the class '1' cannot be read back",
    ),
}


@pytest.mark.parametrize(("call", "error", "message"), BAD.values(), ids=BAD)
def test_errors_name_the_row_and_the_remedy(
    call: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as refusal:
        call()
    # With run-time shape checks, an argument that violates its annotation fails even earlier.
    assert message in str(refusal.value) or isinstance(refusal.value, TypeCheckError)


# Rows that hold every class


@pytest.mark.parametrize(
    "build",
    [
        lambda: CandidateLabels(torch.tensor([[True, True], [True, False], [True, True]]), ("a", "b")),
        lambda: CandidateLabels.from_any([{"a", "b"}, {"a"}, {"a", "b"}]),
        lambda: CandidateLabels.from_strings(["a|b", "a", "b|a"]),
        lambda: CandidateLabels.from_matrix([[1, 1], [1, 0], [1, 1]], classes=["a", "b"]),
        lambda: check(torch.tensor([[True, True], [True, False], [True, True]])),
    ],
    ids=["mask", "sets", "strings", "matrix", "check"],
)
def test_one_warning_for_rows_with_every_class(build: Callable[[], CandidateLabels | None]) -> None:
    with pytest.warns(
        UninformativeRowsWarning, match=r": 2 of 3 rows with every class \(first: 0\); they carry"
    ) as seen:
        labels = build()
    assert len(seen) == 1
    assert labels is None or labels.n_full == 2
    if labels is not None:  # no second warning for accepted labels (warnings are errors here)
        assert labels[[0, 2]].n_full == 2
        assert CandidateLabels.from_any(labels) is labels
        assert "2 rows with every class" in repr(labels)


@pytest.mark.skipif(hasattr(check, "__wrapped__"), reason="the shape checker is between caller and library")
def test_the_warning_points_at_the_caller() -> None:
    full = torch.ones(1, 2, dtype=torch.bool)
    for build in (check, CandidateLabels.from_any, lambda mask: CandidateLabels(mask, ("a", "b"))):
        with pytest.warns(UninformativeRowsWarning) as seen:
            build(full)
        assert [warning.filename for warning in seen] == [__file__]


def test_no_warning_for_informative_rows() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(LABELS.mask)
        CandidateLabels(LABELS.mask, LABELS.classes)
    assert LABELS.n_full == 0


def test_a_quiet_check_raises_but_does_not_warn() -> None:
    check(torch.ones(1, 2, dtype=torch.bool), quiet=True)  # warnings are errors here
    with pytest.raises(ValueError, match=r"candidates: 1 row is empty \(first: 0\)"):
        check(torch.zeros(1, 2, dtype=torch.bool), quiet=True)


# The object


def test_reading_labels() -> None:
    assert len(LABELS) == 3
    assert LABELS.shape == (3, 3)
    assert LABELS.n_classes == 3
    assert LABELS.sizes.tolist() == [2, 1, 2]
    assert LABELS.sets() == list(LABELS) == [("cat", "dog"), ("emu",), ("dog", "emu")]
    assert LABELS.strings() == ["cat|dog", "emu", "dog|emu"]
    assert LABELS.strings(separator=", ") == ["cat, dog", "emu", "dog, emu"]
    assert repr(LABELS) == (
        "CandidateLabels(3 rows, 3 classes ('cat', 'dog', 'emu'), 1 to 2 candidates per row, mean 1.667)"
    )


def test_repr_stays_short() -> None:
    many = CandidateLabels.from_labels(range(1000))
    assert repr(many) == (
        "CandidateLabels(1000 rows, 1000 classes (0, 1, 2, 3, 4, 5, ... 994 more), 1 candidate per row, "
        "mean 1)"
    )
    assert repr(LABELS[[]]) == "CandidateLabels(0 rows, 3 classes ('cat', 'dog', 'emu'))"


@pytest.mark.parametrize(
    ("key", "rows"),
    [
        (slice(1, None), [1, 2]),
        (slice(None, None, -1), [2, 1, 0]),
        ([2, 0, 2], [2, 0, 2]),
        ([-1], [2]),
        ([], []),
        (np.array([1, 0], dtype=np.uint8), [1, 0]),
        (torch.tensor([2, 1]), [2, 1]),
        ([True, False, True], [0, 2]),
        (np.array([False, True, False]), [1]),
        (torch.tensor([True, True, False]), [0, 1]),
        (pd.Series([True, False, True], index=[5, 6, 7]), [0, 2]),
        ((np.array([1, 2]), ...), [1, 2]),
        (range(2), [0, 1]),
    ],
    ids=str,
)
def test_some_rows(key: Any, rows: list[int]) -> None:
    part = LABELS[key]
    assert part.classes == CLASSES
    assert part.mask.tolist() == [MASK[row] for row in rows]


@pytest.mark.parametrize("key", [1, -2, np.int64(1), torch.tensor(1)], ids=repr)
def test_one_row_is_a_tuple_of_names(key: Any) -> None:
    assert LABELS[key] == ("emu",)


def test_labels_are_immutable() -> None:
    with pytest.raises(AttributeError):
        LABELS.mask = torch.tensor(MASK)  # type: ignore[misc]
    for source in (np.array(MASK), torch.tensor(MASK)):
        labels = CandidateLabels.from_matrix(source, CLASSES)
        source[0, 2] = True
        assert labels.equals(LABELS)
    labels.to_numpy()[0, 2] = True
    assert labels.equals(LABELS)


def test_equality_is_by_classes_and_candidates() -> None:
    assert LABELS.equals(CandidateLabels.from_sets(SETS))
    assert not LABELS.equals(LABELS[:2])
    assert not LABELS.equals(CandidateLabels(LABELS.mask, ("dog", "cat", "emu")))
    assert not LABELS.equals(CandidateLabels.from_sets([*SETS[:2], {"cat"}], CLASSES))
    assert not LABELS.equals(MASK)
    assert copy.deepcopy(LABELS).equals(LABELS)
    assert pickle.loads(pickle.dumps(LABELS)).equals(LABELS)


@pytest.mark.parametrize(
    ("classes", "dtype"),
    [
        ([1, 2], "int64"),
        ([1.5, 2.5], "float64"),
        ([False, True], "bool"),
        (["a", "long"], "<U4"),
        ([b"a", b"long"], "|S4"),
        ([1, "a"], "object"),
        ([1, 2.5], "object"),
        ([(1, 2), (3, 4)], "object"),
        ([2**70, 1], "object"),
        (["a", "a\0"], "object"),
        ([Color.RED, Color.BLUE], "object"),
    ],
    ids=repr,
)
def test_decode_returns_a_matching_dtype(classes: list[Any], dtype: str) -> None:
    labels = CandidateLabels.from_sets([[classes[0]]], classes)
    names = labels.decode(torch.tensor([[1, 0], [1, 1]]))
    assert names.dtype == dtype
    assert names.shape == (2, 2)
    assert [*names[0], *names[1]] == [classes[1], classes[0], classes[1], classes[1]]
    assert labels.decode([]).shape == (0,)
    assert labels.decode(1)[()] == classes[1]


def test_as_an_array() -> None:
    assert np.asarray(LABELS).tolist() == MASK
    assert np.asarray(LABELS, dtype=np.int8).dtype == np.int8


def test_scikit_learn_splits_labels_like_any_y() -> None:
    from sklearn.model_selection import KFold, check_cv, train_test_split
    from sklearn.utils import shuffle
    from sklearn.utils.multiclass import type_of_target

    x = np.arange(3)[:, None]
    x_train, x_test, train, test = train_test_split(x, LABELS, test_size=1, random_state=0)
    assert isinstance(train, CandidateLabels)
    assert [train[i] for i in range(2)] == [LABELS[int(row)] for row in x_train[:, 0]]
    assert test[0] == LABELS[int(x_test[0, 0])]
    rows, shuffled = shuffle(x, LABELS, random_state=1)
    assert shuffled.sets() == [LABELS[int(row)] for row in rows[:, 0]]
    assert type_of_target(LABELS) == "multilabel-indicator"
    assert isinstance(check_cv(3, LABELS, classifier=True), KFold)


@pytest.mark.gpu
def test_a_matrix_stays_on_its_device() -> None:
    for matrix in (torch.tensor(MASK).cuda(), torch.tensor(NUMBERS).cuda()):
        labels = CandidateLabels.from_any(matrix, CLASSES)
        assert labels.mask.is_cuda
        assert labels.equals(LABELS)
        assert labels.sets() == LABELS.sets()
        assert labels.sizes.tolist() == [2, 1, 2]
        assert labels[[2, 0]].equals(LABELS[[2, 0]])
        assert labels.decode(labels.mask.int().argmax(1)).tolist() == ["cat", "emu", "dog"]
        check(labels.mask)
    with pytest.raises(ValueError, match=r"1 row is empty \(first: 1\)"):
        check(torch.tensor([[True, False], [False, False]]).cuda())
    with pytest.raises(ValueError, match=r"first: 1, 2 in column 0"):
        CandidateLabels.from_matrix(torch.tensor([[1, 0], [2, 0]]).cuda())


def test_examples_in_the_documentation() -> None:
    failed, attempted = doctest.testmod(labels_module, optionflags=doctest.ELLIPSIS)
    assert attempted >= 4
    assert failed == 0


def test_reading_labels_needs_neither_pandas_nor_scipy() -> None:
    code = (
        "import sys, propall.labels as l; l.CandidateLabels.from_any([{'a'}, {'b'}]);"
        "print(sorted({'pandas', 'scipy', 'sklearn', 'polars'} & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"


# Round trips


names = st.one_of(
    st.lists(st.integers(-5, 20), min_size=2, max_size=6, unique=True),
    st.lists(st.text("abc xyz", min_size=1, max_size=4), min_size=2, max_size=6, unique=True),
    st.lists(
        st.one_of(st.integers(2, 9), st.text(min_size=1, max_size=3)), min_size=2, max_size=6, unique=True
    ),
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=2, max_size=6, unique=True),
)


# Plain values: under checked shapes, building labels draws random numbers, which a strategy must not.
@st.composite
def masks_and_classes(draw: st.DrawFn) -> tuple[list[list[bool]], list[Any]]:
    classes = draw(names)
    k = len(classes)
    row = st.lists(st.booleans(), min_size=k, max_size=k).filter(lambda flags: 0 < sum(flags) < k)
    return draw(st.lists(row, min_size=1, max_size=8)), classes


@given(masks_and_classes())
def test_sets_and_matrices_read_back(drawn: tuple[list[list[bool]], list[Any]]) -> None:
    mask, classes = drawn
    labels = CandidateLabels(torch.tensor(mask), tuple(classes))
    assert CandidateLabels.from_sets(labels.sets(), classes).equals(labels)
    assert CandidateLabels.from_any([set(row) for row in labels.sets()], classes).equals(labels)
    assert CandidateLabels.from_any(object_array(labels.sets()), classes).equals(labels)
    assert CandidateLabels.from_any(labels.to_numpy().astype(float), classes).equals(labels)
    assert CandidateLabels.from_any(sp.csr_array(labels.to_numpy()), classes).equals(labels)
    excluded = [[name for name in classes if name not in row] for row in labels]
    assert CandidateLabels.from_complementary(excluded, classes).equals(labels)


@given(masks_and_classes())
def test_strings_read_back_or_raise(drawn: tuple[list[list[bool]], list[Any]]) -> None:
    mask, classes = drawn
    labels = CandidateLabels(torch.tensor(mask), tuple(classes))
    texts = [str(name) for name in classes]
    if len(set(texts)) < len(texts) or any(text != text.strip() or not text or "|" in text for text in texts):
        with pytest.raises(ValueError, match="cannot be read back"):
            labels.strings()
    else:
        again = CandidateLabels.from_strings(labels.strings(), classes=texts)
        assert torch.equal(again.mask, labels.mask)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12))
def test_ordinary_labels_decode_to_themselves(y: list[int]) -> None:
    labels = CandidateLabels.from_labels(y, classes=[4, 2, 0, 1, 3])
    assert labels.decode(labels.mask.int().argmax(1)).tolist() == y
    assert labels.sizes.tolist() == [1] * len(y)


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12))
def test_complementary_labels_are_inverted_labels(y: list[str]) -> None:
    labels = CandidateLabels.from_complementary(y, classes=["a", "b", "c"])
    singles = CandidateLabels.from_labels(y, classes=labels.classes)
    assert torch.equal(labels.mask, ~singles.mask)

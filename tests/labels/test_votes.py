"""Candidates from votes, annotators and Label Studio."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from scipy.sparse import csr_array

from propall.labels import CandidateLabels

COUNTS = np.array([[2, 1, 0], [1, 1, 1], [0, 3, 0], [0, 2, 2]])
NAMES = ["cat", "dog", "emu"]
KEPT = {
    "union": ["cat|dog", "cat|dog|emu", "dog", "dog|emu"],
    "plurality": ["cat", "cat|dog|emu", "dog", "dog|emu"],
    1: ["cat|dog", "cat|dog|emu", "dog", "dog|emu"],
    2: ["cat", "cat|dog|emu", "dog", "dog|emu"],  # no agreement in row 1, so every answer stays
    3: ["cat|dog", "cat|dog|emu", "dog", "dog|emu"],
}
each_rule = pytest.mark.parametrize("rule", list(KEPT))
full_rows_warn = pytest.mark.filterwarnings("ignore::propall.labels.UninformativeRowsWarning")


@full_rows_warn
@each_rule
@pytest.mark.parametrize(
    "form",
    [
        lambda c: pd.DataFrame(c, columns=NAMES),
        lambda c: pd.DataFrame(c.astype(float), columns=NAMES),
        lambda c: (c, NAMES),
        lambda c: (c.tolist(), NAMES),
        lambda c: (torch.from_numpy(c), NAMES),
        lambda c: (csr_array(c), NAMES),
    ],
    ids=["frame", "floats", "array", "lists", "tensor", "sparse"],
)
def test_votes(rule, form) -> None:
    given = form(COUNTS)
    arguments = given if isinstance(given, tuple) else (given,)
    assert CandidateLabels.from_votes(*arguments, rule=rule).strings() == KEPT[rule]


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([[1, 0], [-1, 1]], r"1 row has values that are not counts \(first: 1, -1 in column 0\)"),
        ([[1, 0], [0.5, 1]], r"first: 1, 0.5 in column 0"),
        ([[1, np.nan], [1, 1]], r"first: 0, nan in column 1"),
        ([[1, 0], [0, 0]], r"1 row is empty \(first: 1\)"),
        ([1, 0], "two dimensions"),
    ],
)
def test_values_that_are_not_counts(counts, message) -> None:
    with pytest.raises(ValueError, match=message):
        CandidateLabels.from_votes(counts)


def test_words_are_not_votes() -> None:
    with pytest.raises(TypeError, match="expected a number in every entry"):
        CandidateLabels.from_votes([["a", "b"], ["a", "b"]])


@pytest.mark.parametrize("rule", ["most", 0, -1, 1.5, True, None])
def test_invalid_rules(rule) -> None:
    with pytest.raises((ValueError, TypeCheckError), match="rule"):
        CandidateLabels.from_votes(COUNTS, rule=rule)


@full_rows_warn
def test_rows_without_votes_can_become_every_class() -> None:
    labels = CandidateLabels.from_votes([[1, 0, 0], [0, 0, 0]], NAMES, empty="all", rule="plurality")
    assert labels.strings() == ["cat", "cat|dog|emu"]


ANSWERS = [["cat", "cat", "dog"], ["cat", "dog", "emu"], ["dog", "dog", "dog"], ["dog", None, "emu"]]
AGREED = {
    "union": ["cat|dog", "cat|dog|emu", "dog", "dog|emu"],
    "plurality": ["cat", "cat|dog|emu", "dog", "dog|emu"],
    2: ["cat", "cat|dog|emu", "dog", "dog|emu"],
}


@full_rows_warn
@pytest.mark.parametrize("rule", list(AGREED))
@pytest.mark.parametrize(
    "form",
    [
        lambda rows: rows,
        lambda rows: np.array(rows, dtype=object),
        lambda rows: pd.DataFrame(rows, columns=["ann", "bob", "eve"]),
        lambda rows: {name: [row[i] for row in rows] for i, name in enumerate("abc")},
        lambda rows: [["" if cell is None else cell for cell in row] for row in rows],
        lambda rows: [[[cell] if cell else [] for cell in row] for row in rows],
    ],
    ids=["lists", "array", "frame", "mapping", "empty text", "lists of lists"],
)
def test_annotators(rule, form) -> None:
    assert CandidateLabels.from_annotators(form(ANSWERS), rule=rule).strings() == AGREED[rule]


@full_rows_warn
def test_long_form_has_a_row_per_item_in_order_of_appearance() -> None:
    items = ["x", "y", "x", "z", "x", "y", "z", "y"]
    answers = ["cat", "cat", "cat", "dog", "dog", "dog", "dog", "emu"]
    labels = CandidateLabels.from_annotators(answers, items=items, rule="plurality")
    assert labels.strings() == ["cat", "cat|dog|emu", "dog"]


def test_one_answer_counts_a_label_once() -> None:
    answers = [[["cat", "cat", "dog"], "dog"], ["emu", "emu"]]
    assert CandidateLabels.from_annotators(answers, rule="plurality").strings() == ["dog", "emu"]


@pytest.mark.parametrize(
    ("answers", "options", "message"),
    [
        (["cat", "dog"], {}, "2 rows are not lists of answers"),
        ({"a": ["cat"], "b": ["cat", "dog"]}, {}, "annotators' columns have 1, 2 entries"),
        (["cat", "dog"], {"items": [1]}, "items: got 1 for 2 answers"),
        (["cat", "dog"], {"items": [1, None]}, "1 row has no item"),
        ([["cat", "dog"], [None, None]], {}, "1 row is empty"),
        ([["cat", "dgo"], ["dog", "cat"]], {"classes": ["cat", "dog"]}, "did you mean 'dog'"),
    ],
)
def test_errors(answers, options, message) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        CandidateLabels.from_annotators(answers, **options)


@given(
    st.lists(st.lists(st.integers(0, 4), min_size=4, max_size=4), min_size=1, max_size=8), st.integers(1, 4)
)
@full_rows_warn
def test_rules_nest(counts, least) -> None:
    """Plurality labels have enough votes, and labels with enough votes have a vote."""
    wide = {
        rule: CandidateLabels.from_votes(counts, rule=rule, empty="all")
        for rule in ("union", "plurality", least)
    }
    mask = {rule: labels.mask for rule, labels in wide.items()}
    assert not (mask["plurality"] & ~mask[least]).any()
    assert not (mask[least] & ~mask["union"]).any()


def task(number, *annotations, **more):
    return {"id": number, "data": {"text": f"text {number}"}, "annotations": list(annotations), **more}


def annotation(*choices, name="animal", kind="choices", **more):
    result = {"type": kind, "from_name": name, "to_name": "text", "value": {kind: list(choices)}}
    return {"completed_by": 1, "result": [result], "was_cancelled": False, **more}


EXPORT = [
    task(1, annotation("cat"), annotation("dog"), annotation("cat")),
    task(2, annotation("emu", "dog"), annotation(was_cancelled=True)),
    task(3, annotation("emu"), {"result": []}),
]


@pytest.mark.parametrize("form", ["list", "text", "file", "path"])
def test_label_studio(form, tmp_path) -> None:
    file = tmp_path / "export.json"
    file.write_text(json.dumps(EXPORT), encoding="utf-8")
    export = {"list": EXPORT, "text": json.dumps(EXPORT), "file": str(file), "path": file}[form]
    assert CandidateLabels.from_label_studio(export).strings() == ["cat|dog", "dog|emu", "emu"]
    assert CandidateLabels.from_label_studio(export, rule="plurality").strings() == ["cat", "dog|emu", "emu"]


def test_label_studio_with_several_choices() -> None:
    both = annotation("cat")
    both["result"] += annotation("big", name="size")["result"]
    export = [task(1, both), task(2, annotation("dog")), task(3, annotation("small", name="size"))]
    with pytest.raises(ValueError, match="name: the tasks have the choices 'animal', 'size'"):
        CandidateLabels.from_label_studio(export)
    with pytest.raises(ValueError, match="name: the tasks have no choices 'color'"):
        CandidateLabels.from_label_studio(export, name="color")
    labels = CandidateLabels.from_label_studio(export, name="animal", empty="all")
    assert labels.strings() == ["cat", "dog", "cat|dog"]


@pytest.mark.parametrize(
    ("export", "message"),
    [
        ([{"id": 1, "animal": "cat"}], "1 row is a task without annotations"),
        ("[1", "not JSON"),
        ([], "there are no tasks"),
        ([1], "expected a list of tasks"),
        ([task(1, annotation(kind="rectanglelabels"))], "no annotation has choices"),
        ([task(1, annotation("cat")), task(2, annotation("dog")), task(3)], "1 row is empty"),
    ],
)
def test_other_exports(export, message) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        CandidateLabels.from_label_studio(export)


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ("x", "annotations is str; expected a list"),
        ([None], "an annotation is None; expected an object"),
        ([{"result": "x"}], "result is str; expected a list"),
        ([{"result": [[]]}], "an entry of result is list; expected an object"),
        ([{"result": [{"type": "choices", "value": {"choices": ["a"]}}]}], "from_name is None; expected"),
        ([{"result": [{"type": "choices", "from_name": "n"}]}], "the choices 'n' are None; expected a list"),
        ([{"result": [{"type": "choices", "from_name": "n", "value": "x"}]}], "the choices 'n' are 'x'"),
        (
            [{"result": [{"type": "choices", "from_name": "n", "value": {"choices": [None]}}]}],
            "the choices 'n' are {'choices': \\[None\\]}; expected a list of labels",
        ),
    ],
)
def test_malformed_exports_are_refused(annotations, problem) -> None:
    good = {"data": {}, "annotations": None}
    with pytest.raises(ValueError, match=f"export: task 2: {problem}"):
        CandidateLabels.from_label_studio([good, {"data": {}, "annotations": annotations}])


def test_unreadable_exports_are_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match="not JSON"):
        CandidateLabels.from_label_studio("[" * 100_000)
    (tmp_path / "a.json").write_bytes(b"\xff\xff")
    with pytest.raises(ValueError, match=r"export: it is not UTF-8 \(byte 1\)"):
        CandidateLabels.from_label_studio(tmp_path / "a.json")
    with pytest.raises(ValueError, match="is a folder"):
        CandidateLabels.from_label_studio(tmp_path)

"""Cell grammar, negations and empty rows."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

from propall.labels import CandidateLabels, UninformativeRowsWarning
from propall.labels.parsing import CellGrammar, LabelCell, visible_text

CLASSES = ("cat", "dog", "emu")


def test_negations_are_every_class_but_those() -> None:
    labels = CandidateLabels.from_strings(["cat", "!cat", "! dog | !emu", "dog|emu"])
    assert labels.classes == CLASSES
    assert labels.strings() == ["cat", "dog|emu", "cat", "dog|emu"]


def test_a_class_that_is_only_ruled_out_is_a_class() -> None:
    assert CandidateLabels.from_strings(["!emu", "cat", "dog"]).strings() == ["cat|dog", "cat", "dog"]


def test_names_that_start_with_the_negation_sign() -> None:
    assert CandidateLabels.from_strings(["!a", "b"], negation=None).classes == ("!a", "b")
    listed = CandidateLabels.from_strings(["!a", "b", "!b"], classes=["!a", "b", "c"])
    assert listed.sets() == [("!a",), ("b",), ("!a", "c")]
    assert CandidateLabels.from_strings(["not cat", "dog|emu"], negation="not ").sets() == [
        ("dog", "emu"),
        ("dog", "emu"),
    ]


def test_from_any_and_from_complementary_read_negations() -> None:
    for form in (list, np.array, pd.Series):
        assert CandidateLabels.from_any(form(["!cat", "dog", "emu", "cat"])).strings()[0] == "dog|emu"
    assert CandidateLabels.from_any(["!a", "b"], classes=["!a", "b"]).sets() == [("!a",), ("b",)]
    twice = CandidateLabels.from_complementary(["!cat", "dog"], classes=CLASSES)
    assert twice.strings() == ["cat", "cat|emu"]


def test_known_names_are_taken_literally() -> None:
    labels = CandidateLabels.from_strings(["a|b", "c|a", "!c"], classes=["a|b", "a", "c"])
    assert labels.sets() == [("a|b",), ("a", "c"), ("a|b", "a")]
    labels = CandidateLabels.from_hierarchy({"x": ["a|b", "!a"], "y": ["c", "d"]}, ["a|b", "!a", "!x|!c"])
    assert labels.sets() == [("a|b",), ("!a",), ("d",)]


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("", LabelCell()),
        ("N/A", LabelCell()),
        ("[]", LabelCell()),
        ("cat | dog|cat", LabelCell(("cat", "dog"))),
        ('["cat|dog", 4.0, null]', LabelCell(("cat|dog", "4"), stray=True)),
        ("[cat", LabelCell(("[cat",))),
        ("!cat| !dog|", LabelCell(("cat", "dog"), negated=True, stray=True)),
        ("cat|!dog", LabelCell(("cat", "dog"), mixed=True)),
        ("!", LabelCell(("",), negated=True, nameless=True)),
        ("!x|!cat", LabelCell(("!x", "cat"), mixed=True)),
    ],
)
def test_cell_grammar(text: str, cell: LabelCell) -> None:
    grammar = CellGrammar(known=frozenset({"!x"}), json_lists=True, blanks=frozenset({"n/a"}))
    assert grammar.parse(text) == cell
    assert grammar.parse_all([text, text]) == [cell, cell]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["cat|!dog", "dog"], r"1 row mixes names and negations \(first: 0, 'cat\|!dog'\)"),
        (["cat|dog", "!cat|!dog"], r"1 row rules out every class \(first: 1\)"),
        (["cat", "!"], r"1 row has a blank name \(first: 1, '!'\)"),
        (["cat|dog", "!cat|!"], r"1 row has a blank name"),
        (["cat", " "], r"1 row is empty \(first: 1\)|only 'cat'"),
    ],
)
def test_errors_name_the_row(rows: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CandidateLabels.from_strings(rows)


@pytest.mark.parametrize("negation", ["", "|", 3])
def test_invalid_negation_signs(negation: object) -> None:
    with pytest.raises((ValueError, TypeCheckError), match="negation"):
        CandidateLabels.from_strings(["a|b"], negation=negation)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("read", "rows"),
    [
        (CandidateLabels.from_strings, ["cat|dog", "", None, "emu", "  ", float("nan")]),
        (CandidateLabels.from_sets, [{"cat", "dog"}, set(), None, ["emu"], (), float("nan")]),
        (CandidateLabels.from_any, ["cat|dog", "", None, "emu", " ", None]),
        (CandidateLabels.from_any, [{"cat", "dog"}, set(), None, ["emu"], [], None]),
    ],
)
def test_empty_rows_can_become_every_class(read, rows) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # requested explicitly, so no warning
        labels = read(rows, empty="all")
    assert labels.strings() == ["cat|dog", *["cat|dog|emu"] * 2, "emu", *["cat|dog|emu"] * 2]
    assert labels.n_full == 4
    with pytest.raises((ValueError, TypeError)):
        read(rows)


def test_missing_labels_can_become_every_class() -> None:
    assert CandidateLabels.from_any(["cat", None, "dog"], empty="all").n_full == 1
    assert CandidateLabels.from_any(np.array([1.0, np.nan, 2.0]), empty="all").sets() == [
        (1.0,),
        (1.0, 2.0),
        (2.0,),
    ]


def test_rows_that_list_every_class_still_warn() -> None:
    with pytest.warns(UninformativeRowsWarning, match=r"1 of 3 rows with every class \(first: 1\)"):
        CandidateLabels.from_strings(["", "cat|dog", "cat"], empty="all")


def test_invalid_values_of_empty() -> None:
    with pytest.raises((ValueError, TypeCheckError), match="empty"):
        CandidateLabels.from_strings(["a|b", "c"], empty="everything")  # type: ignore[arg-type]


#: Names that need no quotes: neither separators, signs, brackets nor white space at the ends.
plain_names = st.text(
    st.characters(exclude_characters="|![]", exclude_categories=["Cs"]), min_size=1, max_size=8
)
plain_names = plain_names.map(str.strip).filter(bool)


@given(st.lists(plain_names, min_size=1, max_size=4, unique=True), st.booleans())
def test_a_written_cell_is_read_again(names, negated) -> None:
    cell = CellGrammar().parse(" | ".join(f"!{name}" if negated else name for name in names))
    assert cell == LabelCell(tuple(names), negated=negated)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=4))
def test_a_json_list_is_read_again(names) -> None:
    cell = CellGrammar(negation=None, json_lists=True).parse(json.dumps(names))
    assert cell.names == tuple(filter(None, dict.fromkeys(name.strip() for name in names)))


def test_malformed_json_lists_are_names() -> None:
    grammar = CellGrammar(json_lists=True)
    for text in ("[a]", "[" * 5000 + "]" * 5000, f"[{'9' * 5000}]"):
        assert grammar.parse(text).names == (text,)


@given(st.text(max_size=12))
def test_visible_text_is_stable_and_keeps_plain_text(text) -> None:
    visible = visible_text(text)
    assert visible_text(visible) == visible
    assert visible_text("plain text") == "plain text"


def test_joiners_and_flags_are_visible() -> None:
    for text in ("می\u200cخواهم", "👩\u200d🔬", "🏴\U000e0067\U000e0062\U000e007f"):
        assert visible_text(text) == text

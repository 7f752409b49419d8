"""Summaries of tables, as `propall inspect` shows them."""

import json

import numpy as np
import pandas as pd
import pytest

from propall.tables.label_columns import open_table
from propall.tables.label_source import LabelSource
from propall.tables.summary import measure_agreement, summarize


def test_dirty_birds(dirty_birds) -> None:
    summary = summarize(open_table(dirty_birds, LabelSource(label="species")))
    assert summary.rows == 300
    assert summary.used == 298
    roles = {column.name: column.role for column in summary.columns}
    assert roles["species"] == "label"
    assert roles["no"] == "left out"
    assert roles["wing_mm (2)"] == "number"
    assert roles["notes"] == "text"
    assert sum(summary.sizes.values()) == 298
    kinds = {note.kind for note in summary.notes}
    assert {
        "duplicate heading",
        "typo",
        "unreadable values",
        "label seen once",
        "unusable label",
        "too many cells",
        "too few cells",
        "stray separator",
        "unlabeled",
        "missing values",
        "row numbers",
    } <= kinds
    assert {row.name for row in summary.classes} >= {"great auk", "herring gull"}
    assert summary.pairs[0].rows >= summary.pairs[-1].rows
    assert json.loads(json.dumps(summary.as_dict()))["used"] == 298


def test_classes_that_are_never_alone_or_always_together() -> None:
    frame = pd.DataFrame({"x": [1, 2, 3, 4.5], "label": ["a|b", "a|b", "c", "!c|!d"]})
    summary = summarize(open_table(frame, LabelSource(label="label")))
    assert summary.never_alone == ["a", "b", "d"]
    assert [(pair.one, pair.other, pair.rows) for pair in summary.pairs] == [("a", "b", 2)]
    assert {row.name: row.ruled_out for row in summary.classes} == {"a": 0, "b": 0, "c": 1, "d": 1}
    assert any(r.kind == "inseparable classes" and "'a', 'b'" in r.text for r in summary.notes)


def test_agreement_of_annotators() -> None:
    frame = pd.DataFrame(
        {"a": ["x", "x", "y", "y"], "b": ["x", "x", "y", "x"], "c": ["x", "y", "y", None], "f": [1, 2, 3, 5]}
    )
    summary = summarize(open_table(frame, LabelSource(annotators=("a", "b", "c"))))
    assert summary.agreement is not None
    # Pairs of equal answers: 3 + 1 + 3 + 0 of 3 + 3 + 3 + 1.
    assert summary.agreement.pairwise == pytest.approx(0.7)
    assert [name for name, _, _ in summary.agreement.annotators] == ["a", "b", "c"]
    assert [answers for _, answers, _ in summary.agreement.annotators] == [4, 4, 3]
    assert summary.agreement.annotators[0][2] == pytest.approx(0.75)


def test_alpha_is_that_of_the_published_example() -> None:
    """Krippendorff's worked example: two observers, ten units, two values give 0.095."""
    one = [0, 1, 0, 0, 0, 0, 0, 0, 1, 0]
    other = [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
    counts = np.zeros((10, 2), dtype=np.int64)
    for row, pair in enumerate(zip(one, other, strict=True)):
        for value in pair:
            counts[row, value] += 1
    assert measure_agreement(counts).alpha == pytest.approx(0.095, abs=5e-4)
    # His example with missing answers: four observers, twelve units, five values give 0.743.
    reliability = [
        "1 2 3 3 2 1 4 1 2 . . .",
        "1 2 3 3 2 2 4 1 2 5 . 3",
        ". 3 3 3 2 3 4 2 2 5 1 .",
        "1 2 3 3 2 4 4 1 2 5 1 .",
    ]
    answers = np.array(
        [[-1 if cell == "." else int(cell) - 1 for cell in row.split()] for row in reliability]
    )
    several = np.stack([(answers == value).sum(0) for value in range(5)], axis=1)
    agreement = measure_agreement(several, answers.T, tuple("abcd"))
    assert agreement.alpha == pytest.approx(0.743, abs=5e-4)
    assert [n for _, n, _ in agreement.annotators] == [9, 11, 10, 11]
    perfect = np.array([[2, 0], [0, 2], [1, 0]])
    assert measure_agreement(perfect).alpha == 1
    assert np.isnan(measure_agreement(np.array([[1, 0], [0, 1]])).alpha)


def test_without_labels_only_columns_are_described() -> None:
    summary = summarize(open_table(pd.DataFrame({"x": [1.5, 2, 4], "y": ["a", "b", "a"]})))
    assert [column.role for column in summary.columns] == ["number", "category"]
    assert summary.classes == []
    assert summary.as_dict()["labels"]["mean_candidates"] is None


def test_classes_that_are_nearly_always_together_are_noted() -> None:
    draw = np.random.default_rng(0)
    names = np.array(["cat", "dog", "emu", "fox", "gnu"])
    truth = draw.integers(5, size=1500)
    sets = np.eye(5, dtype=bool)[truth] | (draw.random((1500, 5)) < 0.1)
    pets = (truth < 2) & (draw.random(1500) < 0.97)
    sets[pets, :2] = True
    labels = ["|".join(names[row]) for row in sets]
    frame = pd.DataFrame({"x": draw.random(1500), "label": labels})
    summary = summarize(open_table(frame, LabelSource(label="label")))
    (note,) = [note for note in summary.notes if note.kind == "entangled classes"]
    assert "'cat' and 'dog'" in note.text

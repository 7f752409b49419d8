"""Labels from answers alone, and what they say about annotators."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from propall.labels.annotators import CrowdAnswers, EarlierAnswers, combine_answers
from propall.report.annotator_pages import consensus_page
from propall.tables.consensus import crowd_answers, decide
from propall.tables.crowd import (
    ASKABLE,
    combine_table,
    guess_answer_columns,
    report_crowd,
    with_usual_answers,
)
from propall.tables.label_columns import open_table
from propall.tables.label_source import LabelSource
from propall.tables.reading import read_table
from tests.labels.test_annotators import ask, confusions

CLASSES = np.array(["cat", "dog", "emu", "fox"])


def answers_of(n=600, skills=(0.95, 0.8, 0.6), answered=0.8, seed=0):
    """True labels, confusion matrices, and a wide table of answers."""
    draw = np.random.default_rng(seed)
    truth = draw.integers(0, 4, n)
    matrices = confusions(skills, 4, draw)
    answers = ask(truth, matrices, draw, answered)
    answers[answers.max(1) < 0, 0] = truth[answers.max(1) < 0]
    cells = np.where(answers >= 0, CLASSES[answers], "")
    return CLASSES[truth], matrices, pd.DataFrame(cells, columns=list("abc"))


def long_form(wide):
    rows = [(f"x{i}", name, cell) for i, row in wide.iterrows() for name, cell in row.items() if cell]
    return pd.DataFrame(rows, columns=["Item", "worker", "answer"])


WIDE = LabelSource(annotators=("a", "b", "c"))


def test_long_and_wide_form_give_the_same_labels() -> None:
    truth, _, wide = answers_of()
    one = combine_table(open_table(wide, WIDE))
    raw = read_table(long_form(wide))
    source = guess_answer_columns(raw)
    assert source == LabelSource(label="answer", item="Item", annotator="worker")
    other = combine_table(open_table(long_form(wide), source))
    assert (one.resolution.label == other.resolution.label).all()
    assert (one.resolution.label == truth).mean() > 0.9
    assert set(one.frame()["propall_by"]) == {"the answers"}


def test_the_report_agrees_with_the_simulation() -> None:
    truth, matrices, wide = answers_of(n=2000)
    report = report_crowd(combine_table(open_table(wide, WIDE)))
    by_name = report.annotators.set_index("annotator")
    actual = {name: (wide[name] == truth)[wide[name] != ""].mean() for name in wide}
    for name, share in actual.items():
        assert by_name.loc[name, "accuracy"] == pytest.approx(share, abs=0.03)
        assert by_name.loc[name, "answers"] == (wide[name] != "").sum()
    assert report.annotators["annotator"].tolist() == ["a", "b", "c"]  # most accurate first
    # The most frequent confusion of the worst annotator is one that the simulation gave it.
    worst = report.confusions[report.confusions["annotator"] == "c"].iloc[0]
    y, z = (int(np.flatnonzero(worst[side] == CLASSES)[0]) for side in ("true", "answered"))
    assert matrices[2, y, z] == pytest.approx(0.32, abs=0.01)
    assert worst["probability"] == pytest.approx(matrices[2, y, z], abs=0.08)
    assert 0 < report.agreement.alpha < 1


def test_questions_go_to_somebody_who_has_not_answered() -> None:
    _, _, wide = answers_of(answered=0.6)
    resolved = combine_table(open_table(wide, WIDE))
    questions = report_crowd(resolved, most=30).questions
    assert 0 < len(questions) <= 30
    assert questions["expected_gain"].is_monotonic_decreasing
    assert (questions["expected_gain"] >= 0).all()
    unanswered = [
        wide.loc[row - 1, who] == "" for row, who in zip(questions["row"], questions["ask"], strict=True)
    ]
    everybody = [(wide.loc[row - 1] != "").all() for row in questions["row"]]
    assert all(open_ or full for open_, full in zip(unanswered, everybody, strict=True))


def test_questions_are_those_with_the_largest_gain() -> None:
    """Against all rows and annotators; the least certain rows are not always worth most."""
    _, _, wide = answers_of(skills=(0.9, 0.55, 0.5), answered=0.6)
    resolved = combine_table(open_table(wide, WIDE))
    posterior = resolved.consensus.posterior
    gain = np.where(wide == "", posterior.expected_gain(np.arange(len(wide))), -1).max(1)
    full = (wide != "").all(axis=1).to_numpy()
    gain[full] = posterior.expected_gain_of_somebody(np.flatnonzero(full))
    questions = report_crowd(resolved, most=25).questions
    np.testing.assert_allclose(questions["expected_gain"], -np.sort(-gain)[:25])
    np.testing.assert_allclose(gain[questions["row"] - 1], questions["expected_gain"])
    assert set(questions["row"] - 1) != set(np.argsort(posterior.probabilities.max(1))[:25])
    assert report_crowd(resolved, most=0).questions.empty


def test_somebody_new_is_asked_if_everybody_has_answered() -> None:
    _, _, wide = answers_of(n=100, answered=1.0)
    assert set(report_crowd(combine_table(open_table(wide, WIDE))).questions["ask"]) == {"somebody new"}
    votes = pd.DataFrame({"cat": [2, 1, 0], "dog": [1, 1, 3]})
    resolved = combine_table(open_table(votes, LabelSource(votes=("cat", "dog"))))
    assert set(report_crowd(resolved).questions["ask"]) == {"somebody new"}


def test_the_report_is_written_and_shown(tmp_path) -> None:
    _, _, wide = answers_of(n=200)
    resolved = combine_table(open_table(wide, WIDE), errors="dawid_skene", class_priors="uniform")
    paths = report_crowd(resolved).write(tmp_path / "out.csv")
    assert [path.name for path in paths] == ["out_annotators.csv", "out_confusions.csv", "out_questions.csv"]
    assert list(pd.read_csv(paths[0])["annotator"]) == ["a", "b", "c"]
    page = consensus_page(resolved).to_html()
    assert "Krippendorff" in page
    assert "to ask about again first" in page


@pytest.mark.parametrize(
    "cells",
    [
        [["cat", "cat"], ["dog", "dog"]] * 5,  # all agree
        [["cat", "dog"], ["dog", "cat"]] * 5,  # contradictions
        [["cat", ""], ["cat", "dog"], ["cat", "emu"], ["cat", ""]],  # one always answers the same
        [["cat", "fox"], ["dog", ""], ["cat", ""], ["dog", ""]],  # an answer that nobody else has
    ],
)
def test_odd_answers(cells) -> None:
    table = open_table(pd.DataFrame(cells, columns=["a", "b"]), LabelSource(annotators=("a", "b")))
    resolved = combine_table(table)
    assert np.isfinite(resolved.resolution.probability).all()
    report = report_crowd(resolved)
    assert len(report.annotators) == 2
    assert consensus_page(resolved).to_html()


def test_one_row_with_many_answers_and_one_annotator_per_row() -> None:
    many = [("x0", f"w{i}", "cat" if i % 5 else "dog") for i in range(500)]
    rows = [*many, *((f"x{i}", f"v{i}", "dog") for i in range(1, 40))]
    frame = pd.DataFrame(rows, columns=["item", "annotator", "answer"])
    resolved = combine_table(open_table(frame, guess_answer_columns(read_table(frame))))
    assert resolved.resolution.label[0] == "cat"
    assert (resolved.resolution.label[1:] == "dog").all()


def test_answers_that_do_not_count_as_an_annotators_are_noted() -> None:
    wide = pd.DataFrame({"a": ["cat|dog", "cat", "dog", "emu"], "b": ["cat", "cat", "dog", "emu"]})
    labeled = open_table(wide, LabelSource(annotators=("a", "b"))).labeled
    assert labeled.answers.tolist() == [[-1, 0], [0, 0], [1, 1], [2, 2]]
    notes = {note.kind: note.rows for note in labeled.notes}
    assert notes["several labels in an answer"] == (0,)
    rows = [("x", "a", "cat"), ("x", "a", "dog"), ("y", "a", "dog"), ("y", "a", "dog"), ("y", "b", "cat")]
    long = pd.DataFrame(rows, columns=["item", "annotator", "answer"])
    labeled = open_table(long, LabelSource(label="answer", item="item", annotator="annotator")).labeled
    assert labeled.answers.tolist() == [[1, -1], [1, 0]]
    notes = {note.kind: note.rows for note in labeled.notes}
    assert notes["several answers of an annotator"] == (0, 2)  # different ones and equal ones
    long.loc[4, "annotator"] = ""
    labeled = open_table(long, LabelSource(label="answer", item="item", annotator="annotator")).labeled
    assert labeled.answers.tolist() == [[1], [1]]
    assert {note.kind: note.rows for note in labeled.notes}["answer of nobody"] == (2,)


def test_answers_of_nobody_are_votes() -> None:
    rows = [("x", "", "cat"), ("x", "", "cat"), ("y", "", "dog"), ("z", "", "dog"), ("z", "", "cat")]
    long = pd.DataFrame(rows, columns=["item", "annotator", "answer"])
    resolved = combine_table(
        open_table(long, LabelSource(label="answer", item="item", annotator="annotator"))
    )
    assert resolved.labeled.answers is None
    assert resolved.resolution.label.tolist()[:2] == ["cat", "dog"]
    assert [name for name, _ in resolved.annotators] == ["every answer"]


def test_many_annotators_are_reported_in_little_time_and_memory() -> None:
    """Every answer is another person's: only the most accurate ones are considered for further answers."""
    draw = np.random.default_rng(0)
    rows = [
        (i, f"{who}{i}", CLASSES[(i % 4 + (draw.random() < 0.2)) % 4]) for i in range(400) for who in "vw"
    ]
    frame = pd.DataFrame(rows, columns=["item", "annotator", "answer"])
    resolved = combine_table(open_table(frame, guess_answer_columns(read_table(frame))))
    assert resolved.labeled.answers.itemsize == 1
    questions = report_crowd(resolved, most=20).questions
    accuracy = resolved.consensus.posterior.accuracy
    worst = np.sort(accuracy)[-ASKABLE]
    by_name = dict(zip(resolved.labeled.annotators, accuracy, strict=True))
    assert len(questions) == 20
    assert all(by_name[name] >= worst for name in questions["ask"])


def test_a_table_without_answers_is_refused() -> None:
    frame = pd.DataFrame({"label": ["a", "b", "a|b"], "x": [1, 2, 3]})
    with pytest.raises(ValueError, match="annotators: the labels are one column"):
        combine_table(open_table(frame, LabelSource(label="label")))
    with pytest.raises(ValueError, match="annotators: which columns hold the answers"):
        with_usual_answers(read_table(frame))


def long_table(rows, **columns):
    names = columns or {"item": 0, "annotator": 0, "answer": 0}
    frame = pd.DataFrame(rows, columns=list(names))
    return open_table(frame, guess_answer_columns(read_table(frame)))


def test_the_probability_is_among_all_classes() -> None:
    _, _, wide = answers_of()
    resolved = combine_table(open_table(wide, WIDE))
    posterior = resolved.consensus.posterior
    frame = resolved.frame()
    np.testing.assert_allclose(frame["propall_probability"], posterior.probabilities.max(1), atol=1e-6)
    agreed = wide.apply(lambda row: len(set(row) - {""}) == 1, axis=1).to_numpy()
    assert frame["propall_probability"][agreed].max() < 1  # a single answer is not certain
    assert sum(row.before for row in resolved.counts()) == agreed.sum()
    assert resolved.ambiguous == len(wide) - agreed.sum()


def test_questions_are_those_with_the_largest_gains() -> None:
    _, _, wide = answers_of(answered=0.6)
    resolved = combine_table(open_table(wide, WIDE))
    posterior, answers = resolved.consensus.posterior, resolved.labeled.answers
    gains = np.where(answers >= 0, -1, posterior.expected_gain(np.arange(len(wide))))
    expected = np.sort(gains[(answers < 0).any(1)].max(1))[::-1][:30]
    questions = report_crowd(resolved, most=30).questions
    np.testing.assert_allclose(questions["expected_gain"], expected, atol=1e-12)


def test_nothing_is_asked_if_nothing_would_be_gained() -> None:
    rows = [(i, who, "cat" if i % 2 else "dog") for i in range(50) for who in ("ann", "bob", "eve")]
    assert len(report_crowd(combine_table(long_table(rows))).questions) == 0


def test_items_have_the_names_of_their_column() -> None:
    _, _, wide = answers_of(n=60)
    frame = long_form(wide).set_axis(["photo", "labeler", "verdict"], axis=1)
    raw = read_table(frame)
    assert guess_answer_columns(raw) is None
    source = guess_answer_columns(raw, "photo", "labeler")
    assert source == LabelSource(label="verdict", item="photo", annotator="labeler")
    questions = report_crowd(combine_table(open_table(frame, source))).questions
    assert questions["item"].str.fullmatch(r"x\d+").all()


def test_answers_that_are_not_weighed_are_noted() -> None:
    rows = [(f"x{i}", who, "cat" if i % 2 else "dog") for i in range(20) for who in ("ann", "bob")]
    rows += [("x0", "ann", "cat"), ("x1", "ann", "cat"), ("x2", "bob", "cat|dog"), ("x3", "", "emu")]
    table = long_table(rows)
    notes = {note.kind: note for note in table.notes}
    repeated = notes["several answers of an annotator"]
    assert repeated.text.startswith("2 answers of an annotator who had answered the row before")
    assert repeated.rows == (0, 2)
    assert notes["several labels in an answer"].text.startswith("1 answer with several labels")
    assert notes["answer of nobody"].text.startswith("1 answer without the name")
    labeled = table.labeled
    answered = [labeled.labels.classes[z] if z >= 0 else None for z in labeled.answers[0]]
    assert answered == ["cat", "dog"]  # the last answer of ann
    resolved = combine_table(table)
    assert resolved.notes == table.notes
    assert "2 answers of an annotator who had answered the row before" in consensus_page(resolved).to_html()


def test_a_report_replaces_only_reports(tmp_path) -> None:
    _, _, wide = answers_of(n=60)
    report = report_crowd(combine_table(open_table(wide, WIDE)))
    report.check_files(tmp_path / "labels.csv")
    report.write(tmp_path / "labels.csv")
    report.check_files(tmp_path / "labels.csv")
    (tmp_path / "labels_questions.csv").write_text("question,points\nWhat is it?,5\n")
    with pytest.raises(ValueError, match=r"would replace .*labels_questions.csv, which is another table"):
        report.check_files(tmp_path / "labels.csv")


def test_one_answer_per_row_shows_nobody_s_accuracy() -> None:
    rows = [(i, ("ann", "bob")[i % 2], ("cat", "dog", "emu")[i % 3]) for i in range(60)]
    resolved = combine_table(long_table(rows))
    note = next(note for note in resolved.notes if note.kind == "nothing to compare")
    assert "an accuracy of 67 % is assumed" in note.text
    assert len(report_crowd(resolved).confusions) == 0
    assert resolved.frame()["propall_probability"].max() == pytest.approx(2 / 3, abs=1e-6)
    assert resolved.resolution.label.tolist() == ["cat", "dog", "emu"] * 20
    page = consensus_page(resolved).to_html()
    assert "Nothing shows who is reliable: no row has two answers" in page
    assert "most accurate annotator" not in page


def test_one_answer_per_row_of_known_annotators() -> None:
    draw = np.random.default_rng(0)
    old = np.where(draw.random((200, 3)) < (0.95, 0.6, 0.9), (np.arange(200) % 3)[:, None], 1)
    old = CrowdAnswers.from_matrix(old, 3)
    earlier = EarlierAnswers.from_posterior(old, combine_answers(None, old))
    rows = [(i, ("ann", "bob", "eve")[i % 3], ("cat", "dog", "emu")[i // 3 % 3]) for i in range(180)]
    resolved = combine_table(long_table(rows))
    labeled = resolved.labeled
    assert labeled.annotators == ("ann", "bob", "eve")
    posterior = combine_answers(None, crowd_answers(labeled), earlier=earlier)
    known = decide(posterior, labeled, labeled.labels.to_numpy(), resolved.resolution.classes)
    resolved = replace(resolved, consensus=known, notes=[])
    report = report_crowd(resolved)
    assert "bob" in report.confusions["annotator"].to_list()
    assert report.annotators["annotator"].iloc[-1] == "bob"
    page = consensus_page(resolved).to_html()
    assert "Nothing shows who is reliable" not in page
    assert "Assumed, since" not in page
    assert "Answers to other rows in the fit count, too." in page

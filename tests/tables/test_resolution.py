"""Resolving and predicting the labels of a table."""

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest

from propall.tables.fitting import fit_table
from propall.tables.label_columns import open_table
from propall.tables.label_source import LabelSource
from propall.tables.model import TableModel
from propall.tables.reading import read_table
from propall.tables.resolution import predict_file, resolve_file, resolve_training_rows
from propall.tables.writing import write_table
from tests.fixtures.tables import QUICK, write_birds


def test_the_same_table_with_answers(fitted, birds_file) -> None:
    resolved = resolve_file(fitted.model, birds_file)
    out = resolved.frame()
    original = read_table(birds_file).frame
    pd.testing.assert_frame_equal(out[original.columns], original)
    assert resolved.seen.all()
    for row in out.itertuples():
        if row.species and "|" not in row.species and "!" not in row.species:
            assert row.propall_label == row.species
            assert row.propall_probability == 1
        elif "|" in row.species and "!" not in row.species:
            assert row.propall_label in row.species.split("|")
    assert ((out["propall_doubt"] >= 0) & (out["propall_doubt"] <= 1)).all()
    assert (out["propall_margin"] <= out["propall_probability"] + 1e-9).all()
    first = out["propall_alternatives"].iloc[0].split("; ")
    chances = [float(part.rpartition(" ")[2]) for part in first]
    assert len(first) == 3
    assert chances == sorted(chances, reverse=True)
    assert set(out["propall_by"]) == {"models that did not see it"}
    again = resolve_training_rows(fitted).frame()
    assert again["propall_label"].tolist() == out["propall_label"].tolist()


def test_rows_that_cannot_be_used_stay_in_the_table(fitted, tmp_path) -> None:
    write_birds(tmp_path / "dirty.csv", 60, seed=3)
    frame = pd.read_csv(tmp_path / "dirty.csv", dtype=object, keep_default_na=False)
    frame.loc[4, "species"] = "mew gull|!great skua"
    frame.loc[5, "species"] = "dodo"
    frame.loc[6, "species"] = "herrng gull"
    resolved = resolve_file(fitted.model, frame)
    out = resolved.frame()
    assert len(out) == 60
    assert out.loc[4, "propall_note"] == "left out: lists both candidates and labels that are ruled out"
    assert "'dodo' is not a class" in out.loc[5, "propall_note"]
    assert out.loc[5, "propall_label"] is None
    assert out.loc[6, "propall_label"] == "herring gull"
    assert set(out["propall_by"].dropna()) == {"the model"}
    counts = {row.name: row for row in resolved.counts()}
    assert sum(row.after for row in counts.values()) == 58
    assert resolved.as_dict()["resolved"] == 58


def test_doubted_rows_are_noted(fitted, birds_file) -> None:
    frame = pd.read_csv(birds_file, dtype=object, keep_default_na=False)
    wrong = {"great skua": "common tern", "common tern": "great skua", "arctic tern": "great skua"}
    rows = frame["truth"].isin(wrong)
    frame.loc[rows, "species"] = frame.loc[rows, "truth"].map(wrong)
    out = resolve_file(fitted.model, frame).frame()
    doubted = out["propall_note"].str.contains("all candidates are probably wrong")
    assert doubted[rows].mean() > 0.8
    assert doubted[~rows].mean() < 0.2


def test_labels_may_stand_elsewhere(fitted, birds_file) -> None:
    frame = pd.read_csv(birds_file, dtype=object, keep_default_na=False)
    resolved = resolve_file(
        fitted.model, frame.rename(columns={"species": "guess"}), LabelSource(label="guess")
    )
    assert resolved.ambiguous > 50
    with pytest.raises(ValueError, match="has no column 'species'; specify where the labels are"):
        resolve_file(fitted.model, frame.drop(columns="species"))


def test_predictions(fitted, tmp_path) -> None:
    truth = write_birds(tmp_path / "new.csv", 50, seed=8)
    predicted = predict_file(fitted.model, tmp_path / "new.csv", all_probabilities=True)
    assert (predicted.frame["propall_label"] == truth).mean() > 0.7
    every = predicted.frame[[f"propall_p_{name}" for name in fitted.model.classes]].to_numpy(dtype=float)
    np.testing.assert_allclose(every.sum(1), 1, atol=1e-5)
    np.testing.assert_allclose(every.max(1), predicted.frame["propall_probability"].astype(float), atol=1e-9)
    assert sum(rows for _, rows, _ in predicted.counts()) == 50


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "json", "parquet", "feather", "xlsx"])
def test_tables_are_read_back_as_written(tmp_path, ending) -> None:
    needed = {"parquet": "pyarrow", "feather": "pyarrow", "xlsx": "openpyxl"}.get(ending)
    if needed and find_spec(needed) is None:
        pytest.skip(f"needs {needed}")
    frame = pd.DataFrame({"x": ["1", "2"], "propall_label": ["Möwe", "a|b"]}, index=[3, 9])
    path = write_table(frame, tmp_path / "deep" / f"out.{ending}")
    again = read_table(path).frame.map(str)
    assert again.to_numpy().tolist() == frame.to_numpy().tolist()
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_odd_endings_are_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"out: table\.docx has the suffix \.docx"):
        write_table(pd.DataFrame({"x": [1]}), tmp_path / "table.docx")


def test_a_model_weighs_people_as_its_fit_did(tmp_path) -> None:
    truth = write_birds(tmp_path / "birds.csv", 120)
    frame = pd.read_csv(tmp_path / "birds.csv", dtype=object).drop(columns="species")
    draw = np.random.default_rng(0)
    for name, skill in (("ann", 0.9), ("bob", 0.6), ("eve", 0.6)):
        frame[name] = [t if draw.random() < skill else str(draw.choice(truth)) for t in truth]
    table = open_table(frame, LabelSource(annotators=("ann", "bob", "eve")))
    fitted = fit_table(table, QUICK)
    by_fit, by_model = resolve_training_rows(fitted), resolve_file(fitted.model, frame)
    assert [name for name, _ in by_model.annotators] == ["ann", "bob", "eve"]
    skills = dict(by_model.annotators)
    assert skills["ann"] > max(skills["bob"], skills["eve"])
    assert (by_fit.resolution.label == by_model.resolution.label).all()
    alone = (fitted.search.out_of_fold_.label == np.array(truth)).mean()
    assert (by_model.resolution.label == np.array(truth)).mean() > alone
    single = resolve_file(fitted.model, frame.iloc[:1])  # nothing is left to predict held-out answers from
    assert single.resolution.label.tolist() == by_model.resolution.label[:1].tolist()


def test_cells_the_model_cannot_use_are_said(fitted, tmp_path) -> None:
    write_birds(tmp_path / "new.csv", 30, seed=8)
    frame = pd.read_csv(tmp_path / "new.csv", dtype=object, keep_default_na=False)
    frame.loc[2, "habitat"] = "moon"
    frame.loc[3, "wing_mm"] = "long"
    frame.loc[4, "habitat"] = ""
    for resolved in (predict_file(fitted.model, frame), resolve_file(fitted.model, frame)):
        reported = {r.kind: (r.text, r.rows) for r in resolved.notes if r.kind.startswith("un")}
        assert reported["unreadable values"] == ("'wing_mm': 'long' is not a number; read as missing", (3,))
        assert reported["unknown category"][1] == (2,)
        assert "'moon'" in reported["unknown category"][0]


def answered(n: int, skills: dict[str, float], seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """A table of numbers with the answers of annotators, and the true classes."""
    draw = np.random.default_rng(seed)
    names, truth = np.array(["cat", "dog", "emu"]), draw.integers(0, 3, n)
    frame = pd.DataFrame(1.5 * np.eye(3)[truth] + draw.normal(size=(n, 3)), columns=list("xyz"))
    for name, skill in skills.items():
        wrong = (truth + draw.integers(1, 3, n)) % 3
        frame[name] = names[np.where(draw.random(n) < skill, truth, wrong)]
    return frame, names[truth]


SKILLS = {"ann": 0.95, "bob": 0.55, "eve": 0.55}


@pytest.fixture(scope="module")
def crowd_model(tmp_path_factory) -> tuple[TableModel, pd.DataFrame]:
    frame, _ = answered(300, SKILLS, seed=0)
    table = open_table(frame, LabelSource(annotators=tuple(SKILLS)))
    folder = fit_table(table, QUICK).model.save(tmp_path_factory.mktemp("crowd") / "model")
    return TableModel.load(folder), frame


def without_annotators(model: TableModel) -> TableModel:
    return replace(model, annotators=None)


def test_annotators_of_the_fit_are_known(crowd_model) -> None:
    model, _ = crowd_model
    correct: dict[str, list[bool]] = {"known": [], "unknown": []}
    for seed in range(1, 11):
        frame, truth = answered(6, SKILLS, seed)
        known, unknown = resolve_file(model, frame), resolve_file(without_annotators(model), frame)
        skills = dict(known.annotators)
        assert skills["ann"] > 0.85
        assert max(skills["bob"], skills["eve"]) < 0.7
        correct["known"] += (known.resolution.label == truth).tolist()
        correct["unknown"] += (unknown.resolution.label == truth).tolist()
    assert np.mean(correct["known"]) > 0.85
    assert np.mean(correct["known"]) > np.mean(correct["unknown"])


def test_answers_on_training_rows_count_once(crowd_model) -> None:
    model, frame = crowd_model
    whole, alone = resolve_file(model, frame), resolve_file(without_annotators(model), frame)
    np.testing.assert_array_equal(whole.resolution.probabilities, alone.resolution.probabilities)
    labeled = resolve_file(model, frame[:150]).labeled
    earlier = model.earlier_answers(labeled, np.ones(150, dtype=bool))
    assert earlier is not None
    np.testing.assert_allclose(earlier.sum((1, 2)), 150, rtol=1e-5)  # the other half
    again = model.earlier_answers(labeled, np.zeros(150, dtype=bool))
    assert again is not None
    np.testing.assert_allclose(again.sum((1, 2)), 300, rtol=1e-5)


def test_new_annotators_beside_known_ones(crowd_model) -> None:
    model, _ = crowd_model
    frame, _ = answered(8, {"zoe": 0.9, "eve": 0.4}, seed=5)
    resolved = resolve_file(model, frame, LabelSource(annotators=("zoe", "eve")))
    earlier = model.earlier_answers(resolved.labeled, resolved.seen)
    assert earlier is not None
    assert not earlier[0].any()
    text = "'eve': 300 answers in the fit count for how reliable they are"
    assert [note.text for note in resolved.notes if note.kind == "known annotators"] == [text]
    assert earlier[1].sum() == pytest.approx(300, rel=1e-5)
    frame, _ = answered(8, {"zoe": 0.9, "kim": 0.4}, seed=5)
    source = LabelSource(annotators=("zoe", "kim"))
    resolved = resolve_file(model, frame, source)
    assert model.earlier_answers(resolved.labeled, resolved.seen) is None


def test_damaged_counts_of_annotators_are_refused(crowd_model, tmp_path) -> None:
    model, _ = crowd_model
    assert model.annotators is not None
    for counts in (model.annotators.counts[:2], -model.annotators.counts):
        changed = replace(model, annotators=model.annotators._replace(counts=counts))
        folder = changed.save(tmp_path / "model")
        with pytest.raises(ValueError, match=r"annotators\.safetensors is not a valid propall model"):
            TableModel.load(folder)

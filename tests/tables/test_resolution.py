"""Resolving and predicting the labels of a table."""

import tracemalloc
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
import torch

from propall.labels.annotators import CrowdAnswers, EarlierAnswers, combine_answers
from propall.report.annotator_pages import annotator_sections
from propall.report.page import Page
from propall.tables import consensus, evaluation
from propall.tables.consensus import KnownAnnotators
from propall.tables.crowd import report_crowd
from propall.tables.fitting import fit_table
from propall.tables.label_columns import open_table
from propall.tables.label_source import LabelSource
from propall.tables.model import ANNOTATORS, TableModel
from propall.tables.reading import read_table
from propall.tables.resolution import predict_file, resolve_file, resolve_training_rows
from propall.tables.writing import write_table
from propall.training.checkpoint import write_tensors
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


def earlier_answers(model: TableModel, frame: pd.DataFrame, **changes) -> EarlierAnswers | None:
    """What the fit knows beside the rows of a table."""
    table = resolve_file(model, frame, LabelSource(annotators=tuple(SKILLS)))
    _, rows = model.resolve(frame, table.labeled.labels)
    return model.earlier_answers(replace(table.labeled, **changes), rows)


def test_answers_on_training_rows_count_once(crowd_model) -> None:
    model, frame = crowd_model
    whole, alone = resolve_file(model, frame), resolve_file(without_annotators(model), frame)
    np.testing.assert_array_equal(whole.resolution.probabilities, alone.resolution.probabilities)
    assert earlier_answers(model, frame) is None
    half = frame[:150].assign(bob="")  # whose answers are elsewhere
    copies = pd.concat([half, half], ignore_index=True)  # of the same rows
    earlier = earlier_answers(model, copies)
    np.testing.assert_array_equal(earlier.answers.n_answers, [150, 300, 150])
    assert earlier.answers.votes.nonzero()[0].min() == 0
    assert earlier.answers.of_rows(np.arange(150)).n_answers.tolist() == [0, 150, 0]
    corrected = frame.assign(ann="emu", eve=np.where(np.arange(300) % 2, frame["eve"], ""))
    earlier = earlier_answers(model, corrected[:100])
    np.testing.assert_array_equal(earlier.answers.n_answers, [200, 200, 250])


def test_a_table_in_two_parts_is_resolved_as_a_whole(crowd_model) -> None:
    """One annotator answered only rows of the first part, another one only rows of the second."""
    _, frame = crowd_model
    first = np.arange(300) < 150
    frame = frame.assign(ann=frame["ann"].where(first, ""), bob=frame["bob"].where(~first, ""))
    model = fit_table(open_table(frame, LabelSource(annotators=tuple(SKILLS))), QUICK).model
    whole = resolve_file(model, frame)
    for part, n_earlier in ((first, [0, 150, 150]), (~first, [150, 0, 150])):
        resolved = resolve_file(model, frame[part])
        posterior = resolved.consensus.posterior
        np.testing.assert_array_equal(posterior.n_earlier, n_earlier)
        np.testing.assert_allclose(posterior.accuracy, whole.consensus.posterior.accuracy, atol=0.05)
        np.testing.assert_allclose(posterior.n_compared, whole.consensus.posterior.n_compared, rtol=1e-6)
        assert (resolved.resolution.label == whole.resolution.label[part]).mean() > 0.95


def test_new_rows_that_equal_training_rows(crowd_model) -> None:
    """With few columns, other rows have the same values: at most one earlier answer is left out for each."""
    frame, _ = answered(300, SKILLS, seed=0)
    frame[["x", "y", "z"]] = np.where(frame[["x", "y", "z"]] > 0.8, "high", "low")
    model = fit_table(open_table(frame, LabelSource(annotators=tuple(SKILLS))), QUICK).model
    new, _ = answered(30, SKILLS, seed=1)
    new[["x", "y", "z"]] = np.where(new[["x", "y", "z"]] > 0.8, "high", "low")
    resolved = resolve_file(model, new)
    assert resolved.seen.sum() >= 28
    n_earlier = resolved.consensus.posterior.n_earlier
    assert n_earlier.tolist() == [300 - resolved.seen.sum()] * 3
    assert dict(resolved.annotators)["ann"] > 0.85
    # Of rows of the fit itself, exactly those answers are left out.
    part = np.random.default_rng(0).permutation(300)[:120]
    earlier = earlier_answers(model, frame.iloc[part])
    rest = frame.drop(index=part)
    for a, name in enumerate(SKILLS):
        entries = earlier.answers.votes.tocoo()
        of_annotator = entries.col // 3 == a
        kept = frame.iloc[entries.row[of_annotator]][["x", "y", "z"]]
        kept = kept.assign(answer=model.classes[entries.col[of_annotator] % 3]).value_counts().to_dict()
        assert kept == rest[["x", "y", "z", name]].value_counts().to_dict()


def test_new_annotators_beside_known_ones(crowd_model) -> None:
    model, _ = crowd_model
    frame, _ = answered(8, {"zoe": 0.9, "eve": 0.4}, seed=5)
    resolved = resolve_file(model, frame, LabelSource(annotators=("zoe", "eve")))
    posterior = resolved.consensus.posterior
    assert posterior.n_earlier.tolist() == [0, 300]
    # An answer that was compared with those of ann, bob and a model, none of whom is in this table.
    assert posterior.n_compared[1] == pytest.approx(300 * (1 - 1 / 4) + 8 * (1 - 1 / 3), rel=1e-6)
    text = "'eve': 300 answers in the fit count for how reliable they are"
    assert [note.text for note in resolved.notes if note.kind == "known annotators"] == [text]
    frame, _ = answered(8, {"zoe": 0.9, "kim": 0.4}, seed=5)
    resolved = resolve_file(model, frame, LabelSource(annotators=("zoe", "kim")))
    assert not resolved.consensus.posterior.n_earlier.any()
    assert not [note for note in resolved.notes if note.kind == "known annotators"]


def test_answers_of_a_repeated_name_count_once(crowd_model) -> None:
    model, _ = crowd_model
    frame, _ = answered(8, SKILLS, seed=5)
    earlier = earlier_answers(model, frame, annotators=("ann", "ann", "eve"))
    np.testing.assert_array_equal(earlier.answers.n_answers, [0, 300, 300])


def test_unknown_annotators_need_no_memory() -> None:
    table = EarlierAnswers(
        CrowdAnswers.from_lists([0], [0], [0], (1, 2000, 200)), np.full((1, 200), 0.005), np.zeros(1)
    )
    known = KnownAnnotators(tuple(f"old {i}" for i in range(2000)), table)
    frame = pd.DataFrame({"x": ["1", "2"], **{f"new {i}": ["cat", "dog"] for i in range(2000)}})
    labeled = open_table(frame, LabelSource(annotators=tuple(frame.columns[1:]))).labeled
    tracemalloc.start()
    assert known.answers_elsewhere(labeled, np.zeros(2, dtype=int), np.zeros(1, dtype=int)) is None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2e6


def test_evaluation_knows_the_annotators_of_the_fit(crowd_model, monkeypatch) -> None:
    model, frame = crowd_model
    n_earlier = []

    def reach_consensus(*arguments, earlier, **options):
        n_earlier.append(None if earlier is None else earlier.answers.n_answers.tolist())
        return consensus.reach_consensus(*arguments, earlier=earlier, **options)

    monkeypatch.setattr(evaluation, "reach_consensus", reach_consensus)
    new, truth = answered(12, SKILLS, seed=4)
    result = evaluation.evaluate(model, read_table(new.assign(truth=truth)), "truth")
    assert result.resolved == (resolve_file(model, new).resolution.label == truth).mean()
    for rows, true in ((frame, 300), (frame, 100)):
        checked = rows.assign(truth=np.where(np.arange(300) < true, rows["ann"], ""))
        evaluation.evaluate(model, read_table(checked), "truth")
    assert n_earlier == [[300] * 3, None, [200] * 3]


def test_a_given_accuracy_is_not_what_the_fit_knows(crowd_model) -> None:
    _, frame = crowd_model
    table = open_table(frame, LabelSource(annotators=tuple(SKILLS)))
    fitted = fit_table(table, replace(QUICK, trust=0.7))
    np.testing.assert_allclose(fitted.consensus.posterior.accuracy, 0.7)
    new, _ = answered(10, SKILLS, seed=3)
    skills = dict(resolve_file(fitted.model, new).annotators)
    assert skills["ann"] > 0.85
    assert max(skills["bob"], skills["eve"]) < 0.7
    answers = consensus.crowd_answers(table.labeled)
    expected = combine_answers(fitted.model.held_out.log_probabilities, answers).probabilities
    np.testing.assert_allclose(fitted.model.annotators.table.probabilities, expected, atol=1e-3)
    given = fitted.consensus.posterior.probabilities
    assert np.abs(fitted.model.annotators.table.probabilities - given).max() > 0.1


def test_known_annotators_are_on_the_page(crowd_model, tmp_path) -> None:
    model, frame = crowd_model
    new, _ = answered(10, SKILLS, seed=3)
    resolved, whole = resolve_file(model, new), resolve_file(model, frame)
    report = report_crowd(resolved)
    assert report.annotators["answers_in_fit"].tolist() == [300, 300, 300]
    assert "answers_in_fit" not in report_crowd(whole).annotators
    report.write(tmp_path / "labels.csv")
    report_crowd(whole).check_files(tmp_path / "labels.csv")  # an older report of the same file
    said = "Answers to other rows in the fit count, too."
    pages = [Page("", "", [], annotator_sections(table)).to_html() for table in (resolved, whole)]
    assert [said in page for page in pages] == [True, False]
    assert ["answers to other rows in the fit" in page for page in pages] == [True, False]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"probabilities": np.zeros((299, 3), np.float32)}, "are not"),
        ({"probabilities": np.full((300, 3), np.nan, np.float32)}, "are not"),
        ({"weights": np.full(300, -1, np.float32)}, "are not"),
        ({"weights": np.zeros(299, np.float32)}, "are not"),
        ({"answers": np.array([[300, 0, 0]], np.int32)}, "rows: got index 300"),
        ({"answers": np.array([[0, 3, 0]], np.int32)}, "annotators: got index 3"),
        ({"answers": np.array([[0, 0, -1]], np.int32)}, "labels: got index -1"),
        ({"answers": np.zeros((3, 2), np.int32)}, r"shape \(3, 2\)"),
        ({"answers": np.zeros((3, 3), np.float32)}, "float32"),
        ({"names": '{"ann": 1}'}, "names"),
        ({"names": "[1, 2, 3]"}, "names"),
        ({"names": "["}, "cannot be read"),
    ],
)
def test_damaged_answers_of_annotators_are_refused(
    crowd_model, tmp_path, monkeypatch, change, reason
) -> None:
    def write(path, tensors, metadata=None):
        if path.name == ANNOTATORS:
            arrays = {name: torch.tensor(change[name]) for name in tensors if name in change}
            tensors, metadata = tensors | arrays, {"names": change.get("names", metadata["names"])}
        write_tensors(path, tensors, metadata)

    monkeypatch.setattr("propall.tables.model.write_tensors", write)
    folder = crowd_model[0].save(tmp_path / "model")
    with pytest.raises(ValueError, match=rf"model: .*annotators\.safetensors .*{reason}.* unmodified copy"):
        TableModel.load(folder)


def test_answers_of_annotators_without_training_rows_are_refused(crowd_model, tmp_path) -> None:
    folder = replace(crowd_model[0], held_out=None).save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"annotators\.safetensors is not a valid propall model"):
        TableModel.load(folder)


def test_models_are_saved_over_older_ones(crowd_model, tmp_path) -> None:
    model, frame = crowd_model
    model.save(tmp_path / "model")
    again = TableModel.load(model.save(tmp_path / "model"))
    new, _ = answered(10, SKILLS, seed=3)
    for table in (new, frame):
        probabilities = [resolve_file(m, table).resolution.probabilities for m in (again, model)]
        np.testing.assert_array_equal(*probabilities)
    assert ANNOTATORS not in [p.name for p in without_annotators(model).save(tmp_path / "model").iterdir()]

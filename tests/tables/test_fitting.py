"""Fitting a model to a table."""

import json
import os
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from propall.estimators.ensemble import Standardization
from propall.provenance import hardware
from propall.tables import fitting
from propall.tables.evaluation import evaluate
from propall.tables.fitting import FitOptions, fit_table, load_embedding
from propall.tables.images import ImageColumn
from propall.tables.label_columns import open_table
from propall.tables.label_source import LabelSource
from propall.tables.model import TableModel
from propall.tables.reading import read_table
from propall.tables.resolution import predict_file, resolve_file
from propall.training.compiled import best_device
from tests.fixtures.tables import QUICK, write_birds

LABELS = LabelSource(label="label")


def test_fitting_and_its_account(fitted, birds_file) -> None:
    truth = pd.read_csv(birds_file)["truth"].to_numpy()
    assert (fitted.consensus.resolution.label == truth).mean() > 0.8  # out of fold
    assert (fitted.model.predict(fitted.table.frame) == truth).mean() > 0.7
    account = json.loads(json.dumps(fitted.model.account))
    assert fitted.hardware == hardware(best_device())
    assert account["used"] == 240
    assert account["settings_compared"] == 4
    assert account["chosen"]["net"] == "linear"
    assert 0.5 < account["held_out"]["covering_rate"] <= 1
    assert sum(account["resolved"].values()) == 240
    assert [row[0] for row in account["columns"]] == [
        "wing_mm",
        "bill_mm",
        "weight_g",
        "habitat",
        "seen",
        "notes",
    ]


def test_the_same_seed_gives_the_same_model(birds_file) -> None:
    table = open_table(birds_file, LabelSource(label="species"))
    options = FitOptions(nets=("linear",), epochs=3, members=1, folds=2, search=False, seed=5)
    one, other = (fit_table(table, options).model.log_probabilities(table.frame) for _ in range(2))
    np.testing.assert_array_equal(one, other)


def test_copies_of_the_labels_are_left_out(birds_file) -> None:
    options = FitOptions(nets=("linear",), epochs=1, members=1, folds=2, search=False)
    fitted = fit_table(open_table(birds_file, LabelSource(label="species")), options)
    assert "truth" not in [column.name for column in fitted.model.features.columns]
    assert any(r.kind == "copy of the labels" and "'truth'" in r.text for r in fitted.notes)
    named = fit_table(
        open_table(birds_file, LabelSource(label="species")), options, columns=["truth", "wing_mm"]
    )
    assert [column.name for column in named.model.features.columns] == ["truth", "wing_mm"]


def test_the_first_model_precedes_the_search(birds_file) -> None:
    seen = []
    options = FitOptions(epochs=2, members=1, folds=2)

    def interrupted(model):
        seen.append(model)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_table(open_table(birds_file, LabelSource(label="species")), options, first_model=interrupted)
    assert len(seen[0].predict(open_table(birds_file).frame)) == 240


def test_methods_without_a_network(birds_file, tmp_path) -> None:
    options = FitOptions(methods=("pl_knn",), members=2, folds=2)
    fitted = fit_table(open_table(birds_file, LabelSource(label="species")), options)
    assert fitted.curves is None
    assert fitted.model.account["chosen"]["method"] == "pl_knn"
    again = TableModel.load(fitted.model.save(tmp_path / "model"))
    frame = fitted.table.frame
    np.testing.assert_array_equal(again.log_probabilities(frame), fitted.model.log_probabilities(frame))


def test_embeddings(tmp_path) -> None:
    truth = write_birds(tmp_path / "birds.csv", 120, dirty=True)
    order = sorted(set(truth))
    E = np.eye(len(order))[[order.index(name) for name in truth]] + 0.1
    np.save(tmp_path / "e.npy", E.astype(np.float32))
    table = open_table(tmp_path / "birds.csv", LabelSource(label="species"))
    options = FitOptions(nets=("linear",), members=1, folds=3, search=False)
    fitted = fit_table(table, options, embedding=load_embedding(tmp_path / "e.npy"))
    assert fitted.search.best_params_["epochs"] == 500  # few rows, many epochs
    right = np.array(truth)[table.frame.index]
    assert (fitted.model.classes[fitted.consensus.resolution.probabilities.argmax(1)] == right).mean() > 0.95
    with pytest.raises(ValueError, match="119 rows for 120 rows"):
        fit_table(table, QUICK, embedding=E[1:])


def test_invalid_embeddings_are_refused(tmp_path) -> None:
    np.save(tmp_path / "a.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"is not a .npy file of numbers"):
        load_embedding(tmp_path / "a.npy")
    np.save(tmp_path / "b.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"shape \(3,\); expected \(n, d\)"):
        load_embedding(tmp_path / "b.npy")


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        (b"{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776, 8), }", "is not a .npy file"),
        (b"{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4, ", "is not a .npy file"),
        (b"{'descr': '|O', 'fortran_order': False, 'shape': (3, 4), }", "is not a .npy file"),
        (b"{'descr': '<f8', 'fortran_order': False, 'shape': (0, 4), }", "expected"),
    ],
)
def test_damaged_embeddings_are_refused(tmp_path, header, problem) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(
        b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + header.ljust(117) + b"\n" + bytes(96)
    )
    with pytest.raises(ValueError, match=rf"embeddings: .*a.npy .*{problem}"):
        load_embedding(path)
    np.savez(tmp_path / "b.npz", a=np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"b.npz is an .npz archive; save one array"):
        load_embedding(tmp_path / "b.npz")


def test_images(tmp_path) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs Pillow")
    draw = np.random.default_rng(0)
    labels, names = [], []
    for i in range(60):
        bright = i % 2
        pixels = draw.integers(0, 100, (12, 12, 3)) + 150 * bright
        names.append(f"{i}.png")
        image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(tmp_path / names[-1])
        labels.append("day|night" if i % 5 == 0 else ["night", "day"][bright])
    pd.DataFrame({"file": names, "label": labels}).to_csv(tmp_path / "pictures.csv", index=False)
    table = open_table(tmp_path / "pictures.csv", LabelSource(label="label"))
    options = FitOptions(epochs=6, members=1, folds=2, search=False)
    fitted = fit_table(table, options, images=ImageColumn("file", 12))
    assert fitted.features.shape == (60, 3, 12, 12)
    assert fitted.search.best_params_["net"] == "small_cnn"
    truth = np.array(["night", "day"] * 30)
    assert (fitted.consensus.resolution.label == truth).mean() > 0.9
    with_views = fit_table(table, replace(options, views=True), images=ImageColumn("file", 12))
    assert with_views.search.best_estimator_.views is True
    probabilities = [f.consensus.resolution.probabilities for f in (fitted, with_views)]
    assert not np.allclose(*probabilities)
    with pytest.raises(ValueError, match="images: the table has no column 'fil'; did you mean 'file'"):
        fit_table(table, options, images=ImageColumn("fil", 12))
    with pytest.raises(ValueError, match=r"^views: the features are not images"):
        fit_table(table, replace(options, views=True), columns=["file"])
    (tmp_path / "3.png").write_bytes(b"broken")
    (tmp_path / "4.png").unlink()
    again = fit_table(
        open_table(tmp_path / "pictures.csv", LabelSource(label="label")),
        options,
        images=ImageColumn("file", 12),
    )
    assert again.model.account["used"] == 58
    assert [r.rows for r in again.notes if r.kind == "broken image"] == [(3,), (4,)]


def test_unreadable_images_are_named_and_left_out(tmp_path) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs Pillow")
    pixels = np.random.default_rng(0).integers(0, 255, (64, 64, 3)).astype(np.uint8)
    names = ["whole.jpg", "cut.jpg", "bomb.png", "pipe.png", "folder.png", "missing.png"]
    image.fromarray(pixels).save(tmp_path / "whole.jpg")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "whole.jpg").read_bytes()[:1500])
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "folder.png").mkdir()
    image.new("1", (20_000, 20_000)).save(tmp_path / "bomb.png")
    frame = pd.DataFrame({"file": names})
    readable, notes = ImageColumn("file", 8).openable(frame, tmp_path)
    assert readable.tolist() == [True] + [False] * 5
    assert {note.text for note in notes} == {
        "the file is not an image or is damaged: 'cut.jpg'",
        "the image has too many pixels: 'bomb.png'",
        "it is not a file that can be read: 'pipe.png', 'folder.png'",
        "the image file does not exist: 'missing.png'",
    }
    table = open_table(frame.assign(file=[str(tmp_path / n) for n in names], label=["a", "b"] * 3), LABELS)
    with pytest.raises(ValueError, match=r"strict: 5 rows of data frame cannot be used: .*cut.jpg"):
        fit_table(table, FitOptions(strict=True), images=ImageColumn("file", 8))


def test_a_resolved_table_is_fitted_without_its_answers(fitted, birds_file) -> None:
    resolved = resolve_file(fitted.model, birds_file).frame()
    options = FitOptions(epochs=1, members=1, folds=2, search=False)
    again = fit_table(open_table(resolved, LabelSource(label="species")), options)
    assert [c.name for c in again.model.features.columns] == [c.name for c in fitted.model.features.columns]
    (note,) = [note for note in again.notes if note.kind == "own answers"]
    assert "'propall_probability'" in note.text


def test_images_are_recognized_by_their_contents(tmp_path) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs Pillow")
    draw = np.random.default_rng(0)
    for folder in ("here", "there"):  # different images of the same names
        (tmp_path / folder).mkdir()
        for i in range(12):
            pixels = draw.integers(0, 255, (8, 8, 3)).astype(np.uint8)
            image.fromarray(pixels).save(tmp_path / folder / f"{i}.png")
        frame = pd.DataFrame({"file": [f"{i}.png" for i in range(12)], "label": ["a", "b", "a|b"] * 4})
        frame.assign(truth=["a", "b", "b"] * 4).to_csv(tmp_path / folder / "t.csv", index=False)
    table = open_table(tmp_path / "here" / "t.csv", LabelSource(label="label"))
    options = FitOptions(epochs=1, members=1, folds=2, search=False)
    model = fit_table(table, options, images=ImageColumn("file", 8)).model
    assert resolve_file(model, tmp_path / "here" / "t.csv").seen.all()
    assert not resolve_file(model, tmp_path / "there" / "t.csv").seen.any()
    (tmp_path / "here" / "3.png").write_bytes(b"broken")
    resolved = resolve_file(model, tmp_path / "here" / "t.csv")
    assert resolved.frame()["propall_note"][3] == "left out: the file is not an image or is damaged: '3.png'"
    predicted = predict_file(model, tmp_path / "here" / "t.csv")
    assert predicted.frame["propall_label"].notna().tolist() == [i != 3 for i in range(12)]
    (note,) = predicted.notes
    assert note.action == "left blank"
    assert str(note) == "the file is not an image or is damaged: '3.png'; not predicted (row 4)"
    assert evaluate(model, read_table(tmp_path / "here" / "t.csv"), "truth").rows == 11
    with pytest.raises(ValueError, match="images: cannot be combined with columns or embeddings"):
        fit_table(table, options, images=ImageColumn("file", 8), columns=["truth"])


def test_unknown_names_are_refused_first(birds_file) -> None:
    table = open_table(birds_file, LabelSource(label="species"))
    with pytest.raises(ValueError, match="did you mean 'propall'"):
        fit_table(table, FitOptions(methods=("propal",)))
    with pytest.raises(ValueError, match="did you mean 'linear'"):
        fit_table(table, FitOptions(nets=("lineer",)))
    with pytest.raises(ValueError, match="the table has no labels"):
        fit_table(open_table(birds_file))


def test_column_names_are_checked(birds_file) -> None:
    table = open_table(birds_file, LabelSource(label="species"))
    with pytest.raises(ValueError, match=r"features: 'species' is a label column.*Leave it out"):
        fit_table(table, QUICK, columns=["wing_mm", "species"])
    with pytest.raises(
        ValueError, match=r"features: birds.csv has no column 'wing_m'; did you mean 'wing_mm'"
    ):
        fit_table(table, QUICK, columns=["wing_m"])
    with pytest.raises(ValueError, match=r"ignore: birds.csv has no column 'trut'; did you mean 'truth'"):
        fit_table(table, QUICK, without=["trut"])
    fitted = fit_table(table, replace(QUICK, epochs=2, folds=2), columns=["wing_mm", "truth"])
    assert [column.name for column in fitted.model.features.columns] == ["wing_mm", "truth"]
    assert "'truth' contains class names; make sure it is available for new rows" in [
        r.text for r in fitted.notes
    ]


def test_uninformative_labels_are_refused() -> None:
    frame = pd.DataFrame({"x": np.arange(12) ** 2, "label": ["cat|dog", "dog|cat", ""] * 4})
    table = open_table(frame, LabelSource(label="label"))
    with pytest.raises(ValueError, match="label: every class is possible in every row of data frame"):
        fit_table(table, QUICK)


def test_a_table_that_cannot_fit_into_memory_is_refused_first(monkeypatch) -> None:
    monkeypatch.setattr(fitting, "available_memory", lambda: 20 << 30)
    fitting.check_memory(30_000, 1000)
    with pytest.raises(ValueError, match=r"memory: 30000 rows x 10000 classes need at least 28 GiB; 20 GiB"):
        fitting.check_memory(30_000, 10_000)
    monkeypatch.setattr(fitting, "available_memory", lambda: None)
    fitting.check_memory(10**6, 10**6)
    monkeypatch.undo()
    assert fitting.available_memory() is None or fitting.available_memory() > 1 << 20


def counts(n: int = 150, columns: int = 10) -> pd.DataFrame:
    """Counts around 24 prototypes of three classes, and label sets of one or two candidates."""
    draw = np.random.default_rng(0)
    prototype = draw.integers(0, 24, n)
    roots = draw.gamma(0.6, 4, (24, columns))[prototype] + 0.8 * draw.normal(size=(n, columns))
    frame = pd.DataFrame((roots**2).astype(int), columns=[f"w{i}" for i in range(columns)])
    truth = prototype % 3
    other = np.where(draw.random(n) < 0.3, (truth + draw.integers(1, 3, n)) % 3, truth)
    frame["label"] = [f"{'abc'[a]}|{'abc'[b]}" for a, b in zip(truth, other, strict=True)]
    return frame


def test_square_roots_of_counts_are_tried(tmp_path) -> None:
    frame = counts()
    frame.loc[:9, "w0"] = np.nan
    frame.to_csv(tmp_path / "counts.csv", index=False)
    table = open_table(tmp_path / "counts.csv", LABELS)
    fitted = fit_table(table, FitOptions(effort="quick", device="cpu"))
    tried = {row["name"]: row for row in fitted.model.account["portfolio"]}
    assert tried["IPAL, square root"]["refusal"] == ""
    # The model is given standardized columns, and yet their roots are those of the counts.
    raw = frame.drop(columns="label")
    raw = raw.fillna(raw.median()).assign(gaps=frame["w0"].isna()).to_numpy(np.float64)
    expected = Standardization.fit(raw, None, "square root").apply(raw)
    member = fitted.search.members_["IPAL, square root"]
    np.testing.assert_allclose(member._inputs(fitted.features), expected, atol=1e-5)
    again = TableModel.load(fitted.model.save(tmp_path / "model"))
    assert "IPAL, square root" in again.account["chosen"]
    new = pd.concat([table.frame, table.frame.assign(w1=-1)])  # also below the minimum
    np.testing.assert_array_equal(again.log_probabilities(new), fitted.model.log_probabilities(new))


@pytest.mark.parametrize(
    ("changes", "tries_roots"),
    [
        ({}, True),
        ({"w0": lambda f: f["w0"] - 1.0}, True),  # one of ten
        ({"w0": lambda f: f["w0"] - 1.0, "w1": lambda f: f["w1"] - 1.0}, False),
        ({"w0": lambda f: f["w0"].astype(str) + "%", "w1": lambda f: f["w1"].where(f["w1"] > 1)}, True),
        ({"place": lambda f: ["lake", "sea", "sea"] * (len(f) // 3)}, True),  # one of eleven
        ({"w0": lambda f: ["lake", "sea", "sea"] * (len(f) // 3), "w1": lambda f: f["w1"] - 1.0}, False),
        ({"w0": lambda f: (pd.Timestamp("2020-01-01") + f["w0"] * pd.Timedelta(days=1)).dt.date,
          "w1": lambda f: f["w1"] - 1.0}, False),
    ],
    ids=["counts", "one-negative", "two-negative", "units-and-gaps", "category", "no-numbers", "date"],
)  # fmt: skip
def test_square_roots_are_tried_if_nearly_all_columns_are_non_negative_numbers(changes, tries_roots) -> None:
    table = open_table(counts().assign(**changes), LABELS)
    options = FitOptions(effort="quick", time_limit=0, device="cpu")
    names = [row["name"] for row in fit_table(table, options).search.results_]
    assert ("IPAL, square root" in names) == tries_roots
    assert ("IPAL" in names) != tries_roots


def test_square_roots_of_embeddings_are_tried() -> None:
    table = open_table(counts(), LABELS)
    options = FitOptions(effort="quick", time_limit=0, device="cpu")
    embedding = table.frame.drop(columns="label").to_numpy()
    for values, tries_roots in ((embedding, True), (embedding - 1, False)):
        names = [row["name"] for row in fit_table(table, options, embedding=values).search.results_]
        assert ("IPAL, square root" in names) == tries_roots
    table = open_table(counts().assign(w0=lambda f: f["w0"] - 1.0), LABELS)
    fitted = fit_table(table, options, columns=["w0", "w1"], embedding=embedding[:, :4])  # five of six
    assert "IPAL, square root" not in [row["name"] for row in fitted.search.results_]


def test_square_roots_are_tried_again_if_labels_are_doubted() -> None:
    lines: list[str] = []
    options = FitOptions(effort="quick", time_limit=0, trust=0.9, device="cpu", report=lines.append)
    fit_table(open_table(counts(), LABELS), options)
    assert sum(line.startswith("'IPAL, square root' left out") for line in lines) == 2

"""Training with doubt about the labels."""

import numpy as np
import pandas as pd
import pytest

from propall.tables import fitting
from propall.tables.fitting import FitOptions, fit_table
from propall.tables.label_columns import open_table
from propall.tables.label_source import LabelSource
from propall.tables.trust import choose_trust, parse_trust

QUICK = FitOptions(search=False, members=1, folds=3, epochs=150, nets=("linear",))


def blobs(n=400, seed=0):
    """Rows of three separable classes."""
    draw = np.random.default_rng(seed)
    truth = draw.integers(0, 3, n)
    x = np.eye(3)[truth] * 3 + draw.normal(size=(n, 3))
    return pd.DataFrame(x, columns=["x", "y", "z"]), np.array(["cat", "dog", "emu"])[truth]


def corrupted(truth, share, seed=1):
    draw = np.random.default_rng(seed)
    wrong = draw.random(len(truth)) < share
    other = {"cat": "dog", "dog": "emu", "emu": "cat"}
    return np.array([other[t] if w else t for t, w in zip(truth, wrong, strict=True)]), wrong


def test_single_answers_are_not_certain() -> None:
    """One answer per row: wrong ones get the true class as another candidate, and are resolved to it."""
    frame, truth = blobs()
    for name, share, seed in (("ann", 0.1, 1), ("bob", 0.4, 2)):
        frame[name] = corrupted(truth, share, seed)[0]
    asked = np.random.default_rng(3).random(len(frame)) < 0.5
    frame.loc[asked, "bob"], frame.loc[~asked, "ann"] = "", ""
    table = open_table(frame, LabelSource(annotators=("ann", "bob")))
    doubting, believing = (
        fit_table(table, FitOptions(**{**QUICK.__dict__, "trust": trust})) for trust in (None, "full")
    )
    assert believing.trust is None
    assert doubting.trust is not None
    said = np.where(asked, frame["ann"], frame["bob"])
    assert doubting.trust.share == pytest.approx((said == truth).mean(), abs=0.06)
    assert doubting.trust.widened > 20
    resolved = doubting.consensus.resolution.label
    assert (resolved == truth).mean() > (said == truth).mean() + 0.1
    assert (resolved == truth).mean() >= (believing.consensus.resolution.label == truth).mean() - 0.01
    skills = dict(doubting.consensus.annotators)
    assert skills["ann"] == pytest.approx(0.9, abs=0.06)
    assert skills["bob"] == pytest.approx(0.6, abs=0.08)
    assert doubting.model.account["trust"]["widened"] == doubting.trust.widened


def test_both_fits_share_a_time_limit(monkeypatch) -> None:
    frame, truth = blobs(120)
    for name, share, seed in (("ann", 0.2, 1), ("bob", 0.4, 2)):
        frame[name] = corrupted(truth, share, seed)[0]
    table = open_table(frame, LabelSource(annotators=("ann", "bob")))
    limits, make = [], fitting._portfolio

    def record(options, histograms):
        limits.append(options.time_limit)
        return make(options, histograms)

    monkeypatch.setattr(fitting, "_portfolio", record)
    assert fit_table(table, FitOptions(effort="quick", time_limit=0.01)).trust is not None
    assert limits == [0.005, 0.005]
    with pytest.raises(ValueError, match=r"time_limit: got 0\.01 for images, or with a method"):
        fit_table(table, FitOptions(methods=("cc",), time_limit=0.01))


def test_one_column_is_believed_unless_asked_otherwise() -> None:
    frame, truth = blobs()
    frame["label"], wrong = corrupted(truth, 0.25)
    table = open_table(frame, LabelSource(label="label"))
    assert fit_table(table, QUICK).trust is None
    for trust in ("auto", 0.75):
        fitted = fit_table(table, FitOptions(**{**QUICK.__dict__, "trust": trust}))
        assert fitted.trust.share == pytest.approx(0.75, abs=0.1)
        assert (fitted.consensus.doubt[wrong] > 0.5).mean() > 0.7
    assert choose_trust(None, table.labeled) == "full"


def test_trust_is_parsed() -> None:
    assert [parse_trust(text) for text in (None, "auto", "full", "0.8", "1")] == [
        None,
        "auto",
        "full",
        0.8,
        "full",
    ]
    for text in ("0", "1.5", "some"):
        with pytest.raises(ValueError, match="trust: got"):
            parse_trust(text)


def test_scores_and_lists_of_models_are_labels(tmp_path) -> None:
    frame, truth = blobs()
    draw = np.random.default_rng(0)
    said, _ = corrupted(truth, 0.3)
    scores = (
        0.1 + 0.7 * (np.array(["cat", "dog", "emu"]) == said[:, None]) + 0.2 * draw.random((len(said), 3))
    )
    scores /= scores.sum(1, keepdims=True)
    for i, name in enumerate(("cat", "dog", "emu")):
        frame[f"p_{name}"] = scores[:, i]
    source = LabelSource(scores=("p_cat", "p_dog", "p_emu"), sets="top_k=1")
    table = open_table(frame, source)
    labeled = table.labeled
    assert labeled.labels.classes == ("cat", "dog", "emu")
    assert labeled.from_model
    assert labeled.miss_rate == pytest.approx(0.29, abs=0.08)
    assert any("candidates per row; share of sets without the true label" in n.text for n in labeled.notes)
    fitted = fit_table(table, QUICK)
    assert fitted.trust is not None  # on by default for models
    assert (fitted.model.predict(frame) == truth).mean() > (said == truth).mean() + 0.1
    loaded = type(fitted.model).load(fitted.model.save(tmp_path / "model"))
    assert loaded.labels == source
    frame["lists"] = [f"- {t}\n- unicorn" if i == 5 else f"a {t.upper()}" for i, t in enumerate(said)]
    lists = open_table(frame, LabelSource(lists="lists", classes=("cat", "dog", "emu"))).labeled
    assert [row[0] for row in lists.labels.sets()] == said.tolist()
    assert any("'unicorn' (1) match no class" in note.text for note in lists.notes)
    with pytest.raises(ValueError, match="classes: missing"):
        LabelSource(lists="lists")
    with pytest.raises(ValueError, match="sets: got 'best'"):
        LabelSource(label="x", sets="best")


@pytest.mark.parametrize(("rule", "noted"), [("top_k=2", True), ("top_k=1", False), ("mass=0.8", False)])
def test_sets_that_never_single_out_a_class_are_noted(rule, noted) -> None:
    frame = pd.DataFrame({"x": [0.0, 1.0], "a": [0.9, 0.3], "b": [0.05, 0.4], "c": [0.05, 0.3]})
    labeled = open_table(frame, LabelSource(scores=("a", "b", "c"), sets=rule)).labeled
    assert any(note.kind == "no single candidates" for note in labeled.notes) is noted


def test_old_sources_keep_their_keys() -> None:
    keys = set(LabelSource(label="y").as_dict())
    assert not keys & {"scores", "lists", "sets"}
    source = LabelSource(scores=("p_a", "p_b"), sets="top_k=2")
    assert LabelSource.from_dict(source.as_dict()) == source

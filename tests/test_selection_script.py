"""results/scripts/selection.py: losses against the oracle, and the tables it writes."""

import json

import numpy as np
import pandas as pd
import pytest

from propall.data.corruption import Exactly
from results.scripts import selection
from results.scripts.selection import Study

TINY = {"methods": ("cc",), "nets": ("linear",), "learning_rates": (1e-5, 0.1), "weight_decays": (0.0,)}


def test_losses_by_hand():
    study = Study(
        settings=["a", "b", "c"],
        criteria={"good": np.array([[0, 1, 2], [0, 2, 1]]), "bad": np.array([[2, 1, 0], [2, 0, 1]])},
        accuracy=np.array([[0.5, 0.6, 0.8], [0.5, 0.9, 0.6]]),
    )
    assert study.settings[study.oracle] == "b"
    table = selection.compare_criteria({"some": study, "other": study})
    assert table["data"].tolist() == ["some", "some", "other", "other", "mean", "mean"]
    table = table[table["data"] == "some"].set_index("criterion")
    assert table["oracle"].tolist() == pytest.approx([75, 75])
    assert table["chosen"].tolist() == pytest.approx([85, 50])
    assert table["lost"].tolist() == pytest.approx([-10, 25])
    assert table["lost_by_fold"].tolist() == pytest.approx([0, 35])
    assert table["rank_correlation"].tolist() == pytest.approx([1, -1])
    assert table.loc["bad", "most_often"] == "a"
    again = Study.from_dict(json.loads(json.dumps(study.to_dict())))
    assert again.settings == study.settings
    np.testing.assert_array_equal(again.criteria["bad"], study.criteria["bad"])
    both = study.joined(again)
    assert both.settings == ["a", "b", "c"] * 2
    assert both.chosen("good").tolist() == [2, 1]


def test_a_failed_training_is_never_chosen():
    study = Study(["a", "b"], {"some": np.array([[np.nan, 0.1]])}, np.array([[0.1, 0.6]]))
    assert study.chosen("some").tolist() == [1]


def test_a_small_study():
    law = Exactly(n=2)
    study = selection.measure(
        "blobs", folds=2, inner_folds=2, epochs=10, grid=TINY, corruption=law, device="cpu"
    )
    assert study.settings == ["cc, linear, rate 1e-05, decay 0", "cc, linear, rate 0.1, decay 0"]
    assert study.accuracy.shape == (2, 2)
    table = selection.compare_criteria({"blobs": study})
    assert (table["lost"] < 2).all()
    assert (table["chosen"] > 70).all()
    raw = selection.measure(
        "blobs", folds=2, inner_folds=2, epochs=2, grid=TINY, standardize=False, corruption=law, device="cpu"
    )
    assert raw.settings[0].endswith("raw features")
    assert not np.array_equal(raw.accuracy, study.accuracy)


def test_the_table_says_where_it_comes_from(tmp_path):
    study = Study(["a", "b"], {"covering_rate": np.array([[0.5, 0.7]])}, np.array([[0.4, 0.6]]))
    raw = Study(["c"], {"covering_rate": np.array([[0.8]])}, np.array([[0.3]]))
    path = tmp_path / "results" / "selection.csv"
    selection.write_selection(path, data=["msrcv2"], studies={"msrcv2": (study, raw)}, epochs=7)
    table = pd.read_csv(path)
    assert table["data"].tolist() == ["msrcv2", "mean"] * 2
    assert table["lost"].tolist() == [0, 0, 30, 30]
    assert table["paper"][0] == 42.05
    assert set(table["epochs"]) == {7}
    assert {"protocol", "seed", "hardware", "version", "commit", "torch", "default"} <= set(table.columns)


def test_the_table_of_calibration(root, tmp_path):
    path = tmp_path / "calibration.csv"
    selection.write_calibration(path, methods=["cc"], epochs=1, device="cpu")
    table = pd.read_csv(path)
    assert table["data"].tolist() == ["digits", "digits", "birdsong", "birdsong"]
    assert table["candidates"].tolist() == ["uniform over proper supersets"] * 2 + ["as published"] * 2
    assert {"before", "after", "protocol", "seed", "hardware", "version", "commit"} <= set(table.columns)


def test_calibration_of_out_of_fold_confidences():
    law = Exactly(n=2)
    table = selection.measure_calibration(
        "blobs", methods=["cc"], nets=["linear"], epochs=60, corruption=law, device="cpu"
    )
    (line,) = table.to_dict("records")
    assert line["accuracy"] > 70
    assert line["after"] < line["before"]
    assert line["outside"] == 0
    assert 0 <= line["doubt_after"] < line["doubt_before"]

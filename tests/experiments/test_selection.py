"""Label-free selection against the oracle: what is counted as lost, and that truth is only looked up."""

import json

import numpy as np
import pytest

from propall.data.corruption import Exactly
from propall.experiments import selection
from propall.experiments.selection import Study

TINY = {"methods": ("cc",), "nets": ("linear",), "learning_rates": (1e-5, 0.1), "weight_decays": (0.0,)}


def test_losses_by_hand():
    study = Study(
        settings=["a", "b", "c"],
        criteria={"good": np.array([[0, 1, 2], [0, 2, 1]]), "bad": np.array([[2, 1, 0], [2, 0, 1]])},
        accuracy=np.array([[0.5, 0.6, 0.8], [0.5, 0.9, 0.6]]),
    )
    assert study.settings[study.oracle] == "b"
    table = selection.comparison({"some": study}).set_index("criterion")
    assert table["oracle"].tolist() == pytest.approx([75, 75])
    assert table["chosen"].tolist() == pytest.approx([85, 50])
    assert table["lost"].tolist() == pytest.approx([-10, 25])
    assert table["lost_by_fold"].tolist() == pytest.approx([0, 35])
    assert table["rank_correlation"].tolist() == pytest.approx([1, -1])
    assert table.loc["bad", "most_often"] == "a"
    assert Study(**json.loads(json.dumps(study.to_dict()))).settings == study.settings


def test_a_small_study():
    law = Exactly(n=2)
    study = selection.measure(
        "blobs", folds=2, inner_folds=2, epochs=10, grid=TINY, corruption=law, device="cpu"
    )
    assert study.settings == ["cc, linear, rate 1e-05, decay 0", "cc, linear, rate 0.1, decay 0"]
    assert study.accuracy.shape == (2, 2)
    table = selection.comparison({"blobs": study})
    assert (table["lost"] < 2).all()
    assert (table["chosen"] > 70).all()


def test_calibration_of_out_of_fold_confidences():
    law = Exactly(n=2)
    table = selection.calibration(
        "blobs", methods=["cc"], nets=["linear"], epochs=60, corruption=law, device="cpu"
    )
    (line,) = table.to_dict("records")
    assert line["accuracy"] > 70
    assert line["after"] < line["before"]
    assert line["outside"] == 0
    assert 0 <= line["doubt_after"] < line["doubt_before"]

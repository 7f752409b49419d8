"""results/scripts/table_suite.py: candidates by law, baselines, and the summary."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris

from results.scripts import table_suite as script

X, TRUTH = load_iris(return_X_y=True)


@pytest.mark.parametrize("law", script.LAWS)
def test_candidates(law) -> None:
    k = 3 if law == "instance-dependent" else 4
    mask = script.simulate(law, X, TRUTH, k, 0)
    contains = mask[np.arange(150), TRUTH].mean()
    assert contains == 1 if law != "annotators" else 0.9 < contains <= 1
    assert mask.any(1).all()
    assert not mask.all(1).any()
    size = {"uniform .3": 1.9, "uniform .7": 2.75, "complementary": 3, "annotators": 1.6}
    if law in size:
        assert mask.sum(1).mean() == pytest.approx(size[law], abs=0.2)
    np.testing.assert_array_equal(mask, script.simulate(law, X, TRUTH, k, 0))


def test_baselines_and_summary(tmp_path, capsys) -> None:
    test = np.arange(0, 150, 3)
    train = np.setdiff1d(np.arange(150), test)
    arrays = {"iris/X": X, "iris/truth": TRUTH, "iris/0/test": test}
    for law in ("uniform .3", "complementary"):
        arrays[f"iris/0/{law}"] = np.packbits(script.simulate(law, X[train], TRUTH[train], 3, 0), axis=1)
    path = tmp_path / "tables.npz"
    np.savez(path, **arrays)
    units = [script.Unit("iris", law, 0) for law in ("uniform .3", "complementary")]
    rows = [row for unit in units for row in script.measure(path, unit, ["scikit-learn"], "quick")]
    by_way = {(row["law"], row["model"], row["way"]): row["accuracy"] for row in rows}
    assert by_way["uniform .3", "forest", "clean"] > 90
    assert by_way["uniform .3", "forest", "copies"] > 80
    # There is no unambiguous row.
    assert by_way["complementary", "forest", "sure"] == pytest.approx(100 / 3, abs=2)
    rows += [
        {**unit._asdict(), "model": "propall", "way": "quick", "accuracy": 100.5, "seconds": 1.0}
        for unit in units
    ]
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"cut')
    script.summarize(tmp_path / "suite.csv", [lines])
    text = capsys.readouterr().out
    assert "2 tables and laws" in text
    assert "| propall | 100.5 | 100.5 | 100.5 | 1.0 |" in text
    assert "ahead by more than a point:\n\n" in text
    assert len(pd.read_csv(tmp_path / "suite.csv")) == len(
        {(row["law"], row["model"], row["way"]) for row in rows}
    )

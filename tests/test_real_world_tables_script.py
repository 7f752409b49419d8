"""results/scripts/real_world_tables.py: the rows of one fold, and the files it writes."""

import json

import numpy as np
import pandas as pd
import pytest

from propall.data.corruption import Exactly
from propall.data.synthetic import blobs
from results.scripts import real_world_tables as script


def test_one_fold(tmp_path) -> None:
    problem = blobs(150, 4, 3, seed=0).problem(Exactly(n=2), 0)
    rows, arrays = script.measure_fold(problem, 0, "quick")
    by_model = {row["model"]: row for row in rows}
    assert by_model[script.WEIGHED]["accuracy"] > 60
    weights = [row["weight"] for row in rows if "weight" in row]
    assert sum(weights) == pytest.approx(1)
    best = max((row for row in rows if "score" in row), key=lambda row: row["score"])
    assert by_model[script.CHOSEN]["accuracy"] == best["accuracy"]
    accuracy = 100 * (arrays["test/linear"].argmax(1) == problem.test_truth.numpy()).mean()
    assert by_model["linear"]["accuracy"] == pytest.approx(accuracy, abs=0.5)  # half precision may tie
    assert arrays["held_out/linear"].shape == arrays["candidates"].shape

    table = pd.DataFrame(
        [{"data": "lost", "seed": seed, "fold": 0, **row} for seed in (0, 1) for row in rows]
    )
    script.summarize(table, tmp_path, {"seconds": 1.0})
    summary = json.loads((tmp_path / "summary.json").read_text())["lost"]
    oracle = max(row["accuracy"] for row in rows if "score" in row)
    assert summary["oracle (best member of each fold)"] == pytest.approx(oracle)
    assert summary["accuracy"][script.WEIGHED] == pytest.approx(by_model[script.WEIGHED]["accuracy"])
    assert len(pd.read_csv(tmp_path / "accuracy.csv")) == 2 * len(rows)
    assert np.isclose(summary["std"]["linear"], 0)
    table = script.markdown({"lost": summary})
    assert f"| {script.WEIGHED} | {by_model[script.WEIGHED]['accuracy']:.1f} |" in table
    assert "IPAL, reproduced" in table


def test_finished_folds_are_not_measured_again(tmp_path) -> None:
    unit = script.Unit("lost", 0, 3)
    results = script.Results(tmp_path, "quick")
    results.add(unit, [{**unit._asdict(), "effort": "quick", "model": "linear", "accuracy": 1.0}], {})
    with (tmp_path / "folds.jsonl").open("a") as file:
        file.write('[{"data": "lo')
    assert script.Results(tmp_path, "quick").units == {unit}
    assert not script.Results(tmp_path, "best").units


def test_the_variance_counts_the_overlap_of_training_folds() -> None:
    differences = np.array([1.0, 2.0, 3.0, 2.0, 2.0])
    # t = 2 / sqrt(0.5 (1/5 + 1/4)) = 4.216 with 4 degrees of freedom.
    assert script.corrected_p(differences) == pytest.approx(0.01351, abs=1e-4)

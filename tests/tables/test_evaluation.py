"""Evaluation of a model on true labels."""

import numpy as np
import pandas as pd
import pytest

from propall.tables.evaluation import evaluate
from propall.tables.reading import read_table
from tests.fixtures.tables import write_birds


def test_new_rows(fitted, tmp_path) -> None:
    truth = write_birds(tmp_path / "new.csv", 100, seed=9, truth=True)
    evaluation = evaluate(fitted.model, read_table(tmp_path / "new.csv"), "truth")
    predicted = fitted.model.predict(read_table(tmp_path / "new.csv").frame)
    assert evaluation.rows == 100
    assert evaluation.seen == 0
    assert evaluation.accuracy == pytest.approx((predicted == truth).mean())
    assert evaluation.confusion.sum() == 100
    assert np.trace(evaluation.confusion) == round(100 * evaluation.accuracy)
    shares = {name: share for name, _, share in evaluation.recalls}
    gulls = np.array(truth) == "mew gull"
    assert shares["mew gull"] == pytest.approx((predicted[gulls] == "mew gull").mean())
    assert evaluation.covered == 1.0  # every set of these birds holds the truth
    assert evaluation.resolved > evaluation.accuracy
    assert 0 <= evaluation.reliability.error < 0.3
    assert evaluation.as_dict()["resolved_accuracy"] == evaluation.resolved


def test_rows_it_was_fitted_on_are_answered_out_of_fold(fitted, birds_file) -> None:
    evaluation = evaluate(fitted.model, read_table(birds_file), "truth")
    assert evaluation.seen == 240
    truth = pd.read_csv(birds_file)["truth"].to_numpy()
    assert evaluation.resolved == pytest.approx((fitted.consensus.resolution.label == truth).mean())


def test_truth_with_gaps_slips_and_strangers(fitted, birds_file, tmp_path) -> None:
    frame = pd.read_csv(birds_file, dtype=object, keep_default_na=False).drop(columns="species")
    frame.loc[:99, "truth"] = ""
    frame.loc[100, "truth"] = "dodo"
    frame.loc[101, "truth"] = "Mew  Gull"
    evaluation = evaluate(fitted.model, read_table(frame), "truth")
    assert evaluation.rows == 139
    assert evaluation.resolved is None  # no candidates in this table
    reported = {note.kind: (note.action, note.rows) for note in evaluation.notes}
    assert reported == {
        "unknown true label": ("row dropped", (100,)),
        "typo": ("repaired", (101,)),
    }
    with pytest.raises(ValueError, match="no row of data frame has a class of the model in column 'truth'"):
        evaluate(fitted.model, read_table(frame.assign(truth="")), "truth")


def test_a_truth_of_several_labels_is_one_remark(fitted, birds_file) -> None:
    evaluation = evaluate(fitted.model, read_table(birds_file), "species")
    (note,) = [r for r in evaluation.notes if r.kind == "unknown true label"]
    assert note.text.startswith(f"--truth has several labels in {len(note.rows)} rows; choose a column")
    assert evaluation.rows + len(note.rows) <= 240

"""What true labels say about a model."""

import numpy as np
import pandas as pd
import pytest

from propall.tables.evaluation import evaluate
from propall.tables.reading import read
from tests.fixtures.tables import write_birds


def test_new_rows(fitted, tmp_path) -> None:
    truth = write_birds(tmp_path / "new.csv", 100, seed=9, truth=True)
    found = evaluate(fitted.model, read(tmp_path / "new.csv"), "truth")
    predicted = fitted.model.predict(read(tmp_path / "new.csv").frame)
    assert found.rows == 100
    assert found.seen == 0
    assert found.accuracy == pytest.approx((predicted == truth).mean())
    assert found.confusion.sum() == 100
    assert np.trace(found.confusion) == round(100 * found.accuracy)
    shares = {name: share for name, _, share in found.recalls}
    own = np.array(truth) == "mew gull"
    assert shares["mew gull"] == pytest.approx((predicted[own] == "mew gull").mean())
    assert found.covered == 1.0  # every set of these birds holds the truth
    assert found.resolved > found.accuracy
    assert 0 <= found.reliability.error < 0.3
    assert found.as_dict()["resolved_accuracy"] == found.resolved


def test_rows_it_was_fitted_on_are_answered_out_of_fold(fitted, birds_file) -> None:
    found = evaluate(fitted.model, read(birds_file), "truth")
    assert found.seen == 240
    truth = pd.read_csv(birds_file)["truth"].to_numpy()
    assert found.resolved == pytest.approx((fitted.consensus.resolution.label == truth).mean())


def test_truth_with_gaps_slips_and_strangers(fitted, birds_file, tmp_path) -> None:
    frame = pd.read_csv(birds_file, dtype=object, keep_default_na=False).drop(columns="species")
    frame.loc[:99, "truth"] = ""
    frame.loc[100, "truth"] = "dodo"
    frame.loc[101, "truth"] = "Mew  Gull"
    found = evaluate(fitted.model, read(frame), "truth")
    assert found.rows == 139
    assert found.resolved is None  # no candidates in this table
    said = {remark.kind: (remark.action, remark.rows) for remark in found.remarks}
    assert said == {"unknown truth": ("row dropped", (100,)), "slip of the pen": ("repaired", (101,))}
    with pytest.raises(ValueError, match="no row of data frame has a true label"):
        evaluate(fitted.model, read(frame.assign(truth="")), "truth")


def test_a_truth_of_several_labels_is_one_remark(fitted, birds_file) -> None:
    found = evaluate(fitted.model, read(birds_file), "species")
    (remark,) = [r for r in found.remarks if r.kind == "unknown truth"]
    assert remark.text.startswith(f"--truth holds several labels in {len(remark.rows)} rows; name a column")
    assert found.rows + len(remark.rows) <= 240

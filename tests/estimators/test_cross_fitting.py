"""Models fitted on all folds at once."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import KFold

from propall import CandidateLabels, PartialLabelClassifier
from propall.estimators import cross_fitting
from propall.estimators.cross_fitting import CrossFitting
from propall.methods.propall import ProPaLL
from tests.fixtures.candidates import overlapping_clouds


@pytest.mark.parametrize("most", [1 << 30, 10_000], ids=["all folds at once", "one by one"])
def test_models_trained_together_equal_models_trained_alone(most, monkeypatch):
    monkeypatch.setattr(cross_fitting, "STACK_BYTES", most)
    X, S, _ = overlapping_clouds(90)
    labels = CandidateLabels.from_matrix(S)
    models = [
        PartialLabelClassifier("cc", epochs=5, learning_rate=0.1, random_state=0),
        PartialLabelClassifier(
            ProPaLL(noise=0.5), epochs=5, weight_decay=0.1, random_state=1, n_estimators=2
        ),
        PartialLabelClassifier("proden", "mlp", net_options={"widths": (8,)}, epochs=5, random_state=2),
        PartialLabelClassifier("pl_knn"),
    ]
    parts = list(KFold(4).split(X))
    folds = CrossFitting(X, labels, None, parts)
    assert len(folds.stacks(models)) == (3 if most > 10_000 else 12)
    seen = set()
    for i, fold, fitted, _ in folds.fit(models):
        fit, hold = parts[fold]
        alone = clone(models[i]).fit(X[fit], S[fit])
        assert len(fitted.classifiers_) == models[i].n_estimators
        np.testing.assert_allclose(
            fitted.predict_log_proba(X[hold]), alone.predict_log_proba(X[hold]), rtol=1e-6, atol=1e-8
        )
        seen.add((i, fold))
    assert len(seen) == 16

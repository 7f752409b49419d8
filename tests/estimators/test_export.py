"""Estimators as torch modules."""

import numpy as np
import pytest
import torch

from propall import PartialLabelClassifier
from tests.fixtures.candidates import separate_clouds


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "propall"},
        {"method": "proden", "net": "mlp", "n_estimators": 3},
        {"method": "cc", "net": "mlp5", "standardize": False},
        {"method": "cpe"},
        {"method": "clpl"},
        {"method": "pl_svm"},
    ],
    ids=lambda settings: settings["method"],
)
def test_to_torch_takes_raw_features(settings):
    X, S, truth = separate_clouds()
    X = 5 + 3 * X
    S = ~np.eye(3, dtype=bool)[(truth + 1) % 3] if settings["method"] == "cpe" else S
    clf = PartialLabelClassifier(**settings, random_state=0, epochs=10).fit(X, S).calibrate(X, S)
    assert clf.temperature_ != 1
    module = clf.to_torch()
    assert not module.training
    x = torch.from_numpy(X).requires_grad_()
    logits = module(x)
    np.testing.assert_allclose(logits.softmax(-1).detach(), clf.predict_proba(X), rtol=1e-12, atol=1e-15)
    logits.logsumexp(-1).sum().backward()
    assert x.grad.abs().sum() > 0
    before = clf.predict_proba(X)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    np.testing.assert_array_equal(clf.predict_proba(X), before)


def test_to_torch_with_images_and_without_a_network():
    images = np.random.default_rng(0).normal(size=(20, 1, 12, 12)).astype(np.float32)
    clf = PartialLabelClassifier(net="small_cnn", epochs=2, random_state=0).fit(images, np.arange(20) % 2)
    probabilities = clf.to_torch()(torch.from_numpy(images)).softmax(-1).detach()
    np.testing.assert_allclose(probabilities, clf.predict_proba(images), rtol=1e-5)
    X, S, _ = separate_clouds()
    with pytest.raises(ValueError, match=r"to_torch: .*compares new rows with the training rows"):
        PartialLabelClassifier("pl_knn").fit(X, S).to_torch()

"""Saving and loading estimators."""

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import nn

from propall import PartialLabelClassifier
from propall.methods import METHODS
from tests.fixtures.candidates import NAMES, ONE_COMPLEMENTARY_LABEL, separate_clouds


@pytest.mark.parametrize("method", METHODS)
def test_loading_restores_the_model(method, tmp_path):
    X, S, truth = separate_clouds(60)
    S = ~np.eye(3, dtype=bool)[(truth + 1) % 3] if method in ONE_COMPLEMENTARY_LABEL else S
    clf = PartialLabelClassifier(method, random_state=0, epochs=2).fit(X, [tuple(NAMES[row]) for row in S])
    path = tmp_path / "model.propall"
    clf.save(path)
    again = PartialLabelClassifier.load(path)
    np.testing.assert_array_equal(again.decision_function(X), clf.decision_function(X))
    np.testing.assert_array_equal(again.predict(X), clf.predict(X))
    assert again.get_params()["epochs"] == 2


def test_damaged_and_newer_files_are_refused(tmp_path):
    X, S, _ = separate_clouds()
    path = tmp_path / "model"
    PartialLabelClassifier(random_state=0, epochs=2).fit(X, S).save(path)
    whole = path.read_bytes()
    for damaged in (whole[:-30], whole[:50], b"", b"not a model", whole.replace(b"scale_", b"scole_")):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="path: "):
            PartialLabelClassifier.load(path)
    path.write_bytes(whole.replace(b'\\"layout\\": 1', b'\\"layout\\": 9'))
    with pytest.raises(ValueError, match="Upgrade propall"):
        PartialLabelClassifier.load(path)


def test_every_member_gets_its_own_module(tmp_path):
    X, S, _ = separate_clouds(60)
    net = nn.Linear(4, 3).double()
    clf = PartialLabelClassifier(net=net, n_estimators=2, batch_size=20, random_state=0, epochs=2).fit(X, S)
    clf.save(tmp_path / "model")
    before = net.weight.clone()
    again = PartialLabelClassifier.load(tmp_path / "model", net=net)
    np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
    assert again.classifiers_[0].net is not again.classifiers_[1].net
    assert torch.equal(net.weight, before)


def test_training_settings_are_not_saved(tmp_path):
    X, S, _ = separate_clouds(60)
    clf = PartialLabelClassifier(METHODS["valen"](warm_up=1), "mlp", epochs=1, random_state=0).fit(X, S)
    clf.save(tmp_path / "model")
    with safe_open(tmp_path / "model", framework="pt") as file:
        fields = json.loads(file.metadata()["propall"])["method_fields"]
    assert fields["warm_up"] == 1
    assert not {"net", "recipe", "checkpoint", "fast", "stack"} & set(fields)

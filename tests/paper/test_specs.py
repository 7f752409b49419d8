"""Specs: JSON round trips and scaling."""

import json
from pathlib import Path

import pytest
import torch

from propall.data import load
from propall.data.corruption import Exactly, InstanceDependent
from propall.methods.pl_svm import PLSVM
from propall.methods.propall import ProPaLL
from propall.paper.specs import TEACHER, Spec, Split
from propall.training.recipe import Recipe


def test_survives_json_and_has_a_key_of_its_own():
    specs = [
        Spec("digits", ProPaLL(), "mlp", Recipe(epochs=2), Exactly(3), seed=1),
        Spec("digits", ProPaLL(noise=0.0), "mlp", Recipe(epochs=2), Exactly(3), seed=1),
        Spec("digits", ProPaLL(), "mlp", Recipe(epochs=2), Exactly(4), seed=1),
        Spec("digits", ProPaLL(), "mlp", Recipe(epochs=2), Exactly(3), scaling="unit", seed=1),
        Spec("digits", ProPaLL(), "mlp", Recipe(epochs=2), Exactly(3), protocol="short", seed=1),
        Spec("digits", ProPaLL(), "mlp", Recipe(epochs=2), InstanceDependent(0.4), teacher=TEACHER),
        Spec("lost", PLSVM(lam="auto"), split=Split(fold=3)),
        Spec("digits", ProPaLL(), corruption=Exactly(2), split=Split(classes=(5, 6, 7), per_class=10)),
    ]
    for spec in specs:
        again = Spec.from_json(spec.to_json())
        assert again == spec
        assert again.key == spec.key
    assert len({spec.key for spec in specs}) == len(specs)


def test_published_results_keep_their_keys():
    file = Path(__file__).parents[2] / "results" / "details.jsonl"
    for line in file.read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        assert Spec.from_dict(run["spec"]).key == run["key"]


def test_scales_pixels_as_asked_and_leaves_features_alone():
    digits = load("digits")
    unit = Spec("digits", ProPaLL(), scaling="unit").source(digits)
    half = Spec("digits", ProPaLL(), scaling="half").source(digits)
    default = Spec("digits", ProPaLL(), split=Split(per_class=3)).source(digits)
    assert (float(unit.x.min()), float(unit.x.max())) == (0.0, 1.0)
    torch.testing.assert_close(half.x, 2 * unit.x - 1)
    with pytest.raises(ValueError, match="'unit', which is for images; blobs"):
        Spec("blobs", ProPaLL(), scaling="unit").source(load("blobs"))
    assert default.scaling == digits.scaling
    assert len(default) == 30

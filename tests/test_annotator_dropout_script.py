"""results/scripts/annotator_dropout.py: what it says about sets, and one tiny run."""

import dataclasses

import pytest
import torch

from propall.data import load
from propall.paper.specs import Split
from results.scripts import annotator_dropout as script


def test_the_companion_and_the_pair_of_sets_made_by_hand():
    # Class 0 looks like 1 to the annotator in all rows, class 1 like 0 in half of them, class 2 like nothing.
    truth = torch.tensor([0, 0, 1, 1, 2, 2])
    scores = torch.full((6, 3), -20.0).scatter(1, truth[:, None], 5.0)
    scores[:2, 1], scores[2, 0], scores[3, 2] = 2.0, 2.0, 2.0
    described = script.describe(scores, truth, rate=1.0)
    # One wrong label has nearly all the mass; without any, both share it, and rate 1.0 includes both.
    assert described["correct"] == 1.0
    assert described["companion"] == pytest.approx((1 + 0.5 + 1) / 3, abs=1e-3)
    assert described["pair"] == pytest.approx(0.5, abs=1e-3)  # 0 and 1: 1.0 one way, half the other way
    assert described["candidates"] == pytest.approx(1 + (4 * 1 + 2 * 2) / 6, abs=1e-3)


def test_a_tiny_annotator_is_described_in_both_modes():
    source = Split(per_class=3).source(load("digits"))
    recipe = dataclasses.replace(script.RECIPE, epochs=1, batch_size=10)
    by_mode = dict(script.scores_by_mode(source, 0.3, recipe))
    assert list(by_mode) == ["evaluation", "public"]
    for scores in by_mode.values():
        assert set(script.COLUMNS) - {"dropout", "scoring", "rate"} == set(
            script.describe(scores, source.truth, 0.4)
        )
    assert not torch.equal(*by_mode.values())

"""The model without randomness: its formulas, and what it says about r."""

import math

import pytest
import torch

from propall.methods.cc import CC
from propall.methods.propall import ProPaLL
from propall.paper.studies import head_starts
from propall.paper.studies.head_starts import all_sets, base_gradients, smallest_head_starts


def test_all_sets_have_the_probabilities_of_the_experiment():
    candidates, truth, weights = all_sets(0.8, 0.3)
    assert float(weights.sum()) == pytest.approx(1)
    assert bool(candidates.gather(1, truth[:, None]).all())
    first = weights * (truth == 0)
    assert float((first * candidates[:, 1]).sum() / first.sum()) == pytest.approx(0.8)
    assert float((first * candidates[:, 2]).sum() / first.sum()) == pytest.approx(0.3)


@pytest.mark.parametrize("r", [0.5, 0.9])
@pytest.mark.parametrize("other", [-3.0, 0.0, 3.0])
def test_growth_of_a_head_start_is_the_formula(r, other):
    a, b = 0.3, -0.1
    logits = torch.tensor([[a, b, other]]).double().expand(4, 3)
    # Rows of class a and of class b, each with both partners (r) and with the truth alone (1 - r).
    sets = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]).bool()
    weights = torch.tensor([r, 1 - r, r, 1 - r]).double() / 2

    def growth(base):
        pushes = -(weights[:, None] * base_gradients(base, logits, sets)).sum(0)
        return float(pushes[0] - pushes[1])

    p = logits[0].softmax(-1)
    mass = float(p[:2].sum())
    assert growth(CC()) == pytest.approx((r - mass) * float(p[0] - p[1]) / mass)
    fires = logits[0, :2].sigmoid()
    either = float(1 - (1 - fires).prod())
    assert growth(ProPaLL()) == pytest.approx((r - either) * float(fires[0] - fires[1]) / either)


def test_head_starts_vanish_as_classes_come_together(monkeypatch):
    monkeypatch.setattr(head_starts, "HALVINGS", 9)
    for base in (CC(), ProPaLL(noise=0.0)):
        starts = smallest_head_starts(base, (0.5, 0.9, 0.99, 1.0))
        assert starts == sorted(starts, reverse=True)
        assert starts[0] > 1 > 0.2 > starts[2]
        assert starts[3] < 0.1
    assert smallest_head_starts(CC(), (0.0,), q=0.0, steps=200) == [math.inf]

import itertools

import pytest
import torch

from propall.methods.mcl_gce import MCLGCE, mcl_gce_loss
from propall.training.contract import State, Step


def losses_of_labels(logits):
    """The supervised loss of every label."""
    p = logits.softmax(-1)
    return (1 - p**0.7) / 0.7


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_unbiased(size):
    logits = 2 * torch.randn(5, dtype=torch.float64)
    sets = [s for s in itertools.combinations(range(5), size) if 2 in s]
    candidates = torch.tensor([[j in s for j in range(5)] for s in sets])
    losses = mcl_gce_loss(logits.expand(len(sets), 5), candidates)
    torch.testing.assert_close(losses.mean(), losses_of_labels(logits)[2], rtol=0, atol=1e-13)


def test_first_form_of_the_formula():
    logits = 2 * torch.randn(4, 4, dtype=torch.float64)
    candidates = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 1], [1, 1, 1, 0], [1, 0, 1, 0]]).bool()
    every = torch.stack([losses_of_labels(row) for row in logits])
    excluded = (~candidates).sum(-1)
    expected = (every * candidates).sum(-1) - (3 - excluded) / excluded * (every * ~candidates).sum(-1)
    torch.testing.assert_close(mcl_gce_loss(logits, candidates), expected)


def test_exponent_one_is_half_the_absolute_error():
    logits = torch.randn(3, 4, dtype=torch.float64)
    candidates = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 1], [1, 1, 1, 0]]).bool()
    outside = (logits.softmax(-1) * ~candidates).sum(-1)
    expected = 3 / (~candidates).sum(-1) * outside
    torch.testing.assert_close(mcl_gce_loss(logits, candidates, q=1.0), expected)
    torch.testing.assert_close(mcl_gce_loss(logits, candidates, q=torch.tensor(1.0)), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits(dtype):
    logits = torch.tensor([[1e4, 0, -1e4], [-1e4, 0, 1e4]], dtype=dtype, requires_grad=True)
    losses = mcl_gce_loss(logits, torch.tensor([[0, 1, 1], [0, 1, 1]]).bool())
    assert losses.tolist() == pytest.approx([2 / 0.7, 0.0], abs=1e-6)
    losses.sum().backward()
    assert logits.grad.isfinite().all()


def test_the_objective_uses_its_exponent():
    logits, candidates = torch.randn(2, 4), torch.tensor([[1, 0, 0, 0], [0, 1, 0, 1]]).bool()
    step = Step(torch.tensor(0.0), torch.tensor(0))
    losses = MCLGCE(q=0.3).losses(logits, candidates, State(), step)
    assert losses.equal(mcl_gce_loss(logits, candidates, q=0.3))

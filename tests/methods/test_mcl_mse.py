import itertools

import pytest
import torch

from propall.methods.mcl_mse import mcl_mse_loss


def losses_of_labels(logits):
    """The supervised loss of every label."""
    p = logits.softmax(-1)
    return torch.stack([(p - torch.eye(len(p))[j]).square().sum() for j in range(len(p))])


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_unbiased(size):
    logits = 2 * torch.randn(5, dtype=torch.float64)
    sets = [s for s in itertools.combinations(range(5), size) if 2 in s]
    candidates = torch.tensor([[j in s for j in range(5)] for s in sets])
    losses = mcl_mse_loss(logits.expand(len(sets), 5), candidates)
    torch.testing.assert_close(losses.mean(), losses_of_labels(logits)[2], rtol=0, atol=1e-13)


def test_first_form_of_the_formula():
    logits = 2 * torch.randn(4, 4, dtype=torch.float64)
    candidates = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 1], [1, 1, 1, 0], [1, 0, 1, 0]]).bool()
    every = torch.stack([losses_of_labels(row) for row in logits])
    excluded = (~candidates).sum(-1)
    expected = (every * candidates).sum(-1) - (3 - excluded) / excluded * (every * ~candidates).sum(-1)
    torch.testing.assert_close(mcl_mse_loss(logits, candidates), expected)


def test_small_values_are_accurate():
    # The loss is about 1 - p = 2e-9; subtracting sums of order k in float32 would lose it.
    logits = torch.tensor([[20.0, 0, -3, -3]])
    candidates = torch.tensor([[1, 1, 1, 0]]).bool()
    expected = mcl_mse_loss(logits.double(), candidates)
    torch.testing.assert_close(mcl_mse_loss(logits, candidates).double(), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits(dtype):
    logits = torch.tensor([[1e4, 0, -1e4], [-1e4, 0, 1e4]], dtype=dtype, requires_grad=True)
    losses = mcl_mse_loss(logits, torch.tensor([[0, 1, 1], [0, 1, 1]]).bool())
    assert losses.tolist() == pytest.approx([4.0, 0.0])
    losses.sum().backward()
    assert logits.grad.isfinite().all()

import itertools
import math

import pytest
import torch

from propall.methods.pc import pc_loss


def comparison(logits, j):
    """Loss of label j against every other class, in plain Python."""
    return sum(1 / (1 + math.exp(logits[j] - z)) - 0.5 for i, z in enumerate(logits) if i != j)


def test_by_definition():
    logits = 3 * torch.randn(6, 4, dtype=torch.float64)
    candidates = torch.rand(6, 4) < 0.5
    expected = [
        sum(comparison(row, j) for j in range(4) if members[j])
        for row, members in zip(logits.tolist(), candidates.tolist(), strict=True)
    ]
    assert pc_loss(logits, candidates).tolist() == pytest.approx(expected, abs=1e-13)


def test_labels_sum_to_zero():
    logits = 3 * torch.randn(5, 1, 4, dtype=torch.float64)
    singletons = torch.eye(4).bool().expand(5, 4, 4)
    per_label = pc_loss(logits.expand(5, 4, 4), singletons)
    torch.testing.assert_close(per_label.sum(-1), torch.zeros(5, dtype=torch.float64), rtol=0, atol=1e-14)
    assert (pc_loss(logits.squeeze(1), torch.ones(5, 4, dtype=torch.bool)) == 0).all()


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_unbiased_scale_is_unbiased(size):
    logits = torch.randn(5, dtype=torch.float64)
    sets = [s for s in itertools.combinations(range(5), size) if 2 in s]
    candidates = torch.tensor([[j in s for j in range(5)] for s in sets])
    losses = pc_loss(logits.expand(len(sets), 5), candidates, "unbiased")
    assert losses.mean().item() == pytest.approx(comparison(logits.tolist(), 2), abs=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits(dtype):
    logits = torch.tensor([[1e4, 0, -1e4], [-1e4, 0, 1e4]], dtype=dtype, requires_grad=True)
    losses = pc_loss(logits, torch.tensor([[1, 0, 0], [1, 0, 0]]).bool())
    assert losses.tolist() == [-1.0, 1.0]
    losses.sum().backward()
    assert logits.grad.isfinite().all()

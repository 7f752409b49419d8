import itertools
import math

import pytest
import torch

from propall.methods.ova import ova_loss


def phi(t):
    return 1 / (1 + math.exp(t)) - 0.5


def one_versus_all(logits, j):
    others = [z for i, z in enumerate(logits) if i != j]
    return phi(logits[j]) + sum(phi(-z) for z in others) / len(others)


def test_by_definition():
    logits = 3 * torch.randn(6, 4, dtype=torch.float64)
    candidates = torch.rand(6, 4) < 0.5
    expected = [
        sum(one_versus_all(row, j) for j in range(4) if members[j])
        for row, members in zip(logits.tolist(), candidates.tolist(), strict=True)
    ]
    assert ova_loss(logits, candidates).tolist() == pytest.approx(expected, abs=1e-13)


def test_labels_sum_to_zero():
    logits = 3 * torch.randn(5, 1, 4, dtype=torch.float64)
    per_label = ova_loss(logits.expand(5, 4, 4), torch.eye(4).bool().expand(5, 4, 4))
    torch.testing.assert_close(per_label.sum(-1), torch.zeros(5, dtype=torch.float64), rtol=0, atol=1e-14)
    assert (ova_loss(logits.squeeze(1), torch.ones(5, 4, dtype=torch.bool)) == 0).all()


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_unbiased_scale_is_unbiased(size):
    logits = torch.randn(5, dtype=torch.float64)
    sets = [s for s in itertools.combinations(range(5), size) if 2 in s]
    candidates = torch.tensor([[j in s for j in range(5)] for s in sets])
    losses = ova_loss(logits.expand(len(sets), 5), candidates, "unbiased")
    assert losses.mean().item() == pytest.approx(one_versus_all(logits.tolist(), 2), abs=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits(dtype):
    logits = torch.tensor([[1e4, 0, -1e4], [-1e4, 0, 1e4]], dtype=dtype, requires_grad=True)
    losses = ova_loss(logits, torch.tensor([[1, 0, 0], [1, 0, 0]]).bool())
    assert losses.tolist() == [-0.75, 0.75]
    losses.sum().backward()
    assert logits.grad.isfinite().all()

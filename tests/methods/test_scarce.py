import math

import pytest
import torch
from torch.nn.functional import one_hot

from propall.methods.scarce import SCARCE, scarce_loss


def by_definition(logits, excluded, k):
    def softplus(z):
        return math.log(1 + math.exp(z))

    def mean(values):
        return sum(values) / len(values) if values else 0.0

    beta, total = 1 - 1 / k, 0.0
    for j in range(k):
        rows = [row[j] for row, label in zip(logits, excluded, strict=True) if label == j]
        total += beta * mean([softplus(z) for z in rows])
        everything = mean([softplus(-row[j]) for row in logits])
        total += abs(everything - beta * mean([softplus(-z) for z in rows]))
    return total


@pytest.mark.parametrize("excluded", [[0, 1, 2, 3, 0, 1], [0, 0, 3, 3, 3, 0]], ids=["all", "absent_classes"])
@pytest.mark.parametrize("scale", [1.0, 6.0])
def test_by_definition(excluded, scale):
    logits = scale * torch.randn(6, 4, dtype=torch.float64)
    candidates = ~one_hot(torch.tensor(excluded), 4).bool()
    expected = by_definition(logits.tolist(), excluded, 4)
    assert scarce_loss(logits, candidates).item() == pytest.approx(expected, abs=1e-12)


def test_weights_are_repetitions():
    logits = torch.randn(5, 3, dtype=torch.float64)
    candidates = ~one_hot(torch.tensor([0, 1, 1, 0, 2]), 3).bool()
    times = torch.tensor([2, 1, 3, 1, 0])
    repeated = torch.arange(5).repeat_interleave(times)
    weighted = scarce_loss(logits, candidates, times.double())
    torch.testing.assert_close(weighted, scarce_loss(logits[repeated], candidates[repeated]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits(dtype):
    logits = torch.tensor([[1e4, 0, -1e4], [-1e4, 0, 1e4]], dtype=dtype, requires_grad=True)
    loss = scarce_loss(logits, torch.tensor([[0, 1, 1], [0, 1, 1]]).bool())
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()


def test_refuses_other_than_one_excluded_label():
    candidates = torch.tensor([[1, 0, 1], [1, 1, 1], [1, 0, 0]]).bool()
    with pytest.raises(ValueError, match=r"2 of 3 rows .* \(first: 1, which excludes 0\); SCARCE .* Use nn"):
        SCARCE().init(candidates)

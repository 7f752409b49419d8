import math

import pytest
import torch

from propall.methods.mcl_exp import mcl_exp_loss
from propall.methods.mcl_log import mcl_log_loss


def test_by_definition():
    logits = torch.randn(3, 4, dtype=torch.float64)
    candidates = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 1], [1, 1, 1, 0]]).bool()
    mass = (logits.softmax(-1) * candidates).sum(-1)
    expected = torch.tensor([1, 3 / 2, 3], dtype=torch.float64) * (-mass).exp()
    torch.testing.assert_close(mcl_exp_loss(logits, candidates), expected)


def test_bounds():
    # 1 - P <= exp(-P) <= 1 and 1 - P <= -log P.
    logits = 3 * torch.randn(20, 4, dtype=torch.float64)
    candidates = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 1], [1, 1, 1, 0], [1, 1, 0, 0]]).bool().repeat(5, 1)
    factor = 3 / (~candidates).sum(-1)
    losses = mcl_exp_loss(logits, candidates) / factor
    assert ((losses >= math.exp(-1)) & (losses <= 1)).all()
    assert (losses >= 1 - (-mcl_log_loss(logits, candidates) / factor).exp()).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits(dtype):
    logits = torch.tensor([[1e4, 0, -1e4], [-1e4, 0, 1e4]], dtype=dtype, requires_grad=True)
    losses = mcl_exp_loss(logits, torch.tensor([[0, 1, 1], [0, 1, 1]]).bool())
    assert losses.tolist() == pytest.approx([2, 2 / math.e])
    losses.sum().backward()
    assert logits.grad.isfinite().all()

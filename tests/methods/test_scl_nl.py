import math

import pytest
import torch
from torch.nn.functional import one_hot

from propall.methods.forward import uniform_forward_loss
from propall.methods.scl_nl import SCLNL, scl_nl_loss


def test_by_definition():
    logits = 2 * torch.randn(4, 4, dtype=torch.float64)
    losses = scl_nl_loss(logits, ~torch.eye(4).bool())  # row i excludes label i
    torch.testing.assert_close(losses, -(1 - logits.softmax(-1).diagonal()).log(), rtol=0, atol=1e-12)


def test_uniform_forward_lies_log_k_minus_1_above():
    logits = 3 * torch.randn(7, 5, dtype=torch.float64)
    candidates = ~one_hot(torch.arange(7) % 5, 5).bool()
    expected = scl_nl_loss(logits, candidates) + math.log(4)
    torch.testing.assert_close(uniform_forward_loss(logits, candidates), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits(dtype):
    logits = torch.tensor([[8192, 0, -8192], [-8192, 0, 8192]], dtype=dtype, requires_grad=True)
    losses = scl_nl_loss(logits, torch.tensor([[0, 1, 1], [0, 1, 1]]).bool())
    assert losses.tolist() == [8192.0, 0.0]
    losses.sum().backward()
    assert logits.grad.tolist() == [[1, -1, 0], [0, 0, 0]]


def test_refuses_other_than_one_excluded_label():
    candidates = torch.tensor([[1, 0, 1], [1, 1, 1], [1, 0, 0]]).bool()
    with pytest.raises(
        ValueError, match=r"2 of 3 rows .* \(first: 1, which excludes 0\); SCL-NL .* Use mcl_log"
    ):
        SCLNL().init(candidates)

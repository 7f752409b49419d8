import math

import pytest
import torch

from propall.methods.l_uw import l_uw_loss
from propall.methods.l_w import l_w_loss


def test_by_definition():
    logits = 3 * torch.randn(4, 4, dtype=torch.float64)
    expected = []
    for i, row in enumerate(logits.tolist()):
        total = sum(math.exp(z) for z in row)
        rest = [1 - math.exp(z) / total for z in row]
        share = math.exp(rest[i]) / sum(math.exp(u) for u in rest)
        expected.append(-(1 + rest[i] / sum(rest)) * math.log(share))
    losses = l_w_loss(logits, ~torch.eye(4).bool())  # row i excludes label i
    assert losses.tolist() == pytest.approx(expected, abs=1e-13)


def test_the_weight_lies_between_one_and_k_over_k_minus_1():
    logits = 5 * torch.randn(50, 4, dtype=torch.float64)
    candidates = (~torch.eye(4).bool()).repeat(13, 1)[:50]
    ratio = l_w_loss(logits, candidates) / l_uw_loss(logits, candidates)
    assert ((ratio >= 1) & (ratio <= 4 / 3)).all()


def test_the_weight_is_differentiated():
    logits = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: l_w_loss(z, ~torch.eye(4).bool()), (logits,))


def test_several_excluded_labels_are_averaged():
    logits = torch.randn(1, 4, dtype=torch.float64)
    each = l_w_loss(logits.expand(4, 4), ~torch.eye(4).bool())
    both = l_w_loss(logits, torch.tensor([[1, 0, 1, 0]]).bool())
    torch.testing.assert_close(both, (each[1] + each[3]).unsqueeze(0) / 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits(dtype):
    logits = torch.tensor([[1e4, -1e4, -1e4], [-1e4, 1e4, -1e4]], dtype=dtype, requires_grad=True)
    losses = l_w_loss(logits, torch.tensor([[0, 1, 1], [0, 1, 1]]).bool())
    expected = [math.log(1 + 2 * math.e), 1.5 * math.log(2 + 1 / math.e)]
    assert losses.tolist() == pytest.approx(expected, rel=1e-6)
    losses.sum().backward()
    assert logits.grad.isfinite().all()

import math

import pytest
import torch

from propall.methods.l_uw import l_uw_loss


def test_by_definition():
    logits = 3 * torch.randn(4, 4, dtype=torch.float64)
    expected = []
    for i, row in enumerate(logits.tolist()):
        total = sum(math.exp(z) for z in row)
        second = [math.exp(1 - math.exp(z) / total) for z in row]
        expected.append(-math.log(second[i] / sum(second)))
    losses = l_uw_loss(logits, ~torch.eye(4).bool())  # row i excludes label i
    assert losses.tolist() == pytest.approx(expected, abs=1e-13)


def test_several_excluded_labels_are_averaged():
    logits = torch.randn(1, 4, dtype=torch.float64)
    each = l_uw_loss(logits.expand(4, 4), ~torch.eye(4).bool())
    both = l_uw_loss(logits, torch.tensor([[1, 0, 1, 0]]).bool())
    torch.testing.assert_close(both, (each[1] + each[3]).unsqueeze(0) / 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits_reach_the_bounds(dtype):
    k = 10
    logits = torch.full((2, k), -1e4, dtype=dtype)
    logits[0, 0] = logits[1, 1] = 1e4
    logits.requires_grad_()
    candidates = torch.ones(2, k, dtype=torch.bool)
    candidates[:, 0] = False
    losses = l_uw_loss(logits, candidates)
    # Certain of the excluded label, and of another one.
    assert losses.tolist() == pytest.approx([math.log(1 + 9 * math.e), math.log(9 + 1 / math.e)], rel=1e-6)
    losses.sum().backward()
    assert logits.grad.isfinite().all()

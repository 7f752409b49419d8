import math

import pytest
import torch
from torch.nn.functional import one_hot

from propall.methods.pc import pc_loss
from propall.methods.pc_ishida import PCIshida, pc_ishida_loss


def test_by_definition():
    logits = 3 * torch.randn(4, 4, dtype=torch.float64)
    losses = pc_ishida_loss(logits, ~torch.eye(4).bool())  # row i excludes label i
    expected = [
        3 * (sum(1 / (1 + math.exp(z - row[i])) for z in row) - 4 / 2 + 1)
        for i, row in enumerate(logits.tolist())
    ]
    assert losses.tolist() == pytest.approx(expected, abs=1e-12)


def test_is_the_candidate_form_on_another_scale():
    logits = 3 * torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    candidates = ~one_hot(torch.arange(7) % 5, 5).bool()
    ours, other = pc_ishida_loss(logits, candidates), pc_loss(logits, candidates)
    torch.testing.assert_close(ours, 4 * (1 + other))
    gradients = [torch.autograd.grad(losses.sum(), logits)[0] for losses in (ours, other)]
    torch.testing.assert_close(gradients[0], 4 * gradients[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits(dtype):
    logits = torch.tensor([[1e4, 0, -1e4], [-1e4, 0, 1e4]], dtype=dtype, requires_grad=True)
    losses = pc_ishida_loss(logits, torch.tensor([[0, 1, 1], [0, 1, 1]]).bool())
    assert losses.tolist() == [4.0, 0.0]
    losses.sum().backward()
    assert logits.grad.isfinite().all()


def test_refuses_other_than_one_excluded_label():
    candidates = torch.tensor([[1, 0, 1], [1, 1, 1], [1, 0, 0]]).bool()
    with pytest.raises(
        ValueError, match=r"2 of 3 rows .* \(first: 1, which excludes 0\); PC \(Ishida\).* Use pc,"
    ):
        PCIshida().init(candidates)

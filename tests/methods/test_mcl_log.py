import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from propall.methods.mcl_log import mcl_log_loss
from propall.methods.scl_nl import scl_nl_loss


def test_by_definition():
    logits = torch.randn(3, 4, dtype=torch.float64)
    candidates = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 1], [1, 1, 1, 0]]).bool()
    mass = (logits.softmax(-1) * candidates).sum(-1)
    expected = -torch.tensor([1, 3 / 2, 3], dtype=torch.float64) * mass.log()
    torch.testing.assert_close(mcl_log_loss(logits, candidates), expected)


def test_between_cross_entropy_and_the_surrogate_loss():
    logits = 3 * torch.randn(7, 5, dtype=torch.float64)
    truth = torch.arange(7) % 5
    single = one_hot(truth, 5).bool()
    torch.testing.assert_close(mcl_log_loss(logits, single), cross_entropy(logits, truth, reduction="none"))
    torch.testing.assert_close(mcl_log_loss(logits, ~single), 4 * scl_nl_loss(logits, ~single))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits(dtype):
    logits = torch.tensor([[8192, 0, -8192], [-8192, 0, 8192]], dtype=dtype, requires_grad=True)
    losses = mcl_log_loss(logits, torch.tensor([[0, 1, 1], [0, 1, 1]]).bool())
    assert losses.tolist() == [2 * 8192.0, 0.0]
    losses.sum().backward()
    assert logits.grad.isfinite().all()

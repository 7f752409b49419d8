import math

import pytest
import torch

from propall.methods.mcl_exp import mcl_exp_loss
from propall.methods.scl_exp import SCLEXP, scl_exp_loss


def test_by_definition_and_compared_with_mcl_exp():
    logits = 2 * torch.randn(4, 4, dtype=torch.float64)
    candidates = ~torch.eye(4).bool()  # row i excludes label i
    losses = scl_exp_loss(logits, candidates)
    torch.testing.assert_close(losses, logits.softmax(-1).diagonal().exp())
    # exp(-(1 - p)) is exp(p) / e, and MCL-EXP has the factor k - 1 for one excluded label.
    torch.testing.assert_close(mcl_exp_loss(logits, candidates), losses * 3 / math.e)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits(dtype):
    logits = torch.tensor([[1e4, 0, -1e4], [-1e4, 0, 1e4]], dtype=dtype, requires_grad=True)
    losses = scl_exp_loss(logits, torch.tensor([[0, 1, 1], [0, 1, 1]]).bool())
    assert losses.tolist() == pytest.approx([math.e, 1.0])
    losses.sum().backward()
    assert logits.grad.isfinite().all()


def test_refuses_other_than_one_excluded_label():
    candidates = torch.tensor([[1, 0, 1], [1, 1, 1], [1, 0, 0]]).bool()
    with pytest.raises(
        ValueError, match=r"2 of 3 rows .* \(first: 1, which excludes 0\); SCL-EXP .* Use mcl_exp"
    ):
        SCLEXP().init(candidates)

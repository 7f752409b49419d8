import pytest
import torch

from propall.methods.op import op_loss
from propall.methods.op_w import OPW, op_w_loss


def by_definition(logits, candidates, floor=1e-6):
    v = (-logits).softmax(-1)
    weight = logits.softmax(-1) * (1 / v).softmax(-1) + floor
    return -(weight * v.log() * ~candidates).sum(-1)


@pytest.mark.parametrize("scale", [0.0, 0.5, 1.0, 2.0])
def test_by_definition_with_its_gradient(scale):
    logits = (scale * torch.randn(5, 5, dtype=torch.float64)).requires_grad_()
    candidates = ~torch.eye(5).bool()  # row i excludes label i
    ours, expected = op_w_loss(logits, candidates), by_definition(logits, candidates)
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-12)
    gradients = [torch.autograd.grad(losses.sum(), logits)[0] for losses in (ours, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-11)


def test_float32_by_the_definition_in_float64():
    logits = 2 * torch.randn(40, 5)
    logits[1] = torch.tensor([5, 4.95, -3, -3, -3])  # a near tie, which 1/v separates
    candidates = (~torch.eye(5).bool()).repeat(8, 1)
    expected = by_definition(logits.double(), candidates)
    torch.testing.assert_close(op_w_loss(logits, candidates).double(), expected, rtol=1e-3, atol=1e-6)


def test_float32_of_logits_far_from_zero():
    logits = torch.tensor([[0.25, 1.5, -0.5], [1.0, 0.75, 0.5]], requires_grad=True)
    candidates = torch.tensor([[1, 0, 1], [0, 1, 1]]).bool()
    for offset in (-1e4, 1e4):  # sums are exact and the loss is invariant
        near, far = (op_w_loss(logits + shift, candidates).sum() for shift in (0.0, offset))
        torch.testing.assert_close(far, near, rtol=1e-6, atol=1e-7)
        gradients = [torch.autograd.grad(loss, logits)[0] for loss in (far, near)]
        torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-6)


def test_weights_where_one_over_v_overflows():
    # The softmax of 1/v is one-hot: only a likely excluded label has a weight above the floor.
    logits = torch.tensor([[60.0, 0, -60], [60.0, 0, -60]])
    candidates = torch.tensor([[0, 1, 1], [1, 0, 1]]).bool()
    assert by_definition(logits, candidates).isnan().any()
    plain = op_loss(logits, candidates)
    torch.testing.assert_close(op_w_loss(logits, candidates), plain * torch.tensor([1 + 1e-6, 1e-6]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits(dtype):
    logits = torch.tensor(
        [[8192, 0, -8192], [-8192, 0, 8192], [8192, 8192, -8192]], dtype=dtype, requires_grad=True
    )
    losses = op_w_loss(logits, torch.tensor([[0, 1, 1], [0, 1, 1], [0, 1, 1]]).bool())
    # In the last row two labels share the probability and the softmax of 1/v.
    assert losses.tolist() == pytest.approx([2 * 8192, 0, 2 * 8192 / 4], rel=1e-4)
    losses.sum().backward()
    assert logits.grad.isfinite().all()


def test_refuses_other_than_one_excluded_label():
    candidates = torch.tensor([[1, 0, 1], [1, 1, 1], [1, 0, 0]]).bool()
    with pytest.raises(ValueError, match=r"2 of 3 rows .* \(first: 1, which excludes 0\); OP-W .* Use l_w"):
        OPW().init(candidates)

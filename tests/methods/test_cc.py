"""CC against the plain formula, its gradient, and the gaps at which the plain formula breaks."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from propall.methods.cc import CC, cc_loss
from propall.training.contract import State, Step

STEP = Step(torch.tensor(0.0), torch.tensor(0.0))


def sets(n: int, k: int) -> torch.Tensor:
    mask = torch.rand(n, k) < 0.4
    mask[torch.arange(n), torch.randint(k, (n,))] = True
    return mask


def test_log_of_the_candidates_probability() -> None:
    logits, mask = 3 * torch.randn(20, 7, dtype=torch.float64), sets(20, 7)
    expected = -(logits.softmax(-1) * mask).sum(-1).log()
    torch.testing.assert_close(cc_loss(logits, mask), expected, rtol=1e-12, atol=1e-14)


def test_gradient_is_softmax_minus_softmax_on_the_set() -> None:
    logits, mask = torch.randn(20, 7, dtype=torch.float64, requires_grad=True), sets(20, 7)
    (gradient,) = torch.autograd.grad(cc_loss(logits, mask).sum(), logits)
    inside = (logits.detach().exp() * mask) / (logits.detach().exp() * mask).sum(-1, keepdim=True)
    torch.testing.assert_close(gradient, logits.detach().softmax(-1) - inside, rtol=1e-10, atol=1e-14)


def test_one_candidate_is_cross_entropy() -> None:
    logits, label = torch.randn(9, 4, dtype=torch.float64), torch.arange(9) % 4
    mask = torch.nn.functional.one_hot(label, 4).bool()
    loss = CC().loss(logits, mask, State(), STEP)
    torch.testing.assert_close(loss, cross_entropy(logits, label))


def test_all_candidates_say_nothing() -> None:
    logits = torch.randn(3, 4, requires_grad=True)
    loss = cc_loss(logits, torch.ones(3, 4, dtype=torch.bool))
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert (loss == 0).all()
    assert (gradient == 0).all()


@pytest.mark.parametrize("gap", [104.0, 800.0, 1e4])
def test_gaps_where_probabilities_underflow(gap: float) -> None:
    logits = torch.tensor([[0.0, -1.0, gap]], requires_grad=True)
    loss = cc_loss(logits, torch.tensor([[True, True, False]]))
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    inside = torch.tensor([0.0, -1.0]).softmax(-1)
    torch.testing.assert_close(loss.item(), gap - torch.tensor([0.0, -1.0]).logsumexp(-1).item())
    torch.testing.assert_close(gradient[0], torch.tensor([-inside[0], -inside[1], 1.0]))


@pytest.mark.parametrize(
    ("dtype", "gap", "tolerance"), [(torch.float32, 30, 1e-5), (torch.float64, 200, 1e-13)]
)
def test_a_tiny_loss_keeps_its_digits(dtype: torch.dtype, gap: float, tolerance: float) -> None:
    logits = torch.tensor([[gap, 0.0, 0.0]], dtype=dtype)
    loss = cc_loss(logits, torch.tensor([[True, False, False]]))
    expected = 2 * torch.tensor(-float(gap), dtype=torch.float64).exp()
    torch.testing.assert_close(loss[0].double(), expected, rtol=tolerance, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits(dtype: torch.dtype) -> None:
    values = torch.tensor([-1e4, 0.0, 1e4])
    logits = torch.cartesian_prod(values, values, values).to(dtype).requires_grad_()
    loss = cc_loss(logits, torch.tensor([True, True, False]).expand_as(logits))
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert loss.dtype == torch.float32
    assert loss.isfinite().all()
    assert gradient.isfinite().all()

"""Distributions on candidate sets."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from propall.kernels import propall_losses
from propall.numerics import (
    accurate_expm1,
    balance_classes,
    full_precision,
    negative_log_mass,
    probabilities_and_complements,
    restricted_softmax,
    uniform_weights,
)

CANDIDATES = torch.tensor([[True, True, False, False], [False, False, False, True], [True, True, True, True]])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(dtype: torch.dtype) -> None:
    assert full_precision(torch.ones(2, dtype=dtype)).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_full_precision_stays_itself(dtype: torch.dtype) -> None:
    logits = torch.ones(2, dtype=dtype)
    assert full_precision(logits) is logits


def test_uniform_weights() -> None:
    weights = uniform_weights(CANDIDATES)
    assert weights.tolist() == [[0.5, 0.5, 0, 0], [0, 0, 0, 1], [0.25] * 4]
    assert uniform_weights(CANDIDATES, torch.float64).dtype == torch.float64


def test_restricted_softmax_is_the_conditional_distribution() -> None:
    logits = torch.randn(3, 4, dtype=torch.float64)
    p = logits.softmax(-1) * CANDIDATES
    torch.testing.assert_close(restricted_softmax(logits, CANDIDATES), p / p.sum(-1, keepdim=True))


def test_restricted_softmax_far_below_another_class() -> None:
    logits = torch.tensor([[-1e4, -1e4, 1e4, 0.0]])
    assert restricted_softmax(logits, CANDIDATES[:1]).tolist() == [[0.5, 0.5, 0, 0]]


def test_negative_log_mass_is_minus_the_log_of_the_sum() -> None:
    logits = torch.randn(3, 4, dtype=torch.float64)
    expected = -(logits.softmax(-1) * CANDIDATES).sum(-1).log()
    torch.testing.assert_close(negative_log_mass(logits, CANDIDATES), expected)
    single = cross_entropy(logits[1:2], torch.tensor([3]), reduction="none")
    torch.testing.assert_close(negative_log_mass(logits[1:2], CANDIDATES[1:2]), single)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_negative_log_mass_has_finite_gradients(scale: float) -> None:
    logits = (torch.tensor([[-1.0, -1, 1, 0], [1, 1, 1, -1], [-1, 1, 1, 1]]) * scale).requires_grad_()
    losses = negative_log_mass(logits, CANDIDATES)
    losses.sum().backward()
    assert losses.isfinite().all()
    assert losses[2] == 0
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert logits.grad[2].tolist() == [0, 0, 0, 0]


def test_negative_log_mass_keeps_digits_where_the_set_is_nearly_sure() -> None:
    logits = torch.tensor([[0.0, 0.0, -60.0, -60.0]], dtype=torch.float64)
    # p(S) = 1 - exp(-60) to first order, which rounds to 1 and whose log would be 0.
    assert negative_log_mass(logits, CANDIDATES[:1]).item() == pytest.approx(np.exp(-60.0), rel=1e-12)


@pytest.mark.parametrize("sides", [[1e4, 1e4], [1e4, -1e4], [-1e4, 1e4]])
def test_negative_log_mass_keeps_digits_of_large_logits(sides: list[float]) -> None:
    fine = torch.tensor([[0.25, 1.5, -0.5, 0.75]])  # all sums with 1e4 are exact
    logits = (fine + torch.tensor(sides).repeat_interleave(2)).requires_grad_()
    loss = negative_log_mass(logits, CANDIDATES[:1]).sum()
    precise = logits.detach().double().requires_grad_()
    expected = precise.logsumexp(-1) - precise[:, :2].logsumexp(-1)
    torch.testing.assert_close(loss.double(), expected.sum(), rtol=1e-6, atol=1e-6)
    gradients = torch.autograd.grad(expected.sum(), precise)[0].float()
    torch.testing.assert_close(torch.autograd.grad(loss, logits)[0], gradients, rtol=1e-6, atol=1e-6)


def test_complements_do_not_cancel() -> None:
    logits = torch.tensor([[30.0, 0.0, 0.0], [0.0, 1.0, -1.0]])
    p, complement = probabilities_and_complements(logits)
    torch.testing.assert_close(p + complement, torch.ones_like(p))
    assert complement[0, 0].item() == pytest.approx(2 * np.exp(-30.0), rel=1e-6)


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore")
def test_small_probabilities_survive_the_compiler() -> None:
    """`torch.compile` for a CPU evaluates `expm1` as exp(x) - 1."""
    x = torch.tensor([-200.0, -30.0, -1e-3, -1e-6, -1e-10, -1e-20, 0.0, 1e-12, 3.0, 80.0, 2.0, 1.0] * 4)
    compiled = torch.compile(accurate_expm1, fullgraph=True)
    torch.testing.assert_close(compiled(x), torch.expm1(x), rtol=1e-6, atol=0)
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(compiled(x).sum(), x)
    torch.testing.assert_close(gradient, x.detach().exp())
    logits = 50 * torch.randn(64, 10, generator=torch.Generator().manual_seed(0))
    candidates = torch.arange(10) < 5
    losses = torch.compile(propall_losses, fullgraph=True)(logits, candidates.expand_as(logits))
    torch.testing.assert_close(losses, propall_losses(logits, candidates.expand_as(logits)))


def test_balanced_classes_have_their_shares() -> None:
    generator = torch.Generator().manual_seed(0)
    candidates = torch.rand(40, 4, generator=generator) < torch.tensor([1, 0.5, 0.5, 0.5])
    logits = torch.randn(2, 40, 4, generator=generator).double()
    posterior = restricted_softmax(logits, candidates.expand(2, -1, -1))
    shares = torch.tensor([0.3, 0.3, 0.2, 0.2]).double()
    balanced = balance_classes(posterior, shares, steps=200)
    torch.testing.assert_close(balanced.mean(1), shares.expand(2, -1), atol=1e-6, rtol=0)
    torch.testing.assert_close(balanced.sum(-1), torch.ones(2, 40).double())
    assert torch.equal(balanced == 0, posterior == 0)
    # The odds of two classes change by the same factor in all rows.
    both = (posterior[0, :, :2] > 0).all(1)
    odds = [(p[0, both, 0] / p[0, both, 1]) for p in (balanced, posterior)]
    assert (odds[0] / odds[1]).std() < 1e-9


def test_classes_without_rows_stay_finite() -> None:
    posterior = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    balanced = balance_classes(posterior, torch.tensor([0.6, 0.2, 0.2]))
    assert balanced.isfinite().all()
    assert not balanced[:, 2].any()

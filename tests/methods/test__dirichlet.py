"""Dirichlet parameters, divergence and samples: against quotients, torch.distributions and scipy."""

import math

import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.distributions import Dirichlet, kl_divergence
from torch.func import vmap
from torch.nn.functional import one_hot

from propall import kernels
from propall.methods._dirichlet import (
    dirichlet_divergence,
    dirichlet_parameters,
    dirichlet_sample,
    log_gamma_draw,
)


def double(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def sets(n: int, k: int) -> Tensor:
    candidates = (torch.rand(n, k) < 0.4) | one_hot(torch.arange(n) % k, k).bool()
    candidates[candidates.all(-1), 0] = False
    return candidates


def test_parameters_and_their_gradient_are_those_of_the_quotient() -> None:
    encoded, support, outer = double(7, 5).requires_grad_(), sets(7, 5), double(7, 5)
    ours = dirichlet_parameters(encoded, support)
    p = encoded.softmax(-1) * support
    theirs = p / p.sum(-1, keepdim=True).detach() + 0.01
    torch.testing.assert_close(ours, theirs)
    gradients = [torch.autograd.grad((pi * outer).sum(), encoded)[0] for pi in (ours, theirs)]
    torch.testing.assert_close(*gradients)


def test_parameters_where_the_quotient_is_zero_by_zero() -> None:
    encoded = torch.tensor([[-1e4, -1e4 + 1, 1e4]], requires_grad=True)
    parameters = dirichlet_parameters(encoded, torch.tensor([[True, True, False]]))
    share = torch.tensor([0.0, 1.0]).softmax(-1)
    torch.testing.assert_close(parameters, torch.tensor([[share[0], share[1], 0.0]]) + 0.01)
    (gradient,) = torch.autograd.grad(parameters.square().sum(), encoded)
    assert gradient.isfinite().all()


def test_divergence_from_the_flat_distribution() -> None:
    encoded = 4 * double(20, 6)
    alpha = (encoded / 4).exp().clamp(0.01, 30)
    expected = kl_divergence(Dirichlet(alpha), Dirichlet(torch.ones_like(alpha)))
    torch.testing.assert_close(dirichlet_divergence(encoded), expected)
    assert dirichlet_divergence(torch.zeros(1, 6)).item() == pytest.approx(0, abs=1e-5)


def test_divergence_has_no_gradient_outside_its_range() -> None:
    encoded = torch.tensor([[-1e4, -20.0, 0.5, 15.0, 1e4]], requires_grad=True)
    value = dirichlet_divergence(encoded)
    (gradient,) = torch.autograd.grad(value.sum(), encoded)
    assert value.isfinite().all()
    assert (gradient[0, [0, 1, 3, 4]] == 0).all()
    assert gradient[0, 2] != 0


@pytest.mark.parametrize("shape", [0.01, 0.3, 1.0, 4.0])
def test_gamma_draws_have_their_distribution(shape: float) -> None:
    n = 20000
    a = torch.full((n,), shape, dtype=torch.float64)
    value, derivative = log_gamma_draw(a, torch.randint(1 << 46, (n,)))
    # The logarithm of a Gamma draw is a log-Gamma draw.
    assert stats.kstest(value.numpy(), stats.loggamma(shape).cdf).pvalue > 1e-3
    # Its mean is digamma(a), so that of the derivative is trigamma(a).
    expected = torch.special.polygamma(1, a[0])
    assert (derivative.mean() - expected).abs() < 4 * derivative.std() / math.sqrt(n)


def test_gamma_draws_belong_to_their_seeds() -> None:
    a, seed = torch.rand(6, 4) + 0.01, torch.randint(1 << 46, (6, 4))
    value, derivative = log_gamma_draw(a, seed)
    order = torch.randperm(6)
    for ours, theirs in zip(log_gamma_draw(a[order], seed[order]), (value, derivative), strict=True):
        assert torch.equal(ours, theirs[order])
    stacked = vmap(log_gamma_draw, in_dims=(None, 1))(a[:, 0], seed)
    assert torch.equal(stacked[0][2], log_gamma_draw(a[:, 0].contiguous(), seed[:, 2].contiguous())[0])


def gamma_parameters() -> tuple[torch.Tensor, torch.Tensor]:
    """Small and large parameters, two full programs of the kernel and a part of one; seeds of all bits."""
    a = torch.cat([torch.full((200,), 0.01), torch.rand(400) * 2 + 0.01, torch.rand(100) * 30 + 1])
    return a.view(7, 100), torch.randint(1 << 62, (7, 100))


@pytest.mark.gpu
def test_a_gpu_draws_the_same_gamma_numbers() -> None:
    a, seed = gamma_parameters()
    theirs = log_gamma_draw(a.cuda(), seed.cuda())
    for ours, other in zip(log_gamma_draw(a, seed), theirs, strict=True):
        torch.testing.assert_close(other.cpu(), ours, rtol=1e-4, atol=1e-4)
    # As columns of a larger tensor: the kernel reads memory in order.
    columns = log_gamma_draw(a.cuda().T, seed.cuda().T)
    assert torch.equal(columns[0], theirs[0].T)


@pytest.mark.usefixtures("interpreter")
def test_interpreted_gamma_numbers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    a, seed = gamma_parameters()
    ours = log_gamma_draw(a, seed)
    monkeypatch.setattr(kernels, "available", lambda shape: True)
    torch.testing.assert_close(log_gamma_draw(a, seed), ours, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("parameters", [[0.51, 0.51, 0.01, 0.01], [0.01, 1.01], [0.2, 0.3, 0.53]])
def test_samples_have_their_distribution(parameters: list[float]) -> None:
    n, total = 20000, sum(parameters)
    alpha = torch.tensor(parameters, dtype=torch.float64).expand(n, -1).clone().requires_grad_()
    sample = dirichlet_sample(alpha, torch.rand(alpha.shape, dtype=torch.float64))
    torch.testing.assert_close(sample.sum(-1), torch.ones(n, dtype=torch.float64))
    for j, a in enumerate(parameters):
        # With a = 0.01 half of the draws lie below 1e-30, so thresholds instead of a Kolmogorov-Smirnov test.
        for threshold in (1e-25, 1e-10, 1e-3, 0.1, 0.5, 0.9):
            below = int((sample[:, j] < threshold).sum())
            assert stats.binomtest(below, n, stats.beta(a, total - a).cdf(threshold)).pvalue > 1e-4
    # The mean of the gradient of a sample is the gradient of the mean a_0 / sum(a).
    (gradient,) = torch.autograd.grad(sample[:, 0].sum(), alpha)
    expected = torch.full((len(parameters),), -parameters[0] / total**2, dtype=torch.float64)
    expected[0] += 1 / total
    error = (gradient.mean(0) - expected) / (gradient.std(0) / math.sqrt(n))
    assert error.abs().max() < 4.5


def test_samples_are_positive_finite_and_repeatable_in_float32() -> None:
    alpha = torch.full((4000, 8), 0.01)
    alpha[:, 0] = 1.01
    uniform = torch.rand(4000, 8)
    alpha.requires_grad_()
    sample = dirichlet_sample(alpha, uniform)
    (gradient,) = torch.autograd.grad((sample * torch.randn(4000, 8)).sum(), alpha)
    assert sample.dtype == torch.float32
    assert (sample > 0).all()
    assert gradient.isfinite().all()
    assert torch.equal(sample, dirichlet_sample(alpha, uniform))
    assert not torch.equal(sample, dirichlet_sample(alpha, uniform.flip(0)))

"""ProPaLL against all outcomes enumerated, its closed-form gradient, and the approximation of the paper."""

import itertools
import math
from typing import Literal

import pytest
import torch
from jaxtyping import TypeCheckError
from torch import Tensor

from propall.kernels import propall_losses_and_gradients
from propall.methods.propall import ProPaLL, noise_scale, propall_loss
from propall.numerics import log1mexp
from propall.training.contract import RowwiseObjective, State, Step


def probability_by_enumeration(logits: list[float], candidates: list[bool]) -> float:
    """Sum over all 2^k outcomes of k coins: some candidate comes up, and nothing else does."""
    p = [1 / (1 + math.exp(-r)) for r in logits]
    total = 0.0
    for outcome in itertools.product([False, True], repeat=len(p)):
        inside = any(up and c for up, c in zip(outcome, candidates, strict=True))
        outside = any(up and not c for up, c in zip(outcome, candidates, strict=True))
        if inside and not outside:
            total += math.prod(q if up else 1 - q for up, q in zip(outcome, p, strict=True))
    return total


def step(uniform: Tensor, progress: float = 0.0) -> Step:
    return Step(torch.tensor(progress), torch.tensor(0.0), uniform)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_all_outcomes_enumerated(size: int) -> None:
    logits = 2 * torch.randn(6, 5, dtype=torch.float64)
    for candidates in itertools.combinations(range(5), size):
        mask = torch.zeros(6, 5, dtype=torch.bool)
        mask[:, list(candidates)] = True
        expected = [
            -math.log(probability_by_enumeration(r, m))
            for r, m in zip(logits.tolist(), mask.tolist(), strict=True)
        ]
        torch.testing.assert_close(
            propall_loss(logits, mask), torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=0
        )


@pytest.mark.parametrize("shift", [-60.0, -49.9, -20.0, 0.0, 20.0])
def test_gradient_is_the_closed_form(shift: float) -> None:
    logits = (torch.randn(8, 6, dtype=torch.float64) + shift).requires_grad_()
    mask = torch.rand(8, 6) < 0.5
    mask[:, 0] = True
    (gradient,) = torch.autograd.grad(propall_loss(logits, mask).sum(), logits)
    p = logits.detach().sigmoid()
    h = (torch.logaddexp(logits.detach(), torch.zeros(()).double()) * mask).sum(-1, keepdim=True)
    torch.testing.assert_close(gradient, torch.where(mask, -p / torch.expm1(h), p), rtol=1e-9, atol=1e-300)
    assert (gradient[mask] <= 0).all()
    assert (gradient[~mask] >= 0).all()
    assert ((gradient * mask).sum(-1) >= -1 - 1e-12).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mode", ["exact", "paper"])
def test_extreme_logits(dtype: torch.dtype, mode: str) -> None:
    values = torch.tensor([-1e4, -50.0, -10.0, 0.0, 50.0, 1e4])
    logits = torch.cartesian_prod(values, values, values).to(dtype).requires_grad_()
    mask = torch.tensor([True, True, False]).expand_as(logits)
    loss = propall_loss(logits, mask, mode)  # type: ignore[arg-type]
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert loss.dtype == torch.float32
    assert loss.isfinite().all()
    assert gradient.isfinite().all()
    assert (loss >= 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", ["exact", "paper"])
def test_far_below_zero_the_gradient_is_a_softmax(dtype: torch.dtype, mode: str) -> None:
    logits = torch.tensor([[-1e4, -1e4 - 1, -3.0]], dtype=dtype, requires_grad=True)
    mask = torch.tensor([[True, True, False]])
    (gradient,) = torch.autograd.grad(propall_loss(logits, mask, mode).sum(), logits)  # type: ignore[arg-type]
    torch.testing.assert_close(gradient[0, :2], -logits.detach()[0, :2].softmax(-1))


@pytest.mark.parametrize(("size", "jump"), [(1, 4.54e-5), (999, 0.0226)])
def test_appendix_a_jumps_at_its_threshold(size: int, jump: float) -> None:
    mask = torch.ones(1, 1000, dtype=torch.bool)
    mask[0, size:] = False
    logits = torch.full((1, 1000), -10.0, dtype=torch.float64)
    gap = propall_loss(logits, mask, "paper") - propall_loss(logits, mask)
    assert gap.abs().item() == pytest.approx(jump, rel=5e-3)
    assert gap.abs().item() == pytest.approx((1 + size) / 2 * math.exp(-10), rel=5e-3)
    above = logits + 1e-9
    torch.testing.assert_close(propall_loss(above, mask, "paper"), propall_loss(above, mask))


def test_exact_mode_is_continuous_where_it_switches() -> None:
    mask = torch.tensor([[True, True, False]]).expand(2, 3)
    around = torch.tensor([[-50.0, -51.0, 0.0], [-50.0 - 1e-12, -51.0, 0.0]], dtype=torch.float64)
    above, below = propall_loss(around, mask)
    torch.testing.assert_close(above, below, rtol=1e-13, atol=0)


def test_log1mexp_at_both_ends() -> None:
    x = torch.tensor([1e-300, 1e-10, math.log(2), 1.0, 40.0, 700.0], dtype=torch.float64, requires_grad=True)
    value = log1mexp(x)
    expected = [math.log(-math.expm1(-v)) if v < 1 else math.log1p(-math.exp(-v)) for v in x.tolist()]
    torch.testing.assert_close(value, torch.tensor(expected, dtype=torch.float64), rtol=1e-14, atol=0)
    (gradient,) = torch.autograd.grad(value.sum(), x)
    torch.testing.assert_close(gradient, 1 / torch.expm1(x.detach()), rtol=1e-12, atol=0)


def test_noise_is_one_for_four_fifths_then_falls_to_zero() -> None:
    progress = torch.tensor([0.0, 0.5, 0.8, 0.9, 0.95, 1.0], dtype=torch.float64)
    expected = torch.tensor([1, 1, 1, 0.5, 0.25, 0], dtype=torch.float64)
    torch.testing.assert_close(noise_scale(progress), expected)
    assert noise_scale(progress[:-1], anneal_from=1.0).eq(1).all()


def test_noise_moves_candidates_and_others_alike() -> None:
    logits, uniform = torch.randn(4, 3, dtype=torch.float64), torch.rand(4, 3, dtype=torch.float64)
    mask = torch.tensor([[True, False, False], [True, True, False]]).repeat(2, 1)
    losses = ProPaLL().losses(logits, mask, State(), step(uniform, progress=0.9))
    torch.testing.assert_close(losses, propall_loss(logits + 0.5 * uniform.logit(), mask))
    quiet = ProPaLL(noise=0.0).losses(logits, mask, State(), step(uniform))
    torch.testing.assert_close(quiet, propall_loss(logits, mask))


def test_noise_is_finite_at_the_ends_of_the_interval() -> None:
    """A generator may round to 0 or 1 exactly."""
    uniform = torch.tensor([[0.0, 1.0, 0.5]])
    assert (
        ProPaLL()
        .losses(torch.zeros(1, 3), torch.tensor([[True, False, True]]), State(), step(uniform))
        .isfinite()
    )


@pytest.mark.parametrize("shift", [-60.0, -20.0, 0.0, 20.0])
def test_written_out_gradient_is_the_formula_s(shift: float) -> None:
    """Eager autograd takes the closed form; a transform, or a compiler, differentiates the formula."""
    logits = (3 * torch.randn(20, 5, dtype=torch.float64) + shift).requires_grad_()
    mask = torch.rand(20, 5) < 0.5
    mask[:, 0] = True

    def total(r: Tensor) -> Tensor:
        return propall_loss(r, mask).sum()

    formula, value = torch.func.grad_and_value(total)(logits.detach())
    torch.testing.assert_close(total(logits), value, rtol=1e-14, atol=0)
    (gradient,) = torch.autograd.grad(total(logits), logits)
    torch.testing.assert_close(gradient, formula, rtol=1e-12, atol=1e-300)


# torch warns about itself when it first loads what forward derivatives need.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("shift", [-60.0, 0.0])
def test_second_and_forward_derivatives(shift: float) -> None:
    logits = (2 * torch.randn(4, 3, dtype=torch.float64) + shift).requires_grad_()
    mask = torch.tensor([[True, False, False], [True, True, False], [True, True, True], [False, True, True]])
    torch.autograd.gradcheck(lambda r: propall_loss(r, mask), logits, check_forward_ad=True)
    torch.autograd.gradgradcheck(lambda r: propall_loss(r, mask), logits)
    by_autograd = torch.autograd.functional.hessian(lambda r: propall_loss(r, mask).sum(), logits.detach())
    by_transforms = torch.func.hessian(lambda r: propall_loss(r, mask).sum())(logits.detach())
    torch.testing.assert_close(by_autograd, by_transforms)


def test_any_number_of_batch_dimensions() -> None:
    logits, mask = torch.randn(2, 3, 4), torch.rand(2, 3, 4) < 0.5
    mask[..., 0] = True
    each = propall_loss(logits, mask)
    assert each.shape == (2, 3)
    torch.testing.assert_close(propall_loss(logits[1, 2], mask[1, 2]), each[1, 2])
    assert propall_loss(logits[:0], mask[:0]).shape == (0, 3)


@pytest.mark.parametrize("mode", ["exact", "paper"])
@pytest.mark.parametrize("progress", [0.5, 0.9])
@pytest.mark.parametrize("shift", [-60.0, 0.0, 20.0])
def test_losses_and_gradients_are_those_of_autograd(
    mode: Literal["exact", "paper"], shift: float, progress: float
) -> None:
    objective = ProPaLL(mode=mode, noise=0.7)
    logits, uniform = torch.randn(9, 4, dtype=torch.float64) + shift, torch.rand(9, 4, dtype=torch.float64)
    logits.requires_grad_()
    mask = torch.rand(9, 4) < 0.5
    mask[:, 0] = True
    now = Step(torch.tensor(progress).double(), torch.tensor(3.0).double(), uniform)
    losses, gradients = objective.losses_and_gradients(logits, mask, State(), now)
    expected, by_autograd = RowwiseObjective.losses_and_gradients(objective, logits, mask, State(), now)
    torch.testing.assert_close(losses, expected, rtol=1e-14, atol=0)
    torch.testing.assert_close(gradients, by_autograd, rtol=1e-12, atol=1e-300)
    assert not losses.requires_grad


@pytest.mark.parametrize(
    ("row", "inside", "loss", "gradient"),
    [
        ([torch.inf, -1.0], [1, 0], 0.31326168751822286, [0.0, 0.2689414213699951]),
        ([1.0, 2.0, torch.inf], [1, 0, 0], torch.inf, [-0.2689414213699951, 0.8807970779778823, 1.0]),
        ([1.0, -torch.inf], [1, 0], 0.31326168751822286, [-0.2689414213699951, 0.0]),
    ],
)
def test_infinite_logits(row: list[float], inside: list[int], loss: float, gradient: list[float]) -> None:
    logits = torch.tensor([row], dtype=torch.float64, requires_grad=True)
    candidates = torch.tensor([inside]).bool()
    modes: tuple[Literal["exact", "paper"], ...] = ("exact", "paper")
    for mode in modes:
        torch.testing.assert_close(propall_loss(logits, candidates, mode).item(), loss)
    torch.testing.assert_close(propall_losses_and_gradients(logits, candidates)[0].item(), loss)
    traced = torch.func.vmap(propall_loss)(logits, candidates)
    torch.testing.assert_close(traced.item(), loss)
    (actual,) = torch.autograd.grad(propall_loss(logits, candidates).sum(), logits)
    torch.testing.assert_close(actual, torch.tensor([gradient], dtype=torch.float64))


def test_noise_that_never_fades_and_unknown_modes() -> None:
    assert noise_scale(torch.tensor([0.0, 0.5, 1.0]), 1.0).tolist() == [1.0, 1.0, 0.0]
    with pytest.raises((ValueError, TypeCheckError), match="mode"):
        propall_loss(torch.zeros(1, 2), torch.ones(1, 2).bool(), "Exact")  # type: ignore[arg-type]

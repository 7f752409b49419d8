"""LWC: both sums of the loss, and weights from the outputs after the step."""

import math

import pytest
import torch
from torch.nn.functional import one_hot

from propall.data.dataset import PartialDataset
from propall.methods._leveraged import side_weights
from propall.methods.lwc import LWC, lwc_loss
from propall.nets import Linear
from propall.training.contract import Run, Step
from propall.training.networks import NetClassifier, build
from propall.training.recipe import Recipe
from propall.training.trainer import Trainer

STEP = Step(torch.tensor(0.0), torch.tensor(0.0))


def sets(n: int, k: int) -> torch.Tensor:
    candidates = (torch.rand(n, k) < 0.4) | one_hot(torch.arange(n) % k, k).bool()
    candidates[candidates.all(-1), 0] = False
    return candidates


def by_hand(r: list[float], inside: list[bool], w: list[float], beta: float, c: float) -> float:
    total = sum(map(math.exp, r))
    p = [math.exp(x) / total for x in r]
    return -sum(
        c * v * math.log(q + 1e-8) if candidate else beta * v * math.log(1 - q + 1e-8)
        for q, candidate, v in zip(p, inside, w, strict=True)
    )


@pytest.mark.parametrize(("beta", "c"), [(0.0, 1.0), (1.0, 1.0), (2.0, 0.5)])
def test_the_two_sums_by_hand(beta: float, c: float) -> None:
    logits, mask = 2 * torch.randn(10, 5, dtype=torch.float64), sets(10, 5)
    weights = torch.rand(10, 5, dtype=torch.float64)
    expected = [
        by_hand(*row, beta, c) for row in zip(logits.tolist(), mask.tolist(), weights.tolist(), strict=True)
    ]
    loss = lwc_loss(logits, mask, weights, beta=beta, candidate_weight=c)
    torch.testing.assert_close(loss, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("gap", [16.0, 18.0, 20.0])
def test_a_nearly_certain_wrong_label_in_float32(gap: float) -> None:
    """Here 1 - p is as small as the guard; subtraction in float32 would give 0 or 6e-8."""
    mask, weights = torch.tensor([[True, False, True]]), torch.tensor([[0.0, 1.0, 0.0]])
    logits = torch.tensor([[0.0, gap, 0.0]], requires_grad=True)
    loss = lwc_loss(logits, mask, weights)
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    rest = 2 * math.exp(-gap) / (1 + 2 * math.exp(-gap))
    assert loss.item() == pytest.approx(-math.log(rest + 1e-8), rel=1e-6)
    # d(1 - p)/dr of the wrong label is -p (1 - p).
    assert gradient[0, 1].item() == pytest.approx((1 - rest) * rest / (rest + 1e-8), rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits(dtype: torch.dtype) -> None:
    values = torch.tensor([-1e4, 0.0, 1e4])
    logits = torch.cartesian_prod(values, values, values).to(dtype).requires_grad_()
    mask = torch.tensor([True, True, False]).expand(27, 3)
    loss = lwc_loss(logits, mask, torch.full((27, 3), 1 / 3))
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert loss.dtype == torch.float32
    assert loss.isfinite().all()
    assert gradient.isfinite().all()
    assert side_weights(logits.detach(), mask).isfinite().all()
    assert loss.max().item() <= 2 * -math.log(1e-8) / 3 + 1e-4 + -math.log(1e-8) / 3


def test_candidates_and_non_candidates_are_normalized_separately() -> None:
    logits, mask = torch.randn(10, 5, dtype=torch.float64), sets(10, 5)
    weights, p = side_weights(logits, mask), logits.softmax(-1)
    for side in (mask, ~mask):
        mass = (p * side).sum(-1)
        torch.testing.assert_close((weights * side).sum(-1), mass / (mass + 5e-8), rtol=1e-12, atol=0)
        torch.testing.assert_close(weights[side], (p / (mass + 5e-8)[:, None])[side], rtol=1e-12, atol=0)


def test_first_weights_are_equal_on_all_classes() -> None:
    weights = LWC().init(torch.tensor([[True, False, False, False]])).rows["weights"]
    assert weights.tolist() == [[0.25] * 4]


def test_beta_zero_ignores_the_other_classes() -> None:
    logits, mask = torch.randn(6, 4, requires_grad=True), sets(6, 4)
    loss = LWC(beta=0.0).loss(logits, mask, LWC().init(mask), STEP)
    (gradient,) = torch.autograd.grad(loss, logits)
    first = lwc_loss(logits, mask, torch.full((6, 4), 0.25) * mask).mean()
    torch.testing.assert_close(loss, first)
    torch.testing.assert_close(gradient, torch.autograd.grad(first, logits)[0])


def test_weights_come_from_the_outputs_after_the_step() -> None:
    run = Run(PartialDataset(torch.randn(12, 5, dtype=torch.float64), sets(12, 4)), seed=3)
    recipe = Recipe(epochs=1, batch_size=12, learning_rate=1.0)
    (fitted,) = Trainer(LWC(), Linear, recipe).fit([run])
    assert isinstance(fitted, NetClassifier)
    weights, before = fitted.state.rows["weights"], build(Linear, run)(run.train.x).detach()
    torch.testing.assert_close(weights, side_weights(fitted.scores(run.train.x), run.train.candidates))
    assert (weights - side_weights(before, run.train.candidates)).abs().max() > 1e-3

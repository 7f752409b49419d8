"""LWS: both sums of the loss, and weights from the outputs after the step."""

import math

import pytest
import torch
from torch.nn.functional import one_hot

from propall.data.dataset import PartialDataset
from propall.methods._leveraged import side_weights
from propall.methods.lws import LWS, lws_loss
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
    terms = (
        c * v / (1 + math.exp(x)) if candidate else beta * v / (1 + math.exp(-x))
        for x, candidate, v in zip(r, inside, w, strict=True)
    )
    return sum(terms)


@pytest.mark.parametrize(("beta", "c"), [(0.0, 1.0), (1.0, 1.0), (2.0, 0.5)])
def test_the_two_sums_by_hand(beta: float, c: float) -> None:
    logits, mask = 3 * torch.randn(10, 5, dtype=torch.float64), sets(10, 5)
    weights = torch.rand(10, 5, dtype=torch.float64)
    expected = [
        by_hand(*row, beta, c) for row in zip(logits.tolist(), mask.tolist(), weights.tolist(), strict=True)
    ]
    loss = lws_loss(logits, mask, weights, beta=beta, candidate_weight=c)
    torch.testing.assert_close(loss, torch.tensor(expected, dtype=torch.float64))


def test_gradient_at_zero_is_a_quarter_of_the_weight() -> None:
    """A network whose last layer is zero must be able to learn."""
    logits = torch.zeros(1, 3, requires_grad=True)
    weights = torch.tensor([[0.2, 0.5, 0.3]])
    loss = lws_loss(logits, torch.tensor([[True, False, False]]), weights, beta=2.0)
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    torch.testing.assert_close(gradient, torch.tensor([[-0.2 / 4, 2 * 0.5 / 4, 2 * 0.3 / 4]]))


def test_loss_is_bounded_by_the_weights() -> None:
    mask = torch.tensor([[True, False]])
    worst = lws_loss(torch.tensor([[-1e4, 1e4]]), mask, torch.tensor([[0.6, 0.4]]), beta=2.0)
    torch.testing.assert_close(worst, torch.tensor([0.6 + 2 * 0.4]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits(dtype: torch.dtype) -> None:
    values = torch.tensor([-1e4, 0.0, 1e4])
    logits = torch.cartesian_prod(values, values, values).to(dtype).requires_grad_()
    mask = torch.tensor([True, True, False]).expand(27, 3)
    loss = lws_loss(logits, mask, torch.full((27, 3), 1 / 3))
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert loss.dtype == torch.float32
    assert loss.isfinite().all()
    assert gradient.isfinite().all()
    assert side_weights(logits.detach(), mask).isfinite().all()


def test_candidates_and_non_candidates_are_normalized_separately() -> None:
    logits, mask = torch.randn(10, 5, dtype=torch.float64), sets(10, 5)
    weights, p = side_weights(logits, mask), logits.softmax(-1)
    for side in (mask, ~mask):
        mass = (p * side).sum(-1)
        torch.testing.assert_close((weights * side).sum(-1), mass / (mass + 5e-8), rtol=1e-12, atol=0)
        torch.testing.assert_close(weights[side], (p / (mass + 5e-8)[:, None])[side], rtol=1e-12, atol=0)


def test_first_weights_are_equal_on_all_classes() -> None:
    weights = LWS().init(torch.tensor([[True, False, False, False]])).rows["weights"]
    assert weights.tolist() == [[0.25] * 4]


def test_beta_zero_ignores_the_other_classes() -> None:
    logits, mask = torch.randn(6, 4, requires_grad=True), sets(6, 4)
    loss = LWS(beta=0.0).loss(logits, mask, LWS().init(mask), STEP)
    (gradient,) = torch.autograd.grad(loss, logits)
    first = lws_loss(logits, mask, torch.full((6, 4), 0.25) * mask).mean()
    torch.testing.assert_close(loss, first)
    torch.testing.assert_close(gradient, torch.autograd.grad(first, logits)[0])


def test_weights_come_from_the_outputs_after_the_step() -> None:
    run = Run(PartialDataset(torch.randn(12, 5, dtype=torch.float64), sets(12, 4)), seed=3)
    recipe = Recipe(epochs=1, batch_size=12, learning_rate=1.0)
    (fitted,) = Trainer(LWS(), Linear, recipe).fit([run])
    assert isinstance(fitted, NetClassifier)
    weights, before = fitted.state.rows["weights"], build(Linear, run)(run.train.x).detach()
    torch.testing.assert_close(weights, side_weights(fitted.scores(run.train.x), run.train.candidates))
    assert (weights - side_weights(before, run.train.candidates)).abs().max() > 1e-3

"""PRODEN: loss, and weights from the outputs before the step."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from propall.data.dataset import PartialDataset
from propall.methods.proden import PRODEN, proden_loss
from propall.nets import Linear
from propall.numerics import restricted_softmax, uniform_weights
from propall.training.contract import Run, State, Step
from propall.training.networks import NetClassifier, build
from propall.training.recipe import Recipe
from propall.training.trainer import Trainer

STEP = Step(torch.tensor(0.0), torch.tensor(0.0))


def sets(n: int, k: int) -> torch.Tensor:
    return (torch.rand(n, k) < 0.4) | one_hot(torch.arange(n) % k, k).bool()


def data(n: int = 12, k: int = 4) -> PartialDataset:
    candidates = sets(n, k)
    candidates[:, k - 1] &= ~candidates[:, : k - 1].all(-1)
    return PartialDataset(torch.randn(n, 5, dtype=torch.float64), candidates)


def test_weighted_cross_entropy_and_its_gradient() -> None:
    logits = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(6, 5, dtype=torch.float64) * sets(6, 5)
    weights = weights / weights.sum(-1, keepdim=True)
    loss = proden_loss(logits, weights)
    expected = sum(
        weights[:, j] * cross_entropy(logits, torch.full((6,), j), reduction="none") for j in range(5)
    )
    torch.testing.assert_close(loss, expected)
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    torch.testing.assert_close(gradient, logits.detach().softmax(-1) - weights)


def test_first_weights_are_equal_on_the_set() -> None:
    mask = torch.tensor([[True, False, True, True], [False, True, False, False]])
    weights = PRODEN().init(mask).rows["weights"]
    torch.testing.assert_close(weights, torch.tensor([[1 / 3, 0, 1 / 3, 1 / 3], [0, 1, 0, 0]]))


def test_a_weight_of_zero_can_recover() -> None:
    """Weights are normalized over the original set, not over what is left of it."""
    mask = torch.tensor([[True, True, False]])
    state = State(rows={"weights": torch.tensor([[1.0, 0.0, 0.0]])})
    new = PRODEN().update(torch.tensor([[0.0, 0.0, 5.0]]), mask, state, STEP).rows["weights"]
    torch.testing.assert_close(new, torch.tensor([[0.5, 0.5, 0.0]]))


@pytest.mark.parametrize("gap", [200.0, 1e4])
def test_weights_where_all_candidates_are_far_below(gap: float) -> None:
    mask = torch.tensor([[True, True, False]])
    new = PRODEN().update(torch.tensor([[-gap, -gap - 1, gap]]), mask, PRODEN().init(mask), STEP)
    expected = torch.tensor([0.0, -1.0]).softmax(-1)
    torch.testing.assert_close(new.rows["weights"], torch.tensor([[expected[0], expected[1], 0.0]]))


def test_floor_inside_the_logarithm_caps_the_loss() -> None:
    logits = torch.tensor([[0.0, 500.0]], dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    floored = proden_loss(logits, weights, 1e-12)
    assert floored.item() == pytest.approx(-math.log(1e-12))
    assert proden_loss(logits, weights).item() == pytest.approx(500.0)
    (gradient,) = torch.autograd.grad(floored.sum(), logits)
    assert gradient.abs().max() < 1e-12


@pytest.mark.parametrize("floor", [0.0, 1e-12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits(dtype: torch.dtype, floor: float) -> None:
    values = torch.tensor([-1e4, 0.0, 1e4])
    logits = torch.cartesian_prod(values, values, values).to(dtype).requires_grad_()
    weights = torch.tensor([0.3, 0.7, 0.0]).expand(27, 3)
    loss = proden_loss(logits, weights, floor)
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert loss.dtype == torch.float32
    assert loss.isfinite().all()
    assert gradient.isfinite().all()


def test_weights_come_from_the_outputs_before_the_step() -> None:
    run = Run(data(), seed=3)
    recipe = Recipe(epochs=1, batch_size=12, learning_rate=0.5)
    before = build(Linear, run)(run.train.x).detach()
    (fitted,) = Trainer(PRODEN(), Linear, recipe).fit([run])
    assert isinstance(fitted, NetClassifier)
    after, weights = fitted.scores(run.train.x), fitted.state.rows["weights"]
    torch.testing.assert_close(weights, restricted_softmax(before, run.train.candidates))
    assert (weights - restricted_softmax(after, run.train.candidates)).abs().max() > 1e-3


def test_each_visit_uses_the_weights_of_the_visit_before() -> None:
    """Compare two epochs of one batch with a plain loop."""
    run = Run(data(), seed=1)
    recipe = Recipe(epochs=2, batch_size=12, learning_rate=0.3, momentum=0.9, weight_decay=1e-3)
    net = build(Linear, run)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9, weight_decay=1e-3)
    weights = uniform_weights(run.train.candidates, torch.float64)
    for _ in range(2):
        logits = net(run.train.x)
        loss = -(weights * logits.log_softmax(-1)).sum(-1).mean()
        weights = restricted_softmax(logits.detach(), run.train.candidates)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    (fitted,) = Trainer(PRODEN(), Linear, recipe).fit([run])
    assert isinstance(fitted, NetClassifier)
    # The initial weights are float32.
    torch.testing.assert_close(fitted.scores(run.train.x), net(run.train.x).detach(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(fitted.state.rows["weights"], weights, rtol=1e-6, atol=1e-6)

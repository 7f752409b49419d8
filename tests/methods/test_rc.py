"""RC: PRODEN's loss, with weights from the outputs after the step."""

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from propall.data.dataset import PartialDataset
from propall.methods._label_weights import weighted_cross_entropy
from propall.methods.proden import PRODEN
from propall.methods.rc import RC
from propall.nets import MLP, Linear
from propall.numerics import restricted_softmax, uniform_weights
from propall.training.contract import Objective, Run
from propall.training.networks import NetClassifier, build
from propall.training.recipe import Recipe
from propall.training.trainer import Trainer


def data(n: int = 12, k: int = 4) -> PartialDataset:
    candidates = (torch.rand(n, k) < 0.4) | one_hot(torch.arange(n) % k, k).bool()
    candidates[candidates.all(-1), 0] = False
    return PartialDataset(torch.randn(n, 5, dtype=torch.float64), candidates)


def trained(objective: Objective, run: Run, epochs: int = 1) -> NetClassifier:
    recipe = Recipe(epochs=epochs, batch_size=12, learning_rate=0.5)
    (fitted,) = Trainer(objective, Linear, recipe).fit([run])
    assert isinstance(fitted, NetClassifier)
    return fitted


def test_weighted_cross_entropy_and_its_gradient() -> None:
    logits = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    weights = restricted_softmax(torch.randn(6, 5, dtype=torch.float64), data(6, 5).candidates)
    loss = weighted_cross_entropy(logits, weights)
    expected = sum(
        weights[:, j] * cross_entropy(logits, torch.full((6,), j), reduction="none") for j in range(5)
    )
    torch.testing.assert_close(loss, expected)
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    torch.testing.assert_close(gradient, logits.detach().softmax(-1) - weights)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits(dtype: torch.dtype) -> None:
    values = torch.tensor([-1e4, 0.0, 1e4])
    logits = torch.cartesian_prod(values, values, values).to(dtype).requires_grad_()
    loss = weighted_cross_entropy(logits, torch.tensor([0.3, 0.7, 0.0]).expand(27, 3))
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert loss.dtype == torch.float32
    assert loss.isfinite().all()
    assert gradient.isfinite().all()


def test_weights_come_from_the_outputs_after_the_step() -> None:
    run = Run(data(), seed=3)
    before = build(Linear, run)(run.train.x).detach()
    fitted = trained(RC(), run)
    weights = fitted.state.rows["weights"]
    torch.testing.assert_close(weights, restricted_softmax(fitted.scores(run.train.x), run.train.candidates))
    assert (weights - restricted_softmax(before, run.train.candidates)).abs().max() > 1e-3


def test_differs_from_proden_only_in_when_weights_are_updated() -> None:
    run = Run(data(), seed=5)
    ours, theirs = trained(RC(), run), trained(PRODEN(), run)
    torch.testing.assert_close(ours.scores(run.train.x), theirs.scores(run.train.x))
    assert (ours.state.rows["weights"] - theirs.state.rows["weights"]).abs().max() > 1e-3
    # If the network does not change, both updates are the same.
    recipe = Recipe(epochs=3, batch_size=12, learning_rate=0.0)
    still = [Trainer(objective, Linear, recipe).fit([run])[0] for objective in (RC(), PRODEN())]
    rows = [c.state.rows["weights"] for c in still if isinstance(c, NetClassifier)]
    torch.testing.assert_close(*rows)


def test_each_visit_uses_the_weights_of_the_visit_before() -> None:
    """Compare three epochs with a plain loop that runs the network again after each step."""
    run = Run(data(), seed=1)
    net = build(Linear, run)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    weights = uniform_weights(run.train.candidates, torch.float64)
    for _ in range(3):
        loss = -(weights * net(run.train.x).log_softmax(-1)).sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        weights = restricted_softmax(net(run.train.x).detach(), run.train.candidates)
    fitted = trained(RC(), run, epochs=3)
    torch.testing.assert_close(fitted.scores(run.train.x), net(run.train.x).detach(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(fitted.state.rows["weights"], weights, rtol=1e-6, atol=1e-6)


def test_the_second_forward_is_in_training_mode() -> None:
    """As in the authors' code, batch norm uses the batch statistics in the update."""
    run = Run(data(), seed=2)
    recipe = Recipe(epochs=1, batch_size=12, learning_rate=0.5)

    def net(in_shape: tuple[int, ...], n_classes: int) -> MLP:
        return MLP(in_shape, n_classes, widths=(8,), batch_norm=True)

    (fitted,) = Trainer(RC(), net, recipe).fit([run])
    assert isinstance(fitted, NetClassifier)
    logits = fitted.net.train()(run.train.x).detach()
    torch.testing.assert_close(fitted.state.rows["weights"], restricted_softmax(logits, run.train.candidates))

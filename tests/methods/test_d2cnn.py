"""D2CNN: the three terms, the ramp, the ensemble, and when the state is updated."""

import math

import pytest
import torch
from torch.nn.functional import one_hot

from propall.data.dataset import PartialDataset
from propall.methods.d2cnn import (
    D2CNN,
    d2cnn_loss,
    d2cnn_terms,
    ensemble_average,
    ramp_up,
    teacher_from_ensemble,
)
from propall.nets import Linear
from propall.training.contract import Run, State, Step
from propall.training.networks import NetClassifier, build
from propall.training.recipe import Recipe
from propall.training.trainer import Trainer


def at(epoch: float) -> Step:
    return Step(torch.tensor(0.0), torch.tensor(epoch))


def sets(n: int, k: int) -> torch.Tensor:
    candidates = (torch.rand(n, k) < 0.4) | one_hot(torch.arange(n) % k, k).bool()
    candidates[candidates.all(-1), 0] = False
    return candidates


def test_the_three_terms_by_hand() -> None:
    logits, mask = 2 * torch.randn(8, 5, dtype=torch.float64), sets(8, 5)
    teacher, omega = torch.rand(8, 5, dtype=torch.float64), torch.rand(8, dtype=torch.float64)
    terms = d2cnn_terms(logits, mask, teacher, omega)
    for i, p in enumerate(logits.softmax(-1).tolist()):
        outside = [q for q, inside in zip(p, mask[i].tolist(), strict=True) if not inside]
        assert terms.fidelity[i].item() == pytest.approx(-sum(math.log(1 - q + 1e-5) for q in outside))
        assert terms.entropy[i].item() == pytest.approx(-sum(q * math.log(q + 1e-10) for q in p))
        agreement = sum(t * math.log(q + 1e-5) for t, q in zip(teacher[i].tolist(), p, strict=True))
        assert terms.ensembling[i].item() == pytest.approx(-omega[i].item() * agreement)
    loss = d2cnn_loss(logits, mask, teacher, omega, entropy_weight=0.3, ensemble_weight=0.7)
    torch.testing.assert_close(loss, terms.fidelity + 0.3 * terms.entropy + 0.7 * terms.ensembling)


def test_entropy_is_minimized() -> None:
    logits = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    mask, nothing = torch.ones(4, 5, dtype=torch.bool), torch.zeros(4, 5, dtype=torch.float64)
    loss = d2cnn_loss(logits, mask, nothing, entropy_weight=1.0).sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    entropy = [
        torch.distributions.Categorical(logits=z).entropy().sum() for z in (logits, logits - 0.1 * gradient)
    ]
    assert entropy[1] < entropy[0]


def test_a_nearly_certain_wrong_label_in_float32() -> None:
    """Subtraction in float32 would lose 1 - p and most digits of 1e-5."""
    mask, nothing = torch.tensor([[True, False]]), torch.zeros(1, 2)
    for gap in (10.0, 15.0, 20.0):
        fidelity = d2cnn_terms(torch.tensor([[0.0, gap]]), mask, nothing).fidelity
        assert fidelity.item() == pytest.approx(-math.log(1 / (1 + math.exp(gap)) + 1e-5), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits(dtype: torch.dtype) -> None:
    values = torch.tensor([-1e4, 0.0, 1e4])
    logits = torch.cartesian_prod(values, values, values).to(dtype).requires_grad_()
    mask = torch.tensor([True, True, False]).expand(27, 3)
    loss = d2cnn_loss(logits, mask, torch.full((27, 3), 1 / 3))
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert loss.dtype == torch.float32
    assert loss.isfinite().all()
    assert gradient.isfinite().all()


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(0, math.exp(-5)), (40, math.exp(-1.25)), (79, math.exp(-5 / 6400)), (80, 1), (500, 1)],
)
def test_ramp(epoch: int, expected: float) -> None:
    assert ramp_up(torch.tensor(float(epoch), dtype=torch.float64)).item() == pytest.approx(expected)
    assert ramp_up(torch.tensor(epoch), top=3.0).item() == pytest.approx(3 * expected)
    assert ramp_up(torch.tensor(epoch / 8.0), length=10.0).item() == pytest.approx(expected)


def test_the_average_is_unbiased_from_the_first_visit_on() -> None:
    mask = torch.ones(1, 3, dtype=torch.bool)
    first, second = torch.randn(2, 1, 3)
    state = D2CNN().init(mask)
    once = D2CNN().update(first, mask, state, at(0))
    assert once.rows["visits"].tolist() == [1]
    average = ensemble_average(once.rows["ensemble"], once.rows["visits"], 0.6)
    torch.testing.assert_close(average, first.softmax(-1))
    twice = D2CNN().update(second, mask, once, at(1))
    assert twice.rows["visits"].tolist() == [2]
    average = ensemble_average(twice.rows["ensemble"], twice.rows["visits"], 0.6)
    torch.testing.assert_close(average, (0.6 * first.softmax(-1) + second.softmax(-1)) / 1.6)
    torch.testing.assert_close(average.sum(), torch.tensor(1.0))
    assert (ensemble_average(state.rows["ensemble"], state.rows["visits"], 0.6) == 0).all()


def test_teacher_is_the_average_on_the_candidates() -> None:
    mask = torch.tensor([[True, True, False]]).expand(3, 3)
    ensemble = torch.tensor([[0.1, 0.2, 0.1], [0.0, 0.0, 0.4], [0.3, 0.05, 0.05]])
    teacher = teacher_from_ensemble(ensemble, torch.tensor([1, 1, 0]), mask, 0.6)
    # The candidates of the second row have no mass; the third row was never visited.
    expected = torch.tensor([[1 / 3, 2 / 3, 0], [0.5, 0.5, 0], [0.5, 0.5, 0]])
    torch.testing.assert_close(teacher, expected)


def test_the_loss_uses_the_state_before_the_visit_and_completed_epochs() -> None:
    mask = torch.tensor([[True, True, False]])
    objective, logits = D2CNN(), torch.tensor([[1.0, -1.0, 0.5]], dtype=torch.float64)
    state = State(rows={"ensemble": torch.tensor([[0.3, 0.1, 0.0]]).double(), "visits": torch.tensor([1])})
    for epoch in (0, 40, 80):
        teacher = torch.tensor([[0.75, 0.25, 0.0]], dtype=torch.float64)
        ramp = math.exp(-5 * (1 - epoch / 80) ** 2)
        expected = d2cnn_loss(logits, mask, teacher, entropy_weight=0.1, ensemble_weight=ramp).mean()
        torch.testing.assert_close(
            objective.loss(logits, mask, state, at(epoch)), expected, rtol=1e-6, atol=0
        )
    doubled = D2CNN(row_weight=2.0).loss(logits, mask, state, at(80))
    torch.testing.assert_close(doubled, D2CNN(ensemble_weight=2.0).loss(logits, mask, state, at(80)))


def test_one_visit_per_epoch_from_the_outputs_before_the_step() -> None:
    run = Run(PartialDataset(torch.randn(13, 5, dtype=torch.float64), sets(13, 4)), seed=3)
    before = build(Linear, run)(run.train.x).detach().softmax(-1)

    def rows(**recipe: float) -> dict[str, torch.Tensor]:
        (fitted,) = Trainer(D2CNN(), Linear, Recipe(batch_size=13, **recipe)).fit([run])  # type: ignore[arg-type]
        assert isinstance(fitted, NetClassifier)
        return fitted.state.rows

    once = rows(epochs=1, learning_rate=1.0)
    torch.testing.assert_close(once["ensemble"], 0.4 * before)
    still = rows(epochs=3, learning_rate=0.0)
    assert still["visits"].tolist() == [3] * 13
    torch.testing.assert_close(still["ensemble"], (1 - 0.6**3) * before)

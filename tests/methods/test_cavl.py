"""CAVL: selection by class activation value, among the candidates and after the step."""

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from propall.data.dataset import PartialDataset
from propall.methods._label_weights import weighted_cross_entropy
from propall.methods.cavl import CAVL, selected_candidate
from propall.nets import Linear
from propall.training.contract import Run, State, Step
from propall.training.networks import NetClassifier, build
from propall.training.recipe import Recipe
from propall.training.trainer import Trainer

STEP = Step(torch.tensor(0.0), torch.tensor(0.0))


def chosen(logits: list[float], candidates: list[int]) -> int:
    mask = torch.tensor([[int(i in candidates) for i in range(len(logits))]]).bool()
    weights = selected_candidate(torch.tensor([logits]), mask)
    assert weights.sum() == 1
    return int(weights.argmax())


def test_the_largest_activation_value_among_candidates() -> None:
    logits, mask = 2 * torch.randn(50, 6), torch.rand(50, 6) < 0.5
    mask[:, 2] = True
    for row, inside, weights in zip(
        logits.tolist(), mask.tolist(), selected_candidate(logits, mask), strict=True
    ):
        values = {j: r * abs(1 - r) for j, r in enumerate(row) if inside[j]}
        assert weights.tolist() == [float(j == max(values, key=values.__getitem__)) for j in range(6)]


def test_the_value_is_not_the_logit() -> None:
    assert chosen([0.5, 0.9, 0.0], [0, 1]) == 0
    assert chosen([0.5, 1.9, 0.0], [0, 1]) == 1


def test_a_non_candidate_never_wins() -> None:
    """Multiplying values by the mask would select class 2 (value 0) in all of these."""
    assert chosen([-1.0, -2.0, 5.0, -1.0], [0, 1]) == 0
    assert chosen([-2.0, 3.0, 3.0, -1.0], [0, 3]) == 3
    assert chosen([-1e4, 0.0, 1.0], [0]) == 0


def test_ties_go_to_the_lowest_index() -> None:
    assert chosen([3.0, 0.0, 0.0, 1.0], [1, 2, 3]) == 1
    assert chosen([-1.0, 2.0, 2.0], [1, 2]) == 1


def test_loss_before_and_after_the_first_selection() -> None:
    mask = torch.tensor([[True, True, False]])
    logits = torch.tensor([[0.2, 2.0, -1.0]], dtype=torch.float64)
    first = CAVL().init(mask)
    both = (cross_entropy(logits, torch.tensor([0])) + cross_entropy(logits, torch.tensor([1]))) / 2
    torch.testing.assert_close(CAVL().loss(logits, mask, first, STEP), both)
    second = CAVL().update(logits, mask, first, STEP)
    torch.testing.assert_close(
        CAVL().loss(logits, mask, second, STEP), cross_entropy(logits, torch.tensor([1]))
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits(dtype: torch.dtype) -> None:
    values = torch.tensor([-1e4, 0.0, 1e4])
    logits = torch.cartesian_prod(values, values, values).to(dtype).requires_grad_()
    mask = torch.tensor([True, True, False]).expand(27, 3)
    weights = selected_candidate(logits.detach(), mask)
    loss = weighted_cross_entropy(logits, weights)
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert weights.dtype == loss.dtype == torch.float32
    assert (weights * ~mask == 0).all()
    assert loss.isfinite().all()
    assert gradient.isfinite().all()


def test_the_selection_uses_the_outputs_after_the_step() -> None:
    candidates = (torch.rand(40, 4) < 0.6) | one_hot(torch.arange(40) % 4, 4).bool()
    candidates[candidates.all(-1), 0] = False
    run = Run(PartialDataset(torch.randn(40, 5), candidates), seed=3)
    recipe = Recipe(epochs=1, batch_size=40, learning_rate=2.0)
    (fitted,) = Trainer(CAVL(), Linear, recipe).fit([run])
    assert isinstance(fitted, NetClassifier)
    weights = fitted.state.rows["weights"]
    assert torch.equal(weights, selected_candidate(fitted.scores(run.train.x), candidates))
    assert not torch.equal(weights, selected_candidate(build(Linear, run)(run.train.x).detach(), candidates))


def test_the_memory_is_left_alone() -> None:
    mask = torch.tensor([[True, True, False]])
    state = State(rows={"weights": torch.tensor([[0.5, 0.5, 0.0]])})
    CAVL().update(torch.randn(1, 3), mask, state, STEP)
    assert state.rows["weights"].tolist() == [[0.5, 0.5, 0.0]]

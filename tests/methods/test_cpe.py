import json
from dataclasses import asdict

import pytest
import torch

from propall.methods.cpe import CPE, cpe_direct_loss, cpe_transition_loss, trained_transition
from propall.training.contract import Step

BIASED = ((0.0, 0.7, 0.3), (0.25, 0.0, 0.75), (0.9, 0.1, 0.0))
EACH_ONCE = ~torch.eye(3).bool()  # row i excludes label i
STEP = Step(torch.tensor(0.0), torch.tensor(0))


def test_predicted_distributions_sum_to_one():
    logits = torch.randn(3, dtype=torch.float64).expand(3, 3)
    transition = torch.tensor(BIASED, dtype=torch.float64)
    direct = (-cpe_direct_loss(logits, EACH_ONCE)).exp()
    torch.testing.assert_close(direct, logits[0].softmax(-1))
    through = (-cpe_transition_loss(logits, EACH_ONCE, transition, 1e-6)).exp() - 1e-6
    torch.testing.assert_close(through, logits[0].softmax(-1) @ transition)


@pytest.mark.parametrize("transition", ["uniform", BIASED])
def test_the_trained_variant_starts_at_the_fixed_one(transition):
    logits = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    values = []
    for variant in ("F", "T"):
        objective = CPE(variant=variant, transition=transition)
        loss = objective.loss(logits, EACH_ONCE, objective.init(EACH_ONCE), STEP)
        values.append((loss, torch.autograd.grad(loss, logits)[0]))
    torch.testing.assert_close(*values, rtol=0, atol=1e-14)


def test_training_moves_the_matrix_and_keeps_its_zeros():
    objective = CPE(variant="T", transition=BIASED)
    state = objective.init(EACH_ONCE)
    assert CPE(variant="F").init(EACH_ONCE).trained == {}
    offsets = state.trained["transition"].clone().requires_grad_()
    logits = torch.randn(3, 3)
    loss = objective.loss(logits, EACH_ONCE, state._replace(trained={"transition": offsets}), STEP)
    gradient = torch.autograd.grad(loss, offsets)[0]
    impossible = torch.tensor(BIASED) == 0
    assert (gradient[impossible] == 0).all()
    assert (gradient[~impossible] != 0).all()
    # Trained offsets with weight decay: still a distribution, and finite where log Q is not.
    moved = trained_transition(state.shared["transition"].float(), 0.9 * offsets - 10 * gradient)
    torch.testing.assert_close(moved.sum(-1), torch.ones(3))
    assert (moved[impossible] == 0).all()
    after = state._replace(trained={"transition": -10 * gradient})
    assert objective.loss(logits, EACH_ONCE, after, STEP) < loss
    assert not objective.scores(logits, after).equal(objective.scores(logits, state))


@pytest.mark.parametrize("transition", ["uniform", BIASED])
def test_decoding_finds_the_class(transition):
    state = CPE(transition=transition).init(EACH_ONCE)
    matrix = state.shared["transition"]
    certain = 30 * torch.eye(3, dtype=torch.float64)  # one-hot softmax: F predicts that class's row of Q
    assert CPE("F", transition).scores(certain, state).argmax(-1).tolist() == [0, 1, 2]
    predicted = (matrix + 1e-9).log()  # softmax is a row of Q: I predicts it directly
    assert CPE("I", transition).scores(predicted, state).argmax(-1).tolist() == [0, 1, 2]


def test_scores_are_distances_with_ties_to_the_lowest_class():
    logits = torch.randn(4, 3, dtype=torch.float64)
    objective = CPE("I", BIASED)
    p, rows = logits.softmax(-1), torch.tensor(BIASED, dtype=torch.float64)
    expected = [[-(p[i] - rows[y]).abs().sum().item() for y in range(3)] for i in range(4)]
    scores = objective.scores(logits, objective.init(EACH_ONCE))
    assert scores.tolist() == [pytest.approx(row, abs=1e-12) for row in expected]
    tied = CPE("I").scores(torch.zeros(1, 3), CPE("I").init(EACH_ONCE))
    assert tied.argmax(-1).tolist() == [0]


@pytest.mark.parametrize("variant", ["I", "F", "T"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits(variant, dtype):
    objective = CPE(variant=variant)
    state = objective.init(EACH_ONCE)
    logits = torch.tensor([[1e4, 0, -1e4], [-1e4, 0, 1e4], [0, -1e4, 1e4]], dtype=dtype, requires_grad=True)
    trained = {name: value.clone().requires_grad_() for name, value in state.trained.items()}
    loss = objective.loss(logits, EACH_ONCE, state._replace(trained=trained), STEP)
    gradients = torch.autograd.grad(loss, [logits, *trained.values()])
    assert loss.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert objective.scores(logits, state).isfinite().all()


def test_survives_json_and_refuses():
    objective = CPE("T", BIASED)
    assert CPE(**json.loads(json.dumps(asdict(objective)))) == objective
    candidates = torch.tensor([[1, 0, 1], [1, 1, 1], [1, 0, 0]]).bool()
    with pytest.raises(
        ValueError, match=r"2 of 3 rows .* \(first: 1, which excludes 0\); CPE .* Use forward"
    ):
        objective.init(candidates)
    with pytest.raises(ValueError, match="3 rows of length"):
        objective.init(~torch.eye(4).bool())

import itertools
import json
from dataclasses import asdict

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from propall.methods.forward import Forward, forward_loss, uniform_forward_loss
from propall.numerics import negative_log_mass
from propall.training.contract import Step

BIASED = ((0.0, 0.7, 0.3), (0.25, 0.0, 0.75), (1.0, 0.0, 0.0))
STEP = Step(torch.tensor(0.0), torch.tensor(0))


@pytest.mark.parametrize("excluded", [0, 1, 2, 3])
def test_uniform_form_is_a_likelihood(excluded):
    # The probabilities of all sets of one size that a class can exclude sum to one.
    sets = list(itertools.combinations(range(4), 4 - excluded))
    candidates = torch.tensor([[j in s for j in range(4)] for s in sets])
    losses = uniform_forward_loss(torch.randn(4, dtype=torch.float64).expand(len(sets), 4), candidates)
    assert (-losses).exp().sum().item() == pytest.approx(1, abs=1e-13)


def test_matrix_form_is_a_likelihood():
    logits = torch.randn(3, dtype=torch.float64)
    losses = forward_loss(logits.expand(3, 3), ~torch.eye(3).bool(), torch.tensor(BIASED).double())
    expected = -(logits.softmax(-1) @ torch.tensor(BIASED).double()).log()
    torch.testing.assert_close(losses, expected, rtol=1e-6, atol=0)
    assert (-losses).exp().sum().item() == pytest.approx(1, abs=1e-7)


def test_uniform_form_and_related_losses():
    logits = 3 * torch.randn(6, 4, dtype=torch.float64)
    truth = torch.arange(6) % 4
    one = ~one_hot(truth, 4).bool()
    log_3 = torch.tensor(3.0, dtype=torch.float64).log()
    torch.testing.assert_close(uniform_forward_loss(logits, one), negative_log_mass(logits, one) + log_3)
    torch.testing.assert_close(
        uniform_forward_loss(logits, ~one), cross_entropy(logits, truth, reduction="none")
    )
    uniform = (1 - torch.eye(4, dtype=torch.float64)) / 3
    torch.testing.assert_close(uniform_forward_loss(logits, one), forward_loss(logits, one, uniform))


@pytest.mark.parametrize("transition", ["uniform", BIASED])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits(transition, dtype):
    # Label 1 is certain, and excluded: public code returns infinity.
    logits = torch.tensor([[0, 8192, -8192]], dtype=dtype, requires_grad=True)
    candidates = torch.tensor([[1, 0, 1]]).bool()
    objective = Forward(transition=transition)
    loss = objective.loss(logits, candidates, objective.init(candidates), STEP)
    assert loss.item() == pytest.approx(8192, abs=1)
    loss.backward()
    assert logits.grad.tolist() == [[-1, 1, 0]]


@pytest.mark.parametrize("excluded_logit", [1e4, -1e4])
def test_matrix_form_is_accurate_for_large_logits(excluded_logit):
    # Both classes that can exclude label 1 have logits near 1e4; label 1 is equally likely or impossible.
    logits = torch.tensor([[1e4, excluded_logit + 0.5, 1e4 + 1.25]], requires_grad=True)
    transition = torch.tensor([[0, 0.75, 0.25], [0.5, 0, 0.5], [0.75, 0.25, 0]])
    loss = forward_loss(logits, torch.tensor([[1, 0, 1]]).bool(), transition).sum()
    precise = logits.detach().double().requires_grad_()
    expected = -(precise.softmax(-1) @ transition.double())[:, 1].log().sum()
    torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=1e-6)
    gradients = torch.autograd.grad(expected, precise)[0].float()
    torch.testing.assert_close(torch.autograd.grad(loss, logits)[0], gradients, rtol=1e-6, atol=1e-6)


def test_the_objective_uses_its_matrix_and_survives_json():
    objective = Forward(transition=BIASED)
    assert Forward(**json.loads(json.dumps(asdict(objective)))) == objective
    logits, candidates = torch.randn(3, 3, dtype=torch.float64), ~torch.eye(3).bool()
    loss = objective.loss(logits, candidates, objective.init(candidates), STEP)
    torch.testing.assert_close(
        loss, forward_loss(logits, candidates, torch.tensor(BIASED, dtype=torch.float64)).mean()
    )


def test_refusals():
    several = torch.tensor([[1, 0, 1], [1, 0, 0], [1, 1, 1]]).bool()
    Forward().init(several)
    with pytest.raises(ValueError, match=r"2 of 3 rows .* \(first: 1, which excludes 2\).*'uniform'"):
        Forward(transition=BIASED).init(several)
    never = ((0.0, 1.0, 0.0), (1.0, 0.0, 0.0), (0.5, 0.5, 0.0))
    with pytest.raises(
        ValueError, match=r"1 row with an excluded label whose column is 0 \(first: row 1, label 2\)"
    ):
        Forward(transition=never).init(torch.tensor([[1, 0, 1], [1, 1, 0]]).bool())
    with pytest.raises(ValueError, match="3 rows of length"):
        Forward(transition=BIASED).init(~torch.eye(4).bool())

import pytest
import torch
from torch.nn.functional import one_hot

from propall.methods._risks import ClassRisks, class_risks
from propall.methods.free import free_loss
from propall.methods.ga import GA, ga_step
from propall.training.contract import State, Step

PRIOR = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
STEP = Step(torch.tensor(0.0), torch.tensor(0))


def batch(scale):
    return (
        (scale * torch.randn(8, 4, dtype=torch.float64)).requires_grad_(),
        ~one_hot(torch.arange(8) % 3, 4).bool(),
    )


def gradient(value, logits):
    return torch.autograd.grad(value, logits)[0]


@pytest.mark.parametrize("variant", ["public", "paper"])
def test_ascent_negates_the_gradient_of_the_negative_risks(variant):
    logits, candidates = batch(4.0)
    estimate = class_risks(logits, candidates, PRIOR)
    tested = estimate.risks * (estimate.counts if variant == "public" else 1)
    negative = sum(t for t in tested if t < 0)
    step = ga_step(estimate, variant)
    assert step.ascends
    torch.testing.assert_close(step.backward, negative)
    torch.testing.assert_close(step.loss, -negative)
    torch.testing.assert_close(step.risk, free_loss(estimate))
    expected = -gradient(negative, logits)
    state = State(shared={"prior": PRIOR})
    loss = GA(variant=variant).loss(logits, candidates, state, STEP)
    torch.testing.assert_close(gradient(loss, logits), expected)


@pytest.mark.parametrize("variant", ["public", "paper"])
def test_descent_is_free(variant):
    # Every class excluded twice, equal logits: all class risks are (1 - (k - 1)/k) log k.
    logits = torch.zeros(8, 4, dtype=torch.float64, requires_grad=True)
    candidates = ~one_hot(torch.arange(8) % 4, 4).bool()
    prior = torch.full((4,), 0.25, dtype=torch.float64)
    estimate = class_risks(logits, candidates, prior)
    step = ga_step(estimate, variant)
    assert not step.ascends
    assert step.loss == step.backward == step.risk
    descent = torch.autograd.grad(step.loss, logits, retain_graph=True)[0]
    torch.testing.assert_close(descent, gradient(free_loss(estimate), logits))


def test_a_class_absent_from_the_batch_ascends_in_the_paper_only():
    estimate = ClassRisks(risks=torch.tensor([1.0, -0.5]), counts=torch.tensor([3.0, 0.0]))
    assert ga_step(estimate, "paper").loss == 0.5
    assert ga_step(estimate, "public").loss == 0.5  # the sum of the risks: no ascent
    assert ga_step(estimate, "paper").ascends
    assert not ga_step(estimate, "public").ascends


def test_fields_reach_the_loss():
    logits, _ = batch(4.0)
    candidates = torch.rand(8, 4) < 0.5
    candidates[:, 0] = True
    candidates[0, 1] = False
    weight = torch.rand(8, dtype=torch.float64)
    seen = set()
    for variant in ("public", "paper"):
        for pairs in ("instance", "pooled"):
            objective = GA(variant=variant, pairs=pairs)
            state = objective.init(candidates, weight)
            loss = objective.loss(logits, candidates, state, STEP._replace(weight=weight))
            estimate = class_risks(logits, candidates, state.shared["prior"], pairs=pairs, weight=weight)
            torch.testing.assert_close(loss, ga_step(estimate, variant).loss)
            seen.add(round(loss.item(), 9))
    assert len(seen) == 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("variant", ["public", "paper"])
def test_extreme_logits(variant, dtype):
    logits = torch.tensor([[1e4, 0, -1e4], [-1e4, 0, 1e4]], dtype=dtype, requires_grad=True)
    candidates = torch.tensor([[0, 1, 1], [1, 1, 0]]).bool()
    loss = ga_step(class_risks(logits, candidates, torch.tensor([0.5, 0, 0.5])), variant).loss
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()


def test_refuses_data_without_excluded_labels():
    with pytest.raises(ValueError, match="candidates: no row"):
        GA().init(torch.ones(2, 3, dtype=torch.bool))

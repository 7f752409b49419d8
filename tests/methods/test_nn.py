import pytest
import torch
from torch.nn.functional import one_hot

from propall.methods._risks import class_risks
from propall.methods.free import free_loss
from propall.methods.nn import NN, nn_loss
from propall.training.contract import Step

PRIOR = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)


def batch(scale):
    return scale * torch.randn(8, 4, dtype=torch.float64), ~one_hot(torch.arange(8) % 4, 4).bool()


def test_at_least_free_and_equal_where_no_risk_is_negative():
    equal = []
    for scale in (0.0, 0.5, 1.0, 4.0):
        logits, candidates = batch(scale)
        estimate = class_risks(logits, candidates, PRIOR)
        ours, free = nn_loss(estimate), free_loss(estimate)
        negative = (estimate.risks < 0).any()
        assert ours >= max(free.item(), 0)
        assert torch.isclose(ours, free, atol=1e-12) == (not negative)
        equal.append(not negative)
    assert True in equal
    assert False in equal


def test_negative_classes_send_no_gradient():
    logits, candidates = batch(4.0)
    logits.requires_grad_()
    positive = [j for j, r in enumerate(class_risks(logits, candidates, PRIOR).risks.tolist()) if r > 0]
    assert 0 < len(positive) < 4
    kept = sum(class_risks(logits, candidates, PRIOR).risks[j] for j in positive)
    expected = torch.autograd.grad(kept, logits)[0]
    objective = NN()
    state = objective.init(candidates).with_shared(prior=PRIOR)
    loss = objective.loss(logits, candidates, state, Step(torch.tensor(0.0), torch.tensor(0)))
    torch.testing.assert_close(torch.autograd.grad(loss, logits)[0], expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits(dtype):
    logits = torch.tensor([[1e4, 0, -1e4], [-1e4, 0, 1e4]], dtype=dtype, requires_grad=True)
    candidates = torch.tensor([[0, 1, 1], [1, 1, 0]]).bool()
    loss = nn_loss(class_risks(logits, candidates, torch.tensor([0.5, 0, 0.5])))
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()


def test_refuses_data_without_excluded_labels():
    with pytest.raises(ValueError, match="candidates: no row"):
        NN().init(torch.ones(2, 3, dtype=torch.bool))

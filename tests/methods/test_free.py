import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from propall.methods._risks import class_risks
from propall.methods.free import Free, free_loss
from propall.training.contract import Step

STEP = Step(torch.tensor(0.0), torch.tensor(0))


@pytest.mark.parametrize("pairs", ["instance", "pooled"])
def test_every_wrong_label_once_is_cross_entropy(pairs):
    truth = torch.tensor([0, 3, 3, 1, 2])
    outputs = 2 * torch.randn(5, 4, dtype=torch.float64)
    excluded = torch.stack([(truth + shift) % 4 for shift in (1, 2, 3)], dim=1).flatten()
    candidates = ~one_hot(excluded, 4).bool()
    objective = Free(pairs=pairs)
    loss = objective.loss(outputs.repeat_interleave(3, 0), candidates, objective.init(candidates), STEP)
    torch.testing.assert_close(loss, cross_entropy(outputs, truth), rtol=0, atol=1e-13)


def test_may_be_negative():
    # Both rows exclude label 0 and give it low probability: its large loss counts 1 - (k - 1) times.
    candidates = torch.tensor([[0, 1, 1], [0, 1, 1]]).bool()
    logits = torch.tensor([[-8.0, 0, 0], [-8.0, 0, 0]])
    assert free_loss(class_risks(logits, candidates, torch.tensor([1.0, 0, 0]))) < -5


@pytest.mark.parametrize(
    ("pairs", "prior"), [("instance", [3 / 9, 1 / 9, 1 / 9, 4 / 9]), ("pooled", [1 / 5, 1 / 5, 1 / 5, 2 / 5])]
)
def test_sets_are_rows_repeated_for_each_excluded_label(pairs, prior):
    candidates = torch.tensor([[1, 0, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1]]).bool()
    logits = torch.randn(3, 4, dtype=torch.float64)
    row, label = (~candidates).nonzero(as_tuple=True)
    one_each = ~one_hot(label, 4).bool()
    share = 1 / (~candidates).sum(-1).double()[row] if pairs == "instance" else None
    objective = Free(pairs=pairs)
    state, one_each_state = objective.init(candidates), objective.init(one_each, share)
    assert state.shared["prior"].tolist() == pytest.approx(prior)
    loss = objective.loss(logits, candidates, state, STEP)
    repeated = objective.loss(logits[row], one_each, one_each_state, STEP._replace(weight=share))
    torch.testing.assert_close(loss, repeated, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits(dtype):
    logits = torch.tensor([[1e4, 0, -1e4], [-1e4, 0, 1e4]], dtype=dtype, requires_grad=True)
    candidates = torch.tensor([[0, 1, 1], [1, 1, 0]]).bool()
    loss = free_loss(class_risks(logits, candidates, torch.tensor([0.5, 0, 0.5])))
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()


def test_refuses_data_without_excluded_labels():
    with pytest.raises(ValueError, match="candidates: no row"):
        Free().init(torch.ones(2, 3, dtype=torch.bool))

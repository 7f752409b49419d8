import pytest
import torch
from torch.nn.functional import cross_entropy

from propall.methods.abs import ABS, abs_gce_loss, abs_mae_loss
from propall.training.contract import Step

CANDIDATES = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 1], [1, 1, 1, 0], [1, 1, 1, 1]]).bool()


def test_by_definition():
    logits = 2 * torch.randn(4, 4, dtype=torch.float64)
    mae, gce = [], []
    for p, members in zip(logits.softmax(-1), CANDIDATES, strict=True):
        labels = members.nonzero().flatten().tolist()
        mae.append(sum((p - torch.eye(4)[j]).abs().sum() for j in labels) / len(labels))
        gce.append(sum((1 - p[j] ** 0.7) / 0.7 for j in labels) / len(labels))
    torch.testing.assert_close(abs_mae_loss(logits, CANDIDATES), torch.stack(mae))
    torch.testing.assert_close(abs_gce_loss(logits, CANDIDATES), torch.stack(gce))


def test_generalized_cross_entropy_between_its_limits():
    logits = torch.randn(4, 4, dtype=torch.float64)
    torch.testing.assert_close(2 * abs_gce_loss(logits, CANDIDATES, q=1.0), abs_mae_loss(logits, CANDIDATES))
    single = CANDIDATES[:1]
    near_zero = abs_gce_loss(logits[:1], single, q=torch.tensor(1e-9, dtype=torch.float64))
    torch.testing.assert_close(near_zero.mean(), cross_entropy(logits[:1], torch.tensor([0])))


def test_full_sets_have_no_gradient_under_the_absolute_error():
    logits = torch.randn(1, 4, dtype=torch.float64, requires_grad=True)
    loss = abs_mae_loss(logits, CANDIDATES[3:]).sum()
    assert loss.item() == pytest.approx(2 * (1 - 1 / 4))
    assert torch.autograd.grad(loss, logits)[0].abs().max() < 1e-15


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bounded", ["mae", "gce"])
def test_extreme_logits_reach_the_bounds(bounded, dtype):
    logits = torch.tensor([[1e4, 0, -1e4], [-1e4, 0, 1e4]], dtype=dtype, requires_grad=True)
    candidates = torch.tensor([[1, 0, 0], [1, 0, 0]]).bool()
    step = Step(torch.tensor(0.0), torch.tensor(0))
    objective = ABS(bounded=bounded, q=0.5)
    losses = objective.losses(logits, candidates, objective.init(candidates), step)
    assert losses.tolist() == pytest.approx([0, 2])  # the same maximum for q = 1/2
    losses.sum().backward()
    assert logits.grad.isfinite().all()

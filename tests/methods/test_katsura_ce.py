import itertools

import pytest
import torch

from propall.methods.katsura_ce import katsura_ce_loss


def test_by_definition():
    logits = 3 * torch.randn(6, 4, dtype=torch.float64)
    candidates = torch.rand(6, 4) < 0.5
    log_losses = (-logits.softmax(-1).log()).tolist()
    expected = [
        3 * sum(row[j] for j in range(4) if members[j]) - (sum(members) - 1) * sum(row)
        for row, members in zip(log_losses, candidates.tolist(), strict=True)
    ]
    assert katsura_ce_loss(logits, candidates).tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_unbiased_scale_is_unbiased(size):
    logits = torch.randn(5, dtype=torch.float64)
    sets = [s for s in itertools.combinations(range(5), size) if 2 in s]
    candidates = torch.tensor([[j in s for j in range(5)] for s in sets])
    losses = katsura_ce_loss(logits.expand(len(sets), 5), candidates, "unbiased")
    torch.testing.assert_close(losses.mean(), -logits.log_softmax(-1)[2], rtol=0, atol=1e-13)


def test_scales_agree_for_one_excluded_label_only():
    logits = torch.randn(2, 4, dtype=torch.float64)
    candidates = torch.tensor([[1, 1, 0, 1], [1, 0, 0, 1]]).bool()
    plain, unbiased = (katsura_ce_loss(logits, candidates, scale) for scale in ("none", "unbiased"))
    torch.testing.assert_close(plain, unbiased * torch.tensor([1, 2]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits(dtype):
    logits = torch.tensor([[8192, 0, -8192], [8192, 0, -8192]], dtype=dtype, requires_grad=True)
    losses = katsura_ce_loss(logits, torch.tensor([[1, 1, 0], [1, 1, 1]]).bool())
    assert losses.tolist() == [8192 - 2 * 8192, 0.0]  # unbounded below; 0 for a full set
    losses.sum().backward()
    assert logits.grad.isfinite().all()

"""Losses that divide by the number of excluded labels skip rows that exclude none."""

from functools import partial

import pytest
import torch

from propall.methods.katsura_ce import katsura_ce_loss
from propall.methods.l_uw import l_uw_loss
from propall.methods.l_w import l_w_loss
from propall.methods.mcl_exp import mcl_exp_loss
from propall.methods.mcl_gce import mcl_gce_loss
from propall.methods.mcl_log import mcl_log_loss
from propall.methods.mcl_mae import mcl_mae_loss
from propall.methods.mcl_mse import mcl_mse_loss
from propall.methods.ova import ova_loss
from propall.methods.pc import pc_loss

LOSSES = {
    **{f.__name__: f for f in (mcl_log_loss, mcl_exp_loss, mcl_mae_loss, mcl_mse_loss, mcl_gce_loss)},
    **{f.__name__: f for f in (l_w_loss, l_uw_loss)},
    **{f.__name__: partial(f, scale="unbiased") for f in (pc_loss, ova_loss, katsura_ce_loss)},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spread", [1.0, 1e4])
@pytest.mark.parametrize("name", LOSSES)
def test_rows_that_exclude_nothing_have_zero_loss(name, spread, dtype):
    logits = (spread * torch.randn(3, 4, dtype=dtype)).requires_grad_()
    candidates = torch.tensor([[1, 0, 0, 1], [1, 1, 1, 1], [1, 1, 1, 0]]).bool()
    losses = LOSSES[name](logits, candidates)
    losses.sum().backward()
    assert losses[1] == 0
    assert logits.grad[1].tolist() == [0.0] * 4
    assert logits.grad.isfinite().all()
    others = LOSSES[name](logits[[0, 2]], candidates[[0, 2]])
    assert losses[[0, 2]].tolist() == others.tolist()

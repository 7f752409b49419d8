"""The fused losses where no Triton kernel runs: the same closed forms in plain PyTorch."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from propall import counter_rng
from propall.kernels.rows import Rows, precision


def losses_and_slopes(loss: str, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """Every row's loss, its gradient in the logits, and the softmax over the candidates."""
    logits, candidates, weights, scale, seed, step, keys = rows
    r = logits.to(precision(logits))
    if scale is not None and seed is not None and step is not None and keys is not None:
        labels = torch.arange(r.shape[-1], device=r.device)
        uniform = counter_rng.uniform(seed.unsqueeze(-1), step.unsqueeze(-1), keys.unsqueeze(-1), labels)
        r = r + scale.unsqueeze(-1) * uniform.logit(1e-7)
    inside = r.masked_fill(~candidates, -torch.inf)
    share = inside.softmax(-1)
    if loss == "propall":
        sigmoid, miss = r.sigmoid(), softplus(r, threshold=40)
        far = inside.amax(-1) < -50
        h = miss.masked_fill(~candidates, 0).sum(-1).where(~far, 1.0)
        hit = torch.where(h < 0.5, torch.log(-torch.expm1(-h)), torch.log1p(-torch.exp(-h)))
        losses = miss.masked_fill(candidates, 0).sum(-1) - torch.where(far, inside.logsumexp(-1), hit)
        pull = torch.where(far.unsqueeze(-1), share, sigmoid / torch.expm1(h).unsqueeze(-1))
        return losses, torch.where(candidates, -pull, sigmoid), share
    if loss == "cc":
        # Below the row's maximum one of the two sums is near 0, and their difference loses nothing to it.
        below = r - r.amax(-1, keepdim=True)
        inside = below.masked_fill(~candidates, -torch.inf)
        gap = below.masked_fill(candidates, -torch.inf).logsumexp(-1) - inside.logsumexp(-1)
        pull = share * gap.sigmoid().unsqueeze(-1)
        return softplus(gap, threshold=40), torch.where(candidates, -pull, r.softmax(-1)), share
    assert weights is not None
    slope = r.softmax(-1) * weights.sum(-1, keepdim=True) - weights
    return -(weights * r.log_softmax(-1)).sum(-1), slope, share

"""Numerically stable building blocks that several methods share."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

LOG_2 = 0.6931471805599453


def is_traced() -> bool:
    """Whether a compiler or a `torch.func` transform is running, so tensors have no values to inspect."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def full_precision(logits: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Half precisions as float32, anything else as it is: losses are always computed in 32 bits or more."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def uniform_weights(
    candidates: Bool[Tensor, "*b k"], dtype: torch.dtype = torch.float32
) -> Float[Tensor, "*b k"]:
    """Equal weight 1/|S| on every candidate, 0 elsewhere."""
    return candidates.to(dtype) / candidates.sum(-1, keepdim=True, dtype=dtype)


def restricted_softmax(
    logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]
) -> Float[Tensor, "*b k"]:
    """Softmax over the candidates alone, exactly 0 elsewhere.

    Notes:
        Public code takes the softmax over all classes and divides by its sum over S, which is 0/0 as soon as
        all candidates lie about 103 logits (float32) below another class. Masking first has no such limit.
    """
    return full_precision(logits).masked_fill(~candidates, -torch.inf).softmax(-1)


def below_maximum(logits: Float[Tensor, "*b k"]) -> tuple[Float[Tensor, "*b k"], Float[Tensor, "*b"]]:
    """Logits below the maximum of their row, and that maximum, without gradient; 0 where it is infinite.

    A logsumexp of size 1e4 has three decimals in float32, and so have the differences and the softmax (its
    gradient) that are taken from it; below the maximum it has all of them.
    """
    top = logits.detach().amax(-1, keepdim=True)
    top = top.masked_fill(top.isinf(), 0)
    return logits - top, top.squeeze(-1)


def negative_log_mass(logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    r"""Minus the log of the softmax probability of the candidate set, to full relative accuracy.

    .. math:: -\log \sum_{j \in S} p_j = \operatorname{softplus}\bigl(
        \operatorname{LSE}_{j \notin S} r_j - \operatorname{LSE}_{j \in S} r_j\bigr)

    Zero where the set holds every class.
    """
    logits = full_precision(logits)
    full = candidates.all(-1, keepdim=True)
    inside, low = below_maximum(logits.masked_fill(~candidates, -torch.inf))
    # A full set has nothing outside; any finite input keeps the unused branch's gradient finite.
    outside, high = below_maximum(logits.masked_fill(candidates & ~full, -torch.inf))
    gap = (high - low) + (outside.logsumexp(-1) - inside.logsumexp(-1))
    return torch.where(full.squeeze(-1), 0.0, torch.nn.functional.softplus(gap, threshold=40))


def probabilities_and_complements(
    logits: Float[Tensor, "*b k"],
) -> tuple[Float[Tensor, "*b k"], Float[Tensor, "*b k"]]:
    """Softmax p and 1 - p, the latter without cancellation: for the largest p it is the sum of the others."""
    p = full_precision(logits).softmax(-1)
    top = torch.arange(p.shape[-1], device=p.device) == p.argmax(-1, keepdim=True)
    rest = p.masked_fill(top, 0.0).sum(-1, keepdim=True)
    return p, torch.where(top, rest, 1 - p)


def log1mexp(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    r"""log(1 - exp(-x)) for x > 0, accurate at both ends, with a finite gradient.

    References:
        [maechler2012log1mexp]: `expm1` below log 2, `log1p` above.
    """
    if not x.requires_grad and not is_traced():  # one branch is accurate, but its gradient overflows
        return torch.log1p(torch.expm1(x).reciprocal_()).neg_()
    near = x < LOG_2
    # Each branch gets 1.0 where it is not taken: its gradient could be infinite there, and 0 * inf is NaN.
    small, large = x.where(near, 1.0), x.where(~near, 1.0)
    return torch.where(near, torch.log(-torch.expm1(-small)), torch.log1p(-torch.exp(-large)))

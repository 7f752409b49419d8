"""Candidate sets: one bool tensor (n, k), and how a distribution is read on it."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor



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


def negative_log_mass(
    logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]
) -> Float[Tensor, "*b"]:
    r"""Minus the log of the softmax probability of the candidate set, to full relative accuracy.

    .. math:: -\log \sum_{j \in S} p_j = \operatorname{softplus}\bigl(
        \operatorname{LSE}_{j \notin S} r_j - \operatorname{LSE}_{j \in S} r_j\bigr)

    Zero where the set holds every class.
    """
    logits = full_precision(logits)
    full = candidates.all(-1, keepdim=True)
    inside = logits.masked_fill(~candidates, -torch.inf).logsumexp(-1)
    # A full set has nothing outside; any finite input keeps the unused branch's gradient finite.
    outside = logits.masked_fill(candidates & ~full, -torch.inf).logsumexp(-1)
    return torch.where(full.squeeze(-1), 0.0, torch.nn.functional.softplus(outside - inside, threshold=40))


def probabilities_and_complements(
    logits: Float[Tensor, "*b k"],
) -> tuple[Float[Tensor, "*b k"], Float[Tensor, "*b k"]]:
    """Softmax p and 1 - p, the latter without cancellation: for the largest p it is the sum of the others."""
    p = full_precision(logits).softmax(-1)
    top = torch.nn.functional.one_hot(p.argmax(-1), p.shape[-1]).bool()
    rest = p.masked_fill(top, 0.0).sum(-1, keepdim=True)
    return p, torch.where(top, rest, 1 - p)

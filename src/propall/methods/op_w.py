"""OP-W (Liu et al.): order-preserving loss, weighted up where the excluded label is still likely."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._risks import OneExcludedLabel
from propall.numerics import below_maximum, full_precision
from propall.training.contract import StatelessObjective


def op_w_loss(
    logits: Float[Tensor, "*b k"],
    candidates: Bool[Tensor, "*b k"],
    floor: float | Float[Tensor, ""] = 1e-6,
) -> Float[Tensor, "*b"]:
    r"""Weighted cross-entropy of the excluded label with the softmax of the negated logits.

    .. math:: \ell = -w_{\bar y} \log v_{\bar y}, \qquad v = \operatorname{softmax}(-r), \qquad
        w = \operatorname{softmax}(r) \odot \operatorname{softmax}(1 / v) + \epsilon

    The weight is differentiated too.

    Args:
        logits: scores r.
        candidates: True on every class except the excluded one, ybar.
        floor: epsilon, the smallest weight.

    References:
        [liu2023op].

    Notes:
        1/v overflows for logits about 88 apart (float32). Up to a constant per row, to which the softmax is
        invariant, 1/v_j is exp(c) (exp(r_j - m) - 1) with m the largest logit and c = LSE(m - r). The
        exponent c is clipped at half the log of the largest float, where the softmax has long saturated.
    """
    logits = full_precision(logits)
    log_v = (-logits).log_softmax(-1)
    below, _ = below_maximum(logits)
    spread = (-below).logsumexp(-1, keepdim=True)
    steepness = spread.clamp(max=math.log(torch.finfo(logits.dtype).max) / 2).exp()
    weight = logits.softmax(-1) * (steepness * below.expm1()).softmax(-1) + floor
    return -(weight * log_v * ~candidates).sum(-1)


@dataclass(frozen=True)
class OPW(OneExcludedLabel, StatelessObjective):
    """Order-preserving loss, weighted.

    Attributes:
        floor: smallest weight; see `op_w_loss`.
    """

    floor: float = 1e-6

    name, title, reference = "op_w", "OP-W", "liu2023op"
    assumes = "one excluded label per row, less probable for the true class than for any other"
    use_when = "As OP, with weights that follow the predictions. This is the variant in libcll."
    instead = "l_w or mcl_log, which take several excluded labels"
    formula = staticmethod(op_w_loss)

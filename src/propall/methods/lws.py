"""LWS (Wen et al.): leveraged weighted sigmoid loss, which also penalizes non-candidates."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._leveraged import LeveragedLoss
from propall.numerics import full_precision


def lws_loss(
    logits: Float[Tensor, "*b k"],
    candidates: Bool[Tensor, "*b k"],
    weights: Float[Tensor, "*b k"],
    *,
    beta: float | Tensor = 1.0,
    candidate_weight: float | Tensor = 1.0,
) -> Float[Tensor, "*b"]:
    r"""Weighted sigmoid loss of the candidates plus leveraged sigmoid loss of the other classes.

    .. math:: \ell = c \sum_{j \in S} w_j \, \sigma(-r_j) + \beta \sum_{j \notin S} w_j \, \sigma(r_j)

    with c the `candidate_weight`.

    Args:
        logits: scores r.
        candidates: True on S; at least one True per row.
        weights: w over all classes; candidates and non-candidates are normalized separately.
        beta: leverage of the non-candidates; 0 ignores them.
        candidate_weight: factor of the first sum.

    References:
        [wen2021leveraged].

    Notes:
        The authors' piecewise sigmoid has zero gradient at a logit of exactly 0, so a network whose output
        layer is initialized with zeros never learns. Here the gradient is exact: w/4 in absolute value.
    """
    logits = full_precision(logits)
    sigmoids = torch.where(candidates, candidate_weight * (-logits).sigmoid(), beta * logits.sigmoid())
    return (weights * sigmoids).sum(-1)


@dataclass(frozen=True)
class LWS(LeveragedLoss):
    """Leveraged weighted loss with the sigmoid.

    The weights come from the softmax although the loss uses sigmoids; see `LeveragedLoss` for the fields.
    """

    name, title = "lws", "LWS"
    assumes = "every wrong label gets into the set independently, with a probability of the class"
    use_when = (
        "If excluded labels deserve a weight of their own (`beta`). Its sigmoid loss is "
        "bounded, so a single bad row costs little."
    )
    formula = staticmethod(lws_loss)

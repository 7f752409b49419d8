"""LWC (Wen et al.): leveraged weighted cross-entropy, which also penalizes non-candidates."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._leveraged import LeveragedLoss
from propall.numerics import probabilities_and_complements

#: Added to probabilities inside logarithms, as in the authors' code.
GUARD = 1e-8


def lwc_loss(
    logits: Float[Tensor, "*b k"],
    candidates: Bool[Tensor, "*b k"],
    weights: Float[Tensor, "*b k"],
    *,
    beta: float | Tensor = 1.0,
    candidate_weight: float | Tensor = 1.0,
) -> Float[Tensor, "*b"]:
    r"""Weighted cross-entropy of the candidates plus leveraged cross-entropy of the other classes.

    .. math:: \ell = -c \sum_{j \in S} w_j \log(p_j + \epsilon)
        - \beta \sum_{j \notin S} w_j \log(1 - p_j + \epsilon)

    with p = softmax(r), epsilon = 1e-8 and c the `candidate_weight`.

    Args:
        logits: scores r.
        candidates: True on S; at least one True per row.
        weights: w over all classes; candidates and non-candidates are normalized separately.
        beta: leverage of the non-candidates; 0 ignores them.
        candidate_weight: factor of the first sum.

    References:
        [wen2021leveraged].

    Notes:
        1 - p is computed without cancellation; the subtraction in float32 has an error larger than epsilon.
    """
    p, complement = probabilities_and_complements(logits)
    correct = torch.where(candidates, p, complement) + GUARD
    leverage = torch.where(candidates, candidate_weight * weights, beta * weights)
    return -(leverage * correct.log()).sum(-1)


@dataclass(frozen=True)
class LWC(LeveragedLoss):
    """Leveraged weighted loss with cross-entropy; see `LeveragedLoss` for the fields."""

    name, title = "lwc", "LWC"
    assumes = "every wrong label gets into the set independently, with a probability of the class"
    use_when = (
        "As LWS, with logarithms: it trains like a cross-entropy, and a set without the "
        "true label costs more."
    )
    formula = staticmethod(lwc_loss)

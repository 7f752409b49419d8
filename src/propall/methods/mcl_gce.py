"""MCL-GCE (Feng et al.): unbiased risk with multiple complementary labels, generalized cross-entropy."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propall.numerics import full_precision
from propall.training.contract import StatelessObjective


def mcl_gce_loss(
    logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"], q: float | Float[Tensor, ""] = 0.7
) -> Float[Tensor, "*b"]:
    r"""Unbiased estimate of the generalized cross-entropy from complementary labels.

    .. math:: \ell = \sum_{j \in S} l_j - \frac{k - 1 - s}{s} \sum_{j \notin S} l_j
        = \frac1q \Bigl[1 - \sum_{j \in S} p_j^q + \frac{k - 1 - s}{s} \sum_{j \notin S} p_j^q\Bigr], \qquad
        l_j = \frac{1 - p_j^q}{q}, \quad s = k - |S|

    with p = softmax(r); 0 where S contains every class.

    Args:
        logits: scores r.
        candidates: True on S.
        q: exponent in (0, 1]; 1 gives half the absolute error, q -> 0 cross-entropy.

    References:
        [feng2020multiple].

    Notes:
        The power is computed from log p, since the gradient of p^q is NaN where p underflows to 0.
    """
    powers = (q * full_precision(logits).log_softmax(-1)).exp()
    excluded = (~candidates).sum(-1, keepdim=True, dtype=powers.dtype).clamp_min(1)
    share = torch.where(candidates, -1.0, (logits.shape[-1] - 1 - excluded) / excluded)
    return (1 + (share * powers).sum(-1)) / q * ~candidates.all(-1)


@dataclass(frozen=True)
class MCLGCE(StatelessObjective):
    """Learning with multiple complementary labels, unbiased risk of the generalized cross-entropy.

    Attributes:
        q: exponent of the generalized cross-entropy, in (0, 1].
    """

    q: float = 0.7

    name, title, reference = "mcl_gce", "MCL-GCE", "feng2020multiple"
    assumes = "given their number, excluded labels are drawn uniformly from the wrong ones"
    use_when = "A compromise between MCL-MAE (`q=1`) and a logarithm (small `q`)."
    kind = "complementary labels"
    formula = staticmethod(mcl_gce_loss)

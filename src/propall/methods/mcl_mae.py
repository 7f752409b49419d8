"""MCL-MAE (Feng et al.): unbiased risk with multiple complementary labels, absolute error."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._risks import over_excluded
from propall.numerics import full_precision
from propall.training.contract import StatelessObjective


def mcl_mae_loss(logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    r"""Unbiased estimate of the absolute error from complementary labels.

    .. math:: \ell = \sum_{j \in S} l_j - \frac{k - 1 - s}{s} \sum_{j \notin S} l_j
        = \frac{2 (k - 1)}{s} \sum_{j \notin S} p_j, \qquad l_j = 2 - 2 p_j, \quad s = k - |S|

    with p = softmax(r); 0 where S contains every class. The second form avoids cancellation.

    Args:
        logits: scores r.
        candidates: True on S.

    References:
        [feng2020multiple].
    """
    outside = (full_precision(logits).softmax(-1) * ~candidates).sum(-1)
    return over_excluded(2 * (logits.shape[-1] - 1) * outside, candidates)


@dataclass(frozen=True)
class MCLMAE(StatelessObjective):
    """Learning with multiple complementary labels, unbiased risk of the absolute error."""

    name, title, reference = "mcl_mae", "MCL-MAE", "feng2020multiple"
    assumes = "given their number, excluded labels are drawn uniformly from the wrong ones"
    use_when = (
        "As MCL-LOG, with a symmetric, bounded loss, if some excluded labels may be true. Training is slow."
    )
    kind = "complementary labels"
    formula = staticmethod(mcl_mae_loss)

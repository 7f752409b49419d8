"""MCL-MSE (Feng et al.): unbiased risk with multiple complementary labels, squared error."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._risks import over_excluded
from propall.numerics import probabilities_and_complements
from propall.training.contract import StatelessObjective


def mcl_mse_loss(logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    r"""Unbiased estimate of the squared error from complementary labels.

    .. math:: \ell = \sum_{j \in S} l_j - \frac{k - 1 - s}{s} \sum_{j \notin S} l_j
        = \frac{2 (k - 1)}{s} \sum_{j \notin S} p_j - \sum_j p_j (1 - p_j), \qquad
        l_j = \sum_i (p_i - [i = j])^2, \quad s = k - |S|

    with p = softmax(r); 0 where S contains every class. The second form avoids the cancellation of the
    first, which subtracts sums of order k.

    Args:
        logits: scores r.
        candidates: True on S.

    References:
        [feng2020multiple].
    """
    p, complement = probabilities_and_complements(logits)
    outside = (p * ~candidates).sum(-1)
    estimate = over_excluded(2 * (logits.shape[-1] - 1) * outside, candidates)
    return estimate - (p * complement).sum(-1) * ~candidates.all(-1)


@dataclass(frozen=True)
class MCLMSE(StatelessObjective):
    """Learning with multiple complementary labels, unbiased risk of the squared error."""

    name, title, reference = "mcl_mse", "MCL-MSE", "feng2020multiple"
    assumes = "given their number, excluded labels are drawn uniformly from the wrong ones"
    use_when = "As MCL-MAE, with squared errors of the probabilities, which are bounded too."
    kind = "complementary labels"
    formula = staticmethod(mcl_mse_loss)

"""MCL-EXP (Feng et al.): exponential upper bound on the risk with multiple complementary labels."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._risks import over_excluded
from propall.numerics import full_precision
from propall.training.contract import StatelessObjective


def mcl_exp_loss(logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    r"""Exponential of the negative candidate mass, scaled up for rows that exclude few labels.

    .. math:: \ell = \frac{k - 1}{k - |S|} \exp\Bigl(-\sum_{j \in S} p_j\Bigr)

    with p = softmax(r); 0 where S contains every class.

    Args:
        logits: scores r.
        candidates: True on S.

    References:
        [feng2020multiple].
    """
    inside = (full_precision(logits).softmax(-1) * candidates).sum(-1)
    return over_excluded((-inside).exp() * (logits.shape[-1] - 1), candidates)


@dataclass(frozen=True)
class MCLExp(StatelessObjective):
    """Learning with multiple complementary labels, exponential bound."""

    name, title, reference = "mcl_exp", "MCL-EXP", "feng2020multiple"
    assumes = "given their number, excluded labels are drawn uniformly from the wrong ones"
    use_when = "As MCL-LOG, with a bounded loss, if some excluded labels may be true."
    kind = "complementary labels"
    formula = staticmethod(mcl_exp_loss)

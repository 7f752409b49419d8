"""MCL-LOG (Feng et al.): logarithmic upper bound on the risk with multiple complementary labels."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._risks import over_excluded
from propall.numerics import negative_log_mass
from propall.training.contract import StatelessObjective


def mcl_log_loss(logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    r"""Negative log of the candidate mass, scaled up for rows that exclude few labels.

    .. math:: \ell = -\frac{k - 1}{k - |S|} \log \sum_{j \in S} p_j

    with p = softmax(r); 0 where S contains every class. One candidate gives cross-entropy.

    Args:
        logits: scores r.
        candidates: True on S; at least one True per row.

    References:
        [feng2020multiple].
    """
    return over_excluded(negative_log_mass(logits, candidates) * (logits.shape[-1] - 1), candidates)


@dataclass(frozen=True)
class MCLLog(StatelessObjective):
    """Learning with multiple complementary labels, logarithmic bound."""

    name, title, reference = "mcl_log", "MCL-LOG", "feng2020multiple"
    assumes = "given their number, excluded labels are drawn uniformly from the wrong ones"
    use_when = "If rows exclude different numbers of labels: CC with more weight on rows that exclude few."
    kind = "complementary labels"
    formula = staticmethod(mcl_log_loss)

"""L-UW (Gao and Zhang): cross-entropy of the excluded label with softmax(1 - p)."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._risks import over_excluded
from propall.numerics import full_precision
from propall.training.contract import StatelessObjective


def l_uw_loss(logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    r"""Unweighted discriminative loss, averaged over the excluded labels.

    .. math:: \ell = -\frac{1}{k - |S|} \sum_{j \notin S} \log q_j, \qquad q = \operatorname{softmax}(1 - p)

    with p = softmax(r); 0 where S contains every class. Since 1 - p lies in [0, 1], q is bounded away from
    0 and 1.

    Args:
        logits: scores r.
        candidates: True on S.

    References:
        [gao2021discriminative], for one excluded label; several are averaged here.
    """
    complement = 1 - full_precision(logits).softmax(-1)
    return over_excluded(-(complement.log_softmax(-1) * ~candidates).sum(-1), candidates)


@dataclass(frozen=True)
class LUW(StatelessObjective):
    """Discriminative complementary-label learning, unweighted."""

    name, title, reference = "l_uw", "L-UW", "gao2021discriminative"
    assumes = "excluded labels are wrong; nothing about how they are drawn"
    use_when = (
        "To compare with L-W: the same loss without weights, which reaches more in the tables of the paper."
    )
    kind = "complementary labels"
    formula = staticmethod(l_uw_loss)

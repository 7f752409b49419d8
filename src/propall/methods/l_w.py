"""L-W (Gao and Zhang): cross-entropy of the excluded label with softmax(1 - p), weighted by 1 - p."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._risks import over_excluded
from propall.numerics import full_precision
from propall.training.contract import StatelessObjective


def l_w_loss(logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    r"""Weighted discriminative loss, averaged over the excluded labels.

    .. math:: \ell = -\frac{1}{k - |S|} \sum_{j \notin S} \Bigl(1 + \frac{1 - p_j}{k - 1}\Bigr) \log q_j,
        \qquad q = \operatorname{softmax}(1 - p)

    with p = softmax(r); 0 where S contains every class. The weight is differentiated too.

    Args:
        logits: scores r.
        candidates: True on S.

    References:
        [gao2021discriminative], for one excluded label; several are averaged here.
    """
    complement = 1 - full_precision(logits).softmax(-1)
    weighted = (1 + complement / (logits.shape[-1] - 1)) * complement.log_softmax(-1)
    return over_excluded(-(weighted * ~candidates).sum(-1), candidates)


@dataclass(frozen=True)
class LW(StatelessObjective):
    """Discriminative complementary-label learning, weighted."""

    name, title, reference = "l_w", "L-W", "gao2021discriminative"
    assumes = "excluded labels are wrong; nothing about how they are drawn"
    use_when = "To compare. Its gradients are small, so it needs a high learning rate or many epochs."
    kind = "complementary labels"
    formula = staticmethod(l_w_loss)

"""CE (Katsura and Uchida): unbiased cross-entropy risk for candidate sets, without a lower bound."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._risks import Scale, over_excluded
from propall.numerics import full_precision
from propall.training.contract import StatelessObjective


def katsura_ce_loss(
    logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"], scale: Scale = "none"
) -> Float[Tensor, "*b"]:
    r"""Log-losses of the candidates, corrected by those of the other classes.

    .. math:: \ell = (k - 1) \sum_{j \in S} L_j - (|S| - 1) \sum_j L_j
        = (k - |S|) \sum_{j \in S} L_j - (|S| - 1) \sum_{j \notin S} L_j, \qquad L_j = -\log p_j

    with p = softmax(r). It is 0 where S contains every class, and unbounded below for two or more candidates.

    Args:
        logits: scores r.
        candidates: True on S.
        scale: "unbiased" divides each row by k - |S|, which makes the mean an unbiased estimate of the
            cross-entropy risk; "none" omits the factor. Both agree where one label is excluded.

    References:
        [katsura2020bridging].

    Notes:
        The authors' code divides by the batch size twice; here it is the plain mean.
    """
    log_losses = -full_precision(logits).log_softmax(-1)
    size = candidates.sum(-1, keepdim=True)
    rest = logits.shape[-1] - size
    losses = (torch.where(candidates, rest, 1 - size) * log_losses).sum(-1)
    return losses if scale == "none" else over_excluded(losses, candidates)


@dataclass(frozen=True)
class KatsuraCE(StatelessObjective):
    """Cross-entropy risk on candidate sets.

    Attributes:
        scale: "none" or "unbiased"; see `katsura_ce_loss`.
    """

    scale: Scale = "none"

    name, title, reference = "katsura_ce", "CE (Katsura)", "katsura2020bridging"
    assumes = "excluded labels are drawn uniformly from the wrong ones"
    use_when = (
        "To compare: an unbiased risk for sets with cross-entropy, which is unbounded below and overfits."
    )
    kind = "complementary labels"
    formula = staticmethod(katsura_ce_loss)

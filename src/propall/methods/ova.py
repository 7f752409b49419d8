"""OVA (Katsura and Uchida): bounded one-versus-all losses of the candidates."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._risks import Scale, over_excluded
from propall.numerics import full_precision
from propall.training.contract import StatelessObjective


def ova_loss(
    logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"], scale: Scale = "none"
) -> Float[Tensor, "*b"]:
    r"""One-versus-all losses of the candidates.

    .. math:: \ell = \sum_{j \in S} \Bigl[\phi(r_j) + \frac{1}{k - 1} \sum_{i \ne j} \phi(-r_i)\Bigr]
        = \frac{(k - |S|) \sum_{j \in S} \phi(r_j) - |S| \sum_{i \notin S} \phi(r_i)}{k - 1}, \qquad
        \phi(t) = \sigma(-t) - \tfrac12

    The second form holds because phi is odd; it shows that the loss is 0 where S contains every class.

    Args:
        logits: scores r.
        candidates: True on S.
        scale: "unbiased" multiplies each row by (k - 1)/(k - |S|), which makes the mean an unbiased estimate
            of the one-versus-all risk; "none" omits the factor.

    References:
        [katsura2020bridging].

    Notes:
        The default omits the factor, as the authors' code does.
    """
    logits = full_precision(logits)
    phi = -0.5 * (logits / 2).tanh()
    size = candidates.sum(-1, keepdim=True)
    rest = logits.shape[-1] - size
    losses = (torch.where(candidates, rest, -size) * phi).sum(-1) / (logits.shape[-1] - 1)
    if scale == "none":
        return losses
    return over_excluded(losses * (logits.shape[-1] - 1), candidates)


@dataclass(frozen=True)
class OVA(StatelessObjective):
    """One-versus-all loss on candidate sets.

    Attributes:
        scale: "none" or "unbiased"; see `ova_loss`.
    """

    scale: Scale = "none"

    name, title, reference = "ova", "OVA", "katsura2020bridging"
    assumes = "excluded labels are drawn uniformly from the wrong ones"
    use_when = (
        "To compare with published tables. With several candidates per row ProPaLL and PRODEN are better."
    )
    kind = "complementary labels"
    formula = staticmethod(ova_loss)

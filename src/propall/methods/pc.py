"""PC (Katsura and Uchida): pairwise comparison of every candidate with every non-candidate."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._risks import Scale, over_excluded
from propall.numerics import full_precision
from propall.training.contract import StatelessObjective


def pc_loss(
    logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"], scale: Scale = "none"
) -> Float[Tensor, "*b"]:
    r"""Pairwise comparison losses of the candidates.

    .. math:: \ell = \sum_{j \in S} \sum_{i \ne j} \phi(r_j - r_i)
        = \sum_{j \in S} \sum_{i \notin S} \phi(r_j - r_i), \qquad \phi(t) = \sigma(-t) - \tfrac12

    The sums are equal because phi is odd: pairs of candidates cancel. 0 where S contains every class.

    Args:
        logits: scores r.
        candidates: True on S.
        scale: "unbiased" multiplies each row by (k - 1)/(k - |S|), which makes the mean an unbiased estimate
            of the pairwise risk; "none" omits the factor.

    References:
        [katsura2020bridging].

    Notes:
        The default omits the factor, as the authors' code does. The code's "ramp" option is not provided: the
        derivation requires an odd function, which it is not.
    """
    logits = full_precision(logits)
    # phi(t) = -tanh(t / 2) / 2, which is exactly odd in floating point.
    lead = -0.5 * ((logits.unsqueeze(-1) - logits.unsqueeze(-2)) / 2).tanh()
    losses = (lead * (candidates.unsqueeze(-1) & ~candidates.unsqueeze(-2))).sum((-2, -1))
    if scale == "none":
        return losses
    return over_excluded(losses * (logits.shape[-1] - 1), candidates)


@dataclass(frozen=True)
class PC(StatelessObjective):
    """Pairwise comparison loss on candidate sets.

    Attributes:
        scale: "none" or "unbiased"; see `pc_loss`.
    """

    scale: Scale = "none"

    name, title, reference = "pc", "PC", "katsura2020bridging"
    assumes = "excluded labels are drawn uniformly from the wrong ones"
    use_when = (
        "To compare with published tables. With several candidates per row ProPaLL and PRODEN are better."
    )
    kind = "complementary labels"
    formula = staticmethod(pc_loss)

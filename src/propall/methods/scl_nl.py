"""SCL-NL (Chou et al.): surrogate complementary loss, -log(1 - p) of the excluded label."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._risks import OneExcludedLabel
from propall.numerics import negative_log_mass
from propall.training.contract import StatelessObjective


def scl_nl_loss(logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    r"""Negative learning loss of the excluded label.

    .. math:: \ell = -\log(1 - p_{\bar y})

    with p = softmax(r).

    Args:
        logits: scores r.
        candidates: True on every class except the excluded one, ybar.

    References:
        [chou2020unbiased].

    Notes:
        Public code adds 1e-6 inside the logarithm, which caps the loss at 13.8.
    """
    return negative_log_mass(logits, candidates)


@dataclass(frozen=True)
class SCLNL(OneExcludedLabel, StatelessObjective):
    """Surrogate complementary loss with the negative logarithm."""

    name, title, reference = "scl_nl", "SCL-NL", "chou2020unbiased"
    assumes = "one excluded label per row, drawn uniformly from the wrong ones"
    use_when = (
        "If one label per row is excluded uniformly: a plain, stable loss. Forward "
        "with its default has the same gradient."
    )
    instead = "mcl_log or cc, which take sets of any size"
    formula = staticmethod(scl_nl_loss)

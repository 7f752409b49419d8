"""SCL-EXP (Chou et al.): surrogate complementary loss, exp(p) of the excluded label."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._risks import OneExcludedLabel
from propall.numerics import full_precision
from propall.training.contract import StatelessObjective


def scl_exp_loss(logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    r"""Exponential loss of the excluded label, between 1 and e.

    .. math:: \ell = \exp p_{\bar y}

    with p = softmax(r).

    Args:
        logits: scores r.
        candidates: True on every class except the excluded one, ybar.

    References:
        [chou2020unbiased].
    """
    return (full_precision(logits).softmax(-1) * ~candidates).sum(-1).exp()


@dataclass(frozen=True)
class SCLEXP(OneExcludedLabel, StatelessObjective):
    """Surrogate complementary loss with the exponential."""

    name, title, reference = "scl_exp", "SCL-EXP", "chou2020unbiased"
    assumes = "one excluded label per row, drawn uniformly from the wrong ones"
    use_when = "As SCL-NL, with a bounded loss: one wrong exclusion costs less, and training is slower."
    instead = "mcl_exp, which takes sets of any size"
    formula = staticmethod(scl_exp_loss)

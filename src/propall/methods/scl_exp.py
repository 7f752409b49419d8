"""SCL-EXP (Chou et al.): surrogate complementary loss, exp(p) of the excluded label."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._risks import require_one_excluded
from propall.numerics import full_precision
from propall.training.contract import RowwiseObjective, State, Step


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
class SCLEXP(RowwiseObjective):
    """Surrogate complementary loss with the exponential."""

    name, title, reference = "scl_exp", "SCL-EXP", "chou2020unbiased"
    kind = "complementary labels"

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """Return an empty state; raise ValueError unless every row excludes exactly one label."""
        require_one_excluded(candidates, self.title, "mcl_exp, which takes sets of any size")
        return State()

    def losses(
        self, logits: Float[Tensor, "b k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> Float[Tensor, "b"]:
        """`scl_exp_loss`."""
        return scl_exp_loss(logits, candidates)

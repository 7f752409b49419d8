"""SCL-NL (Chou et al.): surrogate complementary loss, -log(1 - p) of the excluded label."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._risks import require_one_excluded
from propall.numerics import negative_log_mass
from propall.training.contract import RowwiseObjective, State, Step


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
class SCLNL(RowwiseObjective):
    """Surrogate complementary loss with the negative logarithm."""

    name, title, reference = "scl_nl", "SCL-NL", "chou2020unbiased"
    kind = "complementary labels"

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """Return an empty state; raise ValueError unless every row excludes exactly one label."""
        require_one_excluded(candidates, self.title, "mcl_log or cc, which take sets of any size")
        return State()

    def losses(
        self, logits: Float[Tensor, "b k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> Float[Tensor, "b"]:
        """`scl_nl_loss`."""
        return scl_nl_loss(logits, candidates)

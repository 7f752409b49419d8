"""OP (Liu et al.): order-preserving loss, which makes the excluded label's logit the smallest."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._risks import require_one_excluded
from propall.numerics import full_precision
from propall.training.contract import RowwiseObjective, State, Step


def op_loss(logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    r"""Cross-entropy of the excluded label with the softmax of the negated logits.

    .. math:: \ell = -\log \operatorname{softmax}(-r)_{\bar y}

    Args:
        logits: scores r.
        candidates: True on every class except the excluded one, ybar.

    References:
        [liu2023op].
    """
    return -((-full_precision(logits)).log_softmax(-1) * ~candidates).sum(-1)


@dataclass(frozen=True)
class OP(RowwiseObjective):
    """Order-preserving loss."""

    name, title, reference = "op", "OP", "liu2023op"
    kind = "complementary labels"

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """Return an empty state; raise ValueError unless every row excludes exactly one label."""
        require_one_excluded(candidates, self.title, "l_w or mcl_log, which take several excluded labels")
        return State()

    def losses(
        self, logits: Float[Tensor, "b k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> Float[Tensor, "b"]:
        """`op_loss`."""
        return op_loss(logits, candidates)

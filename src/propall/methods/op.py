"""OP (Liu et al.): order-preserving loss, which makes the excluded label's logit the smallest."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._risks import OneExcludedLabel
from propall.numerics import full_precision
from propall.training.contract import StatelessObjective


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
class OP(OneExcludedLabel, StatelessObjective):
    """Order-preserving loss."""

    name, title, reference = "op", "OP", "liu2023op"
    assumes = "one excluded label per row, less probable for the true class than for any other"
    use_when = (
        "If one label per row is excluded by an unknown rule that is not uniform: no "
        "transition matrix is needed."
    )
    instead = "l_w or mcl_log, which take several excluded labels"
    formula = staticmethod(op_loss)

"""ABS (Lv et al.): a bounded loss, averaged over the candidates."""

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor

from propall.numerics import accurate_expm1, full_precision, probabilities_and_complements
from propall.training.contract import Candidates, Logits, RowLosses, RowwiseObjective, State, Step


def abs_mae_loss(logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    r"""Mean absolute error of the candidates.

    .. math:: \ell = \frac{1}{|S|} \sum_{j \in S} 2 (1 - p_j)

    with p = softmax(r).

    Args:
        logits: scores r.
        candidates: True on S; at least one True per row.

    References:
        [lv2024robustness].
    """
    _, complement = probabilities_and_complements(logits)
    return 2 * (complement * candidates).sum(-1) / candidates.sum(-1)


def abs_gce_loss(
    logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"], q: float | Float[Tensor, ""] = 0.7
) -> Float[Tensor, "*b"]:
    r"""Mean generalized cross-entropy of the candidates.

    .. math:: \ell = \frac{1}{|S|} \sum_{j \in S} \frac{1 - p_j^q}{q}

    with p = softmax(r).

    Args:
        logits: scores r.
        candidates: True on S; at least one True per row.
        q: exponent in (0, 1]; 1 gives half the absolute error, q -> 0 cross-entropy.

    References:
        [lv2024robustness].
    """
    losses = -accurate_expm1(q * full_precision(logits).log_softmax(-1)) / q
    return (losses * candidates).sum(-1) / candidates.sum(-1)


@dataclass(frozen=True)
class ABS(RowwiseObjective):
    """Average-based strategy with a bounded loss.

    Attributes:
        bounded: the averaged loss: "mae" (absolute error) or "gce" (generalized cross-entropy).
        q: exponent of the generalized cross-entropy, in (0, 1].
    """

    bounded: Literal["mae", "gce"] = "mae"
    q: float = 0.7

    name, title, reference = "abs", "ABS", "lv2024robustness"
    assumes = "the set contains the true label; a bounded loss averages wrong candidates out"
    use_when = (
        "If some sets lack the true label: one row can cost only so much. Training is slow if sets are large."
    )

    def losses(self, logits: Logits, candidates: Candidates, state: State, step: Step) -> RowLosses:
        """`abs_mae_loss` or `abs_gce_loss`."""
        if self.bounded == "mae":
            return abs_mae_loss(logits, candidates)
        return abs_gce_loss(logits, candidates, self.q)

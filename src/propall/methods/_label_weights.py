"""Shared by PRODEN, RC and CAVL: cross-entropy with stored label weights."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from propall.numerics import full_precision, restricted_softmax, uniform_weights
from propall.training.contract import Candidates, Logits, RowLosses, RowwiseObjective, State, Step


def weighted_cross_entropy(
    logits: Float[Tensor, "*b k"], weights: Float[Tensor, "*b k"]
) -> Float[Tensor, "*b"]:
    r"""Cross-entropy with a distribution w on the candidates.

    .. math:: \ell = -\sum_j w_j \log p_j

    with p = softmax(r).

    Args:
        logits: scores r.
        weights: w, zero outside the candidates.
    """
    return -(weights * full_precision(logits).log_softmax(-1)).sum(-1)


@dataclass(frozen=True)
class LabelWeights(RowwiseObjective):
    """Cross-entropy with label weights that follow the outputs of the network."""

    memory = "k label weights"

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """Start with equal weights on the candidates."""
        return State(rows={"weights": uniform_weights(candidates)})

    def losses(self, logits: Logits, candidates: Candidates, state: State, step: Step) -> RowLosses:
        """`weighted_cross_entropy` with the stored weights."""
        return weighted_cross_entropy(logits, state.rows["weights"])

    def after_cleaning(
        self,
        kept: Bool[Tensor, "n k"],
        weights: Float[Tensor, "n k"],
        predictions: Float[Tensor, "n k"],
        state: State,
    ) -> State:
        """Take the weights of the cleaning."""
        return state.with_rows(weights=weights)

    def update(self, logits: Logits, candidates: Candidates, state: State, step: Step) -> State:
        """Store the softmax over the candidates for the next visit."""
        return state.with_rows(weights=restricted_softmax(logits, candidates))

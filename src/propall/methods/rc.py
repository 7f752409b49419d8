"""RC (Feng et al.): risk-consistent loss, cross-entropy with weights from the outputs after each step."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from propall.numerics import full_precision, restricted_softmax, uniform_weights
from propall.training.contract import RowwiseObjective, State, Step


def rc_loss(logits: Float[Tensor, "*b k"], weights: Float[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    r"""Cross-entropy of the candidates, weighted by their probability of being the true label.

    .. math:: \ell = -\sum_{j \in S} w_j \log p_j

    with p = softmax(r) and w an estimate of the label posterior given the candidate set.

    Args:
        logits: scores r.
        weights: w, zero outside the candidates.

    References:
        [feng2020provably].

    Notes:
        The constant factor of the paper's risk estimator is omitted, as in the authors' code; it does not
        change the optimum.
    """
    return -(weights * full_precision(logits).log_softmax(-1)).sum(-1)


@dataclass(frozen=True)
class RC(RowwiseObjective):
    """Risk-consistent partial label learning.

    The loss is PRODEN's, but the weights are updated later: `update` sees logits computed after the optimizer
    step, so they already reflect this visit's step.

    Notes:
        The authors' code normalizes the weights of all instances after each step. Only those of the batch can
        have changed, so only they are updated here.
    """

    name, title, reference = "rc", "RC", "feng2020provably"
    memory = "k label weights"
    cost = "2 forward + 1 backward"
    fresh_logits = True

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """Start with equal weights on the candidates."""
        return State(rows={"weights": uniform_weights(candidates)})

    def losses(
        self, logits: Float[Tensor, "b k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> Float[Tensor, "b"]:
        """`rc_loss` with the stored weights."""
        return rc_loss(logits, state.rows["weights"])

    def update(
        self, logits: Float[Tensor, "b k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> State:
        """Store the softmax of the new logits over the candidates for the next visit."""
        return state.with_rows(weights=restricted_softmax(logits, candidates))

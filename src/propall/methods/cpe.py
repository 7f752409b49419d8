"""CPE (Lin and Lin): predict the distribution of the excluded label, then decode it to the nearest class."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._risks import Transition, as_transition, require_one_excluded, transition_matrix
from propall.numerics import full_precision
from propall.training.contract import Candidates, Logits, RowLosses, RowwiseObjective, State, Step


def cpe_direct_loss(logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    r"""Cross-entropy of the excluded label, predicted by the softmax directly (CPE-I).

    .. math:: \ell = -\log p_{\bar y}

    with p = softmax(r).

    Args:
        logits: scores r.
        candidates: True on every class except the excluded one, ybar.

    References:
        [lin2023cpe].
    """
    return -(full_precision(logits).log_softmax(-1) * ~candidates).sum(-1)


def cpe_transition_loss(
    logits: Float[Tensor, "*b k"],
    candidates: Bool[Tensor, "*b k"],
    transition: Float[Tensor, "k k"],
    floor: float | Float[Tensor, ""] = 1e-6,
) -> Float[Tensor, "*b"]:
    r"""Cross-entropy of the excluded label, predicted through a transition matrix (CPE-F and CPE-T).

    .. math:: \ell = -\log\Bigl(\sum_y p_y Q_{y \bar y} + \epsilon\Bigr)

    with p = softmax(r).

    Args:
        logits: scores r.
        candidates: True on every class except the excluded one, ybar.
        transition: Q, with P(excluded label | class y) in row y; differentiable.
        floor: epsilon.

    References:
        [lin2023cpe].
    """
    p = full_precision(logits).softmax(-1)
    # Only one entry of p Q is needed, and a matrix product could be rounded to TF32.
    column = transition.to(p.dtype).mT[(~candidates).int().argmax(-1)]
    return -((p * column).sum(-1) + floor).log()


def trained_transition(
    transition: Float[Tensor, "k k"], offsets: Float[Tensor, "k k"]
) -> Float[Tensor, "k k"]:
    r"""Transition matrix with trained offsets; zero entries stay zero.

    .. math:: Q'_{y} = \operatorname{softmax}(\log Q_y + \theta_y)

    Args:
        transition: Q, the initial matrix.
        offsets: theta; offsets of zero entries of Q have no effect and get no gradient.

    References:
        [lin2023cpe].

    Notes:
        Public code trains log Q itself, which is minus infinity on the diagonal and becomes NaN under weight
        decay. Offsets from a fixed log Q stay finite, and weight decay pulls them back to the given matrix.
    """
    return (transition.log().to(offsets.dtype) + offsets).softmax(-1)


@dataclass(frozen=True)
class CPE(RowwiseObjective):
    """Complementary probability estimates.

    Attributes:
        variant: "I" predicts the excluded label directly, "F" through a fixed transition matrix, "T" through
            a trained one.
        transition: "uniform", or the rows of Q with P(excluded label | class y) in row y; every variant uses
            it for decoding.
        floor: added to probabilities inside the logarithm by "F" and "T".
    """

    variant: Literal["I", "F", "T"] = "F"
    transition: Transition = "uniform"
    floor: float = 1e-6

    name, title, reference = "cpe", "CPE", "lin2023cpe"
    assumes = "one excluded label per row, drawn from a distribution for each class that is known or learned"
    use_when = (
        "If exclusions follow a matrix that you know or want to learn: the class is "
        "decoded from the predicted exclusion."
    )
    kind = "complementary labels"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "transition", as_transition(self.transition))

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """Store the transition matrix and, for "T", zero offsets; rows must exclude exactly one label."""
        require_one_excluded(candidates, self.title, "forward or mcl_log, which take several excluded labels")
        transition = transition_matrix(self.transition, candidates.shape[-1], candidates.device)
        offsets = torch.zeros(transition.shape, device=candidates.device)
        trained = {"transition": offsets} if self.variant == "T" else {}
        return State(shared={"transition": transition}, trained=trained)

    def losses(self, logits: Logits, candidates: Candidates, state: State, step: Step) -> RowLosses:
        """`cpe_direct_loss` for "I", otherwise `cpe_transition_loss`."""
        if self.variant == "I":
            return cpe_direct_loss(logits, candidates)
        return cpe_transition_loss(logits, candidates, self._transition(state, logits), self.floor)

    def scores(self, logits: Float[Tensor, "b k"], state: State) -> Float[Tensor, "b k"]:
        """Negative L1 distance between the predicted distribution and the row of Q of each class."""
        p = full_precision(logits).softmax(-1)
        transition = self._transition(state, p)
        predicted = p if self.variant == "I" else p @ transition
        return -torch.cdist(predicted, transition, p=1.0)

    def _transition(self, state: State, like: Float[Tensor, "b k"]) -> Float[Tensor, "k k"]:
        dtype = full_precision(like).dtype
        transition = state.shared["transition"].to(dtype)
        if self.variant == "T":
            return trained_transition(transition, state.trained["transition"].to(dtype))
        return transition

"""CAVL (Zhang et al.): cross-entropy with the candidate that has the largest class activation value."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propall.numerics import full_precision, uniform_weights
from propall.training.contract import RowwiseObjective, State, Step


def cavl_loss(logits: Float[Tensor, "*b k"], weights: Float[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    r"""Cross-entropy with the selected label, or with uniform weights on the candidates at the first visit.

    .. math:: \ell = -\sum_j w_j \log p_j

    with p = softmax(r).

    Args:
        logits: scores r.
        weights: w, one-hot on the selected candidate after the first visit of an instance.

    References:
        [zhang2022exploiting].
    """
    return -(weights * full_precision(logits).log_softmax(-1)).sum(-1)


def selected_candidate(
    logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]
) -> Float[Tensor, "*b k"]:
    r"""One-hot vector of the candidate with the largest class activation value (ties: lowest index).

    .. math:: \arg\max_{j \in S} r_j \, |1 - r_j|

    References:
        [zhang2022exploiting].

    Notes:
        The authors' code sets non-candidates to 0 before the argmax, which selects one of them wherever all
        candidates have negative logits, as is common early in training. Here they are never selected.
    """
    logits = full_precision(logits)
    value = (logits * (1 - logits).abs()).clamp(min=torch.finfo(logits.dtype).min)
    value = value.masked_fill(~candidates, -torch.inf)
    return torch.nn.functional.one_hot(value.argmax(-1), logits.shape[-1]).to(logits.dtype)


@dataclass(frozen=True)
class CAVL(RowwiseObjective):
    """Class activation value learning: the network selects one of the candidates at each visit.

    `update` sees logits computed after the optimizer step.
    """

    name, title, reference = "cavl", "CAVL", "zhang2022exploiting"
    memory = "k label weights"
    cost = "2 forward + 1 backward"
    fresh_logits = True

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """Start with equal weights on the candidates."""
        return State(rows={"weights": uniform_weights(candidates)})

    def losses(
        self, logits: Float[Tensor, "b k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> Float[Tensor, "b"]:
        """`cavl_loss` with the stored weights."""
        return cavl_loss(logits, state.rows["weights"])

    def update(
        self, logits: Float[Tensor, "b k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> State:
        """Store `selected_candidate` of the new logits for the next visit."""
        return state.with_rows(weights=selected_candidate(logits, candidates))

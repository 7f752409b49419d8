"""CAVL (Zhang et al.): cross-entropy with the candidate that has the largest class activation value."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._label_weights import LabelWeights
from propall.numerics import full_precision, restrict_weights
from propall.training.contract import Candidates, Logits, State, Step


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
class CAVL(LabelWeights):
    """Class activation value learning: the network selects one of the candidates at each visit.

    The loss is the cross-entropy with the selected label, or with equal weights on the candidates at the
    first visit. `update` sees logits computed after the optimizer step.
    """

    name, title, reference = "cavl", "CAVL", "zhang2022exploiting"
    assumes = "the set contains the true label, and the network's activations soon point to it"
    use_when = (
        "If sets are small and the network learns quickly: after its first visit a row is "
        "trained on one candidate only."
    )
    cost = "2 forward + 1 backward"
    fresh_logits = True

    def after_cleaning(
        self,
        kept: Bool[Tensor, "n k"],
        weights: Float[Tensor, "n k"],
        predictions: Float[Tensor, "n k"],
        state: State,
    ) -> State:
        """Keep the selected label; where it was removed, start again with equal weights."""
        return state.with_rows(weights=restrict_weights(state.rows["weights"], kept))

    def update(self, logits: Logits, candidates: Candidates, state: State, step: Step) -> State:
        """Store `selected_candidate` of the new logits for the next visit."""
        return state.with_rows(weights=selected_candidate(logits, candidates))

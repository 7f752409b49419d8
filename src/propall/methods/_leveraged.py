"""Shared by LWS and LWC: hyper-parameters, and label weights normalized inside and outside the candidates."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propall.numerics import full_precision
from propall.training.contract import Candidates, Logits, RowLosses, RowwiseObjective, State, Step


def side_weights(logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]) -> Float[Tensor, "*b k"]:
    r"""Softmax probabilities, normalized over the candidates and over the non-candidates.

    .. math:: w_j = p_j \Big/ \Bigl(\sum_{i \in T_j} p_i + 10^{-8} k\Bigr)

    where T_j is the candidate set if it contains j, and its complement otherwise. The constant is that of the
    authors' code.

    References:
        [wen2021leveraged].
    """
    p = full_precision(logits).softmax(-1)
    inside = (p * candidates).sum(-1, keepdim=True)
    outside = (p * ~candidates).sum(-1, keepdim=True)
    return p / (torch.where(candidates, inside, outside) + 1e-8 * p.shape[-1])


@dataclass(frozen=True)
class LeveragedLoss(RowwiseObjective):
    """Leveraged weighted loss; subclasses define its `formula`.

    `update` sees logits computed after the optimizer step.

    Attributes:
        beta: leverage of the non-candidates; the authors use 1 or 2.
        candidate_weight: factor of the candidates' sum; 1 in all of the authors' experiments.
    """

    beta: float = 1.0
    candidate_weight: float = 1.0

    reference = "wen2021leveraged"
    memory = "k label weights"
    cost = "2 forward + 1 backward"
    fresh_logits = True
    formula: ClassVar[Callable[..., RowLosses]]

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """Start with weight 1/k on every class, candidate or not."""
        equal = torch.full(candidates.shape, 1 / candidates.shape[-1], device=candidates.device)
        return State(rows={"weights": equal})

    def losses(self, logits: Logits, candidates: Candidates, state: State, step: Step) -> RowLosses:
        """Evaluate the formula with the stored weights."""
        return self.formula(logits, candidates, state.rows["weights"], **self.hyperparameters())

    def after_cleaning(
        self,
        kept: Bool[Tensor, "n k"],
        weights: Float[Tensor, "n k"],
        predictions: Float[Tensor, "n k"],
        state: State,
    ) -> State:
        """Take the weights of the cleaning, and for the other labels those of the predictions."""
        outside = side_weights(predictions, kept)
        return state.with_rows(weights=torch.where(kept, weights.to(outside), outside))

    def update(self, logits: Logits, candidates: Candidates, state: State, step: Step) -> State:
        """Store `side_weights` of the new logits."""
        return state.with_rows(weights=side_weights(logits, candidates))

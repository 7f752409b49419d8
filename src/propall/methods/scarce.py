"""SCARCE (Wang et al.): one-versus-rest risks from negative (excluded) and unlabeled rows."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import softplus

from propall.methods._risks import OneExcludedLabel
from propall.numerics import full_precision
from propall.training.contract import BatchLoss, Candidates, Logits, State, Step, total_weight


def scarce_loss(
    logits: Float[Tensor, "b k"],
    candidates: Bool[Tensor, "b k"],
    weight: Float[Tensor, "b"] | None = None,
) -> Float[Tensor, ""]:
    r"""One-versus-rest risk of a batch, with the absolute value of the term that must not be negative.

    .. math:: \ell = \sum_j \beta\, E_j[\operatorname{softplus}(r_j)]
        + \sum_j \Bigl| E[\operatorname{softplus}(-r_j)] - \beta\, E_j[\operatorname{softplus}(-r_j)] \Bigr|,
        \qquad \beta = 1 - \frac1k

    where E is the mean over the batch and E_j the mean over its rows that exclude class j, or 0 without any.

    Args:
        logits: scores r.
        candidates: True on every class except the excluded one.
        weight: row weights.

    References:
        [wang2024scarce], with the uniform class prior of the authors' code.
    """
    logits = full_precision(logits)
    rows = torch.ones_like(logits[:, :1]) if weight is None else weight.to(logits.dtype).unsqueeze(-1)
    excluded = rows * ~candidates
    counts = excluded.sum(0)
    average = torch.where(counts > 0, excluded / counts, 0.0) * (1 - 1 / logits.shape[-1])
    # The default threshold of softplus loses precision in float64.
    positive, negative = softplus(-logits, threshold=40), softplus(logits, threshold=40)
    unlabeled = ((rows / total_weight(rows[:, 0]) - average) * positive).sum(0)
    return (average * negative).sum() + unlabeled.abs().sum()


@dataclass(frozen=True)
class SCARCE(OneExcludedLabel):
    """Selected-completely-at-random complementary labels."""

    name, title, reference = "scarce", "SCARCE", "wang2024scarce"
    assumes = "one excluded label per row, drawn regardless of the features (selected completely at random)"
    use_when = (
        "If some labels are excluded more often than others and the classes are about equally frequent."
    )
    instead = "nn or mcl_log, which take several excluded labels"

    def loss(self, logits: Logits, candidates: Candidates, state: State, step: Step) -> BatchLoss:
        """`scarce_loss`."""
        return scarce_loss(logits, candidates, step.weight)

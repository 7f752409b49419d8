"""Class prototypes that follow the features of rows, and label weights that follow predictions."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from propall.numerics import full_precision

#: Momentum in the first epoch, before the schedule of `momentum_after` starts.
FIRST_MOMENTUM = 0.99


def momentum_after(epoch: Float[Tensor, ""], epochs: int, start: float, end: float) -> Float[Tensor, ""]:
    r"""Momentum in the epoch after `epoch` completed ones.

    0.99 in the first epoch, then a + (e - 1)/E (b - a) after e completed epochs of E: public code sets it at
    the end of an epoch, one later than the papers.
    """
    return torch.where(epoch < 1, FIRST_MOMENTUM, start + (epoch - 1) / max(1, epochs) * (end - start))


def predicted_labels(logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]) -> Int[Tensor, "*b"]:
    """The candidate with the highest score; the lowest index on ties."""
    return full_precision(logits).masked_fill(~candidates, -torch.inf).argmax(-1)


def move_prototypes(
    prototypes: Float[Tensor, "k d"],
    features: Float[Tensor, "m d"],
    labels: Int[Tensor, "m"],
    momentum: float | Tensor,
) -> Float[Tensor, "k d"]:
    r"""Move the prototype of each row's label toward its features, row by row, and normalize all.

    The rows :math:`q_1, \dots, q_n` of one label, in their order, give

    .. math:: \mu \leftarrow \rho^n \mu + (1 - \rho) \sum_i \rho^{n - i} q_i

    which is computed without a loop over rows.

    Args:
        prototypes: one unit vector per class, or 0 before the first row of a class.
        features: unit vectors q.
        labels: their classes.
        momentum: rho.
    """
    member = one_hot(labels, prototypes.shape[0]).to(features.dtype)
    later = member.sum(0) - member.cumsum(0)  # rows of each class after this one
    momentum = torch.ones_like(later[0, 0]) * momentum
    weights = (1 - momentum) * momentum**later * member
    moved = momentum ** member.sum(0)[:, None] * prototypes + weights.mT @ features
    return normalize(moved, dim=-1)

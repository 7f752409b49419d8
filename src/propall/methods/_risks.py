"""What complementary-label methods share: the labels a row excludes, class risks, transition matrices."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propall.numerics import full_precision

#: How the excluded labels of one instance count: one unit shared between them, or one unit each.
Pairs = Literal["instance", "pooled"]

#: P(excluded label | class): the same for every wrong label, or row by row.
Transition = Literal["uniform"] | Sequence[Sequence[float]]


def require_one_excluded(candidates: Bool[Tensor, "n k"], title: str, instead: str) -> None:
    """Refuse rows that do not exclude exactly one label.

    Args:
        candidates: the whole training set's candidate matrix.
        title: the method that asks.
        instead: what takes such rows, for the message.
    """
    excluded = (~candidates).sum(-1)
    other = excluded != 1
    if other.any():
        first = int(other.int().argmax())
        raise ValueError(
            f"candidates: {int(other.sum())} of {len(other)} rows do not exclude exactly one label "
            f"(first: {first}, which excludes {int(excluded[first])}); {title} takes one complementary label "
            f"per row. Use {instead}."
        )


def over_excluded(losses: Float[Tensor, "*b"], candidates: Bool[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    """Losses divided by the number of excluded labels; 0 for rows that exclude none, which say nothing."""
    excluded = (~candidates).sum(-1)
    return torch.where(excluded > 0, losses / excluded.clamp_min(1), 0.0)


class ClassRisks(NamedTuple):
    """What a batch says about each class: its estimated share of the risk, and how often it is excluded."""

    risks: Float[Tensor, "k"]
    counts: Float[Tensor, "k"]


def excluded_units(
    candidates: Bool[Tensor, "n k"],
    *,
    pairs: Pairs = "instance",
    weight: Float[Tensor, "n"] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "n k"]:
    """How much each excluded label counts; 0 on candidates, and in rows that hold every class.

    Args:
        candidates: True on S.
        pairs: "instance" shares one unit between the labels a row excludes, "pooled" gives one to each.
        weight: weights of the rows.
        dtype: of the result.
    """
    units = (~candidates).to(dtype)
    if pairs == "instance":
        units = units / units.sum(-1, keepdim=True).clamp_min(1)
    return units if weight is None else units * weight.to(dtype).unsqueeze(-1)


def excluded_prior(
    candidates: Bool[Tensor, "n k"], *, pairs: Pairs = "instance", weight: Float[Tensor, "n"] | None = None
) -> Float[Tensor, "k"]:
    """How often each class is excluded in the whole training set; sums to one.

    Args:
        candidates: the whole training set's candidate matrix.
        pairs: see `excluded_units`.
        weight: weights of the rows.

    Raises:
        ValueError: if no row excludes a label.
    """
    counts = excluded_units(candidates, pairs=pairs, weight=weight, dtype=_finest(candidates.device)).sum(0)
    if not counts.sum() > 0:
        raise ValueError(
            "candidates: no row (of positive weight) excludes a label, so there is nothing to learn from; "
            "at least one row must have a non-candidate."
        )
    return counts / counts.sum()


def class_risks(
    logits: Float[Tensor, "n k"],
    candidates: Bool[Tensor, "n k"],
    prior: Float[Tensor, "k"],
    *,
    pairs: Pairs = "instance",
    weight: Float[Tensor, "n"] | None = None,
) -> ClassRisks:
    r"""Unbiased estimates of each class's share of the cross-entropy risk, from excluded labels alone.

    .. math:: r_j = \sum_c \bar\pi_c M_{cj} - (k - 1)\, \bar\pi_j M_{jj}, \qquad
        M_{cj} = \frac{\sum_i a_{ic} L_{ij}}{\sum_i a_{ic}}, \qquad L = -\log \operatorname{softmax}(r)

    with a from `excluded_units`; M is the mean loss vector of the rows that exclude class c, and 0 where the
    batch has none. A class that no row excludes drops out of both sums, and keeps its own r_j.

    Args:
        logits: scores r.
        candidates: True on S.
        prior: how often each class is excluded in the whole training set, see `excluded_prior`.
        pairs: see `excluded_units`.
        weight: weights of the rows; counts become weighted counts.

    Returns:
        The risks r and the counts, which are the column sums of a.

    References:
        [ishida2019complementary], for one excluded label per row; `excluded_units` extends it to sets.

    Notes:
        Fractional counts below one are divided by as they are: public code clamps counts at one, which
        changes nothing for whole numbers and would bias small batches otherwise.
    """
    logits = full_precision(logits)
    units = excluded_units(candidates, pairs=pairs, weight=weight, dtype=logits.dtype)
    counts = units.sum(0)
    rate = torch.where(counts > 0, prior.to(logits.dtype) / counts, 0.0)
    # Both sums of r_j are linear in the losses of the same rows. Subtracting coefficients rather than sums
    # lets the losses that cancel vanish before they can drown the others, so small risks keep their sign.
    share = (units * rate).sum(-1, keepdim=True) - (logits.shape[-1] - 1) * units * rate
    return ClassRisks(-(share * logits.log_softmax(-1)).sum(0), counts)


def as_transition(transition: str | Sequence[Sequence[float]]) -> Transition:
    """A transition as a hashable field: "uniform", or the matrix as a tuple of rows (JSON brings lists)."""
    if isinstance(transition, str):
        if transition != "uniform":
            raise ValueError(
                f"transition: {transition!r} is not known; give 'uniform' or a matrix, row by row, "
                "with P(excluded label | class) in row `class`."
            )
        return "uniform"
    return tuple(tuple(float(probability) for probability in row) for row in transition)


def transition_matrix(
    transition: Transition, n_classes: int, device: torch.device | None = None
) -> Float[Tensor, "k k"]:
    """Probabilities of being excluded, Q[class, excluded label]; every row sums to one.

    Args:
        transition: "uniform" for 1/(k - 1) off the diagonal, or the rows of Q.
        n_classes: k.
        device: where to put it.

    Raises:
        ValueError: if a given matrix is not k x k, has negative entries, or rows that do not sum to one.
    """
    precise = _finest(device)
    if transition == "uniform":
        return (1 - torch.eye(n_classes, dtype=precise, device=device)) / (n_classes - 1)
    lengths = {len(row) for row in transition}
    if len(transition) != n_classes or lengths != {n_classes}:
        raise ValueError(
            f"transition: {len(transition)} rows of length {sorted(lengths)} for {n_classes} classes; "
            f"expected {n_classes} rows of {n_classes} probabilities."
        )
    matrix = torch.tensor(transition, dtype=precise, device=device)
    totals = matrix.sum(-1)
    wrong = ~(((totals - 1).abs() < 1e-6) & (matrix >= 0).all(-1))
    if wrong.any():
        row = int(wrong.int().argmax())
        raise ValueError(
            f"transition: {int(wrong.sum())} of {n_classes} rows are not distributions (first: {row}, "
            f"which sums to {float(totals[row]):.6g}); row y is P(excluded label | class y). Transposed?"
        )
    return matrix


def _finest(device: torch.device | None) -> torch.dtype:
    # Priors and transition matrices are small; in 64 bits they never limit the accuracy of a loss.
    return torch.float32 if device is not None and device.type == "mps" else torch.float64

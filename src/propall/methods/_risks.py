"""Shared by the complementary-label methods: excluded labels, class risks, transition matrices.

`ClassRiskObjective` serves Free, NN and GA; transition matrices serve Forward and CPE; the other methods use
`OneExcludedLabel` or `over_excluded`. The complementary (excluded) labels of a row are those outside its
candidate set S.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propall.numerics import full_precision
from propall.training.contract import BatchLoss, Candidates, Logits, Objective, State, Step

#: How the excluded labels of one instance are weighted: one unit divided among them, or one unit each.
Pairs = Literal["instance", "pooled"]

#: Whether each row is scaled so that the mean is an unbiased estimate of the risk.
Scale = Literal["none", "unbiased"]

#: P(excluded label | class): uniform over the wrong labels, or a matrix given row by row.
Transition = Literal["uniform"] | Sequence[Sequence[float]]


def require_one_excluded(candidates: Bool[Tensor, "n k"], title: str, instead: str) -> None:
    """Raise ValueError unless every row excludes exactly one label; `instead` names methods for such rows."""
    excluded = (~candidates).sum(-1)
    invalid = excluded != 1
    if invalid.any():
        first = int(invalid.int().argmax())
        raise ValueError(
            f"candidates: {int(invalid.sum())} of {len(invalid)} rows do not exclude exactly one label "
            f"(first: {first}, which excludes {int(excluded[first])}); {title} expects one complementary "
            f"label per row. Use {instead}."
        )


class OneExcludedLabel(Objective):
    """An objective for rows that exclude exactly one label.

    Attributes:
        instead: methods that accept other rows, for the error message.
    """

    kind = "complementary labels"
    instead: ClassVar[str]

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """Return an empty state; raise ValueError unless every row excludes exactly one label."""
        require_one_excluded(candidates, self.title, self.instead)
        return State()


def over_excluded(losses: Float[Tensor, "*b"], candidates: Bool[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    """Divide losses by the number of excluded labels; 0 for rows that exclude none and so say nothing."""
    excluded = (~candidates).sum(-1)
    return torch.where(excluded > 0, losses / excluded.clamp_min(1), 0.0)


class ClassRisks(NamedTuple):
    """Estimated risk of each class in a batch, and how often (in units) the class is excluded."""

    risks: Float[Tensor, "k"]
    counts: Float[Tensor, "k"]


def excluded_units(
    candidates: Bool[Tensor, "n k"],
    *,
    pairs: Pairs = "instance",
    weight: Float[Tensor, "n"] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "n k"]:
    """Weight of each excluded label; 0 on candidates, and in rows that contain every class.

    `pairs="instance"` divides one unit among the labels that a row excludes, "pooled" gives one to each.
    """
    units = (~candidates).to(dtype)
    if pairs == "instance":
        units = units / units.sum(-1, keepdim=True).clamp_min(1)
    return units if weight is None else units * weight.to(dtype).unsqueeze(-1)


def excluded_prior(
    candidates: Bool[Tensor, "n k"], *, pairs: Pairs = "instance", weight: Float[Tensor, "n"] | None = None
) -> Float[Tensor, "k"]:
    """Relative frequency with which each class is excluded; raise ValueError if no row excludes a label."""
    counts = excluded_units(candidates, pairs=pairs, weight=weight, dtype=_finest(candidates.device)).sum(0)
    if not counts.sum() > 0:
        raise ValueError(
            "candidates: no row (of positive weight) excludes a label, so there is nothing to learn from; "
            "at least one row needs a non-candidate."
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
    r"""Unbiased estimates of the per-class terms of the cross-entropy risk, from excluded labels alone.

    .. math:: r_j = \sum_c \bar\pi_c M_{cj} - (k - 1)\, \bar\pi_j M_{jj}, \qquad
        M_{cj} = \frac{\sum_i a_{ic} L_{ij}}{\sum_i a_{ic}}, \qquad L = -\log \operatorname{softmax}(r)

    with a from `excluded_units`. M_c is the mean loss vector of the rows that exclude class c, and 0 if the
    batch has none: such a class contributes to neither sum but still has its own r_j.

    Args:
        logits: scores r.
        candidates: True on S.
        prior: exclusion frequencies of the classes in the training set, see `excluded_prior`.
        pairs: see `excluded_units`.
        weight: row weights; counts become weighted counts.

    Returns:
        The risks r and the counts, which are the column sums of a.

    References:
        [ishida2019complementary], for one excluded label per row; `excluded_units` extends it to sets.

    Notes:
        Public code clamps counts at one. That changes nothing for integers but would bias small batches with
        fractional counts, so counts are not clamped here.
    """
    logits = full_precision(logits)
    units = excluded_units(candidates, pairs=pairs, weight=weight, dtype=logits.dtype)
    counts = units.sum(0)
    rate = torch.where(counts > 0, prior.to(logits.dtype) / counts, 0.0)
    # Both sums of r_j are linear in the losses of the same rows. Subtracting the coefficients, not the sums,
    # avoids cancellation, so small risks keep their sign.
    share = (units * rate).sum(-1, keepdim=True) - (logits.shape[-1] - 1) * units * rate
    return ClassRisks(-(share * logits.log_softmax(-1)).sum(0), counts)


class ClassRiskObjective(Objective):
    """An objective that combines the class risks of a batch; subclasses have the field `pairs`."""

    kind = "complementary labels"
    memory = "none (k class priors in total)"
    pairs: Pairs
    #: Loss of a batch from its class risks.
    combine: Callable[[ClassRisks], BatchLoss]

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """Store how often each class is excluded; raise ValueError if none ever is."""
        return State(shared={"prior": excluded_prior(candidates, pairs=self.pairs, weight=weight)})

    def loss(self, logits: Logits, candidates: Candidates, state: State, step: Step) -> BatchLoss:
        """Combine the class risks."""
        prior = state.shared["prior"]
        return self.combine(class_risks(logits, candidates, prior, pairs=self.pairs, weight=step.weight))


def as_transition(transition: str | Sequence[Sequence[float]]) -> Transition:
    """Return "uniform" or the matrix as a hashable tuple of rows (JSON gives lists)."""
    if isinstance(transition, str):
        if transition != "uniform":
            raise ValueError(
                f"transition: got {transition!r}; expected 'uniform' or the rows of a matrix, "
                "with P(excluded label | class y) in row y."
            )
        return "uniform"
    return tuple(tuple(float(probability) for probability in row) for row in transition)


def transition_matrix(
    transition: Transition, n_classes: int, device: torch.device | None = None
) -> Float[Tensor, "k k"]:
    """Build Q with P(excluded label | class y) in row y; raise ValueError unless its rows are distributions.

    "uniform" stands for 1/(k - 1) off the diagonal.
    """
    dtype = _finest(device)
    if transition == "uniform":
        return (1 - torch.eye(n_classes, dtype=dtype, device=device)) / (n_classes - 1)
    lengths = {len(row) for row in transition}
    if len(transition) != n_classes or lengths != {n_classes}:
        raise ValueError(
            f"transition: {len(transition)} rows of length {sorted(lengths)} for {n_classes} classes; "
            f"expected {n_classes} rows of {n_classes} probabilities."
        )
    matrix = torch.tensor(transition, dtype=dtype, device=device)
    totals = matrix.sum(-1)
    invalid = ~(((totals - 1).abs() < 1e-6) & (matrix >= 0).all(-1))
    if invalid.any():
        row = int(invalid.int().argmax())
        raise ValueError(
            f"transition: {int(invalid.sum())} of {n_classes} rows are not distributions (first: {row}, "
            f"which sums to {float(totals[row]):.6g}); row y is P(excluded label | class y). Transposed?"
        )
    return matrix


def _finest(device: torch.device | None) -> torch.dtype:
    # Priors and transition matrices are small: in float64 they never limit the accuracy of a loss.
    return torch.float32 if device is not None and device.type == "mps" else torch.float64

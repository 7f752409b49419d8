"""Views of a training row: how they are augmented, and the soft targets that one view gives the others."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propall.data.augmentation import Augmentation
from propall.numerics import full_precision, restricted_softmax
from propall.registry import check_choices, check_integers

#: Smallest mean prediction of a class in the balance term.
SMALLEST_SHARE = 1e-6


@dataclass(frozen=True)
class Views:
    """Weak and strong views of every row, and what is learned from their agreement.

    Attributes:
        weak: augmentation of the view that targets are computed from.
        strong: augmentation of the other views; draws its own flip and shift.
        n_strong: number of strong views per row.
        targets: where the soft label of a row comes from: "weak" is the softmax of this step's weak logits,
            "memory" a running mean of it (over visits, see `momentum`), "teacher" the weak logits of an
            exponential moving average of the network.
        mask: which labels a target may hold: "candidates"; "rectified" gives labels outside the set a share
            that is smaller the more sure the prediction is of the set (DIRK); "widened" multiplies labels
            outside the set by `tolerance` (ALIM).
        weight: factor of the consistency term at its full height.
        ramp: share of training over which the factor rises from 0.
        balance: factor of the balance term.
        prior: class prior of the balance term; uniform by default.
        temperature: divides the logits that targets are computed from.
        momentum: weight of the old target in "memory".
        geometric: let "memory" hold the geometric mean over all views instead of the weak view's softmax.
        teacher_momentum: weight of the old parameters in the teacher, per step.
        tolerance: weight of labels outside the set for mask "widened".
        base_views: compute the base loss on "all" views or on the "weak" one alone.
        consistency_views: compute the consistency term on "all" views or on the "strong" ones alone.
        reduction: "mean" or "sum" of the consistency term over views.

    References:
        [wu2022revisiting], [chen2024general], [wu2024distilling], [xu2023alim].
    """

    weak: Augmentation = field(default_factory=Augmentation.weak)
    strong: Augmentation = field(default_factory=Augmentation.strong)
    n_strong: int = 1
    targets: Literal["weak", "memory", "teacher"] = "weak"
    mask: Literal["candidates", "rectified", "widened"] = "candidates"
    weight: float = 1.0
    ramp: float = 0.25
    balance: float = 0.0
    prior: tuple[float, ...] | None = None
    temperature: float = 1.0
    momentum: float = 0.9
    geometric: bool = False
    teacher_momentum: float = 0.996
    tolerance: float = 0.0
    base_views: Literal["all", "weak"] = "all"
    consistency_views: Literal["all", "strong"] = "all"
    reduction: Literal["mean", "sum"] = "mean"

    def __post_init__(self) -> None:
        check_choices(self)
        check_integers(self, n_strong=0)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Views from the plain values of `dataclasses.asdict`."""
        prior = values.get("prior")
        nested = {name: Augmentation(**values[name]) for name in ("weak", "strong") if name in values}
        return cls(**{**values, **nested, "prior": None if prior is None else tuple(prior)})

    @property
    def n_views(self) -> int:
        """Views per row: the weak one and the strong ones."""
        return 1 + self.n_strong


def rectified(logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]) -> Float[Tensor, "*b k"]:
    r"""Softmax in which every candidate outranks every other label.

    With p = softmax(r), a and c its normalized parts inside and outside S, M = 1 / sum_S p, C = max c and
    A = min_S a:

    .. math:: t = g\, a + (1 - g)\, c, \qquad g = \frac{M C}{M C + A}

    so that the smallest candidate's share is M times the largest share outside S.

    References:
        [wu2024distilling].
    """
    inside = restricted_softmax(logits, candidates)
    full = candidates.all(-1, keepdim=True)
    # A full set has nothing outside; any finite values do for the unused branch.
    outside = full_precision(logits).masked_fill(candidates & ~full, -torch.inf).softmax(-1)
    mass = (full_precision(logits).softmax(-1) * candidates).sum(-1, keepdim=True)
    multiple = 1 / mass.clamp_min(torch.finfo(inside.dtype).tiny)
    highest = outside.amax(-1, keepdim=True)
    lowest = inside.masked_fill(~candidates, torch.inf).amin(-1, keepdim=True)
    share = multiple * highest / (multiple * highest + lowest)
    return torch.where(full, inside, share * inside + (1 - share) * outside)


def widened(
    logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"], tolerance: Tensor | float
) -> Float[Tensor, "*b k"]:
    """Softmax with labels outside the set multiplied by `tolerance`, normalized.

    References:
        [xu2023alim].
    """
    p = full_precision(logits).softmax(-1)
    t = torch.where(candidates, p, p * tolerance)
    return t / t.sum(-1, keepdim=True).clamp_min(torch.finfo(t.dtype).tiny)


def soft_target(
    logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"], views: Views
) -> Float[Tensor, "*b k"]:
    """The target distribution that some logits give under the mask, without gradient."""
    logits = full_precision(logits.detach()) / views.temperature
    if views.mask == "rectified":
        return rectified(logits, candidates)
    if views.mask == "widened":
        return widened(logits, candidates, views.tolerance)
    return restricted_softmax(logits, candidates)


def cross_entropy(target: Float[Tensor, "*b k"], logits: Float[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    """Cross-entropy of soft labels, one per row."""
    return -(target * full_precision(logits).log_softmax(-1)).sum(-1)


def balance_term(logits: Float[Tensor, "b k"], prior: tuple[float, ...] | None) -> Float[Tensor, ""]:
    r"""Cross-entropy :math:`-\sum_k \pi_k \log \bar p_k` between the class prior and the mean prediction."""
    shares = full_precision(logits).softmax(-1).mean(0).clamp(SMALLEST_SHARE, 1).log()
    if prior is None:
        return -shares.mean()
    # Not a tensor of the prior: a captured graph cannot copy it to the device.
    return -torch.stack([weight * share for weight, share in zip(prior, shares, strict=True)]).sum()

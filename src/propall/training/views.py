"""Views of a training row: how they are augmented, and the soft targets that one view gives the others."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Literal, Self

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propall.data.augmentation import Augmentation
from propall.numerics import full_precision, restricted_softmax
from propall.registry import check_choices, check_integers
from propall.training.cleaning import Cleaning, cleaning_from_dict

#: Fields that the first version of `Views` did not have.
ADDED_FIELDS = (
    *("base_weight", "divergence", "refresh", "one_hot", "teacher_view", "cleaning"),
    *("tolerance_from", "widen_base", "mixup", "memory_from", "balance_fade"),
)
#: Fields of the balance term.
BALANCE_FIELDS = ("balance", "prior", "balance_fade")
#: Smallest mean prediction of a class in the balance term.
SMALLEST_SHARE = 1e-6
#: Shares of classes that were rounded may add up to 1 only nearly.
PRIOR_ROUNDING = 0.01


@dataclass(frozen=True)
class Views:
    """Weak and strong views of every row, and what is learned from their agreement.

    Attributes:
        weak: augmentation of the view that targets are computed from. By default, for color images of 32
            pixels; `propall.training.image_views.default_views` has views for images of other shapes.
        strong: augmentation of the other views, likewise; draws its own flip and shift.
        n_strong: number of strong views per row.
        targets: where the soft label of a row comes from: "weak" is the softmax of this step's weak logits,
            "memory" a running mean of it (over visits, see `momentum`), "teacher" the logits of an
            exponential moving average of the network, "peers" the mean prediction of the other runs of the
            stack at their latest visits of the row. Runs with peers depend on each other.
        mask: which labels a target may hold: "candidates"; "rectified" gives labels outside the set a share
            that is smaller the more sure the prediction is of the set (DIRK); "widened" multiplies labels
            outside the set by `tolerance` (ALIM). The set is the row's own, or what `cleaning` leaves of it.
        weight: factor of the consistency term at its full height.
        ramp: share of training over which the factor rises from 0; 0: it is constant.
        balance: factor of the balance term.
        prior: class prior of the balance term; uniform by default.
        temperature: divides the logits that targets are computed from.
        momentum: weight of the old target in "memory".
        geometric: let "memory" hold the geometric mean over all views instead of the weak view's softmax.
        teacher_momentum: weight of the old parameters in the teacher, per step.
        tolerance: weight of labels outside the set for mask "widened"; "auto" estimates it after every epoch
            from the share of sets that seem to lack the truth, see `automatic_tolerance`.
        base_views: compute the base loss on "all" views or on the "weak" one alone.
        consistency_views: compute the consistency term on "all" views or on the "strong" ones alone.
        reduction: "mean" or "sum" of the consistency term over views.
        base_weight: factor of the base loss; 0 learns from the targets alone.
        divergence: "cross_entropy", or "kl" to subtract the entropy of the targets, which changes the
            reported loss and no gradient.
        refresh: whether "memory" takes in the prediction of a step "before" or "after" the loss uses it.
        one_hot: replace a target by its largest entry, the first of several.
        teacher_view: the view that the teacher sees: the "weak" one, or the first "strong" one.
        cleaning: removes candidates after epochs, for targets and base loss alike; None: never.
        tolerance_from: share of training before "auto" raises the tolerance above 0; too early, mistakes of
            the network pass for missing truth.
        widen_base: show the base loss the labels outside the set that outweigh the set under the tolerance.
            Experimental: on digits with 30 % of the sets without the truth, training collapsed in one setting
            and gained in another.
        mixup: shape a of the Beta(a, a) distribution of mixing weights, a whole number; adds a view that
            mixes the weak views of two rows, with their targets mixed alike. 0: none.
        memory_from: share of training before "memory" takes in predictions; until then a target gives equal
            weight to all candidates. A new network prefers the same few classes for every row. Hard targets
            (`one_hot`) that start from these preferences make them permanent.
        balance_fade: share of training over which the factor of the balance term falls to 0; 0: it stays.
            A new network loses classes; a trained one is harmed by a wrong prior.

    References:
        [wu2022revisiting], [chen2024general], [wu2024distilling], [xu2023alim], [zhang2018mixup].

    Examples:
        >>> Views(n_strong=2, targets="memory").n_views
        3
    """

    weak: Augmentation = field(default_factory=Augmentation.weak)
    strong: Augmentation = field(default_factory=Augmentation.strong)
    n_strong: int = 1
    targets: Literal["weak", "memory", "teacher", "peers"] = "weak"
    mask: Literal["candidates", "rectified", "widened"] = "candidates"
    weight: float = 1.0
    ramp: float = 0.25
    balance: float = 0.0
    prior: Sequence[float] | None = None
    temperature: float = 1.0
    momentum: float = 0.9
    geometric: bool = False
    teacher_momentum: float = 0.996
    tolerance: float | Literal["auto"] = 0.0
    base_views: Literal["all", "weak"] = "all"
    consistency_views: Literal["all", "strong"] = "all"
    reduction: Literal["mean", "sum"] = "mean"
    base_weight: float = 1.0
    divergence: Literal["cross_entropy", "kl"] = "cross_entropy"
    refresh: Literal["before", "after"] = "after"
    one_hot: bool = False
    teacher_view: Literal["weak", "strong"] = "weak"
    cleaning: Cleaning | None = None
    tolerance_from: float = 0.5
    widen_base: bool = False
    mixup: int = 0
    memory_from: float = 0.0
    balance_fade: float = 0.0

    def __post_init__(self) -> None:
        check_choices(self)
        check_integers(self, n_strong=0, mixup=0)
        if self.prior is not None:
            object.__setattr__(self, "prior", _as_shares(self.prior))
        self._check_parts()
        self._check_numbers()
        if not 0 <= self.memory_from < 1:
            raise ValueError(
                f"memory_from: got {self.memory_from!r}; expected a share of 0 or more, below 1."
            )
        if self.memory_from and self.targets != "memory":
            raise ValueError(f"memory_from: needs targets='memory'; got targets={self.targets!r}.")
        for name, needs in (("widen_base", self.widen_base), ("tolerance", self.tolerance != 0)):
            if needs and self.mask != "widened":
                raise ValueError(f"{name}: needs mask='widened'; got mask={self.mask!r}.")
        if self.prior is not None and not self.balance:
            raise ValueError("prior: needs a balance term; got balance=0. Use balance=0.5, or no prior.")
        if self.geometric and self.targets != "memory":
            raise ValueError(f"geometric: needs targets='memory'; got targets={self.targets!r}.")
        if self.n_strong == 0 and self.base_weight == 0:
            raise ValueError(
                "base_weight: got 0 with n_strong=0, so that nothing is learned; expected a number above 0."
            )
        for name, needs in (("teacher_view", self.teacher_view == "strong"), ("mixup", self.mixup > 0)):
            if needs and self.n_strong == 0:
                raise ValueError(f"{name}: got {getattr(self, name)!r} with n_strong=0; expected 1 or more.")

    def _check_parts(self) -> None:
        for name in ("weak", "strong"):
            if not isinstance(value := getattr(self, name), Augmentation):
                raise TypeError(
                    f"{name}: got {value!r}; expected an Augmentation, such as Augmentation.{name}(32)."
                )
        if not isinstance(self.cleaning, Cleaning | None):
            raise TypeError(
                f"cleaning: got {self.cleaning!r}; expected a rule of propall.training.cleaning, such as "
                "Purification(), or None."
            )

    def _check_numbers(self) -> None:
        for name in ("weight", "ramp", "balance", "base_weight", "temperature"):
            value = getattr(self, name)
            positive = name == "temperature"
            if not _is_number(value, math.inf) or value == math.inf or (positive and value == 0):
                expected = "above 0" if positive else "of at least 0"
                raise ValueError(f"{name}: got {value!r}; expected a finite number {expected}.")
        for name in ("momentum", "teacher_momentum", "tolerance_from", "balance_fade"):
            if not _is_number(value := getattr(self, name), 1):
                raise ValueError(f"{name}: got {value!r}; expected a number from 0 to 1.")
        if self.tolerance != "auto" and not _is_number(self.tolerance, 1):
            raise ValueError(f"tolerance: got {self.tolerance!r}; expected a number from 0 to 1, or 'auto'.")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Views from the plain values of `dataclasses.asdict`."""
        nested: dict[str, Any] = {
            name: Augmentation(**values[name]) for name in ("weak", "strong") if name in values
        }
        if values.get("cleaning") is not None:
            nested["cleaning"] = cleaning_from_dict(values["cleaning"])
        return cls(**{**values, **nested})

    def to_dict(self) -> dict[str, Any]:
        """The views as plain JSON values, without later additions that are not used."""
        values = dataclasses.asdict(self)
        if self.cleaning is not None:
            values["cleaning"] = {"name": self.cleaning.name, **values["cleaning"]}
        return {name: values[name] for name in self._used_fields()}

    def __repr__(self) -> str:
        # Part of the text that names checkpoints.
        return f"Views({', '.join(f'{name}={getattr(self, name)!r}' for name in self._used_fields())})"

    def _used_fields(self) -> list[str]:
        names = [item.name for item in dataclasses.fields(self)]
        return [n for n in names if n not in ADDED_FIELDS or getattr(self, n) != getattr(Views, n)]

    def balance_factor(self, progress: Tensor) -> Tensor | float:
        """Factor of the balance term after this share of training."""
        if not self.balance_fade:
            return self.balance
        return self.balance * (1 - progress / self.balance_fade).clamp(min=0)

    @property
    def n_views(self) -> int:
        """Views per row: the weak one, the strong ones, and the mixed one."""
        return 1 + self.n_strong + bool(self.mixup)

    def check_own_loop(self) -> None:
        """Raise ValueError for settings that only `propall.training.trainer.Trainer` provides."""
        settings = {
            "cleaning": self.cleaning is not None,
            "tolerance": self.estimates_tolerance,
            "targets": self.targets == "peers",
            "mixup": self.mixup > 0,
        }
        for name in (name for name, used in settings.items() if used):
            raise ValueError(
                f"views: {name}={getattr(self, name)!r} works between epochs, runs or rows, which the loss "
                "of a batch cannot see. Use propall's own Trainer or PartialLabelClassifier, or change it."
            )

    @property
    def estimates_tolerance(self) -> bool:
        """Whether the tolerance is estimated during training."""
        return self.mask == "widened" and self.tolerance == "auto"

    @property
    def remembers_predictions(self) -> bool:
        """Whether the latest prediction of every row is stored."""
        return self.cleaning is not None or self.estimates_tolerance or self.targets == "peers"


def check_views(views: object) -> None:
    """Raise TypeError unless this is a `Views` or None."""
    if not isinstance(views, Views | None):
        raise TypeError(
            f"views: got {views!r}; expected a Views or None. Use default_views(shape) of "
            "propall.training.image_views, or by name VIEWS[name].views of propall.training.named_views."
        )


def _as_shares(prior: Any) -> tuple[float, ...]:
    """The shares of a sequence, array or tensor, so that views compare and are saved as plain numbers."""
    try:
        shares = tuple(float(share) for share in prior)
    except (TypeError, ValueError):
        shares = ()
    if not all(_is_number(share, 1) for share in shares) or not abs(sum(shares) - 1) < PRIOR_ROUNDING:
        raise ValueError(
            f"prior: got {prior!r}; expected the share of each class, which add up to 1. Divide counts by "
            "their sum."
        )
    return shares


def _is_number(value: Any, highest: float) -> bool:
    """Whether a value is a number from 0 to the highest one allowed."""
    return isinstance(value, Real) and 0 <= float(value) <= highest


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
    total = multiple * highest + lowest
    # Not 1 - g: it has no correct digit where the network is sure of the set.
    mixed = multiple * highest / total * inside + lowest / total * outside
    return torch.where(full, inside, mixed)


def widened(
    logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"], tolerance: Tensor | float
) -> Float[Tensor, "*b k"]:
    """Softmax with labels outside the set multiplied by `tolerance`, normalized.

    References:
        [xu2023alim].
    """
    # By logits: with tolerance 0, the probabilities of a whole set can be too small to divide by their sum.
    if isinstance(tolerance, Tensor):
        shift: Tensor | float = tolerance.log()
    else:
        shift = math.log(tolerance) if tolerance > 0 else -math.inf
    logits = full_precision(logits)
    return torch.where(candidates, logits, logits + shift).softmax(-1)


def soft_target(
    logits: Float[Tensor, "*b k"],
    candidates: Bool[Tensor, "*b k"],
    views: Views,
    tolerance: Tensor | float | None = None,
) -> Float[Tensor, "*b k"]:
    """The target distribution that some logits give under the mask, without gradient.

    Args:
        logits: of the network or the teacher.
        candidates: True on the set.
        views: says which mask, temperature and form.
        tolerance: the estimated tolerance, if `views` leaves it to be estimated.
    """
    logits = full_precision(logits.detach()) / views.temperature
    if views.mask == "rectified":
        target = rectified(logits, candidates)
    elif views.mask == "widened":
        if tolerance is None:
            tolerance = 0.0 if views.tolerance == "auto" else views.tolerance
        target = widened(logits, candidates, tolerance)
    else:
        target = restricted_softmax(logits, candidates)
    return hardened(target) if views.one_hot else target


def hardened(target: Float[Tensor, "*b k"]) -> Float[Tensor, "*b k"]:
    """All weight on the largest entry, the first of several."""
    classes = torch.arange(target.shape[-1], device=target.device)
    return (classes == target.argmax(-1, keepdim=True)).to(target.dtype)


def admitted(
    logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"], tolerance: Tensor | float
) -> Bool[Tensor, "*b k"]:
    """The candidates, and labels whose probability outweighs all of them even after `tolerance`."""
    p = full_precision(logits.detach()).softmax(-1)
    best = p.masked_fill(~candidates, 0).amax(-1, keepdim=True)
    return candidates | (p * tolerance > best)


def cross_entropy(target: Float[Tensor, "*b k"], logits: Float[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    """Cross-entropy of soft labels, one per row."""
    return -(target * full_precision(logits).log_softmax(-1)).sum(-1)


def mixing_weights(draws: Float[Tensor, "*b d"]) -> Float[Tensor, "*b"]:
    """The weight of a row in mixup, at least 1/2, from 2 a - 1 uniform draws.

    Their median follows Beta(a, a).

    References:
        [zhang2018mixup].
    """
    share = draws.sort(-1).values[..., draws.shape[-1] // 2]
    return torch.maximum(share, 1 - share)


def mix(rows: Float[Tensor, "..."], share: Float[Tensor, "*r b"]) -> Float[Tensor, "..."]:
    """Each row mixed with the one before it in the batch; `share` is the weight of the row itself."""
    weight = share.reshape(*share.shape, *(1,) * (rows.dim() - share.dim())).to(rows.dtype)
    return weight * rows + (1 - weight) * rows.roll(1, share.dim() - 1)


def entropy(target: Float[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    """Entropy of soft labels, one per row; 0 log 0 = 0."""
    return -torch.xlogy(target, target).sum(-1)


def add_balance(
    loss: Float[Tensor, ""],
    views: Views,
    logits: Float[Tensor, "b k"],
    progress: Tensor,
    weight: Float[Tensor, "b"] | None = None,
) -> Float[Tensor, ""]:
    """A loss with the balance term of some views, if they have one, after a share of training."""
    if not views.balance:
        return loss
    return loss + views.balance_factor(progress) * balance_term(logits, views.prior, weight)


def balance_term(
    logits: Float[Tensor, "b k"], prior: Sequence[float] | None, weight: Float[Tensor, "b"] | None = None
) -> Float[Tensor, ""]:
    r"""Cross-entropy :math:`-\sum_k \pi_k \log \bar p_k` between the class prior and the mean prediction.

    Args:
        logits: of a batch.
        prior: shares of the classes; None if they are equal.
        weight: of the rows in the mean; None: all equal.
    """
    p = full_precision(logits).softmax(-1)
    mean = p.mean(0) if weight is None else weight.to(p) @ p / weight.sum().where(weight.sum() > 0, 1)
    shares = mean.clamp(SMALLEST_SHARE, 1).log()
    if prior is None:
        return -shares.mean()
    if len(prior) != len(shares):
        raise ValueError(
            f"prior: got {len(prior)} shares for {len(shares)} classes; expected one for each class, in the "
            "order of the classes."
        )
    # Not a tensor of the prior: a captured graph cannot copy it to the device.
    return -torch.stack([weight * share for weight, share in zip(prior, shares, strict=True)]).sum()

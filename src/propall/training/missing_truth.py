"""Candidate sets that may lack the truth: how many do, and how much weight labels outside them get."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

#: Added to the largest probability outside a set, as in the authors' code of ALIM.
MARGIN_FLOOR = 1e-9
#: Steps of expectation-maximization for the mixture of margins.
MIXTURE_STEPS = 100
#: Smallest standard deviation of a component.
SMALLEST_SPREAD = 0.1


def log_margins(log_p: Float[Tensor, "n k"], candidates: Bool[Tensor, "n k"]) -> Float[Tensor, "m"]:
    r"""Log ratio of the largest probability inside and outside each set that excludes a label.

    .. math:: \log \frac{\max_{j \in S} p_j}{\max_{j \notin S} p_j + 10^{-9}}

    References:
        [xu2023alim].
    """
    partial = ~candidates.all(-1)
    inside = log_p.masked_fill(~candidates, -torch.inf).amax(-1)[partial]
    outside = log_p.masked_fill(candidates, -torch.inf).amax(-1)[partial]
    return inside - torch.logaddexp(outside, outside.new_full((), math.log(MARGIN_FLOOR)))


class MissRate(NamedTuple):
    """Estimates of the share of sets without the truth.

    Attributes:
        mixture: weight of the lower of two normal components of the log margins; 0 if its mean is positive.
        below_one: share of margins below 1.
    """

    mixture: float
    below_one: float

    @property
    def estimate(self) -> float:
        """The smaller of both: a set lacks the truth if both say so."""
        return min(self.mixture, self.below_one)


def estimate_miss_rate(margins: Float[Tensor, "m"]) -> MissRate:
    """Estimate the share of sets without the truth from log margins."""
    if len(margins) == 0:
        return MissRate(0.0, 0.0)
    below = margins < 0
    share = float(below.double().mean())
    if share in (0.0, 1.0):
        return MissRate(share, share)
    margins = margins.double()
    # One component starts from the margins below 1, the other from the rest.
    belongs = torch.stack([below, ~below]).double()
    for _ in range(MIXTURE_STEPS):
        size = belongs.sum(1).clamp_min(1e-12)
        mean = (belongs @ margins) / size
        spread = ((belongs * (margins - mean[:, None]) ** 2).sum(1) / size).sqrt().clamp_min(SMALLEST_SPREAD)
        weight = size / size.sum()
        distance = (margins - mean[:, None]) / spread[:, None]
        belongs = ((weight / spread).log()[:, None] - distance**2 / 2).softmax(0)
    low = int(mean.argmin())
    return MissRate(float(weight[low]) if mean[low] < 0 else 0.0, share)


def automatic_tolerance(margins: Float[Tensor, "m"], miss_rate: float) -> float:
    r"""The tolerance under which about a share `miss_rate` of the sets is outweighed by a label outside.

    .. math:: \lambda = \min\bigl(1, \text{the } \lfloor \eta m \rfloor \text{-th smallest margin}\bigr)

    0 if that is no margin at all.

    References:
        [xu2023alim].
    """
    place = int(miss_rate * len(margins) + 1e-9)  # 0.29 * 100 is 28.999...
    if place == 0:
        return 0.0
    return min(1.0, math.exp(float(margins.kthvalue(place).values)))

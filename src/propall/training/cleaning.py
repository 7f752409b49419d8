"""Candidate sets that shrink during training: after epochs, predictions decide which labels stay."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from propall.numerics import restrict_weights, restricted_softmax
from propall.registry import Registry, by_name, check_integers

#: Names of what cleaning stores: the remaining candidates, a sum of predictions, the threshold.
KEPT, HISTORY, THRESHOLD = "view_candidates", "view_history", "view_threshold"


class Cleaned(NamedTuple):
    """What is stored after an epoch.

    Attributes:
        rows: new values of row memories by name.
        shared: new values of the run's memories by name.
        weights: label weights that go with the new sets; None: nothing was cleaned.
    """

    rows: dict[str, Tensor]
    shared: dict[str, Tensor]
    weights: Float[Tensor, "n k"] | None = None


class Cleaning(ABC):
    """A rule that removes candidates. Subclasses are frozen dataclasses."""

    #: Whether remembered targets become the label weights of `Cleaned`; otherwise they keep their values.
    replaces_targets: ClassVar[bool] = False

    name: ClassVar[str]
    reference: ClassVar[str]

    def init(self, candidates: Bool[Tensor, "n k"]) -> Cleaned:
        """What is stored before the first epoch."""
        return Cleaned({KEPT: candidates.clone()}, {})

    @abstractmethod
    def end_epoch(
        self,
        predictions: Float[Tensor, "n k"],
        candidates: Bool[Tensor, "n k"],
        stored: Cleaned,
        epoch: int,
        *,
        targets: Float[Tensor, "n k"] | None = None,
        counted: Bool[Tensor, "n"] | None = None,
    ) -> Cleaned:
        """What is stored after an epoch.

        Args:
            predictions: log-probabilities of the weak view at the latest visit of each row.
            candidates: the original sets.
            stored: what was stored before.
            epoch: number of completed epochs.
            targets: the remembered targets, if the views remember soft ones on the candidates alone.
            counted: True on the rows whose weight is above 0; None: all.
        """


class Purified(NamedTuple):
    """Sets after one purification, and the average prediction restricted to them."""

    kept: Bool[Tensor, "n k"]
    weights: Float[Tensor, "n k"]
    threshold: Float[Tensor, ""]


@dataclass(frozen=True)
class Purification(Cleaning):
    r"""Progressive purification: drop candidates whose average weight is far below the row's largest.

    With :math:`\bar w` the mean over the last `window` epochs of the remembered target, or without one of the
    prediction restricted to the current set, a candidate j stays if

    .. math:: \bar w_j \ge \theta \max_i \bar w_i

    and theta grows as soon as hardly anything is removed. Sets only shrink.

    Attributes:
        start: completed epochs before the first purification.
        window: epochs between purifications, over which predictions are averaged.
        threshold: theta at the start.
        growth: relative growth of theta.
        change: theta grows when a smaller share of all n k entries was removed.
        largest_threshold: theta grows only below it.

    References:
        [xu2023progressive].
    """

    start: int = 20
    window: int = 5
    threshold: float = 1e-3
    growth: float = 1e-3
    change: float = 1e-4
    largest_threshold: float = 0.4

    replaces_targets: ClassVar[bool] = True
    name: ClassVar[str] = "purification"
    reference: ClassVar[str] = "xu2023progressive"

    def __post_init__(self) -> None:
        check_integers(self, start=0, window=1)

    def init(self, candidates: Bool[Tensor, "n k"]) -> Cleaned:
        """All candidates, an empty sum, the first threshold."""
        history = torch.zeros(candidates.shape, device=candidates.device)
        threshold = torch.tensor(self.threshold, device=candidates.device)
        return Cleaned({KEPT: candidates.clone(), HISTORY: history}, {THRESHOLD: threshold})

    def end_epoch(
        self,
        predictions: Float[Tensor, "n k"],
        candidates: Bool[Tensor, "n k"],
        stored: Cleaned,
        epoch: int,
        *,
        targets: Float[Tensor, "n k"] | None = None,
        counted: Bool[Tensor, "n"] | None = None,
    ) -> Cleaned:
        """Add the epoch to the average; purify at the end of a window."""
        kept = stored.rows[KEPT]
        weights = restricted_softmax(predictions, kept) if targets is None else targets
        history = stored.rows[HISTORY] + weights
        if epoch % self.window:
            return Cleaned({KEPT: kept, HISTORY: history}, stored.shared)
        empty = torch.zeros_like(history)
        if epoch < self.start:
            return Cleaned({KEPT: kept, HISTORY: empty}, stored.shared)
        after = self.purify(history / self.window, kept, stored.shared[THRESHOLD], counted)
        return Cleaned({KEPT: after.kept, HISTORY: empty}, {THRESHOLD: after.threshold}, after.weights)

    def purify(
        self,
        average: Float[Tensor, "n k"],
        kept: Bool[Tensor, "n k"],
        threshold: Float[Tensor, ""],
        counted: Bool[Tensor, "n"] | None = None,
    ) -> Purified:
        """One purification of sets by the average weights; `counted` rows decide whether theta grows."""
        weights = average * kept
        remaining = kept & (weights >= threshold * weights.amax(-1, keepdim=True))
        weights = restrict_weights(average, remaining)
        removed = kept != remaining if counted is None else (kept != remaining)[counted]
        grows = (threshold < self.largest_threshold) & (removed.sum() < self.change * removed.numel())
        return Purified(remaining, weights, torch.where(grows, threshold * (1 + self.growth), threshold))


@dataclass(frozen=True)
class ConformalCleaning(Cleaning):
    r"""Conformal cleaning: keep the candidates that a conformal predictor would put in its set.

    A reference row v has nonconformity :math:`a_v = \min_{j \in S_v} (1 - p_{vj})`. The p-value of label j of
    a row is

    .. math:: \frac{1 + \#\{v : a_v \ge 1 - (1 - \epsilon) p_j\}}{1 + V}

    and j stays in S if its p-value exceeds alpha plus the mean mass outside the sets. Epsilon halves with
    every epoch. Where nothing would stay, all of S does. Sets may grow back. Label weights of base losses
    become the prediction restricted to what is kept.

    Attributes:
        start: epochs before the first cleaning.
        alpha: error level.
        reference_share: share of the rows that are reference rows, at least 100.

    References:
        [fuchs2025conformal].

    Notes:
        Reference rows are the rows with one candidate if there are enough of them, otherwise rows at even
        distances. They are also trained on, as the authors do with small data. Predictions are those of the
        training pass, for reference rows and others alike. Targets that views remember are restricted to what
        is kept, where the authors replace them by the restricted prediction.
    """

    start: int = 10
    alpha: float = 0.05
    reference_share: float = 0.2

    name: ClassVar[str] = "conformal"
    reference: ClassVar[str] = "fuchs2025conformal"

    def __post_init__(self) -> None:
        check_integers(self, start=1)

    def end_epoch(
        self,
        predictions: Float[Tensor, "n k"],
        candidates: Bool[Tensor, "n k"],
        stored: Cleaned,
        epoch: int,
        *,
        targets: Float[Tensor, "n k"] | None = None,
        counted: Bool[Tensor, "n"] | None = None,
    ) -> Cleaned:
        """Clean the original sets by the predictions of this epoch."""
        if epoch < self.start:
            return stored
        optimism = 0.5 ** (epoch - self.start + 1)
        kept = self.clean(predictions.exp(), candidates, optimism, counted)
        return Cleaned({KEPT: kept}, {}, restricted_softmax(predictions, kept))

    def clean(
        self,
        p: Float[Tensor, "n k"],
        candidates: Bool[Tensor, "n k"],
        optimism: float = 0.0,
        counted: Bool[Tensor, "n"] | None = None,
    ) -> Bool[Tensor, "n k"]:
        """The candidates whose p-value is large enough.

        Args:
            p: predicted probabilities.
            candidates: the sets.
            optimism: epsilon.
            counted: rows that may be reference rows and whose mass outside counts; None: all.
        """
        of_counted, their_sets = (p, candidates) if counted is None else (p[counted], candidates[counted])
        rows = self.reference_rows(their_sets)
        scores = (1 - of_counted.masked_fill(~their_sets, 0).amax(-1))[rows].sort().values
        # The number of reference scores that are at least as large.
        larger = len(scores) - torch.searchsorted(scores, (1 - (1 - optimism) * p).contiguous())
        values = (1 + larger) / (1 + len(scores))
        outside = of_counted.masked_fill(their_sets, 0).sum(-1).mean()
        kept = candidates & (values > self.alpha + outside)
        return torch.where(kept.any(-1, keepdim=True), kept, candidates)

    def reference_rows(self, candidates: Bool[Tensor, "n k"]) -> Int[Tensor, "v"]:
        """Positions of the reference rows."""
        n = len(candidates)
        size = min(n, max(100, round(self.reference_share * n)))
        single = (candidates.sum(-1) == 1).nonzero().squeeze(-1)
        return single if len(single) >= size else torch.arange(size, device=candidates.device) * n // size


CLEANINGS: Registry[type[Purification] | type[ConformalCleaning]] = by_name(
    "cleaning", Purification, ConformalCleaning
)


def cleaning_from_dict(values: Mapping[str, Any]) -> Cleaning:
    """The rule from its name and fields."""
    return CLEANINGS[values["name"]](**{name: value for name, value in values.items() if name != "name"})

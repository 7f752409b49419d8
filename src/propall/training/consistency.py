r"""Training on several views of every row: targets from a weak view, consistency on all of them.

One step sees a weak view and V strong views of each row in one forward pass. With base loss L, target t and
logits r_0 (weak), r_1, ..., r_V (strong):

.. math:: \operatorname{mean}_v L(r_v, S) + \lambda \operatorname{mean}_v \text{CE}(t, r_v)
    - \beta \sum_k \pi_k \log \bar p_k

The target t is a distribution without gradient (`Views.targets`) on the labels that a mask admits
(`Views.mask`); :math:`\lambda` rises linearly over the first part of training, and the last term keeps the
batch's mean prediction :math:`\bar p` near a class prior :math:`\pi`, with a factor that may fall.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propall.numerics import full_precision, restrict_weights, uniform_weights
from propall.training.cleaning import KEPT, Cleaned, Cleaning
from propall.training.contract import Objective, State, Step, weighted_mean
from propall.training.missing_truth import automatic_tolerance, estimate_miss_rate, log_margins
from propall.training.views import (
    Views,
    add_balance,
    admitted,
    cross_entropy,
    entropy,
    hardened,
    mix,
    soft_target,
)

#: Prefix of the memories that views add to an objective's own.
PREFIX = "view_"
#: Row memories: targets, and the log-probabilities of the weak view at the latest visit.
MEMORY, PREDICTIONS = "view_targets", "view_predictions"
#: Estimates of the run: the tolerance, and the share of sets without the truth.
TOLERANCE, MISS_RATE = "view_tolerance", "view_miss_rate"


@dataclass(frozen=True)
class ConsistentObjective(Objective):
    """A base objective trained with views.

    It takes the logits of all views, one after the other along the rows: (V + 1) b rows for b candidate sets.

    Attributes:
        base: the objective on candidate sets.
        views: the views and the consistency between them.
    """

    base: Objective
    views: Views

    name: ClassVar[str] = "consistent"
    title: ClassVar[str] = "consistency over views"
    reference: ClassVar[str] = ""

    @property
    def needs_noise(self) -> bool:  # type: ignore[override]
        """Whether the base objective draws noise."""
        return self.base.needs_noise

    @property
    def fresh_logits(self) -> bool:  # type: ignore[override]
        """Whether the base objective is updated after the optimizer's step."""
        return self.base.fresh_logits

    @property
    def updates_state(self) -> bool:
        """Whether the base objective or the views have a memory."""
        views = self.views
        return self.base.updates_state or views.targets == "memory" or views.remembers_predictions

    @property
    def ends_epochs(self) -> bool:
        """Whether candidates are removed or a tolerance is estimated after epochs."""
        return self.base.ends_epochs or self.views.cleaning is not None or self.views.estimates_tolerance

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """The base objective's state, and what the views remember."""
        views, state = self.views, self.base.init(candidates, weight)
        if views.targets == "memory":
            state = state.with_rows(**{MEMORY: uniform_weights(candidates)})
        if views.remembers_predictions:
            equal = torch.full(candidates.shape, -math.log(candidates.shape[-1]), device=candidates.device)
            state = state.with_rows(**{PREDICTIONS: equal})
        if views.cleaning is not None:
            cleaned = views.cleaning.init(candidates)
            state = state.with_rows(**cleaned.rows).with_shared(**cleaned.shared)
        if views.estimates_tolerance:
            zero = torch.zeros((), device=candidates.device)
            state = state.with_shared(**{TOLERANCE: zero, MISS_RATE: zero.clone()})
        return state

    def loss(
        self, logits: Float[Tensor, "vb k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> Float[Tensor, ""]:
        """Base loss, consistency and balance."""
        views = self.views
        candidates = self._remaining(candidates, state)
        each = logits.unflatten(0, (views.n_views, -1))
        mixed, each = (each[-1], each[:-1]) if views.mixup else (None, each)
        allowed = self._seen_by_base(each[0], candidates, state)
        on_base = each if views.base_views == "all" else each[:1]
        if views.base_weight:
            loss = torch.stack([self.base.loss(part, allowed, state, step) for part in on_base]).mean()
            loss = loss if views.base_weight == 1 else views.base_weight * loss
        else:
            loss = full_precision(logits).new_zeros(())
        if views.n_strong:
            loss = loss + self._height(step) * self._consistency(each, mixed, candidates, state, step)
        return add_balance(loss, views, each[0], step.progress, step.weight)

    def _consistency(
        self, each: Tensor, mixed: Tensor | None, candidates: Tensor, state: State, step: Step
    ) -> Float[Tensor, ""]:
        """Cross-entropy between the targets and the views, including the mixed one."""
        views = self.views
        target = self._target(each[0], candidates, state, step)
        if views.targets == "memory" and views.refresh == "before":
            target = self._refreshed(each, candidates, state, step)
        on_views = each if views.consistency_views == "all" else each[1:]
        terms = torch.stack([weighted_mean(cross_entropy(target, part), step.weight) for part in on_views])
        if views.divergence == "kl":
            terms = terms - weighted_mean(entropy(target), step.weight)
        consistency = terms.sum() if views.reduction == "sum" else terms.mean()
        if mixed is not None:
            assert step.mixing is not None, "the engine provides the mixing weights"
            target = mix(target, step.mixing)
            consistency = consistency + weighted_mean(cross_entropy(target, mixed), step.weight)
        return consistency

    def _height(self, step: Step) -> Tensor | float:
        """Factor of the consistency term."""
        views = self.views
        return views.weight * (step.progress / views.ramp).clamp(max=1) if views.ramp > 0 else views.weight

    def _remaining(self, candidates: Tensor, state: State) -> Tensor:
        """The candidates that have not been removed."""
        return candidates if self.views.cleaning is None else state.rows[KEPT]

    def _seen_by_base(self, weak: Tensor, candidates: Tensor, state: State) -> Tensor:
        """The sets that the base loss sees."""
        if not self.views.widen_base:
            return candidates
        return admitted(weak, candidates, self._tolerance(state))

    def _tolerance(self, state: State) -> Tensor | float:
        tolerance = self.views.tolerance
        if self.views.estimates_tolerance:
            return state.shared[TOLERANCE]
        return 0.0 if isinstance(tolerance, str) else tolerance

    def _target(self, weak: Tensor, candidates: Tensor, state: State, step: Step) -> Tensor:
        if self.views.targets == "memory":
            return state.rows[MEMORY]
        if self.views.targets in ("teacher", "peers"):
            assert step.teacher is not None, "the engine provides the logits of teacher or peers"
            weak = step.teacher
        return soft_target(weak, candidates, self.views, self._tolerance(state))

    def _refreshed(self, each: Tensor, candidates: Tensor, state: State, step: Step) -> Tensor:
        """The remembered targets after they have taken in the logits of all views."""
        views = self.views
        seen = full_precision(each.detach()).log_softmax(-1).mean(0) if views.geometric else each[0]
        target = soft_target(seen, candidates, views, self._tolerance(state))
        old = state.rows[MEMORY].to(target)
        new = target.lerp(old, views.momentum)
        return torch.where(step.progress >= views.memory_from, new, old) if views.memory_from else new

    def update(
        self, logits: Float[Tensor, "vb k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> State:
        """The base objective's memory from the weak view, and what the views remember."""
        views = self.views
        candidates = self._remaining(candidates, state)
        each = logits.unflatten(0, (views.n_views, -1))[: 1 + views.n_strong]
        new = self.base.update(each[0], self._seen_by_base(each[0], candidates, state), state, step)
        if views.remembers_predictions:
            new = new.with_rows(**{PREDICTIONS: full_precision(each[0]).log_softmax(-1)})
        if views.targets == "memory":
            new = new.with_rows(**{MEMORY: self._refreshed(each, candidates, state, step)})
        return new

    def end_epoch(self, candidates: Bool[Tensor, "n k"], state: State, step: Step) -> State:
        """Remove candidates and estimate the tolerance by the predictions of the epoch."""
        views = self.views
        state = self.base.end_epoch(candidates, state, step)
        counted = None if step.weight is None else step.weight > 0
        if counted is not None and not counted.any():
            return state
        if views.cleaning is not None:
            state = self._cleaned(views.cleaning, candidates, state, step)
        if views.estimates_tolerance and float(step.progress) >= views.tolerance_from:
            predictions, sets = state.rows[PREDICTIONS], self._remaining(candidates, state)
            if counted is not None:
                predictions, sets = predictions[counted], sets[counted]
            margins = log_margins(predictions, sets)
            rate = estimate_miss_rate(margins).estimate
            like = state.shared[TOLERANCE]
            tolerance, miss_rate = like.new_tensor(automatic_tolerance(margins, rate)), like.new_tensor(rate)
            state = state.with_shared(**{TOLERANCE: tolerance, MISS_RATE: miss_rate})
        return state

    def _cleaned(self, cleaning: Cleaning, candidates: Tensor, state: State, step: Step) -> State:
        """The state after candidates were removed, in the memories of views and base objective alike."""
        views, before = self.views, state.rows[KEPT]
        remembers = views.targets == "memory"
        # With another mask, a target also holds labels that are no candidates.
        inside = views.mask == "candidates"
        cleaned = cleaning.end_epoch(
            state.rows[PREDICTIONS],
            candidates,
            Cleaned(state.rows, state.shared),
            int(step.epoch),
            # Hard targets say nothing about the other candidates.
            targets=state.rows[MEMORY] if remembers and inside and not views.one_hot else None,
            counted=None if step.weight is None else step.weight > 0,
        )
        state = state.with_rows(**cleaned.rows).with_shared(**cleaned.shared)
        if cleaned.weights is None:
            return state
        if remembers:
            replacing = cleaned.weights if inside and cleaning.replaces_targets else None
            state = state.with_rows(**{MEMORY: self._cleaned_targets(replacing, before, state, step)})
        return self.base.after_cleaning(state.rows[KEPT], cleaned.weights, state.rows[PREDICTIONS], state)

    def _cleaned_targets(
        self, replacing: Tensor | None, before: Tensor, state: State, step: Step
    ) -> Float[Tensor, "n k"]:
        """Remembered targets on the new sets.

        Rows to which a candidate returned get new ones from their latest prediction; with a mask that admits
        other labels, so do all rows whose set changed.
        """
        views, kept, remembered = self.views, state.rows[KEPT], state.rows[MEMORY]
        if replacing is not None:
            targets = hardened(replacing) if views.one_hot else replacing
        else:
            inside = views.mask == "candidates"
            stale = (kept & ~before if inside else kept != before).any(-1, keepdim=True)
            anew = soft_target(state.rows[PREDICTIONS], kept, views, self._tolerance(state))
            targets = torch.where(stale, anew, restrict_weights(remembered, kept) if inside else remembered)
        return torch.where(step.progress < views.memory_from, uniform_weights(kept), targets)

    def scores(self, logits: Float[Tensor, "b k"], state: State) -> Float[Tensor, "b k"]:
        """The base objective's scores."""
        return self.base.scores(logits, state)


def with_views(objective: Objective, views: Views | None) -> Objective:
    """The objective trained with views, if there are any and it does not handle them itself."""
    return objective if views is None or objective.handles_views else ConsistentObjective(objective, views)


def without_views(objective: Objective, state: State) -> tuple[Objective, State]:
    """The base objective of `with_views`, the part of the state that is its own, and the estimates."""
    if not isinstance(objective, ConsistentObjective):
        return objective, state
    rows = {name: tensor for name, tensor in state.rows.items() if not name.startswith(PREFIX)}
    estimates = (TOLERANCE, MISS_RATE)
    shared = {n: t for n, t in state.shared.items() if not n.startswith(PREFIX) or n in estimates}
    return objective.base, state._replace(rows=rows, shared=shared)

r"""Training on several views of every row: targets from a weak view, consistency on all of them.

One step sees a weak view and V strong views of each row in one forward pass. With base loss L, target t and
logits r_0 (weak), r_1, ..., r_V (strong):

.. math:: \operatorname{mean}_v L(r_v, S) + \lambda \operatorname{mean}_v \text{CE}(t, r_v)
    - \beta \sum_k \pi_k \log \bar p_k

The target t is a distribution without gradient (`Views.targets`) on the labels that a mask admits
(`Views.mask`); :math:`\lambda` rises linearly over the first part of training, and the last term keeps the
batch's mean prediction :math:`\bar p` near a class prior :math:`\pi`.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propall.numerics import full_precision, uniform_weights
from propall.training.contract import Objective, State, Step, weighted_mean
from propall.training.views import Views, balance_term, cross_entropy, soft_target

#: Name of the row memory that views add to an objective's own.
MEMORY = "view_targets"


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
        """Whether the base objective or the targets have a memory."""
        return self.base.updates_state or self.views.targets == "memory"

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """The base objective's state, and the targets if they are remembered."""
        state = self.base.init(candidates, weight)
        if self.views.targets != "memory":
            return state
        return state.with_rows(**{MEMORY: uniform_weights(candidates)})

    def loss(
        self, logits: Float[Tensor, "vb k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> Float[Tensor, ""]:
        """Base loss, consistency and balance."""
        views = self.views
        each = logits.unflatten(0, (views.n_views, -1))
        on_base = each if views.base_views == "all" else each[:1]
        loss = torch.stack([self.base.loss(part, candidates, state, step) for part in on_base]).mean()
        if views.n_strong == 0:
            return loss
        target = self._target(each[0], candidates, state, step)
        on_views = each if views.consistency_views == "all" else each[1:]
        terms = torch.stack([weighted_mean(cross_entropy(target, part), step.weight) for part in on_views])
        height = views.weight * (step.progress / max(views.ramp, 1e-9)).clamp(max=1)
        loss = loss + height * (terms.sum() if views.reduction == "sum" else terms.mean())
        if views.balance:
            loss = loss + views.balance * balance_term(each[0], views.prior)
        return loss

    def _target(self, weak: Tensor, candidates: Tensor, state: State, step: Step) -> Tensor:
        if self.views.targets == "memory":
            return state.rows[MEMORY]
        if self.views.targets == "teacher":
            assert step.teacher is not None, "the engine provides the teacher's logits"
            weak = step.teacher
        return soft_target(weak, candidates, self.views)

    def update(
        self, logits: Float[Tensor, "vb k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> State:
        """The base objective's memory from the weak view, and the remembered targets."""
        views = self.views
        each = logits.unflatten(0, (views.n_views, -1))
        new = self.base.update(each[0], candidates, state, step)
        if views.targets != "memory":
            return new
        seen = full_precision(each).log_softmax(-1).mean(0) if views.geometric else each[0]
        target = soft_target(seen, candidates, views)
        return new.with_rows(**{MEMORY: target.lerp(state.rows[MEMORY].to(target), views.momentum)})

    def scores(self, logits: Float[Tensor, "b k"], state: State) -> Float[Tensor, "b k"]:
        """The base objective's scores."""
        return self.base.scores(logits, state)


def with_views(objective: Objective, views: Views | None) -> Objective:
    """The objective trained with views, if there are any."""
    return objective if views is None else ConsistentObjective(objective, views)


def without_views(objective: Objective, state: State) -> tuple[Objective, State]:
    """The base objective of `with_views` and the part of the state that is its own."""
    if not isinstance(objective, ConsistentObjective):
        return objective, state
    rows = {name: tensor for name, tensor in state.rows.items() if name != MEMORY}
    return objective.base, state._replace(rows=rows)

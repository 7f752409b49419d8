"""Averages over a stack: of weights (lookahead, the teacher of views) and of predictions (peers)."""

import dataclasses
import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from propall.training.consistency import PREDICTIONS
from propall.training.optim import Tensors
from propall.training.stream import Batch

if TYPE_CHECKING:
    from propall.training.stack import Stack

#: Weight of the past in lookahead, per step, at the end of training.
LOOKAHEAD_DECAY = 0.95


class Averages:
    """Lookahead weights, teacher weights and peers of a stack, each only if the recipe asks for it.

    Args:
        stack: whose weights are averaged.
    """

    def __init__(self, stack: "Stack") -> None:
        self.stack, views = stack, stack.recipe.views
        has_teacher = views is not None and views.targets == "teacher"
        self.slow = self._copies() if stack.recipe.lookahead else {}
        self.teacher = self._copies() if has_teacher else {}
        self.others = self._others() if views is not None and views.targets == "peers" else None
        self.is_used = bool(self.slow or self.teacher) or self.others is not None

    def _others(self) -> Tensor:
        """0 for pairs of different runs, -inf on the diagonal."""
        runs = self.stack.runs
        if len(runs) < 2:
            raise ValueError(
                "views: targets='peers' takes targets from the other runs of a stack; there is one run. "
                "Train two or more seeds at once, or choose other targets."
            )
        if self.stack.stream.x.dim() != runs[0].train.x.dim():
            raise ValueError("views: targets='peers' needs runs on the same rows; they have their own.")
        diagonal = torch.eye(len(runs), dtype=torch.bool, device=self.stack.stream.device)
        return torch.zeros(diagonal.shape, device=diagonal.device).masked_fill(diagonal, -torch.inf)

    def _peers(self, batch: Batch) -> Tensor:
        """Log of the mean prediction of the other runs for every run's rows."""
        assert self.others is not None
        predictions = torch.cat([state.rows[PREDICTIONS] for state in self.stack.states])
        from_all = predictions[:, batch.index]
        others = from_all + self.others[..., None, None].to(from_all.dtype)
        return others.logsumexp(0) - math.log(len(self.stack.runs) - 1)

    def _weights(self) -> Tensors:
        stacked = {**self.stack.parameters, **self.stack.buffers}
        return {name: tensor for name, tensor in stacked.items() if tensor.is_floating_point()}

    def _copies(self) -> Tensors:
        return {name: tensor.clone() for name, tensor in self._weights().items()}

    def tensors(self) -> Tensors:
        """The averages by unique names."""
        kept = {"lookahead": self.slow, "teacher": self.teacher}
        return {f"{kind}/{name}": t for kind, tensors in kept.items() for name, t in tensors.items()}

    @torch.no_grad()
    def with_teacher(self, batch: Batch) -> Batch:
        """Add the logits of the teacher, in training mode, or of the peers, if there are any."""
        if self.others is not None:
            return dataclasses.replace(batch, teacher=self._peers(batch))
        if not self.teacher:
            return batch
        stack, rows, views = self.stack, batch.candidates.shape[1], self.stack.recipe.views
        assert views is not None
        first = rows if views.teacher_view == "strong" else 0
        seen = batch.x[:, first : first + rows]
        parameters = {name: self.teacher[name] for name in stack.parameters}
        buffers = {name: self.teacher.get(name, buffer) for name, buffer in stack.buffers.items()}
        logits, new = stack.forward(parameters, buffers, seen, training=True)
        for name, tensor in new.items():
            if name in self.teacher:
                self.teacher[name].copy_(tensor)
        return dataclasses.replace(batch, teacher=logits)

    @torch.no_grad()
    def update(self) -> None:
        """Follow the weights after a step; `stack.step` counts it already."""
        weights, recipe = self._weights(), self.stack.recipe
        if self.slow:
            # Without a branch on the step, so that the update can be captured in a graph.
            due = self.stack.step % recipe.lookahead == 0
            share = self.stack.step / self.stack.total_steps
            past = LOOKAHEAD_DECAY**recipe.lookahead * share**3
            for name, slow in self.slow.items():
                mixed = torch.lerp(weights[name], slow, past.to(slow.dtype))
                slow.copy_(torch.where(due, mixed, slow))
                weights[name].copy_(torch.where(due, mixed, weights[name]))
        if self.teacher:
            assert recipe.views is not None
            for name in self.stack.parameters:
                self.teacher[name].lerp_(weights[name], 1 - recipe.views.teacher_momentum)

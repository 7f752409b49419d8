"""Moving averages of a stack's weights: lookahead, and the teacher that views take targets from."""

import dataclasses
from typing import TYPE_CHECKING

import torch

from propall.training.optim import Tensors
from propall.training.stream import Batch

if TYPE_CHECKING:
    from propall.training.stack import Stack

#: Weight of the past in lookahead, per step, at the end of training.
LOOKAHEAD_DECAY = 0.95


class Averages:
    """Lookahead weights and teacher weights of a stack, each kept only if the recipe asks for it.

    Args:
        stack: whose weights are averaged.
    """

    def __init__(self, stack: "Stack") -> None:
        self.stack, views = stack, stack.recipe.views
        has_teacher = views is not None and views.targets == "teacher"
        self.slow = self._copies() if stack.recipe.lookahead else {}
        self.teacher = self._copies() if has_teacher else {}
        self.is_used = bool(self.slow or self.teacher)

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
        """Add the teacher's logits of the weak views, in training mode, if there is a teacher."""
        if not self.teacher:
            return batch
        stack = self.stack
        weak = batch.x[:, : batch.candidates.shape[1]]
        parameters = {name: self.teacher[name] for name in stack.parameters}
        buffers = {name: self.teacher.get(name, buffer) for name, buffer in stack.buffers.items()}
        logits, new = stack.forward(parameters, buffers, weak, training=True)
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

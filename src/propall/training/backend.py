"""How the losses, gradients and state updates of one step are computed; the default for any stack."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from propall.training.contract import State, Step
from propall.training.optim import Tensors
from propall.training.sections import differentiate

if TYPE_CHECKING:
    from propall.training.stack import Stack
    from propall.training.stream import Batch


class Group(NamedTuple):
    """Tensors that the optimizer moves together.

    Attributes:
        runs: whose learning rates apply.
        tensors: the trained tensors.
        moments: the optimizer's moments of them.
    """

    runs: slice
    tensors: Tensors
    moments: dict[str, Tensors]


class StepTime(NamedTuple):
    """When a step happens; see `Step`."""

    progress: Float[Tensor, ""]
    epoch: Float[Tensor, ""]


class SectionInputs(NamedTuple):
    """What the objective of a section sees of one step besides the logits."""

    candidates: Tensor
    state: State
    step: Step


class Backend(ABC):
    """Computes a step of a stack on the stack's tensors; `Stack.advance` is the step around it.

    Attributes:
        groups: what the optimizer moves: the networks, then what the objective of each section trains.
    """

    groups: list[Group]

    @abstractmethod
    def section_inputs(
        self, section: int, batch: "Batch", time: StepTime, noise: Tensor | None
    ) -> SectionInputs:
        """What a section sees of a batch."""

    @abstractmethod
    def losses_and_gradients(
        self, batch: "Batch", inputs: list[SectionInputs]
    ) -> tuple[Float[Tensor, "r"], Tensor, list[Tensors]]:
        """Loss of every run, the logits, and the gradients in the tensors of every group."""

    @abstractmethod
    def update(self, section: int, batch: "Batch", section_inputs: SectionInputs, logits: Tensor) -> State:
        """State of a section's runs after the optimizer's step, for the rows of the batch."""


class StackedBackend(Backend):
    """Any number of runs on a leading axis, through `vmap` and autograd or under a compiler."""

    def __init__(self, stack: "Stack") -> None:
        self.stack = stack
        tensors = [(slice(None), stack.trained)]
        tensors += [(s.runs, state.trained) for s, state in zip(stack.sections, stack.states, strict=True)]
        self.groups = [
            Group(runs, trained, moments)
            for (runs, trained), moments in zip(tensors, stack.moments, strict=True)
        ]

    def section_inputs(
        self, section: int, batch: "Batch", time: StepTime, noise: Tensor | None
    ) -> SectionInputs:
        """The section's slice of the batch."""
        runs = self.stack.sections[section].runs
        of_rows = (batch.weight, batch.teacher, batch.mixing)
        step = Step(*time, noise, *(None if tensor is None else tensor[runs] for tensor in of_rows))
        return SectionInputs(batch.candidates[runs], self.stack.batch_state(section, batch), step)

    def losses_and_gradients(
        self, batch: "Batch", inputs: list[SectionInputs]
    ) -> tuple[Float[Tensor, "r"], Tensor, list[Tensors]]:
        """One gradient of the sum of all losses; batch norm's new buffers are written to the stack."""
        stack = self.stack

        def total(trained: "list[Tensors]") -> "tuple[Tensor, Any]":
            parameters = {**stack.parameters, **trained[0]}
            logits, buffers = stack.forward(parameters, stack.buffers, batch.x, training=True)
            losses = concatenate(
                [
                    section.losses(logits[section.runs], candidates, state._replace(trained=tensors), step)
                    for section, (candidates, state, step), tensors in zip(
                        stack.sections, inputs, trained[1:], strict=True
                    )
                ]
            )
            return losses.sum(), (losses, logits, buffers)

        gradients, (losses, logits, buffers) = differentiate(total, [group.tensors for group in self.groups])
        write(stack.buffers, buffers)
        return losses.detach(), logits, gradients

    def update(self, section: int, batch: "Batch", section_inputs: SectionInputs, logits: Tensor) -> State:
        """All runs of the section at once."""
        part = self.stack.sections[section]
        fresh = part.objective.fresh_logits
        return part.update(
            self._fresh_logits(part.runs, batch) if fresh else logits.detach()[part.runs], *section_inputs
        )

    def _fresh_logits(self, runs: slice, batch: "Batch") -> Tensor:
        stack = self.stack
        parameters, before = (
            {name: tensor[runs] for name, tensor in part.items()}
            for part in (stack.parameters, stack.buffers)
        )
        logits, buffers = stack.forward(parameters, before, batch.x[runs], training=True)
        write(before, buffers)
        return logits


def concatenate(parts: list[Tensor]) -> Tensor:
    """The parts along their first axis; a single one as it is."""
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def write(targets: Tensors, values: Tensors) -> None:
    """Copy values into the tensors of the same name, in place."""
    for name, target in targets.items():
        target.copy_(values[name])

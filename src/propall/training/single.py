"""The step of a stack of one run, without the run axis: far fewer operations on the host."""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from propall.training.backend import Backend, Group, SectionInputs, StepTime
from propall.training.contract import State, Step
from propall.training.optim import Tensors
from propall.training.sections import leaves, map_leaves
from propall.training.stream import Batch

if TYPE_CHECKING:
    from propall.training.stack import Stack


class SingleBackend(Backend):
    """Calls the network of the only run as an ordinary module, on the stack's own tensors.

    Args:
        stack: holds the tensors.
        net: network of the run; its parameters and buffers become views of the stack's.
    """

    def __init__(self, stack: "Stack", net: nn.Module) -> None:
        self.stack, self.net = stack, net.train()
        for name, parameter in net.named_parameters():
            parameter.data = stack.parameters[name][0]
        for name, buffer in net.named_buffers():
            buffer.data = stack.buffers[name][0]
        self.objective, (state,) = stack.sections[0].objective, stack.states
        self.parameters: Tensors = dict(net.named_parameters())
        self._of_objective = {name: t[0].detach().requires_grad_() for name, t in state.trained.items()}
        trained = [{name: self.parameters[name] for name in stack.trained}, self._of_objective]
        self.groups = [
            Group(slice(None), tensors, map_leaves(lambda t: t[0], moments))
            for tensors, moments in zip(trained, stack.moments, strict=True)
            if tensors
        ]
        self._leaves = list(leaves(trained))
        self._half = stack.recipe.precision == "bfloat16"

    def section_inputs(
        self, section: int, batch: Batch, time: StepTime, noise: Tensor | None
    ) -> SectionInputs:
        """The batch of the run; the state omits tensors trained by the objective."""
        state = self.stack.batch_state(section, batch)
        if any(state):
            state = map_leaves(lambda t: t.squeeze(0), state._replace(trained={}))
        of_rows = (noise, batch.weight, batch.teacher, batch.mixing)
        step = Step(*time, *(None if tensor is None else tensor.squeeze(0) for tensor in of_rows))
        return SectionInputs(batch.candidates.squeeze(0), state, step)

    def losses_and_gradients(
        self, batch: Batch, inputs: list[SectionInputs]
    ) -> tuple[Float[Tensor, "r"], Tensor, list[Tensors]]:
        """By autograd through the module."""
        ((candidates, state, step),) = inputs
        with torch.enable_grad():
            logits = self.logits(batch.x.squeeze(0))
            state = state._replace(trained=self._of_objective)
            loss = self.objective.loss(logits, candidates, state, step)
        gradients = iter(torch.autograd.grad(loss, self._leaves, allow_unused=True, materialize_grads=True))
        by_group = [{name: next(gradients) for name in group.tensors} for group in self.groups]
        return loss.detach().view(1), logits, by_group

    def update(self, section: int, batch: Batch, section_inputs: SectionInputs, logits: Tensor) -> State:
        """The run's new state, with the run axis put back."""
        seen = self.logits(batch.x.squeeze(0)) if self.objective.fresh_logits else logits.detach()
        state = section_inputs.state._replace(trained=map_leaves(lambda t: t.detach(), self._of_objective))
        after = self.objective.update(seen, section_inputs.candidates, state, section_inputs.step)
        return map_leaves(lambda t: t.unsqueeze(0), after)  # type: ignore[no-any-return]

    def logits(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "b k"]:
        """Outputs in training mode; batch norm writes to the stack's buffers."""
        device = x.device.type
        if self._half or torch.is_autocast_enabled(device):
            with torch.autocast(device, torch.bfloat16, enabled=self._half):
                return self.net(x).to(x.dtype)  # type: ignore[no-any-return]
        return self.net(x).to(x.dtype)  # type: ignore[no-any-return]

"""Linear layers with ReLUs between them, differentiated by hand: a small step on a CPU is mostly overhead."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from propall.nets.network import AlignedLinear, Network
from propall.training.backend import Backend, SectionInputs, StackedBackend, concatenate
from propall.training.contract import RowwiseObjective, weighted_mean
from propall.training.optim import Tensors
from propall.training.sections import is_rowwise, mean_gradients
from propall.training.single import SingleBackend
from propall.training.stream import Batch

if TYPE_CHECKING:
    from propall.training.stack import Stack

threshold_backward = torch.ops.aten.threshold_backward.default

#: Names of the weight and the bias of a layer; the bias may be missing.
LayerNames = tuple[str, str | None]


class Dense:
    """Forward and backward pass of such a network, on the tensors that the optimizer moves.

    The same matrix products as autograd's, without a graph, modules or, for stacked runs, a transform.
    Gradients overwrite those of the previous step. Autograd records neither pass: the parameters are
    detached, and x and the incoming gradients are expected to be.

    Args:
        names: of the layers, from the input on.
        parameters: by name: (o, i) and (o,), or stacked (r, o, i) and (r, o).
    """

    def __init__(self, names: Sequence[LayerNames], parameters: Tensors) -> None:
        self.names = names
        self.weights = [parameters[weight].detach() for weight, _ in names]
        self.stacked = self.weights[0].dim() == 3
        biases = [None if bias is None else parameters[bias].detach() for _, bias in names]
        # Transposed weights and broadcastable biases: views, which follow the parameters.
        self._maps = [
            (weight.mT, bias if bias is None or not self.stacked else bias.unsqueeze(1))
            for weight, bias in zip(self.weights, biases, strict=True)
        ]
        self._multiply: Callable[..., Tensor] = torch.bmm if self.stacked else torch.mm
        self._multiply_add: Callable[..., Tensor] = torch.baddbmm if self.stacked else torch.addmm
        self.gradients = {
            name: torch.empty_like(parameters[name]) for pair in names for name in pair if name is not None
        }
        self._inputs: list[Tensor] = []

    @classmethod
    def of(cls, net: nn.Module, parameters: Tensors) -> "Dense | None":
        """For a network that declares itself dense (see `Network.dense_layers`), on a CPU; None otherwise."""
        layers = net.dense_layers() if isinstance(net, Network) else None
        if layers is None or any(p.device.type != "cpu" for p in parameters.values()):
            return None
        if not all(type(layer) in (nn.Linear, AlignedLinear) for layer in layers):
            return None  # a layer was replaced or parametrized
        name_of = {id(module): name for name, module in net.named_modules()}
        names = [(name_of[id(layer)], layer.bias is not None) for layer in layers]
        return cls([(f"{name}.weight", f"{name}.bias" if bias else None) for name, bias in names], parameters)

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "*r b k"]:
        """The outputs; keeps what the backward pass needs."""
        z = x.flatten(2 if self.stacked else 1)
        self._inputs = []
        for factor, term in self._maps:
            if self._inputs:
                z.relu_()
            self._inputs.append(z)
            z = self._multiply(z, factor) if term is None else self._multiply_add(term, z, factor)
        return z

    def backward(self, gradients: Float[Tensor, "*r b k"]) -> Tensors:
        """Gradients of the parameters by name, from those of the outputs of the last `forward`."""
        for layer in range(len(self.weights) - 1, -1, -1):
            (weight, bias), x = self.names[layer], self._inputs[layer]
            self._multiply(gradients.mT, x, out=self.gradients[weight])
            if bias is not None:
                torch.sum(gradients, -2, out=self.gradients[bias])
            if layer:
                gradients = threshold_backward(self._multiply(gradients, self.weights[layer]), x, 0)
        return self.gradients


class DenseStackedBackend(StackedBackend):
    """A stack of dense networks."""

    def __init__(self, stack: "Stack", dense: Dense) -> None:
        super().__init__(stack)
        self.dense = dense

    def losses_and_gradients(
        self, batch: Batch, inputs: list[SectionInputs]
    ) -> tuple[Float[Tensor, "r"], Tensor, list[Tensors]]:
        """The objectives' gradients in the logits, then the written-out backward pass."""
        logits = self.dense.forward(batch.x)
        parts = [
            section.losses_and_gradients(logits[section.runs], *section_inputs)
            for section, section_inputs in zip(self.stack.sections, inputs, strict=True)
        ]
        losses, of_logits, of_trained = (list(part) for part in zip(*parts, strict=True))
        return concatenate(losses), logits, [self.dense.backward(concatenate(of_logits)), *of_trained]


class DenseSingleBackend(SingleBackend):
    """One dense network with a rowwise objective that trains nothing itself."""

    objective: RowwiseObjective

    def __init__(self, stack: "Stack", net: nn.Module, names: Sequence[LayerNames]) -> None:
        super().__init__(stack, net)
        self.dense = Dense(names, self.parameters)

    def losses_and_gradients(
        self, batch: Batch, inputs: list[SectionInputs]
    ) -> tuple[Float[Tensor, "r"], Tensor, list[Tensors]]:
        """The objective's gradients in the logits, then the written-out backward pass."""
        ((candidates, state, step),) = inputs
        logits = self.dense.forward(batch.x.squeeze(0))
        losses, gradients = self.objective.losses_and_gradients(logits, candidates, state, step)
        loss = weighted_mean(losses.unsqueeze(0), batch.weight)
        return loss, logits, [self.dense.backward(mean_gradients(gradients, step.weight))]


def dense_backend(stack: "Stack", net: nn.Module) -> Backend | None:
    """The backend for a stack of networks like this one; None where it does not apply."""
    dense = None if stack.recipe.precision == "bfloat16" else Dense.of(net, stack.parameters)
    if dense is None:
        return None
    if len(stack.runs) > 1:
        return DenseStackedBackend(stack, dense)
    if is_rowwise(stack.sections[0].objective) and not stack.states[0].trained:
        return DenseSingleBackend(stack, net, dense.names)
    return None

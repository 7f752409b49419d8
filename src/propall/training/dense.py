"""Linear maps with ReLUs between them, both passes written out: on a CPU a small step is mostly overhead."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from propall.nets.network import AlignedLinear, Network

threshold_backward = torch.ops.aten.threshold_backward.default


class Dense:
    """Forward and backward of such a network, on the very tensors that the optimiser moves.

    The same products as autograd's, without a graph, without modules, and for stacked runs without a
    transform; gradients are written where the last ones were. Neither pass is recorded: the parameters are
    detached, and so are x and slopes to be.

    Args:
        names: of weight and bias of every layer, from the input on; the bias may be missing.
        parameters: by name: (o, i) and (o,), or stacked (r, o, i) and (r, o).
    """

    def __init__(self, names: Sequence[tuple[str, str | None]], parameters: dict[str, Tensor]) -> None:
        self.names = names
        self.weights = [parameters[weight].detach() for weight, _ in names]
        self.stacked = self.weights[0].dim() == 3
        biases = [None if bias is None else parameters[bias].detach() for _, bias in names]
        # What a batch is multiplied by and what is added: views, which follow the parameters.
        self._maps = [
            (weight.mT, bias if bias is None or not self.stacked else bias.unsqueeze(1))
            for weight, bias in zip(self.weights, biases, strict=True)
        ]
        self._multiply: Callable[..., Tensor] = torch.bmm if self.stacked else torch.mm
        self._multiply_add: Callable[..., Tensor] = torch.baddbmm if self.stacked else torch.addmm
        self.slopes = {
            name: torch.empty_like(parameters[name]) for pair in names for name in pair if name is not None
        }
        self._inputs: list[Tensor] = []

    @classmethod
    def of(cls, net: nn.Module, parameters: dict[str, Tensor]) -> "Dense | None":
        """For a network that says it is one (see `Network.dense`), on a CPU; None otherwise."""
        layers = net.dense_layers() if isinstance(net, Network) else None
        if layers is None or any(p.device.type != "cpu" for p in parameters.values()):
            return None
        if not all(type(layer) in (nn.Linear, AlignedLinear) for layer in layers):
            return None  # somebody put another one there, or gave one a parametrisation
        name_of = {id(module): name for name, module in net.named_modules()}
        names = [(name_of[id(layer)], layer.bias is not None) for layer in layers]
        return cls([(f"{name}.weight", f"{name}.bias" if bias else None) for name, bias in names], parameters)

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "*r b k"]:
        """The outputs; what the way back needs is kept."""
        z = x.flatten(2 if self.stacked else 1)
        self._inputs = []
        for factor, term in self._maps:
            if self._inputs:
                z.relu_()
            self._inputs.append(z)
            z = self._multiply(z, factor) if term is None else self._multiply_add(term, z, factor)
        return z

    def backward(self, slopes: Float[Tensor, "*r b k"]) -> dict[str, Tensor]:
        """Every parameter's gradient, by name, given that of the outputs of the last `forward`."""
        for layer in range(len(self.weights) - 1, -1, -1):
            (weight, bias), x = self.names[layer], self._inputs[layer]
            self._multiply(slopes.mT, x, out=self.slopes[weight])
            if bias is not None:
                torch.sum(slopes, -2, out=self.slopes[bias])
            if layer:
                slopes = threshold_backward(self._multiply(slopes, self.weights[layer]), x, 0)
        return self.slopes

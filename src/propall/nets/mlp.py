"""Linear networks and multilayer perceptrons: arbitrary widths, and three networks from the literature."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from jaxtyping import Float
from torch import Tensor, nn

from propall.nets.network import AlignedBatchNorm, AlignedLinear, Network


class Linear(Network):
    """One linear layer with Xavier-uniform weights and PyTorch's default bias initialization.

    Examples:
        >>> import torch
        >>> Linear((20,), 5)(torch.zeros(2, 20)).shape
        torch.Size([2, 5])
    """

    name, title = "linear", "linear"

    def __init__(self, in_shape: tuple[int, ...], n_classes: int) -> None:
        super().__init__()
        self.head = AlignedLinear(prod(in_shape), n_classes)
        nn.init.xavier_uniform_(self.head.weight)

    def features(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """Flatten the input."""
        return x.flatten(1)

    def dense_layers(self) -> list[nn.Module] | None:
        """Return the head."""
        return [self.head] if type(self) is Linear else None


class MLP(Network):
    """Hidden layers with ReLU and a linear head; images are flattened.

    Args:
        in_shape: shape of one instance.
        n_classes: number of classes.
        widths: number of units of each hidden layer.
        batch_norm: True inserts batch norm before each ReLU; hidden layers then have no bias. "after" inserts
            it behind each ReLU.
        init: "default" for PyTorch's initialization, "xavier" for Xavier-uniform weights and zero head bias.

    Examples:
        >>> import torch
        >>> net = MLP((20,), 5, widths=(64, 32))
        >>> net.features(torch.zeros(2, 20)).shape, net(torch.zeros(2, 20)).shape
        (torch.Size([2, 32]), torch.Size([2, 5]))
    """

    name, title = "mlp", "MLP"

    def __init__(
        self,
        in_shape: tuple[int, ...],
        n_classes: int,
        *,
        widths: Sequence[int] = (256,),
        batch_norm: bool | str = False,
        init: str = "default",
    ) -> None:
        super().__init__()
        if not widths or min(widths) < 1:
            raise ValueError(
                f"widths: got {tuple(widths)}; expected one positive number per hidden layer. "
                "Use the network linear for none."
            )
        if batch_norm not in (True, False, "after"):
            raise ValueError(f"batch_norm: got {batch_norm!r}; expected True, False or 'after'.")
        if init not in ("default", "xavier"):
            raise ValueError(f"init: got {init!r}; expected 'default' or 'xavier'.")
        sizes = [prod(in_shape), *widths]
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers.append(AlignedLinear(before, after, bias=batch_norm is not True))
            norm = [AlignedBatchNorm(after)] if batch_norm else []
            layers += [nn.ReLU(), *norm] if batch_norm == "after" else [*norm, nn.ReLU()]
        self.hidden = nn.Sequential(*layers)
        self.head = AlignedLinear(sizes[-1], n_classes)
        if init == "xavier":
            for layer in (*self.hidden, self.head):
                if isinstance(layer, nn.Linear):
                    nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(self.head.bias)

    def features(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """Compute the last hidden layer, after its ReLU."""
        z: Tensor = self.hidden(x.flatten(1))
        return z

    def dense_layers(self) -> list[nn.Module] | None:
        """Return all layers, or None with batch norm or if a subclass overrides the computation."""
        unchanged = type(self).features is MLP.features and type(self).forward is Network.forward
        layers, activations = list(self.hidden)[::2], list(self.hidden)[1::2]
        plain = all(type(part) is nn.ReLU for part in activations)
        return [*layers, self.head] if unchanged and plain else None


class MLP5(MLP):
    """784-300-301-302-303-k with batch norm before each ReLU: PRODEN's network, used by most later papers.

    Notes:
        The ProPaLL paper mentions batch norm before the hidden layers. Here, as in PRODEN's code, it is
        between the linear layer and the ReLU.
    """

    name, title = "mlp5", "MLP-5"

    def __init__(self, in_shape: tuple[int, ...], n_classes: int) -> None:
        super().__init__(in_shape, n_classes, widths=(300, 301, 302, 303), batch_norm=True, init="xavier")

    def embedding(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """Compute the last hidden layer, before batch norm and ReLU."""
        z: Tensor = self.hidden[:-2](x.flatten(1))
        return z


class MLP500(MLP):
    """One hidden layer of 500 units, PyTorch's initialization: the complementary-label experiments."""

    name, title = "mlp500", "MLP-500"

    def __init__(self, in_shape: tuple[int, ...], n_classes: int) -> None:
        super().__init__(in_shape, n_classes, widths=(500,))


class VALENMLP4(Network):
    """VALEN's network for uniform candidates: three hidden layers as wide as the input, no batch norm.

    Notes:
        As in the authors' code, the head takes the third layer *before* its ReLU, so the last two layers form
        a single linear map. The published results use this network.
    """

    name, title = "valen_mlp4", "VALEN MLP-4"

    def __init__(self, in_shape: tuple[int, ...], n_classes: int) -> None:
        super().__init__()
        width = prod(in_shape)
        self.hidden = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)
        )
        self.head = nn.Linear(width, n_classes)

    def features(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """Compute the third layer, before its ReLU."""
        z: Tensor = self.hidden(x.flatten(1))
        return z

    def embedding(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """Compute the third layer, after its ReLU."""
        return self.features(x).relu()

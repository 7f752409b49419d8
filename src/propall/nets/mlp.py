"""Multilayer perceptrons: any widths, and the three of the literature."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from jaxtyping import Float
from torch import Tensor, nn

from propall.nets.network import AlignedBatchNorm, AlignedLinear, Network


class MLP(Network):
    """Hidden layers with ReLU, then a linear head; images are flattened.

    Args:
        in_shape: shape of one instance.
        n_classes: number of classes.
        widths: hidden units of each layer, from the input on.
        batch_norm: linear without bias, batch norm, ReLU; instead of linear with bias, ReLU.
        init: "default" as torch draws it, or "xavier": Xavier-uniform weights and a head bias of 0.
    """

    name, title = "mlp", "MLP"

    def __init__(
        self,
        in_shape: tuple[int, ...],
        n_classes: int,
        *,
        widths: Sequence[int] = (256,),
        batch_norm: bool = False,
        init: str = "default",
    ) -> None:
        super().__init__()
        if not widths or min(widths) < 1:
            raise ValueError(
                f"widths: {tuple(widths)} names no hidden layers; give one positive number per layer, "
                "or choose the network linear."
            )
        if init not in ("default", "xavier"):
            raise ValueError(f"init: {init!r} is not known; give 'default' or 'xavier'.")
        sizes = [prod(in_shape), *widths]
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers.append(AlignedLinear(before, after, bias=not batch_norm))
            if batch_norm:
                layers.append(AlignedBatchNorm(after))
            layers.append(nn.ReLU())
        self.hidden = nn.Sequential(*layers)
        self.head = AlignedLinear(sizes[-1], n_classes)
        if init == "xavier":
            for layer in (*self.hidden, self.head):
                if isinstance(layer, nn.Linear):
                    nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(self.head.bias)

    def features(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """The last hidden layer, after its ReLU."""
        z: Tensor = self.hidden(x.flatten(1))
        return z

    def dense(self) -> list[nn.Module] | None:
        """All layers, unless there is batch norm between them or a subclass computes otherwise."""
        unchanged = type(self).features is MLP.features and type(self).forward is Network.forward
        layers, activations = list(self.hidden)[::2], list(self.hidden)[1::2]
        plain = all(type(part) is nn.ReLU for part in activations)
        return [*layers, self.head] if unchanged and plain else None


class MLP5(MLP):
    """784-300-301-302-303-k with batch norm before each ReLU: PRODEN's network, used by most papers since.

    Notes:
        The ProPaLL paper speaks of batch norm before the hidden layers; PRODEN's code has it between the
        linear map and the ReLU, and so does this.
    """

    name, title = "mlp5", "MLP-5"

    def __init__(self, in_shape: tuple[int, ...], n_classes: int) -> None:
        super().__init__(in_shape, n_classes, widths=(300, 301, 302, 303), batch_norm=True, init="xavier")

    def embedding(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """The last hidden linear map, before batch norm and ReLU."""
        z: Tensor = self.hidden[:-2](x.flatten(1))
        return z


class MLP500(MLP):
    """One hidden layer of 500 without batch norm, as torch draws it: the complementary-label experiments."""

    name, title = "mlp500", "MLP-500"

    def __init__(self, in_shape: tuple[int, ...], n_classes: int) -> None:
        super().__init__(in_shape, n_classes, widths=(500,))


class VALENMLP4(Network):
    """VALEN's own network for uniform candidates: three hidden layers as wide as the input, no batch norm.

    Notes:
        Its code feeds the head the third layer *before* the ReLU, so the last two maps are one linear map;
        kept, since the published numbers come from it.
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
        """The third layer before its ReLU."""
        z: Tensor = self.hidden(x.flatten(1))
        return z

    def embedding(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """The third layer after its ReLU."""
        return self.features(x).relu()

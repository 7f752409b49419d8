"""Linear network, used on the real-world data sets."""

from math import prod

from jaxtyping import Float
from torch import Tensor, nn

from propall.nets.network import AlignedLinear, Network


class Linear(Network):
    """One linear layer with Xavier-uniform weights and PyTorch's default bias initialization."""

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

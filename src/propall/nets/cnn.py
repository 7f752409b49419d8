"""A small convolutional network for images of any size."""

from collections.abc import Sequence
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn

from propall.nets.network import ImageNetwork, convolution


class SmallCNN(ImageNetwork):
    """3x3 convolution, batch norm and ReLU for each width, then global average pooling and a linear head.

    Args:
        in_shape: (channels, height, width); one pixel is enough.
        n_classes: number of classes.
        widths: channels of each layer; every layer but the first halves height and width.

    Examples:
        >>> import torch
        >>> SmallCNN((3, 16, 16), 10)(torch.zeros(2, 3, 16, 16)).shape
        torch.Size([2, 10])
    """

    name, title = "small_cnn", "small CNN"

    def __init__(
        self, in_shape: tuple[int, ...], n_classes: int, *, widths: Sequence[int] = (32, 64, 128)
    ) -> None:
        super().__init__(in_shape)
        if not widths or min(widths) < 1:
            raise ValueError(f"widths: got {tuple(widths)}; expected one positive number per layer.")
        layers: list[nn.Module] = []
        for position, (before, after) in enumerate(pairwise([in_shape[0], *widths])):
            stride = 2 if position else 1
            layers += [convolution(before, after, 3, stride=stride), nn.BatchNorm2d(after), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], n_classes)

    def feature_maps(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """Compute the feature maps of the last layer."""
        z: Tensor = self.layers(x)
        return z

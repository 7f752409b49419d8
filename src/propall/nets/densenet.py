"""DenseNets [huang2017densenet]: BC-100 for small images, 161 with the ImageNet stem."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from propall.nets.network import ImageNetwork, convolution


def _preactivated(channels: int, conv: nn.Conv2d) -> tuple[nn.Module, ...]:
    return nn.BatchNorm2d(channels), nn.ReLU(), conv


class DenseLayer(nn.Module):
    """A bottleneck layer that appends `growth` channels to its input."""

    def __init__(self, inputs: int, growth: int, init: str) -> None:
        super().__init__()
        width = 4 * growth
        self.new = nn.Sequential(
            *_preactivated(inputs, convolution(inputs, width, 1, init=init)),
            *_preactivated(width, convolution(width, growth, 3, init=init)),
        )

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d h w"]:
        """Append the new channels."""
        return torch.cat([x, self.new(x)], dim=1)


class DenseNet(ImageNetwork):
    """Dense blocks separated by transitions that halve channels, height and width.

    Attributes:
        channels: number of channels after the stem.
        growth: number of channels that each layer adds.
        blocks: number of layers in each block.
        init: see `convolution`.
    """

    channels: ClassVar[int]
    growth: ClassVar[int]
    blocks: ClassVar[tuple[int, ...]]
    init: ClassVar[str]

    def __init__(self, in_shape: tuple[int, ...], n_classes: int) -> None:
        super().__init__(in_shape)
        self.stem = self.make_stem(in_shape[0])
        layers: list[nn.Module] = []
        width = self.channels
        for position, depth in enumerate(self.blocks):
            if position:
                layers += _preactivated(width, convolution(width, width // 2, 1, init=self.init))
                layers.append(nn.AvgPool2d(2))
                width //= 2
            for _ in range(depth):
                layers.append(DenseLayer(width, self.growth, self.init))
                width += self.growth
        self.body = nn.Sequential(*layers, nn.BatchNorm2d(width), nn.ReLU())
        self.head = nn.Linear(width, n_classes)

    def make_stem(self, inputs: int) -> nn.Sequential:
        """Build the layers before the first block."""
        raise NotImplementedError

    def feature_maps(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """Compute the feature maps of the last block, after batch norm and ReLU."""
        z: Tensor = self.body(self.stem(x))
        return z


class DenseNetBC100(DenseNet):
    """Growth 12, three blocks of 16 bottlenecks, 3x3 stem; 0.77 M parameters.

    Examples:
        >>> import torch
        >>> with torch.device("meta"):  # shapes only
        ...     net = DenseNetBC100((3, 32, 32), 10)
        >>> sum(p.numel() for p in net.parameters())
        769162
    """

    name, title = "densenet_bc100", "DenseNet-BC-100"
    min_pixels = 4
    channels, growth, blocks, init = 24, 12, (16, 16, 16), "fan_out"

    def make_stem(self, inputs: int) -> nn.Sequential:
        """Build a 3x3 convolution, which keeps the image size."""
        return nn.Sequential(convolution(inputs, self.channels, 3, init=self.init))


class DenseNet161(DenseNet):
    """Growth 48, blocks of 6, 12, 36 and 24, ImageNet stem, head bias 0; 26.5 M parameters.

    Designed for 224 x 224 pixels; published complementary-label experiments use it on CIFAR-10 (32 x 32).

    Examples:
        >>> import torch
        >>> with torch.device("meta"):  # shapes only
        ...     net = DenseNet161((3, 32, 32), 10)
        >>> sum(p.numel() for p in net.parameters())
        26494090
    """

    name, title = "densenet161", "DenseNet-161"
    min_pixels = 29
    channels, growth, blocks, init = 96, 48, (6, 12, 36, 24), "fan_in"

    def __init__(self, in_shape: tuple[int, ...], n_classes: int) -> None:
        super().__init__(in_shape, n_classes)
        nn.init.zeros_(self.head.bias)

    def make_stem(self, inputs: int) -> nn.Sequential:
        """Build a 7x7 convolution and max pooling, both with stride 2: 32 x 32 pixels become 8 x 8."""
        return nn.Sequential(
            convolution(inputs, self.channels, 7, stride=2, init=self.init),
            nn.BatchNorm2d(self.channels),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )

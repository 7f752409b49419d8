"""Residual networks for small images [he2016resnet]."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from propall.nets.network import ImageNetwork, convolution


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            convolution(inputs, outputs, 3, stride=stride),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            convolution(outputs, outputs, 3),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                convolution(inputs, outputs, 1, stride=stride), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """Add shortcut and residual, then apply ReLU."""
        y: Tensor = self.shortcut(x) + self.residual(x)
        return y.relu()


class ResNet(ImageNetwork):
    """A 3x3 stem and stages of basic blocks, each after the first at half the resolution of the one before.

    Attributes:
        widths: channels of each stage.
        blocks_per_stage: number of basic blocks in each stage.
    """

    widths: ClassVar[tuple[int, ...]]
    blocks_per_stage: ClassVar[int]

    def __init__(self, in_shape: tuple[int, ...], n_classes: int) -> None:
        super().__init__(in_shape)
        inputs = self.widths[0]
        self.stem = nn.Sequential(convolution(in_shape[0], inputs, 3), nn.BatchNorm2d(inputs), nn.ReLU())
        blocks: list[nn.Module] = []
        for stage, outputs in enumerate(self.widths):
            for position in range(self.blocks_per_stage):
                blocks.append(BasicBlock(inputs, outputs, 2 if stage and position == 0 else 1))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, n_classes)

    def feature_maps(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """Compute the feature maps of the last stage."""
        z: Tensor = self.blocks(self.stem(x))
        return z


class ResNet32(ResNet):
    """Three stages of five basic blocks with 16, 32 and 64 channels; 0.47 M parameters.

    Examples:
        >>> sum(p.numel() for p in ResNet32((3, 32, 32), 10).parameters())
        466906
    """

    name, title = "resnet32", "ResNet-32"
    widths, blocks_per_stage = (16, 32, 64), 5


class ResNet18(ResNet):
    """Four stages of two basic blocks with 64 to 512 channels; 11.2 M parameters.

    Examples:
        >>> sum(p.numel() for p in ResNet18((3, 32, 32), 10).parameters())
        11173962
    """

    name, title = "resnet18", "ResNet-18"
    widths, blocks_per_stage = (64, 128, 256, 512), 2

"""ResNet-32 for small images [he2016resnet]."""

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


class ResNet32(ImageNetwork):
    """A 3x3 stem and three stages of five basic blocks with 16, 32 and 64 channels; 0.47 M parameters."""

    name, title = "resnet32", "ResNet-32"

    def __init__(self, in_shape: tuple[int, ...], n_classes: int) -> None:
        super().__init__(in_shape)
        self.stem = nn.Sequential(convolution(in_shape[0], 16, 3), nn.BatchNorm2d(16), nn.ReLU())
        blocks: list[nn.Module] = []
        inputs = 16
        for outputs in (16, 32, 64):
            for position in range(5):
                stride = 2 if position == 0 and outputs != 16 else 1
                blocks.append(BasicBlock(inputs, outputs, stride))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, n_classes)

    def feature_maps(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """Compute 64 feature maps at a quarter of the image's height and width."""
        z: Tensor = self.blocks(self.stem(x))
        return z

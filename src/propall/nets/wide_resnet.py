"""Wide residual networks for small images [zagoruyko2016wide]."""

from jaxtyping import Float
from torch import Tensor, nn

from propall.nets.network import ImageNetwork, convolution


class PreactivationBlock(nn.Module):
    """Batch norm and ReLU before each of two 3x3 convolutions, with a shortcut around both.

    Args:
        inputs: number of channels that come in.
        outputs: number of channels that go out.
        stride: of the first convolution.
        dropout: probability that a value before the second convolution is zero in training.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU())
        self.residual = nn.Sequential(
            convolution(inputs, outputs, 3, stride=stride),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            *([nn.Dropout(dropout)] if dropout else []),
            convolution(outputs, outputs, 3),
        )
        changes = stride != 1 or inputs != outputs
        self.shortcut = convolution(inputs, outputs, 1, stride=stride) if changes else None

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """The input (or its projection) plus the residual."""
        activated = self.norm(x)
        skip = x if self.shortcut is None else self.shortcut(activated)
        y: Tensor = skip + self.residual(activated)
        return y


class WideResNet(ImageNetwork):
    """WRN-28-10; 36.5 million parameters.

    Args:
        in_shape: (channels, height, width).
        n_classes: number of classes.
        depth: 6 n + 4 layers for n blocks per stage.
        width: factor on the channels 16, 32 and 64 of the stages.
        dropout: probability in each residual block. Not 0 only for networks that draw candidate sets as
            published ones do, see `propall.paper.specs.Teacher`: dropout draws from PyTorch's generator.

    Examples:
        >>> import torch
        >>> with torch.device("meta"):  # shapes only
        ...     net = WideResNet((3, 32, 32), 10)
        >>> sum(p.numel() for p in net.parameters())
        36479194
    """

    name, title = "wrn28_10", "WRN-28-10"
    min_pixels = 4

    def __init__(
        self,
        in_shape: tuple[int, ...],
        n_classes: int,
        *,
        depth: int = 28,
        width: int = 10,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(in_shape)
        if depth % 6 != 4:
            raise ValueError(f"depth: got {depth}; expected 6 n + 4, such as 28.")
        layers: list[nn.Module] = [convolution(in_shape[0], 16, 3)]
        inputs = 16
        for stage in range(3):
            outputs = 16 * width * 2**stage
            for position in range((depth - 4) // 6):
                stride = 2 if stage and position == 0 else 1
                layers.append(PreactivationBlock(inputs, outputs, stride, dropout))
                inputs = outputs
        self.layers = nn.Sequential(*layers, nn.BatchNorm2d(inputs), nn.ReLU())
        self.head = nn.Linear(inputs, n_classes)

    def feature_maps(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """The last stage's maps, at a quarter of the image's height and width."""
        z: Tensor = self.layers(x)
        return z

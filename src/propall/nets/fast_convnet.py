"""A wide, shallow convolutional network that trains in seconds [jordan2024airbench]."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import gelu, max_pool2d

from propall.nets.network import ImageNetwork

#: Added to the eigenvalues of the patch covariance before whitening.
WHITENING_EPSILON = 5e-4
#: Rows that the whitening filters are computed from.
WHITENING_ROWS = 5000


def identity_convolution(inputs: int, outputs: int) -> nn.Conv2d:
    """A 3x3 convolution without bias whose first `inputs` filters start as the identity."""
    conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    with torch.no_grad():
        nn.init.dirac_(conv.weight[:inputs])
    return conv


def shift_norm(channels: int) -> nn.BatchNorm2d:
    """Batch norm with a trained bias and a fixed scale of 1."""
    norm = nn.BatchNorm2d(channels, eps=1e-12)
    norm.weight.requires_grad_(False)
    return norm


class ConvGroup(nn.Module):
    """Three 3x3 convolutions: the first halves the image, the third has a shortcut around it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.down, self.middle, self.last = (
            identity_convolution(channels, outputs) for channels in (inputs, outputs, outputs)
        )
        self.norms = nn.ModuleList(shift_norm(outputs) for _ in range(3))

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """GELU after every norm; the shortcut joins before the last one."""
        x = gelu(self.norms[0](max_pool2d(self.down(x), 2)))
        y = gelu(self.norms[1](self.middle(x)))
        return gelu(self.norms[2](self.last(y)) + x)


class FastConvNet(ImageNetwork):
    """Whitening filters, three groups of three convolutions, max-pooling and a scaled linear head.

    The 2x2 whitening filters are computed from the training images (`initialize_from`) and stay fixed. On
    CIFAR-10 the network has about 10 million parameters.

    Args:
        in_shape: (channels, height, width), at least 17 x 17 pixels.
        n_classes: number of classes.
        widths: channels of the three groups.
        output_scale: factor on the features, and so on the logits.

    Examples:
        >>> import torch
        >>> with torch.device("meta"):  # shapes only
        ...     net = FastConvNet((3, 32, 32), 10)
        >>> sum(p.numel() for p in net.parameters())
        9918776
    """

    name, title = "fast_convnet", "fast convnet"
    min_pixels = 17

    def __init__(
        self,
        in_shape: tuple[int, ...],
        n_classes: int,
        *,
        widths: tuple[int, int, int] = (128, 384, 512),
        output_scale: float = 1 / 9,
    ) -> None:
        super().__init__(in_shape)
        channels = in_shape[0]
        self.whitening = nn.Conv2d(channels, 8 * channels, 2)
        self.whitening.weight.requires_grad_(False)
        with torch.no_grad():
            nn.init.zeros_(self.whitening.bias)  # type: ignore[arg-type]
        before = (8 * channels, *widths)
        self.groups = nn.Sequential(*(ConvGroup(i, o) for i, o in zip(before, widths, strict=False)))
        self.head = nn.Linear(widths[-1], n_classes, bias=False)
        self.output_scale = output_scale

    @torch.no_grad()
    def initialize_from(self, x: Float[Tensor, "n c h w"]) -> None:
        """Set the filters to scaled eigenvectors of the images' 2x2 patches, and their negatives."""
        patches = x[:WHITENING_ROWS].double().unfold(2, 2, 1).unfold(3, 2, 1)
        patches = patches.permute(0, 2, 3, 1, 4, 5).reshape(-1, 4 * x.shape[1])
        values, vectors = torch.linalg.eigh(patches.mT @ patches / len(patches))
        filters = (vectors.mT / (values + WHITENING_EPSILON).sqrt()[:, None]).flip(0)
        filters = filters.view(-1, x.shape[1], 2, 2)
        self.whitening.weight.copy_(torch.cat([filters, -filters]))

    def pool(self, maps: Float[Tensor, "n d i j"]) -> Float[Tensor, "n d"]:
        """Scaled maxima over positions."""
        # Not `amax`: its gradient looks for values that equal the maximum, and in bfloat16 a compiled step
        # finds too few, because it does not round what it recomputes.
        return max_pool2d(maps, maps.shape[-2:]).flatten(-3) * self.output_scale

    def feature_maps(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """The last group's maps."""
        z: Tensor = self.groups(gelu(self.whitening(x)))
        return z

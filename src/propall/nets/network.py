"""Base classes of networks, and layers that run faster on a GPU."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad

from propall.kernels.convolution import convolution_3x3, is_faster
from propall.numerics import full_precision

#: Alignment in bytes at which a GPU's matrix units are fast.
ALIGNMENT = 16


class AlignedLinear(nn.Linear):
    """A linear layer that is computed transposed and padded on a GPU, with the same result up to rounding.

    Transposed outputs are contiguous along the batch, so batch norm reduces contiguous values in the pass
    that also applies it, and the gradient of the weights has the memory layout of the weights. Inputs are
    padded with zeros to `ALIGNMENT`: without it, 301 to 303 inputs take more than twice as long.
    """

    def forward(self, x: Float[Tensor, "n i"]) -> Float[Tensor, "n o"]:
        """Apply the layer."""
        return self.transposed_forward(x) if x.is_cuda else super().forward(x)

    def transposed_forward(self, x: Float[Tensor, "n i"]) -> Float[Tensor, "n o"]:
        """Compute (W x')' as on a GPU."""
        half = torch.is_autocast_enabled(x.device.type)
        missing = -self.in_features % (ALIGNMENT // (2 if half else x.element_size()))
        weight, columns = self.weight, x.mT
        if missing:
            weight, columns = pad(weight, (0, missing)), pad(columns, (0, 0, 0, missing))
        outputs = weight @ columns
        return (outputs if self.bias is None else outputs + self.bias[:, None]).mT


class AlignedBatchNorm(nn.BatchNorm1d):
    """Batch norm for the transposed outputs of `AlignedLinear`, with the same result up to rounding.

    The operations are written out so a compiler fuses each pass into one kernel and keeps the memory layout.
    """

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Normalize by the batch (training) or by the running statistics (evaluation)."""
        return self.transposed_forward(x) if x.is_cuda else super().forward(x)

    def transposed_forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Normalize along the contiguous batch dimension as on a GPU."""
        columns, n = full_precision(x.mT), x.shape[0]
        if self.training:
            mean = columns.mean(-1, keepdim=True)
            centered = columns - mean
            variance = centered.square().mean(-1, keepdim=True)
            self._update_statistics(mean.squeeze(-1), variance.squeeze(-1) * (n / (n - 1)))
            normalized = centered * (variance + self.eps).rsqrt()
            return (normalized * self.weight[:, None] + self.bias[:, None]).mT.to(x.dtype)
        assert self.running_mean is not None
        assert self.running_var is not None
        factor = self.weight * (self.running_var + self.eps).rsqrt()
        offset = self.bias - self.running_mean * factor
        return torch.addcmul(offset[:, None], columns, factor[:, None]).mT.to(x.dtype)

    @torch.no_grad()
    def _update_statistics(self, mean: Float[Tensor, "d"], variance: Float[Tensor, "d"]) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        assert self.momentum is not None
        for running, new in ((self.running_mean, mean), (self.running_var, variance)):
            running.mul_(1 - self.momentum).add_(new.detach(), alpha=self.momentum)


class SmallConvolution(nn.Conv2d):
    """A 3x3 convolution of stride 1 with a faster GPU kernel for few channels in half precision.

    The result is the same up to rounding; in all other cases this is PyTorch's convolution.
    """

    def forward(self, x: Float[Tensor, "n i h w"]) -> Float[Tensor, "n o h w"]:
        """Convolve the images, padded with zeros."""
        dtype = self._gpu_dtype(x)
        if dtype is not None and is_faster(x, self.weight, dtype):
            return convolution_3x3(x, self.weight, dtype)
        return super().forward(x)

    def _gpu_dtype(self, x: Tensor) -> torch.dtype | None:
        """Return the common dtype of x and the weights on a GPU, after autocast; None if they differ."""
        if not x.is_cuda:
            return None
        if torch.is_autocast_enabled("cuda") and torch.float64 not in (x.dtype, self.weight.dtype):
            return torch.get_autocast_dtype("cuda")
        return x.dtype if x.dtype == self.weight.dtype else None


class Network(nn.Module):
    """A classifier whose scores are `head(features(x))`.

    Weights are initialized from PyTorch's global generator, which the caller seeds. Networks have only
    parameters and batch-norm buffers and draw no random numbers in `forward`, so stacked copies run under
    `torch.func.functional_call` and `vmap`.

    Attributes:
        head: the last, linear layer; `head.in_features` is the number of features.

    Examples:
        >>> import torch
        >>> from propall.nets import NETS
        >>> NETS["mlp"]((20,), 5)(torch.zeros(2, 20)).shape
        torch.Size([2, 5])
    """

    name: ClassVar[str]
    title: ClassVar[str]
    head: nn.Linear

    def features(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """Compute the input of the head, one vector per instance."""
        raise NotImplementedError

    def embedding(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """Compute vectors for comparing instances (VALEN's neighbor graph); the features by default."""
        return self.features(x)

    def dense_layers(self) -> list[nn.Module] | None:
        """Return the layers in order if the network is linear layers with ReLU in between; None otherwise."""
        return None

    def forward(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
        """Compute the scores (logits) of every class."""
        logits: Tensor = self.head(self.features(x))
        return logits


class ImageNetwork(Network):
    """A network for images (n, c, h, w).

    Attributes:
        min_pixels: minimum height and width.
    """

    min_pixels: ClassVar[int] = 1

    def __init__(self, in_shape: tuple[int, ...]) -> None:
        super().__init__()
        if len(in_shape) != 3:
            raise ValueError(
                f"in_shape: {tuple(in_shape)} is not an image; {self.name} expects (channels, height, "
                "width). Reshape x to (n, channels, height, width) or use a network for vectors such as mlp."
            )
        if min(in_shape[1:]) < self.min_pixels:
            raise ValueError(
                f"in_shape: {tuple(in_shape)} is too small; {self.name} needs at least {self.min_pixels} x "
                f"{self.min_pixels} pixels. Enlarge the images or use small_cnn."
            )

    def features(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """Pool the feature maps over positions."""
        if x.ndim != 4:
            raise ValueError(
                f"x: shape {tuple(x.shape)} is not a batch of images; {self.name} expects (n, channels, "
                "height, width). Reshape x or use a network for vectors such as mlp."
            )
        return self.pool(self.feature_maps(x))

    def pool(self, maps: Float[Tensor, "n d i j"]) -> Float[Tensor, "n d"]:
        """Reduce feature maps to one vector per image; their average over positions by default."""
        return maps.mean((-2, -1))

    def feature_maps(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """Compute the last feature maps."""
        raise NotImplementedError


def convolution(inputs: int, outputs: int, size: int, *, stride: int = 1, init: str = "fan_out") -> nn.Conv2d:
    """Build a same-padded convolution without bias, with He normal initialization.

    The variance is 2 / (size^2 outputs) with `init="fan_out"`, 2 / (size^2 inputs) with "fan_in".
    """
    kind = SmallConvolution if (size, stride) == (3, 1) else nn.Conv2d
    conv = kind(inputs, outputs, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode=init, nonlinearity="relu")  # type: ignore[arg-type]
    return conv

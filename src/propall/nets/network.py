"""What every network is: features, then a linear head."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad

from propall.kernels.convolution import convolution_3x3, pays
from propall.numerics import full_precision

#: Bytes that a GPU's matrix units load at once.
ALIGNMENT = 16


class AlignedLinear(nn.Linear):
    """A linear map that a GPU computes with its instances side by side in memory, at sizes it likes.

    The same numbers, up to the order of summation. Instances side by side: batch norm then adds up what lies
    together, in the pass that also applies it, and the weights' gradient comes out in the weights' own order.
    Inputs are padded with zeros to whole loads: 301 to 303 of them cost more than twice as much unpadded.
    """

    def forward(self, x: Float[Tensor, "n i"]) -> Float[Tensor, "n o"]:
        """Weight times x, plus bias."""
        return self.by_columns(x) if x.is_cuda else super().forward(x)

    def by_columns(self, x: Float[Tensor, "n i"]) -> Float[Tensor, "n o"]:
        """The way of a GPU: the transpose of weight times transposed x."""
        half = torch.is_autocast_enabled(x.device.type)
        missing = -self.in_features % (ALIGNMENT // (2 if half else x.element_size()))
        weight, columns = self.weight, x.mT
        if missing:
            weight, columns = pad(weight, (0, missing)), pad(columns, (0, 0, 0, missing))
        outputs = weight @ columns
        return (outputs if self.bias is None else outputs + self.bias[:, None]).mT


class AlignedBatchNorm(nn.BatchNorm1d):
    """Batch norm that follows `AlignedLinear` on a GPU: it works along instances that lie side by side.

    The same numbers, up to the order of summation, and the same running statistics. The operations are spelt
    out, so that a compiler makes one kernel of each pass and leaves the order in memory as it is.
    """

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Normed over the batch in training, by the running statistics in evaluation."""
        return self.by_columns(x) if x.is_cuda else super().forward(x)

    def by_columns(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """The way of a GPU."""
        columns, n = full_precision(x.mT), x.shape[0]
        if self.training:
            mean = columns.mean(-1, keepdim=True)
            centred = columns - mean
            variance = centred.square().mean(-1, keepdim=True)
            self._follow(mean.squeeze(-1), variance.squeeze(-1) * (n / (n - 1)))
            normed = centred * (variance + self.eps).rsqrt()
            return (normed * self.weight[:, None] + self.bias[:, None]).mT.to(x.dtype)
        assert self.running_mean is not None
        assert self.running_var is not None
        factor = self.weight * (self.running_var + self.eps).rsqrt()
        offset = self.bias - self.running_mean * factor
        return torch.addcmul(offset[:, None], columns, factor[:, None]).mT.to(x.dtype)

    @torch.no_grad()
    def _follow(self, mean: Float[Tensor, "d"], variance: Float[Tensor, "d"]) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        assert self.momentum is not None
        for running, new in ((self.running_mean, mean), (self.running_var, variance)):
            running.mul_(1 - self.momentum).add_(new.detach(), alpha=self.momentum)


class SmallConvolution(nn.Conv2d):
    """A 3x3 convolution of stride 1 that a GPU computes in half precision by kernels for few channels.

    The same numbers, up to the order of summation, and in all other places PyTorch's own convolution.
    """

    def forward(self, x: Float[Tensor, "n i h w"]) -> Float[Tensor, "n o h w"]:
        """The images filtered, with a border of zeros."""
        dtype = self._type_on_gpu(x)
        if dtype is not None and pays(x, self.weight, dtype):
            return convolution_3x3(x, self.weight, dtype)
        return super().forward(x)

    def _type_on_gpu(self, x: Tensor) -> torch.dtype | None:
        """What a GPU convolves x and the weights in, if both come in one type or autocast gives them one."""
        if not x.is_cuda:
            return None
        if torch.is_autocast_enabled("cuda") and torch.float64 not in (x.dtype, self.weight.dtype):
            return torch.get_autocast_dtype("cuda")
        return x.dtype if x.dtype == self.weight.dtype else None


class Network(nn.Module):
    """A classifier whose scores are `head(features(x))`.

    Weights are drawn from torch's global generator at construction: whoever builds a network seeds it.
    Networks hold parameters and batch-norm buffers only and draw nothing in `forward`, so stacked copies run
    under `torch.func.functional_call` and `vmap`.

    Attributes:
        head: the last, linear layer; `head.in_features` is the width of the features.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    head: nn.Linear

    def features(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """What the head reads: one vector per instance."""
        raise NotImplementedError

    def embedding(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """Where instances are compared with each other (VALEN's neighbour graph); the features by default."""
        return self.features(x)

    def dense(self) -> list[nn.Module] | None:
        """Its layers, from the input on, if there is nothing but a ReLU after each but the last."""
        return None

    def forward(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
        """Scores (logits) of every class."""
        logits: Tensor = self.head(self.features(x))
        return logits


class ImageNetwork(Network):
    """A network on images (n, c, h, w). Vectors are refused: nobody can guess their height and width.

    Attributes:
        min_pixels: the smallest height and width that survive the network's halvings.
    """

    min_pixels: ClassVar[int] = 1

    def __init__(self, in_shape: tuple[int, ...]) -> None:
        super().__init__()
        if len(in_shape) != 3:
            raise ValueError(
                f"in_shape: {tuple(in_shape)} is not an image; {self.name} expects (channels, height, "
                "width). Reshape x to (n, channels, height, width) or choose a vector network such as mlp."
            )
        if min(in_shape[1:]) < self.min_pixels:
            raise ValueError(
                f"in_shape: {tuple(in_shape)} is too small; {self.name} needs at least {self.min_pixels} x "
                f"{self.min_pixels} pixels. Enlarge the images or choose small_cnn."
            )

    def features(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """The pooled feature maps."""
        if x.ndim != 4:
            raise ValueError(
                f"x: shape {tuple(x.shape)} is not a batch of images; {self.name} expects (n, channels, "
                "height, width). Reshape x or choose a vector network such as mlp."
            )
        return self.maps(x).mean((-2, -1))

    def maps(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d i j"]:
        """The last feature maps, before they are averaged over positions."""
        raise NotImplementedError


def convolution(inputs: int, outputs: int, size: int, *, stride: int = 1, init: str = "fan_out") -> nn.Conv2d:
    """A convolution without bias that keeps the image size at stride 1, with He's normal initialisation.

    Args:
        inputs: channels in.
        outputs: channels out.
        size: height and width of the kernel.
        stride: step of the kernel.
        init: "fan_out" for variance 2 / (size^2 outputs), "fan_in" for 2 / (size^2 inputs).
    """
    kind = SmallConvolution if (size, stride) == (3, 1) else nn.Conv2d
    conv = kind(inputs, outputs, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode=init, nonlinearity="relu")  # type: ignore[arg-type]
    return conv

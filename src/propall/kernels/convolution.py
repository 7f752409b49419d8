"""Convolutions of few channels as custom operators: 3x3, stride 1, half precision, channels last, on a GPU.

A convolution of 16 channels is far below the tiles that cuDNN is made for, and takes several times as long
there as its memory traffic; one of 64 still takes longer than it has to. Three operators do better: the
convolution and its gradients in the input and in the weights. Each is linear in both of its arguments, and
its derivatives are the other two, so together they have derivatives of every order. `torch.compile`,
`torch.func`, `vmap` and CUDA graphs pass through them.

What `PAYS` does not name, and whatever no kernel can run, is left to PyTorch's own convolution.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import _SingleLevelFunction

from propall.kernels.availability import HAS_TRITON
from propall.kernels.dispatch import below_autograd, differentiable

__all__ = ["convolution_3x3", "pays"]

FORWARD, INPUT, WEIGHT = "forward", "input's gradient", "weights' gradient"
#: The passes in which these kernels beat cuDNN, by channels in and out. Microseconds on an H200, batch 256,
#: images of 32, 16 and 8 pixels a side: forward 14, 8 and 7 (cuDNN 35, 11 and 8), input's gradient 14, 8, 7
#: (41, 11, 10), weights' gradient 16, 13, 10 (53, 28, 16).
PAYS = {
    (16, 16): (FORWARD, INPUT, WEIGHT),
    (32, 32): (FORWARD, INPUT, WEIGHT),
    (64, 64): (FORWARD, INPUT, WEIGHT),
}

_HALF = (torch.bfloat16, torch.float16)
#: The kernels count numbers in 32 bits.
_MOST_NUMBERS = 1 << 31
#: The first GPUs whose tensor cores Triton and bfloat16 can use.
_AMPERE = (8, 0)

_library = torch.library.Library("propall", "FRAGMENT")
_library.define("convolution(Tensor x, Tensor weight) -> Tensor")
_library.define("convolution_input_gradient(Tensor incoming, Tensor weight) -> Tensor")
_library.define("convolution_weight_gradient(Tensor x, Tensor incoming) -> Tensor")
_ops = torch.ops.propall
#: A derivative: of an operator's two arguments and what comes back for its result.
_Slope: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]


def pays(x: Tensor, weight: Tensor, dtype: torch.dtype) -> bool:
    """Whether `convolution_3x3` is worth calling on x and weight, once both are of this type."""
    images = x.is_cuda and weight.is_cuda and x.dim() == 4
    return HAS_TRITON and images and dtype in _HALF and (weight.shape[1], weight.shape[0]) in PAYS


def convolution_3x3(
    x: Float[Tensor, "n i h w"], weight: Float[Tensor, "o i 3 3"], dtype: torch.dtype
) -> Float[Tensor, "n o h w"]:
    """`torch.nn.functional.conv2d(x, weight, padding=1)` in a type, added up in float32; channels last.

    Args:
        x: images; quickest with channels last.
        weight: the kernel.
        dtype: what both are rounded to first, and the result is in.
    """
    # Type and order in memory change in one pass. Its spelling with permutations is one that `vmap` takes.
    rows = weight.permute(0, 2, 3, 1).to(dtype, memory_format=torch.contiguous_format)
    result: Tensor = _ops.convolution(x.to(dtype), rows.permute(0, 3, 1, 2))
    return result


def runs_kernel(x: Tensor, channels: tuple[int, int], which: str) -> bool:
    """Whether a pass from so many channels to so many is computed by its kernel."""
    return (
        HAS_TRITON
        and x.is_cuda
        and x.dtype in _HALF
        and which in PAYS.get(channels, ())
        and 0 < x.numel() // x.shape[1] * max(channels) < _MOST_NUMBERS
        and torch.cuda.get_device_capability(x.device) >= _AMPERE
    )


def _convolution(x: Tensor, weight: Tensor) -> Tensor:
    out = _empty_output(x, weight)
    if not runs_kernel(x, (weight.shape[1], weight.shape[0]), FORWARD):
        return _laid_out(torch.conv2d(x, weight, padding=1), out)
    from propall.kernels.convolution_code import convolve

    convolve(_channels_last(x), weight, out)
    return out


def _empty_output(x: Tensor, weight: Tensor) -> Tensor:
    n, _, h, w = x.shape
    return x.new_empty((n, h, w, weight.shape[0])).permute(0, 3, 1, 2)


def _input_gradient(incoming: Tensor, weight: Tensor) -> Tensor:
    gradient = _empty_input(incoming, weight)
    if not runs_kernel(incoming, (weight.shape[1], weight.shape[0]), INPUT):
        return _laid_out(_backward(incoming, gradient, weight, INPUT), gradient)
    from propall.kernels.convolution_code import convolve

    convolve(_channels_last(incoming), weight, gradient, turned=True)
    return gradient


def _empty_input(incoming: Tensor, weight: Tensor) -> Tensor:
    n, _, h, w = incoming.shape
    return incoming.new_empty((n, h, w, weight.shape[1])).permute(0, 3, 1, 2)


def _weight_gradient(x: Tensor, incoming: Tensor) -> Tensor:
    gradient = _empty_weight(x, incoming)
    if not runs_kernel(x, (x.shape[1], incoming.shape[1]), WEIGHT):
        return _laid_out(_backward(incoming, x, gradient, WEIGHT), gradient)
    from propall.kernels.convolution_code import weight_gradient

    weight_gradient(_channels_last(x), _channels_last(incoming), gradient)
    return gradient


def _empty_weight(x: Tensor, incoming: Tensor) -> Tensor:
    # Contiguous, as parameters usually are: optimisers walk through both side by side.
    return x.new_empty((incoming.shape[1], x.shape[1], 3, 3))


def _laid_out(found: Tensor, like: Tensor) -> Tensor:
    """What was found, in the other's order in memory."""
    return found if found.stride() == like.stride() else like.copy_(found)


def _channels_last(images: Tensor) -> Tensor:
    return images.contiguous(memory_format=torch.channels_last)


def _backward(incoming: Tensor, x: Tensor, weight: Tensor, which: str) -> Tensor:
    """PyTorch's own gradient in x or in the weights, of which the one asked for gives only its shape."""
    one, none = (1, 1), (0, 0)
    found: tuple[Tensor | None, ...] = torch.ops.aten.convolution_backward(
        incoming, x, weight, None, one, one, one, False, none, 1, (which == INPUT, which == WEIGHT, False)
    )
    gradient = found[0 if which == INPUT else 1]
    assert gradient is not None
    return gradient


def _of_each(operator: Any) -> Callable[..., tuple[Tensor, int]]:
    """Under `vmap`, one after the other: quicker than one convolution in groups."""

    def of_each(
        info: Any, in_dims: Sequence[int | None], first: Tensor, second: Tensor
    ) -> tuple[Tensor, int]:
        def of(tensor: Tensor, dim: int | None, i: int) -> Tensor:
            return tensor if dim is None else tensor.select(dim, i)

        pairs = ((of(first, in_dims[0], i), of(second, in_dims[1], i)) for i in range(info.batch_size))
        return torch.stack([operator(*pair) for pair in pairs]), 0

    return of_each


def _linear_in_both(operator: Any, of_first: _Slope, of_second: _Slope) -> Any:
    """An operator's autograd function, by its derivatives: of both arguments and what comes back."""

    class Function(_SingleLevelFunction):
        @staticmethod
        def forward(ctx: Any, keyset: Any, first: Tensor, second: Tensor) -> Any:
            ctx.save_for_backward(first, second)
            with torch.enable_grad():
                return below_autograd(operator, keyset, first, second)

        @staticmethod
        def backward(ctx: Any, back: Tensor) -> Any:
            first, second = ctx.saved_tensors
            _, first_asked, second_asked = ctx.needs_input_grad
            return (
                None,
                of_first(first, second, back) if first_asked else None,
                of_second(first, second, back) if second_asked else None,
            )

    return Function


for _name, _compute, _empty, _of_first, _of_second in (
    (
        "convolution",
        _convolution,
        _empty_output,
        lambda x, weight, back: _ops.convolution_input_gradient(back, weight),
        lambda x, weight, back: _ops.convolution_weight_gradient(x, back),
    ),
    (
        "convolution_input_gradient",
        _input_gradient,
        _empty_input,
        lambda incoming, weight, back: _ops.convolution(back, weight),
        lambda incoming, weight, back: _ops.convolution_weight_gradient(back, incoming),
    ),
    (
        "convolution_weight_gradient",
        _weight_gradient,
        _empty_weight,
        lambda x, incoming, back: _ops.convolution_input_gradient(incoming, back),
        lambda x, incoming, back: _ops.convolution(x, back),
    ),
):
    _operator = getattr(_ops, _name).default
    _function = _linear_in_both(_operator, _of_first, _of_second)
    _library.impl(_name, _compute, "CompositeExplicitAutograd")
    _library.impl(_name, differentiable(_function, _operator), "Autograd", with_keyset=True)
    torch.library.register_fake(f"propall::{_name}", _empty, lib=_library)
    torch.library.register_vmap(f"propall::{_name}", _of_each(_operator), lib=_library)

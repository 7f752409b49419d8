"""Convolutions with few channels as custom operators: 3x3, stride 1, half precision, channels last, on a GPU.

With 16 channels, cuDNN's tiles are too large and a convolution takes several times as long as its memory
traffic; with 64 it is still slower than necessary. Three operators do better: the convolution and its
gradients with respect to input and weights. Each is linear in both arguments, and its derivatives are the
other two, so together they have derivatives of every order. They support `torch.compile`, `torch.func`,
`vmap` and CUDA graphs.

Everything else (see `FASTER` and `runs_kernel`) is left to PyTorch's convolution.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import _SingleLevelFunction

from propall.kernels.dispatch import HAS_TRITON, below_autograd, differentiable

__all__ = ["convolution_3x3", "is_faster"]

FORWARD, INPUT, WEIGHT = "forward", "input gradient", "weight gradient"
#: Passes in which the kernels beat cuDNN, by input and output channels. Microseconds on an H200, batch 256,
#: 32, 16 and 8 pixels per side: forward 14, 8, 7 (cuDNN 35, 11, 8), input gradient 14, 8, 7 (41, 11, 10),
#: weight gradient 16, 13, 10 (53, 28, 16).
FASTER = dict.fromkeys([(16, 16), (32, 32), (64, 64)], (FORWARD, INPUT, WEIGHT))

_HALF = (torch.bfloat16, torch.float16)
#: The kernels use 32-bit offsets.
_MAX_ELEMENTS = 1 << 31
#: The first GPUs with bfloat16 tensor cores.
_AMPERE = (8, 0)

_library = torch.library.Library("propall", "FRAGMENT")
_library.define("convolution(Tensor x, Tensor weight) -> Tensor")
_library.define("convolution_input_gradient(Tensor incoming, Tensor weight) -> Tensor")
_library.define("convolution_weight_gradient(Tensor x, Tensor incoming) -> Tensor")
_ops = torch.ops.propall
#: A derivative, as a function of an operator's two arguments and the gradient of its result.
_Derivative: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]


def is_faster(x: Tensor, weight: Tensor, dtype: torch.dtype) -> bool:
    """Whether `convolution_3x3` is faster than PyTorch for x and weight in this dtype."""
    images = x.is_cuda and weight.is_cuda and x.dim() == 4
    return HAS_TRITON and images and dtype in _HALF and (weight.shape[1], weight.shape[0]) in FASTER


def convolution_3x3(
    x: Float[Tensor, "n i h w"], weight: Float[Tensor, "o i 3 3"], dtype: torch.dtype
) -> Float[Tensor, "n o h w"]:
    """`torch.nn.functional.conv2d(x, weight, padding=1)`, accumulated in float32, with channels last.

    Args:
        x: images; fastest with channels last.
        weight: the kernel.
        dtype: type to which both are cast first, and of the result.
    """
    # Casts and reorders in one pass; `vmap` supports the permutations, but not `memory_format` alone.
    rows = weight.permute(0, 2, 3, 1).to(dtype, memory_format=torch.contiguous_format)
    result: Tensor = _ops.convolution(x.to(dtype), rows.permute(0, 3, 1, 2))
    return result


def runs_kernel(x: Tensor, channels: tuple[int, int], which: str) -> bool:
    """Whether a pass with these numbers of input and output channels is computed by its kernel."""
    return (
        HAS_TRITON
        and x.is_cuda
        and x.dtype in _HALF
        and which in FASTER.get(channels, ())
        and 0 < x.numel() // x.shape[1] * max(channels) < _MAX_ELEMENTS
        and torch.cuda.get_device_capability(x.device) >= _AMPERE
    )


def _convolution(x: Tensor, weight: Tensor) -> Tensor:
    return _convolve(x, weight, _empty_output(x, weight), FORWARD)


def _input_gradient(incoming: Tensor, weight: Tensor) -> Tensor:
    return _convolve(incoming, weight, _empty_input(incoming, weight), INPUT)


def _convolve(x: Tensor, weight: Tensor, out: Tensor, which: str) -> Tensor:
    """Return the convolution of x, or the input gradient for the incoming gradient x, in `out`."""
    if not runs_kernel(x, (weight.shape[1], weight.shape[0]), which):
        result = torch.conv2d(x, weight, padding=1) if which == FORWARD else _backward(x, out, weight, INPUT)
        return _with_layout(result, out)
    from propall.kernels.convolution_code import convolve

    convolve(_channels_last(x), weight, out, rotated=which == INPUT)
    return out


def _empty_output(x: Tensor, weight: Tensor) -> Tensor:
    return _empty_images(x, weight.shape[0])


def _empty_input(incoming: Tensor, weight: Tensor) -> Tensor:
    return _empty_images(incoming, weight.shape[1])


def _empty_images(like: Tensor, channels: int | torch.SymInt) -> Tensor:
    n, _, h, w = like.shape
    return like.new_empty((n, h, w, channels)).permute(0, 3, 1, 2)


def _weight_gradient(x: Tensor, incoming: Tensor) -> Tensor:
    gradient = _empty_weight(x, incoming)
    if not runs_kernel(x, (x.shape[1], incoming.shape[1]), WEIGHT):
        return _with_layout(_backward(incoming, x, gradient, WEIGHT), gradient)
    from propall.kernels.convolution_code import weight_gradient

    weight_gradient(_channels_last(x), _channels_last(incoming), gradient)
    return gradient


def _empty_weight(x: Tensor, incoming: Tensor) -> Tensor:
    # Contiguous, like most parameters: optimizers read both together.
    return x.new_empty((incoming.shape[1], x.shape[1], 3, 3))


def _with_layout(result: Tensor, out: Tensor) -> Tensor:
    """Return the result with the strides of `out`."""
    return result if result.stride() == out.stride() else out.copy_(result)


def _channels_last(images: Tensor) -> Tensor:
    return images.contiguous(memory_format=torch.channels_last)


def _backward(incoming: Tensor, x: Tensor, weight: Tensor, which: str) -> Tensor:
    """PyTorch's gradient with respect to x or weight; of that tensor only the shape matters."""
    one, none = (1, 1), (0, 0)
    gradients: tuple[Tensor | None, ...] = torch.ops.aten.convolution_backward(
        incoming, x, weight, None, one, one, one, False, none, 1, (which == INPUT, which == WEIGHT, False)
    )
    gradient = gradients[0 if which == INPUT else 1]
    assert gradient is not None
    return gradient


def _map_in_turn(operator: Any) -> Callable[..., tuple[Tensor, int]]:
    """A `vmap` rule that computes one after the other: faster than a grouped convolution."""

    def rule(info: Any, in_dims: Sequence[int | None], first: Tensor, second: Tensor) -> tuple[Tensor, int]:
        def item(tensor: Tensor, dim: int | None, i: int) -> Tensor:
            return tensor if dim is None else tensor.select(dim, i)

        pairs = ((item(first, in_dims[0], i), item(second, in_dims[1], i)) for i in range(info.batch_size))
        return torch.stack([operator(*pair) for pair in pairs]), 0

    return rule


def _bilinear(operator: Any, of_first: _Derivative, of_second: _Derivative) -> Any:
    """Make the autograd function of a bilinear operator from its two derivatives."""

    class Function(_SingleLevelFunction):
        @staticmethod
        def forward(ctx: Any, keyset: Any, first: Tensor, second: Tensor) -> Any:
            ctx.save_for_backward(first, second)
            with torch.enable_grad():
                return below_autograd(operator, keyset, first, second)

        @staticmethod
        def backward(ctx: Any, incoming: Tensor) -> Any:
            first, second = ctx.saved_tensors
            _, needs_first, needs_second = ctx.needs_input_grad
            return (
                None,
                of_first(first, second, incoming) if needs_first else None,
                of_second(first, second, incoming) if needs_second else None,
            )

    return Function


for _name, _compute, _empty, _of_first, _of_second in (
    (
        "convolution",
        _convolution,
        _empty_output,
        lambda x, weight, grad: _ops.convolution_input_gradient(grad, weight),
        lambda x, weight, grad: _ops.convolution_weight_gradient(x, grad),
    ),
    (
        "convolution_input_gradient",
        _input_gradient,
        _empty_input,
        lambda incoming, weight, grad: _ops.convolution(grad, weight),
        lambda incoming, weight, grad: _ops.convolution_weight_gradient(grad, incoming),
    ),
    (
        "convolution_weight_gradient",
        _weight_gradient,
        _empty_weight,
        lambda x, incoming, grad: _ops.convolution_input_gradient(incoming, grad),
        lambda x, incoming, grad: _ops.convolution(x, grad),
    ),
):
    _operator = getattr(_ops, _name).default
    _function = _bilinear(_operator, _of_first, _of_second)
    _library.impl(_name, _compute, "CompositeExplicitAutograd")
    _library.impl(_name, differentiable(_function, _operator), "Autograd", with_keyset=True)
    torch.library.register_fake(f"propall::{_name}", _empty, lib=_library)
    torch.library.register_vmap(f"propall::{_name}", _map_in_turn(_operator), lib=_library)

# mypy: ignore-errors
"""Convolutions with few channels as Triton kernels: 3x3, stride 1, zero padding of one pixel.

Such a convolution does little arithmetic; memory bandwidth limits it. Pixels are numbered through the whole
batch, and the channels of a pixel are contiguous. The three taps of one kernel row are therefore 3 C
contiguous numbers, starting at the left neighbor's first channel. A *wide* tile loads them at once, padded
with zeros to the next power of two: three matrix products instead of nine, which pays for the weight gradient
with few channels. Other tiles load one tap at a time.

The input gradient is the same convolution with the kernel rotated by 180 degrees and its channels exchanged.
The weight gradient is a sum over all pixels: every program sums a strip of them, and a second kernel adds the
strips in a fixed order, so that results are reproducible.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _window(
    x, pixel, total, down, right,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, TAPS: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Load TAPS consecutive pixels for each pixel, starting `down` and `right` of it: (BLOCK, K).

    Zero outside the image and beyond TAPS C of the K columns.
    """
    k = tl.arange(0, K)
    row = (pixel // W) % H + down
    column = (pixel % W + right)[:, None] + (k // C)[None, :]
    within = (pixel < total) & (row >= 0) & (row < H)
    valid = within[:, None] & (column >= 0) & (column < W) & ((k // C) < TAPS)[None, :]
    first = (pixel + down * W + right) * C
    return tl.load(x + first[:, None] + k[None, :], mask=valid, other=0.0)


@triton.jit
def _weights(
    weight, down, right, in_stride, out_stride, down_stride, right_stride,
    C: tl.constexpr, C_OUT: tl.constexpr, ROTATED: tl.constexpr,
):  # fmt: skip
    """Load the weights of one tap: (C, C_OUT). ROTATED: taps are counted from the last."""
    if ROTATED:
        right, down = 2 - right, 2 - down
    place = tl.arange(0, C) * in_stride + right * right_stride + down * down_stride
    return tl.load(weight + place[:, None] + tl.arange(0, C_OUT)[None, :] * out_stride)


@triton.jit(do_not_specialize=["total"])
def convolution_kernel(
    x, weight, out, total, in_stride, out_stride, down_stride, right_stride,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, C_OUT: tl.constexpr, ROTATED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Write BLOCK pixels of the output, with all their channels."""
    channel = tl.arange(0, C_OUT)
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK, C_OUT), dtype=tl.float32)
    for tap in tl.static_range(9):
        taps = _weights(
            weight, tap // 3, tap % 3, in_stride, out_stride, down_stride, right_stride, C, C_OUT, ROTATED
        )
        sums = tl.dot(_window(x, pixel, total, tap // 3 - 1, tap % 3 - 1, H, W, C, 1, C), taps, sums)
    place = pixel[:, None] * C_OUT + channel[None, :]
    valid = (pixel < total)[:, None] & (channel >= 0)[None, :]
    tl.store(out + place, sums.to(out.dtype.element_ty), mask=valid)


@triton.jit(do_not_specialize=["total", "tiles"])
def weight_gradient_kernel(
    x, incoming, partial, total, tiles,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, C_OUT: tl.constexpr,
    WIDE: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the gradient from `tiles` times BLOCK pixels: of all kernel rows if WIDE, else of one.

    Either way there are three sums: one per kernel row, or one per tap of the row.
    """
    strip, kernel_row = tl.program_id(0), tl.program_id(1)
    k, channel = tl.arange(0, K), tl.arange(0, C_OUT)
    a = tl.zeros((K, C_OUT), dtype=tl.float32)
    b = tl.zeros((K, C_OUT), dtype=tl.float32)
    c = tl.zeros((K, C_OUT), dtype=tl.float32)
    for tile in range(0, tiles):
        pixel = (strip * tiles + tile) * BLOCK + tl.arange(0, BLOCK)
        place = pixel[:, None] * C_OUT + channel[None, :]
        valid = (pixel < total)[:, None] & (channel >= 0)[None, :]
        grad = tl.load(incoming + place, mask=valid, other=0.0)
        if WIDE:
            a = tl.dot(tl.trans(_window(x, pixel, total, -1, -1, H, W, C, 3, K)), grad, a)
            b = tl.dot(tl.trans(_window(x, pixel, total, 0, -1, H, W, C, 3, K)), grad, b)
            c = tl.dot(tl.trans(_window(x, pixel, total, 1, -1, H, W, C, 3, K)), grad, c)
        else:
            down = kernel_row - 1
            a = tl.dot(tl.trans(_window(x, pixel, total, down, -1, H, W, C, 1, K)), grad, a)
            b = tl.dot(tl.trans(_window(x, pixel, total, down, 0, H, W, C, 1, K)), grad, b)
            c = tl.dot(tl.trans(_window(x, pixel, total, down, 1, H, W, C, 1, K)), grad, c)
    # Partial sums have the layout (strip, kernel row, kernel column, input channel, output channel).
    taps: tl.constexpr = 3 if WIDE else 1
    place = (strip * 9 + kernel_row * 3) * C * C_OUT + k[:, None] * C_OUT + channel[None, :]
    valid = ((k // C) < taps)[:, None] & (channel >= 0)[None, :]
    tl.store(partial + place, a, mask=valid)
    tl.store(partial + place + taps * C * C_OUT, b, mask=valid)
    tl.store(partial + place + 2 * taps * C * C_OUT, c, mask=valid)


@triton.jit(do_not_specialize=["strips"])
def sum_strips_kernel(
    partial, gradient, strips,
    C: tl.constexpr, C_OUT: tl.constexpr, DEPTH: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Add the partial sums to the contiguous gradient (C_OUT, C, 3, 3)."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    size: tl.constexpr = 9 * C * C_OUT
    sums = tl.zeros((DEPTH, COLUMNS), dtype=tl.float32)
    for start in range(0, strips, DEPTH):
        strip = start + tl.arange(0, DEPTH)
        valid = (strip < strips)[:, None] & (column < size)[None, :]
        sums += tl.load(partial + strip[:, None] * size + column[None, :], mask=valid, other=0.0)
    tap, channel_in, channel_out = column // (C * C_OUT), (column // C_OUT) % C, column % C_OUT
    place = (channel_out * C + channel_in) * 9 + tap
    tl.store(gradient + place, tl.sum(sums, 0).to(gradient.dtype.element_ty), mask=column < size)


class WeightGradientLaunch(NamedTuple):
    """Launch parameters of the weight gradient; see the top of this file."""

    block: int  # pixels per tile
    warps: int
    stages: int  # tiles whose loads overlap
    wide: bool  # whether a tile loads three taps at once
    programs: int  # at most


#: By number of channels, as measured on an H200; the last entry also serves more channels.
WEIGHT_LAUNCHES = {
    16: WeightGradientLaunch(block=64, warps=4, stages=3, wide=True, programs=264),
    32: WeightGradientLaunch(block=64, warps=8, stages=3, wide=True, programs=132),
    64: WeightGradientLaunch(block=64, warps=4, stages=3, wide=False, programs=44),
}
#: Pixels and warps per program of the other passes, which have one tile per program.
CONVOLUTION_LAUNCHES = {16: (256, 8), 32: (256, 8), 64: (128, 8)}
#: Strips, and entries of the gradient, that a program of `sum_strips_kernel` adds at once.
DEPTH, COLUMNS = 64, 16


def _for_channels(launches: dict[int, Any], c_in: int, c_out: int) -> Any:
    return launches[min(max(c_in, c_out), max(launches))]


def convolve(x: Tensor, weight: Tensor, out: Tensor, *, rotated: bool = False) -> None:
    """Write the convolution of x or, if `rotated`, the input gradient for the incoming gradient x.

    x and out have channels last; weight is (c_out, c, 3, 3), or (c, c_out, 3, 3) if `rotated`.
    """
    (n, c, h, w), c_out = x.shape, out.shape[1]
    block, warps = _for_channels(CONVOLUTION_LAUNCHES, c, c_out)
    out_stride, in_stride, down_stride, right_stride = weight.stride()
    if rotated:
        out_stride, in_stride = in_stride, out_stride
    with torch.cuda.device_of(x):
        convolution_kernel[(triton.cdiv(n * h * w, block),)](
            x, weight, out, n * h * w, in_stride, out_stride, down_stride, right_stride,
            H=h, W=w, C=c, C_OUT=c_out, ROTATED=rotated, BLOCK=block, num_warps=warps, num_stages=1,
        )  # fmt: skip


def weight_gradient(x: Tensor, incoming: Tensor, gradient: Tensor) -> None:
    """Write the contiguous weight gradient, bit-for-bit reproducible; x and incoming have channels last."""
    (n, c, h, w), c_out = x.shape, incoming.shape[1]
    launch = _for_channels(WEIGHT_LAUNCHES, c, c_out)
    columns = triton.next_power_of_2(3 * c) if launch.wide else c
    blocks = triton.cdiv(n * h * w, launch.block)
    tiles = triton.cdiv(blocks, launch.programs)
    strips = triton.cdiv(blocks, tiles)
    partial = torch.empty(strips, 9 * c * c_out, dtype=torch.float32, device=x.device)
    with torch.cuda.device_of(x):
        weight_gradient_kernel[(strips, 1 if launch.wide else 3)](
            x, incoming, partial, n * h * w, tiles,
            H=h, W=w, C=c, C_OUT=c_out, WIDE=launch.wide, K=columns, BLOCK=launch.block,
            num_warps=launch.warps, num_stages=launch.stages,
        )  # fmt: skip
        sum_strips_kernel[(triton.cdiv(9 * c * c_out, COLUMNS),)](
            partial, gradient, strips, C=c, C_OUT=c_out, DEPTH=DEPTH, COLUMNS=COLUMNS, num_warps=4
        )

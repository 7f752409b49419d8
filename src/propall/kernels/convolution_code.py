# mypy: ignore-errors
"""Convolutions of few channels as Triton programs: 3x3, stride 1, one pixel of zeros around the image.

Such a convolution does little arithmetic: its speed is what memory gives, if no program waits. Pixels are
counted through the whole batch, and a pixel's channels lie side by side. The three taps of one row of the
kernel are therefore 3 C numbers in a row, from the left neighbour's first channel on. A *wide* tile takes
them at once, with zeros up to the next power of two: three products of matrices in place of nine, which pays
for the weights' gradient of few channels. Other tiles take one tap at a time.

The gradient in the input is the same convolution with the kernel turned round and its channels exchanged. The
gradient in the weights is a sum over all pixels: every program adds up a strip of them, and a second kernel
adds the strips, in the same order every time.
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
    """TAPS pixels in a row beside each pixel, from the one `down` and `right` of it on: (BLOCK, K).

    What lies outside of the image, or beyond TAPS C of the K columns, is zero.
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
    C: tl.constexpr, C_OUT: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    """What a window of one tap is multiplied by: (C, C_OUT). TURNED: taps are counted from the last."""
    if TURNED:
        right, down = 2 - right, 2 - down
    place = tl.arange(0, C) * in_stride + right * right_stride + down * down_stride
    return tl.load(weight + place[:, None] + tl.arange(0, C_OUT)[None, :] * out_stride)


@triton.jit(do_not_specialize=["total"])
def convolution_kernel(
    x, weight, out, total, in_stride, out_stride, down_stride, right_stride,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, C_OUT: tl.constexpr, TURNED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK pixels of the output, with all their channels."""
    channel = tl.arange(0, C_OUT)
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK, C_OUT), dtype=tl.float32)
    for tap in tl.static_range(9):
        own = _weights(
            weight, tap // 3, tap % 3, in_stride, out_stride, down_stride, right_stride, C, C_OUT, TURNED
        )
        sums = tl.dot(_window(x, pixel, total, tap // 3 - 1, tap % 3 - 1, H, W, C, 1, C), own, sums)
    place = pixel[:, None] * C_OUT + channel[None, :]
    valid = (pixel < total)[:, None] & (channel >= 0)[None, :]
    tl.store(out + place, sums.to(out.dtype.element_ty), mask=valid)


@triton.jit(do_not_specialize=["total", "tiles"])
def weight_gradient_kernel(
    x, incoming, partial, total, tiles,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, C_OUT: tl.constexpr,
    WIDE: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient from `tiles` times BLOCK pixels: of the whole kernel if WIDE, otherwise of one row of it.

    Three sums are carried either way: one for each row of the kernel, or one for each tap of the row.
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
        slope = tl.load(incoming + place, mask=valid, other=0.0)
        if WIDE:
            a = tl.dot(tl.trans(_window(x, pixel, total, -1, -1, H, W, C, 3, K)), slope, a)
            b = tl.dot(tl.trans(_window(x, pixel, total, 0, -1, H, W, C, 3, K)), slope, b)
            c = tl.dot(tl.trans(_window(x, pixel, total, 1, -1, H, W, C, 3, K)), slope, c)
        else:
            down = kernel_row - 1
            a = tl.dot(tl.trans(_window(x, pixel, total, down, -1, H, W, C, 1, K)), slope, a)
            b = tl.dot(tl.trans(_window(x, pixel, total, down, 0, H, W, C, 1, K)), slope, b)
            c = tl.dot(tl.trans(_window(x, pixel, total, down, 1, H, W, C, 1, K)), slope, c)
    # Partial sums lie in the order (strip, kernel's row, kernel's column, channel in, channel out).
    taps: tl.constexpr = 3 if WIDE else 1
    place = (strip * 9 + kernel_row * 3) * C * C_OUT + k[:, None] * C_OUT + channel[None, :]
    valid = ((k // C) < taps)[:, None] & (channel >= 0)[None, :]
    tl.store(partial + place, a, mask=valid)
    tl.store(partial + place + taps * C * C_OUT, b, mask=valid)
    tl.store(partial + place + 2 * taps * C * C_OUT, c, mask=valid)


@triton.jit(do_not_specialize=["strips"])
def sum_of_strips_kernel(
    partial, gradient, strips,
    C: tl.constexpr, C_OUT: tl.constexpr, DEPTH: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The gradient (C_OUT, C, 3, 3), contiguous, from its partial sums."""
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


class Plan(NamedTuple):
    """How programs share out the gradient in the weights; see the top of this file.

    Attributes:
        block: pixels of a tile.
        warps: warps of a program.
        stages: tiles whose loads are under way at once.
        wide: whether a tile takes three taps at once.
        programs: how many programs there are at most.
    """

    block: int
    warps: int
    stages: int
    wide: bool
    programs: int


#: By channels, as measured on an H200; the widest plan serves all that are wider.
WEIGHT_PLANS = {
    16: Plan(block=64, warps=4, stages=3, wide=True, programs=264),
    32: Plan(block=64, warps=8, stages=3, wide=True, programs=132),
    64: Plan(block=64, warps=4, stages=3, wide=False, programs=44),
}
#: The other passes, of one tile to a program: its pixels and its warps.
CONVOLUTION_PLANS = {16: (256, 8), 32: (256, 8), 64: (128, 8)}
#: Strips, and entries of the gradient, that one program of `sum_of_strips_kernel` adds up at once.
DEPTH, COLUMNS = 64, 16


def _plan(plans: dict[int, Any], c_in: int, c_out: int) -> Any:
    return plans[min(max(c_in, c_out), max(plans))]


def convolve(x: Tensor, weight: Tensor, out: Tensor, *, turned: bool = False) -> None:
    """Writes the convolution of x, or if `turned` the gradient in the input for an incoming x.

    Args:
        x: (n, c, h, w), channels last.
        weight: (c_out, c, 3, 3), or (c, c_out, 3, 3) if `turned`; quickest with channels last.
        out: (n, c_out, h, w), channels last.
        turned: whether to turn the kernel round and to exchange its channels.
    """
    (n, c, h, w), c_out = x.shape, out.shape[1]
    block, warps = _plan(CONVOLUTION_PLANS, c, c_out)
    out_stride, in_stride, down_stride, right_stride = weight.stride()
    if turned:
        out_stride, in_stride = in_stride, out_stride
    with torch.cuda.device_of(x):
        convolution_kernel[(triton.cdiv(n * h * w, block),)](
            x, weight, out, n * h * w, in_stride, out_stride, down_stride, right_stride,
            H=h, W=w, C=c, C_OUT=c_out, TURNED=turned, BLOCK=block, num_warps=warps, num_stages=1,
        )  # fmt: skip


def weight_gradient(x: Tensor, incoming: Tensor, gradient: Tensor) -> None:
    """Writes the gradient in the weights, the same bits every time.

    Args:
        x: (n, c, h, w), channels last.
        incoming: (n, c_out, h, w), channels last.
        gradient: (c_out, c, 3, 3), contiguous.
    """
    (n, c, h, w), c_out = x.shape, incoming.shape[1]
    plan = _plan(WEIGHT_PLANS, c, c_out)
    columns = triton.next_power_of_2(3 * c) if plan.wide else c
    blocks = triton.cdiv(n * h * w, plan.block)
    tiles = triton.cdiv(blocks, plan.programs)
    strips = triton.cdiv(blocks, tiles)
    partial = torch.empty(strips, 9 * c * c_out, dtype=torch.float32, device=x.device)
    with torch.cuda.device_of(x):
        weight_gradient_kernel[(strips, 1 if plan.wide else 3)](
            x, incoming, partial, n * h * w, tiles,
            H=h, W=w, C=c, C_OUT=c_out, WIDE=plan.wide, K=columns, BLOCK=plan.block,
            num_warps=plan.warps, num_stages=plan.stages,
        )  # fmt: skip
        sum_of_strips_kernel[(triton.cdiv(9 * c * c_out, COLUMNS),)](
            partial, gradient, strips, C=c, C_OUT=c_out, DEPTH=DEPTH, COLUMNS=COLUMNS, num_warps=4
        )

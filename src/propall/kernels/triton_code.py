# mypy: ignore-errors
"""The fused losses as Triton kernels: one pass over the logits computes the losses and their gradient.

A program works on `ROWS` rows. A tile has four axes, L, ROWS, G and V: a thread reads V classes at once, L
threads (lanes) lie along a row, and G such stripes are held in each thread's registers. Sums over G and V
stay inside a thread, and one number per thread and row goes through shuffles. A row that fits in one tile is
read once, and its gradient is computed from registers; a longer one is read twice, the second time from the
cache.

Exponentials and logarithms limit a straightforward version of these kernels, so there are few of them:

- Everything is in base 2, the base of the hardware instructions.
- A product of factors 1 + e is carried as q = product - 1, by q <- q + e + q e. All terms are positive, so q
  keeps its relative accuracy even if tiny, and each thread needs one logarithm per row.
- With q = prod_S (1 + exp r) - 1, ProPaLL's first term is log(1 + 1/q) and its gradient -sigmoid(r)/q:
  neither expm1 nor a second branch is needed.
- Rows whose candidate logits are so low that q loses digits (`FAR`) take a slow path, which is skipped where
  there is no such row.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.interpreter import InterpretedFunction

#: Triton distributes threads along the V axis first, then along the others: from first to last up to version
#: 3.6, from last to first in later versions. In both, lanes come next, then rows, then stripes.
LANE_AXIS = tl.constexpr(0 if tuple(map(int, triton.__version__.split(".")[:2])) < (3, 7) else 2)
STRIPE_AXIS = tl.constexpr(2 - LANE_AXIS.value)
#: The same for values per thread and row, whose only axes are lanes and rows.
LANE_AXIS_OF_TWO = tl.constexpr(LANE_AXIS.value // 2)

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
#: A smaller sum of exponentials over the candidates is recomputed relative to their maximum.
FAR = tl.constexpr(1e-20)
#: Replaces infinity in q: log(1 + 1/q) and 1/q vanish, but 0 times it is 0.
FULL = tl.constexpr(1e37)
#: Lower than any logit, and finite, so that differences are not NaN.
LOWEST = tl.constexpr(-3e38)


@triton.jit
def _exp2(x):
    # `tl.exp2` spends three more instructions on subnormal results; here they may be flushed to zero.
    return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)


@triton.jit
def _exp2_of_minus_abs(x):
    # Sign and absolute value are free modifiers of the exponential instruction.
    return tl.inline_asm_elementwise(
        "{ .reg .f32 a; abs.f32 a, $1; neg.f32 a, a; ex2.approx.ftz.f32 $0, a; }",
        "=f,f", [x], tl.float32, True, 1,
    )  # fmt: skip


@triton.jit
def _log2(x):
    return tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)


@triton.jit
def _reciprocal(x):
    return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)


@triton.jit
def _plain_exp2(x):
    return tl.exp2(x)


@triton.jit
def _plain_exp2_of_minus_abs(x):
    return tl.exp2(-tl.abs(x))


@triton.jit
def _plain_log2(x):
    return tl.log2(x)


@triton.jit
def _plain_reciprocal(x):
    return 1.0 / x


if isinstance(_exp2, InterpretedFunction):  # the interpreter does not run assembly
    _exp2, _log2, _reciprocal = _plain_exp2, _plain_log2, _plain_reciprocal
    _exp2_of_minus_abs = _plain_exp2_of_minus_abs


@triton.jit
def _log1p(q):
    # log(1 + q) for q >= 0 to full relative accuracy: the rounding error of 1 + q is divided out.
    u = 1.0 + q
    return tl.where(u == 1.0, q, tl.log(u) * (q / (u - 1.0)))


@triton.jit
def _grow(a, b):
    return a + b + a * b


@triton.jit
def _grow_bounded(a, b):
    return tl.minimum(a + b + a * b, FULL, propagate_nan=tl.PropagateNan.ALL)


# Only the functions below know the order of a tile's axes. Values per thread and row keep the axes of lanes
# and rows, in the tile's order; values per row have one axis.


@triton.jit
def _in_thread_sum(x):
    return tl.sum(tl.sum(x, 3), STRIPE_AXIS)


@triton.jit
def _in_thread_max(x):
    return tl.max(tl.max(x, 3), STRIPE_AXIS)


@triton.jit
def _in_thread_growth(x):
    return tl.reduce(tl.reduce(x, 3, _grow), STRIPE_AXIS, _grow)


@triton.jit
def _row_sum(x):
    return tl.sum(x, LANE_AXIS_OF_TWO)


@triton.jit
def _row_max(x):
    return tl.max(x, LANE_AXIS_OF_TWO)


@triton.jit
def _row_growth(x):
    return tl.reduce(x, LANE_AXIS_OF_TWO, _grow_bounded)


@triton.jit
def _to_lanes(x):
    return tl.expand_dims(x, LANE_AXIS_OF_TWO)


@triton.jit
def _over_row(x):
    return x[None, :, None, None]


@triton.jit
def _over_lane(x):
    return tl.expand_dims(tl.expand_dims(x, STRIPE_AXIS), 3)


@triton.jit
def _lanes(L: tl.constexpr):
    return tl.expand_dims(
        tl.expand_dims(tl.expand_dims(tl.arange(0, L), 1 - LANE_AXIS_OF_TWO), STRIPE_AXIS), 3
    )


@triton.jit
def _stripes(G: tl.constexpr):
    return tl.expand_dims(tl.expand_dims(tl.expand_dims(tl.arange(0, G), LANE_AXIS_OF_TWO), LANE_AXIS), 3)


@triton.jit
def _neighbors(V: tl.constexpr):
    return tl.arange(0, V)[None, None, None, :]


@triton.jit
def _units(tile, G: tl.constexpr, L: tl.constexpr):
    return tile * (G * L) + _stripes(G) * L + _lanes(L)


@triton.jit
def _read(
    logits, mask, row, tile, n, units, G: tl.constexpr, L: tl.constexpr, V: tl.constexpr
):  # fmt: skip
    """Load a tile: logits, candidates, their offsets, and which of them exist."""
    valid = (_units(tile, G, L) < units) & _over_row(row < n)
    # units * V = k; written this way, the compiler sees that V divides the offset and loads V at once.
    start = _over_row(row.to(tl.int64) * units) * V
    offset = (start + (_lanes(L) * V + _neighbors(V))) + (tile * G + _stripes(G)) * (L * V)
    s = tl.load(mask + offset, mask=valid, other=0).to(tl.int1)
    r = tl.load(logits + offset, mask=valid, other=float("-inf")).to(tl.float32)
    return r, s, offset, valid


@triton.jit
def _sigmoid(t, e):
    inverse = _reciprocal(1.0 + e)
    return tl.where(t >= 0, inverse, e * inverse)


@triton.jit
def _candidate_softmax(
    logits, mask, row, n, units, G: tl.constexpr, L: tl.constexpr, V: tl.constexpr
):  # fmt: skip
    """Return the maximum over the candidates and the sum of exponentials relative to it (slow path)."""
    mass = _in_thread_sum(tl.zeros_like(_units(0, G, L) + _over_row(row)).to(tl.float32))
    top = mass + LOWEST
    for tile in range(0, tl.cdiv(units, G * L)):
        r, s, _, _ = _read(logits, mask, row, tile, n, units, G, L, V)
        r = tl.where(s, r, float("-inf"))
        higher = tl.maximum(top, _in_thread_max(r))
        mass = mass * _exp2((top - higher) * LOG2_E)
        mass += _in_thread_sum(_exp2((r - _over_lane(higher)) * LOG2_E))
        top = higher
    row_top = _row_max(top)
    return row_top, _row_sum(mass * _exp2((top - _to_lanes(row_top)) * LOG2_E))


@triton.jit
def _propall_sums(t, e, s):
    """Reduce a thread's part: q and the sum of max(t, 0) inside, sums of log(1 + e) and max(t, 0) outside."""
    positive = tl.maximum(t, 0.0)
    e_in, positive_in = tl.where(s, e, 0.0), tl.where(s, positive, 0.0)
    return (
        _in_thread_growth(e_in),
        _in_thread_sum(positive_in),
        _log1p(_in_thread_growth(e - e_in)),
        _in_thread_sum(positive - positive_in),
    )


@triton.jit
def _propall_rows(
    row, n, units, logits, mask, gradient, factor,
    G: tl.constexpr, L: tl.constexpr, V: tl.constexpr, SINGLE: tl.constexpr,
):  # fmt: skip
    """Return the losses of the rows and write their gradient."""
    r, s, offset, valid = _read(logits, mask, row, 0, n, units, G, L, V)
    t = r * LOG2_E
    e = _exp2_of_minus_abs(t)
    q, high, log_out, high_out = _propall_sums(t, e, s)
    if not SINGLE:
        for tile in range(1, tl.cdiv(units, G * L)):
            next_r, next_s, _, _ = _read(logits, mask, row, tile, n, units, G, L, V)
            next_t = next_r * LOG2_E
            q_, high_, log_out_, high_out_ = _propall_sums(next_t, _exp2_of_minus_abs(next_t), next_s)
            q = _grow_bounded(q, q_)
            high += high_
            log_out += log_out_
            high_out += high_out_
    # prod (1 + exp r) = 2^high * (1 + q); bounded, because 0 times infinity is NaN.
    power = _exp2(tl.minimum(_row_sum(high), 126.0))
    q = _row_growth(q) * power + (power - 1.0)
    outside = _row_sum(log_out + high_out * LN_2)
    here = row < n
    far = here & (q < FAR)
    near = here & (far == 0)  # including rows where q is NaN, which the caller should see
    loss = outside + _log1p(1.0 / q)
    if gradient is not None:
        inside = -factor / q
        if SINGLE:
            g = _sigmoid(t, e) * tl.where(s, _over_row(inside), _over_row(factor))
            tl.store(gradient + offset, g.to(gradient.dtype.element_ty), mask=valid & _over_row(near))
        else:
            for tile in range(0, tl.cdiv(units, G * L)):
                r, s, offset, valid = _read(logits, mask, row, tile, n, units, G, L, V)
                t = r * LOG2_E
                g = _sigmoid(t, _exp2_of_minus_abs(t)) * tl.where(s, _over_row(inside), _over_row(factor))
                tl.store(gradient + offset, g.to(gradient.dtype.element_ty), mask=valid & _over_row(near))
    if tl.max(far.to(tl.int32), 0) != 0:
        # Here log(1 - exp(-h)) equals the logsumexp over the candidates to every digit.
        top, mass = _candidate_softmax(logits, mask, row, n, units, G, L, V)
        loss = tl.where(far, outside - (top + tl.log(mass)), loss)
        if gradient is not None:
            inside = -factor / mass
            for tile in range(0, tl.cdiv(units, G * L)):
                r, s, offset, valid = _read(logits, mask, row, tile, n, units, G, L, V)
                t = r * LOG2_E
                share = _exp2((r - _over_row(top)) * LOG2_E) * _over_row(inside)
                g = tl.where(s, share, _sigmoid(t, _exp2_of_minus_abs(t)) * _over_row(factor))
                tl.store(gradient + offset, g.to(gradient.dtype.element_ty), mask=valid & _over_row(far))
    return loss


@triton.jit
def _softmax_sums(r, s, top):
    """Return a thread's exponentials relative to `top`, and their sums inside and outside."""
    power = _exp2((r - _over_lane(top)) * LOG2_E)
    inside = tl.where(s, power, 0.0)
    return power, _in_thread_sum(inside), _in_thread_sum(power - inside)


@triton.jit
def _cc_rows(
    row, n, units, logits, mask, gradient, factor,
    G: tl.constexpr, L: tl.constexpr, V: tl.constexpr, SINGLE: tl.constexpr,
):  # fmt: skip
    """Return the losses of the rows and write their gradient."""
    r, s, offset, valid = _read(logits, mask, row, 0, n, units, G, L, V)
    # Each thread subtracts the maximum of its part, so that none waits for others before the exponentials.
    top = tl.maximum(_in_thread_max(r), LOWEST)
    power, inside, outside = _softmax_sums(r, s, top)
    if not SINGLE:
        for tile in range(1, tl.cdiv(units, G * L)):
            next_r, next_s, _, _ = _read(logits, mask, row, tile, n, units, G, L, V)
            higher = tl.maximum(top, _in_thread_max(next_r))
            _, inside_, outside_ = _softmax_sums(next_r, next_s, higher)
            shrink = _exp2((top - higher) * LOG2_E)
            inside = inside * shrink + inside_
            outside = outside * shrink + outside_
            top = higher
    row_top = _row_max(top)
    lane = _exp2((top - _to_lanes(row_top)) * LOG2_E)
    mass_in, mass_out = _row_sum(inside * lane), _row_sum(outside * lane)
    mass = mass_in + mass_out
    here = row < n
    far = here & (mass_in < FAR)
    near = here & (far == 0)
    loss = _log1p(mass_out / mass_in)
    # Factors per thread that turn the exponentials into gradients.
    outside = lane * _to_lanes(factor / mass)
    inside = outside * _to_lanes(-mass_out / mass_in)
    if gradient is not None:
        if SINGLE:
            g = power * tl.where(s, _over_lane(inside), _over_lane(outside))
            tl.store(gradient + offset, g.to(gradient.dtype.element_ty), mask=valid & _over_row(near))
        else:
            for tile in range(0, tl.cdiv(units, G * L)):
                r, s, offset, valid = _read(logits, mask, row, tile, n, units, G, L, V)
                power = _exp2((r - _over_lane(top)) * LOG2_E)
                g = power * tl.where(s, _over_lane(inside), _over_lane(outside))
                tl.store(gradient + offset, g.to(gradient.dtype.element_ty), mask=valid & _over_row(near))
    if tl.max(far.to(tl.int32), 0) != 0:
        set_top, set_mass = _candidate_softmax(logits, mask, row, n, units, G, L, V)
        loss = tl.where(far, (row_top - set_top) + (tl.log(mass) - tl.log(set_mass)), loss)
        if gradient is not None:
            for tile in range(0, tl.cdiv(units, G * L)):
                r, s, offset, valid = _read(logits, mask, row, tile, n, units, G, L, V)
                share = _exp2((r - _over_row(set_top)) * LOG2_E) / _over_row(set_mass)
                power = _exp2((r - _over_lane(top)) * LOG2_E)
                g = tl.where(s, -share * _over_row(factor), power * _over_lane(outside))
                tl.store(gradient + offset, g.to(gradient.dtype.element_ty), mask=valid & _over_row(far))
    return loss


@triton.jit
def _rows(
    row, n, units, logits, mask, gradient, factor,
    LOSS: tl.constexpr, G: tl.constexpr, L: tl.constexpr, V: tl.constexpr, SINGLE: tl.constexpr,
):  # fmt: skip
    if LOSS == "propall":
        loss = _propall_rows(row, n, units, logits, mask, gradient, factor, G, L, V, SINGLE)
    else:
        loss = _cc_rows(row, n, units, logits, mask, gradient, factor, G, L, V, SINGLE)
    return loss


@triton.jit(do_not_specialize=["n"])
def losses_kernel(
    n, units, logits, mask, losses, gradient, factor,
    LOSS: tl.constexpr, MEAN: tl.constexpr, G: tl.constexpr, ROWS: tl.constexpr, L: tl.constexpr,
    V: tl.constexpr, SINGLE: tl.constexpr,
):  # fmt: skip
    """Write the losses of ROWS rows, or if MEAN their part of the mean, and the gradient if there is one."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    factors = tl.zeros_like(row).to(tl.float32) + factor
    loss = _rows(row, n, units, logits, mask, gradient, factors, LOSS, G, L, V, SINGLE)
    if MEAN:
        tl.store(losses + tl.program_id(0), tl.sum(tl.where(row < n, loss, 0.0), 0) * factor)
    else:
        tl.store(losses + row, loss, mask=row < n)


@triton.jit(do_not_specialize=["n", "repeat"])
def gradient_kernel(
    n, repeat, units, logits, mask, gradient, incoming, incoming_stride, expected, unit,
    LOSS: tl.constexpr, CHECK: tl.constexpr, G: tl.constexpr, ROWS: tl.constexpr, L: tl.constexpr,
    V: tl.constexpr, SINGLE: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """Write the gradient of `repeat` times ROWS rows; if CHECK, unless every `incoming` is as expected."""
    first = tl.program_id(0) * (ROWS * repeat)
    write = True
    if CHECK:
        ahead = tl.arange(0, WINDOW)
        inside = (ahead < ROWS * repeat) & (first + ahead < n)
        arrived = tl.load(incoming + (first + ahead) * incoming_stride, mask=inside, other=expected)
        write = tl.max((arrived != expected).to(tl.int32), 0) != 0
    if write:
        for i in range(0, repeat):
            row = first + i * ROWS + tl.arange(0, ROWS)
            factor = tl.load(incoming + row * incoming_stride, mask=row < n, other=0.0) * unit
            _rows(row, n, units, logits, mask, gradient, factor, LOSS, G, L, V, SINGLE)


#: Maximum number of rows that a program of `gradient_kernel` checks, and a sufficient number of programs.
WINDOW = 64
ENOUGH_PROGRAMS = 1024


class Tiling(NamedTuple):
    """Tile of a program; see the top of this file."""

    v: int
    lanes: int
    stripes: int
    rows: int
    warps: int
    single: bool

    def constants(self) -> dict[str, int]:
        """The kernels' keyword arguments."""
        return {
            "G": self.stripes,
            "ROWS": self.rows,
            "L": self.lanes,
            "V": self.v,
            "SINGLE": self.single,
            "num_warps": self.warps,
        }


@cache
def tiling(k: int, itemsize: int) -> Tiling:
    """Choose the tile for rows of k classes of `itemsize` bytes each, as measured on an H200."""
    v = math.gcd(k, 16 // itemsize)
    width = triton.next_power_of_2(k // v)
    stripes = min(width, 16 // v)
    lanes = width // stripes
    if lanes <= 64:
        # One warp needs no shared memory for its sums, which pays for short rows of float32.
        warps = 1 if lanes <= 8 and itemsize == 4 else 2
        return Tiling(v, lanes, stripes, rows=32 * warps // lanes, warps=warps, single=True)
    # Wide programs for wide rows, so that the second read of a row finds it in the cache.
    lanes = min(512, max(64, triton.next_power_of_2(k * itemsize // 64 + 1) // 2))
    return Tiling(v, lanes, stripes=8 // v, rows=1, warps=lanes // 32, single=False)


#: PyTorch sums this many numbers in one block; beyond, in groups of the second number it is faster.
MANY_PARTS, GROUP = 1 << 14, 256


def parts_of_mean(logits: Tensor) -> int:
    """Return the number of parts in which `write_losses` writes a mean."""
    n, k = logits.shape
    parts = triton.cdiv(n, tiling(k, logits.element_size()).rows)
    return parts if parts <= MANY_PARTS else triton.cdiv(parts, GROUP) * GROUP


def sum_parts(parts: Tensor) -> Tensor:
    """Sum the parts of a mean, in a fixed order."""
    return parts.sum() if len(parts) <= MANY_PARTS else parts.view(-1, GROUP).sum(1).sum()


def write_losses(
    loss: str,
    logits: Tensor,
    candidates: Tensor,
    losses: Tensor,
    gradient: Tensor | None = None,
    *,
    factor: float = 1.0,
    mean: bool = False,
) -> None:
    """Write the losses ("propall" or "cc") of (n, k) logits and, unless None, their contiguous gradient.

    There are n float32 losses; with `mean`, `parts_of_mean(logits)` parts whose sum is the mean. `factor`
    scales the gradient and, for a mean, the losses.
    """
    if not logits.numel():
        return
    n, k = logits.shape
    tile = tiling(k, logits.element_size())
    programs = len(losses) if mean else triton.cdiv(n, tile.rows)
    with _device_of(logits):
        losses_kernel[(programs,)](
            n, k // tile.v, logits.contiguous(), candidates.contiguous(), losses, gradient, factor,
            LOSS=loss, MEAN=mean, **tile.constants(),
        )  # fmt: skip


def write_gradient(
    loss: str,
    logits: Tensor,
    candidates: Tensor,
    gradient: Tensor,
    incoming: Tensor,
    *,
    expected: float | None = None,
    unit: float = 1.0,
) -> None:
    """Write the contiguous gradient, or correct it where it was written for something else.

    `incoming` is the gradient of each row's loss, (n,) float32, or 0-d for all rows; `unit` the scale of the
    gradient where it is 1. The gradient is already complete where `incoming` is `expected`.
    """
    if not logits.numel():
        return
    n, k = logits.shape
    tile = tiling(k, logits.element_size())
    tiles, check = triton.cdiv(n, tile.rows), expected is not None
    repeat = max(1, min(WINDOW // tile.rows, tiles // ENOUGH_PROGRAMS)) if check else 1
    stride = incoming.stride(0) if incoming.dim() else 0
    with _device_of(logits):
        gradient_kernel[(triton.cdiv(tiles, repeat),)](
            n, repeat, k // tile.v, logits.contiguous(), candidates.contiguous(), gradient,
            incoming, stride, expected if check else 0.0, unit,
            LOSS=loss, CHECK=check, WINDOW=WINDOW, **tile.constants(),
        )  # fmt: skip


def _device_of(tensor: Tensor) -> AbstractContextManager[object]:
    """Return a context that makes the tensor's device current."""
    if tensor.is_cuda and tensor.get_device() != torch.cuda.current_device():
        return torch.cuda.device(tensor.device)
    return nullcontext()

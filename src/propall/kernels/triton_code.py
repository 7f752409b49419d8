# mypy: ignore-errors
"""The fused losses as Triton programs: one pass over the logits gives the losses and their gradient.

A program works on `ROWS` rows. A tile of them has four axes, L, ROWS, G and V: every thread reads V classes
at once, L threads stand side by side along a row, and G such stripes lie behind each other in a thread's
registers. Sums over G and V therefore stay inside a thread, and one number per thread and row goes through
shuffles. A row that fits in one tile is read once and its gradient comes out of registers; a longer one is
swept twice, the second time out of the cache.

Exponentials and logarithms bound a plain version of these kernels, so they are rationed:

- Everything is in base 2, where the hardware's own instruction needs no rescaling.
- A product of factors 1 + e is carried as q = product - 1, by q <- q + e + q e. All terms are positive, so q
  keeps its relative accuracy however small it is, and a whole thread's share of a row needs one logarithm.
- With q = prod_S (1 + exp r) - 1, ProPaLL's first term is log(1 + 1/q) and its gradient -sigmoid(r)/q: no
  expm1, no second branch.
- Rows whose candidates all lie so low that q loses digits (`FAR`) go through a slow path of their own, which
  is entered only where such a row exists.
"""

import math
from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.interpreter import InterpretedFunction

from propall.kernels.rows import Rows

#: Triton deals threads out along the axis of the V first, then along the others: from first to last up to
#: version 3.6, from last to first later. Either way lanes come next, then rows, and stripes last.
LANE_AXIS = tl.constexpr(0 if tuple(map(int, triton.__version__.split(".")[:2])) < (3, 7) else 2)
STRIPE_AXIS = tl.constexpr(2 - LANE_AXIS.value)
#: Of numbers per thread and row, where lanes and rows are the only axes.
LANE_AXIS_OF_TWO = tl.constexpr(LANE_AXIS.value // 2)

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
#: Below this, a sum of exponentials over the candidates is computed again from their own maximum.
FAR = tl.constexpr(1e-20)
#: Stands for infinity in q: large enough that log(1 + 1/q) and 1/q vanish, and it times 0 is still 0.
FULL = tl.constexpr(1e37)
#: Lower than any logit, and finite, so that differences of two of them are numbers.
LOWEST = tl.constexpr(-3e38)


@triton.jit
def _exp2(x):
    # `tl.exp2` handles subnormal results, at three further instructions; here they may be zero.
    return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)


@triton.jit
def _exp2_of_minus_abs(x):
    # The sign and the bar come free with the instruction that takes the exponential.
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


if isinstance(_exp2, InterpretedFunction):  # the interpreter runs no assembly
    _exp2, _log2, _reciprocal = _plain_exp2, _plain_log2, _plain_reciprocal
    _exp2_of_minus_abs = _plain_exp2_of_minus_abs


@triton.jit
def _log1p(q):
    # log(1 + q) for q >= 0 to full relative accuracy: the rounding of 1 + q is divided out again.
    u = 1.0 + q
    return tl.where(u == 1.0, q, tl.log(u) * (q / (u - 1.0)))


@triton.jit
def _grow(a, b):
    return a + b + a * b


@triton.jit
def _grow_bounded(a, b):
    return tl.minimum(a + b + a * b, FULL, propagate_nan=tl.PropagateNan.ALL)


# Where the tile's axes lie is said here and nowhere else. Numbers per thread and row keep the axes of lanes
# and rows, in the tile's order; numbers per row have one axis.


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
def _neighbours(V: tl.constexpr):
    return tl.arange(0, V)[None, None, None, :]


@triton.jit
def _units(tile, G: tl.constexpr, L: tl.constexpr):
    return tile * (G * L) + _stripes(G) * L + _lanes(L)


# Noise: the same counters, constants and order as `propall.counter_rng.words`.


@triton.jit
def _mix(word):
    word = (word ^ (word >> 16)) * 0x21F0AAAD
    word = (word ^ (word >> 15)) * 0x735A2D97
    return word ^ (word >> 15)


@triton.jit
def _count(a, b, counter):
    a = _mix(a ^ counter)
    return a, _mix(b + a + 0x1B873593)


@triton.jit
def _seed_words(seed):
    return _mix(seed.to(tl.uint32)), _mix((seed >> 32).to(tl.uint32) ^ 0x5BD1E995)


@triton.jit
def _row_words(seed, step, key):
    a, b = _seed_words(seed)
    a, b = _count(a, b, step.to(tl.uint32))
    return _count(a, b, key.to(tl.uint32))


@triton.jit
def _logistic(a, b, label):
    a, b = _count(a, b, label.to(tl.uint32))
    word = _mix(a ^ (b >> 7))
    # (word >> 9 + 1/2) / 2^23 without a conversion: the bits become the fraction of a number in [1, 2).
    uniform = ((word >> 9) | 0x3F800000).to(tl.float32, bitcast=True) - 0.999999940395355224609375
    uniform = tl.minimum(tl.maximum(uniform, 1e-7), 0.99999988079071044921875)
    return _log2(uniform * _reciprocal(1.0 - uniform)) * LN_2


@triton.jit
def _row_noise(noise, row, n):
    scale, seed, step, keys, scale_stride, seed_stride, step_stride, keys_stride = noise
    here = row < n
    a, b = _row_words(
        tl.load(seed + row * seed_stride, mask=here, other=0),
        tl.load(step + row * step_stride, mask=here, other=0),
        tl.load(keys + row * keys_stride, mask=here, other=0),
    )
    return tl.load(scale + row * scale_stride, mask=here, other=0.0), a, b


@triton.jit
def _logits(pointer, offset, valid, drawn, tile, G: tl.constexpr, L: tl.constexpr, V: tl.constexpr):
    r = tl.load(pointer + offset, mask=valid, other=float("-inf")).to(tl.float32)
    if drawn is not None:
        scale, a, b = drawn
        label = _units(tile, G, L) * V + _neighbours(V)
        r += _over_row(scale) * _logistic(_over_row(a), _over_row(b), label)
    return r


@triton.jit
def _place(row, tile, n, units, G: tl.constexpr, L: tl.constexpr, V: tl.constexpr):
    valid = (_units(tile, G, L) < units) & _over_row(row < n)
    # units * V = k, written so that the compiler knows V divides a row's offset and may load V at once.
    start = _over_row(row.to(tl.int64) * units) * V
    return (start + (_lanes(L) * V + _neighbours(V))) + (tile * G + _stripes(G)) * (L * V), valid


@triton.jit
def _sigmoid(t, e):
    inverse = _reciprocal(1.0 + e)
    return tl.where(t >= 0, inverse, e * inverse)


@triton.jit
def _candidate_softmax(
    logits, mask, drawn, row, n, units,
    G: tl.constexpr, ROWS: tl.constexpr, L: tl.constexpr, V: tl.constexpr,
):  # fmt: skip
    """The candidates' own maximum and sum of exponentials below it, for the slow path."""
    mass = _in_thread_sum(tl.zeros_like(_units(0, G, L) + _over_row(row)).to(tl.float32))
    top = mass + LOWEST
    for tile in range(0, tl.cdiv(units, G * L)):
        offset, valid = _place(row, tile, n, units, G, L, V)
        s = tl.load(mask + offset, mask=valid, other=0) != 0
        r = tl.where(s, _logits(logits, offset, valid, drawn, tile, G, L, V), float("-inf"))
        higher = tl.maximum(top, _in_thread_max(r))
        mass = mass * _exp2((top - higher) * LOG2_E)
        mass += _in_thread_sum(_exp2((r - _over_lane(higher)) * LOG2_E))
        top = higher
    row_top = _row_max(top)
    return row_top, _row_sum(mass * _exp2((top - _to_lanes(row_top)) * LOG2_E))


@triton.jit
def _propall_sums(t, e, s):
    """A thread's part of the tile: q and the sum of max(t, 0) inside, of log(1 + e) and max(t, 0) outside."""
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
    row, n, units, logits, mask, losses, gradient, factor, noise,
    G: tl.constexpr, ROWS: tl.constexpr, L: tl.constexpr, V: tl.constexpr, SINGLE: tl.constexpr,
):  # fmt: skip
    drawn = None
    if noise is not None:
        drawn = _row_noise(noise, row, n)
    offset, valid = _place(row, 0, n, units, G, L, V)
    s = tl.load(mask + offset, mask=valid, other=0) != 0
    t = _logits(logits, offset, valid, drawn, 0, G, L, V) * LOG2_E
    e = _exp2_of_minus_abs(t)
    q, high, log_out, high_out = _propall_sums(t, e, s)
    if not SINGLE:
        for tile in range(1, tl.cdiv(units, G * L)):
            next_offset, next_valid = _place(row, tile, n, units, G, L, V)
            next_s = tl.load(mask + next_offset, mask=next_valid, other=0) != 0
            next_t = _logits(logits, next_offset, next_valid, drawn, tile, G, L, V) * LOG2_E
            q_, high_, log_out_, high_out_ = _propall_sums(next_t, _exp2_of_minus_abs(next_t), next_s)
            q = _grow_bounded(q, q_)
            high += high_
            log_out += log_out_
            high_out += high_out_
    # prod (1 + exp r) = 2^high * (1 + q); bounded, because infinity times a q of zero is no number.
    power = _exp2(tl.minimum(_row_sum(high), 126.0))
    q = _row_growth(q) * power + (power - 1.0)
    outside = _row_sum(log_out + high_out * LN_2)
    here = row < n
    far = here & (q < FAR)
    near = here & (far == 0)  # also where q is not a number, which the caller is to see
    if losses is not None:
        tl.store(losses + row, outside + _log1p(1.0 / q), mask=near)
    if gradient is not None:
        inside = -factor / q
        if SINGLE:
            g = _sigmoid(t, e) * tl.where(s, _over_row(inside), _over_row(factor))
            tl.store(gradient + offset, g.to(gradient.dtype.element_ty), mask=valid & _over_row(near))
        else:
            for tile in range(0, tl.cdiv(units, G * L)):
                offset, valid = _place(row, tile, n, units, G, L, V)
                s = tl.load(mask + offset, mask=valid, other=0) != 0
                t = _logits(logits, offset, valid, drawn, tile, G, L, V) * LOG2_E
                g = _sigmoid(t, _exp2_of_minus_abs(t)) * tl.where(s, _over_row(inside), _over_row(factor))
                tl.store(gradient + offset, g.to(gradient.dtype.element_ty), mask=valid & _over_row(near))
    if tl.max(far.to(tl.int32), 0) != 0:
        # log(1 - exp(-h)) is the logsumexp over the candidates to every digit here.
        top, mass = _candidate_softmax(logits, mask, drawn, row, n, units, G, ROWS, L, V)
        if losses is not None:
            tl.store(losses + row, outside - (top + tl.log(mass)), mask=far)
        if gradient is not None:
            inside = -factor / mass
            for tile in range(0, tl.cdiv(units, G * L)):
                offset, valid = _place(row, tile, n, units, G, L, V)
                s = tl.load(mask + offset, mask=valid, other=0) != 0
                r = _logits(logits, offset, valid, drawn, tile, G, L, V)
                t = r * LOG2_E
                share = _exp2((r - _over_row(top)) * LOG2_E) * _over_row(inside)
                g = tl.where(s, share, _sigmoid(t, _exp2_of_minus_abs(t)) * _over_row(factor))
                tl.store(gradient + offset, g.to(gradient.dtype.element_ty), mask=valid & _over_row(far))


@triton.jit
def _softmax_sums(r, s, weight, valid, top, WEIGHTED: tl.constexpr):
    """A thread's part of the tile: powers below `top`, their sums inside and outside, the weights' sums."""
    power = _exp2((r - _over_lane(top)) * LOG2_E)
    inside = tl.where(s, power, 0.0)
    total, distance = 0.0, 0.0
    if WEIGHTED:
        total = _in_thread_sum(weight)
        distance = _in_thread_sum(tl.where(valid, weight * (_over_lane(top) - r), 0.0))
    return power, _in_thread_sum(inside), _in_thread_sum(power - inside), total, distance


@triton.jit
def _weights(weights, offset, valid, WEIGHTED: tl.constexpr):
    weight = 0.0
    if WEIGHTED:
        weight = tl.load(weights + offset, mask=valid, other=0.0)
    return weight


@triton.jit
def _store_softmax(
    power, s, weight, offset, valid, near, gradient, new_weights, factor, inside, outside, share,
    WEIGHTED: tl.constexpr,
):  # fmt: skip
    """Writes a tile: per-thread factors turn the powers of two into gradients and candidate shares."""
    if WEIGHTED:
        if gradient is not None:
            g = power * _over_lane(outside) - weight * _over_row(factor)
            tl.store(gradient + offset, g.to(gradient.dtype.element_ty), mask=valid)
        if new_weights is not None:
            own = tl.where(s, power * _over_lane(share), 0.0)
            tl.store(new_weights + offset, own, mask=valid & _over_row(near))
    elif gradient is not None:
        g = power * tl.where(s, _over_lane(inside), _over_lane(outside))
        tl.store(gradient + offset, g.to(gradient.dtype.element_ty), mask=valid & _over_row(near))


@triton.jit
def _softmax_rows(
    row, n, units, logits, mask, weights, losses, gradient, new_weights, factor,
    G: tl.constexpr, ROWS: tl.constexpr, L: tl.constexpr, V: tl.constexpr, SINGLE: tl.constexpr,
    WEIGHTED: tl.constexpr,
):  # fmt: skip
    offset, valid = _place(row, 0, n, units, G, L, V)
    s = tl.load(mask + offset, mask=valid, other=0) != 0
    r = _logits(logits, offset, valid, None, 0, G, L, V)
    weight = _weights(weights, offset, valid, WEIGHTED)
    # Every thread subtracts its own maximum, so that no thread waits for the others before the exponentials.
    top = tl.maximum(_in_thread_max(r), LOWEST)
    power, inside, outside, total, distance = _softmax_sums(r, s, weight, valid, top, WEIGHTED)
    if not SINGLE:
        for tile in range(1, tl.cdiv(units, G * L)):
            next_offset, next_valid = _place(row, tile, n, units, G, L, V)
            next_s = tl.load(mask + next_offset, mask=next_valid, other=0) != 0
            next_r = _logits(logits, next_offset, next_valid, None, tile, G, L, V)
            next_weight = _weights(weights, next_offset, next_valid, WEIGHTED)
            higher = tl.maximum(top, _in_thread_max(next_r))
            _, inside_, outside_, total_, distance_ = _softmax_sums(
                next_r, next_s, next_weight, next_valid, higher, WEIGHTED
            )
            shrink = _exp2((top - higher) * LOG2_E)
            inside = inside * shrink + inside_
            outside = outside * shrink + outside_
            if WEIGHTED:
                distance += total * (higher - top) + distance_
                total += total_
            top = higher
    row_top = _row_max(top)
    lane = _exp2((top - _to_lanes(row_top)) * LOG2_E)
    mass_in, mass_out = _row_sum(inside * lane), _row_sum(outside * lane)
    mass = mass_in + mass_out
    here = row < n
    far = here & (mass_in < FAR)
    near = here & (far == 0)
    share = lane / _to_lanes(mass_in)
    if WEIGHTED:
        row_total = _row_sum(total)
        row_distance = _row_sum(distance + total * (_to_lanes(row_top) - top))
        if losses is not None:
            tl.store(losses + row, row_distance + row_total * tl.log(mass), mask=here)
        inside, outside = share, lane * _to_lanes(factor * row_total / mass)
    else:
        if losses is not None:
            tl.store(losses + row, _log1p(mass_out / mass_in), mask=near)
        outside = lane * _to_lanes(factor / mass)
        inside = outside * _to_lanes(-mass_out / mass_in)
    if (gradient is not None) or (new_weights is not None):
        if SINGLE:
            _store_softmax(
                power, s, weight, offset, valid, near, gradient, new_weights, factor, inside, outside, share,
                WEIGHTED,
            )  # fmt: skip
        else:
            for tile in range(0, tl.cdiv(units, G * L)):
                offset, valid = _place(row, tile, n, units, G, L, V)
                s = tl.load(mask + offset, mask=valid, other=0) != 0
                r = _logits(logits, offset, valid, None, tile, G, L, V)
                power = _exp2((r - _over_lane(top)) * LOG2_E)
                weight = _weights(weights, offset, valid, WEIGHTED)
                _store_softmax(
                    power, s, weight, offset, valid, near, gradient, new_weights, factor, inside, outside,
                    share, WEIGHTED,
                )  # fmt: skip
    if tl.max(far.to(tl.int32), 0) != 0:
        own_top, own_mass = _candidate_softmax(logits, mask, None, row, n, units, G, ROWS, L, V)
        if not WEIGHTED and losses is not None:
            loss = (row_top - own_top) + (tl.log(mass) - tl.log(own_mass))
            tl.store(losses + row, loss, mask=far)
        for tile in range(0, tl.cdiv(units, G * L)):
            offset, valid = _place(row, tile, n, units, G, L, V)
            s = tl.load(mask + offset, mask=valid, other=0) != 0
            r = _logits(logits, offset, valid, None, tile, G, L, V)
            own = _exp2((r - _over_row(own_top)) * LOG2_E) / _over_row(own_mass)
            if WEIGHTED:
                if new_weights is not None:
                    tl.store(new_weights + offset, tl.where(s, own, 0.0), mask=valid & _over_row(far))
            elif gradient is not None:
                power = _exp2((r - _over_lane(top)) * LOG2_E)
                g = tl.where(s, -own * _over_row(factor), power * _over_lane(outside))
                tl.store(gradient + offset, g.to(gradient.dtype.element_ty), mask=valid & _over_row(far))


@triton.jit
def _row_factor(row, n, incoming, incoming_stride, expected, unit):
    if incoming is None:
        factor = tl.zeros_like(row).to(tl.float32) + expected * unit
    else:
        factor = tl.load(incoming + row * incoming_stride, mask=row < n, other=0.0) * unit
    return factor


@triton.jit
def _rows(
    row, n, units, logits, mask, weights, losses, gradient, new_weights,
    incoming, incoming_stride, expected, unit, noise,
    LOSS: tl.constexpr, G: tl.constexpr, ROWS: tl.constexpr, L: tl.constexpr, V: tl.constexpr,
    SINGLE: tl.constexpr,
):  # fmt: skip
    factor = _row_factor(row, n, incoming, incoming_stride, expected, unit)
    if LOSS == "propall":
        _propall_rows(row, n, units, logits, mask, losses, gradient, factor, noise, G, ROWS, L, V, SINGLE)
    else:
        _softmax_rows(
            row, n, units, logits, mask, weights, losses, gradient, new_weights, factor,
            G, ROWS, L, V, SINGLE, LOSS == "proden",
        )  # fmt: skip


@triton.jit
def _noise(scale, seed, step, keys, scale_stride, seed_stride, step_stride, keys_stride):
    noise = None
    if scale is not None:
        noise = (scale, seed, step, keys, scale_stride, seed_stride, step_stride, keys_stride)
    return noise


@triton.jit(do_not_specialize=["n"])
def candidate_loss_kernel(
    n, units, logits, mask, weights, losses, gradient, new_weights, incoming, incoming_stride, expected, unit,
    scale, seed, step, keys, scale_stride, seed_stride, step_stride, keys_stride,
    LOSS: tl.constexpr, G: tl.constexpr, ROWS: tl.constexpr, L: tl.constexpr, V: tl.constexpr,
    SINGLE: tl.constexpr,
):  # fmt: skip
    """Losses, gradient and new weights of ROWS rows; what is None is not written."""
    noise = _noise(scale, seed, step, keys, scale_stride, seed_stride, step_stride, keys_stride)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    _rows(
        row, n, units, logits, mask, weights, losses, gradient, new_weights,
        incoming, incoming_stride, expected, unit, noise, LOSS, G, ROWS, L, V, SINGLE,
    )  # fmt: skip


@triton.jit(do_not_specialize=["n", "repeat"])
def repair_kernel(
    n, repeat, units, logits, mask, weights, gradient, incoming, incoming_stride, expected, unit,
    scale, seed, step, keys, scale_stride, seed_stride, step_stride, keys_stride,
    LOSS: tl.constexpr, G: tl.constexpr, ROWS: tl.constexpr, L: tl.constexpr, V: tl.constexpr,
    SINGLE: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """Writes the gradient of `repeat` times ROWS rows again, unless all got what it was written for."""
    noise = _noise(scale, seed, step, keys, scale_stride, seed_stride, step_stride, keys_stride)
    first = tl.program_id(0) * (ROWS * repeat)
    ahead = tl.arange(0, WINDOW)
    mine = (ahead < ROWS * repeat) & (first + ahead < n)
    arrived = tl.load(incoming + (first + ahead) * incoming_stride, mask=mine, other=expected)
    if tl.max((arrived != expected).to(tl.int32), 0) != 0:
        for i in range(0, repeat):
            _rows(
                first + i * ROWS + tl.arange(0, ROWS), n, units, logits, mask, weights, None, gradient, None,
                incoming, incoming_stride, expected, unit, noise, LOSS, G, ROWS, L, V, SINGLE,
            )  # fmt: skip


#: Rows that one program of `repair_kernel` looks at, and how many such programs are worth having.
WINDOW = 64
ENOUGH_PROGRAMS = 1024


class Plan(NamedTuple):
    """How a program walks over rows of one length; see the top of this file."""

    v: int
    lanes: int
    stripes: int
    rows: int
    warps: int
    single: bool


@cache
def plan(k: int, itemsize: int) -> Plan:
    """Tile and warps for rows of k classes in a type of `itemsize` bytes, as measured on an H200."""
    v = math.gcd(k, 16 // itemsize)
    width = triton.next_power_of_2(k // v)
    stripes = min(width, 16 // v)
    lanes = width // stripes
    if lanes <= 64:
        return Plan(v, lanes, stripes, rows=64 // lanes, warps=2, single=True)
    # Wide programs for wide rows: what a row's second sweep reads should still be in the cache.
    lanes = min(512, max(64, triton.next_power_of_2(k * itemsize // 64 + 1) // 2))
    return Plan(v, lanes, stripes=8 // v, rows=1, warps=lanes // 32, single=False)


def launch(
    loss: str,
    rows: Rows,
    *,
    losses: Tensor | None = None,
    gradient: Tensor | None = None,
    new_weights: Tensor | None = None,
    incoming: Tensor | None = None,
    expected: float = 1.0,
    unit: float = 1.0,
    repair: bool = False,
) -> None:
    """Writes what is not None of losses, gradient and new weights.

    Args:
        loss: "propall", "cc" or "proden".
        rows: with weights for "proden", and with or without noise for "propall".
        losses: (n,) float32.
        gradient: (n, k), the logits' type.
        new_weights: (n, k) float32.
        incoming: (n,) float32, what came back for the rows' losses; `expected` for every row if None.
        expected: what `gradient` is written for.
        unit: rows' gradients are multiplied by `unit` times what came back.
        repair: `gradient` is complete for `expected`; change it where `incoming` differs.
    """
    n, k = rows.logits.shape
    if n == 0 or k == 0:
        return
    if rows.logits.is_cuda and rows.logits.get_device() != torch.cuda.current_device():
        with torch.cuda.device(rows.logits.device):
            return launch(
                loss, rows, losses=losses, gradient=gradient, new_weights=new_weights,
                incoming=incoming, expected=expected, unit=unit, repair=repair,
            )  # fmt: skip
    v, lanes, stripes, tile_rows, warps, single = plan(k, rows.logits.element_size())
    noise = (rows.scale, rows.seed, rows.step, rows.keys)
    inputs = (rows.logits.contiguous(), rows.candidates.contiguous().view(torch.uint8))
    weights = None if rows.weights is None else rows.weights.contiguous()
    stride = None if incoming is None else incoming.stride(0)
    strides = (None,) * 4 if rows.scale is None else tuple(part.stride(0) for part in noise)
    tiles = triton.cdiv(n, tile_rows)
    if repair:
        repeat = max(1, min(WINDOW // tile_rows, tiles // ENOUGH_PROGRAMS))
        repair_kernel[(triton.cdiv(tiles, repeat),)](
            n, repeat, k // v, *inputs, weights, gradient, incoming, stride, expected, unit, *noise, *strides,
            LOSS=loss, G=stripes, ROWS=tile_rows, L=lanes, V=v, SINGLE=single, WINDOW=WINDOW, num_warps=warps,
        )  # fmt: skip
    else:
        candidate_loss_kernel[(tiles,)](
            n, k // v, *inputs, weights, losses, gradient, new_weights, incoming, stride, expected, unit,
            *noise, *strides,
            LOSS=loss, G=stripes, ROWS=tile_rows, L=lanes, V=v, SINGLE=single, num_warps=warps,
        )  # fmt: skip

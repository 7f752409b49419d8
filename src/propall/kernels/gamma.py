# mypy: ignore-errors
"""Gamma draws in one kernel."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

_ELEMENTS = 256
_TURN = tl.constexpr(2 * math.pi)


# The same counters, constants and order as in `propall.counter_rng.words`.


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
def _uniform(a, b, part, counter):
    # The same draw as `propall.counter_rng.uniform(seed, part, counter)` of a float32.
    a, b = _count(a, b, part)
    a, b = _count(a, b, counter)
    return ((_mix(a ^ (b >> 7)) >> 9).to(tl.float32) + 0.5) * 1.1920928955078125e-07


@triton.jit
def _gamma_kernel(n, shape, seed, drawn, power, PROPOSALS: tl.constexpr, ELEMENTS: tl.constexpr):
    element = tl.program_id(0).to(tl.int64) * ELEMENTS + tl.arange(0, ELEMENTS)
    here = element < n
    alpha = tl.load(shape + element, mask=here, other=1.0)
    a, b = _seed_words(tl.load(seed + element, mask=here, other=0))
    zero = a * 0  # counters must have the type of the words
    d = alpha + 2.0 / 3.0
    spread = 1.0 / tl.sqrt(9.0 * d)
    first = zero.to(tl.float32) + 1.0
    accepted = here & (element < 0)
    for proposal in tl.static_range(PROPOSALS):
        radius = _uniform(a, b, zero, zero + proposal)
        angle = _uniform(a, b, zero + 1, zero + proposal)
        accept = _uniform(a, b, zero + 2, zero + proposal)
        normal = tl.sqrt(-2.0 * tl.log(radius)) * tl.cos(_TURN * angle)
        root = 1.0 + normal * spread
        v = root * root * root
        bound = normal * normal / 2.0 + d * (1.0 - v + tl.log(tl.maximum(v, 1.17549435e-38)))
        good = (v > 0.0) & (tl.log(accept) < bound) & ~accepted
        first = tl.where(good, v, first)
        accepted = accepted | good
    tl.store(drawn + element, d * first, mask=here)
    last = _uniform(a, b, zero + 3, zero + PROPOSALS)
    tl.store(power + element, tl.log(last) / alpha, mask=here)


def gamma_draw(shape: Tensor, seed: Tensor, proposals: int) -> tuple[Tensor, Tensor]:
    """Draw the parts of `propall.methods._dirichlet.log_gamma_draw` for float32 parameters a and int64 seeds.

    These are draws of shape a + 1 by rejection, and the logarithms of uniform draws divided by a.
    """
    shape, seed = shape.contiguous(), seed.contiguous()
    drawn, power = torch.empty_like(shape), torch.empty_like(shape)
    n = shape.numel()
    if n:
        _gamma_kernel[(triton.cdiv(n, _ELEMENTS),)](
            n, shape, seed, drawn, power, PROPOSALS=proposals, ELEMENTS=_ELEMENTS, num_warps=4
        )
    return drawn, power

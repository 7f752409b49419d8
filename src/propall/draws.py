"""Random numbers that are a pure function of (seed, purpose, position).

A draw is computed from counters instead of taken from a generator's state. So a run draws the same numbers
whoever it is stacked with, on every device, whatever the batch size and the number of workers, and a
resumed run needs to remember nothing but where it was.
"""

import hashlib
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

_WORD = 0xFFFFFFFF
#: 32 bits in an int64 of torch, or in an unsigned word of numpy, which is quicker on a CPU.
_Word = TypeVar("_Word", Tensor, NDArray[Any])


def seed_for(seed: int, purpose: str) -> int:
    """A 62-bit seed for one purpose ("corruption", "split", "initialisation", "order", "noise") of a run."""
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 2


def _mix(word: _Word) -> _Word:
    # Two multiply-xorshift rounds on 32 bits; both constants are below 2^31, so a product of int64 never
    # overflows and every backend agrees on it.
    word = ((word ^ (word >> 16)) * 0x21F0AAAD) & _WORD
    word = ((word ^ (word >> 15)) * 0x735A2D97) & _WORD
    mixed: _Word = word ^ (word >> 15)
    return mixed


def words(seed: Int[Tensor, "..."] | int, *counters: Int[Tensor, "..."] | int) -> tuple[Tensor, Tensor]:
    """Two 32-bit random words (as int64) for every position of the broadcast counters."""
    device = next((c.device for c in (seed, *counters) if isinstance(c, Tensor)), None)
    state = torch.as_tensor(seed, dtype=torch.int64, device=device)
    a, b = _mix(state & _WORD), _mix((state >> 32) & _WORD ^ 0x5BD1E995)
    for counter in counters:
        a = _mix((a ^ counter) & _WORD)
        b = _mix((b + a + 0x1B873593) & _WORD)
    return _mix(a ^ (b >> 7)), _mix(b ^ (a >> 5))


def uniform(
    seed: Int[Tensor, "..."] | int, *counters: Int[Tensor, "..."] | int, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "..."]:
    """Uniform draws on the open interval (0, 1), never 0 or 1 in `dtype`; 23 bits, or 52 for float64.

    Args:
        seed: whole numbers from `seed_for`; a tensor broadcasts with the counters (one seed per run).
        counters: the position of each draw, such as step, row and class.
        dtype: float32 or float64.
    """
    a, b = words(seed, *counters)
    if dtype == torch.float64:
        return (((a << 20) | (b >> 12)).to(dtype) + 0.5) / 2.0**52
    return ((a >> 9).to(dtype) + 0.5) / 2.0**23


def order(seed: Int[Tensor, "..."] | int, *counters: Int[Tensor, "..."] | int) -> Int[Tensor, "..."]:
    """A random permutation along the last axis of the broadcast counters (equal keys: lower index first)."""
    a, b = words(seed, *counters)
    return ((a << 31) | (b >> 1)).argsort(dim=-1, stable=True)


def digest(*parts: str | Tensor | None) -> str:
    """A short name for these very contents."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, Tensor):
            state.update(f"{tuple(part.shape)}{part.dtype}".encode())
            state.update(part.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        else:
            state.update(repr(part).encode())
    return state.hexdigest()

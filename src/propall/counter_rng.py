"""Random numbers as a pure function of seed, purpose and position.

Draws are computed from counters, not from the state of a generator. A run therefore draws the same numbers on
every device, regardless of the batch size, the number of workers and the runs that share its batch, and a
resumed run needs to know only its position.
"""

import hashlib
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from propall.numerics import is_traced

_WORD = 0xFFFFFFFF
#: Both are below 2^31, so products in int64 never overflow and agree on every backend.
_FIRST, _SECOND = 0x21F0AAAD, 0x735A2D97
_Words: TypeAlias = NDArray[np.uint32]
#: Number of words mixed at once on a CPU, small enough for all operands to stay in a core's cache.
WORDS_AT_ONCE = 1 << 15


def seed_for(seed: int, purpose: str) -> int:
    """Derive a 62-bit seed for one purpose of a run, such as "corruption", "split" or "noise".

    Changing a purpose string changes every number drawn with it.
    """
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 2


def _mix(word: Tensor) -> Tensor:
    # Two multiply-xorshift rounds on a 32-bit word stored in an int64.
    word = ((word ^ (word >> 16)) * _FIRST) & _WORD
    word = ((word ^ (word >> 15)) * _SECOND) & _WORD
    return word ^ (word >> 15)


def words(seed: Int[Tensor, "..."] | int, *counters: Int[Tensor, "..."] | int) -> tuple[Tensor, Tensor]:
    """Draw two 32-bit random words (as int64) for every position of the broadcast counters."""
    if _on_cpu(seed, *counters):
        high, low = _words_on_cpu(seed, *counters)
        return torch.from_numpy(high.astype(np.int64)), torch.from_numpy(low.astype(np.int64))
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
    """Draw uniformly from the open interval (0, 1), with 23 random bits (52 for float64).

    Args:
        seed: seeds from `seed_for`; a tensor broadcasts with the counters (one seed per run).
        counters: the position of each draw, such as step, row and class.
        dtype: float32 or float64.
    """
    if _on_cpu(seed, *counters):
        return _uniform_on_cpu(seed, *counters, dtype=dtype)
    a, b = words(seed, *counters)
    if dtype == torch.float64:
        return (((a << 20) | (b >> 12)).to(dtype) + 0.5) / 2.0**52
    return ((a >> 9).to(dtype) + 0.5) / 2.0**23


def order(seed: Int[Tensor, "..."] | int, *counters: Int[Tensor, "..."] | int) -> Int[Tensor, "..."]:
    """Draw a random permutation along the last axis of the broadcast counters."""
    a, b = words(seed, *counters)
    key = (a << 31) | (b >> 1)
    if _on_cpu(seed, *counters):
        return torch.from_numpy(_argsort(key.numpy()))
    return key.argsort(dim=-1, stable=True)


# On a CPU, unless traced, NumPy mixes unsigned 32-bit words in place: the same bits in a fraction of the time
# of the int64 arithmetic that all devices support.


def _on_cpu(*parts: Tensor | int) -> bool:
    return not is_traced() and all(part.device.type == "cpu" for part in parts if isinstance(part, Tensor))


def _word(numbers: Tensor | int, shift: int = 0) -> _Words:
    array = numbers.numpy() if isinstance(numbers, Tensor) else np.asarray(numbers, dtype=np.int64)
    return np.atleast_1d(array >> shift if shift else array).astype(np.uint32)  # the lowest 32 bits


def _mix_in_place(word: _Words, spare: _Words) -> None:
    np.bitwise_xor(word, np.right_shift(word, 16, out=spare), out=word)
    np.multiply(word, np.uint32(_FIRST), out=word)
    np.bitwise_xor(word, np.right_shift(word, 15, out=spare), out=word)
    np.multiply(word, np.uint32(_SECOND), out=word)
    np.bitwise_xor(word, np.right_shift(word, 15, out=spare), out=word)


def _absorb_counter(
    a: _Words,
    b: _Words,
    counter: _Words,
    out: tuple[_Words | None, _Words | None, _Words | None] = (None, None, None),
) -> tuple[_Words, _Words, _Words]:
    """Mix one more counter into both words; return them and a scratch array, stored in `out` if given."""
    a = np.bitwise_xor(a, counter, out=out[0])
    spare = np.empty_like(a) if out[2] is None else out[2]
    _mix_in_place(a, spare)
    b = np.add(b, a, out=out[1])
    np.add(b, np.uint32(0x1B873593), out=b)
    _mix_in_place(b, spare)
    return a, b, spare


def _finish_first_in_place(a: _Words, b: _Words, spare: _Words) -> None:
    """Apply the final mixing of the first word."""
    np.bitwise_xor(a, np.right_shift(b, 7, out=spare), out=a)
    _mix_in_place(a, spare)


def _state_on_cpu(seed: Tensor | int, *counters: Tensor | int) -> tuple[_Words, _Words, _Words]:
    """Return the two words before their final mixing, and a scratch array of their size."""
    a, b = _word(seed), _word(seed, 32) ^ np.uint32(0x5BD1E995)
    spare = np.empty_like(a)
    _mix_in_place(a, spare)
    _mix_in_place(b, spare)
    for counter in counters:
        a, b, spare = _absorb_counter(a, b, _word(counter))
    return a, b, spare


def _shape(*parts: Tensor | int) -> tuple[int, ...]:
    """Return the shape that seed and counters broadcast to."""
    return np.broadcast_shapes(*(tuple(getattr(part, "shape", ())) for part in parts))


def _words_on_cpu(seed: Tensor | int, *counters: Tensor | int, both: bool = True) -> tuple[_Words, _Words]:
    """Compute `words`; without `both`, the second result is meaningless."""
    a, b, spare = _state_on_cpu(seed, *counters)
    shape = _shape(seed, *counters)
    low = np.bitwise_xor(b, np.right_shift(a, 5)) if both else spare
    _finish_first_in_place(a, b, spare)
    if both:
        _mix_in_place(low, spare)
    return a.reshape(shape), low.reshape(shape)


def _argsort(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Stable argsort along the last axis, twice as fast as NumPy's.

    The position replaces the lowest bits of each key, so sorting values is enough. If the remaining bits of
    two keys are equal, NumPy's argsort is used.
    """
    n = keys.shape[-1] if keys.ndim else 1
    mask = (1 << max(0, n - 1).bit_length()) - 1
    packed = (np.atleast_1d(keys) & ~mask) | np.arange(n)
    packed.sort(axis=-1)
    if ((packed[..., 1:] ^ packed[..., :-1]) <= mask).any():
        return np.argsort(keys, axis=-1, kind="stable")
    return (packed & mask).reshape(keys.shape)


def _uniform_on_cpu(seed: Tensor | int, *counters: Tensor | int, dtype: torch.dtype) -> Tensor:
    if dtype == torch.float64:
        high, low = _words_on_cpu(seed, *counters)
        integers = (high.astype(np.int64) << 20) | (low >> 12)
        return torch.from_numpy(np.asarray(integers + 0.5)).div_(2.0**52)
    values = np.empty(_shape(seed, *counters), dtype=np.float32)
    for rows, high in _first_words_on_cpu(seed, *counters):
        np.right_shift(high, 9, out=high)
        values.reshape(-1, high.shape[-1])[rows] = high
    return torch.from_numpy(values).add_(0.5).mul_(2.0**-23).to(dtype)


def _first_words_on_cpu(seed: Tensor | int, *counters: Tensor | int) -> Iterator[tuple[slice, _Words]]:
    """Yield the first of the two words in blocks of rows, in a buffer that is reused.

    Touching fresh memory for all rows would take longer than the mixing itself.
    """
    *outer, last = counters
    a, b, _ = _state_on_cpu(seed, *outer)
    columns = _word(last)
    if a.shape[-1] != 1 or columns.size != columns.shape[-1]:  # the last counter is not an axis of its own
        yield slice(None), _words_on_cpu(seed, *counters, both=False)[0].reshape(1, -1)
        return
    a, b, columns = a.reshape(-1, 1), b.reshape(-1, 1), columns.reshape(-1)
    at_once = max(1, WORDS_AT_ONCE // max(1, columns.size))
    buffer = np.empty((3, min(at_once, len(a)), columns.size), dtype=np.uint32)
    for start in range(0, len(a), at_once):
        rows = slice(start, min(start + at_once, len(a)))
        high, low, spare = buffer[:, : rows.stop - start]
        _absorb_counter(a[rows], b[rows], columns, out=(high, low, spare))
        _finish_first_in_place(high, low, spare)
        yield rows, high


def digest(*parts: str | Tensor | None) -> str:
    """Hash strings and tensors to a short identifier of their contents."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, Tensor):
            state.update(f"{tuple(part.shape)}{part.dtype}".encode())
            state.update(part.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        else:
            state.update(repr(part).encode())
    return state.hexdigest()

"""Random numbers that are a pure function of (seed, purpose, position).

A draw is computed from counters instead of taken from a generator's state. So a run draws the same numbers
whoever it is stacked with, on every device, whatever the batch size and the number of workers, and a
resumed run needs to remember nothing but where it was.
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
#: Both are below 2^31, so a product of int64 never overflows and every backend agrees on it.
_FIRST, _SECOND = 0x21F0AAAD, 0x735A2D97
_Words: TypeAlias = NDArray[np.uint32]
#: Words that are mixed at once on a CPU: they and what they are mixed with stay in a core's cache.
WORDS_AT_ONCE = 1 << 15


def seed_for(seed: int, purpose: str) -> int:
    """A 62-bit seed for one purpose ("corruption", "split", "initialisation", "order", "noise") of a run."""
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 2


def _mix(word: Tensor) -> Tensor:
    # Two multiply-xorshift rounds on 32 bits, held in an int64.
    word = ((word ^ (word >> 16)) * _FIRST) & _WORD
    word = ((word ^ (word >> 15)) * _SECOND) & _WORD
    return word ^ (word >> 15)


def words(seed: Int[Tensor, "..."] | int, *counters: Int[Tensor, "..."] | int) -> tuple[Tensor, Tensor]:
    """Two 32-bit random words (as int64) for every position of the broadcast counters."""
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
    """Uniform draws on the open interval (0, 1), never 0 or 1 in `dtype`; 23 bits, or 52 for float64.

    Args:
        seed: whole numbers from `seed_for`; a tensor broadcasts with the counters (one seed per run).
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
    """A random permutation along the last axis of the broadcast counters (equal keys: lower index first)."""
    a, b = words(seed, *counters)
    key = (a << 31) | (b >> 1)
    if _on_cpu(seed, *counters):
        return torch.from_numpy(_sorting(key.numpy()))
    return key.argsort(dim=-1, stable=True)


# On a CPU, where nothing is traced, numpy's unsigned words of 32 bits are mixed in place: to the last bit the
# same, and in a fraction of the time of torch's 64 bits, which all devices share.


def _on_cpu(*parts: Tensor | int) -> bool:
    tensors = [part for part in parts if isinstance(part, Tensor)]
    traced = is_traced()
    return not traced and all(part.device.type == "cpu" for part in tensors)


def _word(whole: Tensor | int, shift: int = 0) -> _Words:
    numbers = whole.numpy() if isinstance(whole, Tensor) else np.asarray(whole, dtype=np.int64)
    return np.atleast_1d(numbers >> shift if shift else numbers).astype(np.uint32)  # the lowest 32 bits


def _mix_in_place(word: _Words, spare: _Words) -> None:
    np.bitwise_xor(word, np.right_shift(word, 16, out=spare), out=word)
    np.multiply(word, np.uint32(_FIRST), out=word)
    np.bitwise_xor(word, np.right_shift(word, 15, out=spare), out=word)
    np.multiply(word, np.uint32(_SECOND), out=word)
    np.bitwise_xor(word, np.right_shift(word, 15, out=spare), out=word)


def _counted_on_cpu(
    a: _Words,
    b: _Words,
    counter: _Words,
    out: tuple[_Words | None, _Words | None, _Words | None] = (None, None, None),
) -> tuple[_Words, _Words, _Words]:
    """Both words after one more counter, and memory of their size; written into `out` where that is given."""
    a = np.bitwise_xor(a, counter, out=out[0])
    spare = np.empty_like(a) if out[2] is None else out[2]
    _mix_in_place(a, spare)
    b = np.add(b, a, out=out[1])
    np.add(b, np.uint32(0x1B873593), out=b)
    _mix_in_place(b, spare)
    return a, b, spare


def _finish_first_in_place(a: _Words, b: _Words, spare: _Words) -> None:
    """The last mixing of the first word."""
    np.bitwise_xor(a, np.right_shift(b, 7, out=spare), out=a)
    _mix_in_place(a, spare)


def _state_on_cpu(seed: Tensor | int, *counters: Tensor | int) -> tuple[_Words, _Words, _Words]:
    """The two words before their last mixing, and memory of their size."""
    a, b = _word(seed), _word(seed, 32) ^ np.uint32(0x5BD1E995)
    spare = np.empty_like(a)
    _mix_in_place(a, spare)
    _mix_in_place(b, spare)
    for counter in counters:
        a, b, spare = _counted_on_cpu(a, b, _word(counter))
    return a, b, spare


def _shape(*parts: Tensor | int) -> tuple[int, ...]:
    """What seed and counters broadcast to."""
    return np.broadcast_shapes(*(tuple(getattr(part, "shape", ())) for part in parts))


def _words_on_cpu(seed: Tensor | int, *counters: Tensor | int, both: bool = True) -> tuple[_Words, _Words]:
    """`words`; the second is worth nothing unless `both` are asked for."""
    a, b, spare = _state_on_cpu(seed, *counters)
    shape = _shape(seed, *counters)
    low = np.bitwise_xor(b, np.right_shift(a, 5)) if both else spare
    _finish_first_in_place(a, b, spare)
    if both:
        _mix_in_place(low, spare)
    return a.reshape(shape), low.reshape(shape)


def _sorting(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """A stable `argsort` along the last axis: numbers are sorted twice as quickly as their positions.

    The lowest bits make room for the position, and where the bits that are left do not tell two keys apart,
    they are sorted as they are.
    """
    n = keys.shape[-1] if keys.ndim else 1
    room = (1 << max(0, n - 1).bit_length()) - 1
    packed = (np.atleast_1d(keys) & ~room) | np.arange(n)
    packed.sort(axis=-1)
    if ((packed[..., 1:] ^ packed[..., :-1]) <= room).any():
        return np.argsort(keys, axis=-1, kind="stable")
    return (packed & room).reshape(keys.shape)


def _uniform_on_cpu(seed: Tensor | int, *counters: Tensor | int, dtype: torch.dtype) -> Tensor:
    if dtype == torch.float64:
        high, low = _words_on_cpu(seed, *counters)
        whole = (high.astype(np.int64) << 20) | (low >> 12)
        return torch.from_numpy(np.asarray(whole + 0.5)).div_(2.0**52)
    found = np.empty(_shape(seed, *counters), dtype=np.float32)
    for rows, high in _first_words_on_cpu(seed, *counters):
        np.right_shift(high, 9, out=high)
        found.reshape(-1, high.shape[-1])[rows] = high
    return torch.from_numpy(found).add_(0.5).mul_(2.0**-23).to(dtype)


def _first_words_on_cpu(seed: Tensor | int, *counters: Tensor | int) -> Iterator[tuple[slice, _Words]]:
    """The first of the two words, some rows after the other, in memory that is used again.

    Memory of the size of all rows would be new each time, and to touch it costs more than to mix words.
    """
    *outer, last = counters
    a, b, _ = _state_on_cpu(seed, *outer)
    labels = _word(last)
    if a.shape[-1] != 1 or labels.size != labels.shape[-1]:  # the last counter is no axis of its own
        yield slice(None), _words_on_cpu(seed, *counters, both=False)[0].reshape(1, -1)
        return
    a, b, labels = a.reshape(-1, 1), b.reshape(-1, 1), labels.reshape(-1)
    at_once = max(1, WORDS_AT_ONCE // max(1, labels.size))
    memory = np.empty((3, min(at_once, len(a)), labels.size), dtype=np.uint32)
    for start in range(0, len(a), at_once):
        rows = slice(start, min(start + at_once, len(a)))
        high, low, spare = memory[:, : rows.stop - start]
        _counted_on_cpu(a[rows], b[rows], labels, out=(high, low, spare))
        _finish_first_in_place(high, low, spare)
        yield rows, high


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

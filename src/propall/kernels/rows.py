"""What the operators work on."""

from importlib.util import find_spec
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

#: Whether kernels can be made at all.
HAS_TRITON = find_spec("triton") is not None and torch.version.cuda is not None
#: From so many classes, and numbers, on a kernel pays.
MANY_CLASSES, MANY_NUMBERS = 64, 1 << 22
_KERNEL_TYPES = (torch.float32, torch.bfloat16, torch.float16)


class Rows(NamedTuple):
    """What rows' losses depend on: logits, candidates and weights (n, k), the parts of the noise (n,)."""

    logits: Tensor
    candidates: Tensor
    weights: Tensor | None
    scale: Tensor | None
    seed: Tensor | None
    step: Tensor | None
    keys: Tensor | None


def available(logits: Float[Tensor, "*b k"]) -> bool:
    """Whether the fused losses of these logits run as a kernel; otherwise they fall back to plain PyTorch."""
    return HAS_TRITON and logits.is_cuda and logits.dtype in _KERNEL_TYPES


def pays(logits: Float[Tensor, "*b k"]) -> bool:
    """Whether a loss of these logits is better computed by a kernel than by the plain formula.

    Of few classes a compiler makes as good a kernel, and one that takes in what comes before the loss. Called
    eagerly, a small loss is done before an operator of its own is even launched.
    """
    many_classes = available(logits) and logits.shape[-1] >= MANY_CLASSES
    return many_classes and (torch.compiler.is_compiling() or logits.numel() >= MANY_NUMBERS)


def precision(logits: Tensor) -> torch.dtype:
    """What losses are computed in."""
    return torch.float64 if logits.dtype == torch.float64 else torch.float32

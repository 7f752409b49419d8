"""Where a kernel can run, and where it is worth running."""

from importlib.util import find_spec

import torch
from jaxtyping import Float
from torch import Tensor

#: Whether kernels can be compiled at all.
HAS_TRITON = find_spec("triton") is not None and torch.version.cuda is not None
#: Numbers of classes and of logits from which a kernel pays.
MANY_CLASSES, MANY_LOGITS = 64, 1 << 22
_KERNEL_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def available(logits: Float[Tensor, "*b k"]) -> bool:
    """Whether the fused losses of these logits run as a kernel; otherwise they fall back to PyTorch."""
    return HAS_TRITON and logits.is_cuda and logits.dtype in _KERNEL_DTYPES


def pays(logits: Float[Tensor, "*b k"]) -> bool:
    """Whether a kernel computes the loss of these logits faster than the closed form in PyTorch.

    With few classes a compiler generates an equally good kernel, fused with whatever precedes the loss. In
    eager mode, launching a custom operator takes longer than computing a small loss.
    """
    many_classes = available(logits) and logits.shape[-1] >= MANY_CLASSES
    return many_classes and (torch.compiler.is_compiling() or logits.numel() >= MANY_LOGITS)

"""Where a kernel runs, and autograd for custom operators that also works under `torch.func`."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch._C._functorch import (
    get_single_level_autograd_function_allowed,
    set_single_level_autograd_function_allowed,
)

#: Whether kernels can be compiled at all.
HAS_TRITON = find_spec("triton") is not None and torch.version.cuda is not None
#: Numbers of classes and of logits from which a kernel is faster.
MANY_CLASSES, MANY_LOGITS = 64, 1 << 22
_KERNEL_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def available(logits: Float[Tensor, "*b k"]) -> bool:
    """Whether the fused losses of these logits run as a kernel; otherwise they fall back to PyTorch."""
    return HAS_TRITON and logits.is_cuda and logits.dtype in _KERNEL_DTYPES


def is_faster(logits: Float[Tensor, "*b k"]) -> bool:
    """Whether a kernel computes the loss of these logits faster than the closed form in PyTorch.

    With few classes a compiler generates an equally good kernel, fused with the preceding operations. In
    eager mode, launching a custom operator takes longer than computing a small loss.
    """
    many_classes = available(logits) and logits.shape[-1] >= MANY_CLASSES
    return many_classes and (torch.compiler.is_compiling() or logits.numel() >= MANY_LOGITS)


def below_autograd(operator: Any, keyset: Any, *arguments: Any) -> Any:
    """Redispatch an operator to the keys below autograd."""
    # torch has no public Python names for redispatching.
    with torch._C._AutoDispatchBelowAutograd():  # noqa: SLF001
        return operator.redispatch(keyset & torch._C._after_autograd_keyset, *arguments)  # noqa: SLF001


def differentiable(function: Any, operator: Any) -> Callable[..., Any]:
    """Make an operator's "Autograd" kernel from an autograd function of (key set, *arguments)."""

    # The kernel that `torch.library.register_autograd` makes rejects `torch.func`. A single-level function,
    # called while the dispatcher is at one level's autograd, works under any stack of transforms.
    def kernel(keyset: Any, *arguments: Any) -> Any:
        if not (torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments)):  # noqa: SLF001
            return below_autograd(operator, keyset, *arguments)
        before = get_single_level_autograd_function_allowed()
        set_single_level_autograd_function_allowed(True)
        try:
            return function.apply(keyset, *arguments)
        finally:
            set_single_level_autograd_function_allowed(before)

    return kernel

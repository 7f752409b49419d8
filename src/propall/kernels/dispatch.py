"""Autograd for custom operators that also works under `torch.func`."""

from collections.abc import Callable
from typing import Any

import torch
from torch._C._functorch import (
    get_single_level_autograd_function_allowed,
    set_single_level_autograd_function_allowed,
)


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

"""Triton kernels for a GPU: losses over candidate sets, small convolutions, Gamma draws.

- `operators`, `triton_code`: the fused losses, one pass over the logits; `closed_forms`: the same in PyTorch.
- `convolution`, `convolution_code`: 3x3 convolutions with few channels.
- `gamma`: Gamma draws for VALEN's Dirichlet samples.
- `dispatch`: where a kernel runs, and autograd for custom operators.

`fused_propall` and `fused_cc` compute `propall_loss` and `cc_loss` with the same accuracy, and allocate
nothing of the logits' size except the gradient. They are custom operators, so `torch.compile`, `vmap`,
`torch.func.grad`, CUDA graphs and autocast work. Where no kernel can run (see `available`), the operators
evaluate the closed forms in PyTorch.

Memory traffic decides their speed. In eager mode, the forward pass also writes the gradient, scaled for a
mean over the rows. The backward pass then only checks, on the device, that this is the requested gradient; if
it is not (a sum, weights, a scaled loss), the affected rows are recomputed from the logits into the same
memory, so that a half-precision gradient is never rescaled. A mean thus costs one read of logits and
candidates and one write of the gradient: 9 bytes per float32 logit. Computing the gradient in the backward
pass would take 14. `torch.compile` and `torch.func` do that, because their graphs must not write to memory
that they have handed out.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from propall.kernels.closed_forms import propall_losses, propall_losses_and_gradients
from propall.kernels.dispatch import available, is_faster
from propall.kernels.operators import candidate_loss, candidate_loss_with_gradient
from propall.numerics import is_traced

__all__ = [
    "available",
    "fused_cc",
    "fused_propall",
    "is_faster",
    "propall_losses",
    "propall_losses_and_gradients",
]

Reduction = Literal["none", "mean"]


def fused_propall(
    logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"], *, reduction: Reduction = "none"
) -> Float[Tensor, "..."]:
    """`propall_loss` (exact mode) in one pass.

    Args:
        logits: scores r; float32, bfloat16 or float16, computed in float32.
        candidates: True on S; every row holds at least one True.
        reduction: "none" for one loss per row; "mean", which has the fastest backward pass.

    References:
        [struski2022propall], Eq. 4.
    """
    return _fused("propall", logits, candidates, reduction)


def fused_cc(
    logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"], *, reduction: Reduction = "none"
) -> Float[Tensor, "..."]:
    """`cc_loss` in one pass, see [feng2020provably]; arguments as for `fused_propall`."""
    return _fused("cc", logits, candidates, reduction)


def _fused(loss: str, logits: Tensor, candidates: Tensor, reduction: str) -> Tensor:
    if logits.dim() != 2:
        k = logits.shape[-1]
        value = _fused(loss, logits.reshape(-1, k), candidates.reshape(-1, k), reduction)
        return value if reduction == "mean" else value.reshape(logits.shape[:-1])
    # A graph that is traced or transformed leaves the gradient to the backward pass; see above.
    eager = not is_traced() and not is_in_torch_dispatch_mode() and type(logits) in _PLAIN_TENSORS
    if eager and torch.is_grad_enabled() and logits.requires_grad and logits.numel() and available(logits):
        return candidate_loss_with_gradient(logits, candidates, loss, reduction == "mean")
    losses = candidate_loss(logits, candidates, loss)
    return losses.mean() if reduction == "mean" else losses


#: A subclass, such as a distributed tensor, may not have memory that a kernel can be pointed at.
_PLAIN_TENSORS = (Tensor, torch.nn.Parameter)

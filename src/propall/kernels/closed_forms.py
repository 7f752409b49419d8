"""Closed forms in PyTorch of the losses that have a kernel, with their gradients written out."""

import math
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import softplus

from propall.numerics import full_precision, is_traced, log1mexp, negative_log_mass, restricted_softmax

#: Below this logit, softplus equals the exponential to every digit of float64.
FAR = -50.0
FAR_TOTAL = math.exp(FAR)
#: Larger than any logit, small enough to be added to one.
HUGE = 1e30


def propall_losses(logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    """ProPaLL's exact loss of every row, differentiable to any order; see `propall_loss` for the formula."""
    logits = full_precision(logits)
    if is_traced():  # compilers and `torch.func` differentiate the operations themselves
        return _propall(logits, candidates)[0]
    losses: Tensor = _ClosedForm.apply(logits, candidates)  # type: ignore[no-untyped-call]
    return losses


def propall_losses_and_gradients(
    logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]
) -> tuple[Float[Tensor, "*b"], Float[Tensor, "*b k"]]:
    """ProPaLL's exact loss of every row and its gradient; for logits that do not require grad."""
    losses, terms = _propall(full_precision(logits), candidates)
    return losses, _propall_gradients(*terms)


def cc_losses_and_gradients(
    logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]
) -> tuple[Float[Tensor, "*b"], Float[Tensor, "*b k"]]:
    """CC's loss of every row and its gradient; for logits that do not require grad."""
    logits = full_precision(logits)
    losses = negative_log_mass(logits, candidates)
    mass_outside = -torch.expm1(-losses).unsqueeze(-1)
    inside = restricted_softmax(logits, candidates) * mass_outside
    return losses, torch.where(candidates, -inside, logits.softmax(-1))


def _propall(logits: Tensor, candidates: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Return the losses, and the terms that `_propall_gradients` takes."""
    inside = candidates.to(logits.dtype)
    moved, shift = logits, None
    on_cpu = logits.device.type == "cpu" and not is_traced()
    if on_cpu:
        total, outside = _sums(logits, candidates, inside, finite=True)
    # Rarely needed, but only a CPU can tell without waiting for the device.
    if not on_cpu or not _is_moderate(total):
        moved, shift = _within_range(logits, inside)
        total, outside = _sums(moved, candidates, inside, finite=False)
    losses = outside - log1mexp(total)
    return losses if shift is None else losses - shift, (moved, inside, total)


def _propall_gradients(logits: Tensor, inside: Tensor, total: Tensor) -> Tensor:
    """Gradient p outside the set and -p / (exp(total) - 1) inside."""
    p = logits.sigmoid()
    odds = torch.expm1(total).reciprocal_()  # of no candidate firing
    return torch.lerp(p, (p * odds.unsqueeze(-1)).neg_(), inside)  # lerp is exact at 0 and 1


def _sums(logits: Tensor, candidates: Tensor, inside: Tensor, *, finite: bool) -> tuple[Tensor, Tensor]:
    """Sum -log(1 - p) over the candidates and over the other labels."""
    miss = softplus(logits, threshold=40)  # the default threshold of 20 loses digits in float64
    if finite:  # a CPU multiplies much faster than it masks, but 0 times infinity is NaN
        miss_inside = miss * inside
        return miss_inside.sum(-1), miss.sub_(miss_inside).sum(-1)
    return miss.masked_fill(~candidates, 0).sum(-1), miss.masked_fill(candidates, 0).sum(-1)


def _is_moderate(totals: Tensor) -> bool:
    if not totals.numel():
        return True
    least, most = totals.aminmax()
    return least.item() >= FAR_TOTAL and most.item() < math.inf


def _within_range(logits: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
    """Raise the candidates' logits in rows where all of them are below `FAR` and their odds would vanish.

    Down there log(1 - prod(1 - p)) equals the logsumexp to every digit, which shifts with its arguments.
    Also return the shift (at most 0) of the candidates in each row.
    """
    top = torch.sub(logits.detach(), 1 - inside, alpha=HUGE).amax(-1, keepdim=True)
    shift = (top - FAR).clamp(-HUGE, 0)
    return torch.addcmul(logits, shift, inside, value=-1), shift.squeeze(-1)


class _ClosedForm(torch.autograd.Function):
    """`_propall` with its gradient written out: a third of the operations that autograd would run."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, candidates: Tensor) -> Tensor:
        losses, terms = _propall(logits, candidates)
        ctx.save_for_backward(logits, candidates, *terms)
        ctx.save_for_forward(logits, candidates, *terms)
        return losses

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor, None]:
        logits, candidates, *terms = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            losses, _ = _propall(logits, candidates)
            return torch.autograd.grad(losses, logits, incoming, create_graph=True)[0], None
        return _propall_gradients(*terms).mul_(incoming.unsqueeze(-1)), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        return (_propall_gradients(*ctx.saved_tensors[2:]) * tangent).sum(-1)

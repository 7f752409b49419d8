"""The custom operators behind the fused losses: registration, gradient, `vmap`."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import _SingleLevelFunction

from propall.kernels.closed_forms import cc_losses_and_gradients, propall_losses_and_gradients
from propall.kernels.dispatch import available, below_autograd, differentiable

_library = torch.library.Library("propall", "FRAGMENT")
_library.define("candidate_loss(Tensor logits, Tensor candidates, str loss) -> Tensor")
_library.define("candidate_gradient(Tensor logits, Tensor candidates, str loss, Tensor incoming) -> Tensor")

_CLOSED_FORMS = {"propall": propall_losses_and_gradients, "cc": cc_losses_and_gradients}


def candidate_loss(logits: Tensor, candidates: Tensor, loss: str) -> Tensor:
    """Loss ("propall" or "cc") of every row; the backward pass computes the gradient from the logits."""
    losses: Tensor = torch.ops.propall.candidate_loss(logits, candidates, loss)
    return losses


def candidate_loss_with_gradient(logits: Tensor, candidates: Tensor, loss: str, mean: bool) -> Tensor:
    """As `candidate_loss`, with the gradient of the mean written in the same pass.

    For eager code on a GPU, and logits that are not empty: the backward pass overwrites that gradient where
    it was not for the mean. With `mean`, the result is the mean itself, which saves two small kernels.
    """
    value: Tensor = _LossWithGradient.apply(logits, candidates, loss, mean)  # type: ignore[no-untyped-call]
    return value


class _LossWithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, candidates: Tensor, loss: str, mean: bool) -> Tensor:
        from propall.kernels.triton_code import parts_of_mean, sum_parts, write_losses

        n = logits.shape[0]
        gradient = _empty_gradient(logits)
        size = parts_of_mean(logits) if mean else n
        losses = torch.empty(size, dtype=torch.float32, device=logits.device)
        write_losses(loss, logits, candidates, losses, gradient, factor=1 / n, mean=mean)
        ctx.save_for_backward(logits, candidates)
        ctx.loss, ctx.mean, ctx.gradient = loss, mean, gradient
        return sum_parts(losses) if mean else losses

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor, None, None, None]:
        from propall.kernels.triton_code import write_gradient

        logits, candidates = ctx.saved_tensors
        expected, unit = (1.0, 1 / len(logits)) if ctx.mean else (1 / len(logits), 1.0)
        # The gradient is handed to the caller and forgotten here, so that a second backward pass cannot
        # write into what the first one gave away.
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None or torch.is_grad_enabled():
            factors = incoming.expand(len(logits)) * unit
            gradient = torch.ops.propall.candidate_gradient(logits, candidates, ctx.loss, factors)
        else:
            write_gradient(ctx.loss, logits, candidates, gradient, incoming, expected=expected, unit=unit)
        return gradient, None, None, None


def _candidate_loss(logits: Tensor, candidates: Tensor, loss: str) -> Tensor:
    if not available(logits):
        return _CLOSED_FORMS[loss](logits, candidates)[0]
    from propall.kernels.triton_code import write_losses

    losses = _empty_losses(logits)
    write_losses(loss, logits, candidates, losses)
    return losses


def _candidate_gradient(logits: Tensor, candidates: Tensor, loss: str, incoming: Tensor) -> Tensor:
    gradient = _empty_gradient(logits)
    if not available(logits):
        return gradient.copy_(_CLOSED_FORMS[loss](logits, candidates)[1] * incoming.unsqueeze(-1))
    from propall.kernels.triton_code import write_gradient

    write_gradient(loss, logits, candidates, gradient, incoming)
    return gradient


def _empty_losses(logits: Tensor, *_: Any) -> Tensor:
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    return logits.new_empty(logits.shape[0], dtype=dtype)


def _empty_gradient(logits: Tensor, *_: Any) -> Tensor:
    return logits.new_empty(logits.shape)


def _map_rows(operator: Any) -> Any:
    """A `vmap` rule that treats stacked rows as more rows: they are independent."""

    def rule(info: Any, in_dims: Sequence[int | None], *arguments: Any) -> tuple[Tensor, int]:
        def fold(argument: Any, dim: int | None) -> Any:
            if not isinstance(argument, Tensor):
                return argument
            size = (info.batch_size, *argument.shape)
            return (argument.expand(size) if dim is None else argument.movedim(dim, 0)).flatten(0, 1)

        rows: Tensor = operator(*map(fold, arguments, in_dims))
        return rows.reshape(info.batch_size, rows.shape[0] // info.batch_size, *rows.shape[1:]), 0

    return rule


class _Loss(_SingleLevelFunction):
    @staticmethod
    def forward(ctx: Any, keyset: Any, logits: Tensor, candidates: Tensor, loss: str) -> Any:
        ctx.save_for_backward(logits, candidates)
        ctx.loss = loss
        with torch.enable_grad():
            return below_autograd(torch.ops.propall.candidate_loss.default, keyset, logits, candidates, loss)

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:
        gradient = torch.ops.propall.candidate_gradient(*ctx.saved_tensors, ctx.loss, incoming)
        return None, gradient, None, None


class _Gradient(_SingleLevelFunction):
    @staticmethod
    def forward(ctx: Any, keyset: Any, *arguments: Any) -> Any:
        with torch.enable_grad():
            return below_autograd(torch.ops.propall.candidate_gradient.default, keyset, *arguments)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(
            "fused losses: differentiated twice, but kernels have first derivatives only. "
            "Pass float64 logits, whose loss has derivatives of every order."
        )


for _name, _compute, _fake, _function in (
    ("candidate_loss", _candidate_loss, _empty_losses, _Loss),
    ("candidate_gradient", _candidate_gradient, _empty_gradient, _Gradient),
):
    _operator = getattr(torch.ops.propall, _name).default
    _library.impl(_name, _compute, "CompositeExplicitAutograd")
    _library.impl(_name, differentiable(_function, _operator), "Autograd", with_keyset=True)
    torch.library.register_fake(f"propall::{_name}", _fake, lib=_library)
    torch.library.register_vmap(f"propall::{_name}", _map_rows(_operator), lib=_library)

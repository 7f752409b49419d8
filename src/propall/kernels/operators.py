"""The custom operators behind the fused losses: registration, gradient, `vmap`."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import (
    get_single_level_autograd_function_allowed,
    set_single_level_autograd_function_allowed,
)
from torch.autograd.function import _SingleLevelFunction

from propall.kernels.plain import losses_and_slopes
from propall.kernels.rows import Rows, available, precision

_library = torch.library.Library("propall", "FRAGMENT")
_ROWS = (
    "Tensor logits, Tensor candidates, Tensor? weights, "
    "Tensor? scale, Tensor? seed, Tensor? step, Tensor? keys"
)
_library.define(f"candidate_loss({_ROWS}, str loss, float expected, bool keep) -> (Tensor, Tensor, Tensor)")
_library.define(f"candidate_gradient({_ROWS}, str loss, Tensor incoming) -> Tensor")
_FACTORS = "Tensor incoming, float expected, float unit"
_library.define(f"repair_gradient_({_ROWS}, str loss, {_FACTORS}, Tensor(a!) gradient) -> ()")
_IN_ROWS = len(Rows._fields)


def candidate_loss(rows: Rows, loss: str) -> tuple[Tensor, Tensor]:
    """Losses of rows, differentiable in the logits, and new weights; the backward pass computes the gradient.

    Args:
        rows: with weights for "proden", with or without noise for "propall".
        loss: "propall", "cc" or "proden".

    Returns:
        Losses (n,), and the new weights (n, k) for "proden", otherwise an empty tensor.
    """
    losses, _, new_weights = torch.ops.propall.candidate_loss(*rows, loss, 1.0, False)
    return losses, new_weights


def candidate_loss_ahead(rows: Rows, loss: str, mean: bool) -> tuple[Tensor, Tensor]:
    """As `candidate_loss`, with the gradient computed in the same pass, for a mean over the rows.

    For eager code: the backward pass writes into the memory of that gradient if something else came of it.

    Args:
        rows: as in `candidate_loss`.
        loss: as in `candidate_loss`.
        mean: whether to return the mean itself. Differentiating it takes one small kernel less.
    """
    return _Ahead.apply(*rows, loss, mean)  # type: ignore[no-any-return, no-untyped-call]


def _candidate_loss(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    rows, (loss, expected, keep) = Rows(*arguments[:_IN_ROWS]), arguments[_IN_ROWS:]
    losses, gradient, new_weights = _empty_outputs(*arguments)
    if available(rows.logits):
        from propall.kernels.triton_code import launch

        kept, updated = gradient if keep else None, None if rows.weights is None else new_weights
        launch(loss, rows, losses=losses, gradient=kept, new_weights=updated, expected=expected)
        return losses, gradient, new_weights
    plain, slope, share = losses_and_slopes(loss, rows)
    if keep:
        gradient.copy_(slope * expected)
    if rows.weights is not None:
        new_weights.copy_(share)
    return losses.copy_(plain), gradient, new_weights


def _empty_outputs(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    rows, keep = Rows(*arguments[:_IN_ROWS]), arguments[-1]
    logits, wide = rows.logits, precision(rows.logits)
    return (
        logits.new_empty(logits.shape[0], dtype=wide),
        logits.new_empty(logits.shape if keep else (0,)),
        logits.new_empty((0,) if rows.weights is None else logits.shape, dtype=wide),
    )


def _candidate_gradient(*arguments: Any) -> Tensor:
    rows, (loss, incoming) = Rows(*arguments[:_IN_ROWS]), arguments[_IN_ROWS:]
    gradient = _empty_gradient(*arguments)
    if available(rows.logits):
        from propall.kernels.triton_code import launch

        launch(loss, rows, gradient=gradient, incoming=incoming)
        return gradient
    return gradient.copy_(losses_and_slopes(loss, rows)[1] * incoming.unsqueeze(-1))


def _empty_gradient(*arguments: Any) -> Tensor:
    logits = Rows(*arguments[:_IN_ROWS]).logits
    return logits.new_empty(logits.shape)


def _repair_gradient(*arguments: Any) -> None:
    rows, (loss, incoming, expected, unit, gradient) = Rows(*arguments[:_IN_ROWS]), arguments[_IN_ROWS:]
    if available(rows.logits):
        from propall.kernels.triton_code import launch

        factors = {"incoming": incoming, "expected": expected, "unit": unit}
        launch(loss, rows, gradient=gradient, repair=True, **factors)
    else:
        gradient.copy_(losses_and_slopes(loss, rows)[1] * (incoming * unit).unsqueeze(-1))


def _folded(batch: int, in_dims: Sequence[int | None], arguments: Sequence[Any]) -> list[Any]:
    """Under `vmap` stacked rows become more rows: they are independent."""

    def fold(argument: Any, dim: int | None) -> Any:
        if not isinstance(argument, Tensor):
            return argument
        stacked = argument.expand(batch, *argument.shape) if dim is None else argument.movedim(dim, 0)
        return stacked.flatten(0, 1)

    return [fold(argument, dim) for argument, dim in zip(arguments, in_dims, strict=True)]


def _unfolded(batch: int, rows: Tensor) -> Tensor:
    return rows.reshape(batch, rows.shape[0] // batch, *rows.shape[1:])


def _candidate_loss_of_many(info: Any, in_dims: Sequence[int | None], *arguments: Any) -> Any:
    batch, keep, weighted = info.batch_size, arguments[-1], arguments[2] is not None
    outputs = torch.ops.propall.candidate_loss(*_folded(batch, in_dims, arguments))
    # An output that was not asked for is empty: it has no rows to unfold.
    dims = (0, 0 if keep else None, 0 if weighted else None)
    unfolded = (out if dim is None else _unfolded(batch, out) for out, dim in zip(outputs, dims, strict=True))
    return tuple(unfolded), dims


def _candidate_gradient_of_many(info: Any, in_dims: Sequence[int | None], *arguments: Any) -> Any:
    gradient = torch.ops.propall.candidate_gradient(*_folded(info.batch_size, in_dims, arguments))
    return _unfolded(info.batch_size, gradient), 0


def below_autograd(operator: Any, keyset: Any, *arguments: Any) -> Any:
    """What an operator gives once its autograd has been seen to; what lies below it is still to come."""
    with torch._C._AutoDispatchBelowAutograd():
        return operator.redispatch(keyset & torch._C._after_autograd_keyset, *arguments)


class _Loss(_SingleLevelFunction):
    @staticmethod
    def forward(ctx: Any, keyset: Any, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        with torch.enable_grad():
            losses, gradient, new_weights = below_autograd(
                torch.ops.propall.candidate_loss.default, keyset, *arguments
            )
        ctx.save_for_backward(*arguments[:_IN_ROWS])
        ctx.loss = arguments[_IN_ROWS]
        ctx.mark_non_differentiable(gradient, new_weights)
        ctx.set_materialize_grads(False)
        return losses, gradient, new_weights

    @staticmethod
    def backward(ctx: Any, incoming: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        gradient = None
        if incoming is not None:
            rows = ctx.saved_tensors
            gradient = torch.ops.propall.candidate_gradient(*rows, ctx.loss, incoming.to(precision(rows[0])))
        return None, gradient, *(None,) * 9


class _Ahead(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor]:
        rows, (loss, mean) = arguments[:_IN_ROWS], arguments[_IN_ROWS:]
        share = 1 / max(1, rows[0].shape[0])
        with torch._C._AutoDispatchBelowAutograd():
            losses, gradient, new_weights = torch.ops.propall.candidate_loss(*rows, loss, share, True)
        ctx.save_for_backward(*rows)
        ctx.loss, ctx.gradient = loss, gradient
        ctx.expected, ctx.unit = (1.0, share) if mean else (share, 1.0)
        ctx.mark_non_differentiable(new_weights)
        ctx.set_materialize_grads(False)
        return losses.mean() if mean else losses, new_weights

    @staticmethod
    def backward(ctx: Any, incoming: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        nothing = (None,) * 8
        if incoming is None:
            return None, *nothing
        rows = ctx.saved_tensors
        incoming = incoming.to(precision(rows[0])).expand(rows[0].shape[0])
        # The gradient goes to the caller and is forgotten here, so a second backward pass finds none and
        # cannot write into what the first one gave away.
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None or torch.is_grad_enabled():
            gradient = torch.ops.propall.candidate_gradient(*rows, ctx.loss, incoming * ctx.unit)
        else:
            torch.ops.propall.repair_gradient_(*rows, ctx.loss, incoming, ctx.expected, ctx.unit, gradient)
        return gradient, *nothing


class _Gradient(_SingleLevelFunction):
    @staticmethod
    def forward(ctx: Any, keyset: Any, *arguments: Any) -> Tensor:
        with torch.enable_grad():
            return below_autograd(torch.ops.propall.candidate_gradient.default, keyset, *arguments)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(
            "fused losses: differentiated twice, but they have first derivatives only. "
            "Use propall_loss, cc_loss or proden_loss, which have all."
        )


def differentiable(function: Any, operator: Any) -> Callable[..., Any]:
    """What an operator does at its "Autograd" key, for an autograd function of (key set, its arguments)."""

    # What `torch.library.register_autograd` makes refuses `torch.func`. A single-level function, called where
    # the dispatcher stands at one level's autograd, works under every stack of transforms.
    def kernel(keyset: Any, *arguments: Any) -> Any:
        if not (torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments)):
            return below_autograd(operator, keyset, *arguments)
        before = get_single_level_autograd_function_allowed()
        set_single_level_autograd_function_allowed(True)
        try:
            return function.apply(keyset, *arguments)
        finally:
            set_single_level_autograd_function_allowed(before)

    return kernel


_library.impl("candidate_loss", _candidate_loss, "CompositeExplicitAutograd")
_library.impl("candidate_gradient", _candidate_gradient, "CompositeExplicitAutograd")
_library.impl("repair_gradient_", _repair_gradient, "CompositeExplicitAutograd")
_library.impl(
    "candidate_loss",
    differentiable(_Loss, torch.ops.propall.candidate_loss.default),
    "Autograd",
    with_keyset=True,
)
_library.impl(
    "candidate_gradient",
    differentiable(_Gradient, torch.ops.propall.candidate_gradient.default),
    "Autograd",
    with_keyset=True,
)
torch.library.register_fake("propall::candidate_loss", _empty_outputs, lib=_library)
torch.library.register_fake("propall::candidate_gradient", _empty_gradient, lib=_library)
torch.library.register_fake("propall::repair_gradient_", lambda *_: None, lib=_library)
torch.library.register_vmap("propall::candidate_loss", _candidate_loss_of_many, lib=_library)
torch.library.register_vmap("propall::candidate_gradient", _candidate_gradient_of_many, lib=_library)

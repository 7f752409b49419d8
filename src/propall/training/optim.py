"""SGD and Adam on dicts of stacked tensors, in place, with one learning rate per run."""

import math
from collections.abc import Mapping
from types import MappingProxyType

import torch
from jaxtyping import Float
from torch import Tensor

from propall.numerics import is_traced
from propall.training.recipe import Recipe

Tensors = dict[str, Tensor]

ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-8


def start(recipe: Recipe, parameters: Tensors) -> dict[str, Tensors]:
    """Moments before the first step: zeros."""
    names = ("first", "second") if recipe.optimizer == "adam" else ("first",)
    return {name: {key: torch.zeros_like(p) for key, p in parameters.items()} for name in names}


def advance(
    recipe: Recipe,
    parameters: Tensors,
    gradients: Tensors,
    moments: dict[str, Tensors],
    *,
    rate: Float[Tensor, "r"],
    weight_decay: Float[Tensor, "r"] | None,
    steps: Tensor,
    factors: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """One step of the recipe's optimizer, in place; agrees with `torch.optim.SGD` and `torch.optim.Adam`.

    Args:
        recipe: selects the optimizer and its momentum.
        parameters: stacked over runs on the first axis, or those of one run without it.
        gradients: of each run's loss, shaped like the parameters.
        moments: from `start`; updated.
        rate: learning rate of each run.
        weight_decay: of each run; None: no run has any.
        steps: steps taken before this one, 0-d.
        factors: factor on the learning rate of some parameters; their weight decay is divided by it.
    """
    if not parameters:
        return
    shared_rates = None if factors else common(rate, weight_decay)
    if shared_rates is not None:
        advance_fused(recipe, parameters, gradients, moments, *shared_rates, steps)
        return
    first, second = moments["first"], moments.get("second", {})
    beta1, beta2 = ADAM_BETAS
    if recipe.optimizer == "adam":
        taken = (steps + 1).to(rate.dtype)
        # 1 - beta^t without cancellation: float32 would lose half of its digits in the first steps.
        rate = rate / -torch.expm1(taken * math.log(beta1))
        correction = -torch.expm1(taken * math.log(beta2))
    for key, p in parameters.items():
        per_run = (-1, *[1] * (p.dim() - 1)) if p.dim() else ()
        gradient, m, factor = gradients[key], first[key], factors.get(key, 1.0)
        if weight_decay is not None:
            gradient = torch.addcmul(gradient, p, weight_decay.view(per_run), value=1 / factor)
        if recipe.optimizer == "sgd":
            m.mul_(recipe.momentum).add_(gradient)
            moved = torch.add(gradient, m, alpha=recipe.momentum) if recipe.nesterov else m
            p.addcmul_(moved, rate.view(per_run), value=-factor)
        else:
            v = second[key]
            m.lerp_(gradient, 1 - beta1)
            v.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            denominator = (v / correction).sqrt_().add_(ADAM_EPSILON)
            p.addcdiv_(m * rate.view(per_run), denominator, value=-factor)


def common(rate: Float[Tensor, "r"], weight_decay: Float[Tensor, "r"] | None) -> tuple[float, float] | None:
    """Return learning rate and weight decay as floats if all runs share them.

    None otherwise, or if reading them would wait for a device.
    """
    if is_traced() or rate.device.type != "cpu":
        return None
    rates, decays = set(rate.tolist()), {0.0} if weight_decay is None else set(weight_decay.tolist())
    return (rates.pop(), decays.pop()) if len(rates) == len(decays) == 1 else None


def advance_fused(
    recipe: Recipe,
    parameters: Tensors,
    gradients: Tensors,
    moments: dict[str, Tensors],
    rate: float,
    weight_decay: float,
    steps: Tensor,
) -> None:
    """The same step with the kernels of `torch.optim`'s `fused=True`: one call, one pass over memory."""
    tensors, first = list(parameters.values()), [moments["first"][key] for key in parameters]
    # The kernels expect contiguous memory.
    dense = [gradients[key].contiguous() for key in parameters]
    if recipe.optimizer == "sgd":
        torch._fused_sgd_(
            tensors,
            dense,
            first if recipe.momentum else [],  # without momentum the kernel accepts no buffers
            lr=rate,
            weight_decay=weight_decay,
            momentum=recipe.momentum,
            dampening=0.0,
            nesterov=recipe.nesterov,
            maximize=False,
            is_first_step=False,
        )
        return
    torch._fused_adam_(
        tensors,
        dense,
        first,
        [moments["second"][key] for key in parameters],
        [],
        [torch.scalar_tensor(int(steps) + 1.0)] * len(tensors),
        lr=rate,
        beta1=ADAM_BETAS[0],
        beta2=ADAM_BETAS[1],
        weight_decay=weight_decay,
        eps=ADAM_EPSILON,
        amsgrad=False,
        maximize=False,
    )

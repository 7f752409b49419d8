"""SGD and Adam as pure functions on dicts of stacked tensors, one learning rate per run."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from propall.training.recipe import Recipe

Tensors = dict[str, Tensor]

ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-8


def start(recipe: Recipe, parameters: Tensors) -> dict[str, Tensors]:
    """Moments before the first step: all zero."""
    names = ("first", "second") if recipe.optimizer == "adam" else ("first",)
    return {name: {key: torch.zeros_like(p) for key, p in parameters.items()} for name in names}


def advance(
    recipe: Recipe,
    parameters: Tensors,
    gradients: Tensors,
    moments: dict[str, Tensors],
    *,
    rate: Float[Tensor, "r"],
    weight_decay: Float[Tensor, "r"],
    steps: Tensor,
) -> tuple[Tensors, dict[str, Tensors]]:
    """One step of the recipe's optimiser; agrees with `torch.optim.SGD` and `torch.optim.Adam`.

    Args:
        recipe: which optimiser, and its momentum.
        parameters: stacked over runs on the first axis.
        gradients: of the sum over runs, so each run's own on its slice.
        moments: from `start` or the step before.
        rate: learning rate of each run.
        weight_decay: of each run.
        steps: steps taken before this one, 0-d.
    """
    first, second = moments["first"], moments.get("second", {})
    new_parameters: Tensors = {}
    new_moments: dict[str, Tensors] = {name: {} for name in moments}
    beta1, beta2 = ADAM_BETAS
    if recipe.optimizer == "adam":
        taken = (steps + 1).to(rate.dtype)
        # 1 - beta^t without cancellation: float32 would lose half its digits in the first steps.
        corrected_rate = rate / -torch.expm1(taken * math.log(beta1))
        correction = -torch.expm1(taken * math.log(beta2))
    for key, p in parameters.items():
        per_run = (-1, *[1] * (p.dim() - 1))
        gradient = gradients[key] + weight_decay.view(per_run) * p
        if recipe.optimizer == "sgd":
            m = recipe.momentum * first[key] + gradient
            new_parameters[key] = p - rate.view(per_run) * m
        else:
            m = beta1 * first[key] + (1 - beta1) * gradient
            v = beta2 * second[key] + (1 - beta2) * gradient * gradient
            denominator = (v / correction).sqrt() + ADAM_EPSILON
            new_parameters[key] = p - corrected_rate.view(per_run) * m / denominator
            new_moments["second"][key] = v
        new_moments["first"][key] = m
    return new_parameters, new_moments

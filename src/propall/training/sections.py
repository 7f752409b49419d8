"""The runs of a stack that share an objective class, evaluated together along the run axis."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeGuard

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import grad_and_value, vmap

from propall.numerics import is_traced
from propall.training.contract import (
    Objective,
    RowwiseObjective,
    State,
    Step,
    total_weight,
    weighted_mean,
)
from propall.training.optim import Tensors


def objective_kind(objective: Objective) -> str:
    """Class and non-float fields of an objective; runs of one kind form one section."""
    values = objective.hyperparameters().items()
    fixed = sorted((name, value) for name, value in values if not isinstance(value, float))
    return f"{type(objective).__module__}.{type(objective).__qualname__}{fixed}"


def is_rowwise(objective: Objective) -> TypeGuard[RowwiseObjective]:
    """Whether the loss is the plain (weighted) mean of `losses`."""
    return type(objective).loss is RowwiseObjective.loss


def mean_gradients(gradients: Tensor, weight: Tensor | None) -> Tensor:
    """Gradients of the rows' losses, scaled to the gradient of their (weighted) mean."""
    if weight is None:
        return gradients / gradients.shape[-2]
    return gradients * (weight / total_weight(weight).unsqueeze(-1)).unsqueeze(-1)


class Section:
    """Runs of a stack with objectives of one kind: a slice, and the numbers in which they differ.

    Args:
        runs: positions in the stack.
        objectives: one per run, all of one kind.
        like: has the dtype and device of the numbers that differ.
    """

    def __init__(self, runs: slice, objectives: Sequence[Objective], like: Tensor) -> None:
        self.runs = runs
        self.objectives = objectives
        self.objective = objectives[0]
        self.varied: Tensors = {}
        for name in self.objective.hyperparameters():
            values = [getattr(objective, name) for objective in objectives]
            if isinstance(values[0], float) and len(set(values)) > 1:
                self.varied[name] = torch.tensor(values, dtype=like.dtype, device=like.device)

    @classmethod
    def split(cls, objectives: Sequence[Objective], like: Tensor) -> "list[Section]":
        """The sections of runs with these objectives; runs of one kind are neighbors."""
        sections, start = [], 0
        for end in range(1, len(objectives) + 1):
            if end == len(objectives) or objective_kind(objectives[end]) != objective_kind(objectives[start]):
                sections.append(cls(slice(start, end), objectives[start:end], like))
                start = end
        return sections

    def losses(self, logits: Tensor, candidates: Tensor, state: State, step: Step) -> Float[Tensor, "r"]:
        """Loss of every run; `step.uniform` and `step.weight` are stacked, the time is shared."""
        if is_rowwise(self.objective) and self._rows_are_independent(state):
            losses = self.objective.losses(*_as_one_batch(logits, candidates, state, step))
            return weighted_mean(losses.view(logits.shape[:2]), step.weight)
        return self._per_run(Objective.loss.__name__, logits, candidates, state, step)  # type: ignore[no-any-return]

    def losses_and_gradients(
        self, logits: Tensor, candidates: Tensor, state: State, step: Step
    ) -> tuple[Float[Tensor, "r"], Float[Tensor, "r b k"], Tensors]:
        """Loss of every run, and its gradients in the logits and in `state.trained`."""
        if is_rowwise(self.objective) and self._rows_are_independent(state):
            one_batch = _as_one_batch(logits, candidates, state, step)
            losses, gradients = self.objective.losses_and_gradients(*one_batch)
            losses = weighted_mean(losses.view(logits.shape[:2]), step.weight)
            return losses, mean_gradients(gradients.view_as(logits), step.weight), {}

        def total(trained: "list[Tensors]") -> "tuple[Tensor, Tensor]":
            leaf, of_objective = trained
            losses = self.losses(leaf["logits"], candidates, state._replace(trained=of_objective), step)
            return losses.sum(), losses.detach()

        (of_logits, of_trained), losses = differentiate(total, [{"logits": logits}, state.trained])
        return losses, of_logits["logits"], of_trained

    def update(self, logits: Tensor, candidates: Tensor, state: State, step: Step) -> State:
        """State of every run after the step, for the rows of the batch."""
        return self._per_run(Objective.update.__name__, logits, candidates, state, step)  # type: ignore[no-any-return]

    def _rows_are_independent(self, state: State) -> bool:
        """Whether a row's loss depends on neither its run nor other rows, so all runs can form one batch."""
        return not (self.varied or state.shared or state.trained)

    def _per_run(self, method: str, logits: Tensor, candidates: Tensor, state: State, step: Step) -> Any:
        def evaluate(
            varied: "Tensors",
            logits: Tensor,
            candidates: Tensor,
            state: State,
            uniform: "Tensor | None",
            weight: "Tensor | None",
            teacher: "Tensor | None",
            mixing: "Tensor | None",
        ) -> Any:
            objective = _with_fields(self.objective, varied)
            step_of_run = step._replace(uniform=uniform, weight=weight, teacher=teacher, mixing=mixing)
            return getattr(objective, method)(logits, candidates, state, step_of_run)

        per_run = (step.uniform, step.weight, step.teacher, step.mixing)
        return over_runs(evaluate, self.varied, logits, candidates, state, *per_run)


def _with_fields(objective: Objective, values: Tensors) -> Objective:
    """A copy with tensors in some numeric fields; skips the checks of plain numbers."""
    if not values:
        return objective
    varied = object.__new__(type(objective))
    for name, value in {**objective.hyperparameters(), **values}.items():
        object.__setattr__(varied, name, value)
    return varied


def _as_one_batch(
    logits: Tensor, candidates: Tensor, state: State, step: Step
) -> tuple[Tensor, Tensor, State, Step]:
    """The rows of all runs as one batch, without weights."""
    rows, uniform = (map_leaves(lambda t: t.flatten(0, 1), tree) for tree in (state, step.uniform))
    return (
        logits.flatten(0, 1),
        candidates.flatten(0, 1),
        rows,
        step._replace(uniform=uniform, weight=None),
    )


def over_runs(function: Callable[..., Any], *stacked: Any) -> Any:
    """Apply a function of one run to arguments stacked over runs, and stack its results.

    A single run calls the function directly: the same numbers without the cost of `vmap`.
    """
    runs = next(leaf.shape[0] for leaf in leaves(stacked))
    if runs == 1:
        return map_leaves(lambda t: t.unsqueeze(0), function(*map_leaves(lambda t: t.squeeze(0), stacked)))
    axes = tuple(0 if any(True for _ in leaves(argument)) else None for argument in stacked)
    return vmap(function, in_dims=axes, randomness="different")(*stacked)


def leaves(tree: Any) -> Iterator[Tensor]:
    """The tensors in nested dicts, tuples and lists."""
    if isinstance(tree, Tensor):
        yield tree
    elif tree is not None:
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from leaves(part)


def map_leaves(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """The same nested structure with the function applied to every tensor."""
    if tree is None or isinstance(tree, Tensor):
        return None if tree is None else function(tree)
    if isinstance(tree, dict):
        return {name: map_leaves(function, part) for name, part in tree.items()}
    parts = [map_leaves(function, part) for part in tree]
    return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)


def differentiate(
    total: Callable[[list[Tensors]], tuple[Tensor, Any]], trained: list[Tensors]
) -> tuple[list[Tensors], Any]:
    """Gradient of the first result of `total` in the trained tensors, and its second result."""
    if is_traced():
        gradients, (_, extra) = grad_and_value(total, has_aux=True)(trained)
        return gradients, extra
    # Outside a compiler, plain autograd gives the same numbers with less overhead.
    inputs = map_leaves(lambda t: t.detach().requires_grad_(), trained)
    with torch.enable_grad():
        value, extra = total(inputs)
    gradients = iter(
        torch.autograd.grad(value, list(leaves(inputs)), allow_unused=True, materialize_grads=True)
    )
    return map_leaves(lambda _: next(gradients), trained), extra

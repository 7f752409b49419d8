"""Inputs for the contract tests: every registered objective with data that it accepts."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from propall.methods import METHODS
from propall.training.contract import Algorithm, Objective, State, Step

OBJECTIVES: dict[str, type[Objective]] = {n: m for n, m in METHODS.items() if issubclass(m, Objective)}
ALGORITHMS: dict[str, type[Algorithm]] = {n: m for n, m in METHODS.items() if issubclass(m, Algorithm)}

#: Parametrizes a check over all registered objectives, with their default fields.
each_objective = pytest.mark.parametrize(
    "objective", [pytest.param(m(), id=n) for n, m in OBJECTIVES.items()]
)


def skip_known(method: Objective | str, known: dict[str, str]) -> None:
    """Skip a check that is known not to hold for a method, for the reason listed beside the check."""
    name = method if isinstance(method, str) else method.name
    if name in known:
        pytest.skip(f"{name}: {known[name]}")


# --- candidate sets -----------------------------------------------------------------------------------------


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def partial_sets(n: int, k: int, seed: int = 0) -> Tensor:
    """Random sets that cycle through all sizes from 1 to k - 1."""
    rank = torch.rand(n, k, generator=_generator(seed)).argsort(-1).argsort(-1)
    sizes = 1 + torch.arange(n) % max(k - 1, 1)
    return rank < sizes[:, None]


def complementary_sets(n: int, k: int, seed: int = 0) -> Tensor:
    """All labels but one; every label is excluded about equally often."""
    excluded = torch.randperm(n, generator=_generator(seed)) % k
    return ~torch.nn.functional.one_hot(excluded, k).bool()


def singletons(n: int, k: int, seed: int = 0) -> Tensor:
    """Ordinary labels."""
    return torch.nn.functional.one_hot(torch.randperm(n, generator=_generator(seed)) % k, k).bool()


def full_sets(n: int, k: int, seed: int = 0) -> Tensor:
    """Partial sets, with all labels in every second row."""
    return partial_sets(n, k, seed) | (torch.arange(n) % 2 == 0)[:, None]


Kind = Callable[[int, int, int], Tensor]


def accepts(objective: Objective, candidates: Tensor) -> bool:
    """Whether an objective accepts the sets; if not, `init` raises an error that names the argument."""
    try:
        objective.init(candidates)
    except ValueError as error:
        message = str(error)
    else:
        return True
    assert message.startswith("candidates:"), f"the message does not name the argument: {message}"
    return False


def sets_for(objective: Objective, n: int, k: int, seed: int = 0) -> Tensor:
    """The most general candidate sets that an objective accepts: partial ones, else complementary ones."""
    kinds: tuple[Kind, ...] = (partial_sets, complementary_sets)
    for kind in kinds:
        candidates = kind(n, k, seed)
        if accepts(objective, candidates):
            return candidates
    raise AssertionError(f"{objective.name} accepts neither partial nor complementary sets of {k} labels")


# --- one step of an objective on a batch --------------------------------------------------------------------


class Visit(NamedTuple):
    """Everything an objective receives for a batch."""

    logits: Tensor
    candidates: Tensor
    state: State
    step: Step


def cast(state: State, dtype: torch.dtype) -> State:
    """Convert the floating-point tensors of a state to another precision."""
    return State(*({k: v.to(dtype) if v.is_floating_point() else v for k, v in p.items()} for p in state))


def step_for(
    objective: Objective, shape: torch.Size, dtype: torch.dtype, seed: int = 0, weight: Tensor | None = None
) -> Step:
    uniform = torch.rand(shape, generator=_generator(seed + 1), dtype=dtype).clamp(1e-3, 1 - 1e-3)
    return Step(
        progress=torch.tensor(0.3, dtype=dtype),
        epoch=torch.tensor(2.0, dtype=dtype),
        uniform=uniform if objective.needs_noise else None,
        weight=weight,
    )


def visit(
    objective: Objective,
    *,
    n: int = 12,
    k: int = 5,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    candidates: Tensor | None = None,
    weight: Tensor | None = None,
    earlier: int = 2,
    rows: Tensor | None = None,
    classes: Tensor | None = None,
) -> Visit:
    """A batch whose rows have been visited before, so the state differs from the initial one.

    `rows` and `classes` permute the same batch with the same history.
    """
    candidates = sets_for(objective, n, k, seed) if candidates is None else candidates
    rows = torch.arange(candidates.shape[0]) if rows is None else rows
    classes = torch.arange(candidates.shape[1]) if classes is None else classes
    step = step_for(objective, candidates.shape, dtype, seed, weight)
    if step.uniform is not None:
        step = step._replace(uniform=step.uniform[rows][:, classes])
    logits = 3 * torch.randn(earlier + 1, *candidates.shape, generator=_generator(seed + 2), dtype=dtype)
    logits, candidates = logits[:, rows][:, :, classes], candidates[rows][:, classes]
    state = cast(objective.init(candidates, weight), dtype)
    for before in logits[1:]:
        state = objective.update(before, candidates, state, step)
    return Visit(logits[0], candidates, state, step)


class Outcome(NamedTuple):
    """Loss, its gradients with respect to logits and trained tensors, and the state afterwards."""

    loss: Tensor
    gradient: Tensor
    trained: dict[str, Tensor]
    after: State


def outcome(objective: Objective, seen: Visit) -> Outcome:
    logits = seen.logits.detach().clone().requires_grad_()
    trained = {name: t.detach().clone().requires_grad_() for name, t in seen.state.trained.items()}
    loss = objective.loss(logits, seen.candidates, seen.state._replace(trained=trained), seen.step)
    # The loss may ignore trained tensors (a fixed matrix), but not the logits.
    gradients = torch.autograd.grad(loss, [logits, *trained.values()], allow_unused=True)
    after = objective.update(seen.logits, seen.candidates, seen.state, seen.step)
    trained_gradients = {n: g for n, g in zip(trained, gradients[1:], strict=True) if g is not None}
    return Outcome(loss.detach(), gradients[0], trained_gradients, after)


def with_fields(objective: Objective, numbers: dict[str, Tensor]) -> Objective:
    """The objective with tensors for some hyper-parameters, as in stacks of runs that differ in them."""
    varied = copy.copy(objective)
    for name, value in numbers.items():
        object.__setattr__(varied, name, value)
    return varied


def with_tensor_fields(objective: Objective, dtype: torch.dtype = torch.float64) -> Objective:
    """The objective with a 0-d tensor for every float field."""
    fields = {f.name: getattr(objective, f.name) for f in dataclasses.fields(objective)}  # type: ignore[arg-type]
    return with_fields(
        objective, {n: torch.tensor(v, dtype=dtype) for n, v in fields.items() if isinstance(v, float)}
    )

"""The one loop: many runs trained at once, stacked on a leading axis."""

import copy
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, TypeGuard

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from propall import counter_rng
from propall.data.dataset import PartialDataset
from propall.labels.candidates import check
from propall.training import compiled, optim
from propall.training.checkpoint import Checkpoint
from propall.training.contract import (
    Algorithm,
    Classifier,
    Monitor,
    NetFactory,
    Objective,
    RowwiseObjective,
    Run,
    State,
    Step,
    TrainingSetup,
    check_weight,
    total_weight,
    weighted_mean,
)
from propall.training.dense import Dense
from propall.training.networks import SCORING_CHUNK, NetClassifier, build, starting_weights
from propall.training.recipe import Recipe
from propall.training.stream import Batch, Stream

#: Numbers in the batches that are put together at once, where steps are not captured in a graph.
NUMBERS_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class Trainer(Algorithm):
    """Fits a network to an objective by mini-batch descent; many runs at once.

    Runs of equal shape are stacked: same network, own data, seed, objective and rates. The result of a run
    does not depend on its neighbours. Objectives of one class may differ in their numeric fields within a
    stack, and different classes of objectives share it too.

    Attributes:
        objective: the loss; a run may bring its own.
        net: builds the network from (shape of one instance, number of classes), or a ready module whose
            weights every run starts from. Parameters that require no gradient stay as they are. Layers that
            draw themselves, such as dropout, use torch's generator, not the run's seed.
        recipe: epochs, batches, optimiser.
        checkpoint: where to save progress; a later `fit` of the same runs goes on from there.
        fast: None: capture the step on a CUDA device, and compile it where that pays; True: both, anywhere;
            False: neither.
        stack: how many runs to train at once at most; None: as many as memory takes.
    """

    objective: Objective
    net: NetFactory | nn.Module
    recipe: Recipe = field(default_factory=Recipe)
    checkpoint: Checkpoint | Path | None = None
    fast: bool | None = None
    stack: int | None = None

    name, title, reference = "trainer", "Trainer", ""
    trains_network = True

    def hyperparameters(self) -> dict[str, Any]:
        """Those of the objective."""
        return self.objective.hyperparameters()

    def with_training(self, setup: TrainingSetup) -> Algorithm:
        """The same objective, trained in another setup."""
        return self.objective.with_training(setup)

    def fit(self, runs: Sequence[Run], *, monitor: Monitor | None = None) -> list[Classifier]:
        """Train all runs; those of one shape together."""
        watching = monitor or Monitor()
        for train in {id(run.train): run.train for run in runs}.values():  # many runs may share one
            _check_data(train)
        for run in runs:
            _check_run(run)
        return fit_in_stacks(
            runs,
            lambda run, count: self.stack or compiled.stack_limit(self.net, self.recipe, run, count),
            lambda positions: self._fit_stack(runs, positions, watching),
            # Runs of one class of objective stand together, so that a section of the stack is a slice.
            key=lambda run: _kind_of(run.objective or self.objective),
        )

    def _fit_stack(
        self, runs: Sequence[Run], positions: list[int], monitor: Monitor
    ) -> dict[int, Classifier]:
        stack = Stack([runs[i] for i in positions], self.objective, self.net, self.recipe)
        progress = Progress(self.checkpoint, stack.fingerprint)
        progress.load(stack, monitor)
        monitor.begin(self.recipe.epochs, positions, progress.done)
        fitted = train_stack(stack, positions, monitor, fast=self.fast, progress=progress)
        return dict(zip(positions, fitted, strict=True))


def _check_data(train: PartialDataset) -> None:
    """Refuse data that no network can be trained on."""
    check(train.candidates, quiet=True)
    if train.x.dtype not in (torch.float32, torch.float64):
        raise TypeError(
            f"x: dtype {train.x.dtype} given; expected torch.float32 or torch.float64. For half precision "
            "give float32 and Recipe(precision='bfloat16')."
        )
    if not train.x.sum().isfinite() and not (finite := train.x.flatten(1).isfinite().all(1)).all():
        raise ValueError(
            f"x: {int((~finite).sum())} rows hold NaN or infinity (first: {int((~finite).nonzero()[0])}). "
            "Fill in or drop them."
        )


def _check_run(run: Run) -> None:
    """Refuse weights and keys that do not belong to the run's data."""
    for name, value in (("weight", run.weight), ("keys", run.keys)):
        if value is not None and value.shape != (len(run.train),):
            raise ValueError(f"{name}: shape {tuple(value.shape)} given; expected {(len(run.train),)}.")
    if run.weight is not None:
        check_weight(run.weight)


class Progress:
    """How far the training of a stack is, and where that is saved.

    Args:
        checkpoint: where; None for nowhere.
        fingerprint: names the training; called only where there is a checkpoint.
    """

    def __init__(self, checkpoint: Checkpoint | Path | None, fingerprint: Callable[[], str]) -> None:
        self.checkpoint = Checkpoint(checkpoint) if isinstance(checkpoint, Path) else checkpoint
        self._name = "" if self.checkpoint is None else fingerprint()
        self.saved = None if self.checkpoint is None else self.checkpoint.open(self._name)
        self.done = 0 if self.saved is None else self.saved.epoch

    def load(self, stack: "Stack", monitor: Monitor) -> None:
        """Bring the stack and who looks on to where they were when progress was saved last."""
        if self.saved is not None:
            stack.load(self.saved.tensors)
            monitor.restore(self.saved.monitor)
            self.saved = None

    def save(self, epoch: int, epochs: int, training: "compiled.Captured | Stack", monitor: Monitor) -> None:
        """Save after an epoch, if it is time to."""
        if self.checkpoint is not None and self.checkpoint.due(epoch, epochs):
            self.checkpoint.save(self._name, epoch, training.tensors(), monitor.state())


def train_stack(
    stack: "Stack",
    positions: Sequence[int],
    monitor: Monitor,
    *,
    fast: bool | None,
    progress: Progress,
    epochs_before: int = 0,
) -> list[NetClassifier]:
    """Take a stack through the epochs of its recipe that are not done; returns every run's classifier.

    Args:
        stack: the runs.
        positions: what the monitor knows them by.
        monitor: looks on.
        fast: as in `Trainer`.
        progress: how many epochs are done, and where that is saved.
        epochs_before: of an earlier phase, on which the monitor goes on counting.
    """
    epochs = stack.recipe.epochs
    with compiled.training(stack, fast) as training:
        for epoch in range(progress.done, epochs):
            losses = training.train_epoch(epoch)
            monitor.epoch(epochs_before + epoch + 1, positions, losses, training.scores)
            progress.save(epoch + 1, epochs, training, monitor)
        return training.classifiers()


def fit_in_stacks(
    runs: Sequence[Run],
    limit: Callable[[Run, int], int],
    fit_stack: Callable[[list[int]], dict[int, Classifier]],
    key: Callable[[Run], str] = lambda run: "",
) -> list[Classifier]:
    """Every run's classifier; runs of one shape are fitted together, as many at once as memory takes.

    Args:
        runs: what to fit.
        limit: how many of so many runs like this one to fit at once.
        fit_stack: fits the runs at some positions; returns their classifiers by position.
        key: runs of one shape are put in this order.
    """
    groups: dict[object, list[int]] = {}
    for i, run in enumerate(runs):
        x = run.train.x
        groups.setdefault((x.shape, run.train.candidates.shape, x.dtype, x.device), []).append(i)
    waiting: list[list[int]] = []
    for positions in groups.values():
        positions.sort(key=lambda i: key(runs[i]))
        most = limit(runs[positions[0]], len(positions))
        waiting += [positions[start : start + most] for start in range(0, len(positions), most)]
    fitted: dict[int, Classifier] = {}
    while waiting:
        positions = waiting.pop(0)
        try:
            fitted |= fit_stack(positions)
        except torch.OutOfMemoryError:
            if compiled.release():
                waiting.insert(0, positions)
                continue
            if len(positions) == 1:
                raise
            # The estimate was too bold: half as many at once take half the memory.
            torch.cuda.empty_cache()
            half = len(positions) // 2
            waiting[:0] = [positions[:half], positions[half:]]
    return [fitted[i] for i in range(len(runs))]


def _settings(objective: Objective) -> dict[str, Any]:
    return {f.name: getattr(objective, f.name) for f in dataclasses.fields(objective)}  # type: ignore[arg-type]


def _kind_of(objective: Objective) -> str:
    """Objectives with equal kinds are one section: same class, and equal in all that is no number."""
    fixed = {name: value for name, value in _settings(objective).items() if not isinstance(value, float)}
    return f"{type(objective).__module__}.{type(objective).__qualname__}{sorted(fixed.items())}"


def _with_fields(objective: Objective, values: dict[str, Tensor]) -> Objective:
    """A copy whose numeric fields are tensors; checks of plain numbers are not repeated on it."""
    if not values:
        return objective
    varied = object.__new__(type(objective))
    for name, value in {**_settings(objective), **values}.items():
        object.__setattr__(varied, name, value)
    return varied


def _is_rowwise(objective: Objective) -> TypeGuard[RowwiseObjective]:
    return type(objective).loss is RowwiseObjective.loss


class Section:
    """The runs of a stack that share an objective's class: a slice, and the numbers in which they differ."""

    def __init__(self, runs: slice, objectives: Sequence[Objective], like: Tensor) -> None:
        self.runs = runs
        self.objectives = objectives
        self.objective = objectives[0]
        self.varied: dict[str, Tensor] = {}
        for name in _settings(self.objective):
            values = [getattr(o, name) for o in objectives]
            if isinstance(values[0], float) and len(set(values)) > 1:
                self.varied[name] = torch.tensor(values, dtype=like.dtype, device=like.device)

    def losses(self, logits: Tensor, candidates: Tensor, state: State, step: Step) -> Float[Tensor, "r"]:
        """Every run's loss; `step.uniform` and `step.weight` are stacked, time is common to all."""
        if _is_rowwise(self.objective) and self._takes_rows_of_all(state):
            each = self.objective.losses(*_rows_of_all(logits, candidates, state, step))
            return weighted_mean(each.view(logits.shape[:2]), step.weight)
        return self._of_every_run(Objective.loss.__name__, logits, candidates, state, step)  # type: ignore[no-any-return]

    def slopes(
        self, logits: Tensor, candidates: Tensor, state: State, step: Step
    ) -> tuple[Float[Tensor, "r"], Float[Tensor, "r b k"], optim.Tensors]:
        """Every run's loss, and its gradient in the logits and in what the objective trains."""
        if _is_rowwise(self.objective) and self._takes_rows_of_all(state):
            each, slopes = self.objective.losses_and_gradients(*_rows_of_all(logits, candidates, state, step))
            each = each.view(logits.shape[:2])
            return weighted_mean(each, step.weight), _shared_out(slopes.view_as(logits), step.weight), {}

        def total(trained: "list[optim.Tensors]") -> "tuple[Tensor, Tensor]":
            own = state._replace(trained=trained[1])
            losses = self.losses(trained[0]["logits"], candidates, own, step)
            return losses.sum(), losses.detach()

        (found, trained), losses = gradients(total, [{"logits": logits}, state.trained])
        return losses, found["logits"], trained

    def _takes_rows_of_all(self, state: State) -> bool:
        """Whether rows know nothing of each other, nor of their run: one call serves the rows of all runs."""
        return not (self.varied or state.shared or state.trained)

    def update(self, logits: Tensor, candidates: Tensor, state: State, step: Step) -> State:
        """Every run's state after the step, for the batch's rows."""
        return self._of_every_run(Objective.update.__name__, logits, candidates, state, step)  # type: ignore[no-any-return]

    def _of_every_run(self, method: str, logits: Tensor, candidates: Tensor, state: State, step: Step) -> Any:
        def of_one(
            varied: "optim.Tensors",
            logits: Tensor,
            candidates: Tensor,
            state: State,
            uniform: "Tensor | None",
            weight: "Tensor | None",
        ) -> Any:
            objective = _with_fields(self.objective, varied)
            own = step._replace(uniform=uniform, weight=weight)
            return getattr(objective, method)(logits, candidates, state, own)

        return over_runs(of_one, self.varied, logits, candidates, state, step.uniform, step.weight)


def _rows_of_all(
    logits: Tensor, candidates: Tensor, state: State, step: Step
) -> tuple[Tensor, Tensor, State, Step]:
    """The same with the rows of all runs in one batch, and without weights."""
    rows, uniform = (_on_leaves(lambda t: t.flatten(0, 1), tree) for tree in (state, step.uniform))
    own = step._replace(uniform=uniform, weight=None)
    return logits.flatten(0, 1), candidates.flatten(0, 1), rows, own


def _shared_out(slopes: Tensor, weight: Tensor | None) -> Tensor:
    """Slopes of each row's loss, as they enter the (weighted) mean."""
    if weight is None:
        return slopes / slopes.shape[-2]
    return slopes * (weight / total_weight(weight).unsqueeze(-1)).unsqueeze(-1)


def over_runs(function: Callable[..., Any], *stacked: Any) -> Any:
    """Applies a function of one run to arguments stacked over runs, and stacks what it returns.

    One run alone goes through the function as it is: the same numbers without the cost of `vmap`.
    """
    runs = next(leaf.shape[0] for leaf in _leaves(stacked))
    if runs == 1:
        return _on_leaves(lambda t: t.unsqueeze(0), function(*_on_leaves(lambda t: t.squeeze(0), stacked)))
    axes = tuple(0 if any(True for _ in _leaves(argument)) else None for argument in stacked)
    return vmap(function, in_dims=axes, randomness="different")(*stacked)


def _leaves(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif tree is not None:
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from _leaves(part)


def _on_leaves(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    if tree is None or isinstance(tree, Tensor):
        return None if tree is None else function(tree)
    if isinstance(tree, dict):
        return {name: _on_leaves(function, part) for name, part in tree.items()}
    parts = [_on_leaves(function, part) for part in tree]
    return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)


def gradients(
    total: Callable[[list[optim.Tensors]], tuple[Tensor, Any]], trained: list[optim.Tensors]
) -> tuple[list[optim.Tensors], Any]:
    """The gradient of `total` in all that is trained, and what it returned beside its value."""
    if torch.compiler.is_compiling():
        result, (_, extra) = grad_and_value(total, has_aux=True)(trained)
        return result, extra
    # Plain autograd gives the same numbers with less work per call where nothing is compiled.
    leaves = _on_leaves(lambda t: t.detach().requires_grad_(), trained)
    with torch.enable_grad():
        value, extra = total(leaves)
    flat = list(_leaves(leaves))
    found = iter(torch.autograd.grad(value, flat, allow_unused=True, materialize_grads=True))
    return _on_leaves(lambda _: next(found), trained), extra


class Alone:
    """The only run of a stack, stepping without the run axis, on the stack's own tensors.

    What `Stack.advance` does to any number of runs, in far fewer operations on the host: an ordinary module
    is called as it is, and nothing is put on an axis and taken off again.

    Args:
        stack: whose tensors it moves.
        net: the run's network; from now on its parameters are the stack's.
    """

    def __init__(self, stack: "Stack", net: nn.Module) -> None:
        self.net = net.train()
        for name, parameter in self.net.named_parameters():
            parameter.data = stack.parameters[name][0]
        for name, buffer in self.net.named_buffers():
            buffer.data = stack.buffers[name][0]
        self.objective, (state,) = stack.sections[0].objective, stack.states
        own = {name: tensor[0].detach().requires_grad_() for name, tensor in state.trained.items()}
        parameters: optim.Tensors = dict(self.net.named_parameters())
        self.trained: list[optim.Tensors] = [{name: parameters[name] for name in stack.trained}, own]
        self.moments = [_on_leaves(lambda t: t[0], moments) for moments in stack.moments]
        self.dense = None if stack.dense is None else Dense(stack.dense.names, parameters)
        self._leaves = list(_leaves(self.trained))
        self._half = stack.recipe.precision == "bfloat16"

    def logits(self, x: Float[Tensor, "b ..."]) -> Float[Tensor, "b k"]:
        """In training mode; batch norm writes into the stack's buffers."""
        kind = x.device.type
        if self._half or torch.is_autocast_enabled(kind):
            with torch.autocast(kind, torch.bfloat16, enabled=self._half):
                return self.net(x).to(x.dtype)  # type: ignore[no-any-return]
        return self.net(x).to(x.dtype)  # type: ignore[no-any-return]

    def advance(self, stack: "Stack", batch: Batch, uniform: Tensor | None) -> Float[Tensor, "1"]:
        """One step of the stack it was made for; returns the loss."""
        objective = self.objective
        progress, epoch = stack.time()
        weight = None if batch.weight is None else batch.weight[0]
        step = Step(progress, epoch, None if uniform is None else uniform[0], weight)
        x, candidates = batch.x[0], batch.candidates[0]
        before = stack.batch_state(0, batch)
        state = _on_leaves(lambda t: t[0], before._replace(trained={})) if any(before) else before
        dense = None if torch.is_autocast_enabled(x.device.type) else self.dense
        if dense is not None and _is_rowwise(objective) and not self.trained[1]:
            logits = dense.forward(x)
            each, down = objective.losses_and_gradients(logits, candidates, state, step)
            loss = weighted_mean(each.unsqueeze(0), batch.weight)
            stack.descend(self.trained[0], dense.backward(_shared_out(down, weight)), self.moments[0], epoch)
        else:
            with torch.enable_grad():
                logits = self.logits(x)
                value = objective.loss(logits, candidates, state._replace(trained=self.trained[1]), step)
            found = iter(torch.autograd.grad(value, self._leaves, allow_unused=True, materialize_grads=True))
            loss = value.detach().view(1)
            for tensors, moments in zip(self.trained, self.moments, strict=True):
                stack.descend(tensors, {name: next(found) for name in tensors}, moments, epoch)
        if type(objective).update is not Objective.update:
            seen = self.logits(x) if objective.fresh_logits else logits.detach()
            state = state._replace(trained=_on_leaves(lambda t: t.detach(), self.trained[1]))
            after = objective.update(seen, candidates, state, step)
            stack.remember(0, batch, _on_leaves(lambda t: t.unsqueeze(0), after))
        stack.step.add_(1)
        return loss


class Stack:
    """Runs of one shape: their parameters, moments, buffers and memories, each with a leading run axis."""

    def __init__(
        self, runs: Sequence[Run], objective: Objective, net: NetFactory | nn.Module, recipe: Recipe
    ) -> None:
        self.runs, self.recipe, self.net = list(runs), recipe, net
        self.stream = Stream(runs, recipe)
        x = self.stream.x
        nets = [build(net, run) for run in runs]
        self._first = nets[0]
        self.parameters = _stacked([dict(n.named_parameters()) for n in nets])
        moving = {name for name, parameter in nets[0].named_parameters() if parameter.requires_grad}
        if not moving:
            raise ValueError(
                "net: no parameter of it requires a gradient, so there is nothing to train. Unfreeze some: "
                "net.head.requires_grad_()."
            )
        self.trained = {name: tensor for name, tensor in self.parameters.items() if name in moving}
        self.buffers = _stacked([dict(n.named_buffers()) for n in nets])
        self.sections = self._sections([run.objective or objective for run in runs])
        self.states = [self._first_state(section) for section in self.sections]
        # What the optimiser trains: the networks, then what the objectives train themselves.
        self.groups = [(slice(None), self.trained)]
        self.groups += [(s.runs, state.trained) for s, state in zip(self.sections, self.states, strict=True)]
        self.moments = [optim.start(recipe, tensors) for _, tensors in self.groups]
        self.step = torch.zeros((), dtype=torch.int64, device=x.device)
        self.rate = self._per_run([run.learning_rate for run in runs], recipe.learning_rate)
        self.weight_decay = self._per_run([run.weight_decay for run in runs], recipe.weight_decay)
        self._decays = bool(self.weight_decay.any())
        self._common = optim.common(self.rate, self.weight_decay) if recipe.decay == 1 else None
        self.batch_sizes = recipe.batch_sizes(self.stream.n)
        self.total_steps = max(1, recipe.epochs * len(self.batch_sizes))
        self.dense = None if recipe.precision == "bfloat16" else Dense.of(nets[0], self.parameters)
        self.alone = Alone(self, self._first) if len(runs) == 1 else None
        # The batches that training has not come to yet, from this epoch on.
        self._coming: Iterator[tuple[Batch, list[Tensor | None]]] = iter(())
        self._next_epoch: int | None = None

    @functools.cached_property
    def skeleton(self) -> nn.Module:
        """A network like each run's, without its tensors."""
        return copy.deepcopy(self._first).to("meta")

    def _per_run(self, own: list[float | None], common: float) -> Tensor:
        values = [common if value is None else value for value in own]
        return torch.tensor(values, dtype=self.stream.x.dtype, device=self.stream.device)

    def _sections(self, objectives: list[Objective]) -> list[Section]:
        sections, start = [], 0
        for end in range(1, len(objectives) + 1):
            if end == len(objectives) or _kind_of(objectives[end]) != _kind_of(objectives[start]):
                sections.append(Section(slice(start, end), objectives[start:end], self.stream.x))
                start = end
        return sections

    def _first_state(self, section: Section) -> State:
        states = []
        for run, objective in zip(self.runs[section.runs], section.objectives, strict=True):
            states.append(objective.init(run.train.candidates, run.weight))
        x = self.stream.x
        parts = [
            {
                name: tensor.to(x) if tensor.is_floating_point() else tensor.to(x.device)
                for name, tensor in _stacked(list(part)).items()
            }
            for part in zip(*states, strict=True)
        ]
        return State(*parts)

    def forward(
        self, parameters: optim.Tensors, buffers: optim.Tensors, x: Tensor, *, training: bool
    ) -> tuple[Float[Tensor, "r b k"], optim.Tensors]:
        """All runs' logits and, in training mode, their new buffers. x is stacked, or shared by all."""
        self.skeleton.train(training)
        shared = x.dim() == len(self.runs[0].train.in_shape) + 1

        def of_one(p: "optim.Tensors", b: "optim.Tensors", x: Tensor) -> "tuple[Tensor, optim.Tensors]":
            b = {name: buffer.clone() for name, buffer in b.items()}  # batch norm writes into what it gets
            with torch.autocast(x.device.type, torch.bfloat16, enabled=self.recipe.precision == "bfloat16"):
                logits = functional_call(self.skeleton, (p, b), (x,))
            return logits.to(x.dtype), b

        if shared:
            return over_runs(lambda p, b: of_one(p, b, x), parameters, buffers)  # type: ignore[no-any-return]
        return over_runs(of_one, parameters, buffers, x)  # type: ignore[no-any-return]

    def time(self) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """The share of all steps that is done, and the number of completed epochs."""
        dtype, steps = self.rate.dtype, len(self.batch_sizes)
        if self.stream.device.type == "cpu" and not torch.compiler.is_compiling():
            now = int(self.step)  # nobody waits for it there
            share, epoch = now / self.total_steps, now // steps
            return torch.scalar_tensor(share, dtype=dtype), torch.scalar_tensor(epoch, dtype=dtype)
        done = torch.div(self.step, steps, rounding_mode="floor")
        return self.step.to(dtype) / self.total_steps, done.to(dtype)

    def advance(self, batch: Batch, uniforms: Sequence[Tensor | None]) -> Float[Tensor, "r"]:
        """One step of every run, in place; returns the losses."""
        if self.alone is not None and not torch.compiler.is_compiling():
            return self.alone.advance(self, batch, uniforms[0])
        progress, epoch = self.time()
        weights = [None if batch.weight is None else batch.weight[section.runs] for section in self.sections]
        moments = [Step(progress, epoch, u, w) for u, w in zip(uniforms, weights, strict=True)]
        states = [self.batch_state(i, batch) for i in range(len(self.sections))]
        of_sections = list(zip(self.sections, states, moments, strict=True))

        def total(trained: "list[optim.Tensors]") -> "tuple[Tensor, Any]":
            parameters = {**self.parameters, **trained[0]}
            logits, buffers = self.forward(parameters, self.buffers, batch.x, training=True)
            losses = []
            for (section, state, step), own in zip(of_sections, trained[1:], strict=True):
                state = state._replace(trained=own)
                losses.append(
                    section.losses(logits[section.runs], batch.candidates[section.runs], state, step)
                )
            each = torch.cat(losses) if len(losses) > 1 else losses[0]
            return each.sum(), (each, logits, buffers)

        if self.dense is None or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
            slopes, (losses, logits, buffers) = gradients(total, [tensors for _, tensors in self.groups])
        else:
            logits, buffers = self.dense.forward(batch.x), {}
            found = [
                section.slopes(logits[section.runs], batch.candidates[section.runs], state, step)
                for section, state, step in of_sections
            ]
            losses, down = (
                torch.cat(parts) if len(parts) > 1 else parts[0]
                for parts in list(zip(*found, strict=True))[:2]
            )
            slopes = [self.dense.backward(down), *(trained for _, _, trained in found)]
        for (runs, tensors), own, moving in zip(self.groups, slopes, self.moments, strict=True):
            self.descend(tensors, own, moving, epoch, runs)
        _write(self.buffers, buffers)
        logits = logits.detach()
        for i, (section, step) in enumerate(zip(self.sections, moments, strict=True)):
            if type(section.objective).update is Objective.update:
                continue
            runs = section.runs
            seen = self._fresh_logits(runs, batch) if section.objective.fresh_logits else logits[runs]
            self.remember(i, batch, section.update(seen, batch.candidates[runs], states[i], step))
        self.step.add_(1)
        finished: Tensor = losses.detach()
        return finished

    def descend(
        self,
        tensors: optim.Tensors,
        slopes: optim.Tensors,
        moments: dict[str, optim.Tensors],
        epoch: Float[Tensor, ""],
        runs: slice | None = None,
    ) -> None:
        """The optimiser's step on what some runs, or all, train."""
        if self._common is not None and not torch.compiler.is_compiling():
            if tensors:
                optim.advance_fused(self.recipe, tensors, slopes, moments, *self._common, self.step)
            return
        rate, weight_decay = self.rate, self.weight_decay if self._decays else None
        if self.recipe.decay != 1:
            rate = rate * self.recipe.rate_factor(epoch)
        if runs is not None:
            rate, weight_decay = rate[runs], None if weight_decay is None else weight_decay[runs]
        optim.advance(
            self.recipe, tensors, slopes, moments, rate=rate, weight_decay=weight_decay, steps=self.step
        )

    def batch_state(self, i: int, batch: Batch) -> State:
        """What the runs of one section remember, of the batch's rows."""
        state, runs = self.states[i], self.sections[i].runs
        if not state.rows:
            return state
        index = batch.index[runs]
        row = torch.arange(index.shape[0], device=index.device)[:, None]
        return state._replace(rows={name: rows[row, index] for name, rows in state.rows.items()})

    def remember(self, i: int, batch: Batch, new: State) -> None:
        """Writes the new memories of one section's runs over the old ones."""
        index = batch.index[self.sections[i].runs]
        row = torch.arange(index.shape[0], device=index.device)[:, None]
        for name, rows in self.states[i].rows.items():
            rows[row, index] = new.rows[name].to(rows.dtype)
        _write(self.states[i].shared, new.shared)

    def _fresh_logits(self, runs: slice, batch: Batch) -> Tensor:
        parameters, buffers = (
            {name: t[runs] for name, t in part.items()} for part in (self.parameters, self.buffers)
        )
        logits, buffers = self.forward(parameters, buffers, batch.x[runs], training=True)
        _write({name: t[runs] for name, t in self.buffers.items()}, buffers)
        return logits

    def batches(
        self, epoch: int, first: int = 0, *, epochs: int = 1
    ) -> Iterator[tuple[Batch, list[Tensor | None]]]:
        """The batches of one epoch or several, from the `first` on, with the noise their objectives need."""
        per_epoch, rows, size = len(self.batch_sizes), sum(self.batch_sizes), self.batch_sizes[0]
        if epochs == 1 and first == per_epoch:
            return
        # Several batches are put together at once and cut apart again: as many as a core's cache holds.
        room = NUMBERS_AT_ONCE // (len(self.runs) * size)
        at_once = max(1, room // self.stream.n_classes)
        for together in _cut(range(epoch, epoch + epochs), max(1, at_once // per_epoch)):
            order = self.stream.orders(together)[..., :rows].flatten(1)
            for block in _cut(range(first, per_epoch * len(together)), at_once):
                sizes = (self.batch_sizes * len(together))[block.start : block.stop]
                start = block.start * size
                index = order[:, start : start + sum(sizes)]
                place = torch.arange(start, start + index.shape[1], device=order.device)
                steps = (together.start + place // rows) * per_epoch + place % rows // size
                yield from self._put_together(index, steps, sizes, room)
            first = 0

    def _put_together(
        self, index: Tensor, steps: Tensor, sizes: list[int], room: int
    ) -> Iterator[tuple[Batch, list[Tensor | None]]]:
        labels = self.stream.labels(index)
        noise = [
            self.stream.noise(section.runs, steps, labels.keys[section.runs]).split(sizes, 1)
            if section.objective.needs_noise
            else itertools.repeat(None)
            for section in self.sections
        ]
        parts = [itertools.repeat(None) if part is None else part.split(sizes, 1) for part in labels]
        x = self._features(index, labels.keys, steps, sizes, room)
        for own, features, uniforms, *rest in zip(
            index.split(sizes, 1), x, zip(*noise, strict=False), *parts, strict=False
        ):
            yield Batch(own, features, *rest), list(uniforms)

    def _features(
        self, index: Tensor, keys: Tensor, steps: Tensor, sizes: list[int], room: int
    ) -> Iterator[Tensor]:
        """The features of several batches, one by one."""
        at_once = max(1, room // prod(self.runs[0].train.in_shape))
        start = 0
        for block in range(0, len(sizes), at_once):
            own = sizes[block : block + at_once]
            rows = slice(start, start := start + sum(own))
            yield from self.stream.features(index[:, rows], keys[:, rows], steps[rows]).split(own, 1)

    @torch.no_grad()
    def train_epoch(self, epoch: int) -> Float[Tensor, "r"]:
        """Every step of one epoch; returns each run's mean loss. Nothing waits for the device."""
        if epoch != self._next_epoch:
            self._coming = self.batches(epoch, epochs=max(1, self.recipe.epochs - epoch))
        self._next_epoch = None  # until all steps are taken
        total = torch.zeros_like(self.rate)
        for batch, uniforms in itertools.islice(self._coming, len(self.batch_sizes)):
            total += self.advance(batch, uniforms)
        self._next_epoch = epoch + 1
        return total / len(self.batch_sizes)

    @torch.no_grad()
    def scores(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "r n k"]:
        """Every run's scores of the same x, in evaluation mode."""
        return self.decoded(self.logits(x))

    @torch.no_grad()
    def logits(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "r n k"]:
        """Every run's outputs for the same x, in evaluation mode."""
        chunk = max(1, SCORING_CHUNK // len(self.runs)) if self.stream.device.type == "cpu" else SCORING_CHUNK
        parts = [
            self.forward(self.parameters, self.buffers, part, training=False)[0]
            for part in x.to(self.stream.x).split(chunk)
        ]
        return torch.cat(parts, dim=1)

    def decoded(self, logits: Float[Tensor, "r n k"]) -> Float[Tensor, "r n k"]:
        """The outputs as the objectives read them."""
        scored = []
        for section, state in zip(self.sections, self.states, strict=True):
            of_section = logits[section.runs]
            if type(section.objective).scores is Objective.scores:
                scored.append(of_section)
                continue
            for j, objective in enumerate(section.objectives):
                own = State({}, *({k: v[j] for k, v in part.items()} for part in state[1:]))
                scored.append(objective.scores(of_section[j], own).unsqueeze(0))
        return torch.cat(scored)

    def classifiers(self) -> list[NetClassifier]:
        """One ready classifier per run."""
        fitted = []
        for section, state in zip(self.sections, self.states, strict=True):
            for j, objective in enumerate(section.objectives):
                net = self._network(section.runs.start + j).eval()
                state_of_run = State(*({k: v[j].clone() for k, v in part.items()} for part in state))
                fitted.append(NetClassifier(net, objective, state_of_run))
        return fitted

    def _network(self, position: int) -> nn.Module:
        """A network of its own with what one run has learnt."""
        if self.alone is not None:
            return copy.deepcopy(self.alone.net)
        net = copy.deepcopy(self.skeleton).to_empty(device=self.stream.device)
        own = {**self.parameters, **self.buffers}
        for name, target in [*net.named_parameters(), *net.named_buffers()]:
            target.data = own[name][position].clone()
        return net

    def tensors(self) -> optim.Tensors:
        """Everything that training changes, under unique names."""
        named = {"step": self.step}
        named |= {f"parameters/{k}": v for k, v in self.parameters.items()}
        named |= {f"buffers/{k}": v for k, v in self.buffers.items()}
        for i, group in enumerate(self.moments):
            named |= {f"moments/{i}/{name}/{k}": v for name, part in group.items() for k, v in part.items()}
        for i, state in enumerate(self.states):
            parts = state._asdict().items()
            named |= {f"state/{i}/{part}/{k}": v for part, tensors in parts for k, v in tensors.items()}
        return named

    def load(self, tensors: optim.Tensors) -> None:
        """Go on from what `tensors` gave."""
        _write(self.tensors(), tensors)

    def given(self) -> list[Tensor]:
        """What training reads and does not change."""
        tensors = [*self.stream.tensors(), self.rate, self.weight_decay]
        return tensors + [tensor for section in self.sections for tensor in section.varied.values()]

    def shape(self) -> str:
        """Names all but the content of tensors: stacks of one shape are trained by the same operations."""
        parts: list[Any] = [
            len(self.runs),
            self.recipe,
            str(self.skeleton),
            self._decays,
            str(self.stream.device),
        ]
        parts += [(k, tuple(v.shape), v.stride(), str(v.dtype)) for k, v in self.tensors().items()]
        parts += [(tuple(v.shape), v.stride(), str(v.dtype)) for v in self.given()]
        for section in self.sections:
            settings = _settings(section.objective)
            fixed = {name: value for name, value in settings.items() if name not in section.varied}
            parts.append((_kind_of(section.objective), section.runs, sorted(section.varied), fixed))
        return repr(parts)

    def adopt(self, other: "Stack") -> None:
        """Become another stack of the same shape, in the memory of this one."""
        self.runs, self._common, self._next_epoch = other.runs, other._common, None
        for section, new in zip(self.sections, other.sections, strict=True):
            section.objectives, section.objective = new.objectives, new.objective
        for own, tensor in zip(self.given(), other.given(), strict=True):
            own.copy_(tensor)
        self.load(other.tensors())

    def fingerprint(self) -> str:
        """Names this very training: data, seeds, objectives, network, recipe."""
        parts: list[Any] = [self.recipe, str(self.skeleton), self.stream.n]
        parts += [(k, tuple(v.shape), str(v.dtype)) for k, v in self.parameters.items()]
        for run, objective in zip(self.runs, [o for s in self.sections for o in s.objectives], strict=True):
            parts.append(
                (run.seed, run.learning_rate, run.weight_decay, _kind_of(objective), repr(objective))
            )
        return counter_rng.digest(
            repr(parts),
            self.stream.x,
            self.stream.candidates,
            self.stream.weight,
            self.stream.keys,
            *starting_weights(self.net),
        )


def _stacked(parts: Sequence[dict[str, Tensor]]) -> optim.Tensors:
    return {name: torch.stack([part[name].detach() for part in parts]) for name in parts[0]}


def _cut(whole: range, length: int) -> Iterator[range]:
    """Pieces of a range, one after another."""
    return (whole[start : start + length] for start in range(0, len(whole), length))


def _write(targets: optim.Tensors, values: optim.Tensors) -> None:
    """Copies values into the tensors of the same name, in place."""
    for name, target in targets.items():
        target.copy_(values[name])

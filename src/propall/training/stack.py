"""Many runs as one set of tensors with a leading run axis, and the step that trains them."""

import copy
import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from propall import counter_rng
from propall.numerics import is_traced
from propall.training import data_parallel, optim
from propall.training.averages import Averages
from propall.training.backend import Backend, Group, StackedBackend, StepTime, write
from propall.training.consistency import with_views, without_views
from propall.training.contract import NetFactory, Objective, Run, State, Step
from propall.training.dense import dense_backend
from propall.training.networks import SCORING_CHUNK, NetClassifier, build, starting_weights
from propall.training.recipe import Recipe
from propall.training.sections import Section, objective_kind, over_runs
from propall.training.single import SingleBackend
from propall.training.stream import Batch, Stream


class Stack:
    """Runs of equal shape: parameters, buffers, moments and states, each with a leading run axis.

    Args:
        runs: the runs; those with objectives of one kind (see `objective_kind`) are neighbors.
        objective: for runs without one of their own.
        net: as in `Trainer`.
        recipe: as in `Trainer`.
    """

    def __init__(
        self, runs: Sequence[Run], objective: Objective, net: NetFactory | nn.Module, recipe: Recipe
    ) -> None:
        self.runs, self.recipe, self.net = list(runs), recipe, net
        self.stream = Stream(runs, recipe)
        self.batch_sizes = self.stream.batch_sizes
        self.total_steps = max(1, recipe.epochs * len(self.batch_sizes))
        nets = [build(net, run) for run in runs]
        self._first_net = nets[0]
        self.parameters = _stacked([dict(n.named_parameters()) for n in nets])
        self.buffers = _stacked([dict(n.named_buffers()) for n in nets])
        trainable = {name for name, parameter in nets[0].named_parameters() if parameter.requires_grad}
        if not trainable:
            raise ValueError(
                "net: no parameter requires a gradient, so there is nothing to train. Unfreeze some, for "
                "example with net.head.requires_grad_()."
            )
        self.trained = {name: tensor for name, tensor in self.parameters.items() if name in trainable}
        objectives = [with_views(run.objective or objective, recipe.views) for run in runs]
        self.sections = Section.split(objectives, self.stream.x)
        self.states = [self._initial_state(section) for section in self.sections]
        trained = [self.trained, *(state.trained for state in self.states)]
        self.moments = [optim.start(recipe, tensors) for tensors in trained]
        self.step = torch.zeros((), dtype=torch.int64, device=self.stream.device)
        self.rate = self._per_run([run.learning_rate for run in runs], recipe.learning_rate)
        self.weight_decay = self._per_run([run.weight_decay for run in runs], recipe.weight_decay)
        self._decays = bool(self.weight_decay.any())
        simple = recipe.has_constant_rate and recipe.norm_rate == 1
        self.common_rates = optim.common(self.rate, self.weight_decay) if simple else None
        self._rate_factors = _norm_factors(nets[0], recipe.norm_rate)
        self.averages = Averages(self)
        self._updating = [i for i, section in enumerate(self.sections) if section.objective.updates_state]
        self._ending = [i for i, section in enumerate(self.sections) if section.objective.ends_epochs]
        self._noisy = [section.runs if section.objective.needs_noise else None for section in self.sections]
        self._makes_inputs = self.sections[0].objective.makes_inputs
        assert not self._makes_inputs or len(self.sections) == 1, "one network cannot have several inputs"
        self._traceable = StackedBackend(self)
        self._eager: Backend = SingleBackend(self, nets[0]) if len(runs) == 1 else self._traceable
        self.dense = dense_backend(self, nets[0])
        if data_parallel.share() != (0, 1):
            self._eager = data_parallel.DataParallelBackend(self, self._eager)
            self.dense = None if self.dense is None else data_parallel.DataParallelBackend(self, self.dense)
        self._epoch = (0, torch.zeros((), dtype=self.rate.dtype))  # a CPU makes its tensor once per epoch
        # Batches assembled ahead of their step, starting with this epoch.
        self._upcoming: Iterator[tuple[Batch, list[Tensor | None]]] = iter(())
        self._upcoming_epoch: int | None = None

    @functools.cached_property
    def skeleton(self) -> nn.Module:
        """The architecture of the networks, without their tensors."""
        return copy.deepcopy(self._first_net).to("meta")

    def _per_run(self, values: list[float | None], default: float) -> Tensor:
        filled = [default if value is None else value for value in values]
        return torch.tensor(filled, dtype=self.stream.x.dtype, device=self.stream.device)

    def _initial_state(self, section: Section) -> State:
        runs, x = self.runs[section.runs], self.stream.x
        states = [o.init(r.train.candidates, r.weight) for r, o in zip(runs, section.objectives, strict=True)]
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
        """Logits of all runs and, in training mode, their new buffers; x is stacked or shared by all."""
        self.skeleton.train(training)
        shared = x.dim() == len(self.runs[0].train.in_shape) + 1

        def of_run(p: "optim.Tensors", b: "optim.Tensors", x: Tensor) -> "tuple[Tensor, optim.Tensors]":
            b = {name: buffer.clone() for name, buffer in b.items()}  # batch norm updates them in place
            with torch.autocast(x.device.type, torch.bfloat16, enabled=self.recipe.precision == "bfloat16"):
                logits = functional_call(self.skeleton, (p, b), (x,))
            return logits.to(x.dtype), b

        if shared:
            return over_runs(lambda p, b: of_run(p, b, x), parameters, buffers)  # type: ignore[no-any-return]
        return over_runs(of_run, parameters, buffers, x)  # type: ignore[no-any-return]

    # --- the step -------------------------------------------------------------------------------------------

    def advance(self, batch: Batch, noises: Sequence[Tensor | None]) -> Float[Tensor, "r"]:
        """One step of every run, in place; returns the losses.

        Args:
            batch: the rows of every run.
            noises: uniform draws for each section whose objective needs them.
        """
        backend = self._backend()
        time = self.time()
        if self.averages.is_used:
            batch = self.averages.with_teacher(batch)
        if self._makes_inputs:
            make = self.sections[0].objective.network_inputs
            batch = dataclasses.replace(batch, x=over_runs(make, batch.x, noises[0]))
        inputs = [backend.section_inputs(i, batch, time, noise) for i, noise in enumerate(noises)]
        losses, logits, gradients = backend.losses_and_gradients(batch, inputs)
        for group, group_gradients in zip(backend.groups, gradients, strict=True):
            self._descend(group, group_gradients, time)
        for i in self._updating:
            self._remember(i, batch, backend.update(i, batch, inputs[i], logits))
        self.step.add_(1)
        if self.averages.is_used:
            self.averages.update()
        return losses

    def _backend(self) -> Backend:
        if is_traced():
            return self._traceable
        return self._eager if self.dense is None or torch.is_autocast_enabled("cpu") else self.dense

    def time(self) -> StepTime:
        """When the current step happens."""
        dtype, per_epoch = self.rate.dtype, len(self.batch_sizes)
        if self.stream.device.type == "cpu" and not is_traced():
            step = int(self.step)  # reading it does not wait for a device
            epoch = step // per_epoch
            if epoch != self._epoch[0]:
                self._epoch = (epoch, torch.scalar_tensor(epoch, dtype=dtype))
            return StepTime(torch.scalar_tensor(step / self.total_steps, dtype=dtype), self._epoch[1])
        epochs = torch.div(self.step, per_epoch, rounding_mode="floor")
        return StepTime(self.step.to(dtype) / self.total_steps, epochs.to(dtype))

    def _descend(self, group: Group, gradients: optim.Tensors, time: StepTime) -> None:
        """The optimizer's step on one group."""
        runs, tensors, moments = group
        if not tensors:
            return
        if self.common_rates is not None and not is_traced():
            optim.advance_fused(self.recipe, tensors, gradients, moments, *self.common_rates, self.step)
            return
        rate, weight_decay = self.rate[runs], self.weight_decay[runs] if self._decays else None
        if not self.recipe.has_constant_rate:
            rate = rate * self.recipe.rate_factor(time.epoch, time.progress)
        optim.advance(
            self.recipe,
            tensors,
            gradients,
            moments,
            rate=rate,
            weight_decay=weight_decay,
            steps=self.step,
            factors=self._rate_factors,
        )

    def batch_state(self, section: int, batch: Batch) -> State:
        """State of one section's runs, reduced to the rows of the batch."""
        state = self.states[section]
        if not state.rows:
            return state
        place = self._rows_of(section, batch)
        return state._replace(rows={name: rows[place] for name, rows in state.rows.items()})

    def _remember(self, section: int, batch: Batch, new: State) -> None:
        """Write the new state of one section's runs over the old one."""
        state, place = self.states[section], self._rows_of(section, batch)
        for name, rows in state.rows.items():
            rows[place] = new.rows[name].to(rows.dtype)
        write(state.shared, new.shared)

    def _rows_of(self, section: int, batch: Batch) -> tuple[Tensor, Tensor]:
        index = batch.index[self.sections[section].runs]
        return torch.arange(index.shape[0], device=index.device)[:, None], index

    # --- epochs ---------------------------------------------------------------------------------------------

    def batches(
        self, epoch: int, first: int = 0, *, epochs: int = 1
    ) -> Iterator[tuple[Batch, list[Tensor | None]]]:
        """The batches of one or more epochs after the `first` ones, with noise for each section."""
        return self.stream.batches(range(epoch, epoch + epochs), self._noisy, first)

    def next_batch(self, index: Tensor) -> tuple[Batch, list[Tensor | None]]:
        """The given rows as the batch of the current step, with noise for each section."""
        batch = self.stream.batch(index, self.step)
        return batch, self.stream.noises(self._noisy, self.step, batch.keys)

    @torch.no_grad()
    def train_epoch(self, epoch: int) -> Float[Tensor, "r"]:
        """Every step of one epoch; returns each run's mean loss without waiting for the device."""
        if epoch != self._upcoming_epoch:
            self._upcoming = self.batches(epoch, epochs=max(1, self.recipe.epochs - epoch))
        self._upcoming_epoch = None  # until all steps are taken
        total = torch.zeros_like(self.rate)
        for batch, noises in itertools.islice(self._upcoming, len(self.batch_sizes)):
            total += self.advance(batch, noises)
        self._upcoming_epoch = epoch + 1
        self.end_epoch(epoch + 1)
        return total / len(self.batch_sizes)

    def end_epoch(self, done: int) -> None:
        """What objectives do between epochs, `done` of which are completed."""
        if not self._ending:
            return
        # In double precision, as the shares of training that it is compared with.
        step = Step(torch.tensor(done / self.recipe.epochs, dtype=torch.float64), torch.tensor(float(done)))
        needed = any(self.sections[i].objective.needs_outputs for i in self._ending)
        outputs = self.training_outputs() if needed else None
        for i in self._ending:
            section, state = self.sections[i], self.states[i]
            for j, objective in enumerate(section.objectives):
                old, run = _of_run(j, state), section.runs.start + j
                shared = self.stream.candidates.dim() == 2
                candidates = self.stream.candidates if shared else self.stream.candidates[run]
                seen = None if outputs is None else outputs[run]
                weight = self.stream.weight
                weight = weight[run] if weight is not None and weight.dim() == 2 else weight
                new = objective.end_epoch(candidates, old, step._replace(outputs=seen, weight=weight))
                write(old.rows, new.rows)
                write(old.shared, new.shared)

    @torch.no_grad()
    def training_outputs(self) -> Float[Tensor, "r n m"]:
        """Outputs of all runs for their training rows, not augmented, in evaluation mode."""
        x, in_shape = self.stream.x, self.runs[0].train.in_shape
        rows = x.dim() - len(in_shape) - 1
        parts = [
            self.forward(self.parameters, self.buffers, part, training=False)[0]
            for part in x.split(SCORING_CHUNK, rows)
        ]
        return torch.cat(parts, dim=1)

    # --- predictions ----------------------------------------------------------------------------------------

    def scores(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "r n k"]:
        """Scores of all runs for the same x, in evaluation mode."""
        return self.decode(self.logits(x))

    @torch.no_grad()
    def logits(self, x: Float[Tensor, "n ..."], runs: slice = slice(None)) -> Float[Tensor, "r n k"]:
        """Outputs of some runs (by default all) for the same x, in evaluation mode."""
        chunk = max(1, SCORING_CHUNK // len(self.runs)) if self.stream.device.type == "cpu" else SCORING_CHUNK
        parameters, buffers = self.parameters, self.buffers
        if runs != slice(None):
            parameters = {name: tensor[runs] for name, tensor in parameters.items()}
            buffers = {name: tensor[runs] for name, tensor in buffers.items()}
        parts = [
            self.forward(parameters, buffers, part, training=False)[0]
            for part in x.to(self.stream.x).split(chunk)
        ]
        return torch.cat(parts, dim=1)

    @torch.no_grad()
    def decode(self, logits: Float[Tensor, "r n k"]) -> Float[Tensor, "r n k"]:
        """Scores from outputs, as the objectives read them."""
        scores = []
        for section, state in zip(self.sections, self.states, strict=True):
            section_logits = logits[section.runs]
            if type(section.objective).scores is Objective.scores:
                scores.append(section_logits)
                continue
            for j, objective in enumerate(section.objectives):
                scores.append(objective.scores(section_logits[j], _of_run(j, state._replace(rows={})))[None])
        return torch.cat(scores)

    def classifiers(self) -> list[NetClassifier]:
        """One classifier per run, which further training leaves unchanged."""
        fitted = []
        for section, state in zip(self.sections, self.states, strict=True):
            for j, objective in enumerate(section.objectives):
                copied = State(*({k: v.clone() for k, v in part.items()} for part in _of_run(j, state)))
                net = self._network(section.runs.start + j)
                fitted.append(NetClassifier(net, *without_views(objective, copied)))
        return fitted

    def _network(self, run: int) -> nn.Module:
        """A network with the current weights of one run."""
        net, stacked = copy.deepcopy(self._first_net), {**self.parameters, **self.buffers}
        for name, target in [*net.named_parameters(), *net.named_buffers()]:
            target.data = stacked[name][run].clone()
        return net.eval()

    # --- checkpoints and captures ---------------------------------------------------------------------------

    def tensors(self) -> optim.Tensors:
        """Everything that training changes, by unique names."""
        named = {"step": self.step}
        named |= {f"parameters/{k}": v for k, v in self.parameters.items()}
        named |= {f"buffers/{k}": v for k, v in self.buffers.items()}
        for i, group in enumerate(self.moments):
            named |= {f"moments/{i}/{name}/{k}": v for name, part in group.items() for k, v in part.items()}
        named |= self.averages.tensors()
        for i, state in enumerate(self.states):
            parts = state._asdict().items()
            named |= {f"state/{i}/{part}/{k}": v for part, tensors in parts for k, v in tensors.items()}
        return named

    def load(self, tensors: optim.Tensors) -> None:
        """Continue from what `tensors` returned."""
        write(self.tensors(), tensors)

    def constants(self) -> list[Tensor]:
        """Everything that training reads and does not change."""
        tensors = [*self.stream.tensors(), self.rate, self.weight_decay]
        return tensors + [tensor for section in self.sections for tensor in section.varied.values()]

    def shape(self) -> str:
        """Everything but the contents of tensors; stacks of one shape are trained by the same operations."""
        parts: list[Any] = [
            len(self.runs),
            self.recipe,
            str(self.skeleton),
            self._decays,
            str(self.stream.device),
        ]
        parts += [(k, tuple(v.shape), v.stride(), str(v.dtype)) for k, v in self.tensors().items()]
        parts += [(tuple(v.shape), v.stride(), str(v.dtype)) for v in self.constants()]
        for section in self.sections:
            values = section.objective.hyperparameters()
            fixed = {name: value for name, value in values.items() if name not in section.varied}
            parts.append((objective_kind(section.objective), section.runs, sorted(section.varied), fixed))
        return repr(parts)

    def adopt(self, other: "Stack") -> None:
        """Become another stack of the same shape, in the memory of this one."""
        self.runs, self.common_rates, self._upcoming_epoch = other.runs, other.common_rates, None
        for section, new in zip(self.sections, other.sections, strict=True):
            section.objectives, section.objective = new.objectives, new.objective
        for tensor, value in zip(self.constants(), other.constants(), strict=True):
            tensor.copy_(value)
        self.load(other.tensors())

    def fingerprint(self) -> str:
        """Digest of everything the result depends on: data, seeds, objectives, network, recipe."""
        parts: list[Any] = [self.recipe, str(self.skeleton), self.stream.n]
        parts += [(k, tuple(v.shape), str(v.dtype)) for k, v in self.parameters.items()]
        taught = [run.peers.start for run in self.runs if run.peers is not None]
        parts += [taught] if taught else []
        balanced = [run.peers is not None and run.peers.balanced for run in self.runs]
        parts += [balanced] if any(balanced) else []
        for run, objective in zip(self.runs, [o for s in self.sections for o in s.objectives], strict=True):
            parts.append(
                (run.seed, run.learning_rate, run.weight_decay, objective_kind(objective), repr(objective))
            )
        return counter_rng.digest(
            repr(parts),
            self.stream.x,
            self.stream.candidates,
            self.stream.weight,
            self.stream.keys,
            *starting_weights(self.net),
        )


def _norm_factors(net: nn.Module, factor: float) -> dict[str, float]:
    """Factor on the learning rate by parameter name: `factor` in normalization layers, 1 elsewhere."""
    norms = nn.modules.batchnorm._NormBase | nn.LayerNorm | nn.GroupNorm  # noqa: SLF001 - their common base
    layers = {name: module for name, module in net.named_modules() if isinstance(module, norms)}
    named = (f"{name}.{key}" for name, layer in layers.items() for key, _ in layer.named_parameters())
    return {} if factor == 1 else dict.fromkeys(named, factor)


def _stacked(parts: Sequence[dict[str, Tensor]]) -> optim.Tensors:
    return {name: torch.stack([part[name].detach() for part in parts]) for name in parts[0]}


def _of_run(run: int, state: State) -> State:
    """The part of a section's state that belongs to one run."""
    return State(*({name: tensor[run] for name, tensor in part.items()} for part in state))

"""The training loop: epochs, checkpoints and progress of stacked runs."""

import itertools
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from propall.data.dataset import PartialDataset
from propall.labels.candidates import check
from propall.numerics import check_finite_rows
from propall.training import compiled
from propall.training.checkpoint import Checkpoint, TimeLimitReached, is_past
from propall.training.contract import (
    Algorithm,
    Classifier,
    Monitor,
    NetFactory,
    Objective,
    Run,
    TrainingSetup,
    check_weight,
)
from propall.training.networks import NetClassifier
from propall.training.peers import exchange
from propall.training.recipe import Recipe
from propall.training.sections import objective_kind
from propall.training.stack import Stack
from propall.wording import plural


@dataclass(frozen=True)
class Trainer(Algorithm):
    """Fits networks to an objective by mini-batch gradient descent, many runs at once.

    Runs of equal shape are stacked: they share the architecture and differ in data, seed, objective and
    rates. The result of a run does not depend on which runs share its stack.

    Attributes:
        objective: the loss, for runs without one of their own.
        net: builds the network from (shape of one instance, number of classes), or a module whose weights
            every run starts from. Parameters that require no gradient stay fixed. Layers with their own
            randomness, such as dropout, use torch's generator, not the run's seed.
        recipe: epochs, batches, optimizer.
        checkpoint: where to save progress; a later `fit` of the same runs continues from there.
        fast: see `TrainingSetup`.
        stack: maximum number of runs trained at once; None: as many as fit in memory.

    Examples:
        >>> import torch
        >>> from propall.data import PartialDataset
        >>> x = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
        >>> candidates = torch.tensor([[True, False], [True, True], [True, True], [False, True]])
        >>> data = PartialDataset(x, candidates)
        >>> from propall.methods.propall import ProPaLL
        >>> from propall.nets import Linear
        >>> trainer = Trainer(ProPaLL(), Linear, Recipe(epochs=50, learning_rate=0.5))
        >>> classifiers = trainer.fit([Run(data, seed=0), Run(data, seed=1)])  # both at once
        >>> classifiers[0].predict(torch.tensor([[-1.0], [4.0]])).tolist()
        [0, 1]
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
        """Hyper-parameters of the objective."""
        return self.objective.hyperparameters()

    def with_training(self, setup: TrainingSetup) -> Algorithm:
        """The same objective in another setup."""
        return self.objective.with_training(setup)

    def scoring_objective(self) -> Objective:
        """The objective."""
        return self.objective

    def fit(self, runs: Sequence[Run], *, monitor: Monitor | None = None) -> list[Classifier]:
        """Train all runs, those of equal shape together."""
        for train in {id(run.train): run.train for run in runs}.values():  # runs may share their data
            _check_data(train)
        for run in runs:
            _check_run(run)
        return fit_in_stacks(
            runs,
            lambda run, count: self.stack or compiled.stack_limit(self.net, self.recipe, run, count),
            lambda positions: self._fit_stack(runs, positions, monitor or Monitor()),
            # A section of the stack is a slice: its runs must be neighbors.
            key=lambda run: objective_kind(run.objective or self.objective),
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
    """Raise an error for data that no network can be trained on."""
    if train.in_files:
        return  # it was checked when it was written
    check(train.candidates, quiet=True)
    if train.x.dtype not in (torch.float32, torch.float64):
        raise TypeError(
            f"x: got dtype {train.x.dtype}; expected torch.float32 or torch.float64. For half precision use "
            "float32 with Recipe(precision='bfloat16')."
        )
    check_finite_rows(train.x)


def _check_run(run: Run) -> None:
    """Raise ValueError for weights and keys that do not fit the data."""
    for name, value in (("weight", run.weight), ("keys", run.keys)):
        if value is not None and value.shape != (len(run.train),):
            raise ValueError(f"{name}: got shape {tuple(value.shape)}; expected {(len(run.train),)}.")
    if run.weight is not None:
        check_weight(run.weight)


class DivergedWarning(RuntimeWarning):
    """Training ended with parameters that are no finite numbers."""


class Progress:
    """How many epochs of a stack are done, and where that is saved.

    Args:
        checkpoint: where to save; None: nowhere.
        fingerprint: identifies the training; called only if there is a checkpoint.
    """

    def __init__(self, checkpoint: Checkpoint | Path | None, fingerprint: Callable[[], str]) -> None:
        self.checkpoint = Checkpoint(checkpoint) if isinstance(checkpoint, Path) else checkpoint
        self._name = "" if self.checkpoint is None else fingerprint()
        self.saved = None if self.checkpoint is None else self.checkpoint.open(self._name)
        self.done = 0 if self.saved is None else self.saved.epoch
        self._epoch_end: float | None = None

    def load(self, stack: Stack, monitor: Monitor) -> None:
        """Restore stack and monitor from the last save, if there is one."""
        if self.saved is not None:
            stack.load(self.saved.tensors)
            monitor.restore(self.saved.monitor)
            self.saved = None

    def save(self, epoch: int, epochs: int, training: compiled.Captured | Stack, monitor: Monitor) -> None:
        """Save after an epoch, if a save is due; raises `TimeLimitReached` if the deadline is too near."""
        if self.checkpoint is None:
            return
        deadline = self.checkpoint.deadline
        stops = epoch < epochs and deadline is not None and self._next_epoch_is_late(training, deadline)
        if stops or self.checkpoint.due(epoch, epochs):
            self.checkpoint.save(self._name, epoch, training.tensors(), monitor.state())
        if stops:
            raise TimeLimitReached

    def _next_epoch_is_late(self, training: compiled.Captured | Stack, deadline: float) -> bool:
        """Whether an epoch that takes as long as the one that ends now would end after the deadline."""
        # Otherwise epochs that a GPU has yet to train would pass for trained.
        compiled.synchronize(next(iter(training.tensors().values())).device)
        now = time.time()
        seconds = 0.0 if self._epoch_end is None else now - self._epoch_end
        self._epoch_end = now
        return is_past(deadline - seconds)


def train_stack(
    stack: Stack,
    positions: Sequence[int],
    monitor: Monitor,
    *,
    fast: bool | None,
    progress: Progress,
    epochs_before: int = 0,
) -> list[NetClassifier]:
    """Train a stack for the remaining epochs of its recipe; returns one classifier per run.

    Args:
        stack: the runs.
        positions: their positions, for the monitor.
        monitor: called after every epoch.
        fast: see `TrainingSetup`.
        progress: epochs done so far, and where to save.
        epochs_before: epochs of an earlier phase, added to the monitor's count.
    """
    epochs = stack.recipe.epochs
    has_peers = any(run.peers is not None for run in stack.runs)
    with compiled.training(stack, fast) as training:
        for epoch in range(progress.done, epochs):
            losses = training.train_epoch(epoch)
            if has_peers and epoch + 1 < epochs:
                exchange(training.stack if isinstance(training, compiled.Captured) else training, epoch + 1)
            monitor.epoch(epochs_before + epoch + 1, positions, losses, training.scores)
            progress.save(epoch + 1, epochs, training, monitor)
        classifiers = training.classifiers()
    _warn_of_divergence(classifiers, stack.recipe)
    return classifiers


def _warn_of_divergence(classifiers: Sequence[NetClassifier], recipe: Recipe) -> None:
    diverged = sum(
        not all(parameter.isfinite().all() for parameter in classifier.net.parameters())
        for classifier in classifiers
    )
    if diverged:
        warnings.warn(
            f"training diverged: {diverged} of {plural(len(classifiers), 'network')} ended with parameters "
            "that are no finite numbers, so predictions mean nothing. Lower the learning rate "
            f"({recipe.learning_rate:g}).",
            DivergedWarning,
            stacklevel=2,
        )


def fit_in_stacks(
    runs: Sequence[Run],
    limit: Callable[[Run, int], int],
    fit_stack: Callable[[list[int]], dict[int, Classifier]],
    key: Callable[[Run], str] = lambda run: "",
) -> list[Classifier]:
    """Fit runs of equal shape together, as many at once as fit in memory; returns one classifier per run.

    Args:
        runs: the runs.
        limit: maximum number to fit at once, given one run and the number of runs of its shape.
        fit_stack: fits the runs at some positions; returns their classifiers by position.
        key: order of runs of equal shape.
    """
    groups: dict[object, list[int]] = {}
    for i, run in enumerate(runs):
        x = run.train.x
        groups.setdefault((x.shape, run.train.candidates.shape, x.dtype, x.device), []).append(i)
    pending: list[list[int]] = []
    for positions in groups.values():
        positions.sort(key=lambda i: key(runs[i]))
        most = limit(runs[positions[0]], len(positions))
        pending += split_runs(runs, positions, most)
    fitted: dict[int, Classifier] = {}
    while pending:
        positions = pending.pop(0)
        try:
            fitted |= fit_stack(positions)
        except torch.OutOfMemoryError:
            if compiled.release():
                pending.insert(0, positions)
                continue
            # The estimate was too optimistic; half as many runs need half the memory.
            torch.cuda.empty_cache()
            parts = split_runs(runs, positions, (len(positions) + 1) // 2)
            if len(parts) == 1:
                raise
            pending[:0] = parts
    return [fitted[i] for i in range(len(runs))]


def split_runs(runs: Sequence[Run], positions: Sequence[int], most: int) -> list[list[int]]:
    """Split positions into parts of at most `most` runs; members that teach each other stay together."""
    parts: list[list[int]] = []

    def ensemble(position: int) -> int:
        peers = runs[position].peers
        return position if peers is None else id(peers)

    for _, members in itertools.groupby(positions, ensemble):
        together = list(members)
        if parts and len(parts[-1]) + len(together) <= most:
            parts[-1] += together
        else:
            parts.append(together)
    return parts

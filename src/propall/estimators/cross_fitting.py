"""Fitting models on all folds of a data set at once."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from propall.estimators.classifier import PartialLabelClassifier
from propall.estimators.ensemble import out_of_bag_probabilities
from propall.estimators.folds import Fold
from propall.estimators.scorers import Criterion, score_or_nan
from propall.labels.candidates import CandidateLabels
from propall.training.contract import Classifier, Monitor, Objective, Run, RunScores
from propall.training.metrics import CombinedMonitor

#: Number of epochs at which early stopping may stop.
EARLY_STOPS = 20
#: Memory limit, in bytes, for the data and the method memories of runs trained together.
STACK_BYTES = 1 << 30


class FoldModel(NamedTuple):
    """A model fitted on all rows but those of one fold, and its held-out criterion by epoch, if monitored."""

    position: int
    fold: int
    model: PartialLabelClassifier
    curve: dict[int, float]


class CrossFitting:
    """Fits models on every fold of a data set, in as few stacks as possible.

    Models that differ only in objective, learning rate and weight decay are trained together, on all folds of
    one size at once if memory permits: runs on the same fold share its rows.
    """

    def __init__(
        self,
        features: NDArray[Any],
        labels: CandidateLabels,
        weight: NDArray[Any] | None,
        folds: Sequence[Fold],
    ) -> None:
        self.features, self.labels, self.weight, self.folds = features, labels, weight, folds
        self.mask = labels.to_numpy()

    def refusal(self, model: PartialLabelClassifier) -> str:
        """Return why the model's objective cannot learn from the rows of some fold; empty if it can."""
        method = model.ensemble().method
        try:
            if isinstance(method, Objective):
                for fit, _ in self.folds:
                    method.init(self.labels.mask[torch.from_numpy(fit)])
        except ValueError as error:
            return str(error)
        return ""

    def held_out_weight(self, fold: int) -> NDArray[Any] | None:
        """Return the weights of the rows that a fold holds out."""
        return None if self.weight is None else self.weight[self.folds[fold][1]]

    def fit(
        self,
        models: Sequence[PartialLabelClassifier],
        *,
        criterion: Criterion | None = None,
        monitor: Monitor | None = None,
    ) -> Iterator[FoldModel]:
        """Fit copies of every model on every fold; evaluate a criterion on the held-out rows meanwhile."""
        for positions, folds in self.stacks(models):
            yield from self.fit_stack(models, positions, folds, criterion, monitor)

    def stacks(self, models: Sequence[PartialLabelClassifier]) -> list[tuple[list[int], list[int]]]:
        """Return which models (by position) are trained together on which folds."""
        groups: dict[Any, list[int]] = {}
        for i, model in enumerate(models):
            groups.setdefault(_stack_key(i, model), []).append(i)
        all_folds = list(range(len(self.folds)))
        memory = 8 * self.mask.size  # upper bound: one number per row and class, as in PRODEN
        stacks = []
        for group in groups.values():
            if (self.features.nbytes + memory) * len(all_folds) * len(group) <= STACK_BYTES:
                stacks.append((group, all_folds))
                continue
            limit = max(1, STACK_BYTES // memory)
            parts = [group[start : start + limit] for start in range(0, len(group), limit)]
            stacks += [(part, [fold]) for fold in all_folds for part in parts]
        return stacks

    def fit_stack(
        self,
        models: Sequence[PartialLabelClassifier],
        positions: Sequence[int],
        folds: Sequence[int],
        criterion: Criterion | None = None,
        monitor: Monitor | None = None,
    ) -> Iterator[FoldModel]:
        """Fit copies of some models on some folds together; see `stacks`."""
        in_shape = tuple(self.features.shape[1:])
        ensembles = {i: models[i].ensemble().adapted_to(in_shape) for i in positions}
        leader = ensembles[positions[0]]
        standardizations, held_out = {}, {}
        owners: list[tuple[int, int]] = []
        runs: list[Run] = []
        wholes: dict[int, Run] = {}
        for fold in folds:
            fit, hold = self.folds[fold]
            weight = None if self.weight is None else self.weight[fit]
            standardization = leader.standardization(self.features[fit], weight)
            whole = leader.whole_run(self.features[fit], self.labels[fit], weight, standardization)
            standardizations[fold], wholes[fold] = standardization, whole
            held_out[fold] = (
                standardization.apply(self.features[hold]).to(whole.train.x.device),
                self.mask[hold],
                self.held_out_weight(fold),
            )
            for i, ensemble in ensembles.items():
                method = ensemble.method
                run = dataclasses.replace(
                    whole,
                    objective=method if isinstance(method, Objective) else None,
                    learning_rate=ensemble.recipe.learning_rate,
                    weight_decay=ensemble.recipe.weight_decay,
                )
                members_of_fold = ensemble.members(run)
                owners += [(i, fold)] * len(members_of_fold)
                runs += members_of_fold
        # Epochs of an algorithm's phases are not the recipe's epochs, so only objectives can stop early.
        curves = None
        if criterion is not None and isinstance(leader.method, Objective):
            curves = _HeldOutCurves(criterion, owners, held_out)
        together = CombinedMonitor(curves, monitor)
        classifiers = leader.algorithm(weighted=self.weight is not None).fit(runs, monitor=together)
        members: dict[tuple[int, int], list[tuple[Classifier, Run]]] = {}
        for owner, classifier, run in zip(owners, classifiers, runs, strict=True):
            members.setdefault(owner, []).append((classifier, run))
        classes = self.labels.decode(range(self.labels.n_classes))
        for (i, fold), pairs in members.items():
            model_members, member_runs = map(list, zip(*pairs, strict=True))
            model = type(models[i])(**models[i].get_params(deep=False))
            model.adopt(model_members, classes, in_shape, standardizations[fold])
            if model.bagging is not None:
                model.out_of_bag_ = out_of_bag_probabilities(model_members, member_runs, wholes[fold])
            yield FoldModel(i, fold, model, {} if curves is None else curves.curves[i, fold])


def _stack_key(position: int, model: PartialLabelClassifier) -> Any:
    """Equal for models that can be trained together."""
    if not isinstance(model.ensemble().method, Objective):
        return position
    per_run = {
        "method",
        "learning_rate",
        "weight_decay",
        "n_estimators",
        "random_state",
        "verbose",
        "targets",
    }
    shared = {k: v for k, v in model.get_params(deep=False).items() if k not in per_run}
    return repr({**shared, "net": model.net if isinstance(model.net, str) else id(model.net)})


class _HeldOutCurves(Monitor):
    """Evaluates a criterion on each run's held-out rows at `EARLY_STOPS` epochs."""

    def __init__(
        self,
        criterion: Criterion,
        owners: Sequence[tuple[int, int]],
        held_out: Mapping[int, tuple[Tensor, NDArray[np.bool_], NDArray[Any] | None]],
    ) -> None:
        # Model and fold of each run; features, candidate matrix and weights of each fold's held-out rows.
        self.criterion, self.owners, self.held_out = criterion, owners, held_out
        self.curves: dict[tuple[int, int], dict[int, float]] = {owner: {} for owner in owners}
        self._epochs = 0

    def begin(self, epochs: int, runs: Sequence[int], done: int) -> None:
        """Record the number of epochs."""
        self._epochs = epochs

    def epoch(self, epoch: int, runs: Sequence[int], losses: Float[Tensor, "r"], scores: RunScores) -> None:
        """Evaluate every run on the rows its fold holds out."""
        if epoch % max(1, self._epochs // EARLY_STOPS) and epoch != self._epochs:
            return
        for fold in {self.owners[run][1] for run in runs}:
            x, mask, weight = self.held_out[fold]
            probabilities = scores(x).softmax(-1).cpu().numpy()
            for place, run in enumerate(runs):
                if self.owners[run][1] == fold:
                    value = score_or_nan(self.criterion, probabilities[place], mask, weight)
                    self.curves[self.owners[run]][epoch] = value

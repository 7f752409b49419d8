"""Test accuracy of runs while the runner trains them, each on its own test set."""

import time
from collections.abc import Collection, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from propall.data.dataset import Problem
from propall.paper.specs import Spec
from propall.training.compiled import synchronize
from propall.training.contract import Monitor, RunScores
from propall.training.metrics import ProgressBar, accuracy, confusion
from propall.wording import duration, join_names, plural

#: Every one of the first and last epochs is measured.
EARLY_EPOCHS, LATE_EPOCHS = 40, 10
#: Most methods that a progress bar names.
NAMED_METHODS = 3


class AccuracyListener(Monitor):
    """A monitor that also receives test accuracies. The base class does nothing."""

    def starting(self, specs: Sequence[Spec]) -> None:
        """Receive the runs of the next stack; positions count from the first of them."""

    def measured(self, epoch: int, accuracies: dict[int, float]) -> None:
        """Receive the test accuracy of some runs, by their position, after an epoch."""


class AccuracyBar(ProgressBar, AccuracyListener):
    """A progress bar that names the runs, the latest mean test accuracy and the time since the start."""

    _specs: Sequence[Spec] = ()

    def starting(self, specs: Sequence[Spec]) -> None:
        """Store which runs come next."""
        self._specs = specs

    def begin(self, epochs: int, runs: Sequence[int], done: int) -> None:
        """Start a bar and its clock."""
        super().begin(epochs, runs, done)
        self._start = time.perf_counter()
        self._text = f"{self.what}, {self._name(runs)}"
        self.describe(self._text)

    def _name(self, runs: Sequence[int]) -> str:
        """Name the methods of some runs, their fold if they share it, and the seed of a single run."""
        specs = [self._specs[run] for run in runs if run < len(self._specs)]
        titles = list(dict.fromkeys(spec.title for spec in specs))
        methods = join_names(titles) if len(titles) <= NAMED_METHODS else f"{len(titles)} methods"
        folds = {spec.split.fold for spec in specs}
        fold = "".join(f"fold {fold}" for fold in folds if fold is not None) if len(folds) == 1 else ""
        which = f"seed {specs[0].seed}" if len(specs) == len(runs) == 1 else plural(len(runs), "run")
        return ", ".join(filter(None, [methods, fold, which]))

    def measured(self, epoch: int, accuracies: dict[int, float]) -> None:
        """Show the mean accuracy."""
        mean = 100 * sum(accuracies.values()) / len(accuracies)
        seconds = duration(time.perf_counter() - self._start)
        self.describe(f"{self._text}: {mean:.1f} % after {seconds}")


class CurveRecorder(Monitor):
    """Records learning curves of runs that may have different test sets, such as cross-validation folds.

    Args:
        problems: one per run.
        every: epochs between measurements, except in the first `EARLY_EPOCHS` and last `LATE_EPOCHS`.
        confusions, recalls: positions of the runs whose confusion matrices or per-class recalls are recorded.
        listener: receives the accuracies as they are measured.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        *,
        every: int = 1,
        confusions: Collection[int] = (),
        recalls: Collection[int] = (),
        listener: AccuracyListener | None = None,
    ) -> None:
        self.problems, self.every = problems, every
        self.confusions, self.recalls = frozenset(confusions), frozenset(recalls)
        self._listener = listener
        self._epochs = 0
        self._measured: dict[str, Tensor] = {}
        self._start = time.perf_counter()
        self._seconds_before, self._seconds_measuring = 0.0, 0.0

    def begin(self, epochs: int, runs: Sequence[int], done: int) -> None:
        """Store the number of epochs, and after which one training resumes."""
        self._epochs = epochs
        if done:
            self._measured[f"resumed/{done}"] = torch.tensor(done)

    def due(self, epoch: int) -> bool:
        """Return whether this epoch is measured."""
        return epoch % self.every == 0 or epoch <= EARLY_EPOCHS or epoch > max(0, self._epochs - LATE_EPOCHS)

    def epoch(self, epoch: int, runs: Sequence[int], losses: Tensor, scores: RunScores) -> None:
        """Score each test set once with all runs; keep for each run the scores on its own test set."""
        if not self.due(epoch):
            return
        alone, device = len(self.problems) == 1, losses.device
        if alone:  # other runs have no training time of their own
            synchronize(device)
            trained = torch.tensor(self.seconds - self._seconds_measuring, dtype=torch.float64)
            self._measured[f"time/{epoch}"] = trained
        start = time.perf_counter()
        by_test_set: dict[int, list[int]] = {}
        for place, run in enumerate(runs):
            by_test_set.setdefault(self.problems[run].test_x.data_ptr(), []).append(place)
        accuracies: dict[int, Tensor] = {}
        recalls: dict[int, Tensor] = {}
        for places in by_test_set.values():
            problem = self.problems[runs[places[0]]]
            outputs = scores(problem.test_x)[places]
            truth = problem.test_truth.to(outputs.device)
            tested = [runs[place] for place in places]
            accuracies |= zip(tested, accuracy(outputs, truth).unbind(), strict=True)
            for i, run in enumerate(tested):
                if run in self.confusions | self.recalls:
                    counts = confusion(outputs[i], truth)
                if run in self.confusions:
                    self._measured[f"confusion/{run}/{epoch}"] = counts
                if run in self.recalls:
                    recalls[run] = counts.diag().double() / counts.sum(1).clamp(1)
        # One tensor for all runs of an epoch keeps the number of tensors in a checkpoint low.
        self._measured[f"accuracy/{epoch}/{_joined(accuracies)}"] = torch.stack(list(accuracies.values()))
        if recalls:
            self._measured[f"recall/{epoch}/{_joined(recalls)}"] = torch.stack(list(recalls.values()))
        if self._listener is not None:
            self._listener.measured(epoch, {run: float(value) for run, value in accuracies.items()})
        if alone:
            synchronize(device)
        self._seconds_measuring += time.perf_counter() - start

    @property
    def seconds(self) -> float:
        """Seconds since the start, including those of earlier processes that this one resumed."""
        return self._seconds_before + time.perf_counter() - self._start

    def times(self) -> dict[int, float]:
        """Return training seconds up to each epoch, without evaluation; empty unless the run trains alone.

        The start of a process that resumed the run, with its compiling, is left out: the time up to its first
        measured epoch counts like the other epochs. If there are no others, only the first time is returned.
        """
        measured = {int(epoch): float(value) for epoch, value in self._measured_at("time")}
        resumed = [int(epoch) for epoch, _ in self._measured_at("resumed")]
        times = dict(list(measured.items())[:1])
        steps = list(pairwise(measured))
        starts = {(a, b) for a, b in steps if any(a <= done < b for done in resumed)}
        others = [step for step in steps if step not in starts]
        if steps and not others:  # nothing is known of the time of an epoch
            return times
        epochs = sum(b - a for a, b in others)
        pace = sum(measured[b] - measured[a] for a, b in others) / max(1, epochs)
        for a, b in steps:
            times[b] = times[a] + ((b - a) * pace if (a, b) in starts else measured[b] - measured[a])
        return times

    def _measured_at(self, kind: str) -> list[tuple[str, Tensor]]:
        """Select what has one value per epoch, in the order of epochs."""
        chosen = [
            (name.removeprefix(f"{kind}/"), value)
            for name, value in self._measured.items()
            if name.startswith(f"{kind}/")
        ]
        return sorted(chosen, key=lambda item: int(item[0]))

    def accuracies(self, run: int) -> dict[int, float]:
        """Return the accuracy of a run by epoch."""
        return {epoch: float(value) for epoch, value in self._of_run("accuracy", run).items()}

    def confusion_matrices(self, run: int) -> dict[int, list[list[int]]]:
        """Return the counts of (true class, predicted class) of a run by epoch."""
        matrices = {}
        for name, counts in self._measured.items():
            kind, *rest = name.split("/")
            if kind == "confusion" and int(rest[0]) == run:
                matrices[int(rest[1])] = counts.tolist()
        return dict(sorted(matrices.items()))

    def class_recalls(self, run: int) -> dict[int, list[float]]:
        """Return the recall of each class of a run by epoch."""
        by_epoch = self._of_run("recall", run)
        return {epoch: [round(value, 5) for value in values.tolist()] for epoch, values in by_epoch.items()}

    def _of_run(self, kind: str, run: int) -> dict[int, Tensor]:
        """Select one run, by epoch, from tensors that hold several."""
        by_epoch = {}
        for name, values in self._measured.items():
            name_kind, *rest = name.split("/")
            if name_kind == kind and str(run) in (members := rest[1].split(",")):
                by_epoch[int(rest[0])] = values[members.index(str(run))]
        return dict(sorted(by_epoch.items()))

    def state(self) -> dict[str, Tensor]:
        """Return all measurements so far and the time spent."""
        spent = torch.tensor([self.seconds, self._seconds_measuring], dtype=torch.float64)
        return self._measured | {"spent": spent}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from earlier measurements; the clock resumes where it stopped."""
        measured = dict(state)
        if (spent := measured.pop("spent", None)) is not None:
            before, measuring = spent.tolist()
            self._seconds_before = max(self._seconds_before, before)
            self._seconds_measuring = max(self._seconds_measuring, measuring)
        self._measured |= measured


def _joined(runs: Collection[int]) -> str:
    return ",".join(map(str, runs))

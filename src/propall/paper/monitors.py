"""What is measured while runs train, each on its own test set."""

import time
from collections.abc import Callable, Collection, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from propall.data.dataset import Problem
from propall.training.contract import Monitor
from propall.training.metrics import accuracy, confusion

#: The first and the last epochs are all measured, whatever lies between them.
EARLY_EPOCHS, LATE_EPOCHS = 40, 10


class AccuracyListener(Monitor):
    """A monitor that also hears what was measured. This one does nothing."""

    def measured(self, epoch: int, accuracies: dict[int, float]) -> None:
        """The test accuracy of some runs (by position) after an epoch."""


class CurveRecorder(Monitor):
    """Accuracy by epoch of runs that may have different test sets, such as the folds of a cross-validation.

    Args:
        problems: one per run.
        every: epochs between measurements, the first `EARLY_EPOCHS` and the last `LATE_EPOCHS` aside.
        confusions: positions of the runs whose confusion matrices are kept too.
        recalls: positions of the runs whose accuracy is kept class by class.
        watcher: is told the accuracies.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        *,
        every: int = 1,
        confusions: Collection[int] = (),
        recalls: Collection[int] = (),
        watcher: AccuracyListener | None = None,
    ) -> None:
        self.problems, self.every = problems, every
        self.confusions, self.recalls = frozenset(confusions), frozenset(recalls)
        self._watcher = watcher
        self._epochs = 0
        self._measured: dict[str, Tensor] = {}
        self._begun = time.perf_counter()
        self._before, self._measuring = 0.0, 0.0

    def begin(self, epochs: int, runs: Sequence[int], done: int) -> None:
        """Remember how long training lasts."""
        self._epochs = epochs

    def due(self, epoch: int) -> bool:
        """Whether this epoch is measured."""
        return epoch % self.every == 0 or epoch <= EARLY_EPOCHS or epoch > max(0, self._epochs - LATE_EPOCHS)

    def epoch(
        self,
        epoch: int,
        runs: Sequence[int],
        losses: Float[Tensor, "r"],
        scores: Callable[[Tensor], Float[Tensor, "r n k"]],
    ) -> None:
        """Score every test set once, with all runs, and keep each run's scores of its own."""
        if not self.due(epoch):
            return
        start = self._note_time(epoch, losses.device)
        by_test_set: dict[int, list[int]] = {}
        for place, run in enumerate(runs):
            by_test_set.setdefault(self.problems[run].test_x.data_ptr(), []).append(place)
        now: dict[int, Tensor] = {}
        by_class: dict[int, Tensor] = {}
        for places in by_test_set.values():
            problem = self.problems[runs[places[0]]]
            outputs = scores(problem.test_x)[places]
            truth = problem.test_truth.to(outputs.device)
            now |= zip((runs[place] for place in places), accuracy(outputs, truth).unbind(), strict=True)
            for i, run in enumerate(runs[place] for place in places):
                if run in self.confusions | self.recalls:
                    counts = confusion(outputs[i], truth)
                if run in self.confusions:
                    self._measured[f"confusion/{run}/{epoch}"] = counts
                if run in self.recalls:
                    by_class[run] = counts.diag().double() / counts.sum(1).clamp(1)
        # One tensor for all runs of an epoch: a checkpoint of a long training holds hundreds, not thousands.
        self._measured[f"accuracy/{epoch}/{_joined(now)}"] = torch.stack(list(now.values()))
        if by_class:
            self._measured[f"recall/{epoch}/{_joined(by_class)}"] = torch.stack(list(by_class.values()))
        if self._watcher is not None:
            self._watcher.measured(epoch, {run: float(share) for run, share in now.items()})
        if len(self.problems) == 1:
            _wait_for(losses.device)
        self._measuring += time.perf_counter() - start

    def _note_time(self, epoch: int, device: torch.device) -> float:
        """Note when a run that trains by itself got here, and say when measuring started."""
        if len(self.problems) == 1:
            _wait_for(device)
            trained = torch.tensor(self.seconds - self._measuring, dtype=torch.float64)
            self._measured[f"time/{epoch}"] = trained
        return time.perf_counter()

    @property
    def seconds(self) -> float:
        """Time since the start, with that of earlier processes whose progress was taken up."""
        return self._before + time.perf_counter() - self._begun

    def times(self) -> dict[int, float]:
        """Seconds of training up to an epoch, without measuring; of a run that trains by itself alone."""
        return {
            int(name.partition("/")[2]): float(value)
            for name, value in self._measured.items()
            if name.startswith("time/")
        }

    def accuracies(self, run: int) -> dict[int, float]:
        """One run's accuracy by epoch."""
        return {epoch: float(share) for epoch, share in self._shared("accuracy", run).items()}

    def confusion_matrices(self, run: int) -> dict[int, list[list[int]]]:
        """One run's counts of (true class, predicted class) by epoch."""
        found = {}
        for name, counts in self._measured.items():
            what, *where = name.split("/")
            if what == "confusion" and int(where[0]) == run:
                found[int(where[1])] = counts.tolist()
        return dict(sorted(found.items()))

    def sensitivities(self, run: int) -> dict[int, list[float]]:
        """One run's share of right predictions among the rows of each class, by epoch."""
        found = self._shared("recall", run)
        return {epoch: [round(share, 5) for share in shares.tolist()] for epoch, shares in found.items()}

    def _shared(self, wanted: str, run: int) -> dict[int, Tensor]:
        """One run's part, by epoch, of what is kept in one tensor for several."""
        found = {}
        for name, values in self._measured.items():
            what, *where = name.split("/")
            if what == wanted and str(run) in (members := where[1].split(",")):
                found[int(where[0])] = values[members.index(str(run))]
        return dict(sorted(found.items()))

    def state(self) -> dict[str, Tensor]:
        """All measurements so far, and the time they took."""
        spent = torch.tensor([self.seconds, self._measuring], dtype=torch.float64)
        return self._measured | {"spent": spent}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take up earlier measurements; the clock goes on from where it was."""
        measured = dict(state)
        if (spent := measured.pop("spent", None)) is not None:
            before, measuring = spent.tolist()
            self._before, self._measuring = max(self._before, before), max(self._measuring, measuring)
        self._measured |= measured


def _wait_for(device: torch.device) -> None:
    """A GPU works on when a call has returned; a clock has to wait for it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _joined(runs: Collection[int]) -> str:
    return ",".join(map(str, runs))

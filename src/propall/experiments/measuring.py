"""What is measured while runs train, each on its own test set."""

from collections.abc import Callable, Collection, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from propall.data.dataset import Problem
from propall.training.contract import Monitor
from propall.training.metrics import accuracy, confusion

#: The first and the last epochs are all measured, whatever lies between them.
EARLY_EPOCHS, LATE_EPOCHS = 20, 10


class Watcher(Monitor):
    """A monitor that also hears what was measured. This one does nothing."""

    def measured(self, epoch: int, accuracies: dict[int, float]) -> None:
        """The test accuracy of some runs (by position) after an epoch."""


class Curves(Monitor):
    """Accuracy by epoch of runs that may have different test sets, such as the folds of a cross-validation.

    Args:
        problems: one per run.
        every: epochs between measurements, the first `EARLY_EPOCHS` and the last `LATE_EPOCHS` aside.
        confusions: positions of the runs whose confusion matrices are kept too.
        watcher: is told the accuracies.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        *,
        every: int = 1,
        confusions: Collection[int] = (),
        watcher: Watcher | None = None,
    ) -> None:
        self.problems, self.every, self.confusions = problems, every, frozenset(confusions)
        self._watcher = watcher
        self._epochs = 0
        self._measured: dict[str, Tensor] = {}

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
        by_test_set: dict[int, list[int]] = {}
        for place, run in enumerate(runs):
            by_test_set.setdefault(self.problems[run].test_x.data_ptr(), []).append(place)
        now: dict[int, Tensor] = {}
        for places in by_test_set.values():
            problem = self.problems[runs[places[0]]]
            outputs = scores(problem.test_x)[places]
            truth = problem.test_truth.to(outputs.device)
            now |= zip((runs[place] for place in places), accuracy(outputs, truth).unbind(), strict=True)
            for i, place in enumerate(places):
                if runs[place] in self.confusions:
                    self._measured[f"confusion/{runs[place]}/{epoch}"] = confusion(outputs[i], truth)
        # One tensor for all runs of an epoch: a checkpoint of a long training holds hundreds, not thousands.
        self._measured[f"accuracy/{epoch}/{_joined(now)}"] = torch.stack(list(now.values()))
        if self._watcher is not None:
            self._watcher.measured(epoch, {run: float(share) for run, share in now.items()})

    def accuracies(self, run: int) -> dict[int, float]:
        """One run's accuracy by epoch."""
        found = {}
        for name, values in self._measured.items():
            what, *where = name.split("/")
            if what == "accuracy" and str(run) in (members := where[1].split(",")):
                found[int(where[0])] = float(values[members.index(str(run))])
        return dict(sorted(found.items()))

    def confusion_matrices(self, run: int) -> dict[int, list[list[int]]]:
        """One run's counts of (true class, predicted class) by epoch."""
        found = {}
        for name, counts in self._measured.items():
            what, *where = name.split("/")
            if what == "confusion" and int(where[0]) == run:
                found[int(where[1])] = counts.tolist()
        return dict(sorted(found.items()))

    def state(self) -> dict[str, Tensor]:
        """All measurements so far."""
        return self._measured

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take up earlier measurements."""
        self._measured |= state


def _joined(runs: Collection[int]) -> str:
    return ",".join(map(str, runs))

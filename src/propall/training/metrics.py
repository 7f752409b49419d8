"""Metrics collected during training, and a progress bar."""

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from propall.training.contract import Monitor, RunScores
from propall.wording import plural

if TYPE_CHECKING:
    from rich.progress import TaskID


def accuracy(scores: Float[Tensor, "*r n k"], truth: Int[Tensor, "n"]) -> Float[Tensor, "*r"]:
    """Fraction of rows whose highest score is that of the true class."""
    hits: Tensor = scores.argmax(-1).eq(truth)
    return hits.double().mean(-1)


def confusion(scores: Float[Tensor, "*r n k"], truth: Int[Tensor, "n"]) -> Int[Tensor, "*r k k"]:
    """Counts of (true class, predicted class)."""
    k = scores.shape[-1]
    cells = truth * k + scores.argmax(-1)
    counts = torch.zeros(*cells.shape[:-1], k * k, dtype=torch.int64, device=scores.device)
    counts.scatter_add_(-1, cells, torch.ones_like(cells))
    return counts.view(*cells.shape[:-1], k, k)


class History(Monitor):
    """Test accuracy of all runs by epoch, stored on the device until it is read.

    Args:
        x: test features.
        truth: true classes of the test rows.
        every: epochs between measurements; the last epoch is always measured.
    """

    def __init__(self, x: Float[Tensor, "n ..."], truth: Int[Tensor, "n"], *, every: int = 1) -> None:
        self.x, self.truth, self.every = x, truth, every
        self._epochs = 0
        self._measured: dict[str, Tensor] = {}

    def begin(self, epochs: int, runs: Sequence[int], done: int) -> None:
        """Store the number of epochs."""
        self._epochs = epochs

    def epoch(self, epoch: int, runs: Sequence[int], losses: Float[Tensor, "r"], scores: RunScores) -> None:
        """Measure the runs, if a measurement is due."""
        if epoch % self.every and epoch != self._epochs:
            return
        outputs = scores(self.x)
        shares = accuracy(outputs, self.truth.to(outputs.device))
        self._measured |= {f"accuracy/{run}/{epoch}": s for run, s in zip(runs, shares.unbind(), strict=True)}

    def accuracies(self, run: int) -> dict[int, float]:
        """Accuracy of one run by epoch."""
        prefix = f"accuracy/{run}/"
        epochs = {int(n.removeprefix(prefix)): n for n in self._measured if n.startswith(prefix)}
        return {epoch: float(self._measured[name]) for epoch, name in sorted(epochs.items())}

    def state(self) -> dict[str, Tensor]:
        """All measurements so far."""
        return self._measured

    def restore(self, state: dict[str, Tensor]) -> None:
        """Add earlier measurements."""
        self._measured |= state


class CombinedMonitor(Monitor):
    """Calls several monitors; None stands for none."""

    def __init__(self, *monitors: Monitor | None) -> None:
        self.monitors = [monitor for monitor in monitors if monitor is not None]

    def begin(self, epochs: int, runs: Sequence[int], done: int) -> None:
        """Call each monitor."""
        for monitor in self.monitors:
            monitor.begin(epochs, runs, done)

    def epoch(self, epoch: int, runs: Sequence[int], losses: Float[Tensor, "r"], scores: RunScores) -> None:
        """Call each monitor."""
        for monitor in self.monitors:
            monitor.epoch(epoch, runs, losses, scores)

    def proceed(self) -> None:
        """Call each monitor."""
        for monitor in self.monitors:
            monitor.proceed()

    def state(self) -> dict[str, Tensor]:
        """The states of all monitors, prefixed with their positions."""
        return {f"{i}|{k}": v for i, monitor in enumerate(self.monitors) for k, v in monitor.state().items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore each monitor."""
        for i, monitor in enumerate(self.monitors):
            prefix = f"{i}|"
            monitor.restore({k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)})


class ProgressBar(Monitor):
    """A progress bar of epochs with the time left; a context manager. Silent outside a terminal."""

    def __init__(self, what: str = "training", *, transient: bool = True) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        self.what = what
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("epochs,"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            transient=transient,
            disable=not console.is_terminal,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, epochs: int, runs: Sequence[int], done: int) -> None:
        """Start a bar for these runs."""
        text = f"{self.what}, {plural(len(runs), 'run')}"
        self._task = self._bar.add_task(text, total=epochs, completed=done)

    def epoch(self, epoch: int, runs: Sequence[int], losses: Float[Tensor, "r"], scores: RunScores) -> None:
        """Advance the bar."""
        if self._task is not None:
            self._bar.update(self._task, completed=epoch)

    def describe(self, text: str) -> None:
        """Replace the text beside the bar."""
        if self._task is not None:
            self._bar.update(self._task, description=text)

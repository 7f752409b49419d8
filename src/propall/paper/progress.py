"""Progress of a sweep: what the scheduler reports, and how a terminal shows it."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from propall.paper.monitors import AccuracyListener
from propall.paper.runtime_estimates import RuntimeEstimates
from propall.paper.specs import Spec
from propall.wording import approximate_duration, plural

if TYPE_CHECKING:
    from rich.console import Console

#: Seconds without a line of text if stacks finish faster than cells.
QUIET_SECONDS = 30.0
#: Seconds between updates of the progress bar.
UPDATE_SECONDS = 0.5


class ProgressListener(AccuracyListener):
    """Receives the progress of a sweep. The base class does nothing."""

    def planned(self, missing: Sequence[Spec], absent: Sequence[Spec], estimates: RuntimeEstimates) -> None:
        """The missing runs are known, and those whose data set is not available."""

    def started(self, specs: Sequence[Spec]) -> None:
        """A group of runs starts."""

    def finished(self, results: Sequence[tuple[Spec, float]]) -> None:
        """The runs of a stack are stored, with these accuracies."""

    def finished_elsewhere(self, specs: Sequence[Spec]) -> None:
        """Another process stored some runs."""

    def failed(self, specs: Sequence[Spec], message: str) -> None:
        """A group ended with an error."""


class RunProgress(ProgressListener):
    """Shows what is running, what is done, the current accuracy and the time left. A context manager.

    On a terminal (stderr, or `console`) this is one progress bar; elsewhere `write_line` receives a line of
    text for every finished stack. `cells` maps names of table cells to the keys of their runs; a cell is done
    when all its runs are. `parts` is what they are called.
    """

    def __init__(
        self,
        cells: Mapping[str, Sequence[str]] | None = None,
        write_line: Callable[[str], None] | None = None,
        console: "Console | None" = None,
        *,
        parts: str = "cells",
    ) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        console = console or Console(stderr=True)
        self._has_bar = console.is_terminal
        self._write = write_line if write_line is not None and not self._has_bar else lambda line: None
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.percentage:.0f} %"),
            console=console,
            transient=True,
            disable=not self._has_bar,
        )
        self._task = self._bar.add_task("", total=1.0)
        self._parts = parts
        self._cells = {name: set(keys) for name, keys in (cells or {}).items()}
        self._waiting: dict[str, Spec] = {}
        self._current: list[Spec] = []
        self._epochs, self._epoch, self._accuracy = 0, 0, ""
        self._estimates: RuntimeEstimates | None = None
        self._start = time.monotonic()
        self._written_cells, self._written_at, self._shown_at = -1, 0.0, 0.0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def planned(self, missing: Sequence[Spec], absent: Sequence[Spec], estimates: RuntimeEstimates) -> None:
        """Start the clock; count the cells that still have runs to do."""
        self._waiting = {spec.key: spec for spec in missing}
        self._estimates = estimates
        self._start = time.monotonic()
        unfinished = {spec.key for spec in (*missing, *absent)}
        for keys in self._cells.values():
            keys &= unfinished

    def started(self, specs: Sequence[Spec]) -> None:
        """Show the group."""
        self._current, self._epoch, self._epochs, self._accuracy = list(specs), 0, 0, ""
        self._show(now=True)

    def begin(self, epochs: int, runs: Sequence[int], done: int) -> None:
        """Show that a stack of the group starts."""
        self._epochs, self._epoch = epochs, done
        self._show()

    def epoch(self, epoch: int, runs: Sequence[int], losses: Any, scores: Any) -> None:
        """Show the epoch."""
        self._epoch = epoch
        self._show()

    def measured(self, epoch: int, accuracies: dict[int, float]) -> None:
        """Show the mean accuracy."""
        if accuracies:
            self._accuracy = f"accuracy {100 * sum(accuracies.values()) / len(accuracies):.1f} %, "
        self._show()

    def finished(self, results: Sequence[tuple[Spec, float]]) -> None:
        """Write a line, unless the last one is recent and no cell was finished."""
        self._drop([spec for spec, _ in results])
        self._epoch = 0
        done, now = self._cells_done(), time.monotonic()
        is_quiet = now - self._written_at > QUIET_SECONDS
        if done > self._written_cells or is_quiet or not self._waiting:
            self._written_cells, self._written_at = done, now
            mean = 100 * sum(accuracy for _, accuracy in results) / len(results)
            group = describe_group([spec for spec, _ in results])
            self._write(f"{group}: accuracy {mean:.1f} %; {self._status()}")
        self._show()

    def finished_elsewhere(self, specs: Sequence[Spec]) -> None:
        """Write a line."""
        self._drop(specs)
        self._write(f"{describe_group(specs)}: done by another process; {self._status()}")
        self._show()

    def failed(self, specs: Sequence[Spec], message: str) -> None:
        """Write the error."""
        for spec in specs:
            self._waiting.pop(spec.key, None)
        self._current = []
        self._write(message)
        self._show(now=True)

    def _drop(self, specs: Sequence[Spec]) -> None:
        for spec in specs:
            self._waiting.pop(spec.key, None)
            for keys in self._cells.values():
                keys.discard(spec.key)
        self._current = [spec for spec in self._current if spec.key in self._waiting]

    def _cells_done(self) -> int:
        return sum(not keys for keys in self._cells.values())

    def _seconds_left(self) -> float | None:
        """Estimate the time left; runs of unknown length count as average ones."""
        if self._estimates is None:
            return None
        share_left = 1 - min(1.0, self._epoch / max(1, self._epochs))
        current = {spec.key for spec in self._current}
        known, unknown = [], 0.0
        for key, spec in self._waiting.items():
            share = share_left if key in current else 1.0
            if (seconds := self._estimates.seconds(spec)) is None:
                unknown += share
            else:
                known.append(seconds * share)
        if not known:
            return None if unknown else 0.0
        return sum(known) + unknown * sum(known) / len(known)

    def _status(self) -> str:
        parts = [f"{self._cells_done()} of {len(self._cells)} {self._parts} done"] if self._cells else []
        parts.append(f"{plural(len(self._waiting), 'run')} left")
        if seconds := self._seconds_left():
            parts.append(f"about {approximate_duration(seconds)}")
        return ", ".join(parts)

    def _show(self, *, now: bool = False) -> None:
        # Estimating the time left goes through all waiting runs, which takes a while.
        if not self._has_bar or (not now and time.monotonic() - self._shown_at < UPDATE_SECONDS):
            return
        self._shown_at = time.monotonic()
        spent, left = time.monotonic() - self._start, self._seconds_left()
        share = spent / (spent + left) if left is not None and spent + left > 0 else 0.0
        epoch = f"epoch {self._epoch}/{self._epochs}, " if self._epochs else ""
        text = f"{describe_group(self._current)}, {epoch}{self._accuracy}{self._status()}"
        self._bar.update(self._task, description=text, completed=share, refresh=True)


def describe_group(specs: Sequence[Spec]) -> str:
    """Describe a group of runs: `mnist: ProPaLL, CC (10 runs)`."""
    if not specs:
        return "done"
    methods = list(dict.fromkeys(spec.title for spec in specs))
    shown = ", ".join(methods[:4]) + (f" and {len(methods) - 4} more" if len(methods) > 4 else "")
    return f"{specs[0].data}: {shown} ({plural(len(specs), 'run')})"

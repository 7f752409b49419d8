"""Rows of the table of images with views: select them, run them, and summarize their results.

This is behind `propall reproduce modern`; the rows themselves are in `tables.modern`.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from propall.paper import reproduction, scheduler, stats, workers
from propall.paper.progress import ProgressListener
from propall.paper.results import RunResult
from propall.paper.specs import Spec
from propall.paper.store import Store
from propall.paper.tables.modern import MODERN, Comparison, ModernRow, modern_rows, resolve_protocol
from propall.paper.tables.paper_table import SHORT, parse_protocol
from propall.paper.workers import Launcher
from propall.registry import UnknownNameError
from propall.report.numbers import mean_and_std
from propall.wording import did_you_mean

#: Runs per method from which its own spread is known well enough.
FEWEST_REPEATS = 5


@dataclass(frozen=True)
class RowRuns:
    """A row and its runs under a protocol."""

    row: ModernRow
    protocol: str
    specs: list[Spec]


class TrainingTime(NamedTuple):
    """Seconds of training without evaluation, and those spent on compiling before it."""

    training: float
    preparation: float


@dataclass(frozen=True)
class RowResult:
    """The result of a row, accuracies in percent."""

    row: ModernRow
    protocol: str
    mean: float | None  # test accuracy after the last epoch; None without any run
    std: float | None  # sample standard deviation over seeds; None for a single one
    candidates: float | None  # mean number per training row
    time: TrainingTime | None  # training: mean over runs; preparation: of the run that compiled
    keys: tuple[str, ...]  # of all runs
    results: tuple[RunResult, ...]  # of the finished runs

    @property
    def part(self) -> str:
        """Heading of the rows that belong together, with the number of epochs of the protocol."""
        return self.row.part(_epochs(self))

    @property
    def note(self) -> str:
        """Why the row is empty or incomplete."""
        if len(self.results) == len(self.keys):
            return ""
        return f"{len(self.results)} of {len(self.keys)} runs" if self.results else "not run"

    @property
    def values(self) -> dict[int, float]:
        """Accuracy in percent by seed."""
        return {result.spec.seed: 100 * result.accuracy for result in self.results}


def select_rows(
    only: Sequence[str] | None = None,
    *,
    methods: Sequence[str] | None = None,
    data: Sequence[str] | None = None,
    protocol: str | None = None,
    seeds: int | None = None,
) -> list[RowRuns]:
    """Return the requested rows.

    Args:
        only: names of rows, or patterns such as `uniform-*`; None for all.
        methods: names of methods; None for all.
        data: names of data sets; None for all.
        protocol: see `tables.modern.resolve_protocol`.
        seeds: number of seeds, instead of each row's own.
    """
    rows = modern_rows()
    chosen = list(rows) if only is None else [name for pattern in only for name in _matching(pattern, rows)]
    selected = [rows[name] for name in dict.fromkeys(chosen)]
    for option, values, known in (
        ("methods", methods, {row.method for row in rows.values()}),
        ("data", data, {row.spec.data for row in rows.values()}),
    ):
        for value in values or ():
            if value not in known:
                hint = did_you_mean(value, sorted(known)) or f"expected one of {', '.join(sorted(known))}."
                raise UnknownNameError(f"{option}: {value!r} is not in table {MODERN}; {hint}")
    selected = [row for row in selected if methods is None or row.method in methods]
    selected = [row for row in selected if data is None or row.spec.data in data]
    if not selected:
        raise UnknownNameError(f"only, methods, data: no row of table {MODERN} has all of these.")
    resolved = resolve_protocol(protocol)
    return [RowRuns(row, resolved, row.specs(resolved, seeds)) for row in selected]


def _matching(pattern: str, names: Iterable[str]) -> list[str]:
    matches = [name for name in names if fnmatchcase(name, pattern)]
    if not matches:
        hint = did_you_mean(pattern, list(names)) or f"expected one of {', '.join(names)}."
        raise UnknownNameError(f"only: table {MODERN} has no row {pattern!r}; {hint}")
    return matches


def unique_specs(rows: Iterable[RowRuns]) -> list[Spec]:
    """Return the distinct runs behind some rows."""
    return list({spec.key: spec for row in rows for spec in row.specs}.values())


def run_rows(
    rows: Sequence[RowRuns],
    store: Store,
    *,
    device: str = "auto",
    root: Path | None = None,
    progress: ProgressListener | None = None,
    launcher: Launcher = "local",
    compiling: bool = False,
    time_limit: float | None = None,
) -> scheduler.RunPlan:
    """Run what is missing of some rows, see `run_on_devices`; on a GPU, steps are compiled if `compiling`.

    Compiling takes about a minute per method and saves a fifth of the training time, so it pays from about
    six runs per method.
    """
    on_gpu = workers.parse_devices(device)[0].startswith("cuda")
    return reproduction.run_on_devices(
        unique_specs(rows),
        store,
        device=device,
        root=root,
        progress=progress,
        launcher=launcher,
        fast=True if on_gpu and compiling else None,
        time_limit=time_limit,
    )


def row_results(rows: Iterable[RowRuns], results: Mapping[str, RunResult]) -> list[RowResult]:
    """Return the results of some rows from the results of runs, by key."""
    return [_row_result(row, results) for row in rows]


def _row_result(runs: RowRuns, by_key: Mapping[str, RunResult]) -> RowResult:
    results = tuple(by_key[spec.key] for spec in runs.specs if spec.key in by_key)
    mean, std = mean_and_std([100 * result.accuracy for result in results]) if results else (None, None)
    times = [time for result in results if (time := training_time(result)) is not None]
    time = None
    if times:
        training = statistics.fmean(time.training for time in times)
        time = TrainingTime(training, max(time.preparation for time in times))
    return RowResult(
        row=runs.row,
        protocol=runs.protocol,
        mean=mean,
        std=std,
        candidates=statistics.fmean(result.candidates for result in results) if results else None,
        time=time,
        keys=tuple(spec.key for spec in runs.specs),
        results=results,
    )


def training_time(result: RunResult) -> TrainingTime | None:
    """Return the training time of a run that was trained alone; None for runs of a stack.

    Compiling happens in the first epoch of a process, so training is the mean time of an epoch after the
    first, times the number of epochs, and the rest is preparation. The mean, unlike a median, does not depend
    on which epochs are stored.
    """
    if len(result.times) < 2:
        return None
    first, last = min(result.times), max(result.times)
    training = (result.times[last] - result.times[first]) / (last - first) * last
    return TrainingTime(training, max(0.0, result.times[last] - training))


def method_ranks(results: Sequence[RowResult], comparison: Comparison) -> dict[str, dict[str, float]]:
    """Return the rank of each method (1 is best, ties share a rank) by law, from the finished runs.

    A law is ranked if at least two methods have results; `mean` is the mean over the laws of the ranks among
    the methods that have results under all of them. What chance leaves open is in `rank_ranges`.
    """
    means = {
        law: {name: result.mean or 0.0 for name, result in _compared(results, comparison, law).items()}
        for law in comparison.settings
    }
    ranks: dict[str, dict[str, float]] = {}
    for law, by_method in means.items():
        if len(by_method) > 1:
            for name, rank in _ranks(by_method).items():
                ranks.setdefault(name, {})[law] = rank
    everywhere = set.intersection(*(set(by_method) for by_method in means.values()))
    if len(everywhere) > 1:
        among = [_ranks({name: by_method[name] for name in everywhere}) for by_method in means.values()]
        for name in everywhere:
            ranks[name]["mean"] = statistics.fmean(by_method[name] for by_method in among)
    return ranks


def _ranks(means: Mapping[str, float]) -> dict[str, float]:
    """Return the rank of each method; 1 is the highest mean, ties share a rank."""
    from scipy.stats import rankdata

    return dict(zip(means, map(float, rankdata([-mean for mean in means.values()])), strict=True))


class RunSpread(NamedTuple):
    """Spread of single runs, and the whole percent below the accuracies of the rows that it is known from."""

    spread: stats.Spread
    lowest: int


@dataclass(frozen=True)
class OpenRanks:
    """What chance leaves open of the ranks under one law.

    Attributes:
        ranges: best and worst rank by method; none for a method whose spread is not known.
        pooled: the common spread that they were found with; None if every method has its own.
    """

    ranges: Mapping[str, tuple[int, int]]
    pooled: RunSpread | None


def run_spread(results: Sequence[RowResult], comparison: Comparison) -> RunSpread | None:
    """Return the spread of single runs, pooled over the rows of a comparison that have several.

    Less accurate methods vary more, so this says nothing about rows below `lowest`.
    """
    repeated = [result for result in results if is_compared(result, comparison) and len(result.values) > 1]
    spread = stats.pooled_spread(list(result.values.values()) for result in repeated)
    if spread is None:
        return None
    return RunSpread(spread, math.floor(min(result.mean or 0.0 for result in repeated)))


def open_ranks(results: Sequence[RowResult], comparison: Comparison) -> dict[str, OpenRanks]:
    """Return the best and worst rank of each method that chance leaves open, by law.

    If all methods under a law have enough runs, by the spread of each method's own (Tamhane's T2). Otherwise
    by a common spread (Tukey-Kramer), see `run_spread`: methods below the accuracies from which it is known
    have no range, and count as worse than the others if they are by this spread. Without it, none has.

    Args:
        results: of all rows.
        comparison: which methods and laws.
    """
    known, found = run_spread(results, comparison), {}
    for law in comparison.settings:
        compared = _compared(results, comparison, law)
        if len(compared) < 2:
            continue
        if all(len(result.results) >= FEWEST_REPEATS for result in compared.values()):
            runs = {name: list(result.values.values()) for name, result in compared.items()}
            found[law] = OpenRanks(stats.rank_ranges_of_runs(runs), None)
        elif known is not None:
            means = {name: result.mean or 0.0 for name, result in compared.items()}
            counts = {name: len(result.results) for name, result in compared.items()}
            # Of all methods, also those whose own range is not shown: the others are compared with them.
            of_all = stats.rank_ranges(means, counts, known.spread)
            ranges = {name: range_ for name, range_ in of_all.items() if means[name] >= known.lowest}
            found[law] = OpenRanks(ranges, known)
    return found


def with_other_sets(results: Sequence[RowResult], comparison: Comparison, law: str) -> set[str]:
    """Return the methods that saw other candidate sets than most, for example of another teacher.

    Runs of the same law and seed have the same sets, and so the same number of candidates.
    """
    compared = _compared(results, comparison, law)
    by_seed: dict[int, list[float]] = {}
    for result in compared.values():
        for run in result.results:
            by_seed.setdefault(run.spec.seed, []).append(run.candidates)
    usual = {seed: statistics.mode(values) for seed, values in by_seed.items()}
    return {
        name
        for name, result in compared.items()
        if any(run.candidates != usual[run.spec.seed] for run in result.results)
    }


def is_compared(result: RowResult, comparison: Comparison) -> bool:
    """Whether a row belongs to a comparison."""
    return result.row.setting in comparison.settings.values()


def _compared(results: Iterable[RowResult], comparison: Comparison, law: str) -> dict[str, RowResult]:
    """Return the results of a comparison under a law, by the method's name."""
    return {
        result.row.method: result
        for result in results
        if result.row.setting == comparison.settings[law] and result.mean is not None
    }


def protocols_with_results(results: Mapping[str, RunResult]) -> list[str]:
    """Return the protocols of the table that some results have, the full one first."""
    protocols = {result.spec.protocol for result in results.values()}
    return sorted(name for name in protocols if parse_protocol(name).base in (MODERN, f"{MODERN}-{SHORT}"))


def as_dicts(results: Sequence[RowResult]) -> list[dict[str, Any]]:
    """Return one plain dictionary per row."""
    return [
        {
            "row": result.row.name,
            "part": result.part,
            "candidate_sets": result.row.law.title,
            "method": result.row.title,
            "net": result.row.spec.net,
            "epochs": _epochs(result),
            "protocol": result.protocol,
            "mean": result.mean,
            "std": result.std,
            "runs": len(result.results),
            "expected": len(result.keys),
            "mean_candidates": result.candidates,
            "training_seconds": None if result.time is None else result.time.training,
            "preparation_seconds": None if result.time is None else result.time.preparation,
            "published": [entry._asdict() for entry in result.row.published],
            "note": result.note,
            "keys": list(result.keys),
        }
        for result in results
    ]


def _epochs(result: RowResult) -> int:
    return result.row.specs(result.protocol, 1)[0].recipe.epochs


def summarize_rows(results: Sequence[RowResult]) -> str:
    """Return one line: how many rows are done."""
    done = sum(not result.note for result in results)
    started = sum(bool(result.note and result.results) for result in results)
    rest = f"; incomplete: {started}" if started else ""
    missing = len(results) - done - started
    return f"{done} of {len(results)} rows done{rest}{f'; not run: {missing}' if missing else ''}."

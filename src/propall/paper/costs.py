"""Computing time of the reproduction, and an estimate for public code."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from propall.data import DATASETS
from propall.paper.coverage import complete_cells
from propall.paper.evidence import Evidence
from propall.paper.results import RunResult
from propall.paper.runtime_estimates import exclusive_seconds
from propall.paper.specs import Spec
from propall.paper.tables import TABLES

#: PRODEN's public code: seconds per epoch of 60 000 images in batches of 256, including its evaluation,
#: measured on an NVIDIA H200. Other data sets are estimated by their number of steps.
PUBLIC_SECONDS, PUBLIC_STEPS = 6.5, 60_000 / 256


@dataclass(frozen=True)
class Cost:
    """Time of the runs on one kind of hardware, and an estimate for public code.

    Attributes:
        hardware: the device.
        runs: number of runs that train a network on vectors, which the estimate applies to.
        seconds: sum of their run times, including testing.
        wall_seconds: their wall-clock time; less than `seconds` if processes ran at the same time.
        public_seconds: time for the same number of steps at the speed of PRODEN's public code.
        all_runs: number of all runs, including images with channels and methods without a network.
        all_seconds: sum of their run times.
        complete: the same for the runs of complete published cells; None if there are none.
        cells: number of complete cells.
    """

    hardware: str
    runs: int
    seconds: float
    wall_seconds: float
    public_seconds: float
    all_runs: int
    all_seconds: float
    complete: "Cost | None" = None
    cells: int = 0

    @property
    def ratio(self) -> float:
        """Time of public code relative to the sum of run times."""
        return self.public_seconds / self.seconds if self.seconds else math.nan

    @property
    def wall_ratio(self) -> float:
        """Time of public code relative to the wall-clock time."""
        return self.public_seconds / self.wall_seconds if self.wall_seconds else math.nan


def measure_costs(evidence: Evidence) -> list[Cost]:
    """Return the time of all runs of the paper's tables by hardware, without smoke runs and timings.

    The hardware with the longest total time is first.
    """
    by_hardware: dict[str, list[RunResult]] = {}
    for result in _table_results(evidence):
        by_hardware.setdefault(result.hardware, []).append(result)
    complete = complete_cells(evidence)
    costs = []
    for hardware, results in by_hardware.items():
        by_key = {result.spec.key: result for result in results}
        cells = [keys for keys in complete.values() if keys & by_key.keys()]
        cell_keys = set[str]().union(*cells)
        cell_results = [result for key, result in by_key.items() if key in cell_keys]
        of_cells = _cost(hardware, cell_results) if cell_results else None
        costs.append(replace(_cost(hardware, results), complete=of_cells, cells=len(cells)))
    return sorted(costs, key=lambda cost: -cost.all_seconds)


def _cost(hardware: str, results: Sequence[RunResult]) -> Cost:
    comparable = [result for result in results if _is_comparable(result.spec)]
    return Cost(
        hardware,
        len(comparable),
        sum(result.seconds for result in comparable),
        wall_clock_seconds(comparable),
        sum(count_steps(result.spec) for result in comparable) / PUBLIC_STEPS * PUBLIC_SECONDS,
        len(results),
        sum(result.seconds for result in results),
    )


def wall_clock_seconds(results: Sequence[RunResult]) -> float:
    """Return the time during which any of some runs on one kind of hardware was running.

    Timestamps have whole seconds, so short runs could add up to more; the sum of run times is the limit.
    """
    return min(sum(exclusive_seconds(results)), sum(result.seconds for result in results))


def _table_results(evidence: Evidence) -> list[RunResult]:
    keys = {
        key
        for table in TABLES
        for protocol in evidence.accuracy_protocols(table)
        for entry in evidence.entries(table, protocol)
        for key in entry.keys
    }
    return [result for key, result in evidence.results.items() if key in keys]


def _is_comparable(spec: Spec) -> bool:
    return spec.trains_network and len(DATASETS[spec.data].shape) == 1


def count_steps(spec: Spec) -> float:
    """Return the number of gradient steps of a run."""
    rows: float = DATASETS[spec.data].n
    split = spec.split
    classes = len(split.classes) if split.classes is not None else DATASETS[spec.data].n_classes
    if split.per_class is not None:
        rows = min(rows, split.per_class * classes)
    elif split.classes is not None:
        rows *= classes / DATASETS[spec.data].n_classes
    if split.fold is not None:
        rows *= (split.folds - 1) / split.folds
    return rows / spec.recipe.batch_size * spec.total_epochs

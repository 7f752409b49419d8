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
    """Time of the runs on one kind of hardware, and an estimate for public code."""

    hardware: str
    runs: int  # those that train a network on vectors, which the estimate applies to
    seconds: float  # sum of their run times, including testing
    wall_seconds: float  # less than `seconds` if processes ran at the same time
    public_seconds: float  # for the same number of steps at the speed of PRODEN's public code
    all_runs: int  # including images with channels and methods without a network
    all_seconds: float
    complete: "Cost | None" = None  # the same for the runs of complete published cells, if any
    cells: int = 0  # number of complete cells

    @property
    def ratio(self) -> float:
        """Time of public code relative to the sum of run times."""
        return self.public_seconds / self.seconds if self.seconds else math.nan

    @property
    def wall_ratio(self) -> float:
        """Time of public code relative to the wall-clock time."""
        return self.public_seconds / self.wall_seconds if self.wall_seconds else math.nan


def measure_costs(evidence: Evidence) -> list[Cost]:
    """Return the time of all runs of the paper's tables by hardware, longest first.

    Smoke runs and timings are excluded.
    """
    table_keys = {
        key
        for table in TABLES
        for protocol in evidence.accuracy_protocols(table)
        for entry in evidence.entries(table, protocol)
        for key in entry.keys
    }
    by_hardware: dict[str, list[RunResult]] = {}
    for key, result in evidence.results.items():
        if key in table_keys:
            by_hardware.setdefault(result.hardware, []).append(result)
    complete = complete_cells(evidence)
    costs = []
    for hardware, results in by_hardware.items():
        by_key = {result.spec.key: result for result in results}
        cells = [keys for keys in complete.values() if keys & by_key.keys()]
        cell_keys = set[str]().union(*cells)
        cell_results = [result for key, result in by_key.items() if key in cell_keys]
        cell_costs = _cost(hardware, cell_results) if cell_results else None
        costs.append(replace(_cost(hardware, results), complete=cell_costs, cells=len(cells)))
    return sorted(costs, key=lambda cost: -cost.all_seconds)


def _cost(hardware: str, results: Sequence[RunResult]) -> Cost:
    comparable = [
        result
        for result in results
        if result.spec.trains_network and len(DATASETS[result.spec.data].shape) == 1
    ]
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


def count_steps(spec: Spec) -> float:
    """Return the number of gradient steps of a run."""
    data, split = DATASETS[spec.data], spec.split
    rows: float = data.n
    classes = data.n_classes if split.classes is None else len(split.classes)
    if split.per_class is not None:
        rows = min(rows, split.per_class * classes)
    elif split.classes is not None:
        rows *= classes / data.n_classes
    if split.fold is not None:
        rows *= (split.folds - 1) / split.folds
    return rows / spec.recipe.batch_size * spec.total_epochs

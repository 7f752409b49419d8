"""Cells of the paper's tables: select them, run them, and compare them with the published numbers.

This is what `propall reproduce` calls: `select_cells` turns names into cells and their specs, `run_cells`
passes the specs to the scheduler, `cell_results` averages the stored results of each cell.
"""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from propall.data import DATASETS
from propall.data.files import data_root
from propall.paper import scheduler, workers
from propall.paper.progress import ProgressListener
from propall.paper.results import RunResult
from propall.paper.specs import TIMED, Spec
from propall.paper.store import Store
from propall.paper.tables import TABLES, find_cell
from propall.paper.tables.paper_table import PaperCell, PaperTable, PublishedAccuracy
from propall.paper.tables.rows import NO_NOISE
from propall.paper.workers import Launcher
from propall.registry import UnknownNameError
from propall.report.numbers import mean_and_std
from propall.training.compiled import best_device
from propall.wording import did_you_mean

#: The name that selects every table.
ALL = "all"
#: Note of a cell whose data set is not available.
ABSENT = "data not available here"
#: The figures of per-class learning show these methods, on data with at most this many classes.
_RECALL_METHODS, _MAX_RECALL_CLASSES = ("propall", "proden"), 10


@dataclass(frozen=True)
class CellRuns:
    """A cell of a table and its runs under a protocol, or the reason why the protocol has none."""

    cell: PaperCell
    protocol: str
    specs: list[Spec]
    left_out: str = ""


@dataclass(frozen=True)
class CellResult:
    """Our result for a cell next to the published one, in percent."""

    cell: PaperCell
    title: str  # of the row
    protocol: str  # results of different protocols are not comparable
    mean: float | None  # over folds of the mean over seeds, or over seeds; None without any run
    std: float | None  # sample standard deviation over the same; None for a single value
    runs: int  # finished
    expected: int  # runs of a complete cell
    candidates: float | None  # mean number per training row
    published: PublishedAccuracy | None
    note: str  # why the cell is empty or incomplete
    keys: tuple[str, ...]  # of all runs
    caveat: str = ""  # why our number is not comparable with the published one
    results: tuple[RunResult, ...] = ()  # of the finished runs

    @property
    def values(self) -> dict[int, float]:
        """The values that mean and deviation are taken over: percent by fold, or by seed."""
        return _values(self.results, TABLES[self.cell.table])

    @property
    def has_no_download(self) -> bool:
        """Whether nothing was run and the data set cannot be downloaded."""
        return self.expected > self.runs == 0 and not all(f.downloads for f in DATASETS[self.cell.data].files)


def select_cells(
    table: str,
    *,
    protocol: str | None = None,
    methods: Sequence[str] | None = None,
    data: Sequence[str] | None = None,
    seeds: int | None = None,
) -> list[CellRuns]:
    """Return the requested cells.

    Each table contributes the methods, data sets and protocols it has; a name that no table has is an error.

    Args:
        table: name of a table, "all", or name of a cell such as `candidates10/mnist/pc/8`; or several of
            these, separated by commas.
        protocol: see `PaperTable.protocol`; several, separated by commas, select the cells of each.
        methods: names of rows; None for all.
        data: names of data sets; None for all.
        seeds: number of seeds, instead of the protocol's.
    """
    names = [name.strip() for name in table.split(",")]
    cells = [find_cell(name) for name in names if "/" in name]
    if cells and (methods or data):
        raise ValueError(f"methods, data: {table} names a single cell; omit both options.")
    tables = [
        TABLES[each] for name in names if "/" not in name for each in (TABLES if name == ALL else [name])
    ]
    _check_names("methods", methods, [row.name for each in tables for row in each.rows])
    _check_names("data", data, [name for each in tables for name in each.data])
    cells += [cell for each in tables for cell in each.cells(data=data, rows=methods)]
    if not cells:
        request = " on ".join(", ".join(names) for names in (methods, data) if names)
        raise UnknownNameError(f"methods, data: no table has {request}.")
    selected: dict[tuple[PaperCell, str], CellRuns] = {}
    for name in [None] if protocol is None else [name.strip() for name in protocol.split(",")]:
        for cell, resolved in _with_protocol(cells, name):
            of = TABLES[cell.table]
            specs, left_out = of.specs(cell, resolved, seeds=seeds), of.left_out(cell, resolved)
            selected[cell, resolved] = CellRuns(cell, resolved, specs, left_out)
    return list(selected.values())


def _check_names(option: str, names: Sequence[str] | None, known: Sequence[str]) -> None:
    for name in names or ():
        if name not in known:
            hint = did_you_mean(name, known) or f"expected one of {', '.join(dict.fromkeys(known))}."
            raise UnknownNameError(f"{option}: {name!r} is not in the selected tables; {hint}")


def _with_protocol(cells: Iterable[PaperCell], protocol: str | None) -> Iterator[tuple[PaperCell, str]]:
    """Yield the cells whose table has a protocol, with its full name; raises if no table has it."""
    errors, known = [], False
    for cell in cells:
        try:
            resolved = TABLES[cell.table].protocol(protocol)
        except UnknownNameError as error:
            errors.append(error)
        else:
            known = True
            yield cell, resolved
    if errors and not known:
        raise errors[0]


def protocols_with_results(table: str, store: Store) -> list[str]:
    """Return the protocols of a table that a store has runs of: the table's own first, then shortened ones.

    The second row of the noise tables comes from other tables, so only the first row counts for these.
    """
    chosen, stored = TABLES[table], store.keys()
    rows = [NO_NOISE.name] if NO_NOISE in chosen.rows else None
    cells = chosen.cells(rows=rows)
    protocols = []
    for name in dict.fromkeys([*chosen.protocols, *sorted({line["protocol"] for line in store.lines()})]):
        try:
            if chosen.protocol(name) != name:
                continue
        except UnknownNameError:
            continue  # a protocol of another table
        specs = (spec for cell in cells for spec in chosen.specs(cell, name))
        if any(spec.protocol == name and spec.key in stored for spec in specs):
            protocols.append(name)
    return protocols


def unique_specs(cells: Iterable[CellRuns]) -> list[Spec]:
    """Return the distinct runs behind some cells."""
    return list({spec.key: spec for cell in cells for spec in cell.specs}.values())


def needs_recalls(spec: Spec) -> bool:
    """Return whether a figure may show the per-class recall of this run."""
    if spec.recipe.views is not None:
        return False
    return DATASETS[spec.data].n_classes <= _MAX_RECALL_CLASSES and spec.method.name in _RECALL_METHODS


def needs_confusions(spec: Spec) -> bool:
    """Return whether a figure may show the confusion matrices of this run."""
    return spec.seed == 0 and needs_recalls(spec)


def run_cells(
    cells: Sequence[CellRuns],
    store: Store,
    *,
    device: str = "auto",
    root: Path | None = None,
    progress: ProgressListener | None = None,
    launcher: Launcher = "local",
    time_limit: float | None = None,
) -> scheduler.RunPlan:
    """Run what is missing of some cells and add it to the store, see `run_on_devices`."""
    return run_on_devices(
        unique_specs(cells),
        store,
        device=device,
        root=root,
        progress=progress,
        launcher=launcher,
        time_limit=time_limit,
    )


def run_on_devices(
    specs: Sequence[Spec],
    store: Store,
    *,
    device: str = "auto",
    root: Path | None = None,
    progress: ProgressListener | None = None,
    launcher: Launcher = "local",
    fast: bool | None = None,
    time_limit: float | None = None,
) -> scheduler.RunPlan:
    """Run what is missing and add it to the store; returns the executed plan.

    Several devices, separated by commas, get a process each; "auto" uses every GPU. A device named twice gets
    two processes, which helps if one of them leaves it idle. Launcher "ray" uses an existing Ray cluster, see
    `workers.RayPool`. For `fast` see `TrainingSetup`, for `time_limit` (in seconds) `scheduler.run_missing`;
    on a Ray cluster, whose nodes keep no checkpoints, stacks in training run to their end.
    """
    devices = workers.parse_devices(device)
    repeated = next((name for name in devices if devices.count(name) > 1), None)
    if repeated is not None and any(spec.is_timed for spec in specs):
        problem = f"is named twice, but runs of protocol {TIMED} must be alone on their device."
        raise ValueError(f"device: {repeated} {problem} Name it once, or leave that protocol out.")
    pool: workers.WorkerPool | None = None
    if launcher == "ray":
        pool = workers.RayPool(device)
    else:
        for name in devices:
            best_device(name)  # raises if it does not exist
        if len(devices) > 1:
            pool = workers.ProcessPool(devices)
    with pool or nullcontext():
        return scheduler.run_missing(
            specs,
            store,
            device="cpu" if launcher == "ray" and device == "auto" else devices[0],
            root=root,
            progress=progress,
            confusions=needs_confusions,
            recalls=needs_recalls,
            pool=pool,
            fast=fast,
            time_limit=time_limit,
        )


def cell_results(cells: Sequence[CellRuns], store: Store, root: Path | None = None) -> list[CellResult]:
    """Return the results of some cells in a store, with notes on how to run those without data."""
    available = {data: scheduler.is_data_available(data, root) for data in {cell.cell.data for cell in cells}}
    return [
        result
        if available[result.cell.data] or result.runs == result.expected
        else replace(
            result, note=f"{ABSENT}; {', then '.join(describe_steps(result.cell, result.protocol, root))}"
        )
        for result in cell_results_from(cells, store.find(unique_specs(cells)))
    ]


def cell_results_from(cells: Sequence[CellRuns], results: Mapping[str, RunResult]) -> list[CellResult]:
    """Return the results of some cells from the results of runs, by key."""
    return [_cell_result(cell, results) for cell in cells]


def _cell_result(cell_runs: CellRuns, by_key: Mapping[str, RunResult]) -> CellResult:
    cell, specs, table = cell_runs.cell, cell_runs.specs, TABLES[cell_runs.cell.table]
    results = [by_key[spec.key] for spec in specs if spec.key in by_key]
    mean, std = mean_and_std(list(_values(results, table).values())) if results else (None, None)
    note = cell_runs.left_out
    if not note and len(results) < len(specs):
        note = f"{len(results)} of {len(specs)} runs" if results else "not run"
    return CellResult(
        cell=cell,
        title=table.row(cell.row).title,
        protocol=cell_runs.protocol,
        mean=mean,
        std=std,
        runs=len(results),
        expected=len(specs),
        candidates=statistics.fmean(result.candidates for result in results) if results else None,
        published=table.published(cell),
        note=note,
        keys=tuple(spec.key for spec in specs),
        caveat=table.caveat_for(cell, cell_runs.protocol),
        results=tuple(results),
    )


def _values(results: Sequence[RunResult], table: PaperTable) -> dict[int, float]:
    """Return percent by fold if there are several folds, else by seed."""
    folds = {result.spec.split.fold for result in results}
    values: dict[Any, list[float]] = {}
    for result in results:
        unit = result.spec.split.fold if len(folds) > 1 else result.spec.seed
        values.setdefault(unit, []).append(100 * float(getattr(result, table.reports)))
    return {unit: statistics.fmean(unit_values) for unit, unit_values in values.items()}


def describe_steps(cell: PaperCell, protocol: str, root: Path | None = None) -> list[str]:
    """Return what to do to run a cell whose data set is not available."""
    folder = data_root(root)
    steps = []
    for files in DATASETS[cell.data].files:
        missing = [content.name for content, path in files.locate(folder).items() if path is None]
        if missing and files.downloads:
            steps.append(f"propall data get {cell.data}")
        elif missing:
            steps += [f"put {name} at {folder / files.folder / name}" for name in missing]
    return [*steps, f"propall reproduce {cell.table} --data {cell.data} --protocol {protocol}"]


def as_dicts(results: Sequence[CellResult]) -> list[dict[str, Any]]:
    """Return one plain dictionary per cell."""
    names = ("title", "protocol", "mean", "std", "runs", "expected")
    return [
        {
            "cell": result.cell.name,
            **result.cell._asdict(),
            **{name: getattr(result, name) for name in names},
            "mean_candidates": result.candidates,
            "published": None if result.published is None else result.published._asdict(),
            "note": result.note,
            "incomparable": result.caveat,
            "keys": list(result.keys),
        }
        for result in results
    ]


def summarize_cells(results: Sequence[CellResult]) -> str:
    """Return one line: how many cells are done, and why the others are not."""
    done = sum(result.expected > 0 and result.runs == result.expected for result in results)
    reasons: dict[str, int] = {}
    for result in results:
        if result.note:
            reason = "incomplete" if result.runs else result.note.partition(";")[0]
            reasons[reason] = reasons.get(reason, 0) + 1
    others = "".join(f"; {reason}: {count}" for reason, count in reasons.items())
    return f"{done} of {len(results)} cells done{others}."

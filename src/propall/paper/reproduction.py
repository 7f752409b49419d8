"""What `propall reproduce` does: cells of the paper's tables to runs, their results beside the paper's."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from propall.data import DATASETS
from propall.data.files import data_root
from propall.paper import scheduler, workers
from propall.paper.results import RunResult
from propall.paper.specs import TIMED, Spec
from propall.paper.store import Store
from propall.paper.tables import TABLES, find_cell
from propall.paper.tables.baselines import NO_NOISE
from propall.paper.tables.paper_table import PaperCell, PaperTable, PublishedAccuracy
from propall.paper.workers import Launcher
from propall.registry import Registry, UnknownNameError
from propall.report.numbers import mean_and_std
from propall.training.compiled import best_device

#: The name that asks for every table.
ALL = "all"
#: What an empty cell says first where its data set is not there.
ABSENT = "data not available here"
#: The figures that show how single classes are learnt follow these methods, on data of so many classes.
_CLASS_BY_CLASS, _FEW_CLASSES = ("propall", "proden"), 10


@dataclass(frozen=True)
class CellRuns:
    """A cell that was asked for, with the runs behind it.

    Attributes:
        cell: the cell.
        protocol: how it is run.
        specs: its runs; none where the protocol leaves it out.
        left_out: why, if so.
    """

    cell: PaperCell
    protocol: str
    specs: list[Spec]
    left_out: str = ""


@dataclass(frozen=True)
class CellResult:
    """What is known of a cell, ours and the paper's; in percent.

    Attributes:
        cell: the cell.
        title: the line's title.
        protocol: how it was run. Entries of different protocols say different things.
        mean: mean over folds, of the mean over seeds; or mean over seeds. None until a run is done.
        std: sample standard deviation over the same; None for a single value.
        runs: how many runs are behind it.
        expected: how many there should be.
        candidates: mean number of candidates of a training row.
        published: the paper's number.
        note: why it is empty or unfinished.
        keys: of the runs.
        incomparable: why our number cannot be held against the paper's; empty where it can.
        results: of the runs that are done.
    """

    cell: PaperCell
    title: str
    protocol: str
    mean: float | None
    std: float | None
    runs: int
    expected: int
    candidates: float | None
    published: PublishedAccuracy | None
    note: str
    keys: tuple[str, ...]
    incomparable: str = ""
    results: tuple[RunResult, ...] = ()

    @property
    def values(self) -> dict[int, float]:
        """What mean and deviation are taken over: percent by fold, or by seed."""
        return _values(self.results, TABLES[self.cell.table])

    @property
    def missing(self) -> bool:
        """Whether nothing ran and the data set has no download, whatever is on this disk."""
        return self.expected > self.runs == 0 and not all(f.downloads for f in DATASETS[self.cell.data].files)


def select_cells(
    table: str,
    *,
    protocol: str | None = None,
    methods: Sequence[str] | None = None,
    data: Sequence[str] | None = None,
    seeds: int | None = None,
) -> list[CellRuns]:
    """The cells that are asked for.

    Args:
        table: name of a table, "all", or the name of a single cell such as `candidates10/mnist/pc/8`; or
            several of these, separated by commas.
        protocol: see `PaperTable.protocol`; several, separated by commas, ask for the cells of each.
        methods: names of lines; all if None.
        data: names of data sets; all if None.
        seeds: how many seeds, in place of the protocol's number.
    """
    words = [word.strip() for word in table.split(",")]
    protocols = [None] if protocol is None else [word.strip() for word in protocol.split(",")]
    names = [name for word in words if "/" not in word for name in (TABLES if word == ALL else [word])]
    if len(names) < len(words) and (methods or data):
        raise ValueError(f"methods, data: {table} has a single cell, which names both; leave them out.")
    chosen = [TABLES[name] for name in names]
    strict = len(chosen) * len(protocols) == 1
    if not strict:
        _check("methods", methods, [row.name for of in chosen for row in of.rows])
        _check("data", data, [name for of in chosen for name in of.data])
    found: dict[tuple[PaperCell, str], CellRuns] = {}
    for how in protocols:
        refusals: list[UnknownNameError] = []
        own = [_single(word, how, seeds) for word in words if "/" in word]
        for of in chosen:
            try:
                own += _of_table(of, how, methods, data, seeds, strict=strict)
            except UnknownNameError as error:
                refusals.append(error)  # another table may know it
        if not own and refusals:
            raise refusals[0]
        found |= {(cell.cell, cell.protocol): cell for cell in own}
    if not found:
        asked = " on ".join(", ".join(names) for names in (methods, data) if names)
        raise UnknownNameError(f"methods, data: no table has {asked or 'what is asked for'}.")
    return list(found.values())


def _check(what: str, names: Sequence[str] | None, known: Sequence[str]) -> None:
    """Refuse a name that no chosen table has."""
    registry = Registry(what, dict.fromkeys(known).items())
    for name in names or ():
        registry[name]


def _single(name: str, protocol: str | None, seeds: int | None) -> CellRuns:
    single = find_cell(name)
    table = TABLES[single.table]
    return _wanted(table, single, table.protocol(protocol), seeds)


def _of_table(
    table: PaperTable,
    protocol: str | None,
    methods: Sequence[str] | None,
    data: Sequence[str] | None,
    seeds: int | None,
    *,
    strict: bool,
) -> list[CellRuns]:
    resolved = table.protocol(protocol)
    if not strict:
        methods = None if methods is None else [row.name for row in table.rows if row.name in methods]
        data = None if data is None else [name for name in data if name in table.data]
        if methods == [] or data == []:
            return []
    return [_wanted(table, cell, resolved, seeds) for cell in table.cells(data=data, rows=methods)]


def _wanted(table: PaperTable, cell: PaperCell, protocol: str, seeds: int | None) -> CellRuns:
    return CellRuns(cell, protocol, table.specs(cell, protocol, seeds=seeds), table.left_out(cell, protocol))


def protocols_with_results(table: str, store: Store) -> list[str]:
    """The protocols of a table that a store holds runs of: first those the table names, then cut ones.

    The tables with and without noise take their second line from other tables, so the first one counts.
    """
    chosen, keys = TABLES[table], store.keys()
    rows = [NO_NOISE.name] if NO_NOISE in chosen.rows else None
    found = []
    for name in dict.fromkeys([*chosen.protocols, *sorted({line["protocol"] for line in store.lines()})]):
        try:
            known = chosen.protocol(name) == name
        except UnknownNameError:
            continue  # another table's
        own = (spec for cell in _of_table(chosen, name, rows, None, None, strict=True) for spec in cell.specs)
        if known and any(spec.protocol == name and spec.key in keys for spec in own):
            found.append(name)
    return found


def unique_specs(cells: Iterable[CellRuns]) -> list[Spec]:
    """The different runs behind some cells."""
    return list({spec.key: spec for cell in cells for spec in cell.specs}.values())


def needs_recalls(spec: Spec) -> bool:
    """Whether it is of interest how this run learns class by class: two methods, few classes."""
    return DATASETS[spec.data].n_classes <= _FEW_CLASSES and spec.method.name in _CLASS_BY_CLASS


def needs_confusions(spec: Spec) -> bool:
    """Whether a figure may show this run's confusion matrices: one seed of those that `needs_recalls`."""
    return spec.seed == 0 and needs_recalls(spec)


def run_cells(
    cells: Sequence[CellRuns],
    store: Store,
    *,
    device: str = "auto",
    root: Path | None = None,
    progress: scheduler.RunProgress | None = None,
    launcher: Launcher = "local",
) -> scheduler.RunPlan:
    """Run what is missing of some cells; returns the plan that was carried out.

    Args:
        cells: what is wanted.
        store: where results are and go.
        device: where to run; several separated by commas get a process each, and so do all GPUs for "auto".
            A device named twice gets two, which fills a GPU that one of them leaves idle.
        root: folder of the data sets.
        progress: shows how far it is.
        launcher: "ray" for a Ray cluster that exists, see `workers.RayPool`.
    """
    devices, wanted_runs = workers.parse_devices(device), unique_specs(cells)
    twice = next((name for name in devices if devices.count(name) > 1), None)
    if twice is not None and any(spec.is_timed for spec in wanted_runs):
        raise ValueError(
            f"device: {twice} is named twice, but runs of the protocol {TIMED} have to be alone on theirs. "
            "Name it once, or leave that protocol out."
        )
    if launcher == "local":
        for name in devices:
            best_device(name)  # refuses what is not there
    with ExitStack() as opened:
        pool: workers.WorkerPool | None = None
        if launcher == "ray":
            pool = opened.enter_context(workers.RayPool(device))
        elif len(devices) > 1:
            pool = opened.enter_context(workers.ProcessPool(devices))
        return scheduler.run_missing(
            wanted_runs,
            store,
            device="cpu" if launcher == "ray" and device == "auto" else devices[0],
            root=root,
            progress=progress,
            confusions=needs_confusions,
            recalls=needs_recalls,
            workers=pool,
        )


def cell_results(cells: Sequence[CellRuns], store: Store, root: Path | None = None) -> list[CellResult]:
    """What a store knows of some cells; unfinished ones whose data is not there say what to do."""
    found = cell_results_from(cells, store.find(unique_specs(cells)))
    here = {data: scheduler.is_data_available(data, root) for data in {cell.cell.data for cell in cells}}
    return [
        entry
        if here[entry.cell.data] or entry.runs == entry.expected
        else replace(entry, note=f"{ABSENT}; {how_to_run(entry.cell, entry.protocol, root)}")
        for entry in found
    ]


def cell_results_from(cells: Sequence[CellRuns], results: Mapping[str, RunResult]) -> list[CellResult]:
    """What results, by their keys, say of some cells."""
    return [_entry(cell, results) for cell in cells]


def _entry(wanted: CellRuns, results: Mapping[str, RunResult]) -> CellResult:
    cell, table = wanted.cell, TABLES[wanted.cell.table]
    own = [results[spec.key] for spec in wanted.specs if spec.key in results]
    mean, std = mean_and_std(list(_values(own, table).values())) if own else (None, None)
    note = wanted.left_out
    if not note and len(own) < len(wanted.specs):
        note = f"{len(own)} of {len(wanted.specs)} runs" if own else "not run"
    return CellResult(
        cell=cell,
        title=table.row(cell.row).title,
        protocol=wanted.protocol,
        mean=mean,
        std=std,
        runs=len(own),
        expected=len(wanted.specs),
        candidates=statistics.fmean(result.candidates for result in own) if own else None,
        published=table.published(cell),
        note=note,
        keys=tuple(spec.key for spec in wanted.specs),
        incomparable=table.incomparable(cell, wanted.protocol),
        results=tuple(own),
    )


def _values(results: Sequence[RunResult], table: PaperTable) -> dict[int, float]:
    """What mean and spread are taken over: folds where there are several, else seeds."""
    folds = {result.spec.split.fold for result in results}
    by: dict[Any, list[float]] = {}
    for result in results:
        unit = result.spec.split.fold if len(folds) > 1 else result.spec.seed
        by.setdefault(unit, []).append(100 * float(getattr(result, table.reports)))
    return {unit: statistics.fmean(values) for unit, values in by.items()}


def how_to_run(cell: PaperCell, protocol: str, root: Path | None = None) -> str:
    """What to do to get a cell whose data set is not there."""
    return ", then ".join(steps_to_run(cell, protocol, root))


def steps_to_run(cell: PaperCell, protocol: str, root: Path | None = None) -> list[str]:
    """The same step by step."""
    folder = data_root(root)
    steps = []
    for files in DATASETS[cell.data].files:
        lacking = [content.name for content, path in files.locate(folder).items() if path is None]
        if lacking and files.downloads:
            steps.append(f"propall data get {cell.data}")
        elif lacking:
            steps += [f"put {name} at {folder / files.folder / name}" for name in lacking]
    command = f"propall reproduce {cell.table} --data {cell.data} --protocol {protocol}"
    return [*steps, command]


def as_dicts(found: Sequence[CellResult]) -> list[dict[str, Any]]:
    """One plain dictionary per cell."""
    return [
        {
            "cell": entry.cell.name,
            **entry.cell._asdict(),
            "title": entry.title,
            "protocol": entry.protocol,
            "mean": entry.mean,
            "std": entry.std,
            "runs": entry.runs,
            "expected": entry.expected,
            "mean_candidates": entry.candidates,
            "published": None if entry.published is None else entry.published._asdict(),
            "note": entry.note,
            "incomparable": entry.incomparable,
            "keys": list(entry.keys),
        }
        for entry in found
    ]


def summary(found: Sequence[CellResult]) -> str:
    """One line: how many cells are there, and why the others are not."""
    done = sum(entry.expected > 0 and entry.runs == entry.expected for entry in found)
    reasons: dict[str, int] = {}
    for entry in found:
        if entry.note:
            reason = "unfinished" if entry.runs else entry.note.partition(";")[0]
            reasons[reason] = reasons.get(reason, 0) + 1
    others = "".join(f", {count} {reason}" for reason, count in reasons.items())
    return f"{done} of {len(found)} cells done{others}."

"""Commands for experiments: compare methods, reproduce and report the paper, manage stored results."""

from __future__ import annotations

import json
import sys
import time
import webbrowser
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from propall import atomic_files
from propall.cli.app import EXPERIMENTS, Application, app
from propall.cli.option_groups import grouped_command
from propall.cli.terminal import (
    AsJson,
    Device,
    print_json,
    print_line,
    print_note,
    print_table,
    split_words,
)
from propall.wording import approximate_duration, class_hint, list_names, plural

if TYPE_CHECKING:
    from propall.paper.comparison import Contender, ContenderScore
    from propall.paper.modern import RowResult
    from propall.paper.reproduction import CellResult
    from propall.paper.runtime_estimates import RuntimeEstimates, RuntimeForecast
    from propall.paper.scheduler import RunPlan
    from propall.paper.specs import Spec
    from propall.paper.store import Store

STORE = Path("runs/results.sqlite")
StoreFile = Annotated[Path, typer.Option(help="File of results.")]


@app.command(rich_help_panel=EXPERIMENTS)
def compare(
    data: Annotated[
        str, typer.Option(help="Data sets that come with candidate sets, separated by commas.")
    ] = "lost,msrcv2,birdsong",
    methods: Annotated[
        str, typer.Option(help="Names separated by commas; all: those of the paper, some in two settings.")
    ] = "all",
    folds: Annotated[int, typer.Option(min=2, help="Number of cross-validation folds.")] = 5,
    seeds: Annotated[int, typer.Option(min=1, help="Runs per method and fold.")] = 1,
    epochs: Annotated[int | None, typer.Option(help="Override the number of epochs.")] = None,
    device: Device = "auto",
    out: Annotated[Path, typer.Option(help="Folder for results and checkpoints.")] = Path("runs"),
    json_output: AsJson = False,
) -> None:
    """Cross-validate methods on real-world candidate sets, next to the paper's numbers.

    If interrupted, the same command resumes.

    Example: propall compare --data lost --methods propall,cc,pl_knn
    """
    from propall.paper import comparison
    from propall.paper.progress import RunProgress
    from propall.paper.store import Store

    names = comparison.ALL if methods == "all" else tuple(split_words(methods))
    contenders = comparison.find_contenders(split_words(data), names, folds=folds, seeds=seeds, epochs=epochs)
    cells = {f"{c.data}/{c.name}": [spec.key for spec in c.specs] for c in contenders}
    start = time.perf_counter()
    with Store(out / "results.sqlite") as store, RunProgress(cells, print_note) as progress:
        scores = comparison.compare_methods(contenders, store, device=device, progress=progress)
    seconds = time.perf_counter() - start
    if json_output:
        print_json(comparison.as_dicts(contenders, scores))
        return
    for name in dict.fromkeys(contender.data for contender in contenders):
        data_results = [contender for contender in contenders if contender.data == name]
        _print_comparison(data_results, [score for score in scores if score.contender.data == name])
    if any(not contender.in_paper for contender in contenders):
        print_line("* not in the paper's table: trained with ProPaLL's settings.")
    print_line(
        f"Mean and sample standard deviation over {folds} folds, {plural(seeds, 'run')} each; features "
        "standardized on the training rows; seconds: sum of run times. Paper: as published "
        "[struski2022propall]."
    )
    print_line(f"{comparison.summarize_scores(scores, seconds)} Results: {store.path}")


def _print_comparison(contenders: Sequence[Contender], scores: Iterable[ContenderScore]) -> None:
    from propall.data import DATASETS

    rows = []
    for score in sorted(scores, key=lambda score: -score.mean):
        paper, title = score.contender.published, score.contender.title
        std = "" if score.std is None else f"{score.std:.2f}"
        published = ("", "") if paper is None else (f"{paper.mean:.2f}", f"{paper.std:.2f}")
        title += "" if score.contender.in_paper else " *"
        rows.append((title, f"{score.mean:.2f}", std, *published, f"{score.seconds:.1f}"))
    print_line(f"{DATASETS[contenders[0].data].title}\n", style="bold")
    columns = ("method", "accuracy %", "std", "paper %", "std ", "seconds")
    print_table(columns, rows, numbers=slice(1, None))
    for contender in contenders:
        if contender.refused:
            print_line(f"{contender.title}: not run. {contender.refused}")
    print_line()


Launcher = StrEnum("Launcher", ["local", "ray"])
_selection = partial(typer.Option, rich_help_panel="Selection")
_execution = partial(typer.Option, rich_help_panel="Execution")


@dataclass(frozen=True)
class CellOptions:
    """Which cells of a table are reproduced, and how."""

    protocol: Annotated[
        str | None,
        _selection(
            help="full (default), short (a smoke run of minutes), same-rates, q0.1, single80, timed, "
            "full-50epochs, ...; several separated by commas."
        ),
    ] = None
    methods: Annotated[str | None, _selection(help="Rows of the table, separated by commas.")] = None
    data: Annotated[str | None, _selection(help="Data sets, separated by commas.")] = None
    only: Annotated[
        str | None,
        _selection(help="Rows of the table modern by name or pattern (uniform-*), separated by commas."),
    ] = None
    seeds: Annotated[int | None, _selection(min=1, help="Override the number of seeds.")] = None


@dataclass(frozen=True)
class ExecutionOptions:
    """Where the runs of a reproduction execute."""

    device: Annotated[
        str,
        _execution(
            help="auto (all GPUs), cpu, cuda:1, ...; a list such as cuda:0,cuda:1 starts one process each."
        ),
    ] = "auto"
    launcher: Annotated[
        Launcher, _execution(help="local, or ray: tasks on an existing Ray cluster (needs the extra ray).")
    ] = Launcher.local
    dry_run: Annotated[bool, _execution("--dry-run", help="Show what would run, and how long.")] = False
    store: Annotated[Path, _execution(help="File of results; created if it does not exist.")] = STORE
    time_limit: Annotated[
        float | None,
        _execution(
            help="Seconds after which nothing starts and networks in training are saved; the same command "
            "continues. Runs that are left are named, and are no error.",
            min=0,
        ),
    ] = None
    compiling: Annotated[
        bool,
        _execution(
            "--compile/--no-compile",
            help="Compile the steps of the table modern on a GPU: a minute, then a fifth faster.",
        ),
    ] = False


@grouped_command(app, panel=EXPERIMENTS)
def reproduce(
    table: Annotated[
        str,
        typer.Argument(
            help="A table of the paper (uniform), a cell (real/lost/cc), a list of these, or all (of the "
            "paper); modern: images with views."
        ),
    ],
    selection: CellOptions,
    execution: ExecutionOptions,
    json_output: AsJson = False,
) -> None:
    """Run what is missing from a table of the paper, and print it next to the published numbers.

    If interrupted or killed, the same command resumes.

    Example: propall reproduce uniform --data mnist --dry-run
    """
    from propall.paper import reproduction
    from propall.paper.progress import RunProgress
    from propall.paper.store import Store
    from propall.paper.tables import TABLES
    from propall.paper.tables.modern import MODERN
    from propall.paper.workers import parse_devices
    from propall.registry import Registry

    names = [name.strip() for name in table.split(",")]
    known = Registry("table", ((name, name) for name in (*TABLES, reproduction.ALL, MODERN)))
    tables = [known[name.partition("/")[0]] for name in names]  # raises if there is none
    if MODERN in tables:
        if len(names) > 1:
            raise ValueError(f"table: got {table!r}; {MODERN} has a command of its own.")
        if names != tables:
            raise ValueError(f"table: got {table!r}; choose rows of {MODERN} with --only.")
        _reproduce_modern(selection, execution, json_output)
        return
    if selection.only is not None:
        raise ValueError(f"only: {table} has no named rows; use --methods and --data.")
    cells = reproduction.select_cells(
        table,
        protocol=selection.protocol,
        methods=None if selection.methods is None else split_words(selection.methods),
        data=None if selection.data is None else split_words(selection.data),
        seeds=selection.seeds,
    )
    dry_run, path = execution.dry_run, execution.store
    # A dry run creates no file.
    with Store(":memory:" if dry_run and not path.exists() else path) as store:
        if dry_run:
            specs, device = reproduction.unique_specs(cells), parse_devices(execution.device)[0]
            _print_plan(specs, store, device, json_output)
            return
        keys = {f"{c.cell.name} {c.protocol}": [spec.key for spec in c.specs] for c in cells if c.specs}
        with RunProgress(keys, print_note) as progress:
            launcher: Literal["local", "ray"] = "ray" if execution.launcher is Launcher.ray else "local"
            plan = reproduction.run_cells(
                cells,
                store,
                device=execution.device,
                progress=progress,
                launcher=launcher,
                time_limit=execution.time_limit,
            )
        results = reproduction.cell_results(cells, store)
    if json_output:
        print_json(reproduction.as_dicts(results))
    else:
        _print_tables(results, path)
    _print_unfinished(plan)
    _raise_failures(plan.failures)


def _print_unfinished(plan: RunPlan) -> None:
    if plan.unfinished:
        print_note(
            f"Time limit reached, {plural(len(plan.unfinished), 'run')} left; the same command continues."
        )


def _raise_failures(failures: Sequence[object]) -> None:
    if failures:
        remedy = "Run the same command again after removing the cause; finished runs are kept."
        raise RuntimeError(f"{'; '.join(map(str, failures)).rstrip('.')}. {remedy}")


def _reproduce_modern(selection: CellOptions, execution: ExecutionOptions, json_output: bool) -> None:
    from propall.paper import modern
    from propall.paper.progress import RunProgress
    from propall.paper.store import Store
    from propall.paper.workers import parse_devices

    rows = modern.select_rows(
        None if selection.only is None else split_words(selection.only),
        methods=None if selection.methods is None else split_words(selection.methods),
        data=None if selection.data is None else split_words(selection.data),
        protocol=selection.protocol,
        seeds=selection.seeds,
    )
    specs, path = modern.unique_specs(rows), execution.store
    with Store(":memory:" if execution.dry_run and not path.exists() else path) as store:
        if execution.dry_run:
            # The first row with a run names it, as most rows are variants of the ones above.
            titles = {spec.key: row.row.title for row in reversed(rows) for spec in row.specs}
            _print_plan(specs, store, parse_devices(execution.device)[0], json_output, titles)
            return
        keys = {f"{row.row.name} {row.protocol}": [spec.key for spec in row.specs] for row in rows}
        with RunProgress(keys, print_note, parts="rows") as progress:
            launcher: Literal["local", "ray"] = "ray" if execution.launcher is Launcher.ray else "local"
            plan = modern.run_rows(
                rows,
                store,
                device=execution.device,
                progress=progress,
                launcher=launcher,
                compiling=execution.compiling,
                time_limit=execution.time_limit,
            )
        results = modern.row_results(rows, store.find(specs))
    if json_output:
        print_json(modern.as_dicts(results))
    else:
        _print_modern(results)
        print_line(f"{modern.summarize_rows(results)} Results: {path}")
        for data in sorted({spec.data for spec in plan.absent}):
            print_line(f"Data not available: {data}; see `propall data get {data}`.")
    _print_unfinished(plan)
    _raise_failures(plan.failures)


def _print_modern(results: Sequence[RowResult]) -> None:
    from propall.paper.tables.modern import MODERN, NOT_COMPARED, TITLE

    print_line(f"{TITLE}\n", style="bold")
    for part in dict.fromkeys(result.part for result in results):
        rows = []
        for result in results:
            if result.part == part:
                ours, time = _percent(result.mean, result.std) or result.note, result.time
                seconds = ("", "") if time is None else (f"{time.training:.1f}", f"{time.preparation:.1f}")
                size = "" if result.candidates is None else f"{result.candidates:.2f}"
                published = "; ".join(map(str, result.row.published))
                rows.append((result.row.name, result.row.title, ours, size, *seconds, published))
        columns = ("row", "method", "accuracy %", "candidates", "training s", "compiling s", "published")
        print_line(part, style="bold")
        print_table(columns, rows, numbers=slice(2, 6))
        print_line()
    if any("/" in result.row.name for result in results):
        print_line(NOT_COMPARED)
    if any(result.protocol != MODERN for result in results):
        print_line("Not the protocol of the table: not comparable with published numbers.")
    print_line(
        "Test accuracy after the last epoch, one network, no test-time augmentation: mean (sample standard "
        "deviation) over seeds. Training seconds are without evaluation and compiling."
    )


def _print_tables(results: Sequence[CellResult], store: Path) -> None:
    from propall.paper import reproduction
    from propall.paper.tables import TABLES

    by_table: dict[tuple[str, str, str], list[CellResult]] = {}
    for result in results:
        by_table.setdefault((result.cell.table, result.protocol, result.cell.data), []).append(result)
    heading = ""
    for (name, protocol, _), data_results in by_table.items():
        title = f"{TABLES[name].title}. {protocol}: {TABLES[name].describe(protocol)}\n"
        if title != heading:
            print_line(title, style="bold")
            heading = title
        _print_data_set(data_results)
    print_line("Percent: mean (sample standard deviation). Paper: as published [struski2022propall].")
    print_line(f"{reproduction.summarize_cells(results)} Results: {store}")


def _print_data_set(results: Sequence[CellResult]) -> None:
    """Print the part of a table that is about one data set."""
    from propall.data import DATASETS

    title = DATASETS[results[0].cell.data].title
    sizes = [result.candidates for result in results if result.candidates is not None]
    by_candidates = results[0].cell.candidates is not None
    if sizes and not by_candidates:
        title += f", {sum(sizes) / len(sizes):.2f} candidates on average"
    print_line(title, style="bold")
    if by_candidates:
        _print_by_candidates(results)
    else:
        rows = []
        for result in results:
            ours = _percent(result.mean, result.std) or result.note.partition(";")[0]
            rows.append((result.title, ours, _published(result), result.runs))
        print_table(("method", "ours", "paper", "runs"), rows, numbers=slice(1, None))
    _print_notes([(result.title, result.note) for result in results])
    compared = [result for result in results if result.mean is not None and result.published is not None]
    _print_notes([(r.title, r.caveat) for r in compared], "not comparable with the paper: ")
    print_line()


def _print_by_candidates(results: Sequence[CellResult]) -> None:
    from rich.text import Text

    rows: list[list[object]] = []
    for name in dict.fromkeys(result.cell.row for result in results):
        row_results = [result for result in results if result.cell.row == name]
        rows.append([row_results[0].title, *(_percent(result.mean, result.std) for result in row_results)])
        rows.append([Text(cell, style="dim") for cell in ("  paper", *map(_published, row_results))])
    columns = [f"n = {n}" for n in dict.fromkeys(result.cell.candidates for result in results)]
    print_table(("method", *columns), rows, numbers=slice(1, None))


def _published(result: CellResult) -> str:
    return _percent(*(result.published or (None, None)))


def _percent(mean: float | None, std: float | None) -> str:
    return "" if mean is None else f"{mean:.2f}" + ("" if std is None else f" ({std:.2f})")


def _print_notes(notes: Sequence[tuple[str, str]], prefix: str = "") -> None:
    """Print every distinct note once, with the rows it applies to unless it applies to all."""
    for note in dict.fromkeys(note for _, note in notes if note):
        titles = list(dict.fromkeys(title for title, text in notes if text == note))
        rows = "" if len(titles) == len(dict(notes)) else f"{'; '.join(titles)}: "
        print_line(f"{rows}{prefix}{note}")


def _print_plan(
    specs: Sequence[Spec],
    store: Store,
    device: str,
    json_output: bool,
    titles: Mapping[str, str] | None = None,
) -> None:
    """Print what would run; `titles` names the methods of a table by the keys of its runs."""
    from propall.data.files import data_root
    from propall.paper.runtime_estimates import RuntimeEstimates
    from propall.paper.scheduler import plan_runs
    from propall.training.compiled import best_device

    plan, estimates = plan_runs(specs, store), RuntimeEstimates(store, best_device(device))
    groups = _forecast(estimates, plan.groups, titles or {})
    untimed = sum(group.runs for group in groups if group.seconds is None and group.guess is None)
    absent = sorted({spec.data for spec in plan.absent})
    if json_output:
        print_json(
            {
                "stored": plan.stored,
                "groups": [group._asdict() for group in groups],
                "absent": absent,
                "untimed_runs": untimed,
                "guessed_from": estimates.other_hardware,
            }
        )
        return
    if groups:
        rows = [(g.data, "; ".join(g.methods), g.net, g.epochs or "", g.runs, _time(g)) for g in groups]
        print_table(("data", "methods", "net", "epochs", "runs", "time"), rows, numbers=slice(3, None))
    known = sum(group.seconds for group in groups if group.seconds is not None)
    guessed = sum(group.guess or 0 for group in groups if group.seconds is None)
    parts = [f"about {approximate_duration(known)}"] if known else []
    parts += [f"about {approximate_duration(guessed)} *"] if guessed else []
    parts += [f"time unknown for {untimed} of them"] if untimed else []
    total = f" ({', '.join(parts)})" if parts else ""
    print_line(f"\n{plural(len(plan.missing), 'run')} to do{total}; {plan.stored} already in the store.")
    if guessed:
        print_line(f"* as measured on {estimates.other_hardware}; not timed here yet.")
    if absent:
        print_line(
            f"Data not available: {', '.join(absent)} ({plural(len(plan.absent), 'run')}). They belong in "
            f"{data_root()}; `propall data get {absent[0]}` says how to get them."
        )


def _forecast(
    estimates: RuntimeEstimates, groups: Iterable[Sequence[Spec]], titles: Mapping[str, str]
) -> list[RuntimeForecast]:
    """Forecast groups of runs under the titles of their rows: several may share a base loss."""
    by_titles: dict[tuple[str, tuple[str, ...]], list[Sequence[Spec]]] = {}
    for group in groups:
        names = tuple(dict.fromkeys(titles.get(spec.key, spec.title) for spec in group))
        by_titles.setdefault((group[0].data, names), []).append(group)
    return [
        forecast._replace(methods=names)
        for (_, names), alike in by_titles.items()
        for forecast in estimates.forecast(alike)
    ]


def _time(group: RuntimeForecast) -> str:
    if group.seconds is not None:
        return approximate_duration(group.seconds)
    return "unknown" if group.guess is None else f"{approximate_duration(group.guess)} *"


@dataclass(frozen=True)
class StudyOptions:
    """How the networks of the annotator study are trained."""

    epochs: Annotated[int, typer.Option(min=1, help="Number of epochs.")] = 60
    folds: Annotated[int, typer.Option(min=2, help="Number of folds for out-of-fold resolution.")] = 2
    net: Annotated[str, typer.Option(help="Network, see propall.nets.")] = "resnet32"
    rows: Annotated[
        int | None, typer.Option(help="Use only this many images, the same number per class.")
    ] = None
    precision: Annotated[str, typer.Option(help="float32, tf32 or bfloat16.")] = "bfloat16"
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0


@grouped_command(app, panel=EXPERIMENTS)
def annotators(
    study: StudyOptions,
    methods: Annotated[
        str, typer.Option(help="Losses for the candidate sets, separated by commas; the main one first.")
    ] = "propall,cc,proden",
    device: Device = "auto",
    out: Annotated[Path, typer.Option(help="File of results; the same command resumes from it.")] = Path(
        "runs/annotators.json"
    ),
    json_output: AsJson = False,
) -> None:
    """Compare candidate sets with majority votes of the three annotators of CIFAR-10N.

    Example: propall annotators --rows 5000 --epochs 20
    """
    from propall.paper.studies.annotators import StudySetting, run_study, table_rows

    setting = StudySetting(**vars(study))
    report = run_study(out, setting=setting, methods=split_words(methods), device=device, note=print_note)
    if json_output:
        print_json(report)
        return
    for heading, rows in table_rows(report).items():
        cells = [(name, f"{percent:.2f}") for name, percent in rows]
        print_table((heading, "accuracy %"), cells, numbers=slice(1, None))
        print_line()
    images = f"{report['people']['rows']} images"
    print_line(f"{images}, {study.folds} folds, {study.epochs} epochs. All numbers: {out}")


@dataclass(frozen=True)
class BaseLossOptions:
    """Data and training of the study of base losses; None for the defaults of the experiment."""

    data: Annotated[str | None, typer.Option(help="Images (default: cifar10; digits with --pairs).")] = None
    net: Annotated[str | None, typer.Option(help="Network (default: the fast one; mlp with --pairs).")] = None
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Number of epochs (default: 45; 30 with --pairs).")
    ] = None
    per_class: Annotated[
        int | None, typer.Option(help="Use only this many images of each class for training.")
    ] = None
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of seeds (default: 1; 10 with --pairs).")
    ] = None


@grouped_command(app, panel=EXPERIMENTS)
def base_losses(
    study: BaseLossOptions,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Pair classes that are candidates together, on a CPU.")
    ] = False,
    only: Annotated[
        str | None, typer.Option(help="Conditions by name or pattern (cc/*), separated by commas.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The first random seed; --pairs starts at 0.")] = 0,
    device: Device = "auto",
    out: Annotated[
        Path | None,
        typer.Option(
            help="File of results; the same command resumes from it (default: runs/base_losses.json; "
            "runs/paired_classes.json with --pairs)."
        ),
    ] = None,
    json_output: AsJson = False,
) -> None:
    """Compare base losses on candidates that a teacher confuses with the truth.

    Counts the classes that training drops. `propall report` shows the file if it is in the folder of the
    store. With --pairs, a smaller experiment: classes in pairs that are candidates together.

    Example: propall base-losses --only "*/views/20-*"
    """
    from propall.paper.studies import base_losses as study_module
    from propall.paper.studies import paired_classes

    chosen = {name: value for name, value in vars(study).items() if value is not None}
    patterns = None if only is None else split_words(only)
    if pairs:
        out = out or Path("runs") / paired_classes.FILE_NAME
        if study.per_class is not None:
            raise ValueError("per_class: --pairs takes all rows; omit --per-class.")
        report = paired_classes.run_pairs(
            out,
            setting=paired_classes.PairSetting(**chosen),
            cells=paired_classes.list_cells(patterns),
            device=device,
            note=print_note,
        )
        columns, rows = paired_classes.table_rows(report)
    else:
        out = out or Path("runs") / study_module.FILE_NAME
        seeds = chosen.pop("seeds", 1)
        setting = study_module.BaseLossSetting(**chosen)
        conditions = study_module.list_conditions(patterns, range(seed, seed + seeds))
        report = study_module.run_study(out, conditions, setting=setting, device=device, note=print_note)
        columns, rows = study_module.table_rows(report)
    if json_output:
        print_json(report)
        return
    print_table(columns, rows, numbers=slice(1, None))
    print_line(f"\n{plural(len(rows), 'row')}. All numbers: {out}")


#: What critical-difference diagrams rank over.
RankBlocks = StrEnum("RankBlocks", {"data_sets": "data-sets", "runs": "runs"})


@app.command(rich_help_panel=EXPERIMENTS)
def report(
    store: Annotated[Path, typer.Option(help="Results file written by `propall reproduce`.")] = STORE,
    results: Annotated[
        Path | None,
        typer.Option(help="Folder written by `propall results export`, instead of --store."),
    ] = None,
    out: Annotated[Path, typer.Option(help="HTML page to write.")] = Path("runs/report.html"),
    export: Annotated[
        Path | None, typer.Option(help="Folder for every table and figure as CSV, LaTeX, SVG and PNG.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Markdown file to write: claims, verdicts and tables.")
    ] = None,
    blocks: Annotated[
        RankBlocks,
        typer.Option(help="Rank over data sets, or over single runs (overstates significance)."),
    ] = RankBlocks.data_sets,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Report stored results next to the paper's tables and figures, as one HTML page.

    Example: propall report --results results/ --out report.html
    """
    from propall.paper import pages, results_io
    from propall.paper.evidence import Evidence
    from propall.paper.store import Store
    from propall.paper.studies import base_losses
    from propall.report.exhibits import export_exhibits

    if out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"out: {out.name} is not an HTML page; expected a name such as report.html.")
    with Store(store, read_only=True) if results is None else results_io.open_folder(results) as opened:
        evidence = Evidence(opened)
        study = base_losses.read_study((results or store.parent) / base_losses.FILE_NAME)
        ranked: Literal["data sets", "runs"] = "runs" if blocks is RankBlocks.runs else "data sets"
        page = pages.report_page(evidence, blocks=ranked, study=study)
        page.write(out)
        typer.echo("\n".join([page.finding, *pages.describe_costs(evidence)]))
        typer.echo(f"{out} ({max(0.1, out.stat().st_size / 1e6):.1f} MB)")
        if markdown is not None:
            atomic_files.write_text(markdown, pages.reproduction_markdown(evidence))
            typer.echo(f"{markdown}")
        if export is not None:
            typer.echo(f"{len(export_exhibits(page, export))} files in {export}")
    if open_page:
        webbrowser.open(out.resolve().as_uri())


results_app = Application(help="List, show, export and import stored results.", no_args_is_help=True)
app.add_typer(results_app, name="results", rich_help_panel=EXPERIMENTS)


#: Formats of exported results.
Format = StrEnum("Format", ["csv", "json", "tables", "rates"])


@results_app.command("list")
def results_list(
    data: Annotated[str | None, typer.Option(help="Only this data set.")] = None,
    method: Annotated[str | None, typer.Option(help="Only this method.")] = None,
    protocol: Annotated[str | None, typer.Option(help="Only this protocol.")] = None,
    store: StoreFile = STORE,
    json_output: AsJson = False,
) -> None:
    """List stored results: run, accuracy, time and date.

    Example: propall results list --data mnist --method propall
    """
    from propall.paper.store import Store

    with Store(store, read_only=True) as results:
        lines = results.lines(data=data, method=method, protocol=protocol)
        if not lines:
            _check_stored({"data": data, "method": method, "protocol": protocol}, results)
    if json_output:
        print_json(lines)
        return
    rows = []
    for line in lines:
        fold = json.loads(line["spec"])["split"]["fold"]
        run = (line["key"][:10], line["data"], line["method"], line["protocol"], "" if fold is None else fold)
        percent, seconds = f"{100 * line['accuracy']:.2f}", f"{line['seconds']:.1f}"
        rows.append((*run, line["seed"], percent, seconds, line["when"]))
    columns = ("key", "data", "method", "protocol", "fold", "seed", "accuracy %", "seconds", "date")
    print_table(columns, rows, numbers=slice(4, 8))
    print_line(f"\n{plural(len(lines), 'result')} in {store}. Show one: propall results show KEY")


def _check_stored(filters: Mapping[str, str | None], store: Store) -> None:
    """Raise an error for a name that no stored result has."""
    lines = store.lines()
    for option, name in filters.items():
        names = sorted({line[option] for line in lines})
        if name is not None and name not in names:
            known = f"; stored: {list_names(names)}" if names else "; the store has no results"
            raise ValueError(
                f"{option}: no result has {option} {name!r} in {store.path}{class_hint(name, names)}{known}. "
                "See `propall results list`."
            )


@results_app.command("show")
def results_show(
    key: Annotated[str, typer.Argument(help="A key from `propall results list`, or its beginning.")],
    store: StoreFile = STORE,
    json_output: AsJson = False,
) -> None:
    """Show one result in full: settings, numbers, learning curve and provenance.

    Example: propall results show 3f9a1c
    """
    from propall.paper.store import Store

    with Store(store, read_only=True) as results:
        matches = results.find_by_prefix(key)
    if not matches:
        raise ValueError(f"key: no result has key {key!r} in {store}; see `propall results list`.")
    keys = {result.spec.key for result in matches}
    if len(keys) > 1:
        raise ValueError(f"key: {key!r} is the beginning of {len(keys)} keys; use more characters.")
    values = matches[0].to_dict()
    if json_output:
        print_json(values)
        return
    curve, confusions = values.pop("curve"), values.pop("confusions")
    rows = [(name, json.dumps(value) if isinstance(value, dict) else value) for name, value in values.items()]
    if curve:
        shown = [epoch for i, epoch in enumerate(curve) if i % max(1, len(curve) // 12) == 0]
        rows.append(("curve", "  ".join(f"{epoch}: {100 * curve[epoch]:.1f}" for epoch in shown)))
    if confusions:
        rows.append(("confusions", f"of {plural(len(confusions), 'epoch')}"))
    print_table(("", " "), rows)


@results_app.command("export")
def results_export(
    file: Annotated[Path, typer.Argument(help="File or folder to write; - for standard output.")],
    kind: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="csv (numbers), json (everything, one object per line), tables (a folder with one CSV per "
            "table of the paper), rates (run times, as CSV). Default: by the file's ending.",
        ),
    ] = None,
    store: StoreFile = STORE,
) -> None:
    """Write stored results to a file, or those of the paper's tables to a folder.

    `propall results import` reads all of these; `propall report --results FOLDER` reads a folder.

    Example: propall results export results/
    """
    from propall.paper import results_io, runtime_estimates
    from propall.paper.store import Store

    if kind is None:
        kinds = {".csv": Format.csv, "": Format.json if str(file) == "-" else Format.tables}
        kind = kinds.get(file.suffix, Format.json)
    with Store(store, read_only=True) as results:
        if kind is Format.tables:
            counts = results_io.write_folder(results, file)
            tables = ", ".join(f"{name} {count}" for name, count in counts.items())
            typer.echo(f"Runs written to {file}: {tables or 'none; the store has no run of a table'}")
            return
        writers = {Format.csv: results_io.export_csv, Format.json: results_io.export_json}
        export = partial(writers.get(kind, runtime_estimates.export_rates), results)
        if str(file) == "-":
            export(sys.stdout)
            return
        with atomic_files.replacing(file) as part, part.open("w", encoding="utf-8", newline="") as out:
            count = export(out)
    typer.echo(f"{plural(count, 'rate' if kind is Format.rates else 'result')} written to {file}")


@results_app.command("import")
def results_import(
    file: Annotated[
        Path, typer.Argument(help="Another store, or what `export` wrote: JSON lines, CSV or a folder.")
    ],
    store: Annotated[Path, typer.Option(help="File of results; created if it does not exist.")] = STORE,
) -> None:
    """Add results from a file or folder; those already in the store are skipped.

    Example: propall results import results/
    """
    from propall.paper import results_io
    from propall.paper.store import Store

    if not file.exists():
        raise FileNotFoundError(f"file: {file} does not exist; pass what `propall results export` wrote.")
    with Store(store) as results:
        read, added = results_io.import_results(results, file)
    typer.echo(f"{added} of {plural(read, 'result')} added to {store}")

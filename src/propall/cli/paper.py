"""Commands for experiments: comparing, reproducing, and the results that are kept."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from propall import atomic_files
from propall.cli.app import app
from propall.cli.terminal import (
    AsJson,
    Device,
    open_console,
    plain_table,
    print_json,
    print_note,
    split_words,
)
from propall.wording import approximate_duration, plural

StoreFile = Annotated[
    Path, typer.Option(help="File of results; made where there is none, added to otherwise.")
]
STORE = Path("runs/results.sqlite")


@app.command()
def compare(
    data: Annotated[
        str, typer.Option(help="Data sets with candidate sets of their own, separated by commas.")
    ] = "lost,msrcv2,birdsong",
    methods: Annotated[
        str, typer.Option(help="all (the paper's, some in two settings), or names separated by commas.")
    ] = "all",
    folds: Annotated[int, typer.Option(min=2, help="Folds of the cross-validation.")] = 5,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of every method and fold.")] = 1,
    epochs: Annotated[int | None, typer.Option(help="Passes, in place of each setting's own.")] = None,
    device: Device = "auto",
    out: Annotated[Path, typer.Option(help="Folder for results and progress.")] = Path("runs"),
    json_output: AsJson = False,
) -> None:
    """Cross-validate methods on real-world candidate sets, with the paper's settings and numbers beside them.

    The same command continues where it was interrupted.
    """
    import time

    from propall.data import DATASETS
    from propall.paper import comparison
    from propall.paper.scheduler import RunProgress
    from propall.paper.store import Store

    chosen = comparison.ALL if methods == "all" else tuple(split_words(methods))
    entered = comparison.find_contenders(split_words(data), chosen, folds=folds, seeds=seeds, epochs=epochs)
    cells = {f"{entry.data}/{entry.name}": [spec.key for spec in entry.specs] for entry in entered}
    start = time.perf_counter()
    with Store(out / "results.sqlite") as store, RunProgress(cells, print_note) as bar:
        scores = comparison.compare_methods(entered, store, device=device, progress=bar)
    seconds = time.perf_counter() - start
    if json_output:
        print_json(comparison.as_dicts(entered, scores))
        return
    console = open_console()
    for name in dict.fromkeys(entry.data for entry in entered):
        own = sorted((s for s in scores if s.contender.data == name), key=lambda s: -s.mean)
        table = plain_table("method", "accuracy %", "std", "paper %", "std ", "seconds", numbers=_COMPARED)
        for row in own:
            paper = row.contender.published
            table.add_row(
                row.contender.title + ("" if row.contender.in_paper else " *"),
                f"{row.mean:.2f}",
                "" if row.std is None else f"{row.std:.2f}",
                "" if paper is None else f"{paper.mean:.2f}",
                "" if paper is None else f"{paper.std:.2f}",
                f"{row.seconds:.1f}",
            )
        console.print(f"{DATASETS[name].title}\n", style="bold")
        console.print(table)
        for entry in entered:
            if entry.data == name and entry.refused:
                console.print(f"{entry.title}: not run. {entry.refused}", highlight=False, markup=False)
        console.print()
    if any(not entry.in_paper for entry in entered):
        console.print("* not in the paper's table: trained as ProPaLL is there.")
    console.print(
        f"Mean and sample deviation over {folds} folds, {plural(seeds, 'run')} each; features "
        "standardised on the training rows. Paper: as published [struski2022propall].",
        highlight=False,
        markup=False,
    )
    console.print(f"{comparison.summary(scores, seconds)} Results: {store.path}", highlight=False)


_COMPARED = ("accuracy %", "std", "paper %", "std ", "seconds")


class Where(StrEnum):
    """What carries runs out."""

    local = "local"
    ray = "ray"


@app.command()
def reproduce(
    table: Annotated[
        str,
        typer.Argument(help="Tables of the paper, such as real; cells, such as real/lost/cc; or all."),
    ],
    protocol: Annotated[
        str | None,
        typer.Option(
            help="full (default), short (a smoke run of minutes), same-rates, q0.1, single80, timed, "
            "full-50epochs, ...; several separated by commas."
        ),
    ] = None,
    methods: Annotated[str | None, typer.Option(help="Lines of the table, separated by commas.")] = None,
    data: Annotated[str | None, typer.Option(help="Data sets, separated by commas.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="In place of the protocol's number.")] = None,
    device: Annotated[
        str, typer.Option(help="auto (every GPU there is), cpu, cuda:1, ...; one process each for a,b.")
    ] = "auto",
    launcher: Annotated[
        Where, typer.Option(help="local, or ray: tasks on a Ray cluster that exists (extra ray).")
    ] = Where.local,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run, and how long.")] = False,
    store: StoreFile = STORE,
    json_output: AsJson = False,
) -> None:
    """Run what is missing of a table of the paper and print it, the published numbers beside ours.

    It may be killed at any moment; the same command continues.
    """
    from propall.paper import reproduction
    from propall.paper.scheduler import RunProgress
    from propall.paper.store import Store
    from propall.paper.workers import parse_devices

    chosen = {"methods": methods, "data": data}
    names = {name: None if words is None else split_words(words) for name, words in chosen.items()}
    cells = reproduction.select_cells(table, protocol=protocol, seeds=seeds, **names)
    # A look at what would run makes no file.
    with Store(":memory:" if dry_run and not store.exists() else store) as results:
        if dry_run:
            _print_plan(reproduction.unique_specs(cells), results, parse_devices(device)[0], json_output)
            return
        by_cell = {
            f"{cell.cell.name} {cell.protocol}": [spec.key for spec in cell.specs]
            for cell in cells
            if cell.specs
        }
        with RunProgress(by_cell, print_note) as bar:
            by_ray = launcher is Where.ray
            plan = reproduction.run_cells(
                cells, results, device=device, progress=bar, launcher="ray" if by_ray else "local"
            )
            failures = plan.failures
        entries = reproduction.cell_results(cells, results)
    if json_output:
        print_json(reproduction.as_dicts(entries))
    else:
        _print_tables(entries, store)
    if failures:
        raise RuntimeError("; ".join(map(str, failures)))


def _print_tables(entries: list[Any], store: Path) -> None:
    from propall.paper import reproduction
    from propall.paper.tables import TABLES

    console = open_console()
    for name, protocol in dict.fromkeys((entry.cell.table, entry.protocol) for entry in entries):
        own = [entry for entry in entries if (entry.cell.table, entry.protocol) == (name, protocol)]
        how = TABLES[name].describe(protocol)
        console.print(f"{TABLES[name].title}. {protocol}: {how}\n", style="bold", markup=False)
        for of in dict.fromkeys(entry.cell.data for entry in own):
            _print_entries(console, [entry for entry in own if entry.cell.data == of])
    console.print(
        "Percent, mean (sample deviation). Paper: as published [struski2022propall].",
        highlight=False,
        markup=False,
    )
    console.print(f"{reproduction.summary(entries)} Results: {store}", highlight=False)


def _print_plan(specs: list[Any], store: Any, device: str, json_output: bool) -> None:
    from propall.paper import scheduler
    from propall.paper.runtime_estimates import RuntimeEstimates
    from propall.training.compiled import best_device

    plan, rates = scheduler.plan_runs(specs, store), RuntimeEstimates(store, best_device(device))
    groups = scheduler.forecast_runtimes(plan, rates)
    known = sum(group.seconds for group in groups if group.seconds is not None)
    others = [group for group in groups if group.seconds is None]
    guessed = sum(group.guess for group in others if group.guess is not None)
    untimed = sum(group.runs for group in others if group.guess is None)
    absent = sorted({spec.data for spec in plan.absent})
    if json_output:
        rows = [group._asdict() for group in groups]
        print_json(
            {
                "stored": plan.stored,
                "groups": rows,
                "absent": absent,
                "untimed_runs": untimed,
                "guessed_from": rates.elsewhere,
            }
        )
        return
    table = plain_table(
        "data", "methods", "net", "epochs", "runs", "time", numbers=("epochs", "runs", "time")
    )
    for group in groups:
        names = ", ".join(group.methods)
        table.add_row(group.data, names, group.net, str(group.epochs or ""), str(group.runs), _time(group))
    console = open_console()
    if groups:
        console.print(table)
    lengths = [f"about {approximate_duration(known)}"] if known else []
    lengths += [f"about {approximate_duration(guessed)} *"] if guessed else []
    lengths += [f"no earlier times for {untimed} of them"] if untimed else []
    how_long = f" ({', '.join(lengths)})" if lengths else ""
    console.print(f"\n{len(plan.missing)} runs to do{how_long}, {plan.stored} in the store.", highlight=False)
    if guessed:
        console.print(f"* as measured on {rates.elsewhere}; not timed here yet.", highlight=False)
    if absent:
        console.print(f"Data not available: {', '.join(absent)} ({len(plan.absent)} runs).")


def _time(group: Any) -> str:
    if group.seconds is not None:
        return approximate_duration(group.seconds)
    return "unknown" if group.guess is None else f"{approximate_duration(group.guess)} *"


def _print_entries(console: Any, entries: list[Any]) -> None:
    from propall.data import DATASETS

    def number(mean: float | None, std: float | None) -> str:
        return "" if mean is None else f"{mean:.2f}" + ("" if std is None else f" ({std:.2f})")

    sizes = [entry.candidates for entry in entries if entry.candidates is not None]
    title = DATASETS[entries[0].cell.data].title
    varied = entries[0].cell.candidates is not None
    if sizes and not varied:
        title += f", {sum(sizes) / len(sizes):.2f} candidates on average"
    console.print(title, style="bold", highlight=False)
    counts = list(dict.fromkeys(entry.cell.candidates for entry in entries))
    if varied:
        columns = [f"n = {n}" for n in counts]
        table = plain_table("method", *columns, numbers=columns)
        for row in dict.fromkeys(entry.cell.row for entry in entries):
            own = [entry for entry in entries if entry.cell.row == row]
            table.add_row(own[0].title, *(number(entry.mean, entry.std) for entry in own))
            table.add_row("  paper", *(number(*(e.published or (None, None))) for e in own), style="dim")
    else:
        table = plain_table("method", "ours", "paper", "runs", numbers=("ours", "paper", "runs"))
        for entry in entries:
            paper = number(*(entry.published or (None, None)))
            ours = number(entry.mean, entry.std) or entry.note.partition(";")[0]
            table.add_row(entry.title, ours, paper, str(entry.runs))
    console.print(table)
    _print_notes(console, [(entry.title, entry.note) for entry in entries])
    compared = [entry for entry in entries if entry.mean is not None and entry.published is not None]
    reasons = [(entry.title, entry.incomparable) for entry in compared]
    _print_notes(console, reasons, "not comparable with the paper: ")
    console.print()


def _print_notes(console: Any, notes: list[tuple[str, str]], begins: str = "") -> None:
    """Every different note once, with the titles it belongs to where these are not all."""
    for note in dict.fromkeys(note for _, note in notes if note):
        lines = list(dict.fromkeys(title for title, own in notes if own == note))
        whose = "" if len(lines) == len(dict(notes)) else f"{'; '.join(lines)}: "
        console.print(f"{whose}{begins}{note}", highlight=False, markup=False)


@app.command()
def annotators(
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the images.")] = 60,
    folds: Annotated[int, typer.Option(min=2, help="Parts for out-of-fold resolving.")] = 2,
    methods: Annotated[
        str, typer.Option(help="Losses for the candidate sets, separated by commas, the main one first.")
    ] = "propall,cc,proden",
    net: Annotated[str, typer.Option(help="Network, see propall.nets.")] = "resnet32",
    rows: Annotated[int | None, typer.Option(help="Only so many images, equally many of each class.")] = None,
    precision: Annotated[str, typer.Option(help="float32, tf32 or bfloat16.")] = "bfloat16",
    seed: Annotated[int, typer.Option(help="Of everything drawn.")] = 0,
    device: Device = "auto",
    out: Annotated[Path, typer.Option(help="File of results; the same command continues it.")] = Path(
        "runs/annotators.json"
    ),
    json_output: AsJson = False,
) -> None:
    """Three annotators of CIFAR-10N: candidate sets and resolving against the majority vote."""
    from propall.paper.studies import annotators as experiment

    setting = experiment.Setting(
        net=net, epochs=epochs, folds=folds, rows=rows, precision=precision, seed=seed
    )
    report = experiment.measure(
        out, setting=setting, methods=split_words(methods), device=device, note=print_note
    )
    if json_output:
        print_json(report)
        return
    console = open_console()
    for what, shares in experiment.lines(report).items():
        table = plain_table(what, "right %", numbers=("right %",))
        for name, share in shares:
            table.add_row(name, f"{share:.2f}")
        console.print(table)
        console.print()
    console.print(f"{report['people']['rows']} images, {folds} folds, {epochs} epochs. All numbers: {out}")


results_app = typer.Typer(help="Look at stored results, and move them between files.", no_args_is_help=True)
app.add_typer(results_app, name="results")


class Format(StrEnum):
    """Formats of exported results."""

    csv = "csv"
    json = "json"
    tables = "tables"
    rates = "rates"


@results_app.command("list")
def results_list(
    data: Annotated[str | None, typer.Option(help="Only this data set.")] = None,
    method: Annotated[str | None, typer.Option(help="Only this method.")] = None,
    protocol: Annotated[str | None, typer.Option(help="Only this protocol.")] = None,
    store: StoreFile = STORE,
    json_output: AsJson = False,
) -> None:
    """Every result: what was run, its accuracy, time and date."""
    from propall.paper.store import Store

    with Store(store, create=False) as results:
        lines = results.lines(data=data, method=method, protocol=protocol)
    if json_output:
        print_json(lines)
        return
    columns = ("key", "data", "method", "protocol", "fold", "seed", "accuracy %", "seconds", "when")
    table = plain_table(*columns, numbers=("fold", "seed", "accuracy %", "seconds"))
    for line in lines:
        fold = json.loads(line["spec"])["split"]["fold"]
        table.add_row(
            line["key"][:10],
            line["data"],
            line["method"],
            line["protocol"],
            "" if fold is None else str(fold),
            str(line["seed"]),
            f"{100 * line['accuracy']:.2f}",
            f"{line['seconds']:.1f}",
            line["when"],
        )
    console = open_console()
    console.print(table)
    console.print(
        f"\n{len(lines)} results in {store}. One in full: propall results show KEY", highlight=False
    )


@results_app.command("show")
def results_show(
    key: Annotated[str, typer.Argument(help="A key from `propall results list`, or its beginning.")],
    store: StoreFile = STORE,
    json_output: AsJson = False,
) -> None:
    """Everything about one run: its spec, numbers, learning curve, and where it was made."""
    from propall.paper.store import Store

    with Store(store, create=False) as results:
        found = results.starting_with(key)
    if not found:
        raise ValueError(f"key: {key!r} is no result's in {store}; see `propall results list`.")
    if len({result.spec.key for result in found}) > 1:
        raise ValueError(f"key: {len(found)} results start with {key!r}; give more of it.")
    values = found[0].to_dict()
    if json_output:
        print_json(values)
        return
    curve, confusions = values.pop("curve"), values.pop("confusions")
    table = plain_table("", " ")
    for name, value in values.items():
        table.add_row(name, json.dumps(value) if isinstance(value, dict) else str(value))
    if curve:
        shown = [epoch for i, epoch in enumerate(curve) if i % max(1, len(curve) // 12) == 0]
        table.add_row("curve", "  ".join(f"{epoch}: {100 * curve[epoch]:.1f}" for epoch in shown))
    if confusions:
        table.add_row("confusions", f"of {len(confusions)} epochs")
    open_console().print(table, highlight=False)


@results_app.command("export")
def results_export(
    file: Annotated[Path, typer.Argument(help="File or folder to write, - for the terminal.")],
    kind: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="csv (numbers), json (lines with everything), tables (a folder with a CSV per table), or "
            "rates (how long such runs take, as CSV).",
        ),
    ] = None,
    store: StoreFile = STORE,
) -> None:
    """Write all results as CSV or JSON lines, or those of the paper's tables into a folder to keep.

    `import` reads these; `propall report --results FOLDER` reads a folder as it is.
    """
    from propall.paper import results_io, runtime_estimates
    from propall.paper.store import Store

    if kind is None:
        kinds = {".csv": Format.csv, "": Format.json if str(file) == "-" else Format.tables}
        kind = kinds.get(file.suffix, Format.json)
    with Store(store, create=False) as results:
        if kind is Format.tables:
            counts = results_io.write_folder(results, file)
            listed = ", ".join(f"{name} {count}" for name, count in counts.items())
            typer.echo(f"runs written to {file}: {listed or 'none of the tables'}")
            return
        writers = {Format.csv: results.export_csv, Format.json: results.export_json}
        export = writers.get(kind, partial(runtime_estimates.export_rates, results))
        if str(file) == "-":
            export(sys.stdout)
            return
        with atomic_files.replacing(file) as part, part.open("w", encoding="utf-8", newline="") as out:
            count = export(out)
    typer.echo(f"{count} {'rates' if kind is Format.rates else 'results'} written to {file}")


@results_app.command("import")
def results_import(
    file: Annotated[
        Path, typer.Argument(help="Another store, or what `export` wrote: JSON lines, CSV or a folder.")
    ],
    store: StoreFile = STORE,
) -> None:
    """Add results from elsewhere; those that are there already are skipped."""
    from propall.paper import results_io
    from propall.paper.store import Store

    if not file.exists():
        raise FileNotFoundError(f"file: there is no {file}; give what `propall results export` wrote.")
    with Store(store) as results:
        read, added = results_io.import_folder(results, file) if file.is_dir() else results.import_file(file)
    typer.echo(f"{added} of {read} results are new in {store}")

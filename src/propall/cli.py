"""Words on the command line to calls, and what they return to text. No logic of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

# Only typer is imported here: torch and the rest wait until a command needs them, so --help is quick.

app = typer.Typer(
    name="propall",
    help="Learn from labels that are not certain: partial and complementary labels.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="List, fetch and verify data sets.", no_args_is_help=True)
app.add_typer(data_app, name="data")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of a table.")]
PIPED_WIDTH = 160
Device = Annotated[str, typer.Option(help="auto (a GPU where there is one), cpu, cuda, cuda:1, ...")]


class Optimizer(StrEnum):
    """Optimisers of the recipe."""

    sgd = "sgd"
    adam = "adam"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; errors are one line, with `--debug` a traceback."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    if debug:
        words.remove("--debug")
    try:
        app(args=words, prog_name="propall")
    except (ValueError, OSError, KeyError, RuntimeError) as error:
        if debug:
            raise
        _console(stderr=True).print(f"error: {error}", style="bold red", highlight=False, markup=False)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        _console(stderr=True).print("stopped; finished work is kept.", highlight=False)
        raise SystemExit(130) from None


def _console(*, stderr: bool = False) -> Any:
    from rich.console import Console

    console = Console(stderr=stderr)
    if not console.is_terminal:
        console.width = PIPED_WIDTH  # a file has no edge to wrap at
    return console


def _table(*columns: str, numbers: Iterable[str] = ()) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    numeric = set(numbers)
    for column in columns:
        table.add_column(column, justify="right" if column in numeric else "left", no_wrap=column == "name")
    return table


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _show_version(wanted: bool) -> bool:
    if wanted:
        from propall import __version__

        typer.echo(f"propall {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Options of every command; `main` takes --debug out before it gets here."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder the page is written to.")] = Path("demo"),
    q: Annotated[float, typer.Option(help="Probability of each wrong label to be a candidate.")] = 0.5,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of every method.")] = 5,
    json_output: AsJson = False,
) -> None:
    """Digits with several candidate labels each: three methods, a table, and an HTML page with examples."""
    import time
    from datetime import UTC, datetime

    from propall import __version__
    from propall.experiments import demo as experiment
    from propall.experiments.running import commit, hardware
    from propall.report.demo import DemoResults, write_demo
    from propall.report.numbers import mean_and_std
    from propall.training.metrics import ProgressBar

    start = time.perf_counter()
    with ProgressBar("digits") as bar:
        found = experiment.run(q=q, seeds=seeds, monitor=bar)
    seconds = time.perf_counter() - start
    problem = found.problem
    yardsticks = (experiment.GUESS, experiment.CLEAN)
    size = float(problem.train.candidates.sum(-1).double().mean())
    provenance = {
        "data": f"digits, {len(problem.train)} training and {len(problem.test_x)} test images",
        "corruption": "proden_binomial_min2",
        "q": f"{q:g}",
        "protocol": "fixed split, test accuracy after the last epoch",
        "seeds": str(seeds),
        "epochs": str(experiment.RECIPE.epochs),
        "hardware": hardware("cpu"),
        "version": __version__,
        "commit": commit() or "unknown",
        "date": datetime.now(UTC).date().isoformat(),
    }
    sheet = slice(0, 40)
    path = write_demo(
        out / "index.html",
        DemoResults(
            accuracy={name: own for name, own in found.accuracy.items() if name not in yardsticks},
            curves={name: own.numpy() for name, own in found.curves.items() if name not in yardsticks},
            baseline=found.accuracy[experiment.GUESS],
            ceiling=found.accuracy[experiment.CLEAN],
            images=problem.train.x[sheet].reshape(-1, 8, 8).numpy(),
            candidates=problem.train.candidates[sheet].numpy(),
            recovered=found.resolved[sheet].numpy(),
            truth=problem.truth[sheet].numpy(),
            classes=problem.classes,
            provenance=provenance,
            seconds=seconds,
            mean_candidates=size,
        ),
    )
    if json_output:
        _print_json({"accuracy": found.accuracy, "provenance": provenance, "page": str(path)})
        return
    table = _table("trained with", "test accuracy %", "std", numbers=("test accuracy %", "std"))
    for name, own in sorted(found.accuracy.items(), key=lambda item: -sum(item[1])):
        mean, std = mean_and_std([100 * value for value in own])
        table.add_row(name, f"{mean:.2f}", "" if std is None else f"{std:.2f}")
    console = _console()
    console.print(f"Digits, {size:.1f} candidate labels of 10 per image instead of one; {seeds} seeds.\n")
    console.print(table)
    console.print(
        f"\n{len(found.accuracy) * seeds} runs in {_duration(seconds)}. Page: {path}", highlight=False
    )


@app.command()
def methods(
    json_output: AsJson = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table of the README.")] = False,
) -> None:
    """Every method: name, title, kind, memory per instance, cost per step, reference."""
    from propall.methods import catalogue

    rows = catalogue()
    if json_output:
        _print_json(rows)
        return
    columns = ("name", "title", "kind", "memory per instance", "cost per step", "reference")
    if markdown:
        lines = [
            columns,
            ("---",) * len(columns),
            *((f"`{row['name']}`", *list(row.values())[1:]) for row in rows),
        ]
        typer.echo("\n".join(f"| {' | '.join(line)} |" for line in lines))
        return
    table = _table(*columns)
    for row in rows:
        table.add_row(*row.values())
    console = _console()
    console.print(table)
    console.print(f"\n{len(rows)} methods. Use one by name: PartialLabelClassifier(method='propall')")


@data_app.command("list")
def data_list(json_output: AsJson = False) -> None:
    """Every data set: its size, and whether its files are here."""
    from propall.data.download import status
    from propall.data.files import data_root

    found = status()
    rows = [
        {
            "name": row.loader.name,
            "title": row.loader.title,
            "kind": row.loader.kind,
            "rows": row.loader.n,
            "test": row.loader.n_test,
            "features": " x ".join(map(str, row.loader.shape)),
            "classes": row.loader.n_classes,
            "here": "built in" if row.where is None else str(row.where) if row.present else "no",
            "get": row.note,
        }
        for row in found
    ]
    if json_output:
        _print_json(rows)
        return
    table = _table("name", "title", "kind", "rows", "test", "features", "classes", "here", numbers=_SIZES)
    for row in rows:
        here = "yes" if row["here"] not in ("built in", "no") else row["here"]
        table.add_row(*(str(row[column]) for column in ("name", "title", "kind", *_SIZES)), here)
    console = _console()
    console.print(table)
    console.print(
        f"\nData folder: {data_root()} (set PROPALL_DATA to change it). Fetch one: propall data get NAME",
        highlight=False,
    )


_SIZES = ("rows", "test", "features", "classes")


@data_app.command("get")
def data_get(name: Annotated[str, typer.Argument(help="A name from `propall data list`.")]) -> None:
    """Fetch a data set from its official address, check its contents and put it in place."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from propall.data.download import get

    console = _console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        tasks: dict[str, Any] = {}

        def show(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file, total=total)
            bar.update(tasks[file], completed=done, total=total)

        files = get(name, progress=show)
    for file in files:
        typer.echo(f"{file.content}: {file.state}  {file.path}")


@data_app.command("check")
def data_check(
    names: Annotated[list[str] | None, typer.Argument(help="Data sets; all that are here if none.")] = None,
) -> None:
    """Compare the files that are here with their published digests."""
    from propall.data.download import check, status

    wanted = names or [row.loader.name for row in status() if row.present and row.where is not None]
    table = _table("data set", "file", "state", "note")
    bad = 0
    for name in wanted:
        for file in check(name):
            bad += file.state != "ok"
            table.add_row(name, file.content, file.state, file.note)
    console = _console()
    console.print(table)
    if bad:
        console.print(f"\n{bad} files are missing or differ from the published ones.", style="bold red")
        raise typer.Exit(1)
    console.print(f"\n{len(wanted)} data sets are whole.")


@app.command()
def train(
    data: Annotated[str, typer.Argument(help="A name from `propall data list`.")],
    method: Annotated[
        list[str] | None, typer.Option(help="A name from `propall methods`; repeat for several.")
    ] = None,
    corruption: Annotated[
        str | None,
        typer.Option(help="How candidate sets are drawn; a data set's own if it has some and none is named."),
    ] = None,
    q: Annotated[float | None, typer.Option(help="Flip probability of the corruption.")] = None,
    n_candidates: Annotated[int | None, typer.Option(help="Candidates per row, for `exactly`.")] = None,
    net: Annotated[str | None, typer.Option(help="linear, mlp, mlp5, mlp500, resnet32, ...")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of every method, trained at once.")] = 3,
    folds: Annotated[int | None, typer.Option(help="Cross-validate; default 5 without a test part.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training set.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows per step.")] = None,
    learning_rate: Annotated[float | None, typer.Option("--lr", help="Learning rate.")] = None,
    weight_decay: Annotated[float | None, typer.Option("--wd", help="Weight decay.")] = None,
    optimizer: Annotated[Optimizer | None, typer.Option(help="Optimiser.")] = None,
    device: Device = "auto",
    out: Annotated[Path, typer.Option(help="Folder for results and progress.")] = Path("runs"),
    json_output: AsJson = False,
) -> None:
    """Train methods on a data set, print their test accuracy and keep the results.

    The same command continues where it was interrupted.
    """
    from propall.experiments import training
    from propall.training.metrics import ProgressBar

    recipe = {
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "weight_decay": weight_decay,
        "optimizer": None if optimizer is None else optimizer.value,
    }
    specs = training.specs(
        data,
        methods=method or ["propall"],
        corruption=corruption,
        corruption_fields={"q": q, "n": n_candidates},
        net=net,
        seeds=seeds,
        folds=folds,
        recipe={name: value for name, value in recipe.items() if value is not None},
    )
    with ProgressBar(data) as bar:
        folder, results = training.run(specs, out, device=device, monitor=bar)
    if json_output:
        _print_json([training.as_dict(result) for result in results])
        return
    first = specs[0]
    console = _console()
    law = "its own candidate sets" if first.corruption is None else repr(first.corruption)
    how = f"{first.net}, {first.recipe.epochs} epochs"
    console.print(
        f"{data}: {law}; {results[0].candidates:.2f} candidates on average; {how}\n", highlight=False
    )
    table = _table("method", "accuracy %", "std", "runs", "seconds", numbers=_RESULTS)
    for row in training.summary(results):
        std = "" if row.std is None else f"{row.std:.2f}"
        table.add_row(row.method, f"{row.mean:.2f}", std, str(row.runs), f"{row.seconds:.1f}")
    console.print(table)
    console.print(f"\n{len(results)} runs. Results: {folder}", highlight=False)


_RESULTS = ("accuracy %", "std", "runs", "seconds")


def _note(line: str) -> None:
    typer.echo(line, err=True)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


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
    from propall.experiments import comparing
    from propall.experiments.store import Store
    from propall.experiments.sweep import Progress

    chosen = comparing.ALL if methods == "all" else tuple(_words(methods))
    entered = comparing.contenders(_words(data), chosen, folds=folds, seeds=seeds, epochs=epochs)
    cells = {f"{entry.data}/{entry.name}": [spec.key for spec in entry.specs] for entry in entered}
    start = time.perf_counter()
    with Store(out / "results.sqlite") as store, Progress(cells, _note) as bar:
        scores = comparing.run(entered, store, device=device, progress=bar)
    seconds = time.perf_counter() - start
    if json_output:
        _print_json(comparing.as_dicts(entered, scores))
        return
    console = _console()
    for name in dict.fromkeys(entry.data for entry in entered):
        own = sorted((s for s in scores if s.contender.data == name), key=lambda s: -s.mean)
        table = _table("method", "accuracy %", "std", "paper %", "std ", "seconds", numbers=_COMPARED)
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
        f"Mean and sample deviation over {folds} folds, {seeds} run{'s' if seeds > 1 else ''} each; features "
        "standardised on the training rows. Paper: as published [struski2022propall].",
        highlight=False,
        markup=False,
    )
    console.print(f"{comparing.summary(scores, seconds)} Results: {store.path}", highlight=False)


_COMPARED = ("accuracy %", "std", "paper %", "std ", "seconds")


@app.command()
def reproduce(
    table: Annotated[
        str, typer.Argument(help="A table of the paper, such as real; a cell, such as real/lost/cc; or all.")
    ],
    protocol: Annotated[
        str | None,
        typer.Option(help="full (default), short (a smoke run of minutes), same-rates, q0.1, single80, ..."),
    ] = None,
    methods: Annotated[str | None, typer.Option(help="Lines of the table, separated by commas.")] = None,
    data: Annotated[str | None, typer.Option(help="Data sets, separated by commas.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="In place of the protocol's number.")] = None,
    device: Device = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run, and how long.")] = False,
    store: StoreFile = STORE,
    json_output: AsJson = False,
) -> None:
    """Run what is missing of a table of the paper and print it, the published numbers beside ours.

    It may be killed at any moment; the same command continues.
    """
    from propall.experiments import reproducing
    from propall.experiments.store import Store
    from propall.experiments.sweep import Progress

    chosen = {"methods": methods, "data": data}
    names = {name: None if words is None else _words(words) for name, words in chosen.items()}
    cells = reproducing.wanted(table, protocol=protocol, seeds=seeds, **names)
    # A look at what would run makes no file.
    with Store(":memory:" if dry_run and not store.exists() else store) as results:
        if dry_run:
            _print_plan(reproducing.specs(cells), results, device, json_output)
            return
        by_cell = {cell.cell.name: [spec.key for spec in cell.specs] for cell in cells if cell.specs}
        with Progress(by_cell, _note) as bar:
            failures = reproducing.run(cells, results, device=device, progress=bar).failures
        entries = reproducing.entries(cells, results)
    if json_output:
        _print_json(reproducing.as_dicts(entries))
    else:
        _print_tables(entries, store)
    if failures:
        raise RuntimeError("; ".join(map(str, failures)))


def _print_tables(entries: list[Any], store: Path) -> None:
    from propall.experiments import reproducing
    from propall.experiments.paper import TABLES

    console = _console()
    for name in dict.fromkeys(entry.cell.table for entry in entries):
        own = [entry for entry in entries if entry.cell.table == name]
        how = TABLES[name].protocols[own[0].protocol]
        console.print(f"{TABLES[name].title}. {own[0].protocol}: {how}\n", style="bold", markup=False)
        for of in dict.fromkeys(entry.cell.data for entry in own):
            _print_entries(console, [entry for entry in own if entry.cell.data == of])
    console.print(
        "Percent, mean (sample deviation). Paper: as published [struski2022propall].",
        highlight=False,
        markup=False,
    )
    console.print(f"{reproducing.summary(entries)} Results: {store}", highlight=False)


def _print_plan(specs: list[Any], store: Any, device: str, json_output: bool) -> None:
    from propall.experiments import sweep
    from propall.experiments.running import best_device

    plan = sweep.plan(specs, store)
    groups = sweep.forecast(plan, sweep.Rates(store, best_device(device)))
    known = sum(group.seconds for group in groups if group.seconds is not None)
    untimed = sum(group.runs for group in groups if group.seconds is None)
    absent = sorted({spec.data for spec in plan.absent})
    if json_output:
        rows = [group._asdict() for group in groups]
        _print_json({"stored": plan.stored, "groups": rows, "absent": absent, "untimed_runs": untimed})
        return
    table = _table("data", "methods", "net", "epochs", "runs", "time", numbers=("epochs", "runs", "time"))
    for group in groups:
        time = "unknown" if group.seconds is None else _duration(group.seconds)
        names = ", ".join(group.methods)
        table.add_row(group.data, names, group.net, str(group.epochs), str(group.runs), time)
    console = _console()
    console.print(table)
    lengths = [f"about {_duration(known)}"] if known else []
    lengths += [f"no earlier times for {untimed} of them"] if untimed else []
    console.print(
        f"\n{len(plan.missing)} runs to do in {len(groups)} groups ({', '.join(lengths) or 'nothing'}), "
        f"{plan.stored} in the store.",
        highlight=False,
    )
    if absent:
        console.print(f"Data not available: {', '.join(absent)} ({len(plan.absent)} runs).")


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
        table = _table("method", *columns, numbers=columns)
        for row in dict.fromkeys(entry.cell.row for entry in entries):
            own = [entry for entry in entries if entry.cell.row == row]
            table.add_row(own[0].title, *(number(entry.mean, entry.std) for entry in own))
            table.add_row("  paper", *(number(*(e.published or (None, None))) for e in own), style="dim")
    else:
        table = _table("method", "ours", "paper", "runs", numbers=("ours", "paper", "runs"))
        for entry in entries:
            paper = number(*(entry.published or (None, None)))
            ours = number(entry.mean, entry.std) or entry.note.partition(";")[0]
            table.add_row(entry.title, ours, paper, str(entry.runs))
    console.print(table)
    for note in dict.fromkeys(entry.note for entry in entries if entry.note):
        lines = list(dict.fromkeys(entry.title for entry in entries if entry.note == note))
        whose = "" if len(lines) == len({entry.title for entry in entries}) else f"{'; '.join(lines)}: "
        console.print(f"{whose}{note}", highlight=False, markup=False)
    console.print()


results_app = typer.Typer(help="Look at stored results, and move them between files.", no_args_is_help=True)
app.add_typer(results_app, name="results")


class Format(StrEnum):
    """Formats of exported results."""

    csv = "csv"
    json = "json"


@results_app.command("list")
def results_list(
    data: Annotated[str | None, typer.Option(help="Only this data set.")] = None,
    method: Annotated[str | None, typer.Option(help="Only this method.")] = None,
    protocol: Annotated[str | None, typer.Option(help="Only this protocol.")] = None,
    store: StoreFile = STORE,
    json_output: AsJson = False,
) -> None:
    """Every result: what was run, its accuracy, time and date."""
    from propall.experiments.store import Store

    with Store(store, create=False) as results:
        lines = results.lines(data=data, method=method, protocol=protocol)
    if json_output:
        _print_json(lines)
        return
    columns = ("key", "data", "method", "protocol", "fold", "seed", "accuracy %", "seconds", "when")
    table = _table(*columns, numbers=("fold", "seed", "accuracy %", "seconds"))
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
    console = _console()
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
    from propall.experiments.store import Store, as_dict

    with Store(store, create=False) as results:
        found = results.starting_with(key)
    if not found:
        raise ValueError(f"key: {key!r} is no result's in {store}; see `propall results list`.")
    if len({result.spec.key for result in found}) > 1:
        raise ValueError(f"key: {len(found)} results start with {key!r}; give more of it.")
    values = as_dict(found[0])
    if json_output:
        _print_json(values)
        return
    curve, confusions = values.pop("curve"), values.pop("confusions")
    table = _table("", " ")
    for name, value in values.items():
        table.add_row(name, json.dumps(value) if isinstance(value, dict) else str(value))
    if curve:
        shown = [epoch for i, epoch in enumerate(curve) if i % max(1, len(curve) // 12) == 0]
        table.add_row("curve", "  ".join(f"{epoch}: {100 * curve[epoch]:.1f}" for epoch in shown))
    if confusions:
        table.add_row("confusions", f"of {len(confusions)} epochs")
    _console().print(table, highlight=False)


@results_app.command("export")
def results_export(
    file: Annotated[Path, typer.Argument(help="File to write, - for the terminal.")],
    kind: Annotated[
        Format | None, typer.Option("--format", help="csv (numbers) or json (lines with everything).")
    ] = None,
    store: StoreFile = STORE,
) -> None:
    """Write all results as CSV, or as JSON lines that `import` reads."""
    from propall.experiments.store import Store

    if kind is None:
        kind = Format.csv if file.suffix == ".csv" else Format.json
    with Store(store, create=False) as results:
        export = results.export_csv if kind is Format.csv else results.export_json
        if str(file) == "-":
            export(sys.stdout)
            return
        part = file.with_name(file.name + ".part")
        with part.open("w", encoding="utf-8", newline="") as out:
            count = export(out)
        part.replace(file)
    typer.echo(f"{count} results written to {file}")


@results_app.command("import")
def results_import(
    file: Annotated[Path, typer.Argument(help="JSON lines that `export` wrote.")], store: StoreFile = STORE
) -> None:
    """Add results from another file; those that are there already are skipped."""
    from propall.experiments.store import Store

    with file.open(encoding="utf-8") as lines, Store(store) as results:
        read, added = results.import_json(lines, str(file))
    typer.echo(f"{added} of {read} results are new in {store}")


if __name__ == "__main__":
    main()

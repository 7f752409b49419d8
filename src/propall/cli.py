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


def _show_version(wanted: bool) -> None:
    if wanted:
        from propall import __version__

        typer.echo(f"propall {__version__}")
        raise typer.Exit


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


if __name__ == "__main__":
    main()

"""Commands for a first look: the demo, the methods, the data sets, one custom_runs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from propall.cli.app import app
from propall.cli.terminal import (
    AsJson,
    Device,
    open_console,
    plain_table,
    print_json,
)
from propall.wording import duration

data_app = typer.Typer(help="List, fetch and verify data sets.", no_args_is_help=True)
app.add_typer(data_app, name="data")


class Optimizer(StrEnum):
    """Optimisers of the recipe."""

    sgd = "sgd"
    adam = "adam"


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
    from propall.paper.pages.demo import DemoResults, write_demo
    from propall.paper.studies import demo as experiment
    from propall.provenance import commit, hardware
    from propall.report.numbers import mean_and_std
    from propall.training.metrics import ProgressBar

    start = time.perf_counter()
    with ProgressBar("digits") as bar:
        found = experiment.run_demo(q=q, seeds=seeds, monitor=bar)
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
        print_json({"accuracy": found.accuracy, "provenance": provenance, "page": str(path)})
        return
    table = plain_table("trained with", "test accuracy %", "std", numbers=("test accuracy %", "std"))
    for name, own in sorted(found.accuracy.items(), key=lambda item: -sum(item[1])):
        mean, std = mean_and_std([100 * value for value in own])
        table.add_row(name, f"{mean:.2f}", "" if std is None else f"{std:.2f}")
    console = open_console()
    console.print(f"Digits, {size:.1f} candidate labels of 10 per image instead of one; {seeds} seeds.\n")
    console.print(table)
    console.print(
        f"\n{len(found.accuracy) * seeds} runs in {duration(seconds)}. Page: {path}", highlight=False
    )


@app.command()
def methods(
    json_output: AsJson = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table of the README.")] = False,
) -> None:
    """Every method: name, title, kind, memory per instance, cost per step, reference."""
    from propall.methods import catalog

    rows = catalog()
    if json_output:
        print_json(rows)
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
    table = plain_table(*columns)
    for row in rows:
        table.add_row(*row.values())
    console = open_console()
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
        print_json(rows)
        return
    table = plain_table(
        "name", "title", "kind", "rows", "test", "features", "classes", "here", numbers=_SIZES
    )
    for row in rows:
        here = "yes" if row["here"] not in ("built in", "no") else row["here"]
        table.add_row(*(str(row[column]) for column in ("name", "title", "kind", *_SIZES)), here)
    console = open_console()
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

    console = open_console(stderr=True)
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
    table = plain_table("data set", "file", "state", "note")
    bad = 0
    for name in wanted:
        for file in check(name):
            bad += file.state != "ok"
            table.add_row(name, file.content, file.state, file.note)
    console = open_console()
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
    from propall.paper import custom_runs
    from propall.training.metrics import ProgressBar

    recipe = {
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "weight_decay": weight_decay,
        "optimizer": None if optimizer is None else optimizer.value,
    }
    specs = custom_runs.build_specs(
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
        folder, results = custom_runs.train_runs(specs, out, device=device, monitor=bar)
    if json_output:
        print_json([result.to_dict() for result in results])
        return
    first = specs[0]
    console = open_console()
    law = "its own candidate sets" if first.corruption is None else repr(first.corruption)
    how = f"{first.net}, {first.recipe.epochs} epochs"
    console.print(
        f"{data}: {law}; {results[0].candidates:.2f} candidates on average; {how}\n", highlight=False
    )
    table = plain_table("method", "accuracy %", "std", "runs", "seconds", numbers=_RESULTS)
    for row in custom_runs.summarize(results):
        std = "" if row.std is None else f"{row.std:.2f}"
        table.add_row(row.method, f"{row.mean:.2f}", std, str(row.runs), f"{row.seconds:.1f}")
    console.print(table)
    console.print(f"\n{len(results)} runs. Results: {folder}", highlight=False)


_RESULTS = ("accuracy %", "std", "runs", "seconds")

"""Commands for a first look: the demo, the methods, the data sets, and training on one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from propall.cli.app import FIRST_STEPS, Application, app
from propall.cli.option_groups import flags_of, grouped_command
from propall.cli.terminal import AsJson, Device, open_console, print_json, print_line, print_note, print_table
from propall.wording import duration, plural

if TYPE_CHECKING:
    from propall.training.named_recipes import NamedRecipe

data_app = Application(help="List, download and check data sets.", no_args_is_help=True)
app.add_typer(data_app, name="data", rich_help_panel=FIRST_STEPS)

#: What may differ between machines in the numbers of the demo.
_DEMO_VARIES = (
    "Results are reproducible on one machine. Other machines round differently (vector instructions of the "
    "CPU), which moves ProPaLL by about 0.1 and the random candidate by a few points."
)


@app.command(rich_help_panel=FIRST_STEPS)
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the page.")] = Path("demo"),
    q: Annotated[float, typer.Option(help="Probability that a wrong label becomes a candidate.")] = 0.5,
    seeds: Annotated[int, typer.Option(min=1, help="Runs per method.")] = 5,
    json_output: AsJson = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print only the table, as Markdown (the one in docs/start.md).")
    ] = False,
) -> None:
    """Train three methods on digits with several candidate labels each; write a page with examples.

    Example: propall demo --q 0.3
    """
    from propall.paper.pages.demo import BASELINE, CEILING, demo_page
    from propall.paper.studies.demo import run_demo
    from propall.report.numbers import mean_and_std
    from propall.training.metrics import ProgressBar

    with ProgressBar("digits") as bar:
        results = run_demo(q=q, seeds=seeds, monitor=bar)
    path = demo_page(results).write(out / "index.html")
    accuracy = {**results.accuracy, BASELINE: results.baseline, CEILING: results.ceiling}
    if json_output:
        print_json({"accuracy": accuracy, "provenance": results.provenance, "page": path})
        return
    columns, rows = ("trained with", "test accuracy %", "std"), []
    for name, values in sorted(accuracy.items(), key=lambda item: -sum(item[1])):
        mean, std = mean_and_std([100 * value for value in values])
        rows.append((name, f"{mean:.2f}", "" if std is None else f"{std:.2f}"))
    if markdown:
        _print_markdown(columns, rows, numbers=columns[1:])
        return
    mean_candidates = f"{results.mean_candidates:.1f} of 10 labels as candidates"
    print_line(f"Digits with {mean_candidates} per image; {plural(seeds, 'seed')}.\n")
    print_table(columns, rows, numbers=slice(1, None))
    print_line(f"\n{_DEMO_VARIES}")
    print_line(f"{plural(len(rows) * seeds, 'run')} in {duration(results.seconds)}. Page: {path}")


def _print_markdown(
    columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str] = ()
) -> None:
    rule = ["--:" if column in numbers else "---" for column in columns]
    typer.echo("\n".join(f"| {' | '.join(line)} |" for line in (columns, rule, *rows)))


@app.command(rich_help_panel=FIRST_STEPS)
def methods(
    json_output: AsJson = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")] = False,
    views: Annotated[bool, typer.Option("--views", help="List the settings of `train --views`.")] = False,
) -> None:
    """List all methods: name, title, kind, memory per instance, cost per step, reference.

    Example: propall methods
    """
    from propall.methods import catalog
    from propall.training import named_views

    rows = named_views.catalog() if views else catalog()
    if json_output:
        print_json(rows)
        return
    columns: tuple[str, ...] = tuple(rows[0])
    if not views:
        columns = ("name", "title", "kind", "memory per instance", "cost per step", "reference")
    if markdown:
        _print_markdown(columns, [(f"`{row['name']}`", *list(row.values())[1:]) for row in rows])
        return
    print_table(columns, [tuple(row.values()) for row in rows])
    if views:
        print_line("\nUse one by name: propall train cifar10 --recipe fast --views crdpll [--method propall]")
        return
    print_line(f"\n{len(rows)} methods. Use one by name: PartialLabelClassifier(method='propall')")


@data_app.command("list")
def data_list(json_output: AsJson = False) -> None:
    """List all data sets, their sizes, and whether their files are present.

    Example: propall data list
    """
    from propall.data.download import status
    from propall.data.files import data_root

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
        for row in status()
    ]
    if json_output:
        print_json(rows)
        return
    columns = ("name", "title", "kind", "rows", "test", "features", "classes")
    cells = [
        (*(row[column] for column in columns), row["here"] if row["here"] in ("built in", "no") else "yes")
        for row in rows
    ]
    print_table((*columns, "present"), cells, numbers=slice(3, 7))
    folder = f"Data folder: {data_root()} (set PROPALL_DATA to change it)."
    print_line(f"\n{folder} Download one: propall data get NAME")


@data_app.command("get")
def data_get(name: Annotated[str, typer.Argument(help="Name from `propall data list`.")]) -> None:
    """Download a data set from its official address and verify it.

    Example: propall data get mnist
    """
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
    names: Annotated[list[str] | None, typer.Argument(help="Data sets (default: all present).")] = None,
) -> None:
    """Check the files of data sets against their published digests.

    Example: propall data check mnist lost
    """
    from propall.data.download import check, status

    checked = names or [row.loader.name for row in status() if row.present and row.where is not None]
    rows = [(name, file.content, file.state, file.note) for name in checked for file in check(name)]
    bad = sum(state != "ok" for _, _, state, _ in rows)
    print_table(("data set", "file", "state", "note"), rows)
    if bad:
        text = f"\n{plural(bad, 'file')} missing or different from the published ones."
        print_line(text, style="bold red")
        raise typer.Exit(1)
    print_line(f"\n{plural(len(checked), 'data set')} checked; all files match.")


Optimizer = StrEnum("Optimizer", ["sgd", "adam"])
Precision = StrEnum("Precision", ["float32", "tf32", "bfloat16"])
_candidates = partial(typer.Option, rich_help_panel="Candidate sets")
_training = partial(typer.Option, rich_help_panel="Training")
_runs = partial(typer.Option, rich_help_panel="Runs")


@dataclass(frozen=True)
class CandidateOptions:
    """How candidate sets are drawn."""

    corruption: Annotated[
        str | None,
        _candidates(
            help="How candidate sets are drawn: uniform, instance, complementary, ...; "
            "by default those the data set comes with, if any."
        ),
    ] = None
    q: Annotated[float | None, _candidates(help="Probability that a wrong label is a candidate.")] = None
    rate: Annotated[
        float | None, _candidates(help="Rate of the law, for `instance`: 0.4 in most publications.")
    ] = None
    missing: Annotated[
        float | None, _candidates(help="Share of sets without the true label, for `missing_truth`.")
    ] = None
    n_candidates: Annotated[int | None, _candidates(help="Candidates per row, for `exactly`.")] = None


@dataclass(frozen=True)
class RecipeOptions:
    """Overrides of the data set's default network and recipe."""

    name: Annotated[
        str | None,
        _training(
            "--recipe", help="fast, resnet18 or wrn: a network for images, trained on augmented views."
        ),
    ] = None
    views: Annotated[
        str | None, _training(help="How views are used: crdpll, dirk, ... (`propall methods --views`).")
    ] = None
    strong_views: Annotated[
        int | None,
        _training(min=0, help="Strongly augmented views of every image; two are better and take longer."),
    ] = None
    balance: Annotated[
        float | None,
        _training(
            help="Weight of the balance term of views, for equally frequent classes: keeps training from "
            "losing one (0.5; default: of complementary labels and some --views)."
        ),
    ] = None
    net: Annotated[str | None, _training(help="linear, mlp, mlp5, mlp500, resnet32, ...")] = None
    epochs: Annotated[int | None, _training(help="Override the number of epochs.")] = None
    batch_size: Annotated[int | None, _training(help="Rows per step.")] = None
    learning_rate: Annotated[float | None, _training("--lr", help="Learning rate.")] = None
    weight_decay: Annotated[float | None, _training("--wd", help="Weight decay.")] = None
    optimizer: Annotated[Optimizer | None, _training(help="Optimizer.")] = None
    precision: Annotated[
        Precision | None,
        _training(help="Of matrix products; default: the recipe's on a GPU, float32 without one."),
    ] = None

    def given_flags(self) -> list[str]:
        """Names of the flags that were given."""
        return [name for name, value in flags_of(self).items() if value is not None]

    def setting(self, data: str, corruption: str | None, device: str) -> NamedRecipe:
        """Return the network and recipe for a data set, the kind of its candidate sets and a device."""
        from propall.paper.custom_runs import choose_setting
        from propall.training.compiled import best_device

        fields = ("epochs", "batch_size", "learning_rate", "weight_decay", "optimizer", "precision")
        given = {name: getattr(self, name) for name in fields}
        changes: dict[str, Any] = {
            name: value.value if isinstance(value, StrEnum) else value
            for name, value in given.items()
            if value is not None
        }
        return choose_setting(
            data,
            self.name,
            net=self.net,
            views=self.views,
            strong_views=self.strong_views,
            balance=self.balance,
            corruption=corruption,
            on_gpu=best_device(device).type == "cuda",
            changes=changes,
        )


@dataclass(frozen=True)
class RepetitionOptions:
    """How often every method is trained."""

    seeds: Annotated[int, _runs(min=1, help="Runs per method and fold, trained at once.")] = 3
    folds: Annotated[
        int | None, _runs(min=2, help="Cross-validate; default: 5 folds without a test set.")
    ] = None


@grouped_command(app, panel=FIRST_STEPS)
def train(
    data: Annotated[str, typer.Argument(help="Name from `propall data list`.")],
    candidates: CandidateOptions,
    training: RecipeOptions,
    repetitions: RepetitionOptions,
    method: Annotated[
        list[str] | None, typer.Option(help="Name from `propall methods`; repeat for several.")
    ] = None,
    device: Device = "auto",
    out: Annotated[Path, typer.Option(help="Folder for results, checkpoints and page.")] = Path("runs"),
    page: Annotated[
        bool, typer.Option(help="Write a page with learning curves, times and augmented images.")
    ] = True,
    json_output: AsJson = False,
) -> None:
    """Train methods on a data set, print their test accuracy and write a page.

    If interrupted, the same command resumes.

    Example: propall train digits --method propall --method cc --q 0.3

    Example, images with views: propall train digits --recipe fast --net small_cnn --corruption complementary
    """
    from propall.paper import custom_runs
    from propall.paper.monitors import AccuracyBar
    from propall.paper.pages.training import training_page

    setting, chosen = custom_runs.use_views(
        training.views, training.setting(data, candidates.corruption, device), method or []
    )
    specs = custom_runs.build_specs(
        data,
        methods=chosen,
        corruption=candidates.corruption,
        corruption_fields={
            "q": candidates.q,
            "rate": candidates.rate,
            "missing": candidates.missing,
            "n": candidates.n_candidates,
        },
        seeds=repetitions.seeds,
        folds=repetitions.folds,
        setting=setting,
    )
    stored = custom_runs.count_stored(specs, out)
    given = training.given_flags()
    by_views = [flag for flag in given if flag in ("--views", "--strong-views")]
    for sentence in custom_runs.describe_ignored(
        specs, training=given, views=by_views, named_views=training.views
    ):
        print_note(sentence)
    with AccuracyBar(data) as bar:
        folder, results = custom_runs.train_runs(specs, out, device=device, monitor=bar)
    path = None
    if page:
        # Methods that use views in their own way see no more than two of them.
        ordered = sorted(specs, key=custom_runs.uses_views_in_its_own_way)
        sheet = next(filter(None, map(custom_runs.view_sheet, ordered)), None)
        path = training_page(results, sheet).write(folder / "index.html")
    if json_output:
        print_json([result.to_dict() for result in results])
        return
    first = next((spec for spec in specs if spec.trains_network), specs[0])
    how = f"; {first.net}, {plural(first.recipe.epochs, 'epoch')}" if first.trains_network else ""
    drawn_by = "its own candidate sets" if first.corruption is None else repr(first.corruption)
    balance = custom_runs.balance_of_labels(specs, given=training.balance)
    how = (f"; balance term {balance:g}" if balance else "") + how
    print_line(f"{data}: {drawn_by}; {results[0].candidates:.2f} candidates on average{how}\n")
    rows = []
    for row in custom_runs.summarize(results):
        std = "" if row.std is None else f"{row.std:.2f}"
        rows.append((row.method, f"{row.mean:.2f}", std, row.runs, f"{row.seconds:.1f}"))
    print_table(("method", "accuracy %", "std", "runs", "seconds"), rows, numbers=slice(1, None))
    earlier = f", {stored} of them from an earlier call" if stored else ""
    print_line(f"\n{plural(len(results), 'run')}{earlier}; seconds: sum of run times. Results: {folder}")
    if path is not None:
        print_line(f"Page: {path}")

"""Commands that measure speed and memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from propall import atomic_files
from propall.cli.app import app
from propall.cli.terminal import (
    Device,
    open_console,
    plain_table,
    print_note,
)

bench_app = typer.Typer(
    help="Measure speed and memory, each beside a peer or a floor in the same run.", no_args_is_help=True
)
app.add_typer(bench_app, name="bench")

Quick = Annotated[bool, typer.Option("--quick", help="Small sizes and few repeats, to see that it runs.")]
SheetFile = Annotated[Path | None, typer.Option("--json", help="File to write the numbers to as well.")]


@bench_app.command("loss")
def bench_loss(device: Device = "auto", quick: Quick = False, json_file: SheetFile = None) -> None:
    """ProPaLL's loss and gradient against a copy of the same bytes, the paper's form and plain BCE."""
    from propall.bench import loss
    from propall.training.compiled import best_device

    _print_sheet(loss.run(best_device(device), quick=quick, note=print_note), json_file)


@bench_app.command("train")
def bench_train(device: Device = "auto", quick: Quick = False, json_file: SheetFile = None) -> None:
    """Training MLP-5: one run, many stacked runs, and a plain PyTorch loop."""
    from propall.bench import train
    from propall.training.compiled import best_device

    _print_sheet(train.run(best_device(device), quick=quick, note=print_note), json_file)


@bench_app.command("resnet")
def bench_resnet(
    epochs: Annotated[int, typer.Option(min=1, help="Epochs that are timed, after a first one.")] = 2,
    precision: Annotated[
        list[str] | None, typer.Option(help="float32, tf32 or bfloat16; repeat for several.")
    ] = None,
    profile: Annotated[bool, typer.Option("--profile", help="List the kernels that take longest.")] = False,
    device: Device = "auto",
    quick: Quick = False,
    json_file: SheetFile = None,
) -> None:
    """An epoch of ResNet-32 on images of CIFAR-10's size: eager, captured, and compiled too."""
    from propall.bench import resnet
    from propall.training.compiled import best_device

    chosen: dict[str, Any] = {"precisions": tuple(precision)} if precision else {}
    found = resnet.run(
        best_device(device), quick=quick, epochs=epochs, profile=profile, note=print_note, **chosen
    )
    _print_sheet(found, json_file)


@bench_app.command("cpu")
def bench_cpu(quick: Quick = False, json_file: SheetFile = None) -> None:
    """The estimator against scikit-learn's own on one core, and ten runs stacked against one by one."""
    from propall.bench import cpu
    from propall.training.compiled import best_device

    _print_sheet(cpu.run(best_device("cpu"), quick=quick, note=print_note), json_file)


@bench_app.command("scale")
def bench_scale(
    rows: Annotated[
        int | None, typer.Option(min=1, help="Rows of the fit whose memory is measured; a million.")
    ] = None,
    device: Device = "auto",
    quick: Quick = False,
    json_file: SheetFile = None,
) -> None:
    """How time and memory grow with rows and classes."""
    from propall.bench import scale
    from propall.training.compiled import best_device

    _print_sheet(scale.run(best_device(device), quick=quick, rows=rows, note=print_note), json_file)


def _print_sheet(sheet: Any, json_file: Path | None) -> None:
    console = open_console()
    console.print(f"{sheet.title}\n", style="bold", highlight=False)
    numbers = ("median", "quartiles", "range", "repeats", "ratio")
    for case in dict.fromkeys(line.case for line in sheet.lines):
        own = [line for line in sheet.lines if line.case == case]
        table = plain_table(case, *numbers, "to", "more", numbers=numbers)
        for line in own:
            value = line.value
            table.add_row(
                line.what,
                f"{value.median:.4g} {line.unit}",
                f"{value.low:.4g} - {value.high:.4g}",
                f"{value.least:.4g} - {value.most:.4g}",
                str(value.repeats),
                "" if line.ratio is None else f"{line.ratio:.3g}",
                line.beside,
                ", ".join(f"{name.replace('_', ' ')} {number:.4g}" for name, number in line.more.items()),
            )
        console.print(table)
        console.print()
    if sheet.targets:
        table = plain_table("aimed at", "wanted", "found", "", numbers=("found",))
        for target in sheet.targets:
            table.add_row(
                target.claim, target.wanted, f"{target.value:.3g}", "met" if target.met else "missed"
            )
        console.print(table)
        console.print()
    for note in sheet.notes:
        console.print(note, highlight=False, markup=False)
    console.print(
        ", ".join(f"{name} {value}" for name, value in sheet.machine.items()), highlight=False, markup=False
    )
    if json_file is not None:
        atomic_files.write_text(json_file, json.dumps(sheet.as_dict(), indent=2) + "\n")
        typer.echo(f"Written to {json_file}")


@bench_app.command("figures")
def bench_figures(
    folder: Annotated[Path, typer.Argument(help="Folder of files that --json wrote.")] = Path("benchmarks"),
) -> None:
    """The table of the README, from the files of earlier measurements."""
    from propall.bench.figures import figures

    typer.echo(figures(folder))

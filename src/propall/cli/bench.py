"""Commands that measure speed and memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from propall import atomic_files
from propall.cli.app import EXPERIMENTS, Application, app
from propall.cli.terminal import Device, print_line, print_note, print_table

if TYPE_CHECKING:
    from propall.bench.results import BenchmarkResult, Measurement

bench_app = Application(
    help="Measure speed and memory against a baseline measured in the same run.", no_args_is_help=True
)
app.add_typer(bench_app, name="bench", rich_help_panel=EXPERIMENTS)

Quick = Annotated[bool, typer.Option("--quick", help="Small sizes and few repeats, to test the command.")]
ResultFile = Annotated[Path | None, typer.Option("--json", help="Also write the numbers to this file.")]


@bench_app.command("loss")
def bench_loss(device: Device = "auto", quick: Quick = False, json_file: ResultFile = None) -> None:
    """Time ProPaLL's loss and gradient against a copy of the same bytes, the paper's form and BCE.

    Example: propall bench loss --quick
    """
    from propall.bench.loss import benchmark_loss

    _run(benchmark_loss, device, json_file, quick=quick)


@bench_app.command("train")
def bench_train(device: Device = "auto", quick: Quick = False, json_file: ResultFile = None) -> None:
    """Time the training of MLP-5: one run, many stacked runs, and a plain PyTorch loop.

    Example: propall bench train --quick
    """
    from propall.bench.training import benchmark_training

    _run(benchmark_training, device, json_file, quick=quick)


@bench_app.command("resnet")
def bench_resnet(
    epochs: Annotated[int, typer.Option(min=1, help="Number of timed epochs, after a warm-up epoch.")] = 2,
    precision: Annotated[
        list[str] | None, typer.Option(help="float32, tf32 or bfloat16; repeat for several.")
    ] = None,
    profile: Annotated[bool, typer.Option("--profile", help="List the kernels that take longest.")] = False,
    device: Device = "auto",
    quick: Quick = False,
    json_file: ResultFile = None,
) -> None:
    """Time an epoch of ResNet-32 on CIFAR-10-sized images: eager, captured, and compiled.

    Example: propall bench resnet --precision bfloat16 --json resnet.json
    """
    from propall.bench.resnet import benchmark_resnet

    options: dict[str, Any] = {"precisions": tuple(precision)} if precision else {}
    _run(benchmark_resnet, device, json_file, quick=quick, epochs=epochs, profile=profile, **options)


@bench_app.command("images")
def bench_images(
    epochs: Annotated[
        int | None, typer.Option(min=2, help="Number of epochs (default: the recipe's 45).")
    ] = None,
    device: Device = "auto",
    quick: Quick = False,
    json_file: ResultFile = None,
) -> None:
    """Time training with views on CIFAR-10 against the same recipe as a plain PyTorch loop.

    Example: propall bench images --epochs 5 --quick
    """
    from propall.bench.images import benchmark_images

    _run(benchmark_images, device, json_file, quick=quick, epochs=epochs)


@bench_app.command("cpu")
def bench_cpu(quick: Quick = False, json_file: ResultFile = None) -> None:
    """Time the estimator against scikit-learn's on one core, and stacked against sequential runs.

    Example: propall bench cpu --quick
    """
    from propall.bench.estimators import benchmark_estimators

    _run(benchmark_estimators, "cpu", json_file, quick=quick)


@bench_app.command("scale")
def bench_scale(
    rows: Annotated[
        int | None, typer.Option(min=1, help="Rows of the fit whose memory is measured (default: a million).")
    ] = None,
    device: Device = "auto",
    quick: Quick = False,
    json_file: ResultFile = None,
) -> None:
    """Measure how time and memory grow with rows and classes.

    Example: propall bench scale --rows 100000
    """
    from propall.bench.scaling import benchmark_scaling

    _run(benchmark_scaling, device, json_file, quick=quick, rows=rows)


def _run(
    benchmark: Callable[..., BenchmarkResult], device: str, json_file: Path | None, **options: Any
) -> None:
    from propall.training.compiled import best_device

    result = benchmark(best_device(device), report=print_note, **options)
    print_line(f"{result.title}\n", style="bold")
    for case in dict.fromkeys(m.case for m in result.measurements):
        columns = (case, "median", "quartiles", "range", "repeats", "ratio", "to", "more")
        measurements = [m for m in result.measurements if m.case == case]
        print_table(columns, map(_measurement_row, measurements), numbers=slice(1, 6))
        print_line()
    if result.targets:
        rows = [(t.claim, t.range, f"{t.value:.3g}", t.verdict) for t in result.targets]
        print_table(("", "target", "measured", "result"), rows, numbers=slice(2, 3))
        print_line()
    machine = ", ".join(f"{name} {value}" for name, value in result.machine.items())
    print_line("\n".join([*result.notes, machine]))
    if json_file is not None:
        atomic_files.write_text(json_file, json.dumps(result.as_dict(), indent=2) + "\n")
        typer.echo(f"Written to {json_file}")


def _measurement_row(measurement: Measurement) -> tuple[object, ...]:
    value = measurement.value
    return (
        measurement.subject,
        f"{value.median:.4g} {measurement.unit}",
        f"{value.low:.4g} - {value.high:.4g}",
        f"{value.minimum:.4g} - {value.maximum:.4g}",
        value.repeats,
        "" if measurement.ratio is None else f"{measurement.ratio:.3g}",
        measurement.baseline,
        ", ".join(f"{name.replace('_', ' ')} {x:.4g}" for name, x in measurement.extra.items()),
    )


@bench_app.command("figures")
def bench_figures(
    folder: Annotated[Path, typer.Argument(help="Folder of files written by --json.")] = Path("benchmarks"),
) -> None:
    """Print a Markdown table of targets and measured values from earlier results.

    Example: propall bench figures benchmarks
    """
    from propall.bench.results import targets_table

    typer.echo(targets_table(folder))

"""The results on the start page and in the README, from `results/` and `benchmarks/`."""

import csv
import html
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from propall.report.numbers import format_mean, mean_and_std

ROOT = Path(__file__).resolve().parents[2]

#: Rows of the table: data, labels, cell of the results, method.
ROWS = (
    ("CIFAR-10", "each wrong one with probability 0.1", "modern/uniform-0.1", "ProPaLL, views"),
    ("CIFAR-10", "each wrong one with probability 0.5", "modern/uniform-0.5", "ProPaLL, views"),
    ("CIFAR-10", "those that a network confuses", "modern/instance", "ProPaLL, views"),
    ("CIFAR-10", "one label that is wrong", "modern/complementary", "ProPaLL, views"),
    ("CIFAR-10N", "answers of three annotators", "modern/cifar10n", "ProPaLL, views"),
    ("Lost", "names in a caption", "real/lost/propall", "ProPaLL, linear"),
    ("MSRCv2", "objects in an image", "real/msrcv2/propall", "ProPaLL, linear"),
    ("BirdSong", "birds in a recording", "real/birdsong/propall", "ProPaLL, linear"),
)
PORTFOLIO = "portfolio of `propall fit`"


def _csv(name: str) -> list[dict[str, str]]:
    with (ROOT / "results" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _json(path: str) -> Any:
    return json.loads((ROOT / path).read_text(encoding="utf-8"))


def runs_of(cell: str) -> list[dict[str, str]]:
    """The runs of a cell with the protocol of the table."""
    return [
        run
        for run in _csv(cell.partition("/")[0])
        if run["cell"] == cell and run["protocol"] in ("modern", "folds5")
    ]


def accuracies(cell: str) -> list[float]:
    """Test accuracies of a cell's runs, in percent."""
    return [100 * float(run["accuracy"]) for run in runs_of(cell)]


def mean_candidates(cell: str) -> float:
    """Mean number of candidates per row."""
    return statistics.fmean(float(run["candidates"]) for run in runs_of(cell))


def portfolio_accuracies(data: str) -> list[float]:
    """Test accuracies of the weighed portfolio on a table, in percent; empty if it was not run."""
    runs = _csv("real_world_tables")
    return [
        float(run["accuracy"])
        for run in runs
        if run["model"] == "weighed portfolio" and run["data"] == data.lower()
    ]


def results_table() -> str:
    """The table of the README."""
    lines = [
        "| data | labels | candidates | method | accuracy | runs |",
        "| --- | --- | --: | --- | --: | --: |",
    ]
    for data, labels, cell, method in ROWS:
        for name, values in ((method, accuracies(cell)), (PORTFOLIO, portfolio_accuracies(data))):
            if values:
                accuracy = format_mean(*mean_and_std(values))
                candidates = f"{mean_candidates(cell):.1f}"
                lines.append(f"| {data} | {labels} | {candidates} | {name} | {accuracy} | {len(values)} |")
    return "\n".join(lines)


def _bars(bars: Sequence[tuple[str, float, bool]], title: str = "") -> str:
    """Horizontal bars of percentages: name, value, whether the text is about it."""
    lines = [f"<p>{html.escape(title)}</p>"] if title else []
    lines += [
        f'<div class="bar{" bar-accent" * accent}"><span>{html.escape(name)}</span><b>{value:.1f} %</b>'
        f'<i style="--share: {value:.2f}%"></i></div>'
        for name, value, accent in bars
    ]
    return f'<div class="bars">{"".join(lines)}</div>'


def annotator_bars() -> str:
    """Correct training labels of CIFAR-10N: an annotator, the majority, and what propall finds."""
    crowd = _json("results/crowds_cifar10n.json")["rows"]
    people = _json("results/annotators.json")["people"]
    return _bars(
        [
            ("one annotator", 100 * statistics.fmean(crowd["answers"]["annotators"]), False),
            ("majority vote", 100 * people["majority"], False),
            ("propall", 100 * crowd["again"]["model_and_answers"], True),
        ]
    )


def image_bars() -> str:
    """Test accuracy on CIFAR-10 by how the candidate sets were drawn."""
    kinds = {
        "modern/uniform-0.1": "at random",
        "modern/uniform-0.5": "at random",
        "modern/instance": "similar classes",
        "modern/complementary": "all but one",
    }
    return _bars(
        [
            (f"{mean_candidates(cell):.1f} of 10 labels, {kind}", statistics.fmean(accuracies(cell)), True)
            for cell, kind in kinds.items()
        ]
    )


def table_bars() -> str:
    """Test accuracy on real tables: one linear model, and the portfolio of `propall fit`."""
    return "\n".join(
        _bars(
            [
                ("linear model", statistics.fmean(accuracies(cell)), False),
                ("propall fit", statistics.fmean(portfolio), True),
            ],
            f"{data}: {labels}",
        )
        for data, labels, cell, _ in ROWS
        if (portfolio := portfolio_accuracies(data))
    )


def speed_sentence() -> str:
    """Time of an epoch in a plain loop and in a stack."""
    plain, *_, stacked = (
        line["more"]["per_run_and_epoch"] for line in _json("benchmarks/h200_train.json")["lines"]
    )
    return (
        f"{stacked:.1f} ms per run and epoch of 60 000 images if 100 runs are trained at once on one H200, "
        f"{plain / 1e3:.1f} s in a plain PyTorch loop"
    )

"""The demo page: what learning from candidate sets looks like, from one small experiment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from propall.report.charts import DotChart, ExampleSheet, Line, LineChart, Reference
from propall.report.numbers import format_number, format_percent, mean_and_std
from propall.report.page import KeyFigure, Page, Section
from propall.report.tables import Column, ReportTable, TableCell, TableRow
from propall.wording import duration, joined, plural

BASELINE, CEILING = "random candidate", "clean labels"


@dataclass(frozen=True)
class DemoResults:
    """What the demo measured. Accuracies are shares from 0 to 1; methods go by their titles.

    Attributes:
        accuracy: test accuracy of each method, one per seed.
        curves: test accuracy of each method after each epoch, (epochs, seeds).
        baseline: accuracy of training on one candidate drawn at random, one per seed.
        ceiling: accuracy of training on the true labels, one per seed.
        images: (n, h, w) or (n, h, w, 3) training images to show.
        candidates: (n, k), True on each shown image's candidates.
        recovered: (n,) label that `shown_method` chose among the candidates.
        truth: (n,) true label.
        classes: class names.
        provenance: data, corruption, q, protocol, seeds, epochs, hardware, version, commit, date.
        seconds: time of all runs, with the scoring after each epoch.
        mean_candidates: mean number of candidates in the training set.
        shown_method: the method of the key figures and of `recovered`.
    """

    accuracy: Mapping[str, Sequence[float]]
    curves: Mapping[str, NDArray[np.floating]]
    baseline: Sequence[float]
    ceiling: Sequence[float]
    images: NDArray[np.generic]
    candidates: NDArray[np.bool_]
    recovered: NDArray[np.integer]
    truth: NDArray[np.integer]
    classes: Sequence[str]
    provenance: Mapping[str, str]
    seconds: float
    mean_candidates: float
    shown_method: str = field(default="ProPaLL")

    def __post_init__(self) -> None:
        values = [*(v for vs in self.accuracy.values() for v in vs), *self.baseline, *self.ceiling]
        if not all(0 <= value <= 1 for value in values):
            raise ValueError("accuracy: values outside 0 to 1; give shares, the page writes percent.")
        if self.shown_method not in self.accuracy:
            raise ValueError(
                f"shown_method: {self.shown_method!r} is not among {', '.join(self.accuracy)}; "
                "give the title of a method with accuracies."
            )


def write_demo(path: str | Path, results: DemoResults) -> Path:
    """Write the demo page and hand back where it is."""
    return demo_page(results).write(path)


def demo_page(results: DemoResults) -> Page:
    """The demo page: accuracies, learning curves, examples, numbers."""
    name = results.shown_method
    ours, ceiling, baseline = (
        _mean(values) for values in (results.accuracy[name], results.ceiling, results.baseline)
    )
    size = format_number(results.mean_candidates, 1)
    finding = (
        f"From {size} candidate labels per instance instead of one, {name} learns a classifier with "
        f"{format_percent(ours)} test accuracy; the true labels give {format_percent(ceiling)}, and guessing "
        f"one candidate gives {format_percent(baseline)}."
    )
    figures = [
        KeyFigure(format_percent(ours), f"{name}, test accuracy", _spread(results.accuracy[name])),
        KeyFigure(format_percent(ceiling), "with clean labels", _spread(results.ceiling)),
        KeyFigure(format_percent(baseline), "with a random candidate", _spread(results.baseline)),
        KeyFigure(size, f"candidates of {len(results.classes)} classes", "mean per instance"),
        KeyFigure(duration(results.seconds), "for all training and scoring", _runs(results)),
    ]
    sections = [_accuracies(results), _curves(results), _examples(results), _numbers(results)]
    return Page("Learning from candidate labels", finding, figures, sections)


def _percent(values: Sequence[float]) -> list[float]:
    return [100 * float(value) for value in values]


def _mean(values: Sequence[float]) -> float:
    return mean_and_std(_percent(values))[0]


def _spread(values: Sequence[float]) -> str:
    _, std = mean_and_std(_percent(values))
    return "one run" if std is None else f"std {format_number(std)} over {len(values)} seeds"


def _runs(results: DemoResults) -> str:
    count = sum(map(len, [*results.accuracy.values(), results.baseline, results.ceiling]))
    return f"{count} runs"


def _ranked(results: DemoResults) -> list[tuple[str, Sequence[float]]]:
    return sorted(results.accuracy.items(), key=lambda item: -_mean(item[1]))


def _references(results: DemoResults) -> list[Reference]:
    return [
        Reference(CEILING, _mean(results.ceiling), "ceiling"),
        Reference("chance", 100 / len(results.classes), "chance"),
    ]


def _accuracies(results: DemoResults) -> Section:
    ranked = _ranked(results)
    rows = [(name, _percent(values)) for name, values in ranked]
    if results.baseline:
        rows.append((BASELINE, _percent(results.baseline)))
    chart = DotChart(
        f"Test accuracy; small dots are seeds, marks are means, bars one sample std. {_seeds(results)}",
        rows,
        references=_references(results)[:1],
    )
    text = (
        "With each seed all methods saw the same candidate sets, and none was told which candidate is true. "
        f"“{BASELINE.capitalize()}” trains on one candidate drawn at random, as if it were the label; "
        f"“{CEILING}” trains the same network on the truth."
    )
    return Section(_closest(results), chart, text, results.provenance)


def _closest(results: DemoResults) -> str:
    # Means less than one std apart are named together: so few seeds do not tell them apart.
    ranked = _ranked(results)
    (best, std), ceiling = mean_and_std(_percent(ranked[0][1])), _mean(results.ceiling)
    alike = [(name, _mean(values)) for name, values in ranked if _mean(values) >= best - (std or 0)]
    names = [name for name, _ in alike]
    who = joined(names)
    gap = ceiling - alike[-1][1]
    if gap <= 0:
        return f"{who} {'reaches' if len(names) == 1 else 'reach'} the accuracy of clean labels"
    return (
        f"{who} {'comes' if len(names) == 1 else 'come'} within {format_number(gap)} points of clean labels"
    )


def _curves(results: DemoResults) -> Section:
    lines = [
        Line.over_seeds(name, [_percent(list(seeds)) for seeds in results.curves[name]])
        for name, _ in _ranked(results)
        if name in results.curves
    ]
    epochs = len(lines[0].mean)
    chart = LineChart(
        f"Test accuracy after each epoch; bands are one sample std. {_seeds(results)}",
        range(1, epochs + 1),
        lines,
        references=_references(results),
    )
    shown = next((line for line in lines if line.name == results.shown_method), lines[0])
    near = next(i for i, value in enumerate(shown.mean, 1) if value >= shown.mean[-1] - 1)
    heading = f"{shown.name} first comes within a point of its final accuracy after {plural(near, 'epoch')}"
    text = "Test labels score the classifiers; no method trains on them, and no epoch is chosen by them."
    return Section(heading, chart, text, results.provenance)


def _examples(results: DemoResults) -> Section:
    classes = list(results.classes)
    sheet = ExampleSheet(
        f"Training images with their candidates, and the one {results.shown_method} settles on in one run.",
        results.images,
        [[classes[j] for j in np.flatnonzero(row)] for row in results.candidates],
        [classes[j] for j in results.recovered],
        [classes[j] for j in results.truth],
        inverted=results.images.ndim == 3,
    )
    right, count = int((results.recovered == results.truth).sum()), len(results.truth)
    heading = f"{right} of these {count} hidden labels are found"
    text = "Learning a classifier from candidate sets also tells which candidate was meant."
    return Section(heading, sheet, text, results.provenance)


def _numbers(results: DemoResults) -> Section:
    rows = [TableRow(name, _cells(values, results), name) for name, values in _ranked(results)]
    yardsticks = ((BASELINE, results.baseline), (CEILING, results.ceiling))
    reason = "A yardstick, not a method: it does not learn from candidate sets."
    for name, values in yardsticks:
        if values:
            accuracy, gap = _cells(values, results, reason)
            rows.append(TableRow(name, [accuracy, TableCell(text="–") if name == CEILING else gap], name))
    columns = [Column("test accuracy (%)", best="highest"), Column("below clean labels")]
    table = ReportTable(columns, rows, f"Mean (sample std). {_seeds(results)} Best method in bold.")
    text = "Click a heading to sort; the buttons copy the table for a spreadsheet, a README or a paper."
    return Section("The numbers", table, text, results.provenance)


def _cells(values: Sequence[float], results: DemoResults, hatched: str = "") -> list[TableCell]:
    mean, std = mean_and_std(_percent(values))
    return [TableCell(mean, std, hatched=hatched), TableCell(_mean(results.ceiling) - mean, hatched=hatched)]


def _seeds(results: DemoResults) -> str:
    return f"{plural(len(results.accuracy[results.shown_method]), 'seed')}."

"""The demo page: learning from candidate sets in one small experiment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from propall.report.charts.bars import DotChart
from propall.report.charts.examples import ExampleSheet
from propall.report.charts.figure import Reference
from propall.report.charts.lines import Line, LineChart
from propall.report.numbers import format_number, format_percent, mean_and_std
from propall.report.page import KeyFigure, Page, PageSection
from propall.report.tables import Column, ReportTable, TableCell, TableRow
from propall.wording import duration, join_names, plural

BASELINE, CEILING = "random candidate", "clean labels"


@dataclass(frozen=True)
class DemoResults:
    """Measurements of the demo. Accuracies are between 0 and 1, one per seed; methods are keyed by title."""

    accuracy: Mapping[str, Sequence[float]]
    curves: Mapping[str, NDArray[np.floating]]  # after each epoch, (epochs, seeds)
    baseline: Sequence[float]  # accuracies of training on one random candidate
    ceiling: Sequence[float]  # accuracies of training on the true labels
    images: NDArray[np.generic]  # (n, h, w) or (n, h, w, 3) training images to show
    candidates: NDArray[np.bool_]  # (n, k), of the shown images
    recovered: NDArray[np.integer]  # (n,), the labels that `shown_method` chose among the candidates
    truth: NDArray[np.integer]  # (n,)
    classes: Sequence[str]
    provenance: Mapping[str, str]
    seconds: float  # of all runs, including evaluation after each epoch
    mean_candidates: float  # per training instance
    shown_method: str = "ProPaLL"  # in the key figures and in `recovered`

    def __post_init__(self) -> None:
        values = [*(v for vs in self.accuracy.values() for v in vs), *self.baseline, *self.ceiling]
        if not all(0 <= value <= 1 for value in values):
            raise ValueError("accuracy: some values are outside [0, 1]; expected fractions, not percentages.")
        if self.shown_method not in self.accuracy:
            name, known = self.shown_method, ", ".join(self.accuracy)
            raise ValueError(f"shown_method: {name!r} has no accuracies; expected one of {known}.")


def demo_page(results: DemoResults) -> Page:
    """Build the demo page: accuracies, learning curves, examples, numbers."""
    name = results.shown_method
    ours, ceiling, baseline = map(_mean, (results.accuracy[name], results.ceiling, results.baseline))
    size = format_number(results.mean_candidates, 1)
    finding = (
        f"From {size} candidate labels per instance instead of one, {name} trains a classifier with "
        f"{format_percent(ours)} test accuracy; the true labels give {format_percent(ceiling)}, and guessing "
        f"one candidate gives {format_percent(baseline)}."
    )
    runs = sum(map(len, [*results.accuracy.values(), results.baseline, results.ceiling]))
    figures = [
        KeyFigure(format_percent(ours), f"{name}, test accuracy", _spread(results.accuracy[name])),
        KeyFigure(format_percent(ceiling), "with clean labels", _spread(results.ceiling)),
        KeyFigure(format_percent(baseline), "with a random candidate", _spread(results.baseline)),
        KeyFigure(size, f"candidates of {len(results.classes)} classes", "mean per instance"),
        KeyFigure(duration(results.seconds), "for all training and evaluation", f"{runs} runs"),
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


def _ranked(results: DemoResults) -> list[tuple[str, Sequence[float]]]:
    return sorted(results.accuracy.items(), key=lambda item: -_mean(item[1]))


def _references(results: DemoResults) -> list[Reference]:
    return [
        Reference(CEILING, _mean(results.ceiling), "ceiling"),
        Reference("chance", 100 / len(results.classes), "chance"),
    ]


def _accuracies(results: DemoResults) -> PageSection:
    ranked = _ranked(results)
    rows = [(name, _percent(values)) for name, values in ranked]
    if results.baseline:
        rows.append((BASELINE, _percent(results.baseline)))
    what = "Test accuracy; small dots are seeds, markers are means, bars one sample std."
    chart = DotChart(f"{what} {_seeds(results)}", rows, references=_references(results)[:1])
    text = (
        "For each seed, all methods see the same candidate sets and none sees the true labels. "
        f"“{BASELINE.capitalize()}” trains on one random candidate as if it were the label; "
        f"“{CEILING}” trains the same network on the true labels."
    )
    return PageSection(_closest(results), chart, text, results.provenance)


def _closest(results: DemoResults) -> str:
    # Means less than one std apart are named together, since so few seeds do not separate them.
    ranked = _ranked(results)
    (best, std), ceiling = mean_and_std(_percent(ranked[0][1])), _mean(results.ceiling)
    alike = [(name, _mean(values)) for name, values in ranked if _mean(values) >= best - (std or 0)]
    who, gap = join_names([name for name, _ in alike]), ceiling - alike[-1][1]
    if gap <= 0:
        return f"{who} {'reaches' if len(alike) == 1 else 'reach'} the accuracy of clean labels"
    come = "comes" if len(alike) == 1 else "come"
    return f"{who} {come} within {format_number(gap)} points of clean labels"


def _curves(results: DemoResults) -> PageSection:
    lines = [
        Line.over_seeds(name, [_percent(list(seeds)) for seeds in results.curves[name]])
        for name, _ in _ranked(results)
        if name in results.curves
    ]
    caption = f"Test accuracy after each epoch; bands are one sample std. {_seeds(results)}"
    epochs = range(1, len(lines[0].mean) + 1)
    chart = LineChart(caption, epochs, lines, references=_references(results))
    shown = next((line for line in lines if line.name == results.shown_method), lines[0])
    near = next(i for i, value in enumerate(shown.mean, 1) if value >= shown.mean[-1] - 1)
    heading = f"{shown.name} first comes within one point of its final accuracy after {plural(near, 'epoch')}"
    text = "Test labels are used for evaluation only: no method trains on them or selects an epoch with them."
    return PageSection(heading, chart, text, results.provenance)


def _examples(results: DemoResults) -> PageSection:
    classes = list(results.classes)
    sheet = ExampleSheet(
        f"Training images with their candidates, and the one that {results.shown_method} chose in one run.",
        results.images,
        [[classes[j] for j in np.flatnonzero(row)] for row in results.candidates],
        [classes[j] for j in results.recovered],
        [classes[j] for j in results.truth],
        inverted=results.images.ndim == 3,
    )
    right, count = int((results.recovered == results.truth).sum()), len(results.truth)
    heading = f"{right} of these {count} hidden labels are recovered"
    text = "A classifier trained on candidate sets also identifies the true candidate."
    return PageSection(heading, sheet, text, results.provenance)


def _numbers(results: DemoResults) -> PageSection:
    rows = [TableRow(name, _cells(values, results), name) for name, values in _ranked(results)]
    references = ((BASELINE, results.baseline), (CEILING, results.ceiling))
    reason = "A reference, not a method: it does not learn from candidate sets."
    for name, values in references:
        if values:
            accuracy, gap = _cells(values, results, reason)
            rows.append(TableRow(name, [accuracy, TableCell(text="–") if name == CEILING else gap], name))
    columns = [Column("test accuracy (%)", best="highest"), Column("below clean labels")]
    table = ReportTable(columns, rows, f"Mean (sample std). {_seeds(results)} Best method in bold.")
    text = "Click a heading to sort; the buttons copy the table for a spreadsheet, README or paper."
    return PageSection("The numbers", table, text, results.provenance)


def _cells(values: Sequence[float], results: DemoResults, hatched: str = "") -> list[TableCell]:
    mean, std = mean_and_std(_percent(values))
    return [TableCell(mean, std, hatched=hatched), TableCell(_mean(results.ceiling) - mean, hatched=hatched)]


def _seeds(results: DemoResults) -> str:
    return f"{plural(len(results.accuracy[results.shown_method]), 'seed')}."

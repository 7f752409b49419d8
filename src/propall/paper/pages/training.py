"""The page of `propall train`: accuracies, learning curves, time to accuracy, settings, augmented images."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from propall.data import DATASETS
from propall.data.augmentation import Augmentation
from propall.paper.custom_runs import trains_on_views, uses_views_in_its_own_way
from propall.paper.pages.provenance import run_provenance
from propall.paper.results import RunResult
from propall.paper.specs import Spec
from propall.report.charts.figure import Reference
from propall.report.charts.lines import Line, LineChart
from propall.report.charts.views import ViewSheet
from propall.report.numbers import format_number, format_percent, mean_and_std
from propall.report.page import KeyFigure, Page, PageSection
from propall.report.tables import Column, ReportTable, TableCell, TableRow
from propall.training.views import BALANCE_FIELDS, Views
from propall.wording import duration, join_names, plural

#: Accuracies in percent whose times are compared.
LEVELS = (25, 50, 60, 70, 80, 85, 90, 92, 94, 95, 96, 97, 98, 99)
#: Number of the highest levels that a page shows.
SHOWN_LEVELS = 5


def training_page(results: Sequence[RunResult], sheet: ViewSheet | None = None) -> Page:
    """Build the page of some runs on one data set.

    Args:
        results: of one or more methods with the same data, network and recipe.
        sheet: augmented images; None for runs without views.
    """
    by_method = _by_method(results)
    best, runs = max(by_method.items(), key=lambda item: _mean_accuracy(item[1]))
    spec, title = results[0].spec, DATASETS[results[0].spec.data].title
    mean, std = mean_and_std([100 * run.accuracy for run in runs])
    spread = "one run" if std is None else f"std {format_number(std)} over {plural(len(runs), 'run')}"
    seconds = sum(run.seconds for run in runs) / len(runs)
    finding = (
        f"On {title} with {format_number(results[0].candidates, 1)} candidate labels per row, {best} reaches "
        f"{format_percent(mean)} test accuracy in {duration(seconds)} per run."
    )
    figures = [
        KeyFigure(format_percent(mean), f"{best}, test accuracy", spread),
        KeyFigure(duration(seconds), "per run", "training and evaluation"),
        KeyFigure(
            format_number(results[0].candidates, 1), f"candidates of {DATASETS[spec.data].n_classes} classes"
        ),
        KeyFigure(
            format_percent(_mean(runs, "transductive")), "training labels recovered", "among candidates"
        ),
    ]
    sections = []
    curved = [run for run in results if run.curve]  # methods without a network have no epochs
    if curved:
        sections += [_curves(_by_method(curved), curved), _times(_by_method(curved), curved)]
    sections.append(_numbers(by_method, results))
    with_views = [run.spec for run in results if trains_on_views(run.spec)]
    if sheet is not None and with_views:
        sections.append(_views_seen(sheet, with_views))
    sections.append(_settings(results))
    return Page(f"Training on {title}", finding, figures, sections)


def _views_seen(sheet: ViewSheet, specs: Sequence[Spec]) -> PageSection:
    """Show augmented images, and say what is learned from them."""
    named = list(dict.fromkeys(spec.title for spec in specs if uses_views_in_its_own_way(spec)))
    usual = next((spec.recipe.views for spec in specs if not uses_views_in_its_own_way(spec)), None)
    sentences, kinds = [], "weak and strong views"
    if usual is not None:
        sentences.append(_describe_targets(usual))
        kinds = kinds if usual.n_strong or named else "weak views"
    if named:
        verb, whose = ("uses", "its") if len(named) == 1 else ("use", "their")
        sentences.append(f"{join_names(named)} {verb} one weak and one strong view in {whose} own way.")
    sentences.append("Every image is augmented anew in each epoch.")
    heading = f"What the network sees: {kinds}"
    return PageSection(heading, sheet, " ".join(sentences), label="Augmented images")


def _describe_targets(views: Views) -> str:
    """Say which views give the targets, and which are trained towards them."""
    if not views.n_strong:
        return "The network is trained on the weak view alone."
    strong = "the strong view" if views.n_strong == 1 else "the strong views"
    seen = "the first strong view" if views.n_strong > 1 else strong
    source = {
        "weak": "The prediction on the weak view gives the targets",
        "memory": f"Predictions on {'all views' if views.geometric else 'the weak view'}, remembered over "
        "the epochs, give the targets",
        "teacher": "A running mean of the network gives the targets from "
        f"{'the weak view' if views.teacher_view == 'weak' else seen}",
        "peers": "The predictions of the other runs give the targets",
    }[views.targets]
    strong_are = f"{strong} {'is' if views.n_strong == 1 else 'are'}"
    trained = "all views are" if views.consistency_views == "all" else strong_are
    return f"{source}; {trained} trained towards them."


def _by_method(results: Iterable[RunResult]) -> dict[str, list[RunResult]]:
    groups: dict[str, list[RunResult]] = {}
    for result in results:
        groups.setdefault(result.spec.title, []).append(result)
    return groups


def _mean(runs: Sequence[RunResult], field: str) -> float:
    return 100 * sum(float(getattr(run, field)) for run in runs) / len(runs)


def _mean_accuracy(runs: Sequence[RunResult]) -> float:
    return _mean(runs, "accuracy")


def seconds_by_epoch(result: RunResult) -> dict[int, float]:
    """Seconds up to each measured epoch.

    Runs that were trained together share the time equally, and so do their epochs.
    """
    if result.times:
        return dict(result.times)
    last = max(result.curve)
    return {epoch: result.seconds * epoch / last for epoch in result.curve}


def time_to_accuracy(result: RunResult, level: float) -> float | None:
    """Seconds until the test accuracy first reaches a level in percent; None if it never does."""
    times = seconds_by_epoch(result)
    reached = (epoch for epoch, value in sorted(result.curve.items()) if 100 * value >= level)
    return next((times[epoch] for epoch in reached if epoch in times), None)


def _curves(by_method: Mapping[str, Sequence[RunResult]], results: Sequence[RunResult]) -> PageSection:
    epochs = sorted(set.intersection(*(set(run.curve) for run in results)))
    lines = [
        Line.over_seeds(name, [[100 * run.curve[epoch] for run in runs] for epoch in epochs])
        for name, runs in by_method.items()
    ]
    chance = Reference("chance", 100 / DATASETS[results[0].spec.data].n_classes, "chance")
    chart = LineChart(
        f"Test accuracy after each epoch; bands are one sample std. {plural(len(results), 'run')}.",
        epochs,
        lines,
        references=[chance],
    )
    leader = max(lines, key=lambda line: line.mean[-1])
    near = next(epoch for epoch, v in zip(epochs, leader.mean, strict=True) if v >= leader.mean[-1] - 1)
    heading = (
        f"{leader.name} is within one point of its final accuracy after {plural(near, 'epoch')} "
        f"of {epochs[-1]}"
    )
    text = "Test labels are used for evaluation only."
    return PageSection(heading, chart, text, run_provenance(results), label="Learning curves")


def _times(by_method: Mapping[str, Sequence[RunResult]], results: Sequence[RunResult]) -> PageSection:
    highest = max(100 * max(run.curve.values()) for run in results)
    # A level that some runs of a method never reach has no time; it is no heading.
    common = max(min(100 * max(run.curve.values()) for run in runs) for runs in by_method.values())
    named = max((level for level in LEVELS if level <= common), default=None)
    shown = {level for level in LEVELS if level <= highest}
    levels = sorted({*sorted(shown)[-SHOWN_LEVELS:], *(() if named is None else (named,))})
    rows = []
    for name, runs in by_method.items():
        cells = []
        for level in levels:
            reached = [s for run in runs if (s := time_to_accuracy(run, level)) is not None]
            if not reached:
                cells.append(TableCell(text="not reached"))
                continue
            mean, std = mean_and_std(reached)
            note = "" if len(reached) == len(runs) else f"reached by {len(reached)} of {len(runs)} runs"
            cells.append(TableCell(mean, std, hatched=note))
        rows.append(TableRow(name, cells, name))
    columns = [Column(f"{level} %", best="lowest") for level in levels]
    alone = all(run.times for run in results)
    how = (
        "Training time without evaluation."
        if alone
        else "Runs were trained together: each has an equal share of the time of training and evaluation."
    )
    table = ReportTable(columns, rows, f"Seconds until the test accuracy is first reached. {how}")
    if named is None:
        heading = "No level of accuracy was reached" + (" by all runs of a method" if levels else "")
    else:
        cells = [row.cells[levels.index(named)] for row in rows]
        fastest = min(cell.mean for cell in cells if cell.mean is not None and not cell.hatched)
        heading = f"{named} % test accuracy is reached after {duration(fastest)}"
    return PageSection(heading, table, "", run_provenance(results), label="Time to accuracy")


def _numbers(by_method: Mapping[str, Sequence[RunResult]], results: Sequence[RunResult]) -> PageSection:
    columns = [
        Column("test accuracy (%)", best="highest"),
        Column("labels recovered (%)", best="highest"),
        Column("seconds per run"),
    ]
    rows = []
    for name, runs in sorted(by_method.items(), key=lambda item: -_mean_accuracy(item[1])):
        accuracy, recovered = (
            mean_and_std([100 * getattr(run, field) for run in runs])
            for field in ("accuracy", "transductive")
        )
        seconds = mean_and_std([run.seconds for run in runs])
        rows.append(TableRow(name, [TableCell(*pair) for pair in (accuracy, recovered, seconds)], name))
    table = ReportTable(
        columns, rows, f"Mean (sample std) after the last epoch; {plural(len(results), 'run')}."
    )
    return PageSection("The numbers", table, "", run_provenance(results))


def _settings(results: Sequence[RunResult]) -> PageSection:
    spec = results[0].spec
    values: dict[str, Any] = {"network": spec.net}
    values["candidate sets"] = "of the data set" if spec.corruption is None else repr(spec.corruption)
    for name, value in spec.recipe.to_dict().items():
        if name != "views":
            values[name.replace("_", " ")] = value
    for name, value in _used_views([run.spec for run in results if trains_on_views(run.spec)]).items():
        text = _augmentation(value) if isinstance(value, Augmentation) else value
        values[f"views: {name.replace('_', ' ')}"] = text
    rows = [TableRow.of(name, _text(value)) for name, value in values.items()]
    caption = "Network, candidate sets and recipe of all runs; of the views, what differs from the defaults."
    table = ReportTable([Column("value", kind="text")], rows, caption, "setting")
    return PageSection("Settings", table)


def _used_views(specs: Sequence[Spec]) -> dict[str, Any]:
    """Return the settings of views that some runs use and that differ from the defaults."""
    views = specs[0].recipe.views if specs else None
    if views is None:
        return {}
    # The augmentations have no fixed default, so that they are always among these.
    shown = {"n_strong", *(item.name for item in fields(views) if getattr(views, item.name) != item.default)}
    if all(map(uses_views_in_its_own_way, specs)):
        shown &= {"weak", "strong", *BALANCE_FIELDS}
    elif not views.n_strong:
        shown &= {"weak", "n_strong", *BALANCE_FIELDS}
    return {item.name: getattr(views, item.name) for item in fields(views) if item.name in shown}


def _augmentation(augmentation: Augmentation) -> str:
    return ", ".join(f"{name} {_text(value)}" for name, value in asdict(augmentation).items())


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value)

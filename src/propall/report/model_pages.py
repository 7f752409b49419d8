"""The report pages of `propall fit`, `propall resolve` and `propall evaluate`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from propall import __version__
from propall.estimators.resolution import Resolution
from propall.estimators.search import PartialLabelClassifierCV
from propall.labels.parsing import as_text
from propall.methods import METHODS
from propall.report.annotator_pages import annotator_sections, note_section
from propall.report.charts.bars import BarChart
from propall.report.charts.examples import ExampleSheet
from propall.report.charts.figure import Reference
from propall.report.charts.heat import Grid, HeatMap
from propall.report.charts.lines import Line, LineChart
from propall.report.charts.reliability import ReliabilityBin, ReliabilityChart
from propall.report.numbers import format_number, format_percent
from propall.report.page import KeyFigure, Page, PageSection
from propall.report.tables import Column, Format, ReportTable, TableCell, TableRow
from propall.tables.evaluation import Evaluation
from propall.tables.features import Features
from propall.tables.fitting import Fitted, guessing_rate
from propall.tables.images import ImageColumn
from propall.tables.larger_than_memory import FittedInParts
from propall.tables.reading import DataNote
from propall.tables.resolution import SURE, ResolvedTable, resolve_training_rows
from propall.tables.writing import format_alternatives
from propall.wording import duration, plural

#: Maximum number of classes in a matrix, of rows to review, and of images shown.
CLASSES, REVIEWED_ROWS, SHOWN_IMAGES = 15, 15, 15
#: Maximum number of rows that a page can search, of characters of all of them, and of one.
SEARCHED_ROWS, SEARCHED_CHARACTERS, ROW_CHARACTERS = 10_000, 1_000_000, 1_000
#: Probabilities that are too high by less than this are called right.
TOLERATED_GAP = 0.02
#: Two labels must be candidates together in this many rows before they are called hard to tell apart.
FEW = 5
#: Columns that a page lists before they are searched.
MOST_COLUMNS = 50
#: Bin edges of probabilities.
BINS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
#: Short name of each model selection criterion, and the setting it selects.
CRITERION_WORDS = {
    "weighted_covering_rate": (
        "covering rate",
        "whose held-out predictions are most often among the candidates. Small candidate sets count more, "
        "because chance hits them less often.",
    ),
    "covering_rate": (
        "covering rate",
        "whose held-out predictions are most often among the candidates.",
    ),
    "approximated_accuracy": (
        "approximated accuracy",
        "with the highest probability of held-out predictions that are candidates.",
    ),
    "candidate_log_likelihood": (
        "log-likelihood",
        "under which the held-out candidate sets are most likely.",
    ),
    "cooccurrence_log_likelihood": (
        "log-likelihood",
        "under which the held-out candidate sets are most likely, given which labels occur together.",
    ),
    "tempered_log_likelihood": (
        "log-likelihood",
        "under which the held-out candidate sets are most likely after temperature scaling.",
    ),
}


def fit_page(fitted: Fitted) -> Page:
    """Build the page of a fit: the data, the chosen settings, confused labels, and rows to review."""
    resolved, account = resolve_training_rows(fitted), fitted.model.account
    judged = "out of bag" if "portfolio" in account else f"{account['folds']} folds"
    figures = [
        *_fit_figures(fitted, judged),
        _doubted_figure(resolved),
        KeyFigure(duration(fitted.seconds), "to search and fit", fitted.hardware),
    ]
    sections = [
        *_resolution_sections(resolved),
        *_curve_sections(resolved),
        _portfolio_section(account) if "portfolio" in account else _search_section(fitted),
        *_table_sections(resolved, fitted.model.features),
        *_options_sections(account.get("options", {})),
    ]
    title, finding = f"A model of {account['source']}", _fit_finding(account, account["used"])
    return _page(title, finding, figures, sections, account)


def fit_in_parts_page(fitted: FittedInParts) -> Page:
    """Build the page of a fit in parts: what the held-out rows show, the models and the columns."""
    account = fitted.model.account
    streamed, rate = account["streamed"], account["sets_without_truth"]
    n = streamed["held_out_rows"]
    figures = [
        *_fit_figures(fitted, f"{n} held-out rows"),
        KeyFigure(
            str(account["doubted"]),
            "held-out rows whose candidates are probably all wrong",
            f"estimated for {format_percent(100 * rate, 1)} of all candidate sets",
        ),
        KeyFigure(duration(fitted.seconds), "to read and fit", fitted.hardware),
    ]
    resolution = Resolution(
        fitted.portfolio.log_probabilities, fitted.held_out.candidates, fitted.model.classes
    )
    how = f"Judged by {n} held-out rows, which also calibrated the model and decided the weights."
    training = format_number(streamed["training_score"], 3)
    models = _portfolio_section(account)
    compared = f"The log-likelihood of the weighted mean on training rows is {training}."
    ambiguous = resolution.candidates.sum(1) > 1
    sections = [
        *_trust_sections(resolution, how),
        *_confusion_sections(resolution, ambiguous),
        replace(models, text=f"{models.text} {compared}"),
        _column_section(fitted.model.features),
        *([note_section(fitted.notes)] if fitted.notes else []),
        *_options_sections(account.get("options", {})),
    ]
    title, finding = f"A model of {account['source']}", _fit_finding(account, account["used"] - n)
    return _page(title, finding, figures, sections, {**account, "folds": None})


def _fit_finding(account: Mapping[str, Any], n_training: int) -> str:
    covering = 100 * account["held_out"]["covering_rate"]
    is_mean = "portfolio" in account and account["members"] > 1
    trained = "A weighted mean of {}" if is_mean else "{}"
    kind = "model" if "portfolio" in account else "network"
    return (
        f"{trained.format(plural(account['members'], kind))} trained on {n_training} rows with "
        f"{format_number(account['mean_candidates'], 1)} candidate labels per row; "
        f"{format_percent(covering, 1)} of the held-out predictions are among the candidates."
    )


def _fit_figures(fitted: Fitted | FittedInParts, judged: str) -> list[KeyFigure]:
    """The key figures of a fit about its rows; `judged` says which rows are held out."""
    account = fitted.model.account
    covering = 100 * account["held_out"]["covering_rate"]
    n_classes = len(account["classes"])
    return [
        KeyFigure(
            format_percent(covering, 1),
            "of held-out predictions are candidates",
            f"random guessing: {format_percent(100 * guessing_rate(account), 0)}; {judged}",
        ),
        KeyFigure(str(account["used"]), f"of {account['rows']} rows used", _n_dropped(fitted.notes)),
        KeyFigure(format_number(account["mean_candidates"]), f"candidates of {n_classes} classes", "mean"),
    ]


def resolve_page(resolved: ResolvedTable) -> Page:
    """Build the page of resolved labels: how sure they are, and rows to review."""
    n, ambiguous = len(resolved.resolution), resolved.ambiguous
    share = 100 * resolved.sure / max(1, ambiguous)
    finding = (
        f"Of {n} rows, {ambiguous} had more than one candidate label; {resolved.sure} of these "
        f"({format_percent(share, 0)}) are resolved with a probability of at least {SURE}."
    )
    seen = "resolved by models that did not see them"
    seen = "unknown: the fit was interrupted" if resolved.unfinished else seen
    figures = [
        KeyFigure(str(ambiguous), "ambiguous rows resolved", f"of {n}"),
        KeyFigure(str(resolved.sure), f"with a probability of at least {SURE}"),
        _doubted_figure(resolved),
        KeyFigure(str(int(resolved.seen.sum())), "rows of the training data", seen),
    ]
    sections = [*_resolution_sections(resolved), *_table_sections(resolved, None), *_curve_sections(resolved)]
    account = {**resolved.account, "source": resolved.raw.source}
    return _page(f"Labels for {resolved.raw.source}", finding, figures, sections, account)


def evaluation_page(evaluation: Evaluation, source: str, account: Mapping[str, Any]) -> Page:
    """Build the page of an evaluation: whether probabilities are right, confused classes, recalls.

    Args:
        evaluation: of a model on rows with true labels.
        source: name of the file with these rows.
        account: record of the model's fit.
    """
    error = evaluation.reliability.error
    finding = (
        f"{format_percent(100 * evaluation.accuracy, 1)} of {evaluation.rows} rows with a true label are "
        f"predicted correctly; stated probabilities are off by {format_number(100 * error, 1)} points on "
        "average."
    )
    figures = [
        KeyFigure(format_percent(100 * evaluation.accuracy, 1), "of predictions are correct"),
        KeyFigure(str(evaluation.rows), "rows with a true label", f"{evaluation.seen} used in the fit"),
        KeyFigure(format_number(error, 3), "expected calibration error"),
    ]
    if evaluation.resolved is not None and evaluation.covered is not None:
        rows = f"of {evaluation.with_candidates} rows with candidates"
        figures += [
            KeyFigure(format_percent(100 * evaluation.resolved, 1), "of resolved labels are correct", rows),
            KeyFigure(format_percent(100 * evaluation.covered, 1), "of candidate sets hold the truth", rows),
        ]
    sections = [_calibration_section(evaluation), *_error_sections(evaluation), _recall_section(evaluation)]
    sections += [note_section(evaluation.notes)] if evaluation.notes else []
    return _page(f"Accuracy on {source}", finding, figures, sections, {**account, "source": source})


def _calibration_section(evaluation: Evaluation) -> PageSection:
    edges, counts, confidence, accuracy = evaluation.reliability
    bins = [
        ReliabilityBin(f"{low:.2f}–{high:.2f}", int(n), 100 * float(stated), 100 * float(right))
        for (low, high), n, stated, right in zip(pairwise(edges), counts, confidence, accuracy, strict=True)
        if n
    ]
    caption = (
        "Bars: how often the predicted class is correct. Marks: its mean probability, which the bars should "
        "reach and not exceed. Below: the number of rows."
    )
    gap = float(np.nansum((confidence - accuracy) * counts) / counts.sum())
    heading = "The probabilities are right on average"
    if abs(gap) > TOLERATED_GAP:
        side = "high" if gap > 0 else "low"
        heading = f"The probabilities are too {side} by {format_number(100 * abs(gap), 1)} points on average"
    text = "Rows of the training data are predicted by models that did not see them." * bool(evaluation.seen)
    chart = ReliabilityChart(caption, bins, "is correct (%)")
    return PageSection(heading, chart, text, label="Can I trust this?")


def _error_sections(evaluation: Evaluation) -> list[PageSection]:
    errors = evaluation.confusion.astype(float)
    np.fill_diagonal(errors, 0.0)
    if not errors.any():
        return []
    kept = np.sort(np.argsort(-(errors.sum(0) + errors.sum(1)), kind="stable")[:CLASSES])
    names = [_shortened(evaluation.classes[i], 18) for i in kept]
    totals = np.maximum(evaluation.confusion.sum(1, keepdims=True), 1)
    shares = 100 * evaluation.confusion / totals
    grid = Grid(names, names, shares[np.ix_(kept, kept)].tolist())
    caption = "Predictions by true class, in percent of the rows of that class."
    chart = HeatMap(caption, grid, "true class", "predicted", "rows (%)", decimals=0, square=True)
    true, predicted = np.unravel_index(int(errors.argmax()), errors.shape)
    one, other = evaluation.classes[true], evaluation.classes[predicted]
    heading = f"The most frequent error is to predict {other} for {one}"
    text = f"Shown are the {CLASSES} classes with most errors." * (len(evaluation.classes) > CLASSES)
    return [PageSection(heading, chart, text)]


def _recall_section(evaluation: Evaluation) -> PageSection:
    found = [row for row in evaluation.recalls if row[1]]
    ordered = sorted(found, key=lambda row: row[2])
    rows = [TableRow.of(name, count, 100 * recall) for name, count, recall in ordered]
    columns = [_count("rows"), Column("recall (%)", decimals=1)]
    table = _table(
        "class", columns, rows, "Share of the rows of a class that are predicted as it.", "Markdown"
    )
    name, _, recall = ordered[0]
    return PageSection(f"{name} has the lowest recall, {format_percent(100 * recall, 1)}", table)


def _page(
    title: str,
    finding: str,
    figures: Sequence[KeyFigure],
    sections: Sequence[PageSection],
    account: Mapping[str, object],
) -> Page:
    """Build a page whose sections all have the provenance of a fit."""
    provenance = {"data": str(account.get("source", "unknown"))}
    provenance |= {name: str(account[name]) for name in ("folds", "seed") if account.get(name) is not None}
    provenance |= {"version": __version__, "date": datetime.now(UTC).date().isoformat()}
    return Page(title, finding, figures, [replace(section, provenance=provenance) for section in sections])


def _doubted_figure(resolved: ResolvedTable) -> KeyFigure:
    rate = resolved.consensus.rate
    note = "" if rate is None else f"estimated for {format_percent(100 * rate, 1)} of all candidate sets"
    return KeyFigure(str(resolved.doubted), "rows whose candidates are probably all wrong", note)


def _n_dropped(notes: Sequence[DataNote]) -> str:
    rows = sum(len(note.rows) for note in notes if note.action == "row dropped")
    return f"{rows} left out" if rows else "none left out"


def _table(
    row_title: str, columns: Sequence[Column], rows: Sequence[TableRow], caption: str, *formats: Format
) -> ReportTable:
    return ReportTable(columns, rows, caption, row_title, formats=("CSV", *formats))


def _text(title: str, *, wraps: bool = False) -> Column:
    return Column(title, kind="text", wraps=wraps)


def _count(title: str) -> Column:
    return Column(title, decimals=0)


# The table.


def _table_sections(resolved: ResolvedTable, features: Features | None) -> list[PageSection]:
    sizes, counts = np.unique(resolved.labeled.labels.to_numpy().sum(1), return_counts=True)
    bars = [(str(size), int(count)) for size, count in zip(sizes, counts, strict=True)]
    chart = BarChart("Candidate sets by size.", bars, "candidates", "rows")
    single = len(resolved.resolution) - resolved.ambiguous
    written = ", ".join(f"{kind} {count}" for kind, count in resolved.labeled.kind_counts.items())
    heading = f"{plural(single, 'row')} with one label, {resolved.ambiguous} with several candidates"
    sections = [PageSection(heading, chart, f"As written in the file: {written}.")]
    if features is not None:
        sections.append(_column_section(features))
    if resolved.notes:
        sections.append(note_section(resolved.notes))
    return sections


def _column_section(features: Features) -> PageSection:
    rows = [TableRow.of(*described) for described in features.describe()]
    table = _table("column", [_text("kind"), _text("encoding")], rows, "Inputs of the model.")
    if len(rows) > MOST_COLUMNS:
        table = replace(table, first=MOST_COLUMNS)
    return PageSection(f"The model uses {plural(len(rows), 'column')}", table)


# The fit.


def _curve_sections(resolved: ResolvedTable) -> list[PageSection]:
    curves = resolved.curves
    if curves is None:
        return []
    lines = [Line.over_seeds(name, (100 * values).tolist()) for name, values in curves.covering.items()]
    members = len(next(iter(curves.covering.values()))[0])
    bands = f"; bands show one standard deviation over {members} networks" if members > 1 else ""
    caption = f"Predictions among the candidates after each epoch{bands}."
    chart = LineChart(caption, curves.epochs, lines, y_title="among the candidates (%)")
    trained, held_out = (line.mean[-1] for line in lines)
    heading, gap = "The model generalizes to held-out rows", trained - held_out
    if gap >= 2:
        heading = f"Held-out predictions are {format_number(gap, 1)} points worse than on training rows"
    text = "The chosen setting, trained again on all folds but one. No true labels are used."
    return [PageSection(heading, chart, text)]


def describe_log_likelihood(criterion: str) -> str:
    """Say which likelihood weighs a portfolio; the two kinds are not on the same scale."""
    if criterion == "candidate_log_likelihood":
        return "Log-likelihood: mean log-probability that the label of a row is one of its candidates."
    return "Log-likelihood: mean log-probability of the candidate sets, given which labels occur together."


def _portfolio_section(account: Mapping[str, Any]) -> PageSection:
    """Every learner that was tried: its weight, its score without true labels, and its time."""
    tried = sorted(account["portfolio"], key=lambda row: -row.get("score", -np.inf))
    rows = []
    for row in tried:
        if row["refusal"]:
            reason = TableCell(text=_shortened(row["refusal"], 60))
            cells = [reason, *(TableCell(text="not fitted") for _ in range(3))]
        else:
            values = 100 * row["weight"], row["score"], 100 * row["covering_rate"], row["seconds"]
            cells = [TableCell(float(value)) for value in values]
        rows.append(TableRow(row["name"], cells))
    columns = [
        Column("weight (%)", decimals=0, best="highest"),
        Column("log-likelihood", decimals=3, best="highest"),
        Column("among candidates (%)", decimals=1, best="highest"),
        Column("seconds", decimals=1),
    ]
    caption = (
        "Models tried, on rows that each was not trained on. "
        f"{describe_log_likelihood(account['criterion'])} "
        f"The weighted mean has {format_number(account['portfolio_score'], 3)}."
    )
    table = _table("model", columns, rows, caption, "Markdown")
    used = sum(row["weight"] > 0 for row in tried)
    heading = f"{plural(used, 'model')} of {len(rows)} tried, weighed without true labels"
    text = "The weights follow from the likelihood of the held-out candidate sets; no true label is used."
    return PageSection(heading, table, text)


def _search_section(fitted: Fitted) -> PageSection:
    assert isinstance(fitted.search, PartialLabelClassifierCV)
    results = fitted.search.cv_results_
    criterion, best = CRITERION_WORDS[str(fitted.model.account["criterion"])]
    rows = []
    for i in np.argsort(results["rank_test_score"], kind="stable"):
        params = results["params"][i]
        method = params["method"] if isinstance(params["method"], str) else params["method"].name
        widths = (params.get("net_options") or {}).get("widths", ())
        rates = [params.get(name) for name in ("learning_rate", "weight_decay")]
        network = " ".join([str(params.get("net", "none")), *map(str, widths)])
        row = TableRow.of(METHODS[method].title, network, *("none" if r is None else r for r in rates))
        if refusal := results["refusal"][i]:
            scores = [TableCell(text=_shortened(refusal, 60)), TableCell(text="not run")]
        else:
            mean, std = (float(results[f"{part}_test_score"][i]) for part in ("mean", "std"))
            scores = [TableCell(mean, std)]
            scores.append(TableCell(100 * float(results["mean_test_covering_rate"][i])))
        rows.append(TableRow(row.title, [*row.cells, *scores], method))
    columns = [
        _text("network"),
        Column("learning rate", decimals=3),
        Column("weight decay", decimals=4),
        Column(criterion, decimals=4, best="highest"),
        Column("among candidates (%)"),
    ]
    caption = f"Mean (std) over {fitted.search.n_splits_} folds, on the candidate sets of held-out rows."
    table = _table("method", columns, rows, caption, "Markdown")
    heading = f"Chosen without true labels among {plural(len(rows), 'setting')}"
    return PageSection(heading, table, f"The best setting is the one {best}")


def _options_sections(options: Mapping[str, Any]) -> list[PageSection]:
    if not options:
        return []
    rows = [
        TableRow.of(name, ", ".join(map(str, value)) if isinstance(value, list) else str(value))
        for name, value in options.items()
    ]
    table = _table("option", [_text("value", wraps=True)], rows, "Options of this fit.")
    text = "`options.json` in the model folder repeats the fit: `propall fit FILE --options options.json`."
    return [PageSection("How to repeat this fit", table, text)]


# The resolved labels.


def _resolution_sections(resolved: ResolvedTable) -> list[PageSection]:
    return [
        *_trust_sections(resolved.resolution, _answered_by(resolved)),
        _confidence_section(resolved),
        *_review_sections(resolved),
        *_confusion_sections(resolved.resolution, resolved.is_ambiguous),
        _count_section(resolved),
        *annotator_sections(resolved),
    ]


def _trust_sections(resolution: Resolution, answered_by: str) -> list[PageSection]:
    """What can be checked without true labels: whether the most probable of all classes is a candidate."""
    informative = ~resolution.candidates.all(1)
    if not informative.any():
        return []
    probabilities = resolution.probabilities[informative]
    candidates = resolution.candidates[informative]
    is_candidate = candidates[np.arange(len(candidates)), probabilities.argmax(1)]
    stated = probabilities.max(1)
    place = _bin(stated)
    bins = [
        ReliabilityBin(
            name,
            int((place == i).sum()),
            100 * float(stated[place == i].mean()),
            100 * float(is_candidate[place == i].mean()),
        )
        for i, name in enumerate(_bin_names())
        if (place == i).any()
    ]
    guessing = Reference("random guessing", 100 * float(candidates.mean()), "chance")
    caption = (
        "Bars: how often the most probable of all classes is a candidate. Marks: its mean probability, which "
        "the bars should reach. Below: the number of rows."
    )
    chart = ReliabilityChart(caption, bins, "is a candidate (%)", [guessing])
    gap = sum(each.rows * max(0.0, each.stated - each.observed) for each in bins) / (100 * len(stated))
    heading = "Predictions are candidates at least as often as their probabilities say"
    if gap > TOLERATED_GAP:
        heading = f"The probabilities are too high by {format_number(100 * gap, 1)} points on average"
    text = (
        f"{answered_by} A class predicted with probability p should be a candidate in at least a "
        "fraction p of the rows. Wrong classes can be candidates too, so this reveals overconfidence but "
        "does not rule it out: `propall evaluate` measures accuracy where true labels are known."
    )
    return [PageSection(heading, chart, text, label="Can I trust this?")]


def _bin_names() -> list[str]:
    return [f"{low:g}–{high:g}" for low, high in pairwise(BINS)]


def _count_section(resolved: ResolvedTable) -> PageSection:
    counts = resolved.counts()
    rows = [TableRow.of(c.name, c.before, c.after, c.probability if c.after else "no row") for c in counts]
    columns = [_count("only label before"), _count("resolved"), Column("mean probability")]
    caption = "Rows with only this label, and rows resolved to it."
    table = _table("label", columns, rows, caption, "Markdown")
    before, after = sum(row.before for row in counts), sum(row.after for row in counts)
    return PageSection(f"{plural(before, 'row')} had one label before, {after} have one now", table)


def _confidence_section(resolved: ResolvedTable) -> PageSection:
    probability = resolved.probability[resolved.is_ambiguous]
    counts = np.bincount(_bin(probability), minlength=len(BINS) - 1)
    among = "" if resolved.any_class_is_possible else " among the candidates"
    caption = f"Ambiguous rows by the probability of the resolved label{among}."
    chart = BarChart(caption, list(zip(_bin_names(), counts.tolist(), strict=True)), "probability", "rows")
    share = 100 * resolved.sure / max(1, resolved.ambiguous)
    heading = f"{format_percent(share, 0)} of the ambiguous rows are resolved with high probability"
    return PageSection(heading, chart)


def _bin(probabilities: NDArray[np.floating]) -> NDArray[np.int64]:
    bins: NDArray[np.int64] = np.searchsorted(BINS, probabilities, side="right") - 1
    return bins.clip(0, len(BINS) - 2)


def _answered_by(resolved: ResolvedTable) -> str:
    if resolved.unfinished:
        return "The fit was interrupted: the model is overconfident on rows it was fitted on."
    if resolved.seen.all():
        how = "at a temperature fitted to the candidate sets of the other rows"
        return f"Each row is resolved by models that did not see it, {how}."
    return "Training rows are resolved by models that did not see them, all other rows by the final model."


def _confusion_sections(resolution: Resolution, is_ambiguous: NDArray[np.bool_]) -> list[PageSection]:
    rows = is_ambiguous & ~resolution.candidates.all(1)
    if not rows.any():
        return []
    mask, probabilities = resolution.candidates[rows], resolution.among_candidates[rows]
    column = resolution.column[rows]
    k = len(resolution.classes)
    left, pairs = np.zeros((k, k)), np.zeros((k, k))
    for i in range(k):
        left[i], pairs[i] = probabilities[column == i].sum(0), mask[column == i].sum(0)
    np.fill_diagonal(left, 0.0)
    np.fill_diagonal(pairs, 0.0)
    kept = np.sort(np.argsort(-(pairs.sum(0) + pairs.sum(1)), kind="stable")[:CLASSES])
    share = np.divide(left, pairs, out=np.zeros_like(left), where=pairs > 0)
    names = [_shortened(str(resolution.classes[i]), 18) for i in kept]
    grid = Grid(names, names, (100 * share[np.ix_(kept, kept)]).tolist())
    caption = "Mean probability of another candidate in rows resolved to a label."
    titles = ("resolved to", "other candidate", "probability (%)")
    chart = HeatMap(caption, grid, *titles, decimals=0, square=True)
    # A pair in one or two rows may look hard by chance.
    frequent = np.where(pairs >= min(FEW, pairs.max()), share, 0.0)
    one, other = (resolution.classes[i] for i in np.unravel_index(int(frequent.argmax()), frequent.shape))
    hardest = f"{one} and {other} are hardest to tell apart"
    text = "The stronger the color, the harder it is for the model to choose between the two candidates."
    return [PageSection(hardest if frequent.max() > 0 else "No two labels are confused", chart, text)]


def _review_sections(resolved: ResolvedTable) -> list[PageSection]:
    resolution, images = resolved.resolution, resolved.images
    ranked, n_worth = _rows_to_review(resolved)
    first = min(n_worth, REVIEWED_ROWS)
    frame = resolved.raw.frame.iloc[resolved.labeled.rows[ranked[:SEARCHED_ROWS]]]
    shown_columns = [name for name in frame.columns if images is None or name != images.name]
    names = [str(name) for name in resolution.classes]
    texts: list[tuple[str, str]] = []  # candidates and contents
    room = SEARCHED_CHARACTERS
    for i, contents in zip(ranked, _row_texts(frame[shown_columns]), strict=False):
        candidates = _shortened(_format_candidates(resolution.candidates[i], names), ROW_CHARACTERS // 8)
        texts.append((candidates, contents))
        room -= len(candidates) + len(contents) + 80
        if room < 0 and len(texts) >= REVIEWED_ROWS:
            break
    kept = ranked[: len(texts)]
    shown_rows = Resolution(
        resolution.log_probabilities[kept], resolution.candidates[kept], resolution.classes
    )
    rows = [
        TableRow.of(
            str(int(place) + 1), str(label), probability, doubt, texts[n][0], alternative, more=texts[n][1]
        )
        for n, (place, label, probability, doubt, alternative) in enumerate(
            zip(
                frame.index[: len(kept)],
                shown_rows.label,
                resolved.probability[kept].tolist(),
                resolved.doubt[kept].tolist(),
                map(format_alternatives, shown_rows.alternatives(1)),
                strict=True,
            )
        )
    ]
    columns = [_text("resolved to"), Column("probability"), Column("doubt"), _text("candidates", wraps=True)]
    columns += [_text("alternative")]
    condition = "" if resolved.any_class_is_possible else ", if one of the candidates is correct"
    caption = (
        f"Most doubtful rows first. Probability: of the label{condition}. Doubt: "
        "the probability that none of them is. Alternative: the most probable other class, candidate or not. "
        "Rows are counted from 1, without the header."
    )
    shown = max(1, first or min(REVIEWED_ROWS, len(rows)))
    table = ReportTable(columns, rows, caption, "row", formats=("CSV",), first=shown, more_title="contents")
    blocks: list[ReportTable | ExampleSheet] = [table]
    if images is not None and first:
        blocks.insert(0, _image_sheet(resolved, images, ranked[: min(first, SHOWN_IMAGES)], names))
    heading = f"{plural(first, 'row')} to review first" if first else "No row stands out for review"
    text = "Reviewing these rows helps most: the model doubts all candidates or cannot choose between them."
    text = text if first else "The model neither doubts all candidates of a row nor hesitates between them."
    if len(rows) < len(ranked):
        text += f" The search covers the {len(rows)} most doubtful of {len(ranked)} rows."
    return [PageSection(heading, blocks, text)]


def _row_texts(frame: pd.DataFrame) -> list[str]:
    """The cells of each row as one text: names and categories first, then texts, then numbers."""
    columns: list[tuple[int, str, list[str]]] = []
    for position, name in enumerate(frame.columns):
        cells = [as_text(cell) for cell in frame.iloc[:, position]]
        is_number = pd.api.types.is_numeric_dtype(frame.dtypes.iloc[position])
        has_words = sum(len(cell.split()) >= 3 for cell in cells) > len(cells) / 2
        columns.append((2 if is_number else 1 if has_words else 0, str(name), cells))
    columns.sort(key=lambda column: column[0])
    return [
        _shortened(
            " · ".join(f"{name}: {cells[row]}" for _, name, cells in columns if cells[row]), ROW_CHARACTERS
        )
        for row in range(len(frame))
    ]


def _format_candidates(candidates: NDArray[np.bool_], names: Sequence[str]) -> str:
    """The candidates or the excluded labels, whichever is shorter."""
    if candidates.all():
        return "any"
    inside, outside = (
        [names[i] for i in np.flatnonzero(mask).tolist()] for mask in (candidates, ~candidates)
    )
    return " | ".join(inside) if len(inside) <= len(outside) else f"all but {', '.join(outside)}"


def _rows_to_review(resolved: ResolvedTable) -> tuple[NDArray[np.int64], int]:
    """All rows by how much a review would tell, doubted sets first, and the number of rows worth one."""
    resolution = resolved.resolution
    informative = ~resolution.candidates.all(1)
    unclear = 1 - resolved.margin
    value = np.where(informative, np.maximum(resolved.doubt, 0.5 * unclear), 0.4 * unclear)
    order = np.argsort(-value, kind="stable")
    return order, int((value > 0.05).sum())


def _image_sheet(
    resolved: ResolvedTable, images: ImageColumn, rows: NDArray[np.int64], names: Sequence[str]
) -> ExampleSheet:
    frame = resolved.raw.frame.iloc[resolved.labeled.rows].iloc[rows]
    pixels = images.pixels(frame, resolved.raw.folder).transpose(0, 2, 3, 1)
    masks = resolved.resolution.candidates[rows]
    candidates = [[names[j] for j in np.flatnonzero(mask).tolist()] for mask in masks]
    labels = [str(name) for name in resolved.resolution.label[rows]]
    caption = "The images of these rows with their candidates and resolved labels."
    uint8 = np.round(255 * pixels).astype(np.uint8)
    return ExampleSheet(caption, uint8, candidates, labels, truth=[None] * len(rows))


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"

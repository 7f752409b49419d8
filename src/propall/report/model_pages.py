"""The report pages of `propall fit` and `propall resolve`."""

from collections.abc import Hashable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from propall import __version__
from propall.labels.parsing import as_text
from propall.methods import METHODS
from propall.report.charts import BarChart, ExampleSheet, Grid, HeatMap, Line, LineChart
from propall.report.numbers import format_number, format_percent
from propall.report.page import KeyFigure, Page, Section
from propall.report.tables import Column, ReportTable, TableCell, TableRow
from propall.tables.features import Features
from propall.tables.fitting import Fitted, guessing_rate
from propall.tables.images import ImageColumn
from propall.tables.reading import ACTIONS, DataNote
from propall.tables.resolution import SURE, ResolvedTable, resolve_training_rows
from propall.tables.writing import format_alternatives
from propall.wording import duration, plural

#: Maximum number of classes in a matrix, of rows to review, and of images shown.
CLASSES, REVIEWED_ROWS, SHOWN_IMAGES = 15, 30, 24
#: Two labels must be candidates together in this many rows before they are called hard to tell apart.
FEW = 5
#: Bin edges of probabilities.
BINS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
#: Short name and description of each model selection criterion.
CRITERION_WORDS = {
    "weighted_covering_rate": (
        "covering rate",
        "The best setting is the one whose held-out predictions are most often among the candidates. Small "
        "candidate sets count more, because chance hits them less often.",
    ),
    "covering_rate": (
        "covering rate",
        "The best setting is the one whose held-out predictions are most often among the candidates.",
    ),
    "approximated_accuracy": (
        "approximated accuracy",
        "The best setting is the one with the highest probability of held-out predictions that are "
        "candidates.",
    ),
    "candidate_log_likelihood": (
        "log-likelihood",
        "The best setting is the one under which the held-out candidate sets are most likely.",
    ),
    "tempered_log_likelihood": (
        "log-likelihood",
        "The best setting is the one under which the held-out candidate sets are most likely after "
        "temperature scaling.",
    ),
}


def write_fit_page(path: str | Path, fitted: Fitted) -> Path:
    """Write the page of a fit and return its path."""
    return fit_page(fitted).write(path)


def write_resolve_page(path: str | Path, resolved: ResolvedTable) -> Path:
    """Write the page of resolved labels and return its path."""
    return resolve_page(resolved).write(path)


def fit_page(fitted: Fitted) -> Page:
    """Build the page of a fit: the data, the chosen settings, confused labels, and rows to review."""
    resolved, account = resolve_training_rows(fitted), fitted.model.account
    covering = 100 * account["held_out"]["covering_rate"]
    n_classes = len(account["classes"])
    finding = (
        f"{plural(account['members'], 'network')} trained on {account['used']} rows with "
        f"{format_number(account['mean_candidates'], 1)} candidate labels per row; "
        f"{format_percent(covering, 1)} of the held-out predictions are among the candidates."
    )
    figures = [
        KeyFigure(
            format_percent(covering, 1),
            "of held-out predictions are candidates",
            f"random guessing: {format_percent(100 * guessing_rate(account), 0)}; {account['folds']} folds",
        ),
        KeyFigure(str(account["used"]), f"of {account['rows']} rows used", _n_dropped(fitted.notes)),
        KeyFigure(format_number(account["mean_candidates"]), f"candidates of {n_classes} classes", "mean"),
        _doubted_figure(resolved),
        KeyFigure(duration(fitted.seconds), "to search and fit", fitted.hardware),
    ]
    origin = _origin(account)
    sections = [
        *_table_sections(resolved, fitted.model.features, origin),
        *_curve_sections(resolved, origin),
        _search_section(fitted, origin),
        *_resolution_sections(resolved, origin),
        *_options_sections(account.get("options", {}), origin),
    ]
    return Page(f"A model of {account['source']}", finding, figures, sections)


def resolve_page(resolved: ResolvedTable) -> Page:
    """Build the page of resolved labels: how sure they are, and rows to review."""
    n, ambiguous = len(resolved.resolution), resolved.ambiguous
    share = 100 * resolved.sure / max(1, ambiguous)
    finding = (
        f"Of {n} rows, {ambiguous} had more than one candidate label; {resolved.sure} of these "
        f"({format_percent(share, 0)}) are resolved with a probability of at least {SURE}."
    )
    figures = [
        KeyFigure(str(ambiguous), "ambiguous rows resolved", f"of {n}"),
        KeyFigure(str(resolved.sure), f"with a probability of at least {SURE}"),
        _doubted_figure(resolved),
        KeyFigure(
            str(int(resolved.seen.sum())),
            "rows of the training data",
            "unknown: the fit was interrupted"
            if resolved.unfinished
            else "resolved by models that did not see them",
        ),
    ]
    origin = _origin({**resolved.account, "source": resolved.raw.source})
    sections = [
        *_resolution_sections(resolved, origin),
        *_table_sections(resolved, None, origin),
        *_curve_sections(resolved, origin),
    ]
    return Page(f"Labels for {resolved.raw.source}", finding, figures, sections)


def _origin(account: Mapping[str, object]) -> dict[str, str]:
    fields = {
        "data": account.get("source", "unknown"),
        "folds": account.get("folds"),
        "seed": account.get("seed"),
    }
    known = {name: str(value) for name, value in fields.items() if value is not None}
    return {**known, "version": __version__, "date": datetime.now(UTC).date().isoformat()}


def _doubted_figure(resolved: ResolvedTable) -> KeyFigure:
    rate = resolved.consensus.rate
    note = "" if rate is None else f"estimated for {format_percent(100 * rate, 1)} of all candidate sets"
    return KeyFigure(str(resolved.doubted), "rows whose candidates are probably all wrong", note)


def _n_dropped(notes: Sequence[DataNote]) -> str:
    rows = sum(len(note.rows) for note in notes if note.action == "row dropped")
    return f"{rows} left out" if rows else "none left out"


def _row(title: str, *values: float | str | None) -> TableRow:
    cells = [TableCell(text=value) if isinstance(value, str) else TableCell(value) for value in values]
    return TableRow(title, cells)


# The table.


def _table_sections(
    resolved: ResolvedTable, features: Features | None, origin: Mapping[str, str]
) -> list[Section]:
    sizes, rows = np.unique(resolved.resolution.candidates.sum(1), return_counts=True)
    chart = BarChart(
        "Candidate sets by size.",
        [(str(size), int(count)) for size, count in zip(sizes, rows, strict=True)],
        "candidates",
        "rows",
    )
    single = len(resolved.resolution) - resolved.ambiguous
    written = ", ".join(f"{kind} {count}" for kind, count in resolved.labeled.kind_counts.items())
    heading = f"{plural(single, 'row')} with one label, {resolved.ambiguous} with several candidates"
    sections = [Section(heading, chart, f"As written in the file: {written}.", origin)]
    if features is not None:
        inputs = features.describe()
        table = ReportTable(
            [Column("kind", kind="text"), Column("encoding", kind="text")],
            [_row(*described) for described in inputs],
            "Inputs of the model.",
            "column",
            formats=("CSV",),
        )
        sections.append(Section(f"The model uses {plural(len(inputs), 'column')}", table, provenance=origin))
    if resolved.notes:
        sections.append(_note_section(resolved.notes, origin))
    return sections


def _note_section(notes: Sequence[DataNote], origin: Mapping[str, str]) -> Section:
    by_action = sorted(notes, key=lambda note: ACTIONS.index(note.action))
    table = ReportTable(
        [
            Column("action", kind="text"),
            Column("rows", decimals=0),
            Column("details", kind="text", wraps=True),
        ],
        [
            _row(note.kind, note.action, len(note.rows) or None, _shortened(str(note), 200))
            for note in by_action
        ],
        "Problems and peculiarities of the file; rows are counted from 1, without the header.",
        "what",
        formats=("CSV",),
    )
    changes = sum(note.action in ("row dropped", "repaired") for note in notes)
    heading = (
        f"{plural(changes, 'problem')} repaired or left out" if changes else "Nothing had to be repaired"
    )
    return Section(heading, table, provenance=origin)


# The fit.


def _curve_sections(resolved: ResolvedTable, origin: Mapping[str, str]) -> list[Section]:
    curves = resolved.curves
    if curves is None:
        return []
    lines = [Line.over_seeds(name, (100 * values).tolist()) for name, values in curves.covering.items()]
    members = len(next(iter(curves.covering.values()))[0])
    bands = f"; bands show one standard deviation over {members} networks" if members > 1 else ""
    chart = LineChart(
        f"Predictions among the candidates after each epoch{bands}.",
        curves.epochs,
        lines,
        y_title="among the candidates (%)",
    )
    trained, held_out = (line.mean[-1] for line in lines)
    gap = trained - held_out
    heading = (
        "The model generalizes to held-out rows"
        if gap < 2
        else f"Held-out predictions are {format_number(gap, 1)} points worse than on training rows"
    )
    text = "The chosen setting, trained again on all folds but one. No true labels are used."
    return [Section(heading, chart, text, origin)]


def _search_section(fitted: Fitted, origin: Mapping[str, str]) -> Section:
    results = fitted.search.cv_results_
    criterion, description = CRITERION_WORDS[str(fitted.model.account["criterion"])]
    rows = []
    for i in np.argsort(results["rank_test_score"], kind="stable"):
        params = results["params"][i]
        method = params["method"] if isinstance(params["method"], str) else params["method"].name
        widths = (params.get("net_options") or {}).get("widths", ())
        rates = [params.get(name) for name in ("learning_rate", "weight_decay")]
        cells = [
            TableCell(text=" ".join([str(params.get("net", "none")), *map(str, widths)])),
            *(TableCell(rate) if rate is not None else TableCell(text="none") for rate in rates),
        ]
        refusal = results["refusal"][i]
        if refusal:
            cells += [TableCell(text=_shortened(refusal, 60)), TableCell(text="not run")]
        else:
            cells.append(TableCell(float(results["mean_test_score"][i]), float(results["std_test_score"][i])))
            cells.append(TableCell(100 * float(results["mean_test_covering_rate"][i])))
        rows.append(TableRow(METHODS[method].title, cells, method))
    table = ReportTable(
        [
            Column("network", kind="text"),
            Column("learning rate", decimals=3),
            Column("weight decay", decimals=4),
            Column(criterion, decimals=4, best="highest"),
            Column("among candidates (%)"),
        ],
        rows,
        f"Mean (std) over {fitted.search.n_splits_} folds, on the candidate sets of held-out rows.",
        "method",
        formats=("CSV", "Markdown"),
    )
    heading = f"Chosen without true labels among {plural(len(rows), 'setting')}"
    return Section(heading, table, description, origin)


def _options_sections(options: Mapping[str, Any], origin: Mapping[str, str]) -> list[Section]:
    if not options:
        return []
    table = ReportTable(
        [Column("value", kind="text", wraps=True)],
        [
            _row(name, ", ".join(map(str, value)) if isinstance(value, list) else str(value))
            for name, value in options.items()
        ],
        "Options of this fit.",
        "option",
        formats=("CSV",),
    )
    text = "`options.json` in the model folder repeats the fit: `propall fit FILE --options options.json`."
    return [Section("How to repeat this fit", table, text, origin)]


# The resolved labels.


def _resolution_sections(resolved: ResolvedTable, origin: Mapping[str, str]) -> list[Section]:
    sections = [_count_section(resolved, origin), _confidence_section(resolved, origin)]
    if resolved.annotators:
        sections.append(_annotator_section(resolved, origin))
    return [*sections, *_confusion_sections(resolved, origin), *_review_sections(resolved, origin)]


def _count_section(resolved: ResolvedTable, origin: Mapping[str, str]) -> Section:
    counts = resolved.counts()
    table = ReportTable(
        [
            Column("certain before", decimals=0),
            Column("resolved", decimals=0),
            Column("mean probability", decimals=2),
        ],
        [_row(row.name, row.before, row.after, row.probability if row.after else "no row") for row in counts],
        "Rows with only this label, and rows resolved to it.",
        "label",
        formats=("CSV", "Markdown"),
    )
    before, after = sum(row.before for row in counts), sum(row.after for row in counts)
    heading = f"{plural(before, 'row')} had one label before, {after} have one now"
    return Section(heading, table, provenance=origin)


def _confidence_section(resolved: ResolvedTable, origin: Mapping[str, str]) -> Section:
    resolution = resolved.resolution
    rows = np.bincount(_bin(resolution.probability[resolved.is_ambiguous]), minlength=len(BINS) - 1)
    names = [f"{low:g}–{high:g}" for low, high in pairwise(BINS)]
    chart = BarChart(
        "Ambiguous rows by the probability of the resolved label among the candidates.",
        list(zip(names, rows.tolist(), strict=True)),
        "probability",
        "rows",
    )
    # Whether the most probable of all classes is a candidate can be checked without true labels.
    informative = ~resolution.candidates.all(1)
    probabilities, candidates = resolution.probabilities[informative], resolution.candidates[informative]
    is_candidate = candidates[np.arange(len(candidates)), probabilities.argmax(1)]
    bins = _bin(probabilities.max(1))
    table = ReportTable(
        [Column("rows", decimals=0), Column("is a candidate (%)")],
        [
            _row(name, int((bins == i).sum()), 100 * float(is_candidate[bins == i].mean()))
            for i, name in enumerate(names)
            if (bins == i).any()
        ],
        "The most probable of all classes: its probability, and how often it is a candidate.",
        "probability",
        formats=("CSV",),
    )
    text = f"{_answered_by(resolved)} A class of probability p should be a candidate in a share p or more."
    share = 100 * resolved.sure / max(1, resolved.ambiguous)
    heading = f"{format_percent(share, 0)} of the ambiguous rows are resolved with high probability"
    return Section(heading, [chart, table], text, origin)


def _bin(probabilities: NDArray[np.floating]) -> NDArray[np.int64]:
    bins: NDArray[np.int64] = np.clip(
        np.searchsorted(BINS, probabilities, side="right") - 1, 0, len(BINS) - 2
    )
    return bins


def _answered_by(resolved: ResolvedTable) -> str:
    if resolved.unfinished:
        return "The fit was interrupted: the model is overconfident on rows it was fitted on."
    if resolved.seen.all():
        return (
            "Each row is resolved by models that did not see it, at a temperature fitted to the candidate "
            "sets of the other rows."
        )
    return "Training rows are resolved by models that did not see them, all other rows by the final model."


def _annotator_section(resolved: ResolvedTable, origin: Mapping[str, str]) -> Section:
    annotators = sorted(resolved.annotators, key=lambda annotator: -annotator[1])
    table = ReportTable(
        [Column("estimated accuracy (%)", decimals=1)],
        [_row(name, 100 * accuracy) for name, accuracy in annotators],
        "Estimated without true labels, from the model and the other annotators' answers.",
        "annotator",
        formats=("CSV",),
    )
    name, accuracy = annotators[0]
    heading = (
        f"{name} is the most accurate annotator, with {format_percent(100 * accuracy, 0)} correct answers"
        if len(annotators) > 1
        else f"{format_percent(100 * accuracy, 0)} of the answers are estimated to be correct"
    )
    text = "ResolvedTable labels combine all answers, weighted by this accuracy, with the model's prediction."
    return Section(heading, table, text, origin)


def _confusion_sections(resolved: ResolvedTable, origin: Mapping[str, str]) -> list[Section]:
    resolution = resolved.resolution
    rows = resolved.is_ambiguous & ~resolution.candidates.all(1)
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
    chart = HeatMap(
        "Mean probability of another candidate in rows resolved to a label.",
        Grid(names, names, (100 * share[np.ix_(kept, kept)]).tolist()),
        "resolved to",
        "other candidate",
        "probability (%)",
        decimals=0,
        square=True,
    )
    # A pair in one or two rows may look hard by chance.
    frequent = np.where(pairs >= min(FEW, pairs.max()), share, 0.0)
    one, other = (
        str(resolution.classes[i]) for i in np.unravel_index(int(frequent.argmax()), frequent.shape)
    )
    heading = (
        f"{one} and {other} are hardest to tell apart" if frequent.max() > 0 else "No two labels are confused"
    )
    text = "The stronger the color, the harder it is for the model to choose between the two candidates."
    return [Section(heading, chart, text, origin)]


def _review_sections(resolved: ResolvedTable, origin: Mapping[str, str]) -> list[Section]:
    resolution, images = resolved.resolution, resolved.images
    worth = _rows_to_review(resolved)[:REVIEWED_ROWS]
    if not len(worth):
        return []
    alternatives = resolution.alternatives(1)
    frame = resolved.raw.frame.iloc[resolved.labeled.rows]
    shown_columns = [name for name in frame.columns if images is None or name != images.name]
    names = [str(name) for name in resolution.classes]
    rows = [
        _row(
            str(int(frame.index[i]) + 1),
            _shortened(_format_candidates(resolution.candidates[i], names), 36),
            str(resolution.label[i]),
            float(resolution.probability[i]),
            float(resolved.doubt[i]),
            format_alternatives(alternatives[i]),
            _shortened(_format_cells(frame.iloc[i][shown_columns].map(as_text).to_dict()), 120),
        )
        for i in worth
    ]
    table = ReportTable(
        [
            Column("candidates", kind="text"),
            Column("resolved to", kind="text"),
            Column("probability"),
            Column("doubt"),
            Column("alternative", kind="text"),
            Column("contents", kind="text", wraps=True),
        ],
        rows,
        "Most doubtful rows first. Probability: of the label, if one of the candidates is correct. Doubt: "
        "the probability that none of them is. Alternative: the most probable other class, candidate or not. "
        "Rows are counted from 1, without the header.",
        "row",
        formats=("CSV",),
    )
    text = "Reviewing these rows helps most: the model doubts all candidates or cannot choose between them."
    heading = f"{plural(len(rows), 'row')} to review first"
    blocks: list[ReportTable | ExampleSheet] = [table]
    if images is not None:
        blocks.insert(0, _image_sheet(resolved, images, worth[:SHOWN_IMAGES], names))
    return [Section(heading, blocks, text, origin)]


def _format_cells(cells: Mapping[Hashable, str]) -> str:
    """The texts of a row, or all its cells if it has no text."""
    texts = {name: value for name, value in cells.items() if len(value.split()) >= 3}
    if len(texts) == 1:
        return next(iter(texts.values()))
    return ", ".join(f"{name} {value}" for name, value in (texts or cells).items() if value)


def _format_candidates(candidates: NDArray[np.bool_], names: Sequence[str]) -> str:
    """The candidates or the excluded labels, whichever is shorter."""
    inside = [name for name, is_candidate in zip(names, candidates, strict=True) if is_candidate]
    outside = [name for name in names if name not in inside]
    if not outside:
        return "any"
    return " | ".join(inside) if len(inside) <= len(outside) else f"all but {', '.join(outside)}"


def _rows_to_review(resolved: ResolvedTable) -> NDArray[np.int64]:
    """Rank rows by how much a review would tell: doubted candidate sets first, then unclear ones."""
    resolution = resolved.resolution
    informative = ~resolution.candidates.all(1)
    unclear = 1 - resolution.margin
    value = np.where(informative, np.maximum(resolved.doubt, 0.5 * unclear), 0.4 * unclear)
    order = np.argsort(-value, kind="stable")
    return order[value[order] > 0.05]


def _image_sheet(
    resolved: ResolvedTable, images: ImageColumn, rows: NDArray[np.int64], names: Sequence[str]
) -> ExampleSheet:
    frame = resolved.raw.frame.iloc[resolved.labeled.rows].iloc[rows]
    pixels = images.pixels(frame, resolved.raw.folder).transpose(0, 2, 3, 1)
    return ExampleSheet(
        "The images of these rows with their candidates and resolved labels.",
        np.round(255 * pixels).astype(np.uint8),
        [
            [names[j] for j in np.flatnonzero(candidates).tolist()]
            for candidates in resolved.resolution.candidates[rows]
        ],
        [str(name) for name in resolved.resolution.label[rows]],
        [None] * len(rows),
    )


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"

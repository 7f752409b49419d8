"""The pages of a fit and a resolve: what a person's file holds, what was learnt, what to look at again."""

from collections.abc import Hashable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from propall import __version__
from propall.methods import METHODS
from propall.provenance import hardware
from propall.report.charts import BarChart, ExampleSheet, Grid, HeatMap, Line, LineChart
from propall.report.numbers import format_number, format_percent
from propall.report.page import KeyFigure, Page, Section
from propall.report.tables import Column, ReportTable, TableCell, TableRow
from propall.tables.features import Features
from propall.tables.fitting import Fitted, guessing_rate
from propall.tables.images import ImageColumn
from propall.tables.label_columns import as_text
from propall.tables.reading import ACTIONS, Remark
from propall.tables.resolution import SURE, Resolved, resolved_by_fit
from propall.tables.writing import ranked
from propall.wording import duration, plural

#: Classes in a matrix, rows in the list of those worth a second look, images on a sheet.
CLASSES, SECOND_LOOKS, SHOWN_IMAGES = 15, 30, 24
#: Rows in which two labels stand together at least before they are called hard to tell apart.
FEW = 5
#: Limits of the bins of probabilities.
BINS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
#: What a criterion of the choice is called, and what it prefers.
CRITERION_WORDS = {
    "weighted_covering_rate": (
        "covering rate",
        "Best is the setting whose predictions for rows held out are candidates most often; a small set "
        "counts more, because chance hits it less.",
    ),
    "covering_rate": (
        "covering rate",
        "Best is the setting whose predictions for rows held out are candidates most often.",
    ),
    "approximated_accuracy": (
        "approximated accuracy",
        "Best is the setting that is surest of predictions which are candidates, on rows held out.",
    ),
    "candidate_log_likelihood": (
        "log-likelihood",
        "Best is the setting under which the candidate sets of rows held out are likeliest.",
    ),
    "tempered_log_likelihood": (
        "log-likelihood",
        "Best is the setting under which the candidate sets of rows held out are likeliest, however sure it "
        "says it is.",
    ),
}


def write_fit_page(path: str | Path, fitted: Fitted) -> Path:
    """Write the page of a fit and hand back where it is."""
    return fit_page(fitted).write(path)


def write_resolve_page(path: str | Path, resolved: Resolved) -> Path:
    """Write the page of a resolve and hand back where it is."""
    return resolve_page(resolved).write(path)


def fit_page(fitted: Fitted) -> Page:
    """What was in the file, how it was learnt, which labels are confused, and what to look at again."""
    resolved, account = resolved_by_fit(fitted), fitted.model.account
    covering = 100 * account["held_out"]["covering_rate"]
    finding = (
        f"From {account['used']} rows with {format_number(account['mean_candidates'], 1)} candidate labels "
        f"each, {plural(account['members'], 'network')} learnt to tell {len(account['classes'])} classes "
        f"apart; of what they predict for rows they had not seen, {format_percent(covering, 1)} is among the "
        "candidates."
    )
    figures = [
        KeyFigure(
            format_percent(covering, 1),
            "of held-out predictions are candidates",
            f"guessing: {format_percent(100 * guessing_rate(account), 0)}; {account['folds']} folds",
        ),
        KeyFigure(str(account["used"]), f"of {account['rows']} rows used", _dropped(fitted.remarks)),
        KeyFigure(
            format_number(account["mean_candidates"]),
            f"candidates of {len(account['classes'])} classes",
            "mean",
        ),
        KeyFigure(str(resolved.doubted), "rows whose candidates are probably all wrong", _missing(resolved)),
        KeyFigure(duration(fitted.seconds), "to choose and to fit", hardware("cpu")),
    ]
    origin = _origin(account)
    sections = [
        *_file_sections(resolved, fitted.model.features, origin),
        *_curve_sections(resolved, origin),
        _settings(fitted, origin),
        *_resolution_sections(resolved, origin),
    ]
    return Page(f"A model of {account['source']}", finding, figures, sections)


def resolve_page(resolved: Resolved) -> Page:
    """What candidate sets resolve to, how sure that is, and what to look at again."""
    n, several = len(resolved.resolution), resolved.ambiguous
    share = 100 * resolved.sure / max(1, several)
    finding = (
        f"Of {n} rows {several} had more than one candidate label; {resolved.sure} of these "
        f"({format_percent(share, 0)}) resolve to one of them with a probability of {SURE} or more."
    )
    figures = [
        KeyFigure(str(several), "ambiguous rows resolved", f"of {n}"),
        KeyFigure(str(resolved.sure), f"with a probability of {SURE} or more"),
        KeyFigure(str(resolved.doubted), "rows whose candidates are probably all wrong", _missing(resolved)),
        KeyFigure(
            str(int(resolved.seen.sum())),
            "rows the model was fitted on",
            "answered by models that had not seen them"
            if not resolved.unfinished
            else "unknown: the fit was interrupted",
        ),
    ]
    origin = _origin({**resolved.account, "source": resolved.sheet.source})
    sections = [
        *_resolution_sections(resolved, origin),
        *_file_sections(resolved, None, origin),
        *_curve_sections(resolved, origin),
    ]
    return Page(f"Labels for {resolved.sheet.source}", finding, figures, sections)


def _origin(account: Mapping[str, object]) -> dict[str, str]:
    named = {
        "data": account.get("source", "unknown"),
        "folds": account.get("folds"),
        "seed": account.get("seed"),
    }
    known = {name: str(value) for name, value in named.items() if value is not None}
    return {**known, "version": __version__, "date": datetime.now(UTC).date().isoformat()}


def _missing(resolved: Resolved) -> str:
    rate = resolved.consensus.rate
    return "" if rate is None else f"estimated for {format_percent(100 * rate, 1)} of all sets"


def _dropped(remarks: Sequence[Remark]) -> str:
    rows = sum(len(remark.rows) for remark in remarks if remark.action == "row dropped")
    return f"{rows} left out" if rows else "none left out"


# What was in the file.


def _file_sections(resolved: Resolved, features: Features | None, origin: Mapping[str, str]) -> list[Section]:
    sizes, rows = np.unique(resolved.resolution.candidates.sum(1), return_counts=True)
    chart = BarChart(
        "Candidate sets by their size.",
        [(str(size), int(count)) for size, count in zip(sizes, rows, strict=True)],
        "candidates",
        "rows",
    )
    alone = int((resolved.resolution.candidates.sum(1) == 1).sum())
    written = ", ".join(f"{kind} {count}" for kind, count in resolved.labelled.kinds.items())
    heading = f"{alone} rows name one label, {resolved.ambiguous} leave several possible"
    sections = [Section(heading, chart, f"As written in the file: {written}.", origin)]
    if features is not None:
        table = ReportTable(
            [Column("kind", kind="text"), Column("becomes", kind="text")],
            [
                TableRow(name, [TableCell(text=kind), TableCell(text=becomes)])
                for name, kind, becomes in features.says()
            ],
            "Columns the model learns from.",
            "column",
            formats=("CSV",),
        )
        used = plural(len(features.says()), "column")
        sections.append(Section(f"It learns from {used}", table, provenance=origin))
    if resolved.remarks:
        sections.append(_remarks(resolved.remarks, origin))
    return sections


def _remarks(remarks: Sequence[Remark], origin: Mapping[str, str]) -> Section:
    ranked_remarks = sorted(remarks, key=lambda remark: ACTIONS.index(remark.action))
    table = ReportTable(
        [Column("done", kind="text"), Column("rows", decimals=0), Column("which", kind="text", wraps=True)],
        [
            TableRow(
                remark.kind,
                [
                    TableCell(text=remark.action),
                    TableCell(len(remark.rows) or None),
                    TableCell(text=_shown(str(remark), 200)),
                ],
            )
            for remark in ranked_remarks
        ],
        "Everything that was odd about the file; rows are counted from 1 below the heading.",
        "what",
        formats=("CSV",),
    )
    changed = sum(remark.action in ("row dropped", "repaired") for remark in remarks)
    heading = (
        f"{plural(changed, 'thing')} had to be mended or left out" if changed else "Nothing had to be mended"
    )
    return Section(heading, table, provenance=origin)


# How it was learnt.


def _curve_sections(resolved: Resolved, origin: Mapping[str, str]) -> list[Section]:
    curves = resolved.curves
    if curves is None:
        return []
    lines = [Line.over_seeds(name, (100 * values).tolist()) for name, values in curves.covering.items()]
    members = len(next(iter(curves.covering.values()))[0])
    bands = f"; bands are one sample std over {members} networks" if members > 1 else ""
    chart = LineChart(
        f"Predictions among the candidates after each epoch{bands}.",
        curves.epochs,
        lines,
        y_title="among the candidates (%)",
    )
    seen, unseen = (line.mean[-1] for line in lines)
    gap = seen - unseen
    heading = (
        "What is learnt holds for rows not seen"
        if gap < 2
        else f"On rows not seen, predictions are {format_number(gap, 1)} points worse"
    )
    text = "The chosen setting, trained once more on all folds but one. No true label is used."
    return [Section(heading, chart, text, origin)]


def _settings(fitted: Fitted, origin: Mapping[str, str]) -> Section:
    results = fitted.search.cv_results_
    name, said = CRITERION_WORDS[str(fitted.model.account["criterion"])]
    order = np.argsort(results["rank_test_score"], kind="stable")
    rows = []
    for i in order:
        own = results["params"][i]
        method = own["method"] if isinstance(own["method"], str) else own["method"].name
        widths = (own.get("net_options") or {}).get("widths", ())
        rates = [own.get(name) for name in ("learning_rate", "weight_decay")]
        cells = [
            TableCell(text=" ".join([str(own.get("net", "none")), *map(str, widths)])),
            *(TableCell(rate) if rate is not None else TableCell(text="none") for rate in rates),
        ]
        refusal = results["refusal"][i]
        if refusal:
            cells += [TableCell(text=_shown(refusal, 60)), TableCell(text="not run")]
        else:
            cells.append(TableCell(float(results["mean_test_score"][i]), float(results["std_test_score"][i])))
            cells.append(TableCell(100 * float(results["mean_test_covering_rate"][i])))
        rows.append(TableRow(METHODS[method].title, cells, method))
    table = ReportTable(
        [
            Column("network", kind="text"),
            Column("learning rate", decimals=3),
            Column("weight decay", decimals=4),
            Column(name, decimals=4, best="highest"),
            Column("among candidates (%)"),
        ],
        rows,
        f"Mean (std) over {fitted.search.n_splits_} folds, on the candidate sets of the rows held out.",
        "method",
        formats=("CSV", "Markdown"),
    )
    heading = f"Chosen without true labels among {plural(len(rows), 'setting')}"
    return Section(heading, table, said, origin)


# What the candidates resolve to.


def _resolution_sections(resolved: Resolved, origin: Mapping[str, str]) -> list[Section]:
    sections = [_before_after(resolved, origin), _confidence(resolved, origin)]
    if resolved.annotators:
        sections.append(_annotators(resolved, origin))
    confused = _confusions(resolved, origin)
    return [*sections, *([confused] if confused else []), *_second_look(resolved, origin)]


def _before_after(resolved: Resolved, origin: Mapping[str, str]) -> Section:
    counts = resolved.counts()
    table = ReportTable(
        [
            Column("certain before", decimals=0),
            Column("resolved", decimals=0),
            Column("mean probability", decimals=2),
        ],
        [
            TableRow(
                row.name,
                [
                    TableCell(row.before),
                    TableCell(row.after),
                    TableCell(row.probability) if row.after else TableCell(text="no row"),
                ],
            )
            for row in counts
        ],
        "Rows that named a label alone, and rows that resolve to it.",
        "label",
        formats=("CSV", "Markdown"),
    )
    before, after = sum(row.before for row in counts), sum(row.after for row in counts)
    heading = f"{plural(before, 'row')} had one label before, {after} have one now"
    return Section(heading, table, provenance=origin)


def _confidence(resolved: Resolved, origin: Mapping[str, str]) -> Section:
    resolution = resolved.resolution
    several = resolution.candidates.sum(1) > 1
    place = np.clip(
        np.searchsorted(BINS, resolution.probability[several], side="right") - 1, 0, len(BINS) - 2
    )
    rows = np.bincount(place, minlength=len(BINS) - 1)
    names = [f"{low:g}–{high:g}" for low, high in pairwise(BINS)]
    chart = BarChart(
        "Ambiguous rows by the probability of their resolved label among the candidates.",
        list(zip(names, rows.tolist(), strict=True)),
        "probability",
        "rows",
    )
    # Over all classes, candidate or not: whether the likeliest is one is known without true labels.
    telling = ~resolution.candidates.all(1)
    stated = resolution.probabilities.max(1)[telling]
    best = resolution.probabilities.argmax(1)[telling]
    inside = resolution.candidates[telling][np.arange(len(best)), best]
    bins = np.clip(np.searchsorted(BINS, stated, side="right") - 1, 0, len(BINS) - 2)
    lines = []
    for i, name in enumerate(names):
        own = bins == i
        if own.any():
            lines.append(
                TableRow(name, [TableCell(int(own.sum())), TableCell(100 * float(inside[own].mean()))])
            )
    table = ReportTable(
        [Column("rows", decimals=0), Column("is a candidate (%)")],
        lines,
        "The likeliest of all classes: how sure the model is, and how often that class is a candidate.",
        "probability",
        formats=("CSV",),
    )
    text = f"{_who_answers(resolved)} A class of probability p should be a candidate in a share p or more."
    share = 100 * resolved.sure / max(1, resolved.ambiguous)
    return Section(
        f"{format_percent(share, 0)} of the ambiguous rows resolve surely", [chart, table], text, origin
    )


def _who_answers(resolved: Resolved) -> str:
    if resolved.unfinished:
        return "The fit was interrupted: of rows it has seen, the model is surer than it should be."
    if resolved.seen.all():
        return (
            "Every row is answered by models that had not seen it, at the temperature that suits the other "
            "rows' candidate sets."
        )
    return "Rows the model was fitted on are answered by models that had not seen them, the others by it."


def _annotators(resolved: Resolved, origin: Mapping[str, str]) -> Section:
    ranked_people = sorted(resolved.annotators, key=lambda own: -own[1])
    table = ReportTable(
        [Column("estimated to be right (%)", decimals=1)],
        [TableRow(name, [TableCell(100 * share)]) for name, share in ranked_people],
        "Estimated without true labels, from the model and the other answers.",
        "annotator",
        formats=("CSV",),
    )
    name, share = ranked_people[0]
    heading = (
        f"{name} is right most often, in {format_percent(100 * share, 0)} of answers"
        if len(ranked_people) > 1
        else f"Answers are right in {format_percent(100 * share, 0)}"
    )
    text = "Resolved labels weigh everybody's answers by this, together with what the model sees in the row."
    return Section(heading, table, text, origin)


def _confusions(resolved: Resolved, origin: Mapping[str, str]) -> Section | None:
    resolution = resolved.resolution
    named = resolution.candidates.sum(1) > 1
    named &= ~resolution.candidates.all(1)
    if not named.any():
        return None
    mask, chances = resolution.candidates[named], resolution.among_candidates[named]
    column = resolution.column[named]
    k = len(resolution.classes)
    left, pairs = np.zeros((k, k)), np.zeros((k, k))
    for i in range(k):
        own = column == i
        left[i], pairs[i] = chances[own].sum(0), mask[own].sum(0)
    np.fill_diagonal(left, 0.0)
    np.fill_diagonal(pairs, 0.0)
    kept = np.sort(np.argsort(-(pairs.sum(0) + pairs.sum(1)), kind="stable")[:CLASSES])
    share = np.divide(left, pairs, out=np.zeros_like(left), where=pairs > 0)
    names = [_shown(str(resolution.classes[i]), 18) for i in kept]
    grid = Grid(names, names, (100 * share[np.ix_(kept, kept)]).tolist())
    chart = HeatMap(
        "Mean probability left for another candidate in rows that resolve to a label.",
        grid,
        "resolved to",
        "other candidate",
        "probability (%)",
        decimals=0,
        square=True,
    )
    # A row or two would make a pair hard by chance.
    often = np.where(pairs >= min(FEW, pairs.max()), share, 0.0)
    one, other = (str(resolution.classes[i]) for i in np.unravel_index(int(often.argmax()), often.shape))
    heading = (
        f"{one} and {other} are hardest to tell apart" if often.max() > 0 else "No two labels are confused"
    )
    text = "The stronger the color, the harder the model finds it to choose between two candidates."
    return Section(heading, chart, text, origin)


def _second_look(resolved: Resolved, origin: Mapping[str, str]) -> list[Section]:
    resolution, images = resolved.resolution, resolved.images
    worth = _worth(resolved)[:SECOND_LOOKS]
    if not len(worth):
        return []
    alternatives = resolution.alternatives(1)
    frame = resolved.sheet.frame.iloc[resolved.labelled.rows]
    rest = [name for name in frame.columns if images is None or name != images.name]
    names = [str(name) for name in resolution.classes]
    rows = []
    for i in worth:
        rows.append(
            TableRow(
                str(int(frame.index[i]) + 1),
                [
                    TableCell(text=_shown(_set_in_words(resolution.candidates[i], names), 36)),
                    TableCell(text=str(resolution.label[i])),
                    TableCell(float(resolution.probability[i])),
                    TableCell(float(resolved.doubt[i])),
                    TableCell(text=ranked(alternatives[i])),
                    TableCell(text=_shown(_row_in_words(frame.iloc[i][rest].map(as_text).to_dict()), 120)),
                ],
            )
        )
    table = ReportTable(
        [
            Column("candidates", kind="text"),
            Column("resolved to", kind="text"),
            Column("probability"),
            Column("doubt"),
            Column("or else", kind="text"),
            Column("the row", kind="text", wraps=True),
        ],
        rows,
        "Most doubtful first. Probability: of the label, if one of the candidates is right. Doubt: the "
        "probability that none of them is. Or else: what else the model sees in the row, candidate or not. "
        "Rows are counted from 1 below the heading.",
        "row",
        formats=("CSV",),
    )
    text = "A person's minute is worth most on these rows: the model doubts the candidates, or cannot choose."
    heading = f"{plural(len(rows), 'row')} most worth a second look"
    blocks: list[ReportTable | ExampleSheet] = [table]
    if images is not None:
        blocks.insert(0, _sheet(resolved, images, worth[:SHOWN_IMAGES], names))
    return [Section(heading, blocks, text, origin)]


def _row_in_words(cells: Mapping[Hashable, str]) -> str:
    """The texts of a row; all its cells where it has none."""
    texts = {name: value for name, value in cells.items() if len(value.split()) >= 3}
    if len(texts) == 1:
        return next(iter(texts.values()))
    return ", ".join(f"{name} {value}" for name, value in (texts or cells).items() if value)


def _set_in_words(candidates: NDArray[np.bool_], names: Sequence[str]) -> str:
    """The shorter of what is possible and what is not."""
    inside = [name for name, held in zip(names, candidates, strict=True) if held]
    outside = [name for name in names if name not in inside]
    if not outside:
        return "any"
    return " | ".join(inside) if len(inside) <= len(outside) else f"all but {', '.join(outside)}"


def _worth(resolved: Resolved) -> NDArray[np.int64]:
    """Rows by how much a second look at them would tell: doubted sets first, then those left open."""
    resolution = resolved.resolution
    informative = ~resolution.candidates.all(1)
    open_question = 1 - resolution.margin
    value = np.where(informative, np.maximum(resolved.doubt, 0.5 * open_question), 0.4 * open_question)
    order = np.argsort(-value, kind="stable")
    return order[value[order] > 0.05]


def _sheet(
    resolved: Resolved, images: ImageColumn, rows: NDArray[np.int64], names: Sequence[str]
) -> ExampleSheet:
    frame = resolved.sheet.frame.iloc[resolved.labelled.rows].iloc[rows]
    pixels = images.pixels(frame, resolved.sheet.folder).transpose(0, 2, 3, 1)
    mask = resolved.resolution.candidates[rows]
    return ExampleSheet(
        "The images of these rows with their candidates, and the one they resolve to.",
        np.round(255 * pixels).astype(np.uint8),
        [[names[j] for j in np.flatnonzero(own).tolist()] for own in mask],
        [str(name) for name in resolved.resolution.label[rows]],
        [None] * len(rows),
    )


def _shown(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"

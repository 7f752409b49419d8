"""The report page of `propall consensus`, and the sections about annotators on other pages."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np

from propall import __version__
from propall.report.charts.bars import BarChart
from propall.report.charts.heat import Grid, HeatMap
from propall.report.numbers import format_number, format_percent
from propall.report.page import KeyFigure, Page, PageSection
from propall.report.tables import Column, ReportTable, TableRow
from propall.tables.crowd import EARLIER, CrowdReport, report_crowd
from propall.tables.reading import ACTIONS, DataNote
from propall.tables.resolution import SURE, ResolvedTable
from propall.wording import plural

#: Maximum number of annotators, confusions, questions and classes shown on a page.
ANNOTATORS, CONFUSIONS, QUESTIONS, CLASSES = 40, 20, 20, 15
#: Bin edges of the probability of a label.
BINS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)


def consensus_page(resolved: ResolvedTable) -> Page:
    """Build the page about labels that were estimated from annotators' answers alone."""
    report = report_crowd(resolved)
    assert report is not None
    best = resolved.consensus.posterior.probabilities.max(1)  # type: ignore[union-attr]
    n, sure = len(best), int((best >= SURE).sum())
    finding = (
        f"{format_percent(100 * float(best.mean()), 1)} of {n} labels are expected to be correct; {sure} "
        f"have a probability of at least {SURE}."
    )
    agreement = report.agreement
    figures = [
        KeyFigure(format_percent(100 * float(best.mean()), 1), "of the labels are expected to be correct"),
        KeyFigure(str(n), "rows with answers", f"{int(report.annotators['answers'].sum())} answers"),
        KeyFigure(str(len(report.annotators)), "annotators"),
        KeyFigure(
            "n/a" if np.isnan(agreement.alpha) else format_number(agreement.alpha),
            "Krippendorff's alpha",
            "agreement: 1 is perfect, 0 is chance",
        ),
        KeyFigure(str(n - sure), f"rows below a probability of {SURE}"),
    ]
    provenance = {
        "data": resolved.raw.source,
        "version": __version__,
        "date": datetime.now(UTC).date().isoformat(),
    }
    sections = [_confidence_section(best), *annotator_sections(resolved, report)]
    if resolved.notes:
        sections.append(note_section(resolved.notes))
    sections = [replace(section, provenance=provenance) for section in sections]
    return Page(f"Consensus of {resolved.raw.source}", finding, figures, sections)


def _confidence_section(best: np.ndarray) -> PageSection:
    counts, _ = np.histogram(best, BINS)
    names = [f"{low:g}–{high:g}" for low, high in pairwise(BINS)]
    chart = BarChart(
        "Rows by the probability of their label.",
        list(zip(names, counts.tolist(), strict=True)),
        "probability",
        "rows",
    )
    share = format_percent(100 * float((best >= SURE).mean()), 0)
    heading = f"{share} of the labels have a probability of at least {SURE}"
    return PageSection(heading, chart, label="How sure the labels are")


def annotator_sections(resolved: ResolvedTable, report: CrowdReport | None = None) -> list[PageSection]:
    """Sections on who is reliable, who confuses what with what, and what to ask again."""
    report = report or report_crowd(resolved)
    if report is None:
        return []
    sections = [_reliability_section(resolved, report)]
    if len(report.confusions):
        sections.append(_confusion_section(resolved, report))
    if len(report.questions):
        sections.append(_question_section(report))
    return sections


def note_section(notes: Sequence[DataNote]) -> PageSection:
    """Section on what was dropped, repaired or noticed in a table."""
    rows = [
        TableRow.of(note.kind, note.action, len(note.rows) or None, _shortened(str(note), 200))
        for note in sorted(notes, key=lambda note: ACTIONS.index(note.action))
    ]
    columns = [
        Column("action", kind="text"),
        Column("rows", decimals=0),
        Column("details", kind="text", wraps=True),
    ]
    caption = "Problems and notes on the file; rows are counted from 1, without the header."
    table = ReportTable(columns, rows, caption, "what", formats=("CSV",))
    changes = sum(note.action in ("row dropped", "repaired") for note in notes)
    repaired = f"{plural(changes, 'problem')} fixed or dropped"
    return PageSection(repaired if changes else "Nothing had to be repaired", table)


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _reliability_section(resolved: ResolvedTable, report: CrowdReport) -> PageSection:
    frame = report.annotators
    shown = (
        frame
        if len(frame) <= ANNOTATORS
        else frame.iloc[[*range(ANNOTATORS // 2), *range(-ANNOTATORS // 2, 0)]]
    )
    counts = {"answers": "answers", EARLIER: "answers to other rows in the fit"}
    counts = {name: title for name, title in counts.items() if name in frame}
    rows = [
        TableRow.of(
            str(row["annotator"]),
            *(int(row[name]) for name in counts),
            100 * row["accuracy"],
            100 * row["standard_error"],
            row["most_frequent_confusion"],
        )
        for row in shown.to_dict("records")
    ]
    columns = [
        *(Column(title, decimals=0) for title in counts.values()),
        Column("estimated accuracy (%)", decimals=1),
        Column("standard error", decimals=1),
        Column("most frequent confusion", kind="text", wraps=True),
    ]
    posterior = resolved.consensus.posterior
    others = (
        "the other annotators' answers"
        if posterior is None or posterior.temperature is None
        else "a model and the other annotators' answers"
    )
    caption = f"Estimated without true labels, from {others}."
    if EARLIER in counts:
        caption += " Answers to other rows in the fit count, too."
    if len(shown) < len(frame):
        caption += f" The {ANNOTATORS // 2} most and least accurate of {len(frame)} annotators."
    table = ReportTable(columns, rows, caption, "annotator", formats=("CSV",))
    name, share = str(frame["annotator"].iloc[0]), format_percent(100 * float(frame["accuracy"].iloc[0]), 0)
    heading = f"{name} is the most accurate annotator, with {share} correct answers"
    if len(frame) == 1:
        heading = f"{share} of the answers are estimated to be correct"
    if posterior is not None and posterior.is_assumed:
        heading = "Nothing shows who is reliable: no row has two answers"
        caption = "Assumed, since no two answers can be compared."
        table = replace(table, caption=caption)
    alpha = report.agreement.alpha
    agree = (
        ""
        if np.isnan(alpha)
        else (
            f" {format_percent(100 * report.agreement.pairwise, 1)} of the pairs of answers on the same row "
            f"are equal; Krippendorff's alpha, which corrects for chance, is {format_number(alpha)}."
        )
    )
    text = "Labels combine all answers, weighted by these estimates." + agree
    return PageSection(heading, table, text, label="Who is reliable")


def _confusion_section(resolved: ResolvedTable, report: CrowdReport) -> PageSection:
    top = report.confusions.head(CONFUSIONS)
    rows = [
        TableRow.of(
            str(row["annotator"]), row["true"], row["answered"], 100 * row["probability"], row["answers"]
        )
        for row in top.to_dict("records")
    ]
    columns = [Column("true class", kind="text"), Column("answered", kind="text")]
    columns += [Column("probability (%)", decimals=1), Column("answers", decimals=1)]
    caption = (
        "How often an annotator gives this answer if the class is true, and the expected number of them."
    )
    table = ReportTable(columns, rows, caption, "annotator", formats=("CSV",))
    posterior = resolved.consensus.posterior
    assert posterior is not None
    pooled = posterior.mean_confusion
    k = len(pooled)
    errors = pooled * (1 - np.eye(k)) * posterior.class_priors[:, None]
    kept = np.sort(np.argsort(-(errors.sum(0) + errors.sum(1)), kind="stable")[:CLASSES])
    names = [str(resolved.resolution.classes[i])[:18] for i in kept]
    grid = Grid(names, names, (100 * pooled[np.ix_(kept, kept)]).tolist())
    chart = HeatMap(
        "Answers of all annotators together, by the true class.",
        grid,
        "true class",
        "answered",
        "answers (%)",
        decimals=0,
        square=True,
    )
    y, z = np.unravel_index(int(errors.argmax()), errors.shape)
    one, other = resolved.resolution.classes[y], resolved.resolution.classes[z]
    heading = f"The most frequent error is to answer {other} for {one}"
    return PageSection(heading, [chart, table], label="Who confuses what")


def _question_section(report: CrowdReport) -> PageSection:
    shown = report.questions.head(QUESTIONS)
    has_item = "item" in shown
    rows = [
        TableRow.of(
            str(row["row"]),
            *((str(row["item"]),) if has_item else ()),
            row["label"],
            row["probability"],
            row["ask"],
            100 * row["expected_gain"],
        )
        for row in shown.to_dict("records")
    ]
    columns = [Column("item", kind="text")] if has_item else []
    columns += [Column("label", kind="text"), Column("probability"), Column("ask", kind="text")]
    columns += [Column("expected gain (points)", decimals=1)]
    caption = (
        "Expected gain: by how much one more answer of this annotator is expected to raise the probability "
        "that the label is correct. Rows are counted from 1, without the header."
    )
    table = ReportTable(columns, rows, caption, "row", formats=("CSV",))
    return PageSection(
        f"{plural(len(rows), 'row')} to ask about again first", table, label="What to ask again"
    )

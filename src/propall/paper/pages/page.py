"""The report as one page."""

from statistics import fmean, median

from propall.paper.evidence import Evidence, first_rows
from propall.paper.pages import figures
from propall.paper.pages.item import Item
from propall.paper.pages.tables import missing_data, table_items
from propall.paper.pages.verdicts import VerdictList
from propall.paper.stats import Blocks
from propall.paper.tables import TABLES
from propall.paper.verdicts import (
    Cost,
    Verdict,
    costs,
    coverage,
    judged,
    late_classes,
    timings,
    worse_than_ours,
)
from propall.report.numbers import format_number
from propall.report.page import KeyFigure, Page, Section
from propall.wording import approximate_duration, joined

TITLE = "ProPaLL, reproduced"


def report_page(evidence: Evidence, *, blocks: Blocks = "data sets") -> Page:
    """Every table and figure that a store has runs for; what it has none for is named.

    Args:
        evidence: the results.
        blocks: what the ranks of the critical-difference diagrams are taken over.
    """
    if not any(evidence.protocols(table) for table in TABLES):
        return _empty()
    sections = [_claims(evidence)]
    sections += [section for name in TABLES if (section := _table(name, evidence)) is not None]
    sections += [*_ranks(evidence, blocks), *_candidates(evidence), *_classes(evidence), *_time(evidence)]
    sections += _not_run(evidence)
    return Page(TITLE, _finding(evidence), _key_figures(evidence), sections)


def items(page: Page) -> list[Item]:
    """All tables and figures of a page."""
    return [block for section in page.sections for block in section.blocks if isinstance(block, Item)]


def _empty() -> Page:
    return Page(
        TITLE,
        "Nothing has been measured yet: the file of results holds no run of any table of the paper.",
        sections=[
            Section(
                "How to fill it",
                (),
                "`propall reproduce real` measures the table of real-world candidate sets, `propall "
                "reproduce all --protocol short` tries everything out in minutes; then `propall report`.",
            )
        ],
    )


def _finding(evidence: Evidence) -> str:
    found = coverage(evidence)
    verdicts = [claim.verdict for claim in judged(evidence)]
    counted = [
        f"{count} {one if count == 1 else many}"
        for verdict, one, many in (
            (Verdict.HOLDS, "holds", "hold"),
            (Verdict.PART, "holds in part", "hold in part"),
            (Verdict.FAILS, "does not hold", "do not hold"),
            (Verdict.OPEN, "is undecided", "are undecided"),
            (Verdict.UNKNOWN, "is not measured", "are not measured"),
        )
        if (count := verdicts.count(verdict))
    ]
    judgement = f"of {len(verdicts)} claims {joined(counted)}"
    if set(verdicts) == {Verdict.UNKNOWN}:
        judgement = "no claim can be judged yet"
    return (
        f"{found.measured} of the paper's {found.total} numbers were measured in full and stand beside the "
        f"published ones; {judgement}."
    )


def _key_figures(evidence: Evidence) -> list[KeyFigure]:
    found = coverage(evidence)
    begun = f"{found.begun - found.measured} more in part, {found.absent} whose data has no download"
    shown = [KeyFigure(f"{found.measured}", f"of {found.total} published cells measured", begun)]
    gaps = propall_gaps(evidence)
    if gaps:
        says = f"over {len(gaps)} comparable cells; half of them are closer"
        shown.append(KeyFigure(f"{median(map(abs, gaps)):.2f}", "points between ProPaLL and the paper", says))
    for cost in costs(evidence)[:1]:
        shown.append(KeyFigure(f"{cost.all_runs:,}".replace(",", " "), "runs", f"on {cost.hardware}"))
        about = cost.finished or cost
        what = f"for {cost.cells} cells, testing included" if cost.finished else "testing included"
        shown.append(KeyFigure(approximate_duration(about.all_seconds), "of computing", what))
        if about.runs:
            ratio = f"{about.ratio:,.0f} ×".replace(",", " ")
            shown.append(KeyFigure(ratio, "less than public code would take", estimate(about)))
    return shown


def estimate(cost: Cost) -> str:
    """What the ratio of times is an estimate of."""
    public = approximate_duration(cost.public_seconds)
    return f"estimated: PRODEN's at 6.5 s an epoch of MNIST would take {public}"


def propall_gaps(evidence: Evidence) -> list[float]:
    """Our mean minus the paper's in ProPaLL's comparable cells, each run once."""
    gaps = {}
    for table in TABLES:
        for protocol in evidence.judged_protocols(table):
            for entry in evidence.entries(table, protocol):
                ours = entry.cell.row == "propall" and entry.mean is not None and not entry.incomparable
                if ours and entry.published is not None and entry.mean is not None:
                    gaps[entry.keys] = entry.mean - entry.published.mean
    return list(gaps.values())


def _claims(evidence: Evidence) -> Section:
    text = (
        "Each verdict follows by a fixed rule from the stored numbers: accuracies are compared seed by seed "
        "or fold by fold, over two or more (paired t-test, 0.05); times come from one long run per method, "
        "alone on the device. Protocols that run the same cells in another way are listed and not counted."
    )
    claims = judged(evidence)
    holds = sum(claim.verdict is Verdict.HOLDS for claim in claims)
    heading = f"{holds} of {len(claims)} claims hold as stated" if holds else "No claim holds as stated"
    if all(claim.verdict is Verdict.UNKNOWN for claim in claims):
        heading = "No claim can be judged yet"
    return Section(heading, VerdictList(claims), text, label="Claims")


def _table(name: str, evidence: Evidence) -> Section | None:
    blocks = table_items(name, evidence)
    if not blocks:
        return None
    table = TABLES[name]
    missing = missing_data(name, evidence)
    text = "\n\n".join([part for part in (table.remark, *missing) if part])
    return Section(f"{table.title}. {_seen(name, evidence)}", blocks, text, label=table.title)


def _seen(name: str, evidence: Evidence) -> str:
    """What a table shows, in a few words: where ProPaLL leads, or whether noise helps."""
    protocols = evidence.judged_protocols(name)
    if not protocols:
        if evidence.uncut_protocols(name):
            return "Other protocols than its first only"
        cut = evidence.serious_protocols(name)
        return "Runs of fewer epochs only" if cut else "Smoke runs and timings only"
    columns = [column for protocol in protocols for column in evidence.columns(name, protocol).values()]
    whole = [column for column in columns if first_rows(name) <= column.keys()]
    if not whole:
        return "No setting has all its methods yet"
    means = [{row: entry.mean or 0.0 for row, entry in column.items()} for column in whole]
    leads = sum(all(own["propall"] > own[row] for row in own if row != "propall") for own in means)
    if name.startswith("noise_"):
        return f"With noise the mean is higher in {leads} of {len(whole)} cells"
    return f"ProPaLL has the highest mean in {leads} of {len(whole)} settings"


def _ranks(evidence: Evidence, blocks: Blocks) -> list[Section]:
    sections = []
    for found in figures.ranks(evidence, blocks):
        worse = worse_than_ours(found.ranking)
        seen = (
            f"ProPaLL ranks significantly better than {joined(worse)}"
            if worse
            else "No method ranks significantly worse than ProPaLL"
        )
        text = ""
        if blocks == "runs":
            text = (
                "Warning: every run counts as a block here, as the paper's diagrams seem to have it. Runs on "
                "one data set are not independent, so significance is overstated; draw no conclusion from it."
            )
        label = f"Ranks: {found.name}"
        sections.append(Section(f"{label}. {seen}", found.items, text, label=label))
    return sections


def _candidates(evidence: Evidence) -> list[Section]:
    sections = []
    found = figures.against_candidates(evidence)
    for table in dict.fromkeys(figure.table for figure in found):
        own = [figure for figure in found if figure.table == table]
        most, least = max(TABLES[table].candidates), min(TABLES[table].candidates)
        drops: dict[str, list[float]] = {}
        for figure in own:
            if not TABLES[table].is_judged(figure.protocol):
                continue  # shown, not concluded from
            by_cell = {(entry.title, entry.cell.candidates): entry.mean or 0.0 for entry in figure.entries}
            for title, n in by_cell:
                if n == most and (title, least) in by_cell:
                    drops.setdefault(title, []).append(by_cell[title, least] - by_cell[title, most])
        means = sorted((fmean(values), title) for title, values in drops.items())
        seen = ", ".join(f"{title} {format_number(drop, 1)}" for drop, title in means)
        label = f"Accuracy against candidates, {most + 1} classes"
        heading = f"Points lost from {least} to {most} candidates of {most + 1} classes: {seen}"
        heading = heading if means else f"{label}; {most} were not run"
        sections.append(Section(heading, [figure.item for figure in own], label=label))
    return sections


def _classes(evidence: Evidence) -> list[Section]:
    sections = []
    found = figures.classes_over_training(evidence)
    for setting in dict.fromkeys(run.setting for run in found):
        own = [run for run in found if run.setting == setting]
        parts = []
        for run in own:
            late = late_classes(run.result.recalls)
            said = "half are never learnt" if late is None else f"{late} not begun when half are learnt"
            parts.append(f"{run.title} {said}")
        text = (
            "The paper shows one run whose setting it does not name. Measured after whole epochs, so an "
            "order within the first epoch is not seen."
        )
        blocks = [item for run in own for item in run.items]
        label = f"Classes over training: {setting}"
        sections.append(Section(f"{label}. {'; '.join(parts)}", blocks, text, label=label))
    return sections


def _time(evidence: Evidence) -> list[Section]:
    blocks = figures.over_time(evidence)
    if not blocks:
        return []
    runs = timings(evidence)
    ratios: dict[str, list[float]] = {}
    for run in runs:
        ours = next((r for r in runs if r.data == run.data and r.title == "ProPaLL"), None)
        if ours is not None and run is not ours:
            ratios.setdefault(run.title, []).append(run.per_epoch / ours.per_epoch)
    seen = joined(
        [
            f"{title} takes {fmean(values):.2f} times ProPaLL's time per epoch"
            for title, values in ratios.items()
        ]
    )
    text = (
        "Every run had the device to itself and the same engine, so the times compare methods, not programs. "
        "What is compiled once per shape is told apart from what an epoch takes; testing does not count."
    )
    return [Section(f"Time: {seen}", blocks, text, label="Time against accuracy")]


def _not_run(evidence: Evidence) -> list[Section]:
    waiting = [name for name in TABLES if not evidence.protocols(name)]
    lines = [f"{TABLES[name].title}: not run. `propall reproduce {name}` runs it." for name in waiting]
    if not timings(evidence):
        lines.append("Time against accuracy: not run. `propall reproduce uniform --protocol timed` runs it.")
    if not lines:
        return []
    return [Section("Not run yet", (), "\n\n".join(lines))]

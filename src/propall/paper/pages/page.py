"""The report on the paper as one page."""

from statistics import fmean, median

from propall.paper.costs import PUBLIC_SECONDS, measure_costs
from propall.paper.coverage import measure_coverage
from propall.paper.evidence import Evidence, primary_rows
from propall.paper.pages import figures
from propall.paper.pages.claims import ClaimList
from propall.paper.pages.tables import missing_data, table_exhibits
from propall.paper.stats import Blocks
from propall.paper.tables import TABLES
from propall.paper.verdicts import Verdict, judge_claims
from propall.paper.verdicts.class_order import late_classes
from propall.paper.verdicts.critical_differences import worse_than_propall
from propall.paper.verdicts.speed import timings
from propall.report.numbers import format_number
from propall.report.page import KeyFigure, Page, Section
from propall.wording import approximate_duration, joined

TITLE = "ProPaLL, reproduced"


def report_page(evidence: Evidence, *, blocks: Blocks = "data sets") -> Page:
    """Return a page with every table and figure that has results, and a list of those that have none.

    Args:
        evidence: the results.
        blocks: what the critical-difference diagrams rank over.
    """
    if not any(evidence.protocols(table) for table in TABLES):
        return _empty_page()
    sections = [_claims(evidence)]
    sections += [section for name in TABLES if (section := _table(name, evidence)) is not None]
    sections += [*_ranks(evidence, blocks), *_candidates(evidence), *_classes(evidence), *_time(evidence)]
    sections += _not_run(evidence)
    return Page(TITLE, _finding(evidence), _key_figures(evidence), sections)


def _empty_page() -> Page:
    return Page(
        TITLE,
        "Nothing has been measured yet: the store has no runs of any table of the paper.",
        sections=[
            Section(
                "How to run the experiments",
                (),
                "`propall reproduce real` runs the table of real-world candidate sets; `propall reproduce "
                "all --protocol short` tries everything in minutes. Then run `propall report` again.",
            )
        ],
    )


def _finding(evidence: Evidence) -> str:
    coverage = measure_coverage(evidence)
    verdicts = [claim.verdict for claim in judge_claims(evidence)]
    counts = [
        f"{count} {singular if count == 1 else plural}"
        for verdict, singular, plural in (
            (Verdict.HOLDS, "holds", "hold"),
            (Verdict.PARTLY, "partly holds", "partly hold"),
            (Verdict.FAILS, "does not hold", "do not hold"),
            (Verdict.INCONCLUSIVE, "is inconclusive", "are inconclusive"),
            (Verdict.NOT_MEASURED, "is not measured", "are not measured"),
        )
        if (count := verdicts.count(verdict))
    ]
    conclusion = f"of {len(verdicts)} claims, {joined(counts)}"
    if set(verdicts) == {Verdict.NOT_MEASURED}:
        conclusion = "no claim can be judged yet"
    return (
        f"{coverage.complete} of the paper's {coverage.total} numbers are fully measured and shown next to "
        f"the published ones; {conclusion}."
    )


def _key_figures(evidence: Evidence) -> list[KeyFigure]:
    coverage = measure_coverage(evidence)
    rest = (
        f"{coverage.started - coverage.complete} more in part, {coverage.no_download} without downloadable "
        "data"
    )
    shown = [KeyFigure(str(coverage.complete), f"of {coverage.total} published cells measured", rest)]
    gaps = propall_gaps(evidence)
    if gaps:
        note = f"median absolute difference over {len(gaps)} comparable cells"
        shown.append(KeyFigure(f"{median(map(abs, gaps)):.2f}", "points between ProPaLL and the paper", note))
    for cost in measure_costs(evidence)[:1]:
        shown.append(KeyFigure(f"{cost.all_runs:,}".replace(",", " "), "runs", f"on {cost.hardware}"))
        of_cells = cost.complete or cost
        note = f"sum of run times of {cost.cells} cells" if cost.complete else "sum of run times"
        shown.append(KeyFigure(approximate_duration(of_cells.all_seconds), "of computing", note))
        if of_cells.runs:
            ratio = f"{of_cells.ratio:,.0f} ×".replace(",", " ")
            public = approximate_duration(of_cells.public_seconds)
            note = f"estimate: PRODEN's code, at {PUBLIC_SECONDS} s per epoch of MNIST, would take {public}"
            shown.append(KeyFigure(ratio, "faster than public code", note))
    return shown


def propall_gaps(evidence: Evidence) -> list[float]:
    """Return our mean minus the paper's for ProPaLL's comparable cells, each set of runs once."""
    gaps = {}
    for table in TABLES:
        for protocol in evidence.judged_protocols(table):
            for entry in evidence.entries(table, protocol):
                comparable = entry.cell.row == "propall" and not entry.incomparable
                if comparable and entry.published is not None and entry.mean is not None:
                    gaps[entry.keys] = entry.mean - entry.published.mean
    return list(gaps.values())


def _claims(evidence: Evidence) -> Section:
    text = (
        "Each verdict follows from the stored results by a fixed rule: accuracies are compared by seed or "
        "fold, over two or more (paired t-test, 0.05); times come from one long run per method, alone on the "
        "device. Protocols that run the same cells in another way are listed but not counted."
    )
    claims = judge_claims(evidence)
    holds = sum(claim.verdict is Verdict.HOLDS for claim in claims)
    heading = f"{holds} of {len(claims)} claims hold as stated" if holds else "No claim holds as stated"
    if all(claim.verdict is Verdict.NOT_MEASURED for claim in claims):
        heading = "No claim can be judged yet"
    return Section(heading, ClaimList(claims), text, label="Claims")


def _table(name: str, evidence: Evidence) -> Section | None:
    exhibits = table_exhibits(name, evidence)
    if not exhibits:
        return None
    table = TABLES[name]
    text = "\n\n".join(part for part in (table.remark, *missing_data(name, evidence)) if part)
    return Section(f"{table.title}. {_result(name, evidence)}", exhibits, text, label=table.title)


def _result(name: str, evidence: Evidence) -> str:
    """Return the result of a table in a few words: where ProPaLL leads, or whether noise helps."""
    protocols = evidence.judged_protocols(name)
    if not protocols:
        if evidence.full_protocols(name):
            return "Only run under other protocols than its first"
        shortened = evidence.accuracy_protocols(name)
        return "Only run with fewer epochs" if shortened else "Only smoke runs and timings"
    columns = [column for protocol in protocols for column in evidence.columns(name, protocol).values()]
    complete = [column for column in columns if primary_rows(name) <= column.keys()]
    if not complete:
        return "No setting has results for all methods yet"
    means = [{row: entry.mean or 0.0 for row, entry in column.items()} for column in complete]
    leads = sum(
        all(by_row["propall"] > by_row[row] for row in by_row if row != "propall") for by_row in means
    )
    if name.startswith("noise_"):
        return f"With noise, the mean is higher in {leads} of {len(complete)} cells"
    return f"ProPaLL has the highest mean in {leads} of {len(complete)} settings"


def _ranks(evidence: Evidence, blocks: Blocks) -> list[Section]:
    sections = []
    for diagram in figures.rank_diagrams(evidence, blocks):
        worse = worse_than_propall(diagram.ranking)
        result = (
            f"ProPaLL ranks significantly better than {joined(worse)}"
            if worse
            else "No method ranks significantly worse than ProPaLL"
        )
        text = ""
        if blocks == "runs":
            text = (
                "Warning: every run counts as a block here, as the paper's diagrams seem to do. Runs on one "
                "data set are not independent, so significance is overstated; do not draw conclusions from "
                "it."
            )
        label = f"Ranks: {diagram.name}"
        sections.append(Section(f"{label}. {result}", diagram.exhibits, text, label=label))
    return sections


def _candidates(evidence: Evidence) -> list[Section]:
    sections = []
    charts = figures.candidate_charts(evidence)
    for table in dict.fromkeys(chart.table for chart in charts):
        of_table = [chart for chart in charts if chart.table == table]
        most, least = max(TABLES[table].candidates), min(TABLES[table].candidates)
        drops: dict[str, list[float]] = {}
        for chart in of_table:
            if not TABLES[table].is_judged(chart.protocol):
                continue  # shown, but not counted
            means = {(entry.title, entry.cell.candidates): entry.mean or 0.0 for entry in chart.entries}
            for title, n in means:
                if n == most and (title, least) in means:
                    drops.setdefault(title, []).append(means[title, least] - means[title, most])
        mean_drops = sorted((fmean(values), title) for title, values in drops.items())
        result = ", ".join(f"{title} {format_number(drop, 1)}" for drop, title in mean_drops)
        label = f"Accuracy by number of candidates, {most + 1} classes"
        heading = f"Points lost from {least} to {most} candidates of {most + 1} classes: {result}"
        heading = heading if mean_drops else f"{label}; {most} were not run"
        sections.append(Section(heading, [chart.exhibit for chart in of_table], label=label))
    return sections


def _classes(evidence: Evidence) -> list[Section]:
    sections = []
    runs = figures.class_progress(evidence)
    for setting in dict.fromkeys(run.setting for run in runs):
        of_setting = [run for run in runs if run.setting == setting]
        late = {run.title: late_classes(run.result.recalls) for run in of_setting}
        result = ", ".join(
            f"{title} {'(half never learned)' if n is None else n}" for title, n in late.items()
        )
        text = (
            "The paper shows one run and does not name its setting. Measured after whole epochs, so the "
            "order within the first epoch is not seen."
        )
        exhibits = [exhibit for run in of_setting for exhibit in run.exhibits]
        label = f"Classes during training: {setting}"
        sections.append(
            Section(f"{label}. Not started when half are learned: {result}", exhibits, text, label=label)
        )
    return sections


def _time(evidence: Evidence) -> list[Section]:
    exhibits = figures.time_exhibits(evidence)
    if not exhibits:
        return []
    runs = timings(evidence)
    ratios: dict[str, list[float]] = {}
    for run in runs:
        ours = next((r for r in runs if r.data == run.data and r.title == "ProPaLL"), None)
        if ours is not None and run is not ours:
            ratios.setdefault(run.title, []).append(run.per_epoch / ours.per_epoch)
    relative = joined([f"{title} takes {fmean(values):.2f}" for title, values in ratios.items()])
    heading = f"Time: {relative} times as long per epoch as ProPaLL" if relative else "Time: per epoch"
    text = (
        "Every run was alone on the device and used the same training engine, so the times compare methods, "
        "not implementations. Compilation is separate from the time per epoch; testing is not included."
    )
    return [Section(heading, exhibits, text, label="Accuracy over training time")]


def _not_run(evidence: Evidence) -> list[Section]:
    missing = [name for name in TABLES if not evidence.protocols(name)]
    lines = [f"{TABLES[name].title}: not run. Run `propall reproduce {name}`." for name in missing]
    if not timings(evidence):
        lines.append(
            "Accuracy over training time: not run. Run `propall reproduce uniform --protocol timed`."
        )
    return [Section("Not run yet", (), "\n\n".join(lines))] if lines else []

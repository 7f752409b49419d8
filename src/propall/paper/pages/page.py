"""The report on the paper as one page."""

from collections.abc import Mapping
from statistics import median
from typing import Any

from propall.paper import modern
from propall.paper.costs import PUBLIC_SECONDS, measure_costs
from propall.paper.coverage import measure_coverage
from propall.paper.evidence import Evidence, primary_rows
from propall.paper.pages import figures
from propall.paper.pages.base_losses import base_loss_sections
from propall.paper.pages.claims import ClaimList
from propall.paper.pages.modern import modern_sections
from propall.paper.pages.tables import missing_data, table_exhibits
from propall.paper.stats import Blocks
from propall.paper.tables import TABLES
from propall.paper.tables import modern as modern_table
from propall.paper.verdicts import Verdict, judge_claims
from propall.paper.verdicts.speed import collect_timings
from propall.report.page import KeyFigure, Page, PageSection
from propall.wording import approximate_duration, join_names

TITLE = "ProPaLL, reproduced"


def report_page(
    evidence: Evidence, *, blocks: Blocks = "data sets", study: Mapping[str, Any] | None = None
) -> Page:
    """Return a page with every table and figure that has results, and a list of those that have none.

    Args:
        evidence: the results.
        blocks: what critical-difference diagrams rank over.
        study: content of the file of `studies.base_losses`.
    """
    images = [*modern_sections(evidence), *base_loss_sections(study or {})]
    if not images and not any(evidence.protocols(table) for table in TABLES):
        return _empty_page()
    sections = [_claims(evidence)]
    sections += [section for name in TABLES if (section := _table(name, evidence)) is not None]
    sections += [*figures.rank_sections(evidence, blocks), *figures.candidate_sections(evidence)]
    sections += [*figures.class_sections(evidence), *figures.time_sections(evidence), *images]
    sections += _not_run(evidence)
    return Page(TITLE, _finding(evidence), _key_figures(evidence), sections)


def _empty_page() -> Page:
    finding = "Nothing has been measured yet: the store has no runs of any table of the paper."
    text = (
        "`propall reproduce real` runs the table of real-world candidate sets; `propall reproduce all "
        "--protocol short` tries everything in minutes. Then run `propall report` again."
    )
    return Page(TITLE, finding, sections=[PageSection("How to run the experiments", (), text)])


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
    conclusion = f"of {len(verdicts)} claims, {join_names(counts)}"
    if set(verdicts) == {Verdict.NOT_MEASURED}:
        conclusion = "no claim can be judged yet"
    return (
        f"{coverage.complete} of the paper's {coverage.total} numbers are fully measured and shown next to "
        f"the published ones; {conclusion}."
    )


def _key_figures(evidence: Evidence) -> list[KeyFigure]:
    coverage = measure_coverage(evidence)
    partial = coverage.started - coverage.complete
    rest = f"{partial} more in part, {coverage.no_download} without downloadable data"
    shown = [KeyFigure(str(coverage.complete), f"of {coverage.total} published cells measured", rest)]
    gaps = propall_gaps(evidence)
    if gaps:
        note = f"median absolute difference over {len(gaps)} comparable cells"
        shown.append(KeyFigure(f"{median(map(abs, gaps)):.2f}", "points between ProPaLL and the paper", note))
    for cost in measure_costs(evidence)[:1]:
        shown.append(KeyFigure(f"{cost.all_runs:,}".replace(",", " "), "runs", f"on {cost.hardware}"))
        cell_costs = cost.complete or cost
        note = f"sum of run times of {cost.cells} cells" if cost.complete else "sum of run times"
        shown.append(KeyFigure(approximate_duration(cell_costs.all_seconds), "of computing", note))
        if cell_costs.runs:
            ratio = f"{cell_costs.ratio:,.0f} ×".replace(",", " ")
            public = approximate_duration(cell_costs.public_seconds)
            note = f"estimate: PRODEN's code, at {PUBLIC_SECONDS} s per epoch of MNIST, would take {public}"
            shown.append(KeyFigure(ratio, "faster than public code", note))
    return shown


def propall_gaps(evidence: Evidence) -> list[float]:
    """Return our mean minus the paper's for ProPaLL's comparable cells, each set of runs once."""
    gaps = {}
    for table in TABLES:
        for protocol in evidence.judged_protocols(table):
            for entry in evidence.entries(table, protocol):
                comparable = entry.cell.row == "propall" and not entry.caveat
                if comparable and entry.published is not None and entry.mean is not None:
                    gaps[entry.keys] = entry.mean - entry.published.mean
    return list(gaps.values())


def _claims(evidence: Evidence) -> PageSection:
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
    return PageSection(heading, ClaimList(claims), text, label="Claims")


def _table(name: str, evidence: Evidence) -> PageSection | None:
    exhibits = table_exhibits(name, evidence)
    if not exhibits:
        return None
    table = TABLES[name]
    text = "\n\n".join(part for part in (table.remark, *missing_data(name, evidence)) if part)
    return PageSection(f"{table.title}. {_result(name, evidence)}", exhibits, text, label=table.title)


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
    leads = sum(all(m["propall"] > m[row] for row in m if row != "propall") for m in means)
    if name.startswith("noise_"):
        return f"With noise, the mean is higher in {leads} of {len(complete)} cells"
    return f"ProPaLL has the highest mean in {leads} of {len(complete)} settings"


def _not_run(evidence: Evidence) -> list[PageSection]:
    missing = [name for name in TABLES if not evidence.protocols(name)]
    lines = [f"{TABLES[name].title}: not run. Run `propall reproduce {name}`." for name in missing]
    if not collect_timings(evidence):
        command = "propall reproduce uniform --protocol timed"
        lines.append(f"Accuracy over training time: not run. Run `{command}`.")
    if modern_table.MODERN not in modern.protocols_with_results(evidence.results):
        lines.append(f"{modern_table.TITLE}: not run. Run `propall reproduce {modern_table.MODERN}`.")
    return [PageSection("Not run yet", (), "\n\n".join(lines))] if lines else []

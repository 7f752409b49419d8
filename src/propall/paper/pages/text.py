"""The report as text for a repository: claim by claim, with a verdict each."""

from collections.abc import Sequence

from propall.paper.evidence import Evidence
from propall.paper.pages.item import provenance
from propall.paper.pages.tables import missing_data, table_items
from propall.paper.tables import TABLES
from propall.paper.verdicts import PUBLIC_SECONDS, Claim, Cost, costs, coverage, judged
from propall.report.tables import ReportTable
from propall.wording import duration

_INTRODUCTION = """\
# The paper, reproduced

Made by `propall report --markdown docs/reproduction.md` from stored results; no number of its tables and no
verdict is written by hand. The paper's numbers are those of its tables [struski2022propall] and never mixed
with ours. Verdicts follow by the rules given with them: accuracies are compared seed by seed or fold by fold,
over two or more (paired t-test, level 0.05); times come from one long run per method, alone on the device.
A protocol that runs the same cells in another way is listed and not counted."""


def reproduction_text(evidence: Evidence) -> str:
    """The claims with what was measured and a verdict each, the cost, and every table, as Markdown."""
    found = coverage(evidence)
    parts = [
        _INTRODUCTION,
        f"Of the paper's {found.total} different cells {found.measured} are measured with all runs of their "
        f"table's first protocol, {found.begun - found.measured} more in part or under another protocol; of "
        f"{found.absent} nothing is, and their data has no download.",
        "## Claims",
        _overview(claims := judged(evidence)),
        *(_claim(claim) for claim in claims),
        "## Time",
        *(cost_sentences(evidence) or ["Nothing was run."]),
        "## Tables",
    ]
    for name in TABLES:
        parts += _table(name, evidence)
    return "\n\n".join(parts) + "\n"


def _overview(claims: Sequence[Claim]) -> str:
    lines = ["| claim | verdict | why |", "| --- | --- | --- |"]
    lines += [f"| {claim.name} | **{claim.verdict}** | {claim.why} |" for claim in claims]
    return "\n".join(lines)


def _claim(claim: Claim) -> str:
    measured = "\n".join(f"- {sentence}" for sentence in claim.measured) or "- Nothing."
    origin = " · ".join(f"{name} {value}" for name, value in provenance(claim.results).items())
    parts = [
        f"### {claim.name[:1].upper()}{claim.name[1:]}",
        f"Claim: {claim.statement}",
        f"Measured:\n\n{measured}",
        f"Verdict: **{claim.verdict}**; {claim.why}.",
        f"Rule: {claim.rule}",
    ]
    return "\n\n".join([*parts, f"<sub>{origin}</sub>"] if origin else parts)


def cost_sentences(evidence: Evidence) -> list[str]:
    """Time of the measured runs by hardware, and the estimate for the public code of PRODEN."""
    return [_cost(cost) for cost in costs(evidence)]


def _cost(cost: Cost) -> str:
    text = (
        f"{cost.hardware}: {cost.all_runs} runs took {duration(cost.all_seconds)}, testing included; the "
        "training of teachers for instance-dependent candidates is not counted."
    )
    if cost.finished is not None:
        text += (
            f" The {cost.cells} cells that are measured in full are {cost.finished.all_runs} of these runs "
            f"and {duration(cost.finished.all_seconds)}."
        )
        cost = cost.finished
    if not cost.runs:
        return text
    return (
        f"{text} Of these, {cost.runs} train a network on vectors, in {duration(cost.seconds)}; the public "
        f"code of PRODEN, at {PUBLIC_SECONDS} s for an epoch of 60 000 images in batches of 256 on an NVIDIA "
        f"H200 and as long per step elsewhere, would take {duration(cost.public_seconds)} for as many "
        f"steps: {cost.ratio:.0f} times as long (an estimate).{_shared(cost)}"
    )


def _shared(cost: Cost) -> str:
    if cost.elapsed > 0.95 * cost.seconds:
        return ""
    return (
        " Some ran at the same time, in several processes, each on its own clock: by the wall's clock, these "
        f"took {duration(cost.elapsed)}, and the public code {cost.elapsed_ratio:.0f} times as long."
    )


def _table(name: str, evidence: Evidence) -> list[str]:
    table, items = TABLES[name], table_items(name, evidence)
    parts = [f"### {table.title}", *([table.remark] if table.remark else [])]
    if not items:
        parts.append(f"Not run; `propall reproduce {name}` runs it.")
    for item in items:
        assert isinstance(item.block, ReportTable)
        parts += [item.block.caption, item.block.to_markdown().strip()]
        parts += [f"<sub>{item.origin}</sub>"] if item.provenance else []
    return [*parts, *missing_data(name, evidence)]

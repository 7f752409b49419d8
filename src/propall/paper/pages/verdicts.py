"""The paper's claims with their verdicts, as a list on the page."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from propall.paper.pages.item import provenance
from propall.paper.verdicts import Claim, Verdict
from propall.report.page import inline

#: A sign for each verdict, so that color is never alone.
SIGNS = {
    Verdict.HOLDS: ("✓", "better"),
    Verdict.PART: ("◐", "mixed"),
    Verdict.FAILS: ("✗", "worse"),
    Verdict.OPEN: ("?", "mixed"),
    Verdict.UNKNOWN: ("–", "unknown"),
}


@dataclass(frozen=True)
class VerdictList:
    """Claim, verdict, reason; the numbers behind a disclosure."""

    claims: Sequence[Claim]

    def to_html(self, anchor: str) -> str:
        """A list; every claim has a heading of its own."""
        return f'<ul class="claims" id="{escape(anchor)}">{"".join(map(_claim, self.claims))}</ul>'


def _claim(claim: Claim) -> str:
    sign, kind = SIGNS[claim.verdict]
    sentences = "".join(f"<li>{escape(sentence)}</li>" for sentence in claim.measured)
    numbers = f"<ul>{sentences}</ul>" if sentences else ""
    source = " · ".join(f"{name} {value}" for name, value in provenance(claim.results).items())
    origin = f'<p class="origin">{escape(source)}</p>' if source else ""
    reason = claim.why[:1].upper() + claim.why[1:]
    return (
        f"<li><h3>{escape(claim.name[:1].upper() + claim.name[1:])} "
        f'<span class="verdict {kind}">{sign} {escape(claim.verdict)}</span></h3>'
        f'<p class="said">The paper: {escape(claim.statement)}</p><p>{inline(reason)}.</p>'
        f"<details><summary>Numbers and rule</summary>{numbers}"
        f'<p class="note">{escape(claim.rule)}</p>{origin}</details></li>'
    )

"""The paper's claims and their verdicts as a block of a page."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from propall.paper.pages.provenance import run_provenance
from propall.paper.verdicts import Claim, Verdict
from propall.report.page import format_provenance, inline_html

#: A sign and a CSS class for each verdict, so that color is never the only cue.
SIGNS = {
    Verdict.HOLDS: ("✓", "better"),
    Verdict.PARTLY: ("◐", "mixed"),
    Verdict.FAILS: ("✗", "worse"),
    Verdict.INCONCLUSIVE: ("?", "mixed"),
    Verdict.NOT_MEASURED: ("–", "unknown"),
}


@dataclass(frozen=True)
class ClaimList:
    """Claim, verdict and reason, with the measurements collapsed."""

    claims: Sequence[Claim]

    def to_html(self, anchor: str) -> str:
        """Return a list with one heading per claim."""
        return f'<ul class="claims" id="{escape(anchor)}">{"".join(map(_claim, self.claims))}</ul>'


def capitalize(text: str) -> str:
    """Capitalize the first letter and keep the rest."""
    return text[:1].upper() + text[1:]


def _claim(claim: Claim) -> str:
    sign, css_class = SIGNS[claim.verdict]
    sentences = "".join(f"<li>{escape(sentence)}</li>" for sentence in claim.measured)
    measured = f"<ul>{sentences}</ul>" if sentences else ""
    line = escape(format_provenance(run_provenance(claim.results)))
    provenance = f'<p class="provenance">{line}</p>' if line else ""
    return (
        f"<li><h3>{escape(capitalize(claim.name))} "
        f'<span class="verdict {css_class}">{sign} {escape(claim.verdict)}</span></h3>'
        f'<p class="statement">The paper: {escape(claim.statement)}</p>'
        f"<p>{inline_html(capitalize(claim.reason))}.</p>"
        f"<details><summary>Numbers and rule</summary>{measured}"
        f'<p class="note">{escape(claim.rule)}</p>{provenance}</details></li>'
    )

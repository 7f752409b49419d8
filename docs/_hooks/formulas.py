"""Converts formulas to MathML when the site is built, so that a page needs neither a script nor a network."""

import html
import logging
import re

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

_FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\s*(?:\\\((?P<inline>.*?)\\\)|\\\[(?P<display>.*?)\\\])\s*</\1>',
    re.DOTALL,
)
_log = logging.getLogger("mkdocs.hooks.formulas")


def to_mathml(latex: str, *, display: bool) -> str:
    """One formula as a `math` element that keeps its source for copying and for screen readers."""
    mathml = convert(latex, display="block" if display else "inline")
    return mathml.replace("<math ", f'<math alttext="{html.escape(latex, quote=True)}" ', 1)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace the formulas that `pymdownx.arithmatex` marked."""

    def replace(match: re.Match[str]) -> str:
        display = match["display"] is not None
        latex = html.unescape(match["display"] if display else match["inline"]).strip()
        if not display:
            return to_mathml(latex, display=False)
        # Parts that a wide space separates stand below each other where they do not fit side by side.
        parts = [to_mathml(part, display=True) for part in re.split(r"\\qquad", latex) if part.strip()]
        return f'<div class="formula">{"".join(parts)}</div>'

    converted = _FORMULA.sub(replace, content)
    if 'class="arithmatex"' in converted:
        _log.warning("%s: a formula was not converted", page.file.src_uri)
    return converted

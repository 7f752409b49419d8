"""Self-contained HTML pages: title, finding, key figures and sections, without network requests."""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Protocol, runtime_checkable

from jinja2 import Environment
from markupsafe import Markup

from propall import __version__, atomic_files
from propall.report.colors import DARK, LIGHT, css_variables

#: Sets the theme that was chosen before, ahead of the first drawing.
THEME_SCRIPT = (
    'try { const theme = localStorage.getItem("propall-theme"); '
    "if (theme) document.documentElement.dataset.theme = theme; } catch {}"
)


@runtime_checkable
class Block(Protocol):
    """Anything a section can show, such as a `ReportTable` or a `Figure`."""

    def to_html(self, anchor: str) -> str:
        """Return HTML; `anchor` is unique on the page and prefixes every id."""


@dataclass(frozen=True)
class KeyFigure:
    """A headline number with a label and a note."""

    value: str
    label: str
    note: str = ""


@dataclass(frozen=True)
class PageSection:
    """One result with the charts and tables that show it."""

    heading: str  # the result in one sentence
    body: Block | Sequence[Block]
    text: str = ""  # paragraphs are separated by an empty line, `code` is in backticks
    provenance: Mapping[str, str] = field(default_factory=dict)  # data, seeds, hardware, version, date etc.
    label: str = ""  # in the table of contents; the heading if empty

    @property
    def blocks(self) -> Sequence[Block]:
        """The body as a sequence."""
        return self.body if isinstance(self.body, Sequence) else [self.body]


@dataclass(frozen=True)
class Page:
    """A page of the report."""

    title: str
    finding: str  # the main result in one sentence
    figures: Sequence[KeyFigure] = ()  # three to five
    sections: Sequence[PageSection] = ()
    footer: str = f"Made with propall {__version__}."

    def to_html(self) -> str:
        """Return the page as one HTML document."""
        here = files("propall.report")
        environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
        template = environment.from_string(here.joinpath("page.html.j2").read_text(encoding="utf-8"))
        sections = [
            {
                "anchor": f"s{number}",
                "heading": section.heading,
                "label": section.label or section.heading,
                "blocks": [
                    Markup(block.to_html(f"s{number}-{i}")) for i, block in enumerate(section.blocks, 1)
                ],
                "paragraphs": [Markup(inline_html(part)) for part in section.text.split("\n\n") if part],
                "provenance": format_provenance(section.provenance),
            }
            for number, section in enumerate(self.sections, 1)
        ]
        style = _color_rules() + here.joinpath("page.css").read_text(encoding="utf-8")
        script = here.joinpath("page.js").read_text(encoding="utf-8")
        return template.render(
            page=self,
            sections=sections,
            policy=Markup(content_security_policy(style, THEME_SCRIPT, script)),
            style=Markup(style),
            theme_script=Markup(THEME_SCRIPT),
            script=Markup(script),
        )

    def write(self, path: str | Path) -> Path:
        """Write the page, creating missing folders."""
        path = Path(path)
        atomic_files.write_text(path, self.to_html())
        return path


def is_report(path: str | Path) -> bool:
    """Whether a file is a page that `Page.write` wrote; other pages do not have its script."""
    return THEME_SCRIPT.encode() in Path(path).read_bytes()


def content_security_policy(style: str, *scripts: str) -> str:
    """Allow only these styles and scripts, by hash, so that no text of a page can become a script.

    Style attributes, which charts use for colors, are allowed: they neither run code nor load anything.
    """
    allowed = " ".join(map(_hash_source, scripts))
    return "; ".join(
        [
            "default-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
            "img-src data:",
            f"script-src {allowed}",
            "style-src 'unsafe-inline'",  # for browsers that do not know the next two
            f"style-src-elem {_hash_source(style)}",
            "style-src-attr 'unsafe-inline'",
        ]
    )


def _hash_source(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _color_rules() -> str:
    """CSS variables of both themes; printed pages are light."""
    light = f"color-scheme: light; {css_variables(LIGHT)}"
    dark = f"color-scheme: dark; {css_variables(DARK)}"
    not_light = ':root:not([data-theme="light"])'
    return (
        f":root {{ {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ {not_light} {{ {dark} }} }}\n"
        f':root[data-theme="dark"] {{ {dark} }}\n'
        f"@media print {{ :root, :root[data-theme], {not_light} {{ {light} }} }}\n"
    )


def format_provenance(provenance: Mapping[str, str]) -> str:
    """Return provenance as one line."""
    return " · ".join(f"{name} {value}" for name, value in provenance.items())


def inline_html(text: str) -> str:
    """Escape text as HTML, with `code` for backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))

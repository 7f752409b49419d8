"""Self-contained HTML pages: title, finding, key figures and sections, without network requests."""

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
        return template.render(
            page=self,
            sections=sections,
            light=Markup(css_variables(LIGHT)),
            dark=Markup(css_variables(DARK)),
            style=Markup(here.joinpath("page.css").read_text(encoding="utf-8")),
            script=Markup(here.joinpath("page.js").read_text(encoding="utf-8")),
        )

    def write(self, path: str | Path) -> Path:
        """Write the page, creating missing folders."""
        path = Path(path)
        atomic_files.write_text(path, self.to_html())
        return path


def format_provenance(provenance: Mapping[str, str]) -> str:
    """Return provenance as one line."""
    return " · ".join(f"{name} {value}" for name, value in provenance.items())


def inline_html(text: str) -> str:
    """Escape text as HTML, with `code` for backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))

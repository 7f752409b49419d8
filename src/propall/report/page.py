"""One self-contained HTML page: title, finding, key figures, sections. No request to any network."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    """Anything a section can show: a `ReportTable` or a `Figure`."""

    def to_html(self, anchor: str) -> str:
        """The block as HTML; `anchor` is unique on the page and prefixes every id in it."""


@dataclass(frozen=True)
class KeyFigure:
    """A number worth a glance: the value, what it is, and a word on it."""

    value: str
    label: str
    note: str = ""


@dataclass(frozen=True)
class Section:
    """One thing seen.

    Attributes:
        heading: states what is seen.
        body: the chart or table that shows it, or several.
        text: one or two sentences; paragraphs are separated by an empty line, `code` by backticks.
        provenance: data, corruption, q, protocol, seeds, epochs, hardware, version, commit, date.
        label: what the contents call it; the heading, unless said otherwise.
    """

    heading: str
    body: Block | Sequence[Block]
    text: str = ""
    provenance: Mapping[str, str] | str = ""
    label: str = ""

    @property
    def blocks(self) -> Sequence[Block]:
        """The body as a sequence."""
        return self.body if isinstance(self.body, Sequence) else [self.body]

    @property
    def origin(self) -> str:
        """The provenance in one line."""
        if isinstance(self.provenance, str):
            return self.provenance
        return " · ".join(f"{name} {value}" for name, value in self.provenance.items())


@dataclass(frozen=True)
class Page:
    """A page in the one look.

    Attributes:
        title: what the page is about.
        finding: one sentence that states what was found.
        figures: three to five key figures.
        sections: what supports the finding.
        footer: a last line; made by which version, unless said otherwise.
    """

    title: str
    finding: str
    figures: Sequence[KeyFigure] = ()
    sections: Sequence[Section] = ()
    footer: str = f"Made with propall {__version__}."

    def to_html(self) -> str:
        """The page as one HTML document."""
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
                "paragraphs": [Markup(inline(part)) for part in _paragraphs(section.text)],
                "origin": section.origin,
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
        """Write the page; folders on the way are made."""
        path = Path(path)
        atomic_files.write_text(path, self.to_html())
        return path


def _paragraphs(text: str) -> list[str]:
    return [part.strip() for part in text.split("\n\n") if part.strip()]


def inline(text: str) -> str:
    """Text as HTML; `code` between backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))

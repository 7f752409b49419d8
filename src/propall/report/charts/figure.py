"""The base of all figures: drawn at two widths, described in words, with its data in a table."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any, Literal, NamedTuple

from propall.report.charts import plots, svg
from propall.report.colors import LIGHT
from propall.report.numbers import Number, format_number, format_tick
from propall.report.tables import ReportTable, json_script

#: Widths in pixels. Phones show the narrower drawing, so that text keeps its size.
WIDE, NARROW = 720, 340


class Drawing(NamedTuple):
    """Height and content of an `svg` element."""

    height: Number
    elements: Sequence[str]


class Figure(ABC):
    """A figure made from plain data. Subclasses are frozen dataclasses."""

    caption: str  # what is shown, and over how many runs

    @abstractmethod
    def description(self) -> str:
        """Return the text alternative for readers who cannot see the figure."""

    @abstractmethod
    def table(self) -> ReportTable:
        """Return the figure's data."""

    @abstractmethod
    def draw(self, width: int) -> Drawing:
        """Draw the figure as SVG, `width` pixels wide."""

    @abstractmethod
    def plot(self, canvas: plots.Canvas) -> None:
        """Draw the figure with matplotlib."""

    def size(self) -> tuple[float, float]:
        """Return width and height of the saved figure in inches."""
        return 7.2, 4.0

    def tooltips(self) -> list[str]:
        """Return the hover texts; marks refer to them by index in `data-t`."""
        return []

    def body(self, anchor: str) -> str:
        """Return the content of the `figure` element: both drawings, of which the page shows one."""
        return self._svg(anchor, "wide", WIDE) + "\n" + self._svg(anchor, "narrow", NARROW)

    def _svg(self, anchor: str, name: str, width: int) -> str:
        height, elements = self.draw(width)
        # Names inside are buttons: the children of role "img" would be hidden from assistive technology.
        labels = {"role": "group", "aria_labelledby": f"{anchor}-text"}
        size = {"width": str(width), "height": f"{height:.0f}", "viewBox": f"0 0 {width} {height:.0f}"}
        tabindex = "0" if self.tooltips() else None
        return svg.element("svg", *elements, class_=name, tabindex=tabindex, **labels, **size)

    def to_html(self, anchor: str) -> str:
        """Return a `figure` with text alternative, hover texts and a collapsed data table."""
        data = replace(self.table(), formats=("CSV",))
        parts = [
            f'<figure id="{escape(anchor)}" class="chart">',
            f'<p class="visually-hidden" id="{escape(anchor)}-text">{escape(self.description())}</p>',
            self.body(anchor),
            f"<figcaption>{escape(self.caption)}</figcaption>",
            json_script(self.tooltips()) if self.tooltips() else "",
            f"<details><summary>Data</summary>{data.to_html(f'{anchor}-data')}</details>",
            "</figure>",
        ]
        return "\n".join(part for part in parts if part)

    def save(self, path: str | Path) -> Path:
        """Write the figure as PNG, SVG or PDF, depending on the suffix."""
        path = Path(path)
        with plots.open_canvas(path, self.size(), layout="constrained") as canvas:
            self.plot(canvas)
        return path


@dataclass(frozen=True)
class Reference:
    """A reference line: dashed for the ceiling of clean labels, dotted for chance."""

    label: str
    value: Number
    kind: Literal["ceiling", "chance"]

    @property
    def dash(self) -> str:
        """SVG dash pattern."""
        return "7 4" if self.kind == "ceiling" else "1.5 4"

    @property
    def plot_style(self) -> dict[str, Any]:
        """Line style for matplotlib."""
        dash = tuple(float(part) for part in self.dash.split())
        return {"color": LIGHT.muted, "linewidth": 1, "linestyle": (0, dash)}

    @property
    def text(self) -> str:
        """Label and value."""
        return f"{self.label} {format_number(self.value)}"

    def line(self, x1: Number, x2: Number, y1: Number, y2: Number) -> str:
        """Return the line as an SVG element."""
        dash = f"stroke-dasharray:{self.dash}"
        return svg.element("line", x1=x1, x2=x2, y1=y1, y2=y2, class_="reference-line", style=dash)


def axis_title(title: str, low: Number) -> str:
    """Return the title, followed by where the axis starts if above zero."""
    return title if low <= 0 else f"{title}, axis starts at {format_tick(round(low))}"


def with_margin(low: Number, high: Number, share: Number = 0.04) -> tuple[float, float]:
    """Extend a range at both ends."""
    margin = share * ((high - low) or 1.0)
    return low - margin, high + margin

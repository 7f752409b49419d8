"""The base of all figures: drawn at two widths, described in words, with its data in a table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from propall import atomic_files
from propall.report.charts.svg import element
from propall.report.colors import LIGHT, method_style, series_color
from propall.report.numbers import Number
from propall.report.tables import ReportTable, json_script

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

#: Widths in pixels. Phones show the narrower drawing, so that text keeps its size.
WIDE, NARROW = 720, 340

#: matplotlib without frames; `svg.hashsalt` gives the same bytes for the same data.
_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.edgecolor": LIGHT.line,
    "axes.labelcolor": LIGHT.muted,
    "axes.axisbelow": True,
    "grid.color": LIGHT.line,
    "grid.linewidth": 0.6,
    "xtick.color": LIGHT.muted,
    "ytick.color": LIGHT.muted,
    "text.color": LIGHT.text,
    "svg.hashsalt": "propall",
    "svg.fonttype": "none",
}
_NO_DATE = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
_MARKERS = {
    **{"circle": "o", "square": "s", "triangle": "^", "diamond": "D"},
    **{"down": "v", "plus": "P", "cross": "X", "hexagon": "h"},
}


class Drawing(NamedTuple):
    """Height and content of an `svg` element."""

    height: Number
    elements: Sequence[str]


class Figure(ABC):
    """A figure made from plain data. Subclasses are frozen dataclasses.

    Attributes:
        caption: what is shown, and over how many runs.
    """

    caption: str

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
    def plot(self, canvas: Canvas) -> None:
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
        return element("svg", *elements, class_=name, tabindex=tabindex, **labels, **size)

    def to_html(self, anchor: str) -> str:
        """Return a `figure` with text alternative, hover texts and a collapsed data table."""
        parts = [
            f'<figure id="{escape(anchor)}" class="chart">',
            f'<p class="visually-hidden" id="{escape(anchor)}-text">{escape(self.description())}</p>',
            self.body(anchor),
            f"<figcaption>{escape(self.caption)}</figcaption>",
            json_script(self.tooltips()) if self.tooltips() else "",
            f"<details><summary>Data</summary>{self.table().to_html(f'{anchor}-data')}</details>",
            "</figure>",
        ]
        return "\n".join(part for part in parts if part)

    def save(self, path: str | Path) -> Path:
        """Write the figure as PNG, SVG or PDF, depending on the suffix."""
        path = Path(path)
        with open_canvas(path, self.size(), layout="constrained") as canvas:
            self.plot(canvas)
        return path


@contextmanager
def open_canvas(
    path: Path, size: tuple[float, float], layout: Literal["constrained"] | None = None
) -> Iterator[Canvas]:
    """Yield a matplotlib figure in the report's style and write it to `path` on exit."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas

    with rc_context(_STYLE):
        canvas = Canvas(figsize=size, layout=layout)
        yield canvas
        with atomic_files.replacing(path) as part:
            canvas.savefig(part, dpi=200, metadata=_NO_DATE.get(path.suffix.lower()))


def plot_style(method: str) -> dict[str, Any]:
    """Return a method's style as matplotlib arguments."""
    style = method_style(method)
    dash = tuple(float(part) for part in style.dash.split())
    return {
        "color": series_color(style.color),
        "linestyle": (0, dash) if dash else "-",
        "marker": _MARKERS[style.marker],
    }


def add_axes(canvas: Canvas, grid: Literal["x", "y"] = "y") -> Axes:
    """Add the only axes of a figure, with a light grid along one axis."""
    axes = canvas.add_subplot()
    axes.grid(axis=grid)
    axes.tick_params(length=0)
    return axes

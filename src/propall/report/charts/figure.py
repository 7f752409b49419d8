"""What every figure is: drawn at two widths, described in words, with its data behind it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from propall import atomic_files
from propall.report.charts.svg import element
from propall.report.colors import LIGHT, MethodStyle, series_color
from propall.report.numbers import Number
from propall.report.tables import ReportTable, json_script

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

#: Widths in pixels: text keeps its size on a phone because a second, narrower drawing is shown there.
WIDE, NARROW = 720, 340

#: How matplotlib draws where it has a say: no frame, quiet axes, and the same bytes for the same data.
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
_UNDATED = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
_MARKERS = {
    **{"circle": "o", "square": "s", "triangle": "^", "diamond": "D"},
    **{"down": "v", "plus": "P", "cross": "X", "hexagon": "h"},
}


class Drawing(NamedTuple):
    """The inside of an `svg` element and its height."""

    height: Number
    inside: Sequence[str]


class Figure(ABC):
    """A figure made of plain data. Subclasses are frozen dataclasses.

    Attributes:
        caption: what is shown, and over how many runs.
    """

    caption: str

    @abstractmethod
    def description(self) -> str:
        """The text alternative: what a person who cannot see the figure should know."""

    @abstractmethod
    def table(self) -> ReportTable:
        """The figure's data."""

    @abstractmethod
    def draw(self, width: int) -> Drawing:
        """The figure as SVG, `width` pixels wide."""

    @abstractmethod
    def paint(self, canvas: Canvas) -> None:
        """The figure drawn with matplotlib."""

    def size(self) -> tuple[float, float]:
        """Width and height of the saved figure in inches."""
        return 7.2, 4.0

    def tips(self) -> list[str]:
        """What hovering shows; marks refer to these by their number in `data-t`."""
        return []

    def body(self, anchor: str) -> str:
        """What stands between the `figure` tag and the caption: both drawings; the page shows one."""
        return self._svg(anchor, "wide", WIDE) + "\n" + self._svg(anchor, "narrow", NARROW)

    def _svg(self, anchor: str, name: str, width: int) -> str:
        height, inside = self.draw(width)
        box = f"0 0 {width} {height:.0f}"
        # Names inside can be pressed, so this is a group and not an image, whose children are out of reach.
        named = {"role": "group", "aria_labelledby": f"{anchor}-text"}
        size = {"width": str(width), "height": f"{height:.0f}", "viewBox": box}
        reachable = "0" if self.tips() else None
        return element("svg", *inside, class_=name, tabindex=reachable, **named, **size)

    def to_html(self, anchor: str) -> str:
        """A `figure` with text alternative, hover texts and its data table behind a disclosure."""
        parts = [
            f'<figure id="{escape(anchor)}" class="chart">',
            f'<p class="unseen" id="{escape(anchor)}-text">{escape(self.description())}</p>',
            self.body(anchor),
            f"<figcaption>{escape(self.caption)}</figcaption>",
            json_script(self.tips()) if self.tips() else "",
            f"<details><summary>Data</summary>{self.table().to_html(f'{anchor}-data')}</details>",
            "</figure>",
        ]
        return "\n".join(part for part in parts if part)

    def save(self, path: str | Path) -> Path:
        """Write the figure as PNG, SVG or PDF, by the ending of the path; same data, same colors."""
        path = Path(path)
        with saved(path, self.size(), layout="constrained") as canvas:
            self.paint(canvas)
        return path


@contextmanager
def saved(
    path: Path, size: tuple[float, float], layout: Literal["constrained"] | None = None
) -> Iterator[Canvas]:
    """A canvas of matplotlib in the one look, written to a file when it is done."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas

    with rc_context(_STYLE):
        canvas = Canvas(figsize=size, layout=layout)
        yield canvas
        with atomic_files.replacing(path) as part:
            canvas.savefig(part, dpi=200, metadata=_UNDATED.get(path.suffix.lower()))


def plot_style(look: MethodStyle) -> dict[str, Any]:
    """A method's look in matplotlib's words."""
    dash = tuple(float(part) for part in look.dash.split())
    return {
        "color": series_color(look.color),
        "linestyle": (0, dash) if dash else "-",
        "marker": _MARKERS[look.marker],
    }


def quiet_axes(canvas: Canvas, grid: str = "y") -> Axes:
    """The one pair of axes of a figure, with a light grid along one axis."""
    axes = canvas.add_subplot()
    axes.grid(axis=grid)  # type: ignore[arg-type]
    axes.tick_params(length=0)
    return axes

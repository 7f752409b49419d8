"""Parts that several charts share: axis titles, grids, ticks, reference lines and names at line ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from propall.report.charts.svg import Scale, element, spread_apart, text_element
from propall.report.colors import LIGHT, text_color
from propall.report.numbers import Number, choose_ticks, format_number, format_tick

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Coordinate systems of matplotlib annotations to the right of and above the axes.
RIGHT_OF_AXES: tuple[Any, Any] = ("axes fraction", "data")
ABOVE_AXES: tuple[Any, Any] = ("data", "axes fraction")


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

    def describe(self, decimals: int) -> str:
        """Return label and value."""
        return f"{self.label} {format_number(self.value, decimals)}"

    def line(self, x1: Number, x2: Number, y1: Number, y2: Number) -> str:
        """Return the line as an SVG element."""
        dash = f"stroke-dasharray:{self.dash}"
        return element("line", x1=x1, x2=x2, y1=y1, y2=y2, class_="reference-line", style=dash)


def describe_references(references: Sequence[Reference], decimals: int) -> str:
    """Return the end of a chart's description."""
    return "".join(f"; {reference.describe(decimals)}" for reference in references)


def axis_title(title: str, low: Number) -> str:
    """Return the title, followed by where the axis starts if above zero."""
    return title if low <= 0 else f"{title}, axis starts at {format_tick(round(low))}"


def with_margin(low: Number, high: Number, share: Number = 0.04) -> tuple[float, float]:
    """Extend a range at both ends."""
    margin = share * ((high - low) or 1.0)
    return low - margin, high + margin


def y_grid(y: Scale, left: Number, right: Number, at_most: int = 5) -> list[str]:
    """Return horizontal grid lines, labeled on the left."""
    parts = []
    for tick in choose_ticks(y.low, y.high, at_most):
        parts.append(element("line", x1=left, x2=right, y1=y(tick), y2=y(tick), class_="grid"))
        parts.append(tick_label(format_tick(tick), left - 8, y(tick) + 4, "end"))
    return parts


def tick_label(text: str, x: Number, y: Number, anchor: str = "middle") -> str:
    """Return the label of a tick."""
    return text_element(text, x, y, class_="tick", text_anchor=anchor)


def x_axis_title(text: str, x: Number, y: Number) -> str:
    """Return the title of an x-axis, ending at x."""
    return text_element(text, x, y, class_="axis", text_anchor="end")


def plot_title(axes: Axes, text: str) -> None:
    """Put the title of the y-axis above matplotlib axes."""
    axes.set_title(text, loc="left", fontsize=10, color=LIGHT.muted)


def plot_line_names(axes: Axes, ends: Sequence[tuple[str, Number]], low: Number, high: Number) -> None:
    """Write each line's name at its end, to the right of matplotlib axes that span [low, high]."""
    # Negated, because y points up here: the highest line keeps its place and the others make room.
    places = spread_apart([-value for _, value in ends], (high - low) / 20, -high, -low)
    for (name, _), place in zip(ends, places, strict=True):
        axes.annotate(
            name,
            (1.01, -place),
            xycoords=RIGHT_OF_AXES,
            color=text_color(name),
            va="center",
            annotation_clip=False,
        )

"""Parts of figures drawn with matplotlib."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from propall import atomic_files
from propall.report.charts.svg import spread_apart
from propall.report.colors import LIGHT, method_style, series_color, text_color
from propall.report.numbers import Number

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

# As text, because matplotlib is imported only where something is plotted.
Axes: TypeAlias = "matplotlib.axes.Axes"
Canvas: TypeAlias = "matplotlib.figure.Figure"
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
#: Coordinate systems of matplotlib annotations to the right of and above the axes.
RIGHT_OF_AXES: tuple[Any, Any] = ("axes fraction", "data")
ABOVE_AXES: tuple[Any, Any] = ("data", "axes fraction")
#: Text about the axes or a reference.
SMALL: dict[str, Any] = {"color": LIGHT.muted, "fontsize": 9}


@contextmanager
def open_canvas(
    path: Path, size: tuple[float, float], layout: Literal["constrained"] | None = None
) -> Iterator[Canvas]:
    """Yield a matplotlib figure in the report's style and write it to `path` on exit."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        canvas = Figure(figsize=size, layout=layout)
        yield canvas
        with atomic_files.replacing(path) as part:
            canvas.savefig(part, dpi=200, metadata=_NO_DATE.get(path.suffix.lower()))


def line_style(method: str) -> dict[str, Any]:
    """Return a method's style as matplotlib arguments."""
    style = method_style(method)
    dash = tuple(float(part) for part in style.dash.split())
    linestyle = (0, dash) if dash else "-"
    return {"color": series_color(style.color), "linestyle": linestyle, "marker": _MARKERS[style.marker]}


def add_axes(canvas: Canvas, grid: Literal["x", "y"] = "y") -> Axes:
    """Add the only axes of a figure, with a light grid along one axis."""
    axes = canvas.add_subplot()
    axes.grid(axis=grid)
    axes.tick_params(length=0)
    return axes


def set_title(axes: Axes, text: str) -> None:
    """Put the title of the y-axis above matplotlib axes."""
    axes.set_title(text, loc="left", fontsize=10, color=LIGHT.muted)


def finish_lines(
    axes: Axes, x_title: str, y_title: str, y_range: Sequence[Number], ends: Sequence[tuple[str, Number]]
) -> None:
    """Set titles and y-range of a line chart, and write each line's name next to its last value."""
    low, high = y_range
    axes.set_ylim(low, high)
    axes.set_xlabel(x_title)
    set_title(axes, y_title)
    # Negated, because y points up here: the highest line keeps its place and the others make room.
    places = spread_apart([-value for _, value in ends], (high - low) / 20, -high, -low)
    for (name, _), place in zip(ends, places, strict=True):
        style: dict[str, Any] = {"color": text_color(name), "va": "center", "annotation_clip": False}
        axes.annotate(name, (1.01, -place), xycoords=RIGHT_OF_AXES, **style)

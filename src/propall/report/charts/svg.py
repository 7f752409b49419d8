"""SVG as text: elements, scales, axes, method markers and estimated text widths."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from propall.report.colors import MethodStyle, method_key, method_style
from propall.report.numbers import Number, choose_ticks, format_tick

Attribute = str | Number | None


def format_coordinate(value: Number) -> str:
    """Format with at most one decimal; a tenth of a pixel is invisible."""
    return f"{value:.1f}".removesuffix(".0")


def element(tag: str, *children: str, **attributes: Attribute) -> str:
    """Return one element; `class_` and `data_t` become `class` and `data-t`, None omits an attribute."""
    pairs = []
    for name, value in attributes.items():
        if value is not None:
            shown = escape(value) if isinstance(value, str) else format_coordinate(value)
            pairs.append(f' {name.rstrip("_").replace("_", "-")}="{shown}"')
    inside = "".join(children)
    return f"<{tag}{''.join(pairs)}>{inside}</{tag}>" if inside else f"<{tag}{''.join(pairs)}/>"


def text(content: str, x: Number, y: Number, **attributes: Attribute) -> str:
    """Return a text element."""
    return element("text", escape(content), x=x, y=y, **attributes)


def path(points: Sequence[tuple[Number, Number]], closed: bool = False) -> str:
    """Return the `d` attribute of a polyline."""
    joined = "L".join(f"{format_coordinate(x)} {format_coordinate(y)}" for x, y in points)
    return f"M{joined}{'Z' if closed else ''}"


def text_width(text: str, size: Number = 13) -> float:
    """Estimate the width in pixels in a sans-serif font; generous, so that labels fit."""
    narrow = sum(c in "iljtfrI.,:;'|()[] " for c in text)
    wide = sum(c in "mwMW@%" for c in text)
    capital = sum(c.isupper() and c not in "IMW" for c in text)
    rest = len(text) - narrow - wide - capital
    return size * (0.61 * rest + 0.37 * narrow + 0.9 * wide + 0.7 * capital)


@dataclass(frozen=True)
class Scale:
    """A linear map from data to pixels."""

    low: Number
    high: Number
    start: Number
    end: Number

    def __call__(self, value: Number) -> float:
        """Return the pixel of a value."""
        span = (self.high - self.low) or 1.0
        return self.start + (value - self.low) / span * (self.end - self.start)


def y_grid(y: Scale, left: Number, right: Number, at_most: int = 5) -> list[str]:
    """Return horizontal grid lines, labeled on the left."""
    parts = []
    for tick in choose_ticks(y.low, y.high, at_most):
        parts.append(element("line", x1=left, x2=right, y1=y(tick), y2=y(tick), class_="grid"))
        parts.append(tick_label(format_tick(tick), left - 8, y(tick) + 4, "end"))
    return parts


def tick_label(label: str, x: Number, y: Number, anchor: str = "middle") -> str:
    """Return the label of a tick."""
    return text(label, x, y, class_="tick", text_anchor=anchor)


def x_axis_title(title: str, x: Number, y: Number) -> str:
    """Return the title of an x-axis, ending at x."""
    return text(title, x, y, class_="axis", text_anchor="end")


def line(points: Sequence[tuple[Number, Number]], class_: str, style: MethodStyle | None = None) -> str:
    """Return a polyline, in a method's color and dash if a style is passed."""
    css = None
    if style is not None:
        css = f"stroke:{area_color(style)}" + (f";stroke-dasharray:{style.dash}" if style.dash else "")
    return element("path", d=path(points), class_=class_, style=css)


def area_color(style: MethodStyle) -> str:
    """Return the CSS color of a method's lines and areas."""
    return "var(--muted)" if style.color < 0 else f"var(--s{style.color})"


#: Marker outlines for radius 1, as polygons; the circle has an element of its own.
_OUTLINES: dict[str, list[tuple[Number, Number]]] = {
    "square": [(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)],
    "triangle": [(0, -1.15), (1, 0.75), (-1, 0.75)],
    "diamond": [(0, -1.2), (1.2, 0), (0, 1.2), (-1.2, 0)],
    "down": [(0, 1.15), (1, -0.75), (-1, -0.75)],
    "plus": [
        *((-0.35, -1.1), (0.35, -1.1), (0.35, -0.35), (1.1, -0.35), (1.1, 0.35), (0.35, 0.35)),
        *((0.35, 1.1), (-0.35, 1.1), (-0.35, 0.35), (-1.1, 0.35), (-1.1, -0.35), (-0.35, -0.35)),
    ],
    "cross": [
        *((0, -0.5), (0.55, -1.05), (1.05, -0.55), (0.5, 0), (1.05, 0.55), (0.55, 1.05)),
        *((0, 0.5), (-0.55, 1.05), (-1.05, 0.55), (-0.5, 0), (-1.05, -0.55), (-0.55, -1.05)),
    ],
    "hexagon": [(0, -1.1), (0.95, -0.55), (0.95, 0.55), (0, 1.1), (-0.95, 0.55), (-0.95, -0.55)],
}


def marker(style: MethodStyle, x: Number, y: Number, radius: Number = 4, **attributes: Attribute) -> str:
    """Return a method's marker."""
    css = f"fill:{area_color(style)}"
    if style.marker == "circle":
        return element("circle", cx=x, cy=y, r=radius, style=css, **attributes)
    outline = [(x + radius * dx, y + radius * dy) for dx, dy in _OUTLINES[style.marker]]
    return element("path", d=path(outline, closed=True), style=css, **attributes)


def method_name(name: str, x: Number, y: Number, **attributes: Attribute) -> str:
    """Return a method's name as a button that fades the other methods."""
    color = method_style(name).color
    css = "fill:var(--muted)" if color < 0 else f"fill:var(--t{color})"
    pressable = {"role": "button", "tabindex": "0", "aria_pressed": "false", "data_pick": method_key(name)}
    return text(name, x, y, class_="name", style=css, **pressable, **attributes)


def series(name: str, *parts: str, class_: str = "series", **attributes: Attribute) -> str:
    """Group everything drawn for one method."""
    return element("g", *parts, class_=class_, data_series=method_key(name), **attributes)


def spread_apart(positions: Sequence[Number], gap: Number, low: Number, high: Number) -> list[float]:
    """Return positions moved as little as possible, in order, at least `gap` apart within [low, high]."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    placed = [0.0] * len(positions)
    edge = float(low)
    for i in order:
        placed[i] = edge = max(float(positions[i]), edge)
        edge += gap
    edge = float(high)
    for i in reversed(order):
        placed[i] = edge = min(placed[i], edge)
        edge -= gap
    return placed

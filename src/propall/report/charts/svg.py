"""SVG as text: elements, scales, markers and how wide a word is."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from propall.report.colors import MethodStyle
from propall.report.numbers import Number


def number(value: Number) -> str:
    """A coordinate with at most one decimal; a tenth of a pixel is invisible."""
    return f"{value:.1f}".removesuffix(".0")


def element(tag: str, *children: str, **attributes: str | Number | None) -> str:
    """One element; `class_` and `data_t` become `class` and `data-t`, None leaves an attribute out."""
    pairs = []
    for name, value in attributes.items():
        if value is not None:
            shown = escape(value) if isinstance(value, str) else number(value)
            pairs.append(f' {name.rstrip("_").replace("_", "-")}="{shown}"')
    inside = "".join(children)
    return f"<{tag}{''.join(pairs)}>{inside}</{tag}>" if inside else f"<{tag}{''.join(pairs)}/>"


def words(text: str, x: Number, y: Number, **attributes: str | Number | None) -> str:
    """A text element."""
    return element("text", escape(text), x=x, y=y, **attributes)


def path(points: Sequence[tuple[Number, Number]], closed: bool = False) -> str:
    """The `d` of a polyline."""
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points) + ("Z" if closed else "")


def text_width(text: str, size: Number = 13) -> float:
    """Roughly how many pixels a text takes in a sans-serif face; generous, so that labels fit."""
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
        """The pixel of a value."""
        span = (self.high - self.low) or 1.0
        return self.start + (value - self.low) / span * (self.end - self.start)


def stroke(look: MethodStyle) -> str:
    """The style of a method's line."""
    dash = f";stroke-dasharray:{look.dash}" if look.dash else ""
    return f"stroke:{paint(look)}{dash}"


def paint(look: MethodStyle) -> str:
    """The CSS color of a method's lines and areas."""
    return "var(--muted)" if look.color < 0 else f"var(--s{look.color})"


def ink(look: MethodStyle) -> str:
    """The CSS color of text about a method, legible at text size."""
    return "var(--muted)" if look.color < 0 else f"var(--t{look.color})"


#: Outlines of the markers for a radius of 1, as polygons; the circle is drawn as such.
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


def marker(
    look: MethodStyle, x: Number, y: Number, radius: Number = 4, **attributes: str | Number | None
) -> str:
    """A method's marker."""
    style = f"fill:{paint(look)}"
    if look.marker == "circle":
        return element("circle", cx=x, cy=y, r=radius, style=style, **attributes)
    outline = [(x + radius * dx, y + radius * dy) for dx, dy in _OUTLINES[look.marker]]
    return element("path", d=path(outline, closed=True), style=style, **attributes)


def spread(wanted: Sequence[Number], gap: Number, low: Number, high: Number) -> list[float]:
    """Positions as near as possible to the wanted ones, in their order, `gap` apart, within [low, high]."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed = [0.0] * len(wanted)
    edge = float(low)
    for i in order:
        placed[i] = edge = max(float(wanted[i]), edge)
        edge += gap
    edge = float(high)
    for i in reversed(order):
        placed[i] = edge = min(placed[i], edge)
        edge -= gap
    return placed

"""Lines over time, with bands for the spread over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from propall.report.charts.figure import Drawing, Figure, plot_style, quiet_axes
from propall.report.charts.svg import (
    Scale,
    element,
    ink,
    marker,
    paint,
    path,
    spread,
    stroke,
    text_width,
    words,
)
from propall.report.colors import LIGHT, method_key, method_style, propall_last, series_color
from propall.report.numbers import (
    Number,
    choose_ticks,
    format_mean_std,
    format_number,
    format_tick,
    mean_and_std,
)
from propall.report.tables import Column, ReportTable, TableCell, TableRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

#: Up to this many lines carry their names at their ends; more get a legend on top.
LABELLED = 6
#: More places to hover than this would lie closer together than pixels.
HOVERED = 200


@dataclass(frozen=True)
class Line:
    """A method's value at each x, and its spread where there is one."""

    name: str
    mean: Sequence[Number]
    std: Sequence[Number | None] = ()

    @classmethod
    def over_seeds(cls, name: str, values: Iterable[Iterable[Number]]) -> Line:
        """Mean and sample std over seeds; item i of `values` holds one number per seed at x number i."""
        pairs = [mean_and_std([float(value) for value in at]) for at in values]
        stds = [std for _, std in pairs]
        return cls(name, [mean for mean, _ in pairs], () if None in stds else stds)

    def std_at(self, i: int) -> float | None:
        """The spread at x number i, if known."""
        return self.std[i] if self.std else None


@dataclass(frozen=True)
class Reference:
    """A horizontal yardstick: dashed for the ceiling of clean labels, dotted for chance."""

    label: str
    value: Number
    kind: Literal["ceiling", "chance"]

    @property
    def dash(self) -> str:
        """SVG dash pattern."""
        return "7 4" if self.kind == "ceiling" else "1.5 4"

    @property
    def plot_dash(self) -> tuple[int, tuple[float, ...]]:
        """The same in matplotlib's words."""
        return 0, tuple(float(part) for part in self.dash.split())

    def says(self, decimals: int) -> str:
        """Label and number."""
        return f"{self.label} {format_number(self.value, decimals)}"


@dataclass(frozen=True)
class LineChart(Figure):
    """Lines with bands of one std, names at their ends, a dashed ceiling and a dotted chance line.

    Attributes:
        caption: what is shown, and over how many runs.
        x: shared by all lines.
        lines: in the order of the legend; ProPaLL is drawn last.
        x_title: name of the x-axis, such as "epoch".
        y_title: name and unit of the y-axis.
        references: yardsticks; one far outside the lines' range is named at the edge instead of drawn.
        decimals: of the exact values.
    """

    caption: str
    x: Sequence[Number]
    lines: Sequence[Line]
    x_title: str = "epoch"
    y_title: str = "test accuracy (%)"
    references: Sequence[Reference] = ()
    decimals: int = 2

    def __post_init__(self) -> None:
        for line in self.lines:
            if len(line.mean) != len(self.x) or len(line.std) not in (0, len(self.x)):
                raise ValueError(
                    f"lines: {line.name!r} has {len(line.mean)} values and {len(line.std)} stds for "
                    f"{len(self.x)} values of x; give one for each."
                )

    def description(self) -> str:
        """First and last value of every line."""
        ends = "; ".join(
            f"{line.name} from {format_number(line.mean[0], self.decimals)} to "
            f"{format_mean_std(line.mean[-1], line.std_at(-1), self.decimals)}"
            for line in self.lines
        )
        marks = "".join(f"; {reference.says(self.decimals)}" for reference in self.references)
        span = f"{format_tick(self.x[0])} to {format_tick(self.x[-1])}"
        return f"Line chart of {self.y_title} over {self.x_title} {span}: {ends}{marks}."

    def table(self) -> ReportTable:
        """One row per x."""
        columns = [Column(line.name, decimals=self.decimals) for line in self.lines]
        rows = [
            TableRow(format_tick(x), [TableCell(line.mean[i], line.std_at(i)) for line in self.lines])
            for i, x in enumerate(self.x)
        ]
        return ReportTable(columns, rows, f"{self.y_title} by {self.x_title}", self.x_title, formats=("CSV",))

    def tips(self) -> list[str]:
        """All lines at one x, the highest first."""
        texts = []
        for i, x in enumerate(self.x):
            at = [(line.mean[i], line.std_at(i), line.name) for line in self.lines]
            ranked = sorted(at, key=lambda entry: -entry[0])
            values = (f"{name} {format_mean_std(mean, std, self.decimals)}" for mean, std, name in ranked)
            texts.append("\n".join([f"{self.x_title} {format_tick(x)}", *values]))
        return texts

    @cached_property
    def _range(self) -> tuple[float, float]:
        edges = [
            value + side * (line.std_at(i) or 0)
            for line in self.lines
            for i, value in enumerate(line.mean)
            for side in (-1, 1)
        ]
        low, high = min(edges), max(edges)
        near = 0.35 * ((high - low) or 1.0)
        # A yardstick far away would flatten all differences between the lines: it may not stretch the axis.
        for reference in self.references:
            if low - near <= reference.value <= high + near:
                low, high = min(low, reference.value), max(high, reference.value)
        margin = 0.04 * ((high - low) or 1.0)
        return low - margin, high + margin

    def _axis_title(self) -> str:
        low, _ = self._range
        return self.y_title if low <= 0 else f"{self.y_title}, axis starts at {format_tick(round(low))}"

    def draw(self, width: int) -> Drawing:
        """Grid, yardsticks, bands, lines, names, and a column to hover per x."""
        labelled = len(self.lines) <= LABELLED
        legend, top = ([], 30.0) if labelled else self._legend(width)
        height = top + (330 if width > 500 else 250)
        names = [line.name for line in self.lines] if labelled else []
        left, right = 40.0, width - max([8.0, *(text_width(name) + 18 for name in names)])
        x = Scale(self.x[0], self.x[-1], left, right)
        y = Scale(*self._range, height - 42, top)
        inside = [*self._axes(x, y, height), *self._yardsticks(x, y), *legend]
        drawn = propall_last([line.name for line in self.lines])
        by_name = {line.name: line for line in self.lines}
        ends = spread([y(line.mean[-1]) for line in self.lines], 16, y.end + 4, y.start)
        heights = {line.name: end for line, end in zip(self.lines, ends, strict=True)}
        for name in drawn:
            inside.append(self._line(by_name[name], x, y, heights[name] if labelled else None))
        return Drawing(height, [*inside, *self._hover_columns(x, y)])

    def _axes(self, x: Scale, y: Scale, height: Number) -> list[str]:
        parts = [words(self._axis_title(), 2, y.end - 16, class_="axis")]
        for tick in choose_ticks(y.low, y.high):
            parts.append(element("line", x1=x.start, x2=x.end, y1=y(tick), y2=y(tick), class_="grid"))
            parts.append(words(format_tick(tick), x.start - 8, y(tick) + 4, class_="tick", text_anchor="end"))
        whole = all(float(value).is_integer() for value in self.x)
        for tick in choose_ticks(x.low, x.high, 6 if x.end > 400 else 4, whole=whole):
            parts.append(words(format_tick(tick), x(tick), height - 24, class_="tick", text_anchor="middle"))
        return [*parts, words(self.x_title, x.end, height - 5, class_="axis", text_anchor="end")]

    def _yardsticks(self, x: Scale, y: Scale) -> list[str]:
        parts = []
        for reference in self.references:
            says = reference.says(self.decimals)
            if reference.value < y.low:
                parts.append(words(f"↓ {says}", x.start + 6, y.start - 6, class_="yard"))
            elif reference.value > y.high:
                parts.append(words(f"↑ {says}", x.start + 6, y.end + 12, class_="yard"))
            else:
                at, style = y(reference.value), f"stroke-dasharray:{reference.dash}"
                parts.append(
                    element("line", x1=x.start, x2=x.end, y1=at, y2=at, class_="yardline", style=style)
                )
                parts.append(words(says, x.start + 6, at - 6, class_="yard"))
        return parts

    def _line(self, line: Line, x: Scale, y: Scale, label_at: Number | None) -> str:
        style = method_style(line.name)
        points = [(x(at), y(value)) for at, value in zip(self.x, line.mean, strict=True)]
        parts = []
        if line.std:
            up = [(x(at), y(m + (s or 0))) for at, m, s in zip(self.x, line.mean, line.std, strict=True)]
            down = [(x(at), y(m - (s or 0))) for at, m, s in zip(self.x, line.mean, line.std, strict=True)]
            band = path(up + down[::-1], closed=True)
            parts.append(element("path", d=band, class_="band", style=f"fill:{paint(style)}"))
        parts.append(element("path", d=path(points), class_="line", style=stroke(style)))
        every = max(1, len(points) // 6)
        parts += [marker(style, *point, 3) for point in [*points[every // 2 :: every], points[-1]]]
        if label_at is not None:
            if abs(label_at - points[-1][1]) > 5:
                lead = path([points[-1], (x.end + 9, label_at)])
                parts.append(element("path", d=lead, class_="lead", style=stroke(style._replace(dash=""))))
            parts.append(pickable(line.name, x.end + 12, label_at + 4))
        return element("g", *parts, class_="series", data_series=method_key(line.name))

    def _legend(self, width: int) -> tuple[list[str], float]:
        parts, at, row = [], 2.0, 12.0
        for line in self.lines:
            needed = text_width(line.name) + 44
            if at + needed > width and at > 2:
                at, row = 2.0, row + 20
            style = method_style(line.name)
            dash = path([(at, row - 4), (at + 26, row - 4)])
            swatch = element("path", d=dash, class_="line", style=stroke(style))
            mark = marker(style, at + 13, row - 4, 3)
            label = pickable(line.name, at + 31, row)
            parts.append(
                element("g", swatch, mark, label, class_="series", data_series=method_key(line.name))
            )
            at += needed
        return parts, row + 44

    def _hover_columns(self, x: Scale, y: Scale) -> list[str]:
        every = -(-len(self.x) // HOVERED)
        chosen = sorted({*range(0, len(self.x), every), len(self.x) - 1})
        places = [x(self.x[i]) for i in chosen]
        edges = [places[0] - 6, *((a + b) / 2 for a, b in pairwise(places)), places[-1] + 6]
        columns = []
        for i, place, (start, end) in zip(chosen, places, pairwise(edges), strict=True):
            area = element("rect", x=start, y=y.end, width=end - start, height=y.start - y.end)
            guide = element("path", d=path([(place, y.end), (place, y.start)]))
            columns.append(element("g", area, guide, class_="hit", data_t=str(i)))
        return columns

    def paint(self, canvas: Canvas) -> None:
        """The same lines, bands and yardsticks."""
        axes = quiet_axes(canvas)
        by_name = {line.name: line for line in self.lines}
        every = max(1, len(self.x) // 6)
        for name in propall_last(list(by_name)):
            line, style = by_name[name], plot_style(method_style(name))
            axes.plot(self.x, line.mean, label=name, markevery=(every // 2, every), markersize=4, **style)
            if line.std:
                lower = [m - (s or 0) for m, s in zip(line.mean, line.std, strict=True)]
                upper = [m + (s or 0) for m, s in zip(line.mean, line.std, strict=True)]
                axes.fill_between(self.x, lower, upper, color=style["color"], alpha=0.14, linewidth=0)
        low, high = self._range
        axes.set_ylim(low, high)
        if len(self.x) > 1:
            axes.set_xlim(self.x[0], self.x[-1])
        axes.set_xlabel(self.x_title)
        axes.set_title(self._axis_title(), loc="left", fontsize=10, color=LIGHT.muted)
        beside: tuple[Any, Any] = ("axes fraction", "data")
        for reference in self.references:
            if low <= reference.value <= high:
                axes.axhline(reference.value, color=LIGHT.muted, linewidth=1, linestyle=reference.plot_dash)
                says, place = reference.says(self.decimals), (0.01, reference.value + (high - low) / 80)
                axes.annotate(says, place, xycoords=beside, color=LIGHT.muted, fontsize=9)
        if len(self.lines) > LABELLED:
            handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
            ordered = [handles[line.name] for line in self.lines]
            canvas.legend(handles=ordered, frameon=False, ncols=4, loc="outside lower center", fontsize=9)
            return
        # Downwards, as pixels go: the highest line keeps its place and the others make room.
        ends = spread([-line.mean[-1] for line in self.lines], (high - low) / 20, -high, -low)
        for line, end in zip(self.lines, ends, strict=True):
            color = series_color(method_style(line.name).color, minimum=4.5)
            place = (1.01, -end)
            axes.annotate(line.name, place, xycoords=beside, color=color, va="center", annotation_clip=False)


def pickable(name: str, x: Number, y: Number, **attributes: str | Number | None) -> str:
    """A method's name; pressing it fades the others."""
    pressable = {"role": "button", "tabindex": "0", "aria_pressed": "false", "data_pick": method_key(name)}
    style = f"fill:{ink(method_style(name))}"
    return words(name, x, y, class_="name", style=style, **pressable, **attributes)

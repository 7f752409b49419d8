"""Lines over time, with bands for the spread over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from propall.report.charts import plots, svg
from propall.report.charts.figure import (
    Drawing,
    Figure,
    Reference,
    axis_title,
    describe_references,
    with_margin,
)
from propall.report.colors import LIGHT, method_style, propall_last
from propall.report.numbers import Number, choose_ticks, format_mean, format_number, format_tick, mean_and_std
from propall.report.tables import Column, ReportTable, TableCell, TableRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

#: Charts with more lines than this get a legend instead of names at the line ends.
MAX_NAMED_LINES = 6
#: More hover columns than this would be closer together than pixels.
MAX_HOVER_COLUMNS = 200


@dataclass(frozen=True)
class Line:
    """A method's value at each x, with its standard deviation where known."""

    name: str
    mean: Sequence[Number]
    std: Sequence[Number | None] = ()

    @classmethod
    def over_seeds(cls, name: str, values: Iterable[Iterable[Number]]) -> Line:
        """Build from one sequence of values (one per seed) for each x."""
        pairs = [mean_and_std([float(value) for value in at]) for at in values]
        stds = [std for _, std in pairs]
        return cls(name, [mean for mean, _ in pairs], () if None in stds else stds)

    def std_at(self, i: int) -> float | None:
        """Return the standard deviation at the i-th x, if known."""
        return self.std[i] if self.std else None

    def band(self) -> tuple[list[float], list[float]]:
        """Return mean minus and mean plus one standard deviation."""
        pairs = [(mean, self.std_at(i) or 0) for i, mean in enumerate(self.mean)]
        return [mean - std for mean, std in pairs], [mean + std for mean, std in pairs]


@dataclass(frozen=True)
class LineChart(Figure):
    """Lines with bands of one standard deviation, named at their ends.

    Attributes:
        caption: what is shown, and over how many runs.
        x: shared by all lines.
        lines: in legend order; ProPaLL is drawn last.
        x_title: name of the x-axis, such as "epoch".
        y_title: name and unit of the y-axis.
        references: reference lines; those far outside the lines' range are only named at the edge.
        decimals: digits of the exact values.
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
                    f"{len(self.x)} values of x; expected one for each."
                )

    def description(self) -> str:
        """Return first and last value of every line."""
        ends = "; ".join(
            f"{line.name} from {format_number(line.mean[0], self.decimals)} to "
            f"{format_mean(line.mean[-1], line.std_at(-1), self.decimals)}"
            for line in self.lines
        )
        span = f"{format_tick(self.x[0])} to {format_tick(self.x[-1])}"
        references = describe_references(self.references, self.decimals)
        return f"Line chart of {self.y_title} over {self.x_title} {span}: {ends}{references}."

    def table(self) -> ReportTable:
        """Return one row per x."""
        columns = [Column(line.name, decimals=self.decimals) for line in self.lines]
        rows = [
            TableRow(format_tick(x), [TableCell(line.mean[i], line.std_at(i)) for line in self.lines])
            for i, x in enumerate(self.x)
        ]
        return ReportTable(columns, rows, f"{self.y_title} by {self.x_title}", self.x_title, formats=("CSV",))

    def tooltips(self) -> list[str]:
        """Return the values of all lines at each x, highest first."""
        texts = []
        for i, x in enumerate(self.x):
            ranked = sorted(self.lines, key=lambda line: -line.mean[i])
            values = (
                f"{line.name} {format_mean(line.mean[i], line.std_at(i), self.decimals)}" for line in ranked
            )
            texts.append("\n".join([f"{self.x_title} {format_tick(x)}", *values]))
        return texts

    @cached_property
    def _range(self) -> tuple[float, float]:
        edges = [edge for line in self.lines for side in line.band() for edge in side]
        low, high = min(edges), max(edges)
        near = 0.35 * ((high - low) or 1.0)
        # A distant reference must not stretch the axis: it would flatten all differences between lines.
        for reference in self.references:
            if low - near <= reference.value <= high + near:
                low, high = min(low, reference.value), max(high, reference.value)
        return with_margin(low, high)

    def draw(self, width: int) -> Drawing:
        """Draw grid, references, bands, lines, names, and one hover column per x."""
        named = len(self.lines) <= MAX_NAMED_LINES
        legend, top = ([], 30.0) if named else self._legend(width)
        height = top + (330 if width > 500 else 250)
        names = [line.name for line in self.lines] if named else []
        left, right = 40.0, width - max([8.0, *(svg.text_width(name) + 18 for name in names)])
        x = svg.Scale(self.x[0], self.x[-1], left, right)
        y = svg.Scale(*self._range, height - 42, top)
        elements = [*self._axes(x, y, height), *self._reference_lines(x, y), *legend]
        by_name = {line.name: line for line in self.lines}
        ends = svg.spread_apart([y(line.mean[-1]) for line in self.lines], 16, y.end + 4, y.start)
        label_heights = dict(zip(by_name, ends, strict=True))
        for name in propall_last(list(by_name)):
            elements.append(self._line(by_name[name], x, y, label_heights[name] if named else None))
        return Drawing(height, [*elements, *self._hover_columns(x, y)])

    def _axes(self, x: svg.Scale, y: svg.Scale, height: Number) -> list[str]:
        parts = [svg.text(axis_title(self.y_title, y.low), 2, y.end - 16, class_="axis")]
        parts += svg.y_grid(y, x.start, x.end)
        whole = all(float(value).is_integer() for value in self.x)
        for tick in choose_ticks(x.low, x.high, 6 if x.end > 400 else 4, whole=whole):
            parts.append(svg.tick_label(format_tick(tick), x(tick), height - 24))
        return [*parts, svg.x_axis_title(self.x_title, x.end, height - 5)]

    def _reference_lines(self, x: svg.Scale, y: svg.Scale) -> list[str]:
        parts = []
        for reference in self.references:
            text, at = reference.describe(self.decimals), y(reference.value)
            if reference.value < y.low:
                text, label_at = f"↓ {text}", y.start - 6
            elif reference.value > y.high:
                text, label_at = f"↑ {text}", y.end + 12
            else:
                parts.append(reference.line(x.start, x.end, at, at))
                label_at = at - 6
            parts.append(svg.text(text, x.start + 6, label_at, class_="reference"))
        return parts

    def _line(self, line: Line, x: svg.Scale, y: svg.Scale, label_at: Number | None) -> str:
        style = method_style(line.name)
        points = [(x(at), y(value)) for at, value in zip(self.x, line.mean, strict=True)]
        parts = []
        if line.std:
            down, up = ([(x(a), y(v)) for a, v in zip(self.x, side, strict=True)] for side in line.band())
            band = svg.path(up + down[::-1], closed=True)
            parts.append(svg.element("path", d=band, class_="band", style=f"fill:{svg.area_color(style)}"))
        parts.append(svg.line(points, "line", style))
        every = max(1, len(points) // 6)
        parts += [svg.marker(style, *point, 3) for point in [*points[every // 2 :: every], points[-1]]]
        if label_at is not None:
            if abs(label_at - points[-1][1]) > 5:
                lead = [points[-1], (x.end + 9, label_at)]
                parts.append(svg.line(lead, "lead", style._replace(dash="")))
            parts.append(svg.method_name(line.name, x.end + 12, label_at + 4))
        return svg.series(line.name, *parts)

    def _legend(self, width: int) -> tuple[list[str], float]:
        """Return the legend and where the plot below it starts."""
        parts, at, row = [], 2.0, 12.0
        for line in self.lines:
            needed = svg.text_width(line.name) + 44
            if at + needed > width and at > 2:
                at, row = 2.0, row + 20
            style = method_style(line.name)
            swatch = svg.line([(at, row - 4), (at + 26, row - 4)], "line", style)
            mark = svg.marker(style, at + 13, row - 4, 3)
            parts.append(svg.series(line.name, swatch, mark, svg.method_name(line.name, at + 31, row)))
            at += needed
        return parts, row + 44

    def _hover_columns(self, x: svg.Scale, y: svg.Scale) -> list[str]:
        every = -(-len(self.x) // MAX_HOVER_COLUMNS)
        chosen = sorted({*range(0, len(self.x), every), len(self.x) - 1})
        places = [x(self.x[i]) for i in chosen]
        edges = [places[0] - 6, *((a + b) / 2 for a, b in pairwise(places)), places[-1] + 6]
        columns = []
        for i, place, (start, end) in zip(chosen, places, pairwise(edges), strict=True):
            area = svg.element("rect", x=start, y=y.end, width=end - start, height=y.start - y.end)
            guide = svg.element("path", d=svg.path([(place, y.end), (place, y.start)]))
            columns.append(svg.element("g", area, guide, class_="hit", data_t=str(i)))
        return columns

    def plot(self, canvas: Canvas) -> None:
        """Plot lines, bands and references."""
        axes = plots.add_axes(canvas)
        by_name = {line.name: line for line in self.lines}
        every = max(1, len(self.x) // 6)
        for name in propall_last(list(by_name)):
            line, style = by_name[name], plots.line_style(name)
            axes.plot(self.x, line.mean, label=name, markevery=(every // 2, every), markersize=4, **style)
            if line.std:
                axes.fill_between(self.x, *line.band(), color=style["color"], alpha=0.14, linewidth=0)
        low, high = self._range
        axes.set_ylim(low, high)
        if len(self.x) > 1:
            axes.set_xlim(self.x[0], self.x[-1])
        axes.set_xlabel(self.x_title)
        plots.set_title(axes, axis_title(self.y_title, low))
        for reference in self.references:
            if low <= reference.value <= high:
                axes.axhline(reference.value, **reference.plot_style)
                text, place = reference.describe(self.decimals), (0.01, reference.value + (high - low) / 80)
                axes.annotate(text, place, xycoords=plots.RIGHT_OF_AXES, color=LIGHT.muted, fontsize=9)
        if len(self.lines) > MAX_NAMED_LINES:
            handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
            ordered = [handles[line.name] for line in self.lines]
            canvas.legend(handles=ordered, frameon=False, ncols=4, loc="outside lower center", fontsize=9)
        else:
            plots.name_lines(axes, [(line.name, line.mean[-1]) for line in self.lines], low, high)

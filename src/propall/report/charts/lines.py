"""Line charts: over time with bands for the spread over seeds, and over a logarithmic axis."""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Self

from propall.report.charts import plots, svg
from propall.report.charts.figure import Drawing, Figure, Reference, axis_title, with_margin
from propall.report.colors import method_style, propall_last
from propall.report.numbers import Number, choose_ticks, format_mean, format_number, format_tick, mean_and_std
from propall.report.tables import Column, ReportTable, TableCell, TableRow

Point = tuple[Number, Number]
#: Charts with more lines than this get a legend instead of names at the line ends.
MAX_NAMED_LINES = 6
#: More hover columns than this would be closer together than pixels.
MAX_HOVER_COLUMNS = 200
#: More hover points on one line than this would overlap.
MAX_HOVER_POINTS = 40


@dataclass(frozen=True)
class Line:
    """A method's value at each x, with its standard deviation where known."""

    name: str
    mean: Sequence[Number]
    std: Sequence[Number | None] = ()

    @classmethod
    def over_seeds(cls, name: str, values: Iterable[Iterable[Number]]) -> Self:
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
    """Lines with bands of one standard deviation, named at their ends."""

    caption: str
    x: Sequence[Number]
    lines: Sequence[Line]  # in legend order; ProPaLL is drawn last
    x_title: str = "epoch"
    y_title: str = "test accuracy (%)"
    references: Sequence[Reference] = ()  # those far outside the lines' range are only named at the edge

    def __post_init__(self) -> None:
        for line in self.lines:
            if len(line.mean) != len(self.x) or len(line.std) not in (0, len(self.x)):
                raise ValueError(
                    f"lines: {line.name!r} has {len(line.mean)} values and {len(line.std)} stds for "
                    f"{len(self.x)} values of x; expected one for each."
                )

    def description(self) -> str:
        """Return first and last value of every line."""
        ends = [
            f"{line.name} from {format_number(line.mean[0])} to {format_mean(line.mean[-1], line.std_at(-1))}"
            for line in self.lines
        ]
        values = "; ".join([*ends, *(reference.text for reference in self.references)])
        span = f"{format_tick(self.x[0])} to {format_tick(self.x[-1])}"
        return f"Line chart of {self.y_title} over {self.x_title} {span}: {values}."

    def table(self) -> ReportTable:
        """Return one row per x."""
        rows = [
            TableRow(format_tick(x), [TableCell(line.mean[i], line.std_at(i)) for line in self.lines])
            for i, x in enumerate(self.x)
        ]
        columns = [Column(line.name) for line in self.lines]
        return ReportTable(columns, rows, f"{self.y_title} by {self.x_title}", self.x_title)

    def tooltips(self) -> list[str]:
        """Return the values of all lines at each x, highest first."""
        texts = []
        for i, x in enumerate(self.x):
            ranked = sorted(self.lines, key=lambda line: -line.mean[i])
            values = (f"{line.name} {format_mean(line.mean[i], line.std_at(i))}" for line in ranked)
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
        right = width - max([8.0, *(svg.text_width(name) + 18 for name in names)])
        x, y = svg.Scale(self.x[0], self.x[-1], 40.0, right), svg.Scale(*self._range, height - 42, top)
        whole = all(float(value).is_integer() for value in self.x)
        ticks = choose_ticks(x.low, x.high, 6 if right > 400 else 4, whole=whole)
        elements = _axes(x, y, {tick: x(tick) for tick in ticks}, (self.x_title, self.y_title))
        elements += [*self._reference_lines(x, y), *legend]
        by_name = {line.name: line for line in self.lines}
        ends = svg.spread_apart([y(line.mean[-1]) for line in self.lines], 16, y.end + 4, y.start)
        label_heights = dict(zip(by_name, ends, strict=True))
        for name in propall_last(list(by_name)):
            elements.append(self._line(by_name[name], x, y, label_heights[name] if named else None))
        return Drawing(height, [*elements, *self._hover_columns(x, y)])

    def _reference_lines(self, x: svg.Scale, y: svg.Scale) -> list[str]:
        parts = []
        for reference in self.references:
            text, at = reference.text, y(reference.value)
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

    def plot(self, canvas: plots.Canvas) -> None:
        """Plot lines, bands and references."""
        axes = plots.add_axes(canvas)
        by_name = {line.name: line for line in self.lines}
        every = max(1, len(self.x) // 6)
        for name in propall_last(list(by_name)):
            line, style = by_name[name], plots.line_style(name)
            axes.plot(self.x, line.mean, label=name, markevery=(every // 2, every), markersize=4, **style)
            if line.std:
                axes.fill_between(self.x, *line.band(), color=style["color"], alpha=0.14, linewidth=0)
        if len(self.x) > 1:
            axes.set_xlim(self.x[0], self.x[-1])
        low, high = self._range
        for reference in self.references:
            if low <= reference.value <= high:
                axes.axhline(reference.value, **reference.plot_style)
                place = (0.01, reference.value + (high - low) / 80)
                axes.annotate(reference.text, place, xycoords=plots.RIGHT_OF_AXES, **plots.SMALL)
        named = len(self.lines) <= MAX_NAMED_LINES
        ends = [(line.name, line.mean[-1]) for line in self.lines] if named else []
        plots.finish_lines(axes, self.x_title, axis_title(self.y_title, low), self._range, ends)
        if not named:
            handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
            ordered = [handles[line.name] for line in self.lines]
            canvas.legend(handles=ordered, frameon=False, ncols=4, loc="outside lower center", fontsize=9)


@dataclass(frozen=True)
class Curve:
    """A method's points (x, y), with x positive and increasing."""

    name: str
    points: Sequence[Point]


@dataclass(frozen=True)
class LogLineChart(Figure):
    """Lines of different lengths over a logarithmic time axis, named on the right."""

    caption: str
    curves: Sequence[Curve]  # ProPaLL is drawn last
    x_title: str = "seconds of training"
    y_title: str = "test accuracy (%)"

    def __post_init__(self) -> None:
        for curve in self.curves:
            if not curve.points or curve.points[0][0] <= 0:
                raise ValueError(
                    f"curves: {curve.name!r} starts with {list(curve.points[:1])}; a logarithmic axis needs "
                    "points with x above 0."
                )

    def description(self) -> str:
        """Return where every line ends."""
        lasts = [(curve.name, *curve.points[-1]) for curve in self.curves]
        ends = [f"{name} {format_number(y)} after {format_tick(round(x, 1))}" for name, x, y in lasts]
        return f"Line chart of {self.y_title} over {self.x_title}: {'; '.join(ends)}."

    def table(self) -> ReportTable:
        """Return one row per point."""
        rows = [TableRow.of(c.name, *point, method=c.name) for c in self.curves for point in c.points]
        columns = [Column(self.x_title), Column(self.y_title)]
        return ReportTable(columns, rows, f"{self.y_title} by {self.x_title}")

    @cached_property
    def _hover_points(self) -> list[list[Point]]:
        """Some of each line's points within the plot, always including the last."""
        chosen = []
        for curve in self.curves:
            inside = [point for point in curve.points if point[1] >= self._ranges[2]]
            every = max(1, -(-len(inside) // MAX_HOVER_POINTS))
            chosen.append([*inside[:-1:every], *inside[-1:]])
        return chosen

    def tooltips(self) -> list[str]:
        """Return method, value and time of each hover point."""
        return [
            f"{curve.name}\n{format_number(y)} after {format_tick(float(f'{x:.3g}'))} s"
            for curve, points in zip(self.curves, self._hover_points, strict=True)
            for x, y in points
        ]

    @cached_property
    def _ranges(self) -> tuple[float, float, float, float]:
        xs = [x for curve in self.curves for x, _ in curve.points]
        ys = sorted(y for curve in self.curves for _, y in curve.points)
        # The first epochs of a slow starter would flatten the rest, so 5 % of the points may lie below.
        return math.log10(min(xs)), math.log10(max(xs)), *with_margin(ys[len(ys) // 20], ys[-1], 0.06)

    def _x_ticks(self) -> list[float]:
        """Powers of ten, with their multiples by 2 and 5 where there are few."""
        low, high, _, _ = self._ranges
        powers = [10.0**power for power in range(math.floor(low), math.ceil(high) + 1)]
        for factors in ((1,), (1, 2, 5)):
            ticks = [power * factor for power in powers for factor in factors]
            inside = [tick for tick in ticks if low - 1e-9 <= math.log10(tick) <= high + 1e-9]
            if len(inside) > 2:
                break
        return inside

    def draw(self, width: int) -> Drawing:
        """Draw grid, lines, hover points and names."""
        top, height = 30.0, 340.0 if width > 500 else 270.0
        x_low, x_high, y_low, y_high = self._ranges
        right = width - max(svg.text_width(curve.name) + 18 for curve in self.curves)
        x, y = svg.Scale(x_low, x_high, 40.0, right), svg.Scale(y_low, y_high, height - 42, top)
        ticks = {tick: x(math.log10(tick)) for tick in self._x_ticks()}
        elements = _axes(x, y, ticks, (self.x_title, self.y_title))
        # Points below the axis are clipped, as matplotlib does. The id must be unique on the page.
        digest = hashlib.sha256(f"{self.caption} {self.curves} {width}".encode()).hexdigest()[:12]
        plot_area = svg.element("rect", x=0, y=0, width=width, height=y.start)
        elements.append(svg.element("clipPath", plot_area, id=f"plot-{digest}"))
        ends = svg.spread_apart([y(curve.points[-1][1]) for curve in self.curves], 16, top + 4, height - 42)
        groups, tip = {}, 0
        for curve, hover_points, end in zip(self.curves, self._hover_points, ends, strict=True):
            line = self._line(curve, hover_points, (x, y), end, tip)
            clipped = svg.element("g", *line, clip_path=f"url(#plot-{digest})")
            name = svg.method_name(curve.name, right + 12, end + 4)
            groups[curve.name] = svg.series(curve.name, clipped, name)
            tip += len(hover_points)
        return Drawing(height, [*elements, *(groups[name] for name in propall_last(list(groups)))])

    def _line(
        self,
        curve: Curve,
        hover_points: Sequence[Point],
        scales: tuple[svg.Scale, svg.Scale],
        label_at: Number,
        first_tip: int,
    ) -> list[str]:
        x, y = scales

        def place(point: Point) -> tuple[float, float]:
            return x(math.log10(point[0])), y(point[1])

        style, points = method_style(curve.name), [place(point) for point in curve.points]
        lead = [points[-1], (x.end + 9, label_at)]
        parts = [svg.line(points, "line", style), svg.line(lead, "lead", style._replace(dash="1 3"))]
        for tip, (at, height) in enumerate(map(place, hover_points), first_tip):
            area = svg.element("circle", cx=at, cy=height, r=7.0, class_="area")
            mark = svg.marker(style, at, height, 2.5)
            parts.append(svg.element("g", area, mark, class_="hit", data_t=str(tip)))
        return parts

    def plot(self, canvas: plots.Canvas) -> None:
        """Plot the lines on a logarithmic axis."""
        axes = plots.add_axes(canvas)
        by_name = {curve.name: curve for curve in self.curves}
        for name in propall_last(list(by_name)):
            xs, ys = zip(*by_name[name].points, strict=True)
            every = max(1, len(xs) // 8)
            axes.plot(xs, ys, label=name, markevery=every, markersize=4, **plots.line_style(name))
        x_low, x_high, *y_range = self._ranges
        axes.set_xscale("log")
        axes.set_xlim(10**x_low, 10**x_high)
        ends = [(curve.name, curve.points[-1][1]) for curve in self.curves]
        plots.finish_lines(axes, self.x_title, axis_title(self.y_title, y_range[0]), y_range, ends)


def _axes(x: svg.Scale, y: svg.Scale, ticks: Mapping[float, float], titles: tuple[str, str]) -> list[str]:
    """Return the grid, the ticks of the x-axis at their places, and the titles of x and y."""
    bottom = y.start + 42
    parts = [svg.text(axis_title(titles[1], y.low), 2, y.end - 16, class_="axis")]
    parts += svg.y_grid(y, x.start, x.end)
    parts += [svg.tick_label(format_tick(tick), at, bottom - 24) for tick, at in ticks.items()]
    return [*parts, svg.x_axis_title(titles[0], x.end, bottom - 5)]

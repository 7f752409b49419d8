"""Lines over a logarithmic x-axis, each with its own x values, such as accuracy over training time."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from propall.report.charts import plots, svg
from propall.report.charts.figure import Drawing, Figure, axis_title, with_margin
from propall.report.colors import method_style, propall_last
from propall.report.numbers import Number, format_number, format_tick
from propall.report.tables import Column, ReportTable, TableCell, TableRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

Point = tuple[Number, Number]
#: More hover points on one line than this would overlap.
MAX_HOVER_POINTS = 40


@dataclass(frozen=True)
class Curve:
    """A method's points (x, y), with x positive and increasing."""

    name: str
    points: Sequence[Point]


@dataclass(frozen=True)
class LogLineChart(Figure):
    """Lines of different lengths over a logarithmic axis, named on the right.

    Attributes:
        caption: what is shown.
        curves: the lines; ProPaLL is drawn last.
        x_title: name and unit of the x-axis.
        y_title: name and unit of the y-axis.
        decimals: digits of the exact values.
    """

    caption: str
    curves: Sequence[Curve]
    x_title: str = "seconds of training"
    y_title: str = "test accuracy (%)"
    decimals: int = 2

    def __post_init__(self) -> None:
        for curve in self.curves:
            if not curve.points or curve.points[0][0] <= 0:
                raise ValueError(
                    f"curves: {curve.name!r} starts with {list(curve.points[:1])}; a logarithmic axis needs "
                    "points with x above 0."
                )

    def description(self) -> str:
        """Return where every line ends."""
        ends = "; ".join(
            f"{curve.name} {format_number(curve.points[-1][1], self.decimals)} after "
            f"{format_tick(round(curve.points[-1][0], 1))}"
            for curve in self.curves
        )
        return f"Line chart of {self.y_title} over {self.x_title}: {ends}."

    def table(self) -> ReportTable:
        """Return one row per point."""
        columns = [Column(self.x_title), Column(self.y_title, decimals=self.decimals)]
        rows = [
            TableRow(curve.name, [TableCell(x), TableCell(y)], curve.name)
            for curve in self.curves
            for x, y in curve.points
        ]
        return ReportTable(columns, rows, f"{self.y_title} by {self.x_title}", formats=("CSV",))

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
            f"{curve.name}\n{format_number(y, self.decimals)} after {format_tick(float(f'{x:.3g}'))} s"
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
        top = 30.0
        height = top + (310 if width > 500 else 240)
        x_low, x_high, y_low, y_high = self._ranges
        left, right = 40.0, width - max(svg.text_width(curve.name) + 18 for curve in self.curves)
        x, y = svg.Scale(x_low, x_high, left, right), svg.Scale(y_low, y_high, height - 42, top)
        elements = [svg.text(axis_title(self.y_title, y_low), 2, top - 16, class_="axis")]
        elements += svg.y_grid(y, left, right)
        for tick in self._x_ticks():
            elements.append(svg.tick_label(format_tick(tick), x(math.log10(tick)), height - 24))
        elements.append(svg.x_axis_title(self.x_title, right, height - 5))
        # Points below the axis are clipped, as matplotlib does. The id must be unique on the page.
        digest = hashlib.sha256(f"{self.caption} {self.curves} {width}".encode()).hexdigest()[:12]
        plot_area = svg.element("rect", x=0, y=0, width=width, height=y.start)
        elements.append(svg.element("clipPath", plot_area, id=f"plot-{digest}"))
        ends = svg.spread_apart([y(curve.points[-1][1]) for curve in self.curves], 16, top + 4, height - 42)
        groups, tip = {}, 0
        for curve, hover_points, end in zip(self.curves, self._hover_points, ends, strict=True):
            clipped = svg.element(
                "g", *self._line(curve, hover_points, (x, y), end, tip), clip_path=f"url(#plot-{digest})"
            )
            groups[curve.name] = svg.series(
                curve.name, clipped, svg.method_name(curve.name, right + 12, end + 4)
            )
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

    def plot(self, canvas: Canvas) -> None:
        """Plot the lines on a logarithmic axis."""
        axes = plots.add_axes(canvas)
        by_name = {curve.name: curve for curve in self.curves}
        for name in propall_last(list(by_name)):
            xs, ys = zip(*by_name[name].points, strict=True)
            axes.plot(
                xs, ys, label=name, markevery=max(1, len(xs) // 8), markersize=4, **plots.line_style(name)
            )
        x_low, x_high, y_low, y_high = self._ranges
        axes.set_xscale("log")
        axes.set_xlim(10**x_low, 10**x_high)
        axes.set_ylim(y_low, y_high)
        axes.set_xlabel(self.x_title)
        plots.set_title(axes, axis_title(self.y_title, y_low))
        plots.name_lines(axes, [(curve.name, curve.points[-1][1]) for curve in self.curves], y_low, y_high)

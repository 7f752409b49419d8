"""Lines that each have an x of their own, such as accuracy over the time a method took."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from propall.report.charts.figure import Drawing, Figure, plot_style, quiet_axes
from propall.report.charts.lines import pickable
from propall.report.charts.svg import Scale, element, marker, path, spread, stroke, text_width, words
from propall.report.colors import LIGHT, method_key, method_style, propall_last, series_color
from propall.report.numbers import Number, choose_ticks, format_number, format_tick
from propall.report.tables import Column, ReportTable, TableCell, TableRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

#: More places to hover on one line than this would lie on top of each other.
HOVERED = 40


@dataclass(frozen=True)
class Curve:
    """A method's points (x, y), x growing and above zero."""

    name: str
    points: Sequence[tuple[Number, Number]]


@dataclass(frozen=True)
class LogLineChart(Figure):
    """Lines over a logarithmic axis, each as long as its method took, names at the right.

    Attributes:
        caption: what is shown.
        traces: the lines; ProPaLL is drawn last.
        x_title: name and unit of the x-axis.
        y_title: name and unit of the y-axis.
        decimals: of the exact values.
    """

    caption: str
    traces: Sequence[Curve]
    x_title: str = "seconds of training"
    y_title: str = "test accuracy (%)"
    decimals: int = 2

    def __post_init__(self) -> None:
        for trace in self.traces:
            if not trace.points or trace.points[0][0] <= 0:
                raise ValueError(
                    f"traces: {trace.name!r} needs points with x above 0, for a logarithmic axis; "
                    f"{list(trace.points[:1])} came first."
                )

    def description(self) -> str:
        """Where every line ends."""
        ends = "; ".join(
            f"{trace.name} {format_number(trace.points[-1][1], self.decimals)} after "
            f"{format_tick(round(trace.points[-1][0], 1))}"
            for trace in self.traces
        )
        return f"Line chart of {self.y_title} over {self.x_title}: {ends}."

    def table(self) -> ReportTable:
        """One row per point."""
        columns = [Column(self.x_title), Column(self.y_title, decimals=self.decimals)]
        rows = [
            TableRow(t.name, [TableCell(x), TableCell(y)], t.name) for t in self.traces for x, y in t.points
        ]
        return ReportTable(columns, rows, f"{self.y_title} by {self.x_title}", formats=("CSV",))

    @cached_property
    def _shown(self) -> list[list[tuple[Number, Number]]]:
        """The points that can be hovered, line by line: few of those above the axis, and the last of them."""
        chosen = []
        for trace in self.traces:
            inside = [point for point in trace.points if point[1] >= self._ranges[2]]
            every = max(1, -(-len(inside) // HOVERED))
            chosen.append([*inside[:-1:every], *inside[-1:]])
        return chosen

    def tips(self) -> list[str]:
        """A point's method, time and value."""
        return [
            f"{trace.name}\n{format_number(y, self.decimals)} after {format_tick(float(f'{x:.3g}'))} s"
            for trace, points in zip(self.traces, self._shown, strict=True)
            for x, y in points
        ]

    @cached_property
    def _ranges(self) -> tuple[float, float, float, float]:
        xs = [x for trace in self.traces for x, _ in trace.points]
        ys = sorted(y for trace in self.traces for _, y in trace.points)
        # The first epochs of a slow starter would flatten all that follows; a twentieth may lie below.
        low, high = ys[len(ys) // 20], ys[-1]
        margin = 0.06 * ((high - low) or 1.0)
        return math.log10(min(xs)), math.log10(max(xs)), low - margin, high + margin

    def _powers(self) -> list[float]:
        low, high, _, _ = self._ranges
        marks = [10.0**power for power in range(math.floor(low), math.ceil(high) + 1)]
        for factors in ((1,), (1, 2, 5)):
            wanted = [mark * factor for mark in marks for factor in factors]
            inside = [mark for mark in wanted if low - 1e-9 <= math.log10(mark) <= high + 1e-9]
            if len(inside) > 2:
                break
        return inside

    def _axis_title(self) -> str:
        low = self._ranges[2]
        return self.y_title if low <= 0 else f"{self.y_title}, axis starts at {format_tick(round(low))}"

    def draw(self, width: int) -> Drawing:
        """Grid, lines, points to hover, names."""
        top = 30.0
        height = top + (310 if width > 500 else 240)
        x_low, x_high, y_low, y_high = self._ranges
        left, right = 40.0, width - max(text_width(trace.name) + 18 for trace in self.traces)
        x, y = Scale(x_low, x_high, left, right), Scale(y_low, y_high, height - 42, top)
        inside = [words(self._axis_title(), 2, top - 16, class_="axis")]
        for tick in choose_ticks(y_low, y_high):
            inside.append(element("line", x1=left, x2=right, y1=y(tick), y2=y(tick), class_="grid"))
            inside.append(words(format_tick(tick), left - 8, y(tick) + 4, class_="tick", text_anchor="end"))
        for mark in self._powers():
            at = x(math.log10(mark))
            inside.append(words(format_tick(mark), at, height - 24, class_="tick", text_anchor="middle"))
        inside.append(words(self.x_title, right, height - 5, class_="axis", text_anchor="end"))
        ends = spread([y(trace.points[-1][1]) for trace in self.traces], 16, top + 4, height - 42)
        # What lies below the axis leaves the plot, as in the saved figure.
        name = f"plot-{hashlib.sha256(f'{self.caption} {self.traces} {width}'.encode()).hexdigest()[:12]}"
        plot = element("rect", x=0, y=0, width=width, height=y.start)
        inside.append(element("clipPath", plot, id=name))
        groups, tip = {}, 0
        for trace, shown, end in zip(self.traces, self._shown, ends, strict=True):
            groups[trace.name] = self._line(trace, shown, x, y, end, tip, f"url(#{name})")
            tip += len(shown)
        return Drawing(height, [*inside, *(groups[name] for name in propall_last(list(groups)))])

    def _line(
        self,
        trace: Curve,
        shown: Sequence[tuple[Number, Number]],
        x: Scale,
        y: Scale,
        label_at: Number,
        first_tip: int,
        clip: str,
    ) -> str:
        def place(point: tuple[Number, Number]) -> tuple[float, float]:
            return x(math.log10(point[0])), y(point[1])

        style, points = method_style(trace.name), [place(point) for point in trace.points]
        parts = [element("path", d=path(points), class_="line", style=stroke(style))]
        lead = path([points[-1], (x.end + 9, label_at)])
        parts.append(element("path", d=lead, class_="lead", style=stroke(style._replace(dash="1 3"))))
        for i, (at, height) in enumerate(map(place, shown)):
            area = element("circle", cx=at, cy=height, r=7.0, class_="area")
            parts.append(
                element("g", area, marker(style, at, height, 2.5), class_="hit", data_t=str(first_tip + i))
            )
        inside = element("g", *parts, clip_path=clip)
        label = pickable(trace.name, x.end + 12, label_at + 4)
        return element("g", inside, label, class_="series", data_series=method_key(trace.name))

    def paint(self, canvas: Canvas) -> None:
        """The same lines on a logarithmic axis."""
        axes = quiet_axes(canvas)
        by_name = {trace.name: trace for trace in self.traces}
        for name in propall_last(list(by_name)):
            xs, ys = zip(*by_name[name].points, strict=True)
            every = max(1, len(xs) // 8)
            axes.plot(xs, ys, label=name, markevery=every, markersize=4, **plot_style(method_style(name)))
        x_low, x_high, y_low, y_high = self._ranges
        axes.set_xscale("log")
        axes.set_xlim(10**x_low, 10**x_high)
        axes.set_ylim(y_low, y_high)
        axes.set_xlabel(self.x_title)
        axes.set_title(self._axis_title(), loc="left", fontsize=10, color=LIGHT.muted)
        ends = spread([-trace.points[-1][1] for trace in self.traces], (y_high - y_low) / 20, -y_high, -y_low)
        beside: tuple[Any, Any] = ("axes fraction", "data")
        for trace, end in zip(self.traces, ends, strict=True):
            color = series_color(method_style(trace.name).color, minimum=4.5)
            place = (1.01, -end)
            axes.annotate(trace.name, place, xycoords=beside, color=color, va="center", annotation_clip=False)

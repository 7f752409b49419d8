"""Accuracies as dots over seeds, and counts as bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from propall.report.charts.figure import Drawing, Figure, plot_style, quiet_axes
from propall.report.charts.lines import Reference, pickable
from propall.report.charts.svg import Scale, element, marker, path, stroke, text_width, words
from propall.report.colors import LIGHT, method_key, method_style, series_color
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


@dataclass(frozen=True)
class DotChart(Figure):
    """One row per method: a small dot per seed, the mean as the method's marker, a bar of one std.

    Attributes:
        caption: what is shown, and over how many runs.
        values: (method, one value per seed), from the top row down.
        x_title: name and unit of the axis.
        references: vertical yardsticks; they always lie within the axis.
        decimals: of the printed means.
    """

    caption: str
    values: Sequence[tuple[str, Sequence[Number]]]
    x_title: str = "test accuracy (%)"
    references: Sequence[Reference] = ()
    decimals: int = 2

    def description(self) -> str:
        """Mean and std of every row."""
        rows = "; ".join(f"{name} {self._says(seeds)}" for name, seeds in self.values)
        marks = "".join(f"; {reference.says(self.decimals)}" for reference in self.references)
        return f"Dot chart of {self.x_title}: {rows}{marks}."

    def _says(self, seeds: Sequence[Number]) -> str:
        return format_mean_std(*mean_and_std(seeds), self.decimals)

    def table(self) -> ReportTable:
        """Mean, std and every seed's value."""
        n = max(len(seeds) for _, seeds in self.values)
        columns = [Column("mean", decimals=self.decimals, best="highest")]
        columns += [Column(f"seed {i}", decimals=self.decimals) for i in range(1, n + 1)]
        rows = []
        for name, seeds in self.values:
            missing = [TableCell(text="not run")] * (n - len(seeds))
            cells = [TableCell(*mean_and_std(seeds)), *(TableCell(value) for value in seeds), *missing]
            rows.append(TableRow(name, cells, name))
        return ReportTable(columns, rows, self.x_title, formats=("CSV",))

    def tips(self) -> list[str]:
        """A method's mean and its seeds."""
        return [
            f"{name} {self._says(seeds)}\n" + ", ".join(format_number(v, self.decimals) for v in seeds)
            for name, seeds in self.values
        ]

    @cached_property
    def _range(self) -> tuple[float, float]:
        everything = [value for _, seeds in self.values for value in seeds]
        everything += [reference.value for reference in self.references]
        low, high = min(everything), max(everything)
        margin = 0.04 * ((high - low) or 1.0)
        return low - margin, high + margin

    def _axis_title(self) -> str:
        low, _ = self._range
        return self.x_title if low <= 0 else f"{self.x_title}, axis starts at {format_tick(round(low))}"

    def draw(self, width: int) -> Drawing:
        """Names left, dots in the middle, numbers right."""
        step, top = 32.0, 34.0
        bottom = top + step * len(self.values)
        left = max(text_width(name) for name, _ in self.values) + 12
        right = width - max(text_width(self._says(seeds)) for _, seeds in self.values) - 12
        x = Scale(*self._range, left, right)
        inside = []
        for tick in choose_ticks(x.low, x.high, 6 if width > 500 else 3):
            inside.append(element("line", x1=x(tick), x2=x(tick), y1=top, y2=bottom, class_="grid"))
            inside.append(words(format_tick(tick), x(tick), bottom + 18, class_="tick", text_anchor="middle"))
        inside.append(words(self._axis_title(), right, bottom + 38, class_="axis", text_anchor="end"))
        for reference in self.references:
            at, style = x(reference.value), f"stroke-dasharray:{reference.dash}"
            inside.append(
                element("line", x1=at, x2=at, y1=top - 8, y2=bottom, class_="yardline", style=style)
            )
            says = reference.says(self.decimals)
            room = text_width(says, 12) / 2
            place = min(max(at, room), width - room)
            inside.append(words(says, place, top - 14, class_="yard", text_anchor="middle"))
        for row, (name, seeds) in enumerate(self.values):
            inside.append(self._row(row, name, seeds, x, top + step * (row + 0.5), width))
        return Drawing(bottom + 46, inside)

    def _row(self, row: int, name: str, seeds: Sequence[Number], x: Scale, y: Number, width: int) -> str:
        style, (mean, std) = method_style(name), mean_and_std(seeds)
        parts = [element("rect", x=0, y=y - 16, width=width, height=32, class_="area")]
        parts += [marker(style._replace(marker="circle"), x(v), y, 2.5, class_="seed") for v in seeds]
        if std is not None:
            solid = stroke(style._replace(dash=""))
            span = path([(x(mean - std), y), (x(mean + std), y)])
            parts.append(element("path", d=span, class_="line", style=solid))
        parts.append(marker(style, x(mean), y, 5.5))
        parts.append(words(self._says(seeds), width - 2, y + 4, class_="value", text_anchor="end"))
        parts.append(pickable(name, 2, y + 4))
        return element("g", *parts, class_="series hit", data_series=method_key(name), data_t=str(row))

    def size(self) -> tuple[float, float]:
        """As tall as it has rows."""
        return 7.2, 1.2 + 0.35 * len(self.values)

    def paint(self, canvas: Canvas) -> None:
        """The same rows, dots and yardsticks."""
        axes = quiet_axes(canvas, "x")
        beside: tuple[Any, Any] = ("axes fraction", "data")
        above: tuple[Any, Any] = ("data", "axes fraction")
        for row, (name, seeds) in enumerate(self.values):
            style, (mean, std) = plot_style(method_style(name)), mean_and_std(seeds)
            axes.plot(seeds, [row] * len(seeds), "o", color=style["color"], alpha=0.45, markersize=3)
            axes.errorbar(mean, row, xerr=std, fmt=style["marker"], color=style["color"], markersize=7)
            axes.annotate(self._says(seeds), (1.01, row), xycoords=beside, va="center")
        for reference in self.references:
            axes.axvline(reference.value, color=LIGHT.muted, linewidth=1, linestyle=reference.plot_dash)
            says, place = reference.says(self.decimals), (reference.value, 1.02)
            axes.annotate(says, place, xycoords=above, color=LIGHT.muted, fontsize=9, ha="center")
        axes.set_yticks(range(len(self.values)), [name for name, _ in self.values])
        for text, (name, _) in zip(axes.get_yticklabels(), self.values, strict=True):
            text.set_color(series_color(method_style(name).color, minimum=4.5))
        axes.set_xlim(*self._range)
        axes.set_ylim(len(self.values) - 0.5, -0.5)
        axes.set_xlabel(self._axis_title())


@dataclass(frozen=True)
class BarChart(Figure):
    """Counts or other amounts from zero, one bar per category: histograms, candidate-set sizes.

    Attributes:
        caption: what is shown.
        bars: (category, amount), from left to right.
        x_title: what the categories are.
        y_title: what is counted.
        decimals: of the exact values.
    """

    caption: str
    bars: Sequence[tuple[str, Number]]
    x_title: str
    y_title: str
    decimals: int = 0

    def description(self) -> str:
        """All amounts, or the extremes where there are many."""
        bars = self.bars
        if len(bars) > 20:
            ranked = sorted(bars, key=lambda bar: bar[1])
            bars = [ranked[-1], ranked[0]]
        amounts = "; ".join(f"{name}: {format_number(value, self.decimals)}" for name, value in bars)
        return f"Bar chart of {self.y_title} by {self.x_title}: {amounts}."

    def table(self) -> ReportTable:
        """One row per bar."""
        rows = [TableRow(name, [TableCell(value)]) for name, value in self.bars]
        columns = [Column(self.y_title, decimals=self.decimals)]
        return ReportTable(columns, rows, f"{self.y_title} by {self.x_title}", self.x_title, formats=("CSV",))

    def tips(self) -> list[str]:
        """A bar's amount."""
        return [
            f"{self.x_title} {name}\n{format_number(value, self.decimals)} {self.y_title}"
            for name, value in self.bars
        ]

    def draw(self, width: int) -> Drawing:
        """Bars in the accent; names thinned where they would touch."""
        top, height = 30.0, 260.0
        marks = choose_ticks(0, max(value for _, value in self.bars) or 1.0, 4)
        left = max(text_width(format_tick(mark), 12) for mark in marks) + 14
        y = Scale(0, max(value for _, value in self.bars) or 1.0, height - 42, top)
        slot = (width - left) / len(self.bars)
        inside = [words(self.y_title, 2, 12, class_="axis")]
        for mark in marks:
            inside.append(element("line", x1=left, x2=width, y1=y(mark), y2=y(mark), class_="grid"))
            inside.append(words(format_tick(mark), left - 8, y(mark) + 4, class_="tick", text_anchor="end"))
        widest = max(text_width(name, 12) for name, _ in self.bars) + 8
        every = max(1, -int(-widest // slot))
        for i, (name, value) in enumerate(self.bars):
            start, middle = left + slot * i, left + slot * (i + 0.5)
            parts = [element("rect", x=start, y=top, width=slot, height=y.start - top, class_="area")]
            box = {"y": y(value), "height": y.start - y(value), "width": slot * 0.76}
            parts.append(element("rect", x=start + slot * 0.12, class_="bar", **box))
            if i % every == 0:
                parts.append(words(name, middle, height - 24, class_="tick", text_anchor="middle"))
            inside.append(element("g", *parts, class_="hit", data_t=str(i)))
        inside.append(words(self.x_title, width - 2, height - 5, class_="axis", text_anchor="end"))
        return Drawing(height, inside)

    def paint(self, canvas: Canvas) -> None:
        """The same bars."""
        axes = quiet_axes(canvas)
        axes.bar([name for name, _ in self.bars], [value for _, value in self.bars], 0.76, color=LIGHT.accent)
        axes.set_xlabel(self.x_title)
        axes.set_title(self.y_title, loc="left", fontsize=10, color=LIGHT.muted)

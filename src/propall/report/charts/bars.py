"""Dot charts of accuracies over seeds, and bar charts of counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from propall.report.charts import plots, svg
from propall.report.charts.figure import Drawing, Figure, Reference, axis_title, with_margin
from propall.report.colors import LIGHT, method_style, text_color
from propall.report.numbers import Number, choose_ticks, format_mean, format_number, format_tick, mean_and_std
from propall.report.tables import Column, ReportTable, TableCell, TableRow


@dataclass(frozen=True)
class DotChart(Figure):
    """One row per method: a small dot per seed, a marker at the mean, a bar of one standard deviation."""

    caption: str
    values: Sequence[tuple[str, Sequence[Number]]]  # (method, one value per seed), from the top row down
    x_title: str = "test accuracy (%)"
    references: Sequence[Reference] = ()  # always within the axis

    def description(self) -> str:
        """Return mean and standard deviation of every row."""
        rows = [f"{name} {format_mean(*mean_and_std(seeds))}" for name, seeds in self.values]
        values = "; ".join([*rows, *(reference.text for reference in self.references)])
        return f"Dot chart of {self.x_title}: {values}."

    def table(self) -> ReportTable:
        """Return mean, standard deviation and each seed's value."""
        n = max(len(seeds) for _, seeds in self.values)
        columns = [Column("mean", best="highest"), *(Column(f"seed {i}") for i in range(1, n + 1))]
        rows = []
        for name, seeds in self.values:
            missing = [TableCell(text="not run")] * (n - len(seeds))
            cells = [TableCell(*mean_and_std(seeds)), *(TableCell(value) for value in seeds), *missing]
            rows.append(TableRow(name, cells, name))
        return ReportTable(columns, rows, self.x_title)

    def tooltips(self) -> list[str]:
        """Return each method's mean and seeds."""
        return [
            f"{name} {format_mean(*mean_and_std(seeds))}\n" + ", ".join(map(format_number, seeds))
            for name, seeds in self.values
        ]

    @cached_property
    def _range(self) -> tuple[float, float]:
        values = [value for _, seeds in self.values for value in seeds]
        values += [reference.value for reference in self.references]
        return with_margin(min(values), max(values))

    def draw(self, width: int) -> Drawing:
        """Draw names on the left, dots in the middle, means on the right."""
        step, top = 32.0, 34.0
        bottom = top + step * len(self.values)
        left = max(svg.text_width(name) for name, _ in self.values) + 12
        means = [format_mean(*mean_and_std(seeds)) for _, seeds in self.values]
        right = width - max(map(svg.text_width, means)) - 12
        x = svg.Scale(*self._range, left, right)
        elements = []
        for tick in choose_ticks(x.low, x.high, 6 if width > 500 else 3):
            elements.append(svg.element("line", x1=x(tick), x2=x(tick), y1=top, y2=bottom, class_="grid"))
            elements.append(svg.tick_label(format_tick(tick), x(tick), bottom + 18))
        elements.append(svg.x_axis_title(axis_title(self.x_title, x.low), right, bottom + 38))
        for reference in self.references:
            at, room = x(reference.value), svg.text_width(reference.text, 12) / 2
            elements.append(reference.line(at, at, top - 8, bottom))
            place = min(max(at, room), width - room)
            label = svg.text(reference.text, place, top - 14, class_="reference", text_anchor="middle")
            elements.append(label)
        for row, (name, seeds) in enumerate(self.values):
            parts = self._row(name, seeds, x, top + step * (row + 0.5), width)
            elements.append(svg.series(name, *parts, class_="series hit", data_t=str(row)))
        return Drawing(bottom + 46, elements)

    def _row(self, name: str, seeds: Sequence[Number], x: svg.Scale, y: Number, width: int) -> list[str]:
        style, (mean, std) = method_style(name), mean_and_std(seeds)
        parts = [svg.element("rect", x=0, y=y - 16, width=width, height=32, class_="area")]
        parts += [svg.marker(style._replace(marker="circle"), x(v), y, 2.5, class_="seed") for v in seeds]
        if std is not None:
            span = [(x(mean - std), y), (x(mean + std), y)]
            parts.append(svg.line(span, "line", style._replace(dash="")))
        parts.append(svg.marker(style, x(mean), y, 5.5))
        parts.append(svg.text(format_mean(mean, std), width - 2, y + 4, class_="value", text_anchor="end"))
        return [*parts, svg.method_name(name, 2, y + 4)]

    def size(self) -> tuple[float, float]:
        """Return a height in proportion to the rows."""
        return 7.2, 1.2 + 0.35 * len(self.values)

    def plot(self, canvas: plots.Canvas) -> None:
        """Plot rows, dots and references."""
        axes = plots.add_axes(canvas, "x")
        for row, (name, seeds) in enumerate(self.values):
            style, (mean, std) = plots.line_style(name), mean_and_std(seeds)
            axes.plot(seeds, [row] * len(seeds), "o", color=style["color"], alpha=0.45, markersize=3)
            axes.errorbar(mean, row, xerr=std, fmt=style["marker"], color=style["color"], markersize=7)
            axes.annotate(format_mean(mean, std), (1.01, row), xycoords=plots.RIGHT_OF_AXES, va="center")
        for reference in self.references:
            axes.axvline(reference.value, **reference.plot_style)
            place = (reference.value, 1.02)
            axes.annotate(reference.text, place, xycoords=plots.ABOVE_AXES, ha="center", **plots.SMALL)
        axes.set_yticks(range(len(self.values)), [name for name, _ in self.values])
        for label, (name, _) in zip(axes.get_yticklabels(), self.values, strict=True):
            label.set_color(text_color(name))
        axes.set_xlim(*self._range)
        axes.set_ylim(len(self.values) - 0.5, -0.5)
        axes.set_xlabel(axis_title(self.x_title, self._range[0]))


@dataclass(frozen=True)
class BarChart(Figure):
    """One bar per category, starting at zero: histograms, candidate-set sizes."""

    caption: str
    bars: Sequence[tuple[str, Number]]  # (category, amount), from left to right
    x_title: str  # what the categories are
    y_title: str  # what is counted

    def description(self) -> str:
        """Return all amounts, or only the extremes of many."""
        bars = self.bars
        if len(bars) > 20:
            ranked = sorted(bars, key=lambda bar: bar[1])
            bars = [ranked[-1], ranked[0]]
        amounts = "; ".join(f"{name}: {format_number(value, 0)}" for name, value in bars)
        return f"Bar chart of {self.y_title} by {self.x_title}: {amounts}."

    def table(self) -> ReportTable:
        """Return one row per bar."""
        rows = [TableRow.of(name, value) for name, value in self.bars]
        columns, caption = [Column(self.y_title, decimals=0)], f"{self.y_title} by {self.x_title}"
        return ReportTable(columns, rows, caption, self.x_title)

    def tooltips(self) -> list[str]:
        """Return each bar's amount."""
        return [f"{self.x_title} {name}\n{format_number(v, 0)} {self.y_title}" for name, v in self.bars]

    def draw(self, width: int) -> Drawing:
        """Draw bars in the accent color; skips category names that would overlap."""
        top, height = 30.0, 260.0
        y = svg.Scale(0, max(value for _, value in self.bars) or 1.0, height - 42, top)
        left = max(svg.text_width(format_tick(tick), 12) for tick in choose_ticks(y.low, y.high, 4)) + 14
        slot = (width - left) / len(self.bars)
        elements = [svg.text(self.y_title, 2, 12, class_="axis"), *svg.y_grid(y, left, width, 4)]
        widest = max(svg.text_width(name, 12) for name, _ in self.bars) + 8
        every = max(1, -int(-widest // slot))
        for i, (name, value) in enumerate(self.bars):
            start, middle = left + slot * i, left + slot * (i + 0.5)
            parts = [svg.element("rect", x=start, y=top, width=slot, height=y.start - top, class_="area")]
            box = {"y": y(value), "height": y.start - y(value), "width": slot * 0.76}
            parts.append(svg.element("rect", x=start + slot * 0.12, class_="bar", **box))
            if i % every == 0:
                parts.append(svg.tick_label(name, middle, height - 24))
            elements.append(svg.element("g", *parts, class_="hit", data_t=str(i)))
        return Drawing(height, [*elements, svg.x_axis_title(self.x_title, width - 2, height - 5)])

    def plot(self, canvas: plots.Canvas) -> None:
        """Plot the bars."""
        axes = plots.add_axes(canvas)
        axes.bar([name for name, _ in self.bars], [value for _, value in self.bars], 0.76, color=LIGHT.accent)
        axes.set_xlabel(self.x_title)
        plots.set_title(axes, self.y_title)

"""Critical-difference diagrams [demsar2006statistical]."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from propall.report.charts import plots, svg
from propall.report.charts.figure import Drawing, Figure
from propall.report.colors import LIGHT, method_style, text_color
from propall.report.numbers import Number, format_number
from propall.report.tables import Column, ReportTable, TableRow


@dataclass(frozen=True)
class CDDiagram(Figure):
    """Average ranks on an axis, best on the left; bars join methods without a significant difference."""

    caption: str
    ranks: Mapping[str, Number]
    critical_difference: Number  # drawn as a ruler
    groups: Sequence[Sequence[str]] = ()  # methods that a bar joins, one sequence per bar

    @property
    def _ordered(self) -> list[tuple[str, Number]]:
        return sorted(self.ranks.items(), key=lambda item: item[1])

    @property
    def _cd_text(self) -> str:
        return format_number(self.critical_difference)

    def description(self) -> str:
        """Return ranks, critical difference and groups."""
        ranks = ", ".join(f"{name} {format_number(rank)}" for name, rank in self._ordered)
        groups = "; ".join(", ".join(group) for group in self.groups) or "none"
        return (
            f"Critical-difference diagram. Average ranks, smaller is better: {ranks}. Critical difference "
            f"{self._cd_text}. Groups without a significant difference: {groups}."
        )

    def table(self) -> ReportTable:
        """Return each method's rank and its distance from the best."""
        best = min(self.ranks.values())
        rows = [TableRow.of(name, rank, rank - best, method=name) for name, rank in self._ordered]
        columns = [Column("average rank", best="lowest"), Column("behind the best")]
        return ReportTable(columns, rows, f"Critical difference {self._cd_text}")

    def tooltips(self) -> list[str]:
        """Return each method's rank."""
        return [f"{name} {format_number(rank)}" for name, rank in self._ordered]

    def _bars(self) -> list[tuple[Number, Number]]:
        """Best and worst rank of each group."""
        spans = [sorted(self.ranks[method] for method in group) for group in self.groups]
        return sorted((span[0], span[-1]) for span in spans)

    def draw(self, width: int) -> Drawing:
        """Draw ruler, axis and bars; names of the better half on the left, the others on the right."""
        count = len(self.ranks)
        half = (count + 1) // 2
        with_ranks = width > 500
        room = svg.text_width("0.00", 12) + 10 if with_ranks else 0.0
        side = max(svg.text_width(name) for name in self.ranks) + room + 14
        axis, step, bars = 58.0, 24.0, self._bars()
        x = svg.Scale(1, max(count, 2), side, width - side)
        names_top = axis + 22 + 9 * len(bars)
        elements = self._ruler(x)
        elements.append(svg.line([(x.start, axis), (x.end, axis)], "axisline"))
        for tick in range(1, count + 1):
            elements.append(svg.line([(x(tick), axis), (x(tick), axis - 5)], "axisline"))
            elements.append(svg.tick_label(str(tick), x(tick), axis - 10))
        for level, (start, end) in enumerate(bars):
            y = axis + 12 + 9 * level
            elements.append(svg.line([(x(start) - 4, y), (x(end) + 4, y)], "group"))
        for i, (name, rank) in enumerate(self._ordered):
            left = i < half
            y = names_top + step * (i if left else count - 1 - i)
            parts = self._name(name, rank, x, (axis, y), left=left, with_rank=with_ranks)
            elements.append(svg.series(name, *parts, class_="series hit", data_t=str(i)))
        return Drawing(names_top + step * half, elements)

    def _ruler(self, x: svg.Scale) -> list[str]:
        start, end = x(1), x(1 + self.critical_difference)
        ruler = [(start, 20), (start, 28), (start, 24), (end, 24), (end, 20), (end, 28)]
        return [svg.line(ruler, "ruler"), svg.tick_label(f"CD {self._cd_text}", (start + end) / 2, 15)]

    def _name(
        self, name: str, rank: Number, x: svg.Scale, ys: tuple[Number, Number], *, left: bool, with_rank: bool
    ) -> list[str]:
        """Draw marker, leader line and name; `ys` are the heights of the axis and of the name."""
        axis, y = ys
        style, outward, anchor = method_style(name), -1 if left else 1, "end" if left else "start"
        edge = x.start - 8 if left else x.end + 8
        leader = [(x(rank), axis), (x(rank), y - 4), (edge, y - 4)]
        parts = [svg.line(leader, "leader", style._replace(dash="")), svg.marker(style, x(rank), axis, 4.5)]
        name_at = edge + 4 * outward
        if with_rank:
            text = format_number(rank)
            parts.append(svg.tick_label(text, name_at, y, anchor))
            name_at += outward * (svg.text_width(text, 12) + 6)
        return [*parts, svg.method_name(name, name_at, y, text_anchor=anchor)]

    def size(self) -> tuple[float, float]:
        """Return a height in proportion to names and bars."""
        return 7.2, 1.2 + 0.12 * len(self.groups) + 0.16 * len(self.ranks)

    def plot(self, canvas: plots.Canvas) -> None:
        """Plot axis, bars, ruler and names."""
        axes = canvas.add_subplot()
        axes.set_axis_off()
        count, bars = len(self.ranks), self._bars()
        half = (count + 1) // 2
        axes.plot([1, count], [0, 0], color=LIGHT.muted, linewidth=1)
        for tick in range(1, count + 1):
            axes.plot([tick, tick], [0, 0.25], color=LIGHT.muted, linewidth=1)
            axes.text(tick, 0.4, str(tick), ha="center", va="bottom", **plots.SMALL)
        end = 1 + self.critical_difference
        axes.plot([1, 1, 1, end, end, end], [1.8, 2.2, 2.0, 2.0, 2.2, 1.8], color=LIGHT.text, linewidth=1)
        axes.text((1 + end) / 2, 2.3, f"CD {self._cd_text}", ha="center", fontsize=9)
        for level, (start, stop) in enumerate(bars):
            axes.plot([start - 0.04, stop + 0.04], [-0.5 * (level + 1)] * 2, color=LIGHT.text, linewidth=3.5)
        first = -0.5 * len(bars) - 1.0
        reach = 0.03 * count
        for i, (name, rank) in enumerate(self._ordered):
            left = i < half
            y = first - (i if left else count - 1 - i)
            edge = 1 - reach if left else count + reach
            style = plots.line_style(name)
            axes.plot([rank, rank, edge], [0, y, y], color=style["color"], linewidth=0.9)
            axes.plot(rank, 0, marker=style["marker"], color=style["color"], markersize=5)
            text = f"{name}  {format_number(rank)} " if left else f" {format_number(rank)}  {name}"
            side = "right" if left else "left"
            label = axes.text(edge, y, text, ha=side, va="center", color=text_color(name))
            label.set_in_layout(False)
        # Names extend beyond the axis; leave room for the longest, at about 1/65 of the width per letter.
        room = 0.45 * count * max(len(name) + 8 for name in self.ranks) / 20
        axes.set_xlim(1 - room, count + room)

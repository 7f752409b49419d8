"""Critical-difference diagrams [demsar2006statistical]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from propall.report.charts.figure import Drawing, Figure, plot_style
from propall.report.charts.lines import pickable
from propall.report.charts.svg import Scale, element, marker, path, stroke, text_width, words
from propall.report.colors import LIGHT, method_key, method_style, series_color
from propall.report.numbers import Number, format_number
from propall.report.tables import Column, ReportTable, TableCell, TableRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


@dataclass(frozen=True)
class CDDiagram(Figure):
    """Average ranks on a line, 1 the best at the left; thick bars join methods that do not differ.

    Attributes:
        caption: what was ranked over how many data sets, with the p-value of the omnibus test.
        ranks: average rank of each method, as computed by `experiments.stats`.
        critical_difference: the smallest significant difference of ranks, drawn as a ruler.
        groups: methods that a bar joins, one sequence per bar.
    """

    caption: str
    ranks: Mapping[str, Number]
    critical_difference: Number
    groups: Sequence[Sequence[str]] = ()

    @property
    def _ordered(self) -> list[tuple[str, Number]]:
        return sorted(self.ranks.items(), key=lambda item: item[1])

    def description(self) -> str:
        """Ranks, critical difference and groups."""
        ranks = ", ".join(f"{name} {format_number(rank)}" for name, rank in self._ordered)
        groups = "; ".join(", ".join(group) for group in self.groups) or "none"
        return (
            f"Critical-difference diagram. Average ranks, smaller is better: {ranks}. Critical difference "
            f"{format_number(self.critical_difference)}. Groups without a significant difference: {groups}."
        )

    def table(self) -> ReportTable:
        """Rank of each method and its distance to the best."""
        best = min(self.ranks.values())
        rows = [
            TableRow(name, [TableCell(rank), TableCell(rank - best)], name) for name, rank in self._ordered
        ]
        columns = [Column("average rank", best="lowest"), Column("behind the best")]
        caption = f"Critical difference {format_number(self.critical_difference)}"
        return ReportTable(columns, rows, caption, formats=("CSV",))

    def tips(self) -> list[str]:
        """A method's rank."""
        return [f"{name} {format_number(rank)}" for name, rank in self._ordered]

    def _levels(self) -> list[tuple[Number, Number]]:
        spans = [(min(self.ranks[m] for m in g), max(self.ranks[m] for m in g)) for g in self.groups]
        return sorted(spans)

    def draw(self, width: int) -> Drawing:
        """Ruler, axis, bars, and the names: the better half left, the others right."""
        count = len(self.ranks)
        half = (count + 1) // 2
        numbered = width > 500
        room = text_width("0.00", 12) + 10 if numbered else 0.0
        side = max(text_width(name) for name in self.ranks) + room + 14
        axis, step, spans = 58.0, 24.0, self._levels()
        x = Scale(1, max(count, 2), side, width - side)
        names_from = axis + 22 + 9 * len(spans)
        inside = self._ruler(x, width)
        inside.append(element("path", d=path([(x.start, axis), (x.end, axis)]), class_="axisline"))
        for tick in range(1, count + 1):
            inside.append(element("path", d=path([(x(tick), axis), (x(tick), axis - 5)]), class_="axisline"))
            inside.append(words(str(tick), x(tick), axis - 10, class_="tick", text_anchor="middle"))
        for level, (start, end) in enumerate(spans):
            y = axis + 12 + 9 * level
            inside.append(element("path", d=path([(x(start) - 4, y), (x(end) + 4, y)]), class_="group"))
        for i in range(count):
            left = i < half
            y = names_from + step * (i if left else count - 1 - i)
            inside.append(self._name(i, x, axis, y, left, numbered))
        return Drawing(names_from + step * half, inside)

    def _ruler(self, x: Scale, width: int) -> list[str]:
        start, end = x(1), x(1 + self.critical_difference)
        bar = path([(start, 20), (start, 28), (start, 24), (end, 24), (end, 20), (end, 28)])
        says = f"CD {format_number(self.critical_difference)}"
        label = words(says, (start + end) / 2, 15, class_="tick", text_anchor="middle")
        return [element("path", d=bar, class_="ruler"), label]

    def _name(self, i: int, x: Scale, axis: Number, y: Number, left: bool, numbered: bool) -> str:
        name, rank = self._ordered[i]
        style, outward, anchor = method_style(name), -1 if left else 1, "end" if left else "start"
        edge = x.start - 8 if left else x.end + 8
        line = path([(x(rank), axis), (x(rank), y - 4), (edge, y - 4)])
        parts = [element("path", d=line, class_="leader", style=stroke(style._replace(dash="")))]
        parts.append(marker(style, x(rank), axis, 4.5))
        beyond = edge + 4 * outward
        if numbered:
            parts.append(words(format_number(rank), beyond, y, class_="tick", text_anchor=anchor))
            beyond += outward * (text_width(format_number(rank), 12) + 6)
        parts.append(pickable(name, beyond, y, text_anchor=anchor))
        return element("g", *parts, class_="series hit", data_series=method_key(name), data_t=str(i))

    def size(self) -> tuple[float, float]:
        """As tall as it has names."""
        return 7.2, 1.2 + 0.12 * len(self.groups) + 0.16 * len(self.ranks)

    def paint(self, canvas: Canvas) -> None:
        """The same axis, bars, ruler and names."""
        axes = canvas.add_subplot()
        axes.set_axis_off()
        ordered, count, spans = self._ordered, len(self.ranks), self._levels()
        half = (count + 1) // 2
        axes.plot([1, count], [0, 0], color=LIGHT.muted, linewidth=1)
        for tick in range(1, count + 1):
            axes.plot([tick, tick], [0, 0.25], color=LIGHT.muted, linewidth=1)
            axes.text(tick, 0.4, str(tick), ha="center", va="bottom", fontsize=9, color=LIGHT.muted)
        end = 1 + self.critical_difference
        axes.plot([1, 1, 1, end, end, end], [1.8, 2.2, 2.0, 2.0, 2.2, 1.8], color=LIGHT.text, linewidth=1)
        axes.text(
            (1 + end) / 2, 2.3, f"CD {format_number(self.critical_difference)}", ha="center", fontsize=9
        )
        for level, (start, stop) in enumerate(spans):
            axes.plot([start - 0.04, stop + 0.04], [-0.5 * (level + 1)] * 2, color=LIGHT.text, linewidth=3.5)
        first = -0.5 * len(spans) - 1.0
        reach = 0.03 * count
        for i, (name, rank) in enumerate(ordered):
            left = i < half
            y = first - (i if left else count - 1 - i)
            edge = 1 - reach if left else count + reach
            style = plot_style(method_style(name))
            axes.plot([rank, rank, edge], [0, y, y], color=style["color"], linewidth=0.9)
            axes.plot(rank, 0, marker=style["marker"], color=style["color"], markersize=5)
            says = f"{name}  {format_number(rank)} " if left else f" {format_number(rank)}  {name}"
            color = series_color(method_style(name).color, minimum=4.5)
            label = axes.text(edge, y, says, ha="right" if left else "left", va="center", color=color)
            label.set_in_layout(False)
        # Names hang outside the axis; room for the longest, at about 1/65 of the width per letter.
        room = 0.45 * count * max(len(name) + 8 for name in self.ranks) / 20
        axes.set_xlim(1 - room, count + room)

"""Stated probabilities beside how often they are borne out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from propall.report.charts import plots, svg
from propall.report.charts.figure import Drawing, Figure, Reference
from propall.report.colors import LIGHT
from propall.report.numbers import format_number
from propall.report.tables import Column, ReportTable, TableRow


class ReliabilityBin(NamedTuple):
    """Rows whose predictions have similar probabilities; both numbers in percent."""

    name: str  # range of the probabilities
    rows: int
    stated: float  # mean probability
    observed: float  # share of rows where the event happened


@dataclass(frozen=True)
class ReliabilityChart(Figure):
    """One bar per range of probabilities, and a mark at the probability that it should reach."""

    caption: str
    bins: Sequence[ReliabilityBin]  # without empty ones
    observed: str  # what the bars show, such as `is a candidate (%)`
    references: Sequence[Reference] = ()  # at most one, named above the chart

    def description(self) -> str:
        """Return both numbers of every bin."""
        bins = "; ".join(
            f"{name}: {format_number(observed, 1)} where {format_number(stated, 1)} is stated"
            for name, _, stated, observed in self.bins
        )
        return f"Bar chart of {self.observed} by probability: {bins}."

    def table(self) -> ReportTable:
        """Return one row per bin."""
        rows = [TableRow.of(name, rows, stated, observed) for name, rows, stated, observed in self.bins]
        columns = [Column("rows", decimals=0), Column("stated (%)"), Column(self.observed)]
        return ReportTable(columns, rows, self.caption, "probability")

    def tooltips(self) -> list[str]:
        """Return the numbers of each bin."""
        return [
            f"probability {name}\n{rows} rows\nstated {format_number(stated, 1)} %\n"
            f"{self.observed} {format_number(observed, 1)}"
            for name, rows, stated, observed in self.bins
        ]

    def draw(self, width: int) -> Drawing:
        """Draw bars in the accent color, their marks in the text color, and the number of rows below."""
        top, height, left = 30.0, 300.0, 36.0
        y = svg.Scale(0, 100, height - 60, top)
        slot = (width - left) / len(self.bins)
        elements = [svg.text(self.observed, 2, 12, class_="axis"), *svg.y_grid(y, left, width, 5)]
        names, counts = ([each.name for each in self.bins], [str(each.rows) for each in self.bins])
        name_every, count_every = (
            max(1, -int(-(max(svg.text_width(text, 12) for text in texts) + 4) // slot))
            for texts in (names, counts)
        )
        for i, (name, rows, stated, observed) in enumerate(self.bins):
            start, middle = left + slot * i, left + slot * (i + 0.5)
            parts = [svg.element("rect", x=start, y=top, width=slot, height=y.start - top, class_="area")]
            box = {"y": y(observed), "height": y.start - y(observed), "width": slot * 0.6}
            parts.append(svg.element("rect", x=start + slot * 0.2, class_="bar", **box))
            ends = [(start + slot * 0.08, y(stated)), (start + slot * 0.92, y(stated))]
            parts += [svg.line(ends, "stated-edge"), svg.line(ends, "stated")]
            # The last bin, which often has most rows, is always named.
            if (len(self.bins) - 1 - i) % name_every == 0:
                room = svg.text_width(name, 12) / 2
                parts.append(svg.tick_label(name, min(max(middle, room), width - room), height - 42))
            if (len(self.bins) - 1 - i) % count_every == 0:
                parts.append(svg.tick_label(str(rows), middle, height - 26))
            elements.append(svg.element("g", *parts, class_="hit", data_t=str(i)))
        for reference in self.references:
            at = y(reference.value)
            elements.append(reference.line(left, width, at, at))
            # Beside the title of the axis: inside the chart, bars would cover it.
            elements.append(
                svg.text(f"··· {reference.text}", width - 2, 12, class_="axis", text_anchor="end")
            )
        return Drawing(height, [*elements, svg.x_axis_title("probability, rows", width - 2, height - 5)])

    def plot(self, canvas: plots.Canvas) -> None:
        """Plot bars, marks and references."""
        axes = plots.add_axes(canvas)
        places = range(len(self.bins))
        axes.bar(places, [each.observed for each in self.bins], 0.6, color=LIGHT.accent)
        for place, each in zip(places, self.bins, strict=True):
            axes.plot([place - 0.42, place + 0.42], [each.stated] * 2, color=LIGHT.text, linewidth=2)
        for reference in self.references:
            axes.axhline(reference.value, **reference.plot_style)
            axes.annotate(
                reference.text, (0.01, reference.value), xycoords=plots.RIGHT_OF_AXES, **plots.SMALL
            )
        axes.set_xticks(places, [f"{each.name}\n{each.rows}" for each in self.bins])
        axes.set_ylim(0, 102)
        axes.set_xlabel("probability, rows")
        plots.set_title(axes, self.observed)

"""Heat maps: classes over time, confusion matrices, and a film strip of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from propall.report.charts.figure import Drawing, Figure
from propall.report.charts.svg import element, text_width, words
from propall.report.colors import LIGHT
from propall.report.numbers import Number, format_number, format_tick
from propall.report.tables import Column, ReportTable, TableCell, TableRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas


#: The share of the full accent from which on a cell of a film strip is drawn.
FAINT = 0.015
#: The darkest shade under printed numbers: text in the page's text color keeps a contrast of 4.5 on it.
PRINTED = 0.55


@dataclass(frozen=True)
class Grid:
    """A matrix of values with named rows and columns, drawn as squares of the accent, darker for more."""

    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[Number]]

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.values}
        if len(self.values) != len(self.rows) or widths - {len(self.columns)}:
            raise ValueError(
                f"values: {len(self.values)} rows of {sorted(widths)} values for {len(self.rows)} row names "
                f"and {len(self.columns)} column names; give one value per pair of names."
            )

    @property
    def high(self) -> float:
        """The value drawn in the full accent."""
        return max((value for row in self.values for value in row), default=1.0) or 1.0


@dataclass(frozen=True)
class HeatMap(Figure):
    """A matrix as shades of the accent, from the page's color at 0 to the accent at `high`.

    Attributes:
        caption: what is shown.
        grid: the values, none negative.
        row_title: what the rows are, such as "class" or "true class".
        column_title: what the columns are, such as "epoch" or "predicted class".
        value_title: what a cell holds, such as "sensitivity".
        high: the value drawn in the full accent; the largest by default.
        marks: (row, column, words), such as where a class is learnt; drawn as a ring, said on hover.
        decimals: of the exact values, and of those printed in cells large enough to hold them.
        square: square cells, as a confusion matrix has.
    """

    caption: str
    grid: Grid
    row_title: str
    column_title: str
    value_title: str
    high: Number | None = None
    marks: Sequence[tuple[int, int, str]] = ()
    decimals: int = 2
    square: bool = False

    def description(self) -> str:
        """Extent, and the words of the marks."""
        flat = [value for row in self.grid.values for value in row]
        said = "".join(f" {self._place(r, c)}: {text}." for r, c, text in self.marks)
        return (
            f"Heat map of {self.value_title}, {len(self.grid.rows)} rows ({self.row_title}) by "
            f"{len(self.grid.columns)} columns ({self.column_title}), values from "
            f"{format_number(min(flat), self.decimals)} to {format_number(max(flat), self.decimals)}.{said}"
        )

    def _place(self, r: int, c: int) -> str:
        return f"{self.row_title} {self.grid.rows[r]}, {self.column_title} {self.grid.columns[c]}"

    def table(self) -> ReportTable:
        """The matrix."""
        columns = [Column(name, self.column_title, decimals=self.decimals) for name in self.grid.columns]
        rows = [
            TableRow(name, [TableCell(value) for value in values])
            for name, values in zip(self.grid.rows, self.grid.values, strict=True)
        ]
        return ReportTable(columns, rows, self.value_title, self.row_title, formats=("CSV",))

    def tips(self) -> list[str]:
        """A cell's place and value, and its mark."""
        marked = {(r, c): f"\n{text}" for r, c, text in self.marks}
        return [
            f"{self._place(r, c)}\n{self.value_title} {format_number(value, self.decimals)}"
            + marked.get((r, c), "")
            for r, row in enumerate(self.grid.values)
            for c, value in enumerate(row)
        ]

    def draw(self, width: int) -> Drawing:
        """Cells, thinned names on both axes, and a ruler of shades."""
        n, m = len(self.grid.rows), len(self.grid.columns)
        # More columns than fit as strips of a few pixels would weigh much and show nothing more.
        shown = range(0, m, -(-m // (width // 5)))
        left = max(text_width(name, 12) for name in self.grid.rows) + 12
        top = 26.0
        across = (width - left - 2) / len(shown)
        down = min(across, 420 / n) if self.square else max(14.0, min(26.0, 280 / n))
        across = down if self.square else across
        bottom, end = top + down * n, left + across * len(shown)
        inside = [words(self.row_title, 2, 12, class_="axis")]
        for r, name in enumerate(self.grid.rows):
            at = top + down * (r + 0.5) + 4
            inside.append(words(name, left - 8, at, class_="tick", text_anchor="end"))
        printed = self.square and across >= 30
        darkest = PRINTED if printed else 1.0
        strength = darkest / (self.high or self.grid.high)
        inside.append(_cells(self.grid, shown, (left, top), (across, down), strength))
        inside += self._printed(left, top, across) if printed else []
        for r, c, _ in self.marks:
            x, y = left + across * (c / shown.step + 0.5), top + down * (r + 0.5)
            inside.append(element("circle", cx=x, cy=y, r=min(5.0, down / 3), class_="ring"))
        every = max(1, -int(-(max(text_width(name, 12) for name in self.grid.columns) + 6) // across))
        for place in range(0, len(shown), every):
            middle, name = left + across * (place + 0.5), self.grid.columns[shown[place]]
            inside.append(words(name, middle, bottom + 17, class_="tick", text_anchor="middle"))
        inside.append(words(self.column_title, end, bottom + 38, class_="axis", text_anchor="end"))
        # Where both do not fit in one line, the ruler goes below.
        tight = left + 92 + text_width(self._ruler_says, 12) > end - text_width(self.column_title, 12)
        low = bottom + 28 + 20 * tight
        return Drawing(low + 18, [*inside, *self._ruler(left, low, darkest)])

    def _printed(self, left: Number, top: Number, side: Number) -> list[str]:
        texts = []
        for r, row in enumerate(self.grid.values):
            for c, value in enumerate(row):
                text, x, y = (
                    format_number(value, self.decimals),
                    left + side * (c + 0.5),
                    top + side * (r + 0.5),
                )
                if float(text):
                    texts.append(words(text, x, y + 4, class_="incell", text_anchor="middle"))
        return texts

    @property
    def _ruler_says(self) -> str:
        return f"{self.value_title} 0 to {format_tick(round(self.high or self.grid.high, self.decimals))}"

    def _ruler(self, x: Number, y: Number, darkest: Number) -> list[str]:
        box = {"y": y, "width": 12.0, "height": 10.0}
        shades = [
            element("rect", x=x + 12 * i, fill_opacity=f"{darkest * i / 5:.2f}", **box) for i in range(6)
        ]
        frame = element("rect", x=x, y=y, width=72, height=10, class_="frame")
        return [
            element("g", *shades, class_="cells"),
            frame,
            words(self._ruler_says, x + 80, y + 10, class_="axis"),
        ]

    def size(self) -> tuple[float, float]:
        """Square for a confusion matrix."""
        return (5.4, 5.0) if self.square else (7.2, 1.4 + 0.22 * len(self.grid.rows))

    def paint(self, canvas: Canvas) -> None:
        """The same matrix and marks."""
        axes = canvas.add_subplot()
        _image(axes, self.grid, self.high or self.grid.high, self.square)
        axes.set_yticks(range(len(self.grid.rows)), self.grid.rows)
        every = max(1, len(self.grid.columns) // 12)
        axes.set_xticks(range(0, len(self.grid.columns), every), self.grid.columns[::every])
        axes.set_ylabel(self.row_title)
        axes.set_xlabel(self.column_title)
        high = format_tick(round(self.high or self.grid.high, self.decimals))
        title = f"{self.value_title}, 0 to {high}"
        axes.set_title(title, loc="left", fontsize=10, color=LIGHT.muted)
        for r, c, _ in self.marks:
            axes.plot(c, r, "o", markerfacecolor="none", markeredgecolor=LIGHT.text, markersize=7)


@dataclass(frozen=True)
class FilmStrip(Figure):
    """Small matrices side by side, one per moment: how a confusion matrix develops.

    Attributes:
        caption: what is shown.
        frames: (moment, matrix), all of one shape.
        row_title: what the rows are.
        column_title: what the columns are.
        value_title: what a cell holds.
        notes: words under a frame, by its number: what happened there.
        decimals: of the exact values.
    """

    caption: str
    frames: Sequence[tuple[str, Grid]]
    row_title: str = "true class"
    column_title: str = "predicted class"
    value_title: str = "share of the class"
    notes: Sequence[tuple[int, str]] = ()
    decimals: int = 2

    @property
    def _high(self) -> float:
        return max(grid.high for _, grid in self.frames)

    def description(self) -> str:
        """Which moments are shown, and the notes."""
        said = "".join(f" {self.frames[i][0]}: {text}." for i, text in self.notes)
        moments = ", ".join(name for name, _ in self.frames)
        return (
            f"{len(self.frames)} matrices of {self.value_title} ({self.row_title} by {self.column_title}): "
            f"{moments}.{said}"
        )

    def table(self) -> ReportTable:
        """One row per moment and matrix row."""
        columns = [
            Column(name, self.column_title, decimals=self.decimals) for name in self.frames[0][1].columns
        ]
        rows = [
            TableRow(f"{moment}, {self.row_title} {name}", [TableCell(value) for value in values])
            for moment, grid in self.frames
            for name, values in zip(grid.rows, grid.values, strict=True)
        ]
        return ReportTable(columns, rows, self.value_title, "moment", formats=("CSV",))

    def tips(self) -> list[str]:
        """Moment, place and value of each cell that can be seen."""
        return [
            f"{moment}\n{self.row_title} {grid.rows[r]}, {self.column_title} {grid.columns[c]}\n"
            f"{self.value_title} {format_number(grid.values[r][c], self.decimals)}"
            for moment, grid in self.frames
            for r, c in self._seen(grid)
        ]

    def _seen(self, grid: Grid) -> list[tuple[int, int]]:
        """Cells that an eye can see: most of a good confusion matrix is blank, and would weigh as much."""
        return [
            (r, c)
            for r, row in enumerate(grid.values)
            for c, value in enumerate(row)
            if value / self._high >= FAINT
        ]

    def _frames_across(self, width: int) -> int:
        return min(len(self.frames), 6 if width > 500 else 3)

    def draw(self, width: int) -> Drawing:
        """Frames in rows, each under its moment."""
        across = self._frames_across(width)
        side = (width - 12.0 * (across - 1)) / across
        tall = side + 40
        inside, tip, noted = [], 0, dict(self.notes)
        for i, (moment, grid) in enumerate(self.frames):
            x, y = (i % across) * (side + 12), (i // across) * tall + 18
            inside.append(words(moment, x, y - 6, class_="tick"))
            cell = side / len(grid.columns), side / len(grid.rows)
            seen = self._seen(grid)
            numbers = {place: tip + number for number, place in enumerate(seen)}
            across_all = range(len(grid.columns))
            inside.append(_cells(grid, across_all, (x, y), cell, 1 / self._high, numbers))
            inside.append(element("rect", x=x, y=y, width=side, height=side, class_="frame"))
            inside.append(words(noted.get(i, ""), x, y + side + 14, class_="yard"))
            tip += len(seen)
        return Drawing(tall * -(-len(self.frames) // across), inside)

    def size(self) -> tuple[float, float]:
        """One or more rows of six."""
        return 7.2, 1.7 * -(-len(self.frames) // 6)

    def paint(self, canvas: Canvas) -> None:
        """The same frames."""
        across, noted = self._frames_across(720), dict(self.notes)
        for i, (moment, grid) in enumerate(self.frames):
            axes = canvas.add_subplot(-(-len(self.frames) // across), across, i + 1)
            _image(axes, grid, self._high, square=True)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.set_title(moment, fontsize=9, loc="left")
            axes.set_xlabel(noted.get(i, ""), fontsize=8)


def _cells(
    grid: Grid,
    shown: range,
    corner: tuple[Number, Number],
    cell: tuple[Number, Number],
    strength: Number,
    tips: dict[tuple[int, int], int] | None = None,
) -> str:
    """The cells of a matrix, or those that have a number in `tips`."""
    # Each cell ends on the very number where the next begins: rounded apart, they would leave gaps.
    edges = [round(corner[0] + cell[0] * place, 1) for place in range(len(shown) + 1)]
    levels = [round(corner[1] + cell[1] * r, 1) for r in range(len(grid.rows) + 1)]
    # Written out by hand: a map of ten classes over a hundred epochs has a thousand of these.
    cells = (
        f'<rect data-t="{r * len(row) + c if tips is None else tips[r, c]}" '
        f'x="{edges[place]}" y="{levels[r]}" '
        f'width="{edges[place + 1] - edges[place]:.1f}" height="{levels[r + 1] - levels[r]:.1f}" '
        f'fill-opacity="{min(max(row[c] * strength, 0.0), 1.0):.2f}"/>'
        for r, row in enumerate(grid.values)
        for place, c in enumerate(shown)
        if tips is None or (r, c) in tips
    )
    return element("g", *cells, class_="cells")


def _image(axes: Axes, grid: Grid, high: Number, square: bool) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("accent", [LIGHT.page, LIGHT.accent])
    axes.imshow(grid.values, cmap=shades, vmin=0, vmax=high, aspect="equal" if square else "auto")
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)

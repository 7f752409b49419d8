"""Heat maps: classes over time, confusion matrices, and film strips of confusion matrices."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from propall.report.charts import plots, svg
from propall.report.charts.figure import WIDE, Drawing, Figure
from propall.report.colors import LIGHT
from propall.report.numbers import Number, format_number, format_tick
from propall.report.tables import Column, ReportTable, TableRow

#: Film strips omit cells fainter than this share of the full accent.
FAINTEST = 0.015
#: The darkest shade under printed numbers; the text color keeps a contrast of 4.5 on it.
DARKEST_UNDER_TEXT = 0.55


@dataclass(frozen=True)
class Grid:
    """A matrix of values with named rows and columns."""

    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[Number]]

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.values}
        if len(self.values) != len(self.rows) or widths - {len(self.columns)}:
            raise ValueError(
                f"values: {len(self.values)} rows of {sorted(widths)} values for {len(self.rows)} row names "
                f"and {len(self.columns)} column names; expected one value per pair of names."
            )

    @property
    def high(self) -> float:
        """The value drawn in the full accent color."""
        return max((value for _, _, value in self.cells()), default=1.0) or 1.0

    def cells(self) -> Iterator[tuple[int, int, Number]]:
        """Iterate over row, column and value."""
        return ((r, c, value) for r, row in enumerate(self.values) for c, value in enumerate(row))

    def table_rows(self, prefix: str = "") -> list[TableRow]:
        """Return the matrix as rows of a table."""
        pairs = zip(self.rows, self.values, strict=True)
        return [TableRow.of(f"{prefix}{name}", *values) for name, values in pairs]


@dataclass(frozen=True)
class HeatMap(Figure):
    """A matrix as shades of the accent color, from the page color at 0 to the full accent at `high`."""

    caption: str
    grid: Grid  # no negative values
    row_title: str  # such as "class" or "true class"
    column_title: str  # such as "epoch" or "predicted class"
    value_title: str  # such as "sensitivity"
    high: Number | None = None  # the largest value by default
    marks: Sequence[tuple[int, int, str]] = ()  # (row, column, text): drawn as rings, shown on hover
    decimals: int = 2
    square: bool = False  # draw square cells, as for a confusion matrix

    def description(self) -> str:
        """Return size, range of values, and the marks."""
        flat = [value for _, _, value in self.grid.cells()]
        marks = "".join(f" {self._place(r, c)}: {text}." for r, c, text in self.marks)
        return (
            f"Heat map of {self.value_title}, {len(self.grid.rows)} rows ({self.row_title}) by "
            f"{len(self.grid.columns)} columns ({self.column_title}), values from "
            f"{format_number(min(flat), self.decimals)} to {format_number(max(flat), self.decimals)}.{marks}"
        )

    def _place(self, r: int, c: int) -> str:
        return f"{self.row_title} {self.grid.rows[r]}, {self.column_title} {self.grid.columns[c]}"

    def table(self) -> ReportTable:
        """Return the matrix."""
        columns = [Column(name, self.column_title, decimals=self.decimals) for name in self.grid.columns]
        return ReportTable(columns, self.grid.table_rows(), self.value_title, self.row_title)

    def tooltips(self) -> list[str]:
        """Return each cell's place, value and mark."""
        marks = {(r, c): f"\n{text}" for r, c, text in self.marks}
        return [
            f"{self._place(r, c)}\n{self.value_title} {format_number(value, self.decimals)}"
            + marks.get((r, c), "")
            for r, c, value in self.grid.cells()
        ]

    def draw(self, width: int) -> Drawing:
        """Draw cells, names on both axes (skipping some where needed), and a scale of shades."""
        n, m = len(self.grid.rows), len(self.grid.columns)
        # Columns narrower than a few pixels would enlarge the page and show nothing more.
        shown = range(0, m, -(-m // (width // 5)))
        left = max(svg.text_width(name, 12) for name in self.grid.rows) + 12
        top = 26.0
        cell_width = (width - left - 2) / len(shown)
        cell_height = min(cell_width, 420 / n) if self.square else max(14.0, min(26.0, 280 / n))
        cell_width = cell_height if self.square else cell_width
        bottom, right = top + cell_height * n, left + cell_width * len(shown)
        elements = [svg.text(self.row_title, 2, 12, class_="axis")]
        for r, name in enumerate(self.grid.rows):
            elements.append(svg.tick_label(name, left - 8, top + cell_height * (r + 0.5) + 4, "end"))
        has_text = self.square and cell_width >= 30
        darkest = DARKEST_UNDER_TEXT if has_text else 1.0
        strength = darkest / (self.high or self.grid.high)
        elements.append(_cells(self.grid, shown, (left, top), (cell_width, cell_height), strength))
        elements += self._cell_texts(left, top, cell_width) if has_text else []
        for r, c, _ in self.marks:
            x, y = left + cell_width * (c / shown.step + 0.5), top + cell_height * (r + 0.5)
            elements.append(svg.element("circle", cx=x, cy=y, r=min(5.0, cell_height / 3), class_="ring"))
        every = max(1, -int(-(max(svg.text_width(name, 12) for name in self.grid.columns) + 6) // cell_width))
        for place in range(0, len(shown), every):
            name = self.grid.columns[shown[place]]
            elements.append(svg.tick_label(name, left + cell_width * (place + 0.5), bottom + 17))
        elements.append(svg.x_axis_title(self.column_title, right, bottom + 38))
        # The scale moves below the axis title where one line cannot hold both.
        scale_right = left + 92 + svg.text_width(self._scale_text, 12)
        overlap = scale_right > right - svg.text_width(self.column_title, 12)
        scale_top = bottom + 28 + 20 * overlap
        return Drawing(scale_top + 18, [*elements, *self._scale(left, scale_top, darkest)])

    def _cell_texts(self, left: Number, top: Number, side: Number) -> list[str]:
        texts = []
        for r, c, value in self.grid.cells():
            text = format_number(value, self.decimals)
            x, y = left + side * (c + 0.5), top + side * (r + 0.5) + 4
            if float(text):
                texts.append(svg.text(text, x, y, class_="incell", text_anchor="middle"))
        return texts

    @property
    def _high_text(self) -> str:
        return format_tick(round(self.high or self.grid.high, self.decimals))

    @property
    def _scale_text(self) -> str:
        return f"{self.value_title} 0 to {self._high_text}"

    def _scale(self, x: Number, y: Number, darkest: Number) -> list[str]:
        box = {"y": y, "width": 12.0, "height": 10.0}
        opacities = [f"{darkest * i / 5:.2f}" for i in range(6)]
        shades = [svg.element("rect", x=x + 12 * i, fill_opacity=o, **box) for i, o in enumerate(opacities)]
        return [
            svg.element("g", *shades, class_="cells"),
            svg.element("rect", x=x, y=y, width=72, height=10, class_="frame"),
            svg.text(self._scale_text, x + 80, y + 10, class_="axis"),
        ]

    def size(self) -> tuple[float, float]:
        """Return about a square for a confusion matrix."""
        return (5.4, 5.0) if self.square else (7.2, 1.4 + 0.22 * len(self.grid.rows))

    def plot(self, canvas: plots.Canvas) -> None:
        """Plot the matrix and its marks."""
        axes = canvas.add_subplot()
        _plot_image(axes, self.grid, self.high or self.grid.high, self.square)
        axes.set_yticks(range(len(self.grid.rows)), self.grid.rows)
        every = max(1, len(self.grid.columns) // 12)
        axes.set_xticks(range(0, len(self.grid.columns), every), self.grid.columns[::every])
        axes.set_ylabel(self.row_title)
        axes.set_xlabel(self.column_title)
        plots.set_title(axes, f"{self.value_title}, 0 to {self._high_text}")
        for r, c, _ in self.marks:
            axes.plot(c, r, "o", markerfacecolor="none", markeredgecolor=LIGHT.text, markersize=7)


@dataclass(frozen=True)
class FilmStrip(Figure):
    """Small matrices side by side, one per moment: how a confusion matrix develops."""

    caption: str
    frames: Sequence[tuple[str, Grid]]  # (moment, matrix), all of the same shape
    row_title: str = "true class"
    column_title: str = "predicted class"
    value_title: str = "share of the class"

    @property
    def _high(self) -> float:
        return max(grid.high for _, grid in self.frames)

    def description(self) -> str:
        """Return the moments."""
        moments = ", ".join(name for name, _ in self.frames)
        axes = f"{self.row_title} by {self.column_title}"
        return f"{len(self.frames)} matrices of {self.value_title} ({axes}): {moments}."

    def table(self) -> ReportTable:
        """Return one row per moment and matrix row."""
        columns = [Column(name, self.column_title) for name in self.frames[0][1].columns]
        rows = [row for name, grid in self.frames for row in grid.table_rows(f"{name}, {self.row_title} ")]
        return ReportTable(columns, rows, self.value_title, "moment")

    def tooltips(self) -> list[str]:
        """Return moment, place and value of each visible cell."""
        return [
            f"{moment}\n{self.row_title} {grid.rows[r]}, {self.column_title} {grid.columns[c]}\n"
            f"{self.value_title} {format_number(grid.values[r][c])}"
            for moment, grid in self.frames
            for r, c in self._visible_cells(grid)
        ]

    def _visible_cells(self, grid: Grid) -> list[tuple[int, int]]:
        """Most of a good confusion matrix is blank; drawing those cells would only enlarge the page."""
        return [(r, c) for r, c, value in grid.cells() if value / self._high >= FAINTEST]

    def _frames_per_row(self, width: int) -> int:
        return min(len(self.frames), 6 if width > 500 else 3)

    def draw(self, width: int) -> Drawing:
        """Draw the frames in rows, each below its moment."""
        per_row = self._frames_per_row(width)
        side = (width - 12.0 * (per_row - 1)) / per_row
        row_height = side + 40
        elements, tip = [], 0
        for i, (moment, grid) in enumerate(self.frames):
            x, y = (i % per_row) * (side + 12), (i // per_row) * row_height + 18
            elements.append(svg.text(moment, x, y - 6, class_="tick"))
            cell = side / len(grid.columns), side / len(grid.rows)
            tips = {place: tip + number for number, place in enumerate(self._visible_cells(grid))}
            columns = range(len(grid.columns))
            elements.append(_cells(grid, columns, (x, y), cell, 1 / self._high, tips))
            elements.append(svg.element("rect", x=x, y=y, width=side, height=side, class_="frame"))
            tip += len(tips)
        return Drawing(row_height * -(-len(self.frames) // per_row), elements)

    def size(self) -> tuple[float, float]:
        """Return a height for rows of six frames."""
        return 7.2, 1.7 * -(-len(self.frames) // 6)

    def plot(self, canvas: plots.Canvas) -> None:
        """Plot the frames."""
        per_row = self._frames_per_row(WIDE)
        for i, (moment, grid) in enumerate(self.frames):
            axes = canvas.add_subplot(-(-len(self.frames) // per_row), per_row, i + 1)
            _plot_image(axes, grid, self._high, square=True)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.set_title(moment, fontsize=9, loc="left")


def _cells(
    grid: Grid,
    shown: range,
    corner: tuple[Number, Number],
    cell: tuple[Number, Number],
    strength: Number,
    tips: dict[tuple[int, int], int] | None = None,
) -> str:
    """Return the cells of the shown columns; only those with a tooltip index where `tips` is passed."""
    # Each cell ends at the very number where the next begins; separate rounding would leave gaps.
    xs = [round(corner[0] + cell[0] * place, 1) for place in range(len(shown) + 1)]
    ys = [round(corner[1] + cell[1] * r, 1) for r in range(len(grid.rows) + 1)]
    # Formatted directly rather than by `element`: ten classes over a hundred epochs are a thousand cells.
    cells = (
        f'<rect data-t="{r * len(row) + c if tips is None else tips[r, c]}" '
        f'x="{xs[place]}" y="{ys[r]}" '
        f'width="{xs[place + 1] - xs[place]:.1f}" height="{ys[r + 1] - ys[r]:.1f}" '
        f'fill-opacity="{min(max(row[c] * strength, 0.0), 1.0):.2f}"/>'
        for r, row in enumerate(grid.values)
        for place, c in enumerate(shown)
        if tips is None or (r, c) in tips
    )
    return svg.element("g", *cells, class_="cells")


def _plot_image(axes: plots.Axes, grid: Grid, high: Number, square: bool) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("accent", [LIGHT.page, LIGHT.accent])
    axes.imshow(grid.values, cmap=shades, vmin=0, vmax=high, aspect="equal" if square else "auto")
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)

"""Every table and figure in files of its own: for slides, articles and spreadsheets."""

from itertools import groupby
from pathlib import Path

from propall import atomic_files
from propall.paper.pages.item import Item
from propall.paper.pages.page import items
from propall.report.charts.figure import saved
from propall.report.colors import LIGHT, method_style, series_color
from propall.report.page import Page
from propall.report.tables import ReportTable

PICTURES = (".svg", ".png")


def export(page: Page, folder: Path) -> list[Path]:
    """Write every item as CSV, LaTeX, SVG and PNG; returns the files.

    A figure's CSV and LaTeX hold its data. The provenance goes into a text file beside them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for item in items(page):
        written += _write(item, folder)
    return written


def _write(item: Item, folder: Path) -> list[Path]:
    table = item.block if isinstance(item.block, ReportTable) else item.block.table()
    texts = {
        ".csv": table.to_csv(),
        ".tex": table.to_latex(),
        ".txt": f"{item.block.caption}\n{item.origin}\n",
    }
    files = []
    for ending, text in texts.items():
        files.append(folder / f"{item.name}{ending}")
        atomic_files.write_text(files[-1], text)
    for ending in PICTURES:
        path = folder / f"{item.name}{ending}"
        files.append(
            _picture(item.block, path) if isinstance(item.block, ReportTable) else item.block.save(path)
        )
    return files


def _picture(table: ReportTable, path: Path) -> Path:
    """A table drawn by matplotlib: the same words, bold and underlined as on the page."""
    widths = [max(len(row.title) for row in table.rows)]
    for c, column in enumerate(table.columns):
        widths.append(max([len(column.title), *(len(table.text(r, c)) for r in range(len(table.rows)))]))
    starts = [sum(widths[:i]) + 2 * i for i in range(len(widths) + 1)]
    grouped = any(column.group for column in table.columns)
    height = len(table.rows) + 2.6 + grouped
    with saved(path, (0.085 * starts[-1] + 0.2, 0.24 * height)) as canvas:
        axes = canvas.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set_axis_off()
        axes.set_xlim(-1, starts[-1])
        axes.set_ylim(height, 0)
        if grouped:
            first = 0
            for group, members in groupby(table.columns, key=lambda column: column.group):
                last = first + len(list(members))
                middle = (starts[first + 1] + starts[last + 1] - 2) / 2
                axes.text(middle, 0.8, group, ha="center", va="center", fontsize=9)
                first = last
        top = 0.8 + grouped
        axes.text(0, top, table.row_title, va="center", fontsize=8, color=LIGHT.muted)
        for c, column in enumerate(table.columns):
            right = starts[c + 2] - 2
            axes.text(right, top, column.title, ha="right", va="center", fontsize=8, color=LIGHT.muted)
        axes.plot([0, starts[-1] - 2], [top + 0.6] * 2, color=LIGHT.line, linewidth=0.8)
        for r, row in enumerate(table.rows):
            y = top + 1.3 + r
            color = series_color(method_style(row.method).color, minimum=4.5) if row.method else LIGHT.text
            axes.text(0, y, row.title, va="center", fontsize=9, color=color)
            for c, cell in enumerate(row.cells):
                muted = cell.mean is None or bool(cell.hatched)
                weight = "bold" if table.is_best(r, c) else "normal"
                ink = LIGHT.muted if muted else LIGHT.text
                axes.text(
                    starts[c + 2] - 2,
                    y,
                    table.text(r, c),
                    ha="right",
                    va="center",
                    fontsize=9,
                    weight=weight,
                    color=ink,
                )
                if cell.close:
                    reach = [starts[c + 2] - 2 - len(table.text(r, c)), starts[c + 2] - 2]
                    axes.plot(reach, [y + 0.42] * 2, color=LIGHT.text, linewidth=0.6)
    return path

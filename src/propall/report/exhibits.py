"""Named tables and figures of a page, and their export as files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from pathlib import Path

from propall import atomic_files
from propall.report.charts.figure import Figure
from propall.report.charts.plots import open_canvas
from propall.report.colors import LIGHT, text_color
from propall.report.page import Page, format_provenance
from propall.report.tables import ReportTable

PICTURE_SUFFIXES = (".svg", ".png")


@dataclass(frozen=True)
class Exhibit:
    """A table or figure with its provenance."""

    name: str  # stem of its files, such as `uniform-q0.5`
    block: ReportTable | Figure
    provenance: Mapping[str, str] = field(default_factory=dict)

    def to_html(self, anchor: str) -> str:
        """Return the block, followed by its provenance."""
        line = escape(format_provenance(self.provenance))
        return f"{self.block.to_html(anchor)}\n" + (f'<p class="provenance">{line}</p>' if line else "")


def exhibits(page: Page) -> list[Exhibit]:
    """Return all exhibits of a page."""
    return [block for section in page.sections for block in section.blocks if isinstance(block, Exhibit)]


def export_exhibits(page: Page, folder: Path) -> list[Path]:
    """Write every exhibit as CSV, LaTeX, SVG and PNG, and return the paths.

    The CSV and LaTeX of a figure hold its data. A text file holds caption and provenance.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return [path for exhibit in exhibits(page) for path in _write(exhibit, folder)]


def _write(exhibit: Exhibit, folder: Path) -> list[Path]:
    block = exhibit.block
    table = block if isinstance(block, ReportTable) else block.table()
    texts = {
        ".csv": table.to_csv(),
        ".tex": table.to_latex(),
        ".txt": f"{block.caption}\n{format_provenance(exhibit.provenance)}\n",
    }
    paths = []
    for suffix, text in texts.items():
        paths.append(folder / f"{exhibit.name}{suffix}")
        atomic_files.write_text(paths[-1], text)
    for suffix in PICTURE_SUFFIXES:
        path = folder / f"{exhibit.name}{suffix}"
        paths.append(save_table(block, path) if isinstance(block, ReportTable) else block.save(path))
    return paths


def save_table(table: ReportTable, path: Path) -> Path:
    """Draw a table with matplotlib, with the same text, bold and underlined as on the page."""
    widths = [max(len(row.title) for row in table.rows)]
    for c, column in enumerate(table.columns):
        widths.append(max([len(column.title), *(len(table.text(r, c)) for r in range(len(table.rows)))]))
    starts = [sum(widths[:i]) + 2 * i for i in range(len(widths) + 1)]
    grouped = any(column.group for column in table.columns)
    height = len(table.rows) + 2.6 + grouped
    with open_canvas(path, (0.085 * starts[-1] + 0.2, 0.24 * height)) as canvas:
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
            title_color = text_color(row.method) if row.method else LIGHT.text
            axes.text(0, y, row.title, va="center", fontsize=9, color=title_color)
            for c, cell in enumerate(row.cells):
                text, right = table.text(r, c), starts[c + 2] - 2
                weight = "bold" if table.is_best(r, c) else "normal"
                color = LIGHT.muted if cell.mean is None or cell.hatched else LIGHT.text
                axes.text(right, y, text, ha="right", va="center", fontsize=9, weight=weight, color=color)
                if cell.close:
                    axes.plot([right - len(text), right], [y + 0.42] * 2, color=LIGHT.text, linewidth=0.6)
    return path

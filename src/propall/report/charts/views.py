"""Sheets of images beside augmented views of them."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from propall.report.charts.examples import png
from propall.report.charts.figure import Drawing, Figure
from propall.report.charts.plots import Canvas
from propall.report.colors import LIGHT
from propall.report.tables import Column, ReportTable, TableCell, TableRow


@dataclass(frozen=True)
class ViewSheet(Figure):
    """Rows of images: the original first, then its views."""

    caption: str
    images: NDArray[np.uint8]  # (rows, columns, h, w) or (rows, columns, h, w, 3)
    columns: Sequence[str]  # what each column shows
    rows: Sequence[str]  # what each row shows, such as the class

    def __post_init__(self) -> None:
        expected = (len(self.rows), len(self.columns))
        if self.images.dtype != np.uint8 or self.images.shape[:2] != expected:
            raise ValueError(
                f"images: got {self.images.dtype} of shape {self.images.shape}; expected uint8 images for "
                f"{expected[0]} rows and {expected[1]} columns."
            )

    def _changes(self) -> NDArray[np.float64]:
        """Mean absolute difference of each view from its original, in percent of the pixels' range."""
        pixels = self.images.astype(np.float64) / 255
        differences = np.abs(pixels - pixels[:, :1]).reshape(*pixels.shape[:2], -1)
        return np.asarray(100 * differences.mean(-1))

    def description(self) -> str:
        """Return the number of images and how much the views differ from them."""
        means = zip(self.columns[1:], self._changes().mean(0)[1:], strict=True)
        changes = ", ".join(f"{name} {value:.1f} %" for name, value in means)
        return f"{len(self.rows)} images with views; mean difference from the original: {changes}."

    def table(self) -> ReportTable:
        """Return how much every view differs from its original."""
        columns = [Column(name) for name in self.columns[1:]]
        rows = [
            TableRow(name, [TableCell(float(value)) for value in values[1:]])
            for name, values in zip(self.rows, self._changes(), strict=True)
        ]
        return ReportTable(columns, rows, "Mean absolute difference from the original (% of range)", "image")

    def body(self, anchor: str) -> str:
        """Return the sheet as an HTML table."""
        heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in self.columns)
        lines = []
        for name, images in zip(self.rows, self.images, strict=True):
            cells = []
            for title, image in zip(self.columns, images, strict=True):
                source = f"data:image/png;base64,{b64encode(png(image)).decode()}"
                cells.append(f'<td><img src="{source}" alt="{escape(f"{name}, {title}")}"></td>')
            lines.append(f'<tr><th scope="row">{escape(name)}</th>{"".join(cells)}</tr>')
        head = f"<thead><tr><td></td>{heads}</tr></thead>"
        table = f'<table class="views" aria-describedby="{escape(anchor)}-text">'
        return f'<div class="scroll">{table}{head}<tbody>{"".join(lines)}</tbody></table></div>'

    def draw(self, width: int) -> Drawing:
        """Draw nothing: the sheet is HTML, see `body`."""
        return Drawing(0, [])

    def size(self) -> tuple[float, float]:
        """Return a size that gives every image a square."""
        return 1.0 * len(self.columns) + 0.8, 1.0 * len(self.rows) + 0.3

    def plot(self, canvas: Canvas) -> None:
        """Plot the images in their rows, with the columns' titles above."""
        across = len(self.columns)
        for r, images in enumerate(self.images):
            for c, image in enumerate(images):
                axes = canvas.add_subplot(len(self.rows), across, r * across + c + 1)
                axes.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
                axes.set_xticks([])
                axes.set_yticks([])
                axes.set_frame_on(False)
                if c == 0:
                    axes.set_ylabel(self.rows[r], fontsize=8, color=LIGHT.text)
                if r == 0:
                    axes.set_title(self.columns[c], fontsize=8, color=LIGHT.muted)

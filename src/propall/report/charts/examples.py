"""Sheets of example images with their candidate, recovered and true labels."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from propall.report.charts.figure import Drawing, Figure
from propall.report.colors import LIGHT
from propall.report.tables import Column, ReportTable, TableCell, TableRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def to_uint8(images: NDArray[np.generic]) -> NDArray[np.uint8]:
    """Convert images to uint8; other types are rescaled from the sheet's minimum to its maximum."""
    if images.dtype == np.uint8:
        return images.astype(np.uint8)
    values = images.astype(np.float64)
    low, high = float(values.min()), float(values.max())
    return np.asarray(np.round((values - low) / ((high - low) or 1.0) * 255), dtype=np.uint8)


def png(image: NDArray[np.uint8]) -> bytes:
    """Encode a gray (h, w) or RGB (h, w, 3) image as PNG."""
    if image.dtype != np.uint8 or image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] != 3):
        raise ValueError(
            f"image: {image.dtype} of shape {image.shape}; expected uint8 of shape (h, w) or (h, w, 3). "
            "Convert it with to_uint8 and put the channels last."
        )

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = image.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if image.ndim == 2 else 2, 0, 0, 0)
    rows = image.reshape(height, -1)
    # Each row of pixels starts with its filter type, 0 for none.
    data = zlib.compress(np.hstack([np.zeros((height, 1), np.uint8), rows]).tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def data_uri(image: NDArray[np.uint8]) -> str:
    """Return the image as a data URI."""
    return "data:image/png;base64," + b64encode(png(image)).decode()


@dataclass(frozen=True)
class ExampleSheet(Figure):
    """Images with their candidates as chips: the recovered label filled, the true one checked.

    Attributes:
        caption: what is shown.
        images: (n, h, w) or (n, h, w, 3), of any numeric type.
        candidates: candidate labels of each image, as class names.
        recovered: the label chosen for each image.
        truth: the true label of each image, where known.
        inverted: draw large values dark, like ink on paper; for gray images.
    """

    caption: str
    images: NDArray[np.generic]
    candidates: Sequence[Sequence[str]]
    recovered: Sequence[str]
    truth: Sequence[str | None]
    inverted: bool = False

    def __post_init__(self) -> None:
        lengths = {len(self.images), len(self.candidates), len(self.recovered), len(self.truth)}
        if len(lengths) != 1:
            raise ValueError(
                f"images: {len(self.images)} images, {len(self.candidates)} candidate sets, "
                f"{len(self.recovered)} recovered and {len(self.truth)} true labels; expected one "
                "of each per image."
            )

    @property
    def _pixels(self) -> NDArray[np.uint8]:
        pixels = to_uint8(self.images)
        return np.asarray(255 - pixels, dtype=np.uint8) if self.inverted else pixels

    def description(self) -> str:
        """Return the number of images, and how many labels were recovered."""
        known = [(r, t) for r, t in zip(self.recovered, self.truth, strict=True) if t is not None]
        right = sum(r == t for r, t in known)
        recovered = f"; the recovered label is the true one in {right} of {len(known)}" if known else ""
        return f"{len(self.images)} images with their candidate labels{recovered}."

    def table(self) -> ReportTable:
        """Return one row per image."""
        columns = [Column(name, kind="text") for name in ("candidates", "recovered", "true")]
        rows = [
            TableRow(
                str(i),
                [
                    TableCell(text=" ".join(s)),
                    TableCell(text=r),
                    TableCell(text="not known" if t is None else t),
                ],
            )
            for i, (s, r, t) in enumerate(zip(self.candidates, self.recovered, self.truth, strict=True), 1)
        ]
        return ReportTable(columns, rows, "Candidate, recovered and true labels", "image", formats=("CSV",))

    def body(self, anchor: str) -> str:
        """Return the sheet as HTML, which fits any width."""
        cards = []
        everything = zip(self._pixels, self.candidates, self.recovered, self.truth, strict=True)
        for image, labels, recovered, truth in everything:
            alt = f"candidates {', '.join(labels)}; recovered {recovered}"
            alt += f"; true {truth}" if truth is not None else ""
            missing = [label for label in dict.fromkeys([recovered, truth]) if label and label not in labels]
            chips = "".join(_chip(label, recovered, truth, label in missing) for label in [*labels, *missing])
            missed = ' class="missed"' if truth is not None and recovered != truth else ""
            cards.append(
                f'<li{missed}><img src="{data_uri(image)}" alt="{escape(alt)}">'
                f'<span class="chips" aria-hidden="true">{chips}</span></li>'
            )
        legend = (
            '<p class="key"><span class="chip">1</span> candidate '
            '<span class="chip recovered">1</span> recovered <span class="chip">1 ✓</span> true</p>'
        )
        return f'{legend}<ul class="sheet" aria-describedby="{escape(anchor)}-text">{"".join(cards)}</ul>'

    def draw(self, width: int) -> Drawing:
        """Draw nothing: the sheet is HTML, see `body`."""
        return Drawing(0, [])

    def size(self) -> tuple[float, float]:
        """Return a height for rows of six images."""
        return 7.2, 1.5 * -(-len(self.images) // 6)

    def plot(self, canvas: Canvas) -> None:
        """Plot images in rows of six, with the recovered label in brackets and the true one checked."""
        across = min(6, len(self.images))
        for i, image in enumerate(self._pixels):
            axes = canvas.add_subplot(-(-len(self.images) // across), across, i + 1)
            axes.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            axes.set_axis_off()
            labels = []
            for label in dict.fromkeys([*self.candidates[i], self.recovered[i], self.truth[i]]):
                if label is not None:
                    shown = f"[{label}]" if label == self.recovered[i] else label
                    labels.append(shown + ("✓" if label == self.truth[i] else ""))
            right = self.truth[i] in (None, self.recovered[i])
            axes.set_title(" ".join(labels), fontsize=7, color=LIGHT.text if right else LIGHT.worse, y=-0.25)


def _chip(label: str, recovered: str, truth: str | None, outside: bool) -> str:
    classes = ["chip", *(["recovered"] if label == recovered else []), *(["outside"] if outside else [])]
    return f'<span class="{" ".join(classes)}">{escape(label)}{" ✓" if label == truth else ""}</span>'

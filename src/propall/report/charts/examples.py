"""Sheets of example images with their candidate, recovered and true labels."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from propall.report.charts.figure import Drawing, Figure
from propall.report.charts.plots import Canvas
from propall.report.colors import LIGHT
from propall.report.tables import Column, ReportTable, TableRow


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
            f"image: got {image.dtype} of shape {image.shape}; expected uint8 of shape (h, w) or (h, w, 3). "
            "Convert it with to_uint8 and put the channels last."
        )
    from PIL import Image  # a dependency of matplotlib

    file = BytesIO()
    Image.fromarray(image).save(file, "png", optimize=True)
    return file.getvalue()


@dataclass(frozen=True)
class ExampleSheet(Figure):
    """Images with their candidates as chips: the recovered label filled, the true one checked."""

    caption: str
    images: NDArray[np.generic]  # (n, h, w) or (n, h, w, 3), of any numeric type
    candidates: Sequence[Sequence[str]]
    recovered: Sequence[str]
    truth: Sequence[str | None]  # None where not known
    inverted: bool = False  # draw large values dark, like ink on paper; for gray images

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
            TableRow.of(str(i), " ".join(s), r, "not known" if t is None else t)
            for i, (s, r, t) in enumerate(zip(self.candidates, self.recovered, self.truth, strict=True), 1)
        ]
        return ReportTable(columns, rows, "Candidate, recovered and true labels", "image")

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
            source = f"data:image/png;base64,{b64encode(png(image)).decode()}"
            cards.append(
                f'<li{missed}><img src="{source}" alt="{escape(alt)}">'
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

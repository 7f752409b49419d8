"""A column of image files as features, read with Pillow."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from propall.labels.parsing import as_text
from propall.tables.reading import DataNote, note_rows


@dataclass(frozen=True)
class ImageColumn:
    """A column of paths to image files."""

    name: str
    size: int = 32  # height and width after resizing and cropping to the central square
    mean: tuple[float, ...] = ()  # of each channel over the training images, with pixels from 0 to 1
    scale: tuple[float, ...] = ()  # standard deviation of each channel

    @property
    def encoding(self) -> str:
        """A short description of the encoding."""
        return f"{self.size} x {self.size} RGB pixels, channels standardized"

    def fit(self, frame: pd.DataFrame, folder: Path) -> Self:
        """Compute the mean and scale of the channels over these rows."""
        pixels = self.pixels(frame, folder)
        scale = pixels.std((0, 2, 3), dtype=np.float64)
        mean = pixels.mean((0, 2, 3), dtype=np.float64)
        return replace(self, mean=tuple(mean.tolist()), scale=tuple(np.where(scale > 0, scale, 1.0).tolist()))

    def transform(self, frame: pd.DataFrame, folder: Path) -> NDArray[np.float32]:
        """Read standardized images (n, 3, size, size)."""
        shape = (1, 3, 1, 1)
        mean, scale = (np.array(part, dtype=np.float32).reshape(shape) for part in (self.mean, self.scale))
        return (self.pixels(frame, folder) - mean) / scale

    def pixels(self, frame: pd.DataFrame, folder: Path) -> NDArray[np.float32]:
        """Read images (n, 3, size, size) with pixels from 0 to 1; relative paths start at `folder`."""
        images = np.empty((len(frame), 3, self.size, self.size), dtype=np.float32)
        for place, (row, path) in enumerate(self.paths(frame, folder)):
            images[place] = self._read(path, row)
        return images

    def paths(self, frame: pd.DataFrame, folder: Path) -> list[tuple[int, Path]]:
        """Row number and image file of every row."""
        if self.name not in frame.columns:
            raise ValueError(f"images: the table has no column {self.name!r}.")
        cells = zip(frame.index.tolist(), frame[self.name], strict=True)
        return [(int(row), folder / as_text(cell)) for row, cell in cells]

    def openable(self, frame: pd.DataFrame, folder: Path) -> tuple[NDArray[np.bool_], list[DataNote]]:
        """Find the rows whose image can be opened, with notes on the others."""
        broken: dict[str, list[int]] = {}
        paths = self.paths(frame, folder)
        for row, path in paths:
            try:
                with _open_image(path) as image:
                    image.verify()
            except (FileNotFoundError, IsADirectoryError):
                broken.setdefault("the image file does not exist", []).append(row)
            except (OSError, SyntaxError):  # Pillow raises SyntaxError for a broken PNG
                broken.setdefault("the file is not an image or is damaged", []).append(row)
        broken_rows = [row for rows in broken.values() for row in rows]
        if len(broken_rows) == len(frame):
            raise ValueError(
                f"images: none can be opened, such as {paths[0][1]}: {next(iter(broken))}. Paths are "
                "relative to the table's folder."
            )
        notes: list[DataNote] = []
        for reason, rows in broken.items():
            note_rows(notes, "broken image", reason, "row dropped", rows)
        return ~frame.index.isin(broken_rows), notes

    def _read(self, path: Path, row: int) -> NDArray[np.float32]:
        try:
            with _open_image(path) as image:
                from PIL import ImageOps

                upright = ImageOps.exif_transpose(image).convert("RGB")
                square = ImageOps.fit(upright, (self.size, self.size))
        except OSError as error:
            text = f"images: row {row + 1}: {path} cannot be read as an image ({error})."
            raise ValueError(text) from error
        return np.asarray(square, dtype=np.float32).transpose(2, 0, 1) / np.float32(255)


def _open_image(path: Path) -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ValueError("images: reading images requires Pillow; pip install 'propall[images]'.") from error
    return Image.open(path)

"""A column of image files as features, read with Pillow."""

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from propall.input_files import check_input_file
from propall.labels.parsing import as_text
from propall.tables.reading import DataNote, note_rows
from propall.wording import did_you_mean, list_names


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
            try:
                images[place] = self._read(path)
            except UnreadableImageError as error:
                text = f"images: row {row + 1}: {path} cannot be read as an image ({error})."
                raise ValueError(f"{text} Replace it, or remove the row.") from error
        return images

    def paths(self, frame: pd.DataFrame, folder: Path) -> list[tuple[int, Path]]:
        """Row number and image file of every row."""
        if self.name not in frame.columns:
            names = [str(name) for name in frame.columns]
            hint = did_you_mean(self.name, names) or f"it has {list_names(names, 12)}."
            raise ValueError(f"images: the table has no column {self.name!r}; {hint}")
        cells = zip(frame.index.tolist(), frame[self.name], strict=True)
        return [(int(row), folder / as_text(cell)) for row, cell in cells]

    def openable(self, frame: pd.DataFrame, folder: Path) -> tuple[NDArray[np.bool_], list[DataNote]]:
        """Find the rows whose image can be read to its end, with notes on the others."""
        broken: dict[str, list[int]] = {}
        paths = self.paths(frame, folder)
        for row, path in paths:
            try:
                self._read(path)
            except UnreadableImageError as error:
                broken.setdefault(str(error), []).append(row)
        broken_rows = [row for rows in broken.values() for row in rows]
        if len(broken_rows) == len(frame):
            raise ValueError(
                f"images: none can be opened, such as {paths[0][1]}: {next(iter(broken))}. Paths are "
                "relative to the table's folder."
            )
        notes: list[DataNote] = []
        for reason, rows in broken.items():
            names = [as_text(cell) for cell in frame.loc[rows, self.name]]
            text = f"{reason}: {list_names(names, 3)}"
            note_rows(notes, "broken image", text, "row dropped", rows)
        return ~frame.index.isin(broken_rows), notes

    def _read(self, path: Path) -> NDArray[np.float32]:
        try:
            check_input_file(path, "images")
        except FileNotFoundError as error:
            raise UnreadableImageError("the image file does not exist") from error
        except (OSError, ValueError) as error:
            raise UnreadableImageError("it is not a file that can be read") from error
        image_module, operations = _pillow()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", image_module.DecompressionBombWarning)
                warnings.filterwarnings("ignore", module="PIL")
                with image_module.open(path) as image:
                    upright = operations.exif_transpose(image).convert("RGB")
                    square = operations.fit(upright, (self.size, self.size))
        except (image_module.DecompressionBombError, image_module.DecompressionBombWarning) as error:
            raise UnreadableImageError("the image has too many pixels") from error
        except Exception as error:  # a damaged image can raise almost anything
            raise UnreadableImageError("the file is not an image or is damaged") from error
        return np.asarray(square, dtype=np.float32).transpose(2, 0, 1) / np.float32(255)


class UnreadableImageError(ValueError):
    """An image cannot be read; the message says why."""


def _pillow() -> tuple[Any, Any]:
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise ValueError("images: reading images requires Pillow; pip install 'propall[images]'.") from error
    return Image, ImageOps

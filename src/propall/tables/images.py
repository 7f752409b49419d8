"""A column of image files to tensors, by way of Pillow."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from propall.tables.label_columns import as_text
from propall.tables.reading import Remark


@dataclass(frozen=True)
class ImageColumn:
    """A column that names image files.

    Attributes:
        name: of the column.
        size: height and width the images are brought to: scaled, then cut to the middle square.
        mean: of each channel over the training images, in shares of white.
        scale: standard deviation of each channel.
    """

    name: str
    size: int = 32
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()

    def says(self) -> str:
        """What becomes of it, in words."""
        return f"{self.size} x {self.size} pixels in colour, channels standardised"

    def fit(self, frame: pd.DataFrame, folder: Path) -> Self:
        """With the channels' mean and scale over these rows."""
        pixels = self.pixels(frame, folder)
        scale = pixels.std((0, 2, 3), dtype=np.float64)
        mean = pixels.mean((0, 2, 3), dtype=np.float64)
        return replace(self, mean=tuple(mean.tolist()), scale=tuple(np.where(scale > 0, scale, 1.0).tolist()))

    def transform(self, frame: pd.DataFrame, folder: Path) -> NDArray[np.float32]:
        """Standardised images (n, 3, size, size)."""
        shape = (1, 3, 1, 1)
        mean, scale = (np.array(part, dtype=np.float32).reshape(shape) for part in (self.mean, self.scale))
        return (self.pixels(frame, folder) - mean) / scale

    def pixels(self, frame: pd.DataFrame, folder: Path) -> NDArray[np.float32]:
        """Images (n, 3, size, size) from 0 to 1; a relative path starts from the table's folder."""
        if self.name not in frame.columns:
            raise ValueError(f"images: the table has no column {self.name!r}.")
        found = np.empty((len(frame), 3, self.size, self.size), dtype=np.float32)
        for place, (row, cell) in enumerate(frame[self.name].items()):
            found[place] = self._one(folder / as_text(cell), int(row))  # type: ignore[call-overload]
        return found

    def openable(self, frame: pd.DataFrame, folder: Path) -> tuple[NDArray[np.bool_], list[Remark]]:
        """Which rows have an image that can be opened, and a remark on the others."""
        if self.name not in frame.columns:
            raise ValueError(f"images: the table has no column {self.name!r}.")
        broken: dict[str, list[int]] = {}
        for row, cell in frame[self.name].items():
            try:
                with _opened(folder / as_text(cell)) as image:
                    image.verify()
            except (FileNotFoundError, IsADirectoryError):
                broken.setdefault("there is no such image file", []).append(int(row))  # type: ignore[call-overload]
            except (OSError, SyntaxError):  # Pillow says so of a broken PNG
                broken.setdefault("the file is no image, or a damaged one", []).append(int(row))  # type: ignore[call-overload]
        rows = [row for own in broken.values() for row in own]
        if len(rows) == len(frame):
            first = folder / as_text(frame[self.name].iloc[0])
            raise ValueError(
                f"images: none can be opened, such as {first}: {next(iter(broken))}. Paths start from the "
                "folder of the table."
            )
        remarks = [Remark("broken image", why, "row dropped", tuple(own)) for why, own in broken.items()]
        return ~frame.index.isin(rows), remarks

    def _one(self, path: Path, row: int) -> NDArray[np.float32]:
        try:
            with _opened(path) as image:
                from PIL import ImageOps

                upright = ImageOps.exif_transpose(image).convert("RGB")
                square = ImageOps.fit(upright, (self.size, self.size))
        except OSError as error:
            raise ValueError(
                f"images: row {row + 1}: {path} cannot be read as an image ({error})."
            ) from error
        return np.asarray(square, dtype=np.float32).transpose(2, 0, 1) / np.float32(255)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"name": self.name, "size": self.size, "mean": list(self.mean), "scale": list(self.scale)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """From JSON."""
        return cls(values["name"], values["size"], tuple(values["mean"]), tuple(values["scale"]))


def _opened(path: Path) -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ValueError("images: reading them needs Pillow; pip install 'propall[images]'.") from error
    return Image.open(path)

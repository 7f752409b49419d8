"""Training data whose features stay in a file: larger than memory, and the same to train on."""

import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from propall.data.dataset import PartialDataset

#: Files of a folder of rows; the last one is written when the others are complete.
FEATURES, CANDIDATES, KEYS, SHAPE = "features.f32", "candidates.bool", "keys.i64", "shape.json"


@dataclass(frozen=True)
class StoredDataset(PartialDataset):
    """Rows in files: features are read when a batch needs them; candidates and keys are in memory.

    Reading single rows keeps the process small. A mapped file would not: systems count its pages as memory
    of the process, up to two megabytes for every row that is touched.

    Attributes:
        x: NaN in the shape of the features, without memory; `read` returns the features.
        keys: (n,) integers that identify the rows in random streams.
        file: the features, open for reading.
        listener: called with the number of rows read; it may raise an exception to end training.
    """

    keys: Int[Tensor, "n"] | None = None
    file: BinaryIO | None = None
    listener: Callable[[int], None] | None = None

    in_files = True

    @classmethod
    def open(cls, folder: Path, listener: Callable[[int], None] | None = None) -> Self:
        """Open what a `RowWriter` has written."""
        shape = json.loads((folder / SHAPE).read_text(encoding="utf-8"))
        n, width, classes = shape["rows"], shape["width"], shape["classes"]
        mask = torch.from_numpy(np.fromfile(folder / CANDIDATES, dtype=bool).reshape(n, classes))
        keys = torch.from_numpy(np.fromfile(folder / KEYS, dtype=np.int64))
        x = torch.full((1, width), torch.nan).expand(n, width)
        return cls(x, mask, keys, (folder / FEATURES).open("rb", buffering=0), listener)

    def read(self, rows: Int[Tensor, "*b"]) -> Float[Tensor, "*b d"]:
        """Features of some rows."""
        assert self.file is not None
        width = 4 * self.in_shape[0]
        starts = (rows.flatten() * width).tolist()
        if hasattr(os, "pread"):
            descriptor = self.file.fileno()
            values = bytearray().join([os.pread(descriptor, width, start) for start in starts])
        else:  # Windows
            values = bytearray().join([self._read_at(start, width) for start in starts])
        if self.listener is not None:
            self.listener(len(starts))
        return torch.frombuffer(values, dtype=torch.float32).view(*rows.shape, *self.in_shape)

    def _read_at(self, start: int, size: int) -> bytes:
        assert self.file is not None
        self.file.seek(start)
        return self.file.read(size)

    def to(self, device: torch.device | str) -> Self:
        """Rows in files stay on the CPU."""
        if torch.device(device).type != "cpu":
            raise ValueError(
                f"device: got {device}; rows in files are trained on by a CPU. Use device='cpu'."
            )
        return self

    def close(self) -> None:
        """Close the file of features."""
        if self.file is not None:
            self.file.close()


class RowWriter:
    """Appends rows to the files of a folder; a context manager.

    Args:
        folder: an existing folder.
        width: number of features.
        classes: number of classes.
    """

    def __init__(self, folder: Path, width: int, classes: int) -> None:
        self.folder, self.width, self.classes, self.rows = folder, width, classes, 0
        self._open = ExitStack()
        self._files: list[BinaryIO] = []

    def __enter__(self) -> Self:
        names = (FEATURES, CANDIDATES, KEYS)
        self._files = [self._open.enter_context((self.folder / name).open("wb")) for name in names]
        return self

    def append(
        self,
        x: Float[np.ndarray, "b d"],
        candidates: Bool[np.ndarray, "b k"],
        keys: Int[np.ndarray, "b"],
    ) -> None:
        """Write some rows, which are finite and have a candidate each."""
        for file, values in zip(self._files, (x, candidates, keys), strict=True):
            file.write(np.ascontiguousarray(values).data)
        self.rows += len(x)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()
        if kind is None:
            shape = {"rows": self.rows, "width": self.width, "classes": self.classes}
            (self.folder / SHAPE).write_text(json.dumps(shape), encoding="utf-8")


def bytes_per_row(width: int, classes: int) -> int:
    """Size of a row on disk."""
    return 4 * width + classes + 8

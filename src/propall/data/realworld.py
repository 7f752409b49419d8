"""Loaders of Lost, MSRCv2, BirdSong, Soccer Player, Yahoo! News, FG-NET and Italian (.mat files)."""

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import quote

import numpy as np
import torch

from propall.data.dataset import Loader, Source
from propall.data.files import Content, DamagedDataError, Files, git_blob, sha256
from propall.data.mat_structure import check_structure


class Layout(NamedTuple):
    """Variable names in a .mat file, and whether labels usually have one column per instance."""

    features: str
    truth: str
    candidates: str
    labels_in_columns: bool


#: Known layouts: as published, and as converted for the code of VALEN. The latter also stores the indices of
#: a 5-fold split, which equal `shuffled_folds` and are not read.
LAYOUTS = (
    Layout("data", "target", "partial_target", labels_in_columns=True),
    Layout("features", "logitlabels", "p_labels", labels_in_columns=False),
)


class MatContents(NamedTuple):
    """Features (n, d), truth (n,) and candidates (n, k) from a .mat file."""

    features: np.ndarray
    truth: np.ndarray
    candidates: np.ndarray


def read_mat(data: bytes, where: str) -> MatContents:
    """Read a .mat file in any layout, dense or sparse, with instances in rows or in columns."""
    from scipy.io import loadmat

    names = [name for layout in LAYOUTS for name in layout[:3]]
    try:
        check_structure(data, names)
        stored: dict[str, Any] = loadmat(cast(Any, io.BytesIO(data)), variable_names=names)
    except NotImplementedError as error:
        raise DamagedDataError(
            f"{where}: version 7.3 files are not supported; open it in MATLAB and save it with -v7."
        ) from error
    except Exception as error:  # a damaged file can raise almost anything
        raise DamagedDataError(
            f"{where}: cannot be read as a .mat file ({error}); it is truncated or damaged."
        ) from error
    layout = next((layout for layout in LAYOUTS if all(name in stored for name in layout[:3])), None)
    if layout is None:
        expected = " or ".join("/".join(layout[:3]) for layout in LAYOUTS)
        present = ", ".join(name for name in stored if not name.startswith("__")) or "none of them"
        raise DamagedDataError(f"{where}: expected the variables {expected}, found {present}.")
    features, truth, candidates = (_dense(stored[name], f"{where}: {name}") for name in layout[:3])
    if truth.shape != candidates.shape:
        raise DamagedDataError(
            f"{where}: {layout.truth} has shape {truth.shape}, {layout.candidates} {candidates.shape}."
        )
    for name, labels in ((layout.truth, truth), (layout.candidates, candidates)):
        if not ((labels == 0) | (labels == 1)).all():
            raise DamagedDataError(f"{where}: {name} contains values other than 0 and 1.")
    if not np.isfinite(features).all():
        raise DamagedDataError(f"{where}: {layout.features} contains NaN or infinity.")
    for rows, orient in _orientations(features, truth, layout):
        one_hot = orient(truth)
        if (one_hot.sum(1) == 1).all() and orient(candidates).any(1).all():
            return MatContents(rows, one_hot.argmax(1), orient(candidates).astype(bool))
    raise DamagedDataError(
        f"{where}: {layout.features} has shape {features.shape}, {layout.truth} {truth.shape}; every "
        "instance (row or column) needs exactly one true label and at least one candidate."
    )


def _dense(matrix: Any, where: str) -> np.ndarray:
    from scipy.sparse import issparse

    dense: np.ndarray = cast(Any, matrix).toarray() if issparse(matrix) else np.asarray(matrix)
    if dense.ndim != 2 or dense.dtype.kind not in "buif":
        raise DamagedDataError(
            f"{where}: {dense.dtype} with {dense.ndim} dimensions, expected a numeric matrix."
        )
    return dense


def _orientations(
    features: np.ndarray, labels: np.ndarray, layout: Layout
) -> Iterator[tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]]:
    """Yield the orientations in which the numbers of instances agree, the usual one of the layout first."""
    orientations = (np.transpose, np.asarray) if layout.labels_in_columns else (np.asarray, np.transpose)
    for rows in (features, features.T):
        for orient in orientations:
            if len(orient(labels)) == len(rows):
                yield rows, orient


@dataclass(frozen=True)
class RealWorld(Loader):
    """Features with candidate sets from captions, screenplays or taggers."""

    kind = "real-world"

    def load(self, root: Path) -> Source:
        """Read the .mat file."""
        (files,) = self.files
        (content,) = files.read(root, self.name).values()
        table = read_mat(*content)
        # Bytes are kept: the largest data set is binary and would be eight times as large in float64.
        dtype = table.features.dtype if table.features.dtype == np.uint8 else np.float64
        return Source(
            self.name,
            torch.from_numpy(np.ascontiguousarray(table.features, dtype=dtype)),
            torch.from_numpy(table.truth.astype(np.int64)),
            tuple(str(label) for label in range(table.candidates.shape[1])),
            candidates=torch.from_numpy(np.ascontiguousarray(table.candidates)),
        )


#: Title: reference, instances, features, classes, name of the published file (None: no official URL).
_DATA_SETS = {
    "Lost": ("cour2011learning", 1122, 108, 16, "lost"),
    "MSRCv2": ("liu2012conditional", 1758, 48, 23, "MSRCv2"),
    "BirdSong": ("briggs2012rank", 4998, 38, 13, "BirdSong"),
    "Soccer Player": ("zeng2013learning", 17472, 279, 171, "Soccer Player"),
    "Yahoo! News": ("guillaumin2010multiple", 22991, 163, 219, "Yahoo! News"),
    "FG-NET": ("panis2014overview", 1002, 262, 78, "FG-NET"),
    "Italian": ("bos2009converting", 21878, 519, 90, None),
}
#: SHA-256 digests, or (of Soccer Player and Yahoo! News) git blob hashes, which identify public copies.
_DIGESTS = {
    "Lost": "42a8cc43e05578087e7b8ca194647829ec535dc4d0a86cf47f357c5eb3146e4f",
    "MSRCv2": "948e4d443a5450308f05aa689bc82d9bcc7af699a113a6a81c40ef337a20c393",
    "BirdSong": "2170d46765a151ac80623d9a1242e0299802236e5574442bdb596bef90f50743",
    "Soccer Player": "3372e7350e06eba374c715e07fbd18e2555e00ec",
    "Yahoo! News": "c9c3c35a6562ece4dffca8e7997c4c9cdcd12354",
    "FG-NET": "5b8d43e40cee007f6438a7a74d600b5cf67ac596754a322ce91b0fc6811f45db",
    "Italian": "7981fff3efd2df21abfac990d71777dd9637bf6ab8ccd15066b086287b9e6fde",
}


def _data_set(title: str) -> RealWorld:
    reference, n, n_features, n_classes, published_as = _DATA_SETS[title]
    name = re.sub("[^a-z0-9]+", "_", title.lower())
    if published_as is None:
        by_hand = "It has no official URL; it is distributed with other partial-label data sets."
    else:
        address = f"https://palm.seu.edu.cn/zhangml/files/{quote(published_as, safe='!')}.rar"
        by_hand = f"It is published as {address}, which propall cannot unpack; unpack it first."
    also = () if published_as in (None, name) else (f"{published_as}.mat",)
    fingerprint = sha256 if len(_DIGESTS[title]) == 64 else git_blob
    content = Content(f"{name}.mat", _DIGESTS[title], fingerprint, also)
    files = (Files("realworld", (content,), by_hand=by_hand),)
    return RealWorld(name, title, reference, n, 0, (n_features,), n_classes, files)


LOADERS = tuple(_data_set(title) for title in _DATA_SETS)

"""CIFAR-10N and CIFAR-10H: human annotations of CIFAR-10 images as candidate sets."""

import io
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from propall.data.dataset import Loader, Source
from propall.data.files import Content, DamagedDataError, Download, Files, labels_in_npz
from propall.data.images import CIFAR_10, CIFAR_TEST

_ANNOTATORS = ("random_label1", "random_label2", "random_label3")
_LABEL_ARRAYS = ("clean_label", "aggre_label", "worse_label", *_ANNOTATORS)


def _label_arrays(data: bytes, where: str) -> dict[str, Tensor]:
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            labels = {name: np.asarray(arrays[name]) for name in _LABEL_ARRAYS}
    except Exception as error:  # a damaged archive can raise almost anything
        raise DamagedDataError(
            f"{where}: cannot be read ({error}); expected an .npz file with the integer arrays "
            f"{', '.join(_LABEL_ARRAYS)}, saved without pickle."
        ) from error
    for name, values in labels.items():
        if values.ndim != 1 or values.dtype.kind not in "ui" or (values.size and values.max() > 9):
            raise DamagedDataError(f"{where}: {name} must be a vector of labels 0 to 9.")
    return {name: torch.from_numpy(values.astype(np.int64)) for name, values in labels.items()}


@dataclass(frozen=True)
class CIFAR10N(Loader):
    """CIFAR-10 training images, labeled by three annotators; the candidates are the labels they gave.

    The candidates miss the true class of 2.1 % of the images. `Source.annotations` holds the labels of each
    annotator ("random_label1" to "random_label3"), their majority ("aggre_label"), and a wrong one of them if
    there is any ("worse_label").
    """

    kind = "human annotations"

    def load(self, root: Path) -> Source:
        """Read the images and the labels."""
        ((data, where),) = self.files[1].read(root, self.name).values()
        labels = _label_arrays(data, where)
        images = CIFAR_10.load(root)
        clean = labels.pop("clean_label")
        if not torch.equal(clean, images.truth):
            raise DamagedDataError(f"{where}: the clean labels do not match those of the images.")
        if any(len(values) != len(clean) for values in labels.values()):
            raise DamagedDataError(f"{where}: the arrays differ in length.")
        answers = torch.stack([labels[name] for name in _ANNOTATORS], dim=1)
        candidates = one_hot(answers, images.n_classes).any(1)
        return replace(images, name=self.name, candidates=candidates, annotations=labels)


@dataclass(frozen=True)
class CIFAR10H(Loader):
    """CIFAR-10 test images, labeled by about fifty annotators; the candidates have at least one vote.

    There is no test set, so problems are folds. `Source.annotations` holds the votes as "counts".
    """

    kind = "human annotations"

    def load(self, root: Path) -> Source:
        """Read the images and the votes."""
        ((data, where),) = self.files[1].read(root, self.name).values()
        ((images, truth),) = CIFAR_10.batches(root, [CIFAR_TEST]).values()
        expected = (len(images), len(CIFAR_10.classes))
        try:
            counts = np.load(io.BytesIO(data), allow_pickle=False)
        except Exception as error:  # a damaged file can raise almost anything
            raise DamagedDataError(
                f"{where}: cannot be read ({error}); expected an .npy file of counts."
            ) from error
        if counts.shape != expected or counts.dtype.kind not in "ui":
            raise DamagedDataError(
                f"{where}: {counts.dtype} of shape {counts.shape}, expected integers of shape {expected}."
            )
        votes = torch.from_numpy(counts.astype(np.int64))
        source = Source(self.name, images, truth, CIFAR_10.classes, scaling=CIFAR_10.scaling)
        return replace(source, candidates=votes > 0, annotations={"counts": votes})


_LABELS = Files(
    "annotations",
    (
        Content(
            "cifar10n_labels.npz",
            "09fa057ef46ad628d0e3c2df5b3837b22e77b8a2ce365ef9772f297ef7ecff9c",
            labels_in_npz,
        ),
    ),
    by_hand=(
        "It is published as https://github.com/UCSC-REAL/cifar-10-100n/raw/main/data/CIFAR-10_human.pt"
        ", a pickle, which propall does not open. If you trust it, load it and save its six arrays "
        "as uint8 with numpy.savez_compressed, under their original names."
    ),
)
_GITHUB = "https://raw.githubusercontent.com"
_COUNTS = "cifar10h-counts.npy"
_VOTES = Files(
    "annotations",
    (Content(_COUNTS, "9b36b4550349af56c79083356312eb4af856cc5fd3caf1f669d40b9d0bbb69ff"),),
    (Download(_COUNTS, (f"{_GITHUB}/jcpeterson/cifar-10h/master/data/{_COUNTS}",), (_COUNTS,)),),
)

LOADERS = (
    CIFAR10N(
        "cifar10n", "CIFAR-10N", "wei2022learning", 50000, 10000, (3, 32, 32), 10, (*CIFAR_10.files, _LABELS)
    ),
    CIFAR10H(
        "cifar10h", "CIFAR-10H", "peterson2019human", 10000, 0, (3, 32, 32), 10, (*CIFAR_10.files, _VOTES)
    ),
)

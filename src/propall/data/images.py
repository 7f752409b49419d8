"""Loaders of MNIST, Fashion-MNIST, Kuzushiji-MNIST and CIFAR-10."""

import struct
from collections.abc import Collection
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from propall.data.dataset import Loader, Scaling, Source
from propall.data.files import Content, DamagedDataError, Download, Files

_IMAGES_MAGIC, _LABELS_MAGIC = 2051, 2049
_IDX_FILES = (
    *("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    *("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
)
_SIDE = 28
#: Bytes of the published files: a header, then 28 x 28 pixels or a label each.
_IDX_SIZES = dict(
    zip(_IDX_FILES, (16 + 60_000 * 28 * 28, 8 + 60_000, 16 + 10_000 * 28 * 28, 8 + 10_000), strict=True)
)
_N_CLASSES = 10

#: Images as bytes and their labels.
LabeledImages: TypeAlias = tuple[UInt8[Tensor, "_ ..."], Int[Tensor, "_"]]

#: Name of CIFAR-10's test batch.
CIFAR_TEST = "test_batch.bin"


def _header(data: bytes, magic: int, n_sizes: int, where: str) -> tuple[int, ...]:
    length = 4 * (1 + n_sizes)
    if len(data) < length:
        raise DamagedDataError(f"{where}: {len(data)} bytes; an IDX header has {length}.")
    magic_found, *sizes = struct.unpack(f">{1 + n_sizes}I", data[:length])
    if magic_found != magic:
        raise DamagedDataError(f"{where}: magic number {magic_found}, expected {magic}; wrong type of file.")
    expected = length + prod(sizes)
    if len(data) != expected:
        raise DamagedDataError(
            f"{where}: {len(data)} bytes, expected {expected} by its header; it is truncated or damaged."
        )
    return tuple(sizes)


def _check_labels(labels: np.ndarray, where: str) -> None:
    if labels.size and labels.max() >= _N_CLASSES:
        raise DamagedDataError(
            f"{where}: contains label {labels.max()}, expected 0 to {_N_CLASSES - 1}; it is damaged."
        )


def read_idx_images(data: bytes, where: str) -> UInt8[Tensor, "n 784"]:
    """Read an IDX file of 28 x 28 images, one per row; `where` is the path in error messages."""
    n, height, width = _header(data, _IMAGES_MAGIC, 3, where)
    if (height, width) != (_SIDE, _SIDE):
        raise DamagedDataError(f"{where}: images of {height} x {width} pixels, expected {_SIDE} x {_SIDE}.")
    return torch.from_numpy(np.frombuffer(data, np.uint8, offset=16).reshape(n, _SIDE * _SIDE).copy())


def read_idx_labels(data: bytes, where: str) -> Int[Tensor, "n"]:
    """Read an IDX file of labels; `where` is the path in error messages."""
    _header(data, _LABELS_MAGIC, 1, where)
    labels = np.frombuffer(data, np.uint8, offset=8)
    _check_labels(labels, where)
    return torch.from_numpy(labels.astype(np.int64))


def read_cifar_batch(data: bytes, where: str) -> LabeledImages:
    """Read a batch of CIFAR-10's binary version; `where` is the path in error messages."""
    record = 1 + 3 * 32 * 32
    if not data or len(data) % record:
        raise DamagedDataError(
            f"{where}: {len(data)} bytes, expected records of {record}; it is truncated or damaged."
        )
    records = np.frombuffer(data, np.uint8).reshape(-1, record)
    _check_labels(records[:, 0], where)
    images = records[:, 1:].reshape(-1, 3, 32, 32).copy()
    return torch.from_numpy(images), torch.from_numpy(records[:, 0].astype(np.int64))


@dataclass(frozen=True)
class ImageLoader(Loader):
    """Images with an official test set; adds class names and scaling to the description."""

    kind = "images"

    classes: tuple[str, ...] = ()
    scaling: Scaling = Scaling()  # noqa: RUF009 - frozen

    def source(self, train: LabeledImages, test: LabeledImages) -> Source:
        """Build the source from images and labels."""
        source = Source(self.name, *train, self.classes, scaling=self.scaling)
        return replace(source, test_raw=test[0], test_truth=test[1])


@dataclass(frozen=True)
class IdxImages(ImageLoader):
    """MNIST and data sets of the same format: four IDX files, images flattened to 784 pixels."""

    def load(self, root: Path) -> Source:
        """Read the four files."""
        (files,) = self.files
        unpacked = files.read(root, self.name)
        parts = []
        for part in ("train", "t10k"):
            images_file, labels_file = f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"
            images, labels = read_idx_images(*unpacked[images_file]), read_idx_labels(*unpacked[labels_file])
            if len(images) != len(labels):
                raise DamagedDataError(
                    f"{unpacked[images_file].where}: {len(images)} images, but {len(labels)} labels in "
                    f"{unpacked[labels_file].where}; they are from different data sets."
                )
            parts.append((images, labels))
        return self.source(*parts)


@dataclass(frozen=True)
class CIFAR10(ImageLoader):
    """CIFAR-10, binary version: five training batches and a test batch of 3 x 32 x 32 images."""

    def batches(self, root: Path, names: Collection[str] | None = None) -> dict[str, LabeledImages]:
        """Read images and labels of some batches (all by default), by name."""
        unpacked = self.files[0].read(root, self.name, names)
        return {name: read_cifar_batch(*content) for name, content in unpacked.items()}

    def load(self, root: Path) -> Source:
        """Read the six batches."""
        batches = self.batches(root)
        sizes = {name: len(labels) for name, (_, labels) in batches.items()}
        if len(set(sizes.values())) != 1:
            raise DamagedDataError(f"{self.name}: batches differ in size ({sizes}); some are truncated.")
        train = [batches[f"data_batch_{number}.bin"] for number in range(1, 6)]
        images, labels = (torch.cat(parts) for parts in zip(*train, strict=True))
        return self.source((images, labels), batches[CIFAR_TEST])


def _idx_images(
    name: str,
    title: str,
    reference: str,
    *,
    addresses: tuple[str, ...],
    digests: tuple[str, str, str, str],
    classes: tuple[str, ...],
    scaling: Scaling,
    elsewhere: Path | None = None,
) -> IdxImages:
    """Describe a data set of the size of MNIST; digests in the order of `_IDX_FILES`."""
    downloads = tuple(
        Download(f"{file}.gz", tuple(f"{address}/{file}.gz" for address in addresses), (file,))
        for file in _IDX_FILES
    )
    contents = tuple(
        Content(file, digest, limit=_IDX_SIZES[file])
        for file, digest in zip(_IDX_FILES, digests, strict=True)
    )
    files = (Files(name.replace("_", "-"), contents, downloads, elsewhere=elsewhere),)
    return IdxImages(name, title, reference, 60000, 10000, (784,), 10, files, classes, scaling)


_MNIST_SCALING = Scaling((0.1307,), (0.3081,))

MNIST = _idx_images(
    "mnist",
    "MNIST",
    "lecun1998gradient",
    addresses=("https://ossci-datasets.s3.amazonaws.com/mnist", "https://yann.lecun.com/exdb/mnist"),
    digests=(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    classes=tuple("0123456789"),
    scaling=_MNIST_SCALING,
)

FASHION_MNIST = _idx_images(
    "fashion_mnist",
    "Fashion-MNIST",
    "xiao2017fashion",
    addresses=("https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",),
    digests=(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    classes=(
        *("t-shirt", "trouser", "pullover", "dress", "coat"),
        *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
    ),
    # Public implementations use MNIST's constants here too.
    scaling=_MNIST_SCALING,
    # Installed by the Debian package dataset-fashion-mnist.
    elsewhere=Path("/usr/share/datasets/fashion-mnist"),
)

KMNIST = _idx_images(
    "kmnist",
    "Kuzushiji-MNIST",
    "clanuwat2018deep",
    addresses=("https://codh.rois.ac.jp/kmnist/dataset/kmnist",),
    digests=(
        "7112ba9ec422d98de4885262d4a4dff14cc4fefb81c11ace8bf563a8255df5c3",
        "2a16eeae62da984b8bd24fa32e31d47291f01dac3fe84d5594f304f71e7d374b",
        "76fbd229ce87db80dd281af5e6670de4ad0e42fb30a7bd643972994c47c1f42e",
        "a11dc742be8e781a40a92f53d6a4957e7b7d36df2faa097659131ebfd8fd60c6",
    ),
    classes=("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"),
    scaling=Scaling((0.5,), (0.5,)),
)

_CIFAR_DIGESTS = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    CIFAR_TEST: "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}

_CIFAR_ARCHIVE = "cifar-10-binary.tar.gz"
_CIFAR_FILES = Files(
    "cifar10",
    tuple(Content(name, digest, limit=10_000 * 3073) for name, digest in _CIFAR_DIGESTS.items()),
    (
        Download(
            _CIFAR_ARCHIVE, (f"https://www.cs.toronto.edu/~kriz/{_CIFAR_ARCHIVE}",), tuple(_CIFAR_DIGESTS)
        ),
    ),
    archive=_CIFAR_ARCHIVE,
)

CIFAR_10 = CIFAR10(
    "cifar10",
    "CIFAR-10",
    "krizhevsky2009learning",
    n=50000,
    n_test=10000,
    shape=(3, 32, 32),
    n_classes=_N_CLASSES,
    files=(_CIFAR_FILES,),
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    scaling=Scaling((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
)

LOADERS = (MNIST, FASHION_MNIST, KMNIST, CIFAR_10)

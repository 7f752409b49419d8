import gzip
import io
import lzma
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from propall.data import DATASETS, Source, load
from propall.data.corruption import PRODENBinomialMin2
from propall.data.files import DamagedDataError, MissingDataError
from propall.data.images import read_cifar_batch, read_idx_images, read_idx_labels

PARTS = {"train": 12, "t10k": 5}


def idx(array: np.ndarray) -> bytes:
    """Encode an array of bytes as an IDX file."""
    return struct.pack(f">{1 + array.ndim}I", 2048 + array.ndim, *array.shape) + array.tobytes()


def write_idx(folder: Path, *, packed: bool) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    written = {}
    folder.mkdir(parents=True)
    for part, n in PARTS.items():
        written[f"{part}-images-idx3-ubyte"] = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        written[f"{part}-labels-idx1-ubyte"] = rng.integers(0, 10, n, dtype=np.uint8)
    for name, array in written.items():
        data = idx(array)
        (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(data) if packed else data)
    return written


def cifar_batches(n: int = 4) -> dict[str, bytes]:
    rng = np.random.default_rng(1)
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    return {name: b"".join(bytes([rng.integers(10)]) + rng.bytes(3072) for _ in range(n)) for name in names}


def write_cifar(folder: Path, packing: str, batches: dict[str, bytes]) -> None:
    folder.mkdir(parents=True)
    if packing == "tar.gz":
        with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as archive:
            for name, data in batches.items():
                entry = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
        return
    for name, data in batches.items():
        if packing == "xz":
            (folder / f"{name}.xz").write_bytes(lzma.compress(data))
        else:
            (folder / name).write_bytes(data)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize(
    ("name", "folder", "mean", "std"),
    [
        ("mnist", "mnist", 0.1307, 0.3081),
        ("fashion_mnist", "fashion-mnist", 0.1307, 0.3081),
        ("kmnist", "kmnist", 0.5, 0.5),
    ],
)
def test_idx_files_become_normalized_rows(
    name: str, folder: str, mean: float, std: float, packed: bool, tmp_path: Path
) -> None:
    written = write_idx(tmp_path / folder, packed=packed)
    source = load(name, tmp_path)
    for x, truth, part in (
        (source.x, source.truth, "train"),
        (source.test_x, source.test_truth, "t10k"),
    ):
        pixels = written[f"{part}-images-idx3-ubyte"].reshape(PARTS[part], 784)
        assert np.allclose(x, (pixels / 255 - mean) / std, atol=1e-5)
        assert truth.tolist() == written[f"{part}-labels-idx1-ubyte"].tolist()
    assert source.raw.dtype == torch.uint8
    assert source.n_classes == 10


@pytest.mark.parametrize("packing", ["bin", "xz", "tar.gz"])
def test_cifar_batches_become_images_in_order(packing: str, tmp_path: Path) -> None:
    batches = cifar_batches()
    write_cifar(tmp_path / "cifar10", packing, batches)
    source = load("cifar10", tmp_path)
    assert source.raw.shape == (20, 3, 32, 32)
    third = batches["data_batch_3.bin"][3073:6146]
    assert int(source.truth[9]) == third[0]
    # One byte per pixel: 1024 of red, then green, then blue, row by row.
    assert int(source.raw[9, 1, 2, 5]) == third[1 + 1024 + 2 * 32 + 5]
    blue = (third[1 + 2048] / 255 - 0.4465) / 0.2010
    assert float(source.x[9, 2, 0, 0]) == pytest.approx(blue, abs=1e-5)
    assert int(source.test_truth[0]) == batches["test_batch.bin"][0]


def test_missing_files_are_named(tmp_path: Path) -> None:
    write_idx(tmp_path / "kmnist", packed=True)
    (tmp_path / "kmnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(MissingDataError) as caught:
        load("kmnist", tmp_path)
    where = tmp_path / "kmnist" / "t10k-labels-idx1-ubyte.gz"
    address = "https://codh.rois.ac.jp/kmnist/dataset/kmnist/t10k-labels-idx1-ubyte.gz"
    assert f"download {address} and save it as {where}" in str(caught.value)


IMAGES = idx(np.zeros((2, 28, 28), np.uint8))
LABELS = idx(np.array([1, 2], np.uint8))


@pytest.mark.parametrize(
    ("reader", "data", "problem"),
    [
        (read_idx_images, IMAGES[:-1], "1583 bytes, expected 1584 by its header"),
        (read_idx_images, IMAGES + b"\0", "1585 bytes, expected 1584"),
        (read_idx_images, IMAGES[:10], "10 bytes; an IDX header has 16"),
        (read_idx_images, LABELS + IMAGES, "magic number 2049, expected 2051"),
        (read_idx_images, idx(np.zeros((2, 32, 32), np.uint8)), "images of 32 x 32 pixels"),
        (read_idx_labels, LABELS[:-1], "9 bytes, expected 10"),
        (read_idx_labels, IMAGES, "magic number 2051, expected 2049"),
        (read_idx_labels, idx(np.array([1, 10], np.uint8)), "contains label 10, expected 0 to 9"),
        (read_cifar_batch, b"\0" * 3072, "3072 bytes, expected records of 3073"),
        (read_cifar_batch, b"", "0 bytes, expected records of 3073"),
        (read_cifar_batch, b"\x0b" + b"\0" * 3072, "contains label 11"),
    ],
)
def test_truncated_and_foreign_contents_are_refused(
    reader: Callable[[bytes, str], object], data: bytes, problem: str
) -> None:
    with pytest.raises(DamagedDataError, match=f"/a/file: {problem}"):
        reader(data, "/a/file")


def test_files_of_different_data_sets_are_refused(tmp_path: Path) -> None:
    write_idx(tmp_path / "mnist", packed=False)
    (tmp_path / "mnist" / "train-labels-idx1-ubyte").write_bytes(LABELS)
    with pytest.raises(DamagedDataError, match=r"12 images, but 2 labels in .*train-labels-idx1-ubyte"):
        load("mnist", tmp_path)


def test_a_batch_truncated_between_images_is_refused(tmp_path: Path) -> None:
    batches = cifar_batches()
    batches["data_batch_2.bin"] = batches["data_batch_2.bin"][:-3073]
    write_cifar(tmp_path / "cifar10", "bin", batches)
    with pytest.raises(DamagedDataError, match="cifar10: batches differ in size"):
        load("cifar10", tmp_path)


# --- the published files ------------------------------------------------------------------------------------


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("name", "train", "test", "mean", "std"),
    [
        (
            "mnist",
            [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
            [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
            0.1307,
            0.3081,
        ),
        ("fashion_mnist", [6000] * 10, [1000] * 10, 0.2860, 0.3530),
        ("kmnist", [6000] * 10, [1000] * 10, 0.1918, 0.3483),
    ],
)
def test_published_idx_files(
    name: str,
    train: list[int],
    test: list[int],
    mean: float,
    std: float,
    published: Callable[[str], Source],
) -> None:
    source = published(name)
    assert (len(source), source.raw.shape[1:]) == (DATASETS[name].n, DATASETS[name].shape)
    assert torch.bincount(source.truth).tolist() == train
    assert torch.bincount(source.test_truth).tolist() == test
    levels = torch.bincount(source.raw.flatten(), minlength=256).double() / source.raw.numel()
    values = torch.arange(256) / 255
    average = float(levels @ values.double())
    assert round(average, 4) == mean
    assert round(float((levels @ (values.double() - average) ** 2).sqrt()), 4) == std


@pytest.mark.realdata
def test_the_candidate_sweep_on_the_published_digits(published: Callable[[str], Source]) -> None:
    source = published("mnist").keep_classes(range(5, 10)).first_per_class(1000)
    assert torch.bincount(source.truth).tolist() == [1000] * 5
    assert torch.bincount(source.test_truth).tolist() == [892, 958, 1028, 974, 1009]
    assert source.classes == ("5", "6", "7", "8", "9")
    problem = source.problem(PRODENBinomialMin2(0.5), seed=1)
    assert problem.train.candidates[torch.arange(5000), problem.truth].all()


@pytest.mark.realdata
@pytest.mark.slow
def test_published_cifar_batches(published: Callable[[str], Source]) -> None:
    source = published("cifar10")
    assert source.raw.shape == (50000, 3, 32, 32)
    assert torch.bincount(source.truth).tolist() == [5000] * 10
    assert torch.bincount(source.test_truth).tolist() == [1000] * 10
    for channel, (mean, std) in enumerate(((0.4914, 0.2470), (0.4822, 0.2435), (0.4465, 0.2616))):
        pixels = source.raw[:, channel].double() / 255
        assert round(float(pixels.mean()), 4) == mean
        assert round(float(pixels.std()), 4) == std

"""Data sets on disk (.mat, idx, CIFAR), folders of results, and the store."""

import gzip
import io
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.faults.harness import Case, Door, run_command
from tests.faults.mutations import byte_mutations, text_mutations
from tests.fixtures.runs import write_mat

RESULTS = Path(__file__).parents[2] / "compatibility" / "store"


def _mat(count: int, seed: int) -> Iterator[Case]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        write_mat(Path(folder), "lost", n=30, sparse=True)
        sparse = (Path(folder) / "realworld" / "lost.mat").read_bytes()
        write_mat(Path(folder), "lost", n=30)
        dense = (Path(folder) / "realworld" / "lost.mat").read_bytes()
    half = count // 2
    yield from byte_mutations("mat", sparse, ".mat", half, seed)
    yield from byte_mutations("mat dense", dense, ".mat", count - half, seed)


def _load_mat(path: Path) -> None:
    from propall.data import load

    folder = path.with_name("data") / "realworld"
    folder.mkdir(parents=True)
    shutil.move(path, folder / "lost.mat")
    load("lost", path.with_name("data"))


def _idx(count: int, seed: int) -> Iterator[Case]:
    out = io.BytesIO()
    out.write(bytes([0, 0, 8, 3]) + np.array([60, 28, 28], dtype=">i4").tobytes() + bytes(60 * 28 * 28))
    half = count // 2
    yield from byte_mutations("idx", out.getvalue(), "", half, seed)
    yield from byte_mutations("idx gzip", gzip.compress(out.getvalue()), ".gz", count - half, seed)


def _load_idx(path: Path) -> None:
    from propall.data import load

    folder = path.with_name("data") / "mnist"
    folder.mkdir(parents=True)
    name = "train-images-idx3-ubyte" + (".gz" if path.suffix else "")
    shutil.move(path, folder / name)
    for other in ("train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"):
        (folder / other).write_bytes(b"")
    load("mnist", path.with_name("data"))


def _import(path: Path) -> None:
    run_command("results", "import", str(path), "--store", "new.sqlite")


def _imports(count: int, seed: int) -> Iterator[Case]:
    half = count // 2
    table = (RESULTS / "exported.csv").read_text(encoding="utf-8")
    yield from text_mutations("results CSV", table, ".csv", half, seed)
    lines = (RESULTS / "exported.json").read_bytes()
    yield from byte_mutations("results JSON", lines, ".json", count - half, seed)


def _list(path: Path) -> None:
    before = path.read_bytes()
    try:
        run_command("results", "list", "--store", str(path))
    finally:
        if path.read_bytes() != before:
            raise AssertionError("reading changed the store")


def _stores(count: int, seed: int) -> Iterator[Case]:
    yield from byte_mutations("store", (RESULTS / "results.sqlite").read_bytes(), ".sqlite", count - 2, seed)
    yield Case("store: empty file", b"", ".sqlite")
    yield Case("store: another database", _other_database(), ".sqlite")


def _other_database() -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("create table birds (name text)")
    return connection.serialize()


DOORS = [
    Door("mat files", _load_mat, _mat, names=("lost",)),
    Door("idx files", _load_idx, _idx, names=("mnist", "idx")),
    Door("results import", _import, _imports),
    Door("store", _list, _stores),
]

import gzip
import io
import lzma
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from propall.data.files import (
    Content,
    DamagedDataError,
    DifferentDataWarning,
    Download,
    Files,
    MissingDataError,
    data_root,
    git_blob,
    labels_in_npz,
    sha256,
    unpack,
)

ONE, TWO = b"first contents" * 50, b"second contents" * 50
CONTENTS = (Content("one.bin", sha256(ONE), also=("First File.bin",)), Content("two.bin", sha256(TWO)))
FILES = Files("folder", CONTENTS, archive="all.tar.gz")


def tar_gz(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


def data_of(root: Path) -> dict[str, bytes]:
    return {name: unpacked.data for name, unpacked in FILES.read(root, "test").items()}


def test_the_root_is_the_argument_then_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROPALL_DATA", str(tmp_path / "variable"))
    assert data_root() == tmp_path / "variable"
    assert data_root(tmp_path / "argument") == tmp_path / "argument"
    assert data_root("~/data") == Path.home() / "data"


@pytest.mark.parametrize(
    ("platform", "variable", "below_home"),
    [
        ("linux", "XDG_CACHE_HOME", ".cache"),
        ("darwin", None, "Library/Caches"),
        ("win32", "LOCALAPPDATA", "AppData/Local"),
    ],
)
def test_the_root_defaults_to_the_cache_folder(
    platform: str, variable: str | None, below_home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PROPALL_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", platform)
    assert data_root() == Path.home() / below_home / "propall"
    if variable:
        monkeypatch.setenv(variable, str(tmp_path))
        assert data_root() == tmp_path / "propall"


def test_contents_are_read_from_any_compression(folder: Path) -> None:
    (folder / "one.bin.gz").write_bytes(gzip.compress(ONE))
    (folder / "two.bin.xz").write_bytes(lzma.compress(TWO))
    assert data_of(folder.parent) == {"one.bin": ONE, "two.bin": TWO}
    (folder / "one.bin").write_bytes(b"plain files take precedence")
    assert data_of(folder.parent)["one.bin"] == b"plain files take precedence"


def test_contents_are_read_from_the_archive(folder: Path) -> None:
    members = {"inner/readme.html": b"", "inner/one.bin": ONE, "inner/two.bin": TWO}
    tar_gz(folder / "all.tar.gz", members)
    assert data_of(folder.parent) == {"one.bin": ONE, "two.bin": TWO}
    assert FILES.read(folder.parent, "test", ["two.bin"]).keys() == {"two.bin"}


def test_contents_are_found_under_their_other_names(folder: Path) -> None:
    (folder / "First File.bin").write_bytes(ONE)
    (folder / "two.bin").write_bytes(TWO)
    unpacked = FILES.read(folder.parent, "test")
    assert unpacked["one.bin"] == (ONE, str(folder / "First File.bin"))


def test_contents_are_found_elsewhere(folder: Path, tmp_path: Path) -> None:
    files = Files("missing", CONTENTS[1:], elsewhere=folder)
    (folder / "two.bin.gz").write_bytes(gzip.compress(TWO))
    assert files.read(tmp_path, "test")["two.bin"].data == TWO


def test_missing_files_are_named_with_their_url_and_path(folder: Path) -> None:
    download = Download("two.bin.gz", ("https://example.org/two.bin.gz",), ("two.bin",))
    files = Files("folder", CONTENTS, (download,))
    (folder / "one.bin").write_bytes(ONE)
    with pytest.raises(MissingDataError) as caught:
        files.read(folder.parent, "test")
    message = str(caught.value)
    assert message.startswith(f"test: two.bin not found in {folder}")
    assert "propall data get test" in message
    assert f"download https://example.org/two.bin.gz and save it as {folder / 'two.bin.gz'}" in message
    assert "one.bin" not in message
    assert files.read(folder.parent, "test", ["one.bin"])["one.bin"].data == ONE


def test_files_without_download_have_instructions(folder: Path) -> None:
    files = Files("folder", CONTENTS[:1], by_hand="It is published as one.rar.")
    with pytest.raises(MissingDataError) as caught:
        files.read(folder.parent, "test")
    assert "It is published as one.rar." in str(caught.value)
    assert f"Save it as {folder / 'one.bin'}" in str(caught.value)
    assert "data get" not in str(caught.value)


@pytest.mark.parametrize("compressed", [gzip.compress(ONE), lzma.compress(ONE)], ids=["gz", "xz"])
@pytest.mark.parametrize("damage", ["truncated", "foreign", "flipped"])
def test_damaged_files_are_named(compressed: bytes, damage: str, folder: Path) -> None:
    path = folder / ("one.bin.gz" if compressed[:2] == b"\x1f\x8b" else "one.bin.xz")
    middle = len(compressed) // 2
    flipped = bytes([compressed[middle] ^ 255])
    path.write_bytes(
        {
            "truncated": compressed[:-9],
            "foreign": b"something else entirely",
            "flipped": compressed[:middle] + flipped + compressed[middle + 1 :],
        }[damage]
    )
    with pytest.raises(DamagedDataError, match=f"{path.name}: cannot be unpacked"):
        unpack(path, CONTENTS[:1])


def test_damaged_archives_are_named(folder: Path) -> None:
    path = folder / "all.tar.gz"
    noise = np.random.default_rng(0).bytes(200_000)
    tar_gz(path, {"one.bin": noise, "two.bin": noise})
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamagedDataError, match=r"all.tar.gz: cannot be unpacked"):
        unpack(path, CONTENTS)
    tar_gz(path, {"one.bin": ONE})
    with pytest.raises(DamagedDataError, match=r"all.tar.gz: does not contain two.bin"):
        unpack(path, CONTENTS)
    path.write_bytes(b"no archive")
    with pytest.raises(DamagedDataError, match="cannot be unpacked"):
        unpack(path, CONTENTS)


def test_fingerprints() -> None:
    # Printed by `printf abc | git hash-object --stdin` and `sha256sum`.
    assert git_blob(b"abc") == "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f"
    assert sha256(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_the_fingerprint_of_labels_depends_only_on_the_labels() -> None:
    labels = np.array([3, 1, 2])
    packings = []
    for save, dtype in ((np.savez, np.int64), (np.savez_compressed, np.uint8)):
        stream = io.BytesIO()
        save(stream, b=labels.astype(dtype), a=labels.astype(dtype))
        packings.append(stream.getvalue())
    content = Content("labels.npz", labels_in_npz(packings[0]), labels_in_npz)
    assert packings[0] != packings[1]
    assert content.is_published(packings[1])
    other = io.BytesIO()
    np.savez(other, b=labels, a=labels[::-1])
    assert not content.is_published(other.getvalue())
    assert not content.is_published(b"not an archive of arrays")


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".tar.gz"])
def test_no_more_than_the_published_size_is_unpacked(suffix: str, folder: Path) -> None:
    bomb = bytes(10_000_000)
    path = folder / f"all{suffix}"
    if suffix == ".tar.gz":
        tar_gz(path, {"one.bin": bomb})
    else:
        path.write_bytes({"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[suffix](bomb))
    with pytest.raises(DamagedDataError, match=r"one.bin has more than 1000 bytes; it is not the published"):
        unpack(path, [Content("one.bin", sha256(ONE), limit=1000)])


def test_contents_are_compared_with_the_published_ones(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROPALL_VERIFY_DATA", "1")
    (folder / "one.bin").write_bytes(ONE)
    (folder / "two.bin").write_bytes(TWO)
    assert data_of(folder.parent) == {"one.bin": ONE, "two.bin": TWO}
    (folder / "two.bin").write_bytes(TWO[:-1] + b"x")
    with pytest.warns(DifferentDataWarning, match=r"two.bin differs from the published contents"):
        data_of(folder.parent)
    download = Download("two.bin", ("https://example.org/two.bin",), ("two.bin",))
    downloadable = Files("folder", CONTENTS, (download,))
    with pytest.raises(
        DamagedDataError, match=r"two.bin differs .* run `propall data get`, or set PROPALL_VER"
    ):
        downloadable.read(folder.parent, "test")
    monkeypatch.setenv("PROPALL_VERIFY_DATA", "0")
    assert downloadable.read(folder.parent, "test")["two.bin"].data == TWO[:-1] + b"x"

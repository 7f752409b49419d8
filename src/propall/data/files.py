"""Where the files of the data sets are, and how they are read whatever they are packed in."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import sys
import tarfile
import zlib
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

_PACKINGS = ("", ".gz", ".xz")


class MissingDataError(FileNotFoundError):
    """A data set's file is not there; the message says which one to put where."""


class DamagedDataError(ValueError):
    """A data set's file is cut, damaged or something else than its name says."""


def data_root(root: Path | str | None = None) -> Path:
    """The folder of all data sets: `root`, else PROPALL_DATA, else `propall` in the user's cache folder."""
    chosen = root or os.environ.get("PROPALL_DATA")
    return Path(chosen).expanduser() if chosen else _cache_folder() / "propall"


def _cache_folder() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def sha256(data: bytes) -> str:
    """SHA-256 of the bytes."""
    return hashlib.sha256(data).hexdigest()


def git_blob(data: bytes) -> str:
    """The name git gives to a file with these contents; what some public copies are known by."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def labels_in_npz(data: bytes) -> str:
    """SHA-256 of the label arrays in a .npz file, whatever their integer type and compression."""
    digest = hashlib.sha256()
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        for name in sorted(arrays.files):
            digest.update(name.encode())
            digest.update(arrays[name].astype(np.uint8).tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Content:
    """One unpacked file of a data set.

    Attributes:
        name: its name when unpacked.
        digest: fingerprint of its contents.
        fingerprint: what computes the fingerprint.
        also: other names it goes by.
    """

    name: str
    digest: str
    fingerprint: Callable[[bytes], str] = sha256
    also: tuple[str, ...] = ()

    def is_published(self, data: bytes) -> bool:
        """Whether these are the published contents."""
        try:
            return self.fingerprint(data) == self.digest
        except Exception:  # a fingerprint that cannot even be taken, whatever the parser raises, is no match
            return False


@dataclass(frozen=True)
class Download:
    """A file on the network that can be fetched and read as it is.

    Attributes:
        target: its name in the data set's folder.
        addresses: where it is, tried in this order: the official address, then mirrors.
        holds: names of the contents packed in it.
    """

    target: str
    addresses: tuple[str, ...]
    holds: tuple[str, ...]


class Unpacked(NamedTuple):
    """The bytes of a content and where they were found, for messages."""

    data: bytes
    where: str


@dataclass(frozen=True)
class Files:
    """The files of one data set.

    Attributes:
        folder: their folder under the root.
        contents: what they hold.
        downloads: where they come from, where they can be fetched and read as published.
        by_hand: where they come from otherwise, and what has to be done to them.
        archive: name of an archive that may hold all contents, in place of single files.
        elsewhere: a folder outside the root that is searched as well.
    """

    folder: str
    contents: tuple[Content, ...]
    downloads: tuple[Download, ...] = ()
    by_hand: str = ""
    archive: str | None = None
    elsewhere: Path | None = None

    def locate(self, root: Path) -> dict[Content, Path | None]:
        """The file each content is in, plain, compressed or in the archive; None where there is none."""
        folders = [root / self.folder, *([self.elsewhere] if self.elsewhere else [])]
        return {content: next(self._places(content, folders), None) for content in self.contents}

    def _places(self, content: Content, folders: list[Path]) -> Iterator[Path]:
        for folder in folders:
            for name in (content.name, *content.also):
                for packing in _PACKINGS:
                    if (path := folder / (name + packing)).is_file():
                        yield path
            if self.archive and (path := folder / self.archive).is_file():
                yield path

    def read(self, root: Path, dataset: str, names: Collection[str] | None = None) -> dict[str, Unpacked]:
        """Contents by their names.

        Args:
            root: the root folder.
            dataset: name of the data set, for the message where a file is missing.
            names: which contents, where not all of them are needed.
        """
        files: dict[Path, list[Content]] = {}
        missing = []
        for content, path in self.locate(root).items():
            if names is not None and content.name not in names:
                continue
            if path is None:
                missing.append(content.name)
            else:
                files.setdefault(path, []).append(content)
        if missing:
            raise MissingDataError(self.explain_missing(root, dataset, missing))
        # Decompression lets other threads run: six batches of CIFAR-10 take as long as the slowest.
        with ThreadPoolExecutor() as pool:
            unpacked = list(pool.map(unpack, files.keys(), files.values()))
        return {
            name: Unpacked(data, f"{path}" if len(part) == 1 else f"{path} ({name})")
            for path, part in zip(files, unpacked, strict=True)
            for name, data in part.items()
        }

    def explain_missing(self, root: Path, dataset: str, missing: Collection[str]) -> str:
        """What to put where.

        Args:
            root: the root folder.
            dataset: name of the data set.
            missing: names of the contents that are not there.
        """
        folder = root / self.folder
        lines = [f"{dataset}: {', '.join(missing)} not found in {folder}, plain or as .gz or .xz."]
        if self.downloads:
            lines.append(f"Run `propall data get {dataset}`, or without a network")
            wanted = [download for download in self.downloads if set(download.holds) & set(missing)]
            lines += [
                f"fetch {download.addresses[0]}, put it at {folder / download.target}" for download in wanted
            ]
        else:
            lines.append(self.by_hand)
            lines += [f"Put it at {folder / name}" for name in missing]
        return "\n  ".join([*lines, "The root folder is PROPALL_DATA where that is set."])


def unpack(path: Path, contents: Collection[Content], name: str | None = None) -> dict[str, bytes]:
    """Contents of a file by their names: the one of a plain, .gz or .xz file, some members of a .tar.gz.

    Args:
        path: the file.
        contents: which contents to read.
        name: the name that tells the packing, where it is not the path's own (a file not yet in place).
    """
    name = name or path.name
    try:
        if name.endswith(".tar.gz"):
            return _members(path, contents)
        (content,) = contents
        if name.endswith(".gz"):
            return {content.name: gzip.decompress(path.read_bytes())}
        if name.endswith(".xz"):
            return {content.name: lzma.decompress(path.read_bytes())}
        return {content.name: path.read_bytes()}
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, tarfile.TarError) as error:
        raise DamagedDataError(
            f"{path}: cannot be unpacked ({error}); it is cut or damaged, fetch it again."
        ) from error


def _members(path: Path, contents: Collection[Content]) -> dict[str, bytes]:
    wanted = {content.name for content in contents}
    found: dict[str, bytes] = {}
    with tarfile.open(path, mode="r|gz") as archive:
        for member in archive:
            short = member.name.rpartition("/")[2]
            if short in wanted and member.isfile():
                stream = archive.extractfile(member)
                assert stream is not None
                found[short] = stream.read()
    if missing := wanted - found.keys():
        raise DamagedDataError(f"{path}: {', '.join(sorted(missing))} not in it; fetch it again.")
    return found

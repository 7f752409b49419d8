"""Locate the files of data sets and read them, plain, compressed or from an archive."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import sys
import tarfile
import warnings
import zlib
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from propall.input_files import check_input_file

#: Environment variable; with the value 0, data files may differ from the published ones.
VERIFY = "PROPALL_VERIFY_DATA"

_COMPRESSIONS = ("", ".gz", ".xz")


class MissingDataError(FileNotFoundError):
    """A file of a data set is missing; the message says which one and where to put it."""


class DifferentDataWarning(UserWarning):
    """A file of a data set can be read, but is not the published one."""


class DamagedDataError(ValueError):
    """A file of a data set is truncated, damaged or has unexpected contents."""


def data_root(root: Path | str | None = None) -> Path:
    """Return the folder of all data sets: `root`, PROPALL_DATA, or `propall` in the user's cache folder."""
    chosen = root or os.environ.get("PROPALL_DATA")
    return Path(chosen).expanduser() if chosen else _cache_folder() / "propall"


def verifies_data() -> bool:
    """Whether files are compared with the published contents when they are read."""
    return os.environ.get(VERIFY, "") != "0"


def _cache_folder() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def sha256(data: bytes) -> str:
    """Compute the SHA-256 digest of the bytes."""
    return hashlib.sha256(data).hexdigest()


def git_blob(data: bytes) -> str:
    """Compute the git blob hash of the bytes, by which some public copies are identified."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def labels_in_npz(data: bytes) -> str:
    """Compute the SHA-256 digest of the label arrays in a .npz file, regardless of dtype and compression."""
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
        name: file name.
        digest: of the published contents.
        fingerprint: computes the digest.
        also: alternative file names.
        limit: most bytes; a compressed file that unpacks to more is damaged or hostile.
    """

    name: str
    digest: str
    fingerprint: Callable[[bytes], str] = sha256
    also: tuple[str, ...] = ()
    limit: int = 1 << 29

    def is_published(self, data: bytes) -> bool:
        """Check whether these are the published contents."""
        try:
            return self.fingerprint(data) == self.digest
        except Exception:  # contents that cannot be parsed do not match
            return False


@dataclass(frozen=True)
class Download:
    """A file that can be downloaded and read as published.

    Attributes:
        target: file name in the folder of the data set.
        addresses: URLs in order of preference: the official one, then mirrors.
        holds: names of the contents in the file.
    """

    target: str
    addresses: tuple[str, ...]
    holds: tuple[str, ...]


class Unpacked(NamedTuple):
    """Bytes of a content, and the path they were read from, for error messages."""

    data: bytes
    where: str


@dataclass(frozen=True)
class Files:
    """The files of one data set.

    Attributes:
        folder: folder under the root.
        contents: the unpacked files.
        downloads: downloads that contain them, if they can be read as published.
        by_hand: otherwise, instructions for obtaining them.
        archive: name of an archive that may contain all of them.
        elsewhere: another folder to search.
    """

    folder: str
    contents: tuple[Content, ...]
    downloads: tuple[Download, ...] = ()
    by_hand: str = ""
    archive: str | None = None
    elsewhere: Path | None = None

    def locate(self, root: Path) -> dict[Content, Path | None]:
        """Find the file of each content, plain, compressed or in the archive; None if there is none."""
        folders = [root / self.folder, *([self.elsewhere] if self.elsewhere else [])]
        return {content: next(self._existing_paths(content, folders), None) for content in self.contents}

    def _existing_paths(self, content: Content, folders: list[Path]) -> Iterator[Path]:
        for folder in folders:
            for name in (content.name, *content.also):
                for suffix in _COMPRESSIONS:
                    if (path := folder / (name + suffix)).is_file():
                        yield path
            if self.archive and (path := folder / self.archive).is_file():
                yield path

    def read(self, root: Path, dataset: str, names: Collection[str] | None = None) -> dict[str, Unpacked]:
        """Read contents by name (all by default); `dataset` is for error messages."""
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
        # Decompression and digests release the GIL, so files are unpacked in parallel.
        with ThreadPoolExecutor() as pool:
            unpacked = list(pool.map(unpack, files.keys(), files.values()))
            if verifies_data():
                list(pool.map(self._verify, files.keys(), files.values(), unpacked))
        return {
            name: Unpacked(data, f"{path}" if len(contents) == 1 else f"{path} ({name})")
            for path, contents in zip(files, unpacked, strict=True)
            for name, data in contents.items()
        }

    def _verify(self, path: Path, contents: Collection[Content], unpacked: dict[str, bytes]) -> None:
        """Compare contents with the published ones: results on other data would be silently different."""
        for content in contents:
            if content.is_published(unpacked[content.name]):
                continue
            problem = f"{path}: {content.name} differs from the published contents"
            if self.downloads:
                raise DamagedDataError(
                    f"{problem}. Remove it and run `propall data get`, or set {VERIFY}=0 to use it anyway."
                )
            # Only obtained by hand, and there are other versions that can be read.
            warnings.warn(f"{problem}; results may differ.", DifferentDataWarning, stacklevel=2)

    def explain_missing(self, root: Path, dataset: str, missing: Collection[str]) -> str:
        """Explain how to obtain missing contents."""
        folder = root / self.folder
        lines = [f"{dataset}: {', '.join(missing)} not found in {folder} (plain, .gz or .xz)."]
        if self.downloads:
            lines.append(f"Run `propall data get {dataset}`. Without network access,")
            lines += [
                f"download {download.addresses[0]} and save it as {folder / download.target}"
                for download in self.downloads
                if set(download.holds) & set(missing)
            ]
        else:
            lines.append(self.by_hand)
            lines += [f"Save it as {folder / name}" for name in missing]
        return "\n  ".join([*lines, "Set PROPALL_DATA to use another root folder."])


def unpack(path: Path, contents: Collection[Content], name: str | None = None) -> dict[str, bytes]:
    """Read contents from a plain, .gz or .xz file (one content) or a .tar.gz archive, by name.

    The format follows from `name` if that is not the name of the path (an unfinished download).
    """
    name = name or path.name
    try:
        check_input_file(path, "data")
        if name.endswith(".tar.gz"):
            return _members(path, contents)
        (content,) = contents
        if name.endswith(".gz"):
            with gzip.open(path) as packed:
                return {content.name: _read_up_to(packed, content, path)}
        if name.endswith(".xz"):
            with lzma.open(path) as packed:
                return {content.name: _read_up_to(packed, content, path)}
        with path.open("rb") as plain:
            return {content.name: _read_up_to(plain, content, path)}
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, tarfile.TarError) as error:
        raise DamagedDataError(
            f"{path}: cannot be unpacked ({error}); it is truncated or damaged. Download it again."
        ) from error


def _read_up_to(stream: io.BufferedIOBase, content: Content, path: Path) -> bytes:
    data = stream.read(content.limit + 1)
    if len(data) > content.limit:
        raise DamagedDataError(
            f"{path}: {content.name} has more than {content.limit} bytes; it is not the published file. "
            "Download it again."
        )
    return data


def _members(path: Path, contents: Collection[Content]) -> dict[str, bytes]:
    content_of = {content.name: content for content in contents}
    members: dict[str, bytes] = {}
    with tarfile.open(path, mode="r|gz") as archive:
        for member in archive:
            name = member.name.rpartition("/")[2]
            if name in content_of and member.isfile():
                stream = archive.extractfile(member)
                assert stream is not None
                members[name] = _read_up_to(cast(io.BufferedIOBase, stream), content_of[name], path)
    if missing := content_of.keys() - members.keys():
        raise DamagedDataError(f"{path}: does not contain {', '.join(sorted(missing))}. Download it again.")
    return members

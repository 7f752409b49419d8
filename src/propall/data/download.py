"""Fetching the data sets' files, and checking those that are there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Literal
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from propall.data.catalog import DATASETS
from propall.data.dataset import Loader
from propall.data.files import (
    Content,
    DamagedDataError,
    Download,
    Files,
    MissingDataError,
    data_root,
    unpack,
)

_TIMEOUT = 30.0  # seconds without a byte
_FRUITLESS_TRIES = 3
_BLOCK = 1 << 18


class DownloadError(OSError):
    """A file could not be fetched; the message says which one to put where by hand."""


#: Looks on while files are fetched, such as a progress bar. Called with the file's name, the number of bytes
#: that are there, and the number of all its bytes where the server tells.
Progress = Callable[[str, int, int | None], None]


def _unseen(file: str, done: int, total: int | None) -> None:
    pass


@dataclass(frozen=True)
class FileStatus:
    """What is known of one file of a data set.

    Attributes:
        dataset: name of the data set.
        content: name of the file, unpacked.
        path: the file it was found in, or None.
        state: "ok"; "missing"; "damaged", where it cannot be unpacked; or "different", where its contents are
            not the published ones, which may also be another version that can be read.
        note: what is wrong, in words.
    """

    dataset: str
    content: str
    path: Path | None
    state: Literal["ok", "missing", "damaged", "different"]
    note: str = ""


@dataclass(frozen=True)
class DatasetStatus:
    """One line of the list of data sets.

    Attributes:
        loader: what is known of the data set: name, title, kind, sizes, reference.
        present: whether all its files are there (their contents are not looked at).
        where: the folder its files are in or belong in; None where it needs none.
        note: how to get it, where it is not there.
    """

    loader: Loader
    present: bool
    where: Path | None
    note: str = ""


def status(root: Path | str | None = None) -> list[DatasetStatus]:
    """What data sets there are, and which of them are on this machine."""
    folder = data_root(root)
    return [_status(loader, folder) for loader in DATASETS.values()]


def _status(loader: Loader, root: Path) -> DatasetStatus:
    if not loader.files:
        return DatasetStatus(loader, True, None)
    # The last group is the data set's own, those before it belong to others it builds on.
    own = loader.files[-1]
    found = next((path.parent for path in own.locate(root).values() if path is not None), root / own.folder)
    lacking = [files for files in loader.files if None in files.locate(root).values()]
    note = ""
    if lacking:
        command = f"propall data get {loader.name}"
        note = command if all(files.downloads for files in lacking) else f"by hand: see {command}"
    return DatasetStatus(loader, not lacking, found, note)


def check(name: str | None = None, root: Path | str | None = None) -> list[FileStatus]:
    """Compare the contents of a data set's files with the published ones.

    Args:
        name: name of the data set; None for all of them, where files that several share are checked once.
        root: folder of all data sets; by default PROPALL_DATA, or else the user's cache folder.
    """
    folder = data_root(root)
    loaders = DATASETS.values() if name is None else [DATASETS[name]]
    owners: dict[Files, str] = {}
    for loader in loaders:
        for files in loader.files:
            owners.setdefault(files, loader.name)
    return [row for files, owner in owners.items() for row in check_files(files, folder, owner)]


def check_files(files: Files, root: Path, dataset: str) -> list[FileStatus]:
    """Compare the contents of some files with the published ones; `dataset` names them in the rows."""
    rows: dict[Content, FileStatus] = {}
    packed: dict[Path, list[Content]] = {}
    for content, path in files.locate(root).items():
        if path is None:
            note = f"expected in {root / files.folder}"
            rows[content] = FileStatus(dataset, content.name, None, "missing", note)
        else:
            packed.setdefault(path, []).append(content)
    for path, contents in packed.items():
        rows |= _compare(path, contents, dataset)
    return [rows[content] for content in files.contents]


def _compare(
    path: Path, contents: list[Content], dataset: str, packed_as: str | None = None
) -> dict[Content, FileStatus]:
    try:
        unpacked = unpack(path, contents, packed_as)
    except DamagedDataError as error:
        return {c: FileStatus(dataset, c.name, path, "damaged", str(error)) for c in contents}
    rows = {}
    for content in contents:
        if content.is_published(unpacked[content.name]):
            rows[content] = FileStatus(dataset, content.name, path, "ok")
        else:
            note = f"{path}: {content.name} does not have the published contents."
            rows[content] = FileStatus(dataset, content.name, path, "different", note)
    return rows


def get(name: str, root: Path | str | None = None, progress: Progress = _unseen) -> list[FileStatus]:
    """Fetch the files of a data set that are missing or not as published, and check all of them.

    A download goes on where an earlier one was cut, and is moved into place only when its contents are the
    published ones.

    Args:
        name: name of the data set.
        root: folder of all data sets; by default PROPALL_DATA, or else the user's cache folder.
        progress: called with every block that arrives.

    Returns:
        One row per file. All are "ok", except that a file which can only be put there by hand is left alone:
        it may be a version that is read as well, and its row says what it is.
    """
    folder = data_root(root)
    loader = DATASETS[name]
    return [row for files in loader.files for row in get_files(files, folder, name, progress)]


def get_files(files: Files, root: Path, dataset: str, progress: Progress = _unseen) -> list[FileStatus]:
    """Fetch some files; see `get`."""
    rows = check_files(files, root, dataset)
    if not files.downloads:
        if missing := [row.content for row in rows if row.state == "missing"]:
            raise MissingDataError(files.explain_missing(root, dataset, missing))
        return rows
    wrong = {row.content for row in rows if row.state != "ok"}
    for download in files.downloads:
        if wrong & set(download.holds):
            _fetch(download, files, root, dataset, progress)
    rows = check_files(files, root, dataset) if wrong else rows
    if hidden := [row for row in rows if row.state != "ok"]:
        # A file in another packing that is looked at first; deleting what a user put there is not ours to do.
        raise DamagedDataError(f"{hidden[0].note} Remove it: it hides the file that was fetched.")
    return rows


def _fetch(download: Download, files: Files, root: Path, dataset: str, progress: Progress) -> None:
    target = root / files.folder / download.target
    part = target.with_name(target.name + ".part")
    target.parent.mkdir(parents=True, exist_ok=True)
    contents = [content for content in files.contents if content.name in download.holds]
    failures = []
    for address in download.addresses:
        for _ in range(2):
            resumed = part.exists()
            try:
                _transfer(address, part, target.name, progress)
            except (OSError, HTTPException) as error:
                failures.append(f"{address}: {_reason(error)}")
                break
            rows = _compare(part, contents, dataset, target.name)
            if all(row.state == "ok" for row in rows.values()):
                part.replace(target)
                return
            part.unlink()
            # What an earlier download left may be of another version of the file: once more from the start.
            if not resumed:
                failures.append(f"{address}: what came is not the published file, so nothing was kept")
                break
    raise DownloadError(
        f"{dataset}: {download.target} could not be fetched.\n  "
        + "\n  ".join(failures)
        + f"\n  Without a network: fetch {download.addresses[0]} elsewhere and put it at {target}"
        + "\n  The root folder is PROPALL_DATA where that is set."
    )


def _reason(error: Exception) -> str:
    if isinstance(error, HTTPError):
        return f"the server answered {error.code} {error.reason}"
    return str(getattr(error, "reason", "")) or str(error) or type(error).__name__


def _transfer(address: str, part: Path, name: str, progress: Progress) -> None:
    """Fetch what is missing of a file; returns when the server has sent all of it."""
    fruitless = 0
    while True:
        have = part.stat().st_size if part.exists() else 0
        request = Request(address, headers={"User-Agent": "propall"})
        if have:
            request.add_header("Range", f"bytes={have}-")
        try:
            response = urlopen(request, timeout=_TIMEOUT)
        except HTTPError as error:
            error.close()
            if error.code == 416 and have:
                return  # nothing is left to send; whether that is the whole file, its contents will tell
            raise
        with response:
            start, total = _extent(response, have)
            cut = _receive(response, part, start, total, name, progress)
        if cut is None:
            return
        fruitless = 0 if part.stat().st_size > have else fruitless + 1
        if fruitless >= _FRUITLESS_TRIES:
            raise ConnectionError(f"cut after {part.stat().st_size} of {total or 'unknown'} bytes ({cut})")


def _extent(response: HTTPResponse, have: int) -> tuple[int, int | None]:
    """Where in the file the answer starts, and how long the file is where the server tells."""
    # A server that cannot resume answers 200 and sends the whole file.
    start = have if response.status == 206 else 0
    length = response.headers.get("Content-Length")
    return start, start + int(length) if length is not None else None


def _receive(
    response: HTTPResponse, part: Path, start: int, total: int | None, name: str, progress: Progress
) -> str | None:
    """Append what comes to the file; None when it is complete, else why it is not."""
    with part.open("r+b" if start else "wb") as out:
        out.seek(start)
        done = start
        try:
            for block in _blocks(response):
                out.write(block)
                done += len(block)
                progress(name, done, total)
        except (HTTPException, ConnectionError, TimeoutError) as error:
            return _reason(error)
    return None if total is None or done >= total else "the connection ended"


def _blocks(response: HTTPResponse) -> Iterator[bytes]:
    while block := response.read(_BLOCK):
        yield block

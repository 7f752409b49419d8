"""Download the files of data sets and verify their contents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Literal
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from propall.data.catalog import DATASETS
from propall.data.dataset import Loader
from propall.data.files import Content, DamagedDataError, Download, Files, MissingDataError, data_root, unpack

_TIMEOUT = 30.0  # seconds without a byte
_MAX_STALLS = 3  # attempts in a row without progress
_MAX_ATTEMPTS = 200  # connections for one file
_BLOCK = 1 << 18


class DownloadError(OSError):
    """A download failed; the message says how to obtain the file by hand."""


#: Callback with the file name, the number of bytes received, and the size of the file if it is known.
DownloadProgress = Callable[[str, int, int | None], None]


def _ignore_progress(file: str, done: int, total: int | None) -> None:
    pass


@dataclass(frozen=True)
class FileStatus:
    """State of one file of a data set.

    Attributes:
        dataset: name of the data set.
        content: name of the unpacked file.
        path: the file that contains it, or None.
        state: "ok", "missing", "damaged" (cannot be unpacked) or "different" (not the published contents,
            perhaps another version that can still be read).
        note: description of the problem.
    """

    dataset: str
    content: str
    path: Path | None
    state: Literal["ok", "missing", "damaged", "different"]
    note: str = ""


@dataclass(frozen=True)
class DatasetStatus:
    """Availability of a data set.

    Attributes:
        loader: the data set.
        present: whether all files exist (their contents are not checked).
        where: the folder of the files; None if there are none.
        note: how to get missing files.
    """

    loader: Loader
    present: bool
    where: Path | None
    note: str = ""


def status(root: Path | str | None = None) -> list[DatasetStatus]:
    """List all data sets and whether their files are available."""
    folder = data_root(root)
    return [_status(loader, folder) for loader in DATASETS.values()]


def _status(loader: Loader, root: Path) -> DatasetStatus:
    if not loader.files:
        return DatasetStatus(loader, True, None)
    # The last group belongs to this data set, the others to data sets that it builds on.
    last = loader.files[-1]
    paths = (path.parent for path in last.locate(root).values() if path is not None)
    incomplete = [files for files in loader.files if None in files.locate(root).values()]
    note = ""
    if incomplete:
        command = f"propall data get {loader.name}"
        note = command if all(files.downloads for files in incomplete) else f"by hand: see {command}"
    return DatasetStatus(loader, not incomplete, next(paths, root / last.folder), note)


def check(name: str | None = None, root: Path | str | None = None) -> list[FileStatus]:
    """Compare the files of a data set (None: of all, shared files once) with the published contents."""
    folder = data_root(root)
    loaders = DATASETS.values() if name is None else [DATASETS[name]]
    owners: dict[Files, str] = {}
    for loader in loaders:
        for files in loader.files:
            owners.setdefault(files, loader.name)
    return [row for files, owner in owners.items() for row in check_files(files, folder, owner)]


def check_files(files: Files, root: Path, dataset: str) -> list[FileStatus]:
    """Compare the contents of some files with the published ones."""
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
            note = f"{path}: {content.name} differs from the published contents."
            rows[content] = FileStatus(dataset, content.name, path, "different", note)
    return rows


def get(
    name: str, root: Path | str | None = None, progress: DownloadProgress = _ignore_progress
) -> list[FileStatus]:
    """Download files of a data set that are missing or not as published, and verify all of them.

    An interrupted download is resumed. A file is moved into place only after its contents are verified. All
    files of the result are "ok", except those that can only be obtained by hand: they are not replaced, since
    they may be another readable version.
    """
    folder = data_root(root)
    return [row for files in DATASETS[name].files for row in get_files(files, folder, name, progress)]


def get_files(
    files: Files, root: Path, dataset: str, progress: DownloadProgress = _ignore_progress
) -> list[FileStatus]:
    """Download some files; see `get`."""
    rows = check_files(files, root, dataset)
    if not files.downloads:
        if missing := [row.content for row in rows if row.state == "missing"]:
            raise MissingDataError(files.explain_missing(root, dataset, missing))
        return rows
    outdated = {row.content for row in rows if row.state != "ok"}
    for download in files.downloads:
        if outdated & set(download.holds):
            _fetch(download, files, root, dataset, progress)
    rows = check_files(files, root, dataset) if outdated else rows
    if hiding := [row for row in rows if row.state != "ok"]:
        # A user's file in a format that takes precedence; it is not ours to delete.
        raise DamagedDataError(f"{hiding[0].note} Remove it: it hides the downloaded file.")
    return rows


def _fetch(download: Download, files: Files, root: Path, dataset: str, progress: DownloadProgress) -> None:
    target = root / files.folder / download.target
    part = target.with_name(target.name + ".part")
    target.parent.mkdir(parents=True, exist_ok=True)
    contents = [content for content in files.contents if content.name in download.holds]
    # Packed contents are hardly ever larger than unpacked ones, apart from headers.
    limit = round(1.01 * sum(content.limit for content in contents)) + 20_000
    failures = []
    for address in download.addresses:
        for _ in range(2):
            resumed = part.exists()
            try:
                _transfer(address, part, target.name, limit, progress)
            except (OSError, HTTPException) as error:
                failures.append(f"{address}: {_reason(error)}")
                break
            rows = _compare(part, contents, dataset, target.name)
            if all(row.state == "ok" for row in rows.values()):
                part.replace(target)
                return
            part.unlink()
            # The part of an earlier download may be from another version of the file: start again once.
            if not resumed:
                failures.append(f"{address}: the file differs from the published one and was discarded")
                break
    raise DownloadError(
        f"{dataset}: {download.target} could not be downloaded.\n  "
        + "\n  ".join(failures)
        + f"\n  Without network access, download {download.addresses[0]} elsewhere and save it as {target}"
        + "\n  Set PROPALL_DATA to use another root folder."
    )


def _reason(error: Exception) -> str:
    if isinstance(error, HTTPError):
        return f"the server answered {error.code} {error.reason}"
    return str(getattr(error, "reason", "")) or str(error) or type(error).__name__


def _transfer(address: str, part: Path, name: str, limit: int, progress: DownloadProgress) -> None:
    """Download the rest of a file of at most `limit` bytes; return when the server has sent all of it."""
    stalls = largest = 0
    for _ in range(_MAX_ATTEMPTS):
        received = part.stat().st_size if part.exists() else 0
        largest = max(largest, received)
        request = Request(address, headers={"User-Agent": "propall"})
        if received:
            request.add_header("Range", f"bytes={received}-")
        try:
            response = urlopen(request, timeout=_TIMEOUT)
        except HTTPError as error:
            error.close()
            if error.code == 416 and received:
                return  # nothing left to send; the digest shows whether the file is complete
            raise
        with response:
            if address.startswith("https:") and not response.url.startswith("https:"):
                raise ConnectionError(f"redirected to {response.url}, which is not encrypted")
            start, total = _extent(response, received)
            interruption = _receive(response, part, start, total, name, limit, progress)
        if interruption is None:
            return
        size = part.stat().st_size
        # Only a part larger than ever before is progress: a server may start again with another length.
        stalls = 0 if size > largest else stalls + 1
        if stalls >= _MAX_STALLS:
            raise ConnectionError(f"interrupted after {size} of {total or 'unknown'} bytes ({interruption})")
    raise ConnectionError(f"interrupted {_MAX_ATTEMPTS} times")


def _extent(response: HTTPResponse, received: int) -> tuple[int, int | None]:
    """Return where in the file the response starts, and the size of the file if the server sends it."""
    # A server that cannot resume answers 200 and sends the whole file.
    start = received if response.status == 206 else 0
    length = response.headers.get("Content-Length")
    return start, start + int(length) if length is not None else None


def _receive(
    response: HTTPResponse,
    part: Path,
    start: int,
    total: int | None,
    name: str,
    limit: int,
    progress: DownloadProgress,
) -> str | None:
    """Append the response to the file; return None if it is complete, else the reason why not."""
    if total is not None and total > limit:
        raise ConnectionError(f"the file has {total} bytes, at most {limit} were expected")
    with part.open("r+b" if start else "wb") as out:
        out.seek(start)
        done = start
        try:
            while block := response.read(_BLOCK):
                out.write(block)
                done += len(block)
                if done > limit:
                    raise OSError(f"the server sends more than the {limit} bytes that were expected")
                progress(name, done, total)
        except (HTTPException, ConnectionError, TimeoutError) as error:
            return _reason(error)
    return None if total is None or done >= total else "the connection was closed"

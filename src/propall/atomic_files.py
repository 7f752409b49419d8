"""Write a file or folder whole or not at all."""

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield an empty temporary file that takes the place of `path` once the block succeeds.

    The temporary file is in the same folder, has the same suffix and the permissions of any new file, and is
    removed if the block fails. Missing parent folders are created. Pipes and devices are written directly.

    Examples:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "numbers.csv"
        >>> with replacing(target) as part:
        ...     count = part.write_text("1,2,3")
        >>> target.read_text()
        '1,2,3'
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        yield path
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _create_beside(path, _create_file)
    try:
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def replacing_folder(folder: str | Path) -> Iterator[Path]:
    """Yield an empty temporary folder that takes the place of `folder` once the block succeeds."""
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = _create_beside(folder, Path.mkdir)
    try:
        yield part
        if folder.exists():
            old = part.with_suffix(".old")
            folder.rename(old)
            try:
                part.rename(folder)
            except BaseException:
                old.rename(folder)
                raise
            shutil.rmtree(old, ignore_errors=True)
        else:
            part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file; it appears under its name only when it is complete."""
    with replacing(path) as part:
        part.write_bytes(data)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file in UTF-8; it appears under its name only when it is complete."""
    write_bytes(path, text.encode())


def _create_file(path: Path) -> None:
    # Not tempfile.mkstemp: its files are readable by their owner only. "x" follows no symbolic link.
    path.open("xb").close()


def _create_beside(path: Path, create: Callable[[Path], None]) -> Path:
    while True:
        part = path.with_name(f".{path.stem[:40]}.{secrets.token_hex(8)}.part{path.suffix}")
        try:
            create(part)
        except FileExistsError:
            continue
        return part

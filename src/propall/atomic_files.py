"""Write a file or folder whole or not at all, also if the process is killed or the disk is full."""

import ctypes
import errno
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: A temporary file is taken for one that a killed process left behind only after this many seconds.
ABANDONED_AFTER = 60.0


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield an empty temporary file that takes the place of `path` once the block succeeds.

    The temporary file is in the same folder, has the same suffix and the permissions of any new file, and is
    removed if the block fails. Missing parent folders are created. Pipes and devices are written directly.
    What killed processes left behind for the same path is removed.

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
    with _naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _create_beside(path, _create_file) as part:
            yield part
            _flush(part)
            part.replace(path)
            _flush(path.parent)


@contextmanager
def replacing_folder(folder: str | Path) -> Iterator[Path]:
    """Yield an empty temporary folder that takes the place of `folder` once the block succeeds.

    At every moment `folder` is the old or the new one, where the file system can exchange two names (Linux
    and macOS on a local disk). Elsewhere there is a moment without it.
    """
    folder = Path(folder)
    folder = folder.resolve() if folder.is_symlink() else folder
    with _naming(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _create_beside(folder, Path.mkdir) as part:
            yield part
            for file in part.iterdir():
                _flush(file)
            _flush(part)
            _put_in_place(part, folder)
            _flush(folder.parent)


@contextmanager
def working_folder(beside: str | Path) -> Iterator[Path]:
    """Yield an empty folder beside a path, for files that are needed only inside the block.

    It is removed at the end. One that a killed process left behind is removed by the next process that
    writes to the same path.
    """
    path = Path(beside)
    with _naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _create_beside(path, Path.mkdir) as folder:
            yield folder


def check_writable(path: str | Path) -> None:
    """Raise OSError if a file or folder cannot be created or replaced, before work is done for it."""
    path = Path(path)
    if path.is_dir():
        path = path.resolve()
    elif path.exists() and not path.is_file():
        return  # a pipe or device
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file; it appears under its name only when it is complete."""
    with replacing(path) as part:
        part.write_bytes(data)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file in UTF-8; it appears under its name only when it is complete."""
    write_bytes(path, text.encode())


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the path in errors of the system, which name a temporary file or nothing (a full disk)."""
    try:
        yield
    except OSError as error:
        inside = str(error.filename or "").startswith(f"{path.parent / _prefix(path)}")
        if error.errno is None or (error.filename is not None and not inside):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def _put_in_place(part: Path, folder: Path) -> None:
    while True:
        try:
            part.rename(folder)  # where there is none, or an empty one
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EACCES):
                raise
        try:
            _exchange(part, folder)
            return
        except FileNotFoundError:
            continue  # another process removed it
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
                raise
        old = part.with_suffix(".old")
        folder.rename(old)
        try:
            part.rename(folder)
        except BaseException:
            old.rename(folder)
            raise
        shutil.rmtree(old, ignore_errors=True)
        return


def _exchange(one: Path, other: Path) -> None:
    """Exchange the names of two folders in one step."""
    swap = 2  # RENAME_EXCHANGE, RENAME_SWAP
    here = -100  # AT_FDCWD
    names = os.fsencode(one), os.fsencode(other)
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "darwin":
            status = library.renamex_np(*names, ctypes.c_uint(swap))
        else:
            status = library.renameat2(here, names[0], here, names[1], ctypes.c_uint(swap))
    except (AttributeError, OSError, TypeError) as error:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(other)) from error
    if status:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(other))


def _flush(path: Path) -> None:
    """Wait until a file or folder is on disk."""
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if path.is_file() or error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise  # some network file systems do not know it for folders
    finally:
        os.close(descriptor)


def _create_file(path: Path) -> None:
    # Not tempfile.mkstemp: its files are readable by their owner only. "x" follows no symbolic link.
    path.open("xb").close()


def _prefix(path: Path) -> str:
    return f".{path.stem[:40]}."


@contextmanager
def _create_beside(path: Path, create: Callable[[Path], None]) -> Iterator[Path]:
    """Create a temporary file or folder beside a path, locked while in use and removed at the end."""
    _remove_abandoned(path)
    while True:
        part = path.with_name(f"{_prefix(path)}{secrets.token_hex(8)}.part{path.suffix}")
        try:
            create(part)
        except FileExistsError:
            continue
        break
    lock = _lock(part)
    try:
        yield part
    finally:
        if lock is not None:
            os.close(lock)
        _remove(part)


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files and folders of a path whose process no longer lives: nobody holds their lock."""
    pattern = re.compile(
        rf"{re.escape(_prefix(path))}[0-9a-f]{{16}}\.(part{re.escape(path.suffix)}|(part\.)?old)"
    )
    with suppress(OSError):
        for part in path.parent.iterdir():
            if not pattern.fullmatch(part.name) or part.is_symlink():
                continue
            with suppress(OSError):
                if time.time() - part.stat().st_mtime < ABANDONED_AFTER:
                    continue  # it may not be locked yet
                if part.suffix == ".old" and not path.exists():
                    continue  # killed before the new folder was in place: this is the only whole one
                if (lock := _lock(part)) is not None:
                    _remove(part)
                    os.close(lock)


def _lock(part: Path) -> int | None:
    """Lock a file or folder until the descriptor is closed or the process ends; None if impossible."""
    if sys.platform == "win32":
        return None
    import fcntl

    descriptor = os.open(part, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _remove(part: Path) -> None:
    if part.is_dir():
        shutil.rmtree(part, ignore_errors=True)
    else:
        part.unlink(missing_ok=True)

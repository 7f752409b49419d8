"""Read a person's file: only regular files, with errors that name the path, the problem and the remedy."""

import stat
from pathlib import Path

from propall.wording import did_you_mean


def check_input_file(path: Path, parameter: str = "file") -> None:
    """Raise an error unless a path leads to a regular file; a pipe or a device might never end."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        neighbors = [other.name for other in path.parent.glob("*")] if path.parent.is_dir() else []
        hint = did_you_mean(path.name, neighbors) or "check the path."
        raise FileNotFoundError(f"{parameter}: {path} does not exist; {hint}") from error
    except (OSError, ValueError) as error:
        raise unreadable(path, parameter, error) from error
    if stat.S_ISDIR(mode):
        raise ValueError(f"{parameter}: {path} is a folder; expected a file. Name a file in it.")
    if not stat.S_ISREG(mode):
        raise ValueError(
            f"{parameter}: {path} is a pipe or a device; expected a regular file. Save its contents first."
        )


def read_input(path: Path, parameter: str = "file") -> bytes:
    """Read a regular file whole."""
    check_input_file(path, parameter)
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, parameter, error) from error
    except MemoryError:
        size = f"{path.stat().st_size / 1e9:.1f} GB"
        raise ValueError(f"{parameter}: {path} ({size}) does not fit in memory; split it.") from None


def unreadable(path: Path, parameter: str, error: Exception) -> OSError:
    """Return the error about a file that the system does not let us read."""
    reason = getattr(error, "strerror", None) or str(error)
    return OSError(f"{parameter}: {path} cannot be read ({reason}); check the path and its permissions.")

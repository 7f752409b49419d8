"""Formats of table files by their names, and text files that are compressed with gzip."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from propall.input_files import check_input_file, read_input, unreadable
from propall.provenance import available_memory

#: File formats by suffix.
FORMATS = {
    ".csv": "CSV",
    ".txt": "CSV",
    ".tsv": "TSV",
    ".parquet": "Parquet",
    ".pq": "Parquet",
    ".feather": "Feather",
    ".arrow": "Feather",
    ".jsonl": "JSON lines",
    ".ndjson": "JSON lines",
    ".json": "JSON",
    ".xlsx": "Excel",
    ".xls": "Excel",
    ".ods": "Excel",
}
#: Formats whose files may be compressed.
TEXT_FORMATS = ("CSV", "TSV", "JSON lines", "JSON")
#: Suffix of compressed files, and their first bytes.
GZIP, GZIP_START = ".gz", b"\x1f\x8b"
#: Most bytes of an unpacked file that is read as a whole.
MAX_UNPACKED = 4 << 30
#: No gzip file unpacks to more than this many times its size.
MAX_RATIO = 1032
#: As the program gzip compresses by default: level 9 takes three times as long and saves one percent.
LEVEL = 6
_BLOCK = 1 << 20


class FileFormat(NamedTuple):
    """The format of a table file: its kind, as in `FORMATS`, its suffix, and whether it is compressed."""

    kind: str
    suffix: str  # in lower case, without that of the compression
    is_compressed: bool = False


def find_format(path: str | Path) -> FileFormat | None:
    """Return the format of a file by its name; None if it is not that of a table.

    Examples:
        >>> find_format("birds.TSV.gz")
        FileFormat(kind='TSV', suffix='.tsv', is_compressed=True)
    """
    path = Path(path)
    is_compressed = path.suffix.lower() == GZIP
    suffix = (path.with_suffix("") if is_compressed else path).suffix.lower()
    kind = FORMATS.get(suffix)
    if kind is None or (is_compressed and kind not in TEXT_FORMATS):
        return None
    return FileFormat(kind, suffix, is_compressed)


def kind_of(path: str | Path) -> str | None:
    """Return the kind of a table file, as in `FORMATS`, by its name; None if it is not that of a table."""
    found = find_format(path)
    return None if found is None else found.kind


def is_compressed(path: str | Path) -> bool:
    """Whether a table file is compressed, by its name."""
    found = find_format(path)
    return found is not None and found.is_compressed


def describe_suffix(path: Path) -> str:
    """Describe the suffix of a file that is not a table by its name, for an error message."""
    parts = path.suffixes[-2:] if path.suffix.lower() == GZIP else [path.suffix]
    return f"the suffix {''.join(parts)}" if path.suffix else "no suffix"


def describe_formats(*, without: str = "") -> str:
    """List the suffixes of tables for an error message."""
    suffixes = ", ".join(suffix for suffix in FORMATS if suffix != without)
    return f"{suffixes}, or text compressed with gzip, such as .csv{GZIP}"


def table_stem(path: Path) -> str:
    """Return the name of a file without the suffix of its format and of its compression.

    Examples:
        >>> table_stem(Path("out/birds.csv.gz")), table_stem(Path("birds.v2.csv"))
        ('birds', 'birds.v2')
    """
    return Path(path.stem).stem if is_compressed(path) else path.stem


@contextmanager
def open_text(path: Path) -> Iterator[BinaryIO]:
    """Open a text file for its bytes, unpacked if it is compressed; raise ValueError if it is damaged."""
    if not is_compressed(path):
        with path.open("rb") as file:
            yield file
        return
    try:
        with gzip.open(path) as packed:
            yield cast(BinaryIO, packed)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> ValueError:
    with path.open("rb") as file:
        start = file.read(2)
    if start != GZIP_START:
        return ValueError(
            f"file: {path.name} is not compressed with gzip; expected that by its suffix. If it is plain "
            f"text, rename it to {path.stem}."
        )
    reason = str(error).rstrip(".") or type(error).__name__
    return ValueError(
        f"file: {path.name} cannot be unpacked ({reason}); it is truncated or damaged. Copy or compress it "
        "again."
    )


def check_compression(path: Path, start: bytes) -> None:
    """Raise ValueError if the unpacked contents of a text file begin as a gzip file does."""
    if not start.startswith(GZIP_START):
        return
    if is_compressed(path):
        raise ValueError(f"file: {path.name} is compressed with gzip twice. Unpack it once.")
    raise ValueError(f"file: {path.name} is compressed with gzip. Rename it to {path.name}{GZIP}.")


def is_larger(path: Path, limit: int) -> bool:
    """Whether a file has more than `limit` bytes when it is unpacked.

    The size that a gzip file states is that of its last member, modulo 4 GiB, so bytes are counted up to the
    limit. A damaged or unreadable file ends where reading fails: reading it says what is wrong.
    """
    size = path.stat().st_size
    if not is_compressed(path):
        return size > limit
    if size * MAX_RATIO <= limit:
        return False
    total = 0
    with suppress(OSError, ValueError), open_text(path) as file:
        while total <= limit and (block := file.read(_BLOCK)):
            total += len(block)
    return total > limit


def read_text(path: Path) -> bytes:
    """Read a text file whole, unpacked if it is compressed."""
    if not is_compressed(path):
        return read_input(path)
    check_input_file(path)
    limit = min(MAX_UNPACKED, available_memory() or MAX_UNPACKED)
    unpacked, total = io.BytesIO(), 0
    try:
        with open_text(path) as file:
            while block := file.read(_BLOCK):
                total += len(block)
                if total > limit:
                    raise MemoryError
                unpacked.write(block)
        return unpacked.getvalue()
    except MemoryError:
        size = f"at least {total / 1e9:.1f} GB"
        raise ValueError(f"file: {path} unpacks to {size}, which do not fit in memory; split it.") from None
    except OSError as error:
        raise unreadable(path, "file", error) from error


def compress_into(file: BinaryIO) -> BinaryIO:
    """Return a file whose bytes are compressed into another; equal contents give equal bytes."""
    packed = gzip.GzipFile(filename="", mode="wb", compresslevel=LEVEL, fileobj=file, mtime=0)
    return cast(BinaryIO, packed)

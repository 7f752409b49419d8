"""Formats by name, and text files that are compressed."""

import gzip
from pathlib import Path

import pytest

from propall.tables import file_formats
from propall.tables.file_formats import describe_suffix, find_format, is_larger, read_text, table_stem
from propall.tables.reading import read_table
from propall.tables.writing import writable_format, write_table

TABLE = b"x,label\n1,cat|dog\n2,emu\n"


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("name", "kind", "is_compressed"),
    [
        ("a.csv", "CSV", False),
        ("a.b.CSV.GZ", "CSV", True),
        ("a.txt.gz", "CSV", True),
        ("a.ndjson.gz", "JSON lines", True),
        ("a.parquet", "Parquet", False),
    ],
)
def test_formats_by_name(name, kind, is_compressed) -> None:
    known = find_format(name)
    assert known is not None
    assert (known.kind, known.is_compressed) == (kind, is_compressed)


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("a.gz", "the suffix .gz"),
        ("a.parquet.gz", "the suffix .parquet.gz"),
        ("a.tar.gz", "the suffix .tar.gz"),
        ("a.csv.bz2", "the suffix .bz2"),
        ("a", "no suffix"),
        (".gz", "no suffix"),
    ],
)
def test_other_names_are_refused(tmp_path, name, suffix) -> None:
    assert find_format(name) is None
    assert describe_suffix(Path(name)) == suffix
    path = write(tmp_path, name, TABLE)
    with pytest.raises(ValueError, match=f"file: {name} has {suffix}; expected .csv, .* such as .csv.gz"):
        read_table(path)
    with pytest.raises(ValueError, match=f"out: {name} has {suffix}; expected .csv"):
        writable_format(path)


def test_names_of_files_beside_a_table() -> None:
    assert [table_stem(Path(name)) for name in ("a.csv", "a.csv.gz", "a.b.csv", "a.tar.gz", "a")] == [
        "a",
        "a",
        "a.b",
        "a.tar",
        "a",
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv.gz", TABLE),
        ("a.txt.gz", TABLE.replace(b",", b";")),
        ("a.tsv.gz", TABLE.replace(b",", b"\t")),
        ("a.csv.gz", TABLE.decode().encode("utf-16")),
        ("a.jsonl.gz", b'{"x": "1", "label": "cat|dog"}\n{"x": "2", "label": "emu"}\n'),
        ("a.json.gz", b'[{"x": "1", "label": "cat|dog"}, {"x": "2", "label": "emu"}]'),
    ],
)
def test_compressed_files_are_read_as_plain_ones(tmp_path, name, content) -> None:
    half = len(content) // 2
    members = gzip.compress(content[:half]) + gzip.compress(content[half:])
    for packed in (gzip.compress(content), members):
        table = read_table(write(tmp_path, name, packed))
        assert table.frame.to_numpy().tolist() == [["1", "cat|dog"], ["2", "emu"]]
        assert table.source == name
        plain = read_table(write(tmp_path, name.removesuffix(".gz"), content))
        assert (table.notes, table.separator) == (plain.notes, plain.separator)


PACKED = gzip.compress(TABLE)
DAMAGED = {
    "cut": (PACKED[:-12], "cannot be unpacked .* it is truncated or damaged. Copy or compress it again"),
    "cut in the header": (PACKED[:5], "cannot be unpacked .* truncated or damaged"),
    "wrong checksum": (PACKED[:-8] + b"12345678", "cannot be unpacked .CRC check failed"),
    "wrong bytes": (PACKED[:12] + b"\xff" * 9 + PACKED[21:], "cannot be unpacked .* truncated or damaged"),
    "more bytes": (PACKED + b"more", "cannot be unpacked .* truncated or damaged"),
    "plain text": (TABLE, "a.csv.gz is not compressed with gzip; .* rename it to a.csv"),
    "compressed twice": (gzip.compress(PACKED), "a.csv.gz is compressed with gzip twice. Unpack it once"),
    "no bytes": (b"", "a.csv.gz is empty"),
    "no text": (gzip.compress(b""), "a.csv.gz is empty"),
    "no rows": (gzip.compress(b"x,label\n"), "a.csv.gz has no rows below its header"),
    "a spreadsheet": (gzip.compress(b"PK\x03\x04"), "a.csv.gz is a zip file"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_and_misnamed_files(tmp_path, case) -> None:
    content, message = DAMAGED[case]
    with pytest.raises(ValueError, match=message):
        read_table(write(tmp_path, "a.csv.gz", content))


def test_a_compressed_file_without_the_suffix(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"a\.csv is compressed with gzip\. Rename it to a\.csv\.gz"):
        read_table(write(tmp_path, "a.csv", PACKED))


def test_what_is_too_large_for_memory_is_not_unpacked(tmp_path, monkeypatch) -> None:
    path = write(tmp_path, "a.csv.gz", gzip.compress(TABLE * (1 << 18)))
    monkeypatch.setattr(file_formats, "MAX_UNPACKED", 3 << 20)
    blocks = []
    monkeypatch.setattr(file_formats, "_BLOCK", 1 << 20)
    monkeypatch.setattr(
        file_formats.gzip.GzipFile, "read", _counting(file_formats.gzip.GzipFile.read, blocks)
    )
    with pytest.raises(
        ValueError, match=r"a\.csv\.gz unpacks to at least 0\.0 GB, which do not fit in memory"
    ):
        read_text(path)
    assert len(blocks) == 4  # three fit
    monkeypatch.setattr(file_formats, "available_memory", lambda: 1 << 20)
    blocks.clear()
    with pytest.raises(ValueError, match="which do not fit in memory"):
        read_text(path)
    assert len(blocks) == 2


def _counting(read, blocks):
    def count(self, size=-1):
        blocks.append(size)
        return read(self, size)

    return count


def test_sizes_are_those_of_the_unpacked_file(tmp_path) -> None:
    path = write(tmp_path, "a.csv.gz", gzip.compress(TABLE) * 1000)
    assert is_larger(path, 1000 * len(TABLE) - 1)
    assert not is_larger(path, 1000 * len(TABLE))
    assert not is_larger(write(tmp_path, "b.csv.gz", b""), 0)


def test_equal_tables_are_equal_files(tmp_path) -> None:
    frame = read_table(write(tmp_path, "a.csv", TABLE)).frame
    one, other = (write_table(frame, tmp_path / name).read_bytes() for name in ("b.csv.gz", "c.csv.gz"))
    assert one == other
    assert gzip.decompress(one) == TABLE

"""Only regular files are read; everything else is refused at once."""

import os
from pathlib import Path

import pytest

from propall.input_files import check_input_file, read_input


def test_a_regular_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"abc")
    assert read_input(path) == b"abc"


def test_what_is_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    fifo, loop, endless = tmp_path / "fifo.csv", tmp_path / "loop.csv", tmp_path / "endless.csv"
    os.mkfifo(fifo)
    loop.symlink_to(loop.name)
    endless.symlink_to("/dev/zero")
    for path in (fifo, endless):
        with pytest.raises(ValueError, match=rf"file: .*{path.name} is a pipe or a device"):
            read_input(path)
    with pytest.raises(ValueError, match="is a folder; expected a file"):
        check_input_file(tmp_path)
    with pytest.raises(OSError, match=r"loop.csv cannot be read"):
        check_input_file(loop)


def test_a_missing_file_suggests_its_neighbors(tmp_path: Path) -> None:
    (tmp_path / "birds.csv").touch()
    with pytest.raises(FileNotFoundError, match=r"table: .*brids.csv does not exist; .*'birds.csv'"):
        check_input_file(tmp_path / "brids.csv", "table")

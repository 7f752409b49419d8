import os
import stat
from pathlib import Path

import pytest

from propall import atomic_files


def test_text_and_bytes_are_written_as_they_are(tmp_path):
    atomic_files.write_text(tmp_path / "new" / "a.txt", "é\r\n")
    atomic_files.write_bytes(tmp_path / "b.bin", b"\0\1")
    assert (tmp_path / "new" / "a.txt").read_bytes() == "é\r\n".encode()
    assert (tmp_path / "b.bin").read_bytes() == b"\0\1"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.txt", "b.bin", "new"]


def test_a_failure_keeps_the_old_file_and_leaves_nothing_behind(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail() -> None:
        with atomic_files.replacing(path) as part:
            part.write_text("half")
            assert (part.parent, part.suffix) == (path.parent, path.suffix)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_permissions_are_those_of_any_new_file(tmp_path):
    before = os.umask(0o027)
    try:
        atomic_files.write_text(tmp_path / "file", "")
        with atomic_files.replacing_folder(tmp_path / "folder"):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o750


def test_a_long_name_has_room_for_its_temporary_file(tmp_path):
    path = tmp_path / ("a" * 250 + ".txt")
    atomic_files.write_text(path, "x")
    assert path.read_text() == "x"


def test_a_device_is_written_directly():
    atomic_files.write_text(os.devnull, "x")
    assert not Path(os.devnull).is_file()


def test_a_folder_is_replaced_whole(tmp_path):
    folder = tmp_path / "model.v2"
    for text in ("first", "second"):
        with atomic_files.replacing_folder(folder) as part:
            (part / text).write_text(text)
        assert [path.name for path in folder.iterdir()] == [text]

    def fail() -> None:
        with atomic_files.replacing_folder(folder) as part:
            (part / "third").write_text("")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert [path.name for path in folder.iterdir()] == ["second"]
    assert list(tmp_path.iterdir()) == [folder]

import errno
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


def test_a_folder_is_never_missing_while_it_is_replaced(tmp_path, monkeypatch):
    folder = tmp_path / "model"
    with atomic_files.replacing_folder(folder) as part:
        (part / "a").write_text("old")
    exchanged = []
    exchange = atomic_files._exchange

    def observed(one, other):
        exchanged.append((other / "a").read_text())
        exchange(one, other)
        exchanged.append((other / "a").read_text())

    monkeypatch.setattr(atomic_files, "_exchange", observed)
    with atomic_files.replacing_folder(folder) as part:
        (part / "a").write_text("new")
    assert exchanged == ["old", "new"]
    assert list(tmp_path.iterdir()) == [folder]


def test_a_folder_is_replaced_where_names_cannot_be_exchanged(tmp_path, monkeypatch):
    def impossible(one, other):
        raise OSError(errno.ENOSYS, "not implemented", str(other))

    monkeypatch.setattr(atomic_files, "_exchange", impossible)
    for text in ("old", "new"):
        with atomic_files.replacing_folder(tmp_path / "model") as part:
            (part / "a").write_text(text)
    assert (tmp_path / "model" / "a").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.skipif(os.name == "nt", reason="locks of POSIX")
def test_what_a_killed_process_left_is_removed_and_what_is_in_use_is_not(tmp_path):
    path = tmp_path / "a.txt"
    left_file, left_folder = tmp_path / f".a.{'0' * 16}.part.txt", tmp_path / f".a.{'1' * 16}.part.txt"
    recent, foreign = tmp_path / f".a.{'2' * 16}.part.txt", tmp_path / ".a.part.txt"
    left_folder.mkdir()
    for file in (left_file, recent, foreign, left_folder / "half"):
        file.write_text("half")
    with atomic_files.replacing(path) as in_use:
        in_use.write_text("new")
        for file in (left_file, left_folder, foreign, in_use):
            os.utime(file, (0, 0))
        atomic_files.write_text(path, "other")
        assert in_use.exists()
    assert path.read_text() == "new"
    assert sorted(tmp_path.iterdir()) == sorted([path, recent, foreign])


def test_errors_name_the_file_and_not_its_temporary_name(tmp_path):
    path = tmp_path / "a.txt"
    with pytest.raises(OSError, match=r"No space left.*a\.txt'$") as raised, atomic_files.replacing(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert raised.value.filename == str(path)
    with pytest.raises(FileNotFoundError) as lost, atomic_files.replacing(path) as part:
        part.unlink()
    assert lost.value.filename == str(path)
    with pytest.raises(FileNotFoundError, match=r"other"), atomic_files.replacing(path):
        (tmp_path / "other").read_text()


@pytest.mark.skipif(os.name == "nt", reason="symbolic links")
def test_a_link_to_a_folder_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with atomic_files.replacing_folder(tmp_path / "link") as part:
        (part / "a").write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "a").read_text() == "new"


@pytest.mark.parametrize(("name", "left"), [("model", "old"), ("model.v2", "part.old")])
def test_the_only_whole_folder_is_not_removed(tmp_path, name, left):
    """A process was killed after it had moved the old folder away and before the new one was in place."""
    old = tmp_path / f".model.{'0' * 16}.{left}"
    old.mkdir()
    os.utime(old, (0, 0))
    with atomic_files.replacing_folder(tmp_path / name):
        assert old.exists()
    with atomic_files.replacing_folder(tmp_path / name):
        assert not old.exists()

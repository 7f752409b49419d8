import gzip
import io
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from propall.data import DATASETS
from propall.data.download import DownloadError, check, check_files, get, get_files, status
from propall.data.files import Content, DamagedDataError, Download, Files, MissingDataError, sha256
from tests.data.test_images import cifar_batches, write_cifar

CONTENT = np.random.default_rng(0).bytes(300_000)
PACKED = gzip.compress(CONTENT, mtime=0)


@dataclass
class Behaviour:
    """What the server serves and how badly; `requests` remembers the ranges asked for."""

    files: dict[str, bytes]
    ranges: bool = True
    cuts: list[int] = field(default_factory=list)
    tells_length: bool = True
    requests: list[str | None] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Behaviour]:
    monkeypatch.setenv("no_proxy", "*")
    behaviour = Behaviour({"/file.bin.gz": PACKED})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            behaviour.requests.append(asked)
            whole = behaviour.files.get(self.path)
            if whole is None:
                self.send_error(404)
                return
            start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and behaviour.ranges else 0
            if start >= len(whole):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(whole) - 1}/{len(whole)}")
            if behaviour.tells_length:
                self.send_header("Content-Length", str(len(whole) - start))
            self.end_headers()
            end = start + behaviour.cuts.pop(0) if behaviour.cuts else len(whole)
            self.wfile.write(whole[start:end])

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        behaviour.url = f"http://127.0.0.1:{httpd.server_address[1]}"
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield behaviour
        httpd.shutdown()
        thread.join()


def files_at(*addresses: str, content: bytes = CONTENT) -> Files:
    download = Download("file.bin.gz", addresses, ("file.bin",))
    return Files("folder", (Content("file.bin", sha256(content)),), (download,))


def target(root: Path) -> Path:
    return root / "folder" / "file.bin.gz"


def part(root: Path) -> Path:
    return root / "folder" / "file.bin.gz.part"


def left(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "folder").iterdir())


def test_a_file_is_fetched_checked_and_moved_into_place(server: Behaviour, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    (row,) = get_files(
        files_at(f"{server.url}/file.bin.gz"), tmp_path, "test", lambda *progress: seen.append(progress)
    )
    assert (row.content, row.state, row.path) == ("file.bin", "ok", target(tmp_path))
    assert target(tmp_path).read_bytes() == PACKED
    assert left(tmp_path) == ["file.bin.gz"]
    assert seen[-1] == ("file.bin.gz", len(PACKED), len(PACKED))
    assert [done for _, done, _ in seen] == sorted({done for _, done, _ in seen})


def test_what_is_there_is_not_fetched_again(server: Behaviour, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file.bin").write_bytes(CONTENT)
    (row,) = get_files(files_at(f"{server.url}/file.bin.gz"), tmp_path, "test")
    assert row.state == "ok"
    assert server.requests == []


def test_a_damaged_file_is_fetched_again(server: Behaviour, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target(tmp_path).write_bytes(PACKED[:1000])
    (row,) = get_files(files_at(f"{server.url}/file.bin.gz"), tmp_path, "test")
    assert row.state == "ok"
    assert target(tmp_path).read_bytes() == PACKED


def test_a_cut_connection_is_taken_up_where_it_broke(server: Behaviour, tmp_path: Path) -> None:
    server.cuts = [100_000, 50_000]
    get_files(files_at(f"{server.url}/file.bin.gz"), tmp_path, "test")
    assert server.requests == [None, "bytes=100000-", "bytes=150000-"]
    assert target(tmp_path).read_bytes() == PACKED


def test_an_earlier_download_is_taken_up(server: Behaviour, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    part(tmp_path).write_bytes(PACKED[:120_000])
    get_files(files_at(f"{server.url}/file.bin.gz"), tmp_path, "test")
    assert server.requests == ["bytes=120000-"]
    assert left(tmp_path) == ["file.bin.gz"]


def test_a_server_without_ranges_sends_everything_again(server: Behaviour, tmp_path: Path) -> None:
    server.ranges = False
    server.cuts = [100_000]
    get_files(files_at(f"{server.url}/file.bin.gz"), tmp_path, "test")
    assert server.requests == [None, "bytes=100000-"]
    assert target(tmp_path).read_bytes() == PACKED


def test_a_server_that_tells_no_length(server: Behaviour, tmp_path: Path) -> None:
    server.tells_length = False
    get_files(files_at(f"{server.url}/file.bin.gz"), tmp_path, "test")
    assert target(tmp_path).read_bytes() == PACKED


def test_a_complete_earlier_download_only_has_to_be_moved(server: Behaviour, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    part(tmp_path).write_bytes(PACKED)
    get_files(files_at(f"{server.url}/file.bin.gz"), tmp_path, "test")
    assert server.requests == [f"bytes={len(PACKED)}-"]
    assert left(tmp_path) == ["file.bin.gz"]


def test_an_earlier_download_of_something_else_is_dropped(server: Behaviour, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    part(tmp_path).write_bytes(b"another version" * 1000)
    get_files(files_at(f"{server.url}/file.bin.gz"), tmp_path, "test")
    assert server.requests == ["bytes=15000-", None]
    assert target(tmp_path).read_bytes() == PACKED


def test_a_connection_that_is_always_cut_gives_up_and_keeps_what_came(
    server: Behaviour, tmp_path: Path
) -> None:
    server.cuts = [100_000, 0, 0, 0]
    with pytest.raises(DownloadError, match=f"cut after 100000 of {len(PACKED)} bytes"):
        get_files(files_at(f"{server.url}/file.bin.gz"), tmp_path, "test")
    assert left(tmp_path) == ["file.bin.gz.part"]
    get_files(files_at(f"{server.url}/file.bin.gz"), tmp_path, "test")
    assert server.requests[-1] == "bytes=100000-"
    assert left(tmp_path) == ["file.bin.gz"]


def test_wrong_contents_are_not_kept(server: Behaviour, tmp_path: Path) -> None:
    files = files_at(f"{server.url}/file.bin.gz", content=b"what was published")
    with pytest.raises(DownloadError, match="what came is not the published file, so nothing was kept"):
        get_files(files, tmp_path, "test")
    assert left(tmp_path) == []


def test_contents_that_cannot_be_unpacked_are_not_kept(server: Behaviour, tmp_path: Path) -> None:
    server.files["/file.bin.gz"] = b"<html>moved</html>"
    with pytest.raises(DownloadError, match="not the published file"):
        get_files(files_at(f"{server.url}/file.bin.gz"), tmp_path, "test")
    assert left(tmp_path) == []


def test_a_good_file_survives_a_failed_download_of_a_bad_one(server: Behaviour, tmp_path: Path) -> None:
    # Other contents than expected are in place, and the network has not the right ones either.
    (tmp_path / "folder").mkdir()
    target(tmp_path).write_bytes(PACKED)
    with pytest.raises(DownloadError):
        get_files(files_at(f"{server.url}/file.bin.gz", content=b"newer"), tmp_path, "test")
    assert target(tmp_path).read_bytes() == PACKED


def test_the_mirror_is_asked_when_the_first_address_fails(server: Behaviour, tmp_path: Path) -> None:
    files = files_at(f"{server.url}/gone.gz", f"{server.url}/file.bin.gz")
    (row,) = get_files(files, tmp_path, "test")
    assert row.state == "ok"


def test_nothing_at_the_address_says_what_to_put_where(server: Behaviour, tmp_path: Path) -> None:
    address = f"{server.url}/gone.gz"
    with pytest.raises(DownloadError) as caught:
        get_files(files_at(address), tmp_path, "test")
    assert str(caught.value).startswith("test: file.bin.gz could not be fetched.")
    assert f"{address}: the server answered 404 Not Found" in str(caught.value)
    assert f"fetch {address} elsewhere and put it at {target(tmp_path)}" in str(caught.value)


def test_no_network_says_what_to_put_where(server: Behaviour, tmp_path: Path) -> None:
    address = "http://127.0.0.1:9/file.bin.gz"  # the discard port: nobody listens
    with pytest.raises(DownloadError) as caught:
        get_files(files_at(address), tmp_path, "test")
    assert "Connection refused" in str(caught.value)
    assert f"fetch {address} elsewhere and put it at {target(tmp_path)}" in str(caught.value)


def test_an_archive_is_checked_member_by_member(server: Behaviour, tmp_path: Path) -> None:
    members = {"one.bin": b"1" * 5000, "two.bin": b"2" * 5000}
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(f"inner/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    server.files["/all.tar.gz"] = stream.getvalue()
    download = Download("all.tar.gz", (f"{server.url}/all.tar.gz",), tuple(members))
    contents = tuple(Content(name, sha256(data)) for name, data in members.items())
    files = Files("folder", contents, (download,), archive="all.tar.gz")
    assert [row.state for row in get_files(files, tmp_path, "test")] == ["ok", "ok"]
    wrong = Files("other", (contents[0], Content("two.bin", sha256(b""))), (download,), archive="all.tar.gz")
    with pytest.raises(DownloadError, match="not the published file"):
        get_files(wrong, tmp_path, "test")


def test_a_file_that_hides_the_fetched_one_is_named(server: Behaviour, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    hiding = tmp_path / "folder" / "file.bin"
    hiding.write_bytes(b"an older version")
    with pytest.raises(DamagedDataError, match=f"{hiding}: file.bin does not have .* Remove it"):
        get_files(files_at(f"{server.url}/file.bin.gz"), tmp_path, "test")
    assert hiding.read_bytes() == b"an older version"


# --- data sets by name --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["soccer_player", "yahoo_news", "lost"])
def test_archives_that_cannot_be_unpacked_are_left_to_the_user(name: str, tmp_path: Path) -> None:
    with pytest.raises(MissingDataError) as caught:
        get(name, tmp_path)
    assert ".rar, which cannot be unpacked here" in str(caught.value)
    assert f"Put it at {tmp_path / 'realworld' / name}.mat" in str(caught.value)


def test_a_file_put_there_by_hand_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "realworld").mkdir()
    path = tmp_path / "realworld" / "lost.mat"
    path.write_bytes(b"another version")
    (row,) = get("lost", tmp_path)
    assert (row.state, row.path) == ("different", path)
    assert row.note == f"{path}: lost.mat does not have the published contents."


def test_what_is_built_in_needs_nothing(tmp_path: Path) -> None:
    assert get("digits", tmp_path / "nowhere") == check("blobs", tmp_path / "nowhere") == []
    assert not (tmp_path / "nowhere").exists()


def test_a_check_tells_missing_damaged_and_different_files_apart(tmp_path: Path) -> None:
    contents = tuple(
        Content(name, sha256(name.encode())) for name in ("ok", "different", "damaged", "missing")
    )
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "ok").write_bytes(b"ok")
    (folder / "different.gz").write_bytes(gzip.compress(b"another"))
    (folder / "damaged.gz").write_bytes(gzip.compress(b"damaged")[:-1])
    rows = check_files(Files("folder", contents), tmp_path, "test")
    assert [(row.content, row.state) for row in rows] == [
        (content.name, content.name) for content in contents
    ]
    assert [row.path for row in rows] == [folder / "ok", folder / "different.gz", folder / "damaged.gz", None]
    assert rows[0].note == ""
    assert str(folder) in rows[3].note


def test_the_files_of_an_annotated_set_include_its_images(tmp_path: Path) -> None:
    write_cifar(tmp_path / "cifar10", "xz", cifar_batches())
    rows = check("cifar10h", tmp_path)
    assert [row.state for row in rows] == ["different"] * 6 + ["missing"]
    assert {row.dataset for row in rows} == {"cifar10h"}


def test_a_check_of_everything_looks_at_shared_files_once(tmp_path: Path) -> None:
    write_cifar(tmp_path / "cifar10", "bin", cifar_batches())
    rows = [row for row in check(root=tmp_path) if row.content == "test_batch.bin"]
    assert [(row.dataset, row.state) for row in rows] == [("cifar10", "different")]


def test_the_list_says_what_is_there(tmp_path: Path) -> None:
    write_cifar(tmp_path / "cifar10", "tar.gz", cifar_batches())
    rows = {row.loader.name: row for row in status(tmp_path)}
    assert list(rows) == list(DATASETS)
    assert rows["digits"].present
    assert rows["digits"].where is None
    assert rows["cifar10"].present
    assert rows["cifar10"].where == tmp_path / "cifar10"
    assert not rows["mnist"].present
    assert rows["mnist"].where == tmp_path / "mnist"
    assert rows["mnist"].note == "propall data get mnist"
    assert not rows["cifar10h"].present
    assert rows["cifar10h"].note == "propall data get cifar10h"
    assert rows["lost"].note == "by hand: see propall data get lost"


@pytest.mark.realdata
@pytest.mark.parametrize(
    "name", [name for name, loader in DATASETS.items() if "cifar" not in name and loader.files]
)
def test_published_files_have_the_published_contents(name: str) -> None:
    rows = check(name)
    if any(row.state == "missing" for row in rows):
        pytest.skip(f"{name}: not under PROPALL_DATA")
    assert {row.state for row in rows} == {"ok"}


@pytest.mark.realdata
@pytest.mark.slow
@pytest.mark.parametrize("name", ["cifar10n", "cifar10h"])
def test_published_annotations_have_the_published_contents(name: str) -> None:
    test_published_files_have_the_published_contents(name)

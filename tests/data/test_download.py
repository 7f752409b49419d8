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
class Behavior:
    """Files and faults of the test server; `requests` records the requested ranges."""

    files: dict[str, bytes]
    ranges: bool = True
    cuts: list[int] = field(default_factory=list)
    sends_length: bool = True
    requests: list[str | None] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Behavior]:
    monkeypatch.setenv("no_proxy", "*")
    behavior = Behavior({"/file.bin.gz": PACKED})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requested = self.headers.get("Range")
            behavior.requests.append(requested)
            whole = behavior.files.get(self.path)
            if whole is None:
                self.send_error(404)
                return
            resumes = requested and behavior.ranges
            start = int(requested.removeprefix("bytes=").removesuffix("-")) if resumes else 0
            if start >= len(whole):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(whole) - 1}/{len(whole)}")
            if behavior.sends_length:
                self.send_header("Content-Length", str(len(whole) - start))
            self.end_headers()
            end = start + behavior.cuts.pop(0) if behavior.cuts else len(whole)
            self.wfile.write(whole[start:end])

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        behavior.url = f"http://127.0.0.1:{httpd.server_address[1]}"
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield behavior
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


def test_a_file_is_downloaded_verified_and_moved_into_place(server: Behavior, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    (row,) = get_files(
        files_at(f"{server.url}/file.bin.gz"), tmp_path, "test", lambda *progress: seen.append(progress)
    )
    assert (row.content, row.state, row.path) == ("file.bin", "ok", target(tmp_path))
    assert target(tmp_path).read_bytes() == PACKED
    assert left(tmp_path) == ["file.bin.gz"]
    assert seen[-1] == ("file.bin.gz", len(PACKED), len(PACKED))
    assert [done for _, done, _ in seen] == sorted({done for _, done, _ in seen})


def test_existing_files_are_not_downloaded_again(server: Behavior, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file.bin").write_bytes(CONTENT)
    (row,) = get_files(files_at(f"{server.url}/file.bin.gz"), tmp_path, "test")
    assert row.state == "ok"
    assert server.requests == []


def test_a_damaged_file_is_downloaded_again(server: Behavior, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target(tmp_path).write_bytes(PACKED[:1000])
    (row,) = get_files(files_at(f"{server.url}/file.bin.gz"), tmp_path, "test")
    assert row.state == "ok"
    assert target(tmp_path).read_bytes() == PACKED


def test_an_interrupted_connection_is_resumed(server: Behavior, tmp_path: Path) -> None:
    server.cuts = [100_000, 50_000]
    get_files(files_at(f"{server.url}/file.bin.gz"), tmp_path, "test")
    assert server.requests == [None, "bytes=100000-", "bytes=150000-"]
    assert target(tmp_path).read_bytes() == PACKED


def test_an_earlier_download_is_resumed(server: Behavior, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    part(tmp_path).write_bytes(PACKED[:120_000])
    get_files(files_at(f"{server.url}/file.bin.gz"), tmp_path, "test")
    assert server.requests == ["bytes=120000-"]
    assert left(tmp_path) == ["file.bin.gz"]


def test_a_server_without_ranges_sends_everything_again(server: Behavior, tmp_path: Path) -> None:
    server.ranges = False
    server.cuts = [100_000]
    get_files(files_at(f"{server.url}/file.bin.gz"), tmp_path, "test")
    assert server.requests == [None, "bytes=100000-"]
    assert target(tmp_path).read_bytes() == PACKED


def test_a_server_that_sends_no_length(server: Behavior, tmp_path: Path) -> None:
    server.sends_length = False
    get_files(files_at(f"{server.url}/file.bin.gz"), tmp_path, "test")
    assert target(tmp_path).read_bytes() == PACKED


def test_a_complete_earlier_download_is_only_moved(server: Behavior, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    part(tmp_path).write_bytes(PACKED)
    get_files(files_at(f"{server.url}/file.bin.gz"), tmp_path, "test")
    assert server.requests == [f"bytes={len(PACKED)}-"]
    assert left(tmp_path) == ["file.bin.gz"]


def test_an_earlier_download_of_another_file_is_discarded(server: Behavior, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    part(tmp_path).write_bytes(b"another version" * 1000)
    get_files(files_at(f"{server.url}/file.bin.gz"), tmp_path, "test")
    assert server.requests == ["bytes=15000-", None]
    assert target(tmp_path).read_bytes() == PACKED


def test_repeated_interruptions_give_up_and_keep_the_part(server: Behavior, tmp_path: Path) -> None:
    server.cuts = [100_000, 0, 0, 0]
    with pytest.raises(DownloadError, match=f"interrupted after 100000 of {len(PACKED)} bytes"):
        get_files(files_at(f"{server.url}/file.bin.gz"), tmp_path, "test")
    assert left(tmp_path) == ["file.bin.gz.part"]
    get_files(files_at(f"{server.url}/file.bin.gz"), tmp_path, "test")
    assert server.requests[-1] == "bytes=100000-"
    assert left(tmp_path) == ["file.bin.gz"]


def test_a_server_that_alternates_between_lengths_is_given_up(server: Behavior, tmp_path: Path) -> None:
    server.ranges = False
    server.cuts = [1000, 2000] * 500
    with pytest.raises(DownloadError, match="interrupted after"):
        get_files(files_at(f"{server.url}/file.bin.gz"), tmp_path, "test")
    assert len(server.requests) < 10


@pytest.mark.parametrize("sends_length", [True, False])
def test_no_more_than_the_published_size_is_downloaded(
    server: Behavior, tmp_path: Path, sends_length: bool
) -> None:
    server.sends_length = sends_length
    small = Files(
        "folder",
        (Content("file.bin", sha256(CONTENT), limit=1000),),
        (Download("file.bin.gz", (f"{server.url}/file.bin.gz",), ("file.bin",)),),
    )
    with pytest.raises(DownloadError, match=r"at most \d+ were expected|more than the \d+ bytes"):
        get_files(small, tmp_path, "test")
    assert not target(tmp_path).exists()


def test_every_address_is_encrypted() -> None:
    downloads = [d for loader in DATASETS.values() for files in loader.files for d in files.downloads]
    assert downloads
    assert all(address.startswith("https://") for d in downloads for address in d.addresses)


def test_wrong_contents_are_not_kept(server: Behavior, tmp_path: Path) -> None:
    files = files_at(f"{server.url}/file.bin.gz", content=b"what was published")
    with pytest.raises(DownloadError, match="the file differs from the published one and was discarded"):
        get_files(files, tmp_path, "test")
    assert left(tmp_path) == []


def test_contents_that_cannot_be_unpacked_are_not_kept(server: Behavior, tmp_path: Path) -> None:
    server.files["/file.bin.gz"] = b"<html>moved</html>"
    with pytest.raises(DownloadError, match="differs from the published one"):
        get_files(files_at(f"{server.url}/file.bin.gz"), tmp_path, "test")
    assert left(tmp_path) == []


def test_a_good_file_survives_a_failed_download_of_a_bad_one(server: Behavior, tmp_path: Path) -> None:
    # The file in place has unexpected contents, and so has the one on the server.
    (tmp_path / "folder").mkdir()
    target(tmp_path).write_bytes(PACKED)
    with pytest.raises(DownloadError):
        get_files(files_at(f"{server.url}/file.bin.gz", content=b"newer"), tmp_path, "test")
    assert target(tmp_path).read_bytes() == PACKED


def test_the_mirror_is_asked_when_the_first_address_fails(server: Behavior, tmp_path: Path) -> None:
    files = files_at(f"{server.url}/gone.gz", f"{server.url}/file.bin.gz")
    (row,) = get_files(files, tmp_path, "test")
    assert row.state == "ok"


def test_a_missing_address_explains_what_to_do(server: Behavior, tmp_path: Path) -> None:
    address = f"{server.url}/gone.gz"
    with pytest.raises(DownloadError) as caught:
        get_files(files_at(address), tmp_path, "test")
    assert str(caught.value).startswith("test: file.bin.gz could not be downloaded.")
    assert f"{address}: the server answered 404 Not Found" in str(caught.value)
    assert f"download {address} elsewhere and save it as {target(tmp_path)}" in str(caught.value)


def test_no_network_explains_what_to_do(server: Behavior, tmp_path: Path) -> None:
    address = "http://127.0.0.1:9/file.bin.gz"  # the discard port: nothing listens
    with pytest.raises(DownloadError) as caught:
        get_files(files_at(address), tmp_path, "test")
    assert "Connection refused" in str(caught.value)
    assert f"download {address} elsewhere and save it as {target(tmp_path)}" in str(caught.value)


def test_an_archive_is_checked_member_by_member(server: Behavior, tmp_path: Path) -> None:
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
    with pytest.raises(DownloadError, match="differs from the published one"):
        get_files(wrong, tmp_path, "test")


def test_a_file_that_hides_the_download_is_named(server: Behavior, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    hiding = tmp_path / "folder" / "file.bin"
    hiding.write_bytes(b"an older version")
    with pytest.raises(DamagedDataError, match=f"{hiding}: file.bin differs from .* Remove it"):
        get_files(files_at(f"{server.url}/file.bin.gz"), tmp_path, "test")
    assert hiding.read_bytes() == b"an older version"


# --- data sets by name --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["soccer_player", "yahoo_news", "lost"])
def test_archives_that_cannot_be_unpacked_are_left_to_the_user(name: str, tmp_path: Path) -> None:
    with pytest.raises(MissingDataError) as caught:
        get(name, tmp_path)
    assert ".rar, which propall cannot unpack" in str(caught.value)
    assert f"Save it as {tmp_path / 'realworld' / name}.mat" in str(caught.value)


def test_a_file_put_there_by_hand_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "realworld").mkdir()
    path = tmp_path / "realworld" / "lost.mat"
    path.write_bytes(b"another version")
    (row,) = get("lost", tmp_path)
    assert (row.state, row.path) == ("different", path)
    assert row.note == f"{path}: lost.mat differs from the published contents."


def test_built_in_data_needs_no_files(tmp_path: Path) -> None:
    assert get("digits", tmp_path / "nowhere") == check("blobs", tmp_path / "nowhere") == []
    assert not (tmp_path / "nowhere").exists()


def test_a_check_distinguishes_missing_damaged_and_different_files(tmp_path: Path) -> None:
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


def test_a_check_of_everything_reads_shared_files_once(tmp_path: Path) -> None:
    write_cifar(tmp_path / "cifar10", "bin", cifar_batches())
    rows = [row for row in check(root=tmp_path) if row.content == "test_batch.bin"]
    assert [(row.dataset, row.state) for row in rows] == [("cifar10", "different")]


def test_the_list_shows_which_files_exist(tmp_path: Path) -> None:
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

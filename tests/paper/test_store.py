"""The store: append-only, shared between processes, and never overwriting other files."""

import json
import multiprocessing
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from propall.paper.store import (
    APPLICATION_ID,
    SCHEMA_VERSION,
    DamagedResultWarning,
    Store,
    StoreError,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "results.sqlite"


def test_gives_back_what_was_added(path, result):
    results = [result(seed) for seed in range(3)]
    with Store(path) as store:
        assert store.add(*results) == 3
        assert list(store) == results
    with Store(path) as store:
        assert len(store) == 3
        assert store.keys() == {r.spec.key for r in results}
        assert store.find([results[1].spec, result(seed=9).spec]) == {results[1].spec.key: results[1]}
        (line,) = [line for line in store.lines() if line["seed"] == 2]
        assert line["data"] == "lost"
        assert line["method"] == "propall"
        assert json.loads(line["spec"]) == results[2].spec.to_dict()
        assert store.lines(data="msrcv2") == []
        assert store.find_by_prefix(results[0].spec.key[:8]) == [results[0]]
        assert store.find_by_prefix("%") == list(reversed(results))


def test_a_run_done_again_has_two_results_and_the_newer_one_counts(path, result):
    old, new = result(accuracy=0.5), result(accuracy=0.6, when="2024-02-02T00:00:00+00:00")
    with Store(path) as store:
        assert store.add(new) == 1
        assert store.add(old) == 1
        assert store.add(old, new) == 0
        assert len(store) == 2
        assert store.find([old.spec])[old.spec.key] == new


def test_results_are_never_changed_or_deleted(path, result):
    with Store(path) as store:
        store.add(result())
    with sqlite3.connect(path) as connection:
        for statement in ("DELETE FROM results", "UPDATE results SET accuracy = 1"):
            with pytest.raises(sqlite3.IntegrityError, match="never"):
                connection.execute(statement)
    connection.close()


def test_adds_all_or_nothing(path, result):
    with Store(path) as store:
        with pytest.raises(StoreError, match="NOT NULL"):
            store.add(result(0), replace(result(1), accuracy=float("nan")))
        assert len(store) == 0
        assert store.add(result(0)) == 1


def _cut(path):
    with Store(path) as store:
        assert len(store) == 0
    path.write_bytes(path.read_bytes()[:4096] + b"\xff" * 4096)


def _foreign(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()


def _other_program(path):
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA application_id = 7")
    connection.close()


def _newer(path):
    Store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()


FILES = {
    "text": (lambda path: path.write_text("accuracy,seed\n" * 500), "not a store"),
    "cut": (_cut, "damaged"),
    "database of another program": (_foreign, "another application"),
    "marked by another program": (_other_program, "another application"),
    "newer layout": (_newer, f"layout {SCHEMA_VERSION + 1}"),
}


@pytest.mark.parametrize("kind", FILES)
def test_refuses_what_is_not_a_store_and_leaves_it_as_it_is(path, kind):
    make, message = FILES[kind]
    path.parent.mkdir()
    make(path)
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(StoreError, match=message):
            Store(path)
    assert path.read_bytes() == before


def test_asks_for_a_file_that_is_there_where_none_may_be_made(path):
    with pytest.raises(StoreError, match="does not exist"):
        Store(path, read_only=True)
    assert not path.exists()
    path.mkdir(parents=True)
    with pytest.raises(StoreError, match="is not a file"):
        Store(path)


def test_marks_the_file_as_its_own(path):
    Store(path).close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def _write(path, result, start, each):
    with Store(path) as store:
        for i in range(each):
            store.add(replace(result, seconds=float(start + i)))


def test_several_processes_write_at_once(path, result):
    # All processes create the file at once; the server imports everything first, so that they start quickly.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    writers, each = 3, 15
    processes = [context.Process(target=_write, args=(path, result(), 100 * i, each)) for i in range(writers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    with Store(path) as store:
        assert sorted(r.seconds for r in store) == sorted(
            float(100 * i + j) for i in range(writers) for j in range(each)
        )


def test_an_empty_file_is_a_lost_store_and_not_a_new_one(path):
    path.parent.mkdir(exist_ok=True)
    path.touch()
    for read_only in (True, False):
        with pytest.raises(StoreError, match="is empty"):
            Store(path, read_only=read_only)
    assert path.read_bytes() == b""


@pytest.mark.parametrize(
    "change",
    [
        "accuracy = 0.99",
        "method = 'cc'",
        "seed = 7",
        "curve = '{\"1\": 1.0}'",
        "curve = '['",
        "spec = replace(spec, '0.', '1.')",
        "hardware = 'faster'",
        "\"when\" = '2100-01-01T00:00:00'",
    ],
)
def test_a_changed_result_is_named_and_left_out(path, result, change):
    with Store(path) as store:
        store.add(result(seed=0), result(seed=1))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TRIGGER results_stay_as_they_are")
        connection.execute(f"UPDATE results SET {change} WHERE number = 2")
        connection.commit()
    before = path.read_bytes()
    with Store(path, read_only=True) as store:
        for read in (list, Store.newest, Store.lines, lambda s: s.find_by_prefix("")):
            with pytest.warns(DamagedResultWarning, match="result 2 "):
                assert len(read(store)) == 1
        assert len(store) == 2
    assert path.read_bytes() == before


def test_reading_changes_nothing(path, result):
    with Store(path) as store:
        store.add(result(seed=0))
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    with Store(path, read_only=True) as store:
        assert len(list(store)) == 1
        with pytest.raises(StoreError, match="readonly"):
            store.add(result(seed=1))
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


@pytest.mark.parametrize("replaced", [False, True])
def test_a_store_that_disappears_while_it_is_written_is_noticed(path, result, replaced):
    with Store(path) as store:
        store.add(result(seed=0))
        path.rename(path.with_suffix(".moved"))
        if replaced:
            Store(path).close()
        with pytest.raises(StoreError, match="deleted or replaced"):
            store.add(result(seed=1))

"""Results on disk: an append-only SQLite file that several processes may write to at once."""

import hashlib
import json
import os
import secrets
import sqlite3
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

from propall.paper.results import BY_EPOCH, RunResult
from propall.paper.specs import Spec

#: SQLite application id of a store ("prop" in ASCII).
APPLICATION_ID = 0x70726F70
#: Layout of the file; raised when files of one version cannot be read by another.
SCHEMA_VERSION = 2
#: How long a writer waits for another one, in seconds.
LOCK_TIMEOUT = 60.0

#: One statement each: a script would commit the transaction that it runs in.
_SCHEMA = (
    """
CREATE TABLE results (
    number INTEGER PRIMARY KEY AUTOINCREMENT, digest TEXT NOT NULL UNIQUE, key TEXT NOT NULL,
    data TEXT NOT NULL, method TEXT NOT NULL, net TEXT NOT NULL, protocol TEXT NOT NULL,
    seed INTEGER NOT NULL, spec TEXT NOT NULL,
    accuracy REAL NOT NULL, last10 REAL NOT NULL, covered REAL NOT NULL, transductive REAL NOT NULL,
    candidates REAL NOT NULL, seconds REAL NOT NULL, stack INTEGER NOT NULL,
    curve TEXT NOT NULL, confusions TEXT NOT NULL, recalls TEXT NOT NULL, times TEXT NOT NULL,
    version TEXT NOT NULL, "commit" TEXT NOT NULL, torch TEXT NOT NULL, hardware TEXT NOT NULL,
    "when" TEXT NOT NULL
)""",
    "CREATE INDEX results_by_key ON results (key)",
    "CREATE TRIGGER results_are_kept BEFORE DELETE ON results "
    "BEGIN SELECT RAISE(ABORT, 'results are never deleted'); END",
    "CREATE TRIGGER results_stay_as_they_are BEFORE UPDATE ON results "
    "BEGIN SELECT RAISE(ABORT, 'results are never changed'); END",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
    f"PRAGMA application_id = {APPLICATION_ID}",
)

#: Fields of a spec that are columns of their own, for queries.
_SPEC_FIELDS = ("data", "net", "protocol", "seed")
NUMBERS = ("accuracy", "last10", "covered", "transductive", "candidates", "seconds", "stack")
PROVENANCE = ("version", "commit", "torch", "hardware", "when")
#: Columns of `Store.lines`, beside the spec.
COLUMNS = ("key", "data", "method", "net", "protocol", "seed", *NUMBERS, *PROVENANCE)
_NEWEST_FIRST = 'ORDER BY "when" DESC, number DESC'


class StoreError(ValueError):
    """A file that is not a store of results, or a damaged one. The file is not changed."""


class DamagedResultWarning(UserWarning):
    """A result whose stored digest does not match its contents. It is left out, and the file not changed."""


class Store(AbstractContextManager["Store"]):
    """A file of results. A missing file is created, or with `read_only` an error.

    Every result carries its spec, versions, commit, hardware and time. Results are added, never changed or
    deleted: if a run was repeated, the newest result is shown. Every result is checked against its digest
    when it is read; damaged ones are named in a `DamagedResultWarning` and left out.

    Args:
        path: the file, or ":memory:".
        read_only: open an existing file for reading; nothing in it can change.
    """

    def __init__(self, path: Path | str, *, read_only: bool = False) -> None:
        self.path = Path(path)
        self._in_memory = str(path) == ":memory:"
        if not self._in_memory:
            self._check_file(read_only)
        with self._errors("is not a store of results"):
            self._connection = self._connect(read_only)
            try:
                self._open(read_only)
            except BaseException:
                self._connection.close()
                raise
        self._inode = None if self._in_memory else self.path.stat().st_ino

    def _check_file(self, read_only: bool) -> None:
        if self.path.exists():
            if not self.path.is_file():
                raise StoreError(f"store: {self.path} is not a file; pass the file of an earlier run.")
            if self.path.stat().st_size == 0:
                raise StoreError(
                    f"store: {self.path} is empty (0 bytes) and was not changed; a store never is. "
                    "Restore it from a copy, or choose another file."
                )
        elif read_only:
            raise StoreError(f"store: {self.path} does not exist; pass the file of an earlier run.")
        else:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._errors("cannot be created"):
                self._create()

    def _create(self) -> None:
        """Make an empty store under its name in one step, so that no process ever sees a part of one."""
        part = self.path.with_name(f".{self.path.name[:40]}.{secrets.token_hex(8)}.part")
        try:
            with closing(sqlite3.connect(part, isolation_level=None)) as connection:
                for statement in (*_SCHEMA, "PRAGMA journal_mode = WAL"):
                    connection.execute(statement)
            try:
                os.link(part, self.path)
            except FileExistsError:
                pass  # another process was faster
            except OSError:  # a file system without links
                if not self.path.exists():
                    part.rename(self.path)
        finally:
            part.unlink(missing_ok=True)

    def _connect(self, read_only: bool) -> sqlite3.Connection:
        if self._in_memory:
            connection = sqlite3.connect(":memory:", isolation_level=None)
            for statement in _SCHEMA:
                connection.execute(statement)
        else:
            mode = "rw"
            if read_only:
                # Without a log no process is writing. Only then can SQLite read without leaving files beside
                # this one, as it must on a read-only medium.
                log = self.path.with_name(f"{self.path.name}-wal")
                mode = "ro" if log.exists() else "ro&immutable=1"
            address = f"{self.path.absolute().as_uri()}?mode={mode}"
            connection = sqlite3.connect(address, uri=True, timeout=LOCK_TIMEOUT, isolation_level=None)
        connection.row_factory = sqlite3.Row
        return connection

    def _open(self, read_only: bool) -> None:
        # Check before anything writes: a file that is not ours stays byte for byte the same.
        if self._pragma("application_id") != APPLICATION_ID:
            problem = "is a database of another application, and was not changed; choose another file."
            raise StoreError(f"store: {self.path} {problem}")
        if (version := self._pragma("user_version")) != SCHEMA_VERSION:
            raise StoreError(
                f"store: {self.path} has layout {version}; this version of propall reads layout "
                f"{SCHEMA_VERSION}. Export it with the version that wrote it (propall results export) and "
                "import that into a new file."
            )
        if (state := self._connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(state)
        if not read_only and not self._in_memory:
            self._use_write_ahead_log()
            self._connection.execute("PRAGMA synchronous = FULL")

    def _use_write_ahead_log(self) -> None:
        """Turn on the write-ahead log; SQLite does not wait if another process does the same, so retry."""
        end = time.monotonic() + LOCK_TIMEOUT
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])

    @contextmanager
    def _errors(self, problem: str) -> Iterator[None]:
        """Turn errors of SQLite into `StoreError`."""
        try:
            yield
        except sqlite3.OperationalError as error:
            remedy = "Check the path, its permissions and the free space; results already stored are kept."
            raise StoreError(f"store: cannot use {self.path} ({error}). {remedy}") from error
        except sqlite3.DatabaseError as error:
            message = f"{problem} or is damaged ({error}), and was not changed; choose another file."
            raise StoreError(f"store: {self.path} {message}") from error

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[None]:
        self._connection.execute(f"BEGIN {kind}")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def _select(self, query: str, values: Sequence[Any] = ()) -> Iterator[sqlite3.Row]:
        with self._errors("cannot be read"), closing(self._connection.cursor()) as cursor:
            yield from cursor.execute(query, values)

    def _results(self, query: str, values: Sequence[Any] = ()) -> Iterator[RunResult]:
        """The results of a query for all columns, without the damaged ones."""
        for row in self._verified(query, values):
            try:
                yield _to_result(row)
            except (ValueError, KeyError, TypeError) as error:
                self._warn(row, f"cannot be understood ({error})")

    def _verified(self, query: str, values: Sequence[Any] = ()) -> Iterator[sqlite3.Row]:
        for row in self._select(query, values):
            if problem := _damage(row):
                self._warn(row, problem)
            else:
                yield row

    def _warn(self, row: sqlite3.Row, problem: str) -> None:
        warnings.warn(
            f"store: {self.path}: result {row['number']} {problem}; it was left out and the file not "
            "changed. Restore it from a copy, or run it again.",
            DamagedResultWarning,
            stacklevel=4,
        )

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, *results: RunResult) -> int:
        """Add results, all of them or none; returns the number of new ones."""
        names = ("digest", *COLUMNS, "spec", *BY_EPOCH)
        columns, places = ", ".join(f'"{name}"' for name in names), ", ".join("?" * len(names))
        insert = f"INSERT INTO results ({columns}) VALUES ({places}) ON CONFLICT (digest) DO NOTHING"
        with self._errors("cannot be written to"), self._transaction():
            count = sum(self._connection.execute(insert, _to_row(result)).rowcount for result in results)
        self._check_present()
        return count

    def _check_present(self) -> None:
        if self._inode is None:
            return
        try:
            same = self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            same = False
        if not same:
            raise StoreError(
                f"store: {self.path} was deleted or replaced while it was in use; results after that are "
                "lost. Run the same command again."
            )

    def keys(self) -> set[str]:
        """Return the keys of all specs with a result."""
        return {row["key"] for row in self._select("SELECT DISTINCT key FROM results")}

    def find(self, specs: Iterable[Spec]) -> dict[str, RunResult]:
        """Return the newest result of every spec that has one, by key."""
        self._check_present()
        query = f"SELECT * FROM results WHERE key = ? {_NEWEST_FIRST} LIMIT 1"
        keys = dict.fromkeys(spec.key for spec in specs)
        return {key: result for key in keys for result in self._results(query, (key,))}

    def find_by_prefix(self, prefix: str) -> list[RunResult]:
        """Return all results whose key starts with a prefix, newest first."""
        pattern = prefix.replace("%", "").replace("_", "") + "%"
        query = f"SELECT * FROM results WHERE key LIKE ? {_NEWEST_FIRST}"
        return list(self._results(query, (pattern,)))

    def newest(self) -> list[RunResult]:
        """Return the newest result of every run, in the order they were added."""
        query = (
            f"SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY key {_NEWEST_FIRST}) AS place "
            "FROM results) WHERE place = 1 ORDER BY number"
        )
        return list(self._results(query))

    def lines(
        self, *, data: str | None = None, method: str | None = None, protocol: str | None = None
    ) -> list[dict[str, Any]]:
        """Return `COLUMNS` and spec of all results in the order they were added, without learning curves."""
        filters = {"data": data, "method": method, "protocol": protocol}
        filters = {name: value for name, value in filters.items() if value is not None}
        where = " AND ".join(f"{name} = ?" for name in filters) or "1"
        query = f"SELECT * FROM results WHERE {where} ORDER BY number"
        rows = self._verified(query, tuple(filters.values()))
        return [{name: row[name] for name in (*COLUMNS, "spec")} for row in rows]

    def __iter__(self) -> Iterator[RunResult]:
        """Iterate over all results in the order they were added."""
        return self._results("SELECT * FROM results ORDER BY number")

    def __len__(self) -> int:
        (row,) = self._select("SELECT count(*) FROM results")
        return int(row[0])


def _to_row(result: RunResult) -> tuple[Any, ...]:
    values, spec = result.to_dict(), result.spec
    columns = values | {name: getattr(spec, name) for name in _SPEC_FIELDS} | {"method": spec.method.name}
    by_epoch = (json.dumps(values[name]) for name in BY_EPOCH)
    return (_digest(values), *(columns[name] for name in COLUMNS), spec.to_json(), *by_epoch)


def _digest(values: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=16).hexdigest()


def _damage(row: sqlite3.Row) -> str:
    """What is wrong with a stored result; empty if it is as it was added."""
    try:
        values = {name: row[name] for name in (*NUMBERS, *PROVENANCE, "key")}
        values["spec"] = json.loads(row["spec"])
        for name in BY_EPOCH:
            values[name] = {int(epoch): value for epoch, value in json.loads(row[name]).items()}
        spec_columns = [values["spec"][name] for name in _SPEC_FIELDS]
        method = values["spec"]["method"]["name"]
        changed = row["digest"] != _digest(values)
        if changed:  # SQLite returns 1.0 for a number that was added as the integer 1
            whole = {n: int(v) for n, v in values.items() if isinstance(v, float) and v.is_integer()}
            changed = row["digest"] != _digest(values | whole)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return f"is damaged ({error})"
    if changed or [row[name] for name in _SPEC_FIELDS] != spec_columns or row["method"] != method:
        return "was changed after it was added"
    return ""


def _to_result(row: sqlite3.Row) -> RunResult:
    values: dict[str, Any] = {name: row[name] for name in (*NUMBERS, *PROVENANCE)}
    return RunResult.from_dict(values | {name: json.loads(row[name]) for name in ("spec", *BY_EPOCH)})

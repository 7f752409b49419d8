"""Results on disk: an append-only SQLite file that several processes may write to at once."""

import csv
import hashlib
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

from propall.paper.results import BY_EPOCH, RunResult
from propall.paper.specs import Spec

#: Marks the file as ours ("prop" in ASCII), where SQLite keeps such marks.
APPLICATION_ID = 0x70726F70
#: Raised whenever a file written by one version cannot be read by the other.
SCHEMA_VERSION = 2
#: How every SQLite file begins.
_SQLITE = b"SQLite format 3\0"
#: How long a writer waits for another one, in seconds.
PATIENCE = 60.0

_SCHEMA = """
CREATE TABLE results (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    digest TEXT NOT NULL UNIQUE,
    key TEXT NOT NULL,
    data TEXT NOT NULL,
    method TEXT NOT NULL,
    net TEXT NOT NULL,
    protocol TEXT NOT NULL,
    seed INTEGER NOT NULL,
    spec TEXT NOT NULL,
    accuracy REAL NOT NULL,
    last10 REAL NOT NULL,
    covered REAL NOT NULL,
    transductive REAL NOT NULL,
    candidates REAL NOT NULL,
    seconds REAL NOT NULL,
    stack INTEGER NOT NULL,
    curve TEXT NOT NULL,
    confusions TEXT NOT NULL,
    recalls TEXT NOT NULL,
    times TEXT NOT NULL,
    version TEXT NOT NULL,
    "commit" TEXT NOT NULL,
    torch TEXT NOT NULL,
    hardware TEXT NOT NULL,
    "when" TEXT NOT NULL
);
CREATE INDEX results_by_key ON results (key);
CREATE TRIGGER results_are_kept BEFORE DELETE ON results
BEGIN SELECT RAISE(ABORT, 'results are never deleted'); END;
CREATE TRIGGER results_stay_as_they_are BEFORE UPDATE ON results
BEGIN SELECT RAISE(ABORT, 'results are never changed'); END;
"""

#: What `export` writes to CSV, column by column.
COLUMNS = (
    "key",
    "data",
    "method",
    "net",
    "protocol",
    "seed",
    "accuracy",
    "last10",
    "covered",
    "transductive",
    "candidates",
    "seconds",
    "stack",
    "version",
    "commit",
    "torch",
    "hardware",
    "when",
)
_NUMBERS = ("accuracy", "last10", "covered", "transductive", "candidates", "seconds", "stack")
_PROVENANCE = ("version", "commit", "torch", "hardware", "when")


class StoreError(ValueError):
    """A file that is no store of results, or a damaged one; it is left as it is."""


@runtime_checkable
class Writable(Protocol):
    """An open file, or anything else that takes text."""

    def write(self, text: str, /) -> Any:
        """Take some text."""


class Store:
    """A file of results. Opening makes it where there is none; a file of another kind is refused.

    Every result carries its spec, versions, commit, hardware and time. Results are added, never changed or
    deleted: a run done again has two, and the newer one is shown.

    Args:
        path: the file.
        create: make it where there is none; otherwise that is an error.
    """

    def __init__(self, path: Path | str, *, create: bool = True) -> None:
        self.path = Path(path)
        if not create and not self.path.exists():
            raise StoreError(f"store: there is no file {self.path}; give the file of an earlier run.")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._reading("is not a store of results"):
            self._connection = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)
            self._connection.row_factory = sqlite3.Row
            try:
                self._open()
            except BaseException:
                self._connection.close()
                raise

    def _open(self) -> None:
        # Looking comes before everything that writes: a file of somebody else's stays byte for byte as it is.
        with self._transaction("DEFERRED"):  # one moment's view: another process may be making the file
            tables = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            kind = self._pragma("application_id")
        if kind != APPLICATION_ID and (kind != 0 or tables):
            raise StoreError(
                f"store: {self.path} is a database of something else; choose another file, this one is left "
                "as it is."
            )
        if kind and (state := self._connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(state)
        self._write_ahead()
        self._connection.execute("PRAGMA synchronous = FULL")
        if kind == 0:
            with self._transaction():
                # Another process may have been quicker between the look and the lock.
                if self._pragma("application_id") == 0:
                    for statement in _statements(_SCHEMA):
                        self._connection.execute(statement)
                    self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                    self._connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        if (found := self._pragma("user_version")) != SCHEMA_VERSION:
            raise StoreError(
                f"store: {self.path} has layout {found}, this version of propall reads {SCHEMA_VERSION}. "
                "Export it with the version that wrote it (propall results export) and import that into a "
                "new file."
            )

    def _write_ahead(self) -> None:
        """Keep a write-ahead log; where another process just asks for it too, SQLite itself does not wait."""
        end = time.monotonic() + PATIENCE
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
    def _reading(self, problem: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StoreError(f"store: {self.path} cannot be used ({error}).") from error
        except sqlite3.DatabaseError as error:
            raise StoreError(
                f"store: {self.path} {problem} or is damaged ({error}); choose another file, this one is "
                "left as it is."
            ) from error

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[None]:
        self._connection.execute(f"BEGIN {kind}")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, *results: RunResult) -> int:
        """Add results, all of them or none; returns how many were new.

        The results of one stack are one transaction: a kill leaves either the whole stack to be done again,
        with the same neighbours and so the same numbers, or nothing.
        """
        columns = ", ".join(f'"{name}"' for name in ("digest", *COLUMNS, "spec", *BY_EPOCH))
        places = ", ".join("?" * (len(COLUMNS) + 2 + len(BY_EPOCH)))
        added = 0
        with self._reading("cannot be written to"), self._transaction():
            for result in results:
                cursor = self._connection.execute(
                    f"INSERT INTO results ({columns}) VALUES ({places}) ON CONFLICT (digest) DO NOTHING",
                    _values(result),
                )
                added += cursor.rowcount
        return added

    def keys(self) -> set[str]:
        """The keys of all specs that have a result."""
        with self._reading("cannot be read"), closing(self._connection.cursor()) as cursor:
            return {row["key"] for row in cursor.execute("SELECT DISTINCT key FROM results")}

    def find(self, specs: Iterable[Spec]) -> dict[str, RunResult]:
        """The newest result of every spec that has one, by key."""
        return self.by_key([spec.key for spec in specs])

    def newest(self) -> list[RunResult]:
        """The newest result of every run, in the order they were added."""
        query = (
            'SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY key ORDER BY "when" DESC, number DESC) '
            "AS place FROM results) WHERE place = 1 ORDER BY number"
        )
        with self._reading("cannot be read"), closing(self._connection.cursor()) as cursor:
            return [_result(row) for row in cursor.execute(query)]

    def by_key(self, keys: Sequence[str]) -> dict[str, RunResult]:
        """The newest result under every key that has one."""
        found = {}
        with self._reading("cannot be read"), closing(self._connection.cursor()) as cursor:
            for key in dict.fromkeys(keys):
                row = cursor.execute(
                    'SELECT * FROM results WHERE key = ? ORDER BY "when" DESC, number DESC LIMIT 1', (key,)
                ).fetchone()
                if row is not None:
                    found[key] = _result(row)
        return found

    def starting_with(self, start: str) -> list[RunResult]:
        """All results whose key starts so, newest first."""
        pattern = start.replace("%", "").replace("_", "") + "%"
        with self._reading("cannot be read"), closing(self._connection.cursor()) as cursor:
            rows = cursor.execute(
                'SELECT * FROM results WHERE key LIKE ? ORDER BY "when" DESC, number DESC', (pattern,)
            )
            return [_result(row) for row in rows]

    def lines(
        self, *, data: str | None = None, method: str | None = None, protocol: str | None = None
    ) -> list[dict[str, Any]]:
        """The columns of all results in the order they were added, without curves; see `COLUMNS`."""
        given = {"data": data, "method": method, "protocol": protocol}
        wanted = {name: value for name, value in given.items() if value is not None}
        where = " AND ".join(f"{name} = ?" for name in wanted) or "1"
        columns = ", ".join(f'"{name}"' for name in (*COLUMNS, "spec"))
        query = f"SELECT {columns} FROM results WHERE {where} ORDER BY number"
        with self._reading("cannot be read"), closing(self._connection.cursor()) as cursor:
            return [dict(row) for row in cursor.execute(query, tuple(wanted.values()))]

    def __iter__(self) -> Iterator[RunResult]:
        """All results in the order they were added."""
        with self._reading("cannot be read"), closing(self._connection.cursor()) as cursor:
            for row in cursor.execute("SELECT * FROM results ORDER BY number"):
                yield _result(row)

    def __len__(self) -> int:
        with self._reading("cannot be read"):
            return int(self._connection.execute("SELECT count(*) FROM results").fetchone()[0])

    def export_csv(self, out: Writable) -> int:
        """Write one line per result, without curves; returns how many."""
        writer = csv.DictWriter(out, (*COLUMNS, "spec"), lineterminator="\n")
        writer.writeheader()
        lines = self.lines()
        writer.writerows(lines)
        return len(lines)

    def export_json(self, out: Writable) -> int:
        """Write one JSON object per line with everything there is; returns how many."""
        count = 0
        for result in self:
            out.write(json.dumps(result.to_dict(), sort_keys=True) + "\n")
            count += 1
        return count

    def import_file(self, path: Path) -> tuple[int, int]:
        """Add another store's results, or what was exported as CSV or JSON lines, all of them or none.

        Returns:
            How many results were read, and how many of them were new.
        """
        with path.open("rb") as start:
            is_store = start.read(len(_SQLITE)) == _SQLITE
        if is_store:
            with Store(path, create=False) as other:
                results = list(other)
            return len(results), self.add(*results)
        take = self.import_csv if path.suffix == ".csv" else self.import_json
        try:
            with path.open(encoding="utf-8", newline="") as lines:
                return take(lines, str(path))
        except UnicodeDecodeError as error:
            raise StoreError(
                f"{path}: neither text nor a store of results ({error}); nothing was imported. Give a store, "
                "or a file that `propall results export` wrote."
            ) from error

    def import_csv(self, lines: Iterable[str], where: str = "import") -> tuple[int, int]:
        """Add what `export_csv` wrote, all of it or nothing; returns how many were read and how many new.

        Runs that are there with the same date are skipped: a table of numbers knows nothing of their curves.
        """
        known = {(line["key"], line["when"]) for line in self.lines()}
        results = []
        for number, line in enumerate(csv.DictReader(lines), 2):
            try:
                values: dict[str, Any] = {name: float(line[name]) for name in _NUMBERS}
                values |= {name: line[name] for name in _PROVENANCE}
                values |= {"spec": json.loads(line["spec"]), "stack": int(line["stack"])}
                results.append(RunResult.from_dict(values))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise StoreError(
                    f"{where}: line {number} is no result ({error}); nothing was imported. "
                    "Give a file that `propall results export` wrote."
                ) from error
        return len(results), self.add(*(r for r in results if (r.spec.key, r.when) not in known))

    def import_json(self, lines: Iterable[str], where: str = "import") -> tuple[int, int]:
        """Add what `export_json` wrote, all of it or nothing; returns how many were read and how many new."""
        results = []
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                results.append(RunResult.from_dict(json.loads(line)))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise StoreError(
                    f"{where}: line {number} is no result ({error}); nothing was imported. "
                    "Give a file that `propall results export` wrote as JSON lines."
                ) from error
        return len(results), self.add(*results)


def _statements(script: str) -> Iterator[str]:
    """The statements of a script; a trigger's own semicolons are inside lines."""
    statement = ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _values(result: RunResult) -> tuple[Any, ...]:
    spec = result.spec
    digest = hashlib.blake2b(
        json.dumps(result.to_dict(), sort_keys=True).encode(), digest_size=16
    ).hexdigest()
    named: dict[str, Any] = {
        "key": spec.key,
        "data": spec.data,
        "method": spec.method.name,
        "net": spec.net,
        "protocol": spec.protocol,
        "seed": spec.seed,
    }
    named |= {name: getattr(result, name) for name in (*_NUMBERS, *_PROVENANCE)}
    return (
        digest,
        *(named[name] for name in COLUMNS),
        spec.to_json(),
        *(json.dumps(getattr(result, name)) for name in BY_EPOCH),
    )


def _result(row: sqlite3.Row) -> RunResult:
    values: dict[str, Any] = {name: row[name] for name in (*_NUMBERS, *_PROVENANCE)}
    for name in ("spec", *BY_EPOCH):
        values[name] = json.loads(row[name])
    return RunResult.from_dict(values)

"""Results as files: CSV and JSON lines of a whole store, and a folder of CSV files to publish.

A published folder has one `TABLE.csv` per table of the paper with one line per run, and `details.jsonl` with
the full spec of each run and its thinned-out learning curve. Together they restore a store.
"""

import csv
import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO, TypeVar

from propall import atomic_files
from propall.paper import modern, reproduction
from propall.paper.results import RunResult
from propall.paper.store import COLUMNS, NUMBERS, PROVENANCE, Store, StoreError
from propall.paper.tables import TABLES
from propall.paper.tables.modern import MODERN
from propall.wording import guard_formula, unguard_formula

Line = TypeVar("Line")
Value = TypeVar("Value")

DETAILS = "details.jsonl"
_README = """\
# Results

Written by `propall results export results/`, read by `propall report --results results/` and
`propall results import results/`. There is one CSV file per table of the paper, and `modern.csv` for images
trained with views, with one line per run:

- `cell`: the name of the table cell for `propall reproduce`; a run that two tables share is in both.
- `data`, `corruption`, `q` (or rate), `n` (candidates), `protocol`, `method`, `net`, `seed`, `fold`,
  `epochs` and `precision` (of matrix products on a GPU).
- `accuracy`: test accuracy after the last epoch; `last10`: its mean over the last ten epochs.
- `covered`: fraction of training rows whose prediction is a candidate; `transductive`: fraction whose
  highest-scoring candidate is the true label; `candidates`: mean number of candidates per row.
- `seconds`: run time including evaluation; runs that were trained together (`stack` of them) share it
  equally.
- `hardware`, `version`, `commit`, `torch`, `date`: provenance; a commit that ends in `-dirty` had
  uncommitted changes. `key`: hash of the run's full description.

`details.jsonl` has the full description of each run and its learning curve, thinned out.

The other files are not part of the paper's tables: `selection.csv` and `calibration.csv` are written by
`scripts/selection.py`, `annotators.json` by `propall annotators`, `base_losses.json` by `propall
base-losses`, `paired_classes.json` by `propall base-losses --pairs`, `crowds_reliability.csv` by
`scripts/crowds.py --part reliability`, and `crowds.csv`, `teacher_sets.csv`, `model_made_sets.csv`,
`trust.csv`, `crowds_cifar10n.json`, `seed_spread.csv`, `annotator_dropout.csv` and `balance_term.csv` by the
scripts of the same names.
`scripts/real_world_tables.py FOLDER` measures the label-free portfolio on Lost, MSRCv2 and BirdSong next to
its members and clean labels (`real_world_tables.csv`: commit 85f83cb, two seeds); `scripts/table_suite.py`
measures it on public tables with simulated candidates next to common baselines (`table_suite.csv`: commit
02cce88, that of the baselines 85f83cb).
"""
#: Columns of `TABLE.csv`.
TABLE_COLUMNS = (
    *("cell", "data", "corruption", "q", "n", "protocol", "method", "net", "seed", "fold"),
    *("epochs", "precision"),
    *("accuracy", "last10", "covered", "transductive", "candidates", "seconds", "stack"),
    *("hardware", "version", "commit", "torch", "date", "key"),
)
_TEXTS = ("hardware", "version", "commit", "torch")
_FRACTIONS = ("accuracy", "last10", "covered", "transductive", "candidates")
#: Measurements are all kept up to this epoch; after it, about five per doubling.
_ALL_UP_TO = 12
#: The same epoch for recalls, and the number of confusion matrices that are kept.
_RECALLS_UP_TO, _CONFUSION_FRAMES = 30, 8
#: The first bytes of every SQLite file.
_SQLITE_HEADER = b"SQLite format 3\0"


def export_csv(store: Store, out: TextIO) -> int:
    """Write one line per result, without learning curves; returns their number."""
    lines = store.lines()
    out.write(_to_csv((*COLUMNS, "spec"), lines))
    return len(lines)


def export_json(store: Store, out: TextIO) -> int:
    """Write everything as one JSON object per line; returns their number."""
    lines = [json.dumps(result.to_dict(), sort_keys=True) + "\n" for result in store]
    out.write("".join(lines))
    return len(lines)


def import_results(store: Store, path: Path) -> tuple[int, int]:
    """Add the results of another store, of an exported CSV or JSON file, or of a published folder.

    All results are added, or none. CSV files and folders lack details: a run that the store contains with
    the same date is skipped.

    Returns:
        The number of results read, and of new ones.
    """
    if path.is_dir() or path.suffix == ".csv":
        results = read_folder(path) if path.is_dir() else _read_file(path)
        known = {(line["key"], line["when"]) for line in store.lines()}
        return len(results), store.add(*(r for r in results if (r.spec.key, r.when) not in known))
    with path.open("rb") as file:
        is_sqlite = file.read(len(_SQLITE_HEADER)) == _SQLITE_HEADER
    if is_sqlite:
        with Store(path, read_only=True) as other:
            results = list(other)
    else:
        results = _read_file(path)
    return len(results), store.add(*results)


def _read_file(path: Path) -> list[RunResult]:
    """Read a CSV file, or JSON lines."""
    with path.open(encoding="utf-8", newline="") as file:
        if path.suffix == ".csv":
            return _parse(path, enumerate(csv.DictReader(file), 2), _from_csv_line)
        lines = ((number, line) for number, line in enumerate(file, 1) if line.strip())
        return _parse(path, lines, lambda line: RunResult.from_dict(json.loads(line)))


def _from_csv_line(line: dict[str, str]) -> RunResult:
    values: dict[str, Any] = {name: float(line[name]) for name in NUMBERS}
    values |= {name: unguard_formula(line[name]) for name in PROVENANCE}
    return RunResult.from_dict(values | {"spec": json.loads(line["spec"]), "stack": int(line["stack"])})


def _parse(path: Path, lines: Iterable[tuple[int, Line]], parse: Callable[[Line], Value]) -> list[Value]:
    """Parse the numbered lines of a file; a malformed line raises `StoreError`."""
    values: list[Value] = []
    number = 0
    remedy = "nothing was imported. Pass what `propall results export` wrote, unchanged."
    try:
        for number, line in lines:  # noqa: B007  (named in the errors)
            values.append(parse(line))
    except UnicodeDecodeError as error:
        raise StoreError(f"{path}: after line {number}, not UTF-8 text ({error}); {remedy}") from error
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, csv.Error) as error:
        raise StoreError(f"{path}: line {number} is not a result ({error}); {remedy}") from error
    return values


def write_folder(store: Store, folder: Path) -> dict[str, int]:
    """Publish the results of the paper's tables; returns the number of runs by table.

    Files of tables without results are removed, since `details.jsonl` no longer covers them. Every file is
    replaced at once, but not all together, since the folder may hold other files: after an interruption some
    are new and some old, and writing the folder again completes it.
    """
    results = {result.spec.key: result for result in store.newest()}
    counts: dict[str, int] = {}
    written: dict[str, RunResult] = {}
    for name in TABLES:
        lines = []
        for protocol in reproduction.protocols_with_results(name, store):
            for cell in reproduction.select_cells(name, protocol=protocol):
                # Runs that a protocol shares with another are listed under the other.
                keys = [spec.key for spec in cell.specs if spec.protocol == protocol and spec.key in results]
                lines += [_table_line(cell.cell.name, results[key]) for key in keys]
                written |= {key: results[key] for key in keys}
        _write_table(folder, name, lines, counts)
    lines = []
    for protocol in modern.protocols_with_results(results):
        for row in modern.select_rows(protocol=protocol):
            keys = [spec.key for spec in row.specs if spec.key in results]
            lines += [_table_line(f"{MODERN}/{row.row.name}", results[key]) for key in keys]
            written |= {key: results[key] for key in keys}
    _write_table(folder, MODERN, lines, counts)
    atomic_files.write_text(folder / "README.md", _README)
    with atomic_files.replacing(folder / DETAILS) as part, part.open("w", encoding="utf-8") as out:
        for result in written.values():
            out.write(json.dumps(_details(result), sort_keys=True, separators=(",", ":")) + "\n")
    expected = [*(f"{name}.csv" for name in counts), "README.md", DETAILS]
    if missing := [name for name in expected if not (folder / name).is_file()]:
        raise StoreError(
            f"results: {folder / missing[0]} was deleted while the folder was written. Run the same command "
            "again."
        )
    return counts


def _write_table(folder: Path, name: str, lines: list[dict[str, Any]], counts: dict[str, int]) -> None:
    """Write the runs of a table, or remove its file if there are none."""
    if lines:
        counts[name] = len(lines)
        atomic_files.write_text(folder / f"{name}.csv", _to_csv(TABLE_COLUMNS, lines))
    else:
        (folder / f"{name}.csv").unlink(missing_ok=True)


def read_folder(folder: Path) -> list[RunResult]:
    """Read what `write_folder` wrote; learning curves are thinned out."""
    path = folder / DETAILS
    if not path.exists():
        hint = "give a folder written by `propall results export FOLDER/`."
        raise StoreError(f"results: {path} does not exist; {hint}")
    with path.open(encoding="utf-8") as lines:
        details = dict(_parse(path, enumerate(lines, 1), _read_details))
    results: dict[str, RunResult] = {}
    for file in [
        folder / f"{name}.csv" for name in (*TABLES, MODERN)
    ]:  # a folder may contain other files too
        if file.exists():
            with file.open(encoding="utf-8", newline="") as rows:
                numbered = enumerate(csv.DictReader(rows), 2)
                for result in _parse(file, numbered, lambda line: _from_table_line(line, details)):
                    results.setdefault(result.spec.key, result)
    return list(results.values())


def open_folder(folder: Path) -> Store:
    """Return the results of a published folder as a store in memory."""
    store = Store(":memory:")
    store.add(*read_folder(folder))
    return store


def _table_line(cell: str, result: RunResult) -> dict[str, Any]:
    spec = result.spec
    corruption: dict[str, Any] = {} if spec.corruption is None else vars(spec.corruption)
    values: dict[str, Any] = {
        "cell": cell,
        "data": spec.data,
        "corruption": "own" if spec.corruption is None else spec.corruption.name,
        "q": corruption.get("q", corruption.get("rate", "")),
        "n": corruption.get("n", ""),
        "protocol": spec.protocol,
        "method": spec.method.name,
        "net": spec.net if spec.trains_network else "",
        "seed": spec.seed,
        "fold": "" if spec.split.fold is None else spec.split.fold,
        "epochs": spec.recipe.epochs if spec.trains_network else "",
        "precision": spec.recipe.precision if spec.trains_network else "",
        "seconds": round(result.seconds, 4),
        "date": result.when,
        "key": spec.key,
    }
    values |= {name: round(getattr(result, name), 6) for name in _FRACTIONS}
    return values | {name: getattr(result, name) for name in ("stack", *_TEXTS)}


def _from_table_line(line: dict[str, str], details: dict[str, dict[str, Any]]) -> RunResult:
    if (key := line["key"]) not in details:
        raise ValueError(f"{DETAILS} lacks run {key}; an export to this folder was interrupted, so repeat it")
    numbers = {name: float(line[name]) for name in (*_FRACTIONS, "seconds")}
    texts = {name: unguard_formula(line[name]) for name in _TEXTS}
    others = {"stack": int(line["stack"]), "when": line["date"]}
    return RunResult.from_dict({**details[key], **numbers, **texts, **others})


def _read_details(line: str) -> tuple[str, dict[str, Any]]:
    values = json.loads(line)
    return values["key"], values


def _details(result: RunResult) -> dict[str, Any]:
    """Return the spec and the non-empty values by epoch."""
    by_epoch: dict[str, Any] = {
        "curve": {epoch: round(value, 4) for epoch, value in _thin(result.curve).items()},
        "times": {epoch: round(value, 3) for epoch, value in _thin(result.times).items()},
        "recalls": {
            epoch: [round(recall, 3) for recall in recalls]
            for epoch, recalls in _thin(result.recalls, _RECALLS_UP_TO).items()
        },
        "confusions": select_frames(result.confusions, _CONFUSION_FRAMES),
    }
    return {
        "key": result.spec.key,
        "spec": result.spec.to_dict(),
        **{name: values for name, values in by_epoch.items() if values},
    }


def _thin(values: dict[int, Value], all_up_to: int = _ALL_UP_TO) -> dict[int, Value]:
    kept, next_epoch = {}, 0.0
    for epoch in sorted(values):
        if epoch <= all_up_to or epoch >= next_epoch or epoch == max(values):
            kept[epoch] = values[epoch]
            next_epoch = epoch * 2**0.2
    return kept


def select_frames(values: dict[int, Value], limit: int) -> dict[int, Value]:
    """Select at most `limit` epochs: the first, the last, and others that are denser at the start."""
    epochs = sorted(values)
    if len(epochs) <= limit:
        return {epoch: values[epoch] for epoch in epochs}
    targets = (epochs[0] * (epochs[-1] / epochs[0]) ** (i / (limit - 1)) for i in range(limit))
    selected = {min(epochs, key=lambda epoch: abs(epoch - target)) for target in targets}
    return {epoch: values[epoch] for epoch in sorted(selected)}


def _to_csv(columns: Iterable[str], lines: Iterable[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, tuple(columns), lineterminator="\n")
    writer.writeheader()
    for line in lines:
        writer.writerow(
            {name: guard_formula(value) if isinstance(value, str) else value for name, value in line.items()}
        )
    return out.getvalue()

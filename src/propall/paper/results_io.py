"""Results as files that people read and a repository keeps: a CSV per table, and one file with the details.

`TABLE.csv` has one line per run. `details.jsonl` has, for each run once, its full spec and what is known of
it by epoch, thinned out. Together they are enough to fill a store again.
"""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from propall import atomic_files
from propall.paper import reproduction
from propall.paper.results import RunResult
from propall.paper.store import Store, StoreError
from propall.paper.tables import TABLES

Value = TypeVar("Value")

DETAILS = "details.jsonl"
_README = """\
# Results

Written by `propall results export results/`; read by `propall report --results results/` and
`propall results import results/`. One CSV per table of the paper, one line per run:

- `cell`: its name for `propall reproduce`; a run that two tables share is in both.
- `data`, `corruption`, `q` (or rate), `n` (candidates), `protocol`, `method`, `net`, `seed`, `fold`,
  `epochs` and `precision` (of matrix products on a GPU).
- `accuracy`: on the test set after the last epoch; `last10`: its mean over the last ten.
- `covered`, `transductive`: shares of training rows whose prediction is a candidate, and whose likeliest
  candidate is true; `candidates`: their mean number.
- `seconds`: of computing with all testing, an equal share where `stack` runs were trained together.
- `hardware`, `version`, `commit`, `torch`, `date`: where it came from; a commit that ends in `-dirty` had
  changes that were not committed yet; `key`: of the run's full description.

`details.jsonl` has that description and what is known by epoch, thinned out.

Other files here are not of the paper's tables: `selection.csv` and `calibration.csv` are written by
`propall.paper.studies.selection`, `annotators.json` by `propall annotators`.
"""
#: What a line of `TABLE.csv` says about a run.
COLUMNS = (
    *("cell", "data", "corruption", "q", "n", "protocol", "method", "net", "seed", "fold"),
    *("epochs", "precision"),
    *("accuracy", "last10", "covered", "transductive", "candidates", "seconds", "stack"),
    *("hardware", "version", "commit", "torch", "date", "key"),
)
_TEXTS = ("hardware", "version", "commit", "torch")
_SHARES = ("accuracy", "last10", "covered", "transductive", "candidates")
#: Up to this epoch every measurement is kept, from there on about five in a doubling.
_ALL_UP_TO = 12
#: As far as single classes are followed epoch by epoch, and how many confusion matrices are kept.
_CLASSES_UP_TO, _FRAMES = 30, 8


def write_folder(store: Store, folder: Path) -> dict[str, int]:
    """Write what a store holds of the paper's tables; returns the number of runs by table.

    The files of tables that it holds nothing of are removed: their runs would lack details.
    """
    folder.mkdir(parents=True, exist_ok=True)
    results = {result.spec.key: result for result in store.newest()}
    counts: dict[str, int] = {}
    written: dict[str, RunResult] = {}
    for name in TABLES:
        lines = []
        for protocol in reproduction.protocols_with_results(name, store):
            for wanted in reproduction.select_cells(name, protocol=protocol):
                # What a protocol shares with another is listed there.
                own = [spec.key for spec in wanted.specs if spec.protocol == protocol and spec.key in results]
                lines += [_line(wanted.cell.name, results[key]) for key in own]
                written |= {key: results[key] for key in own}
        if lines:
            counts[name] = len(lines)
            _write(folder / f"{name}.csv", [_csv(lines)])
        else:
            (folder / f"{name}.csv").unlink(missing_ok=True)
    _write(folder / "README.md", [_README])
    details = (
        json.dumps(_details(result), sort_keys=True, separators=(",", ":")) for result in written.values()
    )
    _write(folder / DETAILS, (line + "\n" for line in details))
    return counts


def read_folder(folder: Path) -> list[RunResult]:
    """The results that `write_folder` wrote; by epoch they know only what was kept."""
    path = folder / DETAILS
    if not path.exists():
        raise StoreError(
            f"results: there is no {path}; give a folder that `propall results export FOLDER/` wrote."
        )
    details = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            values = json.loads(line)
            details[values.pop("key")] = values
        except (ValueError, KeyError, AttributeError) as error:
            raise StoreError(f"results: line {number} of {path} is no result ({error}).") from error
    found: dict[str, RunResult] = {}
    for file in [folder / f"{name}.csv" for name in TABLES]:  # a folder may hold other files too
        if not file.exists():
            continue
        with file.open(encoding="utf-8", newline="") as lines:
            for number, values in enumerate(csv.DictReader(lines), 2):
                try:
                    if values["key"] not in found:
                        found[values["key"]] = _result(values, details[values["key"]])
                except (KeyError, TypeError, ValueError) as error:
                    raise StoreError(
                        f"results: line {number} of {file} is no result, or {path} lacks it ({error}). Write "
                        "the folder again with `propall results export`."
                    ) from error
    return list(found.values())


def open_folder(folder: Path) -> Store:
    """The results of a folder in a store in memory."""
    store = Store(":memory:")
    store.add(*read_folder(folder))
    return store


def import_folder(store: Store, folder: Path) -> tuple[int, int]:
    """Add a folder's results that a store does not hold; returns how many were read and how many new.

    A run that the store holds with the same date is left alone: the store knows more about it.
    """
    results = read_folder(folder)
    known = {(line["key"], line["when"]) for line in store.lines()}
    return len(results), store.add(*(r for r in results if (r.spec.key, r.when) not in known))


def _line(cell: str, result: RunResult) -> dict[str, Any]:
    spec = result.spec
    law: dict[str, Any] = {} if spec.corruption is None else vars(spec.corruption)
    values: dict[str, Any] = {
        "cell": cell,
        "data": spec.data,
        "corruption": "own" if spec.corruption is None else spec.corruption.name,
        "q": law.get("q", law.get("rate", "")),
        "n": law.get("n", ""),
        "protocol": spec.protocol,
        "method": spec.method.name,
        "net": spec.net if spec.trains_a_net else "",
        "seed": spec.seed,
        "fold": "" if spec.split.fold is None else spec.split.fold,
        "epochs": spec.recipe.epochs if spec.trains_a_net else "",
        "precision": spec.recipe.precision if spec.trains_a_net else "",
        "seconds": round(result.seconds, 4),
        "date": result.when,
        "key": spec.key,
    }
    values |= {name: round(getattr(result, name), 6) for name in _SHARES}
    return values | {name: getattr(result, name) for name in ("stack", *_TEXTS)}


def _details(result: RunResult) -> dict[str, Any]:
    """The spec and what is known by epoch; what is empty is left out."""
    curve = _thinned(result.curve)
    by_epoch: dict[str, Any] = {
        "curve": {epoch: round(value, 4) for epoch, value in curve.items()},
        "times": {epoch: round(value, 3) for epoch, value in _thinned(result.times).items()},
        "recalls": {
            epoch: [round(share, 3) for share in shares]
            for epoch, shares in _thinned(result.recalls, _CLASSES_UP_TO).items()
        },
        "confusions": frames(result.confusions, _FRAMES),
    }
    return {
        "key": result.spec.key,
        "spec": result.spec.to_dict(),
        **{name: values for name, values in by_epoch.items() if values},
    }


def _thinned(values: dict[int, Value], all_up_to: int = _ALL_UP_TO) -> dict[int, Value]:
    kept, next_one = {}, 0.0
    for epoch in sorted(values):
        if epoch <= all_up_to or epoch >= next_one or epoch == max(values):
            kept[epoch] = values[epoch]
            next_one = epoch * 2**0.2
    return kept


def frames(values: dict[int, Value], at_most: int) -> dict[int, Value]:
    """A few moments of many: the first, the last, and others closer together in the beginning."""
    epochs = sorted(values)
    if len(epochs) <= at_most:
        return {epoch: values[epoch] for epoch in epochs}
    wanted = (epochs[0] * (epochs[-1] / epochs[0]) ** (i / (at_most - 1)) for i in range(at_most))
    chosen = {min(epochs, key=lambda epoch: abs(epoch - place)) for place in wanted}
    return {epoch: values[epoch] for epoch in sorted(chosen)}


def _result(values: dict[str, str], details: dict[str, Any]) -> RunResult:
    numbers = {name: float(values[name]) for name in (*_SHARES, "seconds")}
    texts = {name: values[name] for name in _TEXTS}
    return RunResult.from_dict(
        {**details, **numbers, **texts, "stack": int(values["stack"]), "when": values["date"]}
    )


def _csv(lines: Sequence[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()


def _write(path: Path, text: Iterable[str]) -> None:
    """A file appears under its name only when it is complete."""
    with atomic_files.replacing(path) as part, part.open("w", encoding="utf-8", newline="") as out:
        out.writelines(text)

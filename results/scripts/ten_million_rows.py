"""Time and peak memory of fit, predict and resolve on a Parquet folder of 10 million rows x 50 columns.

The table has 45 numbers (some correlated, some with gaps, some irrelevant), a date, four categories, and a list of
candidates per row; a small network of random weights decides the true label, which is written to a folder of its own
and used for measuring only. Run it from the repository root; the table takes 2 GB, and the fit as much again::

    python results/scripts/ten_million_rows.py --folder ten_million --effort quick --options epochs=1
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from propall import __version__

ROWS, FILE_ROWS, GROUP_ROWS = 10_000_000, 500_000, 50_000
NUMBERS, CATEGORIES, CLASSES, HIDDEN = 45, 4, 10, 24
NAMES = np.array(["ash", "beech", "birch", "elm", "fir", "larch", "lime", "oak", "pine", "yew"])


def make_rows(rows: int, seed: int, part: int) -> tuple[pa.Table, pa.Table]:
    """Return features with candidates, and the true labels, of one file."""
    fixed, draw = np.random.default_rng(seed), np.random.default_rng((seed, part))
    mixing = fixed.normal(size=(12, NUMBERS)) * (fixed.random((12, NUMBERS)) < 0.3)
    inner, outer = fixed.normal(size=(12, HIDDEN)), fixed.normal(size=(HIDDEN, CLASSES))
    shifts = fixed.normal(size=(CATEGORIES, 30, 12)) * 0.5
    partner = np.array([fixed.permutation(np.delete(np.arange(CLASSES), i))[:3] for i in range(CLASSES)])

    factors = draw.normal(size=(rows, 12))
    levels = draw.zipf(1.6, size=(rows, CATEGORIES)) % np.array([4, 8, 15, 30])
    factors_seen = factors @ mixing + draw.normal(size=(rows, NUMBERS))
    moved = factors + sum(shifts[i, levels[:, i]] for i in range(CATEGORIES))
    day = draw.integers(0, 3650, rows)
    moved[:, 0] += np.sin(2 * np.pi * day / 365)
    scores = np.tanh(moved @ inner / 3) @ outer + 0.5 * draw.gumbel(size=(rows, CLASSES))
    truth = scores.argmax(1)

    mask = np.zeros((rows, CLASSES), dtype=bool)
    mask[np.arange(rows), truth] = True
    for place, chance in enumerate((0.6, 0.4, 0.2)):  # labels that are confused with the true one
        chosen = draw.random(rows) < chance
        mask[np.flatnonzero(chosen), partner[truth[chosen], place]] = True
    mask |= draw.random(mask.shape) < 0.05

    columns: dict[str, Any] = {}
    for i in range(NUMBERS):
        values = factors_seen[:, i].astype(np.float32)
        if i % 9 == 0:
            values[draw.random(rows) < 0.02] = np.nan
        columns[f"measure_{i:02d}"] = pa.array(values, from_pandas=True)
    columns["day"] = pa.array(np.datetime64("2015-01-01") + day.astype("timedelta64[D]"))
    for i in range(CATEGORIES):
        letters = np.array([f"{'abcd'[i]}{level}" for level in range(30)])
        columns[f"kind_{i}"] = pa.array(letters[levels[:, i]])
    row, column = np.nonzero(mask)
    offsets = np.concatenate([[0], np.cumsum(mask.sum(1))]).astype(np.int32)
    assert len(row) == offsets[-1]
    columns["candidates"] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(NAMES[column]))
    return pa.table(columns), pa.table({"truth": NAMES[truth]})


def write_table(folder: Path, rows: int, seed: int) -> None:
    """Write the table and its true labels as Parquet folders, unless they are there."""
    for part, start in enumerate(range(0, rows, FILE_ROWS)):
        name = f"part-{part:03d}.parquet"
        if (folder / "truth" / name).exists():
            continue
        tables = make_rows(min(FILE_ROWS, rows - start), seed, part)
        for kind, table in zip(("table", "truth"), tables, strict=True):
            (folder / kind).mkdir(parents=True, exist_ok=True)
            parquet.write_table(table, folder / kind / name, row_group_size=GROUP_ROWS)


def run(command: Sequence[str]) -> dict[str, Any]:
    """Run a command; return its wall-clock and processor time, and its peak resident memory."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    seconds = time.perf_counter() - start
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_gib": round(usage.ru_maxrss / 2**20, 3),
        "last_line": output.strip().splitlines()[-1] if output.strip() else "",
    }


def accuracy(folder: Path, file: Path, column: str) -> float:
    """Share of rows of a written table whose label is the true one."""
    correct, rows = 0, 0
    truths = (pd.read_parquet(path)["truth"].to_numpy() for path in sorted((folder / "truth").iterdir()))
    truth: NDArray[Any] = np.concatenate(list(truths))
    for batch in parquet.ParquetFile(file).iter_batches(1 << 18, columns=[column]):
        labels = batch.column(0).to_numpy(zero_copy_only=False)
        correct += int((labels == truth[rows : rows + len(labels)]).sum())
        rows += len(labels)
    return correct / rows


def main() -> None:
    """Write the table, run the three commands, and print what they took as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only-table", action="store_true", help="write the table and stop")
    arguments, fit_options = parser.parse_known_args()  # unknown ones are options of `propall fit`
    folder = arguments.folder
    write_table(folder, arguments.rows, arguments.seed)
    if arguments.only_table:
        return
    python = [sys.executable, "-m", "propall"]
    imports = "import torch, sklearn, scipy.stats, pandas, pyarrow.dataset, propall.tables.streaming"
    model, table = str(folder / "model"), str(folder / "table")
    results: dict[str, Any] = {
        "version": __version__,
        "hardware": f"{platform.machine()}, {os.cpu_count()} cores",
        "rows": arguments.rows,
        "table_bytes": sum(path.stat().st_size for path in (folder / "table").iterdir()),
    }
    results["interpreter"] = run([sys.executable, "-c", imports])
    shutil.rmtree(model, ignore_errors=True)
    fit = ["fit", table, "--label", "candidates", "--out", model, *fit_options]
    results["fit"] = run([*python, *fit])
    for command in ("predict", "resolve"):
        out = folder / f"{command}ed.parquet"
        results[command] = run([*python, command, table, "--model", model, "--out", str(out), "--quiet"])
        results[command]["accuracy"] = round(accuracy(folder, out, "propall_label"), 4)
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

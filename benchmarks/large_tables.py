"""Memory and time of `propall predict` and `resolve` on large tables.

    python benchmarks/large_tables.py FOLDER --rows 1000000 --format csv
    python benchmarks/large_tables.py FOLDER --rows 10000000 --format parquet

Writes a generated table of 50 numbers and a label column (two candidates of five classes) into FOLDER, fits a
model to its first 2000 rows, and runs the commands in processes of their own. Prints wall-clock and processor
seconds, peak memory, and peak memory above that of an interpreter that has loaded the libraries.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

COLUMNS, CLASSES, CHUNK = 50, 5, 100_000


def generate(rows: int, seed: int) -> pd.DataFrame:
    """Rows whose class is the largest of five sums of ten columns; the second candidate is random."""
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(rows, COLUMNS)).astype(np.float32).round(3)
    truth = X.reshape(rows, CLASSES, -1).sum(2).argmax(1)
    other = (truth + draw.integers(1, CLASSES, size=rows)) % CLASSES
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(COLUMNS)])
    return frame.assign(label=[f"c{a}|c{b}" for a, b in zip(truth, other, strict=True)])


def write(folder: Path, rows: int, kind: str) -> Path:
    """Write the table in parts, as one CSV file or a folder of Parquet files."""
    path = folder / (f"{rows}.csv" if kind == "csv" else f"{rows}")
    if path.exists():
        return path
    if kind == "parquet":
        path.mkdir()
    for number in range(-(-rows // CHUNK)):
        frame = generate(min(CHUNK, rows - number * CHUNK), number)
        if kind == "parquet":
            frame.to_parquet(path / f"{number:05}.parquet")
        else:
            frame.to_csv(path, mode="a" if number else "w", header=not number, index=False)
    return path


LIBRARIES = "import propall.tables.resolution, propall.report.model_pages, pyarrow.dataset"


def run(*words: object) -> dict[str, float]:
    """Run Python; return its seconds and its peak memory in GiB."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *map(str, words)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(map(str, words))} failed")
    return {
        "seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_gib": round(usage.ru_maxrss / 2**20, 3),
    }


def main() -> None:
    """Measure both commands and print JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--format", choices=("csv", "parquet"), default="csv")
    parser.add_argument("--commands", nargs="+", default=["predict", "resolve"])
    options = parser.parse_args()
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    table = write(folder, options.rows, options.format)
    generate(2000, 0).to_csv(folder / "train.csv", index=False)
    model = folder / "model"
    if not model.exists():
        words = ("--label", "label", "--out", model, "--options", "epochs=20", "--options", "search=false")
        run("-m", "propall", "fit", folder / "train.csv", *words, "--quiet")
    idle = run("-c", LIBRARIES)["peak_gib"]
    for command in options.commands:
        out = folder / f"{command}.{options.format}"
        words = (command, table, "--model", model, "--out", out, "--quiet")
        result = run("-m", "propall", *words)
        result["above_libraries_gib"] = round(result["peak_gib"] - idle, 3)
        print(json.dumps({"command": command, "rows": options.rows, **result}), flush=True)


if __name__ == "__main__":
    main()

"""Lists of a model that are sometimes wrong, as labels of a table: trusted as estimated, or completely.

Every row has a list of one or two classes. A share of the lists lacks the true class, and everything else in
them is drawn at random. `propall fit --lists` trains with `--trust auto`, the default, and with
`--trust full`; `propall resolve` then labels the rows. True labels are used for measuring only. Run it from
the repository root to measure it again::

    python results/scripts/trust.py results/trust.csv
"""

import argparse
import contextlib
import io
import itertools
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.model_selection import train_test_split

from propall import __version__
from propall.cli import main as propall
from propall.provenance import hardware

TABLES = {"wine": load_wine, "digits": load_digits, "breast_cancer": load_breast_cancer}
#: One network instead of five, and three folds: the comparison is between two ways to train.
OPTIONS = ("members=1", "folds=3", "search=false", "page=false")


def call(*words: object) -> str:
    """Run a command of propall and return what it prints."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            propall([str(word) for word in words])
        except SystemExit as stop:
            if stop.code:
                raise RuntimeError(output.getvalue()) from stop
    return output.getvalue()


def replies(truth: NDArray[np.int64], size: int, wrong: float, seed: int) -> list[str]:
    """Return one list of classes per row; a share of them lacks the true class."""
    draw, k, lists = np.random.default_rng(seed), int(truth.max()) + 1, []
    for label in truth:
        others = draw.permutation([y for y in range(k) if y != label])
        first = [] if draw.random() < wrong else [label]
        lists.append(", ".join(f"class {y}" for y in [*first, *others][:size]))
    return lists


def measure(name: str, rows: int, size: int, wrong: float, seed: int) -> list[dict[str, Any]]:
    """Return the share of correct labels and the test accuracy for both ways to train."""
    X, truth = TABLES[name](return_X_y=True)
    X, test_X, truth, test_truth = train_test_split(
        X, truth, test_size=0.3, stratify=truth, random_state=seed
    )
    X, truth = X[:rows], truth[:rows]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        table, test, out = (Path(folder) / file for file in ("table.csv", "test.csv", "out.csv"))
        frame = pd.DataFrame(X).add_prefix("x").assign(reply=replies(truth, size, wrong, seed))
        frame.to_csv(table, index=False)
        pd.DataFrame(test_X).add_prefix("x").to_csv(test, index=False)
        options = [word for option in OPTIONS for word in ("-O", option)]
        classes = ",".join(f"class {y}" for y in range(int(truth.max()) + 1))
        for trust in ("auto", "full"):
            start, model = time.perf_counter(), Path(folder) / trust
            words = ("--lists", "reply", "-O", f"classes={classes}", *options, "--trust", trust)
            printed = call("fit", table, *words, "--out", model)
            said = re.search(r"trusted to ([\d.]+) %", printed)
            call("resolve", table, "--model", model, "--out", out, "-O", "page=false")
            labels = pd.read_csv(out)["propall_label"]
            call("predict", test, "--model", model, "--out", out)
            predicted = pd.read_csv(out)["propall_label"]
            found.append(
                {
                    "trust": trust,
                    "correct": float((labels == [f"class {y}" for y in truth]).mean()),
                    "test_accuracy": float((predicted == [f"class {y}" for y in test_truth]).mean()),
                    "trusted_to": float(said[1]) / 100 if said else 1.0,
                    "seconds": time.perf_counter() - start,
                }
            )
    return found


def main() -> None:
    """Measure, and write one row per table, kind of lists, seed and way to train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", nargs="+", choices=list(TABLES), default=["wine", "digits"])
    parser.add_argument("--rows", type=int, default=400, help="at most this many training rows")
    parser.add_argument("--wrong", type=float, nargs="+", default=[0.0, 0.2])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for data, size, wrong, seed in itertools.product(
        options.data, (1, 2), options.wrong, range(options.seeds)
    ):
        key = {"data": data, "rows": options.rows, "size": size, "wrong": wrong, "seed": seed}
        found = measure(data, options.rows, size, wrong, seed)
        rows += [{**key, **row, "propall": __version__, "hardware": hardware("cpu")} for row in found]
        pd.DataFrame(rows).to_csv(options.out, index=False, float_format="%.5g")
        print(key, found, flush=True)
    table = pd.DataFrame(rows).pivot_table(
        ["correct", "test_accuracy"], ["data", "size", "wrong"], "trust", sort=False
    )
    print((100 * table).round(1).to_string())


if __name__ == "__main__":
    main()

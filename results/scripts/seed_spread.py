"""How much the accuracy of the default estimator depends on the seed: 20 seeds on ten small problems.

python results/scripts/seed_spread.py --out results/seed_spread.csv

Data, split and candidate sets are fixed per problem; only `random_state` of the estimator differs.
"""

import argparse
import csv
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_iris,
    load_wine,
    make_blobs,
    make_classification,
)
from sklearn.model_selection import train_test_split

from propall import PartialLabelClassifier

COLUMNS = ("setting", "problem", "rows", "classes", "seeds", "median", "worst", "best", "gap", "seconds")


class Problem(NamedTuple):
    """Training rows with candidate sets, and test rows with labels."""

    name: str
    X: NDArray[np.float64]
    candidates: NDArray[np.bool_]
    X_test: NDArray[np.float64]
    truth: NDArray[np.int64]


def problems() -> Iterator[Problem]:
    """Ten small problems; q is the probability that a wrong class is a candidate."""
    for loader, q in ((load_iris, 0.3), (load_wine, 0.3), (load_breast_cancer, 0.3)):
        yield _problem(loader.__name__.removeprefix("load_"), *loader(return_X_y=True), q)
    digits = load_digits(return_X_y=True)
    for q in (0.1, 0.3, 0.7):
        yield _problem(f"digits, q {q}", *digits, q)
    yield _problem("digits, 300 rows, q 0.3", *digits, 0.3, rows=300)
    yield _problem("blobs, 20 classes", *make_blobs(1000, 10, centers=20, cluster_std=3, random_state=0), 0.2)
    for n_classes, seed in ((5, 1), (10, 2)):
        made = make_classification(
            1000, 20, n_informative=10, n_classes=n_classes, n_clusters_per_class=1, random_state=seed
        )
        yield _problem(f"generated, {n_classes} classes", *made, 0.3)


def _problem(name: str, X: NDArray[np.float64], y: NDArray[np.int64], q: float, rows: int = 0) -> Problem:
    X, X_test, y, truth = train_test_split(X, y, test_size=0.4, random_state=0, stratify=y)
    if rows:
        X, y = X[:rows], y[:rows]
    k = int(y.max()) + 1
    draw = np.random.default_rng(0)
    candidates = draw.random((len(y), k)) < q
    candidates[np.arange(len(y)), y] = True
    full = candidates.all(1)
    candidates[full, (y[full] + 1) % k] = False
    return Problem(name, X.astype(np.float64), candidates, X_test.astype(np.float64), truth)


SETTINGS = {
    "default": {},
    "constant rate": {"schedule": "constant"},
    "one cycle": {"schedule": "one_cycle"},
    "3 members": {"n_estimators": 3},
    "cc": {"method": "cc"},
}


def measure(setting: str, problem: Problem, seeds: int) -> dict[str, object]:
    """Median, worst and best test accuracy in percent over the seeds."""
    start = time.perf_counter()
    scores = []
    for seed in range(seeds):
        model = PartialLabelClassifier(**SETTINGS[setting], random_state=seed, device="cpu")
        model.fit(problem.X, problem.candidates)
        scores.append(100 * (model.predict(problem.X_test) == problem.truth).mean())
    median, worst = float(np.median(scores)), min(scores)
    numbers = (f"{value:.2f}" for value in (median, worst, max(scores), median - worst))
    seconds = f"{(time.perf_counter() - start) / seeds:.2f}"
    rows, classes = problem.candidates.shape
    return dict(zip(COLUMNS, (setting, problem.name, rows, classes, seeds, *numbers, seconds), strict=True))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the settings on all problems and write one line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="CSV file to write; standard output by default.")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=["default"])
    chosen = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    lines = []
    for problem in problems():
        for setting in chosen.settings:
            lines.append(measure(setting, problem, chosen.seeds))
            print(*lines[-1].values(), sep=",", file=sys.stderr, flush=True)
    with chosen.out.open("w", newline="") if chosen.out else sys.stdout as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    main()

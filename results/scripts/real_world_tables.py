"""Real-world tables, label-free: a portfolio weighed inside each training fold, next to the oracle.

On Lost, MSRCv2 and BirdSong, five fixed folds and two seeds. True labels are used for measuring only.
Writes to the folder: `accuracy.csv`, one line per data set, seed, fold and model; `summary.json`, means;
`DATA_SEED.npz`, the out-of-bag and test probabilities of every member, for comparing other criteria.

    python results/scripts/real_world_tables.py FOLDER
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from propall import __version__
from propall.data.catalog import load
from propall.data.dataset import Problem
from propall.estimators.portfolio import PartialLabelPortfolio
from propall.labels.candidates import CandidateLabels
from propall.provenance import commit, hardware
from propall.training.compiled import best_device

DATA = ("lost", "msrcv2", "birdsong")
FOLDS, SEEDS = 5, (0, 1)
#: Targets of the label-free mixture, and the best published accuracies with open code.
TARGETS = {"lost": 81.0, "msrcv2": 62.0, "birdsong": 77.0}
PUBLISHED = {"lost": 81.2, "msrcv2": 54.8, "birdsong": 77.8}
WEIGHED, CHOSEN, MEAN, ORACLE = "weighed portfolio", "best by held-out sets", "mean of all", "oracle"


def measure_fold(problem: Problem, seed: int, effort: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Accuracies of the mixture, its members and clean-label models on one fold, and the probabilities."""
    x, labels = _features(problem.train.x), CandidateLabels(problem.train.candidates, problem.classes)
    test_x, truth = _features(problem.test_x), problem.test_truth.numpy()
    start = time.perf_counter()
    portfolio = PartialLabelPortfolio(effort, random_state=seed, report=lambda line: print("   ", line))
    portfolio.fit(x, labels)
    seconds = time.perf_counter() - start
    tests = {name: model.predict_proba(test_x) for name, model in portfolio.members_.items()}
    rows = [
        {**result, "model": result["name"], "accuracy": _accuracy(tests[result["name"]], truth)}
        for result in portfolio.results_
        if result["name"] in tests
    ]
    best = max(rows, key=lambda row: row["score"])
    rows += [
        {"model": WEIGHED, "accuracy": _accuracy(portfolio.predict_proba(test_x), truth), "seconds": seconds},
        {"model": CHOSEN, "accuracy": best["accuracy"], "name": best["model"]},
        {"model": MEAN, "accuracy": _accuracy(np.mean(list(tests.values()), axis=0), truth)},
    ]
    resolved = portfolio.out_of_fold_.column == problem.truth.numpy()
    rows.append({"model": "training rows resolved", "accuracy": 100 * float(resolved.mean())})
    rows += _clean_ceilings(problem, x, test_x, truth, seed)
    arrays = {f"test/{name}": values.astype(np.float16) for name, values in tests.items()}
    arrays |= {f"held_out/{name}": v.astype(np.float16) for name, v in portfolio.out_of_bag_.items()}
    arrays |= {"candidates": labels.to_numpy(), "truth": problem.truth.numpy(), "test_truth": truth}
    return rows, arrays


def _features(x: Any) -> np.ndarray:
    return x.numpy().astype(np.float32)  # type: ignore[no-any-return]


def _accuracy(probabilities: np.ndarray, truth: np.ndarray) -> float:
    return 100 * float((probabilities.argmax(1) == truth).mean())


def _clean_ceilings(
    problem: Problem, x: np.ndarray, test_x: np.ndarray, truth: np.ndarray, seed: int
) -> list[dict[str, Any]]:
    """Models fitted to the true labels."""
    models = {
        "clean labels, extra trees": ExtraTreesClassifier(400, n_jobs=-1, random_state=seed),
        "clean labels, RBF-SVC": make_pipeline(StandardScaler(), SVC(C=10)),
    }
    known = problem.truth.numpy()
    return [
        {"model": name, "accuracy": 100 * float(model.fit(x, known).score(test_x, truth))}
        for name, model in models.items()
    ]


def measure(data: str, seed: int, folder: Path, *, effort: str, folds: int, root: Path | None) -> None:
    """Measure one data set with one seed; writes its lines and probabilities."""
    source = load(data, root)
    lines: list[dict[str, Any]] = []
    arrays: dict[str, Any] = {}
    for fold in range(folds):
        rows, fold_arrays = measure_fold(source.fold(fold, FOLDS, standardize=None), seed, effort)
        lines += [{"data": data, "seed": seed, "fold": fold, **row} for row in rows]
        arrays |= {f"{fold}/{name}": values for name, values in fold_arrays.items()}
        mixture = next(row["accuracy"] for row in rows if row["model"] == WEIGHED)
        print(f"{data}, seed {seed}, fold {fold}: {mixture:.2f} %", flush=True)
        pd.DataFrame(lines).to_csv(folder / f"part_{data}_{seed}.csv", index=False)
    np.savez_compressed(folder / f"{data}_{seed}.npz", **arrays)


def summarize(table: pd.DataFrame, folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Write all lines and their means; returns the means."""
    table.to_csv(folder / "accuracy.csv", index=False, float_format="%.4f")
    summary: dict[str, Any] = {**settings, "version": __version__, "commit": commit()}
    summary["hardware"] = hardware(best_device("auto"))
    for data, part in table.groupby("data", sort=False):
        members = part[part["score"].notna()]
        means = part.groupby("model", sort=False)["accuracy"].agg(["mean", "std"])
        by_fold = members.groupby(["seed", "fold"])["accuracy"].max().mean()
        best = members.groupby("model")["accuracy"].mean()
        summary[str(data)] = {
            "accuracy": means["mean"].to_dict(),
            "std": means["std"].to_dict(),
            "weights": members.groupby("model", sort=False)["weight"].mean().to_dict(),
            f"{ORACLE} (one member for all folds)": {"model": best.idxmax(), "accuracy": float(best.max())},
            f"{ORACLE} (best member of each fold)": float(by_fold),
            "target": TARGETS[str(data)],
            "published with open code": PUBLISHED[str(data)],
        }
        print(f"\n{data}\n{means.round(2).to_string()}")
        print(f"oracle: {best.idxmax()} {best.max():.2f}; best member of each fold: {by_fold:.2f}")
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return summary


def main() -> None:
    """Measure in one process per data set and seed, so that they share the GPU and the cores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--folds", type=int, default=FOLDS, help="measure only the first folds")
    parser.add_argument("--effort", default="best", choices=("quick", "normal", "best"))
    parser.add_argument("--root", type=Path, help="folder of the data sets; by default $PROPALL_DATA")
    parser.add_argument("--part", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.part:
        measure(
            options.data[0],
            options.seeds[0],
            options.folder,
            effort=options.effort,
            folds=options.folds,
            root=options.root,
        )
        return
    start = time.perf_counter()
    shared = [str(options.folder), "--effort", options.effort, "--folds", str(options.folds), "--part"]
    shared += [] if options.root is None else ["--root", str(options.root)]
    parts = [(data, seed) for data in options.data for seed in options.seeds]
    processes = [
        subprocess.Popen([sys.executable, __file__, *shared, "--data", data, "--seeds", str(seed)])
        for data, seed in parts
    ]
    failed = [part for part, process in zip(parts, processes, strict=True) if process.wait()]
    # Folds that were finished before a failure still count.
    files = [options.folder / f"part_{data}_{seed}.csv" for data, seed in parts]
    tables = [pd.read_csv(path) for path in files if path.exists()]
    for path in files:
        path.unlink(missing_ok=True)
    seconds = time.perf_counter() - start
    settings = {"effort": options.effort, "seeds": options.seeds, "folds": options.folds, "seconds": seconds}
    summarize(pd.concat(tables), options.folder, settings)
    print(f"\n{seconds:.0f} s; results in {options.folder}")
    if failed:
        sys.exit(f"these parts failed: {failed}")


if __name__ == "__main__":
    main()

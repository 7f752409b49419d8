"""Real-world tables, label-free: a portfolio weighed inside each training fold, next to the oracle.

On Lost, MSRCv2 and BirdSong, five fixed folds and two seeds. True labels are used for measuring only. Folds
are measured in parallel processes of one thread each, without a GPU. Writes to the folder: `folds.jsonl`, one
line per data set, seed and fold as soon as it is finished (a second call measures only what is missing);
`DATA.npz`, the out-of-bag and test probabilities of every member, for comparing other criteria; and
`accuracy.csv` and `summary.json`.

    python results/scripts/real_world_tables.py FOLDER
    python results/scripts/real_world_tables.py FOLDER --only "lost/0/*" "msrcv2/*/0"
"""

import argparse
import fnmatch
import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

#: In order of decreasing time, so that no process is left alone at the end.
DATA = ("birdsong", "msrcv2", "lost")
FOLDS, SEEDS = 5, (0, 1)
#: Targets of the label-free mixture, and the best published accuracies with open code.
TARGETS = {"lost": 81.0, "msrcv2": 62.0, "birdsong": 77.0}
PUBLISHED = {"lost": 81.2, "msrcv2": 54.8, "birdsong": 77.8}
#: Accuracies in the ProPaLL paper.
PAPER = {"lost": 78.78, "msrcv2": 42.05, "birdsong": 70.49}
WEIGHED, CHOSEN, MEAN, ORACLE = "weighed portfolio", "best by held-out sets", "mean of all", "oracle"
RESOLVED = "training rows resolved"


class Unit(NamedTuple):
    """What one process measures."""

    data: str
    seed: int
    fold: int

    def __str__(self) -> str:
        return f"{self.data}/{self.seed}/{self.fold}"


def measure_fold(problem: Any, seed: int, effort: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Accuracies of the mixture, its members and clean-label models on one fold, and the probabilities."""
    from propall.estimators.portfolio import PartialLabelPortfolio
    from propall.labels.candidates import CandidateLabels

    x, labels = _features(problem.train.x), CandidateLabels(problem.train.candidates, problem.classes)
    test_x, truth = _features(problem.test_x), problem.test_truth.numpy()
    start = time.perf_counter()
    portfolio = PartialLabelPortfolio(effort, random_state=seed, device="cpu").fit(x, labels)
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
    rows.append({"model": RESOLVED, "accuracy": 100 * float(resolved.mean())})
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
    problem: Any, x: np.ndarray, test_x: np.ndarray, truth: np.ndarray, seed: int
) -> list[dict[str, Any]]:
    """Models fitted to the true labels."""
    linear = LogisticRegression(C=0.1, max_iter=300)
    models = {
        "clean labels, extra trees": ExtraTreesClassifier(400, random_state=seed),
        "clean labels, RBF-SVC": make_pipeline(StandardScaler(), SVC(C=10)),
        "clean labels, logistic regression": make_pipeline(StandardScaler(), linear),
    }
    known = problem.truth.numpy()
    return [
        {"model": name, "accuracy": 100 * float(model.fit(x, known).score(test_x, truth))}
        for name, model in models.items()
    ]


def measure(unit: Unit, effort: str, root: Path | None) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Measure one fold with one thread."""
    import torch

    from propall.data.catalog import load

    torch.set_num_threads(1)
    problem = load(unit.data, root).fold(unit.fold, FOLDS, standardize=None)
    rows, arrays = measure_fold(problem, unit.seed, effort)
    lines = [{**unit._asdict(), "effort": effort, **row} for row in rows]
    return lines, {f"{unit.seed}/{unit.fold}/{name}": values for name, values in arrays.items()}


class Results:
    """Finished folds: lines in a file that grows, and arrays in a file per data set."""

    def __init__(self, folder: Path, effort: str) -> None:
        self.folder, self.path = folder, folder / "folds.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        # The last line may be cut off.
        complete = [json.loads(line) for line in text.splitlines() if line.endswith("]")]
        self.folds = [rows for rows in complete if rows[0]["effort"] == effort]
        self.arrays: dict[str, dict[str, Any]] = {}

    @property
    def units(self) -> set[Unit]:
        """What has been measured."""
        return {Unit(rows[0]["data"], rows[0]["seed"], rows[0]["fold"]) for rows in self.folds}

    def add(self, unit: Unit, rows: list[dict[str, Any]], arrays: dict[str, Any]) -> None:
        """Append the lines of a fold and keep its arrays."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(rows) + "\n")
        self.folds.append(rows)
        self.arrays.setdefault(unit.data, {}).update(arrays)

    def save_arrays(self, data: str) -> None:
        """Write the arrays of a data set, with those of an earlier call."""
        path = self.folder / f"{data}.npz"
        earlier = dict(np.load(path)) if path.exists() else {}
        np.savez_compressed(path, **{**earlier, **self.arrays.get(data, {})})

    def table(self) -> pd.DataFrame:
        """All lines."""
        return pd.DataFrame([row for rows in self.folds for row in rows])


def summarize(table: pd.DataFrame, folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Write all lines, their means and the paired tests; returns the means."""
    from propall import __version__
    from propall.provenance import commit, hardware
    from propall.training.compiled import best_device

    table.to_csv(folder / "accuracy.csv", index=False, float_format="%.4f")
    summary: dict[str, Any] = {**settings, "version": __version__, "commit": commit()}
    summary["hardware"] = hardware(best_device("cpu"))
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
            "comparisons": comparisons(part, str(data)),
        }
    print(markdown(summary))
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return summary


def markdown(summary: dict[str, Any]) -> str:
    """The means and the comparisons as the tables of docs/portfolio.md."""
    names = [data for data in TARGETS if data in summary]
    head = f"| | {' | '.join(names)} |\n|---|{'--:|' * len(names)}"
    models = dict.fromkeys(model for data in names for model in summary[data]["accuracy"])
    lines = [head]
    for model in models:
        cells = []
        for data in names:
            accuracy, weight = (summary[data][key].get(model) for key in ("accuracy", "weights"))
            share = f" ({weight:.2f})" if weight else ""
            cells.append("" if accuracy is None else f"{accuracy:.1f}{share}")
        lines.append(f"| {model} | {' | '.join(cells)} |")
    by_fold = [f"{summary[data][f'{ORACLE} (best member of each fold)']:.1f}" for data in names]
    lines += [f"| {ORACLE}: best member of each fold | {' | '.join(by_fold)} |", "", head]
    for other in summary[names[0]]["comparisons"]:
        tests = [summary[data]["comparisons"][other] for data in names]
        cells = [f"{test['difference']:+.1f} (p = {test['p']:.2g})" for test in tests]
        lines.append(f"| {other} | {' | '.join(cells)} |")
    return "\n".join(lines)


def comparisons(part: pd.DataFrame, data: str) -> dict[str, dict[str, float]]:
    """The mixture against other results on the same folds, and against published means.

    The folds are those of `results/real.csv`, so those tests are paired by fold (means over the seeds). The
    training sets of folds overlap; the variance is corrected for that [nadeau2003inference].
    """
    ours = part[part["model"] == WEIGHED].groupby("fold")["accuracy"].mean()
    others: dict[str, Any] = {"the best published with open code": PUBLISHED[data], "the paper": PAPER[data]}
    stored = Path(__file__).parents[1] / "real.csv"
    if stored.exists():
        runs = pd.read_csv(stored).query("data == @data and protocol == 'folds5'")
        for name, title in (("propall", "the paper's method, reproduced"), ("ipal", "IPAL, reproduced")):
            others[title] = 100 * runs[runs["method"] == name].groupby("fold")["accuracy"].mean()
    tests = {}
    for name, other in others.items():
        difference = (ours - other).dropna()
        tests[name] = {"difference": float(difference.mean()), "p": corrected_p(difference.to_numpy())}
    return tests


def corrected_p(differences: np.ndarray) -> float:
    """Two-sided p-value of the t-test for differences over the folds of a cross-validation."""
    n = len(differences)
    if n < 2 or differences.std() == 0:
        return float("nan")
    variance = differences.var(ddof=1) * (1 / n + 1 / (FOLDS - 1))
    return float(2 * stats.t.sf(abs(differences.mean()) / np.sqrt(variance), n - 1))


def measure_all(units: Sequence[Unit], results: Results, effort: str, root: Path | None, jobs: int) -> None:
    """Measure the folds in parallel processes; what is finished is on disk at once."""
    # For the threads of forests in each process; OpenMP reads its variable when it is loaded.
    os.environ |= {"OMP_NUM_THREADS": "1", "LOKY_MAX_CPU_COUNT": "1"}
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        running = {pool.submit(measure, unit, effort, root): unit for unit in units}
        left = {data: sum(unit.data == data for unit in units) for data in DATA}
        for future in as_completed(running):
            unit = running[future]
            left[unit.data] -= 1
            try:
                rows, arrays = future.result()
            except Exception as error:  # the other folds still count
                print(f"{unit}: {error!r}", flush=True)
                continue
            results.add(unit, rows, arrays)
            mixture = next(row for row in rows if row["model"] == WEIGHED)
            print(f"{unit}: {mixture['accuracy']:.2f} % ({mixture['seconds']:.0f} s)", flush=True)
            if not left[unit.data]:
                results.save_arrays(unit.data)


def main() -> None:
    """Measure what is missing, and summarize everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", default=["*"], help="patterns of DATA/SEED/FOLD")
    parser.add_argument("--effort", default="best", choices=("quick", "normal", "best"))
    parser.add_argument("--root", type=Path, help="folder of the data sets; by default $PROPALL_DATA")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of processes")
    options = parser.parse_args()
    start = time.perf_counter()
    results = Results(options.folder, options.effort)
    units = [Unit(data, seed, fold) for seed in SEEDS for data in DATA for fold in range(FOLDS)]
    chosen = [unit for unit in units if any(fnmatch.fnmatch(str(unit), each) for each in options.only)]
    missing = [unit for unit in chosen if unit not in results.units]
    print(f"{len(missing)} folds to measure, {len(results.units)} already measured", flush=True)
    measure_all(missing, results, options.effort, options.root, options.jobs)
    seconds = time.perf_counter() - start
    if results.folds:
        summarize(results.table(), options.folder, {"effort": options.effort, "seconds": seconds})
    print(f"\n{seconds:.0f} s; results in {options.folder}")
    if failed := [str(unit) for unit in chosen if unit not in results.units]:
        raise SystemExit(f"these folds failed: {failed}")


if __name__ == "__main__":
    main()

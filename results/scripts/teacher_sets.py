"""A weak teacher's candidate sets train a student: against its top labels, its probabilities, self-training.

The teacher, a linear model fitted on 5 % of the rows, plays a zero-shot model: the student never sees a true
label. True labels are used for measuring only. Rows are images, or texts that come with SciPy: the docstrings
of ten of its packages, whose name is the class. Run it from the repository root to measure it again::

    python results/scripts/teacher_sets.py results/teacher_sets.csv --data digits docstrings
"""

import argparse
import importlib
import inspect
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from propall import CandidateLabels, PartialLabelClassifier, __version__, resolve_out_of_fold
from propall.data import load
from propall.estimators.calibration import log_softmax
from propall.labels.annotators import credible_sets
from propall.labels.predictions import estimate_miss_rate
from propall.tables.consensus import estimate_set_errors, weigh_sets

K = 10
#: Packages of SciPy whose docstrings are classified, and the number of characters of a text.
PACKAGES = (
    *("fft", "integrate", "interpolate", "linalg", "ndimage"),
    *("optimize", "signal", "sparse", "special", "stats"),
)
MIN_TEXT = 200
#: Self-training keeps predictions at least this probable, for so many rounds.
CONFIDENT, ROUNDS = 0.95, 4


def docstrings() -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Features and classes of the docstrings of SciPy's packages, without the names of the packages."""
    packages: dict[str, set[int]] = {}
    for i, name in enumerate(PACKAGES):
        package = importlib.import_module(f"scipy.{name}")
        for _, value in inspect.getmembers(package, lambda value: not inspect.ismodule(value)):
            text = inspect.getdoc(value) if callable(value) else None
            if text is not None and len(text) >= MIN_TEXT:
                text = re.sub(rf"scipy[.\w]*|>>>.*|\b{name}\b", " ", text)
                packages.setdefault(text, set()).add(i)
    # Some functions are in two packages.
    texts = {text: next(iter(classes)) for text, classes in packages.items() if len(classes) == 1}
    words = TfidfVectorizer(max_features=3000, sublinear_tf=True, stop_words="english").fit_transform(texts)
    X = TruncatedSVD(100, random_state=0).fit_transform(words)
    return X / X.std(), np.array(list(texts.values()))


def split_rows(name: str, rows: int, seed: int) -> list[NDArray[Any]]:
    """Features and true classes of training and test rows: X, test_X, truth, test_truth."""
    if name == "docstrings":
        X, truth = docstrings()
    elif name == "digits":
        X, truth = load_digits(return_X_y=True)
        X = X / 16
    else:
        source = load(name).first_per_class(2 * rows // K)
        X, truth = source.x.flatten(1).numpy(), source.truth.numpy()
        X = X[:, X.std(0) > 0]
    split: list[NDArray[Any]] = train_test_split(X, truth, test_size=0.3, stratify=truth, random_state=seed)
    return split


def student(kind: str, n: int, seed: int, *, sets: bool = False) -> PartialLabelClassifier:
    """Return the learner that every kind of label trains; a network learns single labels by cross-entropy."""
    if kind == "IPAL":
        return PartialLabelClassifier("ipal", random_state=seed)
    epochs = max(20, 1000 // -(-n // 256))
    options = {"widths": (128,)}
    return PartialLabelClassifier(
        "propall" if sets else "cc",
        "mlp",
        net_options=options,
        epochs=epochs,
        learning_rate=0.003,
        random_state=seed,
    )


def single(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return labels as sets of one."""
    sets: NDArray[np.bool_] = np.eye(K, dtype=bool)[labels]
    return sets


def measure(
    name: str, rows: int, share: float, seed: int, students: Sequence[str] = ("MLP", "IPAL")
) -> Iterator[dict[str, Any]]:
    """Yield the test accuracy of the teacher and of every student."""
    X, test_X, truth, test_truth = split_rows(name, rows, seed)
    n = len(X)
    known = np.random.default_rng(seed).choice(n, int(share * n), replace=False)
    teacher = LogisticRegression(max_iter=1000).fit(X[known], truth[known])
    p, test_p = np.zeros((n, K)), np.zeros((len(test_X), K))
    p[:, teacher.classes_], test_p[:, teacher.classes_] = (
        teacher.predict_proba(X),
        teacher.predict_proba(test_X),
    )

    def row(labels: str, chances: NDArray[Any], start: float, **more: Any) -> dict[str, Any]:
        accuracy = float((chances.argmax(1) == test_truth).mean())
        return {"labels": labels, "accuracy": accuracy, "seconds": time.perf_counter() - start, **more}

    start = time.perf_counter()
    yield row("teacher", test_p, start, student="none")
    for kind in students:
        start = time.perf_counter()
        top = student(kind, n, seed).fit(X, CandidateLabels.from_matrix(single(p.argmax(1))))
        yield row("its top label", top.predict_proba(test_X), start, student=kind)
        if kind == "MLP":  # the others cannot weigh rows
            start = time.perf_counter()
            rows_of, columns = np.nonzero(p >= 0.02)
            soft = student(kind, len(rows_of), seed)
            soft.fit(
                X[rows_of], CandidateLabels.from_matrix(single(columns)), sample_weight=p[rows_of, columns]
            )
            yield row("its probabilities (distillation)", soft.predict_proba(test_X), start, student=kind)
        start = time.perf_counter()
        current, trained = p, top
        for _ in range(ROUNDS):
            sure = current.max(1) >= min(CONFIDENT, np.quantile(current.max(1), 0.5))
            labels = CandidateLabels.from_matrix(single(current[sure].argmax(1)))
            trained = student(kind, int(sure.sum()), seed).fit(X[sure], labels)
            current = trained.predict_proba(X)
        yield row("self-training on confident labels", trained.predict_proba(test_X), start, student=kind)
        yield from _train_on_sets(kind, X, truth, p, seed, row, test_X)


def _train_on_sets(
    kind: str,
    X: NDArray[Any],
    truth: NDArray[Any],
    p: NDArray[Any],
    seed: int,
    row: Callable[..., dict[str, Any]],
    test_X: NDArray[Any],
) -> Iterator[dict[str, Any]]:
    n = len(X)
    rules: dict[str, dict[str, Any]] = {
        "top 2": {"top_k": 2},
        "top 3": {"top_k": 3},
        "mass 0.9": {"mass": 0.9},
    }
    for rule, options in rules.items():
        start = time.perf_counter()
        sets = CandidateLabels.from_scores(p, **options)
        mask = sets.to_numpy()
        quality = {
            "mean_size": float(mask.sum(1).mean()),
            "missing": float((~mask[np.arange(n), truth]).mean()),
            "missing_by_teacher": estimate_miss_rate(mask, [p]),
        }
        model = student(kind, n, seed, sets=True).fit(X, sets)
        yield row(f"sets: {rule}", model.predict_proba(test_X), start, student=kind, **quality)
        held_out = resolve_out_of_fold(student(kind, n, seed, sets=True), X, sets).log_probabilities
        rate = quality["missing_by_teacher"]
        quality["missing_by_student"] = estimate_set_errors(held_out, mask, rate).rate
        posterior = weigh_sets(log_softmax(held_out), mask, rate)
        tolerant = student(kind, n, seed, sets=True).fit(X, credible_sets(np.exp(posterior)))
        yield row(f"sets: {rule}, tolerant", tolerant.predict_proba(test_X), start, student=kind, **quality)


def main() -> None:
    """Measure, and write one row per data set, seed and kind of labels."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", nargs="+", default=["digits", "mnist"])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--share", type=float, default=0.05, help="share of rows that the teacher sees")
    parser.add_argument("--students", nargs="+", default=["MLP", "IPAL"])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found: list[dict[str, Any]] = []
    for data in options.data:
        for seed in range(options.seeds):
            key = {"data": data, "rows": options.rows, "share": options.share, "seed": seed}
            for row in measure(data, options.rows, options.share, seed, options.students):
                found.append({**key, **row, "propall": __version__})
                print(
                    data,
                    seed,
                    {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()},
                    flush=True,
                )
            pd.DataFrame(found).to_csv(options.out, index=False, float_format="%.5g")
    table = pd.DataFrame(found)
    print(
        (100 * table.pivot_table("accuracy", ["student", "labels"], "data", sort=False)).round(2).to_string()
    )


if __name__ == "__main__":
    main()

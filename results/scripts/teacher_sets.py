"""A weak teacher's candidate sets train a student: against its top labels, its probabilities, self-training.

The teacher, a linear model fitted on 2 % of the images, plays a zero-shot model: the student never sees a
true label. True labels are used for measuring only. Run it from the repository root to measure it again::

    python results/scripts/teacher_sets.py results/teacher_sets.csv
"""

import argparse
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from propall import CandidateLabels, PartialLabelClassifier, __version__, resolve_out_of_fold
from propall.data import load
from propall.estimators.calibration import log_softmax
from propall.labels.annotators import credible_sets
from propall.labels.predictions import estimate_miss_rate
from propall.tables.consensus import estimate_set_errors, weigh_sets

K = 10
#: Self-training keeps predictions at least this probable, for so many rounds.
CONFIDENT, ROUNDS = 0.95, 4


def images(name: str, rows: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Features and true classes of training and test images."""
    source = load(name).first_per_class(rows // K)
    assert source.test_x is not None
    assert source.test_truth is not None
    X, test_X = source.x.flatten(1).numpy(), source.test_x[:3000].flatten(1).numpy()
    used = X.std(0) > 0
    return X[:, used], source.truth.numpy(), test_X[:, used], source.test_truth[:3000].numpy()


def student(n: int, seed: int, method: str = "propall") -> PartialLabelClassifier:
    """Return the network that every kind of label trains."""
    epochs = max(20, 1000 // -(-n // 256))
    options = {"widths": (128,)}
    return PartialLabelClassifier(
        method, "mlp", net_options=options, epochs=epochs, learning_rate=0.003, random_state=seed
    )


def single(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return labels as sets of one."""
    sets: NDArray[np.bool_] = np.eye(K, dtype=bool)[labels]
    return sets


def measure(name: str, rows: int, share: float, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the test accuracy of the teacher and of every student."""
    X, truth, test_X, test_truth = images(name, rows)
    n = len(X)
    known = np.random.default_rng(seed).choice(n, int(share * n), replace=False)
    teacher = LogisticRegression(C=0.1, max_iter=1000).fit(X[known], truth[known])
    assert len(teacher.classes_) == K
    p = teacher.predict_proba(X)

    def row(kind: str, predicted: NDArray[Any], start: float, **more: Any) -> dict[str, Any]:
        accuracy = float((predicted == test_truth).mean())
        return {"labels": kind, "accuracy": accuracy, "seconds": time.perf_counter() - start, **more}

    start = time.perf_counter()
    yield row("teacher", teacher.predict(test_X), start)
    top = student(n, seed, "cc").fit(X, single(p.argmax(1)))
    yield row("its top label", top.predict_proba(test_X).argmax(1), start)
    start = time.perf_counter()
    rows_of, columns = np.nonzero(p >= 0.02)
    soft = student(len(rows_of), seed, "cc")
    soft.fit(X[rows_of], single(columns), sample_weight=p[rows_of, columns])
    yield row("its probabilities (distillation)", soft.predict_proba(test_X).argmax(1), start)
    start = time.perf_counter()
    current, trained = p, top
    for _ in range(ROUNDS):
        sure = current.max(1) >= min(CONFIDENT, np.quantile(current.max(1), 0.8))
        trained = student(int(sure.sum()), seed, "cc").fit(
            X[sure], CandidateLabels.from_matrix(single(current[sure].argmax(1)))
        )
        current = trained.predict_proba(X)
    yield row("self-training on confident labels", trained.predict_proba(test_X).argmax(1), start)
    for kind, rule in (("top 2", {"top_k": 2}), ("top 3", {"top_k": 3}), ("mass 0.9", {"mass": 0.9})):
        start = time.perf_counter()
        sets = CandidateLabels.from_scores(p, **rule)  # type: ignore[arg-type]
        mask = sets.to_numpy()
        quality = {
            "mean_size": float(mask.sum(1).mean()),
            "missing": float((~mask[np.arange(n), truth]).mean()),
            "missing_by_teacher": estimate_miss_rate(mask, [p]),
        }
        model = student(n, seed).fit(X, sets)
        yield row(f"sets: {kind}", model.predict_proba(test_X).argmax(1), start, **quality)
        held_out = resolve_out_of_fold(student(n, seed), X, sets).log_probabilities
        errors = estimate_set_errors(held_out, mask)
        posterior = weigh_sets(log_softmax(held_out), mask, errors.rate)
        tolerant = student(n, seed).fit(X, credible_sets(np.exp(posterior)))
        predicted = tolerant.predict_proba(test_X).argmax(1)
        quality["missing_by_student"] = errors.rate
        yield row(f"sets: {kind}, tolerant", predicted, start, **quality)


def main() -> None:
    """Measure, and write one row per data set, seed and kind of labels."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", nargs="+", default=["mnist", "kmnist"])
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--share", type=float, default=0.02, help="share of images that the teacher sees")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found: list[dict[str, Any]] = []
    for data in options.data:
        for seed in range(options.seeds):
            key = {"data": data, "rows": options.rows, "share": options.share, "seed": seed}
            for row in measure(data, options.rows, options.share, seed):
                found.append({**key, **row, "propall": __version__})
                print(
                    data,
                    seed,
                    {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()},
                    flush=True,
                )
            pd.DataFrame(found).to_csv(options.out, index=False, float_format="%.5g")
    table = pd.DataFrame(found)
    print((100 * table.pivot_table("accuracy", "labels", "data", sort=False)).round(2).to_string())


if __name__ == "__main__":
    main()

"""Labels recovered from simulated annotators, by propall and by other libraries.

Every annotator answers with a confusion matrix of their own (or, in the column "hard rows", by how hard a row
is), on images whose true labels are used for measuring only. Peers are used if they are installed: crowd-kit
(Dawid-Skene, GLAD, MACE), snorkel (LabelModel) and cleanlab (multi-annotator consensus, with the same
out-of-fold probabilities as propall). Run it from the repository root to measure the table again::

    pip install --no-deps crowd-kit snorkel cleanlab munkres
    python results/scripts/crowds.py results/crowds.csv
"""

import argparse
import importlib.metadata
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from propall import PartialLabelClassifier, __version__, resolve_out_of_fold
from propall.data import load
from propall.labels.annotators import CrowdAnswers, combine_answers, credible_sets

Answers = NDArray[np.int64]  # (n, m) class indices, -1 for no answer
K = 10


@dataclass(frozen=True)
class Crowd:
    """Simulated people: skills are spread evenly from 60 to 95 %."""

    people: int = 5
    per_row: tuple[int, int] = (3, 3)
    errors: str = (
        "confused"  # uniform; confused: 80 % of the errors on a class are one other class; hard rows
    )
    spammer: bool = False  # the first answers at random

    def ask(self, truth: Answers, X: NDArray[Any], seed: int) -> Answers:
        """Return answers (n, m)."""
        draw = np.random.default_rng(seed)
        skills = np.linspace(0.6, 0.95, self.people)[draw.permutation(self.people)]
        confusion = np.zeros((self.people, K, K))
        for a, y in np.ndindex(self.people, K):
            errors = np.full(K, 1.0 if self.errors == "uniform" else 0.2 / (K - 2))
            if self.errors != "uniform":
                errors[(y + draw.integers(1, K)) % K] = 0.8
            errors[y] = 0
            confusion[a, y] = (1 - skills[a]) * errors / errors.sum()
            confusion[a, y, y] = skills[a]
        if self.spammer:
            confusion[0] = 1 / K
        rows = np.repeat(confusion[None], len(truth), 0)[np.arange(len(truth)), :, truth]
        if self.errors == "hard rows":
            rows = self._by_difficulty(truth, X, skills, draw)
        answers = np.full((len(truth), self.people), -1)
        for i, chances in enumerate(rows):
            size = draw.integers(self.per_row[0], self.per_row[1] + 1)
            for a in draw.choice(self.people, size, replace=False):
                answers[i, a] = draw.choice(K, p=chances[a])
        return answers

    def _by_difficulty(
        self, truth: Answers, X: NDArray[Any], skills: NDArray[Any], draw: np.random.Generator
    ) -> NDArray[Any]:
        """Errors fall on rows that a weak classifier finds hard, and on the classes it takes them for."""
        some = draw.choice(len(X), 100, replace=False)
        flat = X.reshape(len(X), -1)
        weak = LogisticRegression(C=0.05, max_iter=500).fit(flat[some], truth[some])
        alike = np.full((len(X), K), 1e-3)
        alike[:, weak.classes_] += weak.predict_proba(flat)
        alike[np.arange(len(X)), truth] = 0
        hardness = alike.sum(1) / alike.sum(1).mean()
        wrong = np.minimum(0.9, (1 - skills)[None] * hardness[:, None])
        chances = wrong[:, :, None] * (alike / alike.sum(1, keepdims=True))[:, None]
        chances[np.arange(len(X)), :, truth] = 1 - wrong
        return chances / chances.sum(2, keepdims=True)


CROWDS = {
    "uniform, 3 a row": Crowd(errors="uniform"),
    "confused, 3 a row": Crowd(),
    "confused, 1 to 2 a row": Crowd(per_row=(1, 2)),
    "20 people, 1 to 3 a row": Crowd(people=20, per_row=(1, 3)),
    "one spammer": Crowd(spammer=True),
    "hard rows": Crowd(errors="hard rows"),
}


def images(name: str, rows: int) -> tuple[NDArray[Any], Answers]:
    """Features and true classes."""
    if name == "digits":
        X, truth = load_digits(return_X_y=True)
        return X[:rows] / 16, truth[:rows]
    source = load(name).first_per_class(rows // K)
    X = source.x.flatten(1).numpy()
    return X[:, X.std(0) > 0], source.truth.numpy()


def peers(answers: Answers, logs: NDArray[Any]) -> Iterator[tuple[str, Callable[[], Answers]]]:
    """Names of the installed peers, and functions that return their labels."""
    rows, people = np.nonzero(answers >= 0)
    long = pd.DataFrame({"task": rows, "worker": people, "label": answers[rows, people]})
    try:
        from crowdkit.aggregation import GLAD, MACE, DawidSkene

        for aggregation in (DawidSkene(n_iter=100), GLAD(n_iter=30), MACE(n_iter=10, n_restarts=5)):
            name = type(aggregation).__name__
            yield f"crowd-kit {name}", lambda a=aggregation: a.fit_predict(long).sort_index().to_numpy()  # type: ignore[misc]
    except ImportError:
        pass
    try:
        from snorkel.labeling.model import LabelModel

        def snorkel() -> Answers:
            model = LabelModel(cardinality=K, verbose=False)
            model.fit(answers, n_epochs=500, seed=0, progress_bar=False)
            labels: Answers = model.predict(answers, tie_break_policy="random")
            return labels

        yield "snorkel LabelModel", snorkel
    except ImportError:
        pass
    try:
        from cleanlab.multiannotator import get_label_quality_multiannotator

        def cleanlab() -> Answers:
            table = pd.DataFrame(np.where(answers >= 0, answers, np.nan))
            found = get_label_quality_multiannotator(table, np.exp(logs), verbose=False)
            labels: Answers = found["label_quality"]["consensus_label"].to_numpy()
            return labels

        yield "cleanlab, with propall's model", cleanlab
    except ImportError:
        pass


def measure(X: NDArray[Any], truth: Answers, answers: Answers, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the share of correct labels of every method."""
    n, crowd = len(truth), CrowdAnswers.from_matrix(answers, K)
    votes = crowd.counts
    fractions = np.random.default_rng(seed).random(votes.shape)
    epochs = max(20, 1000 // -(-n // 256))
    options = {"widths": (128,)}
    model = PartialLabelClassifier(
        "propall", "mlp", net_options=options, epochs=epochs, learning_rate=0.003, random_state=seed
    )

    def row(name: str, labels: Answers, seconds: float, **more: Any) -> dict[str, Any]:
        return {"method": name, "correct": float((labels == truth).mean()), "seconds": seconds, **more}

    start = time.perf_counter()
    union = resolve_out_of_fold(model, X, votes > 0, calibrate=False).log_probabilities
    training = time.perf_counter() - start
    yield row("majority", (votes + fractions).argmax(1), 0.0)
    yield row("propall, model alone", union.argmax(1), training)
    start = time.perf_counter()
    alone = combine_answers(None, crowd)
    yield row("propall, answers alone", alone.log_probabilities.argmax(1), time.perf_counter() - start)
    start = time.perf_counter()
    both = combine_answers(union, crowd)
    asked = answers >= 0
    actual = (asked & (answers == truth[:, None])).sum(0) / np.maximum(1, asked.sum(0))
    yield row(
        "propall, model and answers",
        both.log_probabilities.argmax(1),
        training + time.perf_counter() - start,
        expected=float(both.probabilities.max(1).mean()),
        skill_error=float(np.abs(both.accuracy - actual).max()),
    )
    sets = credible_sets(both.probabilities)
    second = resolve_out_of_fold(clone(model), X, sets, calibrate=False).log_probabilities
    again = combine_answers(second, crowd)
    yield row(
        "propall, trained again on credible sets",
        again.log_probabilities.argmax(1),
        training + time.perf_counter() - start,
        expected=float(again.probabilities.max(1).mean()),
        skill_error=float(np.abs(again.accuracy - actual).max()),
    )
    for name, labels in peers(answers, union):
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield row(name, labels(), time.perf_counter() - start)


def main() -> None:
    """Measure, and write one row per data set, crowd, seed and method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", nargs="+", default=["digits", "mnist", "kmnist"])
    parser.add_argument("--crowds", nargs="+", default=list(CROWDS))
    parser.add_argument("--rows", type=int, default=1800)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    installed = {d.metadata["Name"] for d in importlib.metadata.distributions()}
    names = [name for name in ("crowd-kit", "snorkel", "cleanlab") if name in installed]
    versions = " ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    done = pd.read_csv(options.out) if options.out.exists() else pd.DataFrame()
    for data in options.data:
        X, truth = images(data, options.rows)
        for crowd in options.crowds:
            for seed in range(options.seeds):
                key = {"data": data, "rows": len(truth), "crowd": crowd, "seed": seed}
                if len(done) and (done[list(key)] == pd.Series(key)).all(1).any():
                    continue
                answers = CROWDS[crowd].ask(truth, X, seed)
                found = [{**key, **row} for row in measure(X, truth, answers, seed)]
                new = pd.DataFrame(found).assign(propall=__version__, peers=versions)
                done = pd.concat([done, new], ignore_index=True)
                done.to_csv(options.out, index=False, float_format="%.5g")
                best = new.set_index("method")["correct"]
                print(data, crowd, seed, best.round(4).to_dict(), flush=True)
    shares = 100 * done.pivot_table("correct", "method", ["data", "crowd"], sort=False)
    print(shares.round(2).T.to_string())


if __name__ == "__main__":
    main()

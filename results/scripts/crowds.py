"""Labels recovered from simulated annotators, by propall and by other libraries, and who is reliable.

There are two simulators. Confusions: every person answers with a confusion matrix of their own, or, in the
column "hard rows", by how hard a row is for a weak classifier. Items: every row has a difficulty and one
wrong class that people take it for, and a few people give most of the answers. True labels are used for
measuring only. Peers are used if they are installed: crowd-kit (Dawid-Skene, GLAD, MACE), snorkel
(LabelModel) and cleanlab (multi-annotator consensus, with the same out-of-fold probabilities as propall). Run
it from the repository root to measure the tables again::

    pip install -e ".[peers]" -c constraints.txt
    python results/scripts/crowds.py results/crowds.csv
    python results/scripts/crowds.py results/crowds_reliability.csv --part reliability --data digits birdsong
"""

import argparse
import importlib.metadata
import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from propall import PartialLabelClassifier, __version__, resolve_out_of_fold
from propall.data import DATASETS, load
from propall.labels.annotators import CrowdAnswers, Posterior, combine_answers, credible_sets
from propall.provenance import hardware

Answers = NDArray[np.int64]  # (n, m) class indices, -1 for no answer
#: Standard deviation of the rows' difficulties, in units of the logit of a person's accuracy.
DIFFICULTY = 1.5
#: Share of the rows that one more answer is asked about, to see whether it gains what was expected.
ASKED = 0.1
#: How often these answers are drawn.
ASKED_TIMES = 3
#: Rows by data set, if not 600.
ROWS = {"digits": 1800, "birdsong": 1000}


@dataclass(frozen=True)
class Crowd:
    """Simulated people: skills are spread evenly from 60 to 95 %."""

    people: int = 5
    per_row: tuple[int, int] = (3, 3)
    errors: str = (
        "confused"  # uniform; confused: 80 % of the errors on a class are one other class; hard rows
    )
    spammer: bool = False  # the first answers at random
    items: bool = False  # the other simulator: errors depend on the row, and a few people answer most

    def ask(self, truth: Answers, X: NDArray[Any], seed: int) -> tuple[Answers, NDArray[np.float64]]:
        """Return answers (n, m), and the chances (n, m, k) that they were drawn with."""
        draw = np.random.default_rng(seed)
        k = int(truth.max()) + 1
        skills = np.linspace(0.6, 0.95, self.people)[draw.permutation(self.people)]
        if self.items:
            rows = self._by_items(truth, X, skills, draw)
        elif self.errors == "hard rows":
            self._confusions(skills, k, draw)  # so that the people of a seed are the same in every column
            rows = self._by_difficulty(truth, X, skills, draw)
        else:
            confusion = self._confusions(skills, k, draw)
            rows = np.repeat(confusion[None], len(truth), 0)[np.arange(len(truth)), :, truth]
        share = 1 / np.arange(1, self.people + 1) if self.items else np.ones(self.people)
        answers = np.full((len(truth), self.people), -1)
        for i, chances in enumerate(rows):
            size = draw.integers(self.per_row[0], self.per_row[1] + 1)
            weights = share / share.sum() if self.items else None
            for a in draw.choice(self.people, size, replace=False, p=weights):
                answers[i, a] = draw.choice(k, p=chances[a])
        return answers, rows

    def _confusions(self, skills: NDArray[Any], k: int, draw: np.random.Generator) -> NDArray[Any]:
        """A confusion matrix (k, k) per person."""
        confusion = np.zeros((self.people, k, k))
        for a, y in np.ndindex(self.people, k):
            errors = np.full(k, 1.0 if self.errors == "uniform" else 0.2 / (k - 2))
            if self.errors != "uniform":
                errors[(y + draw.integers(1, k)) % k] = 0.8
            errors[y] = 0
            confusion[a, y] = (1 - skills[a]) * errors / errors.sum()
            confusion[a, y, y] = skills[a]
        if self.spammer:
            confusion[0] = 1 / k
        return confusion

    def _by_difficulty(
        self, truth: Answers, X: NDArray[Any], skills: NDArray[Any], draw: np.random.Generator
    ) -> NDArray[Any]:
        """Errors fall on rows that a weak classifier finds hard, and on the classes it takes them for."""
        some = draw.choice(len(X), 100, replace=False)
        flat = X.reshape(len(X), -1)
        weak = LogisticRegression(C=0.05, max_iter=500).fit(flat[some], truth[some])
        alike = np.full((len(X), int(truth.max()) + 1), 1e-3)
        alike[:, weak.classes_] += weak.predict_proba(flat)
        alike[np.arange(len(X)), truth] = 0
        hardness = alike.sum(1) / alike.sum(1).mean()
        wrong = np.minimum(0.9, (1 - skills)[None] * hardness[:, None])
        chances = wrong[:, :, None] * (alike / alike.sum(1, keepdims=True))[:, None]
        chances[np.arange(len(X)), :, truth] = 1 - wrong
        shares: NDArray[np.float64] = chances / chances.sum(2, keepdims=True)
        return shares

    def _by_items(
        self, truth: Answers, X: NDArray[Any], skills: NDArray[Any], draw: np.random.Generator
    ) -> NDArray[Any]:
        """Every row has a difficulty and one wrong class, of those with near means, that most errors are."""
        n, k = len(truth), int(truth.max()) + 1
        flat = X.reshape(n, -1)
        means = np.stack([flat[truth == y].mean(0) for y in range(k)])
        distance = np.linalg.norm(means[:, None] - means[None], axis=2)
        distance[np.eye(k, dtype=bool)] = np.inf
        nearness = softmax(-distance / np.median(distance[np.isfinite(distance)]) * 4, axis=1)
        difficulty = DIFFICULTY * draw.standard_normal(n)
        errors = np.full((n, k), 1.0 if self.errors == "uniform" else 0.2 / (k - 2))
        if self.errors != "uniform":
            for i, y in enumerate(truth):
                errors[i, draw.choice(k, p=nearness[y])] = 0.8
        errors[np.arange(n), truth] = 0
        errors /= errors.sum(1, keepdims=True)
        chances = np.empty((n, self.people, k))
        for a, skill in enumerate(skills):
            ability = brentq(lambda t, skill=skill: expit(t - difficulty).mean() - skill, -20, 20)
            right = expit(ability - difficulty)
            chances[:, a] = (1 - right)[:, None] * errors
            chances[np.arange(n), a, truth] = right
        if self.spammer:
            chances[:, 0] = 1 / k
        return chances


CROWDS = {
    "uniform, 3 a row": Crowd(errors="uniform"),
    "confused, 3 a row": Crowd(),
    "confused, 1 to 2 a row": Crowd(per_row=(1, 2)),
    "20 people, 1 to 3 a row": Crowd(people=20, per_row=(1, 3)),
    "one spammer": Crowd(spammer=True),
    "hard rows": Crowd(errors="hard rows"),
}
CROWDS |= {
    f"items: {name}": replace(crowd, items=True) for name, crowd in CROWDS.items() if name != "hard rows"
}


def rows_of(name: str, rows: int) -> tuple[NDArray[Any], Answers]:
    """Features and true classes."""
    if name == "digits":
        X, truth = load_digits(return_X_y=True)
        return X[:rows] / 16, truth[:rows]
    source = load(name)
    if DATASETS[name].kind != "images":  # classes of different sizes, and a column per feature
        some = np.random.default_rng(0).permutation(len(source))[:rows]
        X, truth = source.x.numpy()[some], source.truth.numpy()[some]
        return (X - X.mean(0)) / X.std(0), np.unique(truth, return_inverse=True)[1]
    source = source.first_per_class(rows // source.n_classes)
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
            model = LabelModel(cardinality=logs.shape[1], verbose=False)
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


def network(n: int, seed: int) -> PartialLabelClassifier:
    """Return the model that sees the features."""
    epochs = max(20, 1000 // -(-n // 256))
    options = {"widths": (128,)}
    return PartialLabelClassifier(
        "propall", "mlp", net_options=options, epochs=epochs, learning_rate=0.003, random_state=seed
    )


def measure(X: NDArray[Any], truth: Answers, answers: Answers, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the share of correct labels of every method."""
    n, crowd = len(truth), CrowdAnswers.from_matrix(answers, int(truth.max()) + 1)
    votes = crowd.counts
    fractions = np.random.default_rng(seed).random(votes.shape)
    model = network(n, seed)

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


def measure_reliability(
    X: NDArray[Any], truth: Answers, answers: Answers, chances: NDArray[Any], seed: int
) -> Iterator[dict[str, Any]]:
    """Yield how far the estimates about people and questions are from the simulation's truth."""
    crowd = CrowdAnswers.from_matrix(answers, chances.shape[2])
    logs = resolve_out_of_fold(network(len(X), seed), X, crowd.counts > 0, calibrate=False).log_probabilities
    rows = np.arange(len(truth))
    skill = chances[rows, :, truth].mean(0)
    confusion = np.stack([chances[truth == y].mean(0) for y in range(chances.shape[2])], axis=1)
    votes = crowd.counts + 1e-6 * np.random.default_rng(seed).random(crowd.counts.shape)
    asked = answers >= 0
    agree = (asked & (answers == votes.argmax(1)[:, None])).sum(0) / np.maximum(1, asked.sum(0))
    yield {"estimate": "agreement with the majority", **_differences(agree, skill)}
    estimates = {
        "Dawid-Skene, answers alone": combine_answers(None, crowd, errors="dawid_skene"),
        "propall, answers alone": combine_answers(None, crowd),
        "propall, model and answers": combine_answers(logs, crowd),
    }
    for name, posterior in estimates.items():
        inside = np.abs(posterior.accuracy - skill) <= 1.96 * posterior.standard_error
        row = {
            "estimate": name,
            **_differences(posterior.accuracy, skill),
            "skill_inside": float(inside.mean()),
            "confusion_rmse": float(np.sqrt(((posterior.confusion - confusion) ** 2).mean())),
            "correct_expected": float(posterior.probabilities.max(1).mean()),
            "correct": float((posterior.log_probabilities.argmax(1) == truth).mean()),
        }
        if name.startswith("propall"):
            with_model = logs if "model" in name else None
            row |= _gains(posterior, with_model, answers, truth, chances, np.random.default_rng(seed))
        yield row


def _differences(estimate: NDArray[Any], skill: NDArray[Any]) -> dict[str, float]:
    difference = estimate - skill
    return {
        "skill_rmse": float(np.sqrt((difference**2).mean())),
        "skill_error": float(np.abs(difference).max()),
        "skill_bias": float(difference.mean()),
    }


def _gains(
    posterior: Posterior,
    logs: NDArray[Any] | None,
    answers: Answers,
    truth: Answers,
    chances: NDArray[Any],
    draw: np.random.Generator,
) -> dict[str, float]:
    """Ask once more about the rows with the largest expected gain, and about rows at random."""
    n, people = answers.shape
    gain = np.where(answers < 0, posterior.expected_gain(np.arange(n)), -1.0)
    whom, size = gain.argmax(1), max(1, int(ASKED * n))
    before = posterior.log_probabilities.argmax(1) == truth
    best = np.argsort(-gain.max(1), kind="stable")[:size]
    some = draw.choice(n, size, replace=False)
    someone = np.where(answers < 0, draw.random((n, people)), -1).argmax(1)
    found = {}
    for name, rows, asked in (("best", best, whom[best]), ("random", some, someone[some])):
        realized = []
        for _ in range(ASKED_TIMES):
            more = answers.copy()
            more[rows, asked] = [
                draw.choice(chances.shape[2], p=chances[i, a]) for i, a in zip(rows, asked, strict=True)
            ]
            after = combine_answers(logs, CrowdAnswers.from_matrix(more, chances.shape[2]))
            correct = after.log_probabilities.argmax(1) == truth
            realized.append((correct[rows].sum() - before[rows].sum()) / size)
        found[f"{name}_gain_expected"] = float(gain[rows, asked].mean())
        found[f"{name}_gain"] = float(np.mean(realized))
    return found


def main() -> None:
    """Measure, and write one row per data set, crowd, seed and method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("out", type=Path)
    parser.add_argument("--part", choices=["labels", "reliability"], default="labels")
    parser.add_argument("--data", nargs="+", default=["digits", "mnist", "kmnist", "birdsong"])
    parser.add_argument("--crowds", nargs="+", default=list(CROWDS))
    parser.add_argument("--rows", type=int, help="per data set (default: see ROWS, else 600)")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    installed = {d.metadata["Name"] for d in importlib.metadata.distributions()}
    names = [name for name in ("crowd-kit", "snorkel", "cleanlab") if name in installed]
    versions = " ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    done = pd.read_csv(options.out) if options.out.exists() else pd.DataFrame()
    for data, crowd, seed in itertools.product(options.data, options.crowds, range(options.seeds)):
        X, truth = rows_of(data, options.rows or ROWS.get(data, 600))
        key = {"data": data, "rows": len(truth), "crowd": crowd, "seed": seed}
        if len(done) and (done[list(key)] == pd.Series(key)).all(axis=1).any():
            continue
        answers, chances = CROWDS[crowd].ask(truth, X, seed)
        if options.part == "labels":
            found = measure(X, truth, answers, seed)
        else:
            found = measure_reliability(X, truth, answers, chances, seed)
        new = pd.DataFrame([{**key, **row} for row in found])
        new = new.assign(propall=__version__, peers=versions, hardware=hardware("cpu"))
        done = pd.concat([done, new], ignore_index=True)
        done.to_csv(options.out, index=False, float_format="%.5g")
        name = "method" if options.part == "labels" else "estimate"
        print(data, crowd, seed, new.set_index(name).iloc[:, 4:8].round(4).to_dict("index"), flush=True)
    if options.part == "labels":
        shares = 100 * done.pivot_table("correct", "method", ["data", "crowd"], sort=False)
        print(shares.round(2).T.to_string())
    else:
        print(
            done.groupby(["data", "crowd", "estimate"], sort=False)
            .mean(numeric_only=True)
            .round(4)
            .to_string()
        )


if __name__ == "__main__":
    main()

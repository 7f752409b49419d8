"""CIFAR-10N: labels recovered from three annotators' answers, alone and with networks on the images.

Each of the 50 000 training images has three answers. Networks are trained on the union of the answers, out of
fold: the prediction for an image comes from a network that was not trained on it. Their log-probabilities and
the answers are combined by `combine_answers`. True labels are used for measuring only. Rows:

- `answers`: the answers alone, and their majority; how well each way to estimate them predicts the answers on
  the other half of the images; and, as a bound, a table of the most frequent true class of the other images
  with the same answers.
- `plain`: ResNet-32, 60 epochs, flip and crop, 2 folds: the setting of `propall annotators`.
- `fast`: the fast convnet with a weak and a strong view, as `propall train cifar10n --recipe fast`.
- `again`: the same network, trained on every class that is at least 5 % probable after `fast`.
- `test`: one network on all images with the sets of the last of these rows, measured on the test images.

Run it from the repository root, with CIFAR-10 and the labels of CIFAR-10N under DATA. Expected on an H200
with the defaults (3 folds, 45 epochs), about 400 seconds: `plain` 70, `fast` 130, `again` 130, `test` 60::

    python results/scripts/crowds_cifar10n.py OUT --root DATA

It writes OUT/crowds_cifar10n.json after every fold, and the held-out log-probabilities of every row of the
table to OUT/ROW.npz, so that other ways to combine them can be compared without a GPU.
"""

import argparse
import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp
from torch import Tensor

from propall import __version__, atomic_files, combine_answers, counter_rng
from propall.data.dataset import PartialDataset
from propall.estimators.folds import CandidateStratifiedKFold
from propall.labels.annotators import CrowdAnswers, credible_sets
from propall.methods.propall import ProPaLL
from propall.nets import NETS
from propall.paper.custom_runs import choose_setting
from propall.paper.studies.annotators import AnnotatedImages, StudySetting
from propall.provenance import commit, hardware
from propall.training.compiled import best_device
from propall.training.contract import Classifier, Objective, Run
from propall.training.recipe import Recipe
from propall.training.trainer import Trainer

ROWS = ("answers", "plain", "fast", "again", "test")


@dataclass(frozen=True)
class Training:
    """How the networks of a row are trained."""

    net: str
    recipe: Recipe
    objective: Objective
    folds: int


class Study:
    """The images on the device, and the report that every row is added to."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.device = options, best_device(options.device)
        self.data = AnnotatedImages.read(StudySetting(rows=options.images, seed=options.seed), options.root)
        self.x = self.data.source.x.to(self.device)
        self.truth = self.data.source.truth.numpy()
        assert self.data.source.test_x is not None
        assert self.data.source.test_truth is not None
        # A trial on few images does not need all test images either.
        most = None if options.images is None else options.images
        self.test_x = self.data.source.test_x[:most].to(self.device)
        self.test_truth = self.data.source.test_truth[:most].numpy()
        self.report: dict[str, Any] = {
            "data": "cifar10n",
            "images": len(self.truth),
            "seed": options.seed,
            "version": __version__,
            "commit": commit(),
            "torch": torch.__version__,
            "hardware": hardware(self.device),
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "rows": {},
        }

    def training(self, row: str) -> Training:
        """Return how a row is trained."""
        epochs = self.options.epochs
        if row == "plain":
            setting = StudySetting()
            recipe = setting.recipe if epochs is None else StudySetting(epochs=epochs).recipe
            return Training(setting.net, recipe, ProPaLL(), setting.folds)
        changes: dict[str, Any] = {} if epochs is None else {"epochs": epochs}
        if self.options.images is not None:
            changes["batch_size"] = 64
        if self.device.type == "cpu":  # which computes bfloat16 slowly
            changes["precision"] = "float32"
        net, recipe = choose_setting("cifar10n", "fast", changes=changes)
        # Without the paper's noise on the logits: augmentation and consistency take its place.
        return Training(net, recipe, ProPaLL(noise=0.0), self.options.folds)

    def save(self, row: str, numbers: dict[str, Any]) -> None:
        """Write the report with the numbers of a row."""
        self.report["rows"][row] = numbers
        text = json.dumps(self.report, indent=1) + "\n"
        atomic_files.write_text(self.options.out / "crowds_cifar10n.json", text)
        print(row, json.dumps({k: v for k, v in numbers.items() if k != "recipe"}), flush=True)

    def correct(self, labels: NDArray[np.integer]) -> float:
        """Return the share of correct training labels."""
        return float((labels == self.truth).mean())

    def fit(
        self, training: Training, sets: NDArray[np.bool_], rows: NDArray[np.int64], seed: int
    ) -> Classifier:
        """Train a network on some images."""
        index = torch.from_numpy(rows).to(self.device)
        x = self.x if len(rows) == len(self.x) else self.x[index]
        data = PartialDataset(x, torch.from_numpy(sets[rows]).to(self.device))
        (classifier,) = Trainer(training.objective, NETS[training.net], training.recipe).fit(
            [Run(data, seed)]
        )
        return classifier

    def answers(self) -> None:
        """Measure the answers alone."""
        summary = self.data.summarize()
        names = ("annotators", "majority_expected", "without_truth", "candidates")
        alone = {name: value for name, value in summary.items() if name.startswith("answers_alone")}
        answers = self.data.answers.numpy()
        numbers = {
            **{name: summary[name] for name in names},
            **alone,
            "evidence": held_out_evidence(answers, self.data.source.n_classes),
            "lookup_of_true_labels": lookup_accuracy(answers, self.truth),
        }
        self.save("answers", numbers)

    def held_out(self, row: str, sets: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Train out of fold on some candidate sets, and measure; returns the combined log-probabilities."""
        training, start = self.training(row), time.perf_counter()
        union = self.data.candidates.numpy()
        fold = CandidateStratifiedKFold(training.folds, random_state=self.options.seed).assign(union)
        logs, mirrored = np.zeros(union.shape), np.zeros(union.shape)
        test: NDArray[np.float64] = np.zeros((len(self.test_truth), union.shape[1]))
        numbers: dict[str, Any] = {
            "net": training.net,
            "epochs": training.recipe.epochs,
            "folds": training.folds,
            "recipe": training.recipe.to_dict(),
            "mean_candidates": float(sets.sum(1).mean()),
            "sets_without_truth": float((~sets[np.arange(len(sets)), self.truth]).mean()),
            "fold_seconds": [],
            "fold_correct": [],
        }
        for part in range(training.folds):
            begun = time.perf_counter()
            seed = counter_rng.seed_for(self.options.seed, f"part {part}")
            classifier = self.fit(training, sets, np.flatnonzero(fold != part), seed)
            held = np.flatnonzero(fold == part)
            x = self.x[torch.from_numpy(held).to(self.device)]
            logs[held], mirrored[held] = log_scores(classifier, x), log_mean_of_mirrored(classifier, x)
            test += np.exp(log_mean_of_mirrored(classifier, self.test_x)) / training.folds
            numbers["fold_correct"].append(float((logs[held].argmax(1) == self.truth[held]).mean()))
            numbers["fold_seconds"].append(time.perf_counter() - begun)
            self.save(row, numbers)
        np.savez_compressed(
            self.options.out / f"{row}.npz",
            logs=logs.astype(np.float16),
            mirrored=mirrored.astype(np.float16),
            fold=fold,
        )
        best = logs
        for name, scores in (("", logs), ("_mirrored", mirrored)):
            combined = combine_answers(scores, self.data.answers.numpy())
            numbers[f"model_alone{name}"] = self.correct(scores.argmax(1))
            numbers[f"most_likely_candidate{name}"] = self.correct(np.where(union, scores, -np.inf).argmax(1))
            numbers[f"model_and_answers{name}"] = self.correct(combined.log_probabilities.argmax(1))
            numbers[f"expected{name}"] = float(combined.probabilities.max(1).mean())
            numbers[f"temperature{name}"] = combined.temperature
            numbers[f"evidence{name}"] = combined.evidence
            numbers[f"held_out{name}"] = combined.held_out
            best = combined.log_probabilities
        numbers["test_accuracy_of_fold_ensemble_mirrored"] = float((test.argmax(1) == self.test_truth).mean())
        numbers["seconds"] = time.perf_counter() - start
        self.save(row, numbers)
        return best

    def test(self, sets: NDArray[np.bool_], source: str) -> None:
        """Train one network on all images and measure it on the test images."""
        training, start = self.training("fast"), time.perf_counter()
        classifier = self.fit(training, sets, np.arange(len(self.truth)), self.options.seed)
        logs = {
            "test_accuracy": log_scores(classifier, self.test_x),
            "test_accuracy_mirrored": log_mean_of_mirrored(classifier, self.test_x),
        }
        numbers = {
            "sets_from": source,
            "net": training.net,
            "epochs": training.recipe.epochs,
            "mean_candidates": float(sets.sum(1).mean()),
            "sets_without_truth": float((~sets[np.arange(len(sets)), self.truth]).mean()),
            **{name: float((values.argmax(1) == self.test_truth).mean()) for name, values in logs.items()},
            "seconds": time.perf_counter() - start,
        }
        self.save("test", numbers)


def held_out_evidence(answers: NDArray[np.int64], k: int) -> dict[str, float]:
    """Mean log-probability of an image's answers, with parameters of the other half of the images."""
    half, evidence = np.arange(len(answers)) % 2, {}
    for errors, priors in itertools.product(("shrunk", "dawid_skene", "one_coin"), ("estimated", "uniform")):
        logs = []
        for part in (0, 1):
            crowd = CrowdAnswers.from_matrix(answers[half != part], k)
            found = combine_answers(None, crowd, errors=errors, class_priors=priors)
            shares = found.class_priors if priors == "estimated" else np.full(k, 1 / k)
            # (n, m, k): the probability of each answer for every class.
            chances = found.confusion.transpose(0, 2, 1)[np.arange(answers.shape[1]), answers[half == part]]
            logs.append(logsumexp(np.log(shares) + np.log(chances).sum(1), axis=1))
        evidence[f"{errors}, {priors} classes"] = float(np.concatenate(logs).mean())
    return evidence


def lookup_accuracy(answers: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    """Accuracy of the most frequent true class of the other images with the same answers, in any order."""
    _, same = np.unique(np.sort(answers, axis=1), axis=0, return_inverse=True)
    counts = np.zeros((same.max() + 1, truth.max() + 1))
    np.add.at(counts, (same.ravel(), truth), 1)
    others = counts[same.ravel()]
    others[np.arange(len(truth)), truth] -= 1
    best = others == others.max(1, keepdims=True)
    return float((best[np.arange(len(truth)), truth] / best.sum(1)).mean())


def log_scores(classifier: Classifier, x: Tensor) -> NDArray[np.float64]:
    """Return log-probabilities of every class."""
    logs: NDArray[np.float64] = classifier.scores(x).double().log_softmax(-1).cpu().numpy()
    return logs


def log_mean_of_mirrored(classifier: Classifier, x: Tensor) -> NDArray[np.float64]:
    """Return the log of the mean probabilities of an image and its mirror image."""
    both = np.stack([log_scores(classifier, x), log_scores(classifier, x.flip(-1))])
    mean: NDArray[np.float64] = np.logaddexp.reduce(both, axis=0) - np.log(2)
    return mean


def run(options: argparse.Namespace) -> None:
    """Measure the requested rows in order."""
    options.out.mkdir(parents=True, exist_ok=True)
    study = Study(options)
    union = study.data.candidates.numpy()
    sets, source = union, "union of the answers"
    for row in [name for name in ROWS if name in options.rows]:
        if row == "answers":
            study.answers()
        elif row == "test":
            study.test(sets, source)
        else:
            combined = study.held_out(row, sets if row == "again" else union)
            sets, source = credible_sets(np.exp(combined)), row


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("out", type=Path, help="folder for the results")
    parser.add_argument("--root", type=Path, help="folder of the data sets (default: PROPALL_DATA)")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--folds", type=int, default=3, help="of the fast networks")
    parser.add_argument("--epochs", type=int, help="instead of 60 (plain) and 45 (fast)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--images", type=int, help="only the first images of every class, for a quick trial")
    run(parser.parse_args(arguments))


if __name__ == "__main__":
    main()

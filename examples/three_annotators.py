"""Three people labeled each image and disagree: keep all they said instead of the majority.

With a GPU and CIFAR-10N under PROPALL_DATA it uses those images and answers, otherwise generated answers on
scikit-learn's digits, from `three_annotators.csv`.
"""

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

from propall import CandidateLabels, PartialLabelClassifier
from propall.data import load
from propall.data.download import status
from propall.estimators.search import resolve_out_of_fold
from propall.tables.consensus import combine_answers


def cifar():
    source = load("cifar10n")
    answers = np.stack([source.annotations[f"random_label{i}"].numpy() for i in (1, 2, 3)], axis=1)
    images = source.raw.float().numpy() / 255
    net = PartialLabelClassifier("propall", "resnet32", epochs=40, batch_size=128, random_state=0)
    return images, answers, source.truth.numpy(), net


def digits():
    X, truth = load_digits(return_X_y=True)
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    answers = np.array([[int(row[name]) for name in ("ann", "bob", "eve")] for row in table])
    items = np.array([int(row["item"]) for row in table])
    return (
        X[items],
        answers,
        truth[items],
        PartialLabelClassifier("propall", "mlp", epochs=40, random_state=0),
    )


def majority(answers, draw):
    """The answer of most; of several at random."""
    chosen = []
    for row in answers:
        counts = Counter(row.tolist())
        most = max(counts.values())
        chosen.append(draw.choice([label for label, times in counts.items() if times == most]))
    return np.array(chosen)


def main() -> None:
    here = torch.cuda.is_available() and any(s.present for s in status() if s.loader.name == "cifar10n")
    X, answers, truth, clf = cifar() if here else digits()
    labels = CandidateLabels.from_annotators(answers, classes=range(10))
    covered = labels.to_numpy()[np.arange(len(truth)), truth]
    print(labels)
    print(f"each annotator is right in {', '.join(f'{(a == truth).mean():.3f}' for a in answers.T)} of rows")
    print(f"somebody is right in       {covered.mean():.3f}")
    print(f"the majority is right in   {(majority(answers, np.random.default_rng(0)) == truth).mean():.3f}")

    resolution = resolve_out_of_fold(clf, X, labels)
    print(f"resolved labels are right in {(resolution.label == truth).mean():.3f}")

    # The union forgets that two said cat and one dog, and who is usually right: weigh that, too.
    weighed = combine_answers(resolution.log_probabilities, answers)
    print(f"the annotators are thought to be right in {weighed.accuracy.round(3).tolist()}")
    best = weighed.log_probabilities.argmax(1)
    print(f"with that, labels are right in {(best == truth).mean():.3f}")


if __name__ == "__main__":
    main()

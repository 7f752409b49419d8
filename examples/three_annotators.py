"""Three annotators per image who disagree: train on all answers instead of the majority vote.

Uses CIFAR-10N with a GPU and the data under PROPALL_DATA; otherwise scikit-learn's digits with simulated
answers from `three_annotators.csv`.
"""

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from pictures import MUTED, SERIES, bars, picture
from sklearn.datasets import load_digits

from propall import CandidateLabels, PartialLabelClassifier, combine_answers, resolve_out_of_fold
from propall.data import load
from propall.data.download import status


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
    """The most frequent answer; ties are broken at random."""
    chosen = []
    for row in answers:
        counts = Counter(row.tolist())
        most = max(counts.values())
        chosen.append(draw.choice([label for label, times in counts.items() if times == most]))
    return np.array(chosen)


def main() -> None:
    has_cifar = torch.cuda.is_available() and any(s.present for s in status() if s.loader.name == "cifar10n")
    X, answers, truth, clf = cifar() if has_cifar else digits()
    labels = CandidateLabels.from_annotators(answers, classes=range(10))
    covered = labels.to_numpy()[np.arange(len(truth)), truth]
    print(labels)
    print(f"accuracy of each annotator:    {', '.join(f'{(a == truth).mean():.3f}' for a in answers.T)}")
    print(f"at least one is right:         {covered.mean():.3f}")
    votes = majority(answers, np.random.default_rng(0))
    print(f"accuracy of the majority vote: {(votes == truth).mean():.3f}")

    resolution = resolve_out_of_fold(clf, X, labels)
    print(f"accuracy of resolved labels:   {(resolution.label == truth).mean():.3f}")

    # The union of answers ignores who gave which answer, and how often; combine these with the model.
    posterior = combine_answers(resolution.log_probabilities, answers)
    print(f"estimated annotator accuracy:  {posterior.accuracy.round(3).tolist()}")
    combined = posterior.log_probabilities.argmax(1)
    print(f"accuracy of combined labels:   {(combined == truth).mean():.3f}")
    shares = {
        f"annotator {name}": share
        for name, share in zip("ABC", (answers == truth[:, None]).mean(0), strict=True)
    }
    shares["majority vote"] = (votes == truth).mean()
    shares["model on the sets"] = (resolution.label == truth).mean()
    shares["model and answers"] = (combined == truth).mean()
    draw_shares(shares, posterior.accuracy)


def draw_shares(shares, estimated) -> None:
    """Share of correct labels from each source; circles are the estimates of the annotators' accuracy."""
    with picture("three_annotators", (5.2, 3.0)) as figure:
        axes = figure.subplots()
        bars(axes, shares, accent="model and answers")
        axes.plot(estimated, range(len(estimated)), "o", mfc="none", mew=2, color=SERIES[3])
        axes.set_title(
            "correct labels (circle: estimated without the truth)", loc="left", fontsize=10, color=MUTED
        )


if __name__ == "__main__":
    main()

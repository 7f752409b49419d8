"""Whether dropout makes the sets of the public instance-dependent law depend less on the class alone.

python results/scripts/annotator_dropout.py --out results/annotator_dropout.csv

A WRN-10-2 is trained on the true labels of 5000 images of CIFAR-10, with and without dropout, and scores
them in evaluation mode and as published annotators do: in training mode, on pixels from 0 to 255. About half
an hour on two cores.
"""

import argparse
import csv
import functools
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from propall.data import load
from propall.data.corruption import flip_probabilities
from propall.data.dataset import PartialDataset, Source
from propall.methods.cc import CC
from propall.nets.wide_resnet import WideResNet
from propall.paper.runner import public_scores, square_images
from propall.paper.specs import Split
from propall.training.contract import Run
from propall.training.recipe import Recipe
from propall.training.trainer import Trainer

COLUMNS = ("dropout", "scoring", "rate", "correct", "candidates", "companion", "pair")
IMAGES_PER_CLASS, DROPOUTS, RATES = 500, (0.0, 0.3), (0.4, 1.0)
RECIPE = Recipe(
    epochs=30,
    batch_size=128,
    learning_rate=0.1,
    momentum=0.9,
    weight_decay=5e-4,
    augmentation="flip_crop",
    schedule="cosine",
    nesterov=True,
)


def scores_by_mode(source: Source, dropout: float, recipe: Recipe = RECIPE) -> Iterator[tuple[str, Tensor]]:
    """Train an annotator on the true labels; yield its scores of the same images by mode."""
    torch.manual_seed(0)  # of dropout
    net = functools.partial(WideResNet, depth=10, width=2, dropout=dropout)
    x = square_images(source.x)
    clean = PartialDataset(x, one_hot(source.truth, source.n_classes).bool())
    (classifier,) = Trainer(CC(), net, recipe).fit([Run(clean, 0)])
    yield "evaluation", classifier.scores(x)
    yield "public", public_scores(classifier, source.raw.view(x.shape))


def describe(scores: Tensor, truth: Tensor, rate: float) -> dict[str, float]:
    """Return the annotator's accuracy and what its sets are like.

    `companion` is the share of a class's sets with its most frequent wrong label, mean over classes; `pair`
    the largest share of two classes' sets that contain the other, the smaller one of both.
    """
    flips = flip_probabilities(scores, truth, rate)
    by_class = torch.stack([flips[truth == label].mean(0) for label in range(scores.shape[1])])
    return {
        "correct": float((scores.argmax(-1) == truth).double().mean()),
        "candidates": 1 + float(flips.sum(-1).mean()),
        "companion": float(by_class.amax(-1).mean()),
        "pair": float(torch.minimum(by_class, by_class.mT).amax()),
    }


def main() -> None:
    """Write one line per dropout, mode and rate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    source = Split(per_class=IMAGES_PER_CLASS).source(load("cifar10"))
    lines = [
        {"dropout": dropout, "scoring": mode, "rate": rate}
        | {name: round(value, 4) for name, value in describe(scores, source.truth, rate).items()}
        for dropout in DROPOUTS
        for mode, scores in scores_by_mode(source, dropout)
        for rate in RATES
    ]
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    main()

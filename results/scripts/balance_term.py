"""What the balance term of views does where classes are equally frequent, and where they are not.

python results/scripts/balance_term.py --out results/balance_term.csv

`PartialLabelClassifier("propall", "small_cnn", views=...)` on scikit-learn's digits: all ten; eights against
the rest; and pairs of digits side by side, which have a hundred classes. Unequal classes: of the ten digits,
rows are kept with a probability of 0.8 to the power of the class's place in a random order, so that the
rarest class is a seventh as frequent as the most frequent one; of the eights, 30 % of the rows are kept.
Training and test rows are thinned out alike. The term takes classes to be equally frequent in any case. About
20 minutes on two cores; the same command goes on after an interruption.
"""

import argparse
import csv
import itertools
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits

from propall import PartialLabelClassifier
from propall.data.corruption import (
    Complementary,
    Corruption,
    IndependentFlip,
    InstanceDependent,
    UninformativeSetsWarning,
)
from propall.labels.candidates import UninformativeRowsWarning
from propall.training.image_views import default_views

LAWS: dict[str, Corruption] = {
    "true labels": IndependentFlip(0.0),
    "uniform, q = 0.1": IndependentFlip(0.1),
    "uniform, q = 0.5": IndependentFlip(0.5),
    "uniform, q = 0.8": IndependentFlip(0.8),
    "instance-dependent": InstanceDependent(0.4),
    "one complementary label": Complementary(),
}
#: Factor of the term and share of training over which it falls to 0, by name.
TERMS = {"none": (0.0, 0.0), "constant": (0.5, 0.0), "fading": (0.5, 0.5)}


class Part(NamedTuple):
    """Settings of one kind of data."""

    n_classes: int
    laws: tuple[str, ...]
    unequal: tuple[bool, ...] = (False, True)  # whether the classes are
    terms: tuple[str, ...] = tuple(TERMS)
    seeds: int = 5
    epochs: int = 45
    batch_size: int = 256


PARTS = {
    "digits": Part(
        10,
        (
            "true labels",
            "uniform, q = 0.1",
            "uniform, q = 0.5",
            "instance-dependent",
            "one complementary label",
        ),
    ),
    "eights": Part(2, ("true labels", "uniform, q = 0.5", "uniform, q = 0.8")),
    "pairs": Part(
        100,
        ("uniform, q = 0.1", "uniform, q = 0.5", "instance-dependent"),
        (False,),
        ("none", "fading"),
        seeds=2,
        epochs=20,
        batch_size=64,
    ),
}
TEST_SHARE, TEACHER_EPOCHS = 0.2, 20
#: The next class in the random order keeps this share of the rows of the one before; shares of the eights.
RARER, FEWER_EIGHTS = 0.8, 0.3
TRAINING_PAIRS, TEST_PAIRS = 6000, 2000


@dataclass(frozen=True)
class Setting:
    """One training."""

    data: str
    law: str
    unequal: bool
    term: str
    seed: int


@dataclass(frozen=True)
class Images:
    """Training and test images with their true labels."""

    x: Any
    y: Any
    test_x: Any
    test_y: Any


def settings() -> Iterator[Setting]:
    """Yield all trainings."""
    for data, part in PARTS.items():
        for seed, law, unequal, term in itertools.product(
            range(part.seeds), part.laws, part.unequal, part.terms
        ):
            yield Setting(data, law, unequal, term, seed)


def draw_images(setting: Setting) -> Images:
    """Split the digits, and thin out classes or put digits side by side."""
    rng = np.random.default_rng(setting.seed)
    x, y = load_digits(return_X_y=True)
    x = x.reshape(-1, 8, 8).astype(np.float32) / 16
    test = rng.random(len(y)) < TEST_SHARE
    if setting.data == "pairs":
        fit, held_out = (
            _pairs(x[part], y[part], n, rng) for part, n in ((~test, TRAINING_PAIRS), (test, TEST_PAIRS))
        )
        return Images(*fit, *held_out)
    if setting.data == "eights":
        y = (y == 8).astype(int)
        shares = np.array([1.0, FEWER_EIGHTS])
    else:
        shares = RARER ** rng.permutation(10)
    kept = rng.random(len(y)) < (shares[y] if setting.unequal else 1.0)
    return Images(x[kept & ~test], y[kept & ~test], x[kept & test], y[kept & test])


def _pairs(x: Any, y: Any, n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    left, right = rng.integers(len(y), size=(2, n))
    return np.concatenate([x[left], x[right]], axis=2), 10 * y[left] + y[right]


def run(setting: Setting, epochs: int | None = None) -> dict[str, float]:
    """Train once; returns the test accuracy, its mean over classes, and the number of lost classes.

    A class is lost if it is not predicted for any training row.
    """
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UninformativeSetsWarning)  # most sets of two classes hold both
    warnings.simplefilter("ignore", UninformativeRowsWarning)
    part, images = PARTS[setting.data], draw_images(setting)
    options = {"classes": list(range(part.n_classes)), "batch_size": part.batch_size}
    scores = None
    if LAWS[setting.law].needs_scores:
        seed, few = setting.seed + 77, epochs or TEACHER_EPOCHS
        teacher = PartialLabelClassifier(
            "cc", "small_cnn", epochs=few, learning_rate=0.003, random_state=seed, **options
        )
        scores = torch.tensor(teacher.fit(images.x, images.y).decision_function(images.x))
    sets = LAWS[setting.law](torch.tensor(images.y), part.n_classes, setting.seed, scores=scores).numpy()
    balance, fade = TERMS[setting.term]
    views = default_views((1, *images.x.shape[1:]), mirrored=False)
    views = replace(views, balance=balance, balance_fade=fade)
    clf = PartialLabelClassifier(
        "propall",
        "small_cnn",
        views=views,
        epochs=epochs or part.epochs,
        random_state=setting.seed,
        **options,
    )
    clf.fit(images.x, sets)
    right = clf.predict(images.test_x) == images.test_y
    present = np.unique(images.test_y)
    return {
        "accuracy": float(right.mean()),
        "class_mean": float(np.mean([right[images.test_y == label].mean() for label in present])),
        "lost": float(len(np.setdiff1d(images.y, clf.predict(images.x)))),
    }


COLUMNS = (*(field.name for field in fields(Setting)), "accuracy", "class_mean", "lost")


def main() -> None:
    """Write one line per training."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    chosen = parser.parse_args()
    done = set()
    if chosen.out.exists():
        with chosen.out.open(encoding="utf-8", newline="") as file:
            done = {tuple(row[name] for name in COLUMNS[:5]) for row in csv.DictReader(file)}
    missing = [s for s in settings() if tuple(map(str, astuple(s))) not in done]
    with (
        chosen.out.open("a", encoding="utf-8", newline="") as file,
        ProcessPoolExecutor(chosen.jobs) as pool,
    ):
        writer = csv.writer(file, lineterminator="\n")
        if not done:
            writer.writerow(COLUMNS)
        for number, (setting, measured) in enumerate(zip(missing, pool.map(run, missing), strict=True), 1):
            writer.writerow([*astuple(setting), *(round(value, 4) for value in measured.values())])
            file.flush()
            print(f"{number} of {len(missing)}: {setting} {measured}", flush=True)


if __name__ == "__main__":
    main()

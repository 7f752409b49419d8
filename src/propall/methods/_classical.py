"""Shared by CLPL, PL-SVM, PL-KNN, IPAL and PLLE: checks of the training data and a linear classifier."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propall.training.contract import Algorithm, Classifier, Monitor, Run
from propall.wording import plural


def as_rows(x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
    """Flatten instances to contiguous float64 vectors."""
    return x.flatten(1).double().contiguous()


def rows_and_candidates(run: Run, title: str) -> tuple[Float[Tensor, "n d"], Bool[Tensor, "n k"]]:
    """Return a run's features (as float64 vectors) and candidate sets.

    Raise ValueError for weights, empty data, non-finite features and rows without candidates.
    """
    x, candidates = as_rows(run.train.x), run.train.candidates.contiguous()
    if run.weight is not None:
        raise ValueError(
            f"weight: {title} does not support instance weights; omit them or use another method."
        )
    if not len(run.train):
        raise ValueError(f"x: 0 rows; {title} needs at least one.")
    non_finite = (~x.isfinite().all(1)).nonzero()[:, 0]
    if len(non_finite):
        raise ValueError(
            f"x: {plural(len(non_finite), 'row')} with NaN or infinity (first: {int(non_finite[0])}); "
            "impute or drop them before training."
        )
    empty = (~candidates.any(1)).nonzero()[:, 0]
    if len(empty):
        raise ValueError(
            f"candidates: {plural(len(empty), 'empty row')} (first: {int(empty[0])}); "
            "every row needs at least one candidate. Drop them."
        )
    return x, candidates


class ClassicalAlgorithm(Algorithm):
    """An algorithm on feature vectors that fits every run by itself.

    Attributes:
        classifier: class of the fitted classifiers.
    """

    classifier: ClassVar[type[Classifier]]

    def fit(self, runs: Sequence[Run], *, monitor: Monitor | None = None) -> list[Classifier]:
        """Check the data of every run and fit it."""
        classifiers = []
        for run in runs:
            if monitor is not None:
                monitor.proceed()
            classifiers.append(self.fit_rows(*rows_and_candidates(run, self.title), run.seed))
        return classifiers

    @abstractmethod
    def fit_rows(self, x: Float[Tensor, "n d"], candidates: Bool[Tensor, "n k"], seed: int) -> Classifier:
        """Fit one run, drawing from its seed only."""


@dataclass(frozen=True, eq=False)
class LinearClassifier(Classifier):
    """A classifier with scores W x + b.

    Attributes:
        weight: W, one row per class.
        bias: b, one value per class; zeros if the method has no intercept.
    """

    weight: Float[Tensor, "k d"]
    bias: Float[Tensor, "k"]

    name = "linear"

    def scores(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
        """Compute W x + b in float64."""
        return torch.addmm(self.bias, as_rows(x.to(self.weight.device)), self.weight.T)

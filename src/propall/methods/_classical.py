"""Shared by CLPL, PL-SVM, PL-KNN, IPAL and PLLE: checks of the training data and a linear classifier."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propall.training.contract import Classifier, Run
from propall.wording import plural


def as_rows(x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
    """Flatten instances to contiguous float64 vectors."""
    return x.flatten(1).double().contiguous()


def rows_and_candidates(run: Run, title: str) -> tuple[Float[Tensor, "n d"], Bool[Tensor, "n k"]]:
    """Return a run's features (as float64 vectors) and candidate sets after checking both.

    Args:
        run: the training run.
        title: title of the method, for error messages.

    Raises:
        ValueError: if the run has weights or no rows, or if a row has non-finite features or no candidates.
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

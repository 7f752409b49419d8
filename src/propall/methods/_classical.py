"""What the classical methods share: how they read a run's rows, and the classifier that is one matrix."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propall.training.contract import Classifier, Run


def as_rows(x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
    """Instances as float64 vectors: images are flattened, numbers widened."""
    return x.flatten(1).double().contiguous()


def rows_and_candidates(run: Run, title: str) -> tuple[Float[Tensor, "n d"], Bool[Tensor, "n k"]]:
    """A run's features as float64 vectors and its candidate sets, refused where the formulas cannot hold."""
    x, candidates = as_rows(run.train.x), run.train.candidates.contiguous()
    if run.weight is not None:
        raise ValueError(f"weight: {title} has no instance weights; leave them out or choose another method.")
    if not len(run.train):
        raise ValueError(f"x: 0 rows; {title} needs at least one instance.")
    broken = (~x.isfinite().all(1)).nonzero()[:, 0]
    if len(broken):
        raise ValueError(
            f"x: {len(broken)} rows hold NaN or infinity (first: {int(broken[0])}); "
            "fill them in or drop them before training."
        )
    empty = (~candidates.any(1)).nonzero()[:, 0]
    if len(empty):
        raise ValueError(
            f"candidates: {len(empty)} rows are empty (first: {int(empty[0])}); "
            "every instance needs a label. Drop them."
        )
    return x, candidates


@dataclass(frozen=True, eq=False)
class LinearClassifier(Classifier):
    """Scores W x + b.

    Attributes:
        weight: W, one row per class.
        bias: b, one number per class; zeros where the method has none.
    """

    weight: Float[Tensor, "k d"]
    bias: Float[Tensor, "k"]

    name = "linear"

    def scores(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
        """W x + b in float64."""
        return torch.addmm(self.bias, as_rows(x.to(self.weight.device)), self.weight.T)

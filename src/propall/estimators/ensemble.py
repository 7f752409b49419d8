"""The ensemble behind an estimator: what its members are trained on, and how their outputs are combined."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from torch import Tensor, nn

from propall import counter_rng
from propall.data.dataset import PartialDataset
from propall.estimators.images import resolve_views
from propall.labels.candidates import CandidateLabels
from propall.training.compiled import best_device
from propall.training.contract import Algorithm, Classifier, NetFactory, Objective, Run, TrainingSetup
from propall.training.networks import build
from propall.training.recipe import Recipe
from propall.training.views import Views

#: A source of randomness: a seed, a generator, or None for numpy's global state.
RandomState = int | np.random.RandomState | np.random.Generator | None
#: Maximum number of values processed at once in a pass over all rows.
CHUNK_VALUES = 1 << 18


def seed_from(random_state: RandomState) -> int:
    """Draw a seed from a random state; a generator advances."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(np.iinfo(np.int32).max))
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


class Standardization(NamedTuple):
    """Scaling of features by their column means and standard deviations; None leaves them unchanged."""

    mean: NDArray[Any] | None = None
    scale: NDArray[Any] | None = None

    @classmethod
    def fit(cls, features: NDArray[Any], weight: NDArray[Any] | None) -> Self:
        """Compute the weighted statistics of (n, d) features; others are left unchanged."""
        if features.ndim > 2:
            return cls()
        mean = _column_means(features, weight, lambda rows: rows)
        scale = np.sqrt(_column_means(features, weight, lambda rows: (rows - mean) ** 2))
        mean, scale = mean.astype(features.dtype), scale.astype(features.dtype)
        # Rounding gives a constant column a tiny standard deviation; dividing by it would blow it up.
        constant = scale <= 10 * np.finfo(features.dtype).eps * np.abs(mean)
        return cls(mean, np.where(constant | (scale == 0), 1.0, scale))

    @classmethod
    def of_channels(cls, images: NDArray[Any], weight: NDArray[Any] | None) -> Self:
        """Compute the weighted statistics of each channel of (n, c, h, w) images."""
        mean = np.average(images.mean((2, 3), dtype=np.float64), axis=0, weights=weight)[:, None, None]
        squares = ((images - mean) ** 2).mean((2, 3), dtype=np.float64)
        scale = np.sqrt(np.average(squares, axis=0, weights=weight))[:, None, None]
        return cls(mean.astype(images.dtype), np.where(scale > 0, scale, 1.0).astype(images.dtype))

    def apply(self, features: NDArray[Any]) -> Tensor:
        """Return the scaled features as a tensor of the same precision."""
        if self.mean is not None:
            # A single copy, however large: the difference, which is then divided in place.
            dtype = features.dtype
            features = features - self.mean
            features /= self.scale
            features = features.astype(dtype, copy=False)
        return torch.from_numpy(np.require(features, requirements=["C", "W"]))


@dataclass(frozen=True)
class Ensemble:
    """Everything an estimator's parameters say about its members; see `PartialLabelClassifier`."""

    method: Objective | Algorithm
    net: NetFactory | nn.Module
    recipe: Recipe
    standardize: bool
    n_members: int
    random_state: RandomState
    device_name: str
    views: bool | Views | None = None

    def adapted_to(self, in_shape: tuple[int, ...]) -> Self:
        """The same ensemble with views in its recipe that suit rows of this shape, if it trains on views."""
        if not self.views:
            return self
        if not isinstance(self.method, Objective):
            raise ValueError(
                f"views: {self.method.title} has its own training loop, without views. Use another method, "
                "such as 'propall', or views=None."
            )
        return replace(self, recipe=replace(self.recipe, views=resolve_views(self.views, in_shape)))

    @property
    def device(self) -> torch.device:
        """Device that the members are on."""
        return best_device(self.device_name)

    def algorithm(self, *, weighted: bool = False) -> Algorithm:
        """Return the algorithm that trains the members, with or without row weights."""
        if weighted and isinstance(self.method, Algorithm):
            raise ValueError(
                f"sample_weight: {self.method.title} does not support weights. Leave them out, or use "
                "another method."
            )
        return self.method.with_training(TrainingSetup(self.net, self.recipe))

    def standardization(self, features: NDArray[Any], weight: NDArray[Any] | None) -> Standardization:
        """Fit the scaling of training features."""
        if self.standardize and self.views:
            return Standardization.of_channels(features, weight)
        return Standardization.fit(features, weight) if self.standardize else Standardization()

    def seeds(self) -> list[int]:
        """Draw one seed per member."""
        members: Any = self.n_members
        if not isinstance(members, Integral) or members < 1:
            raise ValueError(f"n_estimators: got {members!r}; expected an integer of at least 1.")
        first = seed_from(self.random_state)
        return [counter_rng.seed_for(first, f"member {i}") for i in range(members)]

    def runs(
        self,
        features: NDArray[Any],
        labels: CandidateLabels,
        weight: NDArray[Any] | None,
        standardization: Standardization,
    ) -> list[Run]:
        """Return one training run per member, all on the same data; features are not yet standardized."""
        device = self.device
        train = PartialDataset(standardization.apply(features).to(device), labels.mask.to(device))
        keys = content_keys(features, labels.mask)
        run_weight = None if weight is None else torch.as_tensor(weight, device=device)
        return [Run(train, seed, run_weight, keys) for seed in self.seeds()]


def check_outputs(net: nn.Module, run: Run) -> None:
    """Raise an error if a module does not return one score per class."""
    with torch.no_grad():
        outputs = build(net, run).eval()(run.train.x[:1])
    expected = (1, run.train.n_classes)
    if outputs.shape != expected:
        raise ValueError(
            f"net: it returns shape {tuple(outputs.shape)} for one row; expected {expected}, one score "
            f"for each of the {run.train.n_classes} classes."
        )


def member_scores(classifier: Classifier, x: Tensor) -> Tensor:
    """Scores whose softmax gives the classifier's probabilities."""
    if type(classifier).probabilities is Classifier.probabilities:
        return classifier.scores(x)
    return classifier.probabilities(x).clamp_min(torch.finfo(x.dtype).tiny).log()


def log_mixture(scores: Sequence[Tensor], temperature: float) -> Tensor:
    """Log of the mean of the members' softmax probabilities, scaled by a temperature."""
    mixture = torch.stack([s.log_softmax(-1) for s in scores]).logsumexp(0) - math.log(len(scores))
    return (mixture / temperature).log_softmax(-1)


def content_keys(features: NDArray[Any], candidates: Tensor) -> Tensor:
    """Hash each row's features and candidates; equal rows have equal keys, regardless of position."""
    rows = np.ascontiguousarray(features.reshape(len(features), -1))
    bits = rows.view(np.uint64 if rows.dtype == np.float64 else np.uint32)
    key = np.zeros(len(rows), dtype=np.uint64)
    for i, table in enumerate((bits, candidates.numpy())):
        a, b = counter_rng.words(counter_rng.seed_for(i, "content"), torch.arange(table.shape[1]))
        odd = ((a << 31) ^ b | 1).numpy().astype(np.uint64)
        key += np.einsum("ij,j->i", table, odd)
    return torch.from_numpy((key >> np.uint64(32)).astype(np.int64))


def _column_means(
    features: NDArray[Any], weight: NDArray[Any] | None, function: Callable[[NDArray[Any]], NDArray[Any]]
) -> NDArray[np.float64]:
    """Weighted column means of a function of the entries, accumulated in float64."""
    total = np.zeros(features.shape[1])
    step = max(1, CHUNK_VALUES // max(1, features.shape[1]))
    for start in range(0, len(features), step):
        chunk = slice(start, start + step)
        values = function(features[chunk].astype(np.float64))
        total += values.sum(0) if weight is None else weight[chunk].astype(np.float64) @ values
    return total / (len(features) if weight is None else weight.sum(dtype=np.float64))

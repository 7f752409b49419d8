"""A weighted mean of fitted classifiers."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp
from torch import Tensor, nn

from propall.estimators.calibration import log_softmax
from propall.estimators.classifier import PartialLabelClassifier
from propall.estimators.ensemble import Ensemble
from propall.estimators.persistence import load_fitted, save_mixture
from propall.estimators.resolution import Resolution
from propall.estimators.validation import candidate_matrix

#: Number of probabilities of a component that are averaged at once.
BLOCK_VALUES = 1 << 20


class ClassifierMixture:
    """The weighted mean of the probabilities of fitted classifiers, which may scale features differently.

    Made by `PartialLabelPortfolio`.

    Args:
        components: classifiers fitted on the same features and classes.
        weights: their weights; they sum to 1.
        names: what each component is, in words.
        temperature: divisor of the log-probabilities of the mean.

    Attributes:
        classes_: class names, in the order of the columns of `predict_proba`.
        temperature_: divisor of the log-probabilities.

    Examples:
        >>> from propall import PartialLabelPortfolio
        >>> X, y = [[0.0], [0.2], [1.0], [1.1]] * 5, ["a", "a|b", "b", "b"] * 5
        >>> mixture = PartialLabelPortfolio("quick", random_state=0).fit(X, y).best_estimator_
        >>> mixture.predict([[0.1], [1.2]]).tolist()
        ['a', 'b']
    """

    def __init__(
        self,
        components: Sequence[PartialLabelClassifier],
        weights: Sequence[float],
        names: Sequence[str],
        temperature: float = 1.0,
    ) -> None:
        self.components, self.names, self.temperature_ = list(components), list(names), temperature
        self.weights = np.asarray(weights, dtype=float)
        first = self.components[0]
        self.classes_, self.in_shape_ = first.classes_, first.in_shape_
        self.n_features_in_ = getattr(first, "n_features_in_", None)

    def predict_log_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Return log-probabilities, accurate even if the probabilities underflow."""
        logs = [component.predict_log_proba(X).astype(float) for component in self.components]
        return log_softmax(log_weighted_mean(logs, self.weights), self.temperature_)

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Return class probabilities."""
        probabilities: NDArray[Any] = np.exp(self.predict_log_proba(X))
        return probabilities

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable class of every row."""
        names: NDArray[Any] = self.classes_[self.predict_log_proba(X).argmax(1)]
        return names

    def resolve(self, X: ArrayLike, candidates: Any) -> Resolution:
        """Select the most probable candidate of every row; see `PartialLabelClassifier.resolve`."""
        return Resolution(self.predict_log_proba(X), self.candidate_matrix(candidates), self.classes_)

    def candidate_matrix(self, candidates: Any) -> NDArray[np.bool_]:
        """Convert candidate sets in any form to a bool matrix with one column per class of the model."""
        return candidate_matrix(candidates, self.classes_)

    def ensemble(self) -> Ensemble:
        """Return the ensemble of the component with the largest weight."""
        return self.components[int(self.weights.argmax())].ensemble()

    def to_torch(self) -> nn.Module:
        """Return the mixture as a module from raw features to logits.

        Raises:
            ValueError: if a component is not a network.
        """
        return _MixtureModule([c.to_torch() for c in self.components], self.weights, self.temperature_).eval()

    def save(self, path: str | Path) -> None:
        """Write the mixture to a file of tensors and JSON; loading it executes no code."""
        save_mixture(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a mixture written by `save`."""
        loaded = load_fitted(path)
        if not isinstance(loaded, cls):
            raise ValueError(f"path: {path} is one classifier. Use `PartialLabelClassifier.load`.")
        return loaded


def log_weighted_mean(logs: Sequence[NDArray[Any]], weights: NDArray[Any]) -> NDArray[Any]:
    """Logarithm of the weighted mean of probabilities, from their logarithms."""
    used = [i for i, weight in enumerate(weights) if weight > 0]
    first = logs[used[0]]
    mean = np.empty(first.shape)
    # Some rows at a time: `logsumexp` makes several copies of all its numbers.
    step = max(1, BLOCK_VALUES // max(1, math.prod(first.shape[1:])))
    for start in range(0, len(mean), step):
        rows = slice(start, start + step)
        mean[rows] = logsumexp([logs[i][rows] + np.log(weights[i]) for i in used], axis=0)
    return mean


class _MixtureModule(nn.Module):
    """Logits whose softmax is the mixture."""

    log_weights: Tensor

    def __init__(self, modules: Sequence[nn.Module], weights: NDArray[Any], temperature: float) -> None:
        super().__init__()
        self.components = nn.ModuleList(modules)
        reference = next(self.components.parameters())
        self.register_buffer("log_weights", torch.as_tensor(np.log(weights)).to(reference))
        self.temperature = temperature

    def forward(self, x: Tensor) -> Tensor:
        outputs = torch.stack([module(x).log_softmax(-1) for module in self.components])
        return (outputs + self.log_weights[:, None, None]).logsumexp(0) / self.temperature

"""What every classifier for candidate sets shares: its score, and resolved candidate sets."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from propall.estimators.calibration import LOWEST_LOG
from propall.estimators.resolution import Resolution
from propall.estimators.validation import candidate_matrix, check_labels
from propall.labels.candidates import CandidateLabels
from propall.labels.parsing import extend_classes


class CandidateMixin(ClassifierMixin):
    """`score`, `resolve` and `candidate_matrix` for classifiers with `predict` and `predict_log_proba`."""

    classes: Sequence[Hashable] | None
    classes_: NDArray[Any]

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable class of every row."""
        raise NotImplementedError

    def predict_log_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Return log-probabilities."""
        raise NotImplementedError

    def score(self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the share of rows whose prediction is a candidate in y; the accuracy for ordinary labels."""
        check_is_fitted(self)
        classes = None if isinstance(y, CandidateLabels) else extend_classes(self.classes_.tolist(), y, "y")
        labels = check_labels(y, self.classes if classes is None else classes)
        position = {name: i for i, name in enumerate(labels.classes)}
        index = np.array([position.get(name, -1) for name in self.predict(X).tolist()])
        hit = labels.mask.numpy()[np.arange(len(index)), index] & (index >= 0)
        weight = None if sample_weight is None else np.asarray(sample_weight, dtype=float)
        return float(np.average(hit.astype(float), weights=weight))

    def resolve(self, X: ArrayLike, candidates: Any) -> Resolution:
        """Select the most probable candidate of every row.

        A model is overconfident on the rows it was fitted on; use `propall.resolve_out_of_fold` for those.

        Args:
            X: features.
            candidates: candidate sets in any form that `fit` accepts; blank, or all classes, if unknown.
        """
        logs = self.predict_log_proba(X)
        logs = np.where(np.isneginf(logs), LOWEST_LOG, logs)  # the candidates of a row may all be ruled out
        return Resolution(logs, self.candidate_matrix(candidates), self.classes_)

    def candidate_matrix(self, candidates: Any) -> NDArray[np.bool_]:
        """Convert candidate sets in any form to a bool matrix with one column per class of the model."""
        check_is_fitted(self)
        return candidate_matrix(candidates, self.classes_)

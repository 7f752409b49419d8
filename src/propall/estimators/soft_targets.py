"""Fitting any scikit-learn estimator to soft targets: a probability per row and class."""

from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import clone, is_regressor
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.feature_selection import SelectorMixin, VarianceThreshold
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import Pipeline
from sklearn.tree import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
    ExtraTreeRegressor,
)
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.validation import has_fit_parameter

from propall import counter_rng

#: How an estimator is fitted to soft targets; see `SoftTargetLearner`.
Strategy = Literal["auto", "regression", "copies", "samples"]

#: Classifiers whose regressor, fitted to one-hot targets with the same parameters, makes the same
#: predictions: the summed squared error of one-hot columns is the Gini impurity.
REGRESSORS: dict[type, type] = {
    DecisionTreeClassifier: DecisionTreeRegressor,
    ExtraTreeClassifier: ExtraTreeRegressor,
    ExtraTreesClassifier: ExtraTreesRegressor,
    KNeighborsClassifier: KNeighborsRegressor,
    RandomForestClassifier: RandomForestRegressor,
}
#: Parameters of classifiers that mean something else for several outputs, and the values that mean nothing:
#: the impurity of a regressor is the mean over the outputs, not the sum.
WITHOUT_COUNTERPART: dict[str, Any] = {
    "criterion": "gini",
    "class_weight": None,
    "monotonic_cst": None,
    "min_impurity_decrease": 0.0,
    "ccp_alpha": 0.0,
}
#: Candidates with less than this share of their row's largest weight get no copy.
MIN_COPY_WEIGHT = 1e-3


@dataclass(frozen=True)
class SoftTargetLearner:
    """An unfitted estimator and the way it learns from soft targets.

    Attributes:
        estimator: a classifier, a regressor, or a pipeline that ends in one; cloned for every fit.
        strategy: "regression" fits one output per class; "copies" repeats each row once per candidate,
            weighted by its target; "samples" draws one label per row.
    """

    estimator: Any
    strategy: Strategy

    @classmethod
    def choose(cls, estimator: Any, strategy: Strategy = "auto") -> Self:
        """Check the strategy, or choose it, and turn a classifier into its regressor if needed.

        Args:
            estimator: as in the class.
            strategy: "auto" takes "regression" for regressors and for classifiers in `REGRESSORS` with
                parameters that the regressor has, "copies" for other estimators with `sample_weight`, and
                "samples" for the rest.
        """
        if strategy not in get_args(Strategy):
            raise ValueError(f"targets: got {strategy!r}; expected one of {', '.join(get_args(Strategy))}.")
        last = _last_step(estimator)
        regressor = last if is_regressor(last) else _matching_regressor(last)
        if is_regressor(last) and strategy in ("copies", "samples"):
            raise ValueError(f"targets: {strategy!r} needs a classifier; {_name(last)} is a regressor.")
        if strategy == "auto":
            if regressor is not None and (is_regressor(last) or not _uses_labels_before_last_step(estimator)):
                strategy = "regression"
            else:
                strategy = "samples" if _weight_parameter(estimator) is None else "copies"
        if strategy == "regression":
            if regressor is None:
                known = ", ".join(kind.__name__ for kind in REGRESSORS)
                raise ValueError(
                    f"targets: {_name(last)} with these parameters has no matching regressor; 'regression' "
                    f"works for regressors and for {known}. Use 'auto'."
                )
            return cls(_with_last_step(estimator, regressor), strategy)
        # Of the class: some estimators, such as StackingClassifier, have these methods only once fitted.
        if not (hasattr(type(last), "predict_proba") or hasattr(type(last), "decision_function")):
            raise _without_scores(last)
        if not hasattr(last, "predict_proba") and getattr(last, "decision_function_shape", None) == "ovo":
            raise ValueError(
                f"estimator: {_name(last)} with decision_function_shape='ovo' has a score for every pair of "
                "classes; expected one for every class. Use decision_function_shape='ovr'."
            )
        if strategy == "copies" and _weight_parameter(estimator) is None:
            raise ValueError(
                f"targets: 'copies' needs sample_weight, which {_name(last)}.fit lacks. Use 'samples'."
            )
        return cls(estimator, strategy)

    @property
    def has_out_of_bag(self) -> bool:
        """Whether a fit on all rows also predicts every row by trees that were not fitted on it."""
        # Copies of one row would be in and out of the same bag.
        last = _last_step(self.estimator)
        forest = isinstance(last, ExtraTreesRegressor | RandomForestRegressor)
        return self.strategy == "regression" and forest and bool(last.bootstrap)

    def fit(
        self,
        X: Any,
        targets: Float[np.ndarray, "n k"],
        weight: NDArray[Any] | None,
        seed: int,
        *,
        out_of_bag: bool = False,
    ) -> "SoftTargetModel":
        """Fit a clone to targets whose rows sum to one.

        Args:
            X: features in any form the estimator accepts.
            targets: probability of each class; zero for classes that are ruled out.
            weight: one weight per row.
            seed: for every `random_state` of the estimator that is None, and for sampled labels.
            out_of_bag: also predict the rows out of bag; only if `has_out_of_bag`.
        """
        model = _seeded_clone(self.estimator, seed)
        if weight is not None and (weight == 0).any():
            if out_of_bag:  # these rows are still to be predicted
                weight = np.maximum(weight, np.finfo(float).tiny)
            else:
                kept = np.flatnonzero(weight)
                X, targets, weight = _safe_indexing(X, kept), targets[kept], weight[kept]
        if self.strategy == "regression":
            if out_of_bag:
                _last_step(model).set_params(oob_score=True)
            return SoftTargetModel(self._fit_weighted(model, X, targets, weight), None, targets.shape[1])
        if self.strategy == "copies":
            rows, columns, copy_weight = weighted_copies(targets, weight)
            X, weight = _safe_indexing(X, rows), None if (copy_weight == 1).all() else copy_weight
        else:
            columns = sample_labels(targets, seed)
        # Some libraries insist on labels 0 to m - 1, and a class may be missing from these rows.
        present, labels = np.unique(columns, return_inverse=True)
        if len(present) == 1:
            return SoftTargetModel(None, present, targets.shape[1])
        fitted = self._fit_weighted(model, X, labels, weight)
        return SoftTargetModel(fitted, present[np.asarray(fitted.classes_, dtype=int)], targets.shape[1])

    def _fit_weighted(self, model: Any, X: Any, y: NDArray[Any], weight: NDArray[Any] | None) -> Any:
        if weight is None:
            return model.fit(X, y)
        parameter = _weight_parameter(model)
        if parameter is None:
            raise ValueError(
                f"sample_weight: {_name(_last_step(model))} does not support weights. Leave them out, or use "
                "another estimator."
            )
        return model.fit(X, y, **{parameter: weight})


@dataclass(frozen=True)
class SoftTargetModel:
    """An estimator fitted to soft targets.

    Attributes:
        estimator: the fitted estimator; None if its rows had a single class.
        columns: class of each column of a classifier's probabilities; None for a regressor.
        n_classes: number of classes, seen or not.
    """

    estimator: Any
    columns: NDArray[np.int64] | None
    n_classes: int

    def probabilities(self, X: Any, n: int) -> Float[np.ndarray, "n k"]:
        """Predict the probabilities of all classes; classes not fitted on have probability zero.

        Args:
            X: features.
            n: number of rows.
        """
        if self.columns is None:
            return normalized(np.asarray(self.estimator.predict(X), dtype=float))
        probabilities = np.zeros((n, self.n_classes))
        if self.estimator is None:
            probabilities[:, self.columns] = 1.0
        else:
            probabilities[:, self.columns] = _class_probabilities(self.estimator, X)
        return normalized(probabilities)

    def out_of_bag(self) -> Float[np.ndarray, "n k"]:
        """Probabilities of the rows fitted on, by trees that did not see them; zeros if every tree did."""
        # scikit-learn predicts zeros for rows in every bag; the targets of all others sum to one.
        predicted = np.asarray(_last_step(self.estimator).oob_prediction_, dtype=float)
        return np.where(predicted.any(1, keepdims=True), normalized(predicted), 0.0)


def weighted_copies(
    targets: Float[np.ndarray, "n k"], weight: NDArray[Any] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Row, class and weight of one copy of every row for each of its classes.

    The copies of a row weigh as much as the row.
    """
    kept = np.where(targets >= MIN_COPY_WEIGHT * targets.max(1, keepdims=True), targets, 0.0)
    kept /= kept.sum(1, keepdims=True)
    rows, columns = np.nonzero(kept)
    copy_weight = kept[rows, columns]
    return rows, columns, copy_weight if weight is None else copy_weight * weight[rows]


def sample_labels(targets: Float[np.ndarray, "n k"], seed: int) -> NDArray[np.int64]:
    """Draw one class per row with the probabilities in `targets`."""
    source = counter_rng.seed_for(seed, "sampled labels")
    draws = counter_rng.uniform(source, torch.arange(len(targets)), dtype=torch.float64).numpy()
    cumulative = targets.cumsum(1)
    # Rounding must not make the last sum smaller than a draw.
    drawn: NDArray[np.int64] = (cumulative < draws[:, None] * cumulative[:, -1:]).sum(1)
    return drawn


def normalized(scores: NDArray[Any]) -> Float[np.ndarray, "n k"]:
    """Scale nonnegative rows to sum to one; negative scores count as zero, rows of zeros become uniform."""
    scores = np.maximum(scores, 0.0)
    total = scores.sum(1, keepdims=True)
    uniform = np.full_like(scores, 1 / scores.shape[1])
    shares: NDArray[np.float64] = np.divide(scores, total, out=uniform, where=total > 0)
    return shares


def _class_probabilities(model: Any, X: Any) -> NDArray[np.float64]:
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(X), dtype=float)
    if not hasattr(model, "decision_function"):
        raise _without_scores(_last_step(model))
    scores = np.asarray(model.decision_function(X), dtype=float)
    if scores.ndim == 1:
        return np.stack([expit(-scores), expit(scores)], axis=1)
    return np.asarray(softmax(scores, axis=1))


def _without_scores(estimator: Any) -> TypeError:
    return TypeError(
        f"estimator: {_name(estimator)} has neither predict_proba nor decision_function; expected a "
        "classifier with one of them."
    )


def _matching_regressor(classifier: Any) -> Any | None:
    """Return the regressor with the same parameters; None if there is none."""
    kind = REGRESSORS.get(type(classifier))
    if kind is None:
        return None
    parameters = classifier.get_params(deep=False)
    if any(parameters.get(name, value) != value for name, value in WITHOUT_COUNTERPART.items()):
        return None
    known = kind().get_params(deep=False)
    shared = {n: v for n, v in parameters.items() if n in known and n not in WITHOUT_COUNTERPART}
    return kind(**shared)


def _last_step(estimator: Any) -> Any:
    return _last_step(estimator.steps[-1][1]) if isinstance(estimator, Pipeline) else estimator


def _with_last_step(estimator: Any, last: Any) -> Any:
    if not isinstance(estimator, Pipeline):
        return last
    name, step = estimator.steps[-1]
    return clone(estimator).set_params(**{name: _with_last_step(step, last)})


def _uses_labels_before_last_step(estimator: Any) -> bool:
    """Whether a transformer in a pipeline needs labels, which soft targets are not."""
    if not isinstance(estimator, Pipeline):
        return False
    steps = [step for _, step in estimator.steps]
    return any(map(_uses_labels, steps[:-1])) or _uses_labels_before_last_step(steps[-1])


def _uses_labels(transformer: Any) -> bool:
    # Most feature selectors accept y=None in their tags, and only then fail in `fit`.
    if isinstance(transformer, SelectorMixin):
        return not isinstance(transformer, VarianceThreshold)
    return hasattr(transformer, "fit") and bool(get_tags(transformer).target_tags.required)


def _weight_parameter(estimator: Any) -> str | None:
    """Name of the argument of `fit` for weights; a pipeline hands them to its last step."""
    if isinstance(estimator, Pipeline):
        name, step = estimator.steps[-1]
        inner = _weight_parameter(step)
        return None if inner is None else f"{name}__{inner}"
    return "sample_weight" if has_fit_parameter(estimator, "sample_weight") else None


def _seeded_clone(estimator: Any, seed: int) -> Any:
    model = clone(estimator)
    unset = [
        name
        for name, value in model.get_params().items()
        if value is None and name.split("__")[-1] == "random_state"
    ]
    limit = np.iinfo(np.int32).max
    return model.set_params(**{name: counter_rng.seed_for(seed, name) % limit for name in unset})


def _name(estimator: Any) -> str:
    return type(estimator).__name__

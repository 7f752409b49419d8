"""Any scikit-learn classifier learns from candidate sets, by expectation-maximization on held-out rows."""

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing, get_tags, indexable
from sklearn.utils.validation import _check_sample_weight, _num_samples, check_is_fitted, validate_data

from propall import counter_rng
from propall.estimators.candidate_mixin import CandidateMixin
from propall.estimators.ensemble import RandomState, seed_from
from propall.estimators.folds import CandidateStratifiedKFold, Fold, make_partition
from propall.estimators.resolution import Resolution
from propall.estimators.scorers import CRITERIA, DEFAULT_CRITERION, Criterion, clipped_log, score_or_nan
from propall.estimators.search import resolve_out_of_fold
from propall.estimators.soft_targets import SoftTargetLearner, SoftTargetModel, Strategy, normalized
from propall.estimators.validation import align_columns, check_labels, check_row_count
from propall.labels.candidates import CandidateLabels

#: Rounds without a better held-out score after which the iteration stops.
PATIENCE = 2
#: The iteration stops when no target changes by more than this.
MIN_CHANGE = 1e-3


class _Round(NamedTuple):
    """One iteration: targets fitted to, model of all rows if there is one, held-out probabilities, score."""

    number: int
    targets: NDArray[np.float64]
    model: SoftTargetModel | None
    held_out: NDArray[np.float64]
    score: float


@dataclass(eq=False, repr=False)
class CandidateClassifier(CandidateMixin, MetaEstimatorMixin, BaseEstimator):
    r"""Fits any scikit-learn classifier to candidate sets, ordinary labels or complementary labels.

    Expectation-maximization: the classifier is fitted to a probability per candidate, and its predictions,
    restricted to the candidates, become the next probabilities,

    .. math:: w_{ij} \propto [j \in S_i] \; p_{-i}(j \mid x_i)^\gamma \; a_{ij}

    where :math:`p_{-i}` is a model that was not fitted on row i (out of bag for forests with bootstrap, out
    of fold otherwise), :math:`\gamma` the `sharpening`, and :math:`a` the start posterior with `anchor`, else
    1. A model that has seen a row merely repeats the probabilities it was given, so in-sample predictions
    would not improve them.

    Args:
        estimator: a classifier with `predict_proba` or `decision_function`, a regressor that accepts several
            outputs, or a pipeline that ends in one. None: 400 extremely randomized trees with bootstrap.
            Parameters `random_state` that are None are set from `random_state`.
        targets: how the probabilities are handed to the estimator. "regression" fits one output per class,
            for trees, forests and nearest neighbors as the regressor with the same parameters; "copies"
            repeats each row for each candidate, weighted by `sample_weight`; "samples" draws one label per
            row in each round; "auto" chooses the first of these that the estimator supports.
        max_rounds: maximum number of rounds.
        start: a classifier for candidate sets, such as `PartialLabelClassifier(net="mlp")`, whose
            out-of-fold posterior replaces the uniform one in the first round. For a fitted model, pass
            `sklearn.frozen.FrozenEstimator(model)`; its predictions are used as they are, so it should not
            have been fitted on the same rows. See also `posterior` of `fit`.
        anchor: multiply by the start posterior in every round, not only in the first.
        sharpening: exponent of the predicted probabilities; above 1 for harder targets.
        scoring: a name from `CRITERIA`, or a function of probabilities, candidate matrix and weights. The
            round with the best score on held-out candidate sets is kept, and the iteration stops after two
            rounds without a better one. None keeps the last round.
        cv: number of folds, a splitter, or pairs of rows to fit on and rows to hold out. None: out of bag
            where possible, else five folds.
        classes: class names in order, for candidate matrices or to fix the order; inferred from y by default.
        random_state: seed or generator, for reproducible results.

    Attributes:
        classes_: class names, in the order of the columns of `predict_proba`.
        estimator_: the fitted estimator of the selected round; with "regression" the regressor, None if all
            rows have one class. Its classes are column numbers.
        out_of_fold_: `Resolution` of the rows fitted on, by models that were not fitted on them; not
            calibrated. Equal probabilities for rows that are in the bag of every tree, if there are few.
        posterior_: (n, k) probabilities of the candidates of the rows fitted on, from `out_of_fold_` and the
            anchor; the `posterior` that another model can start from.
        round_: the selected round, counted from 1.
        scores_: held-out score of every round; empty if `scoring` is None.
        n_features_in_: number of features seen in `fit`.

    Notes:
        From the second round on, a row has taught the models that gave other rows their targets, so `scores_`
        and `out_of_fold_` are too optimistic. `resolve_out_of_fold` repeats all rounds without each fold.

        Estimators that split their rows internally (`CalibratedClassifierCV`, early stopping in gradient
        boosting) would see copies of one row on both sides; use `targets="samples"` for them. There is no
        `save`: arbitrary estimators can be stored by pickle only, which executes code when it is loaded.

    References:
        [jin2002learning], with in-sample predictions.

    Examples:
        >>> from propall import CandidateClassifier
        >>> from sklearn.linear_model import LogisticRegression
        >>> X = [[0.0, 1.0], [0.2, 0.9], [0.1, 0.8], [1.0, 0.0], [0.9, 0.2], [0.8, 0.1]]
        >>> y = ["cat|dog", "cat", "cat|dog", "dog", "dog|cat", "dog"]
        >>> clf = CandidateClassifier(LogisticRegression(C=10), cv=2, random_state=0).fit(X, y)
        >>> clf.predict([[0.0, 1.0]]).item()
        'cat'
    """

    estimator: Any = None
    _: KW_ONLY
    targets: Strategy = "auto"
    max_rounds: int = 5
    start: Any = None
    anchor: bool = False
    sharpening: float = 1.0
    scoring: str | Criterion | None = DEFAULT_CRITERION
    cv: Any = None
    classes: Sequence[Hashable] | None = None
    random_state: RandomState = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        prototype = self._prototype()
        if hasattr(prototype, "fit"):  # else `fit` says what is wrong
            tags.input_tags = get_tags(prototype).input_tags
        return tags

    def fit(
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None, *, posterior: ArrayLike | None = None
    ) -> Self:
        """Fit the estimator to labels or candidate sets.

        Args:
            X: features in any form that the estimator accepts.
            y: one entry per row: ordinary labels, candidate sets in any form that
                `CandidateLabels.from_any` accepts, or a `CandidateLabels`.
            sample_weight: one weight per row.
            posterior: (n, k) probabilities of the classes, in the order of `classes_`, to start from instead
                of `start`: `posterior_` of another model, or the `probabilities` of a `Resolution`.
        """
        self._check_parameters()
        (X,) = indexable(X)
        validate_data(self, X, reset=True, skip_check_array=True)
        labels = check_labels(y, self.classes)
        check_row_count(labels, _num_samples(X))
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        learner = SoftTargetLearner.choose(self._prototype(), self.targets)
        seed = seed_from(self.random_state)
        folds = self._folds(X, labels, learner, seed)
        first = self._start_posterior(X, labels, weight, folds, posterior, seed)
        best = self._iterate(learner, X, labels.to_numpy(), weight, folds, first, seed)
        self.classes_ = labels.decode(range(labels.n_classes))
        self._model = best.model or learner.fit(X, best.targets, weight, seed)
        self.estimator_ = self._model.estimator
        self.round_ = best.number
        held_out = normalized(best.held_out)
        self.out_of_fold_ = Resolution(clipped_log(held_out), labels.to_numpy(), self.classes_)
        self.posterior_ = self._next_targets(best, labels.to_numpy(), first)
        return self

    def predict_proba(self, X: Any) -> Float[np.ndarray, "n k"]:
        """Return class probabilities, as the estimator predicts them."""
        check_is_fitted(self)
        (X,) = indexable(X)
        if getattr(X, "ndim", 2) > 1:  # the estimator itself says what is wrong with a single row
            validate_data(self, X, reset=False, skip_check_array=True)
        return self._model.probabilities(X, _num_samples(X))

    def predict_log_proba(self, X: Any) -> Float[np.ndarray, "n k"]:
        """Return log-probabilities; minus infinity for a class that the estimator rules out."""
        with np.errstate(divide="ignore"):
            logs: NDArray[np.float64] = np.log(self.predict_proba(X))
        return logs

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of every row."""
        best = self.predict_proba(X).argmax(1)
        names: NDArray[Any] = self.classes_[best]
        return names

    def _prototype(self) -> Any:
        return ExtraTreesClassifier(400, bootstrap=True) if self.estimator is None else self.estimator

    def _check_parameters(self) -> None:
        if isinstance(self.estimator, type) or not hasattr(self._prototype(), "fit"):
            raise TypeError(
                f"estimator: got {self.estimator!r}; expected a classifier, a regressor or a pipeline, such "
                "as RandomForestClassifier()."
            )
        if not isinstance(self.max_rounds, int | np.integer) or self.max_rounds < 1:
            raise ValueError(f"max_rounds: got {self.max_rounds!r}; expected an integer of at least 1.")
        if not self.sharpening > 0:
            raise ValueError(f"sharpening: got {self.sharpening!r}; expected a positive number.")

    def _folds(
        self, X: Any, labels: CandidateLabels, learner: SoftTargetLearner, seed: int
    ) -> list[Fold] | None:
        """Return the folds; None to predict the rows out of bag."""
        if self.cv is None and learner.has_out_of_bag:
            return None
        cv = min(5, len(labels)) if self.cv is None else self.cv
        if isinstance(cv, int | np.integer):
            cv = CandidateStratifiedKFold(int(cv), random_state=seed)
        return make_partition(cv, X, labels)

    def _start_posterior(
        self,
        X: Any,
        labels: CandidateLabels,
        weight: NDArray[Any] | None,
        folds: list[Fold] | None,
        posterior: ArrayLike | None,
        seed: int,
    ) -> Float[np.ndarray, "n k"]:
        mask = labels.to_numpy()
        uniform: NDArray[np.float64] = mask / mask.sum(1, keepdims=True)
        if posterior is not None:
            given = np.asarray(posterior, dtype=float)
            if given.shape != mask.shape or not (np.isfinite(given) & (given >= 0)).all():
                raise ValueError(
                    f"posterior: got shape {given.shape}; expected {mask.shape}, a finite, nonnegative "
                    "number per row and class."
                )
            return restricted(given, mask, uniform)
        if self.start is None:
            return uniform
        if isinstance(self.start, FrozenEstimator):
            given = np.asarray(self.start.predict_proba(X), dtype=float)
            names = np.asarray(self.start.classes_).tolist()
            return restricted(align_columns(given, names, labels.classes), mask, uniform)
        if folds is None:
            folds = make_partition(CandidateStratifiedKFold(min(5, len(mask)), random_state=seed), X, labels)
        resolution = resolve_out_of_fold(self.start, X, labels, cv=folds, sample_weight=weight)
        # The start may have its own order of the classes.
        return align_columns(resolution.among_candidates, resolution.classes.tolist(), labels.classes)

    def _iterate(
        self,
        learner: SoftTargetLearner,
        X: Any,
        mask: Bool[np.ndarray, "n k"],
        weight: NDArray[Any] | None,
        folds: list[Fold] | None,
        first: Float[np.ndarray, "n k"],
        seed: int,
    ) -> _Round:
        """Run the rounds and return the selected one."""
        criterion = CRITERIA[self.scoring] if isinstance(self.scoring, str) else self.scoring
        self.scores_: list[float] = []
        best, targets = None, first
        for number in range(1, self.max_rounds + 1):
            round_seed = counter_rng.seed_for(seed, f"round {number}")
            model, held_out = predict_held_out(learner, X, targets, weight, folds, round_seed)
            score = np.nan if criterion is None else _score(criterion, held_out, mask, weight)
            current = _Round(number, targets, model, held_out, score)
            if criterion is not None:
                self.scores_.append(score)
            if best is None or criterion is None or score > best.score:
                best = current
            targets = self._next_targets(current, mask, first)
            if number - best.number >= PATIENCE or np.abs(targets - current.targets).max() < MIN_CHANGE:
                break
        assert best is not None
        return best

    def _next_targets(
        self, current: _Round, mask: Bool[np.ndarray, "n k"], first: Float[np.ndarray, "n k"]
    ) -> Float[np.ndarray, "n k"]:
        # The largest entry is one, so that powers of small probabilities do not all underflow.
        inside = np.where(mask, current.held_out, 0.0)
        scale = inside.max(1, keepdims=True)
        scores = np.divide(inside, scale, out=np.zeros_like(inside), where=scale > 0) ** self.sharpening
        return restricted(scores * first if self.anchor else scores, mask, current.targets)


def restricted(
    scores: Float[np.ndarray, "n k"], mask: Bool[np.ndarray, "n k"], fallback: Float[np.ndarray, "n k"]
) -> Float[np.ndarray, "n k"]:
    """Probabilities of the candidates; `fallback` for rows whose candidates all have score zero."""
    inside = np.where(mask, scores, 0.0)
    total = inside.sum(1, keepdims=True)
    shares: NDArray[np.float64] = np.divide(inside, total, out=fallback.copy(), where=total > 0)
    return shares


def _score(
    criterion: Criterion,
    held_out: Float[np.ndarray, "n k"],
    mask: Bool[np.ndarray, "n k"],
    weight: NDArray[Any] | None,
) -> float:
    """The criterion on the rows that have a held-out prediction; NaN if none has."""
    known = held_out.any(1)
    known_weight = None if weight is None else weight[known]
    return score_or_nan(criterion, held_out[known], mask[known], known_weight) if known.any() else np.nan


def predict_held_out(
    learner: SoftTargetLearner,
    X: Any,
    targets: Float[np.ndarray, "n k"],
    weight: NDArray[Any] | None,
    folds: list[Fold] | None,
    seed: int,
) -> tuple[SoftTargetModel | None, Float[np.ndarray, "n k"]]:
    """Predict every row by a model that was not fitted on it.

    Returns:
        The model of all rows, if the predictions are out of bag, and the probabilities: zeros for a row that
        is in the bag of every tree.
    """
    if folds is None:
        with warnings.catch_warnings():
            # With few trees, some rows are in every bag; these keep their targets.
            warnings.filterwarnings("ignore", message="Some inputs do not have OOB scores")
            model = learner.fit(X, targets, weight, seed, out_of_bag=True)
        return model, model.out_of_bag()
    probabilities = np.empty(targets.shape)
    for number, (fit, hold) in enumerate(folds):
        fold_weight = None if weight is None else weight[fit]
        fold_seed = counter_rng.seed_for(seed, f"fold {number}")
        fold_model = learner.fit(_safe_indexing(X, fit), targets[fit], fold_weight, fold_seed)
        probabilities[hold] = fold_model.probabilities(_safe_indexing(X, hold), len(hold))
    return None, probabilities

"""Evaluation of held-out predictions without true labels: criteria on candidate sets, and scorers.

A criterion takes (n, k) probabilities of held-out rows, their (n, k) candidate matrix and optionally a weight
per row.

scikit-learn's functions (`cross_val_score`, `GridSearchCV`, ...) accept candidate sets as `CandidateLabels`
or as a matrix. Do not pass strings such as "cat|dog": some of these functions encode distinct strings, so
that every combination becomes a class. Convert them with `CandidateLabels.from_any(y)`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from propall.estimators.calibration import LOWEST_LOG, fit_temperature, log_mass, log_softmax
from propall.estimators.validation import align_candidates
from propall.labels.candidates import has_few_candidates
from propall.registry import Registry

#: Smallest share of a class's rows that a label is assumed to be a candidate, or not one, in.
SMALLEST_SHARE = 1e-3

#: A criterion: probabilities, candidate matrix, weights -> a number; higher is better.
Criterion = Callable[[ArrayLike, ArrayLike, ArrayLike | None], float]


def covering_rate(
    probabilities: ArrayLike, candidates: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    """Share of rows whose predicted class is a candidate; scores work like probabilities.

    References:
        [wang2025realistic].
    """
    chances, mask = _check_shapes(probabilities, candidates)
    return _mean(mask[np.arange(len(mask)), chances.argmax(1)], sample_weight)


def weighted_covering_rate(
    probabilities: ArrayLike, candidates: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    r"""Share of rows whose predicted class is a candidate, weighted by the inverse set size.

    .. math:: \sum_i [\hat y_i \in S_i] \, \lvert S_i \rvert^{-1} \Big/ \sum_i \lvert S_i \rvert^{-1}

    Proportional to the expected accuracy if every candidate were equally likely to be the true label. Large
    sets are easy to hit, especially by labels that often co-occur with the true one.
    """
    chances, mask = _check_shapes(probabilities, candidates)
    weight = np.ones(len(mask)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    return covering_rate(chances, mask, weight / np.maximum(mask.sum(1), 1))


def approximated_accuracy(
    probabilities: ArrayLike, candidates: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    r"""Mean probability of the predicted class among the candidates; 0 if it is not a candidate.

    .. math:: \frac1n \sum_i [\hat y_i \in S_i] \; p_{i \hat y_i} \Big/ \sum_{j \in S_i} p_{ij}

    The accuracy of a model whose probabilities are correct within the candidate sets; overconfident models
    score too high.

    References:
        [wang2025realistic].
    """
    chances, mask = _check_shapes(probabilities, candidates)
    row, predicted = np.arange(len(mask)), chances.argmax(1)
    hit = mask[row, predicted]
    # If the predicted class is a candidate the sum is at least 1/k; otherwise it may be 0.
    inside = np.where(mask, chances, 0.0).sum(1)
    share = np.where(hit, chances[row, predicted], 0.0) / np.where(hit, inside, 1.0)
    return _mean(share, sample_weight)


def candidate_log_likelihood(
    probabilities: ArrayLike, candidates: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    r"""Mean log-probability of the candidate sets.

    .. math:: \frac1n \sum_i \log \sum_{j \in S_i} p_{ij}

    For complementary labels, the set holds every class that is not excluded. Rows with every class add 0.
    """
    chances, mask = _check_shapes(probabilities, candidates)
    return _mean(log_mass(clipped_log(chances), mask), sample_weight)


def tempered_log_likelihood(
    probabilities: ArrayLike, candidates: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    """`candidate_log_likelihood` at the temperature that maximizes it (see `fit_temperature`).

    Compares methods whose probabilities are calibrated to different degrees: their overall confidence does
    not count.
    """
    chances, mask = _check_shapes(probabilities, candidates)
    logs = clipped_log(chances)
    temperature = fit_temperature(logs, mask, sample_weight)
    return _mean(log_mass(log_softmax(logs, temperature), mask), sample_weight)


def cooccurrence_log_likelihood(
    probabilities: ArrayLike, candidates: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    r"""Mean log-likelihood of the candidate sets, given which labels are candidates together.

    .. math:: \frac1n \sum_i \log \sum_{y \in S_i} p_{iy} \, P(S_i \mid y)

    with P(S | y) from `log_set_probabilities`. Unlike `candidate_log_likelihood`, it does not reward a model
    for predicting a label that accompanies many others, such as the background of a scene.
    """
    chances, mask = _check_shapes(probabilities, candidates)
    if has_few_candidates(mask):
        sets = CandidatePairs.of(mask)
        logs = sets.log_probabilities(chances[sets.row, sets.label], sample_weight)
        values = sets.log_sum_exp(clipped_log(chances[sets.row, sets.label]) + logs)
        return _mean(np.maximum(values, LOWEST_LOG), sample_weight)
    logs = log_set_probabilities(chances, mask, sample_weight)
    return _mean(np.maximum(logsumexp(clipped_log(chances) + logs, axis=1), LOWEST_LOG), sample_weight)


def log_set_probabilities(
    probabilities: ArrayLike, candidates: ArrayLike, sample_weight: ArrayLike | None = None
) -> NDArray[Any]:
    r"""Log-probability of every row's candidate set if a label is the true one; -inf for other labels.

    .. math:: \log P(S \mid y) = \sum_{j \ne y} \log \bigl( [j \in S] \, c_{yj}
        + [j \notin S] (1 - c_{yj}) \bigr)

    where c is the share of the rows of class y that have j as a candidate, estimated from the model's
    posterior on the candidates. The candidates other than the true label are taken to be independent.
    """
    chances, mask = _check_shapes(probabilities, candidates)
    inside = np.where(mask, chances, 0.0)
    total = inside.sum(1, keepdims=True)
    uniform = mask / np.maximum(mask.sum(1, keepdims=True), 1)
    posterior = np.where(total > 0, inside / np.where(total > 0, total, 1), uniform)
    weight = np.ones(len(mask)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    posterior = posterior * weight[:, None]
    # Half a row of every class has the labels' overall shares, for classes with few rows.
    overall = np.average(mask, axis=0, weights=weight)
    shares = (posterior.T @ mask + 0.5 * overall) / (posterior.sum(0)[:, None] + 0.5)
    shares = np.clip(shares, SMALLEST_SHARE, 1 - SMALLEST_SHARE)
    present, absent = np.log(shares), np.log1p(-shares)
    logs = mask @ present.T + ~mask @ absent.T - np.diag(present)
    return np.where(mask, logs, -np.inf)


@dataclass(frozen=True)
class CandidatePairs:
    """The candidates of all rows as a list, and all pairs of candidates of one row.

    Gives the numbers of `log_set_probabilities` up to rounding, without a number for every class of every
    row.

    Attributes:
        shape: number of rows and classes.
        row: row of every candidate, ascending.
        label: its class.
        one: position in these lists of the first candidate of every pair.
        other: position of the second candidate; every candidate is also paired with itself.
    """

    shape: tuple[int, int]
    row: NDArray[np.intp]
    label: NDArray[np.intp]
    one: NDArray[np.intp]
    other: NDArray[np.intp]

    @classmethod
    def of(cls, candidates: NDArray[np.bool_]) -> Self:
        """List the candidates of an (n, k) matrix."""
        n_rows, n_classes = candidates.shape
        row, label = np.nonzero(candidates)
        sizes = np.bincount(row, minlength=n_rows)
        partners = sizes[row]
        one = np.repeat(np.arange(len(row)), partners)
        place = np.arange(len(one)) - np.repeat(np.cumsum(partners) - partners, partners)
        first = np.cumsum(sizes) - sizes
        return cls((n_rows, n_classes), row, label, one, first[row[one]] + place)

    def log_probabilities(self, chances: NDArray[Any], sample_weight: ArrayLike | None) -> NDArray[Any]:
        """`log_set_probabilities` of every candidate, from the probability of each."""
        n_rows, n_classes = self.shape
        weight = np.ones(n_rows) if sample_weight is None else np.asarray(sample_weight, dtype=float)
        total = np.bincount(self.row, chances, n_rows)[self.row]
        uniform = 1 / np.bincount(self.row, minlength=n_rows)[self.row]
        posterior = np.where(total > 0, chances / np.where(total > 0, total, 1), uniform) * weight[self.row]
        overall = np.bincount(self.label, weight[self.row], n_classes) / weight.sum()
        pair = self.label[self.one] * n_classes + self.label[self.other]
        together = np.bincount(pair, posterior[self.one], n_classes**2).reshape(n_classes, n_classes)
        of_class = np.bincount(self.label, posterior, n_classes)
        shares = (together + 0.5 * overall) / (of_class[:, None] + 0.5)
        shares = np.clip(shares, SMALLEST_SHARE, 1 - SMALLEST_SHARE)
        present, absent = np.log(shares), np.log1p(-shares)
        inside = np.bincount(self.one, (present - absent).reshape(-1)[pair], len(self.row))
        logs: NDArray[Any] = inside + (absent.sum(1) - np.diag(present))[self.label]
        return logs

    def log_sum_exp(self, logs: NDArray[Any]) -> NDArray[Any]:
        """Logarithm of the sum over the candidates of every row; -inf for rows without candidates."""
        maximum = np.full(self.shape[0], -np.inf)
        np.maximum.at(maximum, self.row, logs)
        total = np.bincount(self.row, np.exp(logs - maximum[self.row]), self.shape[0])
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(total) + maximum)


def _check_shapes(probabilities: ArrayLike, candidates: ArrayLike) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    chances, mask = np.asarray(probabilities, dtype=float), np.asarray(candidates, dtype=bool)
    if chances.ndim != 2 or chances.shape != mask.shape or not len(chances):
        raise ValueError(
            f"candidates: got shape {mask.shape} for probabilities of shape {chances.shape}; expected two "
            "matrices of the same shape (rows, classes) with at least one row."
        )
    return chances, mask


def _mean(values: NDArray[Any], weight: ArrayLike | None) -> float:
    return float(np.average(values, weights=None if weight is None else np.asarray(weight, dtype=float)))


def clipped_log(probabilities: NDArray[Any]) -> NDArray[Any]:
    """Logarithm of probabilities, at least `LOWEST_LOG`."""
    with np.errstate(divide="ignore"):
        logs: NDArray[Any] = np.maximum(np.log(probabilities), LOWEST_LOG)
    return logs


def score_or_nan(
    criterion: Criterion,
    probabilities: NDArray[Any],
    candidates: NDArray[np.bool_],
    sample_weight: NDArray[Any] | None = None,
) -> float:
    """Evaluate a criterion; NaN for a diverged model, since argmax picks an arbitrary class among NaNs."""
    if not np.isfinite(probabilities).all():
        return float("nan")
    return criterion(probabilities, candidates, sample_weight)


_COVERING = (covering_rate, weighted_covering_rate, approximated_accuracy)
_LIKELIHOODS = (candidate_log_likelihood, tempered_log_likelihood, cooccurrence_log_likelihood)
CRITERIA: Registry[Criterion] = Registry(
    "criterion", ((function.__name__, function) for function in (*_COVERING, *_LIKELIHOODS))
)
"""All criteria by name.

Examples:
    >>> probabilities = [[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]]
    >>> candidates = [[True, True, False], [True, True, False]]
    >>> CRITERIA["covering_rate"](probabilities, candidates)  # the second prediction is not a candidate
    0.5
"""
#: Default criterion. On average over Lost, MSRCv2 and BirdSong it loses least accuracy compared with
#: selection by true labels (results/scripts/selection.py). If no setting works well, as on FG-NET, no
#: criterion is informative.
DEFAULT_CRITERION = weighted_covering_rate.__name__


@dataclass(frozen=True)
class CandidateScorer:
    """A criterion as a scikit-learn scorer: `scorer(estimator, X, y)` with candidate sets in y.

    Works with every classifier that has `predict_proba` and `classes_`, including pipelines. Candidates that
    are not among the classifier's classes are ignored.

    Attributes:
        criterion: function of probabilities, candidate matrix and weights.

    Examples:
        >>> from propall import CandidateLabels, CandidateStratifiedKFold, PartialLabelClassifier
        >>> from sklearn.model_selection import cross_val_score
        >>> X = [[0.0, 1.0], [1.0, 0.0], [0.1, 0.9], [0.9, 0.2], [0.9, 0.9], [1.0, 0.8]]
        >>> y = CandidateLabels.from_strings(["cat|dog", "dog", "cat", "dog|cow", "cow|cat", "cow"])
        >>> clf = PartialLabelClassifier(epochs=20, random_state=0)
        >>> scores = cross_val_score(
        ...     clf, X, y, scoring=SCORERS["covering_rate"], cv=CandidateStratifiedKFold(2)
        ... )
        >>> len(scores)
        2
    """

    criterion: Criterion

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Evaluate the estimator's probabilities on X against the candidate sets y."""
        mask = align_candidates(y, estimator.classes_)
        return self.criterion(estimator.predict_proba(X), mask, sample_weight)


SCORERS: Registry[CandidateScorer] = Registry(
    "criterion", ((name, CandidateScorer(criterion)) for name, criterion in CRITERIA.items())
)
"""All criteria as scikit-learn scorers; `GridSearchCV(scoring=SCORERS)` evaluates all of them.

Examples:
    >>> sorted(SCORERS) == sorted(CRITERIA)
    True
"""

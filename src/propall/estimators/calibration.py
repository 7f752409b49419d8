"""Calibration: temperature scaling without true labels, and reliability with them."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar

from propall import counter_rng
from propall.estimators.folds import Fold
from propall.labels.candidates import MANY_CLASSES

#: Temperatures are searched between 1 / MAX_TEMPERATURE and MAX_TEMPERATURE.
MAX_TEMPERATURE = 50.0
#: Scores that are processed at once.
BLOCK_VALUES = 1 << 14
#: With many classes, maximum number of scores that temperatures are fitted to: a sample of the rows.
CALIBRATION_VALUES = 1 << 22
#: Share of candidates in a block of scores below which only these are visited.
FEW_CANDIDATES = 0.25
#: Log of the smallest probability that is distinguished from zero.
LOWEST_LOG = -700.0


def log_mass(log_probabilities: ArrayLike, candidates: ArrayLike) -> NDArray[Any]:
    r"""Log-probability of each row's candidate set, :math:`\log \sum_{j \in S} p_j`.

    At least `LOWEST_LOG`, even for an empty set (a label unknown to the model).
    """
    mask = np.asarray(candidates, dtype=bool)
    inside = np.where(mask, np.asarray(log_probabilities, dtype=float), -np.inf)
    inside = np.maximum(inside, 2 * LOWEST_LOG)  # a row of -inf has no maximum to subtract
    total = _log_sum_exp(inside, inside.max(-1, keepdims=True))[..., 0]
    clipped: NDArray[Any] = np.clip(total, LOWEST_LOG, 0.0)
    return clipped


def log_softmax(scores: ArrayLike, temperature: float = 1.0) -> NDArray[Any]:
    """Log-softmax of scores (or log-probabilities) divided by a temperature."""
    return _normalize(_below_maximum(np.asarray(scores, dtype=float)) / temperature)


def _below_maximum(scores: NDArray[Any]) -> NDArray[Any]:
    """Differences from the maximum of the row, at least `LOWEST_LOG`."""
    differences: NDArray[Any] = np.maximum(scores - scores.max(-1, keepdims=True), LOWEST_LOG)
    return differences


def _normalize(differences: NDArray[Any]) -> NDArray[Any]:
    """Log-softmax of scores whose maximum in every row is 0."""
    normalized: NDArray[Any] = differences - _log_sum_exp(differences, 0.0)
    return normalized


def _log_sum_exp(values: NDArray[Any], maximum: NDArray[Any] | float) -> NDArray[Any]:
    """Log of the sum of the exponentials of every row, given the finite maximum of each; (..., 1).

    The same steps as in `scipy.special.logsumexp` and so the same numbers, but without its second sum for
    infinite values: calibration spends most of its time here.
    """
    is_maximum = np.flatnonzero(values == maximum)
    exponentials = np.exp(values - maximum)
    exponentials.flat[is_maximum] = 0.0  # counted exactly
    shape = (*values.shape[:-1], 1)
    rows = is_maximum // max(1, values.shape[-1])
    count = np.bincount(rows, minlength=math.prod(shape)).astype(float).reshape(shape)
    with np.errstate(divide="ignore", invalid="ignore"):  # rows with NaN have no maximum, and stay NaN
        others = exponentials.sum(-1, keepdims=True) / count
        result: NDArray[Any] = np.log1p(others) + np.log(count) + maximum
    return result


def fit_temperature(
    scores: ArrayLike, candidates: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    r"""Find the temperature that maximizes the likelihood of held-out candidate sets.

    .. math:: \max_T \; \sum_i \log \sum_{j \in S_i} \operatorname{softmax}(r_i / T)_j - \tfrac12 (\log T)^2

    Requires no true labels. If candidate sets depend on the true label alone and not on the instance, this is
    the likelihood of T; otherwise it reflects only errors outside the candidate sets. Predictions do not
    depend on T.

    Args:
        scores: (n, k) scores or log-probabilities of rows that the model was not fitted on.
        candidates: (n, k), True for candidates.
        sample_weight: one weight per row.

    Returns:
        T; above 1 for an overconfident model.

    Notes:
        The last term is a prior that weighs as much as one row. Without it, T would go to zero if every
        prediction is a candidate. Sets of several labels make the objective non-concave, so a coarse grid
        search precedes Brent's method. With more than `MANY_CLASSES` classes, a random sample of the rows
        with `CALIBRATION_VALUES` scores determines T.

    References:
        [guo2017calibration], for true labels.
    """
    return fit_temperatures(scores, candidates, [np.arange(len(np.asarray(scores)))], sample_weight)[0]


def fit_temperatures(
    scores: ArrayLike,
    candidates: ArrayLike,
    subsets: Sequence[NDArray[np.intp]],
    sample_weight: ArrayLike | None = None,
) -> list[float]:
    """Find the temperature of each of several subsets of the rows; see `fit_temperature`.

    Args:
        scores: (n, k) scores or log-probabilities of rows that the model was not fitted on.
        candidates: (n, k), True for candidates.
        subsets: indices of the rows of each subset.
        sample_weight: one weight per row.
    """
    values, mask = np.asarray(scores, dtype=float), np.asarray(candidates, dtype=bool)
    if mask.shape != values.shape or mask.ndim != 2:
        raise ValueError(
            f"candidates: got shape {mask.shape} for scores of shape {values.shape}; expected a matrix "
            "of the same shape."
        )
    weight = np.ones(len(mask)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    # The other rows do not depend on the temperature.
    informative: NDArray[np.bool_] = np.asarray(mask.any(1) & ~mask.all(1))
    if mask.shape[1] > MANY_CLASSES:
        informative = _sample(informative, CALIBRATION_VALUES // mask.shape[1])
    position = informative.cumsum() - 1
    parts = [position[rows[informative[rows]]] for rows in subsets]
    mask, weight = mask[informative], weight[informative]
    differences = _below_maximum(log_softmax(values[informative]))

    limit = np.log(MAX_TEMPERATURE)
    grid = np.linspace(-limit, limit, 25)
    costs = np.empty((len(grid), len(parts)))
    for number, log_temperature in enumerate(grid):
        # Rows that are in several subsets are evaluated once.
        likelihood = _log_likelihood(differences, mask, np.exp(log_temperature))
        costs[number] = [log_temperature**2 / 2 - weight[rows] @ likelihood[rows] for rows in parts]
    best = costs.argmin(0)
    lower, upper = grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, len(grid) - 1)]
    return [
        _best_temperature(differences[rows], mask[rows], weight[rows], (low, high))
        for rows, low, high in zip(parts, lower.tolist(), upper.tolist(), strict=True)
    ]


def _sample(rows: NDArray[np.bool_], size: int) -> NDArray[np.bool_]:
    """At most this number of the rows that are True, drawn at random."""
    positions = np.flatnonzero(rows)
    if len(positions) <= size:
        return rows
    seed = counter_rng.seed_for(0, "calibration rows")
    drawn = counter_rng.order(seed, torch.from_numpy(positions)).numpy()[:size]
    chosen = np.zeros_like(rows)
    # `order` returns places among the positions.
    chosen[positions[drawn]] = True
    return chosen


def _best_temperature(
    differences: NDArray[Any], mask: NDArray[np.bool_], weight: NDArray[Any], log_bounds: tuple[float, float]
) -> float:
    """Find the temperature between two bounds, by Brent's method."""

    def cost(log_temperature: float) -> float:
        likelihood = _log_likelihood(differences, mask, np.exp(log_temperature))
        return float(log_temperature**2 / 2 - weight @ likelihood)

    optimum = minimize_scalar(cost, bounds=log_bounds, method="bounded", options={"xatol": 1e-4})
    return float(np.exp(optimum.x))


def _log_likelihood(
    differences: NDArray[Any], candidates: NDArray[np.bool_], temperature: float
) -> NDArray[Any]:
    """Log-probability of every row's set at a temperature, from differences to the largest score."""
    # In blocks that stay in the cache: with thousands of classes, a pass over all rows at once is slower and
    # needs several copies of the scores.
    step = max(1, BLOCK_VALUES // max(1, candidates.shape[1]))
    likelihood = np.empty(len(candidates))
    for start in range(0, len(candidates), step):
        rows = slice(start, start + step)
        likelihood[rows] = _tempered_log_mass(differences[rows] / temperature, candidates[rows])
    return likelihood


def _tempered_log_mass(differences: NDArray[Any], candidates: NDArray[np.bool_]) -> NDArray[Any]:
    """`log_mass` of `_normalize`, for sets that are not empty; visits only the candidates if they are few.

    Other labels add exact zeros to the sum of `log_mass`, at their places, so both give the same numbers.
    """
    positions = np.flatnonzero(candidates)
    if len(positions) > FEW_CANDIDATES * candidates.size:
        return log_mass(_normalize(differences), candidates)
    rows = positions // candidates.shape[1]
    first = np.searchsorted(rows, np.arange(len(candidates)))
    logs = differences.reshape(-1)[positions] - _log_sum_exp(differences, 0.0)[rows, 0]
    logs = np.maximum(logs, 2 * LOWEST_LOG)
    maximum = np.maximum.reduceat(logs, first)
    is_maximum = logs == maximum[rows]
    exponentials = np.zeros(differences.shape)
    exponentials.reshape(-1)[positions] = np.where(is_maximum, 0.0, np.exp(logs - maximum[rows]))
    count = np.bincount(rows[is_maximum], minlength=len(candidates)).astype(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        total = np.log1p(exponentials.sum(-1) / count) + np.log(count) + maximum
    clipped: NDArray[Any] = np.clip(total, LOWEST_LOG, 0.0)
    return clipped


def cross_calibrate(
    log_probabilities: NDArray[Any],
    candidates: NDArray[np.bool_],
    folds: Sequence[Fold],
    sample_weight: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Scale each fold's log-probabilities by the temperature fitted on the other folds."""
    held_out = [hold for _, hold in folds]
    others = [np.setdiff1d(np.arange(len(candidates)), hold) for hold in held_out]
    calibrated = np.empty(log_probabilities.shape)
    temperatures = fit_temperatures(log_probabilities, candidates, others, sample_weight)
    for hold, temperature in zip(held_out, temperatures, strict=True):
        calibrated[hold] = log_softmax(log_probabilities[hold], temperature)
    return calibrated


class Reliability(NamedTuple):
    """Row count, mean confidence and accuracy per bin of a reliability diagram; NaN for empty bins."""

    edges: NDArray[Any]
    counts: NDArray[Any]
    confidence: NDArray[Any]
    accuracy: NDArray[Any]

    @property
    def error(self) -> float:
        """Expected calibration error: mean gap between confidence and accuracy, weighted by rows."""
        gap = np.nan_to_num(np.abs(self.confidence - self.accuracy))
        return float(gap @ self.counts / self.counts.sum())


def reliability(confidence: ArrayLike, correct: ArrayLike, *, n_bins: int = 15) -> Reliability:
    """Group predictions, given their probabilities and correctness, into confidence bins of equal width."""
    confidence, correct = np.asarray(confidence, dtype=float), np.asarray(correct, dtype=float)
    if confidence.shape != correct.shape or confidence.ndim != 1 or not len(confidence):
        raise ValueError(
            f"confidence: got shape {confidence.shape} with correct of shape {correct.shape}; expected two "
            "vectors of equal length with at least one row."
        )
    edges = np.linspace(0, 1, n_bins + 1)
    bins = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, n_bins - 1)
    counts = np.bincount(bins, minlength=n_bins)
    with np.errstate(invalid="ignore"):
        means = [np.bincount(bins, values, n_bins) / counts for values in (confidence, correct)]
    return Reliability(edges, counts, *means)


def expected_calibration_error(probabilities: ArrayLike, truth: ArrayLike, *, n_bins: int = 15) -> float:
    r"""Average gap between the probability of the predicted class and the accuracy.

    .. math:: \sum_b \frac{n_b}{n} \bigl\lvert \operatorname{acc}(b) - \operatorname{conf}(b) \bigr\rvert

    over bins b of equal width. Requires true labels, so it can evaluate a model but not select one.

    Args:
        probabilities: (n, k), rows summing to one.
        truth: (n,) indices of the true classes.
        n_bins: number of bins.

    References:
        [guo2017calibration].
    """
    probabilities, truth = np.asarray(probabilities, dtype=float), np.asarray(truth)
    if probabilities.ndim != 2 or truth.shape != probabilities.shape[:1]:
        raise ValueError(
            f"truth: got shape {truth.shape} for probabilities of shape {probabilities.shape}; expected one "
            "class index per row."
        )
    predicted = probabilities.argmax(1)
    return reliability(probabilities.max(1), predicted == truth, n_bins=n_bins).error

"""Whether a stated probability can be believed, and the temperature that mends it without true labels."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

#: Temperatures are looked for between the inverse of this and this.
HOTTEST = 50.0
#: Log of the smallest probability that is told from zero.
LOWEST_LOG = -700.0


def log_mass(log_probabilities: ArrayLike, candidates: ArrayLike) -> NDArray[Any]:
    r"""Log of the probability of every row's candidate set, :math:`\log \sum_{j \in S} p_j`.

    At least `LOWEST_LOG`, also where the set is empty: a label that a model has never heard of.
    """
    mask = np.asarray(candidates, dtype=bool)
    inside = np.where(mask, np.asarray(log_probabilities, dtype=float), -np.inf)
    # A row of -inf has no largest entry to subtract; the floor comes first.
    total: NDArray[Any] = logsumexp(np.maximum(inside, 2 * LOWEST_LOG), axis=-1)
    clipped: NDArray[Any] = np.clip(total, LOWEST_LOG, 0.0)
    return clipped


def log_softmax(scores: ArrayLike, temperature: float = 1.0) -> NDArray[Any]:
    """Log-probabilities of scores (or of log-probabilities) divided by a temperature."""
    scores = np.asarray(scores, dtype=float)
    scaled = np.maximum(scores - scores.max(-1, keepdims=True), LOWEST_LOG) / temperature
    found: NDArray[Any] = scaled - logsumexp(scaled, axis=-1, keepdims=True)
    return found


def fit_temperature(
    scores: ArrayLike, candidates: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    r"""The temperature under which held-out candidate sets are likeliest.

    .. math:: \max_T \; \sum_i \log \sum_{j \in S_i} \operatorname{softmax}(r_i / T)_j - \tfrac12 (\log T)^2

    Needs no true labels. Where sets arise from the true label alone, whatever the instance, this is the
    likelihood of T; otherwise it sees only errors that leave the candidate set. Dividing by T changes no
    prediction.

    Args:
        scores: (n, k) scores or log-probabilities of rows that the model was not fitted on.
        candidates: (n, k), True on the candidates.
        sample_weight: one weight per row.

    Returns:
        T; above 1 for a model that was too sure of itself.

    Notes:
        The last term weighs as much as one row. Without it T would fall to zero where every prediction is a
        candidate. Sets of several labels make the sum non-concave, so a coarse grid comes before Brent's
        search.

    References:
        [guo2017calibration], for true labels.
    """
    scores = log_softmax(scores)
    mask = np.asarray(candidates, dtype=bool)
    if mask.shape != scores.shape or mask.ndim != 2:
        raise ValueError(
            f"candidates: shape {mask.shape} for scores of shape {scores.shape}; give a bool for every score."
        )
    weight = np.ones(len(mask)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    telling = mask.any(1) & ~mask.all(1)  # other rows are equally likely at every temperature
    scores, mask, weight = scores[telling], mask[telling], weight[telling]

    def cost(log_temperature: float) -> float:
        likelihood = log_mass(log_softmax(scores, np.exp(log_temperature)), mask)
        return float(log_temperature**2 / 2 - weight @ likelihood)

    reach = np.log(HOTTEST)
    grid = np.linspace(-reach, reach, 25)
    best = int(np.argmin([cost(t) for t in grid]))
    around = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    found = minimize_scalar(cost, bounds=around, method="bounded", options={"xatol": 1e-4})
    return float(np.exp(found.x))


class Reliability(NamedTuple):
    """How often predictions are right, by how sure they are.

    Attributes:
        edges: limits of the bins, from 0 to 1.
        counts: rows in each bin.
        confidence: their mean stated probability; NaN in an empty bin.
        accuracy: the share of them that is right; NaN in an empty bin.
    """

    edges: NDArray[Any]
    counts: NDArray[Any]
    confidence: NDArray[Any]
    accuracy: NDArray[Any]

    @property
    def error(self) -> float:
        """Mean distance between the two, weighted by rows: the expected calibration error."""
        gap = np.nan_to_num(np.abs(self.confidence - self.accuracy))
        return float(gap @ self.counts / self.counts.sum())


def reliability(confidence: ArrayLike, correct: ArrayLike, *, n_bins: int = 15) -> Reliability:
    """Bins of equal width over the stated probability.

    Args:
        confidence: (n,) stated probability of each row's prediction.
        correct: (n,) whether the prediction is right.
        n_bins: number of bins.
    """
    confidence, correct = np.asarray(confidence, dtype=float), np.asarray(correct, dtype=float)
    if confidence.shape != correct.shape or confidence.ndim != 1 or not len(confidence):
        raise ValueError(
            f"confidence: shape {confidence.shape} beside correct of shape {correct.shape}; give one number "
            "and one truth value per row, and at least one row."
        )
    edges = np.linspace(0, 1, n_bins + 1)
    place = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, n_bins - 1)
    counts = np.bincount(place, minlength=n_bins)
    with np.errstate(invalid="ignore"):
        means = [np.bincount(place, values, n_bins) / counts for values in (confidence, correct)]
    return Reliability(edges, counts, *means)


def expected_calibration_error(probabilities: ArrayLike, truth: ArrayLike, *, n_bins: int = 15) -> float:
    r"""How far the probability of the prediction is from the share of right predictions, on average.

    .. math:: \sum_b \frac{n_b}{n} \bigl\lvert \operatorname{acc}(b) - \operatorname{conf}(b) \bigr\rvert

    over bins b of equal width. Needs true labels, so it evaluates a model and cannot select one.

    Args:
        probabilities: (n, k), rows summing to one.
        truth: (n,) true columns.
        n_bins: number of bins.

    References:
        [guo2017calibration].
    """
    probabilities, truth = np.asarray(probabilities, dtype=float), np.asarray(truth)
    if probabilities.ndim != 2 or truth.shape != probabilities.shape[:1]:
        raise ValueError(
            f"truth: shape {truth.shape} for probabilities of shape {probabilities.shape}; give the number "
            "of the true column of every row."
        )
    chosen = probabilities.argmax(1)
    return reliability(probabilities.max(1), chosen == truth, n_bins=n_bins).error

"""Combine a model's probabilities with what annotators said, estimating how reliable each source is."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, logit

from propall.estimators.calibration import log_mass
from propall.estimators.resolution import Resolution
from propall.tables.label_columns import LabeledRows

#: Upper bound on an annotator's accuracy: at 1, a single mistake would rule out the truth.
MAX_ACCURACY = 0.999
#: Maximum number of iterations, and the change below which they stop.
MAX_ITERATIONS, TOLERANCE = 200, 1e-6
#: Number of rows that an error rate from an earlier file counts as.
PRIOR_ROWS = 50
#: Above this probability that no candidate is correct, a row is reported as doubtful.
DOUBTFUL = 0.5


class Posterior(NamedTuple):
    """Class probabilities given a model and annotators' answers.

    Attributes:
        log_probabilities: (n, k) log-probability of every class.
        accuracy: (m,) estimated accuracy of each annotator; a single number for anonymous votes.
    """

    log_probabilities: NDArray[np.float64]
    accuracy: NDArray[np.float64]


def combine_answers(log_probabilities: NDArray[np.floating], answers: NDArray[np.int64]) -> Posterior:
    r"""Combine a model's probabilities with the answers of known annotators.

    .. math:: q_i(y) \propto p_i(y) \prod_m a_m^{[z_{im} = y]}
        \Bigl(\frac{1 - a_m}{k - 1}\Bigr)^{[z_{im} \ne y]}, \qquad a_m = \frac{\sum_i q_i(z_{im})}{n_m}

    alternating until convergence. Each annotator is judged by the model and the other annotators. Answers
    are assumed to be independent given the class, and wrong answers uniform over the other classes.

    Args:
        log_probabilities: (n, k) from a model that was not fitted on these rows.
        answers: (n, m) class indices, -1 for no answer.

    References:
        Dawid and Skene, Maximum likelihood estimation of observer error-rates using the EM algorithm (1979),
        with one error rate per annotator and a model instead of class frequencies.
    """
    n, k = log_probabilities.shape
    counts = np.zeros((answers.shape[1], n, k))
    for votes, column in zip(counts, answers.T, strict=True):
        answered = np.flatnonzero(column >= 0)
        votes[answered, column[answered]] = 1.0
    return _expectation_maximization(np.asarray(log_probabilities, dtype=np.float64), counts)


def combine_votes(log_probabilities: NDArray[np.floating], counts: NDArray[np.int64]) -> Posterior:
    """Combine a model's probabilities with (n, k) counts of anonymous votes, assumed equally accurate."""
    votes = counts[None].astype(np.float64)
    return _expectation_maximization(np.asarray(log_probabilities, dtype=np.float64), votes)


def _expectation_maximization(logs: NDArray[np.float64], counts: NDArray[np.float64]) -> Posterior:
    k = logs.shape[1]
    n_answers = counts.sum((1, 2))
    accuracy = np.full(len(counts), (1 + 1 / k) / 2)
    posterior = logs
    for _ in range(MAX_ITERATIONS):
        weight = np.log(accuracy * (k - 1) / (1 - accuracy))
        posterior = log_softmax(logs + np.tensordot(weight, counts, 1), axis=1)
        n_correct = np.tensordot(counts, np.exp(posterior), 2)
        estimate = np.divide(n_correct, n_answers, out=accuracy.copy(), where=n_answers > 0)
        previous, accuracy = accuracy, np.clip(estimate, 1 / k, MAX_ACCURACY)
        if np.abs(accuracy - previous).max() < TOLERANCE:
            break
    return Posterior(posterior, accuracy)


class SetErrors(NamedTuple):
    """The probability (n,) that each candidate set lacks the true label, and the share of sets that do."""

    doubt: NDArray[np.float64]
    rate: float


def estimate_set_errors(
    log_probabilities: NDArray[np.floating], candidates: NDArray[np.bool_], rate: float | None = None
) -> SetErrors:
    r"""Estimate the probability that the true label is outside each candidate set.

    .. math:: \frac{d_i}{1 - d_i} = \frac{\varepsilon}{1 - \varepsilon} \cdot \frac{|S_i|}{k - |S_i|}
        \cdot \frac{\sum_{j \notin S_i} p_{ij}}{\sum_{j \in S_i} p_{ij}}, \qquad
        \varepsilon = \frac{w \varepsilon_0 + \sum_i d_i}{w + n}

    alternating until convergence. A set lacks the true label with probability epsilon; the other labels are
    in it by chance. With the model alone, every set on which the model is wrong would look doubtful; the
    estimated error rate corrects for this.

    Args:
        log_probabilities: (n, k) from a model that was not fitted on these rows.
        candidates: (n, k), True for candidates; rows with every class are skipped.
        rate: error rate of similar sets, used as a prior worth `PRIOR_ROWS` rows; by default epsilon_0 is
            one half and w is 1.
    """
    odds = set_error_odds(log_probabilities, candidates)
    last, share = estimate_rate(odds, rate)
    return SetErrors(doubt_at(odds, last), share)


def set_error_odds(
    log_probabilities: NDArray[np.floating], candidates: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Log-odds that each set lacks the true label, without the factor of epsilon; -inf for sets of all."""
    sizes, k = candidates.sum(1), candidates.shape[1]
    odds = log_mass(log_probabilities, ~candidates) - log_mass(log_probabilities, candidates)
    odds += np.log(sizes) - np.log(np.maximum(k - sizes, 1))
    return np.where(sizes < k, odds, -np.inf)


def estimate_rate(odds: NDArray[np.float64], rate: float | None = None) -> tuple[float, float]:
    """Estimate epsilon from the odds of all rows, see `estimate_set_errors`.

    Returns:
        The last value that doubts were computed with, and the estimate from these doubts.
    """
    prior, weight = (0.5, 1) if rate is None else (rate, PRIOR_ROWS)
    previous = share = 0.05 if rate is None else rate
    n = np.isfinite(odds).sum()
    for _ in range(MAX_ITERATIONS):
        previous, share = share, float((weight * prior + doubt_at(odds, share).sum()) / (weight + n))
        if abs(share - previous) < TOLERANCE:
            break
    return previous, share


def doubt_at(odds: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
    """Probability of each row that its set lacks the true label, if a share `rate` of all sets does."""
    doubt: NDArray[np.float64] = expit(odds + logit(rate))
    return doubt


class Consensus(NamedTuple):
    """A model's resolution of candidate sets, combined with the annotators' answers."""

    resolution: Resolution
    doubt: NDArray[np.float64]  # (n,) probability that the true label is not a candidate
    rate: float | None = None  # estimated share of sets without the true label; None for individual answers
    annotators: tuple[tuple[str, float], ...] = ()  # name and estimated accuracy


def reach_consensus(resolution: Resolution, labeled: LabeledRows, rate: float | None = None) -> Consensus:
    """Combine the resolution by a model that was not fitted on these rows with what annotators said.

    `rate` is the error rate of candidate sets in an earlier file; see `estimate_set_errors`.
    """
    logs = resolution.log_probabilities
    if labeled.counts is None:
        errors = estimate_set_errors(logs, resolution.candidates, rate)
        return Consensus(resolution, errors.doubt, errors.rate)
    names = labeled.annotators or ("every answer",)
    if labeled.answers is None:
        posterior = combine_votes(logs, labeled.counts)
    else:
        posterior = combine_answers(logs, labeled.answers)
    combined = Resolution(posterior.log_probabilities, resolution.candidates, resolution.classes)
    annotators = tuple(zip(names, posterior.accuracy.tolist(), strict=True))
    return Consensus(combined, combined.doubt, None, annotators)

"""Combine a model's probabilities with the labels of a table, and estimate how reliable these are."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, logit

from propall.estimators.calibration import log_mass
from propall.estimators.resolution import Resolution
from propall.labels.annotators import (
    MAX_ACCURACY,
    CrowdAnswers,
    EarlierAnswers,
    Posterior,
    combine_answers,
    credible_sets,
)
from propall.tables.label_columns import LabeledRows

#: Maximum number of iterations, and the change below which they stop.
MAX_ITERATIONS, TOLERANCE = 200, 1e-6
#: Number of rows that an error rate from an earlier file counts as.
PRIOR_ROWS = 50
#: Above this probability that no candidate is correct, a row is reported as doubtful.
DOUBTFUL = 0.5


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


def weigh_sets(
    log_probabilities: NDArray[np.floating], candidates: NDArray[np.bool_], rate: float
) -> NDArray[np.float64]:
    r"""Return the log-posterior (n, k) of all classes if a share `rate` of the sets lacks the true label.

    .. math:: q_i(y) \propto p_i(y) \Bigl(\frac{1 - \varepsilon}{\varepsilon} \cdot
        \frac{k - |S_i|}{|S_i|}\Bigr)^{[y \in S_i]}
    """
    sizes, k = candidates.sum(1), candidates.shape[1]
    rate = float(np.clip(rate, 1e-6, 1 - 1e-6))
    odds = np.log(np.maximum(k - sizes, 1)) - np.log(sizes) - logit(rate)
    weight = np.where(sizes < k, odds, 0.0)[:, None]
    posterior: NDArray[np.float64] = log_softmax(log_probabilities + weight * candidates, axis=1)
    return posterior


class KnownAnnotators(NamedTuple):
    """Annotators of an earlier table by name, and their answers to its rows."""

    names: tuple[str, ...]
    table: EarlierAnswers

    def answers_elsewhere(
        self, labeled: LabeledRows, rows: NDArray[np.int64], equal: NDArray[np.int64]
    ) -> EarlierAnswers | None:
        """Return the answers of a new table's annotators that are not in that table; None if there are none.

        For every answer in the new table, one by the same annotator to an equal row is left out: the same
        answer if there is one.

        Args:
            labeled: the labels of the new table.
            rows: (n,) an equal row of the earlier table for each of its rows, -1 if there is none.
            equal: the same for each row of the earlier table; the same one for all rows that are equal.
        """
        place = {name: a for a, name in enumerate(labeled.annotators)}
        annotator_of = np.array([place.get(name, -1) for name in self.names], dtype=np.int64)
        if labeled.answers is None or (annotator_of < 0).all():
            return None
        m, k = len(labeled.annotators), self.table.answers.n_classes
        entries = self.table.answers.votes.tocoo()
        annotator, label = np.divmod(entries.col.astype(np.int64), k)
        annotator = annotator_of[annotator]
        row, annotator, label = (part[annotator >= 0] for part in (entries.row, annotator, label))
        i, a = np.nonzero((labeled.answers >= 0) & (rows >= 0)[:, None])
        earlier, new = equal[row] * m + annotator, rows[i] * m + a
        earlier_answer, new_answer = earlier * k + label, new * k + labeled.answers[i, a]
        kept = _without(earlier_answer, new_answer)
        kept[kept] = _without(earlier[kept], new[_without(new_answer, earlier_answer)])
        if not kept.any():
            return None
        shape = len(self.table.answers), m, k
        answers = CrowdAnswers.from_lists(row[kept], annotator[kept], label[kept], shape)
        return replace(self.table, answers=answers)


def _without(values: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of the values are left if each of the others takes one that is equal to it."""
    series = pd.Series(values)
    taken = series.map(pd.Series(others).value_counts()).fillna(0)
    return np.array(series.groupby(series).cumcount() >= taken)


def known_annotators(
    labeled: LabeledRows, out_of_fold: Resolution, posterior: Posterior | None
) -> KnownAnnotators | None:
    """Return what the named annotators of a table answered; None if there are none.

    Args:
        labeled: the labels of the table.
        out_of_fold: by models that were not fitted on the row.
        posterior: of these; None if the annotators were not estimated, as with a known accuracy.
    """
    answers = crowd_answers(labeled)
    if answers is None or not labeled.annotators:
        return None
    posterior = posterior or combine_answers(out_of_fold.log_probabilities, answers)
    return KnownAnnotators(labeled.annotators, EarlierAnswers.from_posterior(answers, posterior))


class Consensus(NamedTuple):
    """A model's resolution of candidate sets, combined with the annotators' answers."""

    resolution: Resolution  # its candidates include probable classes that nobody answered
    doubt: NDArray[np.float64]  # (n,) probability that the true label is not a candidate
    rate: float | None = None  # estimated share of sets without the true label; None for individual answers
    annotators: tuple[tuple[str, float], ...] = ()  # name and estimated accuracy
    posterior: Posterior | None = None  # given the annotators' answers, if there are any


def crowd_answers(labeled: LabeledRows) -> CrowdAnswers | None:
    """Return who answered what; None if the labels are not answers of annotators."""
    if labeled.counts is None:
        return None
    if labeled.answers is None:
        return CrowdAnswers.from_votes(labeled.counts)
    return CrowdAnswers.from_matrix(labeled.answers, labeled.labels.n_classes)


def reach_consensus(
    resolution: Resolution,
    labeled: LabeledRows,
    rate: float | None = None,
    *,
    trust: float | None = None,
    earlier: EarlierAnswers | None = None,
    like_0_1_0: bool = False,
) -> Consensus:
    """Combine the resolution by a model that was not fitted on these rows with what annotators said.

    A single answer is not certain: if the annotators' estimated errors and the model make another class
    probable, it becomes a candidate too.

    Args:
        resolution: by a model that was not fitted on these rows.
        labeled: the labels.
        rate: error rate of candidate sets in an earlier file; see `estimate_set_errors`.
        trust: known accuracy of every annotator; estimated by default.
        earlier: answers of the same annotators to other rows.
        like_0_1_0: weigh answers as version 0.1.0 did, so that the labels by its models do not change.
    """
    logs, answers = resolution.log_probabilities, crowd_answers(labeled)
    if answers is None:
        errors = estimate_set_errors(logs, resolution.candidates, rate)
        if labeled.from_model:
            # People may have ruled the other classes out; a model has only found them less likely.
            weighed = weigh_sets(logs, resolution.candidates, errors.rate)
            widened = resolution.candidates | credible_sets(np.exp(weighed))
            resolution = Resolution(weighed, widened, resolution.classes)
        return Consensus(resolution, errors.doubt, errors.rate)
    if like_0_1_0:
        return _weigh_like_0_1_0(resolution, labeled)
    posterior = combine_answers(logs, answers, accuracy=trust, earlier=earlier)
    return decide(posterior, labeled, resolution.candidates, resolution.classes)


def decide(
    posterior: Posterior, labeled: LabeledRows, candidates: NDArray[np.bool_], classes: NDArray[Any]
) -> Consensus:
    """Return the most probable class of every row, given what annotators said."""
    widened = candidates | credible_sets(posterior.probabilities)
    doubt = Resolution(posterior.log_probabilities, candidates, classes).doubt
    names = labeled.annotators or ("every answer",)
    annotators = tuple(zip(names, posterior.accuracy.tolist(), strict=True))
    combined = Resolution(posterior.log_probabilities, widened, classes)
    return Consensus(combined, doubt, None, annotators, posterior)


def _weigh_like_0_1_0(resolution: Resolution, labeled: LabeledRows) -> Consensus:
    """One accuracy per annotator, and the model's probabilities as they are; every label is an answer."""
    logs, counts = resolution.log_probabilities.astype(np.float64), labeled.counts
    assert counts is not None
    k = logs.shape[1]
    votes = counts[None].astype(np.float64)
    if labeled.answers is not None:
        votes = (labeled.answers.T[:, :, None] == np.arange(k)).astype(np.float64)
    n_answers, accuracy = votes.sum((1, 2)), np.full(len(votes), (1 + 1 / k) / 2)
    posterior = logs
    for _ in range(MAX_ITERATIONS):
        weight = np.log(accuracy * (k - 1) / (1 - accuracy))
        posterior = log_softmax(logs + np.tensordot(weight, votes, 1), axis=1)
        n_correct = np.tensordot(votes, np.exp(posterior), 2)
        estimate = np.divide(n_correct, n_answers, out=accuracy.copy(), where=n_answers > 0)
        previous, accuracy = accuracy, np.clip(estimate, 1 / k, MAX_ACCURACY)
        if np.abs(accuracy - previous).max() < TOLERANCE:
            break
    combined = Resolution(posterior, resolution.candidates, resolution.classes)
    names = labeled.annotators or ("every answer",)
    return Consensus(combined, combined.doubt, None, tuple(zip(names, accuracy.tolist(), strict=True)))

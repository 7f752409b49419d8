"""What people said and what a model sees, weighed together: how far each can be trusted, and what follows."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, logit

from propall.estimators.calibration import log_mass
from propall.estimators.classifier import Resolution
from propall.tables.label_columns import Labelled

#: Nobody is taken to be right always: one slip would then rule out the truth.
BEST = 0.999
#: Rounds of estimation at most, and the change that ends them.
ROUNDS, SETTLED = 200, 1e-6
#: What is known of sets in general from an earlier file counts like this many rows.
EARLIER = 50


class Weighed(NamedTuple):
    """Probabilities after the answers have been heard.

    Attributes:
        log_probabilities: (n, k) of every class.
        accuracy: (m,) the estimated share of right answers of each annotator; one number where it is not
            known who answered.
    """

    log_probabilities: NDArray[np.float64]
    accuracy: NDArray[np.float64]


def weigh_answers(log_probabilities: NDArray[np.floating], answers: NDArray[np.int64]) -> Weighed:
    r"""A model's probabilities and known annotators' answers as one posterior.

    .. math:: q_i(y) \propto p_i(y) \prod_m a_m^{[z_{im} = y]}
        \Bigl(\frac{1 - a_m}{k - 1}\Bigr)^{[z_{im} \ne y]}, \qquad a_m = \frac{\sum_i q_i(z_{im})}{n_m}

    in turns until they settle: the model and the other annotators tell how good each annotator is, with wrong
    answers spread evenly over the other classes. Given the class, answers are taken to depend on nothing
    else.

    Args:
        log_probabilities: (n, k) from a model that was not fitted on these rows.
        answers: (n, m) class numbers, -1 where a person gave no answer.

    References:
        Dawid and Skene, Maximum likelihood estimation of observer error-rates using the EM algorithm (1979),
        with one error rate each and a model in place of class frequencies.
    """
    n, k = log_probabilities.shape
    people = answers.shape[1]
    counts = np.zeros((people, n, k))
    for m in range(people):
        said = np.flatnonzero(answers[:, m] >= 0)
        counts[m, said, answers[said, m]] = 1.0
    return _settled(np.asarray(log_probabilities, dtype=np.float64), counts)


def weigh_votes(log_probabilities: NDArray[np.floating], counts: NDArray[np.int64]) -> Weighed:
    """The same for numbers of votes by nobody knows whom: all are taken to be equally good.

    Args:
        log_probabilities: (n, k) from a model that was not fitted on these rows.
        counts: (n, k) votes.
    """
    return _settled(np.asarray(log_probabilities, dtype=np.float64), counts[None].astype(np.float64))


def _settled(logs: NDArray[np.float64], counts: NDArray[np.float64]) -> Weighed:
    k = logs.shape[1]
    given = counts.sum((1, 2))
    accuracy = np.full(len(counts), (1 + 1 / k) / 2)
    posterior = logs
    for _ in range(ROUNDS):
        weight = np.log(accuracy * (k - 1) / (1 - accuracy))
        posterior = log_softmax(logs + np.tensordot(weight, counts, 1), axis=1)
        right = np.tensordot(counts, np.exp(posterior), 2)
        new = np.clip(np.divide(right, given, out=accuracy.copy(), where=given > 0), 1 / k, BEST)
        settled = bool(np.abs(new - accuracy).max() < SETTLED)
        accuracy = new
        if settled:
            break
    return Weighed(posterior, accuracy)


class Missed(NamedTuple):
    """Candidate sets that may lack the truth.

    Attributes:
        doubt: (n,) the probability of each that it does.
        rate: the share of all sets that do.
    """

    doubt: NDArray[np.float64]
    rate: float


def weigh_sets(
    log_probabilities: NDArray[np.floating], candidates: NDArray[np.bool_], rate: float | None = None
) -> Missed:
    r"""The probability that the truth is outside a candidate set, given what the model sees and the set.

    .. math:: \frac{d_i}{1 - d_i} = \frac{\varepsilon}{1 - \varepsilon} \cdot \frac{|S_i|}{k - |S_i|}
        \cdot \frac{\sum_{j \notin S_i} p_{ij}}{\sum_{j \in S_i} p_{ij}}, \qquad
        \varepsilon = \frac{w \varepsilon_0 + \sum_i d_i}{w + n}

    in turns until they settle. A set lacks the truth with probability epsilon, and holds or lacks the other
    labels by chance. The model alone would doubt a set wherever it is mistaken itself: sets that are nearly
    always right outweigh it.

    Args:
        log_probabilities: (n, k) from a model that was not fitted on these rows.
        candidates: (n, k) True on the candidates; rows that hold every class are left aside.
        rate: the share of sets without the truth among others of the same making, which then counts like
            `EARLIER` rows; without it epsilon_0 is one half and w is 1.
    """
    sizes, k = candidates.sum(1), candidates.shape[1]
    telling = sizes < k
    odds = log_mass(log_probabilities, ~candidates) - log_mass(log_probabilities, candidates)
    odds += np.log(sizes) - np.log(np.maximum(k - sizes, 1))
    first, weight = (0.5, 1) if rate is None else (rate, EARLIER)
    share, doubt = 0.05 if rate is None else rate, np.zeros(len(odds))
    for _ in range(ROUNDS):
        doubt = np.where(telling, expit(odds + logit(share)), 0.0)
        before, share = share, float((weight * first + doubt.sum()) / (weight + telling.sum()))
        if abs(share - before) < SETTLED:
            break
    return Missed(doubt, share)


class Heard(NamedTuple):
    """A resolution that has weighed what people said.

    Attributes:
        resolution: where several people answered, how often and by whom each label was given counts in it.
        doubt: (n,) the probability that the truth is outside the candidates.
        rate: the estimated share of candidate sets that lack the truth; None where people's answers were
            counted one by one.
        annotators: name and estimated share of right answers of each person.
    """

    resolution: Resolution
    doubt: NDArray[np.float64]
    rate: float | None = None
    annotators: tuple[tuple[str, float], ...] = ()


def hear(resolution: Resolution, labelled: Labelled, rate: float | None = None) -> Heard:
    """Weigh what a model says about rows against what people said.

    Args:
        resolution: from a model that was not fitted on these rows.
        labelled: what was said about them.
        rate: the share of candidate sets that lack the truth in an earlier file, see `weigh_sets`.
    """
    logs = resolution.log_probabilities
    if labelled.counts is None:
        missed = weigh_sets(logs, resolution.candidates, rate)
        return Heard(resolution, missed.doubt, missed.rate)
    names = labelled.annotators or ("every answer",)
    if labelled.answers is None:
        weighed = weigh_votes(logs, labelled.counts)
    else:
        weighed = weigh_answers(logs, labelled.answers)
    found = Resolution(weighed.log_probabilities, resolution.candidates, resolution.classes)
    return Heard(found, found.doubt, None, tuple(zip(names, weighed.accuracy.tolist(), strict=True)))

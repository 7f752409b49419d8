"""Train on what the labels probably mean, where annotators or candidate sets are sometimes wrong."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from propall.estimators.calibration import fit_temperature, log_softmax
from propall.estimators.resolution import Resolution
from propall.labels.annotators import combine_answers, credible_sets
from propall.labels.candidates import CandidateLabels
from propall.tables.consensus import Consensus, crowd_answers, reach_consensus, weigh_sets
from propall.tables.label_columns import LabeledRows

#: How far labels are trusted: as much as they agree with a model and each other, completely, or the known
#: share that is correct (of annotators' answers, or of candidate sets that contain the true label).
Trust = Literal["auto", "full"] | float
#: Fits a model to candidate sets; returns it and its out-of-fold log-probabilities (n, k) of these rows.
Refit = Callable[[CandidateLabels], tuple[Any, NDArray[np.float64]]]
#: Below this share of rows with changed candidates, another training would change nothing.
MIN_CHANGED = 0.001


class TrustReport(NamedTuple):
    """How far the labels of a table were trusted in training."""

    share: float  # mean probability that a row's true label is among its labels
    widened: int  # number of rows trained with a candidate that the labels do not have
    narrowed: int  # number of rows trained without some of their candidates
    mean_candidates: float  # per row, in training


class TolerantModel(NamedTuple):
    """A model trained with doubt about the labels, and its resolution of every row out of fold."""

    classifier: Any
    consensus: Consensus
    out_of_fold: Resolution
    report: TrustReport


def parse_trust(text: str | None) -> Trust | None:
    """Read `auto`, `full` or a number between 0 and 1."""
    if text is None or text in ("auto", "full"):
        return text  # type: ignore[return-value]
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value <= 1:
        raise ValueError(f"trust: got {text!r}; expected auto, full or a number above 0 and up to 1.")
    return "full" if value == 1 else value


def choose_trust(trust: Trust | None, labeled: LabeledRows) -> Trust:
    """Return how far to trust labels; by default one column completely, and answers as estimated."""
    if trust is not None:
        return trust
    return "full" if labeled.counts is None and not labeled.from_model else "auto"


def train_tolerantly(
    refit: Refit, labeled: LabeledRows, consensus: Consensus, out_of_fold: Resolution, *, trust: Trust
) -> TolerantModel | None:
    """Train again on every class that the labels and an earlier model make probable.

    A wrong label becomes a set that also has the class it was probably confused with, so that the training no
    longer needs to fit it.

    Args:
        refit: fits a model to other candidate sets of the same rows.
        labeled: the labels.
        consensus: the earlier model's resolution, combined with the labels.
        out_of_fold: the earlier model's resolution by models that were not fitted on the row.
        trust: how far the labels are trusted; not "full".

    Returns:
        None if the labels are not doubted in any row.
    """
    mask, classes = labeled.labels.to_numpy(), out_of_fold.classes
    known = trust if isinstance(trust, float) else None
    logs = _log_posterior(consensus, out_of_fold.log_probabilities, mask, known)
    sets = credible_sets(np.exp(logs))
    widened, narrowed = (sets & ~mask).any(1), (mask & ~sets).any(1)
    if widened.mean() < MIN_CHANGED:
        return None
    classifier, raw = refit(CandidateLabels.from_matrix(sets, classes.tolist()))
    answers = crowd_answers(labeled)
    if answers is None:
        temperature = fit_temperature(raw, sets)
    else:
        temperature = combine_answers(raw, answers, accuracy=known).temperature or 1.0
    classifier.temperature_ *= temperature
    tempered = Resolution(log_softmax(raw, temperature), mask, classes)
    after = reach_consensus(tempered, labeled, trust=known)
    chances = np.exp(_log_posterior(after, tempered.log_probabilities, mask, known))
    report = TrustReport(
        share=float(np.where(mask, chances, 0.0).sum(1).mean()),
        widened=int(widened.sum()),
        narrowed=int(narrowed.sum()),
        mean_candidates=float(sets.sum(1).mean()),
    )
    return TolerantModel(classifier, after, tempered, report)


def _log_posterior(
    consensus: Consensus, logs: NDArray[np.float64], mask: NDArray[np.bool_], known: float | None
) -> NDArray[np.float64]:
    """Log-posterior of every class given the labels; `logs` are those of the model alone."""
    if consensus.posterior is not None:
        return consensus.posterior.log_probabilities
    rate = consensus.rate if known is None else 1 - known
    return weigh_sets(logs, mask, rate or 0.0)

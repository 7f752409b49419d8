"""Who answered what, how reliable each annotator is, and which class is probably true."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_array
from scipy.special import digamma, expit, gammaln, log_softmax, logit, logsumexp, softmax

#: How annotators' errors are described: a confusion matrix each, shrunk to one skill by how much is known
#: (`shrunk`), not shrunk (`dawid_skene`), or one accuracy each (`one_coin`).
ErrorModel = Literal["shrunk", "dawid_skene", "one_coin"]
#: What the posterior is computed from.
Evidence = Literal["both", "model", "answers"]

#: Upper bound on an annotator's accuracy: at 1, a single mistake would rule out the truth.
MAX_ACCURACY = 0.999
#: Maximum number of iterations, and the change of a probability below which they stop.
MAX_ITERATIONS, TOLERANCE = 200, 1e-4
#: Number of answers that the accuracy expected of an annotator counts as.
SKILL_ANSWERS = 4.0
#: Number of answers that a row of a confusion matrix's prior may count as.
CONCENTRATIONS = 10.0 ** np.arange(-0.5, 4.1, 0.5)
#: Iterations between two choices of the concentrations.
CHOOSE_EVERY = 5
#: An annotator gives the same answer to nearly everything if there are at least so many answers, at least
#: this share of them is equal, and other answers are at most this share of what the rows' classes call for.
MIN_SAME, SAME_SHARE, OTHER_SHARE = 10, 0.8, 0.5
#: Maximum number of entries of all confusion matrices. Beyond it, annotators with few answers share one.
MAX_ENTRIES = 20_000_000
#: Number of parts that the rows are divided into for held-out evidence.
PARTS = 2
#: Number of standard errors by which one source alone must predict better than both.
MIN_LEAD = 2.0
#: Number of standard errors below chance at which answers and a model hardly mean the same classes.
MAX_BELOW_CHANCE = 5.0
#: Numbers that are processed at once.
BLOCK_VALUES = 1 << 22


class MismatchedClassesWarning(UserWarning):
    """Answers agree with a model less often than chance."""


@dataclass(frozen=True, eq=False)
class CrowdAnswers:
    """Answers of annotators in sparse form.

    Attributes:
        votes: (n, m k) how often annotator a gave row i the class z, in column a k + z.
        n_annotators: number of annotators m.
        n_classes: number of classes k.

    Examples:
        >>> rows, annotators, labels = [0, 0, 1], [0, 2, 1], [1, 1, 0]
        >>> answers = CrowdAnswers.from_lists(rows, annotators, labels, (2, 3, 2))
        >>> answers.n_answers.tolist(), answers.counts.tolist()
        ([1.0, 1.0, 1.0], [[0.0, 2.0], [1.0, 0.0]])
    """

    votes: csr_array
    n_annotators: int
    n_classes: int

    @classmethod
    def from_lists(
        cls, rows: ArrayLike, annotators: ArrayLike, labels: ArrayLike, shape: tuple[int, int, int]
    ) -> Self:
        """Build from one entry per answer; `shape` is the number of rows, annotators and classes."""
        n, m, k = shape
        row, annotator, label = (np.asarray(values, dtype=np.int64) for values in (rows, annotators, labels))
        for name, values, size in (("rows", row, n), ("annotators", annotator, m), ("labels", label, k)):
            if values.size and not (values.min() >= 0 and values.max() < size):
                wrong = values.min() if values.min() < 0 else values.max()
                raise ValueError(f"{name}: got index {wrong}; expected 0 to {size - 1}.")
        columns = annotator * k + label
        return cls(csr_array((np.ones(len(row)), (row, columns)), shape=(n, m * k)), m, k)

    @classmethod
    def from_matrix(cls, answers: Int[np.ndarray, "n m"], n_classes: int) -> Self:
        """Build from one column per annotator with class indices, -1 for no answer."""
        rows, annotators = np.nonzero(answers >= 0)
        labels = answers[rows, annotators]
        return cls.from_lists(rows, annotators, labels, (*answers.shape, n_classes))

    @classmethod
    def from_votes(cls, counts: NDArray[np.integer]) -> Self:
        """Build from (n, k) counts of anonymous votes, as the answers of a single annotator."""
        return cls(csr_array(counts.astype(np.float64)), 1, counts.shape[1])

    def __len__(self) -> int:
        return int(self.votes.shape[0])

    @property
    def counts(self) -> Float[np.ndarray, "n k"]:
        """Number of votes of each row for each class."""
        every = np.tile(np.eye(self.n_classes), (self.n_annotators, 1))
        counts: NDArray[np.float64] = self.votes @ every
        return counts

    @property
    def n_answers(self) -> Float[np.ndarray, "m"]:
        """Number of answers of each annotator."""
        return self.weighted_sum(np.ones(len(self)))

    def weights(self, *, model: bool) -> Float[np.ndarray, "n"]:
        """What an answer on each row counts for an accuracy: 1 - 1 / c with c answers, a model included."""
        size = np.asarray(self.votes.sum(1), dtype=np.float64) + model
        weights: NDArray[np.float64] = 1 - 1 / np.maximum(size, 1)
        return weights

    def weighted_sum(self, weights: Float[np.ndarray, "n"]) -> Float[np.ndarray, "m"]:
        """Sum of the weights of the rows that each annotator answered."""
        per_column = np.asarray(self.votes.T @ weights, dtype=np.float64)
        total: NDArray[np.float64] = per_column.reshape(self.n_annotators, self.n_classes).sum(1)
        return total

    def of_rows(self, rows: NDArray[np.integer]) -> Self:
        """Return the answers on some rows."""
        return type(self)(self.votes[rows], self.n_annotators, self.n_classes)

    def of_groups(self, group: NDArray[np.int64]) -> Self:
        """Return the answers with annotators replaced by groups of annotators."""
        entries = self.votes.tocoo()
        annotator, label = np.divmod(entries.col, self.n_classes)
        columns, m = group[annotator] * self.n_classes + label, int(group.max(initial=-1)) + 1
        votes = csr_array((entries.data, (entries.row, columns)), shape=(len(self), m * self.n_classes))
        return type(self)(votes, m, self.n_classes)


@dataclass(frozen=True, eq=False)
class EarlierAnswers:
    """Answers of annotators to other rows, whose classes were estimated before.

    Attributes:
        answers: who answered what on these rows; annotators are numbered as in the answers to combine.
        probabilities: (r, k) probability of every class of these rows.
        weights: (r,) what an answer on each row counts for an accuracy, see `CrowdAnswers.weights`.

    Examples:
        >>> old = CrowdAnswers.from_matrix(np.array([[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0]]), 2)
        >>> earlier = EarlierAnswers.from_posterior(old, combine_answers(None, old))
        >>> new = np.array([[0, -1, 1]])  # two answers that differ
        >>> combine_answers(None, new, earlier=earlier).probabilities.round(2).tolist()
        [[0.89, 0.11]]
    """

    answers: CrowdAnswers
    probabilities: Float[np.ndarray, "r k"]
    weights: Float[np.ndarray, "r"]

    @classmethod
    def from_posterior(cls, answers: CrowdAnswers, posterior: "Posterior") -> Self:
        """Build from answers and what `combine_answers` estimated from them, without a given accuracy."""
        weights = answers.weights(model=posterior.evidence != "answers")
        return cls(answers, posterior.probabilities, weights)

    @property
    def n_compared(self) -> Float[np.ndarray, "m"]:
        """How many answers of each annotator count for the accuracy, see `Posterior`."""
        return self.answers.weighted_sum(self.weights)


class AnnotatorErrors(NamedTuple):
    """How annotators err.

    Attributes:
        confusion: (m, k, k) probability that annotator a answers z if the true class is y, at [a, y, z].
        log_confusion: expected logarithm of these probabilities, which is lower where less is known.
        accuracy: (m,) share of correct answers, shrunk to what is expected of anybody.
    """

    confusion: Float[np.ndarray, "m k k"]
    log_confusion: Float[np.ndarray, "m k k"]
    accuracy: Float[np.ndarray, "m"]


@dataclass(frozen=True, eq=False)
class Posterior:
    """Class probabilities given annotators' answers and, if there is one, a model.

    Attributes:
        log_probabilities: (n, k) log-probability of every class.
        accuracy: (m,) estimated share of correct answers of each annotator.
        matrices: (g, k, k) estimated probability of answer z for class y, at [., y, z].
        matrix_of: (m,) which of the matrices describes each annotator. Everybody has their own, unless there
            are so many annotators and classes that those with few answers share one.
        n_answers: (m,) number of answers of each annotator.
        n_compared: (m,) how many answers, earlier ones included, count for the annotator's accuracy: one that
            can be compared with c - 1 others, or with c - 2 and a model, counts as 1 - 1 / c.
        class_priors: (k,) estimated share of each class.
        temperature: divisor of the model's log-probabilities; None without a model.
        evidence: what the posterior is computed from.
        held_out: mean log-probability of an answer given everything else on its row, for each kind of
            evidence; empty if nothing was compared.
        n_earlier: (m,) number of earlier answers of each annotator that the estimates are based on, too.

    Examples:
        >>> answers = np.array([[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0]])  # the third one differs
        >>> posterior = combine_answers(None, answers)
        >>> posterior.accuracy.round(2).tolist(), posterior.evidence
        ([0.88, 0.88, 0.64], 'answers')
    """

    log_probabilities: Float[np.ndarray, "n k"]
    accuracy: Float[np.ndarray, "m"]
    matrices: Float[np.ndarray, "g k k"]
    matrix_of: Int[np.ndarray, "m"]
    n_answers: Float[np.ndarray, "m"]
    n_compared: Float[np.ndarray, "m"]
    class_priors: Float[np.ndarray, "k"]
    temperature: float | None
    evidence: Evidence
    held_out: dict[str, float]
    n_earlier: Float[np.ndarray, "m"]

    @property
    def probabilities(self) -> Float[np.ndarray, "n k"]:
        """Probabilities of every class; rows sum to one."""
        probabilities: NDArray[np.float64] = np.exp(self.log_probabilities)
        return probabilities

    @property
    def confusion(self) -> Float[np.ndarray, "m k k"]:
        """Estimated probability of answer z by annotator a for class y, at [a, y, z]."""
        confusion: NDArray[np.float64] = self.matrices[self.matrix_of]
        return confusion

    @property
    def mean_confusion(self) -> Float[np.ndarray, "k k"]:
        """Mean confusion matrix of the annotators, weighted by their numbers of answers."""
        weight = np.bincount(self.matrix_of, self.n_answers, len(self.matrices))
        if not weight.any():
            weight[:] = 1
        mean: NDArray[np.float64] = np.tensordot(weight / weight.sum(), self.matrices, 1)
        return mean

    @property
    def is_assumed(self) -> bool:
        """Whether no answer could be compared with anything, so that accuracies are not estimated."""
        return not self.n_compared.any()

    @property
    def standard_error(self) -> Float[np.ndarray, "m"]:
        """Standard error of each accuracy."""
        known = self.n_compared + SKILL_ANSWERS
        error: NDArray[np.float64] = np.sqrt(self.accuracy * (1 - self.accuracy) / known)
        return error

    def expected_gain(
        self, rows: NDArray[np.integer], annotators: NDArray[np.integer] | None = None
    ) -> Float[np.ndarray, "r a"]:
        r"""Expected increase of the chance that a row's label is right if an annotator is asked once more.

        .. math:: \sum_z \max_y q_i(y)\,\theta_a(z \mid y) - \max_y q_i(y)

        Args:
            rows: indices of rows.
            annotators: indices of annotators; all by default.
        """
        q = np.exp(self.log_probabilities[rows])
        if annotators is not None:
            return _gain_of_one_answer(q, self.matrices[self.matrix_of[annotators]])
        gain: NDArray[np.float64] = _gain_of_one_answer(q, self.matrices)[:, self.matrix_of]
        return gain

    def expected_gain_of_somebody(self, rows: NDArray[np.integer]) -> Float[np.ndarray, "r"]:
        """`expected_gain` of somebody new, who errs like the others do on average."""
        return _gain_of_one_answer(np.exp(self.log_probabilities[rows]), self.mean_confusion[None])[:, 0]


def _gain_of_one_answer(q: NDArray[np.float64], confusion: NDArray[np.float64]) -> NDArray[np.float64]:
    """Expected increase (r, g) of the largest of the probabilities q (r, k) by an answer with each matrix."""
    gain = np.empty((len(q), len(confusion)))
    step = max(1, BLOCK_VALUES // max(1, confusion.size))  # all rows at once may need more than the memory
    for start in range(0, len(q), step):
        rows = slice(start, start + step)
        joint = q[rows, None, :, None] * confusion[None]
        gain[rows] = joint.max(2).sum(2) - q[rows].max(1)[:, None]
    return np.maximum(gain, 0.0)


def combine_answers(
    log_probabilities: ArrayLike | None,
    answers: CrowdAnswers | ArrayLike,
    *,
    errors: str = "shrunk",
    accuracy: float | None = None,
    class_priors: ArrayLike | Literal["estimated", "uniform"] = "estimated",
    earlier: EarlierAnswers | None = None,
) -> Posterior:
    r"""Estimate the true classes, how reliable annotators are, and how far to trust a model, all at once.

    .. math:: q_i(y) \propto p_i(y)^{1/T} \prod_{(a, z) \in \mathcal A_i} \theta_a(z \mid y), \qquad
        \theta_a(\cdot \mid y) \sim \operatorname{Dirichlet}\bigl(\kappa_a\, \mu_a(\cdot \mid y)\bigr)

    by variational expectation maximization. The prior mean :math:`\mu_a` is the confusion matrix of all
    annotators together with its diagonal moved to the annotator's one skill; the concentrations
    :math:`\kappa_a` maximize the evidence, so that someone with few answers is described by a skill and
    someone with many by a matrix. The temperature maximizes the likelihood of the answers. Without a model,
    the class priors :math:`\pi_y` take the place of :math:`p_i`. Answers are assumed to be independent given
    the class. Without a model, earlier answers and two answers on any row, every accuracy explains the
    answers equally well; halfway between chance and 1 is assumed.

    With a model, each answer is also predicted from the rest of its row, with parameters estimated on other
    rows: by model and answers together, by the model alone, and by the answers alone. The posterior is
    computed from both unless one source alone predicts significantly better. This compares how well answers
    are predicted, not how many labels are correct: errors that annotators share look like evidence.

    Args:
        log_probabilities: (n, k) from a model that was not fitted on these rows; None for answers alone.
        answers: who answered what: `CrowdAnswers`, or (n, m) class indices of every annotator, -1 for no
            answer.
        errors: see `ErrorModel`. `dawid_skene` and `one_coin` maximize the likelihood, with one row added to
            every class, and a hundredth of an answer to every entry of a matrix of `dawid_skene`.
        accuracy: share of correct answers of every annotator, if it is known; annotators' errors are then not
            estimated, and model and answers are both used.
        class_priors: share of each class, "uniform" if the classes are known to be balanced, or "estimated".
            Used without a model only.
        earlier: answers of the same annotators to other rows, which show how they err. They are ignored if
            nothing could be compared with them, or if `accuracy` is given.

    References:
        [dawid1979maximum]; [kim2012bayesian] for the variational form.

    Examples:
        >>> answers = np.array([[0, 0, 1], [1, -1, 1], [2, 2, -1], [0, 1, 1]])  # -1: no answer
        >>> posterior = combine_answers(None, answers)
        >>> posterior.probabilities.argmax(1).tolist()
        [0, 1, 2, 1]
    """
    logs = None if log_probabilities is None else np.asarray(log_probabilities, dtype=np.float64)
    if not isinstance(answers, CrowdAnswers):
        matrix = np.asarray(answers)
        if matrix.ndim != 2 or matrix.dtype.kind not in "iu":
            raise ValueError(
                f"answers: got {matrix.dtype} of shape {matrix.shape}; expected a matrix of class indices "
                "(integers) with one column per annotator, -1 for no answer."
            )
        k = logs.shape[1] if logs is not None else max(2, int(matrix.max(initial=0)) + 1)
        answers = CrowdAnswers.from_matrix(matrix, k)
    if errors not in _ERROR_MODELS:
        raise ValueError(f"errors: got {errors!r}; expected {', '.join(_ERROR_MODELS)}.")
    if accuracy is not None and not 0 < accuracy < 1:
        raise ValueError(f"accuracy: got {accuracy}; expected a number between 0 and 1.")
    _check_input(answers, logs)
    if earlier is not None:
        _check_earlier(earlier, answers)
        if accuracy is not None or not earlier.n_compared.any():
            earlier = None
    nothing = np.zeros(answers.n_annotators)
    n_earlier = nothing if earlier is None else earlier.answers.n_answers
    group = _share_matrices(answers.n_answers + n_earlier, answers.n_classes)
    grouped = answers.of_groups(group)
    k = answers.n_classes
    priors = _fixed_priors(class_priors, k)
    if logs is None and accuracy is None and earlier is None and not answers.weights(model=False).any():
        # No two answers can be compared: every accuracy explains them equally well.
        accuracy = (1 + 1 / k) / 2
        priors = np.full(k, 1 / k) if priors is None else priors
    counts = None
    if earlier is not None:
        counts = _count_confusions(earlier.answers.of_groups(group), earlier.probabilities)
    task = _Task(errors, priors, accuracy, counts)
    state = task.fit(grouped, logs)
    temperature = None if logs is None else state.temperature
    evidence: Evidence = "answers" if logs is None else "both"
    held_out: dict[str, float] = {}
    if logs is not None and accuracy is None and len(answers) >= PARTS:
        evidence, held_out = _compare_evidence(task, grouped, logs)
    if logs is not None and evidence == "answers":
        state = task.fit(grouped, None)
        # The joint estimate may have believed the model instead of the answers.
        temperature = _temperature_given(logs, _log_likelihood(grouped, state.errors))
    elif logs is not None and accuracy is None:
        _warn_of_mismatch(grouped, state.errors.accuracy)
    # As accurate as the posterior at convergence, and less overconfident.
    state = task.apply(state, grouped, logs if evidence != "answers" else None)
    posterior = state.log_prior if evidence == "model" else state.log_posterior
    return Posterior(
        posterior,
        state.errors.accuracy[group],
        state.errors.confusion,
        group,
        answers.n_answers,
        answers.weighted_sum(answers.weights(model=evidence != "answers"))
        + (nothing if earlier is None else earlier.n_compared),
        np.exp(posterior).mean(0),
        temperature,
        evidence,
        held_out,
        n_earlier,
    )


def _count_confusions(
    answers: CrowdAnswers, probabilities: Float[np.ndarray, "n k"]
) -> Float[np.ndarray, "m k k"]:
    """Expected number of answers z by annotator a for class y, at [a, y, z]."""
    k = answers.n_classes
    counts: NDArray[np.float64] = (answers.votes.T @ probabilities).reshape(-1, k, k).transpose(0, 2, 1)
    return counts


def _check_earlier(earlier: EarlierAnswers, answers: CrowdAnswers) -> None:
    shape = earlier.answers.n_annotators, earlier.answers.n_classes
    if shape != (answers.n_annotators, answers.n_classes):
        raise ValueError(
            f"earlier: got answers of {shape[0]} annotators with {shape[1]} classes; expected the same "
            f"{answers.n_annotators} annotators and {answers.n_classes} classes as in answers."
        )
    n = len(earlier.answers)
    for name, values, size in (
        ("probabilities", earlier.probabilities, (n, answers.n_classes)),
        ("weights", earlier.weights, (n,)),
    ):
        if values.shape != size or not ((values >= 0) & (values <= 1)).all():
            raise ValueError(
                f"earlier: got {name} of shape {values.shape}, from {values.min(initial=np.inf)} to "
                f"{values.max(initial=-np.inf)}; expected shape {size}, numbers from 0 to 1."
            )


def credible_sets(probabilities: Float[np.ndarray, "n k"], least: float = 0.05) -> NDArray[np.bool_]:
    """Return which classes are probable enough to be the true one: at least `least`, and the best.

    Examples:
        >>> credible_sets(np.array([[0.7, 0.28, 0.02], [0.01, 0.01, 0.98]])).tolist()
        [[True, True, False], [False, False, True]]
    """
    likely: NDArray[np.bool_] = probabilities >= least
    likely[np.arange(len(likely)), probabilities.argmax(1)] = True
    return likely


def _fixed_priors(priors: ArrayLike | str, k: int) -> NDArray[np.float64] | None:
    if isinstance(priors, str):
        if priors not in ("estimated", "uniform"):
            raise ValueError(f"class_priors: got {priors!r}; expected estimated, uniform or {k} numbers.")
        return np.full(k, 1 / k) if priors == "uniform" else None
    values = np.asarray(priors, dtype=np.float64)
    if values.shape != (k,) or not (values > 0).all():
        raise ValueError(f"class_priors: got {values}; expected {k} positive numbers.")
    shares: NDArray[np.float64] = values / values.sum()
    return shares


def _check_input(answers: CrowdAnswers, logs: NDArray[np.float64] | None) -> None:
    n, k = len(answers), answers.n_classes
    if not n:
        raise ValueError("answers: there are no rows; expected at least one.")
    if k < 2:
        raise ValueError(f"answers: there is {k} class; expected at least two.")
    if logs is None:
        return
    if logs.shape != (n, k):
        raise ValueError(
            f"log_probabilities: got shape {logs.shape}; expected {(n, k)}, one row per row with answers and "
            "one column per class."
        )
    highest = logs.max(1)  # NaN if any is
    if not np.isfinite(highest).all():
        row = int((~np.isfinite(highest)).argmax())
        raise ValueError(
            f"log_probabilities: row {row} is {logs[row]}; expected numbers, -inf for impossible classes."
        )


def _warn_of_mismatch(answers: CrowdAnswers, accuracy: NDArray[np.float64]) -> None:
    """Warn if annotators are right less often than chance, as with a model of other columns.

    Relabeled classes explain answers as well as correct ones do, so that nothing else would show it.
    """
    weight, k = answers.n_answers, answers.n_classes
    total = max(1.0, float(weight.sum()))
    share = float(weight @ accuracy) / total
    if share < 1 / k - MAX_BELOW_CHANCE * np.sqrt((1 - 1 / k) / k / total):
        warnings.warn(
            f"log_probabilities: with this model, {100 * share:.0f} % of the answers would be correct, less "
            f"than the {100 / k:.0f} % of chance. Check that its columns are the classes of the answers, in "
            "the same order.",
            MismatchedClassesWarning,
            stacklevel=3,
        )


def _share_matrices(n_answers: NDArray[np.float64], n_classes: int) -> NDArray[np.int64]:
    """Group annotators with few answers if all confusion matrices would not fit into memory."""
    m = len(n_answers)
    most = max(1, MAX_ENTRIES // n_classes**2)
    if m <= most:
        return np.arange(m)
    rank = np.empty(m, dtype=np.int64)
    rank[np.argsort(-n_answers, kind="stable")] = np.arange(m)
    return np.minimum(rank, most - 1)


class _State(NamedTuple):
    """Estimates at convergence."""

    log_prior: NDArray[np.float64]  # (n, k) of the classes before any answer
    log_posterior: NDArray[np.float64]
    errors: AnnotatorErrors
    class_priors: NDArray[np.float64]
    temperature: float


@dataclass(frozen=True)
class _Task:
    """How to estimate; `class_priors` is None if they are to be estimated."""

    error_model: str
    class_priors: NDArray[np.float64] | None
    accuracy: float | None = None
    earlier: NDArray[np.float64] | None = None  # (m, k, k) counts from other rows

    def fit(self, answers: CrowdAnswers, logs: NDArray[np.float64] | None) -> _State:
        counts = answers.counts
        # Until annotators' errors are estimated, an answer counts as a factor of e^2.
        start = np.log(counts + 0.01) if logs is None else log_softmax(logs, axis=1) + 2 * counts
        posterior = log_softmax(start, axis=1)
        estimator = _ERROR_MODELS[self.error_model](answers, self.earlier)
        if self.accuracy is not None:
            estimator = _KnownAccuracy(answers, self.accuracy)
        temperature = 1.0
        for iteration in range(MAX_ITERATIONS):
            q = np.exp(posterior)
            errors = estimator.estimate(q, iteration)
            likelihood = _log_likelihood(answers, errors)
            priors = self._priors(q)
            if logs is not None:
                temperature = _fit_temperature(logs, likelihood, temperature)
            prior = self._log_prior(logs, priors, temperature)
            previous, posterior = q, log_softmax(prior + likelihood, axis=1)
            change = np.abs(np.exp(posterior) - previous).max()
            if change < TOLERANCE and iteration > 2 * CHOOSE_EVERY:
                break
        prior = np.broadcast_to(prior, posterior.shape)
        return _State(log_softmax(prior, axis=1), posterior, errors, priors, temperature)

    def apply(self, state: _State, answers: CrowdAnswers, logs: NDArray[np.float64] | None) -> _State:
        """Return the estimates for other rows, with the same parameters."""
        # The expected logarithm rules out answers that were rarely seen; new rows may well have them.
        errors = state.errors._replace(log_confusion=np.log(state.errors.confusion))
        likelihood = _log_likelihood(answers, errors)
        prior = self._log_prior(logs, state.class_priors, state.temperature)
        prior = np.broadcast_to(prior, likelihood.shape)
        posterior = log_softmax(prior + likelihood, axis=1)
        return state._replace(log_prior=log_softmax(prior, axis=1), log_posterior=posterior, errors=errors)

    def _priors(self, q: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.class_priors is not None:
            return self.class_priors
        priors: NDArray[np.float64] = (q.sum(0) + 1) / (len(q) + q.shape[1])
        return priors

    def _log_prior(
        self, logs: NDArray[np.float64] | None, priors: NDArray[np.float64], temperature: float
    ) -> NDArray[np.float64]:
        if logs is None:
            return np.log(priors)[None]
        prior: NDArray[np.float64] = log_softmax(logs / temperature, axis=1)
        return prior


def _log_likelihood(answers: CrowdAnswers, errors: AnnotatorErrors) -> NDArray[np.float64]:
    """Log-likelihood (n, k) of each row's answers for every class."""
    k = answers.n_classes
    likelihood: NDArray[np.float64] = answers.votes @ errors.log_confusion.transpose(0, 2, 1).reshape(-1, k)
    return likelihood


def _fit_temperature(logs: NDArray[np.float64], likelihood: NDArray[np.float64], temperature: float) -> float:
    """Maximize the likelihood of the answers near the current temperature; the prior weighs one row."""

    def cost(log_temperature: float) -> float:
        prior = log_softmax(logs * np.exp(-log_temperature), axis=1)
        return float(log_temperature**2 / 2 - logsumexp(prior + likelihood, axis=1).sum())

    middle = float(np.log(temperature))
    # A few steps are enough: the next iteration continues from here.
    optimum = minimize_scalar(
        cost, bounds=(middle - 0.4, middle + 0.4), method="bounded", options={"xatol": 0.01, "maxiter": 8}
    )
    return float(np.exp(np.clip(optimum.x, -4.0, 4.0)))


def _temperature_given(logs: NDArray[np.float64], likelihood: NDArray[np.float64]) -> float:
    """The temperature that suits the log-likelihood (n, k) of the answers."""
    temperature, previous = 1.0, 0.0
    for _ in range(MAX_ITERATIONS):
        previous, temperature = temperature, _fit_temperature(logs, likelihood, temperature)
        if abs(temperature / previous - 1) < 0.01:
            break
    return temperature


def _compare_evidence(
    task: _Task, answers: CrowdAnswers, logs: NDArray[np.float64]
) -> tuple[Evidence, dict[str, float]]:
    """Return what predicts held-out answers best, and their mean log-probability for each kind of evidence.

    One source alone is preferred if it is better than both together by more than chance explains.
    """
    part = np.arange(len(answers)) % PARTS
    predicted: dict[Evidence, list[NDArray[np.float64]]] = {"both": [], "model": [], "answers": []}
    weights, rows = [], []
    for held_out in range(PARTS):
        fit, hold = np.flatnonzero(part != held_out), np.flatnonzero(part == held_out)
        seen, rest = answers.of_rows(fit), answers.of_rows(hold)
        both = task.apply(task.fit(seen, logs[fit]), rest, logs[hold])
        alone = task.apply(task.fit(seen, None), rest, None)
        entries = rest.votes.tocoo()
        weights.append(entries.data)
        rows.append(hold[entries.row])
        predicted["both"].append(_predict_answers(rest, both))
        model = both._replace(log_posterior=both.log_prior)
        predicted["model"].append(_predict_answers(rest, model, use_others=False))
        predicted["answers"].append(_predict_answers(rest, alone))
    weight, row = np.concatenate(weights), np.concatenate(rows)
    total = max(1.0, float(weight.sum()))
    # By row: the answers on a row are predicted well or badly together.
    by_row = {
        name: np.bincount(row, weight * np.concatenate(values), len(answers))
        for name, values in predicted.items()
    }
    means = {str(name): float(values.sum() / total) for name, values in by_row.items()}
    best: Evidence = "both"
    for name in ("model", "answers"):
        lead = by_row[name] - by_row[best]
        if lead.sum() > MIN_LEAD * np.sqrt((lead**2).sum()):
            best = name
    return best, means


def _predict_answers(answers: CrowdAnswers, state: _State, *, use_others: bool = True) -> NDArray[np.float64]:
    """Log-probability of every answer given the prior of its row and, if used, the other answers on it."""
    entries, k = answers.votes.tocoo(), answers.n_classes
    annotator, label = np.divmod(entries.col, k)
    logs = state.log_posterior[entries.row]
    if use_others:
        logs = log_softmax(logs - state.errors.log_confusion[annotator, :, label], axis=1)
    predicted: NDArray[np.float64] = logsumexp(
        logs + np.log(state.errors.confusion[annotator, :, label]), axis=1
    )
    return predicted


def _matrix_of(correct: NDArray[np.float64], wrong: NDArray[np.float64]) -> NDArray[np.float64]:
    """Confusion matrices with a diagonal (..., k) and a distribution (k, k) of the wrong answers."""
    k = correct.shape[-1]
    matrix: NDArray[np.float64] = np.where(
        np.eye(k, dtype=bool), correct[..., None], (1 - correct)[..., None] * wrong
    )
    return matrix


class _Counting:
    """Counts answers by the probable class, in these rows and earlier ones."""

    def __init__(self, answers: CrowdAnswers, earlier: NDArray[np.float64] | None = None) -> None:
        self.answers, self.earlier = answers, earlier

    def count(self, q: NDArray[np.float64]) -> NDArray[np.float64]:
        """Expected number (m, k, k) of answers z by annotator a for class y, at [a, y, z]."""
        counts = _count_confusions(self.answers, q)
        return counts if self.earlier is None else counts + self.earlier


class _OneCoin(_Counting):
    """Every annotator has one accuracy; wrong answers are uniform."""

    def __init__(self, answers: CrowdAnswers, earlier: NDArray[np.float64] | None = None) -> None:
        super().__init__(answers, earlier)
        k = answers.n_classes
        self.wrong = (1 - np.eye(k)) / (k - 1)

    def estimate(self, q: NDArray[np.float64], iteration: int) -> AnnotatorErrors:
        """Maximize the likelihood given the class probabilities q."""
        k, total = self.answers.n_classes, self.answers.n_answers
        if self.earlier is not None:
            total = total + self.earlier.sum((1, 2))
        counts = self.count(q)
        correct = np.einsum("ayy->a", counts)
        # Nobody is expected to be worse than chance: otherwise two opposite explanations would be equal.
        share = np.divide(correct, total, out=np.full(len(total), 0.5), where=total > 0)
        accuracy = np.clip(share, 1 / k, MAX_ACCURACY)
        confusion = _matrix_of(np.repeat(accuracy[:, None], k, 1), self.wrong)
        return AnnotatorErrors(confusion, np.log(confusion), accuracy)


class _KnownAccuracy(_OneCoin):
    """Every annotator has the same known accuracy."""

    def __init__(self, answers: CrowdAnswers, accuracy: float) -> None:
        super().__init__(answers)
        values = np.full(answers.n_annotators, min(accuracy, MAX_ACCURACY))
        confusion = _matrix_of(np.repeat(values[:, None], answers.n_classes, 1), self.wrong)
        self.errors = AnnotatorErrors(confusion, np.log(confusion), values)

    def estimate(self, q: NDArray[np.float64], iteration: int) -> AnnotatorErrors:
        """Return what is known."""
        return self.errors


class _DawidSkene(_Counting):
    """Every annotator has a confusion matrix of its own."""

    def estimate(self, q: NDArray[np.float64], iteration: int) -> AnnotatorErrors:
        """Maximize the likelihood given the class probabilities q."""
        counts = self.count(q) + 0.01  # so that no answer rules a class out
        confusion = counts / counts.sum(2, keepdims=True)
        accuracy = np.einsum("ayy->a", counts) / counts.sum((1, 2))
        return AnnotatorErrors(confusion, np.log(confusion), accuracy)


class _Shrunk(_Counting):
    """Confusion matrices shrunk to one skill, and the matrix of all annotators shrunk to one accuracy."""

    def __init__(self, answers: CrowdAnswers, earlier: NDArray[np.float64] | None = None) -> None:
        super().__init__(answers, earlier)
        self.concentration = np.full(answers.n_annotators, 10.0)
        self.share = np.full(len(CONCENTRATIONS), 1 / len(CONCENTRATIONS))

    def estimate(self, q: NDArray[np.float64], iteration: int) -> AnnotatorErrors:
        """Return the posterior of the confusion matrices given the class probabilities q."""
        counts = self.count(q)
        same = _always_the_same(counts)
        pooled, overall = _pool(counts[~same] if same.any() else counts)
        k = len(pooled)
        diagonal = np.clip(np.diag(pooled), 1e-4, MAX_ACCURACY)
        wrong = pooled * (1 - np.eye(k))
        wrong /= wrong.sum(1, keepdims=True)
        per_class = counts.sum(2)
        total, correct = per_class.sum(1), np.einsum("ayy->a", counts)
        known = total + SKILL_ANSWERS
        # The accuracy of an ordinary annotator on the classes that this one was asked about.
        expected = np.clip((per_class @ diagonal + SKILL_ANSWERS * overall) / known, 1e-4, MAX_ACCURACY)
        accuracy = np.clip((correct + SKILL_ANSWERS * expected) / known, 0.01 / k, MAX_ACCURACY)
        skill = (logit(accuracy) - logit(expected))[:, None]
        mean = _matrix_of(expit(logit(diagonal) + skill), wrong)
        if iteration % CHOOSE_EVERY == CHOOSE_EVERY - 1:
            self._choose_concentrations(counts, mean)
        evidence = counts + self.concentration[:, None, None] * mean
        total_evidence = evidence.sum(2, keepdims=True)
        logs = digamma(evidence) - digamma(total_evidence)
        return AnnotatorErrors(evidence / total_evidence, logs, accuracy)

    def _choose_concentrations(self, counts: NDArray[np.float64], mean: NDArray[np.float64]) -> None:
        """Choose each annotator's concentration by evidence, those of many annotators being more likely."""
        evidence = np.stack([_log_evidence(counts, c * mean).sum(1) for c in CONCENTRATIONS], axis=1)
        responsibility = softmax(evidence + np.log(self.share), axis=1)
        self.share = (responsibility.sum(0) + 0.1) / (len(counts) + 0.1 * len(CONCENTRATIONS))
        self.concentration = CONCENTRATIONS[(evidence + np.log(self.share)).argmax(1)]


def _always_the_same(counts: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which annotators give the same answer to nearly everything; none, if all do.

    They do not show how people err: in the matrix of all annotators, their answer would become the usual
    error of everybody.
    """
    answered, classes = counts.sum(1), counts.sum(2)
    total = answered.sum(1)
    usual = answered.argmax(1)[:, None]
    answer_share, class_share = (
        np.take_along_axis(part, usual, 1)[:, 0] / np.maximum(total, 1e-9) for part in (answered, classes)
    )
    same: NDArray[np.bool_] = total >= MIN_SAME
    same &= (answer_share >= SAME_SHARE) & (1 - answer_share <= OTHER_SHARE * (1 - class_share))
    return same if not same.all() else ~same


def _pool(counts: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """The confusion matrix and the accuracy of all annotators together."""
    together = counts.sum(0)
    k, total = len(together), together.sum()
    overall = float(np.clip((np.trace(together) + 1) / (total + 2), 1 / k, MAX_ACCURACY))
    coin = _matrix_of(np.full(k, overall), np.full((k, k), 1 / (k - 1)))
    evidence = [_log_evidence(together, c * coin).sum() for c in CONCENTRATIONS]
    weight = CONCENTRATIONS[int(np.argmax(evidence))]
    pooled = (together + weight * coin) / (together.sum(1, keepdims=True) + weight)
    return pooled, overall


def _log_evidence(counts: NDArray[np.float64], prior: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log-probability of counts (..., k) of answers under a Dirichlet prior over their distribution."""
    rest = gammaln(prior.sum(-1)) - gammaln((prior + counts).sum(-1))
    evidence: NDArray[np.float64] = rest + (gammaln(prior + counts) - gammaln(prior)).sum(-1)
    return evidence


_ErrorEstimator = _Shrunk | _DawidSkene | _OneCoin
_ERROR_MODELS: dict[str, Callable[[CrowdAnswers, NDArray[np.float64] | None], _ErrorEstimator]] = {
    "shrunk": _Shrunk,
    "dawid_skene": _DawidSkene,
    "one_coin": _OneCoin,
}

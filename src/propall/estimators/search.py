"""Choosing without true labels: criteria on candidate sets, folds, a stacked search, out-of-fold answers.

scikit-learn's own functions (`cross_val_score`, `cross_val_predict`, `GridSearchCV`, ...) take candidate sets
as `CandidateLabels` or as a matrix. Give them no strings such as "cat|dog": some of them number the different
strings first, and every combination becomes a class of its own. `CandidateLabels.from_any(y)` reads them.
"""

import dataclasses
import itertools
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from propall import counter_rng
from propall.estimators.calibration import LOWEST_LOG, fit_temperature, log_mass, log_softmax
from propall.estimators.classifier import PartialLabelClassifier, RandomState, Resolution, seed_from
from propall.labels.candidates import CandidateLabels, UninformativeRowsWarning
from propall.labels.parsing import with_new_names
from propall.methods import METHODS
from propall.registry import Registry
from propall.training.contract import Algorithm, Monitor, Objective
from propall.training.metrics import ProgressBar, Together
from propall.training.trainer import Trainer

#: Rows to fit on and rows to hold out.
Fold = tuple[NDArray[np.int64], NDArray[np.int64]]
#: A criterion: log-probabilities, candidate matrix, weights -> a number, higher is better.
Criterion = Callable[[ArrayLike, ArrayLike, ArrayLike | None], float]

#: Epochs at which early stopping may stop.
STOPS = 20
#: Rows with equal features that are taken for copies of one.
COPIES = 10
#: Bytes that the data and the memories of the runs of one stack may take.
STACK_BYTES = 1 << 30


def _checked_pair(probabilities: ArrayLike, candidates: ArrayLike) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    chances, mask = np.asarray(probabilities, dtype=float), np.asarray(candidates, dtype=bool)
    if chances.ndim != 2 or chances.shape != mask.shape or not len(chances):
        raise ValueError(
            f"candidates: shape {mask.shape} for probabilities of shape {chances.shape}; give two matrices "
            "with a row per instance, at least one, and a column per class."
        )
    return chances, mask


def _mean(values: NDArray[Any], weight: ArrayLike | None) -> float:
    return float(np.average(values, weights=None if weight is None else np.asarray(weight, dtype=float)))


def covering_rate(
    probabilities: ArrayLike, candidates: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    """Share of rows whose likeliest class is a candidate.

    Args:
        probabilities: (n, k) of held-out rows; scores will do.
        candidates: (n, k), True on the candidates.
        sample_weight: one weight per row.

    References:
        [wang2025realistic].
    """
    chances, mask = _checked_pair(probabilities, candidates)
    return _mean(mask[np.arange(len(mask)), chances.argmax(1)], sample_weight)


def weighted_covering_rate(
    probabilities: ArrayLike, candidates: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    r"""Share of rows whose likeliest class is a candidate, where small sets count more.

    .. math:: \sum_i [\hat y_i \in S_i] \, \lvert S_i \rvert^{-1} \Big/ \sum_i \lvert S_i \rvert^{-1}

    In proportion to the accuracy that is to be expected if every candidate were as likely as the others to be
    the truth. A large set is easily hit, by the labels that usually come along with the true one above all.

    Args:
        probabilities: (n, k) of held-out rows; scores will do.
        candidates: (n, k), True on the candidates.
        sample_weight: one weight per row.
    """
    chances, mask = _checked_pair(probabilities, candidates)
    weight = np.ones(len(mask)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    return covering_rate(chances, mask, weight / np.maximum(mask.sum(1), 1))


def approximated_accuracy(
    probabilities: ArrayLike, candidates: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    r"""Mean probability, among the candidates, of a predicted class that is one.

    .. math:: \frac1n \sum_i [\hat y_i \in S_i] \; p_{i \hat y_i} \Big/ \sum_{j \in S_i} p_{ij}

    The accuracy that a model would have if its own probabilities were true within the sets; a model that is
    too sure of itself flatters itself.

    Args:
        probabilities: (n, k) of held-out rows.
        candidates: (n, k), True on the candidates.
        sample_weight: one weight per row.

    References:
        [wang2025realistic].
    """
    chances, mask = _checked_pair(probabilities, candidates)
    row, chosen = np.arange(len(mask)), chances.argmax(1)
    hit = mask[row, chosen]
    # Where the predicted class is a candidate the sum is at least 1/k; elsewhere it may be 0.
    inside = np.where(mask, chances, 0.0).sum(1)
    share = np.where(hit, chances[row, chosen], 0.0) / np.where(hit, inside, 1.0)
    return _mean(share, sample_weight)


def candidate_log_likelihood(
    probabilities: ArrayLike, candidates: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    r"""Mean log of the probability that the model gives to the candidate set.

    .. math:: \frac1n \sum_i \log \sum_{j \in S_i} p_{ij}

    For complementary labels the set is every class but those ruled out. Rows with every class add 0.

    Args:
        probabilities: (n, k) of held-out rows.
        candidates: (n, k), True on the candidates.
        sample_weight: one weight per row.
    """
    chances, mask = _checked_pair(probabilities, candidates)
    return _mean(log_mass(_logs(chances), mask), sample_weight)


def tempered_log_likelihood(
    probabilities: ArrayLike, candidates: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    """`candidate_log_likelihood` at the temperature that suits these rows best (see `fit_temperature`).

    Compares methods whose outputs are probabilities in different degrees: only their order and proportions
    count, not how sure the model says it is.

    Args:
        probabilities: (n, k) of held-out rows.
        candidates: (n, k), True on the candidates.
        sample_weight: one weight per row.
    """
    chances, mask = _checked_pair(probabilities, candidates)
    logs = _logs(chances)
    temperature = fit_temperature(logs, mask, sample_weight)
    return _mean(log_mass(log_softmax(logs, temperature), mask), sample_weight)


def _where_finite(
    criterion: Criterion, chances: NDArray[Any], mask: NDArray[np.bool_], weight: NDArray[Any] | None
) -> float:
    """The criterion, or NaN for a model whose training diverged: any class is the likeliest of NaNs."""
    return criterion(chances, mask, weight) if np.isfinite(chances).all() else float("nan")


def _logs(chances: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(divide="ignore"):
        logs: NDArray[Any] = np.maximum(np.log(chances), LOWEST_LOG)
    return logs


#: Every criterion by its name.
CRITERIA: Registry[Criterion] = Registry(
    "criterion",
    (
        (function.__name__, function)
        for function in (
            covering_rate,
            weighted_covering_rate,
            approximated_accuracy,
            candidate_log_likelihood,
            tempered_log_likelihood,
        )
    ),
)
#: What chooses where nothing else is asked for. It was taken because it loses least against the oracle, on
#: average, on Lost, MSRCv2 and BirdSong; where no setting does well, as on FG-NET, none of the criteria tells
#: much. See `results/scripts/selection.py`.
DEFAULT_CRITERION = weighted_covering_rate.__name__


@dataclass(frozen=True)
class CandidateScorer:
    """A criterion as a scikit-learn scorer: `scorer(estimator, X, y)` with candidate sets in y.

    Works with every classifier that has `predict_proba` and `classes_`, pipelines included. Candidates that
    the classifier was not told of in `fit` have no probability.

    Attributes:
        criterion: of probabilities, candidate matrix and weights.

    Examples:
        >>> from propall import PartialLabelClassifier
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
        """The criterion of the estimator's probabilities on X and the candidate sets y."""
        mask = _mask_on(estimator.classes_, y)
        return self.criterion(estimator.predict_proba(X), mask, sample_weight)


#: Every criterion as a scikit-learn scorer; as a whole it is what `GridSearchCV(scoring=...)` takes, too.
SCORERS: Registry[CandidateScorer] = Registry(
    "criterion", ((name, CandidateScorer(criterion)) for name, criterion in CRITERIA.items())
)


def _candidate_labels(y: Any, classes: Iterable[Hashable] | None = None) -> CandidateLabels:
    with warnings.catch_warnings():
        # Whoever fits on these rows is warned then.
        warnings.simplefilter("ignore", UninformativeRowsWarning)
        return CandidateLabels.from_any(y, classes)


def _mask_on(classes: NDArray[Any], y: Any) -> NDArray[np.bool_]:
    """The candidate sets y with a column for each of some classes; candidates beyond them are left out."""
    names = classes.tolist()
    labels = _candidate_labels(y, None if isinstance(y, CandidateLabels) else with_new_names(names, y, "y"))
    mask = np.zeros((len(labels), len(names)), dtype=bool)
    column = {name: j for j, name in enumerate(labels.classes)}
    for j, name in enumerate(names):
        if name in column:
            mask[:, j] = labels.mask[:, column[name]].cpu().numpy()
    return mask


class CandidateStratifiedKFold(BaseCrossValidator):
    """Folds in which every candidate label has about the same weight, as a scikit-learn splitter.

    A row with candidate set S counts 1/|S| for each of its labels. Smallest sets first, each row goes to the
    fold that lacks its labels most; fold sizes differ by at most one row. Up to `COPIES` rows with equal
    features go to one fold, so that no model is asked about a row that it has seen under another number; more
    are what coarse features look like, and where there are fewer different rows than folds X tells nothing.

    Args:
        n_splits: number of folds.
        random_state: seed of the order in which equal rows are dealt.

    References:
        [sechidis2011stratification], for multi-label data.

    Notes:
        The published rule takes the rarest label first and looks at that label alone. Looking at all labels
        of a row, smallest sets first, halves the imbalance that is left. Rows with the same set are dealt
        out evenly and only the rest one by one: data with few different sets takes no time.

    Examples:
        >>> import numpy as np
        >>> y = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1]], dtype=bool)
        >>> [test.tolist() for _, test in CandidateStratifiedKFold(2).split(np.zeros((6, 1)), y)]
        [[0, 4, 5], [1, 2, 3]]
    """

    def __init__(self, n_splits: int = 5, *, random_state: int = 0) -> None:
        self.n_splits = n_splits
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Number of folds."""
        return self.n_splits

    def _iter_test_indices(self, X: Any = None, y: Any = None, groups: Any = None) -> Iterator[NDArray[Any]]:
        if y is None:
            raise ValueError("y: None; folds are balanced by the candidate sets in y. Pass them to `split`.")
        fold = self.assign(_candidate_labels(y).to_numpy(), X)
        for number in range(self.n_splits):
            yield np.flatnonzero(fold == number)

    def assign(self, candidates: NDArray[np.bool_], X: Any = None) -> NDArray[np.int64]:
        """The number of the fold that holds each row out.

        Args:
            candidates: (n, k), True on the candidates.
            X: the rows' features, by which copies of a row are known.
        """
        n, folds = len(candidates), self.n_splits
        if not 2 <= folds <= n:
            raise ValueError(f"n_splits: {folds} folds of {n} rows; give 2 to {n}.")
        seed = counter_rng.seed_for(self.random_state, "folds")
        shuffled = counter_rng.order(seed, torch.arange(n)).numpy()
        ties = counter_rng.uniform(seed, torch.arange(n)[:, None], torch.arange(folds)).numpy()
        fold = np.full(n, -1)
        room = np.full(folds, n // folds) + (np.arange(folds) < n % folds)
        wanted = np.zeros((folds, candidates.shape[1]))
        if (alike := equal_rows(X, n)) is not None and alike.max() + 1 >= folds:
            by_contents = np.split(np.argsort(alike, kind="stable"), np.cumsum(np.bincount(alike))[:-1])
            together = [rows for rows in by_contents if 1 < len(rows) <= COPIES]
            self._deal(together, candidates, fold, room, wanted, ties)
            shuffled = shuffled[fold[shuffled] < 0]
        left = []
        _, kind = np.unique(np.packbits(candidates[shuffled], axis=1), axis=0, return_inverse=True)
        by_kind = np.argsort(kind.ravel(), kind="stable")
        for rows in np.split(shuffled[by_kind], np.cumsum(np.bincount(kind.ravel()))[:-1]):
            even = len(rows) // folds
            fold[rows[: even * folds]] = np.tile(np.arange(folds), even)
            room -= even
            left.append(rows[even * folds :])
        self._deal(np.concatenate(left)[:, None], candidates, fold, room, wanted, ties)
        return fold

    def _deal(
        self,
        groups: Sequence[NDArray[Any]] | NDArray[Any],
        candidates: NDArray[np.bool_],
        fold: NDArray[Any],
        room: NDArray[Any],
        wanted: NDArray[Any],
        ties: NDArray[Any],
    ) -> None:
        """Give groups of rows to folds one by one, in place; `wanted` is what folds lack of each label."""
        if not len(groups):
            return
        shares = candidates / candidates.sum(1, keepdims=True)
        begins = np.cumsum([0, *map(len, groups[:-1])])
        weight = np.add.reduceat(shares[np.concatenate(groups)], begins)
        wanted += weight.sum(0) / self.n_splits
        first = np.array([ties[rows[0], 0] for rows in groups])
        # What weighs most on one label comes first; the small shares of large sets can still even it out.
        for i in np.lexsort((first, -np.square(weight).sum(1))):
            rows = groups[i]
            # The fold where the sum of squared lacks falls most.
            lack = np.where(room >= min(len(rows), room.max()), wanted @ weight[i], -np.inf)
            # Sums of 1/|S| are rounded, so equal lacks need not be equal to the last digit.
            best = np.lexsort((ties[rows[0]], -room, -np.round(lack, 9)))[0]
            fold[rows] = best
            wanted[best] -= weight[i]
            room[best] -= len(rows)


def equal_rows(X: Any, n: int) -> NDArray[np.int64] | None:
    """A number from 0 on for each row, the same for equal ones; None where all differ or X tells nothing.

    Args:
        X: the rows: an array, a sparse matrix, a data frame, lists.
        n: how many there should be.
    """
    if issparse(X):
        rows: Any = csr_array(X, copy=True)  # type: ignore[call-overload]
        rows.sum_duplicates()
        ends = itertools.pairwise(rows.indptr)
        keys: Iterable[Any] = ((rows.indices[a:b].tobytes(), rows.data[a:b].tobytes()) for a, b in ends)
    else:
        values = np.asarray(X)
        if values.ndim == 0 or len(values) != n:
            return None
        flat = values.reshape(n, -1)
        keys = map(tuple, flat.tolist()) if flat.dtype == object else (row.tobytes() for row in flat)
    place: dict[int, int] = {}
    alike = np.array([place.setdefault(hash(key), len(place)) for key in keys], dtype=np.int64)
    return alike if len(place) < n else None


class _HeldOutCurves(Monitor):
    """A criterion on the rows that each run does not see, at `STOPS` epochs.

    Args:
        criterion: to be measured.
        owners: the (model, fold) of each run.
        held_out: features, candidate matrix and weights of each fold's held-out rows.
    """

    def __init__(
        self,
        criterion: Criterion,
        owners: Sequence[tuple[int, int]],
        held_out: Mapping[int, tuple[Tensor, NDArray[np.bool_], NDArray[Any] | None]],
    ) -> None:
        self.criterion, self.owners, self.held_out = criterion, owners, held_out
        self.curves: dict[tuple[int, int], dict[int, float]] = {owner: {} for owner in owners}
        self._epochs = 0

    def begin(self, epochs: int, runs: Sequence[int], done: int) -> None:
        """Remember how long training lasts."""
        self._epochs = epochs

    def epoch(
        self,
        epoch: int,
        runs: Sequence[int],
        losses: Float[Tensor, "r"],
        scores: Callable[[Tensor], Float[Tensor, "r n k"]],
    ) -> None:
        """Measure every run on its own rows."""
        if epoch % max(1, self._epochs // STOPS) and epoch != self._epochs:
            return
        for fold in {self.owners[run][1] for run in runs}:
            x, mask, weight = self.held_out[fold]
            chances = scores(x).softmax(-1).cpu().numpy()
            for place, run in enumerate(runs):
                if self.owners[run][1] == fold:
                    value = _where_finite(self.criterion, chances[place], mask, weight)
                    self.curves[self.owners[run]][epoch] = value


class _OneBar(Monitor):
    """The epochs of several stacks, one after the other, on one progress bar."""

    def __init__(self, bar: ProgressBar, stacks: int) -> None:
        self.bar, self.stacks, self._done = bar, stacks, 0

    def begin(self, epochs: int, runs: Sequence[int], done: int) -> None:
        """Start the bar with the first stack."""
        if not self._done:
            self.bar.begin(epochs * self.stacks, runs, 0)

    def epoch(
        self,
        epoch: int,
        runs: Sequence[int],
        losses: Float[Tensor, "r"],
        scores: Callable[[Tensor], Float[Tensor, "r n k"]],
    ) -> None:
        """Move the bar."""
        self._done += 1
        self.bar.epoch(self._done, runs, losses, scores)


class Folds:
    """Models of one data set, each fitted on all but one part of the rows, as few stacks as possible.

    Models that differ in objective, learning rate and weight decay alone are trained together, on all folds
    of one size at once where the data is not too large: the runs of one fold share its rows, those of
    several do not.

    Args:
        features: (n, ...) finite numbers.
        labels: the rows' candidate sets.
        weight: one weight per row, or None.
        folds: rows to fit on and rows to hold out.
    """

    def __init__(
        self,
        features: NDArray[Any],
        labels: CandidateLabels,
        weight: NDArray[Any] | None,
        folds: Sequence[Fold],
    ) -> None:
        self.features, self.labels, self.weight, self.folds = features, labels, weight, folds
        self.mask = labels.to_numpy()

    def refusal(self, model: PartialLabelClassifier) -> str:
        """Why a model's objective cannot learn from the rows of some fold; empty where it can."""
        method = model._method()
        try:
            if isinstance(method, Objective):
                for fit, _ in self.folds:
                    method.init(self.labels.mask[torch.from_numpy(fit)])
        except ValueError as error:
            return str(error)
        return ""

    def held_out_weight(self, fold: int) -> NDArray[Any] | None:
        """Weights of the rows that a fold holds out."""
        return None if self.weight is None else self.weight[self.folds[fold][1]]

    def fit(
        self,
        models: Sequence[PartialLabelClassifier],
        *,
        watch: Criterion | None = None,
        monitor: Monitor | None = None,
    ) -> Iterator[tuple[int, int, PartialLabelClassifier, dict[int, float]]]:
        """Every model on every fold: its position, the fold's, the fitted model, its curve of `watch`."""
        for group, part in self.stacks(models):
            yield from self._fit_stack(models, group, part, watch, monitor)

    def stacks(self, models: Sequence[PartialLabelClassifier]) -> list[tuple[list[int], list[int]]]:
        """Which models are trained on which folds at once."""
        groups: dict[Any, list[int]] = {}
        for i, model in enumerate(models):
            groups.setdefault(self._stack_of(i, model), []).append(i)
        every = list(range(len(self.folds)))
        memory = 8 * self.mask.size  # at most: a number per row and class, as PRODEN keeps
        found = []
        for group in groups.values():
            if (self.features.nbytes + memory) * len(every) * len(group) <= STACK_BYTES:
                found.append((group, every))
                continue
            most = max(1, STACK_BYTES // memory)
            parts = [group[start : start + most] for start in range(0, len(group), most)]
            found += [(part, [fold]) for fold in every for part in parts]
        return found

    def _stack_of(self, position: int, model: PartialLabelClassifier) -> Any:
        if not isinstance(model._method(), Objective):
            return position
        apart = {"method", "learning_rate", "weight_decay", "n_estimators", "random_state", "verbose"}
        common = {k: v for k, v in model.get_params(deep=False).items() if k not in apart}
        return repr({**common, "net": model.net if isinstance(model.net, str) else id(model.net)})

    def _fit_stack(
        self,
        models: Sequence[PartialLabelClassifier],
        group: Sequence[int],
        part: Sequence[int],
        watch: Criterion | None,
        monitor: Monitor | None,
    ) -> Iterator[tuple[int, int, PartialLabelClassifier, dict[int, float]]]:
        owners, runs = [], []
        fresh: dict[tuple[int, int], PartialLabelClassifier] = {}
        held_out = {}
        for fold in part:
            fit, hold = self.folds[fold]
            leader = type(models[0])(**models[group[0]].get_params(deep=False))
            weight = None if self.weight is None else self.weight[fit]
            shared = leader._runs(self.features[fit], self.labels[fit], weight)[0]
            held_out[fold] = (
                leader._standardised(self.features[hold]).to(shared.train.x.device),
                self.mask[hold],
                self.held_out_weight(fold),
            )
            for i in group:
                model = type(models[i])(**models[i].get_params(deep=False))
                for name in ("classes_", "mean_", "scale_"):
                    setattr(model, name, getattr(leader, name))
                model._in_shape = tuple(self.features.shape[1:])
                model.temperature_, model.classifiers_ = 1.0, []
                fresh[i, fold] = model
                method = model._method()
                for seed in model._seeds():
                    owners.append((i, fold))
                    run = dataclasses.replace(
                        shared,
                        seed=seed,
                        objective=method if isinstance(method, Objective) else None,
                        learning_rate=model._rate(),
                        weight_decay=model.weight_decay,
                    )
                    runs.append(run)
        algorithm = models[group[0]]._algorithm(self.weight is not None)
        # What an algorithm of another kind calls an epoch is not what a recipe's epochs are.
        curves = None
        if watch is not None and isinstance(algorithm, Trainer):
            curves = _HeldOutCurves(watch, owners, held_out)
        together = Together(*(m for m in (curves, monitor) if m is not None))
        for owner, classifier in zip(owners, algorithm.fit(runs, monitor=together), strict=True):
            fresh[owner].classifiers_.append(classifier)
        for (i, fold), model in fresh.items():
            yield i, fold, model, {} if curves is None else curves.curves[i, fold]


def cross_calibrated(
    log_probabilities: NDArray[Any],
    candidates: NDArray[np.bool_],
    folds: Sequence[Fold],
    sample_weight: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Out-of-fold log-probabilities, every fold's at the temperature that suits the other folds.

    Args:
        log_probabilities: (n, k) of rows by models that have not seen them.
        candidates: (n, k), True on the candidates.
        folds: rows fitted on and rows held out; each row is held out once.
        sample_weight: one weight per row.
    """
    calibrated = np.empty(log_probabilities.shape)
    for _, hold in folds:
        others = np.setdiff1d(np.arange(len(candidates)), hold)
        own = None if sample_weight is None else sample_weight[others]
        temperature = fit_temperature(log_probabilities[others], candidates[others], own)
        calibrated[hold] = log_softmax(log_probabilities[hold], temperature)
    return calibrated


def _each_row_once(folds: Sequence[Fold], n: int) -> bool:
    held_out = np.concatenate([hold for _, hold in folds])
    return np.array_equal(np.sort(held_out), np.arange(n))


def _as_folds(cv: Any, X: Any, labels: CandidateLabels) -> list[Fold]:
    pairs = cv.split(X, labels) if hasattr(cv, "split") else cv
    return [(np.asarray(fit), np.asarray(hold)) for fit, hold in pairs]


def resolve_out_of_fold(
    estimator: Any,
    X: Any,
    candidates: Any,
    *,
    cv: Any = None,
    calibrate: bool = True,
    sample_weight: ArrayLike | None = None,
) -> Resolution:
    """Resolve every row's candidate set by a model that has not seen the row.

    Args:
        estimator: a `PartialLabelClassifier` (its folds are trained as one stack where they fit), or any
            classifier with `predict_proba` that takes candidate sets, such as a pipeline that ends in one.
            It is cloned.
        X: rows.
        candidates: their candidate sets, in any form that `fit` takes.
        cv: a splitter or the folds themselves, each row held out once; `CandidateStratifiedKFold(5)` by
            default.
        calibrate: bring every fold's probabilities to the temperature under which the candidate sets of the
            other folds' held-out rows are likeliest.
        sample_weight: one weight per row.

    Notes:
        The probabilities are what cleanlab asks for. With a label of one's own for every row, say `y` as
        column numbers, these are the rows to look at again::

            from cleanlab.filter import find_label_issues

            resolution = resolve_out_of_fold(clf, X, candidates)
            find_label_issues(labels=y, pred_probs=resolution.probabilities)

    Examples:
        >>> import numpy as np
        >>> from propall import PartialLabelClassifier
        >>> X = np.repeat([[0.0, 1.0], [1.0, 0.0]], 10, axis=0) + np.linspace(0, 0.1, 20)[:, None]
        >>> y = ["cat|dog"] * 3 + ["cat"] * 7 + ["dog"] * 8 + ["dog|cow", "cat|dog"]
        >>> found = resolve_out_of_fold(PartialLabelClassifier(random_state=0), X, y)
        >>> found.label[[0, 19]].tolist()
        ['cat', 'dog']
    """
    own_reading = isinstance(estimator, PartialLabelClassifier)
    labels = _candidate_labels(candidates, estimator.classes if own_reading else None)
    mask = labels.to_numpy()
    folds = _as_folds(CandidateStratifiedKFold() if cv is None else cv, X, labels)
    if not _each_row_once(folds, len(labels)):
        raise ValueError("cv: some rows are held out never or more than once; use folds, such as KFold's.")
    weight = None if sample_weight is None else np.asarray(sample_weight, dtype=float)
    logs = np.empty(mask.shape)
    if own_reading:
        model = clone(estimator)
        features, labels, weight = model._checked(X, labels, weight)
        for _, fold, fitted, _ in Folds(features, labels, weight, folds).fit([model]):
            hold = folds[fold][1]
            logs[hold] = fitted.predict_log_proba(features[hold])
    else:
        given = {} if weight is None else {"sample_weight": weight}
        for fit, hold in folds:
            own = {name: values[fit] for name, values in given.items()}
            fitted = clone(estimator).fit(_safe_indexing(X, fit), labels[fit], **own)
            logs[hold] = _logs(fitted.predict_proba(_safe_indexing(X, hold)))
    if calibrate:
        logs = cross_calibrated(logs, mask, folds, weight)
    return Resolution(logs, mask, labels.decode(range(labels.n_classes)))


class PartialLabelClassifierCV(ClassifierMixin, BaseEstimator):
    """A `PartialLabelClassifier` whose method, network and rates are chosen without true labels.

    Every combination is fitted on every fold and measured on the candidate sets of the rows held out. All
    combinations of a network and fold size train as one stack, so a large grid costs little more than a
    small one. The best is fitted again on all rows, its probabilities calibrated on the held-out sets.

    Args:
        methods: names, objectives or algorithms. Those without a network enter once each.
        nets: names, (name, options) pairs, factories or modules; see `PartialLabelClassifier`.
        learning_rates: of the optimiser.
        weight_decays: factors of the L2 penalty.
        epochs: passes over the data.
        early_stopping: choose the number of epochs, too: of twenty points along the training the one where
            the criterion, averaged over folds, is best. The chosen combination is fitted for that long.
        scoring: a name from `CRITERIA`, or a function of probabilities, candidate matrix and weights, higher
            is better. Where two combinations are equal by it, the likelihood at the best temperature decides.
        cv: number of folds, a splitter, or pairs of rows to fit on and rows to hold out.
        refit: fit the best combination on all rows; without, there are only `cv_results_` and the choice.
        calibrate: give the refitted model the temperature that suits the held-out candidate sets.
        batch_size: rows per step.
        optimizer: "adam" or "sgd".
        n_estimators: members of the refitted model.
        standardize: take mean and standard deviation of the rows fitted on out of the features.
        classes: class names in order, see `PartialLabelClassifier`.
        device: "auto" (a GPU where there is one), "cpu", "cuda", ...
        verbose: show a progress bar on a terminal.
        random_state: makes results repeatable.

    Attributes:
        cv_results_: a dict of columns, one entry per combination, which `pandas.DataFrame` takes: `params`,
            `param_*`, `epochs`, `split*_test_score`, `mean_test_score`, `std_test_score`, `rank_test_score`,
            the mean of every other criterion as `mean_test_<criterion>` (not with early stopping), and
            `refusal`, why a method could not take the data or what its training came to.
        best_index_: row of the chosen combination.
        best_params_: its parameters, as `PartialLabelClassifier` takes them.
        best_score_: its mean held-out criterion.
        best_estimator_: the refitted model.
        temperature_: of the refitted model.
        out_of_fold_: the `Resolution` of all rows by models of the chosen combination that did not see them,
            each fold calibrated on the others; absent where `cv` does not hold out each row once.
        classes_: class names in order.

    Notes:
        ProPaLL's noise fades towards the end of training, so a model stopped early was measured before that
        and is refitted with its own end.

    Examples:
        >>> import numpy as np
        >>> X = np.repeat([[0.0, 1.0], [1.0, 0.0]], 10, axis=0) + np.linspace(0, 0.1, 20)[:, None]
        >>> y = ["cat|dog"] * 3 + ["cat"] * 7 + ["dog"] * 8 + ["dog|cow", "cat|dog"]
        >>> search = PartialLabelClassifierCV(["propall", "cc"], ["linear"], epochs=20, random_state=0)
        >>> search.fit(X, y).predict([[0.0, 1.0]]).item()
        'cat'
    """

    def __init__(
        self,
        methods: Sequence[str | Objective | Algorithm] = ("propall", "cc", "proden"),
        nets: Sequence[Any] = ("linear", "mlp"),
        *,
        learning_rates: Sequence[float] = (0.001, 0.003, 0.01),
        weight_decays: Sequence[float] = (1e-4, 1e-2),
        epochs: int = 100,
        early_stopping: bool = False,
        scoring: str | Criterion = DEFAULT_CRITERION,
        cv: Any = 5,
        refit: bool = True,
        calibrate: bool = True,
        batch_size: int = 256,
        optimizer: Literal["adam", "sgd"] = "adam",
        n_estimators: int = 1,
        standardize: bool = True,
        classes: Sequence[Hashable] | None = None,
        device: str = "auto",
        verbose: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.methods = methods
        self.nets = nets
        self.learning_rates = learning_rates
        self.weight_decays = weight_decays
        self.epochs = epochs
        self.early_stopping = early_stopping
        self.scoring = scoring
        self.cv = cv
        self.refit = refit
        self.calibrate = calibrate
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.n_estimators = n_estimators
        self.standardize = standardize
        self.classes = classes
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Choose on folds, then fit the choice on all rows.

        Args:
            X: rows, as `PartialLabelClassifier.fit` takes them.
            y: their labels or candidate sets.
            sample_weight: one weight per row, in training and in the criterion.
        """
        criterion = CRITERIA[self.scoring] if isinstance(self.scoring, str) else self.scoring
        seed = seed_from(self.random_state)
        settings = self._settings()
        models = [self._model(seed, **setting) for setting in settings]
        features, labels, weight = models[0]._checked(X, y, sample_weight)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(models[0], name):
                setattr(self, name, getattr(models[0], name))
        self.classes_ = labels.decode(range(labels.n_classes))
        cv = self.cv
        if isinstance(cv, int | np.integer):
            cv = CandidateStratifiedKFold(int(cv), random_state=seed)
        folds = Folds(features, labels, weight, _as_folds(cv, features, labels))
        if not self.verbose:
            logs = self._choose(settings, models, folds, criterion)
        else:
            with ProgressBar(f"choosing among {len(settings)} combinations") as bar:
                one = _OneBar(bar, len(folds.stacks(models)))
                logs = self._choose(settings, models, folds, criterion, one)
        if self.refit:
            self._refit(X, seed, folds, logs)
        return self

    def _settings(self) -> list[dict[str, Any]]:
        rates = list(itertools.product(self.learning_rates, self.weight_decays))
        settings: list[dict[str, Any]] = []
        for method in self.methods:
            if not _takes_a_net(method):
                settings.append({"method": method})
                continue
            for net, (rate, decay) in itertools.product(self.nets, rates):
                name, options = net if isinstance(net, tuple) else (net, None)
                own = {"net": name} if options is None else {"net": name, "net_options": options}
                settings.append({"method": method, **own, "learning_rate": rate, "weight_decay": decay})
        if not settings:
            raise ValueError("methods: no combination to choose from; give at least one value of everything.")
        return settings

    def _model(self, seed: int, **setting: Any) -> PartialLabelClassifier:
        common = {
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "optimizer": self.optimizer,
            "standardize": self.standardize,
            "classes": self.classes,
            "device": self.device,
            "random_state": seed,
        }
        return PartialLabelClassifier(**{**common, **setting})

    def _choose(
        self,
        settings: Sequence[dict[str, Any]],
        models: Sequence[PartialLabelClassifier],
        folds: Folds,
        criterion: Criterion,
        monitor: Monitor | None = None,
    ) -> list[NDArray[Any]]:
        """Measure every combination; returns the held-out log-probabilities of the chosen one, by fold."""
        refusals = [folds.refusal(model) for model in models]
        able = [i for i, refusal in enumerate(refusals) if not refusal]
        if not able:
            raise ValueError(f"methods: none of them can learn from these candidate sets. {refusals[0]}")
        shape = (len(models), len(folds.folds))
        measured = {name: np.full(shape, np.nan) for name in CRITERIA}
        curves: dict[tuple[int, int], dict[int, float]] = {}
        logs: dict[tuple[int, int], NDArray[Any]] = {}
        fitting = folds.fit(
            [models[i] for i in able], watch=criterion if self.early_stopping else None, monitor=monitor
        )
        for place, fold, fitted, curve in fitting:
            i, hold = able[place], folds.folds[fold][1]
            logs[i, fold] = fitted.predict_log_proba(folds.features[hold]).astype(np.float32)
            held_out = (np.exp(logs[i, fold], dtype=float), folds.mask[hold], folds.held_out_weight(fold))
            for name, function in CRITERIA.items():
                measured[name][i, fold] = _where_finite(function, *held_out)
            curves[i, fold] = curve or {self.epochs: _where_finite(criterion, *held_out)}
        scores, epochs = np.full(shape, np.nan), np.full(len(models), self.epochs)
        for i in able:
            stops = list(curves[i, 0])
            table = np.array([[curves[i, fold][stop] for stop in stops] for fold in range(shape[1])])
            if np.isnan(table).any(0).all():
                refusals[i] = "training diverged: its outputs are not finite; a lower learning rate may do."
                continue
            best = int(np.nanargmax(np.where(np.isnan(table).any(0), np.nan, table.mean(0))))
            scores[i], epochs[i] = table[:, best], stops[best]
        if all(refusals):
            raise ValueError(f"learning_rates: no combination could be trained. {refusals[able[0]]}")
        self._report(settings, scores, epochs, measured, refusals)
        return [logs[self.best_index_, fold] for fold in range(shape[1])]

    def _report(
        self,
        settings: Sequence[dict[str, Any]],
        scores: NDArray[Any],
        epochs: NDArray[Any],
        measured: Mapping[str, NDArray[Any]],
        refusals: Sequence[str],
    ) -> None:
        mean = scores.mean(1)
        order = np.where(np.isnan(mean), -np.inf, mean)
        names = list(dict.fromkeys(name for setting in settings for name in setting))
        self.cv_results_: dict[str, Any] = {
            "params": list(settings),
            **{f"param_{name}": [setting.get(name) for setting in settings] for name in names},
            "epochs": epochs,
            **{f"split{fold}_test_score": scores[:, fold] for fold in range(scores.shape[1])},
            "mean_test_score": mean,
            "std_test_score": scores.std(1),
            "rank_test_score": rankdata(-order, method="min").astype(int),
            **{f"mean_test_{name}": values.mean(1) for name, values in measured.items()},
            "refusal": list(refusals),
        }
        likelihood = np.nan_to_num(measured["tempered_log_likelihood"].mean(1), nan=-np.inf)
        self.best_index_ = int(np.lexsort((-likelihood, -order))[0])
        self.best_score_ = float(mean[self.best_index_])
        self.best_params_ = {**settings[self.best_index_], "epochs": int(epochs[self.best_index_])}
        self.n_splits_ = scores.shape[1]

    def _refit(self, X: Any, seed: int, folds: Folds, logs: list[NDArray[Any]]) -> None:
        final = {**self.best_params_, "n_estimators": self.n_estimators, "verbose": self.verbose}
        self.best_estimator_ = self._model(seed, **final)
        self.best_estimator_.fit(X, folds.labels, folds.weight)
        if self.n_estimators > 1 or self.best_params_["epochs"] != self.epochs:
            # The models that were compared are not of this make; how sure those of this make are counts.
            for _, fold, fitted, _ in folds.fit([self.best_estimator_]):
                logs[fold] = fitted.predict_log_proba(folds.features[folds.folds[fold][1]])
        held_out = np.concatenate([hold for _, hold in folds.folds])
        known, mask = np.concatenate(logs).astype(float), folds.mask[held_out]
        weight = None if folds.weight is None else folds.weight[held_out]
        if self.calibrate:
            self.best_estimator_.temperature_ = fit_temperature(known, mask, weight)
        self.temperature_ = self.best_estimator_.temperature_
        if _each_row_once(folds.folds, len(folds.mask)):
            in_order = np.empty_like(known)
            in_order[held_out] = known
            if self.calibrate:
                in_order = cross_calibrated(in_order, folds.mask, folds.folds, folds.weight)
            self.out_of_fold_ = Resolution(in_order, folds.mask, self.classes_)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The likeliest class of every row."""
        return self._chosen().predict(X)

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Calibrated probabilities; see `PartialLabelClassifier.predict_proba`."""
        return self._chosen().predict_proba(X)

    def predict_log_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Logs of `predict_proba`."""
        return self._chosen().predict_log_proba(X)

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """Scores, higher is likelier; see `PartialLabelClassifier.decision_function`."""
        return self._chosen().decision_function(X)

    def score(self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Share of rows whose predicted label is among the candidates in y; the accuracy for ordinary y."""
        return self._chosen().score(X, y, sample_weight)

    def resolve(self, X: ArrayLike, candidates: Any) -> Resolution:
        """The likeliest candidate of every row; `out_of_fold_` has that of the rows fitted on."""
        return self._chosen().resolve(X, candidates)

    def _chosen(self) -> PartialLabelClassifier:
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_


def _takes_a_net(method: str | Objective | Algorithm) -> bool:
    return (METHODS[method] if isinstance(method, str) else method).trains_network

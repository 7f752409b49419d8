"""Model selection without true labels, and resolution by models that have not seen a row."""

import itertools
import warnings
from collections.abc import Hashable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_sample_weight, check_is_fitted
from torch import Tensor

from propall.estimators.calibration import cross_calibrate, fit_temperature
from propall.estimators.candidate_mixin import CandidateMixin
from propall.estimators.classifier import PartialLabelClassifier, PartialLabelEstimator
from propall.estimators.cross_fitting import CrossFitting
from propall.estimators.ensemble import seed_from
from propall.estimators.folds import CandidateStratifiedKFold, is_partition, make_folds, make_partition
from propall.estimators.resolution import Resolution
from propall.estimators.scorers import CRITERIA, DEFAULT_CRITERION, Criterion, clipped_log, score_or_nan
from propall.estimators.validation import align_columns, check_training_data, read_candidates
from propall.labels.candidates import CandidateLabels
from propall.methods import METHODS
from propall.training.contract import Algorithm, Monitor, Objective, RunScores
from propall.training.metrics import ProgressBar
from propall.training.trainer import DivergedWarning


def resolve_out_of_fold(
    estimator: Any,
    X: Any,
    candidates: Any,
    *,
    cv: Any = None,
    calibrate: bool = True,
    sample_weight: ArrayLike | None = None,
) -> Resolution:
    """Resolve every row's candidate set with a model that was not fitted on the row.

    Args:
        estimator: a `PartialLabelClassifier` (all its folds are trained together if memory permits), or any
            classifier with `predict_proba` that accepts candidate sets, such as a pipeline ending in one. It
            is cloned.
        X: features.
        candidates: candidate sets in any form that `fit` accepts.
        cv: number of folds, a splitter, or folds that hold out each row once; five by default. A
            classifier with bagging is fitted once by default, and each row resolved by the members that were
            not trained on it, if there are such members for every row.
        calibrate: scale each fold's probabilities by the temperature that maximizes the likelihood of the
            other folds' candidate sets.
        sample_weight: one weight per row.

    Notes:
        cleanlab accepts the probabilities. Given a single label per row, `y` as column indices, it finds
        likely errors::

            from cleanlab.filter import find_label_issues

            resolution = resolve_out_of_fold(clf, X, candidates)
            find_label_issues(labels=y, pred_probs=resolution.probabilities)

    Examples:
        >>> import numpy as np
        >>> from propall import PartialLabelClassifier
        >>> X = np.repeat([[0.0, 1.0], [1.0, 0.0]], 10, axis=0) + np.linspace(0, 0.1, 20)[:, None]
        >>> y = ["cat|dog"] * 3 + ["cat"] * 7 + ["dog"] * 8 + ["dog|cow", "cat|dog"]
        >>> resolution = resolve_out_of_fold(PartialLabelClassifier(random_state=0), X, y)
        >>> resolution.label[[0, 19]].tolist()
        ['cat', 'dog']
    """
    trains_together = isinstance(estimator, PartialLabelClassifier)
    if not hasattr(estimator, "fit") or not hasattr(estimator, "predict_proba"):
        raise ValueError(
            f"estimator: {type(estimator).__name__} has no fit and predict_proba; expected a classifier for "
            "candidate sets, such as propall.PartialLabelClassifier()."
        )
    labels = read_candidates(candidates, _fixed_classes(estimator))
    mask = labels.to_numpy()
    folds = make_partition(CandidateStratifiedKFold() if cv is None else cv, X, labels)
    weight = None
    if sample_weight is not None:
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    logs = np.empty(mask.shape)
    out_of_bag = _out_of_bag(estimator, X, labels, weight) if trains_together and cv is None else None
    if out_of_bag is not None:
        logs = clipped_log(out_of_bag)
    elif trains_together:
        model = clone(estimator)
        features, labels, fit_weight = check_training_data(model, X, labels, weight)
        for fitted in CrossFitting(features, labels, fit_weight, folds).fit([model]):
            hold = folds[fitted.fold][1]
            logs[hold] = fitted.model.predict_log_proba(features[hold])
    else:
        for fit, hold in folds:
            fit_params = {} if weight is None else {"sample_weight": weight[fit]}
            fold_model = clone(estimator)
            try:
                fold_model.fit(_safe_indexing(X, fit), labels[fit], **fit_params)
            except (ValueError, TypeError) as error:
                if _candidate_classifier(estimator) is not None:
                    raise
                raise _refusal(estimator) from error
            probabilities = np.asarray(fold_model.predict_proba(_safe_indexing(X, hold)), dtype=float)
            logs[hold] = clipped_log(align_columns(probabilities, fold_model.classes_, labels.classes))
    if calibrate:
        logs = cross_calibrate(logs, mask, folds, weight)
    return Resolution(logs, mask, labels.decode(range(labels.n_classes)))


def _candidate_classifier(estimator: Any) -> CandidateMixin | None:
    """The classifier for candidate sets: itself, the last step of a pipeline, or what a search wraps."""
    if isinstance(estimator, CandidateMixin):
        return estimator
    inner = estimator.steps[-1][1] if hasattr(estimator, "steps") else getattr(estimator, "estimator", None)
    return None if inner is None else _candidate_classifier(inner)


def _fixed_classes(estimator: Any) -> Sequence[Hashable] | None:
    """Class names that the classifier's parameters fix, if any."""
    classifier = _candidate_classifier(estimator)
    return None if classifier is None else classifier.classes


def _refusal(estimator: Any) -> ValueError:
    name = type(estimator).__name__
    return ValueError(
        f"estimator: {name} cannot be fitted to candidate sets. Wrap the classifier: "
        "propall.CandidateClassifier(classifier)."
    )


def _out_of_bag(
    estimator: PartialLabelClassifier, X: Any, labels: CandidateLabels, weight: NDArray[Any] | None
) -> NDArray[np.float64] | None:
    """Probabilities of all rows by members not trained on them; None if a row is in every bag."""
    if estimator.bagging is None:
        return None
    probabilities = clone(estimator).fit(X, labels, weight).out_of_bag_
    return None if np.isnan(probabilities).any() else np.asarray(probabilities, dtype=float)


@dataclass(eq=False, repr=False)
class PartialLabelClassifierCV(PartialLabelEstimator):
    """A `PartialLabelClassifier` whose method, network and rates are selected without true labels.

    Every combination is fitted on every fold and evaluated on the candidate sets of the held-out rows. All
    combinations with the same network train together, so a large grid costs little more than a small one. The
    best combination is refitted on all rows and calibrated on the held-out candidate sets. For tables,
    `PartialLabelPortfolio` compares more kinds of learners, and averages them.

    Args:
        methods: names, objectives or algorithms. Those without a network are evaluated once each.
        nets: names, (name, options) pairs, functions or modules; see `PartialLabelClassifier`.
        learning_rates: learning rates to compare.
        weight_decays: factors of the L2 penalty to compare.
        epochs: passes over the data.
        early_stopping: also select the number of epochs, among twenty points during training, by the mean
            criterion over folds. The selected combination is refitted for that many epochs.
        scoring: a name from `CRITERIA`, or a function of probabilities, candidate matrix and weights; higher
            is better. Ties are broken by the likelihood at the best temperature.
        cv: number of folds, a splitter, or pairs of rows to fit on and rows to hold out.
        refit: refit the best combination on all rows; if False, only `cv_results_` and the selection are
            available.
        calibrate: set the temperature of the refitted model from the held-out candidate sets.
        n_estimators: ensemble size of the refitted model.
        batch_size, optimizer, standardize, views, classes, device, verbose, random_state: see
            `PartialLabelClassifier`.

    Attributes:
        cv_results_: a dict of columns with one entry per combination, for `pandas.DataFrame`: `params`,
            `param_*`, `epochs`, `split*_test_score`, `mean_test_score`, `std_test_score`, `rank_test_score`,
            the mean of every other criterion as `mean_test_<criterion>` (at the last epoch), and `refusal`,
            why a method could not be trained on the data.
        best_index_: index of the selected combination.
        best_params_: its parameters for `PartialLabelClassifier`.
        best_score_: its mean held-out criterion.
        best_estimator_: the refitted model.
        temperature_: temperature of the refitted model.
        out_of_fold_: `Resolution` of all rows by models of the selected combination that were not fitted on
            them, each fold calibrated on the others; only if `cv` holds out each row once.
        n_splits_: number of folds.
        classes_: class names in order.

    Notes:
        ProPaLL's noise is annealed to zero at the end of training. A model stopped early is evaluated before
        that; the refitted model anneals within the selected number of epochs.

    Examples:
        >>> import numpy as np
        >>> X = np.repeat([[0.0, 1.0], [1.0, 0.0]], 10, axis=0) + np.linspace(0, 0.1, 20)[:, None]
        >>> y = ["cat|dog"] * 3 + ["cat"] * 7 + ["dog"] * 8 + ["dog|cow", "cat|dog"]
        >>> search = PartialLabelClassifierCV(["propall", "cc"], ["linear"], epochs=20, random_state=0)
        >>> search.fit(X, y).predict([[0.0, 1.0]]).item()
        'cat'
    """

    methods: Sequence[str | Objective | Algorithm] = ("propall", "cc", "proden")
    nets: Sequence[Any] = ("linear", "mlp")
    _: KW_ONLY
    learning_rates: Sequence[float] = (0.001, 0.003, 0.01)
    weight_decays: Sequence[float] = (1e-4, 1e-2)
    epochs: int = 100
    early_stopping: bool = False
    scoring: str | Criterion = DEFAULT_CRITERION
    cv: Any = 5
    refit: bool = True
    calibrate: bool = True

    def fit(self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Select a combination by cross-validation, then fit it on all rows.

        Args:
            X: features, as in `PartialLabelClassifier.fit`.
            y: labels or candidate sets.
            sample_weight: one weight per row, used in training and in the criterion.
        """
        criterion = CRITERIA[self.scoring] if isinstance(self.scoring, str) else self.scoring
        seed = seed_from(self.random_state)
        settings = self._settings()
        models = [self._model(seed, **setting) for setting in settings]
        features, labels, weight = check_training_data(models[0], X, y, sample_weight)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(models[0], name):
                setattr(self, name, getattr(models[0], name))
        self.classes_ = labels.decode(range(labels.n_classes))
        cv = self.cv
        if isinstance(cv, int | np.integer):
            cv = CandidateStratifiedKFold(int(cv), random_state=seed)
        fitting = CrossFitting(features, labels, weight, make_folds(cv, features, labels))
        bars = ProgressBar(f"comparing {len(settings)} combinations") if self.verbose else nullcontext()
        with bars as bar, warnings.catch_warnings():
            # Settings that diverge are refused by name.
            warnings.simplefilter("ignore", DivergedWarning)
            monitor = None if bar is None else _SharedBar(bar, len(fitting.stacks(models)))
            logs = self._select(settings, models, fitting, criterion, monitor)
        if self.refit:
            self._refit(X, seed, fitting, logs)
        return self

    def _settings(self) -> list[dict[str, Any]]:
        rates = list(itertools.product(self.learning_rates, self.weight_decays))
        settings: list[dict[str, Any]] = []
        for method in self.methods:
            if not (METHODS[method] if isinstance(method, str) else method).trains_network:
                settings.append({"method": method})
                continue
            for net, (rate, decay) in itertools.product(self.nets, rates):
                name, options = net if isinstance(net, tuple) else (net, None)
                network = {"net": name} if options is None else {"net": name, "net_options": options}
                settings.append({"method": method, **network, "learning_rate": rate, "weight_decay": decay})
        if not settings:
            raise ValueError(
                "methods: there are no combinations to compare; expected at least one method, network, "
                "learning rate and weight decay."
            )
        return settings

    def _model(self, seed: int, **setting: Any) -> PartialLabelClassifier:
        names = ("epochs", "batch_size", "optimizer", "standardize", "views", "classes", "device")
        common = {name: getattr(self, name) for name in names}
        return PartialLabelClassifier(**{**common, "random_state": seed, **setting})

    def _select(
        self,
        settings: Sequence[dict[str, Any]],
        models: Sequence[PartialLabelClassifier],
        fitting: CrossFitting,
        criterion: Criterion,
        monitor: Monitor | None,
    ) -> list[NDArray[Any]]:
        """Evaluate every combination; return the selected one's held-out log-probabilities by fold."""
        refusals = [fitting.refusal(model) for model in models]
        trainable = [i for i, refusal in enumerate(refusals) if not refusal]
        if not trainable:
            raise ValueError(f"methods: none of them can learn from these candidate sets. {refusals[0]}")
        shape = (len(models), len(fitting.folds))
        criteria = {name: np.full(shape, np.nan) for name in CRITERIA}
        curves: dict[tuple[int, int], dict[int, float]] = {}
        logs: dict[tuple[int, int], NDArray[Any]] = {}
        fold_models = fitting.fit(
            [models[i] for i in trainable],
            criterion=criterion if self.early_stopping else None,
            monitor=monitor,
        )
        for position, fold, model, curve in fold_models:
            i, hold = trainable[position], fitting.folds[fold][1]
            logs[i, fold] = model.predict_log_proba(fitting.features[hold]).astype(np.float32)
            held_out = (np.exp(logs[i, fold], dtype=float), fitting.mask[hold], fitting.held_out_weight(fold))
            for name, function in CRITERIA.items():
                criteria[name][i, fold] = score_or_nan(function, *held_out)
            curves[i, fold] = curve or {self.epochs: score_or_nan(criterion, *held_out)}
        scores, epochs = np.full(shape, np.nan), np.full(len(models), self.epochs)
        for i in trainable:
            stops = list(curves[i, 0])
            table = np.array([[curves[i, fold][stop] for stop in stops] for fold in range(shape[1])])
            if np.isnan(table).any(0).all():
                refusals[i] = "training diverged: the outputs are not finite. Try a lower learning rate."
                continue
            best = int(np.nanargmax(np.where(np.isnan(table).any(0), np.nan, table.mean(0))))
            scores[i], epochs[i] = table[:, best], stops[best]
        if all(refusals):
            raise ValueError(f"learning_rates: no combination could be trained. {refusals[trainable[0]]}")
        self._report(settings, scores, epochs, criteria, refusals)
        return [logs[self.best_index_, fold] for fold in range(shape[1])]

    def _report(
        self,
        settings: Sequence[dict[str, Any]],
        scores: NDArray[Any],
        epochs: NDArray[Any],
        criteria: Mapping[str, NDArray[Any]],
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
            **{f"mean_test_{name}": values.mean(1) for name, values in criteria.items()},
            "refusal": list(refusals),
        }
        likelihood = np.nan_to_num(criteria["tempered_log_likelihood"].mean(1), nan=-np.inf)
        self.best_index_ = int(np.lexsort((-likelihood, -order))[0])
        self.best_score_ = float(mean[self.best_index_])
        self.best_params_ = {**settings[self.best_index_], "epochs": int(epochs[self.best_index_])}
        self.n_splits_ = scores.shape[1]

    def _refit(self, X: Any, seed: int, fitting: CrossFitting, logs: list[NDArray[Any]]) -> None:
        final = {**self.best_params_, "n_estimators": self.n_estimators, "verbose": self.verbose}
        self.best_estimator_ = self._model(seed, **final)
        self.best_estimator_.fit(X, fitting.labels, fitting.weight)
        if self.n_estimators > 1 or self.best_params_["epochs"] != self.epochs:
            # The models compared had one member and all epochs; calibrate with models like the refitted one.
            for _, fold, model, _ in fitting.fit([self.best_estimator_]):
                logs[fold] = model.predict_log_proba(fitting.features[fitting.folds[fold][1]])
        held_out = np.concatenate([hold for _, hold in fitting.folds])
        held_out_logs, mask = np.concatenate(logs).astype(float), fitting.mask[held_out]
        weight = None if fitting.weight is None else fitting.weight[held_out]
        if self.calibrate:
            self.best_estimator_.temperature_ = fit_temperature(held_out_logs, mask, weight)
        self.temperature_ = self.best_estimator_.temperature_
        if is_partition(fitting.folds, len(fitting.mask)):
            in_order = np.empty_like(held_out_logs)
            in_order[held_out] = held_out_logs
            if self.calibrate:
                in_order = cross_calibrate(in_order, fitting.mask, fitting.folds, fitting.weight)
            self.out_of_fold_ = Resolution(in_order, fitting.mask, self.classes_)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable class of every row."""
        return self._best().predict(X)

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Return calibrated probabilities; see `PartialLabelClassifier.predict_proba`."""
        return self._best().predict_proba(X)

    def predict_log_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Return log-probabilities."""
        return self._best().predict_log_proba(X)

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """Return scores; see `PartialLabelClassifier.decision_function`."""
        return self._best().decision_function(X)

    def score(self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the share of rows whose prediction is a candidate in y; the accuracy for ordinary labels."""
        return self._best().score(X, y, sample_weight)

    def resolve(self, X: ArrayLike, candidates: Any) -> Resolution:
        """Select the most probable candidate of every row; for the rows fitted on, see `out_of_fold_`."""
        return self._best().resolve(X, candidates)

    def save(self, path: str | Path) -> None:
        """Write the best estimator to a file, which `PartialLabelClassifier.load` reads.

        The record of the search, `cv_results_` and `out_of_fold_`, is not in the file.

        Raises:
            ValueError: if the search was fitted with `refit=False`, so that there is no model.
        """
        if hasattr(self, "cv_results_") and not hasattr(self, "best_estimator_"):
            raise ValueError(
                "refit: got False, so there is no fitted model to save. Fit with refit=True, or fit and save "
                "PartialLabelClassifier(**search.best_params_)."
            )
        self._best().save(path)

    def _best(self) -> PartialLabelClassifier:
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_


class _SharedBar(Monitor):
    """One progress bar for several stacks that are trained one after the other."""

    def __init__(self, bar: ProgressBar, stacks: int) -> None:
        self.bar, self.stacks, self._done = bar, stacks, 0

    def begin(self, epochs: int, runs: Sequence[int], done: int) -> None:
        """Start the bar with the first stack."""
        if not self._done:
            self.bar.begin(epochs * self.stacks, runs, 0)

    def epoch(self, epoch: int, runs: Sequence[int], losses: Float[Tensor, "r"], scores: RunScores) -> None:
        """Advance the bar."""
        self._done += 1
        self.bar.epoch(self._done, runs, losses, scores)

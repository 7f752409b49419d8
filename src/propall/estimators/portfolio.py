"""A portfolio of different learners, weighed without true labels by rows that each has not seen."""

import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp, softmax
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from propall.estimators.calibration import cross_calibrate, fit_temperature, log_softmax
from propall.estimators.candidate_mixin import CandidateMixin
from propall.estimators.classifier import PartialLabelClassifier
from propall.estimators.cross_fitting import CrossFitting
from propall.estimators.ensemble import RandomState, Scaling, Standardization, seed_from
from propall.estimators.folds import CandidateStratifiedKFold, make_folds
from propall.estimators.mixture import ClassifierMixture, log_weighted_mean
from propall.estimators.resolution import Resolution
from propall.estimators.scorers import (
    CRITERIA,
    clipped_log,
    cooccurrence_log_likelihood,
    log_set_probabilities,
)
from propall.estimators.validation import check_training_data
from propall.labels.candidates import CandidateLabels
from propall.methods.forest import Forest
from propall.training.contract import Monitor, RunScores
from propall.wording import list_names

Effort = Literal["quick", "normal", "best"]
#: Share of the rows in each bag, and the number of members that then leave out every row once.
BAGGING, BLOCK = 0.8, 5
#: Maximum number of rows for learners that compare all pairs of rows.
LARGEST_FOR_NEIGHBORS = 20_000
#: Maximum number of rows for forests, whose trees grow with the rows.
LARGEST_FOR_TREES = 100_000
#: As the start of a forest: the weighted mean of all members fitted before.
MIXTURE = "mixture"
#: Members with a smaller weight are left out of the mixture.
SMALLEST_WEIGHT = 0.03


@dataclass(frozen=True)
class PortfolioMember:
    """One learner of a portfolio.

    Attributes:
        name: unique name, for results and pages.
        model: its settings; a method that trains no trees is bagged, so that every row is out of some bag.
        start: name of an earlier member whose out-of-bag posterior a forest starts from, `MIXTURE` for the
            weighted mean of all earlier ones, "" for none.
    """

    name: str
    model: PartialLabelClassifier
    start: str = ""


def standard_portfolio(
    effort: Effort, n_rows: int, *, scale_once: Scaling = "z-score"
) -> list[PortfolioMember]:
    """Return the members that an effort compares on a table of so many rows.

    Args:
        effort: "quick": a linear and a small network, neighbors, trees. "normal": also deeper bagged networks
            and trees that start from them. "best": more and longer training of such networks, with own and
            peer targets.
        n_rows: number of training rows.
        scale_once: scaling for learners that want features of equal variance.
    """
    short = _epochs(300 if effort == "quick" else 1000, n_rows, 256)
    members = [
        PortfolioMember("linear", _network("linear", scale_once, short, 256, weight_decay=1e-2)),
        PortfolioMember("small MLP", _network("mlp", scale_once, short, 256, net_options={"widths": (128,)})),
    ]
    if n_rows <= LARGEST_FOR_NEIGHBORS:
        members.append(PortfolioMember("IPAL, square root", _neighbors("square root")))
    if effort == "quick":
        return [*members, _forest("forest", 50, rounds=2)] if n_rows <= LARGEST_FOR_TREES else members
    members.insert(1, PortfolioMember("linear, square root", _network("linear", "square root", short, 256)))
    if n_rows <= LARGEST_FOR_NEIGHBORS:
        members.append(PortfolioMember("IPAL", _neighbors(scale_once)))
    trees = 100 if effort == "normal" else 200
    members.append(_forest("forest", trees))
    for scaling, title in (("min-max", "bagged MLPs"), ("square root", "bagged MLPs, square root")):
        for targets in ("own",) if effort == "normal" else ("own", "peer"):
            name = f"{title}, {targets} targets"
            model = _deep(effort, n_rows, scaling, targets)
            members.append(PortfolioMember(name, model))
            members.append(_forest(f"forest from {name}", trees, start=name))
    members.append(_forest("forest from the mixture", trees, start=MIXTURE, rounds=2))
    if n_rows > LARGEST_FOR_TREES:
        members = [member for member in members if not isinstance(member.model.method, Forest)]
    # Networks of the same shape train together, so they come first.
    return sorted(members, key=lambda member: bool(member.start))


def _epochs(steps: int, rows: int, batch: int) -> int:
    """Epochs that amount to a number of steps on a bag, from 20 to 500."""
    return max(20, min(500, steps // -(-round(BAGGING * rows) // batch)))


def _network(net: str, scaling: Scaling, epochs: int, batch: int, **settings: Any) -> PartialLabelClassifier:
    return PartialLabelClassifier(
        "propall",
        net,
        epochs=epochs,
        batch_size=batch,
        learning_rate=0.01,
        standardize=scaling,
        n_estimators=BLOCK,
        bagging=BAGGING,
        **settings,
    )


def _deep(effort: Effort, n_rows: int, scaling: Any, targets: Any) -> PartialLabelClassifier:
    """The recipe for tables of [wang2025realistic]'s kind: three wide layers, batch norm, one cycle."""
    is_small = n_rows < 3000
    batch, epochs = (16, 200) if is_small else (32, 100) if n_rows < 20_000 else (256, 20)
    if effort == "normal":
        batch = 64 if n_rows < 20_000 else 256
        epochs = max(10 if n_rows < 20_000 else 3, min(100, 600 // -(-round(BAGGING * n_rows) // batch)))
    return PartialLabelClassifier(
        "proden",
        "mlp",
        net_options={"widths": (300, 300, 300), "batch_norm": "after"},
        epochs=epochs,
        batch_size=batch,
        learning_rate=0.01,
        schedule="one_cycle",
        standardize=scaling,
        n_estimators=BLOCK if effort == "normal" else 4 * BLOCK if is_small else 2 * BLOCK,
        bagging=BAGGING,
        targets=targets,
    )


def _neighbors(scaling: Scaling) -> PartialLabelClassifier:
    return PartialLabelClassifier("ipal", standardize=scaling, n_estimators=BLOCK, bagging=BAGGING)


def _forest(name: str, trees: int, *, start: str = "", rounds: int = 4) -> PortfolioMember:
    model = PartialLabelClassifier(Forest(trees=trees, rounds=rounds), standardize=False)
    return PortfolioMember(name, model, start)


class _OutOfTimeError(Exception):
    """The time limit has passed."""


@dataclass
class _Deadline(Monitor):
    """Stops training after an epoch that ends too late."""

    seconds: float

    def epoch(self, epoch: int, runs: Sequence[int], losses: Any, scores: RunScores) -> None:
        """Raise an error if the time has passed."""
        if time.perf_counter() > self.seconds:
            raise _OutOfTimeError


@dataclass(eq=False, repr=False)
class PartialLabelPortfolio(CandidateMixin, BaseEstimator):
    """A weighted mean of different learners; the weights are chosen without true labels.

    Every member leaves each row out of some of its bags. These out-of-bag probabilities are calibrated, and
    the weights maximize the likelihood of the candidate sets under their mixture (see
    `cooccurrence_log_likelihood`).

    Args:
        members: the learners; by default those of `standard_portfolio(effort, ...)`.
        effort: "quick", "normal" or "best".
        time_limit: seconds after which no further member is fitted; the first one always is.
        classes: class names in order; inferred from y by default.
        device: "auto" (a GPU if available), "cpu", "cuda", ...
        report: called with a line of text before and after each member is fitted.
        random_state: seed or generator, for reproducible results.

    Attributes:
        results_: one dict per member with `name`, `weight`, `score` (the log-likelihood at the member's best
            temperature), the other criteria, `seconds`, and `refusal`, why it could not be fitted.
        members_: the fitted members by name.
        out_of_bag_: their (n, k) calibrated out-of-bag log-probabilities by name.
        best_estimator_: the `ClassifierMixture`.
        out_of_fold_: `Resolution` of the training rows by the members that were not trained on them.
        temperature_: temperature of the mixture.
        classes_: class names in order.

    Examples:
        >>> import numpy as np
        >>> X = np.repeat([[0.0, 1.0], [1.0, 0.0]], 20, axis=0) + np.linspace(0, 0.1, 40)[:, None]
        >>> y = (["cat|dog"] * 3 + ["cat"] * 17) + ["dog"] * 18 + ["dog|cow", "cat|dog"]
        >>> portfolio = PartialLabelPortfolio("quick", random_state=0).fit(X, y)
        >>> portfolio.predict([[0.0, 1.0]]).item()
        'cat'
    """

    effort: Effort = "normal"
    _: KW_ONLY
    members: Sequence[PortfolioMember] | None = None
    time_limit: float | None = None
    classes: Sequence[Any] | None = None
    device: str = "auto"
    report: Callable[[str], None] | None = None
    random_state: RandomState = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Fit every member, and weigh them by the rows they leave out.

        Args:
            X: features, as in `PartialLabelClassifier.fit`.
            y: labels or candidate sets.
            sample_weight: one weight per row; members that do not support weights are left out.
        """
        if self.effort not in ("quick", "normal", "best"):
            raise ValueError(f"effort: got {self.effort!r}; expected 'quick', 'normal' or 'best'.")
        features, labels, weight = check_training_data(self, X, y, sample_weight)
        members = self.members or standard_portfolio(self.effort, len(features))
        fitting = _PortfolioFitting(self, features, labels, weight)
        for group in fitting.groups(members):
            try:
                fitting.fit(group)
            except KeyboardInterrupt:
                if not fitting.out_of_bag:
                    raise
                # A second interrupt ends the program; this one ends the search.
                fitting.deadline, fitting.stopped_by = 0.0, "interrupted"
                fitting.refuse(group)
        self.classes_ = labels.decode(range(labels.n_classes))
        self.members_, self.results_ = fitting.fitted, fitting.results
        if not fitting.out_of_bag:
            raise ValueError(f"members: none of them could be fitted. {self.results_[0]['refusal']}")
        self._weigh(fitting, labels, weight)
        return self

    def _weigh(
        self, fitting: "_PortfolioFitting", labels: CandidateLabels, weight: NDArray[Any] | None
    ) -> None:
        mask, names = labels.to_numpy(), list(fitting.out_of_bag)
        self.out_of_bag_ = fitting.out_of_bag
        logs = [self.out_of_bag_[name] for name in names]
        weights = mixture_weights(logs, mask, weight)
        for name, value in zip(names, weights, strict=True):
            next(row for row in self.results_ if row["name"] == name)["weight"] = float(value)
        used = np.flatnonzero(weights)
        held_out = log_weighted_mean(logs, weights)
        self.temperature_ = fit_temperature(held_out, mask, weight)
        components = [self.members_[names[i]] for i in used]
        self.best_estimator_ = ClassifierMixture(
            components, weights[used].tolist(), [names[i] for i in used], self.temperature_
        )
        self.best_score_ = cooccurrence_log_likelihood(np.exp(held_out), mask, weight)
        folds = make_folds(CandidateStratifiedKFold(min(BLOCK, len(mask))), mask, labels)
        calibrated = cross_calibrate(held_out, mask, folds, weight)
        self.out_of_fold_ = Resolution(calibrated, mask, self.classes_)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable class of every row."""
        return self._mixture().predict(X)

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Return calibrated class probabilities."""
        return self._mixture().predict_proba(X)

    def predict_log_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Return log-probabilities."""
        return self._mixture().predict_log_proba(X)

    def _mixture(self) -> ClassifierMixture:
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_


@dataclass
class _PortfolioFitting:
    """Fits the members of a portfolio one group after the other."""

    portfolio: PartialLabelPortfolio
    features: NDArray[Any]
    labels: CandidateLabels
    weight: NDArray[Any] | None
    fitted: dict[str, PartialLabelClassifier] = field(default_factory=dict)
    out_of_bag: dict[str, NDArray[Any]] = field(default_factory=dict)
    results: list[dict[str, Any]] = field(default_factory=list)
    stopped_by: str = "the time limit has passed"

    def __post_init__(self) -> None:
        everything = (np.arange(len(self.features)), np.arange(0))
        self.fitting = CrossFitting(self.features, self.labels, self.weight, [everything])
        self.seed = seed_from(self.portfolio.random_state)
        self.mask = self.labels.to_numpy()
        limit = self.portfolio.time_limit
        self.deadline = np.inf if limit is None else time.perf_counter() + limit

    def groups(self, members: Sequence[PortfolioMember]) -> list[list[PortfolioMember]]:
        """Members that are trained as one stack, the others one by one, in their order."""
        groups: list[list[PortfolioMember]] = []
        models = [self._model(member) for member in members]
        for positions, _ in self.fitting.stacks(models):
            groups.append([members[i] for i in positions])
        return sorted(groups, key=lambda group: members.index(group[0]))

    def _model(self, member: PortfolioMember) -> PartialLabelClassifier:
        portfolio = self.portfolio
        settings = {"device": portfolio.device, "classes": portfolio.classes, "random_state": self.seed}
        if not member.model.ensemble().method.trains_network:
            settings["device"] = "cpu"
        return type(member.model)(**{**member.model.get_params(deep=False), **settings})

    def fit(self, group: Sequence[PortfolioMember]) -> None:
        """Fit some members together and record how they do on the rows they leave out."""
        names = list_names([member.name for member in group])
        if self.out_of_bag and time.perf_counter() > self.deadline:
            self.refuse(group)
            return
        self._say(f"fitting {names}")
        start = time.perf_counter()
        try:
            is_forest = isinstance(group[0].model.ensemble().method, Forest)
            models = self._fit_forest(group[0]) if is_forest else self._fit_models(group)
        except _OutOfTimeError:
            self.refuse(group)
            return
        except ValueError as error:
            self.refuse(group, str(error))
            return
        seconds = (time.perf_counter() - start) / len(group)
        for member, model in zip(group, models, strict=True):
            self._record(member.name, model, seconds)

    def _fit_models(self, group: Sequence[PortfolioMember]) -> list[PartialLabelClassifier]:
        models = [self._model(member) for member in group]
        deadline = _Deadline(self.deadline) if self.out_of_bag else None
        parts = self.fitting.fit_stack(models, range(len(models)), [0], None, deadline)
        fitted = {part.position: part.model for part in parts}
        return [fitted[i] for i in range(len(models))]

    def _fit_forest(self, member: PortfolioMember) -> list[PartialLabelClassifier]:
        if self.weight is not None:
            raise ValueError("sample_weight: Forest does not support weights.")
        model, start = self._model(member), None
        if member.start:
            if member.start not in [*self.out_of_bag, MIXTURE]:
                raise ValueError(f"start: {member.start} was not fitted.")
            start = torch.from_numpy(self._posterior(member.start))
        method = model.ensemble().method
        assert isinstance(method, Forest)
        rows = Standardization().apply(self.features).flatten(1)
        trees, out_of_bag = method.fit_from(rows, self.labels.mask, start, self.seed)
        classes = self.labels.decode(range(self.labels.n_classes))
        model.adopt([trees], classes, tuple(self.features.shape[1:]), Standardization())
        model.out_of_bag_ = out_of_bag
        return [model]

    def _posterior(self, start: str) -> NDArray[np.float64]:
        """Out-of-bag posterior of a member, or of the mixture so far, given the whole candidate set."""
        logs = list(self.out_of_bag.values())
        weights = mixture_weights(logs, self.mask, self.weight) if start == MIXTURE else np.ones(1)
        mean = log_weighted_mean(logs if start == MIXTURE else [self.out_of_bag[start]], weights)
        sets = log_set_probabilities(np.exp(mean), self.mask, self.weight)
        posterior: NDArray[np.float64] = softmax(mean + sets, axis=1)
        return posterior

    def _record(self, name: str, model: PartialLabelClassifier, seconds: float) -> None:
        assert model.out_of_bag_ is not None
        probabilities = model.out_of_bag_.astype(float)
        if not np.isfinite(probabilities).all():
            self.results.append({"name": name, "weight": 0.0, "refusal": "its outputs are not finite"})
            return
        logs = clipped_log(probabilities)
        model.temperature_ = fit_temperature(logs, self.mask, self.weight)
        model.n_features_in_ = self.portfolio.n_features_in_
        if hasattr(self.portfolio, "feature_names_in_"):
            model.feature_names_in_ = self.portfolio.feature_names_in_
        self.out_of_bag[name] = log_softmax(logs, model.temperature_)
        self.fitted[name] = model
        criteria = {
            key: criterion(np.exp(self.out_of_bag[name]), self.mask, self.weight)
            for key, criterion in CRITERIA.items()
            if key != "tempered_log_likelihood"  # the probabilities are at their best temperature
        }
        score = criteria["cooccurrence_log_likelihood"]
        row = {"name": name, "weight": 0.0, "score": score, "seconds": seconds, "refusal": ""}
        self.results.append({**row, **criteria, "temperature": model.temperature_})
        best = max((r for r in self.results if not r["refusal"]), key=lambda r: r["score"])
        self._say(f"{name}: log-likelihood {score:.3f} ({seconds:.1f} s); best so far: {best['name']}")

    def refuse(self, group: Sequence[PortfolioMember], reason: str = "") -> None:
        """Record why some members have no part in the mixture; by default, what stopped the search."""
        reason = reason or self.stopped_by
        self.results += [{"name": member.name, "weight": 0.0, "refusal": reason} for member in group]
        self._say(f"{list_names([member.name for member in group])} left out: {reason}")

    def _say(self, line: str) -> None:
        if self.portfolio.report is not None:
            self.portfolio.report(line)


def mixture_weights(
    log_probabilities: Sequence[NDArray[Any]],
    candidates: NDArray[np.bool_],
    sample_weight: NDArray[Any] | None = None,
    *,
    rounds: int = 5,
    steps: int = 100,
) -> NDArray[np.float64]:
    r"""Weights of a mixture that maximize the likelihood of held-out candidate sets.

    .. math:: \max_w \sum_i \log \sum_m w_m \sum_{y \in S_i} p^m_{iy} P(S_i \mid y)

    by expectation maximization, P(S | y) being estimated from the mixture (`log_set_probabilities`).

    Args:
        log_probabilities: (n, k) of every member, for rows it was not trained on.
        candidates: (n, k), True for candidates.
        sample_weight: one weight per row.
        rounds: number of times that P(S | y) is estimated.
        steps: steps of expectation maximization in each round.
    """
    weights = np.full(len(log_probabilities), 1 / len(log_probabilities))
    row_weight = np.ones(len(candidates)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    for number in range(rounds):
        mixture = np.exp(log_weighted_mean(log_probabilities, weights))
        sets = log_set_probabilities(mixture, candidates, sample_weight)
        fits = np.stack([logsumexp(logs + sets, axis=1) for logs in log_probabilities])
        fits = np.nan_to_num(np.exp(fits - fits.max(0)), nan=1.0)
        for _ in range(steps):
            shares = weights[:, None] * fits
            shares /= np.maximum(shares.sum(0), np.finfo(float).tiny)
            weights = shares @ row_weight / row_weight.sum()
        if number >= rounds - 2:
            weights = np.where(weights < SMALLEST_WEIGHT, 0.0, weights)
            weights /= weights.sum()
    return weights

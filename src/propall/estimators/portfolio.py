"""A portfolio of different learners, weighed without true labels by rows that each has not seen."""

import copy
import dataclasses
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from propall import counter_rng
from propall.estimators.calibration import cross_calibrate, fit_temperature, log_softmax
from propall.estimators.candidate_mixin import CandidateMixin
from propall.estimators.classifier import PartialLabelClassifier
from propall.estimators.cooccurrence import DEPENDENT, candidate_dependence
from propall.estimators.cross_fitting import CrossFitting
from propall.estimators.ensemble import (
    RandomState,
    Scaling,
    Standardization,
    Targets,
    bags_per_block,
    content_keys,
    draw_bags,
    seed_from,
)
from propall.estimators.folds import CandidateStratifiedKFold, keys_of_copies, make_folds
from propall.estimators.mixture import ClassifierMixture, log_weighted_mean
from propall.estimators.resolution import Resolution
from propall.estimators.scorers import (
    CRITERIA,
    CandidatePairs,
    candidate_log_likelihood,
    clipped_log,
    cooccurrence_log_likelihood,
    log_set_probabilities,
)
from propall.estimators.validation import check_training_data
from propall.labels.candidates import MANY_CLASSES, CandidateLabels, has_few_candidates
from propall.methods.boosting import Boosting
from propall.methods.forest import Forest
from propall.training.contract import Classifier, Monitor, RunScores
from propall.wording import list_names

Effort = Literal["quick", "normal", "best"]
#: Whether members take square roots of features; "brief": with less training where that takes much time.
Histograms = bool | Literal["brief"]
#: Share of the rows in each bag, and the number of members that then leave out every row once.
BAGGING, BLOCK = 0.8, 5
#: Maximum number of rows for learners that compare all pairs of rows.
LARGEST_FOR_NEIGHBORS = 20_000
#: Maximum number of rows for forests, whose trees grow with the rows.
LARGEST_FOR_TREES = 100_000
#: Minimum number of rows for forests of bags in a quick portfolio: a fifth of fewer rows is missed.
SMALLEST_FOR_BAGGED_FORESTS = 1000
#: Methods that can start from another model.
TREES = (Forest, Boosting)
#: As the start of trees: the weighted mean of all members fitted before.
MIXTURE = "mixture"
#: Members with a smaller weight are left out of the mixture.
SMALLEST_WEIGHT = 0.03


@dataclass(frozen=True)
class PortfolioMember:
    """One learner of a portfolio.

    Attributes:
        name: unique name, for results and pages.
        model: its settings; a method that trains no trees is bagged, so that every row is out of some bag. A
            forest is fitted to all rows and scored by smaller ones; with `bagging`, the mean of these is the
            model, which takes less time.
        start: name of an earlier member whose out-of-bag posterior trees start from, `MIXTURE` for the
            weighted mean of all earlier ones, "" for none.

    Examples:
        >>> from propall import PartialLabelClassifier, PartialLabelPortfolio
        >>> bagged = {"n_estimators": 5, "bagging": 0.8}
        >>> linear = PartialLabelClassifier(net="linear", epochs=20, **bagged)
        >>> neighbors = PartialLabelClassifier("ipal", **bagged)
        >>> members = [PortfolioMember("linear", linear), PortfolioMember("IPAL", neighbors)]
        >>> X, y = [[0.0], [0.2], [0.9], [1.0], [1.1]] * 5, ["a", "a|b", "b|c", "b", "b"] * 5
        >>> portfolio = PartialLabelPortfolio(members=members, random_state=0).fit(X, y)
        >>> portfolio.predict([[0.1], [1.2]]).tolist()
        ['a', 'b']
    """

    name: str
    model: PartialLabelClassifier
    start: str = ""


def standard_portfolio(
    effort: Effort,
    n_rows: int,
    *,
    scale_once: Scaling = "z-score",
    histograms: Histograms = False,
    dependent: bool = False,
    n_classes: int = 2,
) -> list[PortfolioMember]:
    """Return the members that an effort compares on a table of so many rows.

    Args:
        effort: "quick": a linear and a small network, neighbors, trees. "normal": also deeper bagged
            networks, and trees that start from them. "best": more such networks, trained longer.
        n_rows: number of training rows.
        scale_once: scaling for learners that want features of equal variance.
        histograms: whether the features are non-negative, so that their square roots are worth a try. With
            "brief", "normal" trains deep networks on them half as long, and no forest starts from these.
        dependent: whether labels are candidates together (see `candidate_dependence`). Then learners that
            teach themselves or each other keep the shares of the classes; else, a label that accompanies many
            others takes over.
        n_classes: number of classes; with more than `MANY_CLASSES`, boosting, which fits a tree to each class
            in every iteration, is left out.

    Examples:
        >>> [member.name for member in standard_portfolio("quick", n_rows=1000)]
        ['linear', 'small MLP', 'IPAL', 'forest', 'forest from the mixture']
    """
    taught: Targets = "balanced peer" if dependent else "peer"
    short = _epochs(300 if effort == "quick" else 1000, n_rows, 256)
    small = {"net_options": {"widths": (128,)}}
    members = [PortfolioMember("linear", _network("linear", scale_once, short, 256, weight_decay=1e-2))]
    if histograms and effort != "quick":
        root = _network("linear", "square root", short, 256)
        members.append(PortfolioMember("linear, square root", root))
    members.append(PortfolioMember("small MLP", _network("mlp", scale_once, short, 256, **small)))
    if n_rows <= LARGEST_FOR_NEIGHBORS:
        if histograms:
            members.append(PortfolioMember("IPAL, square root", _neighbors("square root")))
        if not histograms or effort != "quick":
            members.append(PortfolioMember("IPAL", _neighbors(scale_once)))
    bagged = effort == "quick" and n_rows >= SMALLEST_FOR_BAGGED_FORESTS
    trees = 15 if bagged else {"quick": 50, "normal": 100, "best": 200}[effort]
    forest = Forest(trees=trees, rounds=2 if effort == "quick" else 4, balanced=dependent)
    members.append(_forest("forest", forest, bagged=bagged))
    if effort != "quick":
        scalings: tuple[Scaling, ...] = ("min-max", "square root") if histograms else ("min-max",)
        for scaling in scalings:
            title = "bagged MLPs" if scaling == "min-max" else "bagged MLPs, square root"
            if scaling == "min-max":
                own = _deep(effort, n_rows, scaling, "own")
                members.append(PortfolioMember(f"{title}, own targets", own))
            name = f"{title}, {taught} targets"
            deep = _deep(effort, n_rows, scaling, taught)
            if scaling == "square root" and effort == "normal" and histograms == "brief":
                members.append(PortfolioMember(name, deep.set_params(epochs=-(-deep.epochs // 2))))
                continue
            members.append(PortfolioMember(name, deep))
            members.append(_forest(f"forest from {name}", dataclasses.replace(forest, rounds=2), name))
        if n_classes <= MANY_CLASSES:
            boosting = PartialLabelClassifier(Boosting(rounds=1, balanced=dependent), standardize=False)
            members.append(PortfolioMember("boosting from the mixture", boosting, MIXTURE))
    last = dataclasses.replace(forest, rounds=1 if effort == "quick" else 2)
    members.append(_forest("forest from the mixture", last, MIXTURE, bagged=bagged))
    if n_rows > LARGEST_FOR_TREES:
        members = [member for member in members if not isinstance(member.model.method, TREES)]
    # Networks of the same shape train together, so they come first.
    return sorted(members, key=lambda member: bool(member.start))


def are_histograms(minima: NDArray[Any]) -> bool:
    """Whether at least nine of ten columns with these minima are non-negative; NaN is for other columns."""
    return bool((minima >= 0).mean() >= 0.9)


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


def _deep(effort: Effort, n_rows: int, scaling: Scaling, targets: Targets) -> PartialLabelClassifier:
    """The recipe for tables of [wang2025realistic]'s kind: three wide layers, batch norm, one cycle.

    Members that teach each other confirm their errors if they are trained for long, so only those with their
    own targets get small batches.
    """
    batch = 64 if n_rows < 20_000 else 256
    steps = -(-round(BAGGING * n_rows) // batch)
    epochs = max(10 if n_rows < 20_000 else 3, min(100, (600 if effort == "normal" else 1200) // steps))
    if effort == "best" and targets == "own" and n_rows < 20_000:
        batch, epochs = (16, 50) if n_rows < 3000 else (32, 30)
    # Two of those who teach each other leave out the same rows.
    members = {"own": BLOCK if effort == "normal" else 3 * BLOCK}.get(targets, 2 * BLOCK)
    return PartialLabelClassifier(
        "proden",
        "mlp",
        net_options={"widths": (300, 300, 300), "batch_norm": "after"},
        epochs=epochs,
        batch_size=batch,
        learning_rate=0.01,
        schedule="one_cycle",
        standardize=scaling,
        n_estimators=members,
        bagging=BAGGING,
        targets=targets,
    )


def _neighbors(scaling: Scaling) -> PartialLabelClassifier:
    return PartialLabelClassifier("ipal", standardize=scaling, n_estimators=BLOCK, bagging=BAGGING)


def _forest(name: str, method: Forest, start: str = "", *, bagged: bool = False) -> PortfolioMember:
    bags: dict[str, Any] = {"n_estimators": BLOCK, "bagging": BAGGING} if bagged else {}
    return PortfolioMember(name, PartialLabelClassifier(method, standardize=False, **bags), start)


class _OutOfTimeError(Exception):
    """The time limit has passed."""


@dataclass
class _Deadline(Monitor):
    """Stops training after an epoch that ends too late, and before a part that starts too late."""

    seconds: float

    def epoch(self, epoch: int, runs: Sequence[int], losses: Any, scores: RunScores) -> None:
        """Raise an error if the time has passed."""
        self.proceed()

    def proceed(self) -> None:
        """Raise an error if the time has passed."""
        if time.perf_counter() > self.seconds:
            raise _OutOfTimeError


@dataclass(eq=False, repr=False)
class PartialLabelPortfolio(CandidateMixin, BaseEstimator):
    """A weighted mean of different learners; the weights are chosen without true labels.

    Every member leaves each row out of some of its bags. These out-of-bag probabilities are calibrated, and
    the weights maximize the likelihood of the candidate sets under their mixture. If labels are candidates
    together rather than independently (`candidate_dependence`), the likelihood takes that into account
    (`cooccurrence_log_likelihood`), and learners that teach themselves keep the shares of the classes.

    Args:
        members: the learners; by default those of `standard_portfolio(effort, ...)`.
        effort: "quick", "normal" or "best".
        histograms: whether some of the standard members take square roots of the features, as suits counts
            and shares; by default, if at least nine of ten columns are non-negative. Roots are taken of
            distances to the column's minimum, so they are the same for standardized counts. With "brief",
            the deep networks among them take half the time for effort "normal"; `propall fit` uses it.
        time_limit: seconds after which no further member is fitted; the first one always is. A member that
            is being fitted stops at its next epoch, bag, fold or round.
        classes: class names in order; inferred from y by default.
        device: "auto" (a GPU if available), "cpu", "cuda", ...
        report: called with a line of text before and after each member is fitted.
        random_state: seed or generator, for reproducible results.

    Attributes:
        dependence_: how far candidates come together; see `candidate_dependence`.
        criterion_: name of the log-likelihood that members are weighed by.
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
    histograms: Histograms | None = None
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
        if self.histograms not in (None, True, False, "brief"):
            raise ValueError(f"histograms: got {self.histograms!r}; expected None, a bool or 'brief'.")
        start = time.perf_counter()
        features, labels, weight = check_training_data(self, X, y, sample_weight)
        if len(features) < 2:
            raise ValueError("X: 1 row (n_samples=1); expected at least 2, so that each can be left out.")
        self.dependence_ = candidate_dependence(labels.to_numpy(), weight)
        dependent = self.dependence_ > DEPENDENT
        self.criterion_ = (cooccurrence_log_likelihood if dependent else candidate_log_likelihood).__name__
        members = self.members or standard_portfolio(
            self.effort,
            len(features),
            histograms=self._tried_histograms(features),
            dependent=dependent,
            n_classes=labels.n_classes,
        )
        names = [member.name for member in members]
        if len(set(names)) < len(names):
            raise ValueError(f"members: got the names {list_names(names)}; expected different ones.")
        deadline = np.inf if self.time_limit is None else start + self.time_limit
        fitting = _PortfolioFitting(self, features, labels, weight, deadline)
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

    def _tried_histograms(self, features: NDArray[Any]) -> Histograms:
        if self.histograms is not None:
            return self.histograms
        return features.ndim == 2 and are_histograms(features.min(0))

    def _weigh(
        self, fitting: "_PortfolioFitting", labels: CandidateLabels, weight: NDArray[Any] | None
    ) -> None:
        mask, names = labels.to_numpy(), list(fitting.out_of_bag)
        self.out_of_bag_ = fitting.out_of_bag
        logs = [self.out_of_bag_[name] for name in names]
        weights = fitting.mixture_weights()
        for name, value in zip(names, weights, strict=True):
            next(row for row in self.results_ if row["name"] == name)["weight"] = float(value)
        used = np.flatnonzero(weights)
        held_out = log_weighted_mean(logs, weights)
        self.temperature_ = fit_temperature(held_out, mask, weight)
        components = [self.members_[names[i]] for i in used]
        self.best_estimator_ = ClassifierMixture(
            components, weights[used].tolist(), [names[i] for i in used], self.temperature_
        )
        self.best_score_ = CRITERIA[self.criterion_](np.exp(held_out), mask, weight)
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
    deadline: float
    fitted: dict[str, PartialLabelClassifier] = field(default_factory=dict)
    out_of_bag: dict[str, NDArray[Any]] = field(default_factory=dict)
    results: list[dict[str, Any]] = field(default_factory=list)
    stopped_by: str = "the time limit has passed"

    def __post_init__(self) -> None:
        everything = (np.arange(len(self.features)), np.arange(0))
        self.fitting = CrossFitting(self.features, self.labels, self.weight, [everything])
        self.seed = seed_from(self.portfolio.random_state)
        self.mask = self.labels.to_numpy()
        keys = content_keys(self.features, self.labels.mask)
        bags = draw_bags(keys, self.features, BLOCK, BAGGING, seed_from(self.seed))
        self.bags = [bag.numpy() for bag in bags]
        # Log-probabilities of all members are kept.
        self.stored = np.float32 if self.labels.n_classes > MANY_CLASSES else np.float64
        # Of forests: log-probabilities of the rows in each bag, by trees that were not fitted to the row.
        self.inside: dict[str, list[NDArray[Any]]] = {}

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
            has_trees = isinstance(group[0].model.ensemble().method, TREES)
            models = self._fit_trees(group[0]) if has_trees else self._fit_models(group)
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
        if whole := next((member.name for member in group if member.model.bagging is None), None):
            raise ValueError(f"members: {whole!r} has bagging=None; expected a share such as 0.8.")
        models = [self._model(member) for member in group]
        parts = self.fitting.fit_stack(models, range(len(models)), [0], None, self._monitor())
        fitted = {part.position: part.model for part in parts}
        return [fitted[i] for i in range(len(models))]

    def _monitor(self) -> Monitor | None:
        """What keeps the time limit; the first member has none."""
        return _Deadline(self.deadline) if self.out_of_bag else None

    def _fit_trees(self, member: PortfolioMember) -> list[PartialLabelClassifier]:
        model = self._model(member)
        method = model.ensemble().method
        assert isinstance(method, TREES)
        if self.weight is not None:
            raise ValueError(f"sample_weight: {method.title} does not support weights.")
        if member.start not in ["", MIXTURE, *self.out_of_bag]:
            raise ValueError(f"start: {member.start} was not fitted.")
        rows = Standardization().apply(self.features).flatten(1)
        if isinstance(method, Forest):
            trees, out_of_bag = self._fit_forest(member, model, method, rows)
        else:
            start = self._start_posterior(member.start)
            keys = torch.from_numpy(keys_of_copies(np.arange(len(rows)), self.features))
            trees, out_of_bag = method.fit_from(
                rows, self.labels.mask, start, self.seed, keys, monitor=self._monitor()
            )
        classes = self.labels.decode(range(self.labels.n_classes))
        model.adopt(trees, classes, tuple(self.features.shape[1:]), Standardization())
        model.out_of_bag_ = out_of_bag
        return [model]

    def _fit_forest(
        self, member: PortfolioMember, model: PartialLabelClassifier, method: Forest, rows: Tensor
    ) -> tuple[list[Classifier], NDArray[np.float64]]:
        """The forest or the forests of the bags, and probabilities of every row by trees without it."""
        name, start = member.name, member.start
        weights = self._start_weights(start)
        has_bags = bool(weights) or not start
        if model.bagging is not None:
            if (model.bagging, model.n_estimators) != (BAGGING, BLOCK) or not has_bags:
                raise ValueError(
                    f"members: {name!r} has bagging={model.bagging}, n_estimators={model.n_estimators} and "
                    f"start={start!r}; expected bagging={BAGGING}, n_estimators={BLOCK} and a start with "
                    "these bags. Use bagging=None for a forest of all rows."
                )
            trees, out_of_bag, self.inside[name] = self._forests_of_bags(method, rows, weights)
            return trees, out_of_bag
        posterior = self._start_posterior(start)
        trees, out_of_bag = method.fit_from(
            rows, self.labels.mask, posterior, self.seed, monitor=self._monitor()
        )
        if has_bags:
            smaller = dataclasses.replace(method, trees=min(method.trees, max(30, method.trees // 2)))
            _, out_of_bag, self.inside[name] = self._forests_of_bags(smaller, rows, weights)
        return trees, out_of_bag

    def _forests_of_bags(
        self, method: Forest, rows: Tensor, weights: dict[str, float]
    ) -> tuple[list[Classifier], NDArray[np.float64], list[NDArray[Any]]]:
        """A forest fitted to each bag only, probabilities of every row by the one without it, and `inside`.

        The trees that a row is out of bag of have seen it indirectly: it has taught the models that gave its
        neighbors their targets, in an earlier round or at the start.

        Args:
            method: the forest of a bag.
            rows: features.
            weights: of the models that the forests start from; empty to start from the candidates.
        """
        probabilities = np.full(self.mask.shape, 1 / self.mask.shape[1])
        forests: list[Classifier] = []
        inside = []
        for number, bag in enumerate(self.bags):
            start = torch.from_numpy(self._posterior_inside(weights, number)) if weights else None
            seed = counter_rng.seed_for(self.seed, f"bag {number}")
            (trees,), posterior = method.fit_from(
                rows[bag], self.labels.mask[bag], start, seed, monitor=self._monitor()
            )
            left_out = np.setdiff1d(np.arange(len(rows)), bag)
            probabilities[left_out] = trees.probabilities(rows[left_out]).numpy()
            inside.append(clipped_log(posterior).astype(self.stored))
            forests.append(trees)
        return forests, probabilities, inside

    def _start_weights(self, start: str) -> dict[str, float]:
        """Weights of the models that a forest starts from, of those that consist of one part per bag."""
        if start != MIXTURE:
            return {start: 1.0} if start and self._has_bags(start) else {}
        pairs = zip(self.out_of_bag, self.mixture_weights(), strict=True)
        return {name: weight for name, weight in pairs if weight > 0 and self._has_bags(name)}

    def _has_bags(self, name: str) -> bool:
        model = self.fitted[name]
        trees = isinstance(model.ensemble().method, TREES)
        return name in self.inside or (not trees and model.bagging == BAGGING and model.n_estimators >= BLOCK)

    def _posterior_inside(self, weights: dict[str, float], number: int) -> NDArray[np.float64]:
        """Probabilities of the rows in a bag by models that were fitted to this bag only."""
        logs = [self._logs_inside(name, number) for name in weights]
        mean = log_weighted_mean(logs, np.asarray(list(weights.values())) / sum(weights.values()))
        return np.asarray(np.exp(mean))

    def _logs_inside(self, name: str, number: int) -> NDArray[np.float64]:
        model, bag = self.fitted[name], self.bags[number]
        if name in self.inside:
            return log_softmax(self.inside[name][number], model.temperature_)
        numbers = model.ensemble().bag_numbers(len(self.features))
        inside = copy.copy(model)
        inside.classifiers_ = [c for c, own in zip(model.classifiers_, numbers, strict=True) if own == number]
        return inside.predict_log_proba(self.features[bag]).astype(float)

    def _start_posterior(self, start: str) -> Tensor | None:
        """Out-of-bag probabilities of a member, or of the mixture so far; None if there is no start."""
        if not start:
            return None
        if start != MIXTURE:
            return torch.from_numpy(np.exp(self.out_of_bag[start]))
        logs = list(self.out_of_bag.values())
        return torch.from_numpy(np.exp(log_weighted_mean(logs, self.mixture_weights())))

    def mixture_weights(self) -> NDArray[np.float64]:
        """Weights of the members fitted so far."""
        dependent = self.portfolio.criterion_ == cooccurrence_log_likelihood.__name__
        logs = list(self.out_of_bag.values())
        return mixture_weights(logs, self.mask, self.weight, dependent=dependent, seed=self.seed)

    def _record(self, name: str, model: PartialLabelClassifier, seconds: float) -> None:
        assert model.out_of_bag_ is not None
        probabilities = model.out_of_bag_.astype(float)
        if not np.isfinite(probabilities).all():
            reason = "its outputs are not finite"
            if len(model.classifiers_) < bags_per_block(len(probabilities), model.bagging or BAGGING):
                reason = "some rows are in every bag; use more estimators"
            self.results.append({"name": name, "weight": 0.0, "refusal": reason})
            return
        logs = clipped_log(probabilities)
        model.temperature_ = fit_temperature(logs, self.mask, self.weight)
        model.n_features_in_ = self.portfolio.n_features_in_
        if hasattr(self.portfolio, "feature_names_in_"):
            model.feature_names_in_ = self.portfolio.feature_names_in_
        self.out_of_bag[name] = log_softmax(logs, model.temperature_).astype(self.stored, copy=False)
        self.fitted[name] = model
        chances = np.exp(self.out_of_bag[name])
        criteria = {
            key: criterion(chances, self.mask, self.weight)
            for key, criterion in CRITERIA.items()
            if key != "tempered_log_likelihood"  # the probabilities are at their best temperature
        }
        score = criteria[self.portfolio.criterion_]
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
    dependent: bool = True,
    resamples: int = 10,
    seed: int = 0,
) -> NDArray[np.float64]:
    r"""Weights of a mixture that maximize the likelihood of held-out candidate sets.

    .. math:: \max_w \sum_i \log \sum_m w_m \sum_{y \in S_i} p^m_{iy} P(S_i \mid y)

    by expectation maximization, averaged over resamples of the rows (the Bayesian bootstrap,
    [rubin1981bayesian]). The result is the mean of these weights and equal weights of the better half of the
    members, by their own likelihood: the most likely weights often belong to one member, although others that
    are nearly as good make different errors.

    Args:
        log_probabilities: (n, k) of every member, for rows it was not trained on.
        candidates: (n, k), True for candidates.
        sample_weight: one weight per row.
        dependent: estimate P(S | y) from the mixture (`log_set_probabilities`); else it is the same for all
            candidates y.
        resamples: number of resamples.
        seed: random seed of the resamples.
    """
    if len(log_probabilities) == 1:
        return np.ones(1)
    base = np.ones(len(candidates)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    rows = torch.arange(len(candidates))
    total = np.zeros(len(log_probabilities))
    set_fits = _SetFits.choose(log_probabilities, candidates, dependent=dependent)
    for number in range(resamples):
        uniform = counter_rng.uniform(
            counter_rng.seed_for(seed, f"resample {number}"), rows, dtype=torch.float64
        )
        total += _likeliest_weights(set_fits, base * -np.log1p(-uniform.numpy()))
    # Of very many members, all weights may be small.
    kept = np.where(total < min(SMALLEST_WEIGHT * resamples, total.max()), 0.0, total)
    criterion = cooccurrence_log_likelihood if dependent else candidate_log_likelihood
    scores = [criterion(np.exp(logs), candidates, sample_weight) for logs in log_probabilities]
    half = np.argsort(-np.asarray(scores), kind="stable")[: -(-len(scores) // 2)]
    equal = np.bincount(half, minlength=len(scores)) / len(half)
    return np.asarray((kept / kept.sum() + equal) / 2)


class _SetFits(ABC):
    """How likely every member makes the candidate sets, as (m, n) numbers relative to the best member."""

    #: Whether they depend on the weights of the members and rows.
    dependent: bool
    n_members: int

    @staticmethod
    def choose(
        log_probabilities: Sequence[NDArray[Any]], candidates: NDArray[np.bool_], *, dependent: bool
    ) -> "_SetFits":
        """All classes, or only candidates if they are few of many."""
        if not dependent:
            return _IndependentFits(log_probabilities, candidates)
        kind = _CandidateFits if has_few_candidates(candidates) else _DependentFits
        return kind(log_probabilities, candidates)

    @abstractmethod
    def at(self, weights: NDArray[Any], row_weight: NDArray[Any]) -> NDArray[np.float64]:
        """The numbers, if P(S | y) is estimated from the mixture with these weights."""

    @staticmethod
    def relative(fits: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
        """Likelihoods from their logarithms, relative to the largest of each row."""
        stacked = np.stack(fits)
        return np.asarray(np.nan_to_num(np.exp(stacked - stacked.max(0)), nan=1.0))


class _IndependentFits(_SetFits):
    """P(S | y) is the same for all candidates."""

    dependent = False

    def __init__(self, log_probabilities: Sequence[NDArray[Any]], candidates: NDArray[np.bool_]) -> None:
        self.n_members = len(log_probabilities)
        everywhere = np.where(candidates, 0.0, -np.inf)
        self.fits = self.relative([logsumexp(logs + everywhere, axis=1) for logs in log_probabilities])

    def at(self, weights: NDArray[Any], row_weight: NDArray[Any]) -> NDArray[np.float64]:
        """The same for all weights."""
        return self.fits


class _DependentFits(_SetFits):
    """P(S | y) is `log_set_probabilities`."""

    dependent = True

    def __init__(self, log_probabilities: Sequence[NDArray[Any]], candidates: NDArray[np.bool_]) -> None:
        self.n_members = len(log_probabilities)
        self.logs, self.candidates = log_probabilities, candidates

    def at(self, weights: NDArray[Any], row_weight: NDArray[Any]) -> NDArray[np.float64]:
        """Estimate P(S | y) and sum over all classes."""
        mixture = np.exp(log_weighted_mean(self.logs, weights))
        sets = log_set_probabilities(mixture, self.candidates, row_weight)
        return self.relative([logsumexp(logs + sets, axis=1) for logs in self.logs])


class _CandidateFits(_SetFits):
    """As `_DependentFits`, from the candidates alone."""

    dependent = True

    def __init__(self, log_probabilities: Sequence[NDArray[Any]], candidates: NDArray[np.bool_]) -> None:
        self.n_members = len(log_probabilities)
        self.pairs = CandidatePairs.of(candidates)
        self.logs = [logs[self.pairs.row, self.pairs.label] for logs in log_probabilities]

    def at(self, weights: NDArray[Any], row_weight: NDArray[Any]) -> NDArray[np.float64]:
        """Estimate P(S | y) and sum over the candidates."""
        sets = self.pairs.log_probabilities(np.exp(log_weighted_mean(self.logs, weights)), row_weight)
        return self.relative([self.pairs.log_sum_exp(logs + sets) for logs in self.logs])


def _likeliest_weights(
    set_fits: _SetFits, row_weight: NDArray[Any], rounds: int = 4, steps: int = 60
) -> NDArray[np.float64]:
    """The weights for one resample; P(S | y) is estimated in every round."""
    weights = np.full(set_fits.n_members, 1 / set_fits.n_members)
    for _ in range(rounds if set_fits.dependent else 1):
        fits = set_fits.at(weights, row_weight)
        for _ in range(steps if set_fits.dependent else rounds * steps):
            shares = weights[:, None] * fits
            shares /= np.maximum(shares.sum(0), np.finfo(float).tiny)
            weights = shares @ row_weight / row_weight.sum()
    return weights

"""Fit estimators to rows in files, with the result of `fit` on the same rows in memory; weigh several."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from propall.data.stored import StoredDataset
from propall.estimators.calibration import fit_temperature, log_softmax
from propall.estimators.classifier import PartialLabelClassifier
from propall.estimators.ensemble import Standardization
from propall.estimators.mixture import ClassifierMixture, log_weighted_mean
from propall.estimators.portfolio import Effort, PortfolioMember, mixture_weights
from propall.estimators.scorers import CRITERIA, cooccurrence_log_likelihood
from propall.estimators.workers import ONE_PROCESS, Workers
from propall.labels.candidates import CandidateLabels
from propall.methods import METHODS
from propall.methods.forest import Forest
from propall.training.contract import Monitor, Objective, Run
from propall.training.trainer import Trainer
from propall.wording import duration

#: Rows per step; larger than for small tables, whose networks need many steps.
BATCH_SIZE = 1024
#: Steps that training should take, and the largest number of epochs.
STEPS, MOST_EPOCHS = 20_000, 20
#: Hidden layers of the MLPs.
_WIDTHS: dict[Effort, list[tuple[int, ...]]] = {
    "quick": [(128,)],
    "normal": [(256,)],
    "best": [(256,), (512, 512)],
}
#: Seconds between two reports on the progress of one model.
REPORT_EVERY = 15.0


class Rows(NamedTuple):
    """Some rows in memory."""

    features: NDArray[np.float32]
    candidates: NDArray[np.bool_]


def fit_stored(
    model: PartialLabelClassifier,
    data: StoredDataset,
    classes: NDArray[Any],
    *,
    monitor: Monitor | None = None,
) -> PartialLabelClassifier:
    """Fit an estimator to rows in files.

    Batches are drawn in the same order as in memory, so a network has the weights that
    `model.fit(features, candidates)` gives it, bit for bit. Members of an ensemble are trained one after the
    other: a stack would need the order of the rows of all of them at once.

    Args:
        model: an objective with a network; `standardize=False`, no bagging, weights or peer targets.
        data: the rows; their features are scaled already.
        classes: class names in order.
        monitor: called after every epoch.
    """
    check_streamable(model)
    ensemble = model.ensemble()
    runs = ensemble.members(Run(data, 0, None, data.keys))
    trainer = ensemble.algorithm()
    assert isinstance(trainer, Trainer)
    classifiers = replace(trainer, stack=1).fit(runs, monitor=monitor)
    model.in_shape_ = data.in_shape
    model.n_features_in_ = data.in_shape[0]
    return model.adopt(classifiers, classes, data.in_shape, Standardization())


def check_streamable(model: PartialLabelClassifier) -> None:
    """Raise ValueError for settings that need all rows in memory."""
    method = model.ensemble().method
    if not isinstance(method, Objective):
        raise ValueError(
            f"method: {method.title} needs all rows in memory. Use a method that trains a network batch by "
            "batch, such as 'propall'."
        )
    memory = method.init(torch.ones(2, 2, dtype=torch.bool)).rows
    in_memory = {
        f"{method.title} remembers every row": bool(memory) or method.needs_outputs,
        "standardize": model.standardize is not False,
        "bagging": model.bagging is not None,
        f"targets={model.targets!r}": model.targets != "own",
        "class_weight": model.class_weight is not None,
        "views": bool(model.views),
    }
    if reasons := [name for name, applies in in_memory.items() if applies]:
        raise ValueError(
            f"fit: {reasons[0]}, which needs all rows in memory; rows in files are trained on without it. "
            "Use other settings, or a sample of the rows that fits into memory."
        )


@dataclass(frozen=True)
class StoredSettings:
    """What to fit to rows in files.

    Attributes:
        effort: "quick": a linear network and an MLP; "normal": a wider MLP, and a forest on a sample of the
            rows; "best": also a deeper MLP, and a larger forest.
        methods: method names; networks of all are fitted instead of those of the effort.
        nets: names of networks; these are fitted instead of those of the effort.
        epochs: by default about `STEPS` steps.
        members: ensemble size of every network.
        time_limit: seconds after which no further model is fitted; the first one always is.
        seed: random seed.
        report: called with lines about the progress.
        workers: processes that train every network together.
    """

    effort: Effort = "normal"
    methods: tuple[str, ...] = ()
    nets: tuple[str, ...] = ()
    epochs: int | None = None
    members: int | None = None
    time_limit: float | None = None
    seed: int = 0
    report: Callable[[str], None] | None = None
    workers: Workers = ONE_PROCESS

    def portfolio(self, n_rows: int) -> list[PortfolioMember]:
        """The models to fit to so many rows."""
        epochs = self.epochs or max(1, min(MOST_EPOCHS, STEPS // -(-n_rows // BATCH_SIZE)))
        common: dict[str, Any] = {
            "epochs": epochs,
            "batch_size": BATCH_SIZE,
            "learning_rate": 0.01,
            "schedule": "one_cycle",
            "standardize": False,
            "n_estimators": self.members or 1,
            "device": "cpu",
            "random_state": self.seed,
        }
        if self.methods or self.nets:
            pairs = [
                (method, net) for method in self.methods or ("propall",) for net in self.nets or ("mlp",)
            ]
            models = [PartialLabelClassifier(METHODS[method](), net, **common) for method, net in pairs]
            names = [f"{method}, {net}" for method, net in pairs]
            return [PortfolioMember(name, model) for name, model in zip(names, models, strict=True)]
        members = [PortfolioMember("linear", PartialLabelClassifier("propall", "linear", **common))]
        for layers in _WIDTHS[self.effort]:
            model = PartialLabelClassifier("propall", "mlp", net_options={"widths": layers}, **common)
            members.append(PortfolioMember(f"MLP, {' x '.join(map(str, layers))} units", model))
        if self.effort != "quick":
            forest = Forest(trees=50 if self.effort == "normal" else 200, rounds=2)
            settings: dict[str, Any] = {"standardize": False, "device": "cpu", "random_state": self.seed}
            members.append(PortfolioMember("forest on a sample", PartialLabelClassifier(forest, **settings)))
        return members


@dataclass
class StoredPortfolio:
    """Models fitted to rows in files, weighed by held-out rows.

    Attributes:
        mixture: the weighted mean of the models.
        results: one dict per model, as `PartialLabelPortfolio.results_`.
        log_probabilities: (m, k) of the held-out rows, by the mixture.
        score: log-likelihood of the held-out candidate sets.
        training_score: the same of a sample of the training rows; nearly equal if nothing is overfitted.
    """

    mixture: ClassifierMixture
    results: list[dict[str, Any]]
    log_probabilities: NDArray[np.float64]
    score: float
    training_score: float


class _OutOfTimeError(Exception):
    """The time limit has passed."""


@dataclass
class _Progress:
    """Reports how far a model is, and ends it at the deadline; the listener of a `StoredDataset`."""

    report: Callable[[str], None] | None
    name: str = ""
    total: int = 0
    deadline: float = float("inf")
    start: float = field(default_factory=time.perf_counter)
    rows: int = 0
    reported: float = field(default_factory=time.perf_counter)

    def begin(self, name: str, total: int, deadline: float) -> None:
        """Start counting the rows of a model."""
        self.name, self.total, self.deadline, self.rows = name, total, deadline, 0
        self.start = self.reported = time.perf_counter()

    def __call__(self, rows: int) -> None:
        """Count rows that were read."""
        self.rows += rows
        now = time.perf_counter()
        if now > self.deadline:
            raise _OutOfTimeError
        if self.report is not None and now - self.reported > REPORT_EVERY:
            self.reported = now
            share = self.rows / self.total
            left = duration((now - self.start) * (1 - share) / share)
            self.report(f"{self.name}: {100 * share:.0f} %, about {left} left")


def fit_stored_portfolio(
    folder: Path,
    classes: NDArray[Any],
    held_out: Rows,
    sample: Rows,
    settings: StoredSettings,
) -> StoredPortfolio:
    """Fit several models to rows in files and weigh them by held-out rows, without true labels.

    Args:
        folder: of the training rows, written by a `RowWriter`.
        classes: class names in order.
        held_out: rows that are not among the training rows.
        sample: a sample of the training rows, for models that need their rows in memory.
        settings: what to fit.
    """
    progress = _Progress(settings.report)
    data = StoredDataset.open(folder, progress)
    limit = settings.time_limit
    deadline = float("inf") if limit is None else time.perf_counter() + limit
    fitted: dict[str, PartialLabelClassifier] = {}
    logs: dict[str, NDArray[np.float64]] = {}
    results: list[dict[str, Any]] = []
    say = settings.report or (lambda line: None)
    refusal = "the time limit has passed"
    try:
        for member in settings.portfolio(len(data)):
            name, start = member.name, time.perf_counter()
            try:
                if fitted and start > deadline:
                    raise _OutOfTimeError
                say(f"fitting {name}")
                progress.begin(
                    name,
                    len(data) * member.model.epochs * member.model.n_estimators,
                    deadline if fitted else np.inf,
                )
                model = _fit_member(member, data, folder, classes, sample, settings.workers)
            except (_OutOfTimeError, KeyboardInterrupt) as error:
                if not fitted:
                    raise
                if isinstance(error, KeyboardInterrupt):
                    # A second interrupt ends the program; this one ends the search.
                    deadline, refusal = 0.0, "interrupted"
                results.append({"name": name, "weight": 0.0, "refusal": refusal})
                say(f"{name} left out: {refusal}")
                continue
            seconds = time.perf_counter() - start
            fitted[name] = model
            logs[name] = _calibrate(model, held_out)
            results.append(_judge(name, model, logs[name], held_out, seconds))
            say(f"{name}: log-likelihood {results[-1]['score']:.3f} ({duration(seconds)})")
    finally:
        data.close()
    return _weigh(fitted, logs, results, held_out, sample)


def _fit_member(
    member: PortfolioMember,
    data: StoredDataset,
    folder: Path,
    classes: NDArray[Any],
    sample: Rows,
    workers: Workers,
) -> PartialLabelClassifier:
    model = member.model
    if isinstance(model.method, Forest):
        names = [str(name) for name in classes]
        return model.fit(sample.features, CandidateLabels.from_matrix(sample.candidates, names))
    if workers.count > 1:
        return workers.fit(model, folder, classes)
    return fit_stored(model, data, classes)


def _calibrate(model: PartialLabelClassifier, held_out: Rows) -> NDArray[np.float64]:
    """Set the temperature of a model by the held-out rows; return their log-probabilities."""
    scores = model.predict_log_proba(held_out.features).astype(float)
    model.temperature_ = fit_temperature(scores, held_out.candidates)
    return log_softmax(scores, model.temperature_)


def _judge(
    name: str,
    model: PartialLabelClassifier,
    log_probabilities: NDArray[np.float64],
    held_out: Rows,
    seconds: float,
) -> dict[str, Any]:
    """Return how a model does on the held-out rows."""
    criteria = {
        key: criterion(np.exp(log_probabilities), held_out.candidates, None)
        for key, criterion in CRITERIA.items()
        if key != "tempered_log_likelihood"  # the probabilities are at their best temperature
    }
    score = criteria["cooccurrence_log_likelihood"]
    row = {"name": name, "weight": 0.0, "score": score, "seconds": seconds, "refusal": ""}
    return {**row, **criteria, "temperature": model.temperature_}


def _weigh(
    fitted: dict[str, PartialLabelClassifier],
    logs: dict[str, NDArray[np.float64]],
    results: Sequence[dict[str, Any]],
    held_out: Rows,
    sample: Rows,
) -> StoredPortfolio:
    names = list(fitted)
    weights = mixture_weights([logs[name] for name in names], held_out.candidates)
    for name, weight in zip(names, weights, strict=True):
        next(row for row in results if row["name"] == name)["weight"] = float(weight)
    used = [i for i, weight in enumerate(weights) if weight > 0]
    mean = log_weighted_mean([logs[name] for name in names], weights)
    mixture = ClassifierMixture(
        [fitted[names[i]] for i in used],
        weights[used].tolist(),
        [names[i] for i in used],
        fit_temperature(mean, held_out.candidates),
    )
    log_probabilities = log_softmax(mean, mixture.temperature_)
    score = cooccurrence_log_likelihood(np.exp(log_probabilities), held_out.candidates, None)
    seen = mixture.predict_proba(sample.features)
    training_score = cooccurrence_log_likelihood(seen, sample.candidates, None)
    return StoredPortfolio(mixture, list(results), log_probabilities, score, training_score)

"""Fit a model to a labeled table: settings selected without true labels, an ensemble, out-of-fold answers."""

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from propall.estimators.classifier import PartialLabelClassifier
from propall.estimators.folds import CandidateStratifiedKFold, group_equal_rows
from propall.estimators.portfolio import (
    BLOCK,
    Effort,
    Histograms,
    PartialLabelPortfolio,
    are_histograms,
)
from propall.estimators.scorers import CRITERIA
from propall.estimators.search import PartialLabelClassifierCV, resolve_out_of_fold
from propall.input_files import check_input_file
from propall.labels.candidates import CandidateLabels, UninformativeRowsWarning
from propall.methods import METHODS
from propall.nets import NETS
from propall.provenance import available_memory, hardware
from propall.tables.consensus import DOUBTFUL, Consensus, known_annotators, reach_consensus
from propall.tables.features import Features, report_duplicates
from propall.tables.images import ImageColumn
from propall.tables.label_columns import LabeledTable, find_label_copies
from propall.tables.label_source import LabelSource
from propall.tables.learning_curves import LearningCurves, measure_curves
from propall.tables.model import HeldOut, TableModel
from propall.tables.reading import DataNote
from propall.tables.trust import Refit, Trust, TrustReport, choose_trust, train_tolerantly
from propall.wording import plural


@dataclass(frozen=True)
class FitDefaults:
    """Default training settings for one kind of data; of the rates to compare, the first is the default."""

    batch_size: int
    steps: int
    members: int
    folds: int
    learning_rates: tuple[float, ...]
    weight_decays: tuple[float, ...]

    def epochs(self, rows: int) -> int:
        """Number of epochs that amount to `steps` steps, from 20 to 500."""
        return max(20, min(500, self.steps // -(-rows // self.batch_size)))


TABLE_DEFAULTS = FitDefaults(256, 1000, 5, 5, (0.003, 0.01), (1e-4, 1e-2))
#: A step of a convolutional network takes a hundred times as long.
IMAGE_DEFAULTS = FitDefaults(32, 500, 3, 3, (0.003, 0.01), (1e-4,))


#: Memory that a fit needs per row and class, at least: measured with a single linear network and two folds.
BYTES_PER_PROBABILITY = 100


@dataclass(frozen=True)
class FitOptions:
    """How to fit a model; None stands for the defaults in `TABLE_DEFAULTS` and `IMAGE_DEFAULTS`.

    Without methods, networks and training settings, a table is fitted by a portfolio of learners (see
    `PartialLabelPortfolio`), whose size `effort` sets.

    Examples:
        >>> FitOptions(effort="quick", seed=1).uses_portfolio  # several kinds of models
        True
        >>> FitOptions(methods=("propall", "cc"), nets=("linear",)).uses_portfolio  # the better of these two
        False
    """

    methods: tuple[str, ...] = ()  # propall by default; if there are several, the best is selected
    nets: tuple[str, ...] = ()  # by default chosen by the kind and number of rows
    epochs: int | None = None
    members: int | None = None  # ensemble size
    folds: int | None = None
    views: bool = False  # train on augmented views of images
    search: bool = True  # compare several settings; otherwise use the default setting
    effort: Effort = "normal"  # of the portfolio
    time_limit: float | None = None  # seconds for all portfolios; at least one learner is always fitted
    trust: Trust | None = None  # in the labels; by default those of one column completely, see `choose_trust`
    seed: int = 0
    device: str = "auto"
    verbose: bool = False  # show progress bars on a terminal
    strict: bool = False  # raise an error instead of leaving rows out
    report: Callable[[str], None] | None = None  # called with a line for every learner of the portfolio

    @property
    def uses_portfolio(self) -> bool:
        """Whether no particular model was asked for."""
        asked = self.methods, self.nets, self.epochs, self.members, self.folds, self.views
        return self.search and not any(asked)


@dataclass
class Fitted:
    """A fitted model, and everything that a report about it shows."""

    model: TableModel
    table: LabeledTable  # the rows it was fitted on; rows with unreadable images are dropped
    features: NDArray[np.float32]
    consensus: Consensus  # every row resolved by models that were not fitted on it
    search: PartialLabelClassifierCV | PartialLabelPortfolio
    notes: list[DataNote] = field(default_factory=list)
    curves: LearningCurves | None = None  # of the selected setting; None for methods without a network
    trust: TrustReport | None = None  # how far the labels were trusted; None if completely
    seconds: float = 0.0
    hardware: str = ""


def fit_table(
    table: LabeledTable,
    options: FitOptions | None = None,
    *,
    columns: Sequence[str] | None = None,
    without: Sequence[str] = (),
    embedding: NDArray[Any] | None = None,
    images: ImageColumn | None = None,
    first_model: Callable[[TableModel], None] | None = None,
) -> Fitted:
    """Fit a model to a labeled table.

    Args:
        table: a table with labels, from `open_table`.
        options: how to fit.
        columns: use only these columns as features.
        without: columns to ignore; label columns are never features.
        embedding: (n, d) precomputed features, one row per row of the file.
        images: the column of image files.
        first_model: called with a model in the default setting before the search, in case of an interrupt.

    Examples:
        >>> import pandas as pd
        >>> from propall.tables.fitting import FitOptions, fit_table
        >>> from propall.tables.label_columns import open_table
        >>> from propall.tables.label_source import LabelSource
        >>> labels = ["cat", "cat|dog", "dog", "dog|cat"]
        >>> frame = pd.DataFrame({"size": [1.0, 1.2, 3.0, 3.1] * 10, "label": labels * 10})
        >>> table = open_table(frame, LabelSource(label="label"))
        >>> options = FitOptions(methods=("cc",), nets=("linear",), epochs=100, members=1, search=False)
        >>> model = fit_table(table, options).model
        >>> model.classes
        array(['cat', 'dog'], dtype='<U3')
    """
    start = time.perf_counter()
    options = options or FitOptions()
    source, labeled = table.source, table.labeled
    if source is None or labeled is None:
        raise ValueError("label: the table has no labels; specify where they are.")
    check_names(table, source, options, columns or (), without)
    if images is not None:
        labeled = labeled.select(*images.openable(table.frame, table.raw.folder))
        table = replace(table, labeled=labeled)
    if options.strict and (dropped := [note for note in table.notes if note.action == "row dropped"]):
        raise ValueError(
            f"strict: {plural(sum(len(note.rows) for note in dropped), 'row')} of {table.raw.source} cannot "
            f"be used: {'; '.join(map(str, dropped))}. Correct them, or fit without strict."
        )
    labels = labeled.labels
    if labels.n_full == len(labels):
        raise ValueError(
            f"label: every class is possible in every row of {table.raw.source}, so there is nothing to "
            "learn. Exclude some classes in some rows."
        )
    check_memory(len(labels), labels.n_classes)
    embedding = None if embedding is None else table.raw.select_rows(embedding)[labeled.rows]
    ignored = (*source.columns, *without)
    copies = report_label_copies(table, ignored, columns)
    features = Features.fit(
        table.frame,
        columns=columns,
        without=(*ignored, *copies),
        embedding=embedding,
        images=images,
        folder=table.raw.folder,
        separator=table.raw.separator,
    )
    X, histograms = _encode(table, features, embedding)
    notes = [*table.notes, *copies.values(), *features.notes]
    if (group := group_equal_rows(X, len(X))) is not None:
        notes += report_duplicates(group, table.frame.index)
    trust = choose_trust(options.trust, labeled)
    options = _share_time(options, X, fits=1 if trust == "full" else 2)
    search: PartialLabelClassifierCV | PartialLabelPortfolio
    curves = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UninformativeRowsWarning)
        if options.uses_portfolio and X.ndim == 2:
            search = _portfolio(options, histograms).fit(X, labels)
        else:
            settings = _choose_settings(options, X)
            if first_model is not None and settings.n_combinations > 1:
                first_model(TableModel(settings.default_model().fit(X, labels), features, source))
            search = settings.search(len(labels)).fit(X, labels)
            curves = measure_curves(search, X, labels, options.seed)
        known = trust if isinstance(trust, float) else None
        consensus = reach_consensus(search.out_of_fold_, labeled, trust=known)
        tolerant = None
        if trust != "full":
            tolerant = train_tolerantly(
                _refitting(search, options, X), labeled, consensus, search.out_of_fold_, trust=trust
            )
    classifier, out_of_fold = search.best_estimator_, search.out_of_fold_
    if tolerant is not None:
        classifier, consensus, out_of_fold = tolerant.classifier, tolerant.consensus, tolerant.out_of_fold
    model = TableModel(classifier, features, source)
    logs = out_of_fold.log_probabilities.astype(np.float32)
    model.held_out = HeldOut(model.keys(table.frame, embedding, table.raw.folder), logs)
    # A given accuracy would be all that the answers show.
    estimated = consensus.posterior if known is None else None
    model.annotators = known_annotators(labeled, out_of_fold, estimated)
    fitted = Fitted(model, table, X, consensus, search, notes, curves)
    fitted.trust = None if tolerant is None else tolerant.report
    fitted.hardware = hardware(search.best_estimator_.ensemble().device)
    fitted.seconds = time.perf_counter() - start
    model.account = account(fitted)
    return fitted


def _encode(
    table: LabeledTable, features: Features, embedding: NDArray[Any] | None
) -> tuple[NDArray[np.float32], Histograms]:
    """Return the features, and whether they were histograms before they were standardized."""
    prepared = features.prepared(table.frame)
    X = features.transform(table.frame, embedding=embedding, folder=table.raw.folder, prepared=prepared)
    histograms = X.ndim == 2 and are_histograms(features.minima(prepared, embedding))
    # With more training on square roots, normal effort would take more than a minute on 1800 x 64.
    return X, "brief" if histograms else False


def check_memory(rows: int, classes: int) -> None:
    """Raise ValueError, before memory is taken, if the probabilities of a fit cannot fit into it."""
    needed, available = BYTES_PER_PROBABILITY * rows * classes, available_memory()
    if available is not None and needed > available:
        raise ValueError(
            f"memory: {rows} rows x {classes} classes need at least {needed / 2**30:.0f} GiB; "
            f"{available / 2**30:.0f} GiB are available. Use fewer rows or classes, or a machine "
            "with more memory."
        )


def check_names(
    table: LabeledTable,
    source: LabelSource,
    options: FitOptions,
    columns: Sequence[str],
    without: Sequence[str],
) -> None:
    """Raise ValueError for unknown columns, methods and networks before anything takes time."""
    for name in columns:
        table.raw.column(name, "features")
        if name in source.columns:
            raise ValueError(f"features: {name!r} is a label column; a model would copy it. Leave it out.")
    table.check_ignored(without)
    _ = [METHODS[name] for name in options.methods], [NETS[name] for name in options.nets]


def report_label_copies(
    table: LabeledTable, ignored: Sequence[str], columns: Sequence[str] | None
) -> dict[str, DataNote]:
    """Notes on columns that repeat the labels; if such columns were requested, only a warning."""
    copies = find_label_copies(table, ignored)
    if columns is None:
        return copies
    warning = "contains class names; make sure it is available for new rows"
    return {
        name: DataNote(note.kind, f"{name!r} {warning}", "used as requested")
        for name, note in copies.items()
        if name in columns
    }


class _Settings(NamedTuple):
    """The settings to compare, as parameters of the estimators.

    The default setting has the first method and rates and the last network of the grid.
    """

    grid: dict[str, Any]
    common: dict[str, Any]  # parameters that all settings share
    folds: int

    @property
    def n_combinations(self) -> int:
        return math.prod(len(values) for values in self.grid.values())

    def default_model(self) -> PartialLabelClassifier:
        net = self.grid["nets"][-1]
        name, net_options = net if isinstance(net, tuple) else (net, None)
        return PartialLabelClassifier(
            self.grid["methods"][0],
            name,
            net_options=net_options,
            learning_rate=self.grid["learning_rates"][0],
            weight_decay=self.grid["weight_decays"][0],
            **self.common,
        )

    def search(self, n_rows: int) -> PartialLabelClassifierCV:
        return PartialLabelClassifierCV(**self.grid, cv=min(self.folds, n_rows), **self.common)


def _share_time(options: FitOptions, X: NDArray[Any], *, fits: int) -> FitOptions:
    """Return the options with the time of one of several fits; raise ValueError if no limit can be kept."""
    if options.time_limit is None:
        return options
    if not options.uses_portfolio or X.ndim > 2:
        raise ValueError(
            f"time_limit: got {options.time_limit} for images, or with a method, network or settings of the "
            "training; only a comparison of several kinds of models can be stopped. Leave it out."
        )
    return replace(options, time_limit=options.time_limit / fits)


def _portfolio(options: FitOptions, histograms: Histograms | None) -> PartialLabelPortfolio:
    return PartialLabelPortfolio(
        options.effort,
        histograms=histograms,
        time_limit=options.time_limit,
        device=options.device,
        report=options.report,
        random_state=options.seed,
    )


def _refitting(
    search: PartialLabelClassifierCV | PartialLabelPortfolio, options: FitOptions, X: NDArray[Any]
) -> Refit:
    """Return a function that fits the selected model, or the portfolio, to other candidate sets."""

    def refit(labels: CandidateLabels) -> tuple[Any, NDArray[np.float64]]:
        if isinstance(search, PartialLabelPortfolio):
            portfolio = _portfolio(options, search.histograms).fit(X, labels)
            return portfolio.best_estimator_, portfolio.out_of_fold_.log_probabilities
        model = clone(search.best_estimator_)
        folds = CandidateStratifiedKFold(search.n_splits_, random_state=options.seed)
        held_out = resolve_out_of_fold(model, X, labels, cv=folds, calibrate=False)
        return model.fit(X, labels), held_out.log_probabilities

    return refit


def _choose_settings(options: FitOptions, X: NDArray[Any]) -> _Settings:
    """Complete the options with defaults for the kind and number of rows."""
    if options.views and X.ndim == 2:
        raise ValueError("views: the features are not images. Choose a column of images, or leave views out.")
    defaults = TABLE_DEFAULTS if X.ndim == 2 else IMAGE_DEFAULTS
    nets: Sequence[Any] = options.nets
    if not nets and X.ndim > 2:
        nets = ["small_cnn"]
    elif not nets:
        width = 32 if len(X) < 500 else 128 if len(X) < 20_000 else 256
        nets = ["linear", ("mlp", {"widths": (width,)})]
    grid: dict[str, Any] = {
        "methods": options.methods or ("propall",),
        "nets": nets,
        "learning_rates": defaults.learning_rates,
        "weight_decays": defaults.weight_decays,
    }
    if not options.search:
        grid = {name: values[-1:] if name == "nets" else values[:1] for name, values in grid.items()}
    common = {
        "epochs": options.epochs or defaults.epochs(len(X)),
        "batch_size": defaults.batch_size,
        "n_estimators": options.members or defaults.members,
        "standardize": False,
        "views": options.views or None,
        "device": options.device,
        "verbose": options.verbose,
        "random_state": options.seed,
    }
    return _Settings(grid, common, options.folds or defaults.folds)


def account(fitted: Fitted) -> dict[str, Any]:
    """Return settings and results of a fit as JSON values."""
    search, labeled = fitted.search, fitted.table.labeled
    assert labeled is not None
    names, counts = np.unique(fitted.consensus.resolution.label, return_counts=True)
    return {
        "source": fitted.table.raw.source,
        "rows": fitted.table.raw.n_file_rows,
        "used": len(labeled.rows),
        "classes": [str(name) for name in labeled.labels.classes],
        "mean_candidates": float(labeled.labels.sizes.double().mean()),
        "written": labeled.kind_counts,
        "columns": [list(row) for row in fitted.model.features.describe()],
        "features": list(fitted.features.shape[1:]),
        **(_weighed(search) if isinstance(search, PartialLabelPortfolio) else _searched(search)),
        "temperature": float(fitted.model.classifier.temperature_),
        "seed": search.random_state,
        "resolved": {str(name): int(count) for name, count in zip(names, counts, strict=True)},
        "sets_without_truth": fitted.consensus.rate,
        "doubted": int((fitted.consensus.doubt > DOUBTFUL).sum()),
        "trust": None if fitted.trust is None else fitted.trust._asdict(),
        "remarks": [note.as_dict() for note in fitted.notes],
        "curves": None if fitted.curves is None else fitted.curves.as_dict(),
        "seconds": round(fitted.seconds, 2),
    }


#: Criteria that an account lists.
LISTED_CRITERIA = ("covering_rate", "approximated_accuracy", "candidate_log_likelihood")


def _searched(search: PartialLabelClassifierCV) -> dict[str, Any]:
    """The part of an account about settings compared by cross-validation."""
    results, best = search.cv_results_, search.best_index_
    return {
        "settings_compared": len(results["params"]),
        "chosen": {name: plain_value(value) for name, value in search.best_params_.items()},
        "criterion": search.scoring if isinstance(search.scoring, str) else "own",
        "held_out": {name: float(results[f"mean_test_{name}"][best]) for name in LISTED_CRITERIA},
        "members": search.n_estimators,
        "folds": search.n_splits_,
    }


def _weighed(portfolio: PartialLabelPortfolio) -> dict[str, Any]:
    """The part of an account about a portfolio of learners."""
    mixture, held_out = portfolio.best_estimator_, portfolio.out_of_fold_
    chances = held_out.probabilities
    weights = dict(zip(mixture.names, mixture.weights.tolist(), strict=True))
    return {
        "settings_compared": len(portfolio.results_),
        "chosen": {name: round(weight, 4) for name, weight in weights.items()},
        "criterion": portfolio.criterion_,
        "held_out": {name: CRITERIA[name](chances, held_out.candidates, None) for name in LISTED_CRITERIA},
        "members": len(mixture.components),
        "folds": BLOCK,
        "effort": portfolio.effort,
        "portfolio": [
            {name: plain_value(value) for name, value in row.items()} for row in portfolio.results_
        ],
        "portfolio_score": portfolio.best_score_,
    }


def guessing_rate(account: Mapping[str, Any]) -> float:
    """Expected covering rate of classes drawn at random."""
    return float(account["mean_candidates"] / len(account["classes"]))


def plain_value(value: Any) -> Any:
    """Return a value as JSON can hold it."""
    return value if isinstance(value, str | int | float | bool | dict | None) else repr(value)


def load_embedding(path: Path | None) -> NDArray[Any] | None:
    """Read precomputed features from a .npy file, if any, without pickle."""
    if path is None:
        return None
    check_input_file(path, "embeddings")
    try:
        # Mapped, not read: a damaged header may announce more numbers than fit in memory.
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a damaged header can raise almost anything
        raise ValueError(
            f"embeddings: {path} is not a .npy file of numbers ({error}); write it with numpy.save."
        ) from error
    if not isinstance(mapped, np.ndarray):
        mapped.close()
        raise ValueError(f"embeddings: {path} is an .npz archive; save one array with numpy.save.")
    if mapped.ndim != 2 or mapped.dtype.kind not in "fiu" or not mapped.size:
        contents = f"{mapped.dtype} of shape {mapped.shape}"
        raise ValueError(f"embeddings: {path} contains {contents}; expected (n, d) numbers.")
    values: NDArray[Any] = np.array(mapped)
    return values

"""From a table to a model: settings chosen without true labels, an ensemble, answers out of fold."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from propall.data.dataset import PartialDataset
from propall.estimators.classifier import PartialLabelClassifier
from propall.estimators.folds import CandidateStratifiedKFold, group_equal_rows
from propall.estimators.scorers import covering_rate
from propall.estimators.search import PartialLabelClassifierCV
from propall.labels.candidates import UninformativeRowsWarning
from propall.methods import METHODS
from propall.nets import NETS
from propall.provenance import hardware
from propall.tables.consensus import Consensus, reach_consensus
from propall.tables.features import Features, report_duplicates
from propall.tables.images import ImageColumn
from propall.tables.label_columns import LabeledTable, find_label_copies
from propall.tables.label_source import LabelSource
from propall.tables.model import HeldOut, TableModel
from propall.tables.reading import DataNote
from propall.tables.writing import DOUBTFUL
from propall.training.compiled import best_device
from propall.training.contract import Monitor, Objective, Run


@dataclass(frozen=True)
class Effort:
    """What suffices for most data of a kind, and is done where nothing else is asked for.

    Attributes:
        batch: rows of a step.
        steps: steps of a training.
        members: networks of the ensemble.
        folds: parts that are held out in turn.
        learning_rates: to choose from, the usual one first.
        weight_decays: to choose from, the usual one first.
    """

    batch: int
    steps: int
    members: int
    folds: int
    learning_rates: tuple[float, ...]
    weight_decays: tuple[float, ...]

    def epochs(self, rows: int) -> int:
        """Passes over so many rows that make these steps, from 20 to 500."""
        return max(20, min(500, self.steps // -(-rows // self.batch)))


TABLES = Effort(256, 1000, 5, 5, (0.003, 0.01), (1e-4, 1e-2))
#: A step of a convolutional network takes a hundred times as long.
IMAGES = Effort(32, 500, 3, 3, (0.003, 0.01), (1e-4,))
#: Points of a learning curve, and rows it is measured on at most.
MEASURED, WATCHED = 50, 2000


@dataclass(frozen=True)
class FitOptions:
    """How a model is fitted.

    Attributes:
        methods: names from `propall methods`; with several the choice includes the method.
        nets: names of networks; by default those that suit the kind and number of rows.
        epochs: passes over the data.
        members: networks of the ensemble.
        folds: parts that are held out in turn; for this and the two above see `TABLES` and `IMAGES`.
        search: choose among several settings; without, the defaults are taken.
        seed: makes results repeatable.
        device: "auto", "cpu", "cuda", ...
        verbose: show progress bars on a terminal.
    """

    methods: tuple[str, ...] = ("propall",)
    nets: tuple[str, ...] = ()
    epochs: int | None = None
    members: int | None = None
    folds: int | None = None
    search: bool = True
    seed: int = 0
    device: str = "auto"
    verbose: bool = False


@dataclass
class Curves:
    """How the chosen setting learns, on the rows of one fold, seen and held out.

    Attributes:
        epochs: after which it was measured.
        covering: (epochs, members) share of rows whose prediction is a candidate, by "trained on" and
            "held out".
    """

    epochs: list[int]
    covering: dict[str, NDArray[np.float64]]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "epochs": self.epochs,
            "covering": {name: values.round(4).tolist() for name, values in self.covering.items()},
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """From JSON."""
        return cls(values["epochs"], {name: np.array(own) for name, own in values["covering"].items()})


@dataclass
class Fitted:
    """A fitted model, and everything a report of the fit shows.

    Attributes:
        model: ready to be saved.
        table: what it was fitted on; some of its rows may have been left out for their images.
        features: the numbers its rows became.
        consensus: every row's candidates resolved by models that had not seen it, with what people said.
        search: the choice, with `cv_results_`.
        notes: on the table, its labels and its columns.
        curves: how the chosen setting learns; None for methods without a network.
        seconds: total wall-clock time.
        hardware: description of the device used for training.
    """

    model: TableModel
    table: LabeledTable
    features: NDArray[np.float32]
    consensus: Consensus
    search: PartialLabelClassifierCV
    notes: list[DataNote] = field(default_factory=list)
    curves: Curves | None = None
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
        table: as `open_table` reads it, with labels.
        options: how to fit.
        columns: the only ones to learn from.
        without: columns not to learn from; the labels' own never are.
        embedding: (n, d) precomputed features, one row for each of the file.
        images: the column of image files.
        first_model: called with a model in the default setting before the search begins, so that whoever is
            interrupted then has something.
    """
    options = options or FitOptions()
    if table.labeled is None or table.source is None:
        raise ValueError("label: the table has no labels; say where they stand.")
    start = time.perf_counter()
    _check_columns(table, table.source, columns or (), without)
    # An unknown name is answered before anything takes time.
    _ = [METHODS[name] for name in options.methods], [NETS[name] for name in options.nets]
    if images is not None:
        openable, broken = images.openable(table.frame, table.raw.folder)
        table = replace(table, labeled=table.labeled.select(openable, broken))
    labeled, source = table.labeled, table.source
    assert labeled is not None
    assert source is not None
    frame, labels = table.frame, labeled.labels
    if labels.n_full == len(labels):
        raise ValueError(
            f"label: every class is possible in every row of {table.raw.source}: there is nothing to "
            "learn. Rule some out in some rows."
        )
    given = None if embedding is None else table.raw.select_rows(embedding)[labeled.rows]
    aside = (*source.columns, *without)
    copies = find_label_copies(table, aside)
    if columns is not None:
        copies = {
            name: DataNote(
                note.kind, f"{name!r} names classes: is it known of new rows, too?", "used as asked"
            )
            for name, note in copies.items()
            if name in columns
        }
    features = Features.fit(
        frame,
        columns=columns,
        without=(*aside, *copies),
        embedding=given,
        images=images,
        folder=table.raw.folder,
        separator=table.raw.separator,
    )
    effort = TABLES if images is None else IMAGES
    options = replace(
        options,
        epochs=options.epochs or effort.epochs(len(frame)),
        members=options.members or effort.members,
        folds=options.folds or effort.folds,
    )
    notes = [*table.notes, *copies.values(), *features.notes]
    X = features.transform(frame, embedding=given, folder=table.raw.folder)
    if (group := group_equal_rows(X, len(X))) is not None:
        notes += report_duplicates(group, frame.index)
    grid = _grid(options, effort, X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UninformativeRowsWarning)
        if first_model is not None and options.search and _size(grid) > 1:
            first_model(TableModel(_default(options, effort, grid).fit(X, labels), features, source))
        search = PartialLabelClassifierCV(
            **grid,
            epochs=options.epochs or 0,
            batch_size=effort.batch,
            cv=min(options.folds or 0, len(labels)),
            n_estimators=options.members or 0,
            standardize=False,
            device=options.device,
            verbose=options.verbose,
            random_state=options.seed,
        ).fit(X, labels)
        curves = _curves(search, X, labels, options)
    model = TableModel(search.best_estimator_, features, source)
    logs = search.out_of_fold_.log_probabilities.astype(np.float32)
    model.held_out = HeldOut(model.keys(frame, given, table.raw.folder), logs)
    fitted = Fitted(model, table, X, reach_consensus(search.out_of_fold_, labeled), search, notes, curves)
    fitted.hardware = hardware(best_device(options.device))
    fitted.seconds = time.perf_counter() - start
    model.account = account(fitted, options)
    return fitted


def _check_columns(
    table: LabeledTable, source: LabelSource, columns: Sequence[str], without: Sequence[str]
) -> None:
    for name in columns:
        table.raw.column(name, "features")
        if name in source.columns:
            raise ValueError(
                f"features: {name!r} belongs to the labels; a model that learns from it learns nothing "
                "else. Leave it out."
            )
    # Of a file with a line per answer, columns may be gone already.
    for name in () if table.raw.answers is not None else without:
        table.raw.column(name, "ignore")


def account(fitted: Fitted, options: FitOptions) -> dict[str, Any]:
    """What was done and found, as plain JSON."""
    search, labeled = fitted.search, fitted.table.labeled
    assert labeled is not None
    results = search.cv_results_
    best = search.best_index_
    labels = fitted.consensus.resolution.label
    return {
        "source": fitted.table.raw.source,
        "rows": fitted.table.raw.n_file_rows,
        "used": len(labeled.rows),
        "classes": [str(name) for name in labeled.labels.classes],
        "mean_candidates": float(labeled.labels.sizes.double().mean()),
        "written": labeled.kind_counts,
        "columns": [list(row) for row in fitted.model.features.describe()],
        "features": list(fitted.features.shape[1:]),
        "settings_compared": len(results["params"]),
        "chosen": {name: _plain(value) for name, value in search.best_params_.items()},
        "criterion": search.scoring if isinstance(search.scoring, str) else "own",
        "held_out": {
            "covering_rate": float(results["mean_test_covering_rate"][best]),
            "approximated_accuracy": float(results["mean_test_approximated_accuracy"][best]),
            "candidate_log_likelihood": float(results["mean_test_candidate_log_likelihood"][best]),
        },
        "temperature": float(search.temperature_),
        "members": options.members,
        "folds": search.n_splits_,
        "seed": options.seed,
        "resolved": {str(n): int(c) for n, c in zip(*np.unique(labels, return_counts=True), strict=True)},
        "sets_without_truth": fitted.consensus.rate,
        "doubted": int((fitted.consensus.doubt > DOUBTFUL).sum()),
        "remarks": [note.as_dict() for note in fitted.notes],
        "curves": None if fitted.curves is None else fitted.curves.as_dict(),
        "seconds": round(fitted.seconds, 2),
    }


def guessing_rate(account: Mapping[str, Any]) -> float:
    """Share of predictions that would be among the candidates if classes were drawn at random."""
    return float(account["mean_candidates"] / len(account["classes"]))


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | dict | None) else repr(value)


def _grid(options: FitOptions, effort: Effort, X: NDArray[Any]) -> dict[str, Any]:
    """The settings to choose from: networks that suit the data, rates and weight decays."""
    nets: list[Any] = list(options.nets)
    if not nets:
        if X.ndim > 2:
            nets = ["small_cnn"]
        else:
            width = 32 if len(X) < 500 else 128 if len(X) < 20_000 else 256
            nets = ["linear", ("mlp", {"widths": (width,)})]
    if not options.search:
        return {
            "methods": options.methods[:1],
            "nets": nets[-1:],
            "learning_rates": effort.learning_rates[:1],
            "weight_decays": effort.weight_decays[:1],
        }
    return {
        "methods": options.methods,
        "nets": nets,
        "learning_rates": effort.learning_rates,
        "weight_decays": effort.weight_decays,
    }


def _size(grid: Mapping[str, Sequence[Any]]) -> int:
    return int(np.prod([len(values) for values in grid.values()]))


def _default(
    options: FitOptions, effort: Effort, grid: Mapping[str, Sequence[Any]]
) -> PartialLabelClassifier:
    net = grid["nets"][-1]
    name, widths = net if isinstance(net, tuple) else (net, None)
    return PartialLabelClassifier(
        options.methods[0],
        name,
        net_options=widths,
        epochs=options.epochs or 0,
        batch_size=effort.batch,
        learning_rate=grid["learning_rates"][0],
        weight_decay=grid["weight_decays"][0],
        n_estimators=options.members or 0,
        standardize=False,
        device=options.device,
        verbose=options.verbose,
        random_state=options.seed,
    )


class _Watch(Monitor):
    """The covering rate on rows trained on and rows held out, after `MEASURED` epochs."""

    def __init__(self, parts: Mapping[str, tuple[Tensor, NDArray[np.bool_]]], epochs: int) -> None:
        self.parts = parts
        self.stops = sorted({int(e) for e in np.linspace(1, epochs, MEASURED).round()})
        self.covering: dict[str, list[list[float]]] = {name: [] for name in parts}

    def epoch(
        self,
        epoch: int,
        runs: Sequence[int],
        losses: Float[Tensor, "r"],
        scores: Callable[[Tensor], Float[Tensor, "r n k"]],
    ) -> None:
        """Measure all runs."""
        if epoch in self.stops:
            for name, (x, mask) in self.parts.items():
                self.covering[name].append([covering_rate(own, mask) for own in scores(x).cpu().numpy()])


def _curves(
    search: PartialLabelClassifierCV, X: NDArray[np.float32], labels: Any, options: FitOptions
) -> Curves | None:
    """Train the chosen setting once more on all folds but one, looking on."""
    chosen = search.best_estimator_
    ensemble = chosen.ensemble()
    if not isinstance(ensemble.method, Objective) or not isinstance(chosen.net, str):
        return None
    mask = labels.to_numpy()
    held_out = CandidateStratifiedKFold(search.n_splits_, random_state=options.seed).assign(mask, X) == 0
    device = ensemble.device
    seen, unseen = (torch.from_numpy(X[part]).to(device) for part in (~held_out, held_out))
    train = PartialDataset(seen, torch.from_numpy(mask[~held_out]).to(device))
    few = slice(0, WATCHED)
    parts = {"trained on": (seen[few], mask[~held_out][few]), "held out": (unseen[few], mask[held_out][few])}
    watch = _Watch(parts, chosen.epochs)
    trainer = ensemble.algorithm()
    seeds = range(min(3, chosen.n_estimators) if X.ndim == 2 else 1)
    trainer.fit([Run(train, seed) for seed in seeds], monitor=watch)
    return Curves(watch.stops, {name: np.array(values) for name, values in watch.covering.items()})


def load_embedding(path: str | Path) -> NDArray[Any]:
    """Precomputed features from a .npy file, without pickle."""
    path = Path(path)
    try:
        values: NDArray[Any] = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"embeddings: {path} is no .npy file of numbers ({error}).") from error
    if values.ndim != 2 or values.dtype.kind not in "fiu":
        raise ValueError(
            f"embeddings: {path} holds {values.dtype} of shape {values.shape}; expected (n, d) numbers."
        )
    return values

"""How well held-out candidate sets choose and calibrate: against the oracle and the truth, on real data.

Settings are compared on inner folds of the training rows alone; true labels enter only where the settings'
test accuracies are looked up afterwards. To measure it all again and write the two tables::

    from pathlib import Path
    from propall.paper.studies import selection

    print(selection.write_selection(Path("results/selection.csv")).round(2))
    print(selection.write_calibration(Path("results/calibration.csv")).round(2))
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from propall import __version__, atomic_files
from propall.data import Corruption, load
from propall.data.corruption import UniformProperSupersets
from propall.data.dataset import Problem
from propall.estimators.calibration import expected_calibration_error, reliability
from propall.estimators.classifier import PartialLabelClassifier, Resolution
from propall.estimators.search import (
    CRITERIA,
    DEFAULT_CRITERION,
    CandidateStratifiedKFold,
    Folds,
    PartialLabelClassifierCV,
    cross_calibrated,
    resolve_out_of_fold,
)
from propall.labels.candidates import CandidateLabels
from propall.paper.tables import real
from propall.paper.tables.paper_table import PaperCell
from propall.provenance import commit, hardware
from propall.training.compiled import best_device

#: Data sets with candidate sets of their own.
DATA = ("lost", "msrcv2", "birdsong")
#: What is compared: 5 methods x 2 networks x 3 learning rates x 2 weight decays, on standardised features.
GRID: Mapping[str, Any] = {
    "methods": ("propall", "cc", "proden", "lws", "ova"),
    "nets": ("linear", ("mlp", {"widths": (128,)})),
    "learning_rates": (0.003, 0.01, 0.03),
    "weight_decays": (1e-4, 1e-2),
}
#: Beside them, on the features as they are: whether a criterion can tell that these should be scaled.
UNSCALED: Mapping[str, Any] = {**GRID, "learning_rates": (0.01,), "weight_decays": (1e-4,)}
#: The seed of all training.
SEED = 0
FOLDS, INNER_FOLDS, EPOCHS = 5, 3, 60


@dataclass(frozen=True)
class Study:
    """What every setting reached on one data set.

    Attributes:
        settings: the settings in words.
        criteria: by criterion, (folds, settings) means over the inner folds of the training rows; NaN where
            a setting's training failed.
        accuracy: (folds, settings) share of test rows predicted right, fitted on all training rows.
    """

    settings: list[str]
    criteria: dict[str, NDArray[np.float64]]
    accuracy: NDArray[np.float64]

    @property
    def oracle(self) -> int:
        """The setting with the best test accuracy on average."""
        return int(self.accuracy.mean(0).argmax())

    def chosen(self, criterion: str) -> NDArray[np.int64]:
        """The setting that a criterion chooses on each fold."""
        best: NDArray[np.int64] = np.nanargmax(self.criteria[criterion], 1)
        return best

    def joined(self, other: "Study") -> "Study":
        """The settings of both, on the same data and folds."""
        return Study(
            self.settings + other.settings,
            {name: np.hstack([values, other.criteria[name]]) for name, values in self.criteria.items()},
            np.hstack([self.accuracy, other.accuracy]),
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON knows it."""
        criteria = {name: values.tolist() for name, values in self.criteria.items()}
        return {"settings": self.settings, "criteria": criteria, "accuracy": self.accuracy.tolist()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Study":
        """What `to_dict` gave."""
        criteria = {name: np.array(table, dtype=float) for name, table in values["criteria"].items()}
        return cls(list(values["settings"]), criteria, np.array(values["accuracy"], dtype=float))


def measure(
    data: str,
    *,
    folds: int = FOLDS,
    inner_folds: int = INNER_FOLDS,
    epochs: int = EPOCHS,
    grid: Mapping[str, Any] = GRID,
    standardize: bool = True,
    corruption: Corruption | None = None,
    root: Path | None = None,
    device: str = "auto",
) -> Study:
    """Criteria and test accuracies of all settings, on every fold of the fixed split.

    Args:
        data: name of the data set.
        folds: number of outer folds.
        inner_folds: number of folds that the training rows of each are divided into.
        epochs: passes over the data, Adam.
        grid: arguments of `PartialLabelClassifierCV`.
        standardize: whether the features are.
        corruption: the law of the candidate sets; None for the data set's own.
        root: folder of the data sets.
        device: where to train.
    """
    source = load(data, root)
    own: Any = "own" if standardize else None
    problems = [source.fold(i, folds, corruption=corruption, standardize=own) for i in range(folds)]
    common = {"epochs": epochs, "standardize": standardize, "device": device, "random_state": SEED}
    measured = [_measure_fold(problem, inner_folds, grid, common) for problem in problems]
    return Study(
        measured[0][0],
        {name: np.array([criteria[name] for _, criteria, _ in measured]) for name in CRITERIA},
        np.array([accuracy for _, _, accuracy in measured]),
    )


def _measure_fold(
    problem: Problem, inner_folds: int, grid: Mapping[str, Any], common: Mapping[str, Any]
) -> tuple[list[str], dict[str, NDArray[Any]], list[float]]:
    search = PartialLabelClassifierCV(**grid, **common, cv=inner_folds, refit=False)
    x, labels = problem.train.x.numpy(), CandidateLabels(problem.train.candidates, problem.classes)
    search.fit(x, labels)
    settings = search.cv_results_["params"]
    models = [PartialLabelClassifier(**setting, **common) for setting in settings]
    everything = (np.arange(len(x)), np.arange(0))
    truth = problem.test_truth.numpy()
    accuracy = [0.0] * len(models)
    for i, _, fitted, _ in Folds(x, labels, None, [everything]).fit(models):
        accuracy[i] = float((fitted.predict_log_proba(problem.test_x.numpy()).argmax(1) == truth).mean())
    criteria = {name: search.cv_results_[f"mean_test_{name}"] for name in CRITERIA}
    raw = "" if common["standardize"] else ", raw features"
    return [_in_words(setting) + raw for setting in settings], criteria, accuracy


def _in_words(setting: Mapping[str, Any]) -> str:
    rates = f"rate {setting['learning_rate']:g}, decay {setting['weight_decay']:g}"
    return f"{setting['method']}, {setting['net']}, {rates}"


def comparison(studies: Mapping[str, Study]) -> pd.DataFrame:
    """One line per data set and criterion: what it chose is worth, in percent, and what the best is.

    The columns: `chosen`, test accuracy of the settings that the criterion chose fold by fold; `oracle`, that
    of the setting which is best on average over the test folds; `lost`, the difference; `lost_by_fold`, the
    loss against the best of every test fold, which also counts luck; `rank_correlation` between criterion
    and test accuracy over settings; `most_often`, the setting chosen on most folds; `paper`, the accuracy of
    ProPaLL's fixed setting as published, where it is. Last come the means over the data sets.
    """
    lines = []
    for data, study in studies.items():
        accuracy = 100 * study.accuracy
        best = accuracy.mean(0)[study.oracle]
        paper = real.TABLE.published(PaperCell(real.TABLE.name, data, "propall"))
        for criterion in study.criteria:
            chosen = study.chosen(criterion)
            reached = accuracy[np.arange(len(chosen)), chosen].mean()
            lines.append(
                {
                    "data": data,
                    "criterion": criterion,
                    "settings": len(study.settings),
                    "chosen": reached,
                    "oracle": best,
                    "lost": best - reached,
                    "lost_by_fold": accuracy.max(1).mean() - reached,
                    "rank_correlation": _rank_correlation(study.criteria[criterion], accuracy),
                    "paper": None if paper is None else paper.mean,
                    "most_often": study.settings[np.bincount(chosen).argmax()],
                }
            )
    table = pd.DataFrame(lines)
    numbers = ["settings", "chosen", "oracle", "lost", "lost_by_fold", "rank_correlation"]
    means = table.groupby("criterion", sort=False)[numbers].mean().reset_index()
    return pd.concat([table, means.assign(data="mean", settings=means["settings"].astype(int))])


def _rank_correlation(criterion: NDArray[Any], accuracy: NDArray[Any]) -> float:
    by_fold = [
        pd.Series(a).rank().corr(pd.Series(b).rank()) for a, b in zip(criterion, accuracy, strict=True)
    ]
    return float(np.mean(by_fold))


def write_selection(
    path: Path,
    *,
    data: Sequence[str] = DATA,
    studies: Mapping[str, tuple[Study, Study]] | None = None,
    epochs: int = EPOCHS,
    root: Path | None = None,
    device: str = "auto",
) -> pd.DataFrame:
    """The comparison of criteria as a CSV file with where it comes from; returns the table.

    Measured twice: among settings on standardised features, and among these and some on raw features.

    Args:
        path: the file.
        data: names of data sets.
        studies: what `measure` gave of each data set with `GRID` and with `UNSCALED`; measured where missing.
        epochs: passes over the data, Adam.
        root: folder of the data sets.
        device: where to train.
    """
    known = dict(studies or {})
    for name in data:
        if name not in known:
            how: dict[str, Any] = {"epochs": epochs, "root": root, "device": device}
            known[name] = (measure(name, **how), measure(name, grid=UNSCALED, standardize=False, **how))
    scaled = comparison({name: known[name][0] for name in data}).assign(features="standardised")
    both = comparison({name: known[name][0].joined(known[name][1]) for name in data})
    table = pd.concat([scaled, both.assign(features="standardised or raw")])
    table = table.assign(
        default=table["criterion"] == DEFAULT_CRITERION,
        protocol=f"{FOLDS} fixed folds, chosen on {INNER_FOLDS} inner folds of the training rows",
        epochs=epochs,
        **_origin(device),
    )
    return _written(table, path)


def _origin(device: str) -> dict[str, Any]:
    found = hardware(best_device(device))
    return {
        "seed": SEED,
        "hardware": found,
        "torch": torch.__version__,
        "version": __version__,
        "commit": commit(),
    }


def _written(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    atomic_files.write_text(path, table.to_csv(index=False, float_format="%.4f", lineterminator="\n"))
    return table.reset_index(drop=True)


def calibration(
    data: str,
    *,
    methods: Sequence[str] = ("propall", "cc", "proden"),
    nets: Sequence[str] = ("linear", "mlp"),
    epochs: int = 100,
    corruption: Corruption | None = None,
    root: Path | None = None,
    device: str = "auto",
) -> pd.DataFrame:
    """Expected calibration error of out-of-fold confidences, before and after the temperature, in percent.

    The columns: `accuracy` of the out-of-fold predictions; `before` and `after`, the error of their
    probabilities; `resolved`, the share of rows whose likeliest candidate is true; `resolved_before` and
    `resolved_after`, the error of that candidate's probability among the candidates; `outside`, the share of
    rows whose candidate set holds no truth, and the mean doubt `doubt_before` and `doubt_after`.

    Args:
        data: name of the data set.
        methods: names of methods.
        nets: names of networks.
        epochs: passes over the data, Adam.
        corruption: the law of the candidate sets; None for the data set's own.
        root: folder of the data sets.
        device: where to train.
    """
    source = load(data, root)
    x, truth = source.x.numpy(), source.truth.numpy()
    labels = CandidateLabels(source.candidate_sets(corruption), source.classes)
    folds = list(CandidateStratifiedKFold(FOLDS).split(x, labels))
    lines = []
    for method in methods:
        for net in nets:
            model = PartialLabelClassifier(method, net, epochs=epochs, device=device, random_state=SEED)
            before = resolve_out_of_fold(model, x, labels, cv=folds, calibrate=False)
            tempered = cross_calibrated(before.log_probabilities, before.candidates, folds)
            right = before.column == truth
            line: dict[str, Any] = {
                "data": data,
                "method": method,
                "net": net,
                "accuracy": 100 * (before.log_probabilities.argmax(1) == truth).mean(),
                "resolved": 100 * right.mean(),
                "outside": 100 * (~before.candidates[np.arange(len(truth)), truth]).mean(),
            }
            after = Resolution(tempered, before.candidates, before.classes)
            for when, found in (("before", before), ("after", after)):
                line[when] = 100 * expected_calibration_error(found.probabilities, truth)
                line[f"resolved_{when}"] = 100 * reliability(found.probability, right).error
                line[f"doubt_{when}"] = 100 * found.doubt.mean()
            lines.append(line)
    return pd.DataFrame(lines)


def write_calibration(
    path: Path,
    *,
    methods: Sequence[str] = ("propall", "cc", "proden"),
    epochs: int = 100,
    root: Path | None = None,
    device: str = "auto",
) -> pd.DataFrame:
    """Calibration on digits with drawn candidate sets and on BirdSong's own as a CSV file; returns the table.

    Args:
        path: the file.
        methods: names of methods.
        epochs: passes over the data, Adam.
        root: folder of the data sets.
        device: where to train.
    """
    law = UniformProperSupersets()
    how: dict[str, Any] = {"methods": methods, "epochs": epochs, "root": root, "device": device}
    drawn, published = calibration("digits", corruption=law, **how), calibration("birdsong", **how)
    parts = [drawn.assign(candidates=law.title), published.assign(candidates="as published")]
    protocol = f"out of {FOLDS} folds; each fold's temperature from the candidate sets of the others"
    return _written(pd.concat(parts).assign(protocol=protocol, epochs=epochs, **_origin(device)), path)

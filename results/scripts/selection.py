"""Model selection and calibration from held-out candidate sets, compared with the true labels.

Settings are selected on inner folds of the training rows, without true labels. True labels are used only
afterwards, to look up the test accuracy of each setting. Run it from the repository root to measure both
tables again and write them to results/::

    python results/scripts/selection.py
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
from propall.estimators.calibration import cross_calibrate, expected_calibration_error, reliability
from propall.estimators.classifier import PartialLabelClassifier
from propall.estimators.cross_fitting import CrossFitting
from propall.estimators.folds import CandidateStratifiedKFold
from propall.estimators.resolution import Resolution
from propall.estimators.scorers import CRITERIA, DEFAULT_CRITERION
from propall.estimators.search import PartialLabelClassifierCV, resolve_out_of_fold
from propall.labels.candidates import CandidateLabels
from propall.paper.tables import real
from propall.paper.tables.paper_table import PaperCell
from propall.provenance import commit, hardware
from propall.training.compiled import best_device

#: Data sets that come with candidate sets.
DATA = ("lost", "msrcv2", "birdsong")
#: The grid: 5 methods x 2 networks x 3 learning rates x 2 weight decays, on standardized features.
GRID: Mapping[str, Any] = {
    "methods": ("propall", "cc", "proden", "lws", "ova"),
    "nets": ("linear", ("mlp", {"widths": (128,)})),
    "learning_rates": (0.003, 0.01, 0.03),
    "weight_decays": (1e-4, 1e-2),
}
#: Additional settings on raw features, to test whether a criterion prefers scaled ones.
UNSCALED: Mapping[str, Any] = {**GRID, "learning_rates": (0.01,), "weight_decays": (1e-4,)}
#: Random seed of all training.
SEED = 0
FOLDS, INNER_FOLDS, EPOCHS = 5, 3, 60


@dataclass(frozen=True)
class Study:
    """Criteria and test accuracies of every setting on one data set.

    Attributes:
        settings: a description of each setting.
        criteria: criterion name to (folds, settings) means over the inner folds; NaN if training failed.
        accuracy: (folds, settings) test accuracies after fitting on all training rows.
    """

    settings: list[str]
    criteria: dict[str, NDArray[np.float64]]
    accuracy: NDArray[np.float64]

    @property
    def oracle(self) -> int:
        """Index of the setting with the highest mean test accuracy."""
        return int(self.accuracy.mean(0).argmax())

    def chosen(self, criterion: str) -> NDArray[np.int64]:
        """Return the setting that a criterion selects on each fold."""
        best: NDArray[np.int64] = np.nanargmax(self.criteria[criterion], 1)
        return best

    def joined(self, other: "Study") -> "Study":
        """Return the settings of both studies, which must share data and folds."""
        return Study(
            self.settings + other.settings,
            {name: np.hstack([values, other.criteria[name]]) for name, values in self.criteria.items()},
            np.hstack([self.accuracy, other.accuracy]),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        criteria = {name: values.tolist() for name, values in self.criteria.items()}
        return {"settings": self.settings, "criteria": criteria, "accuracy": self.accuracy.tolist()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Study":
        """Rebuild a study from `to_dict`."""
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
    """Measure criteria and test accuracies of all settings on every fold of the fixed split.

    Args:
        data: name of the data set.
        folds: number of outer folds.
        inner_folds: number of inner folds of the training rows.
        epochs: number of epochs (Adam).
        grid: arguments of `PartialLabelClassifierCV`.
        standardize: whether to standardize the features.
        corruption: how candidate sets are drawn; None for those the data set comes with.
        root: folder of the data sets.
        device: device to train on.
    """
    source = load(data, root)
    scaling: Any = "own" if standardize else None
    problems = [source.fold(i, folds, corruption=corruption, standardize=scaling) for i in range(folds)]
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
    for i, _, fitted, _ in CrossFitting(x, labels, None, [everything]).fit(models):
        accuracy[i] = float((fitted.predict_log_proba(problem.test_x.numpy()).argmax(1) == truth).mean())
    criteria = {name: search.cv_results_[f"mean_test_{name}"] for name in CRITERIA}
    raw = "" if common["standardize"] else ", raw features"
    return [_describe(setting) + raw for setting in settings], criteria, accuracy


def _describe(setting: Mapping[str, Any]) -> str:
    rates = f"rate {setting['learning_rate']:g}, decay {setting['weight_decay']:g}"
    return f"{setting['method']}, {setting['net']}, {rates}"


def compare_criteria(studies: Mapping[str, Study]) -> pd.DataFrame:
    """Tabulate what each criterion selects against the best setting; accuracies in percent.

    Columns: `chosen`, test accuracy of the settings selected fold by fold; `oracle`, test accuracy of the
    setting that is best on average over the test folds; `lost`, the difference; `lost_by_fold`, the loss
    against the best setting of each test fold, which also counts luck; `rank_correlation` between criterion
    and test accuracy over settings; `most_often`, the setting selected on most folds; `paper`, the published
    accuracy of ProPaLL's fixed setting. The last rows are means over the data sets.
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
    """Write the comparison of criteria as CSV with its provenance; returns the table.

    Compares settings on standardized features, then these together with settings on raw features.

    Args:
        path: file to write.
        data: names of data sets.
        studies: results of `measure` with `GRID` and `UNSCALED` by data set; measured where missing.
        epochs: number of epochs (Adam).
        root: folder of the data sets.
        device: device to train on.
    """
    known = dict(studies or {})
    for name in data:
        if name not in known:
            options: dict[str, Any] = {"epochs": epochs, "root": root, "device": device}
            known[name] = (
                measure(name, **options),
                measure(name, grid=UNSCALED, standardize=False, **options),
            )
    scaled = compare_criteria({name: known[name][0] for name in data}).assign(features="standardised")
    both = compare_criteria({name: known[name][0].joined(known[name][1]) for name in data})
    table = pd.concat([scaled, both.assign(features="standardised or raw")])
    table = table.assign(
        default=table["criterion"] == DEFAULT_CRITERION,
        protocol=f"{FOLDS} fixed folds, chosen on {INNER_FOLDS} inner folds of the training rows",
        epochs=epochs,
        **_provenance(device),
    )
    return _write(table, path)


def _provenance(device: str) -> dict[str, Any]:
    return {
        "seed": SEED,
        "hardware": hardware(best_device(device)),
        "torch": torch.__version__,
        "version": __version__,
        "commit": commit(),
    }


def _write(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    atomic_files.write_text(path, table.to_csv(index=False, float_format="%.4f", lineterminator="\n"))
    return table.reset_index(drop=True)


def measure_calibration(
    data: str,
    *,
    methods: Sequence[str] = ("propall", "cc", "proden"),
    nets: Sequence[str] = ("linear", "mlp"),
    epochs: int = 100,
    corruption: Corruption | None = None,
    root: Path | None = None,
    device: str = "auto",
) -> pd.DataFrame:
    """Measure the calibration error of out-of-fold predictions before and after temperature scaling.

    Columns, in percent: `accuracy` of the out-of-fold predictions; `before` and `after`, the expected
    calibration error of their probabilities; `resolved`, the share of rows whose most likely candidate is
    true; `resolved_before` and `resolved_after`, the calibration error of that candidate's probability;
    `outside`, the share of rows whose candidate set lacks the true label; `doubt_before` and `doubt_after`,
    the mean doubt.

    Args:
        data: name of the data set.
        methods: names of methods.
        nets: names of networks.
        epochs: number of epochs (Adam).
        corruption: how candidate sets are drawn; None for those the data set comes with.
        root: folder of the data sets.
        device: device to train on.
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
            tempered = cross_calibrate(before.log_probabilities, before.candidates, folds)
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
            for when, resolution in (("before", before), ("after", after)):
                line[when] = 100 * expected_calibration_error(resolution.probabilities, truth)
                line[f"resolved_{when}"] = 100 * reliability(resolution.probability, right).error
                line[f"doubt_{when}"] = 100 * resolution.doubt.mean()
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
    """Write calibration errors on digits (drawn candidate sets) and BirdSong (its own) as CSV.

    Args:
        path: file to write.
        methods: names of methods.
        epochs: number of epochs (Adam).
        root: folder of the data sets.
        device: device to train on.

    Returns:
        The table.
    """
    corruption = UniformProperSupersets()
    options: dict[str, Any] = {"methods": methods, "epochs": epochs, "root": root, "device": device}
    drawn = measure_calibration("digits", corruption=corruption, **options)
    published = measure_calibration("birdsong", **options)
    parts = [drawn.assign(candidates=corruption.title), published.assign(candidates="as published")]
    protocol = f"out of {FOLDS} folds; each fold's temperature from the candidate sets of the others"
    return _write(pd.concat(parts).assign(protocol=protocol, epochs=epochs, **_provenance(device)), path)


if __name__ == "__main__":
    folder = Path(__file__).resolve().parents[1]
    print(write_selection(folder / "selection.csv").round(2))
    print(write_calibration(folder / "calibration.csv").round(2))

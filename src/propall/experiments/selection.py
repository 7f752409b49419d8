"""How well held-out candidate sets choose: label-free selection against the oracle, on real candidate sets.

Settings are compared on inner folds of the training rows alone; true labels enter only where the settings'
test accuracies are looked up afterwards. To repeat it::

    from propall.experiments import selection
    studies = {name: selection.measure(name) for name in ("lost", "msrcv2", "birdsong")}
    print(selection.comparison(studies).round(2))
    print(selection.calibration("birdsong"))
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from propall.calibration import expected_calibration_error, reliability
from propall.data import Corruption, load
from propall.data.dataset import Problem
from propall.estimators import PartialLabelClassifier
from propall.labels import CandidateLabels
from propall.model_selection import (
    CRITERIA,
    CandidateStratifiedKFold,
    Folds,
    PartialLabelClassifierCV,
    resolve_out_of_fold,
)

#: What is compared: 5 methods x 2 networks x 3 learning rates x 2 weight decays.
GRID: Mapping[str, Any] = {
    "methods": ("propall", "cc", "proden", "lws", "ova"),
    "nets": ("linear", ("mlp", {"widths": (128,)})),
    "learning_rates": (0.003, 0.01, 0.03),
    "weight_decays": (1e-4, 1e-2),
}


@dataclass(frozen=True)
class Study:
    """What every setting reached on one data set.

    Attributes:
        settings: the settings in words.
        criteria: by criterion, (folds, settings) means over the inner folds of the training rows.
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
        best: NDArray[np.int64] = self.criteria[criterion].argmax(1)
        return best

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON knows it."""
        criteria = {name: values.tolist() for name, values in self.criteria.items()}
        return {"settings": self.settings, "criteria": criteria, "accuracy": self.accuracy.tolist()}


def measure(
    data: str,
    *,
    folds: int = 5,
    inner_folds: int = 3,
    epochs: int = 60,
    grid: Mapping[str, Any] = GRID,
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
        corruption: the law of the candidate sets; None for the data set's own.
        root: folder of the data sets.
        device: where to train.
    """
    source = load(data, root)
    problems = [source.fold(i, folds, corruption=corruption) for i in range(folds)]
    measured = [_measure_fold(problem, inner_folds, epochs, grid, device) for problem in problems]
    return Study(
        measured[0][0],
        {name: np.array([criteria[name] for _, criteria, _ in measured]) for name in CRITERIA},
        np.array([accuracy for _, _, accuracy in measured]),
    )


def _measure_fold(
    problem: Problem, inner_folds: int, epochs: int, grid: Mapping[str, Any], device: str
) -> tuple[list[str], dict[str, NDArray[Any]], list[float]]:
    search = PartialLabelClassifierCV(
        **grid, epochs=epochs, cv=inner_folds, refit=False, device=device, random_state=0
    )
    x, labels = problem.train.x.numpy(), CandidateLabels(problem.train.candidates, problem.classes)
    search.fit(x, labels)
    settings = search.cv_results_["params"]
    models = [PartialLabelClassifier(**s, epochs=epochs, device=device, random_state=0) for s in settings]
    everything = (np.arange(len(x)), np.arange(0))
    truth = problem.test_truth.numpy()
    accuracy = [0.0] * len(models)
    for i, _, fitted, _ in Folds(x, labels, None, [everything]).fit(models):
        accuracy[i] = float((fitted.predict_log_proba(problem.test_x.numpy()).argmax(1) == truth).mean())
    criteria = {name: search.cv_results_[f"mean_test_{name}"] for name in CRITERIA}
    return [_in_words(setting) for setting in settings], criteria, accuracy


def _in_words(setting: Mapping[str, Any]) -> str:
    rates = f"rate {setting['learning_rate']:g}, decay {setting['weight_decay']:g}"
    return f"{setting['method']}, {setting['net']}, {rates}"


def comparison(studies: Mapping[str, Study]) -> pd.DataFrame:
    """One line per data set and criterion: what it chose is worth, in percent, and what the best is.

    The columns: `chosen`, test accuracy of the settings that the criterion chose fold by fold; `oracle`, that
    of the setting which is best on average over the test folds; `lost`, the difference; `lost_by_fold`, the
    loss against the best of every test fold, which also counts luck; `rank_correlation` between criterion
    and test accuracy over settings; `most_often`, the setting chosen on most folds.
    """
    lines = []
    for data, study in studies.items():
        accuracy = 100 * study.accuracy
        best = accuracy.mean(0)[study.oracle]
        for criterion in study.criteria:
            chosen = study.chosen(criterion)
            reached = accuracy[np.arange(len(chosen)), chosen].mean()
            lines.append(
                {
                    "data": data,
                    "criterion": criterion,
                    "chosen": reached,
                    "oracle": best,
                    "lost": best - reached,
                    "lost_by_fold": accuracy.max(1).mean() - reached,
                    "rank_correlation": _rank_correlation(study.criteria[criterion], accuracy),
                    "most_often": study.settings[np.bincount(chosen).argmax()],
                }
            )
    return pd.DataFrame(lines)


def _rank_correlation(criterion: NDArray[Any], accuracy: NDArray[Any]) -> float:
    by_fold = [
        pd.Series(a).rank().corr(pd.Series(b).rank()) for a, b in zip(criterion, accuracy, strict=True)
    ]
    return float(np.mean(by_fold))


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
    `resolved_after`, the error of that candidate's probability among the candidates; `outside` and
    `doubt_after`, the share of rows whose candidate set holds no truth and the mean doubt.

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
    lines = []
    for method in methods:
        for net in nets:
            model = PartialLabelClassifier(method, net, epochs=epochs, device=device, random_state=0)
            line: dict[str, Any] = {"data": data, "method": method, "net": net}
            for when, calibrated in (("before", False), ("after", True)):
                found = resolve_out_of_fold(
                    model, x, labels, cv=CandidateStratifiedKFold(5), calibrate=calibrated
                )
                right = found.column == truth
                line["accuracy"] = 100 * (found.log_probabilities.argmax(1) == truth).mean()
                line[when] = 100 * expected_calibration_error(found.probabilities, truth)
                line["resolved"] = 100 * right.mean()
                line[f"resolved_{when}"] = 100 * reliability(found.probability, right).error
                line[f"doubt_{when}"] = 100 * found.doubt.mean()
            line["outside"] = 100 * (~found.candidates[np.arange(len(truth)), truth]).mean()
            lines.append(line)
    return pd.DataFrame(lines)

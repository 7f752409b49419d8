"""Learning curves of the selected setting, on training rows and on held-out rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from propall.data.dataset import PartialDataset
from propall.estimators.folds import CandidateStratifiedKFold
from propall.estimators.scorers import covering_rate
from propall.estimators.search import PartialLabelClassifierCV
from propall.labels.candidates import CandidateLabels
from propall.training.contract import Monitor, Objective, Run, RunScores

#: Number of epochs at which a curve is measured, and maximum number of rows used.
POINTS, MAX_ROWS = 50, 2000


@dataclass
class LearningCurves:
    """Covering rates during training, for several ensemble members.

    Attributes:
        epochs: epochs at which the covering rate was measured.
        covering: (epochs, members) share of rows whose prediction is a candidate, for "trained on" and
            "held out" rows.
    """

    epochs: list[int]
    covering: dict[str, NDArray[np.float64]]

    def as_dict(self) -> dict[str, Any]:
        """Return the curves as JSON values."""
        return {
            "epochs": self.epochs,
            "covering": {name: values.round(4).tolist() for name, values in self.covering.items()},
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Restore curves from JSON values."""
        return cls(values["epochs"], {name: np.array(rates) for name, rates in values["covering"].items()})


def measure_curves(
    search: PartialLabelClassifierCV, X: NDArray[np.float32], labels: CandidateLabels, seed: int
) -> LearningCurves | None:
    """Train the selected setting once more, on all folds but one of the data that the search was fitted on.

    None for methods without a network.
    """
    chosen = search.best_estimator_
    ensemble = chosen.ensemble().adapted_to(chosen.in_shape_)
    if not isinstance(ensemble.method, Objective) or not isinstance(chosen.net, str):
        return None
    mask = labels.to_numpy()
    held_out = CandidateStratifiedKFold(search.n_splits_, random_state=seed).assign(mask, X) == 0
    x, held_out_x = (torch.from_numpy(X[part]).to(ensemble.device) for part in (~held_out, held_out))
    train = PartialDataset(x, torch.from_numpy(mask[~held_out]).to(ensemble.device))
    monitor = _CoveringRates(
        {
            "trained on": (x[:MAX_ROWS], mask[~held_out][:MAX_ROWS]),
            "held out": (held_out_x[:MAX_ROWS], mask[held_out][:MAX_ROWS]),
        },
        chosen.epochs,
    )
    members = min(3, chosen.n_estimators) if X.ndim == 2 else 1
    ensemble.algorithm().fit([Run(train, member) for member in range(members)], monitor=monitor)
    return LearningCurves(monitor.epochs, {name: np.array(rates) for name, rates in monitor.rates.items()})


class _CoveringRates(Monitor):
    """Covering rate of every run on each part of the rows."""

    def __init__(self, parts: Mapping[str, tuple[Tensor, NDArray[np.bool_]]], epochs: int) -> None:
        self.parts = parts
        self.epochs = sorted({int(e) for e in np.linspace(1, epochs, POINTS).round()})
        self.rates: dict[str, list[list[float]]] = {name: [] for name in parts}

    def epoch(self, epoch: int, runs: Sequence[int], losses: Float[Tensor, "r"], scores: RunScores) -> None:
        """Evaluate all runs."""
        if epoch in self.epochs:
            for name, (x, mask) in self.parts.items():
                self.rates[name].append([covering_rate(run, mask) for run in scores(x).cpu().numpy()])

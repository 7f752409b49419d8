"""The table of docs/repeatability.md, measured line by line."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from propall import PartialLabelClassifier
from propall.data.dataset import PartialDataset
from propall.labels.candidates import CandidateLabels
from propall.methods import METHODS
from propall.nets import NETS
from propall.training.checkpoint import Checkpoint
from propall.training.contract import Monitor, Run
from propall.training.recipe import Recipe
from propall.training.trainer import Trainer
from tests.fixtures.candidates import overlapping_clouds

DOCUMENT = Path(__file__).parents[2] / "docs" / "repeatability.md"
ROW = re.compile(r"^\| (.+) \| (exact|\d+ digits) \| (exact|\d+ digits) \|$", re.MULTILINE)
CLAIMS = {
    name: {"float32": short, "float64": long} for name, short, long in ROW.findall(DOCUMENT.read_text())
}
Fit = Callable[..., NDArray[np.floating]]


def fit(method: str, net: str, dtype: str, *, members: int = 1, order: NDArray | None = None) -> NDArray:
    """Scores of the first member on rows in their first order."""
    X, S, _ = overlapping_clouds(300)
    X = X.astype(dtype)
    order = np.arange(len(X)) if order is None else order
    model = PartialLabelClassifier(
        method, net, epochs=30, n_estimators=members, batch_size=64, random_state=0, device="cpu"
    ).fit(X[order], S[order])
    x = torch.as_tensor((X - model.mean_) / model.scale_, dtype=getattr(torch, dtype))
    return model.classifiers_[0].scores(x).numpy()


class Killed(Monitor):
    """Stops training after the third epoch."""

    def epoch(self, epoch, runs, losses, scores):
        if epoch == 3:
            raise KeyboardInterrupt


def resume(method: str, net: str, dtype: str, folder: Path) -> tuple[NDArray, NDArray]:
    X, S, _ = overlapping_clouds(300)
    x = torch.as_tensor(X, dtype=getattr(torch, dtype))
    runs = [Run(PartialDataset(x, CandidateLabels.from_matrix(S).mask), seed) for seed in range(2)]
    recipe = Recipe(epochs=6, batch_size=64, learning_rate=0.01)
    objective, network = METHODS[method](), NETS[net]
    whole = Trainer(objective, network, recipe).fit(runs)
    trainer = Trainer(objective, network, recipe, Checkpoint(folder, seconds=0))
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(runs, monitor=Killed())
    resumed = trainer.fit(runs)
    return whole[1].scores(x).numpy(), resumed[1].scores(x).numpy()


def pair(name: str, method: str, net: str, dtype: str, folder: Path) -> tuple[NDArray, NDArray]:
    """Two results that a line of the table compares."""
    if name == "killed and resumed from a checkpoint":
        return resume(method, net, dtype, folder)
    first = fit(method, net, dtype)
    if name == "1 or 2 threads":
        threads = torch.get_num_threads()
        torch.set_num_threads(2)
        try:
            return first, fit(method, net, dtype)
        finally:
            torch.set_num_threads(threads)
    changes = {
        "the same fit again": {},
        "trained alone or in a stack with others": {"members": 3},
        "rows in another order": {"order": np.random.default_rng(1).permutation(300)},
    }
    return first, fit(method, net, dtype, **changes[name])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("method", "net"), [("propall", "linear"), ("proden", "mlp")])
@pytest.mark.parametrize("name", CLAIMS)
def test_results_repeat_as_documented(name, method, net, dtype, tmp_path):
    one, other = pair(name, method, net, dtype, tmp_path)
    claim = CLAIMS[name][dtype]
    assert np.abs(one).max() > 0.5
    if claim == "exact":
        assert np.array_equal(one, other)
    else:
        deviation = np.abs(one - other).max() / np.abs(one).max()
        assert deviation < 0.5 * 10.0 ** (1 - int(claim.split()[0])) / 10


def test_the_table_is_complete():
    assert len(CLAIMS) == 5

"""Small generated data sets under the names of the published ones, and results that cost nothing."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat
from scipy.sparse import csc_matrix

from propall.experiments.running import Result
from propall.experiments.spec import Spec, Split
from propall.methods.propall import ProPaLL
from propall.training.recipe import Recipe


def write_mat(
    root: Path, name: str, *, n: int = 60, d: int = 6, k: int = 4, seed: int = 0, sparse: bool = False
) -> None:
    """A file in the published layout: features in rows, label matrices with a column per instance."""
    kind = csc_matrix if sparse else np.asarray
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % k
    centres = 3 * rng.normal(size=(k, d))
    target = np.eye(k)[truth].T
    extra = np.eye(k)[(truth + rng.integers(1, k, n)) % k].T * (rng.random(n) < 0.7)
    folder = root / "realworld"
    folder.mkdir(exist_ok=True)
    savemat(
        folder / f"{name}.mat",
        {
            "data": centres[truth] + rng.normal(size=(n, d)),
            "target": kind(target),
            "partial_target": kind(np.maximum(target, extra)),
        },
    )


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of data sets with three small tables; soccer_player and yahoo_news are not there."""
    folder = tmp_path / "data"
    folder.mkdir()
    for seed, name in enumerate(("lost", "msrcv2", "birdsong")):
        write_mat(folder, name, seed=seed)
    monkeypatch.setenv("PROPALL_DATA", str(folder))
    return folder


@pytest.fixture
def result() -> Callable[..., Result]:
    """Makes a result out of nothing."""

    def make(seed: int = 0, accuracy: float = 0.5, when: str = "2024-01-01T00:00:00+00:00") -> Result:
        spec = Spec("lost", ProPaLL(), "linear", Recipe(epochs=3), split=Split(fold=1), seed=seed)
        return Result(
            spec,
            accuracy,
            accuracy,
            0.75,
            0.5,
            2.25,
            1.5,
            curve={1: 0.25, 3: accuracy},
            confusions={3: [[1, 2], [3, 4]]},
            recalls={3: [0.25, 1.0]},
            times={1: 0.5, 3: 1.5},
            commit="abc",
            hardware="a machine",
            when=when,
        )

    return make

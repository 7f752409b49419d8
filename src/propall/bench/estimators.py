"""The estimator against scikit-learn's on one core, and ten stacked runs against sequential ones."""

import os
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from propall.bench.results import BenchmarkResult, describe_machine
from propall.bench.timing import thread_limit, time_in_turn
from propall.data import load
from propall.data.dataset import PartialDataset, standardized
from propall.data.files import MissingDataError
from propall.estimators.classifier import PartialLabelClassifier
from propall.methods.propall import ProPaLL
from propall.nets import NETS
from propall.training.contract import Run
from propall.training.recipe import Recipe
from propall.training.trainer import Trainer

OURS = "PartialLabelClassifier"
STACKED, SEQUENTIAL = "stacked", "one after another"
RUNS = 10
#: Batch sizes: the paper's on Lost, which has a target, and a larger one, which leaves less to gain.
STACKED_BATCHES = (100, 256)
#: Hidden layers and batch size: the defaults of this library and of scikit-learn.
NETWORKS = (((256,), 256), ((100,), 200))


class LabeledData(NamedTuple):
    """Rows, true classes and candidate sets."""

    name: str
    x: NDArray[np.float32]
    truth: NDArray[np.int64]
    candidates: NDArray[np.bool_]

    @property
    def size(self) -> str:
        """Name and size, in words."""
        n, d = self.x.shape
        return f"{self.name} {n} x {d}, {self.candidates.shape[1]} classes"


def benchmark_estimators(
    device: torch.device, *, quick: bool = False, report: Callable[[str], None] = print
) -> BenchmarkResult:
    """Time the same work on both sides: rows, epochs, layers, batches, float32, one thread."""
    if device.type != "cpu":
        raise ValueError(f"device: got {device}; this benchmark runs on a CPU. Use --device cpu.")
    epochs, repeats = (2, 2) if quick else (10, 9)
    with thread_limit(1):
        title = "The estimator against scikit-learn's, one thread each"
        result = BenchmarkResult("cpu", title, "ms", describe_machine(device))
        result.notes = [
            f"Time of fit: {epochs} epochs, the same rows, layers and batches, float32; interleaved.",
            "SGDClassifier takes one row at a time, PartialLabelClassifier(net='linear') 256; both train for "
            f"{epochs} epochs. scikit-learn's estimators get the true labels, ours candidate sets.",
            "Stacked and sequential runs have one thread per core.",
            "cpu ratio: ratio of CPU times, which other processes affect less than wall-clock times.",
        ]
        for data in _data_sets(quick):
            _compare_with_scikit_learn(result, data, epochs, repeats, report)
    with thread_limit(os.cpu_count() or 1):
        for batch in STACKED_BATCHES:
            _compare_stacked(result, batch, quick=quick, repeats=repeats, report=report)
    return result


def _data_sets(quick: bool) -> list[LabeledData]:
    digits = load("digits")
    x = digits.raw.float().div(16).numpy()
    real = LabeledData("Digits", x, digits.truth.numpy(), _ambiguous(digits.truth.numpy(), 10))
    return [real] if quick else [real, _lost(quick), _generated("Generated", 10_000, 100, 10)]


def _lost(quick: bool) -> LabeledData:
    try:
        source = load("lost")
    except MissingDataError:
        return _generated("Lost-sized", 120 if quick else 1122, 108, 16)
    assert source.candidates is not None
    (x,) = standardized(source.raw)
    return LabeledData("Lost", x.numpy(), source.truth.numpy(), source.candidates.numpy())


def _generated(name: str, n: int, d: int, k: int) -> LabeledData:
    random = np.random.default_rng(0)
    x = random.standard_normal((n, d), dtype=np.float32)
    truth = (x @ random.standard_normal((d, k), dtype=np.float32)).argmax(1)
    return LabeledData(name, x, truth, _ambiguous(truth, k))


def _ambiguous(truth: NDArray[np.int64], k: int) -> NDArray[np.bool_]:
    candidates: NDArray[np.bool_] = np.random.default_rng(1).random((len(truth), k)) < 0.1
    candidates[np.arange(len(truth)), truth] = True
    return candidates


def _compare_with_scikit_learn(
    result: BenchmarkResult, data: LabeledData, epochs: int, repeats: int, report: Callable[[str], None]
) -> None:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import SGDClassifier
    from sklearn.neural_network import MLPClassifier

    pairs: list[tuple[str, Any, Any]] = [
        (
            "linear",
            SGDClassifier(loss="log_loss", max_iter=epochs, tol=None, random_state=0),
            PartialLabelClassifier(net="linear", epochs=epochs, random_state=0, device="cpu"),
        )
    ]
    for widths, batch in NETWORKS:
        theirs = MLPClassifier(
            widths,
            batch_size=min(batch, len(data.x)),
            max_iter=epochs,
            tol=0.0,
            n_iter_no_change=epochs + 1,
            random_state=0,
        )
        ours = PartialLabelClassifier(
            net="mlp",
            net_options={"widths": widths},
            batch_size=batch,
            epochs=epochs,
            learning_rate=theirs.learning_rate_init,
            random_state=0,
            device="cpu",
        )
        pairs.append((f"mlp {widths[0]}, batch {batch}", theirs, ours))
    for name, theirs, ours in pairs:
        case, peer = f"{name}: {data.size}", type(theirs).__name__
        report(f"cpu: {case}")
        fits = {
            peer: lambda theirs=theirs: theirs.fit(data.x, data.truth),
            OURS: lambda ours=ours: ours.fit(data.x, data.candidates),
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # it is meant to stop after a few epochs
            times = time_in_turn(fits, repeats)
        for subject, model in ((peer, theirs), (OURS, ours)):
            predicted = np.asarray(model.predict(data.x))
            wall = [1e3 * s for s in times[subject].wall]
            extra: dict[str, Any] = {"accuracy": float((predicted == data.truth).mean())}
            if subject == OURS:
                pairwise = [a / b for a, b in zip(times[OURS].wall, times[peer].wall, strict=True)]
                cpu = np.median(times[OURS].cpu) / np.median(times[peer].cpu)
                extra |= {"ratio_least": min(pairwise), "ratio_most": max(pairwise), "cpu_ratio": float(cpu)}
            baseline = "" if subject == peer else peer
            measurement = result.add(case, subject, wall, baseline=baseline, **extra)
        result.add_target(f"time over {peer}'s, {case}", measurement.ratio, maximum=1.0)


def _compare_stacked(
    result: BenchmarkResult, batch: int, *, quick: bool, repeats: int, report: Callable[[str], None]
) -> None:
    data, epochs = _lost(quick), 2 if quick else 20
    case = f"{RUNS} linear runs of {epochs} epochs, batch {batch}: {data.size}"
    report(f"cpu: {case}")
    train = PartialDataset(torch.from_numpy(data.x), torch.from_numpy(data.candidates))
    recipe = Recipe(epochs=epochs, batch_size=batch, last_batch="keep")
    trainer = Trainer(ProPaLL(), NETS["linear"], recipe)
    runs = [Run(train, seed) for seed in range(RUNS)]
    fits = {SEQUENTIAL: lambda: [trainer.fit([run]) for run in runs], STACKED: lambda: trainer.fit(runs)}
    times = time_in_turn(fits, repeats)
    for subject in (SEQUENTIAL, STACKED):
        baseline = "" if subject == SEQUENTIAL else SEQUENTIAL
        cpu = float(np.median(times[subject].cpu) / np.median(times[SEQUENTIAL].cpu))
        wall = [1e3 * s for s in times[subject].wall]
        measurement = result.add(case, subject, wall, baseline=baseline, cpu_ratio=cpu)
    assert measurement.ratio is not None
    if batch == STACKED_BATCHES[0]:
        result.add_target(f"speedup of stacking, {case}", 1 / measurement.ratio, minimum=3.0)

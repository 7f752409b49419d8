"""The estimator on one core against scikit-learn's own, and ten runs stacked against one after another."""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from propall.bench.clock import in_turn, threads
from propall.bench.sheet import Sheet, Target, machine
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
STACKED, ONE_BY_ONE = "stacked", "one after another"
RUNS = 10
#: Rows of a batch: the paper's on Lost, which is aimed at, and larger ones, which leave less to gain.
STACKED_BATCHES = (100, 256)
#: Hidden layers and batch: this library's defaults, and scikit-learn's.
NETWORKS = (((256,), 256), ((100,), 200))


class Table(NamedTuple):
    """Rows, true classes and candidate sets."""

    name: str
    x: NDArray[np.float32]
    truth: NDArray[np.int64]
    candidates: NDArray[np.bool_]

    @property
    def size(self) -> str:
        """Its name and size, in words."""
        n, d = self.x.shape
        return f"{self.name} {n} x {d}, {self.candidates.shape[1]} classes"


def run(device: torch.device, *, quick: bool = False, note: Callable[[str], None] = print) -> Sheet:
    """The same work on both sides: rows, passes, layers, batches, float32, one thread.

    Args:
        device: a CPU.
        quick: few rows and repeats.
        note: is told what is going on.
    """
    if device.type != "cpu":
        raise ValueError(f"device: {device} given; this benchmark compares on a CPU. Use --device cpu.")
    epochs, repeats = (2, 2) if quick else (10, 9)
    with threads(1):
        sheet = Sheet("cpu", "The estimator against scikit-learn's, one thread each", "ms", machine(device))
        sheet.notes = [
            f"Time of fit: {epochs} epochs, the same rows, layers and batches, float32; turn by turn.",
            "SGDClassifier takes one row at a time, PartialLabelClassifier(net='linear') 256; both go "
            f"{epochs} times over the rows. Theirs get the true labels, ours candidate sets.",
            "Stacked runs, and those one after another, have a thread per core.",
            "cpu: the ratio of processor times, which other processes disturb less than the clock's.",
        ]
        for table in _tables(quick):
            _against_scikit_learn(sheet, table, epochs, repeats, note)
    with threads(os.cpu_count() or 1):
        for batch in STACKED_BATCHES:
            _stacked(sheet, _lost(quick), batch, 2 if quick else 20, repeats, note)
    return sheet


def _tables(quick: bool) -> list[Table]:
    digits = load("digits")
    x = digits.raw.float().div(16).numpy()
    real = Table("Digits", x, digits.truth.numpy(), _ambiguous(digits.truth.numpy(), 10))
    return [real] if quick else [real, _lost(quick), _generated("Generated", 10_000, 100, 10)]


def _lost(quick: bool) -> Table:
    try:
        source = load("lost")
    except MissingDataError:
        return _generated("Lost-sized", 120 if quick else 1122, 108, 16)
    assert source.candidates is not None
    (x,) = standardized(source.raw)
    return Table("Lost", x.numpy(), source.truth.numpy(), source.candidates.numpy())


def _generated(name: str, n: int, d: int, k: int) -> Table:
    random = np.random.default_rng(0)
    x = random.standard_normal((n, d), dtype=np.float32)
    truth = (x @ random.standard_normal((d, k), dtype=np.float32)).argmax(1)
    return Table(name, x, truth, _ambiguous(truth, k))


def _ambiguous(truth: NDArray[np.int64], k: int) -> NDArray[np.bool_]:
    candidates: NDArray[np.bool_] = np.random.default_rng(1).random((len(truth), k)) < 0.1
    candidates[np.arange(len(truth)), truth] = True
    return candidates


def _against_scikit_learn(
    sheet: Sheet, table: Table, epochs: int, repeats: int, note: Callable[[str], None]
) -> None:
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
            batch_size=min(batch, len(table.x)),
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
        case, peer = f"{name}: {table.size}", type(theirs).__name__
        note(f"cpu: {case}")
        works = {
            peer: lambda theirs=theirs: _quietly(lambda: theirs.fit(table.x, table.truth)),
            OURS: lambda ours=ours: ours.fit(table.x, table.candidates),
        }
        times = in_turn(works, repeats)
        for what, model in ((peer, theirs), (OURS, ours)):
            predicted = np.asarray(model.predict(table.x))
            wall = [1e3 * s for s in times[what].wall]
            more: dict[str, Any] = {"accuracy": float((predicted == table.truth).mean())}
            if what == OURS:
                pairwise = [a / b for a, b in zip(times[OURS].wall, times[peer].wall, strict=True)]
                cpu = np.median(times[OURS].cpu) / np.median(times[peer].cpu)
                more |= {"ratio_least": min(pairwise), "ratio_most": max(pairwise), "cpu_ratio": float(cpu)}
            line = sheet.add(case, what, wall, beside="" if what == peer else peer, **more)
        assert line.ratio is not None
        sheet.targets.append(Target(f"time over {peer}'s, {case}", line.ratio, most=1.0))


def _quietly(fit: Callable[[], object]) -> None:
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a few epochs are all that is wanted
        fit()


def _stacked(
    sheet: Sheet, table: Table, batch: int, epochs: int, repeats: int, note: Callable[[str], None]
) -> None:
    case = f"{RUNS} linear runs of {epochs} epochs, batch {batch}: {table.size}"
    note(f"cpu: {case}")
    train = PartialDataset(torch.from_numpy(table.x), torch.from_numpy(table.candidates))
    recipe = Recipe(epochs=epochs, batch_size=batch, last_batch="keep")
    trainer = Trainer(ProPaLL(), NETS["linear"], recipe)
    runs = [Run(train, seed) for seed in range(RUNS)]
    times = in_turn(
        {ONE_BY_ONE: lambda: [trainer.fit([one]) for one in runs], STACKED: lambda: trainer.fit(runs)},
        repeats,
    )
    for what in (ONE_BY_ONE, STACKED):
        beside = "" if what == ONE_BY_ONE else ONE_BY_ONE
        cpu = float(np.median(times[what].cpu) / np.median(times[ONE_BY_ONE].cpu))
        line = sheet.add(case, what, [1e3 * s for s in times[what].wall], beside=beside, cpu_ratio=cpu)
    assert line.ratio is not None
    if batch == STACKED_BATCHES[0]:
        sheet.targets.append(Target(f"times faster stacked, {case}", 1 / line.ratio, least=3.0))

"""Training MLP-5: one run, many runs at once, and the same step in plain PyTorch."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import one_hot

from propall.bench.clock import wait
from propall.bench.peers import Epoch, eager_epochs
from propall.bench.sheet import Line, Sheet, Target, machine
from propall.data.dataset import PartialDataset
from propall.methods.cc import CC
from propall.methods.proden import PRODEN
from propall.methods.propall import ProPaLL
from propall.nets import NETS
from propall.training.compiled import matrix_precision
from propall.training.contract import NetFactory, Objective, Run
from propall.training.metrics import History
from propall.training.recipe import Precision, Recipe
from propall.training.trainer import Trainer

EAGER = "plain eager PyTorch, 1 run"
#: What short trainings do on a GPU: compiling would take longer than it saves.
AS_IT_IS = "captured without compiling"


@dataclass(frozen=True)
class Size:
    """How much is trained.

    Attributes:
        rows: training rows.
        test_rows: rows that are scored after every epoch.
        features: of a row.
        mixed: runs of each of the five settings that are stacked.
        alike: ProPaLL runs that are stacked.
        epochs: that are timed; one more comes before them.
    """

    rows: int
    test_rows: int
    features: int
    mixed: int
    alike: int
    epochs: int


GPU = Size(60_000, 10_000, 784, mixed=9, alike=100, epochs=5)
CPU = Size(6_000, 1_000, 784, mixed=2, alike=10, epochs=3)
QUICK = Size(512, 128, 16, mixed=1, alike=2, epochs=1)
CLASSES = 10
#: Milliseconds that are aimed at on a GPU: a step of one run, or a run's epoch of so many.
GOALS = {1: 0.2, 45: 5.0, 100: 4.0}


class Stopwatch(History):
    """A history that also notes how long each epoch took, with its evaluation and without."""

    def __init__(self, x: Float[Tensor, "n ..."], truth: Tensor) -> None:
        super().__init__(x, truth)
        self.laps: list[Epoch] = []
        self._last = time.perf_counter()

    def begin(self, epochs: int, runs: Sequence[int], done: int) -> None:
        """Start."""
        super().begin(epochs, runs, done)
        wait(self.x.device)
        self._last = time.perf_counter()

    def epoch(
        self,
        epoch: int,
        runs: Sequence[int],
        losses: Float[Tensor, "r"],
        scores: Callable[[Tensor], Float[Tensor, "r n k"]],
    ) -> None:
        """Evaluate, and stop the time before and after."""
        wait(self.x.device)
        trained = time.perf_counter()
        super().epoch(epoch, runs, losses, scores)
        wait(self.x.device)
        now = time.perf_counter()
        self.laps.append(Epoch(trained - self._last, now - self._last))
        self._last = now


def run(device: torch.device, *, quick: bool = False, note: Callable[[str], None] = print) -> Sheet:
    """Milliseconds per step, and per run and epoch.

    Args:
        device: where.
        quick: few rows, few runs.
        note: is told what is going on.
    """
    cuda = device.type == "cuda"
    size = QUICK if quick else GPU if cuda else CPU
    precision: Precision = "tf32" if cuda else "float32"
    recipe = Recipe(epochs=size.epochs + 1, batch_size=256, learning_rate=0.05, precision=precision)
    sheet = Sheet(
        "train", f"Training MLP-5 on {size.rows} x {size.features}, batch 256", "ms", machine(device)
    )
    sheet.notes = [
        "Values are milliseconds per step of all runs together, the first epoch left out; per run and epoch "
        f"the evaluation of {size.test_rows} rows after every epoch is part of it.",
        f"Matrix products in {precision} everywhere, the peer included; SGD with momentum.",
        "prepared: seconds of the first epoch, in which the step is compiled, if not said otherwise, and "
        "captured."
        if cuda
        else "Steps are neither compiled nor captured on a CPU.",
    ]
    x, test_x = (
        _images(rows, size.features, device, seed) for seed, rows in enumerate((size.rows, size.test_rows))
    )
    truth, test_truth = (_classes(len(rows), device) for rows in (x, test_x))
    clean = PartialDataset(x, one_hot(truth, CLASSES).bool())
    candidates = clean.candidates | (torch.rand(len(x), CLASSES, device=device) < 0.3)
    partial = PartialDataset(x, candidates)
    steps = len(recipe.batch_sizes(len(x)))
    net: NetFactory = NETS["mlp5"]
    case = f"{len(x)} rows, {steps} steps an epoch"

    note(f"train: {EAGER}")
    with matrix_precision(recipe):
        test = (test_x, test_truth)
        module = net((size.features,), CLASSES).to(device)
        laps = list(
            eager_epochs(module, x, candidates, test=test, epochs=recipe.epochs, batch_size=recipe.batch_size)
        )
    _add(sheet, case, EAGER, laps, steps, runs=1)

    settings: list[tuple[Objective, PartialDataset]] = [
        (ProPaLL(), partial),
        (ProPaLL(noise=0.0), partial),
        (CC(), partial),
        (PRODEN(), partial),
        (CC(), clean),
    ]
    mixed = [
        Run(data, seed, objective=objective) for objective, data in settings for seed in range(size.mixed)
    ]
    fast = True if cuda else None
    stacks = [
        ("1 run of ProPaLL", [Run(partial, 0)], fast),
        (f"{len(mixed)} runs of five settings", mixed, fast),
        (f"{size.alike} runs of ProPaLL", [Run(partial, seed) for seed in range(size.alike)], fast),
    ]
    if cuda:
        stacks += [(f"{what}, {AS_IT_IS}", runs, None) for what, runs, _ in stacks[:2]]
    for what, runs, fast in stacks:
        note(f"train: {what}")
        watch = Stopwatch(test_x, test_truth)
        Trainer(ProPaLL(), net, recipe, fast=fast, stack=len(runs)).fit(runs, monitor=watch)
        line = _add(sheet, case, what, watch.laps, steps, runs=len(runs))
        note(f"train: {line.value.median:.3g} ms a step")
        if fast and not quick:
            step = len(runs) == 1
            found = line.value.median if step else line.more["per_run_and_epoch"]
            claim = f"ms per {'step' if step else 'run and epoch with evaluation'}, {what}"
            sheet.targets.append(Target(claim, found, most=GOALS[len(runs)]))
    return sheet


def _add(sheet: Sheet, case: str, what: str, laps: list[Epoch], steps: int, *, runs: int) -> Line:
    timed = laps[1:]
    per_run = sorted(1e3 * lap.all / runs for lap in timed)[len(timed) // 2]
    eager = sheet.line(case, EAGER).more["per_run_and_epoch"] if sheet.lines else per_run
    return sheet.add(
        case,
        what,
        [1e3 * lap.training / steps for lap in timed],
        beside=EAGER if sheet.lines else "",
        runs=runs,
        per_run_and_epoch=per_run,
        times_faster_per_run=eager / per_run,
        prepared=laps[0].all,
    )


def _images(n: int, features: int, device: torch.device, seed: int) -> Tensor:
    return torch.rand(n, features, generator=torch.Generator(device).manual_seed(seed), device=device)


def _classes(n: int, device: torch.device) -> Tensor:
    return torch.arange(n, device=device) % CLASSES

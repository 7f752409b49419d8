"""Training MLP-5: one run, many stacked runs, and the same step in plain PyTorch."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import one_hot

from propall.bench.peers import EpochTime, eager_epochs
from propall.bench.results import BenchmarkResult, Measurement, describe_machine
from propall.data.dataset import PartialDataset
from propall.methods.cc import CC
from propall.methods.proden import PRODEN
from propall.methods.propall import ProPaLL
from propall.nets import NETS
from propall.training.compiled import matrix_precision, synchronize
from propall.training.contract import NetFactory, Objective, Run, RunScores
from propall.training.metrics import History
from propall.training.recipe import Precision, Recipe
from propall.training.trainer import Trainer

EAGER = "plain eager PyTorch, 1 run"
#: The default for short training on a GPU: compiling would take longer than it saves.
CAPTURED = "captured without compiling"


@dataclass(frozen=True)
class TrainingSize:
    """Size of the training benchmark."""

    rows: int
    test_rows: int  # scored after every epoch
    features: int
    mixed: int  # stacked runs of each of the five settings
    alike: int  # stacked ProPaLL runs
    epochs: int  # after a first one that is not timed


GPU = TrainingSize(60_000, 10_000, 784, mixed=9, alike=100, epochs=5)
CPU = TrainingSize(6_000, 1_000, 784, mixed=2, alike=10, epochs=3)
QUICK = TrainingSize(512, 128, 16, mixed=1, alike=2, epochs=1)
CLASSES = 10
#: Targets on a GPU by number of runs: milliseconds per step of one run, or per run and epoch of a stack.
MAXIMUM_MS = {1: 0.2, 45: 5.0, 100: 4.0}


class Stopwatch(History):
    """A history that also records the time of each epoch, with and without its evaluation."""

    def __init__(self, x: Float[Tensor, "n ..."], truth: Tensor) -> None:
        super().__init__(x, truth)
        self.times: list[EpochTime] = []
        self._last = time.perf_counter()

    def begin(self, epochs: int, runs: Sequence[int], done: int) -> None:
        """Start the clock."""
        super().begin(epochs, runs, done)
        synchronize(self.x.device)
        self._last = time.perf_counter()

    def epoch(self, epoch: int, runs: Sequence[int], losses: Float[Tensor, "r"], scores: RunScores) -> None:
        """Evaluate, and record the time before and after."""
        synchronize(self.x.device)
        trained = time.perf_counter()
        super().epoch(epoch, runs, losses, scores)
        synchronize(self.x.device)
        now = time.perf_counter()
        self.times.append(EpochTime(trained - self._last, now - self._last))
        self._last = now


def benchmark_training(
    device: torch.device, *, quick: bool = False, report: Callable[[str], None] = print
) -> BenchmarkResult:
    """Time training per step, and per run and epoch."""
    cuda = device.type == "cuda"
    size = QUICK if quick else GPU if cuda else CPU
    precision: Precision = "tf32" if cuda else "float32"
    recipe = Recipe(epochs=size.epochs + 1, batch_size=256, learning_rate=0.05, precision=precision)
    title = f"Training MLP-5 on {size.rows} x {size.features}, batch 256"
    result = BenchmarkResult("train", title, "ms", describe_machine(device))
    result.notes = [
        "Milliseconds per step of all runs together, the first epoch excluded; times per run and epoch "
        f"include the evaluation of {size.test_rows} rows after every epoch.",
        f"Matrix products in {precision} everywhere, including the baseline; SGD with momentum.",
        "prepared: seconds of the first epoch, in which the step is captured and, unless stated otherwise, "
        "compiled."
        if cuda
        else "On a CPU, steps are neither compiled nor captured.",
    ]
    x, test_x = (
        torch.rand(n, size.features, generator=torch.Generator(device).manual_seed(seed), device=device)
        for seed, n in enumerate((size.rows, size.test_rows))
    )
    truth, test_truth = (torch.arange(len(rows), device=device) % CLASSES for rows in (x, test_x))
    clean = PartialDataset(x, one_hot(truth, CLASSES).bool())
    candidates = clean.candidates | (torch.rand(len(x), CLASSES, device=device) < 0.3)
    partial = PartialDataset(x, candidates)
    steps = len(recipe.batch_sizes(len(x)))
    net: NetFactory = NETS["mlp5"]
    case = f"{len(x)} rows, {steps} steps per epoch"

    report(f"train: {EAGER}")
    with matrix_precision(recipe):
        module, test = net((size.features,), CLASSES).to(device), (test_x, test_truth)
        times = list(eager_epochs(module, x, candidates, recipe, test=test))
    _add(result, case, EAGER, times, steps, runs=1)

    settings: list[tuple[Objective, PartialDataset]] = [
        (ProPaLL(), partial),
        (ProPaLL(noise=0.0), partial),
        (CC(), partial),
        (PRODEN(), partial),
        (CC(), clean),
    ]
    mixed = [Run(data, seed, objective=method) for method, data in settings for seed in range(size.mixed)]
    fast = True if cuda else None
    stacks = [
        ("1 run of ProPaLL", [Run(partial, 0)], fast),
        (f"{len(mixed)} runs of five settings", mixed, fast),
        (f"{size.alike} runs of ProPaLL", [Run(partial, seed) for seed in range(size.alike)], fast),
    ]
    if cuda:
        stacks += [(f"{subject}, {CAPTURED}", runs, None) for subject, runs, _ in stacks[:2]]
    for subject, runs, fast in stacks:
        report(f"train: {subject}")
        watch = Stopwatch(test_x, test_truth)
        Trainer(ProPaLL(), net, recipe, fast=fast, stack=len(runs)).fit(runs, monitor=watch)
        measurement = _add(result, case, subject, watch.times, steps, runs=len(runs))
        report(f"train: {measurement.value.median:.3g} ms per step")
        if fast and not quick:
            single = len(runs) == 1
            ms = measurement.value.median if single else measurement.extra["per_run_and_epoch"]
            claim = f"ms per {'step' if single else 'run and epoch with evaluation'}, {subject}"
            result.add_target(claim, ms, maximum=MAXIMUM_MS[len(runs)])
    return result


def _add(
    result: BenchmarkResult, case: str, subject: str, times: list[EpochTime], steps: int, *, runs: int
) -> Measurement:
    timed = times[1:]
    per_run = sorted(1e3 * epoch.total / runs for epoch in timed)[len(timed) // 2]
    first = not result.measurements
    eager = per_run if first else result.find(case, EAGER).extra["per_run_and_epoch"]
    return result.add(
        case,
        subject,
        [1e3 * epoch.training / steps for epoch in timed],
        baseline="" if first else EAGER,
        runs=runs,
        per_run_and_epoch=per_run,
        times_faster_per_run=eager / per_run,
        prepared=times[0].total,
    )

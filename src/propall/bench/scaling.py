"""Growth of time and memory with the number of rows and classes."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from propall import kernels
from propall.bench.results import BenchmarkResult, describe_machine
from propall.bench.timing import time_in_turn, time_on_device
from propall.data.dataset import PartialDataset
from propall.methods.propall import ProPaLL, propall_loss
from propall.nets import NETS
from propall.training.compiled import synchronize
from propall.training.contract import Run
from propall.training.recipe import Recipe
from propall.training.trainer import Trainer

MEGABYTE = 1e6
#: Memory that a fit may take in addition to one copy of the features and candidates.
SLACK = 128 * MEGABYTE
FEATURES = CLASSES = 100
ROWS, QUICK_ROWS = 1_000_000, 100_000
#: Batch size, and its multiple on a GPU, where small batches would measure launches instead of growth.
BATCH, WIDER = 256, 8


def slope(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Slope of a straight line through the logarithms; 1 where time is proportional to size."""
    logs = np.log(np.asarray(sizes, dtype=float)), np.log(np.asarray(seconds, dtype=float))
    return float(np.polyfit(*logs, 1)[0])


def benchmark_scaling(
    device: torch.device,
    *,
    quick: bool = False,
    rows: int | None = None,
    report: Callable[[str], None] = print,
) -> BenchmarkResult:
    """Measure how time grows with n and k, and, on the CPU, the memory of a fit of `rows` rows."""
    title = "Growth of time and memory with rows and classes"
    result = BenchmarkResult("scale", title, "ms", describe_machine(device))
    result.notes = [
        "Slopes: least squares through the logarithms of the medians; 1 is linear.",
        f"Training: a fit of one epoch, a linear net on {FEATURES} features, batches of {BATCH}; on a GPU, "
        f"against k, of {WIDER * BATCH}.",
        "Memory of a fit: growth of the peak resident size, in a separate process that held only the data "
        "before.",
    ]
    # Larger than every cache, and large enough to make launches and the setup of a fit negligible.
    large = 1 if quick else 128
    powers = (1, 2, 4) if quick else (1, 2, 4, 8)
    rows_of_loss = [1024 * large * p * (4 if device.type == "cuda" else 1) for p in powers]
    classes_of_loss = [100 * large * p for p in powers]
    seconds = 0.1 if quick else 0.5
    grow = partial(_measure_growth, result, report)
    grow("loss, k = 100", "n", rows_of_loss, lambda n: _time_loss(n, 100, device, seconds))
    grow("loss, n = 1024", "k", classes_of_loss, lambda k: _time_loss(1024, k, device, seconds))
    wider = WIDER if device.type == "cuda" else 1
    rows_of_fit = [512 * large * p * wider for p in powers]
    classes_of_fit = [16 * large * p for p in powers]
    rows_of_classes = (BATCH if quick else 32 * BATCH) * wider
    grow("training, k = 10", "n", rows_of_fit, lambda n: _time_epoch(n, 10, BATCH, device))
    n, batch = rows_of_classes, wider * BATCH
    grow(f"training, n = {n}", "k", classes_of_fit, lambda k: _time_epoch(n, k, batch, device))
    _measure_fit_memory(result, rows or (QUICK_ROWS if quick else ROWS), report)
    if device.type == "cuda":
        _measure_loss_memory(result, 64 if quick else 1024, 100_000, device, report)
    return result


def _measure_growth(
    result: BenchmarkResult,
    report: Callable[[str], None],
    case: str,
    varied: str,
    sizes: Sequence[int],
    time: Callable[[int], list[float]],
) -> None:
    """Time every size of `varied`, with a target for the slope; `time` returns samples in seconds."""
    medians = []
    for size in sizes:
        report(f"scale: {case}, {varied} = {size}")
        measurement = result.add(case, f"{varied} = {size}", [1e3 * s for s in time(size)])
        medians.append(measurement.value.median)
    claim = f"slope of time against {varied}, {case}"
    result.add_target(claim, slope(sizes, medians), minimum=0.9, maximum=1.1)


def _time_loss(n: int, k: int, device: torch.device, seconds: float) -> list[float]:
    logits = torch.randn(n, k, device=device).requires_grad_()
    candidates = torch.rand(n, k, device=device) < 0.1
    candidates[:, 0] = True

    def gradient(_: int) -> object:
        return torch.autograd.grad(propall_loss(logits, candidates).mean(), logits)

    return time_on_device(gradient, 1, device, seconds=seconds)


def _time_epoch(n: int, k: int, batch_size: int, device: torch.device) -> list[float]:
    candidates = torch.rand(n, k, device=device) < 0.1
    candidates[:, 0] = True
    runs = [Run(PartialDataset(torch.randn(n, FEATURES, device=device), candidates), 0)]
    trainer = Trainer(ProPaLL(), NETS["linear"], Recipe(epochs=1, batch_size=batch_size))

    def fit() -> None:
        trainer.fit(runs)
        synchronize(device)

    return time_in_turn({"": fit}, 3)[""].wall


def _measure_fit_memory(result: BenchmarkResult, rows: int, report: Callable[[str], None]) -> None:
    case = f"fit of {rows} x {FEATURES}, k = {CLASSES}"
    report(f"scale: memory, {case}")
    command = f"from propall.bench.scaling import print_fit_memory; print_fit_memory({rows})"
    child = subprocess.run([sys.executable, "-c", command], check=True, capture_output=True, text=True)
    fitted = json.loads(child.stdout.splitlines()[-1])
    copies = fitted["features"] + fitted["candidates"]
    data = "features and candidates"
    result.add(case, data, [copies / MEGABYTE], unit="MB")
    grown, seconds = fitted["grown"] / MEGABYTE, fitted["seconds"]
    result.add(case, "additional peak memory", [grown], unit="MB", baseline=data, seconds=seconds)
    claim = f"MB in addition to the data, {case} (a copy of each and {SLACK / MEGABYTE:.0f} MB)"
    result.add_target(claim, grown, maximum=(copies + SLACK) / MEGABYTE)


def print_fit_memory(rows: int) -> None:
    """Fit once; print as JSON the growth of the peak resident size and the size of the data, in bytes."""
    import time

    from propall.estimators.classifier import PartialLabelClassifier

    random = np.random.default_rng(0)
    features = np.empty((rows, FEATURES), dtype=np.float32)
    candidates = np.empty((rows, CLASSES), dtype=bool)
    for start in range(0, rows, 10_000):
        part = slice(start, start + 10_000)
        features[part] = random.standard_normal(features[part].shape, dtype=np.float32)
        candidates[part] = random.random(candidates[part].shape, dtype=np.float32) < 0.05
    candidates[:, 0] = True
    model = PartialLabelClassifier(epochs=1, batch_size=1024, random_state=0, device="cpu")
    model.fit(features[:4096], candidates[:4096])  # imports what is imported on first use
    before = _peak_resident_size()
    started = time.perf_counter()
    model.fit(features, candidates)
    seconds = time.perf_counter() - started
    grown = _peak_resident_size() - before
    sizes = {"features": features.nbytes, "candidates": candidates.nbytes}
    print(json.dumps({"grown": grown, "seconds": seconds, **sizes}))


def _peak_resident_size() -> int:
    """Peak resident size of this process in bytes; `ru_maxrss` may include its parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    import resource

    # Kilobytes on Linux, bytes on macOS.
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _measure_loss_memory(
    result: BenchmarkResult, n: int, k: int, device: torch.device, report: Callable[[str], None]
) -> None:
    case = f"loss of {n} x {k}"
    report(f"scale: memory, {case}")
    logits = torch.randn(n, k, device=device).requires_grad_()
    candidates = torch.rand(n, k, device=device) < 0.01
    candidates[:, 0] = True
    gradient = "gradient"
    result.add(case, gradient, [logits.nbytes / MEGABYTE], unit="MB")
    losses: dict[str, Callable[..., Tensor]] = {"closed form, additional memory": kernels.propall_losses}
    if kernels.available(logits):
        losses["fused kernel, additional memory"] = kernels.fused_propall
    for subject, loss in losses.items():
        torch.autograd.grad(loss(logits, candidates).mean(), logits)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        torch.autograd.grad(loss(logits, candidates).mean(), logits)
        grown = torch.cuda.max_memory_allocated(device) - before
        result.add(case, subject, [grown / MEGABYTE], unit="MB", baseline=gradient)

"""How time and memory grow with rows and classes."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from propall import kernels
from propall.bench.clock import in_turn, on_device, wait
from propall.bench.sheet import Sheet, Target, machine
from propall.data.dataset import PartialDataset
from propall.methods.propall import ProPaLL, plain_exact_loss, propall_loss
from propall.nets import NETS
from propall.training.contract import Run
from propall.training.recipe import Recipe
from propall.training.trainer import Trainer

MEGABYTE = 1e6
#: What a fit may take beside one copy of the features and one of the candidates.
SLACK = 128 * MEGABYTE
FEATURES = CLASSES = 100
ROWS, QUICK_ROWS = 1_000_000, 100_000
#: Rows of a batch, and how many times as much a GPU gets: else launches are measured, not growth.
BATCH, WIDER = 256, 8


def slope(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Of a straight line through the logarithms: 1 where time is proportional to size."""
    logs = np.log(np.asarray(sizes, dtype=float)), np.log(np.asarray(seconds, dtype=float))
    return float(np.polyfit(*logs, 1)[0])


def run(
    device: torch.device, *, quick: bool = False, rows: int | None = None, note: Callable[[str], None] = print
) -> Sheet:
    """Slopes of time against n and k, and the memory of a large fit.

    Args:
        device: where loss and training are measured; the memory of a fit is measured on the CPU.
        quick: smaller sizes.
        rows: of the large fit.
        note: is told what is going on.
    """
    sheet = Sheet("scale", "Growth of time and memory with rows and classes", "ms", machine(device))
    sheet.notes = [
        "Slopes are of least squares through the logarithms of the medians; 1 is linear.",
        f"Training: a fit of one epoch, a linear net on {FEATURES} features, batches of {BATCH}; on a GPU, "
        f"against k, of {WIDER * BATCH}.",
        "Memory of a fit: what the largest resident size grows by, in a process of its own that held nothing "
        "but the data before.",
    ]
    # Beyond every cache, and so large that neither a kernel's launch nor a fit's preparation is measured.
    large = 1 if quick else 128
    powers = (1, 2, 4) if quick else (1, 2, 4, 8)
    rows_of_loss = [1024 * large * p * (4 if device.type == "cuda" else 1) for p in powers]
    classes_of_loss = [100 * large * p for p in powers]
    seconds = 0.1 if quick else 0.5
    _slopes(sheet, "loss, k = 100", "n", rows_of_loss, lambda n: _loss(n, 100, device, seconds), note)
    _slopes(sheet, "loss, n = 1024", "k", classes_of_loss, lambda k: _loss(1024, k, device, seconds), note)
    wider = WIDER if device.type == "cuda" else 1
    rows_of_fit = [512 * large * p * wider for p in powers]
    classes_of_fit = [16 * large * p for p in powers]
    rows_of_classes = (BATCH if quick else 32 * BATCH) * wider
    _slopes(sheet, "training, k = 10", "n", rows_of_fit, lambda n: _epoch(n, 10, BATCH, device), note)
    what = f"training, n = {rows_of_classes}"
    _slopes(
        sheet, what, "k", classes_of_fit, lambda k: _epoch(rows_of_classes, k, wider * BATCH, device), note
    )
    _memory_of_fit(sheet, rows or (QUICK_ROWS if quick else ROWS), note)
    if device.type == "cuda":
        _memory_of_loss(sheet, 64 if quick else 1024, 100_000, device, note)
    return sheet


def _slopes(
    sheet: Sheet,
    what: str,
    varied: str,
    sizes: Sequence[int],
    seconds_of: Callable[[int], list[float]],
    note: Callable[[str], None],
) -> None:
    medians = []
    for size in sizes:
        note(f"scale: {what}, {varied} = {size}")
        line = sheet.add(what, f"{varied} = {size}", [1e3 * s for s in seconds_of(size)])
        medians.append(line.value.median)
    sheet.targets.append(
        Target(f"slope of time against {varied}, {what}", slope(sizes, medians), least=0.9, most=1.1)
    )


def _loss(n: int, k: int, device: torch.device, seconds: float) -> list[float]:
    logits = torch.randn(n, k, device=device).requires_grad_()
    candidates = torch.rand(n, k, device=device) < 0.1
    candidates[:, 0] = True
    return on_device(
        lambda _: torch.autograd.grad(propall_loss(logits, candidates).mean(), logits),
        1,
        device,
        seconds=seconds,
    )


def _epoch(n: int, k: int, batch_size: int, device: torch.device) -> list[float]:
    candidates = torch.rand(n, k, device=device) < 0.1
    candidates[:, 0] = True
    runs = [Run(PartialDataset(torch.randn(n, FEATURES, device=device), candidates), 0)]
    trainer = Trainer(ProPaLL(), NETS["linear"], Recipe(epochs=1, batch_size=batch_size))

    def fit() -> None:
        trainer.fit(runs)
        wait(device)

    return in_turn({"": fit}, 3)[""].wall


def _memory_of_fit(sheet: Sheet, rows: int, note: Callable[[str], None]) -> None:
    case = f"fit of {rows} x {FEATURES}, k = {CLASSES}"
    note(f"scale: memory, {case}")
    command = f"from propall.bench.scale import print_memory_of_fit as f; f({rows})"
    child = subprocess.run([sys.executable, "-c", command], check=True, capture_output=True, text=True)
    found = json.loads(child.stdout.splitlines()[-1])
    copies = found["features"] + found["candidates"]
    data = "features and candidates, as given"
    sheet.add(case, data, [copies / MEGABYTE], unit="MB")
    line = sheet.add(
        case,
        "on top of them, at most",
        [found["grown"] / MEGABYTE],
        unit="MB",
        beside=data,
        seconds=found["seconds"],
    )
    most = (copies + SLACK) / MEGABYTE
    claim = f"MB on top of the data, {case} (a copy of each and {SLACK / MEGABYTE:.0f} MB)"
    sheet.targets.append(Target(claim, line.value.median, most=most))


def print_memory_of_fit(rows: int) -> None:
    """Fit once and print, as JSON, the bytes by which the largest resident size grew, and of the data."""
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
    model.fit(features[:4096], candidates[:4096])  # what is loaded on first use is loaded now
    before = _largest_resident_size()
    started = time.perf_counter()
    model.fit(features, candidates)
    seconds = time.perf_counter() - started
    grown = _largest_resident_size() - before
    sizes = {"features": features.nbytes, "candidates": candidates.nbytes}
    print(json.dumps({"grown": grown, "seconds": seconds, **sizes}))


def _largest_resident_size() -> int:
    """Bytes; of this process alone, whereas `ru_maxrss` may start with its parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    import resource

    # Linux counts in kilobytes, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _memory_of_loss(sheet: Sheet, n: int, k: int, device: torch.device, note: Callable[[str], None]) -> None:
    case = f"loss of {n} x {k}"
    note(f"scale: memory, {case}")
    logits = torch.randn(n, k, device=device).requires_grad_()
    candidates = torch.rand(n, k, device=device) < 0.01
    candidates[:, 0] = True
    gradient = "its gradient"
    sheet.add(case, gradient, [logits.nbytes / MEGABYTE], unit="MB")
    losses: dict[str, Callable[..., Tensor]] = {"plain formula, on top of its inputs": plain_exact_loss}
    if kernels.available(logits):
        losses["fused kernel, on top of its inputs"] = kernels.fused_propall
    for what, loss in losses.items():
        torch.autograd.grad(loss(logits, candidates).mean(), logits)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        torch.autograd.grad(loss(logits, candidates).mean(), logits)
        grown = torch.cuda.max_memory_allocated(device) - before
        sheet.add(case, what, [grown / MEGABYTE], unit="MB", beside=gradient)

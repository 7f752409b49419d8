"""ProPaLL's loss and gradient against the time it takes to move the bytes, the paper's form and plain BCE."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from propall import kernels
from propall.bench.results import BenchmarkResult, describe_machine
from propall.bench.timing import QUEUED_CALLS, input_sets, time_on_device, time_queued
from propall.losses import ProPaLLLoss
from propall.methods.propall import propall_loss

SHAPES = ((65536, 1000), (65536, 100), (65536, 10), (8192, 10000), (1024, 100_000))
CPU_SHAPES = ((2048, 1000), (8192, 100), (32768, 10), (256, 10000))
QUICK_SHAPES = ((64, 100), (256, 10))
DTYPES = (torch.float32, torch.bfloat16)

FLOOR = "copy of as many bytes (floor)"
MODULE, BCE = "ProPaLLLoss()", "BCE with logits"
CLOSED_FORM, PAPER = "ProPaLL, closed form in PyTorch", "ProPaLL, Appendix A"
EAGER_MODULE, EAGER_BCE = f"{MODULE}, eager calls", f"{BCE}, eager calls"
#: Targets for the module call on a GPU, as multiples of the floor.
MAXIMUM_RATIOS = {
    "65536 x 1000 float32": 1.3,
    "65536 x 1000 bfloat16": 1.8,
    "65536 x 100 float32": 2.0,
    "8192 x 10000 float32": 2.0,
}
#: Target for the time of Appendix A as a multiple of the module's.
MINIMUM_SPEEDUP = ("65536 x 1000 float32", 15.0)
#: Target for eager calls of the module, as a multiple of the time of eager BCE.
MAXIMUM_EAGER_RATIO = ("65536 x 100 float32", 1.5)

Loss = Callable[[Tensor, Tensor], Tensor]


def benchmark_loss(
    device: torch.device, *, quick: bool = False, report: Callable[[str], None] = print
) -> BenchmarkResult:
    """Time forward and backward of the mean loss over many shapes."""
    cuda = device.type == "cuda"
    result = BenchmarkResult("loss", "ProPaLL's loss and gradient", "ms", describe_machine(device))
    result.notes = [
        "Forward and backward of the mean loss: logits and bool candidates in, gradient out.",
        "The floor reads logits and one byte per label and writes the gradient, at the speed of a copy that "
        "moves as many bytes.",
    ]
    if cuda:
        result.notes += [
            "Device time: replayed from a CUDA graph, timed by events; input sets exceed the cache.",
            f"Eager calls: queued, the device synchronized once per {QUEUED_CALLS} calls; small ones are "
            "bound by the host.",
        ]
    shapes = QUICK_SHAPES if quick else SHAPES if cuda else CPU_SHAPES
    for shape in shapes:
        for dtype in DTYPES:
            case = f"{shape[0]} x {shape[1]} {str(dtype).removeprefix('torch.')}"
            report(f"loss: {case}")
            _measure(result, case, shape, dtype, device, seconds=0.02 if quick else 0.3)
    if cuda and not quick:
        _add_targets(result)
    return result


def _measure(
    result: BenchmarkResult,
    case: str,
    shape: tuple[int, int],
    dtype: torch.dtype,
    device: torch.device,
    *,
    seconds: float,
) -> None:
    n, k = shape
    moved = n * k * (2 * dtype.itemsize + 1)
    sets = input_sets(moved, device)
    logits, candidates = map(list, zip(*(_inputs(n, k, dtype, device, i) for i in range(sets)), strict=True))

    def gradient_of(loss: Loss, labels: list[Tensor]) -> Callable[[int], object]:
        return lambda i: torch.autograd.grad(loss(logits[i], labels[i]), logits[i])

    buffers = [torch.empty(2, moved // 2, dtype=torch.uint8, device=device).random_() for _ in range(sets)]
    samples = time_on_device(lambda i: buffers[i][0].copy_(buffers[i][1]), sets, device, seconds=seconds)
    del buffers
    result.add(case, FLOOR, _ms(samples), gigabytes_per_second=moved / min(samples) / 1e9)
    implementations: dict[str, Loss] = {
        MODULE: ProPaLLLoss(),
        CLOSED_FORM: lambda r, s: kernels.propall_losses(r, s).mean(),
        PAPER: lambda r, s: propall_loss(r, s, "paper", reduction="mean"),
        BCE: binary_cross_entropy_with_logits,
    }
    # BCE takes its targets as numbers; users convert them once.
    labels = dict.fromkeys(implementations, candidates) | {BCE: [sets.to(dtype) for sets in candidates]}
    for subject, loss in implementations.items():
        samples = time_on_device(gradient_of(loss, labels[subject]), sets, device, seconds=seconds)
        result.add(case, subject, _ms(samples), baseline=FLOOR)
    if device.type == "cuda":
        eager = {s: gradient_of(implementations[s], labels[s]) for s in (BCE, MODULE)}
        times = time_queued(eager, sets, device, seconds=seconds)
        result.add(case, EAGER_BCE, _ms(times[BCE]))
        result.add(case, EAGER_MODULE, _ms(times[MODULE]), baseline=EAGER_BCE)


def _add_targets(result: BenchmarkResult) -> None:
    for case, maximum in MAXIMUM_RATIOS.items():
        ratio = result.find(case, MODULE).ratio
        result.add_target(f"{MODULE}: time over the floor, {case}", ratio, maximum=maximum)
    case, minimum = MINIMUM_SPEEDUP
    speedup = result.find(case, PAPER).value.median / result.find(case, MODULE).value.median
    result.add_target(f"Appendix A: time over {MODULE}, {case}", speedup, minimum=minimum)
    case, maximum = MAXIMUM_EAGER_RATIO
    ratio = result.find(case, EAGER_MODULE).ratio
    result.add_target(f"{MODULE}: time over BCE, eager calls, {case}", ratio, maximum=maximum)


def _inputs(n: int, k: int, dtype: torch.dtype, device: torch.device, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator(device).manual_seed(seed)
    logits = 3 * torch.randn(n, k, generator=generator, device=device)
    candidates = torch.rand(n, k, generator=generator, device=device) < 0.1
    candidates[:, 0] = True
    return logits.to(dtype).requires_grad_(), candidates


def _ms(samples: list[float]) -> list[float]:
    return [1e3 * sample for sample in samples]

"""ProPaLL's loss and gradient against the time it takes to move the bytes, the paper's form and plain BCE."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from propall import kernels
from propall.bench.results import BenchmarkResult, Target, describe_machine
from propall.bench.timing import input_sets, time_on_device, time_queued
from propall.losses import ProPaLLLoss
from propall.methods.propall import propall_loss

SHAPES = ((65536, 1000), (65536, 100), (65536, 10), (8192, 10000))
LARGEST = (1024, 100_000)
CPU_SHAPES = ((2048, 1000), (8192, 100), (32768, 10), (256, 10000))
QUICK_SHAPES = ((64, 100), (256, 10))
DTYPES = (torch.float32, torch.bfloat16)

FLOOR = "copy of as many bytes (floor)"
MODULE, MODULE_IN_GRAPH = "ProPaLLLoss()", "ProPaLLLoss(), CUDA graph"
CLOSED_FORM, PAPER = "ProPaLL, closed form in PyTorch", "ProPaLL, Appendix A"
BCE = "BCE with logits"
#: Targets on a GPU, as multiples of the floor.
MAXIMUM_RATIOS = {
    "65536 x 1000 float32": 1.3,
    "65536 x 1000 bfloat16": 1.8,
    "65536 x 100 float32": 2.0,
    "8192 x 10000 float32": 2.0,
}
#: Target for the time of Appendix A as a multiple of the module's, in the first of these cases.
MINIMUM_SPEEDUP = 15.0

Loss = Callable[[Tensor, Tensor], Tensor]


def benchmark_loss(
    device: torch.device, *, quick: bool = False, report: Callable[[str], None] = print
) -> BenchmarkResult:
    """Time forward and backward of the mean loss over many shapes.

    Args:
        device: where to run.
        quick: small shapes and few repeats.
        report: called with progress messages.
    """
    cuda = device.type == "cuda"
    result = BenchmarkResult("loss", "ProPaLL's loss and gradient", "ms", describe_machine(device))
    result.notes = [
        "Forward and backward of the mean loss: logits and bool candidates in, gradient out.",
        "The floor reads logits and one byte per label and writes the gradient, at the speed of a copy that "
        "moves as many bytes.",
    ]
    if cuda:
        result.notes += [
            f"{MODULE}: eager calls, queued without waiting; the device is synchronized once per 100 calls.",
            "Everything else: replayed from a CUDA graph, which excludes launch overhead, timed by events.",
            "Input sets exceed the cache.",
        ]
    shapes = QUICK_SHAPES if quick else (*SHAPES, LARGEST) if cuda else CPU_SHAPES
    for shape in shapes:
        for dtype in DTYPES:
            case = f"{shape[0]} x {shape[1]} {str(dtype).removeprefix('torch.')}"
            report(f"loss: {case}")
            _measure(result, case, shape, dtype, device, seconds=0.02 if quick else 0.3)
            if cuda and case in MAXIMUM_RATIOS:
                _add_targets(result, case)
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
    criterion = ProPaLLLoss()
    if device.type == "cuda":
        samples = time_queued(gradient_of(criterion, candidates), sets, device, seconds=seconds)
        result.add(case, MODULE, _ms(samples), baseline=FLOOR)
    implementations: dict[str, Loss] = {
        MODULE_IN_GRAPH if device.type == "cuda" else MODULE: criterion,
        CLOSED_FORM: lambda r, s: kernels.propall_losses(r, s).mean(),
        PAPER: lambda r, s: propall_loss(r, s, "paper", reduction="mean"),
        BCE: binary_cross_entropy_with_logits,
    }
    for subject, loss in implementations.items():
        # BCE takes its targets as numbers; users convert them once and for all.
        labels = [sets.to(dtype) for sets in candidates] if subject == BCE else candidates
        samples = time_on_device(gradient_of(loss, labels), sets, device, seconds=seconds)
        result.add(case, subject, _ms(samples), baseline=FLOOR)


def _add_targets(result: BenchmarkResult, case: str) -> None:
    module, in_graph = result.find(case, MODULE), result.find(case, MODULE_IN_GRAPH)
    for measurement in (module, in_graph):
        assert measurement.ratio is not None
        claim = f"{measurement.subject}: time over the floor, {case}"
        result.targets.append(Target(claim, measurement.ratio, maximum=MAXIMUM_RATIOS[case]))
    if case == next(iter(MAXIMUM_RATIOS)):
        speedup = result.find(case, PAPER).value.median / in_graph.value.median
        claim = f"Appendix A: time over {MODULE}, {case}"
        result.targets.append(Target(claim, speedup, minimum=MINIMUM_SPEEDUP))


def _inputs(n: int, k: int, dtype: torch.dtype, device: torch.device, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator(device).manual_seed(seed)
    logits = 3 * torch.randn(n, k, generator=generator, device=device)
    candidates = torch.rand(n, k, generator=generator, device=device) < 0.1
    candidates[:, 0] = True
    return logits.to(dtype).requires_grad_(), candidates


def _ms(samples: list[float]) -> list[float]:
    return [1e3 * sample for sample in samples]

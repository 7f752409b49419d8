"""ProPaLL's loss and gradient against the time it takes to move the bytes, the paper's form and plain BCE."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from propall import kernels
from propall.bench.clock import input_sets, on_device
from propall.bench.peers import appendix_a_loss
from propall.bench.sheet import Sheet, Target, machine
from propall.methods.propall import plain_exact_loss

SHAPES = ((65536, 1000), (65536, 100), (65536, 10), (8192, 10000))
LARGEST = (1024, 100_000)
CPU_SHAPES = ((2048, 1000), (8192, 100), (32768, 10), (256, 10000))
QUICK_SHAPES = ((64, 100), (256, 10))
DTYPES = (torch.float32, torch.bfloat16)

FLOOR, PLAIN, FUSED = "copy of as many bytes (floor)", "ProPaLL, plain formula", "ProPaLL, fused kernel"
#: What is aimed at on a GPU, as multiples of the floor.
GOALS = {
    "65536 x 1000 float32": 1.5,
    "65536 x 1000 bfloat16": 2.5,
    "65536 x 100 float32": 2.0,
    "8192 x 10000 float32": 2.0,
}
#: How many times slower than the kernel the paper's form is to be, for the first of them.
SLOWER = 15.0
PAPER, BCE = "ProPaLL, Appendix A eager", "BCE with logits, eager"


def run(device: torch.device, *, quick: bool = False, note: Callable[[str], None] = print) -> Sheet:
    """Forward and backward of the mean loss over many shapes.

    Args:
        device: where.
        quick: small shapes and few repeats.
        note: is told what is going on.
    """
    cuda = device.type == "cuda"
    sheet = Sheet("loss", "ProPaLL's loss and gradient", "ms", machine(device))
    sheet.notes = [
        "Forward and backward of the mean loss: logits and bool candidates in, gradient out.",
        "The floor reads logits and one byte per label and writes the gradient, at the speed of a copy that "
        "moves as many bytes.",
        "Replayed from CUDA graphs over input sets larger than the cache, timed by events."
        if cuda
        else "By the clock, one input set.",
    ]
    shapes = QUICK_SHAPES if quick else (*SHAPES, LARGEST) if cuda else CPU_SHAPES
    for shape in shapes:
        for dtype in DTYPES:
            case = f"{shape[0]} x {shape[1]} {str(dtype).removeprefix('torch.')}"
            note(f"loss: {case}")
            _measure(sheet, case, shape, dtype, device, seconds=0.02 if quick else 0.3)
    return sheet


def _measure(
    sheet: Sheet,
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

    def gradient_of(
        loss: Callable[[Tensor, Tensor], Tensor], labels: list[Tensor]
    ) -> Callable[[int], object]:
        return lambda i: torch.autograd.grad(loss(logits[i], labels[i]), logits[i])

    buffers = [torch.empty(2, moved // 2, dtype=torch.uint8, device=device).random_() for _ in range(sets)]
    samples = on_device(lambda i: buffers[i][0].copy_(buffers[i][1]), sets, device, seconds=seconds)
    del buffers
    sheet.add(case, FLOOR, _ms(samples), gigabytes_per_second=moved / min(samples) / 1e9)
    contenders: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        PLAIN: lambda r, s: plain_exact_loss(r.float(), s).mean(),
        PAPER: lambda r, s: appendix_a_loss(r, s).mean(),
        BCE: binary_cross_entropy_with_logits,
    }
    if kernels.available(logits[0]):
        contenders = {FUSED: lambda r, s: kernels.fused_propall(r, s, reduction="mean"), **contenders}
    for what, loss in contenders.items():
        # Its targets are numbers; whoever uses it has made them so once and for all.
        labels = [sets.to(dtype) for sets in candidates] if what == BCE else candidates
        samples = on_device(gradient_of(loss, labels), sets, device, seconds=seconds)
        sheet.add(case, what, _ms(samples), beside=FLOOR)
    if FUSED in contenders and case in GOALS:
        fused, paper = sheet.line(case, FUSED), sheet.line(case, PAPER)
        assert fused.ratio is not None
        sheet.targets.append(Target(f"fused kernel over the floor, {case}", fused.ratio, most=GOALS[case]))
        if case == next(iter(GOALS)):
            speedup = paper.value.median / fused.value.median
            sheet.targets.append(Target(f"Appendix A over the fused kernel, {case}", speedup, least=SLOWER))


def _inputs(n: int, k: int, dtype: torch.dtype, device: torch.device, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator(device).manual_seed(seed)
    logits = 3 * torch.randn(n, k, generator=generator, device=device)
    candidates = torch.rand(n, k, generator=generator, device=device) < 0.1
    candidates[:, 0] = True
    return logits.to(dtype).requires_grad_(), candidates


def _ms(samples: list[float]) -> list[float]:
    return [1e3 * sample for sample in samples]

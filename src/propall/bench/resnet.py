"""An epoch of ResNet-32 on CIFAR-10-sized images: eager, captured, and compiled."""

import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from propall.bench.peers import eager_epochs
from propall.bench.results import BenchmarkResult, describe_machine
from propall.data.dataset import PartialDataset
from propall.methods.propall import ProPaLL
from propall.nets import NETS
from propall.training.compiled import Captured, matrix_precision, synchronize
from propall.training.contract import Run
from propall.training.recipe import Precision, Recipe
from propall.training.stack import Stack

EAGER, EAGER_HALF = "plain eager PyTorch, float32", "plain eager PyTorch, bfloat16, channels last"
CLASSES = 10
#: Target for the seconds per epoch of 50 000 images on a GPU.
MAXIMUM_SECONDS = 0.6


def benchmark_resnet(
    device: torch.device,
    *,
    quick: bool = False,
    epochs: int = 2,
    precisions: tuple[Precision, ...] = ("tf32", "bfloat16"),
    profile: bool = False,
    report: Callable[[str], None] = print,
) -> BenchmarkResult:
    """Time an epoch of training, without evaluation; the first of `epochs + 1` is not timed.

    `profile` lists the kernels that take most of the time of each captured run.
    """
    cuda = device.type == "cuda"
    images, batch = (64, 32) if quick else (50_000, 256) if cuda else (512, 64)
    title = f"ResNet-32 on {images} x 3 x 32 x 32, batch {batch}"
    result = BenchmarkResult("resnet", title, "s", describe_machine(device))
    result.notes = [
        "Seconds per training epoch, the first epoch excluded; no augmentation, SGD with momentum.",
        "Float32 convolutions may use TF32 in all implementations, which is PyTorch's default."
        if cuda
        else "On a CPU, steps are neither compiled nor captured.",
    ]
    generator = torch.Generator(device).manual_seed(0)
    x = torch.randn(images, 3, 32, 32, generator=generator, device=device)
    candidates = torch.rand(images, CLASSES, generator=generator, device=device) < 0.3
    candidates[:, 0] = True
    case = f"{images} images"
    recipe = Recipe(epochs=epochs + 1, batch_size=batch, learning_rate=0.05)

    for subject, half in ((EAGER, False), (EAGER_HALF, True)):
        report(f"resnet: {subject}")
        net, rows = _with_torch_convolutions(NETS["resnet32"]((3, 32, 32), CLASSES).to(device)), x
        if half:
            net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            rows = x.contiguous(memory_format=torch.channels_last)
        times = [epoch.training for epoch in eager_epochs(net, rows, candidates, recipe, half=half)]
        baseline = EAGER if half else ""
        measurement = result.add(case, subject, times[1:], baseline=baseline, prepared=times[0])
        report(f"resnet: {measurement.value.median:.3g} s")
    ways = [(False, "captured, "), (True, "compiled, captured, ")] if cuda else [(False, "")]
    for precision in precisions:
        for compiling, way in ways:
            subject = f"propall, {way}{precision}"
            report(f"resnet: {subject}")
            variant = replace(recipe, precision=precision)
            stack = Stack([Run(PartialDataset(x, candidates), 0)], ProPaLL(), NETS["resnet32"], variant)
            train_epoch = Captured(stack, compiling).train_epoch if cuda else stack.train_epoch
            with matrix_precision(variant):
                times = [_seconds(train_epoch, epoch, device) for epoch in range(variant.epochs)]
                measurement = result.add(case, subject, times[1:], baseline=EAGER, prepared=times[0])
                report(f"resnet: {measurement.value.median:.3g} s")
                if profile:
                    kernels = _top_kernels(train_epoch, device)
                    result.notes += [f"Time per kernel in an epoch of {subject}:", *kernels]
            if compiling and not quick and precision == "bfloat16":
                claim = "seconds per epoch, compiled, captured bfloat16"
                result.add_target(claim, measurement.value.median, maximum=MAXIMUM_SECONDS)
            del stack, train_epoch
    return result


def _with_torch_convolutions(net: nn.Module) -> nn.Module:
    """Replace our convolutions by those of PyTorch, for a fair baseline."""
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d):
            layer.__class__ = nn.Conv2d
    return net


def _seconds(train_epoch: Callable[[int], Tensor], epoch: int, device: torch.device) -> float:
    synchronize(device)
    start = time.perf_counter()
    train_epoch(epoch)
    synchronize(device)
    return time.perf_counter() - start


def _top_kernels(train_epoch: Callable[[int], Tensor], device: torch.device, limit: int = 25) -> list[str]:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    cuda = device.type == "cuda"
    activity = ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU
    with profiler(activities=[activity]) as profiled:
        _seconds(train_epoch, 0, device)

    def spent(event: object) -> float:
        return float(getattr(event, "self_device_time_total" if cuda else "self_cpu_time_total"))

    events = sorted(profiled.key_averages(), key=spent, reverse=True)
    total = max(1e-9, sum(map(spent, events)))
    return [
        f"{100 * spent(e) / total:5.1f} %  {spent(e) / 1e3:8.2f} ms  {e.count:6d} x  {e.key[:100]}"
        for e in events[:limit]
    ]

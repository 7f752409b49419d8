"""An epoch of ResNet-32 on images of CIFAR-10's size: eager, captured, and compiled too."""

import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from propall.bench.clock import wait
from propall.bench.peers import eager_epochs
from propall.bench.sheet import Sheet, Target, machine
from propall.data.dataset import PartialDataset
from propall.methods.propall import ProPaLL
from propall.nets import NETS
from propall.training.compiled import Captured, matrix_precision
from propall.training.contract import Run
from propall.training.recipe import Precision, Recipe
from propall.training.trainer import Stack

EAGER, EAGER_HALF = "plain eager PyTorch, float32", "plain eager PyTorch, bfloat16, channels last"
CLASSES = 10
#: Seconds an epoch of 50 000 images that are aimed at on a GPU.
GOAL = 0.6


def run(
    device: torch.device,
    *,
    quick: bool = False,
    epochs: int = 2,
    precisions: tuple[Precision, ...] = ("tf32", "bfloat16"),
    profile: bool = False,
    note: Callable[[str], None] = print,
) -> Sheet:
    """Seconds an epoch of training, without evaluation.

    Args:
        device: where.
        quick: few images.
        epochs: that are timed; one more comes before them.
        precisions: of the captured runs.
        profile: list the kernels that take most of the last captured run's time.
        note: is told what is going on.
    """
    cuda = device.type == "cuda"
    images, batch = (64, 32) if quick else (50_000, 256) if cuda else (512, 64)
    sheet = Sheet("resnet", f"ResNet-32 on {images} x 3 x 32 x 32, batch {batch}", "s", machine(device))
    sheet.notes = [
        "Seconds of one epoch of training, the first epoch left out; no augmentation, SGD with momentum.",
        "Convolutions of float32 numbers may use the tensor cores' shorter mantissa in all contenders, as "
        "torch has it by default."
        if cuda
        else "Steps are neither compiled nor captured on a CPU.",
    ]
    generator = torch.Generator(device).manual_seed(0)
    x = torch.randn(images, 3, 32, 32, generator=generator, device=device)
    candidates = torch.rand(images, CLASSES, generator=generator, device=device) < 0.3
    candidates[:, 0] = True
    case = f"{images} images"
    recipe = Recipe(epochs=epochs + 1, batch_size=batch, learning_rate=0.05)
    options = {"test": None, "epochs": recipe.epochs, "batch_size": batch}

    for what, half in ((EAGER, False), (EAGER_HALF, True)):
        note(f"resnet: {what}")
        net, rows = _with_torchs_convolutions(NETS["resnet32"]((3, 32, 32), CLASSES).to(device)), x
        if half:
            net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            rows = x.contiguous(memory_format=torch.channels_last)
        laps = [lap.training for lap in eager_epochs(net, rows, candidates, half=half, **options)]  # type: ignore[arg-type]
        line = sheet.add(case, what, laps[1:], beside=EAGER if half else "", prepared=laps[0])
        note(f"resnet: {line.value.median:.3g} s")
    ways = [(False, "captured, "), (True, "compiled, captured, ")] if cuda else [(False, "")]
    for precision in precisions:
        for compiling, way in ways:
            what = f"propall, {way}{precision}"
            note(f"resnet: {what}")
            own = replace(recipe, precision=precision)
            stack = Stack([Run(PartialDataset(x, candidates), 0)], ProPaLL(), NETS["resnet32"], own)
            train_epoch = Captured(stack, compiling).train_epoch if cuda else stack.train_epoch
            with matrix_precision(own):
                laps = [_seconds(train_epoch, epoch, device) for epoch in range(own.epochs)]
                line = sheet.add(case, what, laps[1:], beside=EAGER, prepared=laps[0])
                note(f"resnet: {line.value.median:.3g} s")
                if profile:
                    sheet.notes += [f"Where {what} spends an epoch:", *_top_kernels(train_epoch, device)]
            if compiling and not quick and precision == "bfloat16":
                claim = "seconds an epoch, compiled, captured bfloat16"
                sheet.targets.append(Target(claim, line.value.median, most=GOAL))
            del stack, train_epoch
    return sheet


def _with_torchs_convolutions(net: nn.Module) -> nn.Module:
    """The same network without kernels of ours: a peer."""
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d):
            layer.__class__ = nn.Conv2d
    return net


def _seconds(train_epoch: Callable[[int], Tensor], epoch: int, device: torch.device) -> float:
    wait(device)
    start = time.perf_counter()
    train_epoch(epoch)
    wait(device)
    return time.perf_counter() - start


def _top_kernels(train_epoch: Callable[[int], Tensor], device: torch.device, most: int = 25) -> list[str]:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    cuda = device.type == "cuda"
    activity = ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU
    with profiler(activities=[activity]) as found:
        _seconds(train_epoch, 0, device)

    def spent(event: object) -> float:
        return float(getattr(event, "self_device_time_total" if cuda else "self_cpu_time_total"))

    events = sorted(found.key_averages(), key=spent, reverse=True)
    total = max(1e-9, sum(map(spent, events)))
    return [
        f"{100 * spent(e) / total:5.1f} %  {spent(e) / 1e3:8.2f} ms  {e.count:6d} x  {e.key[:100]}"
        for e in events[:most]
    ]

"""Training with views on images: the library's step against the same recipe as a plain PyTorch loop."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from propall import counter_rng
from propall.bench.results import BenchmarkResult, describe_machine
from propall.data import load
from propall.data.corruption import IndependentFlip
from propall.data.dataset import PartialDataset, Problem
from propall.methods.propall import ProPaLL, noise_scale, propall_loss
from propall.nets.fast_convnet import FastConvNet
from propall.numerics import restricted_softmax
from propall.training.averages import LOOKAHEAD_DECAY
from propall.training.compiled import Captured, synchronize
from propall.training.contract import NetFactory, Run
from propall.training.named_recipes import RECIPES, adapt_views
from propall.training.networks import SCORING_CHUNK, build
from propall.training.recipe import Recipe
from propall.training.stack import Stack
from propall.training.views import Views, cross_entropy

EAGER, OURS = "plain PyTorch", "propall"
#: Target for the seconds of 45 epochs of CIFAR-10 on a GPU, after compiling.
MAXIMUM_SECONDS, TARGET_EPOCHS = 40.0, 45
#: Probability that a wrong label is a candidate.
Q = 0.5


def benchmark_images(
    device: torch.device,
    *,
    quick: bool = False,
    epochs: int | None = None,
    report: Callable[[str], None] = print,
) -> BenchmarkResult:
    """Time training on CIFAR-10 with candidate sets and views, and compare the accuracies after it.

    Args:
        device: where to train.
        quick: use a few generated images and a small network.
        epochs: instead of the recipe's 45; the learning rate falls to 0 over them.
        report: receives progress messages.
    """
    problem, net = _generated() if quick else (load("cifar10").problem(IndependentFlip(Q)), FastConvNet)
    problem = problem.to(device)
    recipe = adapt_views(RECIPES["fast"].recipe, problem.train.in_shape[-1], mirrored=True)
    recipe = replace(recipe, epochs=epochs or (2 if quick else recipe.epochs))
    if quick:
        recipe = replace(recipe, batch_size=16, learning_rate=0.1, norm_rate=1.0)
    n, cuda = len(problem.train), device.type == "cuda"
    title = f"Fast convnet with views on {n} images, {recipe.epochs} epochs"
    result = BenchmarkResult("images", title, "s", describe_machine(device))
    result.notes = [
        "Seconds per training epoch without evaluation, the first epoch excluded; ProPaLL, independent flips "
        f"with q = {Q}. Both have the same network in bfloat16 and channels last, augmentations, loss, "
        "optimizer and schedule, and other random draws. Accuracy in percent after the last epoch, without "
        "test-time augmentation.",
        "prepared: seconds of the first epoch, with compiling; training: median epoch times their number.",
        "Our step is compiled and captured."
        if cuda
        else "On a CPU, steps are neither compiled nor captured.",
    ]
    for subject, train in ((EAGER, _train_eagerly), (OURS, _train_with_stack)):
        report(f"images: {subject}")
        training = train(problem, net, recipe)
        times = [next(training) for _ in range(recipe.epochs)]
        accuracy = 100 * next(training)
        pace = sorted(times[1:] or times)
        median = pace[len(pace) // 2]
        measurement = result.add(
            f"{n} images",
            subject,
            times[1:] or times,
            baseline="" if subject == EAGER else EAGER,
            prepared=times[0],
            training=median * recipe.epochs,
            images_per_second=sum(recipe.batch_sizes(n)) / median,
            accuracy=accuracy,
        )
        report(f"images: {measurement.value.median:.3g} s per epoch, accuracy {accuracy:.2f} %")
    if cuda and not quick:
        claim = f"seconds of {TARGET_EPOCHS} epochs after compiling"
        seconds = TARGET_EPOCHS * result.find(f"{n} images", OURS).value.median
        result.add_target(claim, seconds, maximum=MAXIMUM_SECONDS)
    return result


def _generated(per_class: int = 32, k: int = 4, side: int = 20) -> tuple[Problem, NetFactory]:
    """Noisy copies of one random image per class, and a small network."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(per_class * k) % k
    patterns = torch.randn(k, 3, side, side, generator=generator)
    train, test = (
        patterns[truth] + 0.5 * torch.randn(len(truth), 3, side, side, generator=generator) for _ in range(2)
    )
    candidates = IndependentFlip(Q)(truth, k, 0)
    problem = Problem(PartialDataset(train, candidates), truth, test, truth, tuple(map(str, range(k))))
    return problem, partial(FastConvNet, widths=(8, 8, 8))


def _train_with_stack(problem: Problem, net: NetFactory, recipe: Recipe) -> Iterator[float]:
    """Train with the library; yields the seconds of every epoch, then the test accuracy."""
    device = problem.train.x.device
    stack = Stack([Run(problem.train, 0)], ProPaLL(), net, recipe)
    training = Captured(stack, compiling=True) if device.type == "cuda" else stack
    for epoch in range(recipe.epochs):
        synchronize(device)
        start = time.perf_counter()
        training.train_epoch(epoch)
        synchronize(device)
        yield time.perf_counter() - start
    hits = training.scores(problem.test_x)[0].argmax(-1) == problem.test_truth
    yield float(hits.double().mean())


def _train_eagerly(problem: Problem, net: NetFactory, recipe: Recipe) -> Iterator[float]:
    """Train with modules and `torch.optim`, as one would write it by hand; yields as `_train_with_stack`."""
    x, candidates, views = problem.train.x, problem.train.candidates, recipe.views
    assert views is not None
    device, n, batch_size = x.device, len(x), min(recipe.batch_size, len(x))
    steps = n // batch_size
    module = build(net, Run(problem.train, counter_rng.seed_for(0, "eager")))
    module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = x.contiguous(memory_format=torch.channels_last)
    low, high = (extreme((0, 2, 3))[:, None, None] for extreme in (x.amin, x.amax))
    optimizer = _optimizer(module, recipe)
    rates = [group["lr"] for group in optimizer.param_groups]
    weights = [t for t in (*module.parameters(), *module.buffers()) if t.is_floating_point()]
    slow = [tensor.detach().clone() for tensor in weights]
    autocast = torch.autocast(device.type, torch.bfloat16)
    for epoch in range(recipe.epochs):
        synchronize(device)
        start = time.perf_counter()
        module.train()
        order = torch.randperm(n, device=device)
        for number in range(steps):
            step = epoch * steps + number
            progress = step / (recipe.epochs * steps)
            factor = float(recipe.rate_factor(torch.tensor(float(epoch)), torch.tensor(progress)))
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * factor
            index = order[number * batch_size : (number + 1) * batch_size]
            images = _augmented(x[index], views, epoch, low, high)
            with autocast:
                logits = module(images)
            loss = _loss(logits.float().unflatten(0, (2, -1)), candidates[index], views, progress)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if (step + 1) % recipe.lookahead == 0:
                past = LOOKAHEAD_DECAY**recipe.lookahead * ((step + 1) / (recipe.epochs * steps)) ** 3
                with torch.no_grad():
                    for fast, kept in zip(weights, slow, strict=True):
                        fast.lerp_(kept, past)
                        kept.copy_(fast)
        synchronize(device)
        yield time.perf_counter() - start
    module.eval()
    with torch.no_grad(), autocast:
        scores = torch.cat([module(part) for part in problem.test_x.split(SCORING_CHUNK)])
    yield float((scores.argmax(-1) == problem.test_truth).double().mean())


def _optimizer(module: nn.Module, recipe: Recipe) -> torch.optim.SGD:
    """SGD with a higher learning rate, and accordingly lower weight decay, for batch norm."""
    norms = {
        id(p) for layer in module.modules() if isinstance(layer, nn.BatchNorm2d) for p in layer.parameters()
    }
    trained = [p for p in module.parameters() if p.requires_grad]
    rate, decay, factor = recipe.learning_rate, recipe.weight_decay, recipe.norm_rate
    groups = [
        {"params": [p for p in trained if id(p) not in norms], "lr": rate, "weight_decay": decay},
        {
            "params": [p for p in trained if id(p) in norms],
            "lr": rate * factor,
            "weight_decay": decay / factor,
        },
    ]
    return torch.optim.SGD(groups, momentum=recipe.momentum, nesterov=recipe.nesterov)


def _augmented(images: Tensor, views: Views, epoch: int, low: Tensor, high: Tensor) -> Tensor:
    """The weak view of all images, then the strong one."""
    parts = []
    for augmentation in (views.weak, views.strong):
        draws = torch.rand(len(images), augmentation.n_draws, device=images.device)
        parts.append(augmentation(images, draws, epoch % 2 == 1, low=low, high=high))
    return torch.cat(parts).contiguous(memory_format=torch.channels_last)


def _loss(logits: Tensor, candidates: Tensor, views: Views, progress: float) -> Tensor:
    """ProPaLL on both views, and cross-entropy with the weak view's prediction among the candidates."""
    noise = torch.rand(logits.shape[1:], device=logits.device).logit(1e-7)
    noise = noise * float(noise_scale(torch.tensor(progress)))
    target = restricted_softmax(logits[0].detach(), candidates)
    base = torch.stack([propall_loss(part + noise, candidates).mean() for part in logits]).mean()
    consistency = torch.stack([cross_entropy(target, part).mean() for part in logits]).mean()
    return base + views.weight * min(1.0, progress / views.ramp) * consistency

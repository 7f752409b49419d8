"""A hand-written training loop, the baseline of the training benchmarks."""

import time
from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from propall.methods.propall import noise_scale, propall_loss
from propall.training.compiled import synchronize
from propall.training.recipe import Recipe


class EpochTime(NamedTuple):
    """Seconds of an epoch: its training steps, and in total with the evaluation."""

    training: float
    total: float


def eager_epochs(
    net: nn.Module,
    x: Float[Tensor, "n ..."],
    candidates: Bool[Tensor, "n k"],
    recipe: Recipe,
    *,
    test: tuple[Float[Tensor, "m ..."], Int[Tensor, "m"]] | None = None,
    half: bool = False,
) -> Iterator[EpochTime]:
    """Train ProPaLL in a plain loop: `nn.Module`, `torch.optim.SGD`, data on the device, no synchronization.

    Takes epochs and batch size from the recipe, drops an incomplete last batch, measures the accuracy on the
    `test` rows after every epoch, and with `half` runs the forward pass under bfloat16 autocast.
    """
    device, n = x.device, len(x)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    epochs, batch_size = recipe.epochs, recipe.batch_size
    steps = n // batch_size
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=half)
    accuracies = []
    for epoch in range(epochs):
        synchronize(device)
        start = time.perf_counter()
        net.train()
        order = torch.randperm(n, device=device)
        for step in range(steps):
            index = order[step * batch_size : (step + 1) * batch_size]
            with autocast:
                logits = net(x[index])
            progress = torch.tensor((epoch * steps + step) / (epochs * steps))
            noise = torch.rand(logits.shape, device=device).logit(1e-7) * float(noise_scale(progress))
            loss = propall_loss(logits.float() + noise, candidates[index]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        synchronize(device)
        trained = time.perf_counter()
        if test is not None:
            net.eval()
            with torch.no_grad(), autocast:
                scores = torch.cat([net(part) for part in test[0].split(4096)])
            accuracies.append((scores.argmax(-1) == test[1]).double().mean())
        synchronize(device)
        yield EpochTime(trained - start, time.perf_counter() - start)

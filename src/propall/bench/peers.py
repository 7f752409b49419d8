"""What the library is compared with: the paper's formula, and a training loop as one writes it by hand."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import softplus

from propall.bench.clock import wait
from propall.methods.propall import noise_scale, propall_loss
from propall.numerics import log1mexp


def appendix_a_loss(logits: Float[Tensor, "n k"], candidates: Bool[Tensor, "n k"]) -> Float[Tensor, "n"]:
    """ProPaLL as Appendix A of its paper computes it, in ordinary operations.

    The values of `propall_loss(mode="paper")`, without that function's second look at the exact form.

    References:
        [struski2022propall], App. A.
    """
    logits = logits.float() if logits.dtype == torch.bfloat16 else logits
    miss = softplus(logits, threshold=40)
    inside, outside = (miss * candidates).sum(-1), (miss * ~candidates).sum(-1)
    reach = logits.masked_fill(~candidates, -torch.inf)
    far = reach.amax(-1) <= -10
    return outside - torch.where(far, reach.logsumexp(-1), log1mexp(inside.where(~far, 1.0)))


class Epoch(NamedTuple):
    """Seconds of an epoch: its training steps, and all of it with the evaluation."""

    training: float
    all: float


def eager_epochs(
    net: nn.Module,
    x: Float[Tensor, "n ..."],
    candidates: Bool[Tensor, "n k"],
    *,
    test: tuple[Float[Tensor, "m ..."], Int[Tensor, "m"]] | None,
    epochs: int,
    batch_size: int,
    learning_rate: float = 0.05,
    half: bool = False,
) -> Iterator[Epoch]:
    """ProPaLL in a plain loop: `nn.Module`, `torch.optim.SGD`, all data on the device, nothing waited for.

    Args:
        net: the network, on the device.
        x: training rows.
        candidates: their candidate sets.
        test: rows and true classes to measure the accuracy on after every epoch.
        epochs: how many.
        batch_size: rows per step; an incomplete last batch is dropped.
        learning_rate: of SGD with momentum 0.9.
        half: forward passes under bfloat16 autocast.
    """
    device, n = x.device, len(x)
    optimizer = torch.optim.SGD(net.parameters(), lr=learning_rate, momentum=0.9)
    whole = n // batch_size
    precision: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
    if half:
        precision = lambda: torch.autocast(device.type, torch.bfloat16)  # noqa: E731
    accuracies = []
    for epoch in range(epochs):
        wait(device)
        start = time.perf_counter()
        net.train()
        order = torch.randperm(n, device=device)
        for number in range(whole):
            index = order[number * batch_size : (number + 1) * batch_size]
            with precision():
                logits = net(x[index])
            done = torch.tensor((epoch * whole + number) / (epochs * whole))
            noise = torch.rand(logits.shape, device=device).logit(1e-7) * float(noise_scale(done))
            loss = propall_loss(logits.float() + noise, candidates[index]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        wait(device)
        trained = time.perf_counter()
        if test is not None:
            net.eval()
            with torch.no_grad(), precision():
                scores = torch.cat([net(part) for part in test[0].split(4096)])
            accuracies.append((scores.argmax(-1) == test[1]).double().mean())
        wait(device)
        yield Epoch(trained - start, time.perf_counter() - start)

"""Losses over candidate sets fused into one pass over the logits, for many classes on a GPU.

`fused_propall`, `fused_cc` and `fused_proden` compute what `propall_loss`, `cc_loss` and `proden_loss` do, as
accurately, with nothing of the logits' size in memory but logits, candidates and gradient. They are custom
operators, so `torch.compile`, `vmap`, `torch.func.grad`, CUDA graphs and autocast pass through them. Where no
kernel can run (see `available`) the same operators compute the same closed forms in plain PyTorch.

What a training step reads and writes decides its speed. Called eagerly, the forward pass writes the gradient
too, for the factor that a mean over the rows is going to send back, 1/n. The backward pass then only looks
whether that factor came, on the device: no program writes, and the host waits for nothing. Where another came
(a sum, weights, a scaled loss), those rows are computed again, from the logits into the same memory, so that
no half-precision gradient is ever rescaled. A mean thus costs one read of logits and candidates and one write
of the gradient. Leaving that to the backward pass would read both twice, 14 bytes per float32 logit in
place of 9; that is what happens in `torch.compile` and `torch.func`, whose graphs must not write into memory
they have handed out.
"""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from propall.kernels.operators import candidate_loss, candidate_loss_ahead
from propall.kernels.rows import Rows, available, pays, precision
from propall.numerics import is_traced

__all__ = ["Noise", "available", "fused_cc", "fused_proden", "fused_propall", "pays"]


class Noise(NamedTuple):
    """Logistic noise drawn where it is used, so that no (n, k) tensor of draws exists.

    The logits become r + scale * logit(u) with u = draws.uniform(seed, step, key, label), clamped to
    [1e-7, 1 - 1e-7]. Every field is 0-d or has one entry per row.

    Attributes:
        scale: factor on the noise, float.
        seed: from `draws.seed_for`.
        step: number of the training step.
        keys: names of the rows in the random streams.
    """

    scale: Float[Tensor, "..."]
    seed: Int[Tensor, "..."]
    step: Int[Tensor, "..."]
    keys: Int[Tensor, "..."]


def fused_propall(
    logits: Float[Tensor, "*b k"],
    candidates: Bool[Tensor, "*b k"],
    *,
    noise: Noise | None = None,
    reduction: Literal["none", "mean"] = "none",
) -> Float[Tensor, "..."]:
    """`propall_loss` (exact mode) in one pass, with its noise drawn on the way if asked.

    Args:
        logits: scores r; float32, bfloat16 or float16, computed with in float32.
        candidates: True on S; every row holds at least one True.
        noise: what to draw the noise on the logits from; none by default.
        reduction: "none" for one loss per row, "mean" for their mean, whose backward pass is the quickest.

    References:
        [struski2022propall], Eq. 4 and 5.
    """
    return _fused("propall", logits, candidates, reduction, noise=noise)[0]


def fused_cc(
    logits: Float[Tensor, "*b k"],
    candidates: Bool[Tensor, "*b k"],
    *,
    reduction: Literal["none", "mean"] = "none",
) -> Float[Tensor, "..."]:
    """`cc_loss` in one pass.

    Args:
        logits: scores r; float32, bfloat16 or float16, computed with in float32.
        candidates: True on S; every row holds at least one True.
        reduction: "none" for one loss per row, "mean" for their mean, whose backward pass is the quickest.

    References:
        [feng2020provably].
    """
    return _fused("cc", logits, candidates, reduction)[0]


def fused_proden(
    logits: Float[Tensor, "*b k"],
    candidates: Bool[Tensor, "*b k"],
    weights: Float[Tensor, "*b k"],
    *,
    reduction: Literal["none", "mean"] = "none",
) -> tuple[Float[Tensor, "..."], Float[Tensor, "*b k"]]:
    """`proden_loss` with the current weights and the next weights, in one pass.

    Args:
        logits: scores r; float32, bfloat16 or float16, computed with in float32.
        candidates: True on S; every row holds at least one True.
        weights: the current weights, zero outside the candidates; constants, no gradient flows to them.
        reduction: "none" for one loss per row, "mean" for their mean, whose backward pass is the quickest.

    Returns:
        The losses, and the softmax over the candidates: the weights of the next visit, without gradient.

    References:
        [lv2020progressive].
    """
    return _fused("proden", logits, candidates, reduction, weights=weights)


def _fused(
    loss: str,
    logits: Tensor,
    candidates: Tensor,
    reduction: str,
    *,
    weights: Tensor | None = None,
    noise: Noise | None = None,
) -> tuple[Tensor, Tensor]:
    batch, k = logits.shape[:-1], logits.shape[-1]
    if len(batch) != 1:
        flat_weights = None if weights is None else weights.reshape(-1, k)
        flat_noise = None if noise is None else Noise(*(part.expand(batch).reshape(-1) for part in noise))
        flat = logits.reshape(-1, k), candidates.reshape(-1, k)
        value, new_weights = _fused(loss, *flat, reduction, weights=flat_weights, noise=flat_noise)
        value = value if reduction == "mean" else value.reshape(batch)
        return value, new_weights if weights is None else new_weights.reshape(logits.shape)
    rows = Rows(logits, candidates, None, None, None, None, None)
    if weights is not None:
        rows = rows._replace(weights=weights.to(precision(logits)))
    if noise is not None:
        types = {"scale": torch.float32, "seed": torch.int64, "step": torch.int64, "keys": torch.int64}
        parts = {name: getattr(noise, name).to(logits.device, t) for name, t in types.items()}
        rows = rows._replace(**{name: part.expand(batch) for name, part in parts.items()})
    # In a graph that is traced or transformed the gradient is left to the backward pass; see the top.
    traced = is_traced()
    if not traced and torch.is_grad_enabled() and logits.requires_grad and available(logits):
        return candidate_loss_ahead(rows, loss, reduction == "mean")
    losses, new_weights = candidate_loss(rows, loss)
    return losses.mean() if reduction == "mean" else losses, new_weights

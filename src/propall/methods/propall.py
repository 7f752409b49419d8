"""ProPaLL (Struski, Tabor, Zieliński): some candidate fires and no other label does."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import softplus

from propall import kernels
from propall.numerics import below_maximum, full_precision, is_traced, log1mexp
from propall.training.contract import RowwiseObjective, State, Step

#: Below this logit softplus is the exponential to every digit of float64.
FAR = -50.0
FAR_TOTAL = math.exp(FAR)
#: Larger than any logit, small enough to be added to one.
HUGE = 1e30


def propall_loss(
    logits: Float[Tensor, "*b k"],
    candidates: Bool[Tensor, "*b k"],
    mode: Literal["exact", "paper"] = "exact",
) -> Float[Tensor, "*b"]:
    r"""Negative log-probability of the candidate set under independent sigmoids.

    .. math:: \ell = -\log\bigl(1 - \prod_{i \in S}(1 - p_i)\bigr) - \sum_{j \notin S}\log(1 - p_j)

    with p = sigmoid(r). One candidate gives binary cross-entropy.

    Args:
        logits: scores r.
        candidates: True on S; every row holds at least one True.
        mode: "exact", or "paper" for the approximation of Appendix A, which replaces the first term by the
            logsumexp over S already where all candidate logits are at most -10.

    References:
        [struski2022propall], Eq. 4.

    Notes:
        Where the paper switches, the loss jumps by up to (1 + |S|)/2 * exp(-10); the exact mode switches
        nowhere. Its gradient is p outside S and -p / (exp(h) - 1) inside, h the sum of -log(1 - p) over S.
    """
    if mode not in ("exact", "paper"):
        raise ValueError(f"mode: {mode!r} given; expected 'exact' or 'paper'.")
    if mode == "exact" and kernels.pays(logits):
        return kernels.fused_propall(logits, candidates)
    logits = full_precision(logits)
    # Written out for plain autograd alone: compilers and `torch.func` need operations to look into.
    written_out: Any = plain_exact_loss if is_traced() else _ClosedForm.apply
    exact: Tensor = written_out(logits, candidates)
    if mode == "exact":
        return exact
    reach = logits.masked_fill(~candidates, -torch.inf)
    outside = softplus(logits, threshold=40).masked_fill(candidates, 0).sum(-1)
    below, top = below_maximum(reach)
    return torch.where(top <= -10, outside - top - below.logsumexp(-1), exact)


def plain_exact_loss(logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    """`propall_loss` in ordinary operations, for compilers, transforms and second derivatives."""
    inside = candidates.to(logits.dtype)
    moved, shift = _within_reach(logits, inside)
    miss = softplus(moved, threshold=40)  # -log(1 - p); the default threshold of 20 loses digits in float64
    outside, hit = miss.masked_fill(candidates, 0).sum(-1), log1mexp(miss.masked_fill(~candidates, 0).sum(-1))
    return outside - shift - hit


def _within_reach(logits: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
    """The logits, the candidates' moved up where all of them lie below `FAR`: there their odds would vanish.

    Down there log(1 - prod(1 - p)) is the logsumexp to every digit, and moves with its arguments.

    Returns:
        The moved logits, and by how much (at most 0) the candidates' lay lower in each row.
    """
    top = torch.sub(logits.detach(), 1 - inside, alpha=HUGE).amax(-1, keepdim=True)
    shift = (top - FAR).clamp(-HUGE, 0)
    return torch.addcmul(logits, shift, inside, value=-1), shift.squeeze(-1)


def _passes(logits: Tensor, candidates: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """The exact losses, and what `_slopes` needs."""
    inside = candidates.to(logits.dtype)  # numbers are multiplied much quicker than they are masked
    moved, shift = logits, None
    miss = softplus(logits, threshold=40)
    miss_inside = miss * inside
    total = miss_inside.sum(-1)
    # Hardly ever true, but a GPU is not to be waited for to know. Infinite logits, whose totals are infinite
    # or NaN, have to be masked: 0 times infinity is no number.
    if logits.device.type != "cpu" or (total.numel() and not _are_common(total)):
        moved, shift = _within_reach(logits, inside)
        miss = softplus(moved, threshold=40)
        outside = miss.masked_fill(candidates, 0)
        total = miss.masked_fill_(~candidates, 0).sum(-1)
    else:
        outside = miss.sub_(miss_inside)
    odds = torch.expm1(total).reciprocal_()  # of all candidates failing to one firing
    losses = outside.sum(-1).add_(torch.log1p(odds))
    return losses if shift is None else losses.sub_(shift), (moved, inside, odds)


def _are_common(totals: Tensor) -> bool:
    least, most = totals.aminmax()
    return float(least) >= FAR_TOTAL and float(most) < math.inf


class _ClosedForm(torch.autograd.Function):
    """`plain_exact_loss` with its gradient written out: a third of the operations of a small batch."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, candidates: Tensor) -> Tensor:
        losses, kept = _passes(logits, candidates)
        ctx.save_for_backward(logits, candidates, *kept)
        ctx.save_for_forward(logits, candidates, *kept)
        return losses

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor, None]:
        logits, candidates, *found = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is asked for: autograd finds it
            losses = plain_exact_loss(logits, candidates)
            return torch.autograd.grad(losses, logits, incoming, create_graph=True)[0], None
        return _slopes(*found).mul_(incoming.unsqueeze(-1)), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        return (_slopes(*ctx.saved_tensors[2:]) * tangent).sum(-1)


def _slopes(moved: Tensor, inside: Tensor, odds: Tensor) -> Tensor:
    p = moved.sigmoid()
    return torch.lerp(p, (p * odds.unsqueeze(-1)).neg_(), inside)  # exact at 0 and 1


def noise_scale(progress: Float[Tensor, "..."], anneal_from: float | Tensor = 0.8) -> Float[Tensor, "..."]:
    """Factor on the noise after a share `progress` of all steps: 1 up to `anneal_from`, then linear to 0."""
    return ((1 - progress) / (1 - anneal_from)).nan_to_num(0.0).clamp(0, 1)  # 0 / 0 at the end without a fall


@dataclass(frozen=True)
class ProPaLL(RowwiseObjective):
    """Probabilistic partial label learning.

    Attributes:
        noise: scale of the logistic noise on the logits during training; 0 for none.
        anneal_from: share of training after which the noise falls linearly to 0.
        mode: "exact", or "paper" for Appendix A; see `propall_loss`.
    """

    noise: float = 1.0
    anneal_from: float = 0.8
    mode: Literal["exact", "paper"] = "exact"

    name, title, reference = "propall", "ProPaLL", "struski2022propall"
    needs_noise = True

    def losses(
        self, logits: Float[Tensor, "b k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> Float[Tensor, "b"]:
        """`propall_loss` of the noisy logits."""
        assert step.uniform is not None
        scale = self.noise * noise_scale(step.progress, self.anneal_from)
        noisy = torch.addcmul(full_precision(logits), _logistic(step.uniform), scale)
        return propall_loss(noisy, candidates, self.mode)

    def losses_and_gradients(
        self, logits: Float[Tensor, "b k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> tuple[Float[Tensor, "b"], Float[Tensor, "b k"]]:
        """The exact mode's gradient is written out; see `propall_loss`."""
        if self.mode != "exact":
            return super().losses_and_gradients(logits, candidates, state, step)
        assert step.uniform is not None
        scale = self.noise
        # Nothing is traced here: a number will do, and most of the time there is none to compute.
        if step.progress.item() > self.anneal_from:
            scale = float(scale * noise_scale(step.progress, self.anneal_from))
        noisy = torch.add(full_precision(logits.detach()), _logistic(step.uniform), alpha=scale)
        losses, kept = _passes(noisy, candidates)
        return losses, _slopes(*kept)


def _logistic(uniform: Tensor) -> Tensor:
    """Standard logistic noise: the difference of two Gumbel draws, so one uniform suffices (Eq. 5)."""
    return uniform.logit(1e-7)

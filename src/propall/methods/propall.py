"""ProPaLL (Struski, Tabor, Zieliński): some candidate fires and no other label does."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import softplus

from propall import kernels
from propall.numerics import below_maximum, full_precision, log1mexp
from propall.training.contract import Candidates, Logits, RowLosses, RowwiseObjective, State, Step


def propall_loss(
    logits: Float[Tensor, "*b k"],
    candidates: Bool[Tensor, "*b k"],
    mode: Literal["exact", "paper"] = "exact",
    *,
    reduction: Literal["none", "mean"] = "none",
) -> Float[Tensor, "..."]:
    r"""Negative log-probability of the candidate set under independent sigmoids.

    .. math:: \ell = -\log\bigl(1 - \prod_{i \in S}(1 - p_i)\bigr) - \sum_{j \notin S}\log(1 - p_j)

    with p = sigmoid(r). One candidate gives binary cross-entropy.

    Args:
        logits: scores r.
        candidates: True on S; every row holds at least one True.
        mode: "exact", or "paper" for the approximation of Appendix A, which replaces the first term by the
            logsumexp over S as soon as all candidate logits are at most -10.
        reduction: "none" for one loss per row, or "mean".

    References:
        [struski2022propall], Eq. 4.

    Notes:
        Where the paper switches, the loss jumps by up to (1 + |S|)/2 * exp(-10); the exact mode does not
        switch. Its gradient is p outside S and -p / (exp(h) - 1) inside, h the sum of -log(1 - p) over S.
        The implementation is in `propall.kernels`.

    Examples:
        >>> logits = torch.tensor([[2.0, 0.0, -1.0]])
        >>> propall_loss(logits, torch.tensor([[True, True, False]]))
        tensor([0.3747])
    """
    if mode not in ("exact", "paper"):
        raise ValueError(f"mode: got {mode!r}; expected 'exact' or 'paper'.")
    if mode == "exact" and kernels.is_faster(logits):
        return kernels.fused_propall(logits, candidates, reduction=reduction)
    losses = (kernels.propall_losses if mode == "exact" else _appendix_a_loss)(logits, candidates)
    return losses.mean() if reduction == "mean" else losses


def _appendix_a_loss(logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    logits = full_precision(logits)
    miss = softplus(logits, threshold=40)  # -log(1 - p); the default threshold of 20 loses digits in float64
    inside, outside = (miss.masked_fill(mask, 0).sum(-1) for mask in (~candidates, candidates))
    below, top = below_maximum(logits.masked_fill(~candidates, -torch.inf))
    far = top <= -10
    # The second branch gets 1.0 where it is not taken: its gradient would be infinite there.
    return outside - torch.where(far, top + below.logsumexp(-1), log1mexp(inside.where(~far, 1.0)))


def noise_scale(progress: Float[Tensor, "..."], anneal_from: float | Tensor = 0.8) -> Float[Tensor, "..."]:
    """Factor on the noise by completed share of training: 1 up to `anneal_from`, then linear to 0."""
    return ((1 - progress) / (1 - anneal_from)).nan_to_num(0.0).clamp(0, 1)  # 0 / 0 if never annealed


@dataclass(frozen=True)
class ProPaLL(RowwiseObjective):
    """Probabilistic partial label learning.

    Attributes:
        noise: scale of the logistic noise on the logits during training; 0 for none.
        anneal_from: share of training after which the noise decays linearly to 0.
        mode: "exact", or "paper" for Appendix A; see `propall_loss`.
    """

    noise: float = 1.0
    anneal_from: float = 0.8
    mode: Literal["exact", "paper"] = "exact"

    name, title, reference = "propall", "ProPaLL", "struski2022propall"
    assumes = "the set contains the true label; nothing about how the others got there"
    use_when = (
        "First. A plain loss without memory or settings, for sets of any size and for single excluded labels."
    )
    needs_noise = True

    def losses(self, logits: Logits, candidates: Candidates, state: State, step: Step) -> RowLosses:
        """`propall_loss` of the noisy logits; without `step.uniform`, of the logits."""
        if step.uniform is None:
            return propall_loss(logits, candidates, self.mode)
        scale = self.noise * noise_scale(step.progress, self.anneal_from)
        noisy = torch.addcmul(full_precision(logits), _logistic(step.uniform), scale)
        return propall_loss(noisy, candidates, self.mode)

    def losses_and_gradients(
        self, logits: Logits, candidates: Candidates, state: State, step: Step
    ) -> tuple[RowLosses, Float[Tensor, "b k"]]:
        """Use the written-out gradient of the exact mode."""
        if self.mode != "exact" or step.uniform is None:
            return super().losses_and_gradients(logits, candidates, state, step)
        scale = self.noise
        if step.progress.item() > self.anneal_from:  # nothing is traced here, so a number will do
            scale = float(scale * noise_scale(step.progress, self.anneal_from))
        noisy = torch.add(full_precision(logits.detach()), _logistic(step.uniform), alpha=scale)
        return kernels.propall_losses_and_gradients(noisy, candidates)


#: ProPaLL with views: augmentation and consistency take the place of the paper's noise on the logits.
PROPALL_WITH_VIEWS = ProPaLL(noise=0.0)


def _logistic(uniform: Tensor) -> Tensor:
    """Standard logistic noise: the difference of two Gumbel draws, so one uniform suffices (Eq. 5)."""
    return uniform.logit(1e-7)

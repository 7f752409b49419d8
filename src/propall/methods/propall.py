"""ProPaLL (Struski, Tabor, Zieliński): some candidate fires and no other label does."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import softplus

from propall.labels import full_precision
from propall.training.contract import RowwiseObjective, State, Step

LOG_2 = 0.6931471805599453


def log1mexp(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    r"""log(1 - exp(-x)) for x > 0, accurate at both ends, with a finite gradient.

    References:
        [maechler2012log1mexp]: `expm1` below log 2, `log1p` above.
    """
    near = x < LOG_2
    # Each branch gets 1.0 where it is not taken: its gradient could be infinite there, and 0 * inf is NaN.
    small, large = x.where(near, 1.0), x.where(~near, 1.0)
    return torch.where(near, torch.log(-torch.expm1(-small)), torch.log1p(-torch.exp(-large)))


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
        Where the paper switches, the loss jumps by up to (1 + |S|)/2 * exp(-10). At -50 the two forms agree
        to every digit, so the exact mode switches there.
    """
    logits = full_precision(logits)
    miss = softplus(logits, threshold=40)  # -log(1 - p); the default threshold of 20 loses digits in float64
    inside, outside = (miss * candidates).sum(-1), (miss * ~candidates).sum(-1)
    reach = logits.masked_fill(~candidates, -torch.inf)
    # The branch not taken gets 1.0, away from log(0), whose gradient would be NaN even there.
    far = reach.amax(-1) < -50 if mode == "exact" else reach.amax(-1) <= -10
    return outside - torch.where(far, reach.logsumexp(-1), log1mexp(inside.where(~far, 1.0)))


def noise_scale(progress: Float[Tensor, "..."], anneal_from: float | Tensor = 0.8) -> Float[Tensor, "..."]:
    """Factor on the noise after a share `progress` of all steps: 1 up to `anneal_from`, then linear to 0."""
    return ((1 - progress) / (1 - anneal_from)).clamp(0, 1)


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
        # The difference of two Gumbel draws is one logistic draw, so one uniform suffices (Eq. 5).
        scale = self.noise * noise_scale(step.progress, self.anneal_from)
        noisy = full_precision(logits) + scale * step.uniform.logit(1e-7)
        return propall_loss(noisy, candidates, self.mode)

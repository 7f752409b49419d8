"""PRODEN (Lv et al.): cross-entropy with weights on the candidates that follow the network's own outputs."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propall.numerics import full_precision, restricted_softmax, uniform_weights
from propall.training.contract import RowwiseObjective, State, Step


def proden_loss(
    logits: Float[Tensor, "*b k"], weights: Float[Tensor, "*b k"], log_floor: float | Tensor = 0.0
) -> Float[Tensor, "*b"]:
    r"""Cross-entropy with the current label weights.

    .. math:: \ell = -\sum_j w_j \log p_j

    with p = softmax(r) and w a distribution on the candidates.

    Args:
        logits: scores r.
        weights: w, zero outside the candidates.
        log_floor: added to p inside the logarithm; VALEN's warm-up uses 1e-12.

    References:
        [lv2020progressive].
    """
    log_p = full_precision(logits).log_softmax(-1)
    if isinstance(log_floor, Tensor) or log_floor:
        floor = log_floor if isinstance(log_floor, Tensor) else log_p.new_full((), log_floor)
        # log(p + floor), which with a floor of 0 is log p even where p underflows.
        log_p = torch.logaddexp(log_p, floor.to(log_p.dtype).log())
    return -(weights * log_p).sum(-1)


@dataclass(frozen=True)
class PRODEN(RowwiseObjective):
    """Progressive identification of true labels.

    The weights used at a visit come from the outputs of the visit before: `update` sees the same logits as
    the loss, from before the optimiser's step.

    Attributes:
        log_floor: see `proden_loss`.

    Notes:
        The authors' code drops a candidate for ever once its weight underflows to zero; the paper
        normalises over the original set, and so does this.
    """

    log_floor: float = 0.0

    name, title, reference = "proden", "PRODEN", "lv2020progressive"
    memory = "k weights"

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """Equal weights on the candidates."""
        return State(rows={"weights": uniform_weights(candidates)})

    def losses(
        self, logits: Float[Tensor, "b k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> Float[Tensor, "b"]:
        """`proden_loss` with the stored weights."""
        return proden_loss(logits, state.rows["weights"], self.log_floor)

    def update(
        self, logits: Float[Tensor, "b k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> State:
        """Softmax over the candidates becomes the next visit's weights."""
        return state.with_rows(weights=restricted_softmax(logits, candidates))

"""PRODEN (Lv et al.): cross-entropy with candidate weights that follow the network's outputs."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from propall.methods._label_weights import LabelWeights
from propall.numerics import full_precision
from propall.training.contract import Candidates, Logits, RowLosses, State, Step


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
        # log(p + floor); with floor = 0 this is log p even where p underflows.
        log_p = torch.logaddexp(log_p, floor.to(log_p.dtype).log())
    return -(weights * log_p).sum(-1)


@dataclass(frozen=True)
class PRODEN(LabelWeights):
    """Progressive identification of true labels.

    The weights come from the outputs of the previous visit: `update` sees the same logits as the loss, from
    before the optimizer step.

    Attributes:
        log_floor: see `proden_loss`.

    Notes:
        The authors' code permanently drops a candidate once its weight underflows to zero. Here, as in the
        paper, weights are normalized over the original set.
    """

    log_floor: float = 0.0

    name, title, reference = "proden", "PRODEN", "lv2020progressive"
    assumes = "the set contains the true label, and no wrong label always comes with it"
    use_when = (
        "To see the weight of every candidate during training. Its accuracy is close to ProPaLL's in most "
        "tables of the paper."
    )

    def losses(self, logits: Logits, candidates: Candidates, state: State, step: Step) -> RowLosses:
        """`proden_loss` with the stored weights."""
        return proden_loss(logits, state.rows["weights"], self.log_floor)

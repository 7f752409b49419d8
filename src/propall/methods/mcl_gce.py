"""MCL-GCE (Feng et al.): the unbiased risk of several complementary labels for generalised cross-entropy."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propall.labels import full_precision
from propall.training.contract import RowwiseObjective, State, Step
from propall.training.risks import require_some_excluded


def mcl_gce_loss(
    logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"], q: float | Float[Tensor, ""] = 0.7
) -> Float[Tensor, "*b"]:
    r"""Unbiased estimate of generalised cross-entropy from the labels that are not excluded.

    .. math:: \ell = \sum_{j \in S} l_j - \frac{k - 1 - s}{s} \sum_{j \notin S} l_j
        = \frac1q \Bigl[1 - \sum_{j \in S} p_j^q + \frac{k - 1 - s}{s} \sum_{j \notin S} p_j^q\Bigr], \qquad
        l_j = \frac{1 - p_j^q}{q}, \quad s = k - |S|

    with p = softmax(r).

    Args:
        logits: scores r.
        candidates: True on S; every row holds at least one False.
        q: between 0 (cross-entropy, exclusive) and 1 (half the absolute error).

    References:
        [feng2020multiple].

    Notes:
        The power is taken from log p: that of a p which underflowed has a NaN gradient.
    """
    powers = (q * full_precision(logits).log_softmax(-1)).exp()
    excluded = (~candidates).sum(-1, keepdim=True, dtype=powers.dtype)
    share = torch.where(candidates, -1.0, (logits.shape[-1] - 1 - excluded) / excluded)
    return (1 + (share * powers).sum(-1)) / q


@dataclass(frozen=True)
class MCLGCE(RowwiseObjective):
    """Learning with multiple complementary labels, unbiased risk of generalised cross-entropy.

    Attributes:
        q: exponent of generalised cross-entropy, above 0 and up to 1.
    """

    q: float = 0.7

    name, title, reference = "mcl_gce", "MCL-GCE", "feng2020multiple"
    kind = "complementary labels"

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """Nothing to remember; refuses rows that hold every class."""
        require_some_excluded(candidates, self.title, "abs, which averages over the candidates")
        return State()

    def losses(
        self, logits: Float[Tensor, "b k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> Float[Tensor, "b"]:
        """`mcl_gce_loss`."""
        return mcl_gce_loss(logits, candidates, self.q)

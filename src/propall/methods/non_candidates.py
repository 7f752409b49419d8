"""The supervised term of CR-DPLL (Wu et al.): every label outside the candidates is learned to be wrong."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from propall.numerics import probabilities_and_complements
from propall.training.contract import StatelessObjective


def non_candidates_loss(
    logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"], guard: float | Tensor = 1e-7
) -> Float[Tensor, "*b"]:
    r"""Negative learning loss of all labels outside the candidates.

    .. math:: \ell = -\sum_{j \notin S} \log(1 - p_j + \epsilon)

    with p = softmax(r). 0 where S contains every class, up to epsilon.

    Args:
        logits: scores r.
        candidates: True on S; at least one True per row.
        guard: epsilon; CR-DPLL and GLWS use 1e-7, POCR 1.1e-7.

    References:
        [wu2022revisiting].

    Notes:
        1 - p is computed without cancellation; in float32, 1.0000001 - p is off by up to 20 % of epsilon.
    """
    _, complement = probabilities_and_complements(logits)
    return -(complement + guard).log().masked_fill(candidates, 0).sum(-1)


@dataclass(frozen=True)
class NonCandidates(StatelessObjective):
    """Negative learning of the labels outside the candidates; the base loss of CR-DPLL, GLWS and POCR.

    Attributes:
        guard: see `non_candidates_loss`.
    """

    guard: float = 1e-7

    name, title, reference = "non_candidates", "Non-candidates", "wu2022revisiting"
    assumes = "labels outside the set are wrong; nothing about those inside, so it needs a second term"
    use_when = (
        "As the base of training with views, as in CR-DPLL. Alone, it does not decide between candidates."
    )
    formula = staticmethod(non_candidates_loss)

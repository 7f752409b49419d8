"""CC (Feng et al.): the classifier-consistent loss, the negative log-probability of the candidate set."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from propall import kernels
from propall.numerics import negative_log_mass
from propall.training.contract import StatelessObjective


def cc_loss(logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    r"""Negative log of the softmax mass on the candidates.

    .. math:: \ell = -\log \sum_{j \in S} p_j

    with p = softmax(r). One candidate gives cross-entropy; all classes as candidates give 0.

    Args:
        logits: scores r.
        candidates: True on S; every row holds at least one True.

    References:
        [feng2020provably].

    Notes:
        The authors' code takes the log of a sum of probabilities: infinite for gaps above 103 logits.
    """
    if kernels.is_faster(logits):
        return kernels.fused_cc(logits, candidates)
    return negative_log_mass(logits, candidates)


@dataclass(frozen=True)
class CC(StatelessObjective):
    """Classifier-consistent partial label learning."""

    name, title, reference = "cc", "CC", "feng2020provably"
    assumes = "every set that contains the true label is equally likely"
    use_when = "As a baseline: the simplest loss with softmax outputs, for sets drawn at random."
    formula = staticmethod(cc_loss)

"""PC (Ishida et al. 2017): pairwise comparison of the excluded class with all others."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._risks import OneExcludedLabel
from propall.numerics import full_precision
from propall.training.contract import StatelessObjective


def pc_ishida_loss(logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    r"""Pairwise comparison of the excluded class with all others, scaled to the unbiased risk.

    .. math:: \ell = (k - 1) \Bigl[\sum_i \sigma(r_{\bar y} - r_i) - \frac{k}{2} + 1\Bigr]
        = (k - 1) \Bigl[1 + \tfrac12 \sum_i \tanh \frac{r_{\bar y} - r_i}{2}\Bigr]

    with the sum over all k classes.

    Args:
        logits: scores r.
        candidates: True on every class except the excluded one, ybar.

    References:
        [ishida2017learning].

    Notes:
        As in the authors' code, the sum includes ybar itself, a constant 1/2. Values therefore lie (k - 1)/2
        above the risk estimate of the paper; gradients agree.
    """
    logits = full_precision(logits)
    excluded = (logits * ~candidates).sum(-1, keepdim=True)
    return (logits.shape[-1] - 1) * (1 + 0.5 * ((excluded - logits) / 2).tanh().sum(-1))


@dataclass(frozen=True)
class PCIshida(OneExcludedLabel, StatelessObjective):
    """Pairwise comparison with one complementary label."""

    name, title, reference = "pc_ishida", "PC (Ishida)", "ishida2017learning"
    assumes = "one excluded label per row, drawn uniformly from the wrong ones"
    use_when = (
        "To compare with published tables: the first loss for one excluded label. Forward "
        "is the better choice."
    )
    instead = "pc, which takes sets of any size"
    formula = staticmethod(pc_ishida_loss)

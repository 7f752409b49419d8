"""PC (Ishida et al. 2017): pairwise comparison of the excluded class with all others."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._risks import require_one_excluded
from propall.numerics import full_precision
from propall.training.contract import RowwiseObjective, State, Step


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
class PCIshida(RowwiseObjective):
    """Pairwise comparison with one complementary label."""

    name, title, reference = "pc_ishida", "PC (Ishida)", "ishida2017learning"
    kind = "complementary labels"

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """Return an empty state; raise ValueError unless every row excludes exactly one label."""
        require_one_excluded(candidates, self.title, "pc, which takes sets of any size")
        return State()

    def losses(
        self, logits: Float[Tensor, "b k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> Float[Tensor, "b"]:
        """`pc_ishida_loss`."""
        return pc_ishida_loss(logits, candidates)

"""NN (Ishida et al. 2019): the unbiased risk estimate from excluded labels, with class risks clipped at 0."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from propall.methods._risks import ClassRiskObjective, ClassRisks, Pairs


def nn_loss(estimate: ClassRisks) -> Float[Tensor, ""]:
    r"""Sum of the non-negative parts of the class risks of a batch.

    .. math:: \ell = \sum_j \max(r_j, 0)

    A class with risk at or below 0 gets no gradient.

    Args:
        estimate: class risks r, see `propall.methods._risks.class_risks`.

    References:
        [ishida2019complementary].
    """
    return estimate.risks.relu().sum()


@dataclass(frozen=True)
class NN(ClassRiskObjective):
    """Risk estimate with non-negative correction.

    Attributes:
        pairs: how the labels of rows that exclude several are weighted; see `excluded_units`.
    """

    pairs: Pairs = "instance"

    name, title, reference = "nn", "NN", "ishida2019complementary"
    assumes = "excluded labels are drawn uniformly from the wrong ones"
    use_when = "To compare with Free: negative risks are clipped at zero. GA and Forward reach more."
    combine = staticmethod(nn_loss)

"""Free (Ishida et al. 2019): the unbiased risk estimate from excluded labels, without a lower bound."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from propall.methods._risks import ClassRiskObjective, ClassRisks, Pairs


def free_loss(estimate: ClassRisks) -> Float[Tensor, ""]:
    r"""Sum of the class risks of a batch; terms and sum may be negative.

    .. math:: \ell = \sum_j r_j

    Args:
        estimate: class risks r, see `propall.methods._risks.class_risks`.

    References:
        [ishida2019complementary].
    """
    return estimate.risks.sum()


@dataclass(frozen=True)
class Free(ClassRiskObjective):
    """Unbiased risk estimate without correction.

    Attributes:
        pairs: how the labels of rows that exclude several are weighted; see `excluded_units`.
    """

    pairs: Pairs = "instance"

    name, title, reference = "free", "Free", "ishida2019complementary"
    assumes = "excluded labels are drawn uniformly from the wrong ones; risks may be negative"
    use_when = (
        "To compare: its unbiased risk can fall below zero, and then the network "
        "overfits. NN and GA prevent that."
    )
    combine = staticmethod(free_loss)

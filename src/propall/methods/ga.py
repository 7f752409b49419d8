"""GA (Ishida et al. 2019): descent on the risk from excluded labels, ascent if a class risk is negative."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._risks import ClassRiskObjective, ClassRisks, Pairs


class GAStep(NamedTuple):
    """Descent or ascent step for one batch.

    Attributes:
        ascends: whether a class risk is negative.
        backward: the differentiated value: the risk, or on ascent the sum of the negative tested risks.
        loss: `backward`, negated on ascent; the optimizer follows its gradient.
        risk: the sum of all class risks, for reporting.
    """

    ascends: Bool[Tensor, ""]
    backward: Float[Tensor, ""]
    loss: Float[Tensor, ""]
    risk: Float[Tensor, ""]


def ga_step(estimate: ClassRisks, variant: Literal["public", "paper"] = "public") -> GAStep:
    r"""Choose between descent and ascent without branching.

    .. math:: \ell = \begin{cases} \sum_j r_j & \text{if } \min_j t_j \ge 0 \\
        -\sum_j \min(t_j, 0) & \text{otherwise} \end{cases}

    Args:
        estimate: class risks r and counts c of a batch.
        variant: "public" uses t_j = c_j r_j, so a class that no row of the batch excludes cannot trigger an
            ascent; "paper" uses t_j = r_j.

    References:
        [ishida2019complementary], Algorithm 1, with threshold 0 and equal step sizes for both directions.

    Notes:
        Only the authors' code uses the counts. With instance weights they are weighted counts, so weights
        with mean one preserve the size of the ascent steps.
    """
    risk = estimate.risks.sum()
    tested = estimate.counts * estimate.risks if variant == "public" else estimate.risks
    ascends = (tested < 0).any()
    below = (-tested).relu().sum()
    return GAStep(ascends, torch.where(ascends, -below, risk), torch.where(ascends, below, risk), risk)


@dataclass(frozen=True)
class GA(ClassRiskObjective):
    """Risk estimate with gradient ascent.

    Momentum and weight decay of the optimizer apply to both kinds of step.

    Attributes:
        variant: "public" for the authors' code, "paper" for the article; see `ga_step`.
        pairs: how the labels of rows that exclude several are weighted; see `excluded_units`.
    """

    variant: Literal["public", "paper"] = "public"
    pairs: Pairs = "instance"

    name, title, reference = "ga", "GA", "ishida2019complementary"
    assumes = "excluded labels are drawn uniformly from the wrong ones"
    use_when = (
        "If an unbiased risk for single excluded labels is wanted. It fails on the real "
        "tables with their many classes."
    )

    def combine(self, estimate: ClassRisks) -> Float[Tensor, ""]:
        """`ga_step`."""
        return ga_step(estimate, self.variant).loss

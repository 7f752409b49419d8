"""GA (Ishida et al. 2019): descend on the risk from excluded labels, ascend where it has become negative."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._risks import ClassRisks, Pairs, class_risks, excluded_prior
from propall.training.contract import Objective, State, Step


class GAStep(NamedTuple):
    """What one batch's class risks make the optimiser do.

    Attributes:
        ascends: whether a class risk is negative.
        backward: what is differentiated: the risk, or on ascent the sum of the negative (counted) risks.
        loss: `backward`, negated on ascent; its gradient is the one the optimiser receives.
        risk: the sum of all class risks, the number worth reporting in both cases.
    """

    ascends: Bool[Tensor, ""]
    backward: Float[Tensor, ""]
    loss: Float[Tensor, ""]
    risk: Float[Tensor, ""]


def ga_step(estimate: ClassRisks, variant: Literal["public", "paper"] = "public") -> GAStep:
    r"""Choose between descent and ascent, without a branch.

    .. math:: \ell = \begin{cases} \sum_j r_j & \text{if } \min_j t_j \ge 0 \\
        -\sum_j \min(t_j, 0) & \text{otherwise} \end{cases}

    Args:
        estimate: class risks r and counts c of a batch.
        variant: "public" takes t_j = c_j r_j, so that a class that no row of the batch excludes cannot start
            an ascent; "paper" takes t_j = r_j.

    References:
        [ishida2019complementary], Algorithm 1, with threshold 0 and a step of the same size both ways.

    Notes:
        The counts are in the authors' code alone. With instance weights they are weighted counts, so weights
        with mean one keep the size of its ascent steps.
    """
    risk = estimate.risks.sum()
    tested = estimate.counts * estimate.risks if variant == "public" else estimate.risks
    ascends = (tested < 0).any()
    below = (-tested).relu().sum()
    return GAStep(ascends, torch.where(ascends, -below, risk), torch.where(ascends, below, risk), risk)


def ga_loss(
    logits: Float[Tensor, "b k"],
    candidates: Bool[Tensor, "b k"],
    prior: Float[Tensor, "k"],
    *,
    variant: Literal["public", "paper"] = "public",
    pairs: Pairs = "instance",
    weight: Float[Tensor, "b"] | None = None,
) -> Float[Tensor, ""]:
    """The value whose gradient the optimiser follows: `ga_step` of the batch's class risks.

    Args:
        logits: scores.
        candidates: True on S.
        prior: how often each class is excluded in the whole training set.
        variant: "public" or "paper"; see `ga_step`.
        pairs: "instance" shares one unit between the labels a row excludes, "pooled" gives one to each.
        weight: weights of the rows.

    References:
        [ishida2019complementary].
    """
    return ga_step(class_risks(logits, candidates, prior, pairs=pairs, weight=weight), variant).loss


@dataclass(frozen=True)
class GA(Objective):
    """The risk estimate with gradient ascent.

    Moments and weight decay of the optimiser work as usual in both kinds of step.

    Attributes:
        variant: "public" for the authors' code, "paper" for the article; see `ga_step`.
        pairs: how rows that exclude several labels count; see `ga_loss`.
    """

    variant: Literal["public", "paper"] = "public"
    pairs: Pairs = "instance"

    name, title, reference = "ga", "GA", "ishida2019complementary"
    kind = "complementary labels"
    memory = "class priors"

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """How often each class is excluded; refuses data in which none ever is."""
        return State(shared={"prior": excluded_prior(candidates, pairs=self.pairs, weight=weight)})

    def loss(
        self, logits: Float[Tensor, "b k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> Float[Tensor, ""]:
        """`ga_loss`."""
        return ga_loss(
            logits,
            candidates,
            state.shared["prior"],
            variant=self.variant,
            pairs=self.pairs,
            weight=step.weight,
        )

"""Free (Ishida et al. 2019): the unbiased risk estimate from excluded labels, without a lower bound."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._risks import Pairs, class_risks, excluded_prior
from propall.training.contract import Objective, State, Step


def free_loss(
    logits: Float[Tensor, "b k"],
    candidates: Bool[Tensor, "b k"],
    prior: Float[Tensor, "k"],
    *,
    pairs: Pairs = "instance",
    weight: Float[Tensor, "b"] | None = None,
) -> Float[Tensor, ""]:
    r"""Sum of the class risks of a batch.

    .. math:: \ell = \sum_j r_j

    with r_j from `propall.methods._risks.class_risks` (same arguments); terms and sum may be negative.

    References:
        [ishida2019complementary].
    """
    return class_risks(logits, candidates, prior, pairs=pairs, weight=weight).risks.sum()


@dataclass(frozen=True)
class Free(Objective):
    """Unbiased risk estimate without correction.

    Attributes:
        pairs: how the labels of rows that exclude several are weighted; see `excluded_units`.
    """

    pairs: Pairs = "instance"

    name, title, reference = "free", "Free", "ishida2019complementary"
    kind = "complementary labels"
    memory = "none (k class priors in total)"

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """Store how often each class is excluded; raise ValueError if none ever is."""
        return State(shared={"prior": excluded_prior(candidates, pairs=self.pairs, weight=weight)})

    def loss(
        self, logits: Float[Tensor, "b k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> Float[Tensor, ""]:
        """`free_loss`."""
        return free_loss(logits, candidates, state.shared["prior"], pairs=self.pairs, weight=step.weight)

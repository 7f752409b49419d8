"""NN (Ishida et al. 2019): the unbiased risk estimate from excluded labels, with class risks clipped at 0."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._risks import Pairs, class_risks, excluded_prior
from propall.training.contract import Objective, State, Step


def nn_loss(
    logits: Float[Tensor, "b k"],
    candidates: Bool[Tensor, "b k"],
    prior: Float[Tensor, "k"],
    *,
    pairs: Pairs = "instance",
    weight: Float[Tensor, "b"] | None = None,
) -> Float[Tensor, ""]:
    r"""Sum of the non-negative parts of the class risks of a batch.

    .. math:: \ell = \sum_j \max(r_j, 0)

    with r_j from `propall.methods._risks.class_risks` (same arguments). A class with risk at or below 0 gets
    no gradient.

    References:
        [ishida2019complementary].
    """
    return class_risks(logits, candidates, prior, pairs=pairs, weight=weight).risks.relu().sum()


@dataclass(frozen=True)
class NN(Objective):
    """Risk estimate with non-negative correction.

    Attributes:
        pairs: how the labels of rows that exclude several are weighted; see `excluded_units`.
    """

    pairs: Pairs = "instance"

    name, title, reference = "nn", "NN", "ishida2019complementary"
    kind = "complementary labels"
    memory = "none (k class priors in total)"

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """Store how often each class is excluded; raise ValueError if none ever is."""
        return State(shared={"prior": excluded_prior(candidates, pairs=self.pairs, weight=weight)})

    def loss(
        self, logits: Float[Tensor, "b k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> Float[Tensor, ""]:
        """`nn_loss`."""
        return nn_loss(logits, candidates, state.shared["prior"], pairs=self.pairs, weight=step.weight)

"""Forward (Yu et al.): negative log-likelihood of the excluded label under a known exclusion process."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from propall.methods._risks import Transition, as_transition, require_one_excluded, transition_matrix
from propall.numerics import below_maximum, full_precision, negative_log_mass
from propall.training.contract import Candidates, Logits, RowLosses, RowwiseObjective, State, Step
from propall.wording import plural


def uniform_forward_loss(
    logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"]
) -> Float[Tensor, "*b"]:
    r"""Negative log-probability of the excluded labels if all wrong labels are equally likely to be excluded.

    .. math:: \ell = -\log \sum_{j \in S} p_j + \log \binom{k - 1}{s}, \qquad s = k - |S|

    with p = softmax(r). The constant is log(k - 1) for one excluded label. It is 0 for a single candidate
    (where the loss is cross-entropy) and for a row that contains every class (where the loss is 0).

    Args:
        logits: scores r.
        candidates: True on S; at least one True per row.

    References:
        [yu2018learning], for one excluded label. For several, this is the likelihood of a set drawn
        uniformly among all sets of its size that do not contain the true class.
    """
    mass = negative_log_mass(logits, candidates)
    drawn = torch.arange(logits.shape[-1] - 1, dtype=mass.dtype, device=mass.device)
    # C(k - 1, s) is the product of the first s of these ratios.
    ratios = ((logits.shape[-1] - 1 - drawn) / (drawn + 1)).log()
    return mass + (ratios * (drawn < (~candidates).sum(-1, keepdim=True))).sum(-1)


def forward_loss(
    logits: Float[Tensor, "*b k"], candidates: Bool[Tensor, "*b k"], transition: Float[Tensor, "k k"]
) -> Float[Tensor, "*b"]:
    r"""Negative log-probability of the excluded label under a transition matrix.

    .. math:: \ell = -\log \sum_y p_y Q_{y \bar y}
        = \operatorname{LSE}_y r_y - \operatorname{LSE}_y \bigl(r_y + \log Q_{y \bar y}\bigr)

    with p = softmax(r).

    Args:
        logits: scores r.
        candidates: True on every class except the excluded one, ybar.
        transition: Q, with P(excluded label | class y) in row y.

    References:
        [yu2018learning].

    Notes:
        Public code takes the log of the summed probabilities, which is infinite once p rounds to 1 on the
        excluded class, or masks that by adding 1e-6.
    """
    logits = full_precision(logits)
    # Indexing instead of a matrix product: 0 * log 0 is NaN, and a product could be rounded to TF32.
    column = transition.to(logits.dtype).mT[(~candidates).int().argmax(-1)]
    every, high = below_maximum(logits)
    possible, low = below_maximum(logits.masked_fill(column == 0, -torch.inf))
    return (high - low) + (every.logsumexp(-1) - (possible + column.log()).logsumexp(-1))


@dataclass(frozen=True)
class Forward(RowwiseObjective):
    """Forward correction.

    Attributes:
        transition: "uniform", for candidate sets of any size; or the rows of Q with
            P(excluded label | class y) in row y, for one excluded label per instance.
    """

    transition: Transition = "uniform"

    name, title, reference = "forward", "Forward", "yu2018learning"
    assumes = "one excluded label per row, drawn from a known distribution for each class; uniform by default"
    use_when = (
        "If one label per row is excluded and you know how often each is: pass "
        "`transition`. Close to ProPaLL if uniform."
    )
    kind = "complementary labels"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "transition", as_transition(self.transition))

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """Store the transition matrix, if there is one; raise ValueError where it gives an infinite loss."""
        if self.transition == "uniform":
            return State()
        require_one_excluded(candidates, self.title, "transition='uniform', which takes sets of any size")
        transition = transition_matrix(self.transition, candidates.shape[-1], candidates.device)
        impossible = ~candidates & (transition == 0).all(0)
        if impossible.any():
            row, label = impossible.nonzero()[0].tolist()
            rows = plural(int(impossible.sum()), "row")
            raise ValueError(
                f"transition: {rows} with an excluded label whose column is 0 "
                f"(first: row {row}, label {label}), so their loss is infinite. Add a positive entry."
            )
        return State(shared={"transition": transition})

    def losses(self, logits: Logits, candidates: Candidates, state: State, step: Step) -> RowLosses:
        """`uniform_forward_loss`, or `forward_loss` with the transition matrix."""
        if self.transition == "uniform":
            return uniform_forward_loss(logits, candidates)
        return forward_loss(logits, candidates, state.shared["transition"])

r"""How large a head start one of two paired classes needs to swallow the other: a model without randomness.

Four classes in two pairs, with the sets of `paired_classes`. All rows of a class are the same point; the
model has one bias per label, which the classes share, and one logit per class and label. It follows the
exact mean gradient over all candidate sets. One label of the first pair starts ahead, by its bias.

While the partners a and b have the same logits in both classes and every other label is outside the sets, the
difference of their biases grows under CC with

.. math:: (r - P) \frac{p_a - p_b}{P}

where P is the probability of {a, b}. ProPaLL has the same formula with the sigmoids for p and the probability
:math:`F = 1 - (1 - p_a)(1 - p_b)` that one of the two fires for P. So either loss enlarges a head start as
long as it finds the set less probable than r, and reduces it afterwards.
"""

from collections.abc import Sequence
from itertools import product
from math import prod

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from propall.numerics import restricted_softmax
from propall.training.contract import Objective, RowwiseObjective, State, Step

#: The partner of every class.
PARTNERS = (1, 0, 3, 2)
#: The largest head start that is tried, in logits.
LARGEST = 40.0
#: Halvings of the interval that a head start is searched in.
HALVINGS = 14


def base_gradients(
    base: Objective, logits: Float[Tensor, "n k"], candidates: Bool[Tensor, "n k"]
) -> Float[Tensor, "n k"]:
    """Return the gradient of every row's loss, at the end of training and without noise."""
    assert isinstance(base, RowwiseObjective)
    now = Step(torch.ones((), device=logits.device), torch.zeros((), device=logits.device))
    return base.losses_and_gradients(logits, candidates, State(), now)[1]


def all_sets(together: float, q: float) -> tuple[Bool[Tensor, "n k"], Int[Tensor, "n"], Float[Tensor, "n"]]:
    """Return every candidate set of every class with its true label and its probability."""
    k = len(PARTNERS)
    rows = [(truth, bits) for truth in range(k) for bits in product((False, True), repeat=k) if bits[truth]]

    def probability(truth: int, bits: tuple[bool, ...]) -> float:
        chances = [together if label == PARTNERS[truth] else q for label in range(k)]
        return prod(
            chance if bit else 1 - chance
            for label, (bit, chance) in enumerate(zip(bits, chances, strict=True))
            if label != truth
        )

    weights = torch.tensor([probability(*row) / k for row in rows], dtype=torch.float64)
    return torch.tensor([bits for _, bits in rows]), torch.tensor([truth for truth, _ in rows]), weights


def smallest_head_starts(
    base: Objective,
    together: Sequence[float],
    *,
    q: float = 0.2,
    consistency: float = 0.0,
    steps: int = 100,
    rate: float = 0.5,
) -> list[float]:
    """Return the smallest head start with which a label keeps the rows of its partner, for every r.

    Args:
        base: the base loss.
        together: values of r.
        q: probability of the other wrong labels.
        consistency: factor of the consistency term, with both views equal.
        steps: number of gradient steps.
        rate: their size.

    Returns:
        Logits; infinity if even `LARGEST` is too small.
    """
    parts = [all_sets(r, q) for r in together]
    candidates, truth, weights = (torch.stack(part) for part in zip(*parts, strict=True))
    low, high = torch.zeros(len(parts)).double(), torch.full((len(parts),), LARGEST).double()

    def swallows(head_start: Tensor) -> Tensor:
        k = len(PARTNERS)
        bias = torch.zeros(len(parts), k).double()
        bias[:, 0], bias[:, 1] = -head_start / 2, head_start / 2
        logits = torch.zeros(len(parts), k, k).double()  # (r, class, label)
        for _ in range(steps):
            of_rows = (bias[:, None] + logits).gather(1, truth[..., None].expand(-1, -1, k))
            flat, sets = of_rows.flatten(0, 1), candidates.flatten(0, 1)
            slope = base_gradients(base, flat, sets)
            if consistency:
                slope = slope + consistency * (flat.softmax(-1) - restricted_softmax(flat, sets))
            change = -rate * weights[..., None] * slope.unflatten(0, truth.shape)
            bias = bias + change.sum(1)
            logits = logits.scatter_add(1, truth[..., None].expand_as(change), change)
        first = (bias[:, None] + logits)[:, 0]
        return first[:, 1] > first[:, 0]

    possible = swallows(high)
    for _ in range(HALVINGS if possible.any() else 0):
        middle = (low + high) / 2
        above = swallows(middle)
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return torch.where(possible, high, torch.inf).tolist()

"""Which class the training rows of every class are resolved to, and which classes are candidates together.

A class is swallowed if less than half of its training rows are resolved to it: the network explains their
candidate sets by other classes and hardly ever predicts this one.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from propall.training.metrics import confusion

#: A class is swallowed if a smaller share of its training rows is resolved to it.
SWALLOWED_BELOW = 0.5


class Swallowed(NamedTuple):
    """A class that training has dropped."""

    label: int
    resolved: float  # share of its rows that are resolved to it
    by: int  # the class that most of its rows are resolved to
    share: float  # share of its rows that are resolved to that class


class Companion(NamedTuple):
    """The wrong label that is most often in the candidate sets of a class."""

    label: int
    companion: int
    share: float  # share of the class's rows whose set contains the companion
    mutual: bool  # whether the class is the companion's companion


def resolution_matrix(
    logits: Float[Tensor, "n k"], candidates: Bool[Tensor, "n k"], truth: Int[Tensor, "n"]
) -> Float[Tensor, "k k"]:
    """Return, for every true class, the share of its rows whose highest-scoring candidate is each label.

    A class without rows has zeros.
    """
    return _shares(confusion(logits.masked_fill(~candidates, -torch.inf), truth), truth)


def candidate_shares(candidates: Bool[Tensor, "n k"], truth: Int[Tensor, "n"]) -> Float[Tensor, "k k"]:
    """Return, for every true class, the share of its rows whose set contains each label."""
    return class_means(candidates.double(), truth)


def class_means(values: Float[Tensor, "n k"], truth: Int[Tensor, "n"]) -> Float[Tensor, "k k"]:
    """Return the mean of the rows of every true class; zeros for a class without rows."""
    return _shares(one_hot(truth, values.shape[1]).to(values).T @ values, truth)


def class_accuracies(logits: Float[Tensor, "n k"], truth: Int[Tensor, "n"]) -> Float[Tensor, "k"]:
    """Return the share of the rows of every class that are predicted correctly."""
    return _shares(confusion(logits, truth), truth).diagonal()


def _shares(counts: Tensor, truth: Tensor) -> Tensor:
    rows = torch.bincount(truth, minlength=len(counts)).double()
    return counts.double() / rows.clamp(min=1)[:, None]


def swallowed_classes(resolution: Float[Tensor, "k k"]) -> list[Swallowed]:
    """Return the swallowed classes of a `resolution_matrix`; classes without rows are left out.

    Examples:
        >>> swallowed_classes(torch.tensor([[0.2, 0.8, 0.0], [0.0, 1.0, 0.0], [0.1, 0.0, 0.9]]))
        [Swallowed(label=0, resolved=0.2..., by=1, share=0.8...)]
    """
    found = []
    for label, row in enumerate(resolution):
        resolved = float(row[label])
        others = row.clone()
        others[label] = -1
        if float(row.sum()) > 0 and resolved < SWALLOWED_BELOW:
            found.append(Swallowed(label, resolved, int(others.argmax()), float(others.max())))
    return found


def find_companions(shares: Float[Tensor, "k k"]) -> list[Companion]:
    """Return the companion of every class from its `candidate_shares`.

    Examples:
        >>> shares = torch.tensor([[1.0, 0.5, 0.25], [0.75, 1.0, 0.5], [0.0, 0.5, 1.0]])
        >>> [(c.companion, c.share, c.mutual) for c in find_companions(shares)]
        [(1, 0.5, True), (0, 0.75, True), (1, 0.5, False)]
    """
    wrong = shares.clone().fill_diagonal_(-1)
    best = wrong.argmax(-1).tolist()
    return [
        Companion(label, other, float(wrong[label, other]), best[other] == label)
        for label, other in enumerate(best)
    ]

"""PL-KNN (Hüllermeier and Beringer): the candidate sets of the nearest rows vote, the nearer the louder."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import embedding_bag

from propall.methods._classical import as_rows, rows_and_candidates
from propall.methods._neighbors import nearest, require_enough
from propall.numerics import uniform_weights
from propall.training.contract import Algorithm, Classifier, Monitor, Run


def neighbour_votes(
    found: Int[Tensor, "m a"], squared: Float[Tensor, "m a"], candidates: Bool[Tensor, "n k"]
) -> Float[Tensor, "m k"]:
    r"""Votes for every class, one ballot per neighbour on all of its candidates.

    .. math:: V_c = \sum_{a} \Bigl(1 - \frac{d_a}{\sum_b d_b}\Bigr) [c \in S_a]

    Args:
        found: indices of the neighbours a.
        squared: their squared distances.
        candidates: the candidate sets S of all training rows.

    References:
        [hullermeier2006learning].

    Notes:
        Where the distances sum to less than 1e-6, and for a single neighbour, whose weight the formula makes
        0, the weights are 1. A set's votes are not divided by its size, as in public code. That code drops
        each query's nearest neighbour, which is right only when the queries are the training rows; this does
        not.
    """
    distance = squared.sqrt()
    total = distance.sum(1, keepdim=True)
    alike = total < 1e-6
    weights = torch.where(alike, 1.0, 1 - distance / torch.where(alike, 1.0, total))
    if found.shape[1] == 1:
        weights = torch.ones_like(distance)
    return embedding_bag(found, candidates.double(), per_sample_weights=weights, mode="sum")


def pl_knn_votes(
    query: Float[Tensor, "m d"],
    x: Float[Tensor, "n d"],
    candidates: Bool[Tensor, "n k"],
    neighbours: int = 10,
) -> Float[Tensor, "m k"]:
    """`neighbour_votes` of the training rows (x, candidates) for unseen rows."""
    return neighbour_votes(*nearest(query, x, neighbours), candidates)


def pl_knn_weights(
    x: Float[Tensor, "n d"], candidates: Bool[Tensor, "n k"], neighbours: int = 10
) -> Float[Tensor, "n k"]:
    """How likely each candidate of a training row is: the others' votes on S, divided by their sum.

    Equal weights where no neighbour shares a candidate with the row.
    """
    votes = neighbour_votes(*nearest(x, x, neighbours, exclude_self=True), candidates) * candidates
    total = votes.sum(1, keepdim=True)
    return torch.where(total > 0, votes / total, uniform_weights(candidates, torch.float64))


@dataclass(frozen=True, eq=False)
class NeighbourVoting(Classifier):
    """Scores by the votes of stored rows, see `neighbour_votes`.

    Attributes:
        x: training rows.
        candidates: their candidate sets.
        neighbours: how many vote.
    """

    x: Float[Tensor, "n d"]
    candidates: Bool[Tensor, "n k"]
    neighbours: int

    name = "neighbour_voting"

    def scores(self, x: Float[Tensor, "m ..."]) -> Float[Tensor, "m k"]:
        """The votes; equal ones fall to the lower class."""
        return pl_knn_votes(as_rows(x.to(self.x.device)), self.x, self.candidates, self.neighbours)


@dataclass(frozen=True)
class PLKNN(Algorithm):
    """Distance-weighted nearest neighbours on candidate sets. Nothing is trained.

    Attributes:
        neighbours: how many vote.
    """

    neighbours: int = 10

    name, title, reference = "pl_knn", "PL-KNN", "hullermeier2006learning"
    memory = "the training set"
    cost = "none; n distances per prediction"
    classifier: ClassVar[type[Classifier]] = NeighbourVoting

    def fit(self, runs: Sequence[Run], *, monitor: Monitor | None = None) -> list[Classifier]:
        """The training sets, kept to vote."""
        return [self._fit(run) for run in runs]

    def _fit(self, run: Run) -> NeighbourVoting:
        x, candidates = rows_and_candidates(run, self.title)
        require_enough(self.neighbours, len(x))
        return NeighbourVoting(x, candidates, self.neighbours)

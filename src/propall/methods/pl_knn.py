"""PL-KNN (Hüllermeier and Beringer): the candidate sets of the nearest rows vote, weighted by distance."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import embedding_bag

from propall.methods._classical import ClassicalAlgorithm, as_rows
from propall.methods._neighbors import check_neighbor_count, nearest
from propall.training.contract import Classifier


def neighbor_votes(
    neighbors: Int[Tensor, "m a"], squared: Float[Tensor, "m a"], candidates: Bool[Tensor, "n k"]
) -> Float[Tensor, "m k"]:
    r"""Votes for every class; each neighbor votes for all of its candidates.

    .. math:: V_c = \sum_{a} \Bigl(1 - \frac{d_a}{\sum_b d_b}\Bigr) [c \in S_a]

    Args:
        neighbors: indices of the neighbors a.
        squared: squared distances d² to them.
        candidates: candidate sets S of all training rows.

    References:
        [hullermeier2006learning].

    Notes:
        The weights are 1 where the distances sum to less than 1e-6, and for a single neighbor, whose weight
        would be 0. As in public code, votes are not divided by the size of the set. That code always drops
        the nearest neighbor of a query, which is only right if the query is a training row; here none is
        dropped.
    """
    distance = squared.sqrt()
    total = distance.sum(1, keepdim=True)
    coincident = total < 1e-6
    weights = torch.where(coincident, 1.0, 1 - distance / torch.where(coincident, 1.0, total))
    if neighbors.shape[1] == 1:
        weights = torch.ones_like(distance)
    return embedding_bag(neighbors, candidates.double(), per_sample_weights=weights, mode="sum")


def pl_knn_votes(
    query: Float[Tensor, "m d"],
    x: Float[Tensor, "n d"],
    candidates: Bool[Tensor, "n k"],
    n_neighbors: int = 10,
) -> Float[Tensor, "m k"]:
    """`neighbor_votes` of the nearest training rows (x, candidates) for each query row."""
    return neighbor_votes(*nearest(query, x, n_neighbors), candidates)


@dataclass(frozen=True, eq=False)
class NeighborVoting(Classifier):
    """Classifier whose scores are the votes of the nearest training rows, see `neighbor_votes`.

    Attributes:
        x: training rows.
        candidates: their candidate sets.
        neighbours: number of neighbors that vote.
    """

    x: Float[Tensor, "n d"]
    candidates: Bool[Tensor, "n k"]
    neighbours: int

    name = "neighbour_voting"

    def scores(self, x: Float[Tensor, "m ..."]) -> Float[Tensor, "m k"]:
        """Count the votes."""
        return pl_knn_votes(as_rows(x.to(self.x.device)), self.x, self.candidates, self.neighbours)


@dataclass(frozen=True)
class PLKNN(ClassicalAlgorithm):
    """Distance-weighted nearest neighbors on candidate sets.

    Attributes:
        neighbours: number of neighbors that vote.
    """

    neighbours: int = 10

    name, title, reference = "pl_knn", "PL-KNN", "hullermeier2006learning"
    assumes = "near rows have the same label; features are on comparable scales"
    use_when = "As a baseline without training, which shows whether near rows share labels."
    memory = "the training row"
    cost = "none (n distances per prediction)"
    classifier = NeighborVoting

    def fit_rows(self, x: Float[Tensor, "n d"], candidates: Bool[Tensor, "n k"], seed: int) -> Classifier:
        """Store the training set."""
        check_neighbor_count(self.neighbours, len(x))
        return NeighborVoting(x, candidates, self.neighbours)

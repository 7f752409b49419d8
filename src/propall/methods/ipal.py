"""IPAL (Zhang and Yu): reconstruct rows from their neighbors and propagate labels along the weights."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import embedding_bag

from propall.labels.candidates import MANY_CLASSES
from propall.methods._classical import ClassicalAlgorithm, as_rows
from propall.methods._neighbors import memory_budget, nearest, unit_rows
from propall.methods._nnls import nonnegative_least_squares
from propall.numerics import uniform_weights
from propall.training.contract import Classifier

#: Share of candidates among many classes up to which only candidates are visited.
LARGEST_SHARE = 0.05


def reconstruction_weights(
    query: Float[Tensor, "m d"], reference: Float[Tensor, "n d"], neighbors: Int[Tensor, "m a"]
) -> Float[Tensor, "m a"]:
    r"""Non-negative weights that reconstruct every row from its neighbors.

    .. math:: w_i = \arg\min_{w \ge 0} \lVert x_i - B_i^\top w \rVert^2

    where the rows of B_i are the neighbors of row i. The weights need not sum to one.

    References:
        [zhang2015solving].
    """
    weights = torch.empty(neighbors.shape, dtype=torch.float64, device=query.device)
    for rows in _blocks(query, neighbors):
        near = reference[neighbors[rows]].double()
        x = query[rows].double()[..., None]
        weights[rows] = nonnegative_least_squares(near @ near.mT, (near @ x)[..., 0])
    return weights


def _blocks(query: Float[Tensor, "m d"], neighbors: Int[Tensor, "m a"]) -> list[slice]:
    """Slices of query rows whose neighbors, gathered in float64, take at most a quarter of the budget."""
    budget = memory_budget(query.device) // 4
    size = max(1, budget // (8 * neighbors.shape[1] * max(query.shape[1], neighbors.shape[1])))
    return [slice(first, first + size) for first in range(0, len(query), size)]


class Propagation(NamedTuple):
    """Label confidences after propagation, and the number of rounds taken."""

    confidence: Float[Tensor, "n k"]
    rounds: int


def propagate(
    candidates: Bool[Tensor, "n k"],
    neighbors: Int[Tensor, "n a"],
    weights: Float[Tensor, "n a"],
    *,
    alpha: float = 0.95,
    rounds: int = 100,
    tol: float | None = None,
) -> Propagation:
    r"""Propagate label confidences from the neighbors, restricted to the candidates.

    .. math:: F \leftarrow \operatorname{norm}_S\bigl(\alpha P F + (1 - \alpha) F^0\bigr), \qquad
        F^0_{ic} = [c \in S_i] / |S_i|

    where norm_S sets labels outside the candidates to 0 and divides rows by their sums, and P holds the
    weights of each row divided by their sum (zeros if all weights are 0).

    Args:
        candidates: candidate sets S.
        neighbors, weights: neighbors of every row and their reconstruction weights.
        alpha, rounds, tol: see `IPAL`.
    """
    total = weights.sum(1, keepdim=True)
    share = alpha * weights / torch.where(total > 0, total, 1.0)
    n_classes = candidates.shape[1]
    if n_classes > MANY_CLASSES and candidates.sum() <= LARGEST_SHARE * candidates.numel():
        return _propagate_candidates(candidates, neighbors, share, alpha, rounds, tol)
    start = uniform_weights(candidates, torch.float64)
    confidence, done = start, 0
    while done < rounds:
        flow = embedding_bag(neighbors, confidence, per_sample_weights=share, mode="sum")
        flow.add_(start, alpha=1 - alpha).mul_(candidates)
        flow.div_(flow.sum(1, keepdim=True))
        done += 1
        converged = tol is not None and float(torch.linalg.vector_norm(flow - confidence)) < tol
        confidence = flow
        if converged:
            break
    return Propagation(confidence, done)


def _propagate_candidates(
    candidates: Bool[Tensor, "n k"],
    neighbors: Int[Tensor, "n a"],
    share: Float[Tensor, "n a"],
    alpha: float,
    rounds: int,
    tol: float | None,
) -> Propagation:
    """As `propagate`, from one number per candidate; the same up to rounding."""
    row, label = candidates.nonzero(as_tuple=True)
    # Where the label of a candidate is among those of a neighbor; a label that is not has confidence 0.
    position = torch.full(candidates.shape, len(row), dtype=torch.int32, device=candidates.device)
    position[row, label] = torch.arange(len(row), dtype=torch.int32, device=candidates.device)
    places, share = position[neighbors[row], label[:, None]].long(), share[row]
    start = 1 / candidates.sum(1, dtype=torch.float64)[row]
    confidence, done = start, 0
    while done < rounds:
        flow = (share * torch.cat([confidence, confidence.new_zeros(1)])[places]).sum(1)
        flow.add_(start, alpha=1 - alpha)
        flow.div_(flow.new_zeros(len(candidates)).index_add_(0, row, flow)[row])
        done += 1
        converged = tol is not None and float(torch.linalg.vector_norm(flow - confidence)) < tol
        confidence = flow
        if converged:
            break
    everywhere = torch.zeros(candidates.shape, dtype=torch.float64, device=candidates.device)
    everywhere[row, label] = confidence
    return Propagation(everywhere, done)


def calibrate(confidence: Float[Tensor, "n k"], candidates: Bool[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    r"""Rescale confidences to the class masses before propagation.

    .. math:: F_{ic} \sum_j F^0_{jc} \Big/ \sum_j F_{jc}

    A class with mass below 1e-10 is not rescaled. The argmax of a row is its disambiguated label.
    """
    before, after = uniform_weights(candidates, torch.float64).sum(0), confidence.sum(0)
    return confidence * torch.where(after < 1e-10, 1.0, before / after)


def class_residuals(
    query: Float[Tensor, "m d"],
    reference: Float[Tensor, "n d"],
    neighbors: Int[Tensor, "m a"],
    weights: Float[Tensor, "m a"],
    labels: Int[Tensor, "n"],
    n_classes: int,
) -> Float[Tensor, "m k"]:
    r"""Squared error of reconstructing a row from its neighbors of one class.

    .. math:: e_c = \Bigl\lVert x - \sum_{a : \hat y_a = c} w_a B_a \Bigr\rVert^2

    A class without neighbors has the squared norm of the row as its error.
    """
    residuals = torch.empty(len(query), n_classes, dtype=torch.float64, device=query.device)
    for rows in _blocks(query, neighbors):
        x, near, label = query[rows].double(), reference[neighbors[rows]].double(), labels[neighbors[rows]]
        # Only classes among the neighbors are reconstructed, once for each of their neighbors. These results
        # may differ in the last bit; taking their minimum makes the outcome independent of the write order.
        same = (label[:, :, None] == label[:, None, :]) * weights[rows][:, None, :]
        error = (x[:, None] - same @ near).square().sum(-1)
        without = x.square().sum(-1, keepdim=True).expand(-1, n_classes)
        residuals[rows] = without.scatter_reduce(1, label, error, "amin", include_self=False)
    return residuals


@dataclass(frozen=True, eq=False)
class NeighborReconstruction(Classifier):
    """Classifier that scores a class by how well its neighbors reconstruct a row, see `class_residuals`.

    Attributes:
        x: training rows, already scaled if `row_normalise` is set.
        labels: their disambiguated labels.
        n_classes: number of classes.
        neighbours: number of neighbors that reconstruct a row.
        row_normalise: scale rows to unit length first.
    """

    x: Float[Tensor, "n d"]
    labels: Int[Tensor, "n"]
    n_classes: int
    neighbours: int
    row_normalise: bool

    name = "neighbour_reconstruction"

    def scores(self, x: Float[Tensor, "m ..."]) -> Float[Tensor, "m k"]:
        """Compute the negative squared error of every class."""
        query = as_rows(x.to(self.x.device))
        query = unit_rows(query) if self.row_normalise else query
        neighbors, _ = nearest(query, self.x, self.neighbours)
        weights = reconstruction_weights(query, self.x, neighbors)
        return -class_residuals(query, self.x, neighbors, weights, self.labels, self.n_classes)


@dataclass(frozen=True)
class IPAL(ClassicalAlgorithm):
    """Instance-based disambiguation by iterative label propagation.

    Attributes:
        neighbours: number of neighbors that reconstruct a row.
        alpha: weight of the neighbors in each round of propagation, below 1.
        rounds: number of rounds of propagation.
        tol: stop early when a round changes the confidences by less (Frobenius norm); None runs all rounds.
        row_normalise: divide rows by their norm first, as the authors do.

    Notes:
        Public code solves one quadratic program per row, partly with a commercial solver, and stores an n x n
        matrix. Here all rows are solved together and only n x `neighbours` values are stored.
    """

    neighbours: int = 10
    alpha: float = 0.95
    rounds: int = 100
    tol: float | None = None
    row_normalise: bool = True

    name, title, reference = "ipal", "IPAL", "zhang2015solving"
    assumes = "near rows have the same label; features are on comparable scales"
    use_when = (
        "For small tables whose distances mean something. It keeps all training rows, and "
        "a prediction needs them."
    )
    memory = "the training row, 2a values (a neighbors)"
    cost = "n distances, a³ for the weights, 100ak to propagate"
    classifier = NeighborReconstruction

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.alpha < 1:
            raise ValueError(f"alpha: got {self.alpha}; expected a number in [0, 1).")

    def fit_rows(self, x: Float[Tensor, "n d"], candidates: Bool[Tensor, "n k"], seed: int) -> Classifier:
        """Disambiguate the training labels."""
        x = unit_rows(x) if self.row_normalise else x
        neighbors, _ = nearest(x, x, self.neighbours, exclude_self=True)
        weights = reconstruction_weights(x, x, neighbors)
        confidence, _ = propagate(
            candidates, neighbors, weights, alpha=self.alpha, rounds=self.rounds, tol=self.tol
        )
        labels = calibrate(confidence, candidates).argmax(1)
        return NeighborReconstruction(x, labels, candidates.shape[1], self.neighbours, self.row_normalise)

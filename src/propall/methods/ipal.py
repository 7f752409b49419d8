"""IPAL (Zhang and Yu): rows are rebuilt from their neighbours, and labels flow along the weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import embedding_bag

from propall.methods._classical import as_rows, rows_and_candidates
from propall.methods._neighbors import BUDGET, nearest, unit_rows
from propall.numerics import uniform_weights
from propall.training.contract import Algorithm, Classifier, Monitor, Run


def nonnegative_least_squares(
    gram: Float[Tensor, "b a a"], target: Float[Tensor, "b a"]
) -> Float[Tensor, "b a"]:
    r"""Many small problems at once: the weights w >= 0 that minimise w' G w / 2 - c' w.

    With :math:`G = B B^\top` and :math:`c = B x` that is :math:`\lVert x - B^\top w \rVert^2`. Block
    principal pivoting: guess which weights are positive, solve for them, flip every index that contradicts
    the guess (a negative weight, or a zero one with a falling objective); after three rounds without fewer
    contradictions flip only the last of them, which ends after finitely many rounds.

    Args:
        gram: symmetric positive semi-definite matrices G.
        target: vectors c, each in the range of its G.

    Returns:
        The minimisers, in float64.

    References:
        Kim and Park, SIAM Journal on Scientific Computing 33 (2011), for the pivoting.

    Notes:
        A singular G (duplicated rows, fewer features than neighbours) has several minimisers with one
        residual. A ridge of 1e-8 of the mean diagonal there, and only there, picks the one of least norm to
        about 1e-6.
    """
    gram, target = gram.double(), target.double()
    size = target.shape[1]
    level = gram.diagonal(dim1=1, dim2=2).mean(1)
    # In parts, because on CUDA this takes half a megabyte of workspace per matrix.
    smallest = torch.cat([torch.linalg.eigvalsh(part)[:, 0] for part in torch.split(gram, 1024)])
    singular = smallest < 1e-10 * level
    gram = gram + torch.diag_embed((1e-8 * level * singular)[:, None].expand(-1, size))
    slack = 1e-12 * target.abs().amax(1, keepdim=True)
    solution = torch.zeros_like(target)
    # Rows of the batch that are not settled yet, and what they remember of their search.
    rows = torch.arange(len(target), device=target.device)
    positive = torch.zeros_like(target, dtype=torch.bool)
    fewest = torch.full_like(rows, size + 1)
    patience = torch.full_like(rows, 3)
    place = torch.arange(size, device=target.device)
    for _ in range(100 * size + 100):
        weights = _solve_on(positive, gram, target)
        slope = (gram @ weights[..., None])[..., 0] - target
        wrong = torch.where(positive, weights, slope) < -slack
        count = wrong.sum(1)
        settled = count == 0
        solution[rows[settled]] = weights[settled].clamp(min=0)
        if settled.all():
            return solution
        better = count < fewest
        last = wrong & (place == torch.where(wrong, place, -1).amax(1, keepdim=True))
        flip = torch.where((better | (patience > 0))[:, None], wrong, last)
        fewest = torch.where(better, count, fewest)
        patience = torch.where(better, 3, (patience - 1).clamp(min=0))
        left = ~settled
        rows, gram, target, slack = rows[left], gram[left], target[left], slack[left]
        positive, fewest, patience = (positive ^ flip)[left], fewest[left], patience[left]
    raise RuntimeError(f"gram: {len(rows)} problems did not settle; are these symmetric Gram matrices?")


def _solve_on(
    positive: Bool[Tensor, "b a"], gram: Float[Tensor, "b a a"], target: Float[Tensor, "b a"]
) -> Float[Tensor, "b a"]:
    """G w = c on the positive indices, w = 0 on the others."""
    both = positive[:, :, None] & positive[:, None, :]
    block = torch.where(both, gram, torch.diag_embed((~positive).to(gram.dtype)))
    factor = torch.linalg.cholesky_ex(block).L
    return torch.cholesky_solve((target * positive)[..., None], factor)[..., 0]


def reconstruction_weights(
    query: Float[Tensor, "m d"], reference: Float[Tensor, "n d"], found: Int[Tensor, "m a"]
) -> Float[Tensor, "m a"]:
    r"""Non-negative weights that rebuild every row from its neighbours.

    .. math:: w_i = \arg\min_{w \ge 0} \lVert x_i - B_i^\top w \rVert^2

    with the neighbours of row i as the rows of B_i. The weights need not sum to one.

    References:
        [zhang2015solving].
    """
    weights = torch.empty(found.shape, dtype=torch.float64, device=query.device)
    for rows in _blocks(query, found):
        near = reference[found[rows]].double()
        own = query[rows].double()[..., None]
        weights[rows] = nonnegative_least_squares(near @ near.mT, (near @ own)[..., 0])
    return weights


def _blocks(query: Float[Tensor, "m d"], found: Int[Tensor, "m a"]) -> list[slice]:
    """Runs of query rows whose neighbours, gathered in float64, take at most a quarter of the budget."""
    budget = BUDGET.get(query.device.type, BUDGET["cpu"]) // 4
    size = max(1, budget // (8 * found.shape[1] * max(query.shape[1], found.shape[1])))
    return [slice(first, first + size) for first in range(0, len(query), size)]


class Propagation(NamedTuple):
    """Label confidences after propagation, and how many rounds it took."""

    confidence: Float[Tensor, "n k"]
    rounds: int


def propagate(
    candidates: Bool[Tensor, "n k"],
    found: Int[Tensor, "n a"],
    weights: Float[Tensor, "n a"],
    *,
    alpha: float = 0.95,
    rounds: int = 100,
    tol: float | None = None,
) -> Propagation:
    r"""Confidences that flow from the neighbours and stay on the candidates.

    .. math:: F \leftarrow \operatorname{norm}_S\bigl(\alpha P F + (1 - \alpha) F^0\bigr), \qquad
        F^0_{ic} = [c \in S_i] / |S_i|

    where norm_S sets labels outside the candidates to 0 and divides rows by their sums, and P holds each
    row's weights divided by their sum (a row of zeros where they are all 0).

    Args:
        candidates: the candidate sets S.
        found: neighbours of every row.
        weights: their reconstruction weights.
        alpha: share of what the neighbours say, below 1.
        rounds: most rounds.
        tol: stop once the Frobenius norm of a round's change is below; None never stops early.

    References:
        [zhang2015solving].
    """
    start = uniform_weights(candidates, torch.float64)
    total = weights.sum(1, keepdim=True)
    share = alpha * weights / torch.where(total > 0, total, 1.0)
    confidence, done = start, 0
    while done < rounds:
        flow = embedding_bag(found, confidence, per_sample_weights=share, mode="sum")
        flow.add_(start, alpha=1 - alpha).mul_(candidates)
        flow.div_(flow.sum(1, keepdim=True))
        done += 1
        change = torch.linalg.vector_norm(flow - confidence) if tol is not None else None
        confidence = flow
        if change is not None and tol is not None and float(change) < tol:
            break
    return Propagation(confidence, done)


def calibrate(confidence: Float[Tensor, "n k"], candidates: Bool[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    r"""Confidences corrected to the class masses before propagation.

    .. math:: F_{ic} \sum_j F^0_{jc} \Big/ \sum_j F_{jc}

    A class whose mass fell below 1e-10 is left as it is. The argmax of a row is its disambiguated label.

    References:
        [zhang2015solving].
    """
    before, after = uniform_weights(candidates, torch.float64).sum(0), confidence.sum(0)
    return confidence * torch.where(after < 1e-10, 1.0, before / after)


def class_residuals(
    query: Float[Tensor, "m d"],
    reference: Float[Tensor, "n d"],
    found: Int[Tensor, "m a"],
    weights: Float[Tensor, "m a"],
    labels: Int[Tensor, "n"],
    n_classes: int,
) -> Float[Tensor, "m k"]:
    r"""Squared error of rebuilding a row from the neighbours of one class alone.

    .. math:: e_c = \Bigl\lVert x - \sum_{a : \hat y_a = c} w_a B_a \Bigr\rVert^2

    A class without neighbours rebuilds nothing: its error is the row's squared norm.

    References:
        [zhang2015solving].
    """
    residuals = torch.empty(len(query), n_classes, dtype=torch.float64, device=query.device)
    for rows in _blocks(query, found):
        own, near, label = query[rows].double(), reference[found[rows]].double(), labels[found[rows]]
        # Only classes that occur among the neighbours are rebuilt, once per neighbour of theirs. The results
        # may differ in the last bit; their minimum does not depend on the order of writing.
        same = (label[:, :, None] == label[:, None, :]) * weights[rows][:, None, :]
        error = (own[:, None] - same @ near).square().sum(-1)
        alone = own.square().sum(-1, keepdim=True).expand(-1, n_classes)
        residuals[rows] = alone.scatter_reduce(1, label, error, "amin", include_self=False)
    return residuals


@dataclass(frozen=True, eq=False)
class NeighbourReconstruction(Classifier):
    """Scores by how well the neighbours of a class rebuild a row, see `class_residuals`.

    Attributes:
        x: training rows, already scaled where `row_normalise` is set.
        labels: their disambiguated labels.
        n_classes: number of classes.
        neighbours: how many neighbours rebuild a row.
        row_normalise: scale rows to unit length first.
    """

    x: Float[Tensor, "n d"]
    labels: Int[Tensor, "n"]
    n_classes: int
    neighbours: int
    row_normalise: bool

    name = "neighbour_reconstruction"

    def scores(self, x: Float[Tensor, "m ..."]) -> Float[Tensor, "m k"]:
        """Minus the squared error of every class."""
        query = as_rows(x.to(self.x.device))
        query = unit_rows(query) if self.row_normalise else query
        found, _ = nearest(query, self.x, self.neighbours)
        weights = reconstruction_weights(query, self.x, found)
        return -class_residuals(query, self.x, found, weights, self.labels, self.n_classes)


@dataclass(frozen=True)
class IPAL(Algorithm):
    """Instance-based disambiguation by iterative label propagation.

    Attributes:
        neighbours: how many other rows rebuild a row.
        alpha: share of a confidence that comes from the neighbours in each round.
        rounds: rounds of propagation.
        tol: stop earlier once a round changes the confidences by less (Frobenius norm); None never does.
        row_normalise: divide rows by their norm before anything else, as the authors do.

    References:
        [zhang2015solving].

    Notes:
        Public code solves one quadratic programme per row, some of it with a commercial solver, and keeps an
        n by n matrix; here all rows are pivoted together and only n by `neighbours` numbers are kept.
    """

    neighbours: int = 10
    alpha: float = 0.95
    rounds: int = 100
    tol: float | None = None
    row_normalise: bool = True

    name, title, reference = "ipal", "IPAL", "zhang2015solving"
    memory = "the training set, 2a numbers for a neighbours"
    cost = "n distances, a³ to pivot, 100ak to propagate"
    classifier: ClassVar[type[Classifier]] = NeighbourReconstruction

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.alpha < 1:
            raise ValueError(f"alpha: {self.alpha} is not in [0, 1); 1 would forget the candidates.")

    def fit(self, runs: Sequence[Run], *, monitor: Monitor | None = None) -> list[Classifier]:
        """Neighbours, weights, propagation and one label per training row."""
        return [self._fit(run) for run in runs]

    def _fit(self, run: Run) -> NeighbourReconstruction:
        x, candidates = rows_and_candidates(run, self.title)
        x = unit_rows(x) if self.row_normalise else x
        found, _ = nearest(x, x, self.neighbours, exclude_self=True)
        weights = reconstruction_weights(x, x, found)
        confidence, _ = propagate(
            candidates, found, weights, alpha=self.alpha, rounds=self.rounds, tol=self.tol
        )
        labels = calibrate(confidence, candidates).argmax(1)
        return NeighbourReconstruction(x, labels, candidates.shape[1], self.neighbours, self.row_normalise)

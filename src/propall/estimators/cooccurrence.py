"""Whether labels are candidates together, as in photographs, or independently of each other."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from propall.labels.candidates import has_few_candidates

#: Dependence above which candidates are taken to come together. It is 0.3 and more in five real-world data
#: sets, and at most 0.15 for simulated candidates: independent, complementary and instance-dependent.
DEPENDENT = 0.2
#: Steps of expectation maximization for the class shares.
STEPS = 200
#: Steps of expectation maximization for the candidates of every class, and the most rows that are used.
INCLUSION_STEPS, INCLUSION_ROWS = 100, 10_000
#: Two classes are entangled if each is in this share of the other's sets, as estimated, although it is in at
#: most half of the sets of other classes. On digits, training lost a class in up to 4 of 10 pairs at 0.9,
#: in up to 7 at 0.95 and in most at 1; see `propall base-losses --pairs`.
ENTANGLED, USUAL = 0.9, 0.5
#: Fewer estimated rows of a class than this say little about its sets; more classes than this take long.
FEWEST_ROWS, MOST_CLASSES = 30, 50


class EntangledPair(NamedTuple):
    """Two classes that are nearly always candidates together."""

    one: int
    other: int
    share: float  # estimated share of the sets of either class that contain the other: the smaller of the two


def entangled_pairs(candidates: Bool[np.ndarray, "n k"]) -> list[EntangledPair]:
    """Find classes that training may not tell apart, most entangled first.

    Training may drop one of two classes that are candidates together in nearly all of their rows. Rows in
    which every class is possible do not count. Nothing is found with two classes, or with more than
    `MOST_CLASSES`.

    Args:
        candidates: True for candidates.

    Examples:
        >>> truth = np.arange(900) % 3
        >>> sets = np.eye(4, dtype=bool)[truth] | (np.random.default_rng(0).random((900, 4)) < 0.2)
        >>> sets[truth < 2, :2] = True  # classes 0 and 1 are always together
        >>> [(pair.one, pair.other) for pair in entangled_pairs(sets)]
        [(0, 1)]
    """
    mask = np.asarray(candidates, dtype=bool)
    k = mask.shape[1]
    if not 2 < k <= MOST_CLASSES:  # before anything is copied
        return []
    mask = mask[~mask.all(1) & mask.any(1)]
    n = len(mask)
    if n < FEWEST_ROWS:
        return []
    shares, inclusion = estimate_inclusion(mask[:: -(-n // INCLUSION_ROWS)])
    found = []
    for one, other in zip(*np.triu_indices(k, 1), strict=True):
        pair = [one, other]
        rest = np.setdiff1d(np.arange(k), pair)
        share = min(inclusion[one, other], inclusion[other, one])
        weight = shares[rest] / max(shares[rest].sum(), np.finfo(float).tiny)
        usual = (weight @ inclusion[np.ix_(rest, pair)]).max()
        if share >= ENTANGLED and usual <= USUAL and n * shares[pair].min() >= FEWEST_ROWS:
            found.append(EntangledPair(int(one), int(other), float(share)))
    return sorted(found, key=lambda pair: -pair.share)


def estimate_inclusion(
    candidates: Bool[np.ndarray, "n k"],
) -> tuple[Float[np.ndarray, "k"], Float[np.ndarray, "k k"]]:
    r"""Estimate the shares of the classes and how often each label is in the sets of each class.

    .. math:: P(S) = \sum_{y \in S} \pi_y \prod_{j \ne y} Q_{yj}^{[j \in S]} (1 - Q_{yj})^{[j \notin S]}

    is maximized by expectation maximization. It takes the other candidates of a class to be independent of
    each other, and needs no true labels.

    Args:
        candidates: True for candidates; at least one in every row.

    Returns:
        The shares, and the matrix of Q with the true class along the rows.
    """
    sets, counts = np.unique(candidates, axis=0, return_counts=True)
    frequency = counts / counts.sum()
    k = sets.shape[1]
    inside = sets.astype(float)
    shares = np.full(k, 1 / k)
    start = np.clip((frequency @ inside - 1 / k) / (1 - 1 / k), 0.01, 0.99)
    inclusion = np.tile(start, (k, 1))
    smallest = 1e-6
    for _ in range(INCLUSION_STEPS):
        np.fill_diagonal(inclusion, 1)
        absent = np.log(np.clip(1 - inclusion, smallest, 1))
        np.fill_diagonal(absent, 0)
        logs = inside @ np.log(np.clip(inclusion, smallest, 1)).T + (1 - inside) @ absent.T
        logs = np.where(sets, logs + np.log(np.maximum(shares, smallest)), -np.inf)
        posterior = np.exp(logs - logs.max(1, keepdims=True))
        posterior *= frequency[:, None] / posterior.sum(1, keepdims=True)
        shares = posterior.sum(0)
        # A class that loses all its rows keeps the inclusion it started from.
        inclusion = (posterior.T @ inside + smallest * start) / (shares[:, None] + smallest)
    np.fill_diagonal(inclusion, 1)
    return shares, inclusion


def candidate_dependence(
    candidates: Bool[np.ndarray, "n k"], sample_weight: ArrayLike | None = None
) -> float:
    r"""Relative distance of the frequencies of pairs of candidates from those of independent candidates.

    .. math:: \frac{\sum_{j \ne l} (f_{jl} - e_{jl})^2}{\sum_{j \ne l} e_{jl}^2}, \qquad
        e_{jl} = \pi_j q_l + \pi_l q_j + (1 - \pi_j - \pi_l) q_j q_l

    less what chance contributes, where f are the frequencies, e those expected if every wrong label j is a
    candidate with probability :math:`q_j` whatever the true label is, and :math:`\pi` are the most likely
    shares of the true labels if all these probabilities are equal. About 0 for independent candidates, a
    bit less in few rows (-0.05 in 60).
    Unequal probabilities make :math:`\pi` wrong, but hardly matter: the labels' own frequencies are kept, and
    the distance was at most 0.03 for q from 0.02 to 0.9.

    Args:
        candidates: (n, k), True for candidates.
        sample_weight: one weight per row.
    """
    mask = np.asarray(candidates, dtype=bool)
    n, k = mask.shape
    weight = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    weight = weight / weight.sum()
    if has_few_candidates(mask):
        # The same sums over the candidates only, rounded differently.
        sparse = csr_array(mask, dtype=float)
        truth, label = _sparse_shares(sparse, weight), sparse.T @ weight
        observed = ((sparse.T * weight) @ sparse).toarray()
    else:
        # Rows with equal sets count once; there are often few of them.
        sets, position = np.unique(mask, axis=0, return_inverse=True)
        frequency = np.bincount(position.ravel(), weights=weight, minlength=len(sets))
        truth, label = _independent_shares(sets, frequency), frequency @ sets
        observed = (sets * frequency[:, None]).T @ sets
    wrong = np.clip((label - truth) / np.maximum(1 - truth, 1e-9), 0, 1)
    once = np.outer(truth, wrong)
    neither = 1 - truth[:, None] - truth
    expected = np.clip(once + once.T + neither * np.outer(wrong, wrong), 0, 1)
    pairs = ~np.eye(k, dtype=bool)
    chance = (expected * (1 - expected))[pairs].sum() * (weight**2).sum()
    distance = ((observed - expected)[pairs] ** 2).sum() - chance
    scale = (expected[pairs] ** 2).sum()
    return float(distance / scale) if scale > 0 else 0.0


def _independent_shares(sets: NDArray[np.bool_], frequency: NDArray[Any]) -> NDArray[np.float64]:
    """Shares of the true labels that make the sets most likely, if all wrong labels are equally frequent."""
    shares = np.full(sets.shape[1], 1 / sets.shape[1])
    usable = sets.any(1)
    sets, frequency = sets[usable], frequency[usable]
    for _ in range(STEPS):
        posterior = sets * shares
        posterior /= np.maximum(posterior.sum(1, keepdims=True), np.finfo(float).tiny)
        shares = frequency @ posterior
    return shares


def _sparse_shares(sets: Any, frequency: NDArray[Any]) -> NDArray[np.float64]:
    """`_independent_shares` of a sparse (n, k) matrix that is 1 for candidates."""
    shares = np.full(sets.shape[1], 1 / sets.shape[1])
    candidates_of = sets.T.tocsr()
    for _ in range(STEPS):
        total = np.maximum(sets @ shares, np.finfo(float).tiny)
        shares = shares * (candidates_of @ (frequency / total))
    return shares

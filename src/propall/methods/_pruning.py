"""CLSP (He et al.): prune candidates that few neighbors share, before any training."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from propall.labels.candidates import check
from propall.methods._neighbors import nearest


def prune_candidates(
    features: Float[Tensor, "n d"], candidates: Bool[Tensor, "n k"], n_neighbors: int = 150, tau: float = 0.6
) -> Bool[Tensor, "n k"]:
    r"""Remove the candidates of each row that are missing from most of its neighbors' sets.

    With :math:`O_j` the number of neighbors whose set lacks candidate j (0 for labels outside S) and
    :math:`m = \lceil \tau (|S| - 1) \rceil`, every candidate with :math:`O_j` above the (m + 1)-th largest
    entry of O is removed. So at most m candidates go, ties stay, and no set becomes empty.

    Args:
        features: one vector per row, of any encoder; scaled to unit length here.
        candidates: True on S; at least one True per row.
        n_neighbors: neighbors per row, by Euclidean distance, without the row itself. The authors use 150 for
            uniform candidates and 5 for instance-dependent ones, where they set tau to 0.2.
        tau: largest share of the wrong candidates that is removed, from 0 to 1.

    Returns:
        The remaining candidates.

    References:
        [he2024candidate].

    Examples:
        >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, -0.1], [0.0, 1.0]])
        >>> sets = [[1, 1, 1], [1, 0, 0], [1, 0, 0], [0, 1, 1]]
        >>> candidates = torch.tensor(sets, dtype=torch.bool)
        >>> prune_candidates(features, candidates, n_neighbors=2)[0].tolist()
        [True, False, False]
    """
    if not 0 <= tau <= 1:
        raise ValueError(f"tau: got {tau!r}; expected a number from 0 to 1.")
    check(candidates, quiet=True)
    unit = torch.nn.functional.normalize(features, dim=-1)
    neighbors, _ = nearest(unit, unit, n_neighbors, exclude_self=True)
    lacking = _lacking(neighbors, candidates)
    # Rounding must not turn 0.6 * 5 into a little more than 3.
    removable = torch.ceil(tau * (candidates.sum(-1) - 1).double() - 1e-9).long()
    threshold = lacking.sort(-1, descending=True).values.gather(1, removable[:, None])
    return candidates & (lacking <= threshold)


def _lacking(neighbors: Int[Tensor, "n m"], candidates: Bool[Tensor, "n k"]) -> Int[Tensor, "n k"]:
    """For each candidate of a row, the number of neighbors whose set lacks it; 0 for other labels."""
    counts = torch.zeros(candidates.shape, dtype=torch.int64, device=candidates.device)
    for neighbor in neighbors.T:  # one at a time: (n, m, k) would not fit for large n
        counts += ~candidates[neighbor]
    return counts * candidates

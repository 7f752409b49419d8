"""Shared by PL-KNN, IPAL, PLLE and VALEN: exact nearest neighbors on any device.

A float32 search with a bound on its rounding error finds nearly all of them; float64 settles the rest.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

#: Neighbors beyond k that the float32 search keeps; the more it keeps, the fewer rows need the slow search.
SPARE = 8
#: Memory limit of one block of distances, in bytes.
BUDGET = {"cpu": 1 << 26, "cuda": 1 << 30}


def memory_budget(device: torch.device) -> int:
    """Return the memory limit of one block of distances on a device, in bytes."""
    return BUDGET.get(device.type, BUDGET["cpu"])


def unit_rows(x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Divide every row by its Euclidean norm; rows of zeros stay zero."""
    norm = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return x / torch.where(norm > 0, norm, 1.0)


def check_neighbor_count(k: int, n: int, *, exclude_self: bool = False) -> None:
    """Raise ValueError unless k neighbors can be found among n rows (n - 1 with `exclude_self`)."""
    if k < 1:
        raise ValueError(f"neighbours: got {k}; expected at least 1.")
    if k > n - exclude_self:
        available = f"{n - 1} other rows" if exclude_self else f"{n} rows"
        raise ValueError(
            f"neighbours: got {k}, but there are only {available}; use fewer neighbors or more training rows."
        )


@torch.no_grad()
def nearest(
    query: Float[Tensor, "m d"],
    reference: Float[Tensor, "n d"],
    k: int,
    *,
    exclude_self: bool = False,
    chunk: int | None = None,
) -> tuple[Int[Tensor, "m k"], Float[Tensor, "m k"]]:
    """Find the k nearest reference rows of every query row, nearest first; ties go to the lower index.

    A matrix product gives lower bounds on the squared distances of a block. The distances of the k + 8 rows
    with the lowest bounds are recomputed from differences in float64. If the k-th of them does not lie below
    all remaining bounds (clusters of duplicates, rounding far from the origin), the query is compared with
    all rows directly. The result is therefore that of a full search in float64.

    Args:
        query: rows to find neighbors of.
        reference: rows to search, on the same device.
        k: number of neighbors.
        exclude_self: query i is reference row i and must not be its own neighbor. It is excluded by index,
            so the nearest neighbor of a duplicated row is its copy, at distance 0.
        chunk: number of query rows per block; by default as many as fit into `memory_budget`.

    Returns:
        Indices into `reference` and squared Euclidean distances in float64.
    """
    m, n, d = query.shape[0], *reference.shape
    check_neighbor_count(k, n, exclude_self=exclude_self)
    if exclude_self and m != n:
        raise ValueError(
            f"query: {m} rows, but reference has {n}; with exclude_self both must be the same rows."
        )
    for name, rows in (("query", query), ("reference", reference)):
        if not rows.isfinite().all():
            raise ValueError(f"{name}: contains NaN or infinity; distances need finite features.")

    pool = min(k + SPARE, n - exclude_self)
    budget = memory_budget(query.device)
    columns = min(n, 1 << 16)
    chunk = chunk or max(1, budget // (4 * columns + 16 * pool * (d + 1)))
    left, right, offset, scale = _bound_factors(query, reference)
    indices = torch.empty(m, k, dtype=torch.int64, device=query.device)
    squared = torch.empty(m, k, dtype=torch.float64, device=query.device)
    for first in range(0, m, chunk):
        rows = torch.arange(first, min(first + chunk, m), device=query.device)
        bounds, near = _lowest_bounds(left[rows], right, pool, columns, rows if exclude_self else None)
        near, distance = _sort_by_distance(query[rows], reference, near)
        indices[rows], squared[rows] = near[:, :k], distance[:, :k]
        if pool < n - exclude_self:
            unsettled = rows[~(distance[:, k - 1] / scale**2 < bounds[:, -1].double() + offset[rows])]
            for some in torch.split(unsettled, max(1, budget // (32 * n))):
                near = _search_directly(query[some], reference, k, some if exclude_self else None)
                indices[some], squared[some] = _sort_by_distance(query[some], reference, near)
    return indices, squared


def _bound_factors(
    query: Float[Tensor, "m d"], reference: Float[Tensor, "n d"]
) -> tuple[Float[Tensor, "m d+2"], Float[Tensor, "n d+2"], Float[Tensor, "m"], float]:
    r"""Compute factors of a lower bound on all squared distances that holds despite rounding.

    .. math:: \lVert a - b \rVert^2 \ge (1 - \gamma)\lVert a \rVert^2 + \bigl[(1 - \gamma)\lVert b \rVert^2
        - 2\, a \cdot b - 2 \gamma \lVert a \rVert \lVert b \rVert\bigr]

    in the precision of the product, with gamma = (d + 8) u for unit round-off u: rounding the inputs costs
    2 u, summing d + 2 products (d + 2) u. The bracket is the product of the first two results; the remaining
    term is the third. Rows are shifted by the reference's mean and divided by the fourth result, so nothing
    overflows.
    """
    # The bound does not hold for float32 where TensorFloat-32 or bfloat16 products are allowed.
    dtype = torch.float32 if torch.get_float32_matmul_precision() == "highest" else torch.float64
    common = torch.promote_types(query.dtype, reference.dtype)
    common = torch.promote_types(common, torch.float32)
    shift = reference.mean(0, dtype=torch.float64).to(common)
    a, b = query.to(common) - shift, reference.to(common) - shift
    scale = max(float(a.abs().max()) if len(a) else 0.0, float(b.abs().max())) or 1.0
    a, b = (a / scale).to(dtype), (b / scale).to(dtype)
    gamma = (a.shape[1] + 8) * torch.finfo(dtype).eps / 2
    a_norm = torch.linalg.vector_norm(a, dim=1, keepdim=True, dtype=torch.float64)
    b_norm = torch.linalg.vector_norm(b, dim=1, keepdim=True, dtype=torch.float64)
    left = torch.cat([a, a_norm.to(dtype), torch.ones_like(a_norm, dtype=dtype)], 1)
    right = torch.cat([-2 * b, (-2 * gamma * b_norm).to(dtype), ((1 - gamma) * b_norm**2).to(dtype)], 1)
    # Products below the normal range underflow to 0; the constant keeps the bound below those as well.
    return left, right, (1 - gamma) * a_norm[:, 0] ** 2 - 1e-34, scale


def _lowest_bounds(
    left: Float[Tensor, "r e"],
    right: Float[Tensor, "n e"],
    pool: int,
    columns: int,
    excluded: Int[Tensor, "r"] | None,
) -> tuple[Float[Tensor, "r p"], Int[Tensor, "r p"]]:
    """Return the `pool` lowest entries in every row of left @ right.T, ascending, and their columns.

    Column excluded[i] is skipped in row i.
    """
    values = left.new_full((left.shape[0], 0), 0.0)
    indices = torch.empty(left.shape[0], 0, dtype=torch.int64, device=left.device)
    for first in range(0, right.shape[0], columns):
        part = right[first : first + columns]
        with torch.autocast(left.device.type, enabled=False):
            block = left @ part.T
        if excluded is not None:
            inside = ((excluded >= first) & (excluded < first + part.shape[0])).nonzero()[:, 0]
            block[inside, excluded[inside] - first] = torch.inf
        lowest = block.topk(min(pool, part.shape[0]), dim=1, largest=False)
        values = torch.cat([values, lowest.values], 1)
        indices = torch.cat([indices, lowest.indices + first], 1)
        if values.shape[1] > pool:
            kept = values.topk(pool, dim=1, largest=False)
            values, indices = kept.values, indices.gather(1, kept.indices)
    return values[:, :pool], indices[:, :pool]


def _sort_by_distance(
    query: Float[Tensor, "r d"], reference: Float[Tensor, "n d"], indices: Int[Tensor, "r p"]
) -> tuple[Int[Tensor, "r p"], Float[Tensor, "r p"]]:
    """Sort reference rows by (distance, index); return them with their squared distances in float64."""
    indices = indices.sort(dim=1).values
    difference = reference[indices].double() - query[:, None].double()
    # On CUDA the order of a long sum depends on the row's alignment; duplicates must agree to the last bit.
    difference = pad(difference, (0, -difference.shape[-1] % 4))
    distance, order = difference.square_().sum(-1).sort(dim=1, stable=True)
    return indices.gather(1, order), distance


def _search_directly(
    query: Float[Tensor, "r d"], reference: Float[Tensor, "n d"], k: int, excluded: Int[Tensor, "r"] | None
) -> Int[Tensor, "r k"]:
    """Find the k nearest rows from all n distances in float64; ties go to the lower index."""
    n = reference.shape[0]
    distance = torch.cat(
        [
            torch.cdist(query.double(), part.double(), compute_mode="donot_use_mm_for_euclid_dist")
            for part in torch.split(reference, 1 << 16)
        ],
        1,
    )
    if excluded is not None:
        distance.scatter_(1, excluded[:, None], torch.inf)
    last = distance.topk(k, dim=1, largest=False).values[:, -1:]
    nearer: Bool[Tensor, "r n"] = distance < last
    # Sort key: rows nearer than the k-th distance, then rows at that distance, then the rest, each by index.
    place = torch.arange(n, device=query.device) - n * nearer.long() + n * (distance > last).long()
    return place.topk(k, dim=1, largest=False).indices

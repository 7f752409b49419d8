"""Exact nearest neighbours: a fast search in float32 that knows how wrong it can be, settled in float64."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

#: Neighbours kept beyond k by the fast search; the more, the fewer rows need the slow one.
SPARE = 8
#: Bytes that one block of distances may take.
BUDGET = {"cpu": 1 << 26, "cuda": 1 << 30}


def unit_rows(x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Every row divided by its Euclidean norm; rows of zeros stay."""
    norm = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return x / torch.where(norm > 0, norm, 1.0)


def require_enough(k: int, n: int, *, exclude_self: bool = False) -> None:
    """Refuse to look for k neighbours among n rows, or among the n - 1 others, where there are fewer."""
    if k < 1:
        raise ValueError(f"neighbours: {k} were asked for; ask for at least 1.")
    if k > n - exclude_self:
        among = f"the {n - 1} other rows of {n}" if exclude_self else f"{n} rows"
        raise ValueError(
            f"neighbours: {k} were asked for among {among}; "
            f"ask for at most {n - exclude_self} or bring more training rows."
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
    """The k nearest reference rows of every query row, nearest first, equal distances by lower index.

    Blocks of lower bounds on the squared distances come from one matrix product each; the k + 8 rows with
    the lowest bounds are measured again, difference by difference in float64. A query whose k-th distance
    does not lie below every bound left out (clusters of duplicates, digits lost far from the origin) is
    compared with all rows directly, so the answer is that of a full search in float64.

    Args:
        query: rows to find neighbours of.
        reference: rows to find them among, on the same device.
        k: how many.
        exclude_self: query i is reference row i and not its own neighbour. Excluded by index: the nearest
            row of a duplicate is its twin, at distance 0.
        chunk: query rows handled at once; by default as many as keep a block within `BUDGET`.

    Returns:
        Indices into `reference` and squared Euclidean distances in float64.
    """
    m, n, d = query.shape[0], *reference.shape
    require_enough(k, n, exclude_self=exclude_self)
    if exclude_self and m != n:
        raise ValueError(
            f"query: {m} rows for {n} rows of reference; with exclude_self both are the same rows."
        )
    for name, rows in (("query", query), ("reference", reference)):
        if not rows.isfinite().all():
            raise ValueError(f"{name}: holds NaN or infinity; distances need finite features.")

    pool = min(k + SPARE, n - exclude_self)
    budget = BUDGET.get(query.device.type, BUDGET["cpu"])
    columns = min(n, 1 << 16)
    chunk = chunk or max(1, budget // (4 * columns + 16 * pool * (d + 1)))
    left, right, offset, scale = _bound_factors(query, reference)
    indices = torch.empty(m, k, dtype=torch.int64, device=query.device)
    squared = torch.empty(m, k, dtype=torch.float64, device=query.device)
    for first in range(0, m, chunk):
        rows = torch.arange(first, min(first + chunk, m), device=query.device)
        bounds, found = _lowest_bounds(left[rows], right, pool, columns, rows if exclude_self else None)
        found, distance = _by_distance(query[rows], reference, found)
        indices[rows], squared[rows] = found[:, :k], distance[:, :k]
        if pool < n - exclude_self:
            unsettled = rows[~(distance[:, k - 1] / scale**2 < bounds[:, -1].double() + offset[rows])]
            for some in torch.split(unsettled, max(1, budget // (32 * n))):
                found = _search_directly(query[some], reference, k, some if exclude_self else None)
                indices[some], squared[some] = _by_distance(query[some], reference, found)
    return indices, squared


def _bound_factors(
    query: Float[Tensor, "m d"], reference: Float[Tensor, "n d"]
) -> tuple[Float[Tensor, "m d+2"], Float[Tensor, "n d+2"], Float[Tensor, "m"], float]:
    r"""Factors of a lower bound on all squared distances that holds in spite of rounding.

    .. math:: \lVert a - b \rVert^2 \ge (1 - \gamma)\lVert a \rVert^2 + \bigl[(1 - \gamma)\lVert b \rVert^2
        - 2\, a \cdot b - 2 \gamma \lVert a \rVert \lVert b \rVert\bigr]

    in the precision of the product, with gamma = (d + 8) u for unit round-off u: rounded inputs cost 2 u, the
    sum of d + 2 products (d + 2) u. The bracket is the product of the first two results, the rest the third;
    all for rows moved to the reference's mean and divided by the fourth, so that nothing overflows.
    """
    # With TensorFloat-32 or bfloat16 products allowed, float32 has no such bound.
    dtype = torch.float32 if torch.get_float32_matmul_precision() == "highest" else torch.float64
    kind = torch.promote_types(query.dtype, reference.dtype)
    kind = torch.promote_types(kind, torch.float32)
    shift = reference.mean(0, dtype=torch.float64).to(kind)
    a, b = query.to(kind) - shift, reference.to(kind) - shift
    scale = max(float(a.abs().max()) if len(a) else 0.0, float(b.abs().max())) or 1.0
    a, b = (a / scale).to(dtype), (b / scale).to(dtype)
    gamma = (a.shape[1] + 8) * torch.finfo(dtype).eps / 2
    a_norm = torch.linalg.vector_norm(a, dim=1, keepdim=True, dtype=torch.float64)
    b_norm = torch.linalg.vector_norm(b, dim=1, keepdim=True, dtype=torch.float64)
    left = torch.cat([a, a_norm.to(dtype), torch.ones_like(a_norm, dtype=dtype)], 1)
    right = torch.cat([-2 * b, (-2 * gamma * b_norm).to(dtype), ((1 - gamma) * b_norm**2).to(dtype)], 1)
    # Products below the normal range vanish; the constant keeps the bound below them too.
    return left, right, (1 - gamma) * a_norm[:, 0] ** 2 - 1e-34, scale


def _lowest_bounds(
    left: Float[Tensor, "r e"],
    right: Float[Tensor, "n e"],
    pool: int,
    columns: int,
    own: Int[Tensor, "r"] | None,
) -> tuple[Float[Tensor, "r p"], Int[Tensor, "r p"]]:
    """The `pool` lowest entries of left @ right.T in every row, ascending, and their columns."""
    values = left.new_full((left.shape[0], 0), 0.0)
    found = torch.empty(left.shape[0], 0, dtype=torch.int64, device=left.device)
    for first in range(0, right.shape[0], columns):
        part = right[first : first + columns]
        with torch.autocast(left.device.type, enabled=False):
            block = left @ part.T
        if own is not None:
            inside = ((own >= first) & (own < first + part.shape[0])).nonzero()[:, 0]
            block[inside, own[inside] - first] = torch.inf
        lowest = block.topk(min(pool, part.shape[0]), dim=1, largest=False)
        values = torch.cat([values, lowest.values], 1)
        found = torch.cat([found, lowest.indices + first], 1)
        if values.shape[1] > pool:
            kept = values.topk(pool, dim=1, largest=False)
            values, found = kept.values, found.gather(1, kept.indices)
    return values[:, :pool], found[:, :pool]


def _by_distance(
    query: Float[Tensor, "r d"], reference: Float[Tensor, "n d"], found: Int[Tensor, "r p"]
) -> tuple[Int[Tensor, "r p"], Float[Tensor, "r p"]]:
    """The found rows sorted by (distance, index), with their squared distances in float64."""
    found = found.sort(dim=1).values
    difference = reference[found].double() - query[:, None].double()
    # On CUDA the order of a long sum depends on its row's alignment; twins must agree to the last bit.
    difference = pad(difference, (0, -difference.shape[-1] % 4))
    distance, order = difference.square_().sum(-1).sort(dim=1, stable=True)
    return found.gather(1, order), distance


def _search_directly(
    query: Float[Tensor, "r d"], reference: Float[Tensor, "n d"], k: int, own: Int[Tensor, "r"] | None
) -> Int[Tensor, "r k"]:
    """The k nearest rows from all n differences in float64, the lower indices among equals."""
    n = reference.shape[0]
    distance = torch.cat(
        [
            torch.cdist(query.double(), part.double(), compute_mode="donot_use_mm_for_euclid_dist")
            for part in torch.split(reference, 1 << 16)
        ],
        1,
    )
    if own is not None:
        distance.scatter_(1, own[:, None], torch.inf)
    last = distance.topk(k, dim=1, largest=False).values[:, -1:]
    nearer: Bool[Tensor, "r n"] = distance < last
    # Nearer rows first, then those at the k-th distance, then the rest, each by index.
    place = torch.arange(n, device=query.device) - n * nearer.long() + n * (distance > last).long()
    return place.topk(k, dim=1, largest=False).indices

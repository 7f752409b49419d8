import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from propall.methods import _neighbors
from propall.methods._neighbors import check_neighbor_count, nearest

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def rows(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def brute(
    query: torch.Tensor, reference: torch.Tensor, k: int, exclude_self: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """All pairs in float64, sorted by (distance, index)."""
    distance = (query.double()[:, None] - reference.double()[None]).square().sum(-1)
    if exclude_self:
        distance.fill_diagonal_(torch.inf)
    values, order = distance.sort(dim=1, stable=True)
    return order[:, :k], values[:, :k]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [1, 7, 40])
@pytest.mark.parametrize("chunk", [None, 13])
def test_equals_the_full_search(device: str, dtype: torch.dtype, k: int, chunk: int | None) -> None:
    query, reference = rows(0, 50, 6, dtype=dtype), rows(1, 90, 6, dtype=dtype)
    indices, squared = nearest(query.to(device), reference.to(device), k, chunk=chunk)
    expected, distance = brute(query, reference, k)
    assert indices.device.type == squared.device.type == device
    assert squared.dtype == torch.float64
    assert torch.equal(indices.cpu(), expected)
    torch.testing.assert_close(squared.cpu(), distance, rtol=1e-12, atol=0)


def test_equals_scikit_learn_without_self() -> None:
    x = rows(2, 200, 12)
    indices, squared = nearest(x, x, 10, exclude_self=True)
    distance, expected = NearestNeighbors(n_neighbors=10, algorithm="brute").fit(x.numpy()).kneighbors()
    np.testing.assert_array_equal(indices.numpy(), expected)
    np.testing.assert_allclose(squared.numpy(), distance**2, rtol=1e-9)


def test_many_reference_blocks() -> None:
    # More rows than fit into one block of columns: results must carry over between blocks.
    x = rows(3, 70_000, 2, dtype=torch.float32)
    query = x[torch.arange(0, 70_000, 7_001)]
    indices, squared = nearest(query, x, 5)
    expected, distance = brute(query, x, 5)
    assert torch.equal(indices, expected)
    torch.testing.assert_close(squared, distance, rtol=1e-12, atol=0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("d", [3, 131])
def test_duplicates_exclude_only_the_row_itself(device: str, d: int) -> None:
    # 40 copies of one row: each has 39 neighbors at distance 0, more than the fast search keeps.
    x = torch.cat([rows(4, 1, d).expand(40, d), rows(5, 20, d)]).to(device)
    indices, squared = nearest(x, x, 6, exclude_self=True)
    expected, distance = brute(x.cpu(), x.cpu(), 6, exclude_self=True)
    assert torch.equal(indices.cpu(), expected)
    assert not (indices == torch.arange(60, device=device)[:, None]).any()
    assert (squared[:40] == 0).all()
    assert indices[0].tolist() == [1, 2, 3, 4, 5, 6]
    assert indices[3].tolist() == [0, 1, 2, 4, 5, 6]
    torch.testing.assert_close(squared.cpu(), distance, rtol=1e-12, atol=0)


@pytest.mark.parametrize("device", DEVICES)
def test_ties_go_to_the_lower_index(device: str) -> None:
    # Grid points have many equal distances, within blocks and around the k-th neighbor.
    axis = torch.arange(12, dtype=torch.float32)
    x = torch.cartesian_prod(axis, axis)
    x = x[torch.randperm(144, generator=torch.Generator().manual_seed(6))].to(device)
    indices, squared = nearest(x, x, 6, exclude_self=True, chunk=50)
    expected, distance = brute(x.cpu(), x.cpu(), 6, exclude_self=True)
    assert torch.equal(indices.cpu(), expected)
    assert torch.equal(squared.cpu(), distance)


@pytest.mark.parametrize("shift", [0.0, 1e6])
@pytest.mark.parametrize("factor", [1e-30, 1.0, 1e30])
def test_near_duplicates_far_from_the_origin(shift: float, factor: float) -> None:
    # 60 rows within 1e-7 of each other, and an outlier: |a|^2 + |b|^2 - 2ab in float32 cannot order them.
    x = factor * torch.cat([rows(7, 1, 4) + 1e-7 * rows(8, 60, 4), 1e3 * rows(9, 1, 4)]) + factor * shift
    indices, squared = nearest(x, x, 5, exclude_self=True)
    expected, distance = brute(x, x, 5, exclude_self=True)
    assert torch.equal(indices, expected)
    torch.testing.assert_close(squared, distance, rtol=1e-9, atol=0)


def test_most_rows_are_settled_by_the_fast_search(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = []
    direct = _neighbors._search_directly
    monkeypatch.setattr(
        _neighbors, "_search_directly", lambda q, *rest: slow.append(len(q)) or direct(q, *rest)
    )
    x = rows(10, 1000, 50, dtype=torch.float32)
    nearest(x, x, 10, exclude_self=True)
    assert sum(slow) < 10


def test_other_matmul_precisions_give_the_same() -> None:
    x = rows(11, 100, 8, dtype=torch.float32)
    expected = nearest(x, x, 4, exclude_self=True)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        indices, squared = nearest(x, x, 4, exclude_self=True)
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(indices, expected[0])
    assert torch.equal(squared, expected[1])


def test_autocast_has_no_effect() -> None:
    x = rows(12, 300, 8, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        indices, _ = nearest(x, x, 4, exclude_self=True)
    assert torch.equal(indices, brute(x, x, 4, exclude_self=True)[0])


def test_only_identical_rows() -> None:
    x = torch.ones(5, 3)
    indices, squared = nearest(x, x, 4, exclude_self=True)
    assert indices[2].tolist() == [0, 1, 3, 4]
    assert (squared == 0).all()


def test_no_query_rows() -> None:
    indices, squared = nearest(torch.empty(0, 3), torch.ones(5, 3), 2)
    assert indices.shape == squared.shape == (0, 2)


def test_refusals() -> None:
    x = rows(13, 5, 2)
    with pytest.raises(ValueError, match="neighbours: got 5, but there are only 4 other rows"):
        nearest(x, x, 5, exclude_self=True)
    with pytest.raises(ValueError, match="neighbours: got 6, but there are only 5 rows"):
        nearest(x, x, 6)
    with pytest.raises(ValueError, match="at least 1"):
        check_neighbor_count(0, 5)
    with pytest.raises(ValueError, match="query: 3 rows, but reference has 5"):
        nearest(x[:3], x, 2, exclude_self=True)
    with pytest.raises(ValueError, match="reference: contains NaN"):
        nearest(x, x.index_fill(0, torch.tensor([2]), torch.nan), 2)
    nearest(x, x, 4, exclude_self=True)
    nearest(x, x, 5)

import numpy as np
import pytest
import torch
from scipy.optimize import nnls

from propall.methods._nnls import nonnegative_least_squares


def least_squares(seed: int, b: int, a: int, d: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    near = torch.randn(b, a, d, generator=draw, dtype=torch.float64)
    return near, torch.randn(b, d, generator=draw, dtype=torch.float64) + near.mean(1)


def solve(near: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return nonnegative_least_squares(near @ near.mT, (near @ x[..., None])[..., 0])


def one_by_one(near: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.stack([nnls(b.T.numpy(), v.numpy())[0] for b, v in zip(near, x, strict=True)]))


def residual(near: torch.Tensor, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return (x - (weights[..., None] * near).sum(1)).square().sum(1)


@pytest.mark.parametrize(("a", "d"), [(1, 5), (2, 2), (10, 30), (25, 40)])
def test_pivoting_equals_an_active_set_solver(a: int, d: int) -> None:
    near, x = least_squares(a, 60, a, d)
    weights = solve(near, x)
    assert (weights >= 0).all()
    assert a == 1 or (weights == 0).any()
    torch.testing.assert_close(weights, one_by_one(near, x), rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    "case", ["duplicates", "few features", "zero rows", "all equal", "nearly duplicates"]
)
def test_singular_matrices_reach_the_same_residual(case: str) -> None:
    near, x = least_squares(3, 60, 10, 4 if case == "few features" else 20)
    if case == "duplicates":
        near[:, 5:] = near[:, :5]
    elif case == "zero rows":
        near[:, 3:] = 0
    elif case == "all equal":
        near[:] = near[:, :1]
    elif case == "nearly duplicates":
        near[:, 5:] = near[:, :5] * (1 + 1e-7 * torch.arange(1, 6, dtype=torch.float64)[:, None])
    weights = solve(near, x)
    assert weights.isfinite().all()
    assert (weights >= 0).all()
    best = residual(near, x, one_by_one(near, x))
    assert (residual(near, x, weights) <= best + 1e-9 * x.square().sum(1)).all()


def test_duplicated_rows_share_their_weight() -> None:
    # The minimizer of least norm gives twins the same weight.
    near, x = least_squares(4, 30, 6, 20)
    near[:, 3:] = near[:, :3]
    weights = solve(near, x)
    torch.testing.assert_close(weights[:, 3:], weights[:, :3], rtol=0, atol=1e-6)
    alone = one_by_one(near[:, :3], x)
    torch.testing.assert_close(weights[:, :3] + weights[:, 3:], alone, rtol=0, atol=1e-6)


def test_nothing_to_reconstruct_from() -> None:
    assert (nonnegative_least_squares(torch.zeros(2, 3, 3), torch.zeros(2, 3)) == 0).all()
    # Neighbors that all point away from the row.
    near, x = -torch.eye(3, dtype=torch.float64)[None], torch.ones(1, 3, dtype=torch.float64)
    assert (solve(near, x) == 0).all()
    assert nonnegative_least_squares(torch.zeros(0, 3, 3), torch.zeros(0, 3)).shape == (0, 3)


def test_problems_that_flipping_everything_would_cycle_on() -> None:
    # Nearly collinear rows of both signs: among 5000 such problems some converge by single flips only.
    draw = torch.Generator().manual_seed(5)
    near = torch.randn(5000, 4, 4, generator=draw, dtype=torch.float64)
    sign = torch.randn(5000, 3, 1, generator=draw, dtype=torch.float64).sign()
    near[:, 1:] = sign * near[:, :1] + 0.1 * near[:, 1:]
    gram, target = near @ near.mT, torch.randn(5000, 4, generator=draw, dtype=torch.float64)
    weights = nonnegative_least_squares(gram, target)
    # The optimality conditions.
    gradient = (gram @ weights[..., None])[..., 0] - target
    scale = 1 + (gram.abs() @ weights[..., None])[..., 0]
    assert (weights >= 0).all()
    assert (gradient / scale > -1e-9).all()
    assert (gradient[weights > 0] / scale[weights > 0]).abs().max() < 1e-9

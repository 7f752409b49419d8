"""Used by PLLE: kernel ridge regression on all rows, or on landmarks (Nyström)."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


def rbf_kernel(a: Float[Tensor, "m d"], b: Float[Tensor, "n d"], width: float) -> Float[Tensor, "m n"]:
    """Compute exp(-|a_i - b_j|² / (2 width²)) for all pairs, in place from one matrix product."""
    shift = b.mean(0)
    a, b = a - shift, b - shift
    squared = torch.addmm(b.square().sum(1), a, b.T, alpha=-2)
    squared.add_(a.square().sum(1, keepdim=True)).clamp_(min=0)
    return squared.mul_(-0.5 / width**2).exp_()


class RidgeFit(NamedTuple):
    """Minimizer of penalty + C1 |T - F|² for one target T, where F are the outputs on the training rows."""

    coefficients: Float[Tensor, "a k"]
    offset: Float[Tensor, "k"]
    outputs: Float[Tensor, "n k"]
    penalty: Float[Tensor, ""]


def dense_ridge(x: Float[Tensor, "n d"], width: float, c1: float) -> Callable[[Tensor], RidgeFit]:
    """Factorize ridge regression on the kernels of all rows: (H + I / (2 C1)) B + 1 b = T with 1'B = 0."""
    system = rbf_kernel(x, x, width)
    system.diagonal().add_(0.5 / c1)
    factor = torch.linalg.cholesky(system)

    def invert(target: Tensor) -> Tensor:
        # Not `cholesky_solve`, which copies the factor at every call.
        half: Tensor = torch.linalg.solve_triangular(factor, target, upper=False)
        solution: Tensor = torch.linalg.solve_triangular(factor.mT, half, upper=True)
        return solution

    ones = invert(x.new_ones(len(x), 1))

    def solve(target: Tensor) -> RidgeFit:
        raw = invert(target)
        offset = raw.sum(0) / ones.sum()
        coefficients = raw - ones * offset
        outputs = target - coefficients / (2 * c1)
        return RidgeFit(coefficients, offset, outputs, 0.5 * (coefficients * (outputs - offset)).sum())

    return solve


def landmark_ridge(
    x: Float[Tensor, "n d"], landmarks: Float[Tensor, "a d"], width: float, c1: float
) -> Callable[[Tensor], RidgeFit]:
    """Factorize ridge regression on the kernels of a few landmarks: n x a values instead of n x n."""
    values, vectors = torch.linalg.eigh(rbf_kernel(landmarks, landmarks, width))
    kept = values > 1e-10 * values[-1]
    whiten = vectors[:, kept] * values[kept].rsqrt()
    features = rbf_kernel(x, landmarks, width) @ whiten
    mean = features.mean(0)
    features -= mean
    system = features.T @ features
    system.diagonal().add_(0.5 / c1)
    factor = torch.linalg.cholesky(system)

    def solve(target: Tensor) -> RidgeFit:
        weights = torch.cholesky_solve(features.T @ target, factor)
        target_mean = target.mean(0)
        outputs = features @ weights + target_mean
        return RidgeFit(whiten @ weights, target_mean - mean @ weights, outputs, 0.5 * weights.square().sum())

    return solve

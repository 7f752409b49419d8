"""Used by IPAL: non-negative least squares for many small problems at once."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def nonnegative_least_squares(
    gram: Float[Tensor, "b a a"], target: Float[Tensor, "b a"]
) -> Float[Tensor, "b a"]:
    r"""Minimize w' G w / 2 - c' w over w >= 0 for a batch of problems.

    With :math:`G = B B^\top` and :math:`c = B x` this is :math:`\min_{w \ge 0} \lVert x - B^\top w \rVert^2`.
    Block principal pivoting: guess which weights are positive, solve for them, and flip every index that
    violates the optimality conditions (a negative weight, or a zero weight with a negative gradient). After
    three rounds without fewer violations only the last one is flipped, which guarantees termination.

    Args:
        gram: symmetric positive semidefinite matrices G.
        target: vectors c, each in the range of its G.

    Returns:
        The minimizers, in float64.

    References:
        Kim and Park, SIAM Journal on Scientific Computing 33 (2011).

    Notes:
        If G is singular (duplicate rows, fewer features than neighbors), several minimizers have the same
        residual. In that case only, a ridge of 1e-8 times the mean diagonal selects the one of least norm, up
        to about 1e-6.
    """
    gram, target = gram.double(), target.double()
    size = target.shape[1]
    level = gram.diagonal(dim1=1, dim2=2).mean(1)
    # Split, because on CUDA eigvalsh needs half a megabyte of workspace per matrix.
    smallest = torch.cat([torch.linalg.eigvalsh(part)[:, 0] for part in torch.split(gram, 1024)])
    singular = smallest < 1e-10 * level
    gram = gram + torch.diag_embed((1e-8 * level * singular)[:, None].expand(-1, size))
    slack = 1e-12 * target.abs().amax(1, keepdim=True)
    solution = torch.zeros_like(target)
    # Unsolved problems and the state of their search.
    unsolved = torch.arange(len(target), device=target.device)
    positive = torch.zeros_like(target, dtype=torch.bool)
    fewest = torch.full_like(unsolved, size + 1)
    patience = torch.full_like(unsolved, 3)
    position = torch.arange(size, device=target.device)
    for _ in range(100 * size + 100):
        weights = _solve_on(positive, gram, target)
        gradient = (gram @ weights[..., None])[..., 0] - target
        violated = torch.where(positive, weights, gradient) < -slack
        count = violated.sum(1)
        solved = count == 0
        solution[unsolved[solved]] = weights[solved].clamp(min=0)
        if solved.all():
            return solution
        fewer = count < fewest
        last = violated & (position == torch.where(violated, position, -1).amax(1, keepdim=True))
        flip = torch.where((fewer | (patience > 0))[:, None], violated, last)
        fewest = torch.where(fewer, count, fewest)
        patience = torch.where(fewer, 3, (patience - 1).clamp(min=0))
        left = ~solved
        unsolved, gram, target, slack = unsolved[left], gram[left], target[left], slack[left]
        positive, fewest, patience = (positive ^ flip)[left], fewest[left], patience[left]
    raise RuntimeError(f"gram: {len(unsolved)} problems did not converge; are the matrices symmetric?")


def _solve_on(
    positive: Bool[Tensor, "b a"], gram: Float[Tensor, "b a a"], target: Float[Tensor, "b a"]
) -> Float[Tensor, "b a"]:
    """Solve G w = c on the positive indices, with w = 0 on the others."""
    both = positive[:, :, None] & positive[:, None, :]
    block = torch.where(both, gram, torch.diag_embed((~positive).to(gram.dtype)))
    factor = torch.linalg.cholesky_ex(block).L
    return torch.cholesky_solve((target * positive)[..., None], factor)[..., 0]

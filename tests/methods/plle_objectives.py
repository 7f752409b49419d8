"""Objectives that PLLE minimizes, written out as oracles for its solvers."""

from torch import Tensor

from propall.methods.plle import Graph, data_term


def enhancement_objective(distributions: Tensor, candidates: Tensor, graph: Graph, lam: float) -> Tensor:
    """|D - S|² + lambda tr(D' G D) with the unnormalized Laplacian G of the graph."""
    laplacian = graph.degrees() * distributions - graph.sums(distributions)
    return (distributions - candidates.double()).square().sum() + lam * (distributions * laplacian).sum()


def regression_objective(
    coefficients: Tensor,
    offset: Tensor,
    kernel: Tensor,
    target: Tensor,
    signs: Tensor,
    **factors: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """tr(B' H B) / 2 + data_term(H B + 1 b'), and its gradients with respect to B and b."""
    expansion = kernel @ coefficients
    value, gradient = data_term(expansion + offset, target, signs, **factors)
    value = value + 0.5 * (coefficients * expansion).sum()
    return value, kernel @ (coefficients + gradient), gradient.sum(0)

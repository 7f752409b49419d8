"""The graph reconstruction, against the full matrix."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import mse_loss
from torch.utils._python_dispatch import TorchDispatchMode

from propall.methods._autoencoder import adjacency_rows, graph_reconstruction
from propall.methods._neighbors import nearest


def double(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def dense_graph(neighbours: Tensor) -> Tensor:
    n, m = neighbours.shape
    graph = torch.eye(n, dtype=torch.float64)
    for i, others in enumerate(neighbours.tolist()):
        graph[i, others] = 1
    return graph / (m + 1)


def test_block_of_the_graph_from_lists() -> None:
    x = double(30, 4)
    neighbours, _ = nearest(x, x, 3, exclude_self=True)
    batch = torch.randperm(30)[:11]
    block = adjacency_rows(batch, neighbours[batch], batch, torch.float64)
    expected = dense_graph(neighbours)[batch][:, batch]
    torch.testing.assert_close(block, expected)
    assert 0 < (expected > 0).sum() < 4 * 11
    # Directed: being a neighbor is not symmetric.
    assert not torch.equal(dense_graph(neighbours), dense_graph(neighbours).T)


@pytest.mark.parametrize("rows_at_once", [3, 11, 1024])
@pytest.mark.parametrize("weighted", [False, True])
def test_graph_reconstruction_and_its_gradient(rows_at_once: int, weighted: bool) -> None:
    x = double(30, 4)
    neighbours, _ = nearest(x, x, 3, exclude_self=True)
    batch = torch.randperm(30)[:11]
    weight = torch.rand(11, dtype=torch.float64) if weighted else None
    z = double(11, 5).softmax(-1).requires_grad_()
    ours = graph_reconstruction(z, batch, neighbours[batch], weight, rows_at_once=rows_at_once)
    target = dense_graph(neighbours)[batch][:, batch]
    implied = (z @ z.T).sigmoid().softmax(-1)
    share = torch.ones(11, dtype=torch.float64) if weight is None else weight
    theirs = ((implied - target).square().mean(-1) * share).sum() / share.sum()
    torch.testing.assert_close(ours, theirs)
    if weight is None:
        torch.testing.assert_close(ours, mse_loss(implied, target))
    torch.testing.assert_close(torch.autograd.grad(ours, z), torch.autograd.grad(theirs, z))


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation made."""

    size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in torch.utils._pytree.tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.size = max(self.size, leaf.numel())
        return result


def test_a_full_batch_never_makes_an_n_by_n_matrix() -> None:
    n = 400
    neighbours = torch.randint(n, (n, 3))
    z = torch.rand(n, 4).softmax(-1).requires_grad_()
    with Largest() as largest:
        graph_reconstruction(z, torch.arange(n), neighbours, rows_at_once=16).backward()
    assert largest.size <= 3 * 16 * n < n * n

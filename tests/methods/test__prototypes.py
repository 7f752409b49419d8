"""Prototypes after a batch, the momentum schedule and predicted labels."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from propall.methods._prototypes import momentum_after, move_prototypes, predicted_labels


def moved_row_by_row(prototypes: Tensor, features: Tensor, labels: Tensor, momentum: float) -> Tensor:
    moved = prototypes.clone()
    for feature, label in zip(features, labels, strict=True):
        moved[label] = momentum * moved[label] + (1 - momentum) * feature
    return normalize(moved, dim=-1)


@pytest.mark.parametrize("momentum", [0.99, 0.5, 0.0])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-13)])
def test_all_rows_at_once_equal_the_loop_over_rows(
    momentum: float, dtype: torch.dtype, tolerance: float
) -> None:
    g = torch.Generator().manual_seed(0)
    features = normalize(torch.randn(300, 16, generator=g, dtype=dtype), dim=-1)
    labels = torch.randint(6, (300,), generator=g)  # no row has label 6
    start = normalize(torch.randn(7, 16, generator=g, dtype=dtype), dim=-1)
    start[0] = 0
    result = move_prototypes(start, features, labels, momentum)
    torch.testing.assert_close(
        result, moved_row_by_row(start, features, labels, momentum), rtol=0, atol=tolerance
    )
    torch.testing.assert_close(result[6], start[6])


def test_a_class_without_rows_keeps_a_zero_prototype() -> None:
    features, labels = torch.tensor([[1.0, 0.0]]), torch.tensor([1])
    moved = move_prototypes(torch.zeros(3, 2), features, labels, 0.99)
    assert moved.tolist() == [[0, 0], [1, 0], [0, 0]]


def test_the_momentum_is_set_after_an_epoch() -> None:
    at = [momentum_after(torch.tensor(float(e)), 10, 0.95, 0.80).item() for e in (0, 1, 2, 10)]
    assert at == pytest.approx([0.99, 0.95, 0.935, 0.815])


def test_a_predicted_label_is_a_candidate_and_ties_go_to_the_lowest() -> None:
    candidates = torch.tensor([[False, True, True], [True, False, True]])
    assert predicted_labels(torch.tensor([[9.0, 1.0, 2.0], [0.0, 5.0, 0.0]]), candidates).tolist() == [2, 0]

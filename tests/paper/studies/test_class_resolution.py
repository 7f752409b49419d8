"""Where the rows of every class go, and which classes are candidates together."""

import pytest
import torch

from propall.paper.studies.class_resolution import (
    candidate_shares,
    class_accuracies,
    find_companions,
    resolution_matrix,
    swallowed_classes,
)

TRUTH = torch.tensor([0, 0, 0, 1, 1, 2])
CANDIDATES = torch.tensor(
    [[1, 1, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
).bool()
LOGITS = torch.tensor(
    [
        [0.0, 1.0, 0.0, 9.0],  # to 1: the best label is outside the set
        [0.0, 1.0, 9.0, 0.0],  # to 1
        [1.0, 9.0, 0.0, 0.0],  # to 0
        [0.0, 1.0, 0.0, 0.0],  # to 1
        [9.0, 1.0, 0.0, 0.0],  # to 1
        [0.0, 0.0, 0.0, 1.0],  # to 3
    ]
)


def test_rows_go_to_their_highest_candidate():
    expected = torch.tensor([[1 / 3, 2 / 3, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]])
    matrix = resolution_matrix(LOGITS, CANDIDATES, TRUTH)
    assert torch.allclose(matrix, expected.double())


def test_swallowed_classes_and_by_whom():
    first, second = swallowed_classes(resolution_matrix(LOGITS, CANDIDATES, TRUTH))
    assert (first.label, first.by) == (0, 1)
    assert (first.resolved, first.share) == pytest.approx((1 / 3, 2 / 3))
    assert (second.label, second.resolved, second.by, second.share) == (2, 0, 3, 1)
    # The fourth class has no rows; it is not swallowed. A class that keeps half of its rows is not either.
    assert swallowed_classes(torch.tensor([[0.5, 0.5], [0.0, 1.0]])) == []


def test_companions():
    shares = candidate_shares(CANDIDATES, TRUTH)
    assert torch.allclose(shares[0], torch.tensor([1, 2 / 3, 1 / 3, 0]).double())
    assert torch.allclose(shares[1], torch.tensor([0.5, 1, 0.5, 0]).double())
    zero, one, two, _ = find_companions(shares)
    assert (zero.companion, zero.mutual) == (1, True)
    assert (one.companion, one.share) == (0, 0.5)
    assert (two.companion, two.share, two.mutual) == (3, 1.0, False)


def test_class_accuracies_ignore_the_candidates():
    assert class_accuracies(LOGITS, TRUTH).tolist() == [0, 0.5, 0, 0]

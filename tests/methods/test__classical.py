import pytest
import torch

from propall.data.dataset import PartialDataset
from propall.methods._classical import LinearClassifier, as_rows, rows_and_candidates
from propall.training.contract import Run


def test_rows_are_flat_and_wide() -> None:
    x = torch.arange(24, dtype=torch.float32).reshape(2, 3, 2, 2)
    rows = as_rows(x)
    assert rows.dtype == torch.float64
    assert torch.equal(rows, torch.arange(24, dtype=torch.float64).reshape(2, 12))


def test_linear_classifier() -> None:
    weight = torch.tensor([[1.0, 2.0], [0.0, -1.0], [3.0, 0.5]], dtype=torch.float64)
    bias = torch.tensor([0.5, 0.0, -4.0], dtype=torch.float64)
    x = torch.tensor([[1.0, 1.0], [2.0, -2.0]])
    classifier = LinearClassifier(weight, bias)
    expected = torch.tensor([[3.5, -1.0, -0.5], [-1.5, 2.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(classifier.scores(x), expected)
    assert classifier.predict(x).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("x", "candidates", "weight", "message"),
    [
        (torch.ones(3, 2), [[1, 0], [0, 0], [0, 0]], None, r"candidates: 2 empty rows \(first: 1\)"),
        (
            torch.tensor([[1.0], [torch.nan], [0.0]]),
            [[1, 0]] * 3,
            None,
            r"x: 1 row with NaN or infinity \(first: 1\)",
        ),
        (torch.ones(3, 2), [[1, 0]] * 3, torch.ones(3), "weight: PL-X does not support instance weights"),
        (torch.ones(0, 2), torch.ones(0, 2), None, "x: 0 rows"),
    ],
)
def test_refusals(x: torch.Tensor, candidates: object, weight: torch.Tensor | None, message: str) -> None:
    run = Run(PartialDataset(x, torch.as_tensor(candidates).bool()), seed=0, weight=weight)
    with pytest.raises(ValueError, match=message):
        rows_and_candidates(run, "PL-X")

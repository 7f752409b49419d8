"""What a method may learn from, and what is kept from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class PartialDataset:
    """Features and candidate sets; there is no truth in it, so no method can peek.

    Attributes:
        x: features, one row per instance: (n, d) or images (n, c, h, w).
        candidates: (n, k), True on the labels an instance may have.
    """

    x: Float[Tensor, "n ..."]
    candidates: Bool[Tensor, "n k"]

    def __post_init__(self) -> None:
        if self.x.shape[0] != self.candidates.shape[0]:
            raise ValueError(
                f"candidates: {self.candidates.shape[0]} rows for {self.x.shape[0]} rows of x; "
                "give one candidate set per instance."
            )

    def __len__(self) -> int:
        return self.x.shape[0]

    @property
    def n_classes(self) -> int:
        """Number of classes k."""
        return self.candidates.shape[1]

    @property
    def in_shape(self) -> tuple[int, ...]:
        """Shape of one instance."""
        return tuple(self.x.shape[1:])

    def to(self, device: torch.device | str) -> Self:
        """The same data on another device."""
        return type(self)(self.x.to(device), self.candidates.to(device))

    def subset(self, index: Int[Tensor, "m"]) -> Self:
        """Some of the rows."""
        return type(self)(self.x[index], self.candidates[index])


@dataclass(frozen=True)
class Problem:
    """A training set with the truth that scores it, and a test set.

    Attributes:
        train: what a method may see.
        truth: (n,) true class of each training row, for transductive accuracy only.
        test_x: test features.
        test_truth: (m,) true class of each test row.
        classes: class names in order.
    """

    train: PartialDataset
    truth: Int[Tensor, "n"]
    test_x: Float[Tensor, "m ..."]
    test_truth: Int[Tensor, "m"]
    classes: tuple[str, ...]

    def to(self, device: torch.device | str) -> Self:
        """The same problem on another device."""
        return type(self)(
            self.train.to(device),
            self.truth.to(device),
            self.test_x.to(device),
            self.test_truth.to(device),
            self.classes,
        )

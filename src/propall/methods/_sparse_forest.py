"""Forests for many classes: trees split by random projections of the labels, with sparse leaves.

A tree of the usual kind has a number for every class in every node, and visits all of them for every split.
With many classes, the label distributions are projected at random to `PROJECTIONS` numbers, which keeps their
distances, and the trees are split by these, as in [joly2014random]. The leaves are then filled with the
distributions themselves, of which only the classes that occur are stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from propall import counter_rng
from propall.methods._classical import as_rows
from propall.methods._trees import Trees, flatten_nodes
from propall.numerics import BALANCING_STEPS, SMALLEST_SHARE

#: Number of random projections of the label distributions.
PROJECTIONS = 64


@dataclass(frozen=True, eq=False)
class SparseTreeEnsemble(Trees):
    """The mean of many decision trees whose leaves store only the classes that occur in them.

    Attributes:
        leaf: number of a leaf; 0 for other nodes.
        first: position of the first class of every leaf in the lists below, and their length.
        label: the classes of all leaves.
        values: their probabilities, in half precision.
        n_classes: number of classes.
    """

    leaf: Int[Tensor, "m"]
    first: Int[Tensor, "l"]
    label: Int[Tensor, "e"]
    values: Float[Tensor, "e"]
    n_classes: int

    name = "sparse trees"

    def scores(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
        """The probabilities."""
        return self.probabilities(x)

    def probabilities(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
        """Mean of the leaves that a row reaches and of one leaf with equal probabilities."""
        return self.follow(as_rows(x.to(self.roots.device).float()), self.n_classes)

    def combine(self, rows: Float[Tensor, "n d"], leaves: Int[Tensor, "n t"]) -> Float[Tensor, "n k"]:
        """Means of the probabilities of the leaves."""
        total = rows.new_full((len(rows), self.n_classes), 1 / self.n_classes)
        number = torch.arange(len(rows), device=rows.device)
        for positions in self.leaf[leaves].long().unbind(1):
            start = self.first[positions].long()
            length = self.first[positions + 1].long() - start
            row = number.repeat_interleave(length)
            entry = torch.arange(len(row), device=rows.device) + (start - length.cumsum(0) + length)[row]
            # A leaf has every class once, so no element is added to twice and the order does not matter.
            places = row * self.n_classes + self.label[entry].long()
            total.view(-1).index_add_(0, places, self.values[entry].to(total))
        return total / total.sum(1, keepdim=True)


class CandidateTargets:
    """Label distributions on the candidates, as one number per candidate.

    Args:
        candidates: (n, k), True for candidates.
    """

    def __init__(self, candidates: Bool[np.ndarray, "n k"]) -> None:
        self.shape = candidates.shape
        self.row, self.label = np.nonzero(candidates)
        self.first = np.concatenate([[0], np.bincount(self.row, minlength=len(candidates)).cumsum()])
        self.uniform = 1 / np.diff(self.first)[self.row]

    def next(
        self, weights: Float[np.ndarray, "e"], otherwise: Float[np.ndarray, "e"], *, balanced: bool
    ) -> Float[np.ndarray, "e"]:
        """As `next_targets`, from one weight per candidate."""
        total = np.bincount(self.row, weights, self.shape[0])[self.row]
        usable = np.isfinite(total) & (total > 0)
        target = np.where(usable, weights / np.where(usable, total, 1.0), otherwise)
        return self._balance(target) if balanced else target

    def _balance(self, target: Float[np.ndarray, "e"]) -> Float[np.ndarray, "e"]:
        """As `balance_classes`, with the shares of the uniform distribution on the candidates."""
        n_rows, n_classes = self.shape
        goal = np.bincount(self.label, self.uniform, n_classes) / n_rows
        goal = np.log(np.maximum(goal, SMALLEST_SHARE))
        factors = np.zeros(n_classes)
        balanced = target
        for _ in range(BALANCING_STEPS):
            current = np.bincount(self.label, balanced, n_classes) / n_rows
            factors = factors + goal - np.log(np.maximum(current, SMALLEST_SHARE))
            weights = target * np.exp(factors - factors.max())[self.label]
            total = np.bincount(self.row, weights, n_rows)[self.row]
            balanced = np.where(total > 0, weights / np.where(total > 0, total, 1.0), target)
        return balanced

    def matrix(self, values: Float[np.ndarray, "e"]) -> Any:
        """One number per candidate as a sparse (n, k) matrix."""
        from scipy.sparse import csr_array

        return csr_array((values, self.label, self.first), shape=self.shape)

    def values(self, matrix: Any) -> NDArray[np.float64]:
        """The numbers of a sparse (n, k) matrix at the candidates."""
        return np.asarray(matrix[self.row, self.label], dtype=float).reshape(-1)


def project(target: Any, seed: int) -> Float[np.ndarray, "n p"]:
    """Random projections of the rows of a sparse (n, k) matrix that keep their distances on average."""
    numbers = torch.arange(target.shape[1])[:, None], torch.arange(PROJECTIONS)
    uniform = counter_rng.uniform(counter_rng.seed_for(seed, "projection"), *numbers, dtype=torch.float64)
    signs = np.where(uniform.numpy() < 0.5, -1.0, 1.0)
    return np.asarray(target @ signs)


@dataclass(frozen=True)
class SparseLeaves:
    """The leaves of scikit-learn's trees, filled with label distributions.

    Attributes:
        estimators: the trees, fitted to projections.
        values: sparse (leaves, classes) probabilities of every tree.
        out_of_bag: sparse (rows, classes) sums of the leaves of the trees that a row is out of bag of.
    """

    estimators: Sequence[Any]
    values: Sequence[Any]
    out_of_bag: Any

    @classmethod
    def fill(cls, forest: Any, rows: Float[np.ndarray, "n d"], target: Any) -> "SparseLeaves":
        """Average the distributions of the training rows in each leaf.

        Args:
            forest: a fitted `ExtraTreesRegressor` with bootstrap samples.
            rows: features of the training rows.
            target: sparse (n, k) label distributions.
        """
        from scipy.sparse import csr_array, hstack, vstack

        numbers, values, left_out = np.arange(len(rows)), [], []
        for estimator, sample in zip(forest.estimators_, forest.estimators_samples_, strict=True):
            counts = np.bincount(sample, minlength=len(rows)).astype(float)
            is_leaf = estimator.tree_.children_left < 0
            leaf = (np.cumsum(is_leaf) - 1)[estimator.tree_.apply(rows)]
            shape = (int(is_leaf.sum()), len(rows))
            inside = np.flatnonzero(counts)
            size = np.bincount(leaf, counts, shape[0])
            share = counts[inside] / size[leaf[inside]]
            values.append(csr_array((share, (leaf[inside], inside)), shape=shape) @ target)
            outside = numbers[counts == 0]
            ones = np.ones(len(outside))
            left_out.append(csr_array((ones, (outside, leaf[outside])), shape=shape[::-1]))
        return cls(forest.estimators_, values, hstack(left_out, "csr") @ vstack(values, "csr"))

    def ensemble(self, device: torch.device) -> SparseTreeEnsemble:
        """The nodes and leaves as tensors."""
        from scipy.sparse import vstack

        values = vstack(self.values, "csr")
        tensors = flatten_nodes(self.estimators)
        for name, numbers in (("first", values.indptr), ("label", values.indices)):
            tensors[name] = torch.from_numpy(numbers.astype(np.int32))
        tensors["values"] = torch.from_numpy(values.data.astype(np.float16))
        return SparseTreeEnsemble(
            **{name: tensor.to(device) for name, tensor in tensors.items()}, n_classes=values.shape[1]
        )

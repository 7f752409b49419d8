"""Shared by Forest and Boosting: trees as tensors, and the next targets from predictions of held-out rows."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from propall.numerics import balance_classes, uniform_weights
from propall.training.contract import Classifier

#: Maximum number of pairs of a row and a tree that are followed at once.
PAIRS_AT_ONCE = 1 << 20


@dataclass(frozen=True, eq=False)
class Trees(Classifier):
    """Decision trees; the nodes of all of them are in one list.

    A row goes to the left child if its feature is at most the threshold. Leaves are their own children.

    Attributes:
        roots: first node of every tree.
        left: left child of every node.
        right: right child.
        feature: feature that is compared.
        threshold: number that it is compared with.
    """

    roots: Int[Tensor, "t"]
    left: Int[Tensor, "m"]
    right: Int[Tensor, "m"]
    feature: Int[Tensor, "m"]
    threshold: Float[Tensor, "m"]

    @abstractmethod
    def combine(self, rows: Float[Tensor, "n d"], leaves: Int[Tensor, "n t"]) -> Float[Tensor, "n k"]:
        """Numbers of every class from the leaves that some rows reach."""

    def follow(self, rows: Float[Tensor, "n d"], n_classes: int) -> Float[Tensor, "n k"]:
        """Numbers of every class, some rows at a time."""
        parts = rows.split(max(1, PAIRS_AT_ONCE // max(1, len(self.roots))))
        numbers = [self.combine(part, self._leaves(part)) for part in parts]
        return torch.cat(numbers) if numbers else rows.new_zeros(0, n_classes)

    def _leaves(self, rows: Float[Tensor, "n d"]) -> Int[Tensor, "n t"]:
        """The node of every tree in which a row ends."""
        node = self.roots.long().expand(len(rows), -1)
        while True:
            goes_left = rows.gather(1, self.feature[node].long()) <= self.threshold[node]
            child = torch.where(goes_left, self.left[node], self.right[node]).long()
            if torch.equal(child, node):
                return node
            node = child


def flatten_nodes(estimators: Sequence[Any]) -> dict[str, Tensor]:
    """The nodes of scikit-learn's trees in one list each, as the fields of `Trees`.

    Returns:
        Those fields, and `leaf`: the number of a leaf among the leaves of all trees, 0 for other nodes.
    """
    names = ("roots", "left", "right", "feature", "threshold", "leaf")
    parts: dict[str, list[Any]] = {name: [] for name in names}
    nodes = leaves = 0
    for estimator in estimators:
        tree = estimator.tree_
        is_leaf = tree.children_left < 0
        itself = np.arange(tree.node_count)
        parts["roots"].append(np.array([nodes]))
        parts["left"].append(nodes + np.where(is_leaf, itself, tree.children_left))
        parts["right"].append(nodes + np.where(is_leaf, itself, tree.children_right))
        parts["feature"].append(np.where(is_leaf, 0, tree.feature))
        parts["threshold"].append(tree.threshold)
        parts["leaf"].append(np.where(is_leaf, leaves + np.cumsum(is_leaf) - 1, 0))
        nodes, leaves = nodes + tree.node_count, leaves + int(is_leaf.sum())
    arrays = {name: np.concatenate(part) for name, part in parts.items()}
    return {
        name: torch.from_numpy(array if name == "threshold" else array.astype(np.int32))
        for name, array in arrays.items()
    }


def next_targets(
    weights: Float[np.ndarray, "n k"],
    mask: Bool[np.ndarray, "n k"],
    otherwise: Float[np.ndarray, "n k"],
    *,
    balanced: bool,
) -> Float[np.ndarray, "n k"]:
    """Weights on the candidates, normalized; `otherwise` in rows where they are all 0 or not finite.

    Args:
        weights: nonnegative numbers.
        mask: the candidates.
        otherwise: a distribution on the candidates.
        balanced: give every class the share that it has in the uniform distribution on the candidates.
    """
    inside = np.where(mask, weights, 0.0)
    total = inside.sum(1, keepdims=True)
    usable = np.isfinite(total) & (total > 0)
    target = np.where(usable, inside / np.where(usable, total, 1.0), otherwise)
    if not balanced:
        return target
    shares = uniform_weights(torch.from_numpy(mask), torch.float64).mean(0)
    return np.asarray(balance_classes(torch.from_numpy(target), shares).numpy())

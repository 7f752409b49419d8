"""Forest: extremely randomized trees on soft labels that follow the out-of-bag predictions."""

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from propall import counter_rng
from propall.labels.candidates import MANY_CLASSES
from propall.methods._classical import ClassicalAlgorithm, as_rows
from propall.methods._sparse_forest import CandidateTargets, SparseLeaves, SparseTreeEnsemble, project
from propall.methods._trees import Trees, flatten_nodes, next_targets
from propall.numerics import uniform_weights
from propall.training.contract import Classifier, Monitor

#: Share of the trees whose bootstrap sample does not contain a row, on average.
OUT_OF_BAG = 1 / math.e
#: Rows times trees above which several threads grow the trees; below, starting threads takes as long.
SEVERAL_THREADS = 200_000
#: Share of candidates above which leaves store all classes.
LARGEST_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class TreeEnsemble(Trees):
    """The mean of many decision trees.

    Attributes:
        leaf: position of a leaf's values; 0 for other nodes.
        values: class probabilities of every leaf, in half precision.
    """

    leaf: Int[Tensor, "m"]
    values: Float[Tensor, "l k"]

    name = "trees"

    def scores(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
        """The probabilities."""
        return self.probabilities(x)

    def probabilities(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
        """Mean of the leaves that a row reaches and of one leaf with equal probabilities.

        So no class has probability 0, which would rule out candidate sets that no tree expects.
        """
        return self.follow(as_rows(x.to(self.roots.device).float()), self.values.shape[1])

    def combine(self, rows: Float[Tensor, "n d"], leaves: Int[Tensor, "n t"]) -> Float[Tensor, "n k"]:
        """Means of the probabilities of the leaves."""
        total = rows.new_full((len(rows), self.values.shape[1]), 1 / self.values.shape[1])
        for positions in self.leaf[leaves].long().unbind(1):
            total += self.values[positions]
        return total / total.sum(1, keepdim=True)


@dataclass(frozen=True)
class Forest(ClassicalAlgorithm):
    r"""Extremely randomized trees by expectation maximization on out-of-bag predictions.

    The trees predict a label distribution q by squared error. Then the out-of-bag prediction p of every row,
    restricted to its candidates, is the next target:

    .. math:: q_{ij} \propto [j \in S_i] \; p_{ij} \, a_{ij}

    q starts from the uniform distribution on the candidates, or from the posterior of another model. Such a
    start is also the anchor a (else 1): it keeps multiplying the prediction, so that trees which know less
    than the other model cannot forget what it knew.

    Attributes:
        trees: number of trees.
        rounds: number of times that the trees are fitted.
        min_rows: minimum number of training rows in a leaf.
        balanced: multiply q by a factor per class, such that every class keeps the share of the rows that it
            has in the uniform distribution on the candidates.

    Notes:
        With more than `MANY_CLASSES` classes, the trees are split by random projections of q, and the leaves
        store only the classes that occur in them.

    References:
        [geurts2006extremely], for the trees; [joly2014random], for random projections of the labels.
    """

    trees: int = 100
    rounds: int = 4
    min_rows: int = 1
    balanced: bool = False

    name, title, reference = "forest", "Forest", "geurts2006extremely"
    assumes = "the set contains the true label; a few thresholds on single features separate the classes"
    use_when = (
        "For tables with categories, thresholds and interactions, without tuning. `propall fit` tries it."
    )
    memory = "k label weights"
    cost = "trees on all rows per round"
    classifier = TreeEnsemble
    other_classifiers = (SparseTreeEnsemble,)

    def fit_rows(self, x: Float[Tensor, "n d"], candidates: Bool[Tensor, "n k"], seed: int) -> Classifier:
        """Start from equal weights on the candidates."""
        return self.fit_from(x, candidates, None, seed)[0][0]

    def fit_from(
        self,
        x: Float[Tensor, "n d"],
        candidates: Bool[Tensor, "n k"],
        start: Float[Tensor, "n k"] | None,
        seed: int,
        *,
        monitor: Monitor | None = None,
    ) -> tuple[list[Classifier], NDArray[np.float64]]:
        """Fit the trees, starting from a posterior of the training rows if there is one.

        Args:
            x: training rows.
            candidates: their candidate sets.
            start: posterior by a model that was not fitted on each row.
            seed: random seed.
            monitor: asked before every round.

        Returns:
            A single ensemble of trees, and (n, k) out-of-bag probabilities of the training rows.
        """
        if candidates.shape[1] > MANY_CLASSES and candidates.float().mean() <= LARGEST_SHARE:
            return self._fit_sparse(x, candidates, start, seed, monitor)
        rows, mask = x.cpu().numpy().astype(np.float32), candidates.cpu().numpy()
        uniform = uniform_weights(candidates.cpu()).double().numpy()
        anchor = uniform
        if start is not None:
            anchor = next_targets(start.double().cpu().numpy(), mask, uniform, balanced=False)
        target = next_targets(anchor, mask, uniform, balanced=True) if self.balanced else anchor
        for number in range(self.rounds):
            if monitor is not None:
                monitor.proceed()
            model = self._trees(len(rows), seed, number, oob_score=True)
            with warnings.catch_warnings():
                # With few trees some rows are in every bag; below, they keep their target.
                warnings.simplefilter("ignore")
                model.fit(rows, target)
            out_of_bag = np.asarray(model.oob_prediction_, dtype=float).reshape(target.shape)
            target = next_targets(out_of_bag * anchor, mask, target, balanced=self.balanced)
        missing = ~(out_of_bag.sum(1) > 0)
        out_of_bag[missing] = uniform[missing]
        # As in `TreeEnsemble.probabilities`, for the trees that a row is out of bag of.
        usual = OUT_OF_BAG * self.trees
        out_of_bag = usual * out_of_bag / out_of_bag.sum(1, keepdims=True) + 1 / mask.shape[1]
        return [_tree_ensemble(model.estimators_, x.device)], out_of_bag / (usual + 1)

    def _trees(self, n_rows: int, seed: int, number: int, *, oob_score: bool) -> Any:
        from sklearn.ensemble import ExtraTreesRegressor

        return ExtraTreesRegressor(
            self.trees,
            min_samples_leaf=self.min_rows,
            max_features="sqrt",
            bootstrap=True,
            oob_score=oob_score,
            n_jobs=-1 if self.trees * n_rows > SEVERAL_THREADS else None,
            random_state=counter_rng.seed_for(seed, f"forest {number}") % (1 << 31),
        )

    def _fit_sparse(
        self,
        x: Float[Tensor, "n d"],
        candidates: Bool[Tensor, "n k"],
        start: Float[Tensor, "n k"] | None,
        seed: int,
        monitor: Monitor | None,
    ) -> tuple[list[Classifier], NDArray[np.float64]]:
        """As `fit_from`, with trees for many classes."""
        rows, mask = x.cpu().numpy().astype(np.float32), candidates.cpu().numpy()
        targets = CandidateTargets(mask)
        anchor = targets.uniform
        if start is not None:
            posterior = start.cpu().numpy()[targets.row, targets.label].astype(float)
            anchor = targets.next(posterior, targets.uniform, balanced=False)
        target = targets.next(anchor, targets.uniform, balanced=self.balanced)
        for number in range(self.rounds):
            if monitor is not None:
                monitor.proceed()
            model = self._trees(len(rows), seed, number, oob_score=False)
            matrix = targets.matrix(target)
            model.fit(rows, project(matrix, counter_rng.seed_for(seed, f"forest {number}")))
            leaves = SparseLeaves.fill(model, rows, matrix)
            held_out = targets.values(leaves.out_of_bag)
            target = targets.next(held_out * anchor, target, balanced=self.balanced)
        out_of_bag = leaves.out_of_bag.toarray()
        missing = ~(out_of_bag.sum(1) > 0)
        out_of_bag[missing] = targets.matrix(targets.uniform)[missing].toarray()
        usual = OUT_OF_BAG * self.trees
        out_of_bag *= usual / out_of_bag.sum(1, keepdims=True)
        out_of_bag += 1 / mask.shape[1]
        out_of_bag /= usual + 1
        return [leaves.ensemble(x.device)], out_of_bag


def _tree_ensemble(estimators: list[Any], device: torch.device) -> TreeEnsemble:
    """The nodes of scikit-learn's trees as tensors."""
    trees = [estimator.tree_ for estimator in estimators]
    values = np.concatenate([tree.value[tree.children_left < 0][..., 0].astype(np.float16) for tree in trees])
    tensors = flatten_nodes(estimators) | {"values": torch.from_numpy(values)}
    return TreeEnsemble(**{name: tensor.to(device) for name, tensor in tensors.items()})

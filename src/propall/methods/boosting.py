"""Boosting: gradient-boosted trees on soft labels that follow the predictions of held-out rows."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from propall import counter_rng
from propall.methods._classical import ClassicalAlgorithm, as_rows
from propall.methods._trees import Trees, next_targets
from propall.numerics import uniform_weights
from propall.training.contract import Classifier, Monitor

#: Candidates with a smaller share of their row's largest weight get no copy of the row.
SMALLEST_COPY = 0.02


@dataclass(frozen=True, eq=False)
class BoostedTrees(Trees):
    """A sum of regression trees per class, in rounds of one tree per class.

    Attributes:
        value: value of a leaf; 0 for other nodes.
        intercept: score of every class before the first tree.
    """

    value: Float[Tensor, "m"]
    intercept: Float[Tensor, "k"]

    name = "boosted trees"

    def scores(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
        """Sums of the leaves that a row reaches."""
        return self.follow(as_rows(x.to(self.roots.device)), len(self.intercept))

    def combine(self, rows: Float[Tensor, "n d"], leaves: Int[Tensor, "n t"]) -> Float[Tensor, "n k"]:
        """Sums of the values of the leaves."""
        rounds = self.value[leaves].view(len(rows), -1, len(self.intercept))
        return self.intercept + rounds.sum(1)


@dataclass(frozen=True)
class Boosting(ClassicalAlgorithm):
    r"""Gradient-boosted trees by expectation maximization on out-of-fold predictions.

    Every row is repeated for each of its candidates, weighted by a label distribution q. Then the prediction
    p by the trees that were not fitted on the row, restricted to its candidates, is the next target:

    .. math:: q_{ij} \propto [j \in S_i] \; p_{ij} \, a_{ij}

    q starts from the uniform distribution on the candidates, or from the posterior of another model, which is
    then also the anchor a (else 1).

    Attributes:
        iterations: number of trees per class.
        rounds: number of times that the trees are fitted.
        folds: number of parts that the rows are divided into.
        leaves: maximum number of leaves of a tree.
        learning_rate: factor of every tree.
        balanced: multiply q by a factor per class, such that every class keeps the share of the rows that it
            has in the uniform distribution on the candidates.

    References:
        [friedman2001greedy], for the trees.
    """

    iterations: int = 40
    rounds: int = 2
    folds: int = 5
    leaves: int = 15
    learning_rate: float = 0.1
    balanced: bool = False

    name, title, reference = "boosting", "Boosting", "friedman2001greedy"
    assumes = "the set contains the true label; sums of small trees separate the classes"
    use_when = (
        "For tables with many rows, where gradient boosting is usually the best model. "
        "`propall fit` starts it from other models."
    )
    memory = "k label weights"
    cost = "trees on all rows per round and fold"
    classifier = BoostedTrees

    def fit_rows(self, x: Float[Tensor, "n d"], candidates: Bool[Tensor, "n k"], seed: int) -> Classifier:
        """Start from equal weights on the candidates; the last trees are fitted to all rows."""
        uniform = uniform_weights(candidates.cpu(), torch.float64).numpy()
        rows, mask, target = x.cpu().double().numpy(), candidates.cpu().numpy(), uniform
        for number in range(self.rounds - 1):
            _, held_out = self._cross_fit(rows, target, counter_rng.seed_for(seed, f"round {number}"))
            target = next_targets(held_out, mask, target, balanced=self.balanced)
        return self._fit(rows, target, seed).to(x.device)

    def fit_from(
        self,
        x: Float[Tensor, "n d"],
        candidates: Bool[Tensor, "n k"],
        start: Float[Tensor, "n k"] | None,
        seed: int,
        keys: Int[Tensor, "n"] | None = None,
        *,
        monitor: Monitor | None = None,
    ) -> tuple[list[Classifier], NDArray[np.float64]]:
        """Fit the trees, starting from a posterior of the training rows if there is one.

        Args:
            x: training rows.
            candidates: their candidate sets.
            start: posterior by a model that was not fitted on each row.
            seed: random seed.
            keys: equal for rows that are held out together, such as copies; by default all differ.
            monitor: asked before every fold.

        Returns:
            The trees of every fold, and (n, k) probabilities of the training rows by those of their fold.
        """
        uniform = uniform_weights(candidates.cpu(), torch.float64).numpy()
        rows, mask = x.cpu().double().numpy(), candidates.cpu().numpy()
        anchor = np.ones_like(uniform) if start is None else start.cpu().double().numpy()
        target = next_targets(anchor, mask, uniform, balanced=self.balanced)
        for number in range(self.rounds):
            round_seed = counter_rng.seed_for(seed, f"round {number}")
            trees, held_out = self._cross_fit(rows, target, round_seed, keys, monitor)
            target = next_targets(held_out * anchor, mask, target, balanced=self.balanced)
        return [each.to(x.device) for each in trees], held_out

    def _cross_fit(
        self,
        rows: NDArray[np.float64],
        target: NDArray[np.float64],
        seed: int,
        keys: Int[Tensor, "n"] | None = None,
        monitor: Monitor | None = None,
    ) -> tuple[list["_Fitted"], NDArray[np.float64]]:
        """Fit to all rows but those of each fold, and predict these."""
        n = len(rows)
        keys = torch.arange(n) if keys is None else keys
        order = counter_rng.order(counter_rng.seed_for(seed, "folds"), keys).numpy()
        folds = np.array_split(order, min(self.folds, n))
        probabilities, fitted = np.empty_like(target), []
        for number, fold in enumerate(folds):
            if monitor is not None:
                monitor.proceed()
            others = np.setdiff1d(order, fold) if len(folds) > 1 else order
            trees = self._fit(rows[others], target[others], counter_rng.seed_for(seed, f"fold {number}"))
            scores = trees.to(torch.device("cpu")).scores(torch.from_numpy(rows[fold]))
            probabilities[fold] = scores.softmax(-1).numpy()
            fitted.append(trees)
        return fitted, probabilities

    def _fit(self, rows: NDArray[np.float64], target: NDArray[np.float64], seed: int) -> "_Fitted":
        from sklearn.ensemble import HistGradientBoostingClassifier

        kept = np.where(target >= SMALLEST_COPY * target.max(1, keepdims=True), target, 0.0)
        kept /= kept.sum(1, keepdims=True)
        copies, classes = np.nonzero(kept)
        model = HistGradientBoostingClassifier(
            max_iter=self.iterations,
            max_leaf_nodes=self.leaves,
            min_samples_leaf=max(1, min(20, len(rows) // 20)),
            learning_rate=self.learning_rate,
            early_stopping=False,
            random_state=seed % (1 << 31),
        )
        present = np.unique(classes)
        if len(present) > 1:
            model.fit(rows[copies], classes, sample_weight=kept[copies, classes])
        return _Fitted(model, present, target.shape[1], kept.sum(0))


@dataclass(frozen=True)
class _Fitted:
    """scikit-learn's trees, the classes they were fitted on, and the weight of every class."""

    model: object
    present: NDArray[np.int64]
    n_classes: int
    weight: NDArray[np.float64]

    def to(self, device: torch.device) -> BoostedTrees:
        """The nodes as tensors."""
        names = ("left", "right", "feature", "threshold", "value")
        parts: dict[str, list[NDArray[np.generic]]] = {name: [] for name in names}
        # A class without rows is less probable than one with half a row.
        intercept = np.log((self.weight + 0.5) / (self.weight.sum() + 0.5 * self.n_classes))
        roots: list[int] = []
        nodes = 0
        fitted = len(self.present) > 1
        if fitted:
            baseline = self.model._baseline_prediction.ravel()  # type: ignore[attr-defined]  # noqa: SLF001
            intercept[self.present] = baseline if len(self.present) > 2 else [0.0, baseline[0]]
            empty = np.setdiff1d(np.arange(self.n_classes), self.present)
            intercept[empty] = intercept[self.present].min() - np.log(2 * max(2.0, self.weight.sum()))
        for predictors in self.model._predictors if fitted else ():  # type: ignore[attr-defined]  # noqa: SLF001
            by_class = dict(zip(self.present[-len(predictors) :], predictors, strict=True))
            for j in range(self.n_classes):
                tree = by_class[j].nodes if j in by_class else np.zeros(1, dtype=predictors[0].nodes.dtype)
                is_leaf = (tree["is_leaf"] > 0) | (j not in by_class)
                itself = np.arange(len(tree))
                roots.append(nodes)
                parts["left"].append(nodes + np.where(is_leaf, itself, tree["left"]))
                parts["right"].append(nodes + np.where(is_leaf, itself, tree["right"]))
                parts["feature"].append(np.where(is_leaf, 0, tree["feature_idx"]))
                parts["threshold"].append(np.where(is_leaf, 0.0, tree["num_threshold"]))
                parts["value"].append(np.where(is_leaf, tree["value"], 0.0))
                nodes += len(tree)
        arrays = {name: np.concatenate(part) if part else np.zeros(0) for name, part in parts.items()}
        integers = dict.fromkeys(("left", "right", "feature"), np.int32)
        tensors = {n: torch.from_numpy(a.astype(integers.get(n, np.float64))) for n, a in arrays.items()}
        return BoostedTrees(
            roots=torch.tensor(roots, dtype=torch.int32, device=device),
            intercept=torch.from_numpy(intercept).to(device),
            **{name: tensor.to(device) for name, tensor in tensors.items()},
        )

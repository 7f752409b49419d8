"""The ensemble behind an estimator: what its members are trained on, and how their outputs are combined."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from torch import Tensor, nn

from propall import counter_rng
from propall.data.dataset import PartialDataset
from propall.estimators.folds import keys_of_copies
from propall.estimators.images import resolve_views
from propall.labels.candidates import CandidateLabels
from propall.training.compiled import best_device
from propall.training.contract import Algorithm, Classifier, NetFactory, Objective, Run, TrainingSetup
from propall.training.networks import build
from propall.training.peers import Peers
from propall.training.recipe import Recipe
from propall.training.views import Views

#: A source of randomness: a seed, a generator, or None for numpy's global state.
RandomState = int | np.random.RandomState | np.random.Generator | None
#: Maximum number of values processed at once in a pass over all rows.
CHUNK_VALUES = 1 << 18


def seed_from(random_state: RandomState) -> int:
    """Draw a seed from a random state; a generator advances."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(np.iinfo(np.int32).max))
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


#: Where the label weights of members come from; see `PartialLabelClassifier`.
Targets = Literal["own", "peer", "balanced peer"]
#: How features are scaled: True is "z-score", False leaves them unchanged.
Scaling = bool | Literal["z-score", "min-max", "square root"]


class Standardization(NamedTuple):
    """Scaling of features, (x - mean) / scale by columns; None leaves them unchanged.

    With a floor, x is first replaced by the square root of x - floor (0 below the floor).
    """

    mean: NDArray[Any] | None = None
    scale: NDArray[Any] | None = None
    floor: NDArray[Any] | None = None

    @classmethod
    def fit(cls, features: NDArray[Any], weight: NDArray[Any] | None, scaling: Scaling = "z-score") -> Self:
        """Compute the weighted statistics of (n, d) features; others are left unchanged.

        Args:
            features: the training rows.
            weight: one weight per row; for minima and maxima it matters only whether it is 0.
            scaling: "z-score" divides by the standard deviation; "min-max" maps the training rows to [0, 1];
                "square root" takes the root of the distance to the column's minimum before the z-score. For
                histograms, whose minimum is 0, distances then follow Hellinger's.
        """
        if scaling not in (True, False, "z-score", "min-max", "square root"):
            raise ValueError(
                f"standardize: got {scaling!r}; expected True, False, 'z-score', 'min-max' or 'square root'."
            )
        if features.ndim > 2 or scaling is False:
            return cls()
        if weight is not None and not weight.all():
            features, weight = features[weight > 0], weight[weight > 0]
        if scaling == "min-max":
            low = features.min(0)
            width = features.max(0) - low
            return cls(low, np.where(width > 0, width, 1).astype(features.dtype))
        if scaling == "square root":
            floor = features.min(0)
            return cls.fit(_root(features, floor), weight)._replace(floor=floor)
        mean = _column_means(features, weight, lambda rows: rows)
        scale = np.sqrt(_column_means(features, weight, lambda rows: (rows - mean) ** 2))
        mean, scale = mean.astype(features.dtype), scale.astype(features.dtype)
        # Rounding gives a constant column a tiny standard deviation; dividing by it would blow it up.
        constant = scale <= 10 * np.finfo(features.dtype).eps * np.abs(mean)
        return cls(mean, np.where(constant | (scale == 0), 1.0, scale))

    @classmethod
    def of_channels(cls, images: NDArray[Any], weight: NDArray[Any] | None) -> Self:
        """Compute the weighted statistics of each channel of (n, c, h, w) images."""
        mean = np.average(images.mean((2, 3), dtype=np.float64), axis=0, weights=weight)[:, None, None]
        squares = ((images - mean) ** 2).mean((2, 3), dtype=np.float64)
        scale = np.sqrt(np.average(squares, axis=0, weights=weight))[:, None, None]
        return cls(mean.astype(images.dtype), np.where(scale > 0, scale, 1.0).astype(images.dtype))

    def apply(self, features: NDArray[Any]) -> Tensor:
        """Return the scaled features as a tensor of the same precision."""
        if self.floor is not None:
            features = _root(features, self.floor)
        if self.mean is not None:
            # A single copy, however large: the difference, which is then divided in place.
            dtype = features.dtype
            features = features - self.mean
            features /= self.scale
            features = features.astype(dtype, copy=False)
        return torch.from_numpy(np.require(features, requirements=["C", "W"]))


@dataclass(frozen=True)
class Ensemble:
    """Everything an estimator's parameters say about its members; see `PartialLabelClassifier`."""

    method: Objective | Algorithm
    net: NetFactory | nn.Module
    recipe: Recipe
    standardize: Scaling
    n_members: int
    random_state: RandomState
    device_name: str
    views: bool | str | Views | None = None
    bagging: float | None = None
    targets: Targets = "own"

    def adapted_to(self, in_shape: tuple[int, ...]) -> Self:
        """The same ensemble with views in its recipe that suit rows of this shape, if it trains on views."""
        if not self.views:
            return self
        if not (isinstance(self.method, Objective) or self.method.uses_views):
            raise ValueError(
                f"views: {self.method.title} has its own training loop, without views. Use another method, "
                "such as 'propall', or views=None."
            )
        return replace(self, recipe=replace(self.recipe, views=resolve_views(self.views, in_shape)))

    @property
    def device(self) -> torch.device:
        """Device that the members are on."""
        return best_device(self.device_name)

    def algorithm(self, *, weighted: bool = False) -> Algorithm:
        """Return the algorithm that trains the members, with or without row weights."""
        if weighted and isinstance(self.method, Algorithm):
            raise ValueError(
                f"sample_weight: {self.method.title} does not support weights. Leave them out, or use "
                "another method."
            )
        return self.method.with_training(TrainingSetup(self.net, self.recipe))

    def standardization(self, features: NDArray[Any], weight: NDArray[Any] | None) -> Standardization:
        """Fit the scaling of training features."""
        if self.standardize and self.views:
            return Standardization.of_channels(features, weight)
        return Standardization.fit(features, weight, self.standardize)

    def whole_run(
        self,
        features: NDArray[Any],
        labels: CandidateLabels,
        weight: NDArray[Any] | None,
        standardization: Standardization,
    ) -> Run:
        """Return a run on all rows, without a seed; features are not yet standardized."""
        device = self.device
        train = PartialDataset(standardization.apply(features).to(device), labels.mask.to(device))
        keys = content_keys(features, labels.mask)
        return Run(train, 0, None if weight is None else torch.as_tensor(weight, device=device), keys)

    def members(self, whole: Run) -> list[Run]:
        """Return one training run per member, each on its bag of the rows of `whole`."""
        members: Any = self.n_members
        if not isinstance(members, Integral) or members < 1:
            raise ValueError(f"n_estimators: got {members!r}; expected an integer of at least 1.")
        if self.targets not in get_args(Targets):
            raise ValueError(f"targets: got {self.targets!r}; expected 'own', 'peer' or 'balanced peer'.")
        if self.targets != "own" and members == 1:
            raise ValueError("n_estimators: got 1; expected at least 2 members that teach each other.")
        first = seed_from(self.random_state)
        seeds = [counter_rng.seed_for(first, f"member {i}") for i in range(members)]
        balanced = self.targets == "balanced peer"
        peers = None if self.targets == "own" else Peers(whole.train, balanced=balanced)
        whole = replace(whole, peers=peers)
        if self.bagging is None:
            return [replace(whole, seed=seed) for seed in seeds]
        assert whole.keys is not None
        numbers = self.bag_numbers(len(whole.train))
        bags = draw_bags(whole.keys, whole.train.x.cpu().numpy(), numbers[-1] + 1, self.bagging, first)
        if peers is not None and len(bags) < len(seeds):
            wholes = [replace(whole, peers=replace(peers)) for _ in bags]
        else:
            wholes = [whole] * len(bags)
        return [_reduced(wholes[i], seed, bags[i]) for i, seed in zip(numbers, seeds, strict=True)]

    def bag_numbers(self, n_rows: int) -> list[int]:
        """Which bag each member is trained on.

        Every member has its own, unless they teach each other and there are at least two for every bag that
        leaves out other rows. Then members of the same bag teach each other, such that what they are taught
        does not depend on the rows that they leave out.
        """
        if self.bagging is None:
            return [0] * self.n_members
        per_block = bags_per_block(n_rows, self.bagging)
        if self.targets == "own" or self.n_members < 2 * per_block:
            return list(range(self.n_members))
        return [i * per_block // self.n_members for i in range(self.n_members)]


def bags_per_block(n_rows: int, share: float) -> int:
    """Number of bags that together leave out every row once."""
    if not 0 < share < 1:
        raise ValueError(f"bagging: got {share!r}; expected a share of the rows between 0 and 1, or None.")
    return min(n_rows, math.ceil(round(1 / (1 - share), 9)))


def draw_bags(keys: Tensor, x: NDArray[Any], members: int, share: float, seed: int) -> list[Tensor]:
    """Draw the rows of each member, in ascending order.

    Members come in blocks: the rows that the members of a block leave out cover all rows, so every row is
    out of bag about equally often. All bags have the same size. Copies of a row are left out together, as in
    `CandidateStratifiedKFold`, unless they are at the end of what a bag leaves out.

    Args:
        keys: (n,) integers that identify the rows.
        x: their features, for detecting copies of a row.
        members: number of bags.
        share: share of the rows in each bag.
        seed: random seed.
    """
    n = len(keys)
    keys = torch.from_numpy(keys_of_copies(keys.cpu().numpy(), x))
    per_block = bags_per_block(n, share)
    left_out = min(max(round((1 - share) * n), math.ceil(n / per_block)), n - 1)
    bags = []
    for i in range(members):
        block, place = divmod(i, per_block)
        order = counter_rng.order(counter_rng.seed_for(seed, f"bag {block}"), keys)
        start = place * n // per_block
        bags.append(order.roll(-start)[left_out:].sort().values)
    return bags


def out_of_bag_probabilities(
    classifiers: Sequence[Classifier], runs: Sequence[Run], whole: Run
) -> NDArray[Any]:
    """Mean probabilities of all rows by the members not trained on them; NaN for rows in every bag."""
    x = whole.train.x
    total = torch.zeros(len(x), whole.train.n_classes, dtype=x.dtype, device=x.device)
    count = torch.zeros(len(x), 1, dtype=x.dtype, device=x.device)
    for classifier, run in zip(classifiers, runs, strict=True):
        left_out = torch.ones(len(x), dtype=torch.bool, device=x.device)
        left_out[run.rows] = False
        total[left_out] += member_scores(classifier, x[left_out]).softmax(-1).to(total)
        count[left_out] += 1
    return np.asarray((total / count).cpu().numpy())


def _reduced(whole: Run, seed: int, rows: Tensor) -> Run:
    """A run on some rows of another."""
    assert whole.keys is not None
    rows = rows.to(whole.train.x.device)
    return replace(
        whole,
        train=PartialDataset(whole.train.x[rows], whole.train.candidates[rows]),
        seed=seed,
        weight=None if whole.weight is None else whole.weight[rows],
        keys=whole.keys[rows.to(whole.keys.device)],
        rows=rows,
    )


def _root(features: NDArray[Any], floor: NDArray[Any]) -> NDArray[Any]:
    root: NDArray[Any] = np.sqrt(np.maximum(features - floor, 0)).astype(features.dtype)
    return root


def check_outputs(net: nn.Module, run: Run) -> None:
    """Raise an error if a module does not return one score per class."""
    try:
        with torch.no_grad():
            outputs = build(net, run).eval()(run.train.x[:1])
    except RuntimeError as error:
        raise ValueError(
            f"net: it cannot take rows of shape {tuple(run.train.in_shape)} ({error}). Reshape X, or change "
            "the network."
        ) from error
    expected = (1, run.train.n_classes)
    if outputs.shape != expected:
        raise ValueError(
            f"net: it returns shape {tuple(outputs.shape)} for one row; expected {expected}, one score "
            f"for each of the {run.train.n_classes} classes."
        )


def member_scores(classifier: Classifier, x: Tensor) -> Tensor:
    """Scores whose softmax gives the classifier's probabilities."""
    if type(classifier).probabilities is Classifier.probabilities:
        return classifier.scores(x)
    return classifier.probabilities(x).clamp_min(torch.finfo(x.dtype).tiny).log()


def log_mixture(scores: Sequence[Tensor], temperature: float) -> Tensor:
    """Log of the mean of the members' softmax probabilities, scaled by a temperature."""
    mixture = torch.stack([s.log_softmax(-1) for s in scores]).logsumexp(0) - math.log(len(scores))
    return (mixture / temperature).log_softmax(-1)


def content_keys(features: NDArray[Any], candidates: Tensor) -> Tensor:
    """Hash each row's features and candidates; equal rows have equal keys, regardless of position."""
    rows = np.ascontiguousarray(features.reshape(len(features), -1))
    bits = rows.view(np.uint64 if rows.dtype == np.float64 else np.uint32)
    key = np.zeros(len(rows), dtype=np.uint64)
    for i, table in enumerate((bits, candidates.numpy())):
        a, b = counter_rng.words(counter_rng.seed_for(i, "content"), torch.arange(table.shape[1]))
        odd = ((a << 31) ^ b | 1).numpy().astype(np.uint64)
        key += np.einsum("ij,j->i", table, odd)
    return torch.from_numpy((key >> np.uint64(32)).astype(np.int64))


def _column_means(
    features: NDArray[Any], weight: NDArray[Any] | None, function: Callable[[NDArray[Any]], NDArray[Any]]
) -> NDArray[np.float64]:
    """Weighted column means of a function of the entries, accumulated in float64."""
    total = np.zeros(features.shape[1])
    step = max(1, CHUNK_VALUES // max(1, features.shape[1]))
    for start in range(0, len(features), step):
        chunk = slice(start, start + step)
        values = function(features[chunk].astype(np.float64))
        total += values.sum(0) if weight is None else weight[chunk].astype(np.float64) @ values
    return total / (len(features) if weight is None else weight.sum(dtype=np.float64))

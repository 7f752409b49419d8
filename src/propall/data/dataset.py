"""Training data with candidate sets, problems with held-out truth, and the data sets they come from."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from propall import counter_rng
from propall.data.corruption import Corruption, Scores
from propall.data.files import Files
from propall.wording import plural

#: The fold (of 5) that has the sizes of the single 80/20 split in the literature.
SINGLE_80 = 2


@dataclass(frozen=True)
class PartialDataset:
    """Features and candidate sets, without the true labels.

    Attributes:
        x: features, one row per instance: (n, d) or images (n, c, h, w).
        candidates: (n, k), True on the candidate labels.

    Examples:
        >>> x = torch.zeros(2, 5)
        >>> data = PartialDataset(x, torch.tensor([[True, False, True], [False, True, False]]))
        >>> data.n_classes, data.in_shape
        (3, (5,))
    """

    x: Float[Tensor, "n ..."]
    candidates: Bool[Tensor, "n k"]

    #: Whether the features are in a file, from which `read` takes them; `x` then has their shape only.
    in_files: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.x.shape[0] != self.candidates.shape[0]:
            raise ValueError(
                f"candidates: {self.candidates.shape[0]} rows, but x has {self.x.shape[0]}; "
                "expected one candidate set per instance."
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
        """Move the data to a device."""
        return type(self)(self.x.to(device), self.candidates.to(device))

    def read(self, rows: Int[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Features of some rows."""
        return self.x[rows]


@dataclass(frozen=True)
class Problem:
    """A training set, a test set, and the true labels of both for evaluation.

    Attributes:
        train: the data a method sees.
        truth: (n,) true class of each training row, only for transductive accuracy.
        test_x: test features.
        test_truth: (m,) true class of each test row.
        classes: class names in order.

    Examples:
        >>> from propall.data import CORRUPTIONS, load
        >>> source = load("digits")
        >>> problem = source.fold(0, 5, corruption=CORRUPTIONS["exactly"](3))
        >>> problem.train.candidates.sum(1).unique().tolist()
        [3]
    """

    train: PartialDataset
    truth: Int[Tensor, "n"]
    test_x: Float[Tensor, "m ..."]
    test_truth: Int[Tensor, "m"]
    classes: tuple[str, ...]

    def to(self, device: torch.device | str) -> Self:
        """Move the problem to a device."""
        return type(self)(
            self.train.to(device),
            self.truth.to(device),
            self.test_x.to(device),
            self.test_truth.to(device),
            self.classes,
        )


@dataclass(frozen=True)
class Scaling:
    """Normalization of pixels, per channel: (pixel / top - mean) / std; by default only to [0, 1].

    Attributes:
        mean: one value per channel, or one for all.
        std: one value per channel, or one for all.
        top: largest possible pixel value.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    top: float = 255.0

    def __call__(self, pixels: Shaped[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Convert (n, d) or (n, c, h, w) pixels to features."""
        per_channel = (1, -1, *(1 for _ in pixels.shape[2:]))
        mean, std = (torch.tensor(constants).view(per_channel) for constants in (self.mean, self.std))
        return pixels.to(torch.float32, copy=True).div_(self.top).sub_(mean).div_(std)


def shuffled_folds(n: int, n_folds: int = 5, seed: int = 0) -> list[Int[Tensor, "m"]]:
    """Return the test rows (ascending) of each fold of a shuffled k-fold split.

    Notes:
        Equal to scikit-learn's `KFold(n_folds, shuffle=True, random_state=seed)` and, with seed 0, to the
        index lists distributed with the real-world data sets, hence NumPy's legacy generator.
    """
    if not 2 <= n_folds <= n:
        raise ValueError(f"n_folds: got {n_folds} for {n} rows; expected 2 to {n}.")
    shuffled = np.arange(n)
    np.random.RandomState(seed).shuffle(shuffled)
    return [torch.from_numpy(np.sort(part)) for part in np.array_split(shuffled, n_folds)]


def standardized(
    x: Shaped[Tensor, "n *d"], *others: Shaped[Tensor, "_ *d"]
) -> tuple[Float[Tensor, "_ *d"], ...]:
    """Standardize each column of `x`, and of further rows by the mean and standard deviation of `x`.

    Uses the population standard deviation; constant columns are divided by 1. Computed in float64, returned
    in float32.
    """
    fitted = x.double()
    mean, std = fitted.mean(0), fitted.std(0, correction=0)
    # Rounding of the mean can make the deviation of a constant column nonzero.
    std = std.where(fitted.amin(0) != fitted.amax(0), 1.0)
    return tuple(((rows.double() - mean) / std).float() for rows in (x, *others))


@dataclass(frozen=True)
class Source:
    """Contents of a data set before any split or corruption.

    Attributes:
        name: name of the data set.
        raw: training rows as stored: (n, d) features or pixels, or (n, c, h, w) images.
        truth: (n,) true classes.
        classes: class names in order.
        candidates: (n, k) candidate sets from annotators, if there are any; they may miss the true class.
        test_raw: rows of the official test set, if there is one.
        test_truth: their true classes.
        scaling: normalization of pixels; None if the rows are features.
        annotations: further annotations of the training rows, such as the labels of each annotator.

    Examples:
        >>> from propall.data import load
        >>> source = load("digits")
        >>> source.first_per_class(5).truth.bincount().tolist()
        [5, 5, 5, 5, 5, 5, 5, 5, 5, 5]
    """

    name: str
    raw: Shaped[Tensor, "n ..."]
    truth: Int[Tensor, "n"]
    classes: tuple[str, ...]
    candidates: Bool[Tensor, "n k"] | None = None
    test_raw: Shaped[Tensor, "m ..."] | None = None
    test_truth: Int[Tensor, "m"] | None = None
    scaling: Scaling | None = None
    annotations: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        k = len(self.classes)
        parts = [("truth", self.raw, self.truth)]
        if (self.test_raw is None) != (self.test_truth is None):
            raise ValueError(f"test_truth: {self.name} needs both test_raw and test_truth, or neither.")
        if self.test_raw is not None and self.test_truth is not None:
            parts.append(("test_truth", self.test_raw, self.test_truth))
        for argument, rows, truth in parts:
            if len(rows) != len(truth):
                raise ValueError(f"{argument}: {len(truth)} labels for the {len(rows)} rows of {self.name}.")
            if len(truth) and (int(truth.min()) < 0 or int(truth.max()) >= k):
                raise ValueError(f"{argument}: labels of {self.name} must be in 0..{k - 1}.")
        if self.candidates is not None:
            if self.candidates.shape != (len(self.raw), k):
                raise ValueError(
                    f"candidates: got shape {tuple(self.candidates.shape)}; expected {(len(self.raw), k)}."
                )
            empty = (~self.candidates.any(-1)).nonzero().squeeze(-1)
            if len(empty):
                raise ValueError(
                    f"candidates: {plural(len(empty), 'empty row')} in {self.name} (first: {int(empty[0])}); "
                    "every row needs at least one candidate."
                )

    def __len__(self) -> int:
        return len(self.raw)

    @property
    def n_classes(self) -> int:
        """Number of classes k, including classes without instances."""
        return len(self.classes)

    @property
    def x(self) -> Float[Tensor, "n ..."]:
        """Features of the training rows; computed at every access, since images are stored as bytes."""
        return self._features(self.raw)

    @property
    def test_x(self) -> Float[Tensor, "m ..."] | None:
        """Features of the official test rows, if there are any."""
        return None if self.test_raw is None else self._features(self.test_raw)

    def _features(self, raw: Tensor) -> Tensor:
        return raw.float() if self.scaling is None else self.scaling(raw)

    def candidate_sets(
        self, corruption: Corruption | None = None, seed: int = 0, *, scores: Scores | None = None
    ) -> Bool[Tensor, "n k"]:
        """Return the candidate sets of the data set, or draw them from the true labels.

        Args:
            corruption: corruption to draw from; None for the sets of the data set.
            seed: seed of the run.
            scores: logits of all training rows, for corruptions that need them.
        """
        if corruption is not None:
            return corruption(self.truth, self.n_classes, seed, scores=scores)
        if self.candidates is None:
            raise ValueError(
                f"corruption: {self.name} comes without candidate sets; "
                "pass a corruption such as PRODENBinomialMin2(q=0.5)."
            )
        return self.candidates

    def problem(
        self, corruption: Corruption | None = None, seed: int = 0, *, scores: Scores | None = None
    ) -> Problem:
        """Build the problem of the official split; for the arguments see `candidate_sets`."""
        test_x = self.test_x
        if test_x is None or self.test_truth is None:
            raise ValueError(f"{self.name}: the data set has no official test set; use `fold`.")
        train = PartialDataset(self.x, self.candidate_sets(corruption, seed, scores=scores))
        return Problem(train, self.truth, test_x, self.test_truth, self.classes)

    def fold(
        self,
        index: int,
        n_folds: int = 5,
        *,
        standardize: Literal["own", "train", "all"] | None = "own",
        corruption: Corruption | None = None,
        seed: int = 0,
        scores: Scores | None = None,
    ) -> Problem:
        """Build the problem of one fold of the training rows (see `shuffled_folds`).

        Args:
            index: the fold that is the test set, from 0.
            n_folds: number of folds.
            standardize: standardize features by the fold's training rows ("train") or by all rows ("all", as
                some public code does, which leaks the test rows), or not at all (None). "own" means "train"
                for features and None for images, which have published constants.
            corruption, seed, scores: see `candidate_sets`; the folds are the same for every seed.
        """
        if not 0 <= index < n_folds:
            raise ValueError(f"index: got {index}; expected a fold from 0 to {n_folds - 1}.")
        if standardize == "own":
            standardize = "train" if self.scaling is None else None
        test = shuffled_folds(len(self), n_folds)[index]
        in_train = torch.ones(len(self), dtype=torch.bool).index_fill(0, test, False)
        train = in_train.nonzero().squeeze(-1)
        raw = self.raw if self.scaling is None else self.scaling(self.raw)
        if standardize == "train":
            train_x, test_x = standardized(raw[train], raw[test])
        elif standardize == "all":
            (x,) = standardized(raw)
            train_x, test_x = x[train], x[test]
        else:
            train_x, test_x = raw[train].float(), raw[test].float()
        train_set = PartialDataset(train_x, self.candidate_sets(corruption, seed, scores=scores)[train])
        return Problem(train_set, self.truth[train], test_x, self.truth[test], self.classes)

    def subset(self, index: Int[Tensor, "m"]) -> Self:
        """Select training rows; the test set is kept."""
        return replace(
            self,
            raw=self.raw[index],
            truth=self.truth[index],
            candidates=None if self.candidates is None else self.candidates[index],
            annotations={name: values[index] for name, values in self.annotations.items()},
        )

    def keep_classes(self, labels: Sequence[int]) -> Self:
        """Keep only some classes, relabeled 0, 1, ... in the given order, in training and test set."""
        if self.candidates is not None:
            raise ValueError(
                f"{self.name}: classes cannot be dropped, since its candidate sets may contain them."
            )
        if len(set(labels)) != len(labels) or not set(labels) <= set(range(self.n_classes)):
            raise ValueError(
                f"labels: got {list(labels)}; expected distinct labels from 0 to {self.n_classes - 1}."
            )
        new_labels = torch.full((self.n_classes,), -1)
        new_labels[list(labels)] = torch.arange(len(labels))
        kept = self.subset((new_labels[self.truth] >= 0).nonzero().squeeze(-1))
        test_raw, test_truth = self.test_raw, self.test_truth
        if test_raw is not None and test_truth is not None:
            test_truth = new_labels[test_truth]
            test_raw, test_truth = test_raw[test_truth >= 0], test_truth[test_truth >= 0]
        classes, truth = tuple(self.classes[label] for label in labels), new_labels[kept.truth]
        return replace(kept, truth=truth, classes=classes, test_raw=test_raw, test_truth=test_truth)

    def first_per_class(self, n: int, seed: int | None = None) -> Self:
        """Select n training rows of every class, the first or (with a seed) random ones, in their order."""
        sizes = torch.bincount(self.truth, minlength=self.n_classes)
        if int(sizes.min()) < n:
            smallest = self.classes[int(sizes.argmin())]
            raise ValueError(
                f"n: got {n}, but class {smallest} of {self.name} has only {int(sizes.min())} rows."
            )
        rows = torch.arange(len(self))
        if seed is not None:
            rows = counter_rng.order(counter_rng.seed_for(seed, "subset"), rows)
        labels = self.truth[rows]
        chosen = [rows[labels == label][:n] for label in range(self.n_classes)]
        return self.subset(torch.cat(chosen).sort().values)

    def hold_out(self, n: int, seed: int = 0) -> Self:
        """Replace the test set by n random training rows, for model selection."""
        if not 0 < n < len(self):
            raise ValueError(f"n: got {n} for {len(self)} rows; expected 1 to {len(self) - 1}.")
        order = counter_rng.order(counter_rng.seed_for(seed, "split"), torch.arange(len(self)))
        held_out, kept = order[:n].sort().values, order[n:].sort().values
        return replace(self.subset(kept), test_raw=self.raw[held_out], test_truth=self.truth[held_out])

    def scaled(self, scaling: Scaling) -> Self:
        """Replace the normalization of the pixels."""
        if self.scaling is None:
            raise ValueError(f"scaling: {self.name} has features, not pixels; see `standardize` in `fold`.")
        return replace(self, scaling=scaling)


@dataclass(frozen=True)
class Loader(ABC):
    """A data set: its description, the files it needs, and how to read them.

    Attributes:
        name: name in the registry.
        title: name in tables.
        reference: BibTeX key of the publication.
        n: number of training rows, or of all rows if there is no official test set.
        n_test: number of rows of the official test set, or 0.
        shape: shape of one instance.
        n_classes: number of classes.
        files: files to read; empty if the data is generated or comes with a dependency.
    """

    #: "images", "real-world", "human annotations" or "built in".
    kind: ClassVar[str]

    name: str
    title: str
    reference: str
    n: int
    n_test: int
    shape: tuple[int, ...]
    n_classes: int
    files: tuple[Files, ...] = ()

    @abstractmethod
    def load(self, root: Path) -> Source:
        """Read the data set from its files under the root folder."""

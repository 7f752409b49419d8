"""What a method may learn from, what is kept from it, and where both come from."""

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
from propall.data.corruption import Corruption
from propall.data.files import Files

#: The fold whose sizes are those of the single 80/20 split in the literature.
SINGLE_80 = 2


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


@dataclass(frozen=True)
class Scaling:
    """How pixels become features: (pixel / top - mean) / std, channel by channel.

    Attributes:
        mean: one number per channel, or one for all.
        std: the same.
        top: the largest value a pixel can have.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    top: float = 255.0

    def __call__(self, pixels: Shaped[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Features of (n, d) or (n, c, h, w) pixels."""
        per_channel = (1, -1, *(1 for _ in pixels.shape[2:]))
        mean, std = (torch.tensor(constants).view(per_channel) for constants in (self.mean, self.std))
        return pixels.to(torch.float32, copy=True).div_(self.top).sub_(mean).div_(std)


#: Pixels from 0 to 1 and nothing else, as several public codes feed them.
UNIT_RANGE = Scaling()


def shuffled_folds(n: int, n_folds: int = 5, seed: int = 0) -> list[Int[Tensor, "m"]]:
    """Test rows (ascending) of each fold of a shuffled k-fold split.

    Notes:
        Equal to scikit-learn's `KFold(n_folds, shuffle=True, random_state=seed)`, and with seed 0 to the
        index lists that circulate with the real-world data sets. Hence NumPy's legacy generator, here alone.
    """
    if not 2 <= n_folds <= n:
        raise ValueError(f"n_folds: {n_folds} folds of {n} rows; give 2 to {n}.")
    shuffled = np.arange(n)
    np.random.RandomState(seed).shuffle(shuffled)
    return [torch.from_numpy(np.sort(part)) for part in np.array_split(shuffled, n_folds)]


def standardized(
    x: Shaped[Tensor, "n *d"], *others: Shaped[Tensor, "_ *d"]
) -> tuple[Float[Tensor, "_ *d"], ...]:
    """`x` and further rows, with the mean and population standard deviation of `x` taken out of each column.

    Columns constant in `x` are divided by 1. Computed in 64 bits, returned in 32.
    """
    fitted = x.double()
    mean, std = fitted.mean(0), fitted.std(0, correction=0)
    # The mean of a constant column can be off by a rounding, and then its deviation is not exactly zero.
    std = std.where(fitted.amin(0) != fitted.amax(0), 1.0)
    return tuple(((rows.double() - mean) / std).float() for rows in (x, *others))


@dataclass(frozen=True)
class Source:
    """What the files of a data set hold, before any split or corruption.

    Attributes:
        name: name of the data set.
        raw: training rows as stored: (n, d) features or pixels, or (n, c, h, w) images.
        truth: (n,) true classes.
        classes: class names in order.
        candidates: (n, k) real candidate sets, where people gave some; they may miss the truth.
        test_raw: test rows, where the data set has an official test part.
        test_truth: their true classes.
        scaling: how pixels become features; None for features that are used as they are.
        annotations: what else is known of the training rows, such as the labels of single annotators.
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
            raise ValueError(f"{self.name}: test_raw and test_truth go together; give both or neither.")
        if self.test_raw is not None and self.test_truth is not None:
            parts.append(("test_truth", self.test_raw, self.test_truth))
        for what, rows, truth in parts:
            if len(rows) != len(truth):
                raise ValueError(f"{what}: {len(truth)} labels for {len(rows)} rows of {self.name}.")
            if len(truth) and (int(truth.min()) < 0 or int(truth.max()) >= k):
                raise ValueError(f"{what}: labels of {self.name} must lie in 0..{k - 1}.")
        if self.candidates is not None:
            if self.candidates.shape != (len(self.raw), k):
                raise ValueError(
                    f"candidates: shape {tuple(self.candidates.shape)}, expected {(len(self.raw), k)}."
                )
            empty = (~self.candidates.any(-1)).nonzero().squeeze(-1)
            if len(empty):
                raise ValueError(
                    f"candidates: {len(empty)} rows of {self.name} are empty (first: {int(empty[0])}); "
                    "every instance needs a label."
                )

    def __len__(self) -> int:
        return len(self.raw)

    @property
    def n_classes(self) -> int:
        """Number of classes k, those that never are the truth included."""
        return len(self.classes)

    @property
    def x(self) -> Float[Tensor, "n ..."]:
        """Features of the training rows, computed at every access: images are kept as bytes."""
        return self._features(self.raw)

    @property
    def test_x(self) -> Float[Tensor, "m ..."] | None:
        """Features of the official test rows, where there are some."""
        return None if self.test_raw is None else self._features(self.test_raw)

    def _features(self, raw: Tensor) -> Tensor:
        return raw.float() if self.scaling is None else self.scaling(raw)

    def candidate_sets(
        self,
        corruption: Corruption | None = None,
        seed: int = 0,
        *,
        scores: Float[Tensor, "n k"] | None = None,
    ) -> Bool[Tensor, "n k"]:
        """The data set's own candidate sets, or sets drawn from the truth.

        Args:
            corruption: the law to draw from; None for the data set's own sets.
            seed: the run's seed.
            scores: logits for all training rows, for laws that need them.
        """
        if corruption is not None:
            return corruption(self.truth, self.n_classes, seed, scores=scores)
        if self.candidates is None:
            raise ValueError(
                f"corruption: {self.name} has no candidate sets of its own; "
                "name a law to draw them from, such as PRODENBinomialMin2(q=0.5)."
            )
        return self.candidates

    def problem(
        self,
        corruption: Corruption | None = None,
        seed: int = 0,
        *,
        scores: Float[Tensor, "n k"] | None = None,
    ) -> Problem:
        """The official split: candidate sets for the training rows, true labels for the test rows.

        Args:
            corruption: the law of the candidate sets; None for the data set's own.
            seed: the run's seed.
            scores: logits for all training rows, for laws that need them.
        """
        test_x = self.test_x
        if test_x is None or self.test_truth is None:
            raise ValueError(
                f"{self.name}: there is no official test part; take a fold (`fold`, `single80`)."
            )
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
        scores: Float[Tensor, "n k"] | None = None,
    ) -> Problem:
        """One fold of the fixed shuffled split of the training rows (see `shuffled_folds`).

        Args:
            index: which fold is the test set, from 0.
            n_folds: number of folds.
            standardize: take mean and deviation out of every feature, those of the fold's training rows
                ("train") or of all rows ("all", as some public codes do, which lets the test rows leak in);
                None for neither. "own" is "train", except for images, which have published constants.
            corruption: the law of the candidate sets; None for the data set's own.
            seed: the run's seed for the corruption; the folds are the same for every seed.
            scores: logits for all rows, for laws that need them.
        """
        if not 0 <= index < n_folds:
            raise ValueError(f"index: {index}; the {n_folds} folds are numbered 0 to {n_folds - 1}.")
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
        candidates = self.candidate_sets(corruption, seed, scores=scores)
        return Problem(
            PartialDataset(train_x, candidates[train]),
            self.truth[train],
            test_x,
            self.truth[test],
            self.classes,
        )

    def single80(
        self,
        *,
        standardize: Literal["own", "train", "all"] | None = "own",
        corruption: Corruption | None = None,
        seed: int = 0,
        scores: Float[Tensor, "n k"] | None = None,
    ) -> Problem:
        """The one split with round(0.8 n) training rows: fold 2 of 5. The arguments are those of `fold`."""
        return self.fold(
            SINGLE_80, 5, standardize=standardize, corruption=corruption, seed=seed, scores=scores
        )

    def subset(self, index: Int[Tensor, "m"]) -> Self:
        """Some of the training rows, numbered anew; the test part stays."""
        return replace(
            self,
            raw=self.raw[index],
            truth=self.truth[index],
            candidates=None if self.candidates is None else self.candidates[index],
            annotations={what: values[index] for what, values in self.annotations.items()},
        )

    def keep_classes(self, labels: Sequence[int]) -> Self:
        """Only the instances of some classes, relabelled 0, 1, ... in the order given, in both parts."""
        if self.candidates is not None:
            raise ValueError(
                f"{self.name}: its own candidate sets may hold other classes; they cannot be dropped."
            )
        if len(set(labels)) != len(labels) or not set(labels) <= set(range(self.n_classes)):
            raise ValueError(f"labels: {list(labels)}; give different labels from 0 to {self.n_classes - 1}.")
        renamed = torch.full((self.n_classes,), -1)
        renamed[list(labels)] = torch.arange(len(labels))
        truth, test_truth = renamed[self.truth], self.test_truth
        kept = truth >= 0
        test_raw = self.test_raw
        if test_raw is not None and test_truth is not None:
            test_truth = renamed[test_truth]
            test_raw, test_truth = test_raw[test_truth >= 0], test_truth[test_truth >= 0]
        return replace(
            self,
            raw=self.raw[kept],
            truth=truth[kept],
            classes=tuple(self.classes[label] for label in labels),
            test_raw=test_raw,
            test_truth=test_truth,
            annotations={what: values[kept] for what, values in self.annotations.items()},
        )

    def first_per_class(self, n: int, seed: int | None = None) -> Self:
        """n training rows of every class: the first ones, or with a seed random ones. Their order is kept."""
        sizes = torch.bincount(self.truth, minlength=self.n_classes)
        if int(sizes.min()) < n:
            smallest = int(sizes.argmin())
            raise ValueError(
                f"n: class {self.classes[smallest]} of {self.name} has {int(sizes[smallest])} rows, not {n}."
            )
        rows = torch.arange(len(self))
        if seed is not None:
            rows = counter_rng.order(counter_rng.seed_for(seed, "subset"), rows)
        labels = self.truth[rows]
        chosen = [rows[labels == label][:n] for label in range(self.n_classes)]
        return self.subset(torch.cat(chosen).sort().values)

    def hold_out(self, n: int, seed: int = 0) -> Self:
        """The same source with n random training rows as its test part, to select models on."""
        if not 0 < n < len(self):
            raise ValueError(f"n: {n} rows of {len(self)}; something must be held out and something left.")
        order = counter_rng.order(counter_rng.seed_for(seed, "split"), torch.arange(len(self)))
        held, kept = order[:n].sort().values, order[n:].sort().values
        return replace(self.subset(kept), test_raw=self.raw[held], test_truth=self.truth[held])

    def scaled(self, scaling: Scaling) -> Self:
        """The same images with other constants, such as `UNIT_RANGE`."""
        if self.scaling is None:
            raise ValueError(f"{self.name}: these are features, not pixels; standardise them (`fold`).")
        return replace(self, scaling=scaling)


@dataclass(frozen=True)
class Loader(ABC):
    """A data set by its name: what it is, which files it needs and how they become a `Source`.

    Attributes:
        name: what it is asked for by.
        title: what tables print.
        reference: key of the publication.
        n: number of training rows, or of all rows where there is no official test part.
        n_test: number of rows of the official test part, or 0.
        shape: shape of one instance's features.
        n_classes: number of classes.
        files: the files it is read from; empty for what is generated or comes with a dependency.
    """

    #: In words: "images", "real-world", "human annotations" or "built in".
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
        """Read the files under the root folder."""

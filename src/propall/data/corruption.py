"""Corruptions: label-noise models that draw candidate sets from true labels.

Five different models are called "uniform" in the literature; here each has a name of its own. A corruption is
a frozen dataclass, called as `corruption(truth, n_classes, seed)`. Every row has its own random stream, so
its set does not depend on the other rows, on batches or on workers.
"""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from math import comb
from typing import ClassVar, Self, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from propall import counter_rng
from propall.registry import Registry, by_name, check_integers
from propall.wording import plural

#: Warn if at least this fraction of the sets contains every label.
_WARN_FROM = 1 / 3

#: Logits of a teacher or annotator.
Scores: TypeAlias = Float[Tensor, "n k"]

#: Number of matrix entries drawn at a time.
_BLOCK = 1 << 16

# Purposes of draws within a corruption; different purposes have independent streams.
_LABELS, _SIZE, _CHOICE, _EXTRA, _POSTERIOR, _TRUTH = range(6)


class UninformativeSetsWarning(UserWarning):
    """Many candidate sets contain every label and so say nothing about the true one."""


def uninformative_rows(candidates: Bool[Tensor, "n k"]) -> int:
    """Count the rows whose candidate set contains every label."""
    return int(candidates.all(-1).sum())


@dataclass(frozen=True)
class Rows:
    """True labels, keys and seed of the random streams, and scores of the rows to draw sets for."""

    truth: Int[Tensor, "n"]
    keys: Int[Tensor, "n"]
    n_classes: int
    seed: int
    scores: Scores | None = None

    def at(self, index: Int[Tensor, "m"] | slice) -> Self:
        """Select rows; they keep their streams."""
        scores = None if self.scores is None else self.scores[index]
        return replace(self, truth=self.truth[index], keys=self.keys[index], scores=scores)

    def true_sets(self) -> Bool[Tensor, "n k"]:
        """Return the sets that contain only the true label."""
        return one_hot(self.truth, self.n_classes).bool()

    def uniform(self, kind: int, attempt: int = 0) -> Float[Tensor, "n"]:
        """Draw from (0, 1) once per row."""
        return counter_rng.uniform(self.seed, kind, attempt, self.keys, dtype=torch.float64)

    def uniform_per_label(self, kind: int, attempt: int = 0) -> Float[Tensor, "n k"]:
        """Draw from (0, 1) once per row and label, in float64 so P(draw < q) is exact to 2^-52."""
        labels = torch.arange(self.n_classes, device=self.keys.device)
        return counter_rng.uniform(self.seed, kind, attempt, self.keys[:, None], labels, dtype=torch.float64)

    def wrong_label(self, kind: int) -> Int[Tensor, "n"]:
        """Draw one wrong label per row, uniformly."""
        steps = 1 + (self.uniform(kind) * (self.n_classes - 1)).long()
        return (self.truth + steps) % self.n_classes

    def sets_of_size(self, size: Int[Tensor, "n"]) -> Bool[Tensor, "n k"]:
        """Draw `size - 1` wrong labels uniformly without replacement and add the true label."""
        steps = torch.arange(self.n_classes - 1, device=self.keys.device)
        order = counter_rng.order(self.seed, _CHOICE, self.keys[:, None], steps)
        wrong = (self.truth[:, None] + 1 + order) % self.n_classes
        return self.true_sets().scatter(1, wrong, steps < (size[:, None] - 1))


class Corruption(ABC):
    """Draw a candidate set for every true label. Subclasses are frozen, final dataclasses.

    Examples:
        >>> truth = torch.tensor([0, 1, 2])
        >>> CORRUPTIONS["exactly"](n=2)(truth, 4, seed=0).sum(1).tolist()
        [2, 2, 2]
    """

    name: ClassVar[str]
    title: ClassVar[str]
    reference: ClassVar[str]
    #: Whether the sets depend on the scores of a teacher or annotator.
    needs_scores: ClassVar[bool] = False

    def __call__(
        self,
        truth: Int[Tensor, "n"],
        n_classes: int,
        seed: int,
        *,
        keys: Int[Tensor, "n"] | None = None,
        scores: Float[Tensor, "_ _"] | None = None,
    ) -> Bool[Tensor, "n k"]:
        """Draw one candidate set per row.

        Args:
            truth: true labels.
            n_classes: number of classes k, including classes without instances; at least 2.
            seed: seed of the run; the same seed gives the same sets.
            keys: integers that identify the rows in the random streams; their index by default. A shard with
                the keys of its rows gets the same sets as in the whole data set.
            scores: logits of a teacher, for corruptions that need them.
        """
        self._check(truth, n_classes, scores)
        keys = torch.arange(len(truth), device=truth.device) if keys is None else keys
        rows = Rows(truth.long(), keys, n_classes, counter_rng.seed_for(seed, "corruption"), scores)
        # Rows are independent, and blocks that fit into the cache are several times faster.
        block = max(1, _BLOCK // n_classes)
        starts = range(0, max(len(truth), 1), block)
        candidates = torch.cat([self.draw(rows.at(slice(start, start + block))) for start in starts])
        full = uninformative_rows(candidates)
        if full and full >= _WARN_FROM * len(truth):
            warnings.warn(
                f"{self.name}: {full} of {len(truth)} candidate sets contain all {n_classes} labels and "
                "carry no information; use another corruption, a smaller probability or fewer candidates.",
                UninformativeSetsWarning,
                stacklevel=2,
            )
        return candidates

    @abstractmethod
    def draw(self, rows: Rows) -> Bool[Tensor, "n k"]:
        """Draw sets for validated arguments; call the corruption instead."""

    def _check(self, truth: Tensor, n_classes: int, scores: Tensor | None) -> None:
        if n_classes < 2:
            raise ValueError(f"n_classes: got {n_classes}; expected at least 2.")
        invalid = ((truth < 0) | (truth >= n_classes)).nonzero().squeeze(-1)
        if len(invalid):
            first = int(invalid[0])
            raise ValueError(
                f"truth: {plural(len(invalid), 'label')} outside 0..{n_classes - 1} "
                f"(first: {int(truth[first])} in row {first}); n_classes must count every class."
            )
        if not self.needs_scores:
            if scores is not None:
                raise ValueError(f"scores: {self.name} uses only the true labels; omit scores.")
            return
        if scores is None:
            raise ValueError(
                f"scores: {self.name} needs logits with one row per true label and one column per class."
            )
        if scores.shape != (len(truth), n_classes):
            raise ValueError(f"scores: got shape {tuple(scores.shape)}; expected {(len(truth), n_classes)}.")
        if not scores.isfinite().all():
            raise ValueError("scores: some are NaN or infinite; expected finite logits.")


class SizedCorruption(Corruption):
    """A corruption whose distribution of set sizes is known in closed form."""

    @abstractmethod
    def size_probabilities(self, n_classes: int) -> list[Fraction]:
        """Compute P(|S| = s) for s = 0..k exactly; q is taken as the decimal number it is written as."""

    def mean_size(self, n_classes: int) -> Fraction:
        """Compute the expected number of candidates."""
        return sum((s * p for s, p in enumerate(self.size_probabilities(n_classes))), Fraction(0))

    def wrong_label_inclusion_probability(self, n_classes: int) -> Fraction:
        """Compute the probability that a wrong label is a candidate, averaged over the wrong labels."""
        return (self.mean_size(n_classes) - 1) / (n_classes - 1)


@dataclass(frozen=True)
class FlipCorruption(SizedCorruption):
    """A corruption that adds wrong labels with probability q."""

    q: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.q <= 1:
            raise ValueError(f"q: got {self.q}; expected a probability from 0 to 1.")

    def binomial_probabilities(self, n_classes: int) -> list[Fraction]:
        """Compute P(|S| = s) for s = 0..k if every wrong label is added independently."""
        q, wrong = Fraction(str(self.q)), n_classes - 1
        return [Fraction(0), *(comb(wrong, i) * q**i * (1 - q) ** (wrong - i) for i in range(n_classes))]


def _in_proportion(counts: Sequence[int]) -> list[Fraction]:
    return [Fraction(count, sum(counts)) for count in counts]


def _rejection_sample(
    rows: Rows, kind: int, is_rejected: Callable[[Bool[Tensor, "n k"], Rows], Bool[Tensor, "n"]]
) -> Bool[Tensor, "n k"]:
    """Toss a fair coin per label; rows that are rejected are drawn again."""
    sets = rows.uniform_per_label(kind) < 0.5
    pending = is_rejected(sets, rows).nonzero().squeeze(-1)
    attempt = 0
    while len(pending):
        attempt += 1
        pending_rows = rows.at(pending)
        redrawn = pending_rows.uniform_per_label(kind, attempt) < 0.5
        sets[pending] = redrawn
        pending = pending[is_rejected(redrawn, pending_rows)]
    return sets


@dataclass(frozen=True)
class UniformProperSupersets(SizedCorruption):
    """Uniform over the sets that contain the true label, except the full set.

    P(S) = 1/(2^(k-1) - 1), so P(|S| = s) = C(k-1, s-1)/(2^(k-1) - 1) for s < k.

    References:
        [feng2020provably], the generation model of RC and CC. Their code uses `RCCCCode` instead.

    Examples:
        >>> UniformProperSupersets()(torch.tensor([0, 1, 2]), 6, seed=0).int().tolist()
        [[1, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 1, 1]]
    """

    name, title, reference = "uniform_proper_supersets", "uniform over proper supersets", "feng2020provably"

    def draw(self, rows: Rows) -> Bool[Tensor, "n k"]:
        """Toss a fair coin per wrong label; reject full sets."""
        sets = _rejection_sample(rows, _LABELS, lambda coins, at: (coins | at.true_sets()).all(-1))
        return sets | rows.true_sets()

    def size_probabilities(self, n_classes: int) -> list[Fraction]:
        """C(k-1, s-1)/(2^(k-1) - 1) for s = 1..k-1."""
        return _in_proportion([0, *(comb(n_classes - 1, s - 1) for s in range(1, n_classes)), 0])


@dataclass(frozen=True)
class RCCCCode(SizedCorruption):
    """Draw the size of a uniformly random nonempty proper subset of all labels, then that many candidates.

    P(|S| = s) = C(k, s)/(2^k - 2) for 0 < s < k; given s, the wrong labels are uniform without replacement.

    References:
        [feng2020provably]: the code of RC and CC; the published results of CAVL use it too.

    Notes:
        Differs from `UniformProperSupersets` because the size is not conditioned on the true label being in
        the set. Public code tabulates the sizes with 2^k as a float, which fails for many classes; one fair
        coin per label gives the same distribution for any number.
    """

    name, title, reference = "rccc_code", "uniform, as in the code of RC and CC", "feng2020provably"

    def draw(self, rows: Rows) -> Bool[Tensor, "n k"]:
        """Count the heads of k fair coins (rejecting none and all) and draw a set of that size."""
        coins = _rejection_sample(rows, _SIZE, lambda tossed, _: tossed.all(-1) | ~tossed.any(-1))
        return rows.sets_of_size(coins.sum(-1))

    def size_probabilities(self, n_classes: int) -> list[Fraction]:
        """C(k, s)/(2^k - 2) for s = 1..k-1."""
        return _in_proportion([0, *(comb(n_classes, s) for s in range(1, n_classes)), 0])


@dataclass(frozen=True)
class IndependentFlip(FlipCorruption):
    """Each wrong label is a candidate with probability q, independently.

    The true label alone and the full set may occur.

    P(|S| = s) = C(k-1, s-1) q^(s-1) (1-q)^(k-s).

    Attributes:
        q: probability that a wrong label is a candidate.

    Examples:
        >>> IndependentFlip(0.3)(torch.tensor([0, 1, 2]), 6, seed=0).int().tolist()
        [[1, 1, 1, 0, 1, 0], [1, 1, 1, 0, 1, 0], [1, 1, 1, 0, 0, 1]]
    """

    name, title, reference = "independent_flip", "independent flips", "wang2022pico"

    def draw(self, rows: Rows) -> Bool[Tensor, "n k"]:
        """Toss a coin per wrong label."""
        return (rows.uniform_per_label(_LABELS) < self.q) | rows.true_sets()

    def size_probabilities(self, n_classes: int) -> list[Fraction]:
        """Binomial distribution of the number of wrong labels."""
        return self.binomial_probabilities(n_classes)


@dataclass(frozen=True)
class PRODENBinomialMin2(FlipCorruption):
    """Independent flips; a set that would contain only the true label gets one wrong label, uniformly.

    Attributes:
        q: probability that a wrong label is a candidate; 0 gives clean labels, as in the authors' code.

    References:
        [lv2020progressive]; q = 0.5 is the uniform benchmark of VALEN.

    Notes:
        The full set is possible, with probability q^(k-1).

    Examples:
        >>> PRODENBinomialMin2(0.5)(torch.tensor([0, 1, 2]), 6, seed=0).int().tolist()
        [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 1, 1]]
    """

    name, title, reference = "proden_binomial_min2", "flips, two candidates or more", "lv2020progressive"

    def draw(self, rows: Rows) -> Bool[Tensor, "n k"]:
        """Toss a coin per wrong label; add one label where none was added."""
        sets = (rows.uniform_per_label(_LABELS) < self.q) | rows.true_sets()
        if self.q == 0:
            return sets
        extra = one_hot(rows.wrong_label(_EXTRA), rows.n_classes).bool()
        return sets | (extra & (sets.sum(-1, keepdim=True) == 1))

    def size_probabilities(self, n_classes: int) -> list[Fraction]:
        """Binomial distribution with the mass of one candidate moved to two."""
        probabilities = self.binomial_probabilities(n_classes)
        if self.q != 0:
            probabilities[1], probabilities[2] = Fraction(0), probabilities[1] + probabilities[2]
        return probabilities


@dataclass(frozen=True)
class POPUniformSet(SizedCorruption):
    """Uniform over the sets that contain the true label and at least one other, including the full set.

    P(S) = 1/(2^(k-1) - 1), so P(|S| = s) = C(k-1, s-1)/(2^(k-1) - 1) for s > 1.

    Examples:
        >>> POPUniformSet()(torch.tensor([0, 1, 2]), 6, seed=0).int().tolist()
        [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 1, 1]]
    """

    name, title, reference = "pop_uniform_set", "uniform over sets of two or more", "xu2023progressive"

    def draw(self, rows: Rows) -> Bool[Tensor, "n k"]:
        """Toss a fair coin per wrong label; reject sets without a wrong label."""
        sets = _rejection_sample(rows, _LABELS, lambda coins, at: ~(coins & ~at.true_sets()).any(-1))
        return sets | rows.true_sets()

    def size_probabilities(self, n_classes: int) -> list[Fraction]:
        """C(k-1, s-1)/(2^(k-1) - 1) for s = 2..k."""
        return _in_proportion([0, 0, *(comb(n_classes - 1, s - 1) for s in range(2, n_classes + 1))])


@dataclass(frozen=True)
class Pair(FlipCorruption):
    """The next label, y + 1 modulo k, is a candidate with probability q; no other wrong label is.

    Attributes:
        q: probability that the next label is a candidate.

    Examples:
        >>> Pair(1.0)(torch.tensor([0, 1, 2]), 6, seed=0).int().tolist()
        [[1, 1, 0, 0, 0, 0], [0, 1, 1, 0, 0, 0], [0, 0, 1, 1, 0, 0]]
    """

    name, title, reference = "pair", "pair flips", "lv2020progressive"

    def draw(self, rows: Rows) -> Bool[Tensor, "n k"]:
        """Toss a coin per row."""
        successor = one_hot((rows.truth + 1) % rows.n_classes, rows.n_classes).bool()
        return rows.true_sets() | (successor & (rows.uniform(_EXTRA) < self.q)[:, None])

    def size_probabilities(self, n_classes: int) -> list[Fraction]:
        """1 - q for one candidate, q for two."""
        q = Fraction(str(self.q))
        return [Fraction(0), 1 - q, q, *[Fraction(0)] * (n_classes - 2)]


def _check_size(size: int, n_classes: int) -> None:
    if not size < n_classes:
        raise ValueError(
            f"n: got {size} candidates of {n_classes} classes; expected at most {n_classes - 1}."
        )


@dataclass(frozen=True)
class Exactly(SizedCorruption):
    """The true label and n - 1 wrong ones, drawn uniformly without replacement.

    Attributes:
        n: number of candidates; 1 gives clean labels, k - 1 one complementary label.

    References:
        [katsura2020bridging], with a one-hot posterior.

    Examples:
        >>> Exactly(2)(torch.tensor([0, 1, 2]), 6, seed=0).int().tolist()
        [[1, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 1], [0, 0, 1, 0, 1, 0]]
    """

    n: int = 2

    name, title, reference = "exactly", "exactly n candidates", "katsura2020bridging"

    def __post_init__(self) -> None:
        check_integers(self, n=1)

    def draw(self, rows: Rows) -> Bool[Tensor, "n k"]:
        """Take the first n - 1 wrong labels of a random order."""
        _check_size(self.n, rows.n_classes)
        return rows.sets_of_size(torch.full_like(rows.truth, self.n))

    def size_probabilities(self, n_classes: int) -> list[Fraction]:
        """All mass on n."""
        _check_size(self.n, n_classes)
        return _in_proportion([int(s == self.n) for s in range(n_classes + 1)])


@dataclass(frozen=True)
class Complementary(SizedCorruption):
    """One complementary label, uniform over the wrong ones; all other labels are candidates.

    Examples:
        >>> Complementary()(torch.tensor([0, 1, 2]), 6, seed=0).int().tolist()
        [[1, 1, 0, 1, 1, 1], [1, 1, 1, 0, 1, 1], [1, 0, 1, 1, 1, 1]]
    """

    name, title, reference = "complementary", "one complementary label", "ishida2017learning"

    def draw(self, rows: Rows) -> Bool[Tensor, "n k"]:
        """Exclude one wrong label."""
        return ~one_hot(rows.wrong_label(_EXTRA), rows.n_classes).bool()

    def size_probabilities(self, n_classes: int) -> list[Fraction]:
        """All mass on k - 1."""
        return _in_proportion([int(s == n_classes - 1) for s in range(n_classes + 1)])


def flip_probabilities(
    logits: Float[Tensor, "n k"], truth: Int[Tensor, "n"], rate: float = 0.4
) -> Float[Tensor, "n k"]:
    r"""Probability that a label becomes a candidate, from a teacher's logits; 0 for the true label.

    .. math:: f_j = \min\Bigl(1, \rho\, k\, \frac{p_j}{1 - p_y}\Bigr), \quad j \ne y

    with p = softmax(r). Before clipping at 1, the expected number of wrong candidates is rate * k.

    Args:
        logits: scores r of the teacher.
        truth: true labels y.
        rate: rho, such as 0.4 for 10 classes or 0.04 for 100.

    References:
        [xu2021instance].

    Notes:
        The authors' code zeroes p_y and divides by the maximum and the mean of the row. This is equivalent
        but 0/0 for a confident teacher in float32; the log-softmax without the true label has no such limit.
    """
    others = logits.double().scatter(1, truth[:, None].long(), -torch.inf).log_softmax(-1)
    return (rate * logits.shape[1] * others.exp()).clamp(max=1)


@dataclass(frozen=True)
class InstanceDependent(Corruption):
    """Wrong labels become candidates independently, with probabilities from a teacher.

    The teacher is trained on clean labels. Pass its logits as `scores`; see `flip_probabilities`.

    Attributes:
        rate: expected number of wrong candidates divided by k, before probabilities are clipped at 1.

    Examples:
        >>> scores = torch.tensor([[3.0, 2.0, 0.0], [0.0, 3.0, 1.0]])
        >>> InstanceDependent(0.3)(torch.tensor([0, 1]), 3, seed=0, scores=scores).int().tolist()
        [[1, 1, 0], [1, 1, 1]]
    """

    rate: float = 0.4

    name, title, reference = "instance_dependent", "instance-dependent", "xu2021instance"
    needs_scores = True

    def __post_init__(self) -> None:
        if not 0 <= self.rate < math.inf:
            raise ValueError(f"rate: got {self.rate}; expected a finite number, 0 or more.")

    def draw(self, rows: Rows) -> Bool[Tensor, "n k"]:
        """Toss a coin per wrong label."""
        assert rows.scores is not None
        flips = flip_probabilities(rows.scores, rows.truth, self.rate)
        return (rows.uniform_per_label(_LABELS) < flips) | rows.true_sets()

    def mean_size(self, scores: Scores, truth: Int[Tensor, "n"]) -> float:
        """Compute the expected number of candidates, averaged over the rows."""
        return 1 + float(flip_probabilities(scores, truth, self.rate).sum(-1).mean())


def set_probabilities(
    posterior: Float[Tensor, "k"], n: int
) -> tuple[Int[Tensor, "sets n"], Float[Tensor, "sets"]]:
    r"""All sets of n labels in lexicographic order, with their probabilities given a posterior.

    .. math:: P(S \mid x) = \binom{k-1}{n-1}^{-1} \sum_{j \in S} p(j \mid x)

    References:
        [katsura2020bridging].
    """
    k = len(posterior)
    sets = torch.tensor(list(combinations(range(k), n)), device=posterior.device)
    return sets, posterior.double()[sets].sum(-1) / comb(k - 1, n - 1)


def inclusion_probabilities(posterior: Float[Tensor, "*b k"], n: int) -> Float[Tensor, "*b k"]:
    """Probability that each label is in the set under `set_probabilities`: p + (1 - p)(n - 1)/(k - 1)."""
    p = posterior.double()
    return p + (1 - p) * (n - 1) / (p.shape[-1] - 1)


@dataclass(frozen=True)
class MissingTruth(Corruption):
    """Independent flips in which some sets miss the true label.

    Each wrong label is a candidate with probability q and the true label with probability 1 - missing, all
    independently. A set that would be empty gets one wrong label, uniformly.

    Attributes:
        q: probability that a wrong label is a candidate.
        missing: probability that the true label is not a candidate; 0 gives `IndependentFlip`, with the same
            sets.

    Examples:
        >>> MissingTruth(0.3, 0.2)(torch.tensor([0, 1, 2]), 6, seed=0).int().tolist()
        [[1, 1, 1, 0, 1, 0], [1, 0, 1, 0, 1, 0], [1, 1, 0, 0, 0, 1]]
    """

    q: float = 0.3
    missing: float = 0.1

    name, title, reference = "missing_truth", "independent flips, some without the truth", "xu2023alim"

    def __post_init__(self) -> None:
        for field, value in (("q", self.q), ("missing", self.missing)):
            if not 0 <= value <= 1:
                raise ValueError(f"{field}: got {value}; expected a probability from 0 to 1.")

    def draw(self, rows: Rows) -> Bool[Tensor, "n k"]:
        """Toss a coin per wrong label and one for the true label."""
        truth, kept = rows.true_sets(), rows.uniform(_TRUTH) >= self.missing
        wrong = (rows.uniform_per_label(_LABELS) < self.q) & ~truth
        sets = wrong | (truth & kept[:, None])
        extra = one_hot(rows.wrong_label(_EXTRA), rows.n_classes).bool()
        return sets | (extra & ~sets.any(-1, keepdim=True))


@dataclass(frozen=True)
class Annotator(Corruption):
    """Exactly n candidates from an uncertain annotator; the set may miss the true label.

    One label is drawn from softmax(scores), then n - 1 others uniformly without replacement, which gives the
    distribution of `set_probabilities`.

    Attributes:
        n: number of candidates.

    Examples:
        >>> scores = torch.tensor([[3.0, 2.0, 0.0], [0.0, 3.0, 1.0]])
        >>> Annotator(2)(torch.tensor([0, 1]), 3, seed=0, scores=scores).int().tolist()
        [[1, 0, 1], [0, 1, 1]]
    """

    n: int = 2

    name, title, reference = "annotator", "exactly n candidates of an annotator", "katsura2020bridging"
    needs_scores = True

    def __post_init__(self) -> None:
        check_integers(self, n=1)

    def draw(self, rows: Rows) -> Bool[Tensor, "n k"]:
        """Draw the annotator's label and proceed as `Exactly` with it as the true label."""
        assert rows.scores is not None
        _check_size(self.n, rows.n_classes)
        cumulative = rows.scores.double().softmax(-1).cumsum(-1)
        total = cumulative[:, -1]
        # Rounding must not reach the total, which would select a label past the last one.
        level = torch.minimum(rows.uniform(_POSTERIOR) * total, total.nextafter(torch.zeros_like(total)))
        drawn = (cumulative <= level[:, None]).sum(-1)
        return replace(rows, truth=drawn).sets_of_size(torch.full_like(drawn, self.n))


CORRUPTIONS: Registry[type[Corruption]] = by_name(
    "corruption",
    UniformProperSupersets,
    RCCCCode,
    IndependentFlip,
    PRODENBinomialMin2,
    POPUniformSet,
    Pair,
    Exactly,
    Complementary,
    InstanceDependent,
    MissingTruth,
    Annotator,
)
"""Corruptions by name.

Examples:
    >>> CORRUPTIONS["independent_flip"](q=0.1).title
    'independent flips'
"""

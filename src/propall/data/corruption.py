"""From true labels to candidate sets: the laws in circulation, each under a name of its own.

Five different laws are called "uniform" in the literature; here no two share a name. A law is a frozen
dataclass, called as `law(truth, n_classes, seed)`. Every row draws from a stream of its own, so its set
depends neither on the other rows nor on how the rows are cut into batches or dealt to workers.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import comb
from typing import ClassVar, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from propall import counter_rng
from propall.registry import Registry, by_name

#: Share of rows that hold every label from which on a draw is worth a warning.
_WARN_FROM = 1 / 3

#: Number of labels drawn for at a time.
_BLOCK = 1 << 16

# What a draw within one law is for; draws of different kinds share nothing.
_LABELS, _SIZE, _CHOICE, _EXTRA, _POSTERIOR = range(5)


class UninformativeSetsWarning(UserWarning):
    """Many candidate sets hold every label, which says nothing about the true one."""


def uninformative_rows(candidates: Bool[Tensor, "n k"]) -> int:
    """Number of rows whose candidate set holds every label."""
    return int(candidates.all(-1).sum())


@dataclass(frozen=True)
class Rows:
    """The rows a law draws sets for: their true labels and their random streams.

    Attributes:
        truth: true label of each row.
        keys: whole numbers that name the rows in the random streams.
        n_classes: number of classes k.
        seed: seed of the streams, already made for this purpose.
    """

    truth: Int[Tensor, "n"]
    keys: Int[Tensor, "n"]
    n_classes: int
    seed: int

    def at(self, index: Int[Tensor, "m"] | slice) -> Self:
        """Some of the rows, with the streams they had."""
        return type(self)(self.truth[index], self.keys[index], self.n_classes, self.seed)

    def true_sets(self) -> Bool[Tensor, "n k"]:
        """The sets that hold the true label alone."""
        return one_hot(self.truth, self.n_classes).bool()

    def uniform(self, kind: int, attempt: int = 0) -> Float[Tensor, "n"]:
        """One draw on (0, 1) per row."""
        return counter_rng.uniform(self.seed, kind, attempt, self.keys, dtype=torch.float64)

    def uniform_per_label(self, kind: int, attempt: int = 0) -> Float[Tensor, "n k"]:
        """One draw on (0, 1) per row and label; 52 bits, so a comparison with q errs by 2^-52 at most."""
        labels = torch.arange(self.n_classes, device=self.keys.device)
        return counter_rng.uniform(self.seed, kind, attempt, self.keys[:, None], labels, dtype=torch.float64)

    def wrong_label(self, kind: int) -> Int[Tensor, "n"]:
        """One wrong label per row, all equally likely."""
        steps = 1 + (self.uniform(kind) * (self.n_classes - 1)).long()
        return (self.truth + steps) % self.n_classes

    def sets_of_size(self, size: Int[Tensor, "n"]) -> Bool[Tensor, "n k"]:
        """The true label and `size - 1` wrong ones, uniformly without replacement."""
        steps = torch.arange(self.n_classes - 1, device=self.keys.device)
        order = counter_rng.order(self.seed, _CHOICE, self.keys[:, None], steps)
        wrong = (self.truth[:, None] + 1 + order) % self.n_classes
        return self.true_sets().scatter(1, wrong, steps < (size[:, None] - 1))


class Corruption(ABC):
    """Draws a candidate set for every true label. Subclasses are frozen, final dataclasses."""

    name: ClassVar[str]
    title: ClassVar[str]
    reference: ClassVar[str]
    #: True: the sets follow a teacher's or annotator's scores, given with the call.
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
            truth: true labels. Classes that never occur among them count too, hence `n_classes`.
            n_classes: number of classes k, at least 2.
            seed: the run's seed; the same seed gives the same sets.
            keys: whole numbers that name the rows in the random streams, by default their index. A shard
                drawn with its rows' own keys equals the same rows of the whole.
            scores: a teacher's logits, for the laws that need them.
        """
        self._check(truth, n_classes, scores)
        keys = torch.arange(len(truth), device=truth.device) if keys is None else keys
        rows = Rows(truth.long(), keys, n_classes, counter_rng.seed_for(seed, "corruption"))
        # Rows are independent, and blocks that stay in the cache are several times as fast as the whole.
        block = max(1, _BLOCK // n_classes)
        candidates = torch.cat(
            [
                self.draw(rows.at(part), None if scores is None else scores[part])
                for part in (slice(start, start + block) for start in range(0, max(len(truth), 1), block))
            ]
        )
        blank = uninformative_rows(candidates)
        if blank and blank >= _WARN_FROM * len(truth):
            warnings.warn(
                f"{self.name}: {blank} of {len(truth)} candidate sets hold all {n_classes} labels and tell "
                "nothing; choose another law, a smaller probability or fewer candidates.",
                UninformativeSetsWarning,
                stacklevel=2,
            )
        return candidates

    @abstractmethod
    def draw(self, rows: Rows, scores: Float[Tensor, "n k"] | None) -> Bool[Tensor, "n k"]:
        """The sets, from checked arguments; call the law itself instead."""

    def _check(self, truth: Tensor, n_classes: int, scores: Tensor | None) -> None:
        if n_classes < 2:
            raise ValueError(
                f"n_classes: {n_classes}; a candidate set needs at least 2 classes to choose from."
            )
        wrong = ((truth < 0) | (truth >= n_classes)).nonzero().squeeze(-1)
        if len(wrong):
            first = int(wrong[0])
            raise ValueError(
                f"truth: {len(wrong)} labels lie outside 0..{n_classes - 1} "
                f"(first: {int(truth[first])} in row {first}); n_classes counts all classes of the data set."
            )
        if not self.needs_scores:
            if scores is not None:
                raise ValueError(f"scores: {self.name} draws from the true labels alone; leave them out.")
            return
        if scores is None:
            raise ValueError(
                f"scores: {self.name} needs logits, one row per true label and one column per class."
            )
        if scores.shape != (len(truth), n_classes):
            raise ValueError(f"scores: shape {tuple(scores.shape)}, expected {(len(truth), n_classes)}.")
        if not scores.isfinite().all():
            raise ValueError("scores: some are infinite or not a number; give finite logits.")


class SizedCorruption(Corruption):
    """A corruption whose law of set sizes is known before anything is drawn."""

    @abstractmethod
    def size_law(self, n_classes: int) -> list[Fraction]:
        """P(|S| = s) for s = 0..k, exactly; a probability q counts as the decimal it is written as."""

    def mean_size(self, n_classes: int) -> Fraction:
        """Expected number of candidates."""
        return sum((s * p for s, p in enumerate(self.size_law(n_classes))), Fraction(0))

    def wrong_label_inclusion_probability(self, n_classes: int) -> Fraction:
        """Probability that a wrong label is a candidate, averaged over the wrong labels."""
        return (self.mean_size(n_classes) - 1) / (n_classes - 1)


def _law(n_classes: int, probability: Callable[[int], Fraction]) -> list[Fraction]:
    return [Fraction(0), *(probability(size) for size in range(1, n_classes + 1))]


def _exact(q: float) -> Fraction:
    return Fraction(str(q))


def _check_probability(q: float) -> None:
    if not 0 <= q <= 1:
        raise ValueError(f"q: {q} is not a probability; give a number from 0 to 1.")


def _refusing(
    rows: Rows, kind: int, refused: Callable[[Bool[Tensor, "n k"], Rows], Bool[Tensor, "n"]]
) -> Bool[Tensor, "n k"]:
    """Fair coins for every label, tossed again with fresh draws for the rows that are refused."""
    sets = rows.uniform_per_label(kind) < 0.5
    pending = refused(sets, rows).nonzero().squeeze(-1)
    attempt = 0
    while len(pending):
        attempt += 1
        left = rows.at(pending)
        again = left.uniform_per_label(kind, attempt) < 0.5
        sets[pending] = again
        pending = pending[refused(again, left)]
    return sets


@dataclass(frozen=True)
class UniformProperSupersets(SizedCorruption):
    """Every set that holds the true label and is not the full set is equally likely.

    P(S) = 1/(2^(k-1) - 1), so P(|S| = s) = C(k-1, s-1)/(2^(k-1) - 1) for s < k.

    References:
        [feng2020provably], the generation model of RC and CC. Their code draws from `RCCCCode` instead.
    """

    name, title, reference = "uniform_proper_supersets", "uniform over proper supersets", "feng2020provably"

    def draw(self, rows: Rows, scores: Float[Tensor, "n k"] | None) -> Bool[Tensor, "n k"]:
        """Fair coins for the wrong labels; a full set is tossed again."""
        sets = _refusing(rows, _LABELS, lambda coins, at: (coins | at.true_sets()).all(-1))
        return sets | rows.true_sets()

    def size_law(self, n_classes: int) -> list[Fraction]:
        """C(k-1, s-1)/(2^(k-1) - 1) for s = 1..k-1."""
        total = 2 ** (n_classes - 1) - 1
        return _law(n_classes, lambda s: Fraction(comb(n_classes - 1, s - 1) if s < n_classes else 0, total))


@dataclass(frozen=True)
class RCCCCode(SizedCorruption):
    """The size of a uniformly random non-empty proper subset of all labels, then that many candidates.

    P(|S| = s) = C(k, s)/(2^k - 2) for 0 < s < k; given s, the wrong labels are uniform without replacement.

    References:
        [feng2020provably]: the law of the code of RC and CC, also behind the published numbers of CAVL.

    Notes:
        Differs from `UniformProperSupersets` because the size is not conditioned on the true label being in
        the set. Public code tabulates the sizes with 2^k as a float, which fails for many classes; a fair
        coin per label has the same law and no limit.
    """

    name, title, reference = "rccc_code", "uniform, as in the code of RC and CC", "feng2020provably"

    def draw(self, rows: Rows, scores: Float[Tensor, "n k"] | None) -> Bool[Tensor, "n k"]:
        """Count the heads of k fair coins (neither none nor all) and draw a set of that size."""
        coins = _refusing(rows, _SIZE, lambda tossed, _: tossed.all(-1) | ~tossed.any(-1))
        return rows.sets_of_size(coins.sum(-1))

    def size_law(self, n_classes: int) -> list[Fraction]:
        """C(k, s)/(2^k - 2) for s = 1..k-1."""
        total = 2**n_classes - 2
        return _law(n_classes, lambda s: Fraction(comb(n_classes, s) if s < n_classes else 0, total))


def _binomial_law(n_classes: int, q: Fraction) -> list[Fraction]:
    wrong = n_classes - 1
    return _law(n_classes, lambda s: comb(wrong, s - 1) * q ** (s - 1) * (1 - q) ** (wrong - s + 1))


@dataclass(frozen=True)
class IndependentFlip(SizedCorruption):
    """Each wrong label is a candidate with probability q, independently; {y} and the full set may occur.

    P(|S| = s) = C(k-1, s-1) q^(s-1) (1-q)^(k-s).

    Attributes:
        q: probability of each wrong label.

    References:
        [wang2022pico].
    """

    q: float = 0.5

    name, title, reference = "independent_flip", "independent flips", "wang2022pico"

    def __post_init__(self) -> None:
        _check_probability(self.q)

    def draw(self, rows: Rows, scores: Float[Tensor, "n k"] | None) -> Bool[Tensor, "n k"]:
        """One coin per wrong label."""
        return (rows.uniform_per_label(_LABELS) < self.q) | rows.true_sets()

    def size_law(self, n_classes: int) -> list[Fraction]:
        """Binomial in the number of wrong labels."""
        return _binomial_law(n_classes, _exact(self.q))


@dataclass(frozen=True)
class PRODENBinomialMin2(SizedCorruption):
    """Independent flips, but a set that ends as {y} gets exactly one wrong label, uniformly.

    Attributes:
        q: probability of each wrong label; 0 stands for clean labels, as in the authors' code.

    References:
        [lv2020progressive]; with q = 0.5 the uniform benchmark of VALEN.

    Notes:
        The full set is not excluded: it has probability q^(k-1).
    """

    q: float = 0.5

    name, title, reference = "proden_binomial_min2", "flips, two candidates or more", "lv2020progressive"

    def __post_init__(self) -> None:
        _check_probability(self.q)

    def draw(self, rows: Rows, scores: Float[Tensor, "n k"] | None) -> Bool[Tensor, "n k"]:
        """One coin per wrong label; where all fall tails, one label more."""
        sets = (rows.uniform_per_label(_LABELS) < self.q) | rows.true_sets()
        if self.q == 0:
            return sets
        extra = one_hot(rows.wrong_label(_EXTRA), rows.n_classes).bool()
        return sets | (extra & (sets.sum(-1, keepdim=True) == 1))

    def size_law(self, n_classes: int) -> list[Fraction]:
        """Binomial, the mass of one candidate moved to two."""
        law = _binomial_law(n_classes, _exact(self.q))
        if self.q != 0:
            law[1], law[2] = Fraction(0), law[1] + law[2]
        return law


@dataclass(frozen=True)
class POPUniformSet(SizedCorruption):
    """Every set that holds the true label and at least one other is equally likely, the full set included.

    P(S) = 1/(2^(k-1) - 1), so P(|S| = s) = C(k-1, s-1)/(2^(k-1) - 1) for s > 1.

    References:
        [xu2023progressive].
    """

    name, title, reference = "pop_uniform_set", "uniform over sets of two or more", "xu2023progressive"

    def draw(self, rows: Rows, scores: Float[Tensor, "n k"] | None) -> Bool[Tensor, "n k"]:
        """Fair coins for the wrong labels; the true label alone is tossed again."""
        sets = _refusing(rows, _LABELS, lambda coins, at: ~(coins & ~at.true_sets()).any(-1))
        return sets | rows.true_sets()

    def size_law(self, n_classes: int) -> list[Fraction]:
        """C(k-1, s-1)/(2^(k-1) - 1) for s = 2..k."""
        total = 2 ** (n_classes - 1) - 1
        return _law(n_classes, lambda s: Fraction(comb(n_classes - 1, s - 1) if s > 1 else 0, total))


@dataclass(frozen=True)
class Pair(SizedCorruption):
    """The next label, y + 1 modulo k, is a candidate with probability q; no other ever is.

    Attributes:
        q: probability of the next label.

    References:
        [lv2020progressive].
    """

    q: float = 0.5

    name, title, reference = "pair", "pair flips", "lv2020progressive"

    def __post_init__(self) -> None:
        _check_probability(self.q)

    def draw(self, rows: Rows, scores: Float[Tensor, "n k"] | None) -> Bool[Tensor, "n k"]:
        """One coin per row."""
        successor = one_hot((rows.truth + 1) % rows.n_classes, rows.n_classes).bool()
        return rows.true_sets() | (successor & (rows.uniform(_EXTRA) < self.q)[:, None])

    def size_law(self, n_classes: int) -> list[Fraction]:
        """1 - q for one candidate, q for two."""
        q = _exact(self.q)
        return _law(n_classes, lambda s: {1: 1 - q, 2: q}.get(s, Fraction(0)))


def _check_size(size: int, n_classes: int) -> None:
    if not size < n_classes:
        raise ValueError(
            f"n: {size} candidates out of {n_classes} classes tell nothing; give 1 to {n_classes - 1}."
        )


@dataclass(frozen=True)
class Exactly(SizedCorruption):
    """The true label and n - 1 wrong ones, uniformly without replacement; the same n for every instance.

    Attributes:
        n: number of candidates: 1 for clean labels, k - 1 for one complementary label.

    References:
        [katsura2020bridging], with a one-hot posterior.
    """

    n: int = 2

    name, title, reference = "exactly", "exactly n candidates", "katsura2020bridging"

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"n: {self.n}; a candidate set holds at least 1 label.")

    def draw(self, rows: Rows, scores: Float[Tensor, "n k"] | None) -> Bool[Tensor, "n k"]:
        """A random order of the wrong labels, cut after n - 1."""
        _check_size(self.n, rows.n_classes)
        return rows.sets_of_size(torch.full_like(rows.truth, self.n))

    def size_law(self, n_classes: int) -> list[Fraction]:
        """All mass on n."""
        _check_size(self.n, n_classes)
        return _law(n_classes, lambda s: Fraction(s == self.n))


@dataclass(frozen=True)
class Complementary(SizedCorruption):
    """One complementary label, uniform over the wrong ones: every label but it is a candidate.

    References:
        [ishida2017learning].
    """

    name, title, reference = "complementary", "one complementary label", "ishida2017learning"

    def draw(self, rows: Rows, scores: Float[Tensor, "n k"] | None) -> Bool[Tensor, "n k"]:
        """All labels but one wrong one."""
        return ~one_hot(rows.wrong_label(_EXTRA), rows.n_classes).bool()

    def size_law(self, n_classes: int) -> list[Fraction]:
        """All mass on k - 1."""
        return _law(n_classes, lambda s: Fraction(s == n_classes - 1))


def flip_probabilities(
    logits: Float[Tensor, "n k"], truth: Int[Tensor, "n"], rate: float = 0.4
) -> Float[Tensor, "n k"]:
    r"""Probability of each wrong label to become a candidate, from a teacher's logits; 0 for the true label.

    .. math:: f_j = \min\Bigl(1, \rho\, k\, \frac{p_j}{1 - p_y}\Bigr), \quad j \ne y

    with p = softmax(r). Before the cut at 1 the expected number of wrong candidates is rate * k.

    Args:
        logits: the teacher's scores r.
        truth: true labels y.
        rate: 0.4 for ten classes, 0.04 for a hundred.

    References:
        [xu2021instance].

    Notes:
        The authors' code zeroes p_y and divides by the row's maximum and mean, which comes to the same but is
        0/0 for a confident teacher in float32. In log space, without the true label, it never is.
    """
    others = logits.double().scatter(1, truth[:, None].long(), -torch.inf).log_softmax(-1)
    return (rate * logits.shape[1] * others.exp()).clamp(max=1)


@dataclass(frozen=True)
class InstanceDependent(Corruption):
    """Wrong labels that a teacher trained on clean labels finds likely become candidates, independently.

    Give the teacher's logits of the same rows as `scores`; see `flip_probabilities`.

    Attributes:
        rate: expected number of wrong candidates per class, before probabilities are cut at 1.

    References:
        [xu2021instance].
    """

    rate: float = 0.4

    name, title, reference = "instance_dependent", "instance-dependent", "xu2021instance"
    needs_scores = True

    def __post_init__(self) -> None:
        if self.rate < 0:
            raise ValueError(f"rate: {self.rate}; give a number of at least 0.")

    def draw(self, rows: Rows, scores: Float[Tensor, "n k"] | None) -> Bool[Tensor, "n k"]:
        """One coin per wrong label."""
        assert scores is not None
        flips = flip_probabilities(scores, rows.truth, self.rate)
        return (rows.uniform_per_label(_LABELS) < flips) | rows.true_sets()

    def mean_size(self, scores: Float[Tensor, "n k"], truth: Int[Tensor, "n"]) -> float:
        """Expected number of candidates, averaged over the rows."""
        return 1 + float(flip_probabilities(scores, truth, self.rate).sum(-1).mean())


def set_probabilities(
    posterior: Float[Tensor, "k"], n: int
) -> tuple[Int[Tensor, "sets n"], Float[Tensor, "sets"]]:
    r"""All sets of n labels, in lexicographic order, and their probabilities given a posterior.

    .. math:: P(S \mid x) = \binom{k-1}{n-1}^{-1} \sum_{j \in S} p(j \mid x)

    References:
        [katsura2020bridging].
    """
    k = len(posterior)
    sets = torch.tensor(list(combinations(range(k), n)), device=posterior.device)
    return sets, posterior.double()[sets].sum(-1) / comb(k - 1, n - 1)


def inclusion_probabilities(posterior: Float[Tensor, "*b k"], n: int) -> Float[Tensor, "*b k"]:
    """Probability of each label to be in the set under `set_probabilities`: p + (1 - p)(n - 1)/(k - 1)."""
    p = posterior.double()
    return p + (1 - p) * (n - 1) / (p.shape[-1] - 1)


@dataclass(frozen=True)
class Annotator(Corruption):
    """Exactly n candidates from an annotator who is unsure: the set may miss the true label.

    A label drawn from softmax(scores), then n - 1 others uniformly without replacement; that is the law of
    `set_probabilities`.

    Attributes:
        n: number of candidates.

    References:
        [katsura2020bridging].
    """

    n: int = 2

    name, title, reference = "annotator", "exactly n candidates of an annotator", "katsura2020bridging"
    needs_scores = True

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"n: {self.n}; a candidate set holds at least 1 label.")

    def draw(self, rows: Rows, scores: Float[Tensor, "n k"] | None) -> Bool[Tensor, "n k"]:
        """The annotator's label in place of the true one, then as `Exactly`."""
        assert scores is not None
        _check_size(self.n, rows.n_classes)
        below = scores.double().softmax(-1).cumsum(-1)
        total = below[:, -1]
        # Rounding must not reach the total: that would pick a label past the last one with any probability.
        level = torch.minimum(rows.uniform(_POSTERIOR) * total, total.nextafter(torch.zeros_like(total)))
        chosen = (below <= level[:, None]).sum(-1)
        seen = Rows(chosen, rows.keys, rows.n_classes, rows.seed)
        return seen.sets_of_size(torch.full_like(chosen, self.n))


#: Every corruption under its own name.
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
    Annotator,
)

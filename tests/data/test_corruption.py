import math
import warnings
from collections import Counter
from fractions import Fraction
from itertools import chain, combinations, product
from math import prod

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from torch import Tensor
from torch.nn.functional import one_hot

from propall.data import corruption as module
from propall.data.corruption import (
    CORRUPTIONS,
    Annotator,
    Complementary,
    Corruption,
    Exactly,
    IndependentFlip,
    InstanceDependent,
    MissingTruth,
    Pair,
    POPUniformSet,
    PRODENBinomialMin2,
    RCCCCode,
    SizedCorruption,
    UniformProperSupersets,
    UninformativeSetsWarning,
    flip_probabilities,
    inclusion_probabilities,
    set_probabilities,
    uninformative_rows,
)

SIZED: list[SizedCorruption] = [
    UniformProperSupersets(),
    RCCCCode(),
    IndependentFlip(0.3),
    IndependentFlip(0.7),
    PRODENBinomialMin2(0.1),
    PRODENBinomialMin2(0.5),
    POPUniformSet(),
    Pair(0.4),
    Exactly(1),
    Exactly(3),
    Complementary(),
]
SYMMETRIC = [corruption for corruption in SIZED if corruption.name != "pair"]
ALL: list[Corruption] = [*SIZED, InstanceDependent(0.4), MissingTruth(0.3, 0.2), Annotator(2)]

# With few classes, many of these corruptions draw sets that contain every label.
pytestmark = pytest.mark.filterwarnings("ignore::propall.data.corruption.UninformativeSetsWarning")


def every_label(n: int, k: int) -> Tensor:
    return torch.arange(n) % k


def scores_for(corruption: Corruption, n: int, k: int) -> Tensor | None:
    if not corruption.needs_scores:
        return None
    return torch.randn(n, k, generator=torch.Generator().manual_seed(3)) * 2


def draw(corruption: Corruption, truth: Tensor, k: int, seed: int = 0, keys: Tensor | None = None) -> Tensor:
    return corruption(truth, k, seed, keys=keys, scores=scores_for(corruption, len(truth), k))


def subsets(labels: range) -> chain[tuple[int, ...]]:
    return chain.from_iterable(combinations(labels, size) for size in range(len(labels) + 1))


def p_value(counts: dict[object, int], probabilities: dict[object, float], n: int) -> float:
    """P-value of Pearson's chi-square test, with rare outcomes pooled; 0 if an outcome is impossible."""
    if any(probabilities.get(outcome, 0) == 0 for outcome in counts):
        return 0.0
    expected = np.array([n * p for p in probabilities.values()])
    observed = np.array([counts.get(outcome, 0) for outcome in probabilities], dtype=float)
    rare = expected < 5
    if rare.any():
        expected = np.append(expected[~rare], expected[rare].sum())
        observed = np.append(observed[~rare], observed[rare].sum())
    keep = expected > 0
    expected, observed = expected[keep], observed[keep]
    if len(expected) == 1:
        return 1.0
    return float(chi2.sf(((observed - expected) ** 2 / expected).sum(), len(expected) - 1))


# --- exact size distributions -------------------------------------------------------------------------------


def sizes_by_enumeration(corruption: SizedCorruption, k: int) -> list[Fraction]:
    """Size distribution by enumerating the outcomes of each procedure; the true label is 0."""
    sizes = [Fraction(0)] * (k + 1)
    if isinstance(corruption, UniformProperSupersets):
        outcomes = [1 + len(wrong) for wrong in subsets(range(1, k)) if len(wrong) < k - 1]
    elif isinstance(corruption, POPUniformSet):
        outcomes = [1 + len(wrong) for wrong in subsets(range(1, k)) if wrong]
    elif isinstance(corruption, RCCCCode):
        outcomes = [len(labels) for labels in subsets(range(k)) if 0 < len(labels) < k]
    elif isinstance(corruption, Exactly):
        outcomes = [corruption.n]
    elif isinstance(corruption, Complementary):
        outcomes = [k - 1]
    elif isinstance(corruption, Pair):
        q = Fraction(str(corruption.q))
        sizes[1], sizes[2] = 1 - q, q
        return sizes
    else:
        assert isinstance(corruption, IndependentFlip | PRODENBinomialMin2)
        q = Fraction(str(corruption.q))
        for coins in product([False, True], repeat=k - 1):
            size = 1 + sum(coins)
            if isinstance(corruption, PRODENBinomialMin2):
                size = max(size, 2)
            sizes[size] += prod((q if coin else 1 - q for coin in coins), start=Fraction(1))
        return sizes
    for size in outcomes:
        sizes[size] += Fraction(1, len(outcomes))
    return sizes


@pytest.mark.parametrize("k", [4, 5, 7])
@pytest.mark.parametrize("corruption", SIZED, ids=str)
def test_size_probabilities_are_the_enumerated_ones(corruption: SizedCorruption, k: int) -> None:
    sizes = corruption.size_probabilities(k)
    assert sizes == sizes_by_enumeration(corruption, k)
    assert sum(sizes) == 1
    assert corruption.mean_size(k) == sum(s * p for s, p in enumerate(sizes))
    assert corruption.wrong_label_inclusion_probability(k) == (corruption.mean_size(k) - 1) / (k - 1)


@pytest.mark.parametrize(
    ("corruption", "mean"),
    [
        (UniformProperSupersets(), 5.4912),
        (RCCCCode(), 5.0),
        (IndependentFlip(0.5), 5.5),
        (PRODENBinomialMin2(0.5), 5.5020),
        (POPUniformSet(), 5.5088),
    ],
    ids=str,
)
def test_the_five_uniform_models_differ_at_ten_classes(corruption: SizedCorruption, mean: float) -> None:
    assert round(float(corruption.mean_size(10)), 4) == mean


def test_wrong_labels_of_the_code_of_rc_and_cc_are_rarer_than_in_its_theory() -> None:
    assert RCCCCode().wrong_label_inclusion_probability(10) == Fraction(4, 9)
    assert UniformProperSupersets().wrong_label_inclusion_probability(10) == Fraction(255, 511)


def test_a_decimal_probability_is_taken_exactly() -> None:
    assert IndependentFlip(0.1).size_probabilities(2) == [0, Fraction(9, 10), Fraction(1, 10)]


def test_size_probabilities_of_two_hundred_classes_are_exact() -> None:
    sizes = RCCCCode().size_probabilities(200)
    assert sum(sizes) == 1
    assert sizes[1] == Fraction(200, 2**200 - 2)
    assert RCCCCode().mean_size(200) == 100


# --- draws follow the distributions -------------------------------------------------------------------------


@pytest.mark.parametrize("k", [4, 10])
@pytest.mark.parametrize("corruption", SIZED, ids=str)
def test_sizes_follow_their_distribution(corruption: SizedCorruption, k: int) -> None:
    n = 20_000
    sizes = draw(corruption, every_label(n, k), k).sum(-1).tolist()
    expected = {size: float(p) for size, p in enumerate(corruption.size_probabilities(k))}
    assert p_value(Counter(sizes), expected, n) > 1e-3


@pytest.mark.parametrize("corruption", SYMMETRIC, ids=str)
def test_sets_of_equal_size_are_equally_likely(corruption: SizedCorruption) -> None:
    n, k, true = 20_000, 5, 3
    sizes = corruption.size_probabilities(k)
    candidates = draw(corruption, torch.full((n,), true), k)
    drawn = Counter(tuple(row.nonzero().squeeze(-1).tolist()) for row in candidates)
    expected = {}
    for wrong in subsets(range(k - 1)):
        labels = tuple(sorted((true, *((true + 1 + step) % k for step in wrong))))
        same_size = sum(len(other) == len(wrong) for other in subsets(range(k - 1)))
        expected[labels] = float(sizes[len(labels)]) / same_size
    assert p_value(drawn, expected, n) > 1e-3


@pytest.mark.parametrize("corruption", SYMMETRIC, ids=str)
def test_every_wrong_label_is_equally_likely(corruption: SizedCorruption) -> None:
    n, k = 30_000, 10
    truth = every_label(n, k)
    candidates = draw(corruption, truth, k, seed=1)
    q = float(corruption.wrong_label_inclusion_probability(k))
    for true in range(k):
        rows = candidates[truth == true]
        wrong = [label for label in range(k) if label != true]
        share = rows[:, wrong].double().mean(0)
        bound = 4.5 * (q * (1 - q) / len(rows)) ** 0.5
        assert (share - q).abs().max() <= bound + 1e-12
        assert rows[:, true].all()


def test_neighboring_rows_and_labels_are_not_correlated() -> None:
    n, k = 50_000, 10
    coins = draw(IndependentFlip(0.5), torch.zeros(n, dtype=torch.long), k)[:, 1:].double() - 0.5
    bound = 5 * 0.25 / n**0.5
    assert (coins[1:] * coins[:-1]).mean(0).abs().max() < bound
    assert (coins[:, 1:] * coins[:, :-1]).mean(0).abs().max() < bound


def test_pair_adds_the_next_label_only() -> None:
    n, k = 20_000, 5
    truth = every_label(n, k)
    candidates = draw(Pair(0.4), truth, k)
    successor = one_hot((truth + 1) % k, k).bool()
    assert not (candidates & ~one_hot(truth, k).bool() & ~successor).any()
    share = float((candidates & successor).any(-1).double().mean())
    assert abs(share - 0.4) < 4.5 * (0.24 / n) ** 0.5


def test_instance_dependent_sets_follow_the_flip_probabilities() -> None:
    n, k = 40_000, 6
    scores = torch.tensor([[3.0, 1.0, 0.0, -1.0, 2.0, -4.0]]).expand(n, k)
    truth = torch.zeros(n, dtype=torch.long)
    corruption = InstanceDependent(0.4)
    share = corruption(truth, k, 0, scores=scores).double().mean(0)
    flips = flip_probabilities(scores[:1], truth[:1], 0.4)[0]
    expected = flips + one_hot(torch.tensor(0), k)
    assert ((share - expected).abs() <= 4.5 * (expected * (1 - expected) / n).sqrt()).all()
    assert abs(corruption.mean_size(scores, truth) - float(expected.sum())) < 1e-12


@pytest.mark.parametrize("n_candidates", [1, 2, 4])
def test_an_annotators_sets_follow_the_posterior(n_candidates: int) -> None:
    n, k = 20_000, 5
    posterior = torch.tensor([0.5, 0.2, 0.15, 0.1, 0.05], dtype=torch.float64)
    corruption = Annotator(n_candidates)
    candidates = corruption(torch.zeros(n, dtype=torch.long), k, 0, scores=posterior.log().expand(n, k))
    sets, probabilities = set_probabilities(posterior, n_candidates)
    drawn = Counter(tuple(row.nonzero().squeeze(-1).tolist()) for row in candidates)
    expected = {tuple(s): p for s, p in zip(sets.tolist(), probabilities.tolist(), strict=True)}
    assert p_value(drawn, expected, n) > 1e-3


def test_a_certain_annotator_always_includes_the_label() -> None:
    n, k = 5_000, 4
    truth = every_label(n, k)
    candidates = Annotator(2)(truth, k, 0, scores=one_hot(truth, k).double() * 1e4)
    assert candidates[torch.arange(n), truth].all()
    assert (candidates.sum(-1) == 2).all()


def test_the_chi_square_test_can_fail() -> None:
    expected = {1: 0.5, 2: 0.5}
    assert p_value(Counter({1: 500, 2: 500}), expected, 1000) > 0.9
    assert p_value(Counter({1: 600, 2: 400}), expected, 1000) < 1e-3
    assert p_value(Counter({1: 500, 2: 499, 3: 1}), expected, 1000) == 0


# --- exact tables -------------------------------------------------------------------------------------------


def test_set_probabilities_sum_to_one_and_give_the_inclusion_probabilities() -> None:
    posterior = torch.tensor([0.1, 0.6, 0.2, 0.1], dtype=torch.float64)
    for n in range(1, 5):
        sets, probabilities = set_probabilities(posterior, n)
        assert sets.tolist() == [list(s) for s in combinations(range(4), n)]
        inside = one_hot(sets, 4).sum(1).double()
        assert abs(float(probabilities.sum()) - 1) < 1e-12
        assert (probabilities @ inside - inclusion_probabilities(posterior, n)).abs().max() < 1e-12


def test_a_certain_posterior_gives_the_distribution_of_exactly_n() -> None:
    _, probabilities = set_probabilities(torch.tensor([0.0, 1.0, 0.0, 0.0]), 2)
    assert torch.allclose(probabilities, torch.tensor([1, 0, 0, 1, 1, 0], dtype=torch.float64) / 3)


@pytest.mark.parametrize("rate", [-0.1, math.nan, math.inf])
def test_the_rate_of_instance_dependent_sets_is_a_number(rate: float) -> None:
    with pytest.raises(ValueError, match=r"rate: got .*; expected a finite number, 0 or more"):
        InstanceDependent(rate)


@pytest.mark.parametrize("rate", [0.04, 0.4, 0.9])
def test_flip_probabilities_are_the_published_order_of_operations(rate: float) -> None:
    n, k = 50, 10
    logits = torch.randn(n, k, dtype=torch.float64) * 3
    truth = every_label(n, k)
    p = logits.softmax(-1)
    p[torch.arange(n), truth] = 0
    p = p / p.amax(-1, keepdim=True)
    p = p / p.mean(-1, keepdim=True) * rate
    assert torch.allclose(flip_probabilities(logits, truth, rate), p.clamp(max=1), rtol=1e-10, atol=1e-14)


def test_flip_probabilities_survive_a_certain_teacher() -> None:
    logits = torch.tensor([[2000.0, 0.0, 1.0, 2.0, -3.0]])
    flips = flip_probabilities(logits, torch.tensor([0]), 0.4)
    wrong = torch.tensor([0.0, 1.0, 2.0, -3.0], dtype=torch.float64).softmax(-1)
    assert flips[0, 0] == 0
    assert torch.allclose(flips[0, 1:], (2 * wrong).clamp(max=1), rtol=1e-12)


# --- streams ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("corruption", ALL, ids=str)
def test_same_seed_same_sets_other_seed_other_sets(corruption: Corruption) -> None:
    n, k = 400, 6
    truth = every_label(n, k)
    first = draw(corruption, truth, k)
    assert torch.equal(first, draw(corruption, truth, k))
    if corruption != Exactly(1):
        assert not torch.equal(first, draw(corruption, truth, k, seed=1))


@pytest.mark.parametrize("corruption", ALL, ids=str)
def test_a_row_does_not_depend_on_the_others(corruption: Corruption) -> None:
    n, k = 300, 6
    truth = every_label(n, k)
    scores = scores_for(corruption, n, k)
    whole = corruption(truth, k, 7, scores=scores)
    rows = torch.tensor([299, 3, 150, 4])
    part = corruption(truth[rows], k, 7, keys=rows, scores=None if scores is None else scores[rows])
    assert torch.equal(part, whole[rows])
    others = truth.clone()
    others[1:] = (others[1:] + 1) % k
    assert torch.equal(corruption(others, k, 7, scores=scores)[0], whole[0])


@pytest.mark.parametrize("corruption", ALL, ids=str)
def test_the_size_of_the_blocks_changes_nothing(
    corruption: Corruption, monkeypatch: pytest.MonkeyPatch
) -> None:
    n, k = 101, 6
    truth = every_label(n, k)
    whole = draw(corruption, truth, k)
    monkeypatch.setattr(module, "_BLOCK", 20)
    assert torch.equal(draw(corruption, truth, k), whole)


@pytest.mark.parametrize("corruption", ALL, ids=str)
def test_no_rows_give_no_sets(corruption: Corruption) -> None:
    assert draw(corruption, torch.zeros(0, dtype=torch.long), 5).shape == (0, 5)


@pytest.mark.parametrize("corruption", SIZED, ids=str)
def test_two_hundred_classes(corruption: SizedCorruption) -> None:
    n, k = 400, 200
    truth = every_label(n, k)
    candidates = draw(corruption, truth, k)
    assert candidates[torch.arange(n), truth].all()
    sizes = candidates.sum(-1).double()
    assert abs(float(sizes.mean()) - float(corruption.mean_size(k))) < 5 * float(sizes.std()) / n**0.5 + 1e-9


# --- edges --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "corruption", [UniformProperSupersets(), RCCCCode(), Exactly(1), Complementary()], ids=str
)
def test_two_classes_leave_the_truth_alone(corruption: Corruption) -> None:
    truth = every_label(1000, 2)
    assert torch.equal(draw(corruption, truth, 2), one_hot(truth, 2).bool())


@pytest.mark.parametrize("corruption", [PRODENBinomialMin2(0.3), POPUniformSet()], ids=str)
def test_two_classes_and_two_candidates_are_uninformative(corruption: Corruption) -> None:
    with pytest.warns(UninformativeSetsWarning, match="1000 of 1000 candidate sets contain all 2 labels"):
        candidates = draw(corruption, every_label(1000, 2), 2)
    assert candidates.all()
    assert uninformative_rows(candidates) == 1000


def test_a_few_full_sets_are_counted_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        candidates = draw(PRODENBinomialMin2(0.5), every_label(20_000, 10), 10)
    assert 10 < uninformative_rows(candidates) < 80  # 39 expected


def test_no_probability_means_clean_labels() -> None:
    truth = every_label(100, 5)
    for corruption in (IndependentFlip(0.0), PRODENBinomialMin2(0.0), Pair(0.0)):
        assert torch.equal(draw(corruption, truth, 5), one_hot(truth, 5).bool())
        assert corruption.size_probabilities(5)[1] == 1


def test_probability_one_means_every_label() -> None:
    assert draw(IndependentFlip(1.0), every_label(100, 5), 5).all()
    assert IndependentFlip(1.0).size_probabilities(5)[5] == 1


@pytest.mark.parametrize("make", [IndependentFlip, PRODENBinomialMin2, Pair])
@pytest.mark.parametrize("q", [-0.1, 1.5, float("nan")])
def test_invalid_probabilities_are_refused(make: type, q: float) -> None:
    with pytest.raises(ValueError, match=r"q: got .*; expected a probability"):
        make(q)


def test_invalid_arguments_are_refused() -> None:
    truth, scores = every_label(6, 3), torch.zeros(6, 3)
    with pytest.raises(ValueError, match=r"truth: 2 labels outside 0..1 \(first: 2 in row 2\)"):
        UniformProperSupersets()(truth, 2, 0)
    with pytest.raises(ValueError, match="n_classes: got 1"):
        UniformProperSupersets()(torch.zeros(4, dtype=torch.long), 1, 0)
    with pytest.raises(ValueError, match="n: got 3 candidates of 3 classes"):
        Exactly(3)(truth, 3, 0)
    with pytest.raises(ValueError, match="n: got 0"):
        Exactly(0)
    with pytest.raises(ValueError, match="scores: exactly uses only the true labels"):
        Exactly(2)(truth, 3, 0, scores=scores)
    with pytest.raises(ValueError, match="scores: instance_dependent needs logits"):
        InstanceDependent()(truth, 3, 0)
    with pytest.raises(ValueError, match=r"scores: got shape \(6, 2\); expected \(6, 3\)"):
        InstanceDependent()(truth, 3, 0, scores=scores[:, :2])
    with pytest.raises(ValueError, match="scores: some are NaN or infinite"):
        InstanceDependent()(truth, 3, 0, scores=scores / 0)
    with pytest.raises(ValueError, match="rate: got -1"):
        InstanceDependent(-1.0)


def test_every_corruption_is_registered_under_its_name() -> None:
    assert {corruption.name for corruption in ALL} == set(CORRUPTIONS)
    for name, corruption in CORRUPTIONS.items():
        assert corruption().name == name
        assert corruption.title
        assert corruption.reference


def test_missing_truth_drops_the_true_label_and_nothing_else() -> None:
    n, k = 40_000, 6
    truth = every_label(n, k)
    sets = draw(MissingTruth(0.3, 0.2), truth, k)
    has_truth = sets.gather(1, truth[:, None]).squeeze(1)
    assert sets.any(-1).all()
    assert float(has_truth.double().mean()) == pytest.approx(0.8, abs=0.01)
    wrong = sets & ~one_hot(truth, k).bool()
    assert float(wrong[has_truth].double().mean()) * k / (k - 1) == pytest.approx(0.3, abs=0.01)
    # Without the true label, a set without any wrong label gets one: 5 * 0.3 + 0.7^5.
    assert float(wrong[~has_truth].sum(-1).double().mean()) == pytest.approx(5 * 0.3 + 0.7**5, abs=0.04)
    assert torch.equal(draw(MissingTruth(0.3, 0.0), truth, k), draw(IndependentFlip(0.3), truth, k))
    assert not draw(MissingTruth(0.3, 1.0), truth, k).gather(1, truth[:, None]).any()
    with pytest.raises(ValueError, match="missing: got"):
        MissingTruth(0.3, 1.5)

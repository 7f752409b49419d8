"""Draws are uniform, independent and reproducible on any device and in any batch."""

from itertools import permutations
from math import comb

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from propall import counter_rng

SEED = counter_rng.seed_for(7, "noise")
# Seeds are fixed, so every p-value below is a constant. A sound generator fails one test in a thousand.
RARE = 1e-3


def grid(*sizes: int) -> list[Tensor]:
    """One counter per axis, shaped to broadcast to all positions."""
    axes = len(sizes)
    return [
        torch.arange(n).reshape([-1 if i == axis else 1 for i in range(axes)]) for axis, n in enumerate(sizes)
    ]


def words_by_hand(seed: int, *counters: int) -> tuple[int, int]:
    """The same arithmetic on Python integers, which cannot overflow."""
    low = 2**32

    def mix(word: int) -> int:
        word = (word ^ word >> 16) * 0x21F0AAAD % low
        word = (word ^ word >> 15) * 0x735A2D97 % low
        return word ^ word >> 15

    a, b = mix(seed % low), mix(seed // low % low ^ 0x5BD1E995)
    for counter in counters:
        a = mix((a ^ counter) % low)
        b = mix((b + a + 0x1B873593) % low)
    return mix(a ^ b >> 7), mix(b ^ a >> 5)


# Uniform


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("purpose", ["noise", "corruption", "order"])
def test_uniform_draws_are_uniform(purpose: str, dtype: torch.dtype) -> None:
    sample = (
        counter_rng.uniform(counter_rng.seed_for(3, purpose), *grid(20, 100, 10), dtype=dtype)
        .flatten()
        .double()
    )
    assert sample.shape == (20_000,)
    assert stats.kstest(sample, "uniform").pvalue > RARE
    counts = torch.histc(sample, bins=256, min=0, max=1).numpy()
    assert stats.chisquare(counts).pvalue > RARE


@pytest.mark.parametrize("axis", [0, 1, 2], ids=["step", "row", "class"])
def test_neighbors_are_independent(axis: int) -> None:
    sample = counter_rng.uniform(SEED, *grid(40, 40, 40), dtype=torch.float64)
    even, odd = torch.arange(0, 40, 2), torch.arange(1, 40, 2)
    here, next_one = sample.index_select(axis, even).flatten(), sample.index_select(axis, odd).flatten()
    table = np.histogram2d(here, next_one, bins=8, range=[[0, 1], [0, 1]])[0]
    assert stats.chisquare(table.flatten()).pvalue > RARE
    assert stats.pearsonr(here, next_one).pvalue > RARE


def test_neighboring_seeds_and_both_words_are_independent() -> None:
    seeds = torch.arange(200)[:, None]
    sample = counter_rng.uniform(seeds, torch.arange(100), dtype=torch.float64)
    assert stats.pearsonr(sample[:-1].flatten(), sample[1:].flatten()).pvalue > RARE
    a, b = counter_rng.words(SEED, torch.arange(20_000))
    assert stats.pearsonr(a.double(), b.double()).pvalue > RARE


def test_every_bit_is_fair() -> None:
    n = 20_000
    for word in counter_rng.words(SEED, torch.arange(n)):
        ones = ((word[:, None] >> torch.arange(32)) & 1).sum(0).double()
        # The largest of 32 standard scores exceeds 4.5 once in about 4600 tries.
        assert ((ones - n / 2).abs() / (n / 4) ** 0.5).max() < 4.5


def test_positions_do_not_collide() -> None:
    a, b = counter_rng.words(SEED, *grid(64, 2048, 8))
    pairs = ((a << 31) ^ b).flatten()
    # With 63 bits, 2^20 positions collide with probability 6e-8; with 32 bits, about 128 pairs would.
    assert comb(pairs.numel(), 2) / 2**63 < 1e-7
    assert pairs.unique().numel() == pairs.numel() == 2**20


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("on_cpu", [True, False])
@pytest.mark.parametrize("word", [0, 0xFFFFFFFF], ids=["lowest", "highest"])
def test_the_interval_is_open(
    monkeypatch: pytest.MonkeyPatch, word: int, dtype: torch.dtype, on_cpu: bool
) -> None:
    # The extreme words are too rare to be drawn, so they are patched in.
    monkeypatch.setattr(counter_rng, "_on_cpu", lambda *_: on_cpu)
    monkeypatch.setattr(counter_rng, "words", lambda *_: (torch.tensor(word), torch.tensor(word)))
    short = np.array(word, dtype=np.uint32)
    monkeypatch.setattr(counter_rng, "_words_on_cpu", lambda *_: (short, short))
    whole = [(slice(None), np.full((1, 1), short))]
    monkeypatch.setattr(counter_rng, "_first_words_on_cpu", lambda *_: whole)
    value = counter_rng.uniform(SEED, 0, dtype=dtype)
    assert value.dtype == dtype
    assert 0 < value.item() < 1
    assert torch.isfinite(value.logit())
    bits = 23 if dtype == torch.float32 else 52
    assert min(value.item(), 1 - value.item()) == 2.0 ** -(bits + 1)


@pytest.mark.parametrize("on_cpu", [True, False])
def test_words_are_those_of_exact_arithmetic(monkeypatch: pytest.MonkeyPatch, on_cpu: bool) -> None:
    monkeypatch.setattr(counter_rng, "_on_cpu", lambda *_: on_cpu)
    for seed in (0, 1, 2**32 - 1, 2**32, 2**62 - 1, SEED):
        for counters in ((), (0,), (5,), (2**32 - 1, 0), (1, 2, 3), (60_000, 49_999, 9)):
            a, b = counter_rng.words(seed, *counters)
            assert (a.item(), b.item()) == words_by_hand(seed, *counters)


def test_single_precision_is_double_precision_truncated_to_23_bits() -> None:
    single, double = (
        counter_rng.uniform(SEED, *grid(50, 10), dtype=dtype) for dtype in (torch.float32, torch.float64)
    )
    assert torch.equal(single.double(), ((double * 2**23).floor() + 0.5) / 2**23)


def test_draws_do_not_change_between_versions() -> None:
    seed = counter_rng.seed_for(0, "noise")
    assert seed == 3333600788053196569
    sample = counter_rng.uniform(seed, *grid(1, 3), dtype=torch.float64)
    assert sample.tolist() == [[0.8988242528779459, 0.9091515441812085, 0.3279015773660713]]


# Independence of the batch


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_draw_the_same_in_any_batch(dtype: torch.dtype) -> None:
    rows, classes = torch.arange(50)[:, None], torch.arange(7)
    full = counter_rng.uniform(SEED, 4, rows, classes, dtype=dtype)
    for batch in (
        torch.tensor([0]),
        torch.tensor([31, 2, 49]),
        torch.arange(50).flip(0),
        torch.tensor([5, 5]),
    ):
        assert torch.equal(counter_rng.uniform(SEED, 4, batch[:, None], classes, dtype=dtype), full[batch])
    assert torch.equal(counter_rng.uniform(SEED, 4, rows, torch.arange(3), dtype=dtype), full[:, :3])
    assert counter_rng.uniform(SEED, 4, 31, 6, dtype=dtype) == full[31, 6]


def test_stacked_seeds_draw_like_single_ones() -> None:
    seeds = [counter_rng.seed_for(seed, "noise") for seed in range(5)]
    rows, classes = torch.arange(6)[:, None], torch.arange(4)
    stacked = counter_rng.uniform(torch.tensor(seeds)[:, None, None], 2, rows, classes)
    assert stacked.shape == (5, 6, 4)
    for seed, sample in zip(seeds, stacked, strict=True):
        assert torch.equal(counter_rng.uniform(seed, 2, rows, classes), sample)
    orders = counter_rng.order(torch.tensor(seeds)[:, None], torch.arange(9))
    for seed, order in zip(seeds, orders, strict=True):
        assert torch.equal(counter_rng.order(seed, torch.arange(9)), order)


def test_draws_repeat_and_leave_the_global_generator_alone() -> None:
    state = torch.get_rng_state()
    first = counter_rng.uniform(SEED, *grid(3, 4, 5))
    torch.rand(1)
    assert torch.equal(counter_rng.uniform(SEED, *grid(3, 4, 5)), first)
    torch.set_rng_state(state)
    counter_rng.order(SEED, torch.arange(9))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_step_changes_all_draws() -> None:
    one, other = (counter_rng.uniform(SEED, step, *grid(100, 10)) for step in (0, 1))
    assert not (one == other).any()


def test_counters_are_not_interchangeable() -> None:
    assert counter_rng.uniform(SEED, 1, 2) != counter_rng.uniform(SEED, 2, 1)
    assert counter_rng.uniform(SEED, 1) != counter_rng.uniform(SEED, 1, 0)


@pytest.mark.gpu
def test_the_device_does_not_matter() -> None:
    counters = grid(3, 50, 10)
    there = [counter.cuda() for counter in counters]
    for dtype in (torch.float32, torch.float64):
        here = counter_rng.uniform(SEED, *counters, dtype=dtype)
        assert torch.equal(counter_rng.uniform(SEED, *there, dtype=dtype).cpu(), here)
    assert torch.equal(counter_rng.order(SEED, *there).cpu(), counter_rng.order(SEED, *counters))


# Orders


@pytest.mark.parametrize("n", [1, 2, 17, 5000])
def test_an_order_is_a_permutation(n: int) -> None:
    order = counter_rng.order(SEED, torch.arange(3)[:, None], torch.arange(n))
    assert order.dtype == torch.int64
    assert torch.equal(order.sort(-1).values, torch.arange(n).expand(3, n))


def test_all_permutations_are_equally_likely() -> None:
    orders = counter_rng.order(SEED, torch.arange(24_000)[:, None], torch.arange(4))
    counts = dict.fromkeys(permutations(range(4)), 0)
    for order in orders.tolist():
        counts[tuple(order)] += 1
    assert stats.chisquare(list(counts.values())).pvalue > RARE


def test_every_place_is_equally_likely() -> None:
    orders = counter_rng.order(SEED, torch.arange(2000)[:, None], torch.arange(10))
    counts = torch.zeros(10, 10, dtype=torch.int64)
    counts.index_put_((torch.arange(10).expand(2000, 10), orders), torch.tensor(1), accumulate=True)
    # The row and column sums are fixed, which leaves 81 degrees of freedom and a factor 9/10.
    statistic = ((counts - 200) ** 2 / 200).sum().item() * 9 / 10
    assert stats.chi2.sf(statistic, 81) > RARE


@pytest.mark.parametrize("on_cpu", [True, False])
def test_equal_keys_keep_their_order(monkeypatch: pytest.MonkeyPatch, on_cpu: bool) -> None:
    monkeypatch.setattr(counter_rng, "_on_cpu", lambda *_: on_cpu)
    monkeypatch.setattr(counter_rng, "words", lambda *_: (torch.zeros(100).long(), torch.zeros(100).long()))
    monkeypatch.setattr(
        counter_rng, "_words_on_cpu", lambda *_: (np.zeros(100, np.uint32), np.zeros(100, np.uint32))
    )
    assert counter_rng.order(SEED, torch.arange(100)).tolist() == list(range(100))


# Seeds and names


def test_every_purpose_and_every_run_has_its_own_seed() -> None:
    purposes = ("corruption", "split", "initialisation", "order", "noise")
    seeds = [counter_rng.seed_for(seed, purpose) for seed in range(-2, 1000) for purpose in purposes]
    assert len(set(seeds)) == len(seeds)
    assert 0 <= min(seeds) <= max(seeds) < 2**62
    assert counter_rng.seed_for(3, "order") == counter_rng.seed_for(3, "order")
    # The high half of a seed matters too.
    assert counter_rng.uniform(5, 0) != counter_rng.uniform(5 + 2**40, 0)


def test_a_digest_identifies_contents() -> None:
    table = torch.arange(6).reshape(2, 3)
    name = counter_rng.digest("data", table, None)
    assert name == counter_rng.digest("data", table.t().contiguous().t(), None)
    others = [
        counter_rng.digest("data", table),
        counter_rng.digest("date", table, None),
        counter_rng.digest("data", table + 1, None),
        counter_rng.digest("data", table.reshape(3, 2), None),
        counter_rng.digest("data", table.int(), None),
        counter_rng.digest("data", table, "None"),
        counter_rng.digest(table, "data", None),
    ]
    assert len({name, *others}) == 1 + len(others)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_numpy_path_gives_the_same_draws(dtype, monkeypatch):
    g = torch.Generator().manual_seed(0)
    seeds = torch.randint(0, 2**62, (3, 1, 1), generator=g)
    steps = torch.randint(0, 2**40, (7, 1), generator=g)
    keys = torch.randint(-(2**40), 2**62, (3, 7, 1), generator=g)
    parts = [
        (seeds, steps, keys, torch.arange(11)),
        (seeds[0, 0, 0], 3, keys[0]),
        (5, torch.arange(4)),
        (2**61, 7),
    ]
    on_numpy = [(counter_rng.uniform(*part, dtype=dtype), counter_rng.order(*part)) for part in parts[:3]]
    on_numpy.append((counter_rng.uniform(*parts[3], dtype=dtype), None))
    monkeypatch.setattr(counter_rng, "_on_cpu", lambda *_parts: False)
    for part, (uniform, order) in zip(parts, on_numpy, strict=True):
        plain = counter_rng.uniform(*part, dtype=dtype)
        assert uniform.dtype == dtype
        assert uniform.shape == plain.shape
        assert torch.equal(uniform, plain)
        assert order is None or torch.equal(order, counter_rng.order(*part))


@pytest.mark.parametrize(
    "counters",
    [
        lambda i: (i(5)[:, None, None], i(700)[:, None], i(16)),  # rows times labels, in several blocks
        lambda i: (i(3)[:, None, None], i(5)[:, None], i(4)),
        lambda i: (i(12).view(3, 4),),
        lambda i: (i(3)[:, None], i(12).view(3, 4)),
        lambda i: (i(7), 3),
        lambda i: (i(0)[:, None], i(4)),
        lambda i: (3, 4),
    ],
)
def test_numbers_do_not_depend_on_how_many_are_drawn_at_once(counters, monkeypatch):
    monkeypatch.setattr(counter_rng, "WORDS_AT_ONCE", 1000)
    counters = counters(torch.arange)
    high, _ = counter_rng.words(counter_rng.seed_for(0, "noise"), *counters)
    expected = ((high >> 9).float() + 0.5) / 2**23
    assert torch.equal(counter_rng.uniform(counter_rng.seed_for(0, "noise"), *counters), expected)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 1000])
@pytest.mark.parametrize("most", [1, 3, 2**12, 2**63 - 1])
def test_argsort_is_stable_for_equal_and_close_keys(n, most):
    keys = np.random.default_rng(0).integers(0, most, (4, 2, n))
    assert np.array_equal(counter_rng._argsort(keys), np.argsort(keys, axis=-1, kind="stable"))

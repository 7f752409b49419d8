"""Classes that are nearly always candidates together are found without true labels."""

import numpy as np
import pytest

from propall.estimators.cooccurrence import entangled_pairs, estimate_inclusion

CLASSES, ROWS = 8, 4000


def draw_sets(together, q=0.2, seed=0):
    """Classes 0 and 1 are partners; all other wrong labels are independent."""
    draw = np.random.default_rng(seed)
    truth = draw.integers(CLASSES, size=ROWS)
    chance = np.full((ROWS, CLASSES), q)
    chance[truth == 0, 1] = chance[truth == 1, 0] = together
    chance[np.arange(ROWS), truth] = 1
    return draw.random((ROWS, CLASSES)) < chance, truth


@pytest.mark.parametrize("together", [0.6, 0.95, 1.0])
def test_inclusion_is_estimated_from_the_sets_alone(together):
    sets, truth = draw_sets(together)
    shares, inclusion = estimate_inclusion(sets)
    true_inclusion = np.array([sets[truth == label].mean(0) for label in range(CLASSES)])
    assert shares == pytest.approx(np.full(CLASSES, 1 / CLASSES), abs=0.06)
    assert inclusion[0, 1] == pytest.approx(true_inclusion[0, 1], abs=0.1)
    assert inclusion[1, 0] == pytest.approx(true_inclusion[1, 0], abs=0.1)
    assert np.abs(inclusion - true_inclusion).mean() < 0.06


def test_only_entangled_classes_are_found():
    (pair,) = entangled_pairs(draw_sets(0.98)[0])
    assert (pair.one, pair.other) == (0, 1)
    assert 0.9 <= pair.share <= 1
    for together in (0.2, 0.7):
        assert entangled_pairs(draw_sets(together)[0]) == []


def test_large_sets_and_small_tables_give_no_pairs():
    draw = np.random.default_rng(0)
    truth = draw.integers(CLASSES, size=ROWS)
    excluded = (truth + draw.integers(1, CLASSES, size=ROWS)) % CLASSES
    complementary = ~np.eye(CLASSES, dtype=bool)[excluded]
    assert entangled_pairs(complementary) == []
    assert entangled_pairs(draw_sets(0.8, q=0.8)[0]) == []
    assert entangled_pairs(draw_sets(1.0)[0][:25]) == []
    assert entangled_pairs(np.ones((100, 2), dtype=bool)) == []
    assert entangled_pairs(np.ones((100, 60), dtype=bool)) == []


def test_rows_where_every_class_is_possible_do_not_count():
    sets, _ = draw_sets(0.7)
    assert entangled_pairs(np.concatenate([sets, np.ones_like(sets)])) == []

"""results/scripts/balance_term.py: its data, and two short trainings."""

import numpy as np
import pytest

from results.scripts import balance_term as script
from results.scripts.balance_term import Setting


def test_there_is_one_setting_per_line_of_the_file():
    settings = list(script.settings())
    assert len(settings) == len(set(settings)) == 5 * 2 * 3 * 5 + 3 * 2 * 3 * 5 + 3 * 2 * 2
    assert {setting.law for setting in settings} == set(script.LAWS)


def test_unequal_classes_are_thinned_out_alike_for_training_and_testing():
    equal, unequal = (script.draw_images(Setting("digits", "", flag, "none", 0)) for flag in (False, True))
    assert len(equal.x) + len(equal.test_x) == 1797
    whole, kept = np.bincount(equal.y), np.bincount(unequal.y, minlength=10)
    shares = kept / whole
    assert shares.max() == 1  # the first class in the order
    assert shares.min() < 0.25
    shares_of_test = np.bincount(unequal.test_y, minlength=10) / np.bincount(equal.test_y)
    assert np.corrcoef(shares, shares_of_test)[0, 1] > 0.9


def test_eights_are_one_of_two_classes_and_may_be_rare():
    equal, unequal = (script.draw_images(Setting("eights", "", flag, "none", 0)) for flag in (False, True))
    assert 0.08 < equal.y.mean() < 0.12
    assert 0.02 < unequal.y.mean() < 0.05
    assert (equal.y == 0).sum() == (unequal.y == 0).sum()


def test_pairs_of_digits_have_both_in_their_class():
    images = script.draw_images(Setting("pairs", "", unequal=False, term="none", seed=0))
    assert images.x.shape == (6000, 8, 16)
    assert set(images.test_y) == set(range(100))
    single = script.draw_images(Setting("digits", "", unequal=False, term="none", seed=0))
    digits = {image.tobytes(): label for image, label in zip(single.x, single.y, strict=True)}
    for image, label in zip(images.x[:50], images.y[:50], strict=True):
        halves = [digits[np.ascontiguousarray(half).tobytes()] for half in (image[:, :8], image[:, 8:])]
        assert halves == [label // 10, label % 10]


@pytest.mark.parametrize(
    ("data", "law"),
    [("digits", "instance-dependent"), ("digits", "one complementary label"), ("eights", "uniform, q = 0.8")],
)
def test_a_short_training_is_measured(data, law):
    measured = script.run(Setting(data, law, unequal=True, term="fading", seed=0), epochs=1)
    assert list(measured) == list(script.COLUMNS[5:])
    assert 0 <= measured["accuracy"] <= 1
    assert 0 <= measured["lost"] <= 10

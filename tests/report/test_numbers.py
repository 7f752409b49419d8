import pytest

from propall.report.numbers import (
    choose_ticks,
    format_mean,
    format_number,
    format_percent,
    format_tick,
    mean_and_std,
)


@pytest.mark.parametrize(
    ("value", "signed", "text"),
    [(97.888, False, "97.89"), (-0.001, True, "0.00"), (0.3, True, "+0.30"), (-1.5, True, "−1.50")],
)
def test_format_number(value, signed, text):
    assert format_number(value, signed=signed) == text


def test_format_mean():
    assert format_mean(97.888, 0.084) == "97.89 (0.08)"
    assert format_mean(97.888) == "97.89"
    assert format_percent(97.888).split() == ["97.89", "%"]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (83, 97.2, [85, 90, 95]), (1, 40, [10, 20, 30, 40]), (5, 5, [5])],
)
def test_ticks_are_round_and_few(low, high, expected):
    assert choose_ticks(low, high) == pytest.approx(expected)
    assert [format_tick(tick) for tick in choose_ticks(-1, 0, 2)] == ["−1", "−0.5", "0"]


def test_mean_and_std():
    assert mean_and_std([1, 2, 4]) == pytest.approx((7 / 3, 1.5275252316519468))
    assert mean_and_std([5.0]) == (5.0, None)

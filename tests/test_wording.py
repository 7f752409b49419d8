import pytest

from propall.wording import human_time, rough_time


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.314, "0.31 s"), (9.96, "10 s"), (59.4, "59 s"), (200, "3 min 20 s"), (7500.0, "2 h 05 min")],
)
def test_measured_times(seconds, text):
    assert human_time(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(5.0, "5 s"), (90.0, "2 min"), (7200.0, "2.0 h")])
def test_estimated_times(seconds, text):
    assert rough_time(seconds) == text

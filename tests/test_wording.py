import pytest

from propall.wording import (
    approximate_duration,
    class_hint,
    did_you_mean,
    duration,
    join_names,
    list_names,
    plural,
)


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [(1, "row", "1 row"), (3, "row", "3 rows"), (0, "class", "0 classes"), (1, "class", "1 class")],
)
def test_counts(count, noun, text):
    assert plural(count, noun) == text


def test_lists():
    assert [join_names(list("abc"[:n])) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
    assert list_names(["a", 1]) == "'a', 1"
    assert list_names(range(5), 3) == "0, 1, 2, ... 2 more"


def test_suggestions():
    assert did_you_mean("prodn", ["proden", "prod", "cc"]) == "did you mean 'proden' or 'prod'?"
    assert did_you_mean("x", ["proden"]) == did_you_mean(3, [3, 4]) == ""
    assert class_hint("dgo", ("cat", "dog")) == " (did you mean 'dog'?)"
    assert class_hint("1", (0, 1)) == " (the label has type str, that class int)"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.314, "0.31 s"), (9.96, "10 s"), (59.4, "59 s"), (200, "3 min 20 s"), (7500.0, "2 h 05 min")],
)
def test_measured_times(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(5.0, "5 s"), (90.0, "2 min"), (7200.0, "2.0 h")])
def test_estimated_times(seconds, text):
    assert approximate_duration(seconds) == text

"""Typos in label names."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from propall.tables import spelling
from propall.tables.spelling import edit_distance, find_typos, is_similar


@pytest.mark.parametrize(
    ("one", "other", "letters"),
    [
        ("", "", 0),
        ("cat", "cat", 0),
        ("cat", "cats", 1),
        ("cat", "act", 1),
        ("kitten", "sitting", 3),
        ("a", "", 1),
    ],
)
def test_edit_distance(one, other, letters) -> None:
    assert edit_distance(one, other) == edit_distance(other, one) == letters


@pytest.mark.parametrize(
    ("one", "other", "near"),
    [
        ("herrng gull", "herring gull", True),
        ("Herring_Gull", "herring gull", True),
        ("dgo", "dog", True),
        ("cat", "car", False),
        ("class 1", "class 2", False),
        ("type10", "type1", False),
        ("tern", "turn", True),
        ("male", "female", False),
        ("no", "on", False),
    ],
)
def test_similarity(one, other, near) -> None:
    assert is_similar(one, other) == is_similar(other, one) == near


def reference_distance(one, other) -> int:
    """The optimal string alignment distance by its definition."""
    rows = [[max(i, j) if not (i and j) else 0 for j in range(len(other) + 1)] for i in range(len(one) + 1)]
    for i, a in enumerate(one, 1):
        for j, b in enumerate(other, 1):
            best = min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                best = min(best, rows[i - 2][j - 2] + 1)
            rows[i][j] = best
    return rows[-1][-1]


@given(st.text("abc", max_size=8), st.text("abc", max_size=8))
def test_short_distances_are_exact(one, other) -> None:
    assert edit_distance(one, other) == min(3, reference_distance(one, other))


def test_long_words_are_compared_in_linear_time() -> None:
    word = "ab" * 50_000
    start = time.process_time()
    assert edit_distance(word, word[:-2] + "ba") == 1
    assert edit_distance("x" + word, word + "y") == 2
    assert time.process_time() - start < 5


def test_typos_are_rare_and_clear() -> None:
    found = find_typos({"gull": 100, "gul": 2, "GULL": 40, "tern": 50, "turn": 20, "skua": 1})
    assert found.corrections == {"gul": "gull", "GULL": "gull"}
    assert found.doubtful == []
    found = find_typos({"gull": 12, "gul": 2, "tern": 50})
    assert found.corrections == {}
    assert found.doubtful == [("gul", "gull")]
    assert find_typos({"gul": 30, "zzz": 1}, ["gull", "tern"]).corrections == {"gul": "gull"}


def test_thousands_of_names_are_not_all_compared(monkeypatch) -> None:
    compared = []
    compare = spelling._differ_little
    monkeypatch.setattr(spelling, "_differ_little", lambda *names: compared.append(names) or compare(*names))
    names = {f"site {number}": 40 for number in range(3000)}
    assert find_typos(names | {"sitee 7": 1}).corrections == {"sitee 7": "site 7"}
    assert len(compared) == 1


def test_no_similar_name_is_missed() -> None:
    rng = np.random.default_rng(0)
    words = sorted({"".join(rng.choice(list("abc 1"), rng.integers(2, 10))).strip() for _ in range(400)})
    for word in words[::10]:
        known = [other for other in words if other != word]
        near = [other for other in known if is_similar(word, other)]
        assert find_typos({word: 1}, known).corrections == ({word: near[0]} if len(near) == 1 else {})

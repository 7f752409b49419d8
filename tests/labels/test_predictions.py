"""Candidate sets from scores and from lists in free text."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from propall.labels.candidates import CandidateLabels, UnknownNamesWarning
from propall.labels.predictions import Conformal, estimate_miss_rate, parse_lists, select_candidates

ANIMALS = ("cat", "dog", "emu", "sea lion", "lion")


def probabilities(n, k, seed=0, sure=2.0):
    draw = np.random.default_rng(seed)
    logits = sure * draw.normal(size=(n, k))
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    truth = (p.cumsum(1) > draw.random((n, 1))).argmax(1)
    return p, truth


@pytest.mark.parametrize("top_k", [1, 2, 5])
def test_top_k_keeps_the_highest_scores(top_k) -> None:
    p, _ = probabilities(50, 5)
    labels = CandidateLabels.from_scores(np.log(p), top_k=top_k) if top_k < 5 else None
    mask = select_candidates(np.log(p), top_k=top_k)
    assert (mask.sum(1) == top_k).all()
    lowest, highest = np.where(mask, p, 2).min(1), np.where(mask, -1, p).max(1)
    assert (lowest > highest).all()
    assert labels is None or (labels.to_numpy() == mask).all()


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=5), st.floats(0.05, 1)
)
def test_mass_is_reached_by_the_smallest_set(rows, mass) -> None:
    scores = np.array(rows, dtype=float)
    scores[:, 0] += 0.5
    mask = select_candidates(scores, mass=mass)
    p = scores / scores.sum(1, keepdims=True)
    inside = np.where(mask, p, 0)
    assert (inside.sum(1) >= mass - 1e-6).all()
    # Without its least probable member, a set of several does not reach the mass.
    smallest = np.where(mask, p, 2).min(1)
    assert ((mask.sum(1) == 1) | (inside.sum(1) - smallest < mass)).all()


def test_conformal_sets_miss_at_the_allowed_rate() -> None:
    p, truth = probabilities(6000, 6)
    overconfident = p**3 / (p**3).sum(1, keepdims=True)
    for rate in (0.05, 0.2):
        conformal = Conformal(overconfident[:2000], truth[:2000], rate)
        mask = select_candidates(overconfident[2000:], conformal=conformal)
        missing = ~mask[np.arange(4000), truth[2000:]]
        assert missing.mean() == pytest.approx(rate, abs=0.02)
    few = Conformal(p[:3], truth[:3], 0.1)
    assert select_candidates(p[:5], conformal=few).all()  # too few rows to rule anything out


def test_conformal_sets_keep_their_promise_with_few_rows() -> None:
    """Exactly floor((n + 1) rate) of n + 1 exchangeable rows are missed, whichever of them is the new one."""
    draw = np.random.default_rng(0)
    for n, rate in ((9, 0.1), (19, 0.3), (8, 0.1)):
        scores, truth = draw.random((n + 1, 4)), draw.integers(0, 4, n + 1)
        missed = 0
        for new in range(n + 1):
            rest = np.arange(n + 1) != new
            threshold = Conformal(scores[rest], truth[rest], rate).threshold()
            missed += scores[new, truth[new]] < threshold
        assert missed == int((n + 1) * rate)


def test_the_estimated_miss_rate_is_that_of_a_calibrated_model() -> None:
    p, truth = probabilities(5000, 6)
    mask = select_candidates(p, top_k=2)
    actual = (~mask[np.arange(5000), truth]).mean()
    assert estimate_miss_rate(mask, [p]) == pytest.approx(actual, abs=0.015)
    assert estimate_miss_rate(np.ones_like(mask), [p]) == 0


def test_sets_of_several_models_are_united() -> None:
    one, other = np.array([[0.8, 0.1, 0.1]]), np.array([[0.1, 0.1, 0.8]])
    assert CandidateLabels.from_scores([one, other], list("abc"), top_k=1).strings() == ["a|c"]
    frame = pd.DataFrame(one, columns=["x", "y", "z"])
    assert CandidateLabels.from_scores(frame, top_k=2).classes == ("x", "y", "z")
    with pytest.raises(ValueError, match="scores: models have shapes"):
        CandidateLabels.from_scores([one, other[:, :2]], top_k=1)


def test_wrong_rules_and_scores_are_named() -> None:
    p = np.array([[0.5, 0.5]])
    for rule, message in (
        ({}, "top_k: got none; expected exactly one"),
        ({"top_k": 1, "mass": 0.5}, "top_k: got top_k and mass"),
        ({"top_k": 3}, "top_k: got 3; expected 1 to 2"),
        ({"mass": 1.5}, "mass: got 1.5"),
        ({"conformal": Conformal(p, [0, 1])}, "conformal: got 1 rows of scores"),
        ({"conformal": Conformal(p, [0], 2.0)}, "conformal: got miss_rate 2.0"),
        ({"conformal": Conformal(p, [-1])}, "conformal: got label -1; expected columns"),
        ({"conformal": Conformal(p, [2])}, "conformal: got label 2; expected columns"),
        ({"conformal": Conformal(p, ["cat"])}, "conformal: got label 'cat'; expected columns"),
        ({"conformal": Conformal([[np.nan, 1.0]], [1])}, "conformal: some scores are not finite"),
    ):
        with pytest.raises(ValueError, match=message):
            select_candidates(p, **rule)
    with pytest.raises(ValueError, match="are no probabilities"):
        select_candidates(np.array([[-1.0, 2.0]]), mass=0.9)
    with pytest.raises(ValueError, match="row 0 has values that are not finite"):
        select_candidates(np.array([[np.nan, 2.0]]), top_k=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cat, dog", "cat|dog"),
        ("Cat; DOG.", "cat|dog"),
        ("1. cat\n2. dog", "cat|dog"),
        ("- cat\n* emu", "cat|emu"),
        ('["cat", "sea lion"]', "cat|sea lion"),
        (["cat", "Emu"], "cat|emu"),
        ("a cat or a dog", "cat|dog"),
        ("It may be a sea-lion", "sea lion"),
        ("sea_lion / lion", "sea lion|lion"),
        ("dgo, emmu", "emu"),
        ([["cat"], ["dog", "cat"]], "cat|dog"),
        ('[["cat"], "dog"]', "cat|dog"),
        ("cat, dog, emu, sea lion, lion", "cat|dog|emu|sea lion|lion"),
        ('"cat"', "cat"),
        ('```json\n["cat", "dog"]\n```', "cat|dog"),
        ("Not a cat, but a dog", "dog"),
        ("not sea lion, emu", "emu"),
        ("not only a cat, dog", "cat|dog"),
    ],
)
@pytest.mark.filterwarnings("ignore::propall.labels.candidates.UnknownNamesWarning")
@pytest.mark.filterwarnings("ignore::propall.labels.candidates.UninformativeRowsWarning")
def test_names_in_free_text(text, expected) -> None:
    assert CandidateLabels.from_lists([text], ANIMALS).strings() == [expected]


def test_unknown_names_are_reported_and_empty_lists_refused() -> None:
    with pytest.warns(UnknownNamesWarning, match="lists: 2 names in 1 row match no class: 'unicorn', 'yeti'"):
        labels = CandidateLabels.from_lists(["cat, unicorn, yeti", "dog"], ANIMALS)
    assert labels.strings() == ["cat", "dog"]
    with pytest.raises(ValueError, match=r"lists: 1 row names no class \(first: 1\).* empty=\"all\""):
        CandidateLabels.from_lists(["cat", []], ANIMALS)
    full = CandidateLabels.from_lists(["cat", "", None], ANIMALS, empty="all")
    assert full.sizes.tolist() == [1, 5, 5]
    with pytest.raises(ValueError, match="classes: missing"):
        CandidateLabels.from_lists(["cat"], None)


@pytest.mark.parametrize(("k", "n_lists", "rate"), [(5, 2, 0.12), (5, 3, 0.3), (10, 2, 0.3), (20, 3, 0.0)])
def test_several_lists_show_how_often_the_true_class_is_missing(k, n_lists, rate) -> None:
    draw = np.random.default_rng(0)
    names, truth, rows = [f"class{i}" for i in range(k)], draw.integers(k, size=600), []
    for y in truth:
        others = [name for i, name in enumerate(names) if i != y]
        sizes = draw.integers(1, 4, size=n_lists)
        missing = draw.random(n_lists) < rate
        rows.append(
            [
                [*draw.choice(others, size - (not lacks), replace=False), *([] if lacks else [names[y]])]
                for size, lacks in zip(sizes, missing, strict=True)
            ]
        )
    parsed = parse_lists(rows, names)
    actual = 1 - parsed.mask[np.arange(600), truth].mean()
    assert parsed.miss_rate == pytest.approx(actual, abs=0.03)
    # One list lacks the true class more often than several.
    mixed = parse_lists([row if i % 2 else row[:1] for i, row in enumerate(rows)], names)
    actual = 1 - mixed.mask[np.arange(600), truth].mean()
    assert mixed.miss_rate == pytest.approx(actual, abs=0.06)


def test_few_rows_with_several_lists_show_nothing() -> None:
    parsed = parse_lists([[["cat"], ["dog"]], [["cat", "emu"], ["emu"]], ["cat"]], ANIMALS)
    assert parsed.miss_rate is None
    assert parse_lists(["cat"], ANIMALS).miss_rate is None
    assert parsed.mask.sum(1).tolist() == [2, 2, 1]


@pytest.mark.parametrize(("n_lists", "wrong"), [(2, 0.2), (3, 0.4)])
def test_the_miss_rate_is_that_of_the_united_lists(n_lists, wrong) -> None:
    """Independent lists of one name out of many: how often they agree shows how many are wrong."""
    draw = np.random.default_rng(0)
    classes = [f"class {i}" for i in range(60)]
    truth = draw.integers(0, 60, 2000)
    is_wrong = draw.random((2000, n_lists)) < wrong
    named = np.where(is_wrong, (truth[:, None] + draw.integers(1, 60, is_wrong.shape)) % 60, truth[:, None])
    parsed = parse_lists([[[classes[i]] for i in row] for row in named], classes)
    actual = 1 - parsed.mask[np.arange(2000), truth].mean()
    assert parsed.miss_rate == pytest.approx(actual, abs=0.02)
    together = parse_lists([[["cat"], ["cat"]], [["dog"], ["dog"]]] * 10, ANIMALS)
    assert together.miss_rate == 0


@pytest.mark.parametrize(
    ("classes", "text", "expected"),
    [
        (("rock and roll", "jazz"), "Rock and Roll, jazz", "rock and roll|jazz"),
        (("Sci/Tech", "World"), "a sci/tech or world article", "Sci/Tech|World"),
        (("Science, Technology", "Arts"), "1. science, technology\n2. arts", "Science, Technology|Arts"),
        (("black and white", "cat"), "black and white cat", "black and white|cat"),
        (("C", "C++", "C#"), "It is C++ or C#", "C++|C#"),
        (("1", "2", "3"), "1. 3.", "3"),
        (("1", "2", "3"), "3.", "3"),
        (("1", "2", "3"), [3.0, 1], "1|3"),
        (ANIMALS, "sae lion", "sea lion"),
    ],
)
def test_names_with_separators_signs_and_numbers(classes, text, expected) -> None:
    mask = parse_lists([text], classes).mask[0]
    assert "|".join(np.array(classes)[mask]) == expected


def test_a_number_is_not_misspelled() -> None:
    parsed = parse_lists(["class 11", "clas 1"], ["class 1", "class 2"])
    assert parsed.mask.tolist() == [[False, False], [True, False]]
    assert dict(parsed.unknown) == {"class 11": 1}


@given(
    st.lists(
        st.one_of(st.text(max_size=30), st.none(), st.lists(st.text(max_size=8), max_size=3)), max_size=6
    )
)
def test_any_text_is_read_without_an_error(rows) -> None:
    parsed = parse_lists(rows, ANIMALS)
    assert parsed.mask.shape == (len(rows), 5)

"""Answers and a model weighed together."""

import itertools

import numpy as np
import pytest

from propall.tables.consensus import weigh_answers, weigh_sets, weigh_votes


def crowd(n=3000, k=4, skill=(0.9, 0.7, 0.5), sure=1.5, seed=0):
    """Truth, answers of people with these skills, and a mediocre but calibrated model."""
    draw = np.random.default_rng(seed)
    logits = sure * draw.normal(size=(n, k))
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    truth = (np.exp(logs).cumsum(1) > draw.random((n, 1))).argmax(1)
    wrong = (truth[:, None] + draw.integers(1, k, (n, len(skill)))) % k
    answers = np.where(draw.random((n, len(skill))) < skill, truth[:, None], wrong)
    return truth, answers, logs


def test_it_finds_out_how_good_each_person_is() -> None:
    truth, answers, logs = crowd()
    found = weigh_answers(logs, answers)
    np.testing.assert_allclose(found.accuracy, (answers == truth[:, None]).mean(0), atol=0.025)
    model, people = (logs.argmax(1) == truth).mean(), (answers == truth[:, None]).mean(0).max()
    assert (found.log_probabilities.argmax(1) == truth).mean() > max(model, people)
    chances = np.exp(found.log_probabilities)
    np.testing.assert_allclose(chances.sum(1), 1)
    # Calibrated: of what it says with probability p, a share of p is true.
    assert abs(chances.max(1).mean() - (chances.argmax(1) == truth).mean()) < 0.02


def test_the_posterior_is_bayes_rule() -> None:
    """Settled on an accuracy, the posterior is the product of model and answers, added up by hand."""
    _, answers, logs = crowd(n=40, skill=(0.8, 0.6))
    found = weigh_answers(logs, answers)
    expected = np.empty_like(logs)
    for i, y in itertools.product(range(40), range(4)):
        chance = np.exp(logs[i, y])
        for m, a in enumerate(found.accuracy):
            chance *= a if answers[i, m] == y else (1 - a) / 3
        expected[i, y] = chance
    expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(np.exp(found.log_probabilities), expected, atol=1e-4)


def test_rows_without_answers_keep_the_model_s_word() -> None:
    _, answers, logs = crowd(n=200)
    answers[:50] = -1
    found = weigh_answers(logs, answers)
    np.testing.assert_allclose(found.log_probabilities[:50], logs[:50])
    assert not np.allclose(found.log_probabilities[50:], logs[50:])


def test_votes_of_equal_people_are_the_same_as_answers() -> None:
    truth, answers, logs = crowd(skill=(0.7, 0.7, 0.7))
    counts = np.stack([(answers == y).sum(1) for y in range(4)], axis=1)
    one, other = weigh_votes(logs, counts), weigh_answers(logs, answers)
    assert one.accuracy == pytest.approx(other.accuracy.mean(), abs=0.01)
    assert (one.log_probabilities.argmax(1) == other.log_probabilities.argmax(1)).mean() > 0.98
    assert (one.log_probabilities.argmax(1) == truth).mean() > (logs.argmax(1) == truth).mean()


def test_people_who_always_agree_are_not_beyond_doubt() -> None:
    logs = np.log(np.full((20, 3), 1 / 3))
    found = weigh_answers(logs, np.tile(np.arange(20)[:, None] % 3, (1, 3)))
    assert np.isfinite(found.log_probabilities).all()
    assert found.accuracy.max() < 1


def sets(n=3000, k=5, missing=0.04, sure=2.0, seed=1):
    """A mediocre but calibrated model, and sets of one to three labels of which a few lack the truth."""
    draw = np.random.default_rng(seed)
    logits = sure * draw.normal(size=(n, k))
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    truth = (np.exp(logs).cumsum(1) > draw.random((n, 1))).argmax(1)
    lacks = draw.random(n) < missing
    candidates = np.zeros((n, k), dtype=bool)
    for i, size in enumerate(draw.integers(1, 4, n)):
        others = draw.permutation(np.delete(np.arange(k), truth[i]))
        candidates[i, others[: size - (not lacks[i])]] = True
        candidates[i, truth[i]] = not lacks[i]
    return lacks, candidates, logs


def test_sets_without_the_truth_are_found() -> None:
    lacks, candidates, logs = sets()
    found = weigh_sets(logs, candidates)
    assert found.rate == pytest.approx(lacks.mean(), abs=0.012)
    # Calibrated: the doubts add up to the sets that lack the truth, near the certain ones, too.
    assert found.doubt.sum() == pytest.approx(lacks.sum(), rel=0.3)
    assert lacks[found.doubt > 0.5].mean() > 0.7
    # The model alone would doubt far too many.
    alone = np.where(candidates, 0, np.exp(logs)).sum(1) > 0.5
    assert lacks[alone].mean() < 0.3


def test_doubt_is_bayes_rule() -> None:
    """All sets of a row's size are added up: those that hold a class are likely, the others not."""
    _, candidates, logs = sets(n=30)
    found = weigh_sets(logs, candidates)
    for i in range(30):
        size = candidates[i].sum()
        every = [set(c) for c in itertools.combinations(range(5), size)]
        joint = []
        for y in range(5):
            hold = sum(y in own for own in every)
            held = candidates[i, y]
            joint.append(
                np.exp(logs[i, y]) * ((1 - found.rate) / hold if held else found.rate / (len(every) - hold))
            )
        outside = sum(own for y, own in enumerate(joint) if not candidates[i, y])
        assert found.doubt[i] == pytest.approx(outside / sum(joint), abs=1e-4)


def test_sets_that_say_nothing_are_not_doubted_and_few_rows_go_by_earlier_ones() -> None:
    _, candidates, logs = sets(n=6)
    candidates[0] = True
    assert weigh_sets(logs, candidates).doubt[0] == 0
    assert weigh_sets(logs, candidates, 0.01).rate < 0.03 < weigh_sets(logs, candidates).rate

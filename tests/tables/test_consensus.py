"""Combining answers with a model."""

import itertools

import numpy as np
import pytest

from propall.tables.consensus import combine_answers, combine_votes, estimate_set_errors


def crowd(n=3000, k=4, skill=(0.9, 0.7, 0.5), sure=1.5, seed=0):
    """True classes, answers of annotators with these accuracies, and a mediocre but calibrated model."""
    draw = np.random.default_rng(seed)
    logits = sure * draw.normal(size=(n, k))
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    truth = (np.exp(logs).cumsum(1) > draw.random((n, 1))).argmax(1)
    wrong = (truth[:, None] + draw.integers(1, k, (n, len(skill)))) % k
    answers = np.where(draw.random((n, len(skill))) < skill, truth[:, None], wrong)
    return truth, answers, logs


def test_it_estimates_each_annotators_accuracy() -> None:
    truth, answers, logs = crowd()
    posterior = combine_answers(logs, answers)
    np.testing.assert_allclose(posterior.accuracy, (answers == truth[:, None]).mean(0), atol=0.025)
    model, people = (logs.argmax(1) == truth).mean(), (answers == truth[:, None]).mean(0).max()
    assert (posterior.log_probabilities.argmax(1) == truth).mean() > max(model, people)
    chances = np.exp(posterior.log_probabilities)
    np.testing.assert_allclose(chances.sum(1), 1)
    # Calibrated: of what it says with probability p, a share of p is true.
    assert abs(chances.max(1).mean() - (chances.argmax(1) == truth).mean()) < 0.02


def test_the_posterior_is_bayes_rule() -> None:
    """At convergence, the posterior is the normalized product of model and answers."""
    _, answers, logs = crowd(n=40, skill=(0.8, 0.6))
    posterior = combine_answers(logs, answers)
    expected = np.empty_like(logs)
    for i, y in itertools.product(range(40), range(4)):
        chance = np.exp(logs[i, y])
        for m, a in enumerate(posterior.accuracy):
            chance *= a if answers[i, m] == y else (1 - a) / 3
        expected[i, y] = chance
    expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(np.exp(posterior.log_probabilities), expected, atol=1e-4)


def test_rows_without_answers_keep_the_models_probabilities() -> None:
    _, answers, logs = crowd(n=200)
    answers[:50] = -1
    posterior = combine_answers(logs, answers)
    np.testing.assert_allclose(posterior.log_probabilities[:50], logs[:50])
    assert not np.allclose(posterior.log_probabilities[50:], logs[50:])


def test_votes_equal_answers_of_equally_accurate_annotators() -> None:
    truth, answers, logs = crowd(skill=(0.7, 0.7, 0.7))
    counts = np.stack([(answers == y).sum(1) for y in range(4)], axis=1)
    one, other = combine_votes(logs, counts), combine_answers(logs, answers)
    assert one.accuracy == pytest.approx(other.accuracy.mean(), abs=0.01)
    assert (one.log_probabilities.argmax(1) == other.log_probabilities.argmax(1)).mean() > 0.98
    assert (one.log_probabilities.argmax(1) == truth).mean() > (logs.argmax(1) == truth).mean()


def test_unanimous_annotators_are_not_infallible() -> None:
    logs = np.log(np.full((20, 3), 1 / 3))
    posterior = combine_answers(logs, np.tile(np.arange(20)[:, None] % 3, (1, 3)))
    assert np.isfinite(posterior.log_probabilities).all()
    assert posterior.accuracy.max() < 1


def sets(n=3000, k=5, missing=0.04, sure=2.0, seed=1):
    """A mediocre but calibrated model, and sets of one to three labels a few without the true label."""
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
    errors = estimate_set_errors(logs, candidates)
    assert errors.rate == pytest.approx(lacks.mean(), abs=0.012)
    # Calibrated: the doubts add up to the sets that lack the truth, near the certain ones, too.
    assert errors.doubt.sum() == pytest.approx(lacks.sum(), rel=0.3)
    assert lacks[errors.doubt > 0.5].mean() > 0.7
    # The model alone would doubt far too many.
    alone = np.where(candidates, 0, np.exp(logs)).sum(1) > 0.5
    assert lacks[alone].mean() < 0.3


def test_doubt_is_bayes_rule() -> None:
    """By enumeration of all sets of a size: those with the true class share 1 - rate, the others the rate."""
    _, candidates, logs = sets(n=30)
    errors = estimate_set_errors(logs, candidates)
    for i in range(30):
        size = candidates[i].sum()
        every = [set(c) for c in itertools.combinations(range(5), size)]
        joint = []
        for y in range(5):
            n_with_y = sum(y in candidate_set for candidate_set in every)
            rate, n_sets = (
                (1 - errors.rate, n_with_y) if candidates[i, y] else (errors.rate, len(every) - n_with_y)
            )
            joint.append(np.exp(logs[i, y]) * rate / n_sets)
        outside = sum(chance for y, chance in enumerate(joint) if not candidates[i, y])
        assert errors.doubt[i] == pytest.approx(outside / sum(joint), abs=1e-4)


def test_full_sets_are_not_doubted_and_a_prior_rate_counts_for_few_rows() -> None:
    _, candidates, logs = sets(n=6)
    candidates[0] = True
    without_prior = estimate_set_errors(logs, candidates)
    assert without_prior.doubt[0] == 0
    assert estimate_set_errors(logs, candidates, 0.01).rate < 0.03 < without_prior.rate

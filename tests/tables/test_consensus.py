"""Combining candidate sets with a model."""

import itertools

import numpy as np
import pytest

from propall.tables.consensus import estimate_set_errors, weigh_sets


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


def test_weighed_sets_are_the_posterior_of_the_doubt() -> None:
    _, candidates, logs = sets(n=200)
    candidates[0] = True
    errors = estimate_set_errors(logs, candidates)
    chances = np.exp(weigh_sets(logs, candidates, errors.rate))
    np.testing.assert_allclose(np.where(candidates, 0, chances).sum(1), errors.doubt, atol=1e-4)
    np.testing.assert_allclose(chances[0], np.exp(logs[0]))
    np.testing.assert_allclose(
        np.where(candidates, 0, np.exp(weigh_sets(logs, candidates, 0.0))), 0, atol=1e-3
    )

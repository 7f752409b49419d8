"""Temperature scaling without true labels, and calibration errors with them."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax as scipy_log_softmax
from scipy.special import logsumexp

from propall.estimators import calibration
from propall.estimators.calibration import (
    MAX_TEMPERATURE,
    _normalize,
    _tempered_log_mass,
    cross_calibrate,
    expected_calibration_error,
    fit_temperature,
    fit_temperatures,
    log_mass,
    log_softmax,
    reliability,
)


def candidates_of(truth, k, chance, seed=1):
    """The true label and every other label with the same probability: sets that depend on the label alone."""
    mask = np.random.default_rng(seed).random((len(truth), k)) < chance
    mask[np.arange(len(truth)), truth] = True
    return mask


def calibrated_model(n=4000, k=5, seed=0):
    """Logits, and true labels drawn from their softmax: a perfectly calibrated model."""
    random = np.random.default_rng(seed)
    logits = 2 * random.normal(size=(n, k))
    chances = np.exp(scipy_log_softmax(logits, axis=1))
    truth = (random.random((n, 1)) > chances.cumsum(1)).sum(1)
    return logits, chances, truth


@pytest.mark.parametrize("chance", [0.0, 0.3])
@pytest.mark.parametrize("wrong", [0.25, 1.0, 4.0])
def test_the_temperature_is_recovered(wrong, chance):
    logits, _, truth = calibrated_model()
    temperature = fit_temperature(wrong * logits, candidates_of(truth, 5, chance))
    assert temperature == pytest.approx(wrong, rel=0.08)


def test_equals_a_direct_search_for_true_labels():
    logits, _, truth = calibrated_model(500)

    def cost(log_t):
        logs = scipy_log_softmax(logits / np.exp(log_t), axis=1)
        return log_t**2 / 2 - logs[np.arange(500), truth].sum()

    expected = np.exp(minimize_scalar(cost, bounds=(-3, 3), method="bounded").x)
    assert fit_temperature(logits, candidates_of(truth, 5, 0.0)) == pytest.approx(expected, rel=1e-3)


def test_shifts_and_uninformative_rows_do_not_matter():
    logits, _, truth = calibrated_model(300)
    mask = candidates_of(truth, 5, 0.2)
    expected = fit_temperature(logits, mask)
    shifted = logits + np.random.default_rng(0).normal(size=(300, 1))
    more, full = np.vstack([shifted, logits[:50]]), np.vstack([mask, np.ones((50, 5), dtype=bool)])
    assert fit_temperature(more, full) == pytest.approx(expected, rel=1e-6)


def test_temperatures_of_subsets_are_those_of_their_rows():
    logits, _, truth = calibrated_model(300)
    mask = candidates_of(truth, 5, 0.5)  # some rows have every class
    weight = np.random.default_rng(0).random(300)
    subsets = [np.arange(0, 300, 2), np.arange(200), np.arange(300)]
    expected = [fit_temperature(logits[rows], mask[rows], weight[rows]) for rows in subsets]
    assert fit_temperatures(logits, mask, subsets, weight) == expected
    folds = [(np.arange(100, 300), np.arange(100)), (np.arange(100), np.arange(100, 300))]
    calibrated = cross_calibrate(logits, mask, folds)
    for others, hold in folds:
        temperature = fit_temperature(logits[others], mask[others])
        np.testing.assert_array_equal(calibrated[hold], log_softmax(logits[hold], temperature))


@pytest.mark.parametrize("k", [2, 5, 40])
def test_logarithms_are_those_of_scipy(k):
    random = np.random.default_rng(k)
    logs = scipy_log_softmax(np.round(3 * random.normal(size=(500, k)), 1), axis=1)  # with ties
    mask = candidates_of(random.integers(k, size=500), k, 0.3)
    np.testing.assert_allclose(
        log_softmax(logs, 0.1), scipy_log_softmax(logs / 0.1, axis=1), rtol=1e-13, atol=1e-13
    )
    expected = logsumexp(np.where(mask, logs, -np.inf), axis=1)
    np.testing.assert_allclose(log_mass(logs, mask), np.minimum(expected, 0), rtol=1e-13, atol=1e-15)


def test_a_weight_of_two_equals_repeating_the_row():
    logits, _, truth = calibrated_model(200)
    mask = candidates_of(truth, 5, 0.2)
    weight = np.random.default_rng(0).integers(3, size=200)
    repeated = fit_temperature(logits.repeat(weight, 0), mask.repeat(weight, 0))
    assert fit_temperature(logits, mask, weight) == pytest.approx(repeated, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-3, 1e4])
def test_extreme_scores_give_finite_temperatures(scale):
    logits, _, truth = calibrated_model(100)
    correct = np.eye(5, dtype=bool)[logits.argmax(1)]
    for mask in (correct, ~correct, candidates_of(truth, 5, 0.2)):
        temperature = fit_temperature(scale * logits, mask)
        assert 1 / MAX_TEMPERATURE <= temperature <= MAX_TEMPERATURE


def test_a_model_without_errors_keeps_a_positive_temperature():
    logits = np.array([[1.0, 0.0, 0.0]])
    assert 0.2 < fit_temperature(logits, np.array([[True, False, False]])) < 1


def test_log_mass_of_sets_and_of_empty_sets():
    logs = np.log([[0.5, 0.3, 0.2], [0.1, 1e-320, 0.9]])
    mask = np.array([[True, True, False], [False, True, False]])
    mass = log_mass(logs, mask)
    assert mass[0] == pytest.approx(np.log(0.8))
    assert mass[1] == -700
    assert log_mass(logs[:1], np.zeros((1, 3), dtype=bool)) == -700
    assert log_mass(np.full((1, 3), -np.inf), np.ones((1, 3), dtype=bool)) == -700


def test_log_softmax_at_a_temperature():
    logits = np.random.default_rng(0).normal(size=(4, 3))
    np.testing.assert_allclose(log_softmax(logits, 2.0), scipy_log_softmax(logits / 2, axis=1))
    np.testing.assert_allclose(np.exp(log_softmax([[1e4, 0.0, -np.inf]])), [[1.0, 0.0, 0.0]], atol=1e-300)


def test_calibration_error_by_hand():
    chances = np.array([[0.9, 0.1], [0.85, 0.15], [0.4, 0.6], [0.35, 0.65]])
    truth = np.array([0, 1, 1, 1])
    # Confidence and accuracy by bin: 0.875 and 0.5 in (0.8, 1], 0.65 and 1 in (0.6, 0.8], 0.6 and 1 below.
    assert expected_calibration_error(chances, truth, n_bins=5) == pytest.approx((2 * 0.375 + 0.35 + 0.4) / 4)
    bins = reliability(chances.max(1), chances.argmax(1) == truth, n_bins=5)
    assert bins.counts.tolist() == [0, 0, 1, 1, 2]
    np.testing.assert_allclose(bins.confidence[2:], [0.6, 0.65, 0.875])
    np.testing.assert_allclose(bins.accuracy[2:], [1, 1, 0.5])
    assert np.isnan(bins.accuracy[:2]).all()


def test_a_calibrated_model_has_a_small_calibration_error():
    logits, chances, truth = calibrated_model(20_000)
    assert expected_calibration_error(chances, truth) < 0.015
    assert expected_calibration_error(np.exp(log_softmax(3 * logits)), truth) > 0.1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fit_temperature(np.ones((3, 2)), np.ones((2, 2))), r"candidates: got shape \(2, 2\)"),
        (lambda: expected_calibration_error(np.ones((3, 2)), [0, 1]), r"truth: got shape \(2,\)"),
        (lambda: reliability([], []), "at least one row"),
    ],
)
def test_invalid_data_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_few_candidates_give_the_same_digits_as_all_labels(scale):
    random = np.random.default_rng(0)
    differences = np.round(scale * random.normal(size=(200, 40)), 1)  # with ties
    differences = np.maximum(differences - differences.max(1, keepdims=True), -700) / 0.3
    mask = candidates_of(random.integers(0, 40, 200), 40, 0.1)
    np.testing.assert_array_equal(
        _tempered_log_mass(differences, mask), log_mass(_normalize(differences), mask)
    )


def test_scores_in_columns_give_the_same_probabilities():
    logits, _, _ = calibrated_model(n=30)
    np.testing.assert_allclose(log_softmax(np.asfortranarray(logits)), log_softmax(logits), rtol=1e-14)


def test_many_classes_are_calibrated_by_a_sample_of_the_rows(monkeypatch):
    logits, _, truth = calibrated_model(n=6000, k=8)
    mask = candidates_of(truth, 8, 0.2)
    mask[:50] = True  # uninformative rows are not drawn
    all_rows = fit_temperature(3 * logits, mask)
    sizes = []
    evaluate = calibration._log_likelihood
    monkeypatch.setattr(calibration, "MANY_CLASSES", 7)
    monkeypatch.setattr(calibration, "CALIBRATION_VALUES", 8 * 2000)
    monkeypatch.setattr(
        calibration, "_log_likelihood", lambda d, m, t: sizes.append(len(m)) or evaluate(d, m, t)
    )
    assert fit_temperature(3 * logits, mask) == pytest.approx(all_rows, rel=0.1)
    assert set(sizes) == {2000}
    halves = [np.arange(3000), np.arange(3000, 6000)]
    assert fit_temperatures(3 * logits, mask, halves) == pytest.approx([all_rows] * 2, rel=0.2)

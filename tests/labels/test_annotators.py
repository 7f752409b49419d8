"""Estimating the truth and the annotators from answers, with and without a model."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp

from propall.labels import annotators
from propall.labels.annotators import (
    CrowdAnswers,
    EarlierAnswers,
    MismatchedClassesWarning,
    combine_answers,
    credible_sets,
)


def calibrated_model(n, k, sure, draw):
    """True classes, and log-probabilities of a mediocre but calibrated model."""
    logits = sure * draw.normal(size=(n, k))
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    return (np.exp(logs).cumsum(1) > draw.random((n, 1))).argmax(1), logs


def confusions(skills, k, draw, focus=0.8):
    """One matrix per annotator, in which most errors on a class are the same other class."""
    matrices = np.zeros((len(skills), k, k))
    for matrix, skill in zip(matrices, skills, strict=True):
        for y in range(k):
            matrix[y] = (1 - skill) * (1 - focus) / (k - 2)
            matrix[y, (y + draw.integers(1, k)) % k] = (1 - skill) * focus
            matrix[y, y] = skill
    return matrices / matrices.sum(2, keepdims=True)


def ask(truth, matrices, draw, answered=1.0):
    """Answers (n, m) with these confusion matrices, -1 where nobody was asked."""
    chance = matrices[:, truth].cumsum(2)  # (m, n, k)
    answers = (chance > draw.random((*chance.shape[:2], 1))).argmax(2).T
    return np.where(draw.random(answers.shape) < answered, answers, -1)


def crowd(n=3000, k=5, skills=(0.9, 0.7, 0.5), sure=1.5, seed=0, answered=1.0, focus=0.8):
    draw = np.random.default_rng(seed)
    truth, logs = calibrated_model(n, k, sure, draw)
    matrices = confusions(skills, k, draw, focus)
    return truth, ask(truth, matrices, draw, answered), logs, matrices


def right(posterior, truth):
    return (posterior.log_probabilities.argmax(1) == truth).mean()


def test_accuracies_confusions_and_temperature_are_those_of_the_simulation() -> None:
    truth, answers, logs, matrices = crowd()
    posterior = combine_answers(logs * 3, answers)  # an overconfident model
    np.testing.assert_allclose(posterior.accuracy, (answers == truth[:, None]).mean(0), atol=0.02)
    np.testing.assert_allclose(posterior.confusion, matrices, atol=0.06)
    np.testing.assert_allclose(posterior.confusion.sum(2), 1)
    assert posterior.temperature == pytest.approx(3, rel=0.15)
    assert posterior.evidence == "both"
    assert right(posterior, truth) > max(
        (logs.argmax(1) == truth).mean(), right(combine_answers(None, answers), truth)
    )
    # Calibrated: of what it says with probability p, a share of p is true.
    assert posterior.probabilities.max(1).mean() == pytest.approx(right(posterior, truth), abs=0.02)
    np.testing.assert_allclose(posterior.probabilities.sum(1), 1)
    np.testing.assert_allclose(posterior.class_priors, np.bincount(truth) / len(truth), atol=0.02)


@pytest.mark.parametrize("errors", ["shrunk", "dawid_skene", "one_coin"])
def test_answers_alone(errors) -> None:
    truth, answers, _, _ = crowd(skills=(0.9, 0.8, 0.7, 0.6), answered=0.9, focus=0.25)
    posterior = combine_answers(None, answers, errors=errors)
    asked = answers >= 0
    actual = (asked & (answers == truth[:, None])).sum(0) / asked.sum(0)
    np.testing.assert_allclose(posterior.accuracy, actual, atol=0.03)
    votes = CrowdAnswers.from_matrix(answers, 5).counts
    assert right(posterior, truth) > (votes.argmax(1) == truth).mean()
    assert posterior.temperature is None
    assert posterior.n_answers.tolist() == asked.sum(0).tolist()


def test_the_posterior_is_bayes_rule() -> None:
    """One accuracy each: the posterior is the normalized product of model and answers."""
    _, answers, logs, _ = crowd(n=40, skills=(0.8, 0.6))
    posterior = combine_answers(logs, answers, errors="one_coin")
    expected = np.empty_like(logs)
    for i, y in itertools.product(range(40), range(5)):
        chance = np.exp(logs[i, y] / posterior.temperature)
        for m, a in enumerate(posterior.accuracy):
            chance *= a if answers[i, m] == y else (1 - a) / 4
        expected[i, y] = chance
    expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(posterior.probabilities, expected, atol=2e-3)


def log_likelihood(answers, confusion, priors, errors):
    """Of all answers, row by row, with what `combine_answers` adds to classes and entries."""
    total = np.log(priors).sum() + (0.01 * np.log(confusion).sum() if errors == "dawid_skene" else 0)
    for row in answers:
        logs = np.log(priors)
        for a, z in enumerate(row):
            if z >= 0:
                logs = logs + np.log(confusion[a, :, z])
        total += logsumexp(logs)
    return total


def maximum_likelihood(answers, k, errors, iterations):
    """Confusion matrices and class priors after some iterations of expectation maximization."""
    task = annotators._Task(errors, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(annotators, "MAX_ITERATIONS", iterations)
        patch.setattr(annotators, "TOLERANCE", 0.0)
        state = task.fit(CrowdAnswers.from_matrix(answers, k), None)
    return state.errors.confusion, state.class_priors


@pytest.mark.parametrize("errors", ["dawid_skene", "one_coin"])
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_the_likelihood_never_decreases(errors, data) -> None:
    k, m = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 4))
    row = st.lists(st.integers(-1, k - 1), min_size=m, max_size=m)
    answers = np.array(data.draw(st.lists(row, min_size=1, max_size=8)))
    values = [
        log_likelihood(answers, *maximum_likelihood(answers, k, errors, n), errors) for n in (1, 2, 3, 5, 9)
    ]
    assert (np.diff(values) > -1e-8).all()


@pytest.mark.parametrize("errors", ["dawid_skene", "one_coin"])
def test_the_maximum_is_that_of_a_general_optimizer(errors) -> None:
    """Started at the estimate, an optimizer that knows nothing of the algorithm finds nothing better."""
    _, answers, _, _ = crowd(n=60, k=3, skills=(0.9, 0.7, 0.6), answered=0.8)
    confusion, priors = maximum_likelihood(answers, 3, errors, 2000)

    def unpack(values):
        priors = np.exp(log_softmax(values[:3]))
        if errors == "dawid_skene":
            return np.exp(log_softmax(values[3:].reshape(3, 3, 3), axis=2)), priors
        right = 1 / (1 + np.exp(-values[3:]))
        return np.array([np.full((3, 3), (1 - a) / 2) + np.eye(3) * (a - (1 - a) / 2) for a in right]), priors

    right = confusion[:, 0, 0]
    rest = np.log(confusion).ravel() if errors == "dawid_skene" else np.log(right / (1 - right))
    start = np.concatenate([np.log(priors), rest])
    np.testing.assert_allclose(unpack(start)[0], confusion)
    found = minimize(lambda values: -log_likelihood(answers, *unpack(values), errors), start)
    assert -found.fun - log_likelihood(answers, confusion, priors, errors) < 1e-4


def test_labels_are_interchangeable() -> None:
    """Other names or orders of classes, annotators and rows change nothing."""
    _, answers, logs, _ = crowd(n=120, answered=0.6)
    expected = combine_answers(logs, answers).probabilities
    other = np.array([3, 0, 4, 1, 2])
    renamed = np.where(answers >= 0, other[answers], -1)
    np.testing.assert_allclose(
        combine_answers(logs[:, np.argsort(other)], renamed).probabilities[:, other], expected, atol=1e-9
    )
    np.testing.assert_allclose(combine_answers(logs, answers[:, ::-1]).probabilities, expected, atol=1e-9)
    # In pairs, so that the rows are divided in the same way for held-out evidence.
    order = np.random.default_rng(0).permutation(60).repeat(2) * 2 + np.tile([0, 1], 60)
    reordered = combine_answers(logs[order], answers[order]).probabilities
    np.testing.assert_allclose(reordered, expected[order], atol=1e-9)
    assert (combine_answers(logs, answers).probabilities == expected).all()


def test_a_known_accuracy_is_taken_as_it_is() -> None:
    logs = np.log([[0.5, 0.3, 0.2]] * 4)
    posterior = combine_answers(logs, np.array([[1], [1], [-1], [0]]), accuracy=0.8)
    assert posterior.accuracy.tolist() == [0.8]
    p = np.exp(logs[0] / posterior.temperature)
    expected = p * [0.1, 0.8, 0.1] / (p * [0.1, 0.8, 0.1]).sum()
    np.testing.assert_allclose(posterior.probabilities[0], expected)
    with pytest.raises(ValueError, match="accuracy: got 1"):
        combine_answers(logs, np.array([[1]] * 4), accuracy=1)


def test_few_answers_are_shrunk_to_a_skill_and_many_are_not() -> None:
    """With confusions of their own, matrices beat one accuracy; with few answers they lose nothing."""
    truth, answers, logs, _ = crowd(n=1500, skills=(0.7, 0.6, 0.6), focus=0.9, sure=1.0)
    assert (
        right(combine_answers(logs, answers), truth)
        > right(combine_answers(logs, answers, errors="one_coin"), truth) + 0.01
    )
    truth, answers, logs, matrices = crowd(n=60, skills=(0.9, 0.7, 0.5), focus=0.25, seed=3)
    few = combine_answers(logs, answers)
    unshrunk = combine_answers(logs, answers, errors="dawid_skene")
    assert np.abs(few.confusion - matrices).mean() < np.abs(unshrunk.confusion - matrices).mean()


def test_a_misleading_source_costs_little() -> None:
    truth, answers, logs, _ = crowd(n=1000, skills=(0.95, 0.9, 0.9), seed=1)
    shuffled = np.random.default_rng(0).permutation(logs) * 4  # says nothing about its rows, with confidence
    alone, both = combine_answers(None, answers), combine_answers(shuffled, answers)
    assert right(both, truth) >= right(alone, truth) - 0.002
    assert both.held_out["both"] > both.held_out["model"]
    noise = np.random.default_rng(1).integers(0, 5, answers.shape)
    useless = combine_answers(logs, noise)
    # Answers at random cost little: what is estimated of them is close to chance.
    assert right(useless, truth) >= (logs.argmax(1) == truth).mean() - 0.02
    np.testing.assert_allclose(useless.accuracy, 0.2, atol=0.05)


def test_both_sources_unless_one_predicts_better() -> None:
    draw = np.random.default_rng(5)
    truth, logs = calibrated_model(2000, 4, 4.0, draw)
    both = combine_answers(logs, ask(truth, confusions((0.8, 0.8), 4, draw), draw))
    assert both.evidence == "both"
    assert both.held_out["both"] > max(both.held_out["model"], both.held_out["answers"])
    # A model that is sure of the classes of other rows.
    wrong_rows = draw.permutation(2000)
    sure = np.log(np.full((2000, 4), 1e-6) + np.eye(4)[truth[wrong_rows]])
    answers = ask(truth, confusions((0.9, 0.9, 0.9), 4, draw), draw)
    misled = combine_answers(sure, answers)
    assert right(misled, truth) >= right(combine_answers(None, answers), truth) - 0.002


def test_a_model_that_is_not_used_is_sure_of_nothing() -> None:
    """The temperature is that of a model whose predictions have nothing to do with the answers."""
    draw = np.random.default_rng(2)
    truth, answers, _, _ = crowd(n=600, k=4, skills=(0.9, 0.9, 0.9))
    sure = np.log(np.full((600, 4), 1e-6) + np.eye(4)[truth[draw.permutation(600)]])
    posterior = combine_answers(sure, answers)
    assert posterior.evidence == "answers"
    assert posterior.temperature > 10


def test_a_model_with_other_columns_is_noticed() -> None:
    truth, answers, _, _ = crowd(n=600, k=4, skills=(0.9, 0.9, 0.9))
    rotated = np.log(np.full((600, 4), 1e-6) + np.eye(4)[(truth + 1) % 4])
    with pytest.warns(MismatchedClassesWarning, match="less than the 25 % of chance. Check that its columns"):
        combine_answers(rotated, answers)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_rows(n) -> None:
    logs = np.log([[0.5, 0.3, 0.2]] * n)
    posterior = combine_answers(logs, np.array([[1, 1, 1]] * n))
    assert (posterior.probabilities.argmax(1) == 1).all()
    assert posterior.evidence == "both"


def test_rows_without_answers_keep_the_tempered_model() -> None:
    _, answers, logs, _ = crowd(n=200)
    answers[:50] = -1
    posterior = combine_answers(logs, answers)
    scaled = np.exp(logs[:50] / posterior.temperature)
    np.testing.assert_allclose(posterior.probabilities[:50], scaled / scaled.sum(1, keepdims=True))


def test_votes_equal_answers_of_equally_accurate_annotators() -> None:
    _truth, answers, logs, _ = crowd(skills=(0.7, 0.7, 0.7), focus=0.25)
    counts = np.stack([(answers == y).sum(1) for y in range(5)], axis=1)
    one, other = combine_answers(logs, CrowdAnswers.from_votes(counts)), combine_answers(logs, answers)
    assert one.accuracy[0] == pytest.approx(other.accuracy.mean(), abs=0.01)
    assert (one.log_probabilities.argmax(1) == other.log_probabilities.argmax(1)).mean() > 0.98


def test_balanced_classes_may_be_known() -> None:
    _truth, answers, _, _ = crowd(skills=(0.6, 0.5), answered=0.8, seed=2)
    uniform = combine_answers(None, answers, class_priors="uniform")
    given = combine_answers(None, answers, class_priors=np.full(5, 2.0))
    np.testing.assert_allclose(uniform.log_probabilities, given.log_probabilities)
    with pytest.raises(ValueError, match="class_priors: got 'flat'"):
        combine_answers(None, answers, class_priors="flat")
    with pytest.raises(ValueError, match="expected 5 positive numbers"):
        combine_answers(None, answers, class_priors=[1, 1])


def test_expected_gain_is_that_of_asking() -> None:
    """Every answer that may come, its probability, and Bayes' rule."""
    _, answers, logs, _ = crowd(n=300, skills=(0.9, 0.5))
    posterior = combine_answers(logs, answers)
    gain = posterior.expected_gain(np.arange(20))
    assert gain.shape == (20, 2)
    assert (gain[:, 0] >= gain[:, 1] - 1e-9).mean() > 0.9  # the better one is worth more
    for i, a in itertools.product(range(20), range(2)):
        q, best = posterior.probabilities[i], 0.0
        for z in range(5):
            chance = sum(q[y] * posterior.confusion[a, y, z] for y in range(5))
            best += chance * max(q[y] * posterior.confusion[a, y, z] / chance for y in range(5))
        assert gain[i, a] == pytest.approx(best - q.max(), abs=1e-12)
    # Somebody new errs like both on average.
    alike = posterior.expected_gain_of_somebody(np.arange(20))
    assert (alike <= gain.max(1) + 1e-12).all()


def test_annotator_who_always_answers_the_same() -> None:
    truth, answers, logs, _ = crowd(n=1000, skills=(0.8, 0.8, 0.8))
    answers[:, 1] = 3
    posterior = combine_answers(logs, answers)
    np.testing.assert_allclose(posterior.confusion[1, :, 3], 1, atol=0.05)
    without = combine_answers(logs, np.delete(answers, 1, axis=1))
    assert right(posterior, truth) >= right(without, truth) - 0.012


@pytest.mark.parametrize("priors", [[1 / 3] * 3, [0.7, 0.2, 0.1], [0.85, 0.1, 0.05]])
@pytest.mark.parametrize("share", [1.0, 0.9])
def test_the_same_answer_to_everything_misleads_nobody(priors, share) -> None:
    draw = np.random.default_rng(0)
    truth = draw.choice(3, 400, p=priors)
    wrong = (truth[:, None] + draw.integers(1, 3, (400, 3))) % 3
    answers = np.where(draw.random((400, 3)) < (0.9, 0.75, 0.7), truth[:, None], wrong)
    same = np.where(draw.random(400) < share, 0, draw.integers(0, 3, 400))
    without, posterior = combine_answers(None, answers), combine_answers(None, np.c_[answers, same])
    assert right(posterior, truth) >= right(without, truth) - 0.015
    np.testing.assert_allclose(posterior.accuracy[:3], without.accuracy, atol=0.03)
    assert posterior.accuracy[3] == pytest.approx((same == truth).mean(), abs=0.05)


@pytest.mark.parametrize("n_annotators", [1, 3, 200])
@pytest.mark.parametrize("errors", ["shrunk", "dawid_skene", "one_coin"])
def test_single_answers_are_labels_but_not_certain(n_annotators, errors) -> None:
    draw = np.random.default_rng(0)
    labels = draw.choice(3, 200, p=[0.8, 0.15, 0.05])
    answers = np.full((200, n_annotators), -1)
    answers[np.arange(200), np.arange(200) % n_annotators] = labels
    posterior = combine_answers(None, CrowdAnswers.from_matrix(answers, 3), errors=errors)
    assert (posterior.probabilities.argmax(1) == labels).all()
    np.testing.assert_allclose(posterior.probabilities.max(1), 2 / 3)  # halfway between chance and 1
    np.testing.assert_allclose(posterior.accuracy, 2 / 3)
    assert posterior.is_assumed
    assert posterior.standard_error.min() > 0.2


def test_answers_that_can_be_compared_with_more_others_say_more() -> None:
    answers = np.array([[0, -1, -1], [1, 1, -1], [0, 1, 0], [1, 1, 1]])
    alone, with_model = (combine_answers(logs, answers).n_compared for logs in (None, np.zeros((4, 2))))
    np.testing.assert_allclose(alone, [11 / 6, 11 / 6, 4 / 3])
    np.testing.assert_allclose(with_model, [8 / 3, 13 / 6, 1.5])


def test_standard_errors_hold_for_rows_with_few_answers() -> None:
    inside = []
    for seed in range(20):
        draw = np.random.default_rng(seed)
        truth, skills = draw.integers(0, 4, 400), np.array([0.9, 0.75, 0.65])
        wrong = (truth[:, None] + draw.integers(1, 4, (400, 3))) % 4
        answers = np.where(draw.random((400, 3)) < skills, truth[:, None], wrong)
        several = draw.random(400) < 0.2
        first, second = draw.permuted(np.tile(np.arange(3), (400, 1)), axis=1)[:, :2].T
        kept = np.zeros((400, 3), dtype=bool)
        kept[np.arange(400), first] = True
        kept[several, second[several]] = True
        posterior = combine_answers(None, CrowdAnswers.from_matrix(np.where(kept, answers, -1), 4))
        inside.append(np.abs(posterior.accuracy - skills) <= 1.96 * posterior.standard_error)
    assert np.mean(inside) > 0.8


@pytest.mark.parametrize("model", [True, False])
def test_extreme_answers_stay_finite(model) -> None:
    draw = np.random.default_rng(0)
    truth, logs = calibrated_model(40, 3, 2.0, draw)
    cases = {
        "all agree": np.tile(truth[:, None], (1, 4)),
        "one annotator per row": np.where(np.eye(40, dtype=bool), truth[:, None], -1),
        "contradictions": np.stack([truth, (truth + 1) % 3, (truth + 2) % 3], axis=1),
        "one row has 500 answers": np.vstack([np.full((1, 500), 1), np.full((39, 500), -1)]),
        "nobody answered": np.full((40, 2), -1),
        "a class nobody else answers": np.stack([np.full(40, 2), truth % 2], axis=1),
    }
    for name, answers in cases.items():
        posterior = combine_answers(logs if model else None, CrowdAnswers.from_matrix(answers, 3))
        assert np.isfinite(posterior.log_probabilities).all(), name
        np.testing.assert_allclose(posterior.probabilities.sum(1), 1, err_msg=name)
        assert ((posterior.accuracy > 0) & (posterior.accuracy < 1)).all(), name
        assert np.isfinite(posterior.confusion).all(), name
        if name == "all agree":
            assert right(posterior, truth) == 1
            assert posterior.accuracy.min() > 0.9
        if name == "one row has 500 answers":
            assert posterior.probabilities[0].argmax() == 1


def test_many_annotators_share_matrices(monkeypatch) -> None:
    truth, answers, logs, _ = crowd(n=400, skills=(0.9,) * 4 + (0.6,) * 16, answered=0.2)
    monkeypatch.setattr("propall.labels.annotators.MAX_ENTRIES", 5 * 25)
    posterior = combine_answers(logs, answers)
    assert posterior.accuracy.shape == (20,)
    assert len(np.unique(posterior.accuracy.round(9))) == 5
    assert right(posterior, truth) > (logs.argmax(1) == truth).mean()
    assert posterior.matrices.shape == (5, 5, 5)
    assert posterior.confusion.shape == (20, 5, 5)
    np.testing.assert_allclose(
        posterior.mean_confusion, np.average(posterior.confusion, axis=0, weights=posterior.n_answers)
    )
    rows = np.arange(7)
    gain = posterior.expected_gain(rows)
    monkeypatch.setattr("propall.labels.annotators.BLOCK_VALUES", 1)  # one row at a time
    assert (posterior.expected_gain(rows) == gain).all()
    joint = posterior.probabilities[rows][:, None, :, None] * posterior.confusion
    best = posterior.probabilities[rows].max(1)[:, None]
    np.testing.assert_allclose(gain, np.maximum(joint.max(2).sum(2) - best, 0))


def earlier_of(logs, answers, k, **options) -> EarlierAnswers:
    crowd_answers = CrowdAnswers.from_matrix(answers, k)
    return EarlierAnswers.from_posterior(crowd_answers, combine_answers(logs, crowd_answers, **options))


@pytest.mark.parametrize("with_model", [True, False])
@pytest.mark.parametrize("errors", ["shrunk", "dawid_skene", "one_coin"])
def test_earlier_answers_count_like_answers(errors, with_model) -> None:
    truth, answers, logs, _ = crowd(1000, skills=(0.95, 0.5, 0.5), focus=0.4)
    old, new = slice(0, 980), slice(980, 1000)

    def estimate(rows, earlier=None):
        rows_answers = CrowdAnswers.from_matrix(answers[rows], 5)
        return combine_answers(
            logs[rows] if with_model else None, rows_answers, errors=errors, earlier=earlier
        )

    earlier = earlier_of(logs[old] if with_model else None, answers[old], 5, errors=errors)
    whole, known, alone = estimate(slice(0, 1000)), estimate(new, earlier), estimate(new)
    np.testing.assert_allclose(known.accuracy, whole.accuracy, atol=0.02)
    np.testing.assert_allclose(known.n_compared, whole.n_compared, rtol=1e-12)
    np.testing.assert_allclose(known.standard_error, whole.standard_error, rtol=0.08)
    assert (known.standard_error[1:] < alone.standard_error[1:] / 3).all()
    assert right(known, truth[new]) >= right(alone, truth[new])
    np.testing.assert_array_equal(known.n_answers, [20, 20, 20])
    np.testing.assert_array_equal(known.n_earlier, [980, 980, 980])


@pytest.mark.parametrize(("sure", "close"), [(1.5, 0.02), (100.0, 2e-3)])  # a mediocre model, the truth
def test_annotators_who_answered_different_rows_are_as_in_one_table(sure, close) -> None:
    _, answers, logs, _ = crowd(1200, skills=(0.9, 0.6, 0.75), sure=sure)
    half = np.arange(1200) < 600
    answers[~half, 0] = -1
    answers[half, 1] = -1
    whole = combine_answers(logs, answers)
    known = combine_answers(logs[half], answers[half], earlier=earlier_of(logs[~half], answers[~half], 5))
    np.testing.assert_array_equal(known.n_earlier, [0, 600, 600])
    np.testing.assert_array_equal(known.n_answers, [600, 0, 600])
    np.testing.assert_allclose(known.accuracy, whole.accuracy, atol=close)
    np.testing.assert_allclose(known.n_compared, whole.n_compared, rtol=1e-12)
    np.testing.assert_allclose(known.confusion, whole.confusion, atol=5 * close)
    np.testing.assert_allclose(known.probabilities, whole.probabilities[half], atol=10 * close)


def test_annotators_without_earlier_answers_are_expected_to_be_like_the_others() -> None:
    _, answers, logs, _ = crowd(510, skills=(0.9, 0.9, 0.9))
    old, rows = answers[:500].copy(), answers[500:].copy()
    old[:, 2] = rows[:, 2] = -1  # somebody new, who has not answered yet
    earlier = earlier_of(logs[:500], old, 5)
    known, alone = (combine_answers(logs[500:], rows, earlier=e) for e in (earlier, None))
    assert abs(known.accuracy[2] - known.accuracy[:2].mean()) < 0.03
    assert abs(known.accuracy[2] - 0.9) < abs(alone.accuracy[2] - 0.9)


def test_single_answers_of_known_annotators() -> None:
    _, answers, logs, _ = crowd(900, k=3, skills=(0.95, 0.5))
    single = CrowdAnswers.from_matrix(np.where(np.arange(20)[:, None] % 2 == [0, 1], answers[:20], -1), 3)
    by_model = earlier_of(logs[20:], answers[20:], 3)
    known = combine_answers(None, single, earlier=by_model)
    assert not known.is_assumed
    assert known.accuracy[0] > 0.9
    assert known.accuracy[1] < 0.6
    assert known.standard_error.max() < 0.03
    confident = known.probabilities.max(1)
    assert confident[::2].min() > confident[1::2].max()
    # Single answers in the earlier rows, too, and no model: still nothing is known.
    unknown = combine_answers(None, single)
    alone = combine_answers(None, single, earlier=earlier_of(None, np.array([[0, -1], [-1, 2]] * 50), 3))
    assert alone.is_assumed
    np.testing.assert_array_equal(alone.standard_error, unknown.standard_error)
    np.testing.assert_array_equal(alone.log_probabilities, unknown.log_probabilities)


def test_a_given_accuracy_needs_no_earlier_answers() -> None:
    _, answers, logs, _ = crowd(300)
    earlier = earlier_of(logs[20:], answers[20:], 5)
    one, other = (combine_answers(logs[:20], answers[:20], accuracy=0.7, earlier=e) for e in (earlier, None))
    np.testing.assert_array_equal(one.log_probabilities, other.log_probabilities)
    np.testing.assert_array_equal(one.standard_error, other.standard_error)
    assert not one.n_earlier.any()


def test_earlier_answers_of_annotators_who_share_a_matrix(monkeypatch) -> None:
    _, answers, logs, _ = crowd(200, k=3, skills=(0.5, 0.9, 0.6, 0.7))
    answers[:, 3] = -1  # no new answers, but most earlier ones
    old = answers[20:].copy()
    old[:, 3], old[::2, 1], old[::3, 2] = np.arange(180) % 3, -1, -1
    new, earlier = CrowdAnswers.from_matrix(answers[:20], 3), earlier_of(logs[20:], old, 3)
    group = np.array([0, 2, 2, 1])  # by the number of all answers: 200, 110, 140, 180
    merged = replace(earlier, answers=earlier.answers.of_groups(group))
    expected = combine_answers(logs[:20], new.of_groups(group), earlier=merged)
    monkeypatch.setattr(annotators, "MAX_ENTRIES", 3 * 9)
    shared = combine_answers(logs[:20], new, earlier=earlier)
    np.testing.assert_array_equal(shared.matrix_of, group)
    np.testing.assert_allclose(shared.matrices, expected.matrices, rtol=1e-9)
    np.testing.assert_allclose(shared.log_probabilities, expected.log_probabilities, rtol=1e-9)
    np.testing.assert_array_equal(shared.n_earlier, [180, 90, 120, 180])


def test_credible_sets() -> None:
    sets = credible_sets(np.array([[0.97, 0.02, 0.01], [0.5, 0.45, 0.05], [0.04, 0.03, 0.93]]))
    assert sets.tolist() == [[True, False, False], [True, True, True], [False, False, True]]
    assert credible_sets(np.full((1, 30), 1 / 30)).sum() == 1


def test_wrong_input_is_named() -> None:
    with pytest.raises(ValueError, match="labels: got index 3; expected 0 to 2"):
        CrowdAnswers.from_lists([0], [0], [3], (1, 1, 3))
    with pytest.raises(ValueError, match=r"log_probabilities: got shape \(2, 3\); expected \(1, 3\)"):
        combine_answers(np.zeros((2, 3)), np.array([[0]]))
    for odd in (np.array([["cat", "dog"]]), np.array([0, 1])):
        with pytest.raises(ValueError, match=r"answers: got .* expected a matrix of class indices"):
            combine_answers(None, odd)
    with pytest.raises(ValueError, match="errors: got 'glad'; expected shrunk, dawid_skene, one_coin"):
        combine_answers(None, np.array([[0, 1]]), errors="glad")
    earlier = earlier_of(None, np.array([[0, 1], [1, 1]]), 2)
    with pytest.raises(ValueError, match="earlier: got answers of 2 annotators with 2 classes; expected"):
        combine_answers(None, np.array([[0, 1, 1]]), earlier=earlier)
    for wrong in (
        {"probabilities": earlier.probabilities[:1], "weights": earlier.weights[:1]},
        {"probabilities": np.full((2, 2), np.nan)},
        {"weights": np.array([0.5, -1.0])},
    ):
        name = next(iter(wrong))
        with pytest.raises(ValueError, match=rf"earlier: got {name} of shape .* expected shape \(2,"):
            combine_answers(None, np.array([[0, 1]]), earlier=replace(earlier, **wrong))
    with pytest.raises(ValueError, match="answers: got float64 of shape"):
        combine_answers(None, np.array([[0, np.nan]]))
    with pytest.raises(ValueError, match="answers: there are no rows"):
        combine_answers(None, np.zeros((0, 2), dtype=int))
    with pytest.raises(ValueError, match="answers: there is 1 class"):
        combine_answers(np.zeros((2, 1)), np.array([[0], [0]]))
    for bad in ([np.nan, 0.0], [-np.inf, -np.inf], [np.inf, 0.0]):
        with pytest.raises(ValueError, match="log_probabilities: row 1 is"):
            combine_answers(np.array([[0.0, 0.0], bad]), np.array([[0], [1]]))

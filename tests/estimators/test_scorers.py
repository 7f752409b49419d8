"""Criteria on candidate sets, and scikit-learn scorers."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from propall import CandidateLabels, PartialLabelClassifier
from propall.estimators.folds import CandidateStratifiedKFold
from propall.estimators.scorers import (
    CRITERIA,
    SCORERS,
    CandidatePairs,
    approximated_accuracy,
    candidate_log_likelihood,
    cooccurrence_log_likelihood,
    covering_rate,
    log_set_probabilities,
    tempered_log_likelihood,
    weighted_covering_rate,
)
from propall.estimators.search import PartialLabelClassifierCV
from tests.fixtures.candidates import overlapping_clouds

CHANCES = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.6, 0.4, 0.0]])


SETS = np.array([[True, True, False], [True, True, False], [True, True, True]])


def test_criteria_by_hand():
    assert covering_rate(CHANCES, SETS) == pytest.approx(2 / 3)
    assert weighted_covering_rate(CHANCES, SETS) == pytest.approx((1 / 2 + 1 / 3) / (1 / 2 + 1 / 2 + 1 / 3))
    assert approximated_accuracy(CHANCES, SETS) == pytest.approx((0.5 / 0.8 + 0 + 0.6) / 3)
    assert candidate_log_likelihood(CHANCES, SETS) == pytest.approx((np.log(0.8) + np.log(0.3)) / 3)


def test_sets_given_which_labels_occur_together_by_hand():
    random = np.random.default_rng(0)
    n, k = 12, 3
    chances, weight = random.dirichlet(np.ones(k), n), random.uniform(0.2, 2, n)
    sets = random.random((n, k)) < 0.5
    sets[np.arange(n), random.integers(k, size=n)] = True
    posterior = weight[:, None] * chances * sets / (chances * sets).sum(1, keepdims=True)
    # Share of the rows of class y that have j as a candidate; half a row of every class has the mean shares.
    share = [
        [
            (posterior[:, y] @ sets[:, j] + 0.5 * weight @ sets[:, j] / weight.sum())
            / (posterior[:, y].sum() + 0.5)
            for j in range(k)
        ]
        for y in range(k)
    ]
    logs = []
    for row, labels in zip(chances, sets, strict=True):
        total = 0.0
        for y in np.flatnonzero(labels):
            others = [share[y][j] if labels[j] else 1 - share[y][j] for j in range(k) if j != y]
            total += row[y] * np.prod(others)
        logs.append(np.log(total))
    expected = np.average(logs, weights=weight)
    assert cooccurrence_log_likelihood(chances, sets, weight) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("criterion", CRITERIA.values(), ids=CRITERIA)
def test_a_weight_equals_repetitions(criterion):
    random = np.random.default_rng(0)
    chances, mask = random.dirichlet(np.ones(4), 60), random.random((60, 4)) < 0.5
    weight = random.integers(3, size=60)
    repeated = criterion(chances.repeat(weight, 0), mask.repeat(weight, 0))
    assert criterion(chances, mask, weight) == pytest.approx(repeated, rel=1e-6)


@pytest.mark.parametrize("criterion", CRITERIA.values(), ids=CRITERIA)
def test_criteria_are_finite_for_confident_wrong_models(criterion):
    certain = np.eye(3)
    nearly = np.maximum(certain, 1e-310)
    assert np.isfinite(criterion(nearly, ~certain.astype(bool)))
    assert np.isfinite(criterion(certain, certain.astype(bool)))
    assert np.isfinite(criterion(certain, ~certain.astype(bool)))
    assert np.isfinite(criterion(certain, np.zeros((3, 3), dtype=bool)))
    assert criterion(certain, certain) > criterion(certain, ~certain.astype(bool))


def test_tempered_likelihood_ignores_overall_confidence():
    random = np.random.default_rng(0)
    logits, mask = random.normal(size=(200, 4)), random.random((200, 4)) < 0.2
    mask[np.arange(200), (logits + random.gumbel(size=(200, 4))).argmax(1)] = True
    sure, unsure = (np.exp(t * logits) / np.exp(t * logits).sum(1, keepdims=True) for t in (4.0, 0.5))
    assert candidate_log_likelihood(sure, mask) < candidate_log_likelihood(unsure, mask) - 0.1
    assert tempered_log_likelihood(sure, mask) == pytest.approx(
        tempered_log_likelihood(unsure, mask), abs=2e-3
    )


def test_likelihood_of_complementary_labels():
    labels = CandidateLabels.from_complementary([{"b"}, {"a", "c"}], ["a", "b", "c"])
    expected = (np.log(0.7) + np.log(0.2)) / 2
    assert (
        candidate_log_likelihood(CHANCES[:2], labels)
        == pytest.approx((np.log(1 - 0.3) + np.log(0.2)) / 2)
        == pytest.approx(expected)
    )


@pytest.mark.parametrize("criterion", CRITERIA.values(), ids=CRITERIA)
def test_mismatched_shapes_are_refused(criterion):
    with pytest.raises(
        ValueError, match=r"candidates: got shape \(2, 3\) for probabilities of shape \(3, 3\)"
    ):
        criterion(CHANCES, SETS[:2])
    with pytest.raises(ValueError, match="at least one"):
        criterion(CHANCES[:0], SETS[:0])


@pytest.mark.parametrize("name", SCORERS)
@pytest.mark.parametrize("form", [lambda S: S, CandidateLabels.from_matrix], ids=["bool", "labels"])
def test_cross_val_score(name, form):
    X, S, _ = overlapping_clouds()
    clf = make_pipeline(
        StandardScaler(), PartialLabelClassifier(epochs=10, learning_rate=0.1, random_state=0)
    )
    y = form(S)
    folds = CandidateStratifiedKFold(3)
    scores = cross_val_score(clf, X, y, scoring=SCORERS[name], cv=folds)
    expected = [
        CRITERIA[name](clone(clf).fit(X[fit], S[fit]).predict_proba(X[hold]), S[hold])
        for fit, hold in folds.split(X, y)
    ]
    np.testing.assert_allclose(scores, expected)


def test_grid_search_on_all_criteria_at_once():
    X, S, truth = overlapping_clouds()
    search = GridSearchCV(
        PartialLabelClassifier(epochs=30, random_state=0),
        {"learning_rate": [1e-5, 0.1]},
        scoring=SCORERS,
        refit="candidate_log_likelihood",
        cv=CandidateStratifiedKFold(3),
    )
    search.fit(X, CandidateLabels.from_matrix(S))
    assert search.best_params_ == {"learning_rate": 0.1}
    assert set(CRITERIA) <= {name.removeprefix("mean_test_") for name in search.cv_results_}
    assert search.best_estimator_.score(X, truth) > 0.9


def test_scorers_accept_any_classifier_and_any_form_of_y():
    X, S, truth = overlapping_clouds()
    names = np.array(["ant", "bee", "cow", "dog"])
    model = LogisticRegression().fit(X, names[truth])
    expected = covering_rate(model.predict_proba(X), S)
    scorer = SCORERS["covering_rate"]
    for y in (S, ["|".join(names[row]) for row in S], [set(names[row]) for row in S]):
        assert scorer(model, X, y) == expected
    assert scorer(model, X, names[truth]) == model.score(X, names[truth])
    other_order = CandidateLabels.from_sets([set(names[row]) for row in S], names[::-1].tolist())
    assert scorer(model, X, other_order) == expected


def test_candidates_unknown_to_the_model_have_no_probability():
    X, S, truth = overlapping_clouds()
    few = truth < 3
    model = LogisticRegression().fit(X[few], truth[few])
    labels = CandidateLabels.from_matrix(S)
    score = SCORERS["candidate_log_likelihood"](model, X, labels)
    assert score == pytest.approx(candidate_log_likelihood(model.predict_proba(X), S[:, :3]))
    with pytest.raises(ValueError, match="y: 1 row has no usable label"):
        SCORERS["covering_rate"](model, X[:2], [0.0, np.nan])


def test_unknown_criteria_are_answered_with_similar_names():
    with pytest.raises(ValueError, match="did you mean 'covering_rate'"):
        SCORERS["covering"]
    with pytest.raises(ValueError, match=r"did you mean .*candidate_log_likelihood"):
        PartialLabelClassifierCV(scoring="log_likelihood").fit([[0.0], [1.0]], [0, 1])


def test_pairs_of_candidates_give_the_same_likelihoods_as_all_labels(monkeypatch):
    random = np.random.default_rng(0)
    chances, weight = random.dirichlet(np.ones(9), 50), random.uniform(0.2, 2, 50)
    sets = random.random((50, 9)) < 0.3
    sets[3] = True
    sets[4] = False  # a label unknown to the model
    chances[5] = np.where(sets[5], 0, 1)  # all candidates have probability 0
    pairs = CandidatePairs.of(sets)
    expected = log_set_probabilities(chances, sets, weight)[sets]
    np.testing.assert_allclose(pairs.log_probabilities(chances[sets], weight), expected, rtol=1e-12)
    dense = cooccurrence_log_likelihood(chances, sets, weight)
    monkeypatch.setattr("propall.estimators.scorers.has_few_candidates", lambda mask: True)
    assert cooccurrence_log_likelihood(chances, sets, weight) == pytest.approx(dense, rel=1e-12)

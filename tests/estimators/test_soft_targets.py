"""Soft targets as regression, weighted copies and sampled labels."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

from propall.estimators.soft_targets import (
    REGRESSORS,
    SoftTargetLearner,
    normalized,
    sample_labels,
    weighted_copies,
)
from tests.fixtures.candidates import overlapping_clouds


@pytest.mark.parametrize(
    "classifier",
    [
        DecisionTreeClassifier(max_depth=4),
        ExtraTreeClassifier(min_samples_leaf=3),
        ExtraTreesClassifier(5, max_features=2),
        KNeighborsClassifier(4, weights="distance"),
        RandomForestClassifier(5, max_leaf_nodes=8),
    ],
    ids=lambda classifier: type(classifier).__name__,
)
def test_a_regressor_on_one_hot_targets_is_the_classifier(classifier):
    assert type(classifier) in REGRESSORS
    X, _, truth = overlapping_clouds()
    if "random_state" in classifier.get_params():
        classifier.set_params(random_state=7)
    learner = SoftTargetLearner.choose(classifier)
    assert learner.strategy == "regression"
    model = learner.fit(X, np.eye(4)[truth], None, 0)
    expected = clone(classifier).fit(X, truth).predict_proba(X)
    np.testing.assert_allclose(model.probabilities(X, len(X)), expected, atol=1e-12)


@pytest.mark.parametrize("name", ["min_impurity_decrease", "ccp_alpha"])
def test_an_impurity_threshold_is_that_of_the_classifier(name):
    X, _, truth = overlapping_clouds()
    classifier = DecisionTreeClassifier(random_state=7, **{name: 0.02})
    model = SoftTargetLearner.choose(classifier).fit(X, np.eye(4)[truth], None, 0)
    expected = clone(classifier).fit(X, truth)
    whole = clone(classifier).set_params(**{name: 0}).fit(X, truth)
    assert 1 < expected.get_n_leaves() < whole.get_n_leaves()
    np.testing.assert_allclose(model.probabilities(X, len(X)), expected.predict_proba(X), atol=1e-12)


def test_copies_are_the_gradient_of_the_soft_cross_entropy():
    # Logistic regression on weighted copies minimizes the cross-entropy to the targets: with a bias alone its
    # prediction is their mean.
    targets = normalized(np.random.default_rng(0).random((50, 3)))
    learner = SoftTargetLearner.choose(LogisticRegression(C=np.inf, tol=1e-8))
    assert learner.strategy == "copies"
    model = learner.fit(np.zeros((50, 1)), targets, None, 0)
    np.testing.assert_allclose(model.probabilities(np.zeros((1, 1)), 1)[0], targets.mean(0), atol=1e-4)


def test_weighted_copies():
    targets = np.array([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [1e-5, 0.0, 1 - 1e-5]])
    rows, columns, weight = weighted_copies(targets, np.array([2.0, 3.0, 4.0]))
    assert rows.tolist() == [0, 0, 1, 2]
    assert columns.tolist() == [0, 1, 1, 2]
    assert weight.tolist() == [1, 1, 3, 4]
    many = np.full((1, 5000), 1 / 5000)
    assert len(weighted_copies(many)[0]) == 5000


def test_sampled_labels_have_the_given_frequencies():
    targets = np.tile([0.0, 0.7, 0.3, 0.0], (20_000, 1))
    drawn = sample_labels(targets, 1)
    assert set(drawn) == {1, 2}
    assert (drawn == 1).mean() == pytest.approx(0.7, abs=0.015)
    np.testing.assert_array_equal(drawn, sample_labels(targets, 1))
    assert (drawn != sample_labels(targets, 2)).any()


def test_the_strategy_follows_the_estimator():
    forest = RandomForestClassifier()
    chosen = {
        "regression": [forest, make_pipeline(forest), KNeighborsClassifier()],
        "copies": [
            LogisticRegression(),
            LinearSVC(),
            make_pipeline(SelectKBest(), forest),
            RandomForestClassifier(class_weight="balanced"),
        ],
    }
    for strategy, estimators in chosen.items():
        for estimator in estimators:
            assert SoftTargetLearner.choose(estimator).strategy == strategy
    assert SoftTargetLearner.choose(forest).has_out_of_bag
    assert not SoftTargetLearner.choose(forest, "copies").has_out_of_bag
    assert not SoftTargetLearner.choose(ExtraTreesClassifier()).has_out_of_bag


def test_normalized():
    np.testing.assert_array_equal(
        normalized(np.array([[1.0, 3.0], [-1.0, 2.0], [0.0, 0.0]])), [[0.25, 0.75], [0, 1], [0.5, 0.5]]
    )

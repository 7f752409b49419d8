"""scikit-learn's checks and real estimators on candidate sets."""

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV, KFold, TimeSeriesSplit
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from propall import CandidateClassifier, CandidateLabels, PartialLabelClassifier, resolve_out_of_fold
from propall.estimators.scorers import SCORERS, weighted_covering_rate
from tests.fixtures.candidates import NAMES, overlapping_clouds, separate_clouds

FOREST = ExtraTreesClassifier(10, bootstrap=True)
FOREST_FAILURES = dict.fromkeys(
    ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"),
    "bootstrap draws depend on the number of rows",
)
NEIGHBOR_FAILURES = dict.fromkeys(
    (
        "check_sample_weights_pandas_series",
        "check_sample_weights_not_an_array",
        "check_sample_weights_list",
        "check_sample_weights_shape",
        "check_sample_weights_not_overwritten",
        "check_sample_weight_equivalence_on_dense_data",
        "check_sample_weight_equivalence_on_sparse_data",
        "check_classifiers_one_label_sample_weights",
    ),
    "nearest neighbors do not support instance weights",
)


def known_failures(model):
    if isinstance(model.estimator, ExtraTreesClassifier):
        return FOREST_FAILURES
    return NEIGHBOR_FAILURES if isinstance(model.estimator, KNeighborsClassifier) else {}


@parametrize_with_checks(
    [
        CandidateClassifier(LogisticRegression(), cv=2, max_rounds=2),
        CandidateClassifier(FOREST, max_rounds=2),
    ],
    expected_failed_checks=known_failures,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [CandidateClassifier(KNeighborsClassifier(2), cv=2, max_rounds=2)],
    expected_failed_checks=known_failures,
)
def test_scikit_learn_checks_of_nearest_neighbors(estimator, check):
    check(estimator)


def boosters():
    lightgbm, xgboost = pytest.importorskip("lightgbm"), pytest.importorskip("xgboost")
    return {
        "lightgbm": lightgbm.LGBMClassifier(n_estimators=8, min_child_samples=5, verbose=-1, n_jobs=1),
        "xgboost": xgboost.XGBClassifier(n_estimators=8, n_jobs=1),
    }


ESTIMATORS = {
    "extra_trees": FOREST,
    "forest_without_bootstrap": RandomForestClassifier(10, bootstrap=False),
    "forest_with_entropy": RandomForestClassifier(10, criterion="entropy"),
    "regressor": ExtraTreesRegressor(20),
    "histogram_boosting": HistGradientBoostingClassifier(max_iter=8, min_samples_leaf=5),
    "logistic": LogisticRegression(),
    "svc": CalibratedClassifierCV(SVC(), ensemble=False),
    "svc_without_probabilities": SVC(),
    "ridge": RidgeClassifier(),
    "neighbors": KNeighborsClassifier(),
    "discriminant": LinearDiscriminantAnalysis(),
    "bayes": GaussianNB(),
    "scaled_logistic": make_pipeline(StandardScaler(), LogisticRegression()),
    "scaled_forest": make_pipeline(StandardScaler(), FOREST),
    "selected_forest": make_pipeline(SelectKBest(k=3), FOREST),
    "nested": make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), LogisticRegression())),
    "searched": GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=2),
}


@pytest.mark.parametrize("name", [*ESTIMATORS, "lightgbm", "xgboost"])
def test_any_estimator_learns_from_candidate_sets(name):
    estimator = ESTIMATORS[name] if name in ESTIMATORS else boosters()[name]
    X, S, truth = overlapping_clouds(160)
    y = ["|".join(f"class {j}" for j in np.flatnonzero(row)) for row in S]
    clf = CandidateClassifier(estimator, cv=None if name == "extra_trees" else 2, max_rounds=2)
    clf = clone(clf).set_params(random_state=0).fit(X, y)
    assert clf.classes_.tolist() == [f"class {j}" for j in range(4)]
    probabilities = clf.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    np.testing.assert_array_equal(clf.predict(X), clf.classes_[probabilities.argmax(1)])
    test_X, _, test_truth = overlapping_clouds(200, seed=1)
    assert clf.score(test_X, clf.classes_[test_truth]) > 0.75
    # Held-out posteriors resolve the rows better than the sets alone, where one in |S| is right.
    np.testing.assert_allclose(clf.posterior_.sum(1), 1)
    assert not clf.posterior_[~S].any()
    assert (clf.out_of_fold_.label == clf.classes_[truth]).mean() > 0.82 > (1 / S.sum(1)).mean()
    again = clone(clf).fit(X, y)
    np.testing.assert_array_equal(again.predict_proba(X), probabilities)


@pytest.mark.parametrize(
    "form",
    [
        lambda S: S,
        lambda S: csr_array(S.astype(np.int8)),
        lambda S: pd.DataFrame(S, columns=[0, 1, 2]),
        lambda S: [set(np.flatnonzero(row).tolist()) for row in S],
        lambda S: CandidateLabels.from_matrix(S),
        lambda S: CandidateLabels.from_complementary([set(np.flatnonzero(~row)) for row in S], range(3)),
    ],
    ids=["bool", "sparse", "frame", "sets", "labels", "complementary"],
)
def test_all_forms_of_y_give_the_same_model(form):
    X, S, truth = separate_clouds()
    expected = CandidateClassifier(LogisticRegression(), random_state=0).fit(X, S)
    model = CandidateClassifier(LogisticRegression(), random_state=0).fit(X, form(S))
    np.testing.assert_array_equal(model.predict_proba(X), expected.predict_proba(X))
    assert model.score(X, truth) > 0.95


@pytest.mark.parametrize("estimator", [LogisticRegression(), RandomForestClassifier(10, random_state=3)])
def test_ordinary_labels_give_the_estimator_itself(estimator):
    X, _, truth = separate_clouds()
    model = CandidateClassifier(estimator, cv=3).fit(X, NAMES[truth])
    np.testing.assert_allclose(
        model.predict_proba(X), clone(estimator).fit(X, truth).predict_proba(X), atol=1e-12
    )
    assert len(model.scores_) == model.round_ == 1


def test_out_of_bag_predictions_do_not_see_the_row():
    random = np.random.default_rng(0)
    X, S = random.normal(size=(200, 3)), random.random((200, 4)) < 0.5
    S[np.arange(200), random.integers(4, size=200)] = True
    S[S.all(1), 0] = False
    # Features and candidates are independent, so no held-out model can know more than the frequencies.
    model = CandidateClassifier(ExtraTreesClassifier(100, bootstrap=True), random_state=0, max_rounds=1)
    model.fit(X, S)
    covered = S[np.arange(200), model.out_of_fold_.probabilities.argmax(1)].mean()
    assert abs(covered - S.mean()) < 0.12
    assert S[np.arange(200), model.predict_proba(X).argmax(1)].mean() > 0.95


def test_resolving_out_of_fold_repeats_all_rounds_without_the_row():
    random = np.random.default_rng(0)
    X, S = random.integers(0, 2, size=(150, 6)).astype(float), np.ones((150, 4), dtype=bool)
    S[np.arange(150), random.integers(4, size=150)] = False
    model = CandidateClassifier(ExtraTreesClassifier(20, bootstrap=True), random_state=0, max_rounds=3)
    resolution = resolve_out_of_fold(model, X, S, calibrate=False)
    # Features and candidates are independent; within one fit, the second round already has 0.9.
    assert weighted_covering_rate(resolution.probabilities, S) < 0.82
    assert max(model.fit(X, S).scores_) > 0.85


def test_a_class_may_be_missing_from_a_fold():
    X, S, truth = separate_clouds(60)
    names = [*range(3), "rare"]
    S = np.column_stack([S, np.zeros(60, bool)])
    S[0] = [False, False, False, True]
    for estimator in (LogisticRegression(), KNeighborsClassifier(3), SVC(), boosters()["xgboost"]):
        model = CandidateClassifier(estimator, classes=names, cv=3, random_state=0, targets="auto").fit(X, S)
        assert model.classes_.tolist() == names
        assert model.score(X[1:], truth[1:]) > 0.9
        held_out = model.out_of_fold_
        assert held_out.candidates[0].tolist() == [False, False, False, True]
        assert held_out.label[0] == "rare"
    # A fold whose other rows all have one class.
    alone = CandidateClassifier(LogisticRegression(), cv=[([0, 1], [2, 3]), ([2, 3], [0, 1])])
    alone.fit(X[:4], ["a", "a", "b", "b|c"])
    assert alone.out_of_fold_.probabilities[:2].argmax(1).tolist() == [1, 1]


def test_starts():
    X, S, truth = overlapping_clouds(200, spread=1.5)
    labels = CandidateLabels.from_matrix(S)
    net = PartialLabelClassifier(epochs=30, random_state=0)
    oracle = np.eye(4)[truth]
    base = CandidateClassifier(FOREST, max_rounds=1, random_state=0)
    uniform = clone(base).fit(X, labels)
    started = clone(base).set_params(start=net, anchor=True).fit(X, labels)
    frozen = clone(base).set_params(start=FrozenEstimator(clone(net).fit(X, labels))).fit(X, labels)
    told = clone(base).set_params(anchor=True).fit(X, labels, posterior=oracle)
    chained = clone(base).fit(X, labels, posterior=started.posterior_)
    resolved = [(m.posterior_.argmax(1) == truth).mean() for m in (uniform, started, frozen, told, chained)]
    assert resolved[0] < resolved[1] < resolved[3] == 1
    assert min(resolved[2], resolved[4]) > resolved[0]
    assert "start__epochs" in started.get_params()
    start = resolve_out_of_fold(net, X, labels).among_candidates
    assert np.abs(started.posterior_ - start).mean() < np.abs(uniform.posterior_ - start).mean()


def test_a_start_may_have_its_own_order_of_the_classes():
    X, S, _ = overlapping_clouds(100)
    y = ["|".join(f"class {j}" for j in np.flatnonzero(row)) for row in S]
    names = [f"class {j}" for j in (2, 0, 3, 1)]
    model = CandidateClassifier(LogisticRegression(), max_rounds=1, cv=2, random_state=0)
    start = CandidateClassifier(LogisticRegression(), max_rounds=1, cv=2, random_state=0)
    expected = clone(model).set_params(start=start).fit(X, y)
    model.set_params(start=clone(start).set_params(classes=names)).fit(X, y)
    np.testing.assert_allclose(model.posterior_, expected.posterior_, atol=1e-4)


def test_rows_in_every_bag_keep_their_targets():
    X, S, truth = overlapping_clouds(100)
    oracle = np.eye(4)[truth]
    model = CandidateClassifier(ExtraTreesClassifier(2, bootstrap=True), random_state=0, max_rounds=1)
    model.fit(X, S, posterior=oracle)
    in_every_bag = ~model.estimator_.oob_prediction_.any(1)
    assert 0 < in_every_bag.sum() < 100
    np.testing.assert_array_equal(model.posterior_[in_every_bag], oracle[in_every_bag])
    # Nothing is known about them, so they are not in the score.
    np.testing.assert_allclose(model.out_of_fold_.probabilities[in_every_bag], 0.25)
    known = model.out_of_fold_.probabilities[~in_every_bag]
    assert model.scores_[0] == weighted_covering_rate(known, S[~in_every_bag])


def test_rounds_sharpening_and_selection():
    X, S, _ = overlapping_clouds(200, spread=1.5)
    forest = ExtraTreesClassifier(40, bootstrap=True)  # enough that no row is in every bag
    model = CandidateClassifier(forest, random_state=0, max_rounds=6).fit(X, S)
    assert model.round_ == np.argmax(model.scores_) + 1
    assert len(model.scores_) <= model.round_ + 2
    assert model.scores_[model.round_ - 1] == pytest.approx(
        SCORERS["weighted_covering_rate"].criterion(model.out_of_fold_.probabilities, S, None)
    )
    last = clone(model).set_params(scoring=None, max_rounds=3).fit(X, S)
    assert (last.round_, last.scores_) == (3, [])
    soft = clone(model).set_params(scoring=None, max_rounds=1)
    hard = clone(soft).set_params(sharpening=3.0)
    expected = soft.fit(X, S).posterior_ ** 3
    np.testing.assert_allclose(hard.fit(X, S).posterior_, expected / expected.sum(1, keepdims=True))


def test_weights_of_rows():
    X, S, _ = overlapping_clouds(100)
    for estimator in (LogisticRegression(), make_pipeline(StandardScaler(), FOREST)):
        model = CandidateClassifier(estimator, random_state=0, max_rounds=1, scoring=None)
        light = clone(model).fit(X, S, sample_weight=np.where(S[:, 0], 1e-3, 1.0))
        assert light.predict_proba(X)[:, 0].mean() < 0.5 * model.fit(X, S).predict_proba(X)[:, 0].mean()
    weight = np.where(S[:, 0], 3.0, 0.5)
    scored = CandidateClassifier(LogisticRegression(), random_state=0, max_rounds=1).fit(X, S, weight)
    held_out = scored.out_of_fold_.probabilities
    assert scored.scores_ == [pytest.approx(weighted_covering_rate(held_out, S, weight))]
    assert scored.scores_[0] != pytest.approx(weighted_covering_rate(held_out, S))
    with pytest.raises(ValueError, match="sample_weight: KNeighborsRegressor does not support weights"):
        CandidateClassifier(KNeighborsClassifier()).fit(X, S, sample_weight=np.ones(100))


def test_grid_search_and_nested_parameters():
    X, S, truth = separate_clouds()
    clf = CandidateClassifier(make_pipeline(StandardScaler(), LogisticRegression()), cv=2, random_state=0)
    grid = {"estimator__logisticregression__C": [1e-4, 1.0], "sharpening": [1.0, 2.0]}
    search = GridSearchCV(clf, grid, cv=2, scoring=SCORERS["candidate_log_likelihood"])
    search.fit(pd.DataFrame(X, columns=list("abcd")), CandidateLabels.from_matrix(S))
    assert search.best_params_["estimator__logisticregression__C"] == 1.0
    assert search.best_estimator_.feature_names_in_.tolist() == list("abcd")
    assert search.best_estimator_.score(pd.DataFrame(X, columns=list("abcd")), truth) > 0.9
    resolution = search.best_estimator_.resolve(pd.DataFrame(X, columns=list("abcd")), S)
    assert (resolution.label == truth).mean() > 0.95
    out_of_fold = resolve_out_of_fold(clf, X, S)
    assert (out_of_fold.label == truth).mean() > 0.95


def test_features_are_handed_over_unchanged():
    X, S, truth = separate_clouds()
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame["kind"] = pd.Categorical(NAMES[truth])
    frame.loc[::7, "a"] = np.nan
    model = CandidateClassifier(HistGradientBoostingClassifier(categorical_features="from_dtype", max_iter=5))
    assert model.set_params(cv=2, random_state=0).fit(frame, S).score(frame, truth) > 0.95
    encoder = make_column_transformer((OneHotEncoder(), ["kind"]), remainder="drop")
    model = CandidateClassifier(make_pipeline(encoder, FOREST), random_state=0).fit(frame, S)
    assert model.score(frame, truth) > 0.95
    texts = [f"a {name} sat" for name in NAMES[truth]]
    model = CandidateClassifier(make_pipeline(CountVectorizer(), LogisticRegression()), random_state=0)
    assert model.fit(texts, S).score(texts, truth) > 0.95


def test_methods_of_an_estimator_may_depend_on_its_fit():
    X, S, truth = separate_clouds(60)
    base = [("tree", DecisionTreeClassifier(max_depth=3)), ("linear", LogisticRegression())]
    model = CandidateClassifier(StackingClassifier(base, cv=2), max_rounds=2, random_state=0).fit(X, S)
    assert model.score(X, truth) > 0.9


def test_invalid_arguments_are_refused():
    X, S, _ = separate_clouds(30)
    cases = [
        ({"targets": "hard"}, r"targets: got 'hard'; expected one of auto, regression"),
        ({"targets": "regression"}, r"LogisticRegression with these parameters has no matching regressor"),
        ({"max_rounds": 0}, "max_rounds: got 0; expected an integer of at least 1"),
        ({"sharpening": -1.0}, "sharpening: got -1.0; expected a positive number"),
        ({"scoring": "covering"}, "did you mean"),
        ({"cv": TimeSeriesSplit(2)}, "each row must be held out exactly once"),
        ({"estimator": QuadraticDiscriminantAnalysis(), "targets": "copies"}, "needs sample_weight"),
        ({"estimator": ExtraTreesRegressor(), "targets": "copies"}, "'copies' needs a classifier"),
        ({"estimator": SVC(decision_function_shape="ovo")}, "a score for every pair of classes"),
    ]
    for parameters, message in cases:
        model = CandidateClassifier(**{"estimator": LogisticRegression(), **parameters})
        with pytest.raises(ValueError, match=message):
            model.fit(X, S)
    with pytest.raises(TypeError, match="StandardScaler has neither predict_proba nor decision_function"):
        CandidateClassifier(StandardScaler()).fit(X, S)
    hard = VotingClassifier([("tree", DecisionTreeClassifier())], voting="hard")
    with pytest.raises(TypeError, match="VotingClassifier has neither predict_proba nor decision_function"):
        CandidateClassifier(make_pipeline(StandardScaler(), hard)).fit(X, S)
    for wrong in ("forest", LogisticRegression):
        with pytest.raises(TypeError, match=r"estimator: got .*; expected a classifier"):
            CandidateClassifier(wrong).fit(X, S)
    with pytest.raises(ValueError, match=r"posterior: got shape \(30, 2\); expected \(30, 3\)"):
        CandidateClassifier(LogisticRegression()).fit(X, S, posterior=np.ones((30, 2)))
    with pytest.raises(ValueError, match="29 entries for 30 rows"):
        CandidateClassifier(LogisticRegression()).fit(X, S[1:])
    assert CandidateClassifier(LogisticRegression(), cv=KFold(3)).fit(X, S).score(X, S) > 0.9

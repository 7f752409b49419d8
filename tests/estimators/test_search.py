"""Choosing without true labels: criteria, folds, the stacked search, out-of-fold answers."""

import time

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from propall import CandidateLabels, PartialLabelClassifier
from propall.estimators import cross_fitting
from propall.estimators.cross_fitting import EARLY_STOPS, CrossFitting
from propall.estimators.folds import CandidateStratifiedKFold
from propall.estimators.scorers import (
    CRITERIA,
    SCORERS,
    approximated_accuracy,
    candidate_log_likelihood,
    covering_rate,
    tempered_log_likelihood,
    weighted_covering_rate,
)
from propall.estimators.search import PartialLabelClassifierCV, resolve_out_of_fold
from propall.methods.propall import ProPaLL

SMALL = PartialLabelClassifierCV(
    ["cc"], ["linear"], learning_rates=[0.1, 0.3], weight_decays=[1e-4], epochs=15, cv=2
)


@parametrize_with_checks([SMALL])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def problem(n=150, k=4, spread=1.0, seed=0):
    """Clouds that overlap a little; a row's set holds its class and each other class at times."""
    random = np.random.default_rng(seed)
    truth = random.integers(k, size=n)
    X = spread * random.normal(size=(n, 5)) + 3 * np.eye(k, 5)[truth]
    candidates = random.random((n, k)) < 0.3
    candidates[np.arange(n), truth] = True
    candidates[candidates.all(1), (truth[candidates.all(1)] + 1) % k] = False
    return X, candidates, truth


# Criteria

CHANCES = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.6, 0.4, 0.0]])
SETS = np.array([[True, True, False], [True, True, False], [True, True, True]])


def test_criteria_by_hand():
    assert covering_rate(CHANCES, SETS) == pytest.approx(2 / 3)
    assert weighted_covering_rate(CHANCES, SETS) == pytest.approx((1 / 2 + 1 / 3) / (1 / 2 + 1 / 2 + 1 / 3))
    assert approximated_accuracy(CHANCES, SETS) == pytest.approx((0.5 / 0.8 + 0 + 0.6) / 3)
    assert candidate_log_likelihood(CHANCES, SETS) == pytest.approx((np.log(0.8) + np.log(0.3)) / 3)


@pytest.mark.parametrize("criterion", CRITERIA.values(), ids=CRITERIA)
def test_weights_are_repetitions(criterion):
    random = np.random.default_rng(0)
    chances, mask = random.dirichlet(np.ones(4), 60), random.random((60, 4)) < 0.5
    weight = random.integers(3, size=60)
    repeated = criterion(chances.repeat(weight, 0), mask.repeat(weight, 0))
    assert criterion(chances, mask, weight) == pytest.approx(repeated, rel=1e-6)


@pytest.mark.parametrize("criterion", CRITERIA.values(), ids=CRITERIA)
def test_criteria_are_finite_for_certain_and_wrong_models(criterion):
    certain = np.eye(3)
    nearly = np.maximum(certain, 1e-310)
    assert np.isfinite(criterion(nearly, ~certain.astype(bool)))
    assert np.isfinite(criterion(certain, certain.astype(bool)))
    assert np.isfinite(criterion(certain, ~certain.astype(bool)))
    assert np.isfinite(criterion(certain, np.zeros((3, 3), dtype=bool)))
    assert criterion(certain, certain) > criterion(certain, ~certain.astype(bool))


def test_tempered_likelihood_does_not_mind_how_sure_a_model_says_it_is():
    random = np.random.default_rng(0)
    logits, mask = random.normal(size=(200, 4)), random.random((200, 4)) < 0.2
    mask[np.arange(200), (logits + random.gumbel(size=(200, 4))).argmax(1)] = True
    sure, unsure = (np.exp(t * logits) / np.exp(t * logits).sum(1, keepdims=True) for t in (4.0, 0.5))
    assert candidate_log_likelihood(sure, mask) < candidate_log_likelihood(unsure, mask) - 0.1
    assert tempered_log_likelihood(sure, mask) == pytest.approx(
        tempered_log_likelihood(unsure, mask), abs=2e-3
    )


def test_the_two_kinds_of_labels_have_one_likelihood():
    labels = CandidateLabels.from_complementary([{"b"}, {"a", "c"}], ["a", "b", "c"])
    expected = (np.log(0.7) + np.log(0.2)) / 2
    assert (
        candidate_log_likelihood(CHANCES[:2], labels)
        == pytest.approx((np.log(1 - 0.3) + np.log(0.2)) / 2)
        == pytest.approx(expected)
    )


@pytest.mark.parametrize("criterion", CRITERIA.values(), ids=CRITERIA)
def test_criteria_refuse_what_does_not_fit(criterion):
    with pytest.raises(ValueError, match=r"candidates: shape \(2, 3\) for probabilities of shape \(3, 3\)"):
        criterion(CHANCES, SETS[:2])
    with pytest.raises(ValueError, match="at least one"):
        criterion(CHANCES[:0], SETS[:0])


# Scorers


@pytest.mark.parametrize("name", SCORERS)
@pytest.mark.parametrize("form", [lambda S: S, CandidateLabels.from_matrix], ids=["bool", "labels"])
def test_cross_val_score(name, form):
    X, S, _ = problem()
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


@pytest.mark.parametrize("form", [lambda S: S, CandidateLabels.from_matrix], ids=["bool", "labels"])
def test_scikit_learn_predicts_out_of_fold_with_folds_of_its_own(form):
    X, S, truth = problem()
    clf = PartialLabelClassifier("cc", epochs=20, learning_rate=0.1, random_state=0)
    found = cross_val_predict(clf, X, form(S), cv=3, method="predict_proba")
    assert found.shape == S.shape
    ours = resolve_out_of_fold(clf, X, S, cv=KFold(3), calibrate=False)
    np.testing.assert_allclose(found, ours.probabilities, rtol=1e-5, atol=1e-12)
    assert (found.argmax(1) == truth).mean() > 0.85


def test_grid_search_on_all_criteria_at_once():
    X, S, truth = problem()
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


def test_a_scorer_takes_any_classifier_and_any_form():
    X, S, truth = problem()
    names = np.array(["ant", "bee", "cow", "dog"])
    model = LogisticRegression().fit(X, names[truth])
    expected = covering_rate(model.predict_proba(X), S)
    scorer = SCORERS["covering_rate"]
    for y in (S, ["|".join(names[row]) for row in S], [set(names[row]) for row in S]):
        assert scorer(model, X, y) == expected
    assert scorer(model, X, names[truth]) == model.score(X, names[truth])
    other_order = CandidateLabels.from_sets([set(names[row]) for row in S], names[::-1].tolist())
    assert scorer(model, X, other_order) == expected


def test_candidates_a_model_has_not_heard_of_have_no_probability():
    X, S, truth = problem()
    few = truth < 3
    model = LogisticRegression().fit(X[few], truth[few])
    labels = CandidateLabels.from_matrix(S)
    found = SCORERS["candidate_log_likelihood"](model, X, labels)
    assert found == pytest.approx(candidate_log_likelihood(model.predict_proba(X), S[:, :3]))
    with pytest.raises(ValueError, match="y: 1 row has no usable label"):
        SCORERS["covering_rate"](model, X[:2], [0.0, np.nan])


def test_unknown_names_are_answered_with_near_ones():
    with pytest.raises(ValueError, match="did you mean 'covering_rate'"):
        SCORERS["covering"]
    with pytest.raises(ValueError, match=r"did you mean .*candidate_log_likelihood"):
        PartialLabelClassifierCV(scoring="log_likelihood").fit([[0.0], [1.0]], [0, 1])


# CrossFitting


def uneven_sets(n, k, seed=0):
    """Labels from frequent to rare, in sets of up to three."""
    random = np.random.default_rng(seed)
    law = 0.6 ** np.arange(k)
    mask = np.zeros((n, k), dtype=bool)
    for row in mask:
        row[random.choice(k, size=random.integers(1, 4), replace=False, p=law / law.sum())] = True
    return mask


def imbalance(mask, folds):
    """Largest distance of a label's weight in a fold from its fair share, in rows."""
    weight = mask / mask.sum(1, keepdims=True)
    held_out = np.array([weight[hold].sum(0) for _, hold in folds])
    return np.abs(held_out - held_out.mean(0)).max()


@pytest.mark.parametrize(
    ("n", "k", "folds"), [(403, 8, 5), (90, 12, 3), (1000, 5, 10), (7, 3, 7), (10, 4, 2)]
)
def test_folds_are_whole_equal_and_balanced(n, k, folds):
    mask = uneven_sets(n, k)
    splitter = CandidateStratifiedKFold(folds, random_state=3)
    X = np.zeros((n, 1))
    parts = list(splitter.split(X, mask))
    assert len(parts) == splitter.get_n_splits() == folds
    np.testing.assert_array_equal(np.sort(np.concatenate([hold for _, hold in parts])), np.arange(n))
    for fit, hold in parts:
        np.testing.assert_array_equal(np.sort(np.concatenate([fit, hold])), np.arange(n))
    sizes = [len(hold) for _, hold in parts]
    assert max(sizes) - min(sizes) <= 1
    assert imbalance(mask, parts) <= 1
    shuffled = KFold(folds, shuffle=True, random_state=3).split(X)
    assert n <= 10 or imbalance(mask, parts) < 0.5 * imbalance(mask, shuffled)


def test_ordinary_labels_are_stratified_exactly():
    y = np.repeat([0, 1, 2], [50, 30, 20])
    for _, hold in CandidateStratifiedKFold(5).split(np.zeros((100, 1)), y):
        assert np.bincount(y[hold]).tolist() == [10, 6, 4]


def test_folds_depend_on_the_seed_and_on_nothing_else():
    mask = uneven_sets(60, 4)
    X = np.zeros((60, 1))

    def held_out(y, seed):
        return [hold.tolist() for _, hold in CandidateStratifiedKFold(3, random_state=seed).split(X, y)]

    np.random.seed(7)  # noqa: NPY002 - a global state that must not matter
    first = held_out(mask, 0)
    np.random.seed(8)  # noqa: NPY002
    assert held_out(CandidateLabels.from_matrix(mask), 0) == first
    assert held_out([set(np.flatnonzero(row).tolist()) for row in mask], 0) == first
    assert held_out(mask, 1) != first


def test_many_rows_take_no_time():
    mask = np.eye(10, dtype=bool)[np.random.default_rng(0).integers(10, size=200_000)]
    mask |= np.roll(mask, 1, axis=1)
    start = time.process_time()
    folds = list(CandidateStratifiedKFold(5).split(mask, mask))
    assert time.process_time() - start < 5
    assert imbalance(mask, folds) <= 1


@pytest.mark.parametrize("form", [np.asarray, csr_array, pd.DataFrame, lambda X: X.astype(str)])
def test_copies_of_a_row_are_held_out_together(form):
    mask = uneven_sets(200, 4)
    X = np.random.default_rng(0).normal(size=(200, 3)).round(3)
    X[100:180] = X[:80]
    X[180:188] = X[90]
    folds = list(CandidateStratifiedKFold(5).split(form(X), mask))
    assert sorted(np.concatenate([hold for _, hold in folds])) == list(range(200))
    rows = [set(map(tuple, X[hold])) for _, hold in folds]
    assert sum(map(len, rows)) == len(set.union(*rows))
    assert max(len(hold) for _, hold in folds) - min(len(hold) for _, hold in folds) <= 1
    assert imbalance(mask, folds) <= 2
    # More equal rows than these are what coarse features look like.
    X[:] = np.arange(200)[:, None] % 8
    assert imbalance(mask, CandidateStratifiedKFold(5).split(form(X), mask)) <= 1


def test_a_copy_tells_nothing_about_its_row():
    """Sets drawn by chance: of rows that stand there twice a leak would guess far more."""
    random = np.random.default_rng(0)
    X, y = random.normal(size=(60, 40)), random.integers(4, size=60)
    X, y = np.concatenate([X, X]), np.concatenate([y, y])
    clf = PartialLabelClassifier("cc", "mlp", epochs=60, random_state=0, classes=range(4))
    found = resolve_out_of_fold(clf, X, y, calibrate=False)
    assert (found.probabilities.argmax(1) == y).mean() < 0.5


def test_splitters_refuse_in_words():
    X = np.zeros((4, 1))
    with pytest.raises(ValueError, match="n_splits: 5 folds for 4 rows; expected 2 to 4"):
        list(CandidateStratifiedKFold(5).split(X, np.eye(4, dtype=bool)))
    with pytest.raises(ValueError, match="y: None"):
        list(CandidateStratifiedKFold(2).split(X))
    assert repr(CandidateStratifiedKFold(3)) == "CandidateStratifiedKFold(n_splits=3, random_state=0)"


@pytest.mark.parametrize("most", [1 << 30, 10_000], ids=["all folds at once", "one by one"])
def test_models_trained_together_are_those_trained_alone(most, monkeypatch):
    monkeypatch.setattr(cross_fitting, "STACK_BYTES", most)
    X, S, _ = problem(90)
    labels = CandidateLabels.from_matrix(S)
    models = [
        PartialLabelClassifier("cc", epochs=5, learning_rate=0.1, random_state=0),
        PartialLabelClassifier(
            ProPaLL(noise=0.5), epochs=5, weight_decay=0.1, random_state=1, n_estimators=2
        ),
        PartialLabelClassifier("proden", "mlp", net_options={"widths": (8,)}, epochs=5, random_state=2),
        PartialLabelClassifier("pl_knn"),
    ]
    parts = list(KFold(4).split(X))
    folds = CrossFitting(X, labels, None, parts)
    assert len(folds.stacks(models)) == (3 if most > 10_000 else 12)
    seen = set()
    for i, fold, fitted, _ in folds.fit(models):
        fit, hold = parts[fold]
        alone = clone(models[i]).fit(X[fit], S[fit])
        assert len(fitted.classifiers_) == models[i].n_estimators
        np.testing.assert_allclose(
            fitted.predict_log_proba(X[hold]), alone.predict_log_proba(X[hold]), rtol=1e-6, atol=1e-8
        )
        seen.add((i, fold))
    assert len(seen) == 16


# The search


def test_the_search_chooses_refits_and_reports():
    X, S, truth = problem()
    search = PartialLabelClassifierCV(
        ["propall", "cc", "pl_knn"],
        ["linear", ("mlp", {"widths": (16,)})],
        learning_rates=[1e-5, 0.05],
        weight_decays=[1e-4],
        epochs=30,
        cv=3,
        random_state=0,
    ).fit(X, S)
    table = pd.DataFrame(search.cv_results_)
    assert len(table) == 2 * 2 * 2 + 1
    best = table.iloc[search.best_index_]
    assert best["rank_test_score"] == 1
    assert best["mean_test_score"] == search.best_score_ == table["mean_test_score"].max()
    assert best["mean_test_weighted_covering_rate"] == pytest.approx(search.best_score_)
    splits = table[[f"split{i}_test_score" for i in range(3)]].to_numpy()
    np.testing.assert_allclose(splits.mean(1), table["mean_test_score"])
    assert search.best_params_.get("learning_rate") != 1e-5
    assert search.score(X, truth) > 0.9
    again = PartialLabelClassifier(**search.best_params_, random_state=search.best_estimator_.random_state)
    np.testing.assert_array_equal(again.fit(X, S).predict(X), search.predict(X))
    again.temperature_ = search.temperature_
    np.testing.assert_allclose(again.predict_proba(X), search.predict_proba(X))
    np.testing.assert_allclose(np.exp(search.predict_log_proba(X)), search.predict_proba(X))
    assert search.temperature_ == search.best_estimator_.temperature_ != 1


def test_every_criterion_of_the_results_is_the_one_measured_on_the_folds():
    X, S, _ = problem(80)
    search = PartialLabelClassifierCV(
        ["cc"], ["linear"], learning_rates=[0.1], weight_decays=[0.0], epochs=5, cv=2, random_state=0
    ).fit(X, S)
    seed = search.best_estimator_.random_state
    model = PartialLabelClassifier("cc", learning_rate=0.1, weight_decay=0.0, epochs=5, random_state=seed)
    folds = list(CandidateStratifiedKFold(2, random_state=seed).split(X, S))
    held_out = [(clone(model).fit(X[fit], S[fit]).predict_proba(X[hold]), S[hold]) for fit, hold in folds]
    for name, criterion in CRITERIA.items():
        expected = np.mean([criterion(*pair) for pair in held_out])
        assert search.cv_results_[f"mean_test_{name}"][0] == pytest.approx(expected, rel=1e-5)


def test_equal_scores_are_decided_by_the_likelihood():
    X, S, _ = problem()
    search = PartialLabelClassifierCV(
        ["cc"],
        ["linear"],
        learning_rates=[1e-5, 0.1, 1e-4],
        weight_decays=[0.0],
        epochs=20,
        scoring=lambda probabilities, candidates, weight: 0.0,
        cv=2,
        random_state=0,
    ).fit(X, S)
    assert search.cv_results_["rank_test_score"].tolist() == [1, 1, 1]
    assert search.best_index_ == search.cv_results_["mean_test_tempered_log_likelihood"].argmax() == 1


def test_early_stopping_refits_for_the_best_number_of_epochs():
    X, S, _ = problem(60, spread=2.5)
    settings = {
        "methods": ["cc"],
        "nets": [("mlp", {"widths": (64,)})],
        "learning_rates": [0.03],
        "weight_decays": [0.0],
        "scoring": "candidate_log_likelihood",
        "epochs": 40,
        "cv": 3,
        "random_state": 0,
    }
    stopped = PartialLabelClassifierCV(**settings, early_stopping=True).fit(X, S)
    epochs = stopped.best_params_["epochs"]
    assert epochs < 40
    assert epochs % (40 // EARLY_STOPS) == 0
    assert stopped.best_estimator_.epochs == epochs == stopped.cv_results_["epochs"][0]
    through = PartialLabelClassifierCV(**settings).fit(X, S)
    assert through.best_params_["epochs"] == 40
    assert stopped.best_score_ > through.best_score_
    # CC knows no end of training, so its score at an epoch is that of a training of that length.
    exact = PartialLabelClassifierCV(**{**settings, "epochs": epochs}).fit(X, S)
    assert stopped.best_score_ == pytest.approx(exact.best_score_, rel=1e-6)
    np.testing.assert_allclose(
        stopped.out_of_fold_.probabilities, exact.out_of_fold_.probabilities, rtol=1e-4
    )


def test_early_stopping_leaves_methods_without_epochs_alone():
    X, S, _ = problem(60)
    search = PartialLabelClassifierCV(
        ["pl_knn", "clpl"], early_stopping=True, cv=2, random_state=0, verbose=True
    ).fit(X, S)
    assert [set(params) for params in search.cv_results_["params"]] == [{"method"}, {"method"}]
    assert not np.isnan(search.cv_results_["mean_test_score"]).any()


def test_a_method_that_cannot_take_the_data_is_named_and_passed_over():
    X, S, _ = problem()
    few = {
        "nets": ["linear"],
        "learning_rates": [0.1],
        "weight_decays": [0.0],
        "epochs": 5,
        "random_state": 0,
    }
    search = PartialLabelClassifierCV(["scl_nl", "cc"], **few).fit(X, S)
    table = pd.DataFrame(search.cv_results_)
    assert "complementary" in table["refusal"][0]
    assert table["refusal"][1] == ""
    assert np.isnan(table["mean_test_score"][0])
    assert table["rank_test_score"].tolist() == [2, 1]
    assert search.best_params_["method"] == "cc"
    with pytest.raises(ValueError, match="methods: none of them can learn from these candidate sets"):
        PartialLabelClassifierCV(["scl_nl"], **few).fit(X, S)


def test_a_training_that_diverged_is_named_and_passed_over():
    X, S, _ = problem(60)
    few = {
        "methods": ["cc"],
        "nets": ["mlp"],
        "weight_decays": [0.0],
        "epochs": 8,
        "cv": 2,
        "random_state": 0,
    }
    broken = {**few, "learning_rates": [1e200]}
    search = PartialLabelClassifierCV(**{**few, "learning_rates": [1e200, 0.01]}).fit(X, S)
    assert "training diverged" in search.cv_results_["refusal"][0]
    assert np.isnan(search.cv_results_["mean_test_covering_rate"][0])
    assert search.best_params_["learning_rate"] == 0.01
    for early_stopping in (False, True):
        with pytest.raises(ValueError, match="learning_rates: no combination could be trained"):
            PartialLabelClassifierCV(**broken, early_stopping=early_stopping).fit(X, S)


def test_one_hold_out_part_is_enough():
    X, S, _ = problem()
    few = {"methods": ["cc"], "nets": ["linear"], "learning_rates": [0.1], "epochs": 10, "random_state": 0}
    search = PartialLabelClassifierCV(**few, cv=ShuffleSplit(1, test_size=0.3, random_state=0)).fit(X, S)
    assert search.n_splits_ == 1
    assert not hasattr(search, "out_of_fold_")
    assert search.temperature_ != 1
    pairs = list(KFold(3).split(X))
    search = PartialLabelClassifierCV(**few, cv=pairs, refit=False).fit(X, S)
    assert search.n_splits_ == 3
    assert not hasattr(search, "best_estimator_")
    with pytest.raises(ValueError, match="not fitted"):
        search.predict(X)


def test_out_of_fold_answers_come_with_the_search():
    X, S, truth = problem(200, spread=1.5)
    few = {
        "methods": ["cc"],
        "nets": ["linear"],
        "learning_rates": [0.1],
        "weight_decays": [0.0],
        "epochs": 20,
    }
    search = PartialLabelClassifierCV(**few, cv=4, random_state=0).fit(X, S)
    seed = search.best_estimator_.random_state
    model = PartialLabelClassifier(**search.best_params_, random_state=seed)
    expected = resolve_out_of_fold(model, X, S, cv=CandidateStratifiedKFold(4, random_state=seed))
    np.testing.assert_allclose(search.out_of_fold_.probabilities, expected.probabilities, rtol=1e-4)
    assert (search.out_of_fold_.label == truth).mean() > 0.85
    raw = PartialLabelClassifierCV(**few, cv=4, random_state=0, calibrate=False).fit(X, S)
    assert raw.temperature_ == 1
    expected = resolve_out_of_fold(
        model, X, S, cv=CandidateStratifiedKFold(4, random_state=seed), calibrate=False
    )
    np.testing.assert_allclose(raw.out_of_fold_.probabilities, expected.probabilities, rtol=1e-4)
    np.testing.assert_array_equal(raw.predict(X), search.predict(X))


def test_members_of_the_refitted_model_are_calibrated_as_they_are():
    X, S, _ = problem(120)
    search = PartialLabelClassifierCV(
        ["cc"], ["mlp"], learning_rates=[0.01], epochs=10, cv=2, n_estimators=3, random_state=0
    ).fit(X, S)
    assert len(search.best_estimator_.classifiers_) == 3
    model = clone(search.best_estimator_)
    folds = CandidateStratifiedKFold(2, random_state=model.random_state)
    expected = resolve_out_of_fold(model, X, S, cv=folds)
    np.testing.assert_allclose(search.out_of_fold_.probabilities, expected.probabilities, rtol=1e-4)


def test_the_search_reads_names_frames_and_weights():
    X, S, truth = problem()
    names = np.array(["ant", "bee", "cow", "dog"])
    frame = pd.DataFrame(X, columns=list("abcde"))
    y = ["|".join(names[row]) for row in S]
    search = PartialLabelClassifierCV(
        ["cc"], ["linear"], learning_rates=[0.1], epochs=20, cv=2, random_state=0
    )
    search.fit(frame, y, sample_weight=np.where(truth == 0, 0.0, 1.0))
    assert search.classes_.tolist() == names.tolist()
    assert search.feature_names_in_.tolist() == list("abcde")
    assert (search.predict(frame) == "ant").mean() < 0.1
    assert search.resolve(frame, y).label[0] in y[0].split("|")
    assert clone(search).get_params() == search.get_params()


@pytest.mark.parametrize("missing", ["methods", "nets", "learning_rates", "weight_decays"])
def test_nothing_to_choose_from(missing):
    with pytest.raises(ValueError, match="methods: there are no combinations to compare"):
        PartialLabelClassifierCV(**{missing: []}).fit([[0.0], [1.0]], [0, 1])


# Out of fold


class Witness(ClassifierMixin, BaseEstimator):
    """Knows by heart what it was fitted on, and says of each row whether it knows it."""

    def fit(self, X, y):
        self.seen_ = {tuple(row) for row in np.asarray(X)}
        self.classes_ = y.decode(range(y.n_classes))
        return self

    def predict_proba(self, X):
        known = np.array([tuple(row) in self.seen_ for row in np.asarray(X)], dtype=float)
        return np.stack([known, 1 - known, 0 * known, 0 * known], axis=1)


def test_no_row_is_resolved_by_a_model_that_saw_it():
    X, S, _ = problem()
    labels = CandidateLabels.from_matrix(S)
    for rows in (X, pd.DataFrame(X)):
        found = resolve_out_of_fold(Witness(), rows, labels, calibrate=False)
        assert (found.probabilities[:, 0] < 1e-9).all()
        assert (found.probabilities[:, 1] > 1 - 1e-9).all()


def test_a_pipeline_resolves_as_its_last_step_would():
    X, S, truth = problem(spread=1.5)
    # Contents name a row in ProPaLL's noise, and scaling changes them; CC has no noise.
    clf = PartialLabelClassifier("cc", epochs=20, learning_rate=0.1, random_state=0)
    alone = resolve_out_of_fold(clf, X, S)
    piped = resolve_out_of_fold(make_pipeline(StandardScaler(), clf), X, S)
    np.testing.assert_allclose(piped.probabilities, alone.probabilities, rtol=1e-5)
    assert (alone.label == truth).mean() > 0.85
    assert not hasattr(clf, "classifiers_")


def test_every_fold_is_calibrated_on_the_others():
    X, S, _ = problem(spread=2.0)
    clf = PartialLabelClassifier("cc", "mlp", epochs=60, learning_rate=0.03, random_state=0)
    raw, calibrated = (resolve_out_of_fold(clf, X, S, calibrate=calibrate) for calibrate in (False, True))
    np.testing.assert_array_equal(raw.column, calibrated.column)
    assert candidate_log_likelihood(calibrated.probabilities, S) > candidate_log_likelihood(
        raw.probabilities, S
    )
    fold = CandidateStratifiedKFold(5).assign(S)
    ratio = (calibrated.log_probabilities[:, :1] - calibrated.log_probabilities[:, 1:]) / (
        raw.log_probabilities[:, :1] - raw.log_probabilities[:, 1:]
    )
    temperatures = [1 / np.median(ratio[fold == number]) for number in range(5)]
    assert len(set(np.round(temperatures, 6))) == 5
    for number in range(5):
        np.testing.assert_allclose(1 / ratio[fold == number], temperatures[number], rtol=1e-6)


def test_out_of_fold_takes_weights_class_names_and_only_folds():
    X, S, truth = problem()
    clf = PartialLabelClassifier("cc", epochs=20, learning_rate=0.1, random_state=0, classes=list("abcd"))
    weight = np.where(truth == 0, 0.0, 1.0)
    found = resolve_out_of_fold(clf, X, S, sample_weight=weight)
    assert found.classes.tolist() == list("abcd")
    several = S.sum(1) > 1
    assert (found.label[several] == "a").mean() < 0.05
    with pytest.raises(ValueError, match="cv: some rows are never held out, or more than once"):
        resolve_out_of_fold(clf, X, S, cv=ShuffleSplit(3, random_state=0))


def test_cleanlab_finds_wrong_labels_by_our_probabilities():
    filters = pytest.importorskip("cleanlab.filter")
    X, S, truth = problem(300)
    clf = PartialLabelClassifier("cc", epochs=30, learning_rate=0.1, random_state=0)
    found = resolve_out_of_fold(clf, X, S)
    noisy = truth.copy()
    noisy[:15] = (noisy[:15] + 1) % 4
    issues = filters.find_label_issues(labels=noisy, pred_probs=found.probabilities)
    assert issues[:15].mean() > 0.8
    assert issues[15:].mean() < 0.1

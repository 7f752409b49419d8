"""Model selection without true labels, and out-of-fold resolution."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.model_selection import KFold, ShuffleSplit, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from propall import CandidateClassifier, CandidateLabels, PartialLabelClassifier
from propall.estimators.cross_fitting import EARLY_STOPS
from propall.estimators.folds import CandidateStratifiedKFold
from propall.estimators.scorers import (
    CRITERIA,
    candidate_log_likelihood,
)
from propall.estimators.search import PartialLabelClassifierCV, resolve_out_of_fold
from tests.fixtures.candidates import overlapping_clouds, separate_clouds

SMALL = PartialLabelClassifierCV(
    ["cc"], ["linear"], learning_rates=[0.1, 0.3], weight_decays=[1e-4], epochs=15, cv=2
)


@parametrize_with_checks([SMALL])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("form", [lambda S: S, CandidateLabels.from_matrix], ids=["bool", "labels"])
def test_cross_val_predict_agrees_with_resolve_out_of_fold(form):
    X, S, truth = overlapping_clouds()
    clf = PartialLabelClassifier("cc", epochs=20, learning_rate=0.1, random_state=0)
    predicted = cross_val_predict(clf, X, form(S), cv=3, method="predict_proba")
    assert predicted.shape == S.shape
    ours = resolve_out_of_fold(clf, X, S, cv=KFold(3), calibrate=False)
    np.testing.assert_allclose(predicted, ours.probabilities, rtol=1e-5, atol=1e-12)
    assert (predicted.argmax(1) == truth).mean() > 0.85


def test_rows_are_resolved_out_of_bag():
    X, S, truth = separate_clouds()
    clf = PartialLabelClassifier(n_estimators=5, bagging=0.8, epochs=20, random_state=0)
    resolution = resolve_out_of_fold(clf, X, S, calibrate=False)
    np.testing.assert_allclose(resolution.probabilities, clf.fit(X, S).out_of_bag_)
    assert (resolution.label == truth).mean() > 0.9
    # Two members do not cover all rows, so folds are used.
    few = resolve_out_of_fold(clf.set_params(n_estimators=2), X, S)
    assert (few.label == truth).mean() > 0.9


@pytest.mark.parametrize(
    "wrap",
    [
        lambda classes: CandidateClassifier(LogisticRegression(), classes=classes, cv=2, random_state=0),
        lambda classes: make_pipeline(
            StandardScaler(), PartialLabelClassifier("cc", epochs=20, classes=classes, random_state=0)
        ),
        lambda classes: PartialLabelClassifier("cc", epochs=20, classes=classes, random_state=0),
    ],
    ids=["any classifier", "pipeline", "classifier"],
)
def test_the_order_of_the_classes_does_not_matter(wrap):
    X, S, truth = separate_clouds()
    names = np.array(["a", "b", "c"])
    y = ["|".join(names[row]) for row in S]
    for classes in (None, ["c", "a", "b"], ["b", "unseen", "c", "a"]):
        resolution = resolve_out_of_fold(wrap(classes), X, y)
        assert resolution.classes.tolist() == (classes or ["a", "b", "c"])
        assert (resolution.label == names[truth]).mean() > 0.9


def test_weights_of_another_number_of_rows_are_refused():
    X, S, _ = separate_clouds()
    with pytest.raises(ValueError, match="sample_weight"):
        resolve_out_of_fold(CandidateClassifier(LogisticRegression()), X, S, sample_weight=np.ones(121))


def test_the_search_selects_refits_and_reports():
    X, S, truth = overlapping_clouds()
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


def test_reported_criteria_are_means_over_folds():
    X, S, _ = overlapping_clouds(80)
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


def test_ties_are_broken_by_the_likelihood():
    X, S, _ = overlapping_clouds()
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
    X, S, _ = overlapping_clouds(60, spread=2.5)
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
    # CC has no schedule, so stopping at an epoch equals training for that many epochs.
    exact = PartialLabelClassifierCV(**{**settings, "epochs": epochs}).fit(X, S)
    assert stopped.best_score_ == pytest.approx(exact.best_score_, rel=1e-6)
    np.testing.assert_allclose(
        stopped.out_of_fold_.probabilities, exact.out_of_fold_.probabilities, rtol=1e-4
    )


def test_early_stopping_ignores_methods_without_epochs():
    X, S, _ = overlapping_clouds(60)
    search = PartialLabelClassifierCV(
        ["pl_knn", "clpl"], early_stopping=True, cv=2, random_state=0, verbose=True
    ).fit(X, S)
    assert [set(params) for params in search.cv_results_["params"]] == [{"method"}, {"method"}]
    assert not np.isnan(search.cv_results_["mean_test_score"]).any()


def test_methods_that_cannot_use_the_data_are_skipped():
    X, S, _ = overlapping_clouds()
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


def test_diverged_settings_are_skipped():
    X, S, _ = overlapping_clouds(60)
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


def test_a_single_split_is_enough():
    X, S, _ = overlapping_clouds()
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


def test_the_search_resolves_out_of_fold():
    X, S, truth = overlapping_clouds(200, spread=1.5)
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


def test_ensembles_are_calibrated_as_ensembles():
    X, S, _ = overlapping_clouds(120)
    search = PartialLabelClassifierCV(
        ["cc"], ["mlp"], learning_rates=[0.01], epochs=10, cv=2, n_estimators=3, random_state=0
    ).fit(X, S)
    assert len(search.best_estimator_.classifiers_) == 3
    model = clone(search.best_estimator_)
    folds = CandidateStratifiedKFold(2, random_state=model.random_state)
    expected = resolve_out_of_fold(model, X, S, cv=folds)
    np.testing.assert_allclose(search.out_of_fold_.probabilities, expected.probabilities, rtol=1e-4)


def test_the_search_accepts_names_frames_and_weights():
    X, S, truth = overlapping_clouds()
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
def test_empty_grids_are_refused(missing):
    with pytest.raises(ValueError, match="methods: there are no combinations to compare"):
        PartialLabelClassifierCV(**{missing: []}).fit([[0.0], [1.0]], [0, 1])


class Witness(ClassifierMixin, BaseEstimator):
    """Memorizes the rows it was fitted on and predicts whether a row is one of them."""

    def fit(self, X, y):
        self.seen_ = {tuple(row) for row in np.asarray(X)}
        self.classes_ = y.decode(range(y.n_classes))
        return self

    def predict_proba(self, X):
        known = np.array([tuple(row) in self.seen_ for row in np.asarray(X)], dtype=float)
        return np.stack([known, 1 - known, 0 * known, 0 * known], axis=1)


def test_no_row_is_resolved_by_a_model_fitted_on_it():
    X, S, _ = overlapping_clouds()
    labels = CandidateLabels.from_matrix(S)
    for rows in (X, pd.DataFrame(X)):
        resolution = resolve_out_of_fold(Witness(), rows, labels, calibrate=False)
        assert (resolution.probabilities[:, 0] < 1e-9).all()
        assert (resolution.probabilities[:, 1] > 1 - 1e-9).all()


def test_a_pipeline_resolves_like_its_last_step():
    X, S, truth = overlapping_clouds(spread=1.5)
    # ProPaLL's noise depends on the contents of a row, which scaling changes; CC has no noise.
    clf = PartialLabelClassifier("cc", epochs=20, learning_rate=0.1, random_state=0)
    alone = resolve_out_of_fold(clf, X, S)
    piped = resolve_out_of_fold(make_pipeline(StandardScaler(), clf), X, S)
    np.testing.assert_allclose(piped.probabilities, alone.probabilities, rtol=1e-5)
    assert (alone.label == truth).mean() > 0.85
    assert not hasattr(clf, "classifiers_")


def test_every_fold_is_calibrated_on_the_others():
    X, S, _ = overlapping_clouds(spread=2.0)
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


def test_out_of_fold_with_weights_and_class_names():
    X, S, truth = overlapping_clouds()
    clf = PartialLabelClassifier("cc", epochs=20, learning_rate=0.1, random_state=0, classes=list("abcd"))
    weight = np.where(truth == 0, 0.0, 1.0)
    resolution = resolve_out_of_fold(clf, X, S, sample_weight=weight)
    assert resolution.classes.tolist() == list("abcd")
    several = S.sum(1) > 1
    assert (resolution.label[several] == "a").mean() < 0.05
    with pytest.raises(ValueError, match="cv: each row must be held out exactly once"):
        resolve_out_of_fold(clf, X, S, cv=ShuffleSplit(3, random_state=0))


def test_cleanlab_finds_wrong_labels():
    filters = pytest.importorskip("cleanlab.filter")
    X, S, truth = overlapping_clouds(300)
    clf = PartialLabelClassifier("cc", epochs=30, learning_rate=0.1, random_state=0)
    resolution = resolve_out_of_fold(clf, X, S)
    noisy = truth.copy()
    noisy[:15] = (noisy[:15] + 1) % 4
    issues = filters.find_label_issues(labels=noisy, pred_probs=resolution.probabilities)
    assert issues[:15].mean() > 0.8
    assert issues[15:].mean() < 0.1


def test_resolve_out_of_fold_refuses_classifiers_for_ordinary_labels():
    X, S, _ = separate_clouds(60)
    for other in (LogisticRegression(), make_pipeline(StandardScaler(), LogisticRegression())):
        with pytest.raises(ValueError, match=r"estimator: \w+ cannot be fitted to candidate sets\. Wrap"):
            resolve_out_of_fold(other, X, S)
    with pytest.raises(ValueError, match="estimator: Perceptron has no fit and predict_proba"):
        resolve_out_of_fold(Perceptron(), X, S)
    wrapped = resolve_out_of_fold(CandidateClassifier(LogisticRegression()), X, S)
    assert len(wrapped.label) == 60


def test_a_search_saves_its_best_estimator(tmp_path) -> None:
    X, S, _ = overlapping_clouds()
    search = clone(SMALL).set_params(random_state=0)
    with pytest.raises(NotFittedError):
        search.save(tmp_path / "model.safetensors")
    search.fit(X, S).save(tmp_path / "model.safetensors")
    loaded = PartialLabelClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(X), search.predict_proba(X))
    with pytest.raises(ValueError, match="refit: got False"):
        clone(search).set_params(refit=False).fit(X, S).save(tmp_path / "none.safetensors")
    assert not (tmp_path / "none.safetensors").exists()

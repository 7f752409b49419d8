"""scikit-learn's estimator checks, then candidate sets in every form."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, LeaveOneOut, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from propall import CandidateLabels, PartialLabelClassifier
from propall.estimators.calibration import fit_temperature
from propall.estimators.ensemble import Standardization
from propall.estimators.scorers import SCORERS
from propall.estimators.validation import weigh_rows
from propall.methods import METHODS
from propall.training.contract import Algorithm
from tests.fixtures.candidates import NAMES, ONE_COMPLEMENTARY_LABEL, blurred_clouds, separate_clouds

WEIGHTS = "the method does not support instance weights"
WEIGHT_CHECKS = (
    "check_sample_weights_pandas_series",
    "check_sample_weights_not_an_array",
    "check_sample_weights_list",
    "check_sample_weights_shape",
    "check_sample_weights_not_overwritten",
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
    "check_classifiers_one_label_sample_weights",
    "check_class_weight_classifiers",
)
FEW_ROWS = "the check has fewer rows than the method needs neighbors"
FEW_ROWS_CHECKS = {
    "ipal": ("check_estimators_nan_inf", "check_fit2d_1feature"),
    "plle": (
        "check_n_features_in_after_fitting",
        "check_estimators_nan_inf",
        "check_classifier_data_not_an_array",
        "check_fit2d_1feature",
    ),
}
QUICK = ("propall", "proden", "pl_knn", "ipal", "clpl")
CHECKED = [name for name in METHODS if name not in ONE_COMPLEMENTARY_LABEL]


def known_failures(estimator):
    name = estimator.method
    reasons = dict.fromkeys(FEW_ROWS_CHECKS.get(name, ()), FEW_ROWS)
    if issubclass(METHODS[name], Algorithm):
        reasons |= dict.fromkeys(WEIGHT_CHECKS, WEIGHTS)
    return reasons


@parametrize_with_checks(
    [PartialLabelClassifier(name) for name in QUICK], expected_failed_checks=known_failures
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [PartialLabelClassifier(name) for name in CHECKED if name not in QUICK],
    expected_failed_checks=known_failures,
)
def test_scikit_learn_checks_of_the_other_methods(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", ONE_COMPLEMENTARY_LABEL)
def test_methods_for_one_complementary_label(name):
    X, S, truth = separate_clouds()
    with pytest.raises(ValueError, match="one complementary label per row"):
        PartialLabelClassifier(name).fit(X, truth)
    S = ~np.eye(3, dtype=bool)[(truth + 1) % 3]
    clf = PartialLabelClassifier(name, random_state=0, learning_rate=0.05).fit(X, S)
    assert clf.score(X, S) > 0.8


@pytest.mark.parametrize(
    "form",
    [
        lambda S, y: S,
        lambda S, y: S.astype(int),
        lambda S, y: csr_array(S.astype(np.int8)),
        lambda S, y: pd.DataFrame(S, columns=[0, 1, 2]),
        lambda S, y: [set(np.flatnonzero(row).tolist()) for row in S],
        lambda S, y: CandidateLabels.from_matrix(S),
        lambda S, y: CandidateLabels.from_complementary([set(np.flatnonzero(~row)) for row in S], range(3)),
    ],
    ids=["bool", "int", "sparse", "frame", "sets", "labels", "complementary"],
)
def test_all_forms_of_y_give_the_same_model(form):
    X, S, truth = separate_clouds()
    expected = PartialLabelClassifier(random_state=0, epochs=30, learning_rate=0.1).fit(X, S)
    model = PartialLabelClassifier(random_state=0, epochs=30, learning_rate=0.1).fit(X, form(S, truth))
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X), rtol=1e-9)
    assert expected.score(X, truth) > 0.95


def test_strings_name_the_classes():
    X, S, truth = separate_clouds()
    y = ["|".join(NAMES[row]) for row in S]
    clf = PartialLabelClassifier(random_state=0, epochs=30, learning_rate=0.1).fit(X, y)
    assert clf.classes_.tolist() == NAMES.tolist()
    assert (clf.predict(X) == NAMES[truth]).mean() > 0.95
    assert clf.score(X, y) > 0.95  # covering rate
    assert clf.score(X, NAMES[truth]) == (clf.predict(X) == NAMES[truth]).mean()


def test_score_with_classes_unknown_to_the_model():
    X, S, truth = separate_clouds()
    clf = PartialLabelClassifier(random_state=0, epochs=30, learning_rate=0.1)
    clf.fit(X, ["|".join(NAMES[row]) for row in S])
    right = clf.predict(X)
    assert clf.score(X[:1], [right[0]]) == clf.score(X[:1], ["!zebra"]) == 1
    assert clf.score(X[:1], ["zebra"]) == clf.score(X[:1], [f"!{right[0]}"]) == 0
    assert clf.score(X, [f"!{name}" for name in right]) == 0
    assert clf.score(X[:2], ["!zebra", f"zebra|{right[1]}"]) == 1
    assert clf.score(X[:1], pd.Series(right[:1], dtype="category")) == 1
    assert (
        SCORERS["covering_rate"](clf, X[:2], ["!ape", f"zebra|{right[1]}"])
        == (right[:1] != "ape").mean() / 2 + 0.5
    )
    alone = cross_val_score(clf.set_params(epochs=2), X[:6], truth[:6], cv=LeaveOneOut())
    assert set(alone) <= {0.0, 1.0}


def test_the_order_of_rows_does_not_matter():
    X, S, _ = separate_clouds()
    order = np.random.default_rng(1).permutation(len(X))
    a = PartialLabelClassifier(random_state=0, epochs=10, batch_size=32).fit(X, S)
    b = PartialLabelClassifier(random_state=0, epochs=10, batch_size=32).fit(X[order], S[order])
    np.testing.assert_allclose(a.predict_proba(X), b.predict_proba(X), rtol=1e-8)


def test_members_are_averaged():
    X, S, truth = separate_clouds()
    clf = PartialLabelClassifier(net="mlp", n_estimators=3, random_state=0, epochs=20).fit(X, S)
    assert len(clf.classifiers_) == 3
    members = [c.probabilities(clf._inputs(X)).numpy() for c in clf.classifiers_]
    assert np.abs(members[0] - members[1]).max() > 0
    np.testing.assert_allclose(clf.predict_proba(X), np.mean(members, axis=0))
    np.testing.assert_array_equal(clf.predict(X), clf.predict_proba(X).argmax(1))
    assert clf.score(X, truth) > 0.95


@pytest.mark.parametrize("targets", ["own", "peer"])
def test_bagged_members_leave_rows_out(targets):
    X, S, truth = separate_clouds()
    settings = {"n_estimators": 5, "bagging": 0.8, "targets": targets, "epochs": 20, "random_state": 0}
    clf = PartialLabelClassifier("proden", "mlp", **settings).fit(X, S)
    assert not np.isnan(clf.out_of_bag_).any()
    np.testing.assert_allclose(clf.out_of_bag_.sum(1), 1)
    assert (clf.out_of_bag_.argmax(1) == truth).mean() > 0.95
    # With five members of 80 %, exactly one has not seen a row.
    members = np.stack([c.probabilities(clf._inputs(X)).numpy() for c in clf.classifiers_])
    distance = np.abs(members - clf.out_of_bag_).max(2)
    assert (np.sort(distance, 0)[0] < 1e-12).all()
    assert np.bincount(distance.argmin(0)).tolist() == [24] * 5
    again = PartialLabelClassifier("proden", "mlp", **settings).fit(X[::-1], S[::-1])
    np.testing.assert_allclose(again.predict_proba(X), clf.predict_proba(X), rtol=1e-6)


def test_members_are_taught_only_by_those_that_leave_out_the_same_rows():
    X, S, _ = separate_clouds()
    clf = PartialLabelClassifier("proden", n_estimators=11, bagging=0.8, targets="peer", random_state=0)
    features, labels = X.astype(float), CandidateLabels.from_any(S)
    ensemble = clf.ensemble()
    runs = ensemble.members(ensemble.whole_run(features, labels, None, Standardization()))
    assert ensemble.bag_numbers(len(X)) == [0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    for a, b in itertools.combinations(range(11), 2):
        together = ensemble.bag_numbers(len(X))[a] == ensemble.bag_numbers(len(X))[b]
        assert torch.equal(runs[a].rows, runs[b].rows) == together
        assert (runs[a].peers is runs[b].peers) == together
    with_few = replace(ensemble, n_members=9).members(
        ensemble.whole_run(features, labels, None, Standardization())
    )
    assert len({id(run.peers) for run in with_few}) == 1


@pytest.mark.parametrize("scaling", ["z-score", "min-max", "square root"])
def test_rows_without_weight_do_not_change_the_scaling(scaling):
    X = np.random.default_rng(0).normal(size=(30, 3))
    far = np.concatenate([X, [[1e3, -1e3, 0.0]]])
    weight = np.append(np.ones(30), 0.0)
    for part, expected in zip(
        Standardization.fit(far, weight, scaling), Standardization.fit(X, None, scaling), strict=True
    ):
        assert (part is None) == (expected is None)
        if expected is not None:
            np.testing.assert_allclose(part, expected)


def test_bags_with_too_few_members_leave_nobody_for_some_rows():
    X, S, _ = separate_clouds()
    clf = PartialLabelClassifier(n_estimators=2, bagging=0.8, epochs=2, random_state=0).fit(X, S)
    assert np.isnan(clf.out_of_bag_).all(1).sum() == 72


def test_members_that_teach_each_other_differ_from_those_that_do_not():
    X, S, _ = separate_clouds()
    own, peer = (
        PartialLabelClassifier("proden", n_estimators=2, targets=targets, epochs=5, random_state=0).fit(X, S)
        for targets in ("own", "peer")
    )
    assert np.abs(own.predict_proba(X) - peer.predict_proba(X)).max() > 1e-4


@pytest.mark.parametrize("scaling", ["min-max", "square root"])
def test_scalings(scaling, tmp_path):
    X, S, truth = separate_clouds()
    X = (X - X.min()).astype(np.float32)
    clf = PartialLabelClassifier(standardize=scaling, epochs=50, random_state=0).fit(X, S)
    assert clf.score(X, truth) > 0.9
    inputs = clf._inputs(X).numpy()
    if scaling == "min-max":
        np.testing.assert_allclose([inputs.min(0), inputs.max(0)], [[0] * 4, [1] * 4], atol=1e-6)
    else:
        root = np.sqrt(X - X.min(0))
        np.testing.assert_allclose(inputs, (root - root.mean(0)) / root.std(0), atol=1e-4)
    clf.save(tmp_path / "model.safetensors")
    loaded = PartialLabelClassifier.load(tmp_path / "model.safetensors")
    below = X - 1  # below the minimum of the training rows
    np.testing.assert_array_equal(loaded.predict_proba(below), clf.predict_proba(below))
    outputs = clf.to_torch()(torch.from_numpy(below)).softmax(-1).detach().numpy()
    np.testing.assert_allclose(outputs, clf.predict_proba(below), rtol=1e-4, atol=1e-6)


def test_pipeline_grid_search_and_pandas():
    X, S, truth = separate_clouds()
    frame = pd.DataFrame(X, columns=list("abcd"))
    clf = PartialLabelClassifier(epochs=30, learning_rate=0.1, random_state=0)
    pipeline = make_pipeline(StandardScaler(), clf).set_output(transform="pandas")
    search = GridSearchCV(pipeline, {"partiallabelclassifier__method": ["propall", "cc"]}, cv=3)
    search.fit(frame, CandidateLabels.from_matrix(S))
    assert search.best_score_ > 0.9
    assert search.best_estimator_[-1].feature_names_in_.tolist() == list("abcd")
    assert search.score(frame, truth) > 0.95


def test_networks_need_one_output_per_class():
    X, S, _ = separate_clouds()
    with pytest.raises(ValueError, match=r"net: it returns shape \(1, 2\) for one row; expected \(1, 3\)"):
        PartialLabelClassifier(net=nn.Linear(4, 2), epochs=2).fit(X, S)


def test_a_single_class_is_refused():
    with pytest.raises(ValueError, match=r"y: 1 class given \('gull'\); a classifier needs"):
        PartialLabelClassifier().fit([[0.0], [1.0]], ["gull", "gull"])


def test_custom_networks(tmp_path):
    X, S, truth = separate_clouds()

    def net(in_shape, n_classes):
        return nn.Sequential(nn.Linear(in_shape[0], 16), nn.GELU(), nn.Linear(16, n_classes))

    clf = PartialLabelClassifier(net=net, random_state=0, epochs=50).fit(X, S)
    assert clf.score(X, truth) > 0.95
    clf.save(tmp_path / "model")
    with pytest.raises(ValueError, match="Pass it as net="):
        PartialLabelClassifier.load(tmp_path / "model")
    again = PartialLabelClassifier.load(tmp_path / "model", net=net)
    np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
    module = net((4,), 3)
    before = module[0].weight.clone()
    assert PartialLabelClassifier(net=module, random_state=0, epochs=50).fit(X, S).score(X, truth) > 0.95
    assert torch.equal(module[0].weight, before)


def test_images():
    random = np.random.default_rng(0)
    truth = random.integers(2, size=60)
    X = random.normal(size=(60, 1, 12, 12)).astype(np.float32) * 0.3
    X[truth == 1, :, :6] += 1
    clf = PartialLabelClassifier(net="small_cnn", epochs=15, random_state=0).fit(X, truth)
    assert clf.score(X, truth) > 0.95
    with pytest.raises(ValueError, match=r"X: rows have shape"):
        clf.predict(X[:, :, :8])


def test_invalid_data_is_refused():
    X, S, _truth = separate_clouds()
    with pytest.raises(ValueError, match="did you mean 'propall'"):
        PartialLabelClassifier("propal").fit(X, S)
    with pytest.raises(ValueError, match="did you mean 'linear'"):
        PartialLabelClassifier(net="liner").fit(X, S)
    with pytest.raises(ValueError, match=r"y: 1 row has no usable label \(first: 119, nan\)"):
        PartialLabelClassifier().fit(X, ["ape", "bee", "cat"] * 39 + ["ape", "bee", float("nan")])
    with pytest.raises(ValueError, match="119 entries for 120 rows"):
        PartialLabelClassifier().fit(X, S[1:])
    with pytest.raises(ValueError, match="sample_weight: IPAL does not support weights"):
        PartialLabelClassifier("ipal").fit(X, S, sample_weight=np.ones(120))


def test_invalid_settings_are_refused(tmp_path):
    X, S, _ = separate_clouds(30)
    for count in (0, 2.5, "3"):
        with pytest.raises(ValueError, match=r"n_estimators: .*; expected an integer of at least 1"):
            PartialLabelClassifier(n_estimators=count).fit(X, S)
    with pytest.raises(
        ValueError, match="the network 'mlp' has no option 'hidden'; its options are 'widths'"
    ):
        PartialLabelClassifier(net="mlp", net_options={"hidden": 5}).fit(X, S)
    drawn = [
        PartialLabelClassifier(epochs=2, random_state=np.random.default_rng(seed)).fit(X, S).predict_proba(X)
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).any()
    PartialLabelClassifier(epochs=2).fit(X, S).save(tmp_path / "new" / "folder" / "model")
    assert (tmp_path / "new" / "folder" / "model").is_file()


def test_calibration_changes_probabilities_only(tmp_path):
    X, S, _ = blurred_clouds()
    clf = PartialLabelClassifier("cc", "mlp", epochs=100, learning_rate=0.03, random_state=0)
    clf.fit(X[:150], S[:150])
    assert clf.temperature_ == 1
    before, scores = clf.predict_proba(X), clf.decision_function(X)
    assert clf.calibrate(X[150:], [set(np.flatnonzero(row)) for row in S[150:]]) is clf
    assert clf.temperature_ == pytest.approx(fit_temperature(np.log(before[150:]), S[150:]), rel=1e-3)
    assert clf.temperature_ > 1.5
    np.testing.assert_array_equal(clf.predict(X), before.argmax(1))
    np.testing.assert_array_equal(clf.decision_function(X), scores)
    tempered = before ** (1 / clf.temperature_)
    np.testing.assert_allclose(clf.predict_proba(X), tempered / tempered.sum(1, keepdims=True), rtol=1e-6)
    first = clf.temperature_
    assert clf.calibrate(X[150:], S[150:]).temperature_ == pytest.approx(first, rel=1e-3)
    clf.save(tmp_path / "model")
    again = PartialLabelClassifier.load(tmp_path / "model")
    np.testing.assert_allclose(again.predict_proba(X), clf.predict_proba(X), rtol=1e-12)
    assert clf.fit(X[:150], S[:150]).temperature_ == 1


def test_log_probabilities_do_not_underflow():
    X, _, truth = separate_clouds()
    clf = PartialLabelClassifier("cc", epochs=100, learning_rate=10.0, random_state=0).fit(X, truth)
    logs = clf.predict_log_proba(100 * X)
    assert np.isfinite(logs).all()
    assert logs.min() < -1000
    np.testing.assert_allclose(np.exp(logs).sum(1), 1)
    np.testing.assert_allclose(np.exp(clf.predict_log_proba(X)), clf.predict_proba(X))


def test_calibration_by_scikit_learn():
    X, _, truth = blurred_clouds()
    confident = PartialLabelClassifier("cc", "mlp", epochs=100, learning_rate=0.03, random_state=0)
    calibrated = CalibratedClassifierCV(confident, method="sigmoid", cv=3).fit(X[:200], truth[:200])
    uncalibrated = confident.fit(X[:200], truth[:200])
    assert log_loss(truth[200:], calibrated.predict_proba(X[200:])) < log_loss(
        truth[200:], uncalibrated.predict_proba(X[200:])
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bagging": 1.0}, "bagging: got 1.0"),
        ({"targets": "mine", "n_estimators": 2}, "targets: got 'mine'"),
        ({"targets": "peer"}, "n_estimators: got 1; expected at least 2"),
        ({"targets": "peer", "n_estimators": 2}, "targets: ProPaLL has no label weights"),
        ({"schedule": "cosine"}, "schedule: got 'cosine'"),
        ({"standardize": "log"}, "standardize: got 'log'"),
    ],
)
def test_invalid_settings_of_ensembles_are_refused(settings, message):
    X, S, _ = separate_clouds()
    with pytest.raises(ValueError, match=message):
        PartialLabelClassifier(epochs=2, **settings).fit(X, S)


def test_default_learning_rates():
    X, y = load_iris(return_X_y=True)
    train, test = np.arange(0, 150, 2), np.arange(1, 150, 2)
    for net, rate in (("linear", 0.03), ("mlp", 0.01)):
        default, explicit = (
            PartialLabelClassifier(net=net, epochs=50, random_state=0, **rates).fit(X[train], y[train])
            for rates in ({}, {"learning_rate": rate})
        )
        assert np.array_equal(default.decision_function(X[test]), explicit.decision_function(X[test]))


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("scaling", [True, "min-max", False])
@pytest.mark.parametrize("method", ["propall", "clpl"])
def test_coefficients_of_a_linear_model_give_its_decision_function(method, scaling, k):
    X, S, _ = separate_clouds(k=k)
    clf = PartialLabelClassifier(method, epochs=3, standardize=scaling, random_state=0).fit(5 + 3 * X, S)
    rows = 5 + 3 * X[:7]
    expected = clf.decision_function(rows)
    scores = rows @ clf.coef_.T + clf.intercept_
    assert clf.coef_.shape == ((1, 4) if k == 2 else (k, 4))
    assert np.allclose(scores[:, 0] if k == 2 else scores, expected)


@pytest.mark.parametrize("setting", [{"net": "mlp"}, {"n_estimators": 2}, {"standardize": "square root"}])
def test_other_models_have_no_coefficients(setting):
    X, S, _ = separate_clouds()
    clf = PartialLabelClassifier(epochs=1, random_state=0, **setting).fit(X, S)
    assert not hasattr(clf, "coef_")
    with pytest.raises(AttributeError, match="intercept_: this model is not linear"):
        _ = clf.intercept_


def test_partial_fit_says_why_it_is_missing():
    assert not hasattr(PartialLabelClassifier(), "partial_fit")
    with pytest.raises(AttributeError, match=r"partial_fit: not available, because .* Call fit"):
        PartialLabelClassifier().partial_fit([[0.0]], ["a"])


def test_class_weights_equal_row_weights_of_ordinary_labels():
    X, _, truth = blurred_clouds(90)
    y, weights = NAMES[truth], {"ape": 3.0, "cat": 0.5}
    by_class = PartialLabelClassifier(epochs=5, class_weight=weights, random_state=0).fit(X, y)
    by_row = [weights.get(name, 1.0) for name in y]
    by_rows = PartialLabelClassifier(epochs=5, random_state=0).fit(X, y, sample_weight=by_row)
    assert np.array_equal(by_class.coef_, by_rows.coef_)
    balanced = PartialLabelClassifier(epochs=5, class_weight="balanced", random_state=0).fit(X, y)
    by_row = compute_sample_weight("balanced", y)
    by_rows = PartialLabelClassifier(epochs=5, random_state=0).fit(X, y, sample_weight=by_row)
    assert np.allclose(balanced.coef_, by_rows.coef_)


def test_a_row_has_the_mean_weight_of_its_candidates(tmp_path):
    labels = CandidateLabels.from_any(["a|b", "b", "b|c"])
    assert weigh_rows({"a": 3, "c": 0}, labels).tolist() == [2.0, 1.0, 0.5]
    # b counts for half a row, a row, and half a row
    assert np.allclose(weigh_rows("balanced", labels), [(2 + 0.5) / 2, 0.5, (0.5 + 2) / 2])
    with pytest.raises(ValueError, match=r"class_weight: 'd' is not a class; the classes are 'a', 'b', 'c'"):
        weigh_rows({"d": 1}, labels)
    with pytest.raises(ValueError, match="class_weight: 'a' has -1; expected a number of at least 0"):
        weigh_rows({"a": -1}, labels)
    with pytest.raises(ValueError, match="class_weight: got 'even'; expected 'balanced', a dict or None"):
        weigh_rows("even", labels)
    X, _, truth = separate_clouds(30)
    clf = PartialLabelClassifier(epochs=1, class_weight={1: 2.0}, random_state=0).fit(X, truth)
    clf.save(tmp_path / "model.safetensors")
    assert PartialLabelClassifier.load(tmp_path / "model.safetensors").class_weight == {1: 2.0}

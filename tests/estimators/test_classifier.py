"""The scikit-learn face: its own checks, then candidate sets in every form."""

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
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from propall import CandidateLabels, PartialLabelClassifier
from propall.estimators import Resolution
from propall.estimators.calibration import fit_temperature
from propall.estimators.scorers import SCORERS
from propall.methods import METHODS
from propall.training.contract import Algorithm

WEIGHTS = "this method has no place for instance weights, and says so"
WEIGHT_CHECKS = (
    "check_sample_weights_pandas_series",
    "check_sample_weights_not_an_array",
    "check_sample_weights_list",
    "check_sample_weights_shape",
    "check_sample_weights_not_overwritten",
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
    "check_classifiers_one_label_sample_weights",
)
FEW_ROWS = "the check brings fewer rows than the method asks for neighbours, which it refuses"
FEW_ROWS_CHECKS = {
    "ipal": ("check_estimators_nan_inf", "check_fit2d_1feature"),
    "plle": (
        "check_n_features_in_after_fitting",
        "check_estimators_nan_inf",
        "check_classifier_data_not_an_array",
        "check_fit2d_1feature",
    ),
}
#: These take exactly one complementary label per row; scikit-learn's checks bring ordinary labels of three
#: classes, which exclude two. `test_one_complementary_label_is_asked_for` holds them to it.
ONE_COMPLEMENTARY_LABEL = ("pc_ishida", "scl_nl", "scl_exp", "op", "op_w", "scarce", "cpe")
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
def test_one_complementary_label_is_asked_for(name):
    X, S, truth = problem()
    with pytest.raises(ValueError, match="one complementary label per row"):
        PartialLabelClassifier(name).fit(X, truth)
    S = ~np.eye(3, dtype=bool)[(truth + 1) % 3]
    clf = PartialLabelClassifier(name, random_state=0, learning_rate=0.05).fit(X, S)
    assert clf.score(X, S) > 0.8


def problem(n=120, k=3, seed=0):
    """Three well separated clouds; each row may be its own class or one more."""
    random = np.random.default_rng(seed)
    truth = random.integers(k, size=n)
    X = random.normal(size=(n, 4)) + 4 * np.eye(k, 4)[truth]
    candidates = random.random((n, k)) < 0.3
    candidates[np.arange(n), truth] = True
    candidates[candidates.all(1), (truth[candidates.all(1)] + 1) % k] = False
    return X, candidates, truth


NAMES = np.array(["ape", "bee", "cat"])


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
def test_all_forms_of_y_are_the_same_to_it(form):
    X, S, truth = problem()
    expected = PartialLabelClassifier(random_state=0, epochs=30, learning_rate=0.1).fit(X, S)
    found = PartialLabelClassifier(random_state=0, epochs=30, learning_rate=0.1).fit(X, form(S, truth))
    np.testing.assert_allclose(found.predict_proba(X), expected.predict_proba(X), rtol=1e-9)
    assert expected.score(X, truth) > 0.95


def test_strings_name_the_classes():
    X, S, truth = problem()
    y = ["|".join(NAMES[row]) for row in S]
    clf = PartialLabelClassifier(random_state=0, epochs=30, learning_rate=0.1).fit(X, y)
    assert clf.classes_.tolist() == NAMES.tolist()
    assert (clf.predict(X) == NAMES[truth]).mean() > 0.95
    assert clf.score(X, y) > 0.95  # candidate sets: the share of predictions among them
    assert clf.score(X, NAMES[truth]) == (clf.predict(X) == NAMES[truth]).mean()


def test_the_score_knows_the_model_s_classes():
    X, S, truth = problem()
    clf = PartialLabelClassifier(random_state=0, epochs=30, learning_rate=0.1)
    clf.fit(X, ["|".join(NAMES[row]) for row in S])
    right = clf.predict(X)
    assert [clf.score(X[:1], own) for own in ([right[0]], ["zebra"], [f"!{right[0]}"], ["!zebra"])] == [
        1,
        0,
        0,
        1,
    ]
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
    X, S, _ = problem()
    order = np.random.default_rng(1).permutation(len(X))
    a = PartialLabelClassifier(random_state=0, epochs=10, batch_size=32).fit(X, S)
    b = PartialLabelClassifier(random_state=0, epochs=10, batch_size=32).fit(X[order], S[order])
    np.testing.assert_allclose(a.predict_proba(X), b.predict_proba(X), rtol=1e-8)


def test_members_are_averaged():
    X, S, truth = problem()
    clf = PartialLabelClassifier(net="mlp", n_estimators=3, random_state=0, epochs=20).fit(X, S)
    assert len(clf.classifiers_) == 3
    members = [c.probabilities(clf._inputs(X)).numpy() for c in clf.classifiers_]
    assert np.abs(members[0] - members[1]).max() > 0
    np.testing.assert_allclose(clf.predict_proba(X), np.mean(members, axis=0))
    np.testing.assert_array_equal(clf.predict(X), clf.predict_proba(X).argmax(1))
    assert clf.score(X, truth) > 0.95


def test_pipeline_grid_search_and_pandas():
    X, S, truth = problem()
    frame = pd.DataFrame(X, columns=list("abcd"))
    clf = PartialLabelClassifier(epochs=30, learning_rate=0.1, random_state=0)
    pipeline = make_pipeline(StandardScaler(), clf).set_output(transform="pandas")
    search = GridSearchCV(pipeline, {"partiallabelclassifier__method": ["propall", "cc"]}, cv=3)
    search.fit(frame, CandidateLabels.from_matrix(S))
    assert search.best_score_ > 0.9
    assert search.best_estimator_[-1].feature_names_in_.tolist() == list("abcd")
    assert search.score(frame, truth) > 0.95


@pytest.mark.parametrize("method", METHODS)
def test_saved_and_loaded_is_the_same(method, tmp_path):
    X, S, truth = problem(60)
    S = ~np.eye(3, dtype=bool)[(truth + 1) % 3] if method in ONE_COMPLEMENTARY_LABEL else S
    clf = PartialLabelClassifier(method, random_state=0, epochs=2).fit(X, [tuple(NAMES[row]) for row in S])
    path = tmp_path / "model.propall"
    clf.save(path)
    again = PartialLabelClassifier.load(path)
    np.testing.assert_array_equal(again.decision_function(X), clf.decision_function(X))
    np.testing.assert_array_equal(again.predict(X), clf.predict(X))
    assert again.get_params()["epochs"] == 2


def test_a_network_with_other_outputs_than_classes():
    X, S, _ = problem()
    with pytest.raises(ValueError, match=r"net: it returns shape \(1, 2\) for one row; expected \(1, 3\)"):
        PartialLabelClassifier(net=nn.Linear(4, 2), epochs=2).fit(X, S)


def test_one_class_is_named_as_it_was_written():
    with pytest.raises(ValueError, match=r"y: 1 class given \('gull'\); a classifier needs"):
        PartialLabelClassifier().fit([[0.0], [1.0]], ["gull", "gull"])


def test_a_network_of_one_s_own(tmp_path):
    X, S, truth = problem()

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


def test_cut_changed_and_newer_models_are_refused(tmp_path):
    X, S, _ = problem()
    path = tmp_path / "model"
    PartialLabelClassifier(random_state=0, epochs=2).fit(X, S).save(path)
    whole = path.read_bytes()
    for damaged in (whole[:-30], whole[:50], b"", b"not a model", whole.replace(b"scale_", b"scole_")):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="path: "):
            PartialLabelClassifier.load(path)
    path.write_bytes(whole.replace(b'\\"layout\\": 1', b'\\"layout\\": 9'))
    with pytest.raises(ValueError, match="Upgrade propall"):
        PartialLabelClassifier.load(path)


def test_refusals():
    X, S, _truth = problem()
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


def test_settings_that_cannot_be_are_refused_in_words(tmp_path):
    X, S, _ = problem(30)
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


def test_resolving_speaks_of_candidates():
    X, S, _ = problem(30)
    clf = PartialLabelClassifier(epochs=2, random_state=0).fit(X, ["|".join(NAMES[row]) for row in S])
    with pytest.raises(ValueError, match=r"candidates: 'bea' is not a class of the model .*mean 'bee'"):
        clf.resolve(X[:2], ["ape|bea", "cat"])
    with pytest.raises(ValueError, match="candidates: 1 sets for 2 rows"):
        clf.resolve(X[:2], ["ape"])
    with pytest.raises(TypeError, match="candidates: None; expected one entry per row"):
        clf.resolve(X[:2], None)
    for blank in ("", None, float("nan")):
        found = clf.resolve(X[:3], [blank, "cat", "ape|bee"])
        assert found.candidates.sum(1).tolist() == [3, 1, 2]
    assert repr(found).startswith("Resolution(3 rows, 2 ambiguous, 3 classes ('ape', 'bee', 'cat'), mean")


def overlapping(n=300, seed=0):
    X, S, truth = problem(n, seed=seed)
    return X + np.random.default_rng(seed + 1).normal(size=X.shape) * 2, S, truth


def test_calibrating_changes_how_sure_it_is_and_nothing_else(tmp_path):
    X, S, _ = overlapping()
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
    X, _, truth = problem()
    clf = PartialLabelClassifier("cc", epochs=100, learning_rate=10.0, random_state=0).fit(X, truth)
    logs = clf.predict_log_proba(100 * X)
    assert np.isfinite(logs).all()
    assert logs.min() < -1000
    np.testing.assert_allclose(np.exp(logs).sum(1), 1)
    np.testing.assert_allclose(np.exp(clf.predict_log_proba(X)), clf.predict_proba(X))


def test_resolve_answers_for_every_row():
    X, S, truth = overlapping()
    clf = PartialLabelClassifier(epochs=50, learning_rate=0.1, random_state=0)
    clf.fit(X[:200], ["|".join(NAMES[row]) for row in S[:200]])
    found = clf.resolve(X, ["|".join(NAMES[row]) for row in S])
    assert len(found) == 300
    assert all(label in NAMES[row] for label, row in zip(found.label, S, strict=True))
    assert (found.label == NAMES[truth]).mean() > clf.score(X, NAMES[truth])
    chances = clf.predict_proba(X)
    inside = np.where(S, chances, 0)
    np.testing.assert_allclose(found.probability, inside.max(1) / inside.sum(1), rtol=1e-6)
    np.testing.assert_allclose(found.doubt, 1 - inside.sum(1), atol=1e-6)
    np.testing.assert_array_equal(clf.resolve(X, S).label, found.label)
    with pytest.raises(ValueError, match="10 sets for 300 rows"):
        clf.resolve(X, S[:10])
    with pytest.raises(ValueError, match="emu"):
        clf.resolve(X[:1], ["ape|emu"])


def test_rows_without_information_are_resolved_without_a_warning():
    X, S, _ = problem()
    clf = PartialLabelClassifier(epochs=10, random_state=0).fit(X, S)
    found = clf.resolve(X, np.ones_like(S))
    np.testing.assert_array_equal(found.label, clf.predict(X))
    np.testing.assert_array_equal(found.doubt, 0)


def test_resolution_by_hand():
    chances = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.6, 0.4, 1e-9]])
    candidates = np.array([[True, True, False], [True, True, False], [False, False, True]])
    found = Resolution(np.log(chances), candidates, NAMES)
    assert found.label.tolist() == ["ape", "bee", "cat"]
    np.testing.assert_allclose(found.probability, [5 / 8, 2 / 3, 1])
    np.testing.assert_allclose(found.margin, [2 / 8, 1 / 3, 1])
    np.testing.assert_allclose(found.doubt, [0.2, 0.7, 1], rtol=1e-8)
    np.testing.assert_allclose(found.among_candidates[0], [5 / 8, 3 / 8, 0])
    names = [[name for name, _ in row] for row in found.alternatives()]
    assert names == [["bee", "cat"], ["cat", "ape"], ["ape", "bee"]]
    assert found.alternatives(1)[1] == [("cat", pytest.approx(0.7))]
    frame = found.to_frame(index=["x", "y", "z"], most=1)
    assert frame.columns.tolist() == ["label", "probability", "margin", "doubt", "alternatives"]
    assert frame.loc["z", "label"] == "cat"
    nowhere = Resolution(np.array([[0.0, -900.0, -1000.0]]), np.array([[False, True, True]]), NAMES)
    assert nowhere.label.tolist() == ["bee"]
    assert nowhere.probability == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "propall"},
        {"method": "proden", "net": "mlp", "n_estimators": 3},
        {"method": "cc", "net": "mlp5", "standardize": False},
        {"method": "cpe"},
        {"method": "clpl"},
        {"method": "pl_svm"},
    ],
    ids=lambda settings: settings["method"],
)
def test_to_torch_takes_raw_features(settings):
    X, S, truth = problem()
    X = 5 + 3 * X
    S = ~np.eye(3, dtype=bool)[(truth + 1) % 3] if settings["method"] == "cpe" else S
    clf = PartialLabelClassifier(**settings, random_state=0, epochs=10).fit(X, S).calibrate(X, S)
    assert clf.temperature_ != 1
    module = clf.to_torch()
    assert not module.training
    x = torch.from_numpy(X).requires_grad_()
    logits = module(x)
    np.testing.assert_allclose(logits.softmax(-1).detach(), clf.predict_proba(X), rtol=1e-12, atol=1e-15)
    logits.logsumexp(-1).sum().backward()
    assert x.grad.abs().sum() > 0
    before = clf.predict_proba(X)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    np.testing.assert_array_equal(clf.predict_proba(X), before)


def test_to_torch_of_images_and_of_neighbours():
    images = np.random.default_rng(0).normal(size=(20, 1, 12, 12)).astype(np.float32)
    clf = PartialLabelClassifier(net="small_cnn", epochs=2, random_state=0).fit(images, np.arange(20) % 2)
    found = clf.to_torch()(torch.from_numpy(images)).softmax(-1).detach()
    np.testing.assert_allclose(found, clf.predict_proba(images), rtol=1e-5)
    X, S, _ = problem()
    with pytest.raises(ValueError, match=r"to_torch: .*compares new rows with the training rows"):
        PartialLabelClassifier("pl_knn").fit(X, S).to_torch()


def test_scikit_learn_calibrates_it_on_ordinary_labels():
    X, _, truth = overlapping()
    sure = PartialLabelClassifier("cc", "mlp", epochs=100, learning_rate=0.03, random_state=0)
    calibrated = CalibratedClassifierCV(sure, method="sigmoid", cv=3).fit(X[:200], truth[:200])
    own = sure.fit(X[:200], truth[:200])
    assert log_loss(truth[200:], calibrated.predict_proba(X[200:])) < log_loss(
        truth[200:], own.predict_proba(X[200:])
    )


def test_the_usual_learning_rate_suits_the_network():
    X, y = load_iris(return_X_y=True)
    train, test = np.arange(0, 150, 2), np.arange(1, 150, 2)
    for net, rate in (("linear", 0.03), ("mlp", 0.01)):
        usual, same = (
            PartialLabelClassifier(net=net, epochs=50, random_state=0, **given).fit(X[train], y[train])
            for given in ({}, {"learning_rate": rate})
        )
        assert np.array_equal(usual.decision_function(X[test]), same.decision_function(X[test]))

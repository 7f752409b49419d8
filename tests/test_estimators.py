"""The scikit-learn face: its own checks, then candidate sets in every form."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from propall import CandidateLabels, PartialLabelClassifier
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
    members = [c.probabilities(clf._known_features(X)).numpy() for c in clf.classifiers_]
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


@pytest.mark.parametrize("method", ["propall", "proden", "ipal", "pl_knn", "clpl", "pl_svm", "plle", "cpe"])
def test_saved_and_loaded_is_the_same(method, tmp_path):
    X, S, truth = problem()
    S = ~np.eye(3, dtype=bool)[(truth + 1) % 3] if method == "cpe" else S
    clf = PartialLabelClassifier(method, random_state=0, epochs=20).fit(X, [tuple(NAMES[row]) for row in S])
    path = tmp_path / "model.propall"
    clf.save(path)
    again = PartialLabelClassifier.load(path)
    np.testing.assert_allclose(again.predict_proba(X), clf.predict_proba(X), rtol=1e-12)
    np.testing.assert_array_equal(again.predict(X), clf.predict(X))
    assert again.get_params()["epochs"] == 20


def test_a_network_of_one_s_own(tmp_path):
    X, S, truth = problem()

    def net(in_shape, n_classes):
        return nn.Sequential(nn.Linear(in_shape[0], 16), nn.GELU(), nn.Linear(16, n_classes))

    clf = PartialLabelClassifier(net=net, random_state=0, epochs=50).fit(X, S)
    assert clf.score(X, truth) > 0.95
    clf.save(tmp_path / "model")
    with pytest.raises(ValueError, match="pass it as net="):
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
    with pytest.raises(ValueError, match=r"X: rows of shape"):
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
    with pytest.raises(ValueError, match="did you mean propall"):
        PartialLabelClassifier("propal").fit(X, S)
    with pytest.raises(ValueError, match="did you mean linear"):
        PartialLabelClassifier(net="liner").fit(X, S)
    with pytest.raises(ValueError, match="119 entries for 120 rows"):
        PartialLabelClassifier().fit(X, S[1:])
    with pytest.raises(ValueError, match="sample_weight: IPAL has no place"):
        PartialLabelClassifier("ipal").fit(X, S, sample_weight=np.ones(120))

"""Stratified folds of candidate sets."""

import time

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.model_selection import KFold

from propall import CandidateLabels, PartialLabelClassifier
from propall.estimators.folds import CandidateStratifiedKFold, group_equal_rows
from propall.estimators.search import resolve_out_of_fold


def uneven_sets(n, k, seed=0):
    """Sets of up to three labels, from frequent to rare."""
    random = np.random.default_rng(seed)
    frequency = 0.6 ** np.arange(k)
    mask = np.zeros((n, k), dtype=bool)
    for row in mask:
        row[random.choice(k, size=random.integers(1, 4), replace=False, p=frequency / frequency.sum())] = True
    return mask


def imbalance(mask, folds):
    """Largest deviation of a label's weight in a fold from the mean, in rows."""
    weight = mask / mask.sum(1, keepdims=True)
    held_out = np.array([weight[hold].sum(0) for _, hold in folds])
    return np.abs(held_out - held_out.mean(0)).max()


@pytest.mark.parametrize(
    ("n", "k", "folds"), [(403, 8, 5), (90, 12, 3), (1000, 5, 10), (7, 3, 7), (10, 4, 2)]
)
def test_folds_are_a_balanced_partition(n, k, folds):
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


def test_folds_depend_on_the_seed_only():
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


def test_many_rows_are_split_quickly():
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
    # Larger groups of equal rows are split: they are common with coarse features.
    X[:] = np.arange(200)[:, None] % 8
    assert imbalance(mask, CandidateStratifiedKFold(5).split(form(X), mask)) <= 1


def test_equal_rows_that_are_written_differently():
    explicit = csr_array((np.array([1.0, 0.0, 1.0]), np.array([0, 1, 0]), np.array([0, 2, 3])), shape=(2, 2))
    frame = pd.DataFrame({"name": ["x", "x"], "height": [np.nan, np.nan]})
    for X in (np.array([[0.0, 1.0], [-0.0, 1.0]]), explicit, frame):
        assert group_equal_rows(X, 2).tolist() == [0, 0]
    assert group_equal_rows(np.array([[-1, "x"], [-2, "x"]], dtype=object), 2) is None


def test_copies_do_not_leak_labels():
    """Labels are random, so accuracy above chance would be a leak through copied rows."""
    random = np.random.default_rng(0)
    X, y = random.normal(size=(60, 40)), random.integers(4, size=60)
    X, y = np.concatenate([X, X]), np.concatenate([y, y])
    clf = PartialLabelClassifier("cc", "mlp", epochs=60, random_state=0, classes=range(4))
    resolution = resolve_out_of_fold(clf, X, y, calibrate=False)
    assert (resolution.probabilities.argmax(1) == y).mean() < 0.5


def test_a_number_of_folds_is_that_many_stratified_folds():
    random = np.random.default_rng(0)
    X, y = random.normal(size=(30, 2)), random.integers(3, size=30)
    clf = PartialLabelClassifier("cc", epochs=2, random_state=0, classes=range(3))
    by_number = resolve_out_of_fold(clf, X, y, cv=3)
    by_splitter = resolve_out_of_fold(clf, X, y, cv=CandidateStratifiedKFold(3))
    np.testing.assert_array_equal(by_number.log_probabilities, by_splitter.log_probabilities)


def test_invalid_splits_are_refused():
    X = np.zeros((4, 1))
    with pytest.raises(ValueError, match="n_splits: got 5 folds for 4 rows; expected 2 to 4"):
        list(CandidateStratifiedKFold(5).split(X, np.eye(4, dtype=bool)))
    with pytest.raises(ValueError, match="y: missing"):
        list(CandidateStratifiedKFold(2).split(X))
    assert repr(CandidateStratifiedKFold(3)) == "CandidateStratifiedKFold(n_splits=3, random_state=0)"

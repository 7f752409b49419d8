"""Forests for many classes: sparse leaves, targets on the candidates, projections."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.ensemble import ExtraTreesRegressor

from propall.methods import _sparse_forest
from propall.methods._sparse_forest import CandidateTargets, SparseLeaves, SparseTreeEnsemble, project
from propall.methods._trees import next_targets
from propall.methods.forest import Forest
from propall.numerics import uniform_weights


def data(n=300, k=5, seed=0):
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, k, n)
    x = generator.normal(size=(n, 5)) + 3 * np.eye(k, 5)[truth]
    mask = generator.random((n, k)) < 0.3
    mask[np.arange(n), truth] = True
    return torch.from_numpy(x), torch.from_numpy(mask), truth


def test_leaves_predict_like_trees_that_are_fitted_to_all_classes() -> None:
    """Trees that are split by the distributions themselves have the same leaves in both forms."""
    x, mask, _ = data()
    rows, target = x.float().numpy(), uniform_weights(mask).double().numpy()
    forest = ExtraTreesRegressor(9, min_samples_leaf=2, bootstrap=True, oob_score=True, random_state=0)
    with pytest.warns(UserWarning, match="do not have OOB scores"):
        forest.fit(rows, target)
    leaves = SparseLeaves.fill(forest, rows, csr_array(target))
    new = torch.randn(50, 5, generator=torch.Generator().manual_seed(1)).double()
    expected = (9 * forest.predict(new.float().numpy()) + 1 / 5) / 10
    trees = leaves.ensemble(torch.device("cpu"))
    np.testing.assert_allclose(trees.probabilities(new).numpy(), expected, atol=1e-3)
    assert trees.probabilities(new[:0]).shape == (0, 5)
    sums = leaves.out_of_bag.toarray()
    some = sums.sum(1) > 0
    assert some.mean() > 0.9
    means = sums[some] / sums[some].sum(1, keepdims=True)
    np.testing.assert_allclose(means, forest.oob_prediction_[some], atol=1e-12)


@pytest.mark.parametrize("balanced", [False, True])
def test_targets_are_those_of_all_classes(balanced) -> None:
    _, mask, _ = data()
    generator = np.random.default_rng(1)
    weights = generator.random(mask.shape) * mask.numpy()
    weights[4] = 0
    weights[5, mask[5].numpy()] = np.inf
    uniform = uniform_weights(mask, torch.float64).numpy()
    targets = CandidateTargets(mask.numpy())
    expected = next_targets(weights, mask.numpy(), uniform, balanced=balanced)
    target = targets.next(weights[targets.row, targets.label], targets.uniform, balanced=balanced)
    np.testing.assert_allclose(targets.matrix(target).toarray(), expected, atol=1e-9)
    np.testing.assert_array_equal(targets.values(targets.matrix(target)), target)


def test_projections_keep_distances() -> None:
    generator = np.random.default_rng(0)
    target = generator.dirichlet(np.full(500, 0.01), 20)
    projected = project(csr_array(target), seed=0) / np.sqrt(_sparse_forest.PROJECTIONS)
    pairs = np.triu_indices(20, 1)
    before, after = (np.linalg.norm(each[:, None] - each, axis=-1)[pairs] for each in (target, projected))
    assert np.abs(after / before - 1).mean() < 0.15


@pytest.mark.parametrize("with_start", [False, True])
def test_a_forest_of_many_classes_is_about_as_good(with_start, monkeypatch) -> None:
    x, mask, truth = data()
    new_x, _, new_truth = data(seed=1)
    start = torch.full(mask.shape, 0.2, dtype=torch.float64) if with_start else None
    usual = Forest(trees=40).fit_from(x, mask, start, 0)
    monkeypatch.setattr("propall.methods.forest.MANY_CLASSES", 4)
    monkeypatch.setattr("propall.methods.forest.LARGEST_SHARE", 1.0)
    sparse = Forest(trees=40).fit_from(x, mask, start, 0)
    assert isinstance(sparse[0][0], SparseTreeEnsemble)
    for (trees,), out_of_bag in (usual, sparse):
        assert (trees.predict(new_x).numpy() == new_truth).mean() > 0.85
        assert (out_of_bag.argmax(1) == truth).mean() > 0.85
        np.testing.assert_allclose(out_of_bag.sum(1), 1)
        assert out_of_bag.min() > 0.005

"""Forest: trees as tensors, soft labels, starts."""

import numpy as np
import torch
from sklearn.ensemble import ExtraTreesRegressor

from propall.methods.forest import Forest, _tree_ensemble
from propall.numerics import uniform_weights


def data(n=200, seed=0):
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, 3, n)
    x = generator.normal(size=(n, 4)) + 2 * np.eye(3, 4)[truth]
    mask = generator.random((n, 3)) < 0.3
    mask[np.arange(n), truth] = True
    return torch.from_numpy(x), torch.from_numpy(mask), truth


def test_tensors_predict_like_the_trees() -> None:
    x, mask, _ = data()
    target = uniform_weights(mask).double().numpy()
    forest = ExtraTreesRegressor(7, min_samples_leaf=3, random_state=0).fit(x.float().numpy(), target)
    trees = _tree_ensemble(forest.estimators_, torch.device("cpu"))
    new = torch.randn(50, 4, generator=torch.Generator().manual_seed(1)).double()
    expected = (7 * forest.predict(new.float().numpy()) + 1 / 3) / 8  # one leaf of equal probabilities
    # The values of the leaves are stored in half precision.
    np.testing.assert_allclose(trees.probabilities(new).numpy(), expected, atol=1e-3)


def test_out_of_bag_predictions_say_how_good_it_is() -> None:
    x, mask, truth = data()
    new_x, _, new_truth = data(seed=1)
    (trees,), out_of_bag = Forest().fit_from(x, mask, None, 0)
    accuracy = (trees.predict(new_x).numpy() == new_truth).mean()
    assert accuracy > 0.8
    assert abs((out_of_bag.argmax(1) == truth).mean() - accuracy) < 0.08
    np.testing.assert_allclose(out_of_bag.sum(1), 1)
    assert out_of_bag.min() > 0.005


def test_an_anchor_decides_what_the_features_do_not() -> None:
    generator = np.random.default_rng(0)
    x, mask = torch.from_numpy(generator.normal(size=(100, 2))), torch.ones(100, 2, dtype=torch.bool)
    start = torch.tensor([[0.9, 0.1]]).expand(100, -1)
    _, anchored = Forest(trees=20).fit_from(x, mask, start, 0)
    _, free = Forest(trees=20).fit_from(x, mask, None, 0)
    assert anchored[:, 0].min() > 0.85
    assert 0.4 < free[:, 0].mean() < 0.6


def test_balanced_trees_do_not_prefer_the_label_that_accompanies_all_others() -> None:
    """Label 0 is a candidate everywhere and right in a quarter of the rows; the features say little."""
    generator = np.random.default_rng(0)
    truth = generator.integers(0, 4, 400)
    x = generator.normal(size=(400, 3)) + 0.7 * np.eye(4, 3)[truth]
    mask = np.eye(4, dtype=bool)[truth]
    mask[:, 0] = True
    mask[truth == 0, 1 + np.arange((truth == 0).sum()) % 3] = True
    x, mask = torch.from_numpy(x), torch.from_numpy(mask)
    predicted = {}
    for balanced in (False, True):
        (trees,), _ = Forest(trees=50, balanced=balanced).fit_from(x, mask, None, 0)
        predicted[balanced] = trees.predict(x).numpy()
    assert (predicted[False] == 0).mean() > 0.9
    assert (predicted[True] == 0).mean() < 0.75
    assert (predicted[True] == truth).mean() > (predicted[False] == truth).mean() + 0.1

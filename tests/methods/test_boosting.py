"""Boosting: trees as tensors, soft labels, missing classes."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from propall.methods.boosting import Boosting, _Fitted
from tests.methods.test_forest import data

QUICK = Boosting(iterations=10)


@pytest.mark.parametrize("present", [(0, 1, 2), (1, 2), (0, 2, 4)])
def test_tensors_predict_like_the_trees(present) -> None:
    x, _, truth = data()
    rows, labels = x.numpy(), np.array(present)[truth % len(present)]
    model = HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=5).fit(rows, labels)
    trees = _Fitted(model, np.array(present), 5, np.bincount(labels, minlength=5).astype(float))
    new = torch.randn(50, 4, generator=torch.Generator().manual_seed(1)).double()
    probabilities = trees.to(torch.device("cpu")).scores(new)[:, list(present)].softmax(-1)
    np.testing.assert_allclose(probabilities.numpy(), model.predict_proba(new.numpy()), atol=1e-9)
    everything = trees.to(torch.device("cpu")).probabilities(new)
    missing = [j for j in range(5) if j not in present]
    assert 0 < everything[:, missing].max() < 0.05


def test_rows_that_were_left_out_say_how_good_it_is() -> None:
    x, mask, truth = data()
    new_x, _, new_truth = data(seed=1)
    members, held_out = QUICK.fit_from(x, mask, None, 0)
    assert len(members) == 5
    mean = torch.stack([trees.probabilities(new_x) for trees in members]).mean(0)
    accuracy = (mean.argmax(1).numpy() == new_truth).mean()
    assert accuracy > 0.75
    assert abs((held_out.argmax(1) == truth).mean() - accuracy) < 0.1
    assert (QUICK.fit_rows(x, mask, 0).predict(new_x).numpy() == new_truth).mean() > 0.75


def test_an_anchor_decides_what_the_features_do_not() -> None:
    generator = np.random.default_rng(0)
    x, mask = torch.from_numpy(generator.normal(size=(100, 2))), torch.ones(100, 2, dtype=torch.bool)
    _, anchored = QUICK.fit_from(x, mask, torch.tensor([[0.9, 0.1]]).expand(100, -1), 0)
    assert anchored[:, 0].min() > 0.8


def test_rows_of_a_single_class() -> None:
    x = torch.randn(12, 2, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[False, True, False]]).expand(12, -1)
    members, held_out = QUICK.fit_from(x, mask, None, 0)
    assert (held_out.argmax(1) == 1).all()
    assert (members[0].predict(x) == 1).all()
    assert held_out.min() > 0

import math

import pytest
import torch

from propall.methods import prune_candidates


def problem(n=60, k=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    truth = torch.arange(n) % k
    features = torch.nn.functional.one_hot(truth, k) + 0.2 * torch.randn(n, k, generator=generator)
    sets = torch.rand(n, k, generator=generator) < 0.5
    sets[torch.arange(n), truth] = True
    return features, sets, truth


@pytest.mark.parametrize(("n_neighbors", "tau"), [(5, 0.2), (8, 0.6), (59, 1.0)])
def test_pruning_is_that_of_the_definition(n_neighbors, tau):
    features, sets, _ = problem()
    unit = features / features.norm(dim=1, keepdim=True)
    pruned = prune_candidates(features, sets, n_neighbors, tau)
    for i, own in enumerate(sets.tolist()):
        order = sorted(range(60), key=lambda v, i=i: float((unit[i] - unit[v]).double().square().sum()))
        neighbors = [v for v in order if v != i][:n_neighbors]
        lacking = [own[j] * sum(not sets[v, j] for v in neighbors) for j in range(6)]
        removable = math.ceil(tau * (sum(own) - 1) - 1e-9)
        threshold = sorted(lacking, reverse=True)[removable]
        assert pruned[i].tolist() == [own[j] and lacking[j] <= threshold for j in range(6)]
        assert sum(own) - int(pruned[i].sum()) <= removable


def test_pruning_removes_wrong_candidates_and_never_all():
    features, sets, truth = problem(300)
    pruned = prune_candidates(features, sets, 20)
    assert pruned.any(1).all()
    assert pruned[torch.arange(300), truth].double().mean() > 0.98
    wrong_before, wrong_after = (int(s.sum()) - 300 for s in (sets, pruned))
    assert wrong_after < 0.6 * wrong_before


def test_ties_are_kept_and_labels_can_be_renamed():
    features, sets, _ = problem()
    assert torch.equal(prune_candidates(features, torch.ones_like(sets), 5, 1.0), torch.ones_like(sets))
    order = torch.tensor([3, 1, 5, 0, 4, 2])
    pruned = prune_candidates(features, sets, 8)
    assert torch.equal(prune_candidates(features, sets[:, order], 8), pruned[:, order])
    assert torch.equal(prune_candidates(features, sets, 8, 0.0), sets)
    with pytest.raises(ValueError, match=r"^tau: got 2"):
        prune_candidates(features, sets, 8, 2)

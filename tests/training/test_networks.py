"""Seeded initialization: repeatable, without a trace, and safe in threads."""

from concurrent.futures import ThreadPoolExecutor

import torch

from propall.data.dataset import PartialDataset
from propall.methods.propall import ProPaLL
from propall.nets import NETS
from propall.training.contract import Run, TrainingSetup
from propall.training.networks import build, seeded_generator
from propall.training.recipe import Recipe

TRAIN = PartialDataset(torch.randn(40, 5, generator=torch.Generator().manual_seed(0)), torch.eye(40, 3) < 1)


def weights(seed):
    return torch.cat([p.flatten() for p in build(NETS["mlp5"], Run(TRAIN, seed)).parameters()])


def test_a_seed_gives_the_same_network_in_any_thread():
    expected = [weights(seed) for seed in range(8)]
    torch.manual_seed(3)
    after = torch.rand(4)
    torch.manual_seed(3)
    for _ in range(5):
        with ThreadPoolExecutor(8) as pool:
            drawn = list(pool.map(weights, range(8)))
        assert all(torch.equal(a, b) for a, b in zip(drawn, expected, strict=True))
    assert torch.equal(torch.rand(4), after)  # the caller's stream continues as if nothing had happened


def test_fits_in_threads_are_the_fits_one_after_another():
    setup = TrainingSetup(NETS["mlp"], Recipe(epochs=2, batch_size=8, learning_rate=0.1))

    def scores(seed):
        (classifier,) = ProPaLL().with_training(setup).fit([Run(TRAIN, seed)])
        return classifier.scores(TRAIN.x)

    expected = [scores(seed) for seed in range(8)]
    with ThreadPoolExecutor(8) as pool:
        fitted = list(pool.map(scores, range(8)))
    assert all(torch.equal(a, b) for a, b in zip(fitted, expected, strict=True))


def test_a_factory_may_build_another_network():
    """A nested draw restores the outer one, and does not wait for it."""
    with seeded_generator(1):
        first = torch.rand(2)
        with seeded_generator(2):
            torch.rand(2)
        second = torch.rand(2)
    with seeded_generator(1):
        assert torch.equal(torch.rand(4), torch.cat([first, second]))

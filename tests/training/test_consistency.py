"""Training with views, end to end on small images."""

import json
from dataclasses import replace

import pytest
import torch

from propall.data.augmentation import Augmentation
from propall.data.dataset import PartialDataset
from propall.methods.cc import CC
from propall.methods.proden import PRODEN
from propall.methods.propall import ProPaLL
from propall.nets import NETS
from propall.training.checkpoint import Checkpoint
from propall.training.contract import Monitor, Run
from propall.training.recipe import Recipe
from propall.training.stream import Stream
from propall.training.trainer import Trainer
from propall.training.views import Views

VIEWS = Views(strong=Augmentation(flip=False, crop=1, operations=2, cutout=3), n_strong=2, ramp=0.5)
RECIPE = Recipe(epochs=3, batch_size=8, learning_rate=0.05, views=VIEWS)


def images(n=24, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 1, 8, 8, generator=generator)
    sets = torch.rand(n, 3, generator=generator) < 0.4
    sets[torch.arange(n), torch.arange(n) % 3] = True
    return PartialDataset(x, sets)


def small(in_shape, n_classes):
    return NETS["small_cnn"](in_shape, n_classes, widths=(4, 4))


def weights(classifier):
    return torch.cat([p.flatten() for p in classifier.net.state_dict().values() if p.is_floating_point()])


@pytest.mark.parametrize("method", [ProPaLL(), CC(), PRODEN()], ids=lambda m: m.name)
@pytest.mark.parametrize("targets", ["weak", "memory", "teacher"])
def test_stacked_runs_are_those_trained_alone(method, targets):
    recipe = replace(
        RECIPE, views=replace(VIEWS, targets=targets), lookahead=2, schedule="linear", warm_up=0.2
    )
    train = images()
    runs = [Run(train, seed) for seed in range(2)]
    together = Trainer(method, small, recipe).fit(runs)
    for run, classifier in zip(runs, together, strict=True):
        (alone,) = Trainer(method, small, recipe).fit([run])
        torch.testing.assert_close(weights(alone), weights(classifier), atol=2e-5, rtol=1e-4)
        assert alone.objective == method


@pytest.mark.parametrize("targets", ["weak", "memory", "teacher"])
def test_interrupted_training_continues_as_if_it_had_not_been(tmp_path, targets):
    recipe = replace(RECIPE, views=replace(VIEWS, targets=targets), lookahead=2)
    runs = [Run(images(), 0)]
    (whole,) = Trainer(CC(), small, recipe).fit(runs)

    class Interrupt(Monitor):
        def epoch(self, epoch, runs, losses, scores):
            if epoch == 3:
                raise KeyboardInterrupt

    checkpoint = Checkpoint(tmp_path / "progress", seconds=0)
    with pytest.raises(KeyboardInterrupt):
        Trainer(CC(), small, recipe, checkpoint).fit(runs, monitor=Interrupt())
    (resumed,) = Trainer(CC(), small, recipe, checkpoint).fit(runs)
    assert torch.equal(weights(resumed), weights(whole))


def test_views_need_images():
    train = PartialDataset(torch.rand(6, 4), torch.ones(6, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"^views: augmented views need images"):
        Trainer(CC(), NETS["linear"], RECIPE).fit([Run(train, 0)])


def test_views_do_not_depend_on_batch_or_order():
    train = images()
    stream = Stream([Run(train, 0)], RECIPE)
    index = torch.tensor([[3, 7, 11]])
    step = torch.tensor(4)  # epoch 1
    together = stream.batch(index, step).x
    for i in range(3):
        alone = stream.batch(index[:, i : i + 1], step).x
        assert torch.equal(together[:, i::3], alone)
    assert torch.equal(stream.batch(index, torch.tensor(5)).x, together)
    assert not torch.equal(stream.batch(index, torch.tensor(7)).x, together)


def test_recipes_survive_json():
    recipe = replace(RECIPE, schedule="cosine", nesterov=True, norm_rate=64.0, lookahead=5)
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe
    assert "views" not in Recipe().to_dict()
    assert Recipe.from_dict(Recipe().to_dict()) == Recipe()


def test_views_do_not_depend_on_the_images_of_other_runs():
    bright = images(seed=1)
    bright = PartialDataset(3 * bright.x - 1, bright.candidates)
    index, step = torch.tensor([[3, 7, 11]]), torch.tensor(4)
    together = Stream([Run(images(), 0), Run(bright, 0)], RECIPE).batch(index.expand(2, -1), step).x
    for run, train in enumerate((images(), bright)):
        assert torch.equal(together[run], Stream([Run(train, 0)], RECIPE).batch(index, step).x[0])

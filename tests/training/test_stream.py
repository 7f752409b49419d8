"""Batches and draws do not depend on how many are made at once, bit for bit."""

import pytest
import torch

from propall import counter_rng
from propall.data.dataset import PartialDataset
from propall.methods.cc import CC
from propall.methods.propall import ProPaLL
from propall.nets import NETS
from propall.training import stream as streams
from propall.training.contract import Run
from propall.training.recipe import Recipe
from propall.training.stack import Stack
from propall.training.stream import Stream


def runs(n=37, shape=(3,), k=5, count=2, shared=True, keys=None):
    g = torch.Generator().manual_seed(0)
    made = []
    for seed in range(count):
        if seed == 0 or not shared:
            candidates = torch.rand(n, k, generator=g) < 0.5
            candidates[:, 0] = True
            train = PartialDataset(torch.randn(n, *shape, generator=g), candidates)
        made.append(Run(train, seed, keys=keys))
    return made


def test_noise_of_many_steps_at_once():
    stream = Stream(runs(), Recipe())
    keys = torch.arange(12).expand(2, 12)
    steps = torch.arange(12) // 5 + 40
    whole = stream.noise(slice(0, 2), steps, keys)
    for step in steps.unique():
        rows = steps == step
        assert torch.equal(stream.noise(slice(1, 2), step, keys[1:, rows]), whole[1:, rows])


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("last_batch", ["keep", "drop"])
def test_batches_contain_the_rows_of_the_order(shared, last_batch, monkeypatch):
    """Gathered one by one or many at once."""
    keys = torch.arange(37) * 1000
    made = runs(shared=shared, keys=keys)
    stack = Stack(made, ProPaLL(), NETS["linear"], Recipe(batch_size=8, last_batch=last_batch))
    batches = list(stack.batches(3))
    assert [batch.index.shape[1] for batch, _ in batches] == stack.batch_sizes
    order = stack.stream.order(3)
    seeds = [counter_rng.seed_for(seed, "noise") for seed in range(2)]
    for number, (batch, (uniform,)) in enumerate(batches):
        assert torch.equal(batch.index, order[:, 8 * number : 8 * number + 8][:, : batch.index.shape[1]])
        for r, run in enumerate(made):
            index = batch.index[r]
            assert torch.equal(batch.x[r], run.train.x[index])
            assert torch.equal(batch.candidates[r], run.train.candidates[index])
            assert torch.equal(batch.keys[r], keys[index])
            step = 3 * len(stack.batch_sizes) + number
            expected = counter_rng.uniform(seeds[r], step, keys[index, None], torch.arange(5))
            assert torch.equal(uniform[r], expected)
    monkeypatch.setattr(streams, "NUMBERS_AT_ONCE", 1)
    for (a, (u,)), (b, (v,)) in zip(batches, stack.batches(3), strict=True):
        assert torch.equal(a.x, b.x)
        assert torch.equal(u, v)
    later = list(stack.batches(3, first=2))
    assert len(later) == len(batches) - 2
    assert torch.equal(later[0][0].x, batches[2][0].x)
    assert torch.equal(later[0][1][0], batches[2][1][0])


@pytest.mark.parametrize("last_batch", ["keep", "drop"])
@pytest.mark.parametrize("at_once", [1, 500, 1 << 18], ids=["batches", "epochs", "all"])
def test_batches_of_several_epochs_at_once(at_once, last_batch, monkeypatch):
    stack = Stack(runs(), ProPaLL(), NETS["linear"], Recipe(batch_size=8, last_batch=last_batch))
    expected = [pair for epoch in range(2, 7) for pair in stack.batches(epoch)]
    monkeypatch.setattr(streams, "NUMBERS_AT_ONCE", at_once)
    for (a, (u,)), (b, (v,)) in zip(expected, stack.batches(2, epochs=5), strict=True):
        assert torch.equal(a.index, b.index)
        assert torch.equal(a.x, b.x)
        assert torch.equal(u, v)
    later = list(stack.batches(2, 3, epochs=5))
    assert len(later) == len(expected) - 3
    assert torch.equal(later[-1][1][0], expected[-1][1][0])


def test_an_epoch_does_not_depend_on_batches_assembled_before():
    """Continuing, going back and starting in the middle give the same batches."""
    recipe = Recipe(epochs=4, batch_size=8)
    stack, fresh = (Stack(runs(), ProPaLL(), NETS["linear"], recipe) for _ in range(2))
    start = {name: tensor.clone() for name, tensor in stack.tensors().items()}
    first = [stack.train_epoch(epoch) for epoch in range(4)]
    stack.load(start)
    assert torch.equal(stack.train_epoch(0), first[0])
    before = {name: tensor.clone() for name, tensor in stack.tensors().items()}
    assert torch.equal(stack.train_epoch(1), first[1])
    stack.load(before)
    assert torch.equal(stack.train_epoch(1), first[1])
    fresh.load({name: tensor.clone() for name, tensor in stack.tensors().items()})
    assert torch.equal(fresh.train_epoch(2), first[2])
    assert fresh.train_epoch(4).isfinite().all()  # after the last epoch of the recipe


@pytest.mark.parametrize("kind", ["flip_crop", "rotate_flip"])
def test_augmentation_does_not_depend_on_how_many_batches_are_gathered(kind, monkeypatch):
    made = runs(n=20, shape=(1, 8, 8))
    stack = Stack(made, CC(), NETS["linear"], Recipe(batch_size=6, augmentation=kind))
    together = [batch.x for batch, _ in stack.batches(1)]
    monkeypatch.setattr(streams, "NUMBERS_AT_ONCE", 1)
    for a, (b, _) in zip(together, stack.batches(1), strict=True):
        assert torch.equal(a, b.x)
    third = stack.stream.batch(stack.stream.order(1)[:, 12:18], torch.tensor(3 + 2))
    assert torch.equal(third.x, together[2])

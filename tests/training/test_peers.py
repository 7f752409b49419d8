"""Members of an ensemble that give each other their label weights."""

import dataclasses

import pytest
import torch

from propall.data.corruption import Exactly
from propall.data.synthetic import blobs
from propall.methods.cc import CC
from propall.methods.proden import PRODEN
from propall.nets.mlp import Linear
from propall.numerics import restricted_softmax
from propall.training.contract import Run
from propall.training.peers import Peers, exchange
from propall.training.recipe import Recipe
from propall.training.stack import Stack
from propall.training.trainer import Trainer, split_runs

RECIPE = Recipe(epochs=10, batch_size=10, optimizer="adam", learning_rate=0.05)


def member_runs(members=3, start=0.0, balanced=False):
    train = blobs(30, 3, 4, seed=0).problem(Exactly(n=2), 0).train
    train = dataclasses.replace(train, x=train.x.double())
    peers = Peers(train, start, balanced)
    rows = [torch.arange(30)[torch.arange(30) % members != i] for i in range(members)]
    parts = [dataclasses.replace(train, x=train.x[r], candidates=train.candidates[r]) for r in rows]
    return [Run(part, i, peers=peers, rows=r) for i, (part, r) in enumerate(zip(parts, rows, strict=True))]


def test_weights_are_the_mean_posterior_of_the_others() -> None:
    runs = member_runs()
    stack = Stack(runs, PRODEN(), Linear, RECIPE)
    stack.train_epoch(0)
    exchange(stack, 1)
    nets = [classifier.net for classifier in stack.classifiers()]
    train = runs[0].peers.train
    for i, run in enumerate(runs):
        others = [restricted_softmax(net(train.x), train.candidates) for j, net in enumerate(nets) if j != i]
        expected = torch.stack(others).mean(0)[run.rows]
        torch.testing.assert_close(stack.states[0].rows["weights"][i], expected)


def test_balanced_weights_keep_the_shares_of_the_classes() -> None:
    runs = member_runs(balanced=True)
    train = runs[0].peers.train
    stack = Stack(
        [dataclasses.replace(run, train=train, rows=None) for run in runs], PRODEN(), Linear, RECIPE
    )
    stack.train_epoch(0)
    exchange(stack, 1)
    weights = stack.states[0].rows["weights"]
    shares = (train.candidates / train.candidates.sum(1, keepdim=True)).double().mean(0)
    torch.testing.assert_close(weights.mean(1).double(), shares.expand(3, -1), atol=1e-3, rtol=0)
    assert not weights.masked_select(~train.candidates).any()
    assert stack.fingerprint() != Stack(member_runs(), PRODEN(), Linear, RECIPE).fingerprint()


def test_exchange_waits_for_its_start() -> None:
    stack = Stack(member_runs(start=0.5), PRODEN(), Linear, RECIPE)
    stack.train_epoch(0)
    before = stack.states[0].rows["weights"].clone()
    exchange(stack, 4)
    assert torch.equal(stack.states[0].rows["weights"], before)
    exchange(stack, 5)
    assert not torch.equal(stack.states[0].rows["weights"], before)


def test_other_runs_in_the_stack_change_nothing() -> None:
    runs = member_runs()
    x = runs[0].peers.train.x
    alone = Trainer(PRODEN(), Linear, RECIPE).fit(runs)
    # A second ensemble, and runs without peers.
    more = [*member_runs(), *(dataclasses.replace(run, peers=None, rows=None) for run in runs)]
    together = Trainer(PRODEN(), Linear, RECIPE).fit([*runs, *more])
    for one, other in zip(alone, together, strict=False):
        torch.testing.assert_close(one.scores(x), other.scores(x))
    assert not torch.allclose(together[0].scores(x), together[-3].scores(x))


def test_methods_without_label_weights_are_rejected() -> None:
    with pytest.raises(ValueError, match="targets: CC has no label weights"):
        Trainer(CC(), Linear, RECIPE).fit(member_runs())


def test_members_stay_together() -> None:
    runs = [*member_runs(3), *member_runs(3), dataclasses.replace(member_runs(3)[0], peers=None)]
    assert split_runs(runs, range(7), 2) == [[0, 1, 2], [3, 4, 5], [6]]
    assert split_runs(runs, range(7), 4) == [[0, 1, 2], [3, 4, 5, 6]]

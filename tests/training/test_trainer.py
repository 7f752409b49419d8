"""Stacked training equals single runs, and both equal a plain loop with torch.optim."""

import copy
import time
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from propall.data.dataset import PartialDataset
from propall.methods import METHODS
from propall.methods.cc import CC, cc_loss
from propall.methods.proden import PRODEN
from propall.methods.propall import ProPaLL
from propall.methods.rc import RC
from propall.nets import NETS
from propall.numerics import restricted_softmax
from propall.training.checkpoint import Checkpoint, TimeLimitReached
from propall.training.contract import Monitor, Run
from propall.training.networks import build
from propall.training.recipe import Recipe
from propall.training.stack import Stack
from propall.training.trainer import DivergedWarning, Progress, Trainer

N, D, K = 60, 6, 4


def data(seed=0, n=N, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    truth = torch.randint(K, (n,), generator=g)
    centers = 3 * torch.randn(K, D, generator=g)
    x = centers[truth] + torch.randn(n, D, generator=g)
    candidates = (torch.rand(n, K, generator=g) < 0.3) | nn.functional.one_hot(truth, K).bool()
    candidates[candidates.all(-1), 0] = False
    candidates[torch.arange(n), truth] = True
    return PartialDataset(x.to(dtype), candidates), truth


NETWORKS = {"linear": NETS["linear"], "mlp": partial(NETS["mlp"], widths=(8,), batch_norm=True)}
QUICK = Recipe(epochs=2, batch_size=16, learning_rate=0.1, last_batch="keep")


@pytest.mark.parametrize("net", NETWORKS)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_run_does_not_depend_on_its_stack(net, optimizer):
    shared, _ = data(0, dtype=torch.float64)
    other, _ = data(1, dtype=torch.float64)
    runs = [
        Run(shared, 0, objective=ProPaLL()),
        Run(shared, 1, objective=ProPaLL(noise=0.3), learning_rate=0.05),
        Run(other, 2, objective=PRODEN(), weight_decay=0.01),
        Run(shared, 3, objective=RC()),
        Run(other, 4, objective=CC(), weight=torch.rand(N).double() + 0.5),
    ]
    recipe = Recipe(epochs=2, batch_size=16, learning_rate=0.1, optimizer=optimizer, last_batch="keep")
    trainer = Trainer(CC(), NETWORKS[net], recipe)
    together = trainer.fit(runs)
    for run, stacked in zip(runs, together, strict=True):
        (alone,) = trainer.fit([run])
        for name, weights in alone.net.state_dict().items():
            torch.testing.assert_close(stacked.net.state_dict()[name], weights, rtol=1e-9, atol=1e-11)
        for name, rows in alone.state.rows.items():
            torch.testing.assert_close(stacked.state.rows[name], rows, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_equals_a_plain_loop_with_torch_optim(optimizer):
    train, _ = data(dtype=torch.float64)
    recipe = Recipe(
        epochs=3, batch_size=16, optimizer=optimizer, learning_rate=0.05, weight_decay=0.01, decay=0.5
    )
    run = Run(train, seed=7)
    net = build(NETWORKS["mlp"], run).train()
    kinds = {"sgd": partial(torch.optim.SGD, momentum=0.9), "adam": torch.optim.Adam}
    optim = kinds[optimizer](net.parameters(), lr=0.05, weight_decay=0.01)
    stream = Stack([run], CC(), NETWORKS["mlp"], recipe).stream
    for epoch in range(recipe.epochs):
        optim.param_groups[0]["lr"] = 0.05 * 0.5**epoch
        for index in stream.order(epoch)[0].split(16)[:3]:
            optim.zero_grad()
            cc_loss(net(train.x[index]), train.candidates[index]).mean().backward()
            optim.step()
    (fitted,) = Trainer(CC(), NETWORKS["mlp"], recipe).fit([run])
    for name, weights in net.state_dict().items():
        torch.testing.assert_close(fitted.net.state_dict()[name], weights, rtol=1e-9, atol=1e-11)


def test_state_is_updated_before_or_after_the_step():
    train, _ = data(dtype=torch.float64)
    recipe = Recipe(epochs=1, batch_size=N, learning_rate=0.5)
    run = Run(train, seed=0)
    first = build(NETS["linear"], run)(train.x).detach()
    (proden,) = Trainer(PRODEN(), NETS["linear"], recipe).fit([run])
    (rc,) = Trainer(RC(), NETS["linear"], recipe).fit([run])
    torch.testing.assert_close(proden.logits(train.x), rc.logits(train.x))  # one step, same weights
    before = restricted_softmax(first, train.candidates)
    after = restricted_softmax(rc.logits(train.x), train.candidates)
    torch.testing.assert_close(proden.state.rows["weights"], before)
    torch.testing.assert_close(rc.state.rows["weights"], after)
    assert (before - after).abs().max() > 0.01


def test_every_epoch_has_every_row_in_a_new_order():
    train, _ = data()
    stack = Stack([Run(train, 0), Run(train, 1)], CC(), NETS["linear"], QUICK)
    orders = [stack.stream.order(epoch) for epoch in range(3)]
    for order in orders:
        assert (order.sort(-1).values == torch.arange(N)).all()
    assert len({tuple(run.tolist()) for order in orders for run in order}) == 6


@pytest.mark.parametrize("count", [1, 2])
def test_further_training_leaves_a_classifier_unchanged(count):
    train, _ = data()
    stack = Stack([Run(train, seed) for seed in range(count)], ProPaLL(), NETWORKS["mlp"], QUICK)
    stack.train_epoch(0)
    scores = stack.scores(train.x)
    classifiers = stack.classifiers()
    stack.train_epoch(1)
    assert not torch.equal(stack.scores(train.x), scores)
    for classifier, expected in zip(classifiers, scores, strict=True):
        assert not classifier.net.training
        torch.testing.assert_close(classifier.scores(train.x), expected)


def test_seeds_determine_the_result():
    train, _ = data()
    trainer = Trainer(ProPaLL(), NETS["linear"], QUICK)
    a, b, c = (trainer.fit([Run(train, seed)])[0].scores(train.x) for seed in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.allclose(a, c)


def test_noise_changes_training_but_not_prediction():
    train, _ = data()
    noisy, plain = (
        Trainer(ProPaLL(noise=noise), NETS["linear"], QUICK).fit([Run(train, 0)])[0] for noise in (1.0, 0.0)
    )
    assert not torch.allclose(noisy.scores(train.x), plain.scores(train.x))
    assert torch.equal(noisy.scores(train.x), noisy.scores(train.x))


def test_runs_of_different_length_and_a_limit_are_separate_stacks():
    long, _ = data(0, n=50)
    short, _ = data(1, n=41)
    runs = [Run(long, 0), Run(short, 1), Run(long, 2), Run(short, 3)]
    limited = Trainer(CC(), NETS["linear"], QUICK, stack=1).fit(runs)
    for a, b in zip(Trainer(CC(), NETS["linear"], QUICK).fit(runs), limited, strict=True):
        torch.testing.assert_close(a.scores(long.x), b.scores(long.x), rtol=1e-5, atol=1e-5)


def test_a_module_is_the_start_of_training_and_stays_unchanged():
    train, _ = data()
    module = nn.Sequential(nn.Linear(D, 5), nn.Tanh(), nn.Linear(5, K))
    before = copy.deepcopy(module.state_dict())
    (fitted,) = Trainer(CC(), module, Recipe(epochs=0)).fit([Run(train, 0)])
    assert all(torch.equal(fitted.net.state_dict()[name], before[name]) for name in before)
    (fitted,) = Trainer(CC(), module, QUICK).fit([Run(train, 0)])
    assert all(torch.equal(module.state_dict()[name], before[name]) for name in before)
    assert not torch.equal(fitted.net.state_dict()["0.weight"], before["0.weight"])


def test_the_global_generator_is_unchanged():
    train, _ = data()
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    Trainer(ProPaLL(), NETS["linear"], QUICK).fit([Run(train, 0)])
    assert torch.equal(torch.rand(1), expected)


def test_bad_candidates_raise_before_training():
    train, _ = data()
    empty = train.candidates.clone()
    empty[17] = False
    with pytest.raises(ValueError, match=r"candidates.*17"):
        Trainer(CC(), NETS["linear"], QUICK).fit([Run(PartialDataset(train.x, empty), 0)])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"weight": torch.ones(N + 1)}, r"weight: got shape \(61,\); expected \(60,\)"),
        ({"weight": torch.full((N,), -1.0)}, r"weight: contains -1\.0"),
        ({"keys": torch.arange(3)}, r"keys: got shape \(3,\)"),
    ],
)
def test_weights_and_keys_must_fit_the_rows(changed, message):
    with pytest.raises(ValueError, match=message):
        Trainer(CC(), NETS["linear"], QUICK).fit([Run(data()[0], 0, **changed)])


def test_a_training_that_diverged_says_so():
    train, _ = data()
    trainer = Trainer(CC(), NETS["mlp"], QUICK)
    message = r"training diverged: 1 of 2 networks .* Lower the learning rate \(0\.1\)"
    with pytest.warns(DivergedWarning, match=message):
        trainer.fit([Run(train, 0), Run(train, 1, learning_rate=1e30)])


def test_features_must_be_finite_floats():
    train, _ = data()
    trainer = Trainer(CC(), NETS["linear"], QUICK)
    with pytest.raises(TypeError, match=r"x: got dtype torch.float16.*precision='bfloat16'"):
        trainer.fit([Run(PartialDataset(train.x.half(), train.candidates), 0)])
    x = train.x.clone()
    x[7, 2] = torch.nan
    x[9] = torch.inf
    with pytest.raises(ValueError, match=r"x: 2 rows contain NaN or infinity \(first: 7\)"):
        trainer.fit([Run(PartialDataset(x, train.candidates), 0)])


def test_different_views_of_the_same_memory_are_different_data():
    wide = torch.randn(2 * N, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    candidates = data()[0].candidates
    runs = [Run(PartialDataset(x, candidates), seed) for seed, x in enumerate((wide[:N], wide[::2]))]
    trainer = Trainer(CC(), NETS["linear"], QUICK)
    torch.testing.assert_close(trainer.fit(runs)[1].scores(wide), trainer.fit(runs[1:])[0].scores(wide))


@pytest.mark.parametrize("net", NETWORKS)
@pytest.mark.parametrize("objective", [CC(), METHODS["scarce"](), METHODS["ga"]()], ids=lambda o: o.name)
def test_batches_of_weight_zero_stay_finite(net, objective):
    x = data()[0].x
    candidates = ~nn.functional.one_hot(torch.arange(N) % K, K).bool()
    weight = torch.zeros(N)
    weight[:2] = 1
    for runs in (1, 2):
        weighted = [Run(PartialDataset(x, candidates), seed, weight=weight) for seed in range(runs)]
        for classifier in Trainer(objective, NETWORKS[net], QUICK).fit(weighted):
            assert classifier.scores(x).isfinite().all()


@pytest.mark.parametrize("count", [1, 2])
def test_frozen_parameters_stay_fixed(count):
    train, _ = data()
    net = NETS["mlp"]((D,), K)
    net.hidden.requires_grad_(False)
    before = copy.deepcopy(net.state_dict())
    for classifier in Trainer(CC(), net, QUICK).fit([Run(train, seed) for seed in range(count)]):
        for name, value in classifier.net.state_dict().items():
            assert torch.equal(value, before[name]) == name.startswith("hidden"), name
    with pytest.raises(ValueError, match="net: no parameter"):
        Trainer(CC(), net.requires_grad_(False), QUICK).fit([Run(train, 0)])


def test_a_network_with_a_replaced_head():
    train, _ = data()
    net = NETS["mlp"]((D,), K)
    net.head = nn.Sequential(nn.Tanh(), net.head)
    for runs in ([Run(train, 0)], [Run(train, 0), Run(train, 1)]):
        assert Trainer(CC(), net, QUICK).fit(runs)[0].scores(train.x).shape == (N, K)


def test_augmentation_needs_images():
    train, _ = data()
    recipe = Recipe(epochs=1, augmentation="flip_crop")
    with pytest.raises(ValueError, match=r"augmentation.*images"):
        Trainer(CC(), NETS["linear"], recipe).fit([Run(train, 0)])


@pytest.mark.parametrize("kind", ["flip_crop", "rotate_flip"])
def test_augmentation_depends_on_the_run_and_repeats(kind):
    g = torch.Generator().manual_seed(0)
    x = torch.rand(12, 1, 8, 8, generator=g)
    train = PartialDataset(x, torch.ones(12, 2, dtype=torch.bool))
    recipe = Recipe(epochs=1, batch_size=6, augmentation=kind)
    stack = Stack([Run(train, 0), Run(train, 1)], CC(), NETS["linear"], recipe)
    index = torch.arange(6).expand(2, 6)
    step = torch.tensor(0)
    first, again = stack.stream.batch(index, step).x, stack.stream.batch(index, step).x
    later = stack.stream.batch(index, step + 1).x
    assert torch.equal(first, again)
    assert not torch.equal(first, later)
    assert not torch.equal(first[0], first[1])
    alone = Stack([Run(train, 1)], CC(), NETS["linear"], recipe).stream.batch(index[:1], step).x
    assert torch.equal(alone[0], first[1])


def test_the_time_between_two_stacks_is_not_that_of_an_epoch(tmp_path, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(time, "time", lambda: clock.now)
    checkpoint = Checkpoint(tmp_path, seconds=1e9, deadline=100.0)
    stack = Stack([Run(data()[0], 0)], CC(), NETS["linear"], QUICK)

    def train(progress, epoch, now):
        clock.now = now
        progress.save(epoch, 9, stack, Monitor())

    first, second = (Progress(checkpoint, lambda name=name: name) for name in ("one", "two"))
    train(first, 1, 1.0)
    train(first, 2, 2.0)
    train(second, 1, 60.0)  # preparing it took a minute
    train(second, 2, 75.0)
    assert not list(tmp_path.iterdir())
    with pytest.raises(TimeLimitReached):  # the next epoch would end 5 seconds late
        train(second, 3, 90.0)
    assert [path.stem for path in tmp_path.iterdir()] == ["two"]

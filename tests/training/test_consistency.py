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
from propall.training.cleaning import KEPT, ConformalCleaning, Purification
from propall.training.consistency import MISS_RATE, PREDICTIONS, TOLERANCE, ConsistentObjective
from propall.training.contract import Monitor, Run, Step
from propall.training.recipe import Recipe
from propall.training.stack import Stack
from propall.training.stream import Stream
from propall.training.trainer import Trainer
from propall.training.views import Views, mixing_weights

VIEWS = Views(strong=Augmentation(flip=False, crop=1, operations=2, cutout=3), n_strong=2, ramp=0.5)
RECIPE = Recipe(epochs=3, batch_size=8, learning_rate=0.05, views=VIEWS)


#: Views with memories, each of which changes after the first epoch.
REMEMBERING = {
    "memory": replace(VIEWS, targets="memory"),
    "teacher": replace(VIEWS, targets="teacher", teacher_view="strong", base_weight=0.0),
    "purification": replace(VIEWS, targets="memory", cleaning=Purification(start=1, window=1, threshold=0.9)),
    "conformal": replace(VIEWS, cleaning=ConformalCleaning(start=1, alpha=0.3)),
    "tolerance": replace(VIEWS, mask="widened", tolerance="auto", tolerance_from=0.0, widen_base=True),
    "mixup": replace(VIEWS, targets="memory", refresh="before", mixup=2),
}


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


@pytest.mark.parametrize("views", list(REMEMBERING))
def test_memories_of_stacked_runs_are_those_of_runs_alone(views):
    recipe = replace(RECIPE, views=REMEMBERING[views])
    train = images()
    runs = [Run(train, seed) for seed in range(2)]
    together = Trainer(CC(), small, recipe).fit(runs)
    for run, classifier in zip(runs, together, strict=True):
        (alone,) = Trainer(CC(), small, recipe).fit([run])
        torch.testing.assert_close(weights(alone), weights(classifier), atol=2e-5, rtol=1e-4)


def test_without_strong_views_training_is_that_without_views():
    still = Views(weak=Augmentation(flip=False, crop=0), n_strong=0, cleaning=None)
    train = images()
    (plain,), (viewed,) = (
        Trainer(PRODEN(), small, replace(RECIPE, views=views)).fit([Run(train, 0)]) for views in (None, still)
    )
    assert torch.equal(weights(plain), weights(viewed))


def test_candidates_are_removed_and_the_miss_rate_is_reported():
    train, removed = images(), {}
    for name in ("purification", "conformal"):
        stack = Stack([Run(train, 0)], CC(), small, replace(RECIPE, views=REMEMBERING[name]))
        for epoch in range(3):
            stack.train_epoch(epoch)
        kept = stack.states[0].rows[KEPT][0]
        assert kept.any(-1).all()
        assert not (kept & ~train.candidates).any()
        removed[name] = int((kept != train.candidates).sum())
    assert removed["purification"] > 0
    (classifier,) = Trainer(CC(), small, replace(RECIPE, views=REMEMBERING["tolerance"])).fit([Run(train, 0)])
    assert 0 <= float(classifier.state.shared[MISS_RATE]) <= 1
    assert 0 <= float(classifier.state.shared[TOLERANCE]) <= 1
    assert not classifier.state.rows


def test_the_teacher_approaches_a_student_at_rest():
    momentum, steps = 0.9, 7
    views = replace(VIEWS, targets="teacher", teacher_momentum=momentum)
    stack = Stack([Run(images(), seed) for seed in range(2)], CC(), small, replace(RECIPE, views=views))
    before = {name: stack.averages.teacher[name].clone() for name in stack.parameters}
    for parameter in stack.parameters.values():
        parameter.data.add_(1.0)
    for _ in range(steps):
        stack.averages.update()
    for name, student in stack.parameters.items():
        expected = student + momentum**steps * (before[name] - student)
        torch.testing.assert_close(stack.averages.teacher[name], expected.detach())


def test_lookahead_pulls_the_weights_back_every_few_steps():
    stack = Stack([Run(images(), 0)], CC(), small, replace(RECIPE, lookahead=3))  # 9 steps in all
    slow = {name: tensor.clone() for name, tensor in stack.averages.slow.items()}
    assert any(name.endswith("running_var") for name in slow)
    for step in range(1, 7):
        for name in slow:
            {**stack.parameters, **stack.buffers}[name].data.add_(1.0)
        before = {n: t.clone() for n, t in {**stack.parameters, **stack.buffers}.items() if n in slow}
        stack.step.fill_(step)
        stack.averages.update()
        past = 0.95**3 * (step / 9) ** 3
        if step % 3 == 0:
            before = slow = {name: past * slow[name] + (1 - past) * before[name] for name in slow}
        for name, expected in before.items():
            torch.testing.assert_close({**stack.parameters, **stack.buffers}[name], expected)


@pytest.mark.parametrize(("view", "first"), [("weak", 0), ("strong", 8)])
def test_the_teacher_sees_its_view_with_batch_norm_of_its_own(view, first):
    views = replace(VIEWS, targets="teacher", teacher_view=view)
    stack = Stack([Run(images(), 0)], CC(), small, replace(RECIPE, views=views))
    batch, _ = stack.next_batch(torch.arange(8)[None])
    seen = batch.x[:, first : first + 8]
    expected, buffers = stack.forward(stack.parameters, stack.buffers, seen, training=True)
    torch.testing.assert_close(stack.averages.with_teacher(batch).teacher, expected)
    moved = [name for name in stack.buffers if name.endswith("running_mean")]
    for name in moved:  # the statistics of the student stay
        torch.testing.assert_close(stack.averages.teacher[name], buffers[name])
        assert not torch.equal(stack.buffers[name], buffers[name])
    assert moved


def test_the_tolerance_is_estimated_late_in_training():
    views = replace(VIEWS, mask="widened", tolerance="auto", tolerance_from=0.6)
    objective, sets = ConsistentObjective(CC(), views), torch.eye(4, dtype=torch.bool).repeat(3, 1)
    # A third of the rows is sure of a label outside the set.
    log_p = torch.where(sets, 3.0, 0.0).log_softmax(-1)
    log_p[:4] = log_p[:4].roll(1, -1)
    state = objective.init(sets).with_rows(**{PREDICTIONS: log_p})
    tolerances = [
        objective.end_epoch(sets, state, Step(torch.tensor(share), torch.tensor(1.0)))
        .shared[TOLERANCE]
        .item()
        for share in (0.5, 0.7)
    ]
    assert tolerances[0] == 0 < tolerances[1]


def test_the_tolerance_starts_with_the_epoch_that_reaches_its_share():
    views = replace(VIEWS, mask="widened", tolerance="auto", tolerance_from=0.7)
    stack = Stack([Run(images(), 0)], CC(), small, replace(RECIPE, epochs=10, views=views))
    seen = []
    objective = stack.sections[0].objective
    object.__setattr__(objective, "end_epoch", lambda sets, state, step: seen.append(step) or state)
    for done in (6, 7):
        stack.end_epoch(done)
    assert [float(step.progress) >= 0.7 for step in seen] == [False, True]


@pytest.mark.parametrize("views", ["purification", "conformal", "tolerance"])
def test_each_run_of_a_stack_counts_its_own_rows_after_an_epoch(views):
    train, recipe = images(), replace(RECIPE, views=REMEMBERING[views])
    weights_of = [torch.ones(24), (torch.arange(24) < 12).float()]
    runs = [Run(train, 0, weight) for weight in weights_of]
    together = Stack(runs, CC(), small, recipe)
    alone = Stack(runs[1:], CC(), small, recipe)
    unweighted = Stack([Run(train, 0)], CC(), small, recipe)
    # What the network has learned is not the matter here: all have the same predictions, which are surer of
    # the candidates where rows count in one run only.
    logits = 2 * torch.rand(24, 3, generator=torch.Generator().manual_seed(0))
    predictions = (logits + 3 * train.candidates * (1 - weights_of[1]).unsqueeze(-1)).log_softmax(-1)
    for stack in (together, alone, unweighted):
        for run in range(len(stack.runs)):
            stack.states[0].rows[PREDICTIONS][run] = predictions
        stack.end_epoch(2)

    def stored(stack, run):
        state = stack.states[0]
        names = [name for name in (KEPT, TOLERANCE, MISS_RATE) if name in {**state.rows, **state.shared}]
        return torch.cat([{**state.rows, **state.shared}[name][run].double().flatten() for name in names])

    assert torch.equal(stored(together, 1), stored(alone, 0))
    assert torch.equal(stored(together, 0), stored(unweighted, 0))
    if views != "purification":  # there, rows that do not count only decide whether the threshold grows
        assert not torch.equal(stored(together, 1), stored(together, 0))


def test_mixup_has_no_partners_of_weight_0():
    recipe = replace(RECIPE, views=REMEMBERING["mixup"])
    weight = torch.ones(24)
    weight[5] = 0.0
    batches = [Stream([Run(images(), 0, weight)], recipe).batch(torch.arange(8)[None], torch.tensor(1))]
    batches += [next(Stack([Run(images(), 0, weight)], CC(), small, recipe).batches(0))[0]]
    plain = Stream([Run(images(), 0)], recipe).batch(torch.arange(8)[None], torch.tensor(1))
    for batch in batches:
        alone = batch.weight.roll(1, -1) == 0
        assert torch.equal(batch.mixing == 1, alone)
        weak, mixed = batch.x[:, :8], batch.x[:, -8:]
        torch.testing.assert_close(mixed[alone], weak[alone])
    kept = batches[0].weight.roll(1, -1) > 0
    assert torch.equal(batches[0].mixing[kept], plain.mixing[kept])
    assert batches[0].mixing[0, 6] == 1 != plain.mixing[0, 6]


def test_peers_give_each_other_targets():
    train = images()
    stack = Stack(
        [Run(train, seed) for seed in range(3)],
        CC(),
        small,
        replace(RECIPE, views=replace(VIEWS, targets="peers")),
    )
    stack.train_epoch(0)
    (batch, _), *_ = stack.batches(1)
    latest = stack.states[0].rows[PREDICTIONS].exp()
    peers = stack.averages.with_teacher(batch).teacher.exp()
    for run in range(3):
        others = [latest[other, batch.index[run]] for other in range(3) if other != run]
        torch.testing.assert_close(peers[run], (others[0] + others[1]) / 2)
    with pytest.raises(ValueError, match=r"^views: targets='peers' takes targets from the other runs"):
        Stack([Run(train, 0)], CC(), small, stack.recipe)
    with pytest.raises(ValueError, match=r"^views: targets='peers' needs runs on the same rows"):
        Stack([Run(train, 0), Run(images(seed=1), 1)], CC(), small, stack.recipe)


def test_mixed_views_are_weak_views_of_two_rows():
    recipe = replace(RECIPE, views=REMEMBERING["mixup"])
    batch = Stream([Run(images(), 0)], recipe).batch(torch.tensor([[3, 7, 11]]), torch.tensor(4))
    weak, _, _, mixed = batch.x[0].unflatten(0, (4, 3))
    assert ((batch.mixing >= 0.5) & (batch.mixing <= 1)).all()
    share = batch.mixing[0][:, None, None, None]
    torch.testing.assert_close(mixed, share * weak + (1 - share) * weak[[2, 0, 1]])
    plain = Stream([Run(images(), 0)], RECIPE).batch(torch.tensor([[3, 7, 11]]), torch.tensor(4))
    assert torch.equal(plain.x, batch.x[:, :9])  # the other views are as without


def test_mixing_weights_follow_a_beta_distribution():
    draws = torch.rand(20000, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    share = mixing_weights(draws)
    beta = torch.distributions.Beta(torch.tensor(4.0), torch.tensor(4.0)).sample((20000,))
    expected = torch.maximum(beta, 1 - beta).double()
    assert abs(float(share.mean() - expected.mean())) < 0.005
    assert abs(float(share.std() - expected.std())) < 0.005


@pytest.mark.parametrize("views", [*REMEMBERING, "weak", "peers"])
def test_interrupted_training_continues_as_if_it_had_not_been(tmp_path, views):
    chosen = REMEMBERING.get(views) or replace(VIEWS, targets=views)
    recipe = replace(RECIPE, views=chosen, lookahead=2)
    train = images()
    runs = [Run(train, seed) for seed in range(1 + (views == "peers"))]
    whole, *_ = Trainer(CC(), small, recipe).fit(runs)

    class Interrupt(Monitor):
        def epoch(self, epoch, runs, losses, scores):
            if epoch == 3:
                raise KeyboardInterrupt

    checkpoint = Checkpoint(tmp_path / "progress", seconds=0)
    with pytest.raises(KeyboardInterrupt):
        Trainer(CC(), small, recipe, checkpoint).fit(runs, monitor=Interrupt())
    resumed, *_ = Trainer(CC(), small, recipe, checkpoint).fit(runs)
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

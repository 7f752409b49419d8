"""Named views on a fixed batch, against their formulas written out."""

import json

import pytest
import torch

from propall.losses import ConsistencyLoss
from propall.methods import METHODS
from propall.numerics import restricted_softmax
from propall.training.consistency import MEMORY, PREDICTIONS, TOLERANCE, ConsistentObjective
from propall.training.contract import State, Step
from propall.training.named_views import VIEWS
from propall.training.views import Views, admitted, rectified, widened

N, K = 5, 4


def batch(views, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(views * N, K, generator=generator, dtype=torch.float64)
    sets = torch.rand(N, K, generator=generator) < 0.5
    sets[torch.arange(N), torch.randint(K, (N,), generator=generator)] = True
    return logits, sets


def at(progress, **more):
    return Step(torch.tensor(progress, dtype=torch.float64), torch.tensor(0.0), **more)


def objective(name):
    named = VIEWS[name]
    return ConsistentObjective(METHODS[named.base](**named.base_settings), named.views)


def ce(target, logits):
    return -(target * logits.log_softmax(-1)).sum(-1).mean()


def kl(target, logits):
    return ce(target, logits) + torch.xlogy(target, target).sum(-1).mean()


def test_glws():
    logits, sets = batch(3)
    weak, p = logits[:N], logits[:N].softmax(-1)
    supervised = -((1.0000001 - p).log() * ~sets).sum(-1).mean()
    consistency = ce(restricted_softmax(weak, sets).repeat(3, 1), logits)
    balance = -0.1 * p.mean(0).log().mean()
    loss = objective("glws").loss(logits, sets, State(), at(0.0))  # no ramp, not even at the first step
    torch.testing.assert_close(loss, supervised + consistency + balance)


@pytest.mark.parametrize(("progress", "height"), [(0.0, 0.0), (0.25, 0.5), (0.9, 1.0)])
def test_pocr(progress, height):
    logits, _ = batch(3)
    sets = torch.ones(N, K, dtype=torch.bool)
    sets[torch.arange(N), torch.arange(N) % K] = False
    weak, first, second = logits.unflatten(0, (3, N))
    comp = -((1.0000001 - weak.softmax(-1) + 1e-8).log() * ~sets).sum(-1).mean()
    target = restricted_softmax(weak, sets)
    loss = objective("pocr").loss(logits, sets, State(), at(progress))
    torch.testing.assert_close(loss, comp + height * (kl(target, first) + kl(target, second)))


def test_dirk_learns_from_the_teacher_alone():
    logits, sets = batch(2)
    teacher = torch.randn(N, K, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    logits.requires_grad_()
    loss = objective("dirk").loss(logits, sets, State(), at(0.0, teacher=teacher))
    torch.testing.assert_close(loss, ce(rectified(teacher, sets), logits[N:]))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert not gradient[:N].any()  # the weak view has no part in it
    assert VIEWS["dirk"].views.teacher_momentum == 0.99


@pytest.mark.parametrize("name", ["alim_scale", "alim_one_hot"])
def test_alim(name):
    logits, sets = batch(3)
    alim = objective(name)
    state = alim.init(sets)
    old, tolerance = state.rows[MEMORY].double(), torch.tensor(0.4, dtype=torch.float64)
    state = state.with_rows(**{MEMORY: old}).with_shared(**{TOLERANCE: tolerance})
    target = widened(logits[:N], sets, 0.4)
    if name == "alim_one_hot":
        target = torch.nn.functional.one_hot(target.argmax(-1), K).double()
    target = 0.9 * old + 0.1 * target  # before the loss
    share = torch.tensor([0.5, 0.6, 0.7, 0.8, 0.9], dtype=torch.float64)
    mixed = share[:, None] * target + (1 - share[:, None]) * target.roll(1, 0)
    expected = (ce(target, logits[:N]) + ce(target, logits[N : 2 * N])) / 2 + ce(mixed, logits[2 * N :])
    torch.testing.assert_close(alim.loss(logits, sets, state, at(0.25, mixing=share)), expected)
    after = alim.update(logits, sets, state, at(0.25, mixing=share))
    torch.testing.assert_close(after.rows[MEMORY], target)
    torch.testing.assert_close(after.rows[PREDICTIONS], logits[:N].log_softmax(-1))


def test_hard_targets_wait_until_the_network_tells_classes_apart():
    logits, sets = batch(3)
    alim = objective("alim_one_hot")
    state, step = alim.init(sets), at(0.24, mixing=torch.ones(N, dtype=torch.float64))
    assert torch.equal(alim.update(logits, sets, state, step).rows[MEMORY], state.rows[MEMORY])
    equal, (weak, strong, mixed) = state.rows[MEMORY].double(), logits.unflatten(0, (3, N))
    expected = (ce(equal, weak) + ce(equal, strong)) / 2 + ce(equal, mixed)
    torch.testing.assert_close(alim.loss(logits, sets, state, step), expected)


def test_pop_is_proden_on_all_views():
    logits, sets = batch(3)
    pop, proden = objective("pop"), METHODS["proden"]()
    state = pop.init(sets)
    start = proden.init(sets)
    losses = [proden.loss(part, sets, start, at(0.0)) for part in logits.unflatten(0, (3, N))]
    torch.testing.assert_close(pop.loss(logits, sets, state, at(0.0)), torch.stack(losses).mean())
    after = pop.update(logits, sets, state, at(0.0)).rows[MEMORY]
    torch.testing.assert_close(after, proden.update(logits[:N], sets, start, at(0.0)).rows["weights"])


@pytest.mark.parametrize("name", list(VIEWS))
@pytest.mark.parametrize("base", ["propall", "proden"])
def test_any_objective_can_be_the_base(name, base):
    views = VIEWS[name].with_base()
    logits, sets = batch(views.n_views)
    mixed = ConsistentObjective(METHODS[base](), views)
    state = mixed.init(sets)
    step = at(
        0.5,
        teacher=logits[:N],
        mixing=torch.full((N,), 0.5, dtype=torch.float64),
        uniform=torch.full((N, K), 0.5, dtype=torch.float64),
    )
    parts = logits.unflatten(0, (views.n_views, N))[: 1 + views.n_strong]
    parts = parts if views.base_views == "all" else parts[:1]
    base_loss = torch.stack([mixed.base.loss(part, sets, state, step) for part in parts]).mean()
    without = ConsistentObjective(METHODS[base](), VIEWS[name].views).loss(logits, sets, state, step)
    alone = without if VIEWS[name].views.base_weight == 0 else without - base_loss
    torch.testing.assert_close(mixed.loss(logits, sets, state, step), base_loss + alone)


@pytest.mark.parametrize("name", list(VIEWS))
def test_classes_can_be_renamed(name):
    consistent = objective(name)
    logits, sets = batch(consistent.views.n_views)
    order = torch.tensor([2, 0, 3, 1])
    teacher, share = logits[:N] / 2, torch.full((N,), 0.7, dtype=torch.float64)
    losses = [
        consistent.loss(
            logits[:, o],
            sets[:, o],
            consistent.init(sets[:, o]),
            at(0.7, teacher=teacher[:, o], mixing=share),
        )
        for o in (torch.arange(K), order)
    ]
    torch.testing.assert_close(*losses)


@pytest.mark.parametrize("name", list(VIEWS))
def test_weights_count_as_repeated_rows(name):
    consistent, times = objective(name), torch.tensor([1, 2, 0, 1, 3])
    views = consistent.views.n_views
    logits, sets = batch(views)
    repeated = logits.unflatten(0, (views, N)).repeat_interleave(times, 1).flatten(0, 1)
    teacher, alone = logits[:N] / 2, torch.ones(N, dtype=torch.float64)  # each row is mixed with itself
    weighted = at(0.7, teacher=teacher, mixing=alone, weight=times.double())
    loss = consistent.loss(logits, sets, consistent.init(sets), weighted)
    teacher, sets = (part.repeat_interleave(times, 0) for part in (teacher, sets))
    equal = at(0.7, teacher=teacher, mixing=alone.repeat_interleave(times))
    torch.testing.assert_close(loss, consistent.loss(repeated, sets, consistent.init(sets), equal))


@pytest.mark.parametrize("name", list(VIEWS))
def test_views_survive_json(name):
    views = VIEWS[name].views
    assert Views.from_dict(json.loads(json.dumps(views.to_dict()))) == views
    assert repr(views) == repr(Views.from_dict(views.to_dict()))


def test_additions_that_are_not_used_do_not_show():
    """Checkpoints are found by a digest of the text, results by a key of the values."""
    assert "base_weight" not in Views().to_dict()
    assert repr(Views(n_strong=2)).endswith(
        "teacher_momentum=0.996, tolerance=0.0, base_views='all', consistency_views='all', reduction='mean')"
    )


def test_the_base_loss_sees_labels_that_outweigh_the_set():
    logits = torch.tensor([[0.0, 0.0, 3.0], [3.0, 0.0, 0.0]])
    sets = torch.tensor([[1, 1, 0], [1, 0, 0]]).bool()
    assert admitted(logits, sets, 0.5).tolist() == [[True, True, True], [True, False, False]]
    assert torch.equal(admitted(logits, sets, 0.01), sets)


@pytest.mark.parametrize("name", ["pop", "conformal", "alim_scale"])
def test_own_loops_refuse_what_they_cannot_do(name):
    with pytest.raises(ValueError, match=r"^views: (cleaning|tolerance)=.* works between epochs"):
        ConsistencyLoss(METHODS["cc"](), VIEWS[name].views)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tolerance": "best"}, "tolerance: got 'best'"),
        ({"widen_base": True}, "widen_base: needs mask='widened'"),
        ({"memory_from": 0.5}, "memory_from: needs targets='memory'; got targets='weak'"),
        ({"memory_from": 25, "targets": "memory"}, "memory_from: got 25"),
        ({"n_strong": 0, "mixup": 1}, "mixup: got 1 with n_strong=0"),
        ({"n_strong": 0, "teacher_view": "strong"}, "teacher_view: got 'strong'"),
        ({"mixup": 0.4}, "mixup: got 0.4"),
    ],
)
def test_settings_that_do_not_fit_are_named(fields, message):
    with pytest.raises(ValueError, match=message):
        Views(**fields)

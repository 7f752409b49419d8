"""The losses in custom training loops."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from jaxtyping import TypeCheckError
from torch import nn

from propall import (
    CandidateLabels,
    ConsistencyLoss,
    ImageViews,
    PartialLabelLoss,
    ProPaLLLoss,
    Views,
    kernels,
    propall_loss,
)
from propall.data.augmentation import Augmentation
from propall.data.dataset import PartialDataset
from propall.methods import METHODS
from propall.methods.cavl import CAVL
from propall.methods.cc import CC
from propall.methods.cpe import CPE
from propall.methods.ga import GA
from propall.methods.lwc import LWC
from propall.methods.lws import LWS
from propall.methods.papi import PaPi
from propall.methods.proden import PRODEN
from propall.methods.propall import ProPaLL
from propall.methods.rc import RC
from propall.nets import NETS
from propall.numerics import restricted_softmax
from propall.training.consistency import ConsistentObjective
from propall.training.contract import Objective, Run, Step
from propall.training.networks import build
from propall.training.recipe import Recipe
from propall.training.stream import Stream
from propall.training.trainer import Trainer


def batch(n=6, k=4, seed=0):
    g = torch.Generator().manual_seed(seed)
    candidates = torch.rand(n, k, generator=g) < 0.4
    candidates[:, 0] = True
    candidates[:, -1] = False
    return torch.randn(n, k, generator=g, dtype=torch.float64), candidates


def test_is_the_mean_of_the_function():
    logits, candidates = batch()
    torch.testing.assert_close(ProPaLLLoss()(logits, candidates), propall_loss(logits, candidates).mean())


def test_reductions_and_weights():
    logits, candidates = batch()
    each = propall_loss(logits, candidates)
    weight = torch.linspace(0, 2, 6, dtype=torch.float64)
    none, total, mean = (ProPaLLLoss(reduction=r)(logits, candidates) for r in ("none", "sum", "mean"))
    torch.testing.assert_close(none, each)
    torch.testing.assert_close(total, each.sum())
    torch.testing.assert_close(mean, each.mean())
    weighted = ProPaLLLoss()(logits, candidates, weight=weight)
    torch.testing.assert_close(weighted, (each * weight).sum() / weight.sum())
    weighted = ProPaLLLoss(reduction="none")(logits, candidates, weight=weight)
    torch.testing.assert_close(weighted, each * weight)


def test_dense_logits_as_in_cross_entropy():
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, 4, 5, generator=g)
    candidates = torch.rand(2, 3, 4, 5, generator=g) < 0.5
    candidates[:, 0] = True
    loss = ProPaLLLoss(reduction="none")(logits, candidates)
    assert loss.shape == (2, 4, 5)
    torch.testing.assert_close(loss, propall_loss(logits.movedim(1, -1), candidates.movedim(1, -1)))
    last = ProPaLLLoss(reduction="none", dim=-1)(logits.movedim(1, -1), candidates.movedim(1, -1))
    torch.testing.assert_close(last, loss)
    single = ProPaLLLoss()(logits[0, :, 0, 0], candidates[0, :, 0, 0])
    torch.testing.assert_close(single, loss[0, 0, 0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_and_autocast(dtype):
    net = nn.Linear(8, 4)
    _, candidates = batch()
    x = 1e3 * torch.randn(6, 8)
    with torch.autocast("cpu", dtype=dtype):
        logits = net(x)
        assert logits.dtype == dtype
        loss = ProPaLLLoss()(logits, candidates)
    loss.backward()
    assert loss.dtype == torch.float32
    assert loss.isfinite()
    assert net.weight.grad.isfinite().all()


def test_noise_is_for_training_only_and_fades():
    logits, candidates = batch()
    criterion = ProPaLLLoss(noise=1.0)
    exact = propall_loss(logits, candidates).mean()
    assert criterion(logits, candidates) != criterion(logits, candidates)
    torch.testing.assert_close(criterion(logits, candidates, progress=1.0), exact)
    torch.testing.assert_close(criterion.eval()(logits, candidates), exact)


def test_maps_over_batches_as_cross_entropy_does():
    batches = [batch(seed=seed) for seed in range(3)]
    logits, candidates = (torch.stack(parts) for parts in zip(*batches, strict=True))
    criterion = ProPaLLLoss()
    each = torch.stack([criterion(*pair) for pair in batches])
    torch.testing.assert_close(torch.vmap(criterion)(logits, candidates), each)
    gradient = torch.vmap(torch.func.grad(criterion))(logits, candidates)
    assert gradient.shape == logits.shape
    shared = torch.vmap(criterion, in_dims=(0, None))(logits, candidates[0])
    torch.testing.assert_close(shared[0], each[0])
    noisy = torch.vmap(ProPaLLLoss(noise=1.0), randomness="different")(logits, candidates)
    assert noisy.isfinite().all()


@pytest.mark.parametrize("noise", [-1, "a", float("nan")])
def test_noise_is_a_number(noise):
    with pytest.raises(ValueError, match=rf"noise: got {noise!r}; expected a number, 0 or more"):
        ProPaLLLoss(noise=noise)


def test_without_noise_nothing_is_drawn():
    before = torch.get_rng_state()
    ProPaLLLoss()(*batch())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("criterion", [ProPaLLLoss(), ProPaLLLoss(noise=1.0).eval()])
def test_without_noise_the_kernel_gets_the_tensors_as_they_are(criterion, monkeypatch):
    logits, candidates = batch()
    logits, calls = logits.bfloat16(), []
    monkeypatch.setattr(kernels, "is_faster", lambda logits: True)

    def fused(*tensors, reduction):
        calls.append((tensors, reduction))
        return logits.sum()

    monkeypatch.setattr(kernels, "fused_propall", fused)
    criterion(logits, candidates)
    ((seen, sets), reduction) = calls[0]
    assert seen is logits
    assert sets is candidates
    assert reduction == "mean"


def test_proden_remembers_its_own_rows():
    logits, candidates = batch(n=10)
    criterion = PartialLabelLoss(PRODEN(), candidates)
    index = torch.tensor([7, 2])
    start = criterion.rows_weights.clone()
    first = criterion(logits[index], candidates[index], index=index)
    expected = -(start[index] * logits[index].log_softmax(-1)).sum(-1).mean()
    torch.testing.assert_close(first, expected)
    new = restricted_softmax(logits[index], candidates[index]).float()
    torch.testing.assert_close(criterion.rows_weights[index], new)
    others = [i for i in range(10) if i not in index]
    assert torch.equal(criterion.rows_weights[others], start[others])
    assert "rows_weights" in criterion.state_dict()
    before = criterion.rows_weights.clone()
    criterion.eval()(logits[index] + 1, candidates[index], index=index)
    assert torch.equal(criterion.rows_weights, before)


def test_rc_is_refreshed_after_the_step():
    logits, candidates = batch()
    criterion = PartialLabelLoss(RC(), candidates)
    index = torch.arange(6)
    start = criterion.rows_weights.clone()
    criterion(logits, candidates, index=index)
    assert torch.equal(criterion.rows_weights, start)
    criterion.refresh(logits + torch.arange(4), candidates, index=index)
    expected = restricted_softmax(logits + torch.arange(4), candidates).float()
    torch.testing.assert_close(criterion.rows_weights, expected)


def test_trained_tensors_are_parameters():
    candidates = ~torch.eye(4, dtype=torch.bool)
    criterion = PartialLabelLoss(CPE("T"), candidates)
    assert [name for name, _ in criterion.named_parameters()] == ["trained_transition"]
    criterion(torch.randn(4, 4), candidates).backward()
    assert criterion.trained_transition.grad is not None


def accepted(objective):
    """A candidate matrix this objective takes: partial sets, or one excluded label a row."""
    _, candidates = batch(n=8)
    try:
        objective.init(candidates)
    except ValueError:
        return ~torch.eye(4, dtype=torch.bool).repeat(2, 1)
    return candidates


OBJECTIVES = [name for name, method in METHODS.items() if issubclass(method, Objective)]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_trains_in_a_foreign_loop(name):
    torch.manual_seed(0)
    objective = METHODS[name]()
    candidates = accepted(objective)
    net = nn.Linear(5, 4)
    x = torch.randn(8, 5)
    criterion = PartialLabelLoss(objective, candidates)
    optimizer = torch.optim.SGD([*net.parameters(), *criterion.parameters()], lr=0.1)
    index = torch.arange(8)
    losses = []
    for _ in range(5):
        loss = criterion(net(x), candidates, index=index)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if objective.fresh_logits:
            criterion.refresh(net(x), candidates, index=index)
        losses.append(loss.item())
    assert all(map(torch.isfinite, map(torch.tensor, losses)))
    assert len(set(losses)) > 1


@pytest.mark.parametrize("progress", [-0.5, 2, math.nan])
def test_progress_is_a_share(progress):
    logits, candidates = batch()
    with pytest.raises(ValueError, match=r"progress: got .*; expected the completed share .* epoch / epochs"):
        PartialLabelLoss(PRODEN(), candidates)(
            logits, candidates, index=torch.arange(len(logits)), progress=progress
        )


@pytest.mark.compiled
@pytest.mark.parametrize("objective", [ProPaLL(noise=0.0), PRODEN()])
@pytest.mark.parametrize("with_views", [False, True])
def test_compiled_losses_take_any_time(objective, with_views):
    weak, strong, candidates = view_logits()
    kind = ConsistencyLoss if with_views else PartialLabelLoss
    views = [TRAIN_VIEWS] if with_views else []
    plain, compiled = (kind(objective, *views, candidates=candidates) for _ in range(2))
    fast = torch.compile(compiled, fullgraph=True)
    logits = (weak, strong) if with_views else (weak,)
    for epoch in range(12):  # a compiler gives up after eight versions
        call = {"index": torch.arange(6), "progress": epoch / 12, "epoch": epoch}
        call["weight"] = (torch.arange(6) != epoch).double()
        expected, actual = plain(*logits, candidates, **call), fast(*logits, candidates, **call)
        torch.testing.assert_close(actual, expected)
    for memory, expected in zip(compiled.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(memory, expected)


@pytest.mark.compiled
@pytest.mark.parametrize("with_views", [False, True])
def test_a_compiled_refresh_takes_any_time(with_views):
    weak, strong, candidates = view_logits()
    kind = ConsistencyLoss if with_views else PartialLabelLoss
    criterion = kind(RC(), *([TRAIN_VIEWS] if with_views else []), candidates=candidates)
    fast = torch.compile(criterion.refresh, fullgraph=True)
    logits = (weak, strong) if with_views else (weak,)
    for epoch in range(12):
        fast(*logits, candidates, index=torch.arange(6), progress=epoch / 12, epoch=epoch)
    torch.testing.assert_close(criterion.rows_weights, restricted_softmax(weak, candidates).float())


@pytest.mark.compiled
@pytest.mark.parametrize("objective", [ProPaLL(noise=0.0), PRODEN()])
def test_compiles_as_one_graph(objective):
    logits, candidates = batch()
    logits.requires_grad_()
    plain, compiled = (PartialLabelLoss(objective, candidates) for _ in range(2))
    index = torch.arange(6)
    fast = torch.compile(compiled, fullgraph=True)
    for _ in range(2):
        expected, actual = plain(logits, candidates, index=index), fast(logits, candidates, index=index)
        torch.testing.assert_close(actual, expected)
        for a, b in zip(
            torch.autograd.grad(expected, logits), torch.autograd.grad(actual, logits), strict=True
        ):
            torch.testing.assert_close(b, a)


def test_weights_of_instances_go_to_all_their_pixels():
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 3, 4, 4, generator=g)
    candidates = torch.rand(4, 3, 4, 4, generator=g) < 0.5
    candidates[:, 0] = True
    each = ProPaLLLoss(reduction="none")
    weight = torch.tensor([1.0, 0, 0, 2])
    expected = each(logits, candidates) * weight[:, None, None]
    torch.testing.assert_close(each(logits, candidates, weight=weight), expected)
    pixels = torch.rand(4, 4, 4, generator=g)
    torch.testing.assert_close(each(logits, candidates, weight=pixels), each(logits, candidates) * pixels)
    with pytest.raises(ValueError, match=r"weight: got shape \(3,\); expected \(4,\), one per instance"):
        each(logits, candidates, weight=weight[:3])


def test_every_batch_is_looked_at():
    logits, candidates = batch()
    criterion = PartialLabelLoss(METHODS["scl_nl"]())
    one_out = torch.ones_like(candidates)
    one_out[:, 0] = False
    criterion(logits, one_out)
    with pytest.raises(ValueError, match="SCL-NL"):
        criterion(logits, torch.ones_like(candidates))
    candidates[3] = False
    for wrong in (lambda: ProPaLLLoss()(logits, candidates), lambda: PartialLabelLoss(PRODEN(), candidates)):
        with pytest.raises(ValueError, match=r"candidates: .*3"):
            wrong()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_rows_without_weight_are_ignored(reduction):
    logits, candidates = batch()
    whole, rest = logits.clone(), [0, 1, 3, 4, 5]
    whole[2], candidates[2] = torch.inf, False
    whole.requires_grad_()
    weight = torch.ones(6, dtype=torch.float64)
    weight[2] = 0
    loss = ProPaLLLoss(reduction=reduction)(whole, candidates, weight=weight)
    (gradient,) = torch.autograd.grad(loss.sum(), whole)
    kept = logits[rest].requires_grad_()
    expected = ProPaLLLoss(reduction=reduction)(kept, candidates[rest])
    torch.testing.assert_close(loss[rest] if reduction == "none" else loss, expected)
    torch.testing.assert_close(gradient[rest], torch.autograd.grad(expected.sum(), kept)[0])
    assert not gradient[2].any()
    remembering = PartialLabelLoss(METHODS["mcl_log"]())
    assert remembering(whole, candidates, weight=weight).isfinite()


def test_takes_candidate_labels_and_arrays():
    logits, candidates = batch()
    labels = CandidateLabels(candidates, tuple("abcd"))
    expected = ProPaLLLoss()(logits, candidates)
    for form in (labels, candidates.numpy(), candidates.int()):
        assert torch.equal(ProPaLLLoss()(logits, form), expected)
    remembering = PartialLabelLoss(PRODEN(), labels)
    assert remembering(logits, labels, index=torch.arange(6)).isfinite()
    for wrong in (-100 * candidates.int(), 0.5 * candidates.double()):
        with pytest.raises(ValueError, match=r"candidates: contains -?[\d.]+; expected"):
            ProPaLLLoss()(logits, wrong)


def test_refusals():
    logits, candidates = batch()
    with pytest.raises(TypeError, match=r"objective.*METHODS"):
        PartialLabelLoss("propall")
    with pytest.raises(ValueError, match="reduction"):
        ProPaLLLoss(reduction="median")
    with pytest.raises(ValueError, match="batch as a whole"):
        PartialLabelLoss(GA(), candidates, reduction="none")
    with pytest.raises(ValueError, match=r"candidates: PRODEN keeps a memory"):
        PartialLabelLoss(PRODEN())(logits, candidates)
    with pytest.raises(ValueError, match=r"index: missing.*memory of every"):
        PartialLabelLoss(PRODEN(), candidates)(logits, candidates)
    with pytest.raises(ValueError, match=r"candidates: got shape \(5, 4\)"):
        ProPaLLLoss()(logits, candidates[:5])


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (
            {"logits": torch.zeros(6, 4).int()},
            TypeError,
            "logits: got torch.int32; expected a float",
        ),
        ({"logits": [[0.0] * 4] * 6}, TypeError, "logits: got list"),
        ({"logits": torch.zeros(())}, ValueError, "candidates: got shape"),
        (
            {"logits": torch.zeros(6, 3), "candidates": torch.ones(6, 3)},
            ValueError,
            "logits: got 3 .* 4, as",
        ),
        ({"candidates": None}, TypeError, "candidates: got None"),
        ({"index": torch.arange(5)}, ValueError, r"index: got shape \(5,\) for 6 rows"),
        ({"index": torch.tensor([3])}, ValueError, r"index: got shape \(1,\) for 6 rows"),
        ({"index": torch.arange(6)[:, None]}, ValueError, r"index: got shape \(6, 1\)"),
        ({"index": torch.arange(6.0)}, TypeError, "index: got torch.float32"),
        ({"index": 3}, ValueError, r"index: got shape \(\) for 6 rows"),
        ({"weight": -torch.ones(6)}, ValueError, "weight: contains -1.0; expected 0 or more"),
        ({"weight": [1.0] * 6}, TypeError, "weight: got list; expected a tensor"),
    ],
)
def test_arguments_that_cannot_be_meant_are_named(wrong, error, message):
    logits, candidates = batch()
    criterion = PartialLabelLoss(PRODEN(), candidates).eval()
    arguments = {"logits": logits, "candidates": candidates, "index": torch.arange(6), **wrong}
    with pytest.raises(error, match=message):
        criterion(arguments.pop("logits"), arguments.pop("candidates"), **arguments)


def test_a_class_dimension_that_is_not_there():
    with pytest.raises(ValueError, match=r"dim: got 2 for logits of shape \(6, 4\)"):
        ProPaLLLoss(dim=2)(*batch())


# Views

TRAIN_VIEWS = Views(
    weak=Augmentation(crop=1),
    strong=Augmentation(flip=False, crop=1, operations=2, cutout=3),
    n_strong=2,
    ramp=0.5,
    balance=0.2,
)


def view_logits(n=6, k=4):
    weak, candidates = batch(n, k)
    return weak, [batch(n, k, seed)[0] for seed in (1, 2)], candidates


@pytest.mark.parametrize("mask", ["candidates", "rectified", "widened"])
@pytest.mark.parametrize("targets", ["weak", "memory", "teacher"])
def test_views_have_the_loss_of_the_engine(targets, mask):
    tolerance = 0.3 if mask == "widened" else 0.0
    views = replace(TRAIN_VIEWS, targets=targets, mask=mask, tolerance=tolerance)
    weak, strong, candidates = view_logits()
    teacher = batch(seed=3)[0]
    criterion = ConsistencyLoss(PRODEN(), views, candidates).double()
    index = torch.arange(6)
    given = teacher if targets == "teacher" else None
    weight = torch.linspace(0.5, 2, 6, dtype=torch.float64)
    loss = criterion(weak, strong, candidates, index=index, progress=0.25, weight=weight, teacher=given)
    engine = ConsistentObjective(PRODEN(), views)
    step = Step(torch.tensor(0.25), torch.tensor(0.0), weight=weight, teacher=given)
    start = engine.init(candidates)
    state = start._replace(rows={name: rows.double() for name, rows in start.rows.items()})
    logits = torch.cat([weak, *strong])
    torch.testing.assert_close(loss, engine.loss(logits, candidates, state, step))
    for name, rows in engine.update(logits, candidates, state, step).rows.items():
        torch.testing.assert_close(getattr(criterion, f"rows_{name}"), rows)


def small_images(n=16):
    g = torch.Generator().manual_seed(0)
    sets = torch.rand(n, 3, generator=g) < 0.4
    sets[torch.arange(n), torch.arange(n) % 3] = True
    return PartialDataset(torch.rand(n, 1, 8, 8, generator=g, dtype=torch.float64), sets)


@pytest.mark.parametrize("objective", [CC(), PRODEN(), RC()], ids=lambda o: o.name)
@pytest.mark.parametrize("targets", ["weak", "memory"])
def test_a_foreign_loop_with_views_trains_what_the_trainer_does(objective, targets):
    views, train = replace(TRAIN_VIEWS, targets=targets), small_images()
    recipe = Recipe(epochs=3, batch_size=8, learning_rate=0.1, momentum=0.0, views=views)
    run = Run(train, seed=7)
    factory = partial(NETS["small_cnn"], widths=(4, 4))
    (fitted,) = Trainer(objective, factory, recipe).fit([run])
    net, augment = build(factory, run), ImageViews(train.x, views, seed=7)
    criterion = ConsistencyLoss(objective, views, train.candidates).double()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    order = Stream([run], recipe).order
    for step in range(6):
        epoch = step // 2
        index = order(epoch)[0].split(8)[step % 2]
        x = torch.cat(augment(train.x[index], index, epoch=epoch))

        def logits(x=x):
            weak, *strong = net(x).chunk(3)
            return weak, strong

        sets = train.candidates[index]
        loss = criterion(*logits(), sets, index=index, progress=step / 6, epoch=epoch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if criterion.objective.fresh_logits:
            with torch.no_grad():
                criterion.refresh(*logits(), sets, index=index, progress=step / 6, epoch=epoch)
    for name, tensor in fitted.net.state_dict().items():
        if name.endswith(("weight", "bias")):
            torch.testing.assert_close(net.state_dict()[name], tensor, rtol=1e-6, atol=1e-8)


def test_a_balance_term_that_fades_follows_the_progress():
    weak, strong, candidates = view_logits()
    views = replace(TRAIN_VIEWS, ramp=0.0, balance=0.0, prior=None)
    plain = ConsistencyLoss(CC(), views)
    fading = ConsistencyLoss(CC(), replace(views, balance=0.4, balance_fade=0.5))
    added = [
        fading(weak, strong, candidates, progress=progress) - plain(weak, strong, candidates)
        for progress in (0.0, 0.25, 0.5)
    ]
    assert added[0] > 0
    torch.testing.assert_close(added[1], added[0] / 2)
    torch.testing.assert_close(added[2], torch.zeros_like(added[2]))


def test_rows_of_weight_0_do_not_count_in_any_view():
    weak, strong, candidates = view_logits()
    criterion, weight = ConsistencyLoss(CC(), TRAIN_VIEWS), torch.tensor([1.0, 1, 0, 1, 1, 0])
    kept = weight > 0
    expected = criterion(weak[kept], [part[kept] for part in strong], candidates[kept], progress=0.5)
    broken = [part.masked_fill(~kept[:, None], torch.inf) for part in strong]
    loss = criterion(weak, broken, candidates, progress=0.5, weight=weight)
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("targets", ["memory", "teacher"])
def test_rows_of_weight_0_leave_memory_and_teacher_alone(targets):
    weak, strong, candidates = view_logits()
    views = replace(TRAIN_VIEWS, targets=targets)
    criterion = ConsistencyLoss(PRODEN(), views, candidates)
    index, weight = torch.arange(6), torch.tensor([1.0, 1, 0, 1, 1, 0])
    broken = [part.masked_fill(weight[:, None] == 0, torch.nan) for part in (weak, *strong)]
    before = criterion.rows_weights.clone()
    teacher = {"teacher": broken[0]} if targets == "teacher" else {}
    for progress in (0.5, 0.6):
        call = {"index": index, "progress": progress, "weight": weight, **teacher}
        assert criterion(broken[0], broken[1:], candidates, **call).isfinite()
    for name, memory in criterion.named_buffers():
        assert memory.isfinite().all(), name
    assert torch.equal(criterion.rows_weights[weight == 0], before[weight == 0])
    assert not torch.equal(criterion.rows_weights[weight == 1], before[weight == 1])
    alone = PartialLabelLoss(PRODEN(), candidates)
    for _ in range(2):
        assert alone(broken[0], candidates, index=index, weight=weight).isfinite()
    assert torch.equal(alone.rows_weights[weight == 0], before[weight == 0])


def test_a_batch_may_be_filled_up_with_copies_of_weight_0():
    candidates = torch.tensor([[True, True, False], [True, True, True], [False, True, True]])
    logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [9.0, 9.0, -9.0], [5.0, -5.0, 0.0]])
    index, weight = torch.tensor([0, 1, 0, 2]), torch.tensor([1.0, 1.0, 0.0, 0.0])
    for order in (torch.arange(4), torch.tensor([2, 3, 1, 0])):
        criterion = PartialLabelLoss(PRODEN(), candidates=candidates)
        before = criterion.rows_weights.clone()
        sets = candidates[index[order]]
        criterion(logits[order], sets, index=index[order], weight=weight[order])
        expected = restricted_softmax(logits[:2], candidates[:2])
        torch.testing.assert_close(criterion.rows_weights[:2], expected)
        assert torch.equal(criterion.rows_weights[2], before[2])


@pytest.mark.parametrize("objective", [RC(), CAVL(), LWS(), LWC()])
def test_copies_of_weight_0_leave_a_refreshed_memory_alone(objective):
    candidates = torch.tensor([[True, True, False], [True, True, True], [False, True, True]])
    index, weight = torch.tensor([0, 1, 0, 2]), torch.tensor([1.0, 1.0, 0.0, 0.0])
    logits = torch.tensor([[2.0, 0, 0], [0, 1, 0], [torch.nan] * 3, [torch.inf] * 3])
    filled = candidates[index] & (weight[:, None] > 0)  # no candidates at all
    alone, both = (PartialLabelLoss(objective, candidates=candidates) for _ in range(2))
    alone.refresh(logits[:2], candidates[:2], index=index[:2])
    for order in (torch.arange(4), torch.tensor([2, 3, 1, 0])):
        both.refresh(logits[order], filled[order], index=index[order], weight=weight[order])
        assert torch.equal(both.rows_weights, alone.rows_weights)
        loss = both(logits[order], filled[order], index=index[order], weight=weight[order])
        assert loss.isfinite()
    views = Views(targets="memory")
    alone, both = (ConsistencyLoss(objective, views, candidates=candidates) for _ in range(2))
    alone.refresh(logits[:2], logits[:2], candidates[:2], index=index[:2])
    both.refresh(logits, logits, filled, index=index, weight=weight)
    for name, memory in alone.named_buffers():
        assert torch.equal(dict(both.named_buffers())[name], memory), name


def test_rows_of_weight_0_keep_every_digit_of_their_memory():
    candidates = torch.ones(2, 3, dtype=torch.bool)
    criterion = PartialLabelLoss(PRODEN(), candidates=candidates).double()
    criterion.rows_weights.copy_(torch.tensor([[0.1, 0.2, 0.7]] * 2, dtype=torch.float64))
    before = criterion.rows_weights[1].clone()
    criterion(torch.randn(2, 3), candidates, index=torch.arange(2), weight=torch.tensor([1.0, 0.0]))
    assert torch.equal(criterion.rows_weights[1], before)


def test_time_does_not_depend_on_the_default_dtype():
    sets = torch.ones(1, 3, dtype=torch.bool)
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.bfloat16)
        step = PartialLabelLoss(CC())._step(sets, sets.device, 0.9973, 257)
    finally:
        torch.set_default_dtype(before)
    assert step.epoch == 257
    assert float(step.progress) == pytest.approx(0.9973, abs=1e-6)


def test_dense_logits_have_views_too():
    g = torch.Generator().manual_seed(0)
    weak, strong = torch.randn(2, 2, 4, 3, 3, generator=g)
    candidates = torch.rand(2, 4, 3, 3, generator=g) < 0.5
    candidates[:, 0] = True
    flat = [part.movedim(1, -1).reshape(-1, 4) for part in (weak, strong, candidates)]
    criterion = ConsistencyLoss(CC())
    torch.testing.assert_close(
        criterion(weak, strong, candidates, progress=1.0), criterion(*flat, progress=1.0)
    )


def test_views_are_checked():
    weak, strong, candidates = view_logits()
    with pytest.raises(ValueError, match=r"strong: got the logits of 2 views; expected 1, as in Views"):
        ConsistencyLoss(CC())(weak, strong, candidates)
    with pytest.raises(ValueError, match=r"strong: got logits of shape \(5, 4\); expected \(6, 4\)"):
        ConsistencyLoss(CC())(weak, strong[0][:5], candidates)
    with pytest.raises(ValueError, match=r"teacher: missing, but the views take their targets"):
        ConsistencyLoss(CC(), Views(targets="teacher"))(weak, strong[0], candidates)
    with pytest.raises(ValueError, match=r"candidates: .* keeps a memory of the training set"):
        ConsistencyLoss(CC(), Views(targets="memory"))(weak, strong[0], candidates)
    with pytest.raises(ValueError, match=r"first: ConsistencyLoss\(\.\.\., candidates=train_candidates\)"):
        ConsistencyLoss(PRODEN())(weak, strong[0], candidates)
    for views in (True, "crdpll"):
        with pytest.raises(
            (TypeError, TypeCheckError), match=rf"views: got {views!r}; expected|parameter 'views'"
        ):
            ConsistencyLoss(CC(), views)
    with pytest.raises(TypeError, match=r"objective: got 'cc'; expected an objective"):
        ConsistencyLoss("cc")


def test_a_method_with_its_own_training_loop_is_no_objective():
    with pytest.raises(TypeError, match=r"objective: got PaPi.* has its own training loop; use PartialLabel"):
        ConsistencyLoss(PaPi())

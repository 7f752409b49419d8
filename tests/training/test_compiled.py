"""Compiled and captured training equals plain training."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from propall.data.dataset import PartialDataset
from propall.methods.cc import CC
from propall.methods.proden import PRODEN
from propall.methods.propall import ProPaLL
from propall.methods.rc import RC
from propall.nets import NETS
from propall.nets.network import AlignedBatchNorm, AlignedLinear
from propall.training import compiled
from propall.training.contract import Run
from propall.training.recipe import Recipe
from propall.training.stack import Stack
from propall.training.trainer import Trainer
from propall.training.views import Views


def runs(n=70, d=6, k=4, device="cpu", dtype=torch.float64):
    g = torch.Generator().manual_seed(0)
    candidates = torch.rand(n, k, generator=g) < 0.4
    candidates[:, 0] = True
    train = PartialDataset(torch.randn(n, d, generator=g).to(device, dtype), candidates.to(device))
    objectives = [ProPaLL(), ProPaLL(noise=0.5), CC(), PRODEN(), RC()]
    return [Run(train, seed, objective=o, learning_rate=0.05) for seed, o in enumerate(objectives)]


def assert_same(fast, plain, **tolerance):
    for a, b in zip(fast, plain, strict=True):
        for name, weights in b.net.state_dict().items():
            torch.testing.assert_close(a.net.state_dict()[name], weights, **tolerance)
        for name, rows in b.state.rows.items():
            torch.testing.assert_close(a.state.rows[name], rows, **tolerance)


NET = partial(NETS["mlp"], widths=(9,), batch_norm=True)


@pytest.mark.compiled
@pytest.mark.parametrize("last_batch", ["drop", "keep"])
def test_compiled_equals_plain_on_the_cpu(last_batch):
    recipe = Recipe(epochs=2, batch_size=16, learning_rate=0.1, last_batch=last_batch)
    fast, plain = (Trainer(CC(), NET, recipe, fast=fast).fit(runs()) for fast in (True, False))
    assert_same(fast, plain, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("fast", [False, pytest.param(True, marks=pytest.mark.compiled)])
@pytest.mark.parametrize("runs", [runs(), runs()[:1]], ids=["five runs", "one run"])
def test_the_memory_layout_of_a_gpu_gives_the_same_runs(runs, fast, monkeypatch):
    recipe = Recipe(epochs=2, batch_size=16, learning_rate=0.1, last_batch="keep")
    plain = Trainer(CC(), NET, recipe, fast=False).fit(runs)
    for layer in (AlignedLinear, AlignedBatchNorm):
        monkeypatch.setattr(layer, "forward", layer.transposed_forward)
    assert_same(Trainer(CC(), NET, recipe, fast=fast).fit(runs), plain, rtol=1e-8, atol=1e-10)


@pytest.mark.gpu
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_captured_equals_plain_on_the_gpu(optimizer):
    recipe = Recipe(epochs=2, batch_size=16, learning_rate=0.1, optimizer=optimizer, last_batch="keep")
    fast, plain = (Trainer(CC(), NET, recipe, fast=fast).fit(runs(device="cuda")) for fast in (True, False))
    assert_same(fast, plain, rtol=1e-8, atol=1e-10)


@pytest.mark.gpu
def test_the_gpu_agrees_with_the_cpu():
    recipe = Recipe(epochs=2, batch_size=16, learning_rate=0.1)
    gpu = Trainer(CC(), NET, recipe).fit(runs(device="cuda"))
    cpu = Trainer(CC(), NET, recipe).fit(runs())
    for a, b in zip(gpu, cpu, strict=True):
        for name, weights in b.net.state_dict().items():
            torch.testing.assert_close(a.net.state_dict()[name].cpu(), weights, rtol=1e-8, atol=1e-10)


def other_runs(device="cpu"):
    """Runs of the same shape with other contents."""
    first, *_ = runs(device=device)
    train = PartialDataset(first.train.x.flip(0) + 1, first.train.candidates.roll(1, 0))
    objectives = [ProPaLL(noise=0.2), ProPaLL(), CC(), PRODEN(), RC()]
    return [
        Run(train, seed, objective=o, learning_rate=rate)
        for seed, o, rate in zip(range(7, 12), objectives, (0.1, 0.02, 0.05, 0.01, 0.03), strict=True)
    ]


def test_a_stack_becomes_another_of_its_shape():
    recipe = Recipe(epochs=2, batch_size=16, weight_decay=1e-3)
    used, new = Stack(runs(), CC(), NET, recipe), Stack(other_runs(), CC(), NET, recipe)
    assert used.shape() == new.shape()
    data = used.runs[0].train.x.clone()
    used.stream.copy_data()
    used.train_epoch(0)
    first_data = used.runs[0].train
    used.adopt(new)
    for epoch in range(2):
        torch.testing.assert_close(used.train_epoch(epoch), new.train_epoch(epoch), rtol=0, atol=0)
    for name, tensor in new.tensors().items():
        assert torch.equal(used.tensors()[name], tensor), name
    assert torch.equal(first_data.x, data)  # the caller's data is not overwritten
    assert used.fingerprint() == new.fingerprint()


@pytest.mark.parametrize(
    "change",
    [
        lambda runs, recipe: (runs[:-1], recipe),
        lambda runs, recipe: (runs, replace(recipe, epochs=3)),
        lambda runs, recipe: (runs, replace(recipe, weight_decay=0.0)),
        lambda runs, recipe: ([replace(run, objective=CC()) for run in runs], recipe),
        lambda runs, recipe: ([replace(run, weight=torch.ones(70)) for run in runs], recipe),
        lambda runs, recipe: ([replace(runs[0], objective=ProPaLL(mode="paper")), *runs[1:]], recipe),
    ],
)
def test_other_operations_have_another_shape(change):
    recipe = Recipe(epochs=2, batch_size=16, weight_decay=1e-3)
    changed, other_recipe = change(runs(), recipe)
    assert Stack(runs(), CC(), NET, recipe).shape() != Stack(changed, CC(), NET, other_recipe).shape()


@pytest.mark.gpu
def test_a_capture_is_reused_for_the_next_stack_of_its_shape():
    recipe = Recipe(epochs=2, batch_size=16, last_batch="keep")
    compiled.release()
    Trainer(CC(), NET, recipe).fit(runs(device="cuda"))
    (kept,) = compiled._idle
    again = Trainer(CC(), NET, recipe).fit(other_runs(device="cuda"))
    assert compiled._idle == [kept]
    assert_same(
        again, Trainer(CC(), NET, recipe, fast=False).fit(other_runs(device="cuda")), rtol=1e-8, atol=1e-10
    )
    longer = replace(recipe, epochs=3)
    Trainer(CC(), NET, longer).fit(runs(device="cuda"))
    assert len(compiled._idle) == 2
    Trainer(CC(), NET, recipe).fit(runs(device="cuda"))
    assert compiled._idle[-1] is kept  # even after another capture
    compiled.release()


def test_capturing_draws_no_random_numbers():
    def net(in_shape, n_classes):
        return torch.nn.Sequential(torch.nn.Linear(*in_shape, n_classes), torch.nn.Dropout(0.5))

    stack = Stack(runs(), CC(), net, Recipe(epochs=2, batch_size=8))
    captured = compiled.Captured(stack, compiling=False)
    before = torch.get_rng_state()
    captured._prepare()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.gpu
def test_old_captures_are_released(monkeypatch):
    compiled.release()
    monkeypatch.setattr(compiled, "KEPT", 1)
    for epochs in (1, 2):
        Trainer(CC(), NET, Recipe(epochs=epochs, batch_size=16)).fit(runs(device="cuda"))
    assert [old.stack.recipe.epochs for old in compiled._idle] == [2]
    # If memory does not suffice for all runs, idle captures are released first.
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 1000))
    assert compiled.stack_limit(NET, Recipe(batch_size=16), runs(device="cuda")[0], 5) == 1
    assert not compiled._idle


@pytest.mark.gpu
def test_replayed_scores_follow_the_weights():
    stack = Stack(runs(device="cuda"), CC(), NET, Recipe(epochs=4, batch_size=16))
    x = torch.randn(20, 6, dtype=torch.float64, device="cuda")
    captured = compiled.Captured(stack)
    for epoch in range(4):
        captured.train_epoch(epoch)
        torch.testing.assert_close(captured.scores(x), stack.scores(x))


def test_warm_up_steps_change_nothing(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda step, **_options: step)
    recipe = Recipe(epochs=1, batch_size=16)
    stack = Stack(runs(), CC(), NET, recipe)
    before = {name: tensor.clone() for name, tensor in stack.tensors().items()}
    captured = compiled.Captured(stack)
    captured.order.copy_(stack.stream.order(0))
    monkeypatch.setattr(captured, "_captured", lambda step: (step(), step)[1])  # one warm-up step
    with torch.no_grad():
        captured._prepare()
    for name, tensor in stack.tensors().items():
        assert torch.equal(tensor, before[name]), name


def test_a_step_that_cannot_be_compiled_runs_plainly(monkeypatch):
    def refuse(*_args, **_options):
        def step():
            raise RuntimeError("no compiler here")

        return step

    monkeypatch.setattr(torch, "compile", refuse)
    recipe = Recipe(epochs=2, batch_size=16)
    with pytest.warns(RuntimeWarning, match="no compiler here"):
        fast = Trainer(CC(), NET, recipe, fast=True).fit(runs())
    assert_same(fast, Trainer(CC(), NET, recipe, fast=False).fit(runs()), rtol=1e-12, atol=0)


def test_a_stack_that_does_not_fit_in_memory_is_split(monkeypatch):
    train = Stack.train_epoch

    def scarce(self, epoch):
        if len(self.runs) > 2:
            raise torch.OutOfMemoryError
        return train(self, epoch)

    recipe = Recipe(epochs=1, batch_size=16)
    expected = Trainer(CC(), NET, recipe).fit(runs())
    monkeypatch.setattr(Stack, "train_epoch", scarce)
    assert_same(Trainer(CC(), NET, recipe).fit(runs()), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("targets", "limit"), [("weak", 1), ("peers", 3)])
def test_convolutions_are_stacked_on_a_gpu_only_if_runs_exchange_targets(targets, limit):
    with FakeTensorMode():  # tensors of a GPU that need not exist
        x = torch.empty(8, 1, 8, 8, device="cuda")
        train = PartialDataset(x, torch.ones(8, 3, dtype=torch.bool, device="cuda"))
    recipe = Recipe(views=Views(targets=targets))
    assert compiled.stack_limit(NETS["small_cnn"], recipe, Run(train, 0), 3) == limit


def test_idle_captures_are_released_before_a_stack_is_split(monkeypatch):
    train, seen = Stack.train_epoch, []

    def scarce(self, epoch):
        seen.append(len(self.runs))
        if compiled._idle:
            raise torch.OutOfMemoryError
        return train(self, epoch)

    monkeypatch.setattr(Stack, "train_epoch", scarce)
    monkeypatch.setattr(compiled, "_idle", [object()])
    Trainer(CC(), NET, Recipe(epochs=1, batch_size=16), stack=5).fit(runs())
    assert seen == [5, 5]
    monkeypatch.setattr(compiled, "_idle", [object()])
    Trainer(CC(), NET, Recipe(epochs=1, batch_size=16)).fit(runs()[:1])  # a single run is tried again too
    assert seen == [5, 5, 1, 1]


def test_matrix_precision_is_restored():
    before = torch.get_float32_matmul_precision()
    with compiled.matrix_precision(Recipe(precision="tf32")):
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize(("least", "expected"), [(0.0, 2), (1e12, 1)])
def test_small_steps_on_a_cpu_use_one_thread(monkeypatch, least, expected):
    monkeypatch.setattr(compiled, "THREADS_PAY_FROM", least)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with compiled.training(Stack(runs(), CC(), NET, Recipe(batch_size=16)), None):
            assert torch.get_num_threads() == expected
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_missing_device_raises(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match=r"got 'cuda', but this machine has no CUDA device.* Use 'cpu'"):
        compiled.best_device("cuda")
    with pytest.raises(ValueError, match="got 'nonsense', which torch does not know"):
        compiled.best_device("nonsense")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match="got 'cuda:1', but this machine has only 1 of them"):
        compiled.best_device("cuda:1")

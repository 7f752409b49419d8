"""Lightning agrees with `Trainer`, with one process and with two, uninterrupted and resumed."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

pytest.importorskip("lightning.pytorch", reason="needs Lightning: pip install 'propall[lightning]'")

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy

from propall.data.augmentation import Augmentation
from propall.data.dataset import PartialDataset
from propall.data.synthetic import blobs
from propall.lightning import PartialLabelData, PartialLabelModule
from propall.losses import PartialLabelLoss
from propall.methods.cc import CC, cc_loss
from propall.methods.cpe import CPE
from propall.methods.d2cnn import D2CNN
from propall.methods.ga import GA
from propall.methods.proden import PRODEN
from propall.methods.propall import ProPaLL
from propall.methods.rc import RC
from propall.nets import NETS
from propall.training.contract import Objective, Run, State
from propall.training.image_views import ImageViews
from propall.training.networks import build
from propall.training.recipe import Recipe
from propall.training.trainer import Trainer as OurTrainer
from propall.training.views import Views

pytestmark = [
    # Lightning 2.6 uses what newer releases of torch deprecate.
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    # Advice that does not apply here.
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`:UserWarning"),
    pytest.mark.filterwarnings("ignore:You .* but have no `val(idation_step|_dataloader)`:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning"),
    pytest.mark.filterwarnings("ignore:GPU available but not used:UserWarning"),
    # Some tests need only the first epochs.
    pytest.mark.filterwarnings("ignore:max_epochs. the Trainer would take:UserWarning"),
]

ROOT = Path(__file__).parents[1]
#: 43 rows in batches of 9 and a last one of 7: two processes never have equal shares.
N, D, K, SEED, PER_EPOCH = 43, 5, 4, 5, 5
RECIPE = Recipe(epochs=3, batch_size=9, learning_rate=0.1, weight_decay=1e-3, decay=0.5, last_batch="keep")
NET = partial(NETS["mlp"], widths=(8,))


@dataclass(frozen=True)
class Crowding(Objective):
    """A custom objective with pairs of rows, a matrix product and shared state."""

    name, title, reference = "crowding", "Crowding", "nowhere"

    def init(self, candidates, weight=None):
        return State(shared={"mean": torch.full(candidates.shape[1:], 1 / K)})

    def loss(self, logits, candidates, state, step):
        p = logits.softmax(-1)
        alike = (p @ (p * state.shared["mean"]).mT).square().mean()
        return cc_loss(logits, candidates).mean() + alike

    def update(self, logits, candidates, state, step):
        return state.with_shared(mean=0.5 * state.shared["mean"] + 0.5 * logits.softmax(-1).mean(0))


VIEWS = Views(
    weak=Augmentation(crop=1),
    strong=Augmentation(crop=1, operations=2, cutout=2),
    n_strong=2,
    ramp=0.5,
    balance=0.1,
)
OBJECTIVES = {
    "propall": ProPaLL(),
    "proden": PRODEN(),
    "rc": RC(),
    "cpe": CPE("T"),
    "d2cnn": D2CNN(),
    "ga": GA(),
    "crowding": Crowding(),
}


def problem(dtype=torch.float64, *, as_images=False):
    """Three candidates of four, which complementary methods accept too; with a test set."""
    source = blobs(N, D, K, spread=2.0)
    x, test_x = source.x, source.test_x
    if as_images:
        x, test_x = (rows[:, None, :, None] * rows[:, None, None, :] for rows in (x, test_x))
    excluded = (source.truth + 1 + torch.arange(N) % (K - 1)) % K
    candidates = ~nn.functional.one_hot(excluded, K).bool()
    train = PartialDataset(x.to(dtype), candidates)
    return train, (test_x.to(dtype), source.test_truth)


def network(train, factory=NET):
    """The network that `Trainer` would start from."""
    return build(factory, Run(train, SEED))


def parts(objective, recipe=RECIPE, dtype=torch.float64, factory=NET, seed=SEED):
    train, validation = problem(dtype, as_images=recipe.views is not None)
    module = PartialLabelModule(network(train, factory), objective, recipe)
    return module, PartialLabelData(train, recipe, seed=seed, validation=validation)


def trainer(**settings):
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0}
    settings = {"max_epochs": RECIPE.epochs, "logger": False, "enable_checkpointing": False} | settings
    return Trainer(accelerator="cpu", **quiet, **settings)


def fit(objective, recipe=RECIPE, *, ckpt_path=None, dtype=torch.float64, factory=NET, **settings):
    module, data = parts(objective, recipe, dtype, factory)
    used = trainer(**settings)
    used.fit(module, data, ckpt_path=ckpt_path)
    return module, used


def assert_same(state, expected, **tolerance):
    assert state.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(state[name], tensor, **tolerance, msg=lambda m, name=name: f"{name}: {m}")


EXACT = {"rtol": 1e-10, "atol": 1e-12}


# One process


def trainer_state(objective, recipe, train, factory):
    (fitted,) = OurTrainer(objective, factory, recipe).fit([Run(train, SEED)])
    state = {f"net.{name}": t for name, t in fitted.net.state_dict().items()}
    for part, tensors in fitted.state._asdict().items():
        state |= {f"memory.{part}_{name}": t for name, t in tensors.items()}
    return state


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_agrees_with_the_trainer(name, optimizer):
    recipe = replace(RECIPE, optimizer=optimizer, learning_rate=0.1 if optimizer == "sgd" else 0.01)
    factory = partial(NET, batch_norm=True)
    module, _ = fit(OBJECTIVES[name], recipe, factory=factory)
    state = dict(module.state_dict())
    assert state.pop("batches_seen") == RECIPE.epochs * PER_EPOCH
    train, _ = problem()
    assert_same(state, trainer_state(OBJECTIVES[name], recipe, train, factory), **EXACT)
    start = network(train, factory).state_dict()
    assert not any(torch.equal(state[f"net.{n}"], t) for n, t in start.items())


def test_single_precision():
    module, _ = fit(RC(), dtype=torch.float32)
    train, _ = problem(torch.float32)
    state = {k: v for k, v in module.state_dict().items() if k != "batches_seen"}
    assert_same(state, trainer_state(RC(), RECIPE, train, NET), rtol=0, atol=1e-6)


@pytest.mark.parametrize("objective", [PRODEN(), RC(), Crowding()], ids=["proden", "rc", "crowding"])
def test_mixed_precision_is_the_recipes_bfloat16(objective):
    recipe = replace(RECIPE, precision="bfloat16")
    module, _ = fit(objective, recipe, dtype=torch.float32, precision="bf16-mixed")
    train, _ = problem(torch.float32)
    state = {k: v for k, v in module.state_dict().items() if k != "batches_seen"}
    expected = trainer_state(objective, recipe, train, NET)
    assert all(t.dtype == torch.float32 for t in state.values())
    assert_same(state, expected, rtol=0, atol=1e-6)
    plain = trainer_state(objective, RECIPE, train, NET)
    assert not torch.allclose(expected["net.head.weight"], plain["net.head.weight"], atol=1e-5)


def test_augmentation_is_the_recipes():
    images = torch.rand(20, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    train = PartialDataset(images, problem()[0].candidates[:20])
    recipe = replace(RECIPE, epochs=2, augmentation="flip_crop")
    module = PartialLabelModule(network(train), RC(), recipe)
    trainer(max_epochs=2).fit(module, PartialLabelData(train, recipe, seed=SEED))
    state = {k: v for k, v in module.state_dict().items() if k != "batches_seen"}
    assert_same(state, trainer_state(RC(), recipe, train, NET), **EXACT)


@pytest.mark.parametrize("schedule", ["decay", "linear", "cosine"])
@pytest.mark.parametrize("targets", ["weak", "memory"])
@pytest.mark.parametrize("name", ["propall", "rc", "cpe"])
def test_views_are_the_recipes(name, targets, schedule):
    views = replace(VIEWS, targets=targets)
    recipe = replace(RECIPE, views=views, schedule=schedule, warm_up=0.2, nesterov=schedule == "cosine")
    factory = partial(NET, batch_norm=True)
    module, _ = fit(OBJECTIVES[name], recipe, factory=factory)
    train, (x, _) = problem(as_images=True)
    (fitted,) = OurTrainer(OBJECTIVES[name], factory, recipe).fit([Run(train, SEED)])
    assert_same(module.net.state_dict(), fitted.net.state_dict(), **EXACT)
    classifier = module.classifier()
    assert classifier.objective == OBJECTIVES[name]
    torch.testing.assert_close(classifier.scores(x), fitted.scores(x), **EXACT)
    assert_same(classifier.state.rows, fitted.state.rows, **EXACT)


@pytest.mark.parametrize("views", [None, VIEWS])
def test_batches_without_a_trainer_are_those_of_the_first_epoch(views):
    class Recorder(PartialLabelModule):
        def training_step(self, batch, batch_idx):
            seen.append(batch)
            return super().training_step(batch, batch_idx)

    recipe, seen = replace(RECIPE, views=views), []
    train, validation = problem(as_images=views is not None)
    data = PartialLabelData(train, recipe, seed=SEED, validation=validation)
    data.setup()
    shown = list(data.train_dataloader())
    torch.testing.assert_close(torch.cat([x for x, _ in data.val_dataloader()]), validation[0])
    trainer(max_epochs=1).fit(Recorder(network(train), CC(), recipe), data)
    assert len(shown) == len(seen) > 1
    for batch, trained in zip(shown, seen, strict=True):
        torch.testing.assert_close(list(batch), list(trained))


def test_views_of_a_custom_loader():
    train, _ = problem(as_images=True)
    recipe = replace(RECIPE, views=VIEWS, batch_size=N)
    augment = ImageViews(train.x, VIEWS, seed=SEED)
    index = torch.arange(N)
    batches = [(index, torch.cat(augment(train.x, index)), train.candidates)]
    module = PartialLabelModule(network(train), CC(), recipe)
    trainer(max_epochs=1).fit(module, DataLoader(batches, batch_size=None))
    assert int(module.batches_seen) == 1


def test_views_made_in_a_hook_are_those_of_partial_label_data(tmp_path):
    class WithViews(PartialLabelModule):
        def on_after_batch_transfer(self, batch, dataloader_idx):
            if not self.trainer.training:
                return batch
            index, x, candidates = batch
            return index, torch.cat(augment(x, index, epoch=self.current_epoch)), candidates

    class Rows:
        """The order of an epoch as in PartialLabelData, without views."""

        def __len__(self):
            return PER_EPOCH

        def __iter__(self):
            for index in data.stream.order(module.current_epoch)[0].split(9):
                yield index, train.x[index], train.candidates[index]

    def fresh():
        return WithViews(network(train), PRODEN(), recipe, candidates=train.candidates, seed=SEED)

    recipe = replace(RECIPE, views=VIEWS)
    train, _ = problem(as_images=True)
    data, augment = PartialLabelData(train, recipe, seed=SEED), ImageViews(train.x, VIEWS, seed=SEED)
    expected, _ = fit(PRODEN(), recipe)
    save = ModelCheckpoint(tmp_path, save_top_k=-1, save_on_train_epoch_end=True)
    module = fresh()
    trainer(callbacks=[save], enable_checkpointing=True).fit(module, Rows())
    assert_same(module.state_dict(), expected.state_dict(), **EXACT)
    module = fresh()
    trainer().fit(module, Rows(), ckpt_path=tmp_path / "epoch=0-step=5.ckpt")
    assert_same(module.state_dict(), expected.state_dict(), **EXACT)


@pytest.mark.parametrize(
    ("views", "message"),
    [
        (
            VIEWS,
            r"x: got 43 rows for 43 candidate sets and 3 views; expected 129. Use torch.cat\("
            r"ImageViews\(images, recipe.views\)\(x, index, epoch=epoch\)\)",
        ),
        (None, "x: got 40 rows for 43 candidate sets; expected 43. Return one row"),
    ],
    ids=["no views", "too few rows"],
)
def test_rejects_batches_with_other_rows(views, message):
    train, _ = problem(as_images=True)
    module = PartialLabelModule(network(train), CC(), replace(RECIPE, views=views))
    x = train.x if views else train.x[:40]
    with raises(message):
        trainer().fit(module, DataLoader([(torch.arange(N), x, train.candidates)], batch_size=None))


def test_a_network_with_other_outputs_for_views():
    module, data = parts(CC(), replace(RECIPE, views=VIEWS))
    module.net = nn.Sequential(nn.Flatten(), nn.Linear(D * D, K - 1).double())
    with raises(r"net: returned shape \(27, 3\) for candidates of shape \(9, 4\) and 3 views"):
        trainer().fit(module, data)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"lookahead": 5}, "lookahead=5"),
        ({"norm_rate": 64.0}, r"norm_rate=64\.0"),
        ({"views": replace(VIEWS, targets="teacher")}, r"views\.targets='teacher'"),
    ],
)
def test_rejects_what_only_the_trainer_supports(changes, name):
    with raises(f"recipe: {name} is not supported with Lightning"):
        parts(CC(), replace(RECIPE, **changes))


@pytest.mark.parametrize("objective", [PRODEN(), RC()], ids=["proden", "rc"])
def test_a_custom_loader(objective):
    train, _ = problem()
    rows = TensorDataset(torch.arange(N), train.x, train.candidates)
    recipe = replace(RECIPE, momentum=0.0, weight_decay=0.0, decay=1.0)
    module = PartialLabelModule(network(train), objective, recipe, candidates=train.candidates)
    trainer().fit(module, DataLoader(rows, batch_size=9))
    net, criterion = network(train), PartialLabelLoss(objective, train.candidates).double()
    optimizer = torch.optim.SGD(net.parameters(), lr=recipe.learning_rate)
    for _ in range(recipe.epochs):
        for index in torch.arange(N).split(9):
            optimizer.zero_grad()
            criterion(net(train.x[index]), train.candidates[index], index=index).backward()
            optimizer.step()
            if objective.fresh_logits:
                with torch.no_grad():
                    criterion.refresh(net(train.x[index]), train.candidates[index], index=index)
    assert_same(module.net.state_dict(), net.state_dict(), **EXACT)
    torch.testing.assert_close(module.memory.rows_weights, criterion.rows_weights, **EXACT)


def test_limited_epochs_have_their_own_length():
    module, used = fit(D2CNN(), limit_train_batches=2)
    assert used.num_training_batches == 2
    assert int(module.batches_seen) == 2 * RECIPE.epochs
    visits = module.memory.rows_visits
    assert visits.sum() == 9 * 2 * RECIPE.epochs
    assert visits.max() <= RECIPE.epochs


# Checkpoints

MID_VALIDATION = {"val_check_interval": 3}
#: When a checkpoint is written -> the callback's settings, the Trainer's, and the file to resume from.
CHECKPOINTS = {
    "within an epoch": ({"every_n_train_steps": 4}, {}, "epoch=1-step=8"),
    "after an epoch's last batch": ({"every_n_train_steps": 5}, {}, "epoch=0-step=5"),
    "at the end of an epoch": ({"save_on_train_epoch_end": True}, {}, "epoch=1-step=10"),
    "after an epoch's validation": ({"save_on_train_epoch_end": False}, {}, "epoch=0-step=5"),
    "before a validation within an epoch": ({"every_n_train_steps": 8}, MID_VALIDATION, "epoch=1-step=8"),
    "after one": ({"save_on_train_epoch_end": False}, MID_VALIDATION, "epoch=1-step=8"),
}


@pytest.mark.parametrize("name", ["propall", "proden", "rc", "cpe"])
@pytest.mark.parametrize("when", CHECKPOINTS)
def test_a_resumed_run_agrees(name, when, tmp_path):
    saving, settings, file = CHECKPOINTS[when]
    save = ModelCheckpoint(tmp_path, save_top_k=-1, **saving)
    recipe = replace(RECIPE, optimizer="adam", learning_rate=0.01)
    expected, _ = fit(OBJECTIVES[name], recipe, callbacks=[save], enable_checkpointing=True, **settings)
    resumed, used = fit(OBJECTIVES[name], recipe, ckpt_path=tmp_path / f"{file}.ckpt", **settings)
    assert used.global_step == RECIPE.epochs * PER_EPOCH
    assert_same(resumed.state_dict(), expected.state_dict(), rtol=0, atol=0)


@pytest.fixture
def saved(tmp_path):
    """A checkpoint of RC in the middle of its second epoch."""
    stop = ModelCheckpoint(dirpath=tmp_path, every_n_train_steps=7)
    module, _ = fit(RC(), max_steps=7, callbacks=[stop], enable_checkpointing=True)
    return Path(stop.best_model_path), module


def test_a_checkpoint_is_read_without_a_trainer_and_without_pickle(saved):
    path, module = saved
    train, (x, _) = problem()
    loaded = PartialLabelModule.load_from_checkpoint(
        path, net=network(train), objective=RC(), recipe=RECIPE, weights_only=True
    )
    assert_same(loaded.state_dict(), module.state_dict(), rtol=0, atol=0)
    classifier = loaded.classifier()
    assert torch.equal(classifier.state.rows["weights"], module.memory.rows_weights)
    assert torch.equal(classifier.scores(x), loaded.predict_step(x))
    assert torch.equal(classifier.predict(x), module.net.eval()(x).argmax(-1))


def test_a_new_fit_starts_with_a_new_memory(saved):
    _, module = saved
    _, data = parts(RC())
    trainer(max_epochs=1, limit_train_batches=1).fit(module, data)
    untouched = torch.ones(N, dtype=torch.bool)
    untouched[data.stream.order(0)[0, :9]] = False
    start = data.train.candidates.double() / 3
    assert int(module.batches_seen) == 1
    torch.testing.assert_close(module.memory.rows_weights[untouched], start[untouched], rtol=0, atol=1e-7)
    assert not torch.allclose(module.memory.rows_weights[~untouched], start[~untouched])


def test_continuing_a_fit_keeps_the_memory():
    expected, _ = fit(D2CNN(), replace(RECIPE, optimizer="sgd", momentum=0.0, decay=1.0))
    module, data = parts(D2CNN(), replace(RECIPE, optimizer="sgd", momentum=0.0, decay=1.0))
    used = trainer(max_epochs=1)
    used.fit(module, data)
    used.fit_loop.max_epochs = RECIPE.epochs
    used.fit(module, data)
    assert_same(module.state_dict(), expected.state_dict(), **EXACT)


# Errors


def test_names_the_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    monkeypatch.delitem(sys.modules, "propall.lightning")
    with pytest.raises(ImportError, match=r"pip install 'propall\[lightning\]'"):
        importlib.import_module("propall.lightning")


def raises(match, error=ValueError):
    return pytest.raises(error, match=match)


def test_rejects_accumulation_with_fresh_logits():
    with raises("accumulate_grad_batches: got 2; expected 1, because RC evaluates the network again"):
        fit(RC(), accumulate_grad_batches=2)


def test_rejects_more_epochs_than_the_recipe_has():
    with raises(
        r"max_epochs: the Trainer would take 20 steps \(max_epochs=4\), but the recipe ends after 15"
    ):
        fit(CC(), max_epochs=4)


def test_warns_of_fewer_epochs_than_the_recipe_has():
    message = (
        r"max_epochs: the Trainer would take 10 steps \(max_epochs=2\), but the recipe ends after 15 \(3"
    )
    with pytest.warns(UserWarning, match=message):
        fit(CC(), max_epochs=2)
    with pytest.warns(UserWarning, match="would take 10 steps"):
        fit(CC(), max_epochs=2, max_steps=12)  # the epochs end first


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_steps": 7},
        {"max_epochs": 2, "max_steps": 7},
        {"fast_dev_run": True},
        {"fast_dev_run": 4, "accumulate_grad_batches": 2},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("error:max_epochs:UserWarning")
def test_a_trial_run_or_a_limit_on_steps_may_end_before_the_recipe(settings):
    fit(CC(), **settings)


def test_rejects_memory_in_half_precision():
    with raises("precision: 'bf16-true' would store the memory of PRODEN"):
        fit(PRODEN(), precision="bf16-true")


def test_rejects_a_precision_other_than_the_recipes():
    with raises("precision: the recipe has bfloat16, the Trainer '32-true'"):
        fit(CC(), replace(RECIPE, precision="bfloat16"))


def test_rejects_two_recipes():
    views = replace(VIEWS, weight=0.5, strong=Augmentation(crop=1, operations=3, cutout=2))
    module, _ = parts(CC(), replace(RECIPE, views=VIEWS))
    _, data = parts(CC(), replace(RECIPE, views=views, batch_size=10))
    with raises(
        "^recipe: the data module has batch_size=10, views.strong.operations=3, views.weight=0.5, the "
        "module batch_size=9, views.strong.operations=2, views.weight=1.0; expected the same. Pass one "
        "recipe to both.$"
    ):
        trainer().fit(module, data)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_rejects_features_that_are_no_numbers(value):
    train, _ = problem()
    x = train.x.clone()
    x[7, 2] = value
    with raises(r"x: 1 rows contain NaN or infinity \(first: 7\)"):
        PartialLabelData(replace(train, x=x), RECIPE)


def test_rejects_an_objective_without_its_training_set():
    train, _ = problem()
    rows = TensorDataset(torch.arange(N), train.x, train.candidates)
    with raises("candidates: missing; PRODEN needs those of the whole training set"):
        trainer().fit(PartialLabelModule(network(train), PRODEN(), RECIPE), DataLoader(rows, batch_size=9))


def test_rejects_augmentation_by_other_loaders():
    module, data = parts(CC(), replace(RECIPE, augmentation="none"))
    module.recipe = replace(RECIPE, augmentation="flip_crop")
    rows = TensorDataset(torch.arange(N), data.train.x, data.train.candidates)
    with raises("recipe: augmentation='flip_crop' needs PartialLabelData"):
        trainer().fit(module, DataLoader(rows, batch_size=9))


def test_rejects_a_network_with_other_outputs():
    _, data = parts(PRODEN(), RECIPE)
    module = PartialLabelModule(nn.Linear(D, K - 1).double(), PRODEN(), RECIPE)
    with raises(r"net: returned shape \(9, 3\) for candidates of shape \(9, 4\)"):
        trainer().fit(module, data)


def test_rejects_a_name_as_objective():
    with raises("'proden'", TypeError):
        PartialLabelModule(nn.Linear(2, 2), "proden")


def test_rejects_a_module_that_does_not_count_batches():
    class Other(LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(D, K)

        def training_step(self, batch, batch_idx):
            return self.net(batch[1].float()).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    train, _ = problem()
    with raises("model: got Other", TypeError):
        trainer().fit(Other(), PartialLabelData(train, RECIPE))


def test_rejects_another_objectives_checkpoint(saved):
    path, _ = saved
    with raises("the checkpoint has the memory of 'rc'; the objective of this module is 'proden'"):
        fit(PRODEN(), ckpt_path=path)


def test_rejects_another_runs_checkpoint(saved):
    path, _ = saved
    module, data = parts(RC(), seed=SEED + 1)
    with raises(r"run with other batches: seed 6 \(checkpoint: 5\)"):
        trainer().fit(module, data, ckpt_path=path)


# Two processes

TIMEOUT = 240
#: Objective, changes to `RECIPE` and settings of the Trainer for runs with two processes.
SHARED_RUNS = {
    "propall": (ProPaLL(), {}, {}),
    "proden": (PRODEN(), {"optimizer": "adam", "learning_rate": 0.01}, {}),
    "rc": (RC(), {}, {}),
    "cpe": (CPE("T"), {}, {}),
    "d2cnn": (D2CNN(), {}, {}),
    "ga": (GA(), {}, {}),
    "crowding": (Crowding(), {}, {}),
    "views": (ProPaLL(), {"views": VIEWS, "schedule": "cosine", "warm_up": 0.2, "nesterov": True}, {}),
    "views with memory": (RC(), {"views": replace(VIEWS, targets="memory")}, {}),
    "clipped and accumulated": (PRODEN(), {}, {"gradient_clip_val": 0.3, "accumulate_grad_batches": 2}),
}


REJECTED_RUNS = {
    "two seeds": lambda rank: parts(PRODEN(), seed=SEED + rank),
    "one row a batch": lambda rank: parts(CC(), replace(RECIPE, batch_size=1)),
}


def fit_shared(name, **more):
    objective, recipe, settings = SHARED_RUNS[name]
    return fit(objective, replace(RECIPE, **recipe), **settings, **more)


class KillRank(Callback):
    """Kills one process before a batch, as a crashed machine would."""

    def __init__(self, rank, batch):
        self.rank, self.batch = rank, batch

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_rank == self.rank and int(pl_module.batches_seen) == self.batch:
            os.kill(os.getpid(), signal.SIGKILL)


def on_two_processes():
    return {"devices": 2, "strategy": DDPStrategy(timeout=timedelta(seconds=TIMEOUT / 4))}


def work(folder, runs=(), rejected=(), kill_at=None, save_every=None, ckpt_path=None):
    """The work of one of two processes: save the result of every run in the folder."""
    torch.set_num_threads(1)
    rank, folder = int(os.environ["LOCAL_RANK"]), Path(folder)
    for run in runs:
        callbacks = [] if kill_at is None else [KillRank(1, kill_at)]
        if save_every is not None:
            callbacks.append(ModelCheckpoint(folder, every_n_train_steps=save_every, save_top_k=-1))
        module, used = fit_shared(
            run,
            **on_two_processes(),
            ckpt_path=ckpt_path,
            callbacks=callbacks,
            enable_checkpointing=save_every is not None,
        )
        metrics = {f"metric.{name}": value.clone() for name, value in used.callback_metrics.items()}
        save_file(dict(module.state_dict()) | metrics, folder / f"{run}.{rank}.safetensors")
    for name in rejected:
        module, data = REJECTED_RUNS[name](rank)
        try:
            trainer(**on_two_processes()).fit(module, data)
        except ValueError as error:
            (folder / f"{name}.{rank}.txt").write_text(str(error))


def same_imports():
    """The environment of a process that imports what this one imports."""
    paths = [str(Path(path).resolve()) for path in (ROOT, *sys.path)]
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}


#: Exits without shutting down the interpreter: a gloo thread that releases its last tensors during the
#: shutdown sometimes aborts the process (pytorch/pytorch#190489).
WORKER = """
import json, os, sys, traceback, warnings
warnings.filterwarnings("ignore", message=".*LeafSpec")
from tests.test_lightning import work
code = 1
try:
    work(**json.loads(sys.argv[1]))
    code = 0
except BaseException:
    traceback.print_exc()
sys.stderr.flush()
os._exit(code)
"""


def two_processes(folder, **plan):
    """Run `work` in two processes; returns their exit codes and error outputs."""
    script = folder / "worker.py"
    script.write_text(WORKER)
    # Their store is in this process, as with torchrun: its port is bound at once, and it outlives both.
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    environment = same_imports() | {
        "MASTER_ADDR": store.host,
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "WORLD_SIZE": "2",
    }
    command = [sys.executable, script, json.dumps({"folder": str(folder)} | plan)]
    processes = [
        subprocess.Popen(
            command, env=environment | {"LOCAL_RANK": str(rank)}, cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    try:
        errors = [process.communicate(timeout=TIMEOUT)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [process.returncode for process in processes], errors


def assert_both_succeeded(codes, errors):
    last_lines = [error.strip().splitlines()[-1:] for error in errors]
    assert codes == [0, 0], f"{codes}, {last_lines}\n" + "\n\n".join(errors)


def assert_both_agree_with(folder, run, module, used):
    expected = dict(module.state_dict())
    expected |= {f"metric.{name}": value for name, value in used.callback_metrics.items()}
    for rank in range(2):
        state = load_file(folder / f"{run}.{rank}.safetensors")
        assert_same(state, expected, rtol=1e-9, atol=1e-9)


def test_two_processes_agree_with_one(tmp_path):
    codes, errors = two_processes(tmp_path, runs=list(SHARED_RUNS), rejected=list(REJECTED_RUNS))
    assert_both_succeeded(codes, errors)
    for run in SHARED_RUNS:
        assert_both_agree_with(tmp_path, run, *fit_shared(run))
    for rank in range(2):
        assert f"this is rank {rank}" in (tmp_path / f"two seeds.{rank}.txt").read_text()
        assert "too few for 2 processes" in (tmp_path / f"one row a batch.{rank}.txt").read_text()


def test_a_killed_process_stops_the_other_and_a_resumed_run_agrees(tmp_path):
    codes, errors = two_processes(tmp_path, runs=["rc"], kill_at=12, save_every=4)
    assert codes[1] == -signal.SIGKILL
    assert codes[0] == 1
    assert "propall: rank 0 of 2 stopped after batch 12." in errors[0]
    assert "ckpt_path" in errors[0]
    assert not list(tmp_path.glob("*.safetensors"))
    last = tmp_path / "epoch=2-step=12.ckpt"
    expected, used = fit_shared("rc")
    codes, errors = two_processes(tmp_path, runs=["rc"], ckpt_path=str(last))
    assert_both_succeeded(codes, errors)
    del used.callback_metrics["train_loss"]
    for rank in range(2):
        state = load_file(tmp_path / f"rc.{rank}.safetensors")
        # Lightning averages over the batches since the run was resumed.
        assert state.pop("metric.train_loss") > 0
        save_file(state, tmp_path / f"rc.{rank}.safetensors")
    assert_both_agree_with(tmp_path, "rc", expected, used)
    alone, _ = fit_shared("rc", ckpt_path=last)
    assert_same(alone.state_dict(), expected.state_dict(), **EXACT)


@pytest.mark.slow
def test_the_example_runs_on_one_process_and_on_two(tmp_path):
    command = [sys.executable, ROOT / "examples" / "custom_network_ddp.py", "--epochs", "6"]
    outputs = [
        subprocess.run(
            [*command, "--processes", processes],
            cwd=tmp_path,
            env=same_imports(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=True,
        ).stdout
        for processes in "12"
    ]
    assert outputs[0] == outputs[1]
    (accuracy,) = re.findall(r"test accuracy (\S+)", outputs[0])
    assert float(accuracy) > 0.5

"""Methods on two views: what they share in training, and that each of them learns."""

import dataclasses
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import vmap

from propall.data.augmentation import Augmentation
from propall.data.corruption import IndependentFlip
from propall.data.dataset import PartialDataset, Problem
from propall.data.synthetic import digits
from propall.estimators.classifier import PartialLabelClassifier
from propall.methods import METHODS
from propall.methods._multiview import base_objective, draw_mixing, with_two_views
from propall.methods.able import ABLE
from propall.methods.cc import CC
from propall.methods.crosel import CroSel
from propall.methods.papi import PaPi
from propall.methods.pico import PiCO
from propall.nets import MLP
from propall.training.checkpoint import Checkpoint
from propall.training.contract import Algorithm, Monitor, Objective, Run, RunScores, Step, TrainingSetup
from propall.training.networks import NetClassifier
from propall.training.recipe import Recipe
from propall.training.views import Views, balance_term

METHODS_ON_VIEWS: list[Algorithm] = [PiCO(queue=256), PaPi(), CroSel(warm_up=2), ABLE()]
each_method = pytest.mark.parametrize("method", [pytest.param(m, id=m.name) for m in METHODS_ON_VIEWS])

SHIFTED = Views(weak=Augmentation(flip=False, crop=1), strong=Augmentation(flip=False, crop=1, cutout=2))


# --- mixing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("a", [0.75, 8.0])
def test_shares_follow_a_beta_distribution_and_partners_are_a_permutation(a: float) -> None:
    g = torch.Generator().manual_seed(0)
    uniform = torch.rand(2000, 6, 3, generator=g)
    shares, partners = vmap(lambda u: tuple(draw_mixing(u, a, copies=2)))(uniform)
    # 2000 draws: the mean is off by 0.005 or less, the variance by 4 %, at one standard deviation.
    assert shares.mean().item() == pytest.approx(0.5, abs=0.03)
    assert shares.var().item() == pytest.approx(1 / (4 * (2 * a + 1)), rel=0.15)
    assert (partners.sort(-1).values == torch.arange(12)).all()
    assert partners[:, 0].bincount(minlength=12).min() > 100, "every partner is about equally likely"
    alone = draw_mixing(uniform[3], a, copies=2)
    assert torch.equal(alone.partner, partners[3])
    torch.testing.assert_close(alone.share, shares[3])


def test_a_mixture_is_that_of_a_row_and_its_partner() -> None:
    mixing = draw_mixing(torch.rand(5, 4, generator=torch.Generator().manual_seed(1)), 1.0)
    rows = torch.arange(10.0).view(5, 2)
    for i, partner in enumerate(mixing.partner.tolist()):
        expected = mixing.share * rows[i] + (1 - mixing.share) * rows[partner]
        torch.testing.assert_close(mixing(rows)[i], expected)


# --- settings -----------------------------------------------------------------------------------------------


def test_only_the_augmentations_of_the_recipe_s_views_are_used() -> None:
    recipe = Recipe(views=dataclasses.replace(SHIFTED, n_strong=3, targets="teacher", weight=7.0))
    assert with_two_views(recipe) == Recipe(views=SHIFTED)
    assert with_two_views(Recipe()) == Recipe()


def test_a_base_loss_is_an_objective_without_fresh_outputs() -> None:
    assert isinstance(base_objective("propall"), Objective)
    for name, message in (("valen", "training procedure of its own"), ("rc", "after every step")):
        with pytest.raises(ValueError, match=rf"base: '{name}'.*{message}"):
            base_objective(name)
    with pytest.raises(KeyError, match="propall"):
        base_objective("propal")


@each_method
def test_training_needs_a_setup(method: Algorithm) -> None:
    with pytest.raises(ValueError, match=r"net: missing.*with_training"):
        method.fit([])


# --- training -----------------------------------------------------------------------------------------------


@cache
def images() -> Problem:
    """The digits as images, each wrong label a candidate with probability 0.5."""
    data = digits().problem(IndependentFlip(0.5), 0)
    train = dataclasses.replace(data.train, x=data.train.x.view(-1, 1, 8, 8))
    return dataclasses.replace(data, train=train, test_x=data.test_x.view(-1, 1, 8, 8))


def accuracy(method: Algorithm | Objective, recipe: Recipe) -> float:
    data = images()
    (fitted,) = method.with_training(TrainingSetup(MLP, recipe)).fit([Run(data.train, 0)])
    return (fitted.predict(data.test_x) == data.test_truth).double().mean().item()


PLAIN = Recipe(epochs=10, batch_size=64, optimizer="adam", learning_rate=3e-3)


@cache
def accuracy_of_cc() -> float:
    return accuracy(CC(), PLAIN)


@each_method
def test_learns_the_digits_about_as_well_as_cc(method: Algorithm) -> None:
    assert accuracy_of_cc() > 0.9
    assert accuracy(method, PLAIN) > accuracy_of_cc() - 0.08


@each_method
def test_learns_from_augmented_views(method: Algorithm) -> None:
    assert accuracy(method, dataclasses.replace(PLAIN, epochs=4, views=SHIFTED)) > 0.5


@pytest.mark.parametrize(
    "method", [PaPi(base="propall"), ABLE(base="proden"), CroSel(warm_up=5, base="propall")]
)
def test_learns_with_another_base_loss(method: Algorithm) -> None:
    assert accuracy(method, dataclasses.replace(PLAIN, epochs=6)) > 0.5


def small_runs(n: int = 40) -> list[Run]:
    g = torch.Generator().manual_seed(0)
    candidates = torch.rand(2, n, 3, generator=g) < 0.5
    candidates[:, :, 1] = True
    x = torch.randn(2, n, 1, 6, 6, generator=g, dtype=torch.float64)
    return [Run(PartialDataset(x[i], candidates[i]), seed=i) for i in range(2)]


@each_method
@pytest.mark.parametrize("base", [None, "proden"])
def test_stacked_runs_with_views_equal_single_runs(method: Algorithm, base: str | None) -> None:
    if base is not None:
        if "base" not in method.hyperparameters():
            pytest.skip("the method has no base loss")
        method = dataclasses.replace(method, base=base)  # type: ignore[type-var]
    recipe = Recipe(epochs=4, batch_size=15, last_batch="keep", learning_rate=0.05, views=SHIFTED)
    trainer = method.with_training(TrainingSetup(MLP, recipe))
    runs = small_runs()
    for run, stacked in zip(runs, trainer.fit(runs), strict=True):
        (alone,) = trainer.fit([run])
        torch.testing.assert_close(
            stacked.scores(run.train.x), alone.scores(run.train.x), rtol=1e-7, atol=1e-9
        )


class Interrupted(Exception):
    """Raised by a monitor in place of a kill."""


class Interrupting(Monitor):
    """Raises after some epoch."""

    def __init__(self, last: int) -> None:
        self.last = last

    def epoch(self, epoch: int, runs: Sequence[int], losses: Float[Tensor, "r"], scores: RunScores) -> None:
        if epoch == self.last:
            raise Interrupted


@each_method
def test_interrupted_and_resumed_equals_uninterrupted(method: Algorithm, tmp_path: Path) -> None:
    recipe = Recipe(epochs=5, batch_size=15, learning_rate=0.05, views=SHIFTED)
    setup = TrainingSetup(MLP, recipe)
    expected = method.with_training(setup).fit(small_runs())
    resumable = method.with_training(dataclasses.replace(setup, checkpoint=Checkpoint(tmp_path, seconds=0)))
    for last in (2, 4):
        with pytest.raises(Interrupted):
            resumable.fit(small_runs(), monitor=Interrupting(last))
    for resumed, whole in zip(resumable.fit(small_runs()), expected, strict=True):
        assert isinstance(resumed, NetClassifier)
        assert isinstance(whole, NetClassifier)
        for name, tensor in whole.net.state_dict().items():
            assert torch.equal(tensor, resumed.net.state_dict()[name]), name
        for name, rows in whole.state.rows.items():
            assert torch.equal(rows, resumed.state.rows[name]), name


@each_method
def test_in_half_precision_every_parameter_learns(method: Algorithm) -> None:
    recipe = Recipe(epochs=1, batch_size=20, learning_rate=0.05, precision="bfloat16", views=SHIFTED)
    run = dataclasses.replace(small_runs()[0])
    run = dataclasses.replace(run, train=dataclasses.replace(run.train, x=run.train.x.float()))
    starts, ends = (
        method.with_training(TrainingSetup(MLP, dataclasses.replace(recipe, epochs=epochs))).fit([run])[0]
        for epochs in (0, 1)
    )
    assert isinstance(starts, NetClassifier)
    assert isinstance(ends, NetClassifier)
    after = dict(ends.net.named_parameters())
    assert not [name for name, p in starts.net.named_parameters() if torch.equal(p, after[name])]


@each_method
def test_a_saved_estimator_predicts_the_same(method: Algorithm, tmp_path: Path) -> None:
    data = images()
    x, candidates = data.train.x[:100].flatten(1).numpy(), data.train.candidates[:100].numpy()
    model = PartialLabelClassifier(method=method, net="mlp", epochs=2, random_state=0)
    model.fit(x, candidates)
    model.save(tmp_path / "model.safetensors")
    loaded = PartialLabelClassifier.load(tmp_path / "model.safetensors")
    assert (loaded.predict_proba(x) == model.predict_proba(x)).all()


def test_each_is_registered() -> None:
    assert all(METHODS[method.name] is type(method) for method in METHODS_ON_VIEWS)


# --- balance ------------------------------------------------------------------------------------------------


@each_method
@pytest.mark.parametrize(("prior", "fade"), [(None, 0.0), ((0.5, 0.3, 0.2), 0.0), (None, 0.8)])
def test_the_balance_of_the_views_is_added_for_every_network(method, prior, fade) -> None:
    k, rows = 3, 6
    views = dataclasses.replace(SHIFTED, balance=0.5, prior=prior, balance_fade=fade)
    plain, balanced = (method.objective(with_two_views(Recipe(views=chosen))) for chosen in (SHIFTED, views))
    g = torch.Generator().manual_seed(3)
    candidates = torch.rand(rows, k, generator=g) < 0.5
    candidates[torch.arange(rows), torch.randint(k, (rows,), generator=g)] = True
    width = {"pico": k + 2 * 128, "papi": 4 * (k + 128), "crosel": 2 * 5 * k, "able": 2 * (k + 128)}[
        method.name
    ]
    logits = torch.randn(rows, width, generator=g)
    weight = torch.tensor([1.0, 0.0, 2.0, 1.0, 0.0, 1.0])
    uniform = torch.rand(rows, k, generator=g)
    step = Step(torch.tensor(0.5), torch.tensor(1.0), uniform=uniform, weight=weight)
    state = plain.init(candidates)
    networks = [logits, logits[:, 5 * k :]] if method.name == "crosel" else [logits]
    term = sum(balance_term(outputs[:, :k], prior, weight) for outputs in networks)
    added = balanced.loss(logits, candidates, state, step) - plain.loss(logits, candidates, state, step)
    factor = 0.5 * (1 - 0.5 / fade) if fade else 0.5  # half of training is over
    torch.testing.assert_close(added, factor * term, rtol=1e-4, atol=1e-5)

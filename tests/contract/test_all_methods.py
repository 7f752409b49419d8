"""Properties of every registered method that its users rely on, tested by training on clusters."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from propall.data.corruption import Complementary, Exactly
from propall.data.dataset import Problem
from propall.data.synthetic import blobs
from propall.methods import METHODS
from propall.methods.cc import CC
from propall.methods.propall import ProPaLL
from propall.nets.mlp import Linear
from propall.training.contract import Algorithm, Monitor, Objective, Run, TrainingSetup
from propall.training.recipe import Recipe
from tests.contract.subjects import accepts, skip_known

Method = type[Objective] | type[Algorithm]

each_method = pytest.mark.parametrize("method", [pytest.param(m, id=n) for n, m in METHODS.items()])

FEW = Recipe(epochs=2, batch_size=20, optimizer="adam", learning_rate=0.05)
ENOUGH = Recipe(epochs=25, batch_size=50, optimizer="adam", learning_rate=0.05)


def algorithm(method: Method, recipe: Recipe) -> Algorithm:
    """The method with its default fields, trained with a linear network if it has one."""
    return method().with_training(TrainingSetup(Linear, recipe))


@cache
def problem(complementary: bool, n: int, k: int, seed: int = 0) -> Problem:
    corruption = Complementary() if complementary else Exactly(n=2)
    return blobs(n, 3, k, seed=seed).problem(corruption, seed)


def problem_for(method: Method, n: int = 60, k: int = 5, seed: int = 0) -> Problem:
    """Clusters with two candidates per row, or one complementary label if the method requires it."""
    partial = problem(False, n, k, seed)
    if issubclass(method, Objective) and not accepts(method(), partial.train.candidates):
        return problem(True, n, k, seed)
    return partial


def run_on(data: Problem, seed: int, objective: Objective | None = None) -> Run:
    """A run in float64, where rounding does not hide or cause differences."""
    train = dataclasses.replace(data.train, x=data.train.x.double())
    return Run(train, seed, objective=objective)


def scores(fitter: Algorithm, runs: Sequence[Run], x: Tensor) -> list[Tensor]:
    return [classifier.scores(x.double()) for classifier in fitter.fit(runs)]


@each_method
def test_same_seed_same_scores(method: Method) -> None:
    data = problem_for(method)
    first, again = (scores(algorithm(method, FEW), [run_on(data, 3)], data.test_x)[0] for _ in range(2))
    assert torch.equal(first, again)
    assert first.shape == (len(data.test_x), data.train.n_classes)
    assert first.isfinite().all()


@each_method
def test_the_global_generator_is_neither_read_nor_advanced(method: Method) -> None:
    data = problem_for(method)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = scores(algorithm(method, FEW), [run_on(data, 3)], data.test_x)[0]
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    assert torch.equal(first, scores(algorithm(method, FEW), [run_on(data, 3)], data.test_x)[0])


@each_method
def test_stacked_runs_equal_single_runs(method: Method) -> None:
    data, other = problem_for(method), problem_for(method, seed=1)
    runs = [run_on(data, 3), run_on(other, 4), run_on(data, 5)]
    if issubclass(method, Objective):
        # Runs with other objectives, one of them noisy, that have only the shape in common.
        runs += [run_on(data, 6, CC()), run_on(other, 7, ProPaLL())]
    together = scores(algorithm(method, FEW), runs, data.test_x)
    for run, stacked in zip(runs, together, strict=True):
        alone = scores(algorithm(method, FEW), [run], data.test_x)[0]
        torch.testing.assert_close(stacked, alone, rtol=1e-7, atol=1e-9)


#: Methods that need more data or epochs to learn clusters, and why.
LEARNS_LATER: dict[str, str] = {}


@each_method
def test_clearly_beats_chance(method: Method) -> None:
    skip_known(method.name, LEARNS_LATER)
    data = problem_for(method, n=300)
    (classifier,) = algorithm(method, ENOUGH).fit([Run(data.train, 0)])
    accuracy = (classifier.predict(data.test_x) == data.test_truth).double().mean()
    assert accuracy > 0.5, f"accuracy {accuracy:.3f}, chance is 0.2"


def changed(method: Method) -> Iterator[Objective | Algorithm]:
    """The method with its default fields, then with each field changed."""
    yield method()
    hints = typing.get_type_hints(method)
    for field in dataclasses.fields(method):  # type: ignore[arg-type]
        value = field.default
        if isinstance(value, bool):
            yield method(**{field.name: not value})
        elif isinstance(value, float):
            yield method(**{field.name: value / 2})
        elif isinstance(value, int):
            yield method(**{field.name: value + 1})
        elif typing.get_origin(hints[field.name]) is Literal:
            for choice in typing.get_args(hints[field.name]):
                yield method(**{field.name: choice})


@each_method
def test_hyperparameters_are_plain_and_make_an_equal_method(method: Method) -> None:
    setup = {field.name for field in dataclasses.fields(TrainingSetup)}
    for variant in changed(method):
        plain = json.loads(json.dumps(variant.hyperparameters()))
        assert not plain.keys() & setup
        assert method(**plain) == variant
        trained = variant.with_training(TrainingSetup(Linear, FEW))
        assert trained.hyperparameters() == variant.hyperparameters()
        assert trained.passes(FEW) == variant.passes(FEW)


@each_method
def test_passes_are_the_epochs_a_monitor_counts(method: Method) -> None:
    data = problem_for(method)
    announced: list[int] = []

    class Counter(Monitor):
        def begin(self, epochs: int, runs: Sequence[int], done: int) -> None:
            announced.append(epochs)

    short = method().shortened()
    short.with_training(TrainingSetup(Linear, FEW)).fit([run_on(data, 0)], monitor=Counter())
    assert announced[-1:] == [short.passes(FEW)] * method.trains_network
    assert short.passes(FEW) <= method().passes(FEW)


@each_method
def test_survives_json(method: Method) -> None:
    for changed_method in changed(method):
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(changed_method)))  # type: ignore[call-overload]
        assert method(**plain) == changed_method
        assert hash(method(**plain)) == hash(changed_method)

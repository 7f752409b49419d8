"""VALEN: its two kinds of targets, its objective, and its three phases."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from jaxtyping import TypeCheckError
from torch import Tensor
from torch.distributions import Dirichlet, kl_divergence
from torch.func import grad_and_value, vmap
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss, one_hot

from propall.data.dataset import PartialDataset
from propall.methods import valen
from propall.methods._autoencoder import Twins, decode, new_decoder
from propall.methods._dirichlet import (
    dirichlet_parameters,
    dirichlet_sample,
)
from propall.methods._neighbors import nearest
from propall.methods.proden import PRODEN
from propall.methods.valen import (
    VALEN,
    VALEN_SETTINGS,
    VariationalPhase,
    weights_from_classifier,
    weights_from_sample,
)
from propall.nets import MLP, Linear
from propall.numerics import restricted_softmax
from propall.training.checkpoint import Checkpoint
from propall.training.contract import Algorithm, Monitor, Run, State, Step, TrainingSetup
from propall.training.metrics import History
from propall.training.networks import NetClassifier, build
from propall.training.recipe import Recipe
from propall.training.stack import Stack
from propall.training.trainer import Trainer


def double(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def sets(n: int, k: int) -> Tensor:
    candidates = (torch.rand(n, k) < 0.4) | one_hot(torch.arange(n) % k, k).bool()
    candidates[candidates.all(-1), 0] = False
    return candidates


# --- the two memories ---------------------------------------------------------------------------------------


def test_each_memory_lives_on_the_support_of_the_other() -> None:
    o = torch.tensor([[0.7, 0.3, 0.0, 0.0]])
    d = torch.tensor([[0.0, 0.5, 0.5, 0.0]])
    z = torch.tensor([[0.1, 0.3, 0.2, 0.4]])
    torch.testing.assert_close(weights_from_sample(z, o), torch.tensor([[0.25, 0.75, 0.0, 0.0]]))
    mixed = weights_from_sample(z, o, correct=0.2)
    torch.testing.assert_close(
        mixed, torch.tensor([[0.2 * 0.25 + 0.8 * 0.7, 0.2 * 0.75 + 0.8 * 0.3, 0.0, 0.0]])
    )
    logits = torch.tensor([[1e4, 0.0, 1.0, 5.0]])
    share = torch.tensor([0.0, 1.0]).softmax(-1)
    expected = torch.tensor([[0.0, share[0], share[1], 0.0]])
    torch.testing.assert_close(weights_from_classifier(logits, d), expected)


class Visit:
    """A batch of the variational phase with memories of different supports, and its pieces by hand."""

    def __init__(
        self, dtype: torch.dtype = torch.float64, scale: float = 1.0, seed: int = 0, **fields: float
    ) -> None:
        n, k, width = 9, 5, 4
        torch.manual_seed(seed)
        self.phase = VariationalPhase(width=width, neighbours=2, **fields)  # type: ignore[arg-type]
        self.k, self.candidates = k, sets(n, k)
        self.outputs = scale * torch.randn(n, 2 * k + width, dtype=torch.float64).to(dtype)
        self.x = self.outputs[:, 2 * k :]
        self.o = restricted_softmax(double(n, k), self.candidates).to(dtype)
        self.d = restricted_softmax(double(n, k), sets(n, k)).to(dtype)
        self.index = torch.randperm(50)[:n]
        self.neighbours = self.index[torch.randint(n, (n, 2))]
        decoder = {name: tensor.to(dtype) for name, tensor in new_decoder(k, width, seed=1).items()}
        rows = {"weights": self.o, "sampled": self.d, "index": self.index, "neighbours": self.neighbours}
        self.state = State(rows=rows, trained=decoder)
        uniform = torch.rand(n, k, dtype=torch.float64).clamp(1e-6, 1 - 1e-6).to(dtype)
        self.step = Step(torch.tensor(0.0), torch.tensor(0.0), uniform)

    def sample(self, outputs: Tensor) -> Tensor:
        assert self.step.uniform is not None
        encoded = outputs[:, self.k : 2 * self.k]
        return dirichlet_sample(dirichlet_parameters(encoded, self.o > 0), self.step.uniform)

    def loss(self, outputs: Tensor) -> Tensor:
        return self.phase.loss(outputs, self.candidates, self.state, self.step)


def test_loss_is_the_sum_of_its_terms() -> None:
    fields = {"alpha": 0.7, "beta": 0.1, "gamma": 5.0, "theta": 1.3, "reconstruction": 0.2}
    seen = Visit(**fields)
    outputs, k = seen.outputs.requires_grad_(), seen.k
    z, target = seen.sample(outputs), seen.candidates.double()
    classified, encoded = outputs[:, :k], outputs[:, k : 2 * k]
    graph = (seen.neighbours[:, :, None] == seen.index).any(1) | torch.eye(9, dtype=torch.bool)
    reconstruction = (
        0.2 * mse_loss(decode(z, seen.state.trained), seen.x)
        + 0.01 * binary_cross_entropy_with_logits(z, target)
        + mse_loss((z @ z.T).sigmoid().softmax(-1), graph / torch.tensor(3.0, dtype=torch.float64))
    )
    alpha = (encoded / 4).exp().clamp(0.01, 30)
    divergence = kl_divergence(Dirichlet(alpha), Dirichlet(torch.ones_like(alpha))).mean()
    of_encoder = -(seen.o * (encoded.softmax(-1) + 1e-12).log()).sum(-1).mean()
    of_classifier = -(seen.d * (classified.softmax(-1) + 1e-12).log()).sum(-1).mean()
    expected = 0.7 * reconstruction + 0.1 * divergence + 5 * of_encoder + 1.3 * of_classifier
    loss = seen.loss(outputs)
    torch.testing.assert_close(loss, expected)
    ours, theirs = (torch.autograd.grad(value, outputs)[0][:, : 2 * k] for value in (loss, expected))
    torch.testing.assert_close(ours, theirs)


def test_the_classifier_learns_from_the_sampled_targets_alone() -> None:
    seen = Visit(theta=2.0)
    outputs = seen.outputs.requires_grad_()
    (gradient,) = torch.autograd.grad(seen.loss(outputs), outputs)
    p = outputs[:, : seen.k].softmax(-1)
    torch.testing.assert_close(gradient[:, : seen.k], 2 * (p - seen.d).detach() / 9, rtol=1e-6, atol=1e-9)


def test_both_memories_are_refreshed_from_the_old_ones() -> None:
    seen = Visit(correct=0.3)
    kept = {name: rows.clone() for name, rows in seen.state.rows.items()}
    new = seen.phase.update(seen.outputs, seen.candidates, seen.state, seen.step)
    z = seen.sample(seen.outputs)
    torch.testing.assert_close(new.rows["sampled"], weights_from_sample(z, seen.o, 0.3))
    torch.testing.assert_close(
        new.rows["weights"], weights_from_classifier(seen.outputs[:, : seen.k], seen.d)
    )
    assert torch.equal(new.rows["sampled"] > 0, seen.o > 0)
    assert torch.equal(new.rows["weights"] > 0, seen.d > 0)
    for name, rows in kept.items():
        assert torch.equal(seen.state.rows[name], rows)


def test_instance_weights() -> None:
    seen = Visit(alpha=0.0)
    weight = torch.rand(9, dtype=torch.float64)

    def loss(weight: Tensor) -> Tensor:
        return seen.phase.loss(seen.outputs, seen.candidates, seen.state, seen.step._replace(weight=weight))

    torch.testing.assert_close(loss(torch.full_like(weight, 3.0)), seen.loss(seen.outputs))
    each = torch.stack([loss(one_hot(torch.tensor(i), 9).double()) for i in range(9)])
    torch.testing.assert_close(loss(weight), (each * weight).sum() / weight.sum())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_outputs(dtype: torch.dtype) -> None:
    seen = Visit(dtype, scale=1e4)
    seen.outputs[:, 2 * seen.k :] /= 1e4
    seen.state = State(
        rows={k: v.float() if v.is_floating_point() else v for k, v in seen.state.rows.items()},
        trained={k: v.float() for k, v in seen.state.trained.items()},
    )
    outputs = seen.outputs.requires_grad_()
    loss = seen.loss(outputs)
    (gradient,) = torch.autograd.grad(loss, outputs)
    assert loss.dtype == torch.float32
    assert loss.isfinite()
    assert gradient.isfinite().all()
    new = seen.phase.update(outputs.detach(), seen.candidates, seen.state, seen.step)
    for name in ("weights", "sampled"):
        assert new.rows[name].isfinite().all()
        torch.testing.assert_close(new.rows[name].sum(-1), torch.ones(9))


def stacked_step(phase: VariationalPhase) -> Callable[..., Any]:
    def of_one(
        outputs: Tensor, candidates: Tensor, state: State, uniform: Tensor
    ) -> tuple[Tensor, Tensor, State]:
        step = Step(torch.tensor(0.0), torch.tensor(0.0), uniform)
        gradient, loss = grad_and_value(lambda o: phase.loss(o, candidates, state, step))(outputs)
        return loss, gradient, phase.update(outputs, candidates, state, step)

    return vmap(of_one)


def stacked_visits(dtype: torch.dtype) -> tuple[list[Visit], list[Any]]:
    visits = [Visit(dtype, seed=seed) for seed in range(3)]
    arguments = [(v.outputs, v.candidates, v.state, v.step.uniform) for v in visits]
    return visits, torch.utils._pytree.tree_map(lambda *parts: torch.stack(parts), *arguments)


def test_stacked_visits_are_single_ones() -> None:
    visits, arguments = stacked_visits(torch.float64)
    losses, gradients, states = stacked_step(visits[0].phase)(*arguments)
    for i, seen in enumerate(visits):
        outputs = seen.outputs.clone().requires_grad_()
        loss = seen.loss(outputs)
        torch.testing.assert_close(losses[i], loss)
        torch.testing.assert_close(gradients[i], torch.autograd.grad(loss, outputs)[0])
        new = seen.phase.update(seen.outputs, seen.candidates, seen.state, seen.step)
        for name, rows in new.rows.items():
            torch.testing.assert_close(states.rows[name][i], rows)


@pytest.mark.compiled
def test_traced_in_one_graph() -> None:
    torch._dynamo.reset()
    visits, arguments = stacked_visits(torch.float32)
    eager = stacked_step(visits[0].phase)
    traced = torch.compile(eager, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(traced(*arguments), eager(*arguments), rtol=1e-5, atol=1e-6)


# --- the method ---------------------------------------------------------------------------------------------


def blobs(n: int = 120, k: int = 3, dtype: torch.dtype = torch.float32) -> tuple[PartialDataset, Tensor]:
    truth = torch.arange(n) % k
    centers = 4 * torch.eye(k, 5, dtype=dtype)
    x = centers[truth] + 0.7 * torch.randn(n, 5, dtype=dtype)
    candidates = one_hot(truth, k).bool()
    wrong = (truth + 1 + torch.randint(k - 1, (n,))) % k
    candidates |= one_hot(wrong, k).bool() & (torch.rand(n, 1) < 0.6)
    return PartialDataset(x, candidates), truth


def net(in_shape: tuple[int, ...], n_classes: int) -> MLP:
    return MLP(in_shape, n_classes, widths=(16,), batch_norm=True)


def setup(epochs: int = 6, **fields: Any) -> TrainingSetup:
    recipe = Recipe(epochs=epochs, batch_size=40, learning_rate=0.05, last_batch="keep")
    return TrainingSetup(**{"net": net, "recipe": recipe, **fields})


def method(epochs: int = 6, *, net: Any = net, fast: bool | None = None, **fields: Any) -> Algorithm:
    return VALEN(**{"warm_up": 2, **fields}).with_training(setup(epochs, net=net, fast=fast))


def fitted(method: Algorithm, *runs: Run, monitor: Monitor | None = None) -> list[NetClassifier]:
    classifiers = method.fit(runs, monitor=monitor)
    assert all(isinstance(c, NetClassifier) for c in classifiers)
    return classifiers  # type: ignore[return-value]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"encoder_from": "warmed", "graph_on": "inputs"},
        {"full_batch": True, "optimizer": "adam", "correct": 0.2},
    ],
    ids=["default", "warmed", "full_batch"],
)
def test_learns_blobs_and_repeats_itself(fields: dict[str, Any]) -> None:
    train, _ = blobs()
    test, truth = blobs()
    first, again = (fitted(method(**fields), Run(train, seed=1))[0] for _ in range(2))
    assert torch.equal(first.scores(test.x), again.scores(test.x))
    assert (first.predict(test.x) == truth).float().mean() > 0.9
    (other,) = fitted(method(**fields), Run(train, seed=2))
    assert not torch.equal(first.scores(test.x), other.scores(test.x))


def test_stacked_runs_are_single_ones() -> None:
    (train, _), (small, _) = blobs(dtype=torch.float64), blobs(n=50, dtype=torch.float64)
    runs = [Run(train, seed=0), Run(small, seed=1), Run(train, seed=2)]
    together = fitted(method(epochs=2), *runs)
    for run, classifier in zip(runs, together, strict=True):
        (alone,) = fitted(method(epochs=2), run)
        torch.testing.assert_close(classifier.scores(train.x), alone.scores(train.x), rtol=1e-9, atol=1e-9)


def test_scores_are_those_of_evaluation_mode() -> None:
    train, _ = blobs()
    (classifier,) = fitted(method(epochs=1), Run(train, seed=0))
    alone = torch.cat([classifier.scores(row[None]) for row in train.x[:7]])
    torch.testing.assert_close(classifier.scores(train.x)[:7], alone)
    assert not classifier.net.training
    assert isinstance(classifier.net, MLP)


def test_without_the_third_phase_it_is_the_warm_up() -> None:
    train, _ = blobs()
    (classifier,) = fitted(method(epochs=0), Run(train, seed=4))
    recipe = setup(epochs=2).recipe
    (warmed,) = Trainer(PRODEN(log_floor=1e-12), net, recipe).fit([Run(train, seed=4)])
    assert isinstance(warmed, NetClassifier)
    assert torch.equal(classifier.scores(train.x), warmed.scores(train.x))
    for name in ("weights", "sampled"):
        assert torch.equal(classifier.state.rows[name], warmed.state.rows["weights"])


class Kept(Stack):
    """A stack that records itself before its first step."""

    last: "Kept"
    start: dict[str, Tensor]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        Kept.last, self.start = self, {}

    def train_epoch(self, epoch: int) -> Tensor:
        self.start = self.start or {name: tensor.clone() for name, tensor in self.tensors().items()}
        return super().train_epoch(epoch)


@pytest.mark.parametrize("encoder_from", ["untrained", "warmed"])
def test_how_the_third_phase_starts(monkeypatch: pytest.MonkeyPatch, encoder_from: str) -> None:
    monkeypatch.setattr(valen, "Stack", Kept)
    train, _ = blobs()
    run = Run(train, seed=4)
    fitted(method(epochs=1, encoder_from=encoder_from, fast=False), run)
    start = Kept.last.start
    (warmed,) = fitted(method(epochs=0), run)
    untrained, encoder = build(net, run), warmed.net if encoder_from == "warmed" else build(net, run)
    for name, parameter in warmed.net.named_parameters():
        assert torch.equal(start[f"parameters/classifier.{name}"][0], parameter)
        assert not torch.equal(parameter, untrained.get_parameter(name))
        assert torch.equal(start[f"parameters/encoder.{name}"][0], encoder.get_parameter(name))
    for name, buffer in warmed.net.named_buffers():
        assert torch.equal(start[f"buffers/classifier.{name}"][0], buffer)
    assert isinstance(warmed.net, MLP)
    embedding = warmed.net.embedding(train.x).detach()
    rows = {name: tensor for name, tensor in start.items() if "/rows/" in name}
    (neighbours,) = (tensor[0] for name, tensor in rows.items() if name.endswith("neighbours"))
    assert torch.equal(neighbours, nearest(embedding, embedding, 3, exclude_self=True)[0])
    # The graph is stored as lists of neighbors only.
    assert all(tensor.numel() <= 120 * 3 for tensor in rows.values())
    assert not any(tensor.shape[-2:] == (120, 120) for tensor in start.values())


def test_memories_of_a_step_come_from_the_outputs_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valen, "Stack", Kept)
    train, _ = blobs(dtype=torch.float64)
    run = Run(train, seed=4)
    (classifier,) = fitted(method(epochs=1, full_batch=True, optimizer="adam", fast=False), run)
    assert (Kept.last.batch_sizes, Kept.last.recipe.optimizer) == ([120], "adam")
    (warmed,) = fitted(method(epochs=0), run)
    support = warmed.state.rows["weights"] > 0
    before = restricted_softmax(warmed.net.train()(train.x).detach(), support)
    torch.testing.assert_close(classifier.state.rows["weights"], before)
    after = restricted_softmax(classifier.net.train()(train.x).detach(), support)
    assert (after - before).abs().max() > 1e-3
    assert torch.equal(classifier.state.rows["sampled"] > 0, support)


def test_decoder_before_training() -> None:
    decoder = new_decoder(10, 400, seed=3)
    assert {name: tuple(t.shape) for name, t in decoder.items()} == {
        "first_weight": (400, 10),
        "second_weight": (400, 400),
        "first_bias": (400,),
        "second_bias": (400,),
    }
    assert decoder["first_weight"].std().item() == pytest.approx(math.sqrt(2 / 410), rel=0.05)
    assert decoder["second_weight"].std().item() == pytest.approx(math.sqrt(2 / 800), rel=0.05)
    assert (decoder["first_bias"] == 0.01).all()
    assert (decoder["second_bias"] == 0.01).all()
    assert torch.equal(decoder["first_weight"], new_decoder(10, 400, seed=3)["first_weight"])


def test_twins_score_with_the_classifier() -> None:
    x = torch.randn(6, 5)
    twins = Twins(net((5,), 3), net((5,), 3))
    outputs = twins.train()(x)
    assert outputs.shape == (6, 2 * 3 + 5)
    assert torch.equal(outputs[:, 6:], x)
    assert torch.equal(twins.eval()(x), twins.classifier(x))


class Diary(Monitor):
    def __init__(self, x: Tensor) -> None:
        self.x, self.begun, self.epochs, self.scores = x, [], [], []  # type: ignore[var-annotated]

    def begin(self, epochs: int, runs: Sequence[int], done: int) -> None:
        self.begun.append((epochs, list(runs), done))

    def epoch(
        self, epoch: int, runs: Sequence[int], losses: Tensor, scores: Callable[[Tensor], Tensor]
    ) -> None:
        assert losses.isfinite().all()
        self.epochs.append((epoch, list(runs)))
        self.scores.append(scores(self.x))


def test_the_monitor_sees_one_training() -> None:
    (train, _), (small, _) = blobs(), blobs(n=50)
    diary = Diary(train.x)
    runs = [Run(train, seed=0), Run(small, seed=1), Run(train, seed=2)]
    together = dataclasses.replace(setup(3), stack=2)
    classifiers = fitted(VALEN(warm_up=2).with_training(together), *runs, monitor=diary)
    assert sorted(diary.begun) == [(5, [0, 2], 0), (5, [1], 0)]
    for positions in ([0, 2], [1]):
        assert [e for e, seen in diary.epochs if seen == positions] == [1, 2, 3, 4, 5]
        at = max(i for i, (_, seen) in enumerate(diary.epochs) if seen == positions)
        for position, scores in zip(positions, diary.scores[at], strict=True):
            torch.testing.assert_close(scores, classifiers[position].scores(train.x), rtol=1e-4, atol=1e-4)


def test_a_last_batch_of_one_row_and_fewer_rows_than_neighbours() -> None:
    train, _ = blobs(n=41)
    (classifier,) = fitted(method(epochs=1), Run(train, seed=0))
    assert classifier.scores(train.x).isfinite().all()
    tiny, _ = blobs(n=3)
    (classifier,) = fitted(method(epochs=1), Run(tiny, seed=0))
    assert classifier.scores(tiny.x).isfinite().all()


def test_a_ready_network_is_the_start_of_both() -> None:
    train, _ = blobs()
    ready = Linear((5,), 3)
    (classifier,) = fitted(method(epochs=1, net=ready, warm_up=0), Run(train, seed=0))
    assert classifier.net is not ready
    assert not torch.equal(classifier.scores(train.x), ready(train.x))


def test_settings_are_the_authors() -> None:
    table = {
        name: (recipe.learning_rate, recipe.weight_decay, recipe.batch_size, s.beta, s.gamma, s.correct)
        for name, (s, recipe) in VALEN_SETTINGS.items()
    }
    assert table == {
        "uniform": (1e-2, 1e-4, 256, 0.1, 10, 1),
        "instance": (1e-2, 1e-4, 256, 0.1, 5, 1),
        "instance_kmnist": (1e-2, 1e-4, 256, 0.1, 5, 1),
        "cifar_uniform": (5e-2, 1e-3, 256, 0.1, 10, 1),
        "cifar_instance": (5e-2, 1e-3, 256, 0.1, 10, 0.2),
        "real": (1e-2, 1e-4, 100, 0.01, 20, 1),
        "real_large": (1e-2, 1e-4, 256, 0.01, 20, 0.2),
    }
    for name, (setting, recipe) in VALEN_SETTINGS.items():
        assert (recipe.epochs, recipe.momentum, recipe.optimizer) == (500, 0.9, "sgd")
        assert (setting.warm_up, setting.neighbours, setting.alpha, setting.theta) == (10, 3, 1, 1)
        assert setting.reconstruction == (1.0 if name == "real" else 0.01)
        assert setting.graph_on == ("inputs" if name.startswith("real") else "features")
        assert (setting.optimizer, setting.full_batch) == (
            ("adam", True) if name == "real_large" else (None, False)
        )
        warmed = name in ("instance_kmnist", "cifar_instance")
        assert setting.encoder_from == ("warmed" if warmed else "untrained")


def test_what_it_cannot_train_with() -> None:
    train, _ = blobs()
    with pytest.raises(ValueError, match="net: missing"):
        VALEN().fit([Run(train, seed=0)])
    without_features = method(epochs=1, net=lambda in_shape, n_classes: torch.nn.Linear(5, n_classes))
    with pytest.raises(ValueError, match="neither embedding"):
        without_features.fit([Run(train, seed=0)])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"encoder_from": "copy"}, "encoder_from"),
        ({"graph_on": "x"}, "graph_on"),
        ({"optimizer": "lion"}, "optimizer"),
        ({"warm_up": -1}, "warm_up: got -1"),
        ({"neighbours": 0}, "neighbours: got 0"),
    ],
)
def test_fields_are_checked(fields: dict[str, Any], message: str) -> None:
    # With checked annotations, an unknown choice fails before our own check.
    with pytest.raises((ValueError, TypeCheckError), match=message):
        VALEN(**fields)


def test_training_arguments_are_no_hyperparameters() -> None:
    three_epochs = setup(epochs=3)
    trained = VALEN(gamma=5.0).with_training(three_epochs)
    assert trained.hyperparameters() == VALEN(gamma=5.0).hyperparameters()
    assert not trained.hyperparameters().keys() & {"net", "recipe", "checkpoint", "fast", "stack"}
    assert trained.passes(three_epochs.recipe) == 10 + 3
    assert trained.with_training(setup()) == VALEN(gamma=5.0).with_training(setup())


class Interrupted(Exception):
    """Stands for a kill."""


class Interrupting(History):
    """A history that ends the training after an epoch, and notes where it began."""

    def __init__(self, x: Tensor, truth: Tensor, last: int | None = None) -> None:
        super().__init__(x, truth)
        self.last, self.begun = last, []

    def begin(self, epochs: int, runs: Sequence[int], done: int) -> None:
        super().begin(epochs, runs, done)
        self.begun.append((epochs, done))

    def epoch(self, epoch: int, *rest: Any) -> None:
        super().epoch(epoch, *rest)
        if epoch == self.last:
            raise Interrupted


@pytest.mark.parametrize("graph_on", ["inputs", "features"])
def test_interrupted_and_resumed_equals_uninterrupted(tmp_path: Path, graph_on: Any) -> None:
    g = torch.Generator().manual_seed(0)
    candidates = torch.rand(40, 3, generator=g) < 0.5
    candidates[:, 1] = True
    train = PartialDataset(torch.randn(40, 4, generator=g), candidates)
    runs, truth = [Run(train, 3), Run(train, 4)], candidates.int().argmax(1)
    method, setup = (
        VALEN(warm_up=3, graph_on=graph_on),
        TrainingSetup(Linear, Recipe(epochs=5, batch_size=10)),
    )
    whole = Interrupting(train.x, truth)
    expected = method.with_training(setup).fit(runs, monitor=whole)
    setup = dataclasses.replace(setup, checkpoint=Checkpoint(tmp_path, seconds=0))
    kept = method.with_training(setup)
    # A kill comes before the epoch that it comes in is saved.
    for last, begun in ((2, (8, 0)), (3, (8, 1)), (5, (8, 2)), (7, (8, 4)), (None, (8, 6)), (None, (8, 8))):
        watching = Interrupting(train.x, truth, last)
        if last is None:
            fitted = kept.fit(runs, monitor=watching)
            assert [watching.accuracies(i) for i in range(2)] == [whole.accuracies(i) for i in range(2)]
            for one, other in zip(fitted, expected, strict=True):
                assert_equal_tensors(one.net.state_dict(), other.net.state_dict())
                assert_equal_tensors(one.state.rows, other.state.rows)
        else:
            with pytest.raises(Interrupted):
                kept.fit(runs, monitor=watching)
        assert watching.begun == [begun]
    # Another start of the phase is another training.
    other = dataclasses.replace(method, encoder_from="warmed").with_training(setup)
    other.fit(runs, monitor=(watching := Interrupting(train.x, truth)))
    assert watching.begun == [(8, 3)]  # the warm-up is the same


def assert_equal_tensors(tensors: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert tensors.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensors[name], tensor), name

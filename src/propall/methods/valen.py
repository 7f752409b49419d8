"""VALEN (Xu et al.): the latent label distribution of each instance, inferred by a variational encoder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from propall import counter_rng
from propall.methods._autoencoder import Twins, TwinsOf, decode, graph_reconstruction, new_decoder
from propall.methods._dirichlet import dirichlet_divergence, dirichlet_parameters, dirichlet_sample
from propall.methods._neighbors import nearest
from propall.methods._own_training import MethodInSetup, OwnTraining
from propall.methods.proden import PRODEN, proden_loss
from propall.numerics import full_precision, restricted_softmax, uniform_weights
from propall.registry import check_integers
from propall.training import compiled
from propall.training.contract import (
    Algorithm,
    Classifier,
    Monitor,
    Objective,
    Run,
    RunScores,
    State,
    Step,
    TrainingSetup,
    weighted_mean,
)
from propall.training.networks import SCORING_CHUNK, NetClassifier, build, starting_weights
from propall.training.recipe import Recipe
from propall.training.stack import Stack
from propall.training.trainer import Progress, fit_in_stacks, train_stack

#: Added to probabilities inside logarithms.
LOG_FLOOR = 1e-12
#: Factor of the reconstruction of the candidates.
CANDIDATE_RECONSTRUCTION = 0.01


def weights_from_sample(
    sample: Float[Tensor, "*b k"], weights: Float[Tensor, "*b k"], correct: float | Tensor = 1.0
) -> Float[Tensor, "*b k"]:
    r"""Next targets of the classifier: the sample on the support of the encoder's targets, mixed with them.

    .. math:: d \leftarrow c \, \frac{z_j [o_j > 0]}{\sum_{i : o_i > 0} z_i} + (1 - c) \, o_j

    Args:
        sample: label distribution z.
        weights: targets o of the encoder before the step.
        correct: share c of the sample.

    References:
        [xu2021instance].
    """
    kept = sample * (weights > 0)
    return correct * (kept / kept.sum(-1, keepdim=True)) + (1 - correct) * weights


def weights_from_classifier(
    logits: Float[Tensor, "*b k"], sampled: Float[Tensor, "*b k"]
) -> Float[Tensor, "*b k"]:
    """Next targets of the encoder: the classifier's softmax on the support of the classifier's targets.

    Args:
        logits: outputs of the classifier.
        sampled: targets d of the classifier before the step.

    References:
        [xu2021instance].
    """
    return restricted_softmax(logits, sampled > 0)


@dataclass(frozen=True)
class VariationalPhase(Objective):
    """VALEN after its warm-up, as an objective on the outputs of `Twins`.

    The state of a row holds the encoder's targets o (`weights`), the classifier's targets d (`sampled`), its
    `index` in the training set and its `neighbours`. The decoder is trained together with the networks.

    Attributes:
        width: number of input features d.
        neighbours: number of neighbors of each row in the graph.
        alpha: factor of the three reconstruction terms.
        beta: factor of the divergence from the uniform Dirichlet distribution.
        gamma: factor of the encoder's cross-entropy.
        theta: factor of the classifier's cross-entropy.
        correct: share of the sample in the classifier's targets.
        reconstruction: factor of the input's reconstruction, within alpha's.
    """

    width: int
    neighbours: int = 3
    alpha: float = 1.0
    beta: float = 0.1
    gamma: float = 10.0
    theta: float = 1.0
    correct: float = 1.0
    reconstruction: float = 0.01

    name, title, reference = "valen_phase", "VALEN", "xu2021instance"
    needs_noise = True

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """Uniform targets and no links, to be replaced by the results of the warm-up."""
        n, device = candidates.shape[0], candidates.device
        index = torch.arange(n, device=device)
        uniform = uniform_weights(candidates)
        decoder = new_decoder(candidates.shape[1], self.width)
        return State(
            rows={
                "weights": uniform,
                "sampled": uniform.clone(),
                "index": index,
                "neighbours": index.unsqueeze(-1).repeat(1, self.neighbours),
            },
            trained={name: tensor.to(device) for name, tensor in decoder.items()},
        )

    def _sample(self, outputs: Tensor, k: int, state: State, step: Step) -> Float[Tensor, "b k"]:
        assert step.uniform is not None
        parameters = dirichlet_parameters(outputs[:, k : 2 * k], state.rows["weights"] > 0)
        return dirichlet_sample(parameters, step.uniform.to(parameters.dtype))

    def loss(
        self, logits: Float[Tensor, "b m"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> Float[Tensor, ""]:
        r"""Weighted sum of three reconstructions, the divergence and two cross-entropies.

        .. math:: \alpha \bigl(c_x \lVert D(z) - x \rVert^2 / d + 0.01\,\mathrm{BCE}(z, S) + L_A\bigr)
            + \beta\,\mathrm{KL} - \gamma \sum_j o_j \log p^g_j - \theta \sum_j d_j \log p^f_j

        averaged over the batch, with z sampled from the encoder's Dirichlet distribution, L_A the
        `graph_reconstruction`, and 1e-12 added inside the logarithms. The binary cross-entropy takes the
        sampled distribution itself as its logits.

        References:
            [xu2021instance].
        """
        logits, k = full_precision(logits), candidates.shape[-1]
        classified, encoded, x = logits.tensor_split((k, 2 * k), dim=-1)
        rows = state.rows
        z = self._sample(logits, k, state, step)
        input_error = (decode(z, state.trained) - x).square().mean(-1)
        candidate_error = (softplus(z) - z * candidates).mean(-1)
        per_row = (
            self.alpha * (self.reconstruction * input_error + CANDIDATE_RECONSTRUCTION * candidate_error)
            + self.beta * dirichlet_divergence(encoded)
            + self.gamma * proden_loss(encoded, rows["weights"], LOG_FLOOR)
            + self.theta * proden_loss(classified, rows["sampled"], LOG_FLOOR)
        )
        graph_error = graph_reconstruction(z, rows["index"], rows["neighbours"], step.weight)
        return weighted_mean(per_row, step.weight) + self.alpha * graph_error

    def update(
        self, logits: Float[Tensor, "b m"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> State:
        """Both targets from the outputs before the step, each on the old support of the other."""
        logits, k = full_precision(logits), candidates.shape[-1]
        weights, sampled = state.rows["weights"], state.rows["sampled"]
        z = self._sample(logits, k, state, step)
        return state.with_rows(
            weights=weights_from_classifier(logits[:, :k], sampled),
            sampled=weights_from_sample(z, weights, self.correct),
        )


@dataclass(frozen=True)
class VALEN(OwnTraining):
    """Variational label enhancement: a warm-up with PRODEN, a neighbor graph, then a variational phase.

    1. The classifier is trained like PRODEN for `warm_up` epochs. Both kinds of targets start from its label
       weights.
    2. The nearest neighbors of each instance, by the classifier's embedding or by the inputs, form the graph.
    3. Classifier, encoder and decoder are trained jointly for the recipe's epochs; see `VariationalPhase`.

    The classifier predicts, in evaluation mode. `VALEN_SETTINGS` has the authors' values.

    Attributes:
        warm_up: epochs of the first phase, in addition to the recipe's.
        neighbours: number of neighbors of each instance in the graph.
        alpha: factor of the three reconstruction terms.
        beta: factor of the divergence from the uniform Dirichlet distribution.
        gamma: factor of the encoder's cross-entropy.
        theta: factor of the classifier's cross-entropy.
        correct: share of the sample in the classifier's targets; the rest are the encoder's.
        reconstruction: factor of the input's reconstruction, within alpha's.
        encoder_from: the encoder starts as a copy of the "untrained" or the "warmed" (up) classifier.
        graph_on: neighbors by "features" of the classifier after the warm-up, or by "inputs".
        optimizer: optimizer of the third phase; None: the recipe's.
        full_batch: take one step with all instances per epoch in the third phase.

    Notes:
        The authors' conference code evaluates with batch statistics of the test set, which also enter the
        running statistics; here, evaluation uses evaluation mode. It also stores the graph as an n x n
        matrix; here it is a list of neighbors.
    """

    warm_up: int = 10
    neighbours: int = 3
    alpha: float = 1.0
    beta: float = 0.1
    gamma: float = 10.0
    theta: float = 1.0
    correct: float = 1.0
    reconstruction: float = 0.01
    encoder_from: Literal["untrained", "warmed"] = "untrained"
    graph_on: Literal["features", "inputs"] = "features"
    optimizer: Literal["sgd", "adam"] | None = None
    full_batch: bool = False

    name, title, reference = "valen", "VALEN", "xu2021instance"
    assumes = "wrong labels resemble the row (instance-dependent sets); similar rows have similar labels"
    use_when = (
        "If wrong candidates resemble the row and a fit may take three networks. PRODEN "
        "is close at less than half the cost."
    )
    memory = "2k weights, neighbor lists"
    cost = "2 forward + backward, decoder"
    kind = "partial labels"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, warm_up=0, neighbours=1)

    def passes(self, recipe: Recipe) -> int:
        """Epochs of the warm-up and of the variational phase."""
        return self.warm_up + recipe.epochs

    def shortened(self) -> "VALEN":
        """A copy with at most one epoch of warm-up."""
        return replace(self, warm_up=min(1, self.warm_up))

    def with_training(self, setup: TrainingSetup) -> Algorithm:
        """The three phases in this setup; the recipe's epochs are those of the third."""
        return _VALENTraining(self, setup)

    def scoring_objective(self) -> Objective:
        """The objective of the warm-up."""
        return PRODEN(log_floor=LOG_FLOOR)


@dataclass(frozen=True)
class _VALENTraining(MethodInSetup[VALEN]):
    """VALEN in a training setup."""

    name, title, reference = "valen_training", "VALEN", "xu2021instance"

    def fit(self, runs: Sequence[Run], *, monitor: Monitor | None = None) -> list[Classifier]:
        """Train all runs, those of equal shape together."""

        def fit_stack(positions: list[int]) -> dict[int, Classifier]:
            stacked = [replace(runs[i], objective=None) for i in positions]
            return dict(
                zip(positions, self._fit_stack(stacked, positions, monitor or Monitor()), strict=True)
            )

        def limit(run: Run, count: int) -> int:
            return self.setup.stack or compiled.stack_limit(
                TwinsOf(self.setup.net), self._phase_recipe(len(run.train)), run, count
            )

        return fit_in_stacks(runs, limit, fit_stack)

    def _fit_stack(self, runs: list[Run], positions: list[int], monitor: Monitor) -> list[NetClassifier]:
        method, setup, stack = self.method, self.setup, self._phase_stack(runs)
        # The fingerprint of the stack does not cover the first two phases.
        begun = f"{setup.recipe} {method.warm_up} {method.encoder_from} {method.graph_on}"
        weights = starting_weights(setup.net)
        progress = Progress(
            setup.checkpoint, lambda: counter_rng.digest(stack.fingerprint(), begun, *weights)
        )
        epochs = method.passes(setup.recipe)
        if progress.saved is not None:
            progress.load(stack, monitor)
            monitor.begin(epochs, positions, method.warm_up + progress.done)
        else:
            warmed = self._warm_up(runs, _WarmUpMonitor(monitor, positions, epochs))
            for position, (run, classifier) in enumerate(zip(runs, warmed, strict=True)):
                self._start(stack, position, run, classifier)
        fitted = train_stack(
            stack, positions, monitor, fast=setup.fast, progress=progress, epochs_before=method.warm_up
        )
        return [self._finished(classifier) for classifier in fitted]

    def _phase_recipe(self, n: int) -> Recipe:
        """Recipe of the third phase on n rows."""
        method = self.method
        return replace(
            self.setup.recipe,
            optimizer=method.optimizer or self.setup.recipe.optimizer,
            batch_size=n if method.full_batch else self.setup.recipe.batch_size,
        )

    def _phase_stack(self, runs: list[Run]) -> Stack:
        method, train = self.method, runs[0].train
        phase = VariationalPhase(
            width=prod(train.in_shape),
            neighbours=min(method.neighbours, len(train) - 1),
            alpha=method.alpha,
            beta=method.beta,
            gamma=method.gamma,
            theta=method.theta,
            correct=method.correct,
            reconstruction=method.reconstruction,
        )
        # New seeds, so that the rows do not come in the order of the warm-up again.
        seeds = [counter_rng.seed_for(run.seed, "variational phase") for run in runs]
        reseeded = [replace(run, seed=seed) for run, seed in zip(runs, seeds, strict=True)]
        return Stack(reseeded, phase, TwinsOf(self.setup.net), self._phase_recipe(len(train)))

    def _warm_up(self, runs: list[Run], monitor: Monitor) -> list[NetClassifier]:
        """The classifiers after the first phase, with their label weights."""
        recipe = replace(self.setup.recipe, epochs=self.method.warm_up)
        trainer = self.scoring_objective().with_training(replace(self.setup, recipe=recipe))
        return cast(list[NetClassifier], trainer.fit(runs, monitor=monitor))

    @torch.no_grad()
    def _start(self, stack: Stack, position: int, run: Run, warmed: NetClassifier) -> None:
        """Write the result of a run's warm-up, and a new decoder, into the stack."""
        # The seed gives the network that the warm-up started from.
        encoder = warmed.net if self.method.encoder_from == "warmed" else build(self.setup.net, run)
        for part, net in (("classifier", warmed.net), ("encoder", encoder)):
            for name, parameter in net.named_parameters(prefix=part):
                stack.parameters[name][position].copy_(parameter)
            for name, buffer in net.named_buffers(prefix=part):
                stack.buffers[name][position].copy_(buffer)
        (state,) = stack.states
        for name in ("weights", "sampled"):
            state.rows[name][position].copy_(warmed.state.rows["weights"])
        k = state.rows["neighbours"].shape[-1]
        if k > 0:
            space = self._graph_space(warmed.net, run.train.x)
            state.rows["neighbours"][position].copy_(nearest(space, space, k, exclude_self=True)[0])
        seed = counter_rng.seed_for(run.seed, "decoder")
        for name, tensor in new_decoder(run.train.n_classes, prod(run.train.in_shape), seed).items():
            state.trained[name][position].copy_(tensor)

    def _graph_space(self, net: nn.Module, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """The vectors whose distances define the graph."""
        if self.method.graph_on == "inputs":
            return x.flatten(1)
        embed = getattr(net, "embedding", None) or getattr(net, "features", None)
        if embed is None:
            raise ValueError(
                f"net: {type(net).__name__} has neither embedding(x) nor features(x), which the neighbor "
                "graph is built on. Add one of them, or set graph_on='inputs'."
            )
        net.eval()
        return torch.cat([embed(part).flatten(1) for part in x.split(SCORING_CHUNK)])

    def _finished(self, twins: NetClassifier) -> NetClassifier:
        """The classifier of the two networks, with its final targets."""
        assert isinstance(twins.net, Twins)
        rows = {name: twins.state.rows[name] for name in ("weights", "sampled")}
        return NetClassifier(twins.net.classifier, self.method.scoring_objective(), State(rows=rows))


class _WarmUpMonitor(Monitor):
    """Reports the epochs of the warm-up as the first epochs of the whole training."""

    def __init__(self, monitor: Monitor, positions: Sequence[int], epochs: int) -> None:
        self.monitor, self.positions, self.epochs = monitor, positions, epochs
        self.state, self.restore = monitor.state, monitor.restore  # type: ignore[method-assign]

    def begin(self, epochs: int, runs: Sequence[int], done: int) -> None:
        """Announce the whole training."""
        self.monitor.begin(self.epochs, [self.positions[i] for i in runs], done)

    def epoch(self, epoch: int, runs: Sequence[int], losses: Float[Tensor, "r"], scores: RunScores) -> None:
        """Report an epoch under the runs' outer positions."""
        self.monitor.epoch(epoch, [self.positions[i] for i in runs], losses, scores)


_BENCHMARK = Recipe(epochs=500, batch_size=256, learning_rate=1e-2, weight_decay=1e-4, last_batch="keep")
_CIFAR = replace(_BENCHMARK, learning_rate=5e-2, weight_decay=1e-3)

#: The authors' values by experiment, the method with its recipe; the network depends on the data.
#:
#: ================== =============================================================
#: uniform            MNIST, KMNIST, Fashion-MNIST with uniform candidates
#: instance           MNIST, Fashion-MNIST with instance-dependent candidates
#: instance_kmnist    the same on KMNIST, with the encoder copied after the warm-up
#: cifar_uniform      CIFAR-10 with uniform candidates
#: cifar_instance     CIFAR-10 with instance-dependent candidates
#: real               Lost, MSRCv2, BirdSong
#: real_large         Soccer Player, Yahoo! News: third phase with Adam, full batch
#: ================== =============================================================
VALEN_SETTINGS: Mapping[str, tuple[VALEN, Recipe]] = {
    "uniform": (VALEN(), _BENCHMARK),
    "instance": (VALEN(gamma=5.0), _BENCHMARK),
    "instance_kmnist": (VALEN(gamma=5.0, encoder_from="warmed"), _BENCHMARK),
    "cifar_uniform": (VALEN(), _CIFAR),
    "cifar_instance": (VALEN(correct=0.2, encoder_from="warmed"), _CIFAR),
    "real": (
        VALEN(beta=0.01, gamma=20.0, reconstruction=1.0, graph_on="inputs"),
        replace(_BENCHMARK, batch_size=100),
    ),
    "real_large": (
        VALEN(beta=0.01, gamma=20.0, correct=0.2, graph_on="inputs", optimizer="adam", full_batch=True),
        _BENCHMARK,
    ),
}

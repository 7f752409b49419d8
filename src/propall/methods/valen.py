"""VALEN (Xu et al.): the latent label distribution of each instance, inferred by a variational encoder."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import log, pi, prod
from pathlib import Path
from typing import Any, Literal, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import linear, softplus

from propall import counter_rng, kernels
from propall.methods._neighbors import nearest
from propall.methods.proden import PRODEN, proden_loss
from propall.numerics import full_precision, restricted_softmax, uniform_weights
from propall.registry import check_integers
from propall.training import compiled
from propall.training.checkpoint import Checkpoint
from propall.training.contract import (
    Algorithm,
    Classifier,
    Monitor,
    NetFactory,
    Objective,
    Run,
    State,
    Step,
    TrainingSetup,
    total_weight,
    weighted_mean,
)
from propall.training.networks import SCORING_CHUNK, NetClassifier, build, starting_weights
from propall.training.recipe import Recipe
from propall.training.stack import Stack
from propall.training.trainer import Progress, Trainer, fit_in_stacks, train_stack

#: Added to probabilities inside logarithms.
LOG_FLOOR = 1e-12
#: Added to every parameter of the Dirichlet distribution that is sampled.
SAMPLE_FLOOR = 0.01
#: Range of the Dirichlet parameters in the divergence.
PARAMETER_RANGE = (0.01, 30.0)
#: Factor of the candidates' reconstruction.
CANDIDATE_RECONSTRUCTION = 0.01
#: Proposals per Gamma draw. Each is refused with probability below 0.05, all of them with 2e-8.
PROPOSALS = 6
#: Random numbers that are drawn at once.
DRAWS_AT_ONCE = 1 << 23
#: What a sampled share is kept above: an underflow to 0 would take the label away for good.
LEAST_SHARE = 1e-30
#: Rows of the batch's graph that are compared at once.
GRAPH_ROWS = 1024


# --- the Dirichlet distribution -----------------------------------------------------------------------------


def dirichlet_parameters(
    encoded: Float[Tensor, "*b k"], support: Bool[Tensor, "*b k"], floor: float | Tensor = SAMPLE_FLOOR
) -> Float[Tensor, "*b k"]:
    r"""Parameters of the distribution that label distributions are sampled from.

    .. math:: \pi_j = [j \in T] \frac{p_j}{\sum_{i \in T} p_i} + 0.01

    with p = softmax(a). The divisor takes part in the value, not in the gradient.

    Args:
        encoded: outputs a of the encoder.
        support: True on T, the labels with a positive weight.
        floor: added to every class.

    References:
        [xu2021instance].
    """
    encoded = full_precision(encoded)
    value = restricted_softmax(encoded, support).detach()
    # exp(log p - log p) is 1 with the gradient of log p: the quotient's, without ever dividing.
    log_p = encoded.log_softmax(-1)
    return value * (log_p - log_p.detach()).exp() + floor


def dirichlet_divergence(encoded: Float[Tensor, "*b k"]) -> Float[Tensor, "*b"]:
    r"""Kullback-Leibler divergence of the encoder's Dirichlet distribution from the flat one.

    .. math:: \mathrm{KL} = \ln\Gamma(\alpha_0) - \sum_j \ln\Gamma(\alpha_j) - \ln\Gamma(k)
        + \sum_j (\alpha_j - 1) (\psi(\alpha_j) - \psi(\alpha_0))

    with alpha = exp(a / 4), kept within [0.01, 30], and alpha_0 its sum. There is no gradient outside.

    Args:
        encoded: outputs a of the encoder.

    References:
        [xu2021instance].
    """
    encoded = full_precision(encoded)
    # The range is applied before the exponential: a large a would give inf, and inf * 0 is no gradient.
    least, most = (4 * log(limit) for limit in PARAMETER_RANGE)
    alpha = (encoded.clamp(least, most) / 4).exp()
    total, k = alpha.sum(-1), torch.full((), float(alpha.shape[-1]), dtype=alpha.dtype, device=alpha.device)
    normaliser = total.lgamma() - alpha.lgamma().sum(-1) - k.lgamma()
    return normaliser + ((alpha - 1) * (alpha.digamma() - total.unsqueeze(-1).digamma())).sum(-1)


# One operator: its integer arithmetic would keep a compiler busy for half a minute, and torch's function for
# the slope neither stacks nor traces by itself.
@torch.library.custom_op(
    "propall::log_gamma_draw", mutates_args=(), schema="(Tensor shape, Tensor seed) -> (Tensor, Tensor)"
)
def log_gamma_draw(
    shape: Float[Tensor, "..."], seed: Int[Tensor, "..."]
) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
    """Logarithms of draws from Gamma distributions, and their derivatives by the shape parameters.

    A draw of shape a is one of shape a + 1 times the power 1/a of a uniform draw. The former comes from the
    rejection method of Marsaglia and Tsang (2000) with a fixed number of proposals (where all are refused it
    is the distribution's centre, a + 2/3) and moves with a so that it stays at its quantile. As logarithms,
    since with a = 0.01 four draws in ten are too small for float32.

    Args:
        shape: parameters a, positive.
        seed: whole numbers below 2^62 that decide the counter_rng.
    """
    if kernels.available(shape):
        from propall.kernels.gamma import gamma_draw

        above_one, power = gamma_draw(shape, seed, PROPOSALS)
    else:
        at_once = max(1, DRAWS_AT_ONCE // (3 * PROPOSALS))
        parts = zip(shape.flatten().split(at_once), seed.flatten().split(at_once), strict=True)
        drawn = zip(*(_gamma_draw(a, s) for a, s in parts), strict=True)
        above_one, power = (torch.cat(part).view(shape.shape) for part in drawn)
    slope = torch._standard_gamma_grad(shape + 1, above_one) / above_one - power / shape
    return above_one.log() + power, slope


def _gamma_draw(
    a: Float[Tensor, "n"], seed: Int[Tensor, "n"]
) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
    """Draws of shape a + 1, and the logarithms of uniform draws divided by a; `kernels.gamma` in torch."""
    proposals = torch.arange(PROPOSALS, device=seed.device)
    parts = torch.arange(3, device=seed.device)[:, None]
    d = (a + 2 / 3)[:, None]
    radius, angle, accept = counter_rng.uniform(seed[:, None, None], parts, proposals, dtype=a.dtype).unbind(
        1
    )
    normal = (-2 * radius.log()).sqrt() * (2 * pi * angle).cos()
    v = (1 + normal / (9 * d).sqrt()) ** 3
    bound = normal.square() / 2 + d * (1 - v + v.clamp(min=torch.finfo(v.dtype).tiny).log())
    good = (v > 0) & (accept.log() < bound)
    first = v.gather(1, good.int().argmax(1, keepdim=True)).where(good.any(1, keepdim=True), 1.0)
    return (d * first)[:, 0], counter_rng.uniform(seed, 3, PROPOSALS, dtype=a.dtype).log() / a


@log_gamma_draw.register_fake
def _(shape: Tensor, seed: Tensor) -> tuple[Tensor, Tensor]:
    value = shape.new_empty(shape.shape)
    return value, torch.empty_like(value)


@log_gamma_draw.register_vmap
def _(
    info: object, in_dims: tuple[int | None, ...], shape: Tensor, seed: Tensor
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    # An element's draw does not depend on the others, so a stack's draws are draws of more elements.
    pairs = zip((shape, seed), in_dims, strict=True)
    parts = torch.broadcast_tensors(*(part if dim is None else part.movedim(dim, 0) for part, dim in pairs))
    return log_gamma_draw(*parts), (0, 0)


def dirichlet_sample(
    parameters: Float[Tensor, "*b k"], uniform: Float[Tensor, "*b k"]
) -> Float[Tensor, "*b k"]:
    """One draw per row, differentiable in the parameters and never 0: normalised Gamma counter_rng.

    Args:
        parameters: of the Dirichlet distributions, positive.
        uniform: draws on the open interval (0, 1) that decide the sample.
    """
    bits = (uniform * 2**23).long()
    fixed = parameters.detach()
    value, slope = log_gamma_draw(fixed, bits | (bits.roll(1, -1) << 23))
    sample: Tensor = (value + slope * (parameters - fixed)).softmax(-1)
    return sample.clamp(min=LEAST_SHARE)


# --- the neighbour graph ------------------------------------------------------------------------------------


def adjacency_rows(
    rows: Int[Tensor, "c"],
    neighbours: Int[Tensor, "c m"],
    columns: Int[Tensor, "b"],
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "c b"]:
    """Some rows of the graph's matrix: 1/(m + 1) at a row's own column and at each of its m neighbours'.

    Args:
        rows: indices of the rows in the training set.
        neighbours: their neighbours' indices in the training set.
        columns: indices of the columns in the training set; neighbours that are not among them have none.
        dtype: of the result.
    """
    near = (neighbours.unsqueeze(-1) == columns).any(-2) | (rows.unsqueeze(-1) == columns)
    return near.to(dtype) / (neighbours.shape[-1] + 1)


def graph_reconstruction(
    sample: Float[Tensor, "b k"],
    index: Int[Tensor, "b"],
    neighbours: Int[Tensor, "b m"],
    weight: Float[Tensor, "b"] | None = None,
    *,
    rows_at_once: int = GRAPH_ROWS,
) -> Float[Tensor, ""]:
    r"""Mean squared error of the graph that the sampled label distributions imply.

    .. math:: \frac{1}{b^2} \sum_{ij} \bigl(Q_{ij} - A_{ij}\bigr)^2, \qquad
        Q = \operatorname{rowsoftmax}\bigl(\sigma(z z^\top)\bigr)

    Values and gradient are computed together, some rows at a time, and neither Q nor A is ever held whole: a
    batch may be the whole training set.

    Args:
        sample: label distributions z of the batch.
        index: of the batch's rows in the training set.
        neighbours: of each row, as indices in the training set.
        weight: of each row.
        rows_at_once: rows of Q that are held at the same time.

    References:
        [xu2021instance].
    """
    z, b = sample.detach(), sample.shape[0]
    share = torch.full_like(z[:, 0], 1 / b) if weight is None else weight / total_weight(weight)
    value, own, others = torch.zeros_like(share.sum()), [], torch.zeros_like(z)
    for first in range(0, b, rows_at_once):
        rows = slice(first, first + rows_at_once)
        link = (z[rows] @ z.T).sigmoid()
        implied = link.softmax(-1)
        error = implied - adjacency_rows(index[rows], neighbours[rows], index, z.dtype)
        value = value + (share[rows] * error.square().mean(-1)).sum()
        slope = error * (2 / b * share[rows, None])
        slope = implied * (slope - (slope * implied).sum(-1, keepdim=True)) * link * (1 - link)
        own.append(slope @ z)
        others = others + slope.T @ z[rows]
    gradient = torch.cat(own) + others
    return value + (gradient * (sample - z)).sum()


# --- the two memories ---------------------------------------------------------------------------------------


def weights_from_sample(
    sample: Float[Tensor, "*b k"], weights: Float[Tensor, "*b k"], correct: float | Tensor = 1.0
) -> Float[Tensor, "*b k"]:
    r"""The classifier's next targets: the sample on the support of the encoder's targets, mixed with them.

    .. math:: d \leftarrow c \, \frac{z_j [o_j > 0]}{\sum_{i : o_i > 0} z_i} + (1 - c) \, o_j

    Args:
        sample: label distribution z.
        weights: the encoder's targets o, as they were before the step.
        correct: share c of the sample.

    References:
        [xu2021instance].
    """
    kept = sample * (weights > 0)
    return correct * (kept / kept.sum(-1, keepdim=True)) + (1 - correct) * weights


def weights_from_classifier(
    logits: Float[Tensor, "*b k"], sampled: Float[Tensor, "*b k"]
) -> Float[Tensor, "*b k"]:
    """The encoder's next targets: the classifier's softmax on the support of its own old targets.

    Args:
        logits: outputs of the classifier.
        sampled: the classifier's targets d, as they were before the step.

    References:
        [xu2021instance].
    """
    return restricted_softmax(logits, sampled > 0)


# --- the variational phase ----------------------------------------------------------------------------------


class Twins(nn.Module):
    """Classifier and encoder, two networks of one architecture.

    In training the output is (b, 2k + d): the classifier's logits, the encoder's, and the flat input, which
    the decoder has to give back. In evaluation it is the classifier's logits alone.
    """

    def __init__(self, classifier: nn.Module, encoder: nn.Module) -> None:
        super().__init__()
        self.classifier, self.encoder = classifier, encoder

    def forward(self, x: Float[Tensor, "b ..."]) -> Float[Tensor, "b m"]:
        """See the class."""
        if not self.training:
            scores: Tensor = self.classifier(x)
            return scores
        return torch.cat([self.classifier(x), self.encoder(x), x.flatten(1)], -1)


@dataclass(frozen=True)
class TwinsOf:
    """Builds two networks of one shape; `VALEN` fills in their weights. Equal for equal networks."""

    net: NetFactory | nn.Module

    def __call__(self, in_shape: tuple[int, ...], n_classes: int) -> Twins:
        """Both of them."""
        net = copy.deepcopy(self.net) if isinstance(self.net, nn.Module) else self.net(in_shape, n_classes)
        return Twins(net, copy.deepcopy(net))


def new_decoder(n_classes: int, width: int, seed: int = 0) -> dict[str, Tensor]:
    """A decoder k - d - d before training: Xavier-normal weights, biases 0.01."""
    generator = torch.Generator().manual_seed(seed)
    return {
        "first_weight": nn.init.xavier_normal_(torch.empty(width, n_classes), generator=generator),
        "first_bias": torch.full((width,), 0.01),
        "second_weight": nn.init.xavier_normal_(torch.empty(width, width), generator=generator),
        "second_bias": torch.full((width,), 0.01),
    }


def decode(sample: Float[Tensor, "b k"], decoder: Mapping[str, Tensor]) -> Float[Tensor, "b d"]:
    """The input that a label distribution suggests."""
    hidden = linear(sample, decoder["first_weight"], decoder["first_bias"]).relu()
    return linear(hidden, decoder["second_weight"], decoder["second_bias"])


@dataclass(frozen=True)
class VariationalPhase(Objective):
    """VALEN after its warm-up, as an objective on the outputs of `Twins`; `VALEN` runs it.

    Rows remember the encoder's targets o (`weights`), the classifier's targets d (`sampled`), their `index`
    in the training set and their `neighbours`. The decoder is trained together with the networks.

    Attributes:
        width: number of input features d.
        neighbours: of each row in the graph.
        alpha: factor of the three reconstruction terms.
        beta: factor of the divergence from the flat Dirichlet distribution.
        gamma: factor of the encoder's cross-entropy.
        theta: factor of the classifier's cross-entropy.
        correct: share of the sample in the classifier's targets.
        reconstruction: factor of the input's reconstruction within alpha's.
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
        """Equal targets and no links, until the warm-up's results are put in their place."""
        n, device = candidates.shape[0], candidates.device
        index = torch.arange(n, device=device)
        equal = uniform_weights(candidates)
        decoder = new_decoder(candidates.shape[1], self.width)
        return State(
            rows={
                "weights": equal,
                "sampled": equal.clone(),
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
        r"""The three reconstructions, the divergence and the two cross-entropies, weighted.

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
        """Both memories from the outputs before the step, each on the support of the other as it was."""
        logits, k = full_precision(logits), candidates.shape[-1]
        weights, sampled = state.rows["weights"], state.rows["sampled"]
        z = self._sample(logits, k, state, step)
        return state.with_rows(
            weights=weights_from_classifier(logits[:, :k], sampled),
            sampled=weights_from_sample(z, weights, self.correct),
        )


# --- the method ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class VALEN(Algorithm):
    """Variational label enhancement: PRODEN as a warm-up, a neighbour graph, then the variational phase.

    1. The classifier is trained as PRODEN does for `warm_up` epochs. Its label weights become both memories.
    2. Each instance's nearest neighbours, by the classifier's embedding or by the inputs, become the graph.
    3. Classifier, encoder and decoder are trained together for the recipe's epochs; see `VariationalPhase`.

    Prediction is the classifier's, in evaluation mode. `VALEN_SETTINGS` has the authors' values.

    Attributes:
        warm_up: epochs of the first phase, which come on top of the recipe's.
        neighbours: of each instance in the graph.
        alpha: factor of the three reconstruction terms.
        beta: factor of the divergence from the flat Dirichlet distribution.
        gamma: factor of the encoder's cross-entropy.
        theta: factor of the classifier's cross-entropy.
        correct: share of the sample in the classifier's targets; the rest are the encoder's.
        reconstruction: factor of the input's reconstruction within alpha's.
        encoder_from: the encoder starts as a copy of the "untrained" classifier or of the "warmed" one.
        graph_on: neighbours by "features" of the warmed classifier or by "inputs".
        optimizer: of the third phase; None for the recipe's.
        full_batch: one step with all instances per epoch in the third phase.
        net: builds the classifier, as in `Trainer`.
        recipe: epochs of the third phase; batches, optimiser and rates of the first and the third.
        fast: compile and capture the steps, as in `Trainer`.
        stack: how many runs to train at once at most, as in `Trainer`.
        checkpoint: where to save progress, as in `Trainer`.

    Notes:
        The authors' conference code evaluates with batch statistics of the test set and lets it into the
        running ones; here evaluation is in evaluation mode. It also holds the graph as an n x n matrix; here
        it stays a list of neighbours.
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
    net: NetFactory | nn.Module | None = None
    recipe: Recipe | None = None
    fast: bool | None = None
    stack: int | None = None
    checkpoint: Checkpoint | Path | None = None

    name, title, reference = "valen", "VALEN", "xu2021instance"
    memory = "2k weights, neighbour lists"
    cost = "2 forward + backward, decoder"
    kind = "partial labels"
    trains_network = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, warm_up=0, neighbours=1)

    def hyperparameters(self) -> dict[str, Any]:
        """Hyper-parameters by name, without the training setup."""
        setup = {f.name for f in fields(TrainingSetup)}
        return {name: value for name, value in super().hyperparameters().items() if name not in setup}

    def passes(self, recipe: Recipe) -> int:
        """Epochs of the warm-up and of the variational phase."""
        return self.warm_up + recipe.epochs

    def shortened(self) -> "VALEN":
        """The same with a warm-up of one epoch."""
        return replace(self, warm_up=1)

    def with_training(self, setup: TrainingSetup) -> "VALEN":
        """The same method, trained in this setup; what the setup leaves open stays as it is."""
        return replace(
            self,
            net=setup.net,
            recipe=setup.recipe,
            checkpoint=setup.checkpoint or self.checkpoint,
            fast=self.fast if setup.fast is None else setup.fast,
            stack=setup.stack or self.stack,
        )

    def fit(self, runs: Sequence[Run], *, monitor: Monitor | None = None) -> list[Classifier]:
        """Train all runs; those of one shape together."""
        if self.net is None or self.recipe is None:
            missing = "net" if self.net is None else "recipe"
            raise ValueError(
                f"{missing}: None given; VALEN trains a network and needs both net and recipe. "
                "Use VALEN().with_training(TrainingSetup(net, recipe))."
            )
        net, watching = self.net, monitor or Monitor()

        def fit_stack(positions: list[int]) -> dict[int, Classifier]:
            together = [replace(runs[i], objective=None) for i in positions]
            return dict(zip(positions, self._train(together, positions, watching), strict=True))

        def limit(run: Run, count: int) -> int:
            return self.stack or compiled.stack_limit(TwinsOf(net), self._phase_recipe(run), run, count)

        return fit_in_stacks(runs, limit, fit_stack)

    def _train(self, runs: list[Run], positions: list[int], monitor: Monitor) -> list[Classifier]:
        assert self.net is not None
        train = runs[0].train
        phase = VariationalPhase(
            width=prod(train.in_shape),
            neighbours=min(self.neighbours, len(train) - 1),
            alpha=self.alpha,
            beta=self.beta,
            gamma=self.gamma,
            theta=self.theta,
            correct=self.correct,
            reconstruction=self.reconstruction,
        )
        recipe = self._phase_recipe(runs[0])
        # Its own seeds, so that the rows do not come in the warm-up's order again.
        seeds = [counter_rng.seed_for(run.seed, "variational phase") for run in runs]
        own_runs = [replace(run, seed=seed) for run, seed in zip(runs, seeds, strict=True)]
        stack = Stack(own_runs, phase, TwinsOf(self.net), recipe)
        # Of the first phase the stack knows nothing.
        begun = f"{self.recipe} {self.warm_up} {self.encoder_from} {self.graph_on}"
        weights = starting_weights(self.net)
        progress = Progress(self.checkpoint, lambda: counter_rng.digest(stack.fingerprint(), begun, *weights))
        epochs = self.warm_up + recipe.epochs
        if progress.saved is not None:
            progress.load(stack, monitor)
            monitor.begin(epochs, positions, self.warm_up + progress.done)
        else:
            warmed = self._warmed(runs, _WarmUpMonitor(monitor, positions, epochs))
            for position, (run, classifier) in enumerate(zip(runs, warmed, strict=True)):
                self._start(stack, position, run, classifier)
        fitted = train_stack(
            stack, positions, monitor, fast=self.fast, progress=progress, epochs_before=self.warm_up
        )
        return [self._finished(classifier) for classifier in fitted]

    def _warmed(self, runs: list[Run], monitor: Monitor) -> list[NetClassifier]:
        """The first phase: the classifiers, and the label weights they remember."""
        assert self.net is not None
        assert self.recipe is not None
        trainer = Trainer(
            self.objective(),
            self.net,
            replace(self.recipe, epochs=self.warm_up),
            checkpoint=self.checkpoint,
            fast=self.fast,
            stack=self.stack,
        )
        return cast(list[NetClassifier], trainer.fit(runs, monitor=monitor))

    def _phase_recipe(self, run: Run) -> Recipe:
        assert self.recipe is not None
        return replace(
            self.recipe,
            optimizer=self.optimizer or self.recipe.optimizer,
            batch_size=len(run.train) if self.full_batch else self.recipe.batch_size,
        )

    @torch.no_grad()
    def _start(self, stack: Stack, position: int, run: Run, warmed: NetClassifier) -> None:
        """Put what a run's warm-up gave, and a new decoder, into the run's place in the stack."""
        assert self.net is not None
        # The run's seed gives the very network that the warm-up started from.
        encoder = warmed.net if self.encoder_from == "warmed" else build(self.net, run)
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
        """Where instances are neighbours."""
        if self.graph_on == "inputs":
            return x.flatten(1)
        embed = getattr(net, "embedding", None) or getattr(net, "features", None)
        if embed is None:
            raise ValueError(
                f"net: {type(net).__name__} has neither embedding(x) nor features(x), on which the graph of "
                "neighbours is built. Give it one of them, or set graph_on='inputs'."
            )
        net.eval()
        return torch.cat([embed(part).flatten(1) for part in x.split(SCORING_CHUNK)])

    @staticmethod
    def objective() -> Objective:
        """Of the warm-up, and what decodes the outputs of the network that is left in the end."""
        return PRODEN(log_floor=LOG_FLOOR)

    def _finished(self, twins: NetClassifier) -> NetClassifier:
        """The classifier of the two networks, with the memories it ended with."""
        assert isinstance(twins.net, Twins)
        rows = {name: twins.state.rows[name] for name in ("weights", "sampled")}
        return NetClassifier(twins.net.classifier, self.objective(), State(rows=rows))


class _WarmUpMonitor(Monitor):
    """Hands a warm-up's epochs on as the first ones of the whole training, of so many epochs."""

    def __init__(self, monitor: Monitor, positions: Sequence[int], epochs: int) -> None:
        self.monitor, self.positions, self.epochs = monitor, positions, epochs
        self.state, self.restore = monitor.state, monitor.restore  # type: ignore[method-assign]

    def begin(self, epochs: int, runs: Sequence[int], done: int) -> None:
        """The whole training starts, or resumes within its warm-up."""
        self.monitor.begin(self.epochs, [self.positions[i] for i in runs], done)

    def epoch(
        self,
        epoch: int,
        runs: Sequence[int],
        losses: Float[Tensor, "r"],
        scores: Callable[[Tensor], Float[Tensor, "r n k"]],
    ) -> None:
        """The same epoch of the runs under the positions they have outside."""
        self.monitor.epoch(epoch, [self.positions[i] for i in runs], losses, scores)


_BENCHMARK = Recipe(epochs=500, batch_size=256, learning_rate=1e-2, weight_decay=1e-4, last_batch="keep")
_CIFAR = replace(_BENCHMARK, learning_rate=5e-2, weight_decay=1e-3)

#: The authors' values by experiment: replace `net`, and whatever else is to differ.
#:
#: ================== =============================================================
#: uniform            MNIST, KMNIST, Fashion-MNIST with uniform candidates
#: instance           MNIST, Fashion-MNIST with instance-dependent candidates
#: instance_kmnist    the same on KMNIST, where the encoder starts warmed
#: cifar_uniform      CIFAR-10 with uniform candidates
#: cifar_instance     CIFAR-10 with instance-dependent candidates
#: real               Lost, MSRCv2, BirdSong
#: real_large         Soccer Player, Yahoo! News: third phase with Adam on all rows
#: ================== =============================================================
VALEN_SETTINGS: Mapping[str, VALEN] = {
    "uniform": VALEN(recipe=_BENCHMARK),
    "instance": VALEN(gamma=5.0, recipe=_BENCHMARK),
    "instance_kmnist": VALEN(gamma=5.0, encoder_from="warmed", recipe=_BENCHMARK),
    "cifar_uniform": VALEN(recipe=_CIFAR),
    "cifar_instance": VALEN(correct=0.2, encoder_from="warmed", recipe=_CIFAR),
    "real": VALEN(
        beta=0.01,
        gamma=20.0,
        reconstruction=1.0,
        graph_on="inputs",
        recipe=replace(_BENCHMARK, batch_size=100),
    ),
    "real_large": VALEN(
        beta=0.01,
        gamma=20.0,
        correct=0.2,
        graph_on="inputs",
        optimizer="adam",
        full_batch=True,
        recipe=_BENCHMARK,
    ),
}

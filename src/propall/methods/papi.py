"""PaPi (Xia et al.): prototypes that learn from the classifier, on mixed views."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from propall.methods._contrast import ProjectedNetwork, ProjectedOf
from propall.methods._label_weights import weighted_cross_entropy
from propall.methods._multiview import (
    NO_BALANCE,
    Balance,
    MultiViewMethod,
    base_objective,
    draw_mixing,
    joined_state,
    n_views,
    state_of,
    two_views,
)
from propall.methods._prototypes import momentum_after, move_prototypes, predicted_labels
from propall.numerics import full_precision, restricted_softmax, uniform_weights
from propall.registry import check_integers
from propall.training.contract import NetFactory, Objective, State, Step, weighted_mean
from propall.training.networks import NetClassifier
from propall.training.recipe import Recipe

#: Momentum of the prototypes in the second epoch and at the end; see `momentum_after`.
PROTOTYPE_MOMENTUM = (0.9, 0.5)


def prototype_divergence(
    features: Float[Tensor, "b d"],
    prototypes: Float[Tensor, "k d"],
    weights: Float[Tensor, "b k"],
    temperature: float | Tensor,
) -> Float[Tensor, "b"]:
    r"""Divergence of the prototypes' prediction from label weights.

    .. math:: \mathrm{KL}\bigl(w \,\|\, \operatorname{softmax}(\mu q / \tau)\bigr)

    Args:
        features: unit vectors q.
        prototypes: unit vectors mu, one per class.
        weights: label weights w.
        temperature: tau.

    References:
        [xia2023towards].
    """
    predicted = (features @ prototypes.to(features).mT / temperature).log_softmax(-1)
    return (torch.xlogy(weights, weights) - weights * predicted).sum(-1)


@dataclass(frozen=True)
class PrototypePhase(Objective):
    """PaPi as an objective on the outputs of `ProjectedNetwork` for two views and their mixtures.

    A row remembers its label weights; the prototypes are shared. The loss sees the prototypes as they were
    before the step, but the label weights after it.

    Attributes:
        base: replaces the cross-entropy with the label weights.
        views: views of a row in a batch, 1 or 2.
        epochs: number of epochs of the schedules.
        dimension: length of the projected vectors.
        temperature: tau.
        mixing: a of the Beta(a, a) distribution of a mixture's share.
        first_momentum: momentum of the label weights in the second epoch.
        last_momentum: momentum of the label weights at the end.
        weight: full weight of the prototypes' divergence.
        ramp_epochs: epochs until it is reached.
        balance: of the weak view's predictions.
    """

    base: Objective | None
    views: int
    epochs: int
    dimension: int = 128
    temperature: float = 0.3
    mixing: float = 8.0
    first_momentum: float = 0.95
    last_momentum: float = 0.80
    weight: float = 1.0
    ramp_epochs: float = 10.0
    balance: Balance = NO_BALANCE

    name, title, reference = "papi_phase", "PaPi", "xia2023towards"
    handles_views = True
    needs_noise = True

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """Equal weights on the candidates, prototypes 0."""
        prototypes = torch.zeros(candidates.shape[1], self.dimension, device=candidates.device)
        own = State(rows={"weights": uniform_weights(candidates)}, shared={"prototypes": prototypes})
        return own if self.base is None else joined_state(own, self.base.init(candidates, weight))

    def network_inputs(
        self, x: Float[Tensor, "v ..."], uniform: Float[Tensor, "b k"] | None
    ) -> Float[Tensor, "w ..."]:
        """Both views, then both views mixed with a permutation of the batch."""
        assert uniform is not None
        mix = draw_mixing(uniform, self.mixing)
        views = two_views(x, self.views)
        return torch.cat([views, *(mix(view) for view in views.chunk(2))])

    def new_weights(
        self, classified: Float[Tensor, "b k"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> Float[Tensor, "b k"]:
        r"""Label weights after the step, :math:`w \leftarrow \phi w + (1 - \phi) m(r, S)`."""
        momentum = momentum_after(step.epoch, self.epochs, self.first_momentum, self.last_momentum)
        seen = restricted_softmax(classified.detach(), candidates)
        return momentum * state.rows["weights"].to(seen) + (1 - momentum) * seen

    def loss(
        self, logits: Float[Tensor, "b m"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> Float[Tensor, ""]:
        r"""Classification loss of the weak view, and the prototypes' divergence on both mixed views.

        .. math:: L(r_1) + \lambda \sum_{v=1}^2 \bigl[l\, \mathrm{KL}(w \| g_v)
            + (1 - l)\, \mathrm{KL}(w_\pi \| g_v)\bigr]

        with g the prototypes' prediction for a row mixed with its partner in a permutation, with shares l and
        1 - l (`prototype_divergence`).

        References:
            [xia2023towards].
        """
        assert step.uniform is not None
        (weak, _), _, (_, mixed_weak), (_, mixed_strong) = self._split(logits, candidates)
        weights = self.new_weights(weak, candidates, state, step)
        mix = draw_mixing(step.uniform, self.mixing)
        divergence = torch.zeros_like(weights[:, 0])
        for features in (mixed_weak, mixed_strong):
            for share, target in ((mix.share, weights), (1 - mix.share, weights[mix.partner])):
                divergence = divergence + share * prototype_divergence(
                    features, state.shared["prototypes"], target, self.temperature
                )
        ramp = self.weight * (step.epoch / self.ramp_epochs).nan_to_num(1.0).clamp(max=1)
        similarity = weighted_mean(divergence, step.weight)
        if self.base is None:
            classified = weighted_mean(weighted_cross_entropy(weak, weights), step.weight)
        else:
            classified = self.base.loss(weak, candidates, state_of(state), step)
        return self.balance.add_to(classified + ramp * similarity, weak, step)

    def update(
        self, logits: Float[Tensor, "b m"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> State:
        """New label weights, and prototypes that follow the weak views, then the strong ones."""
        (weak, weak_features), (strong, strong_features), *_ = self._split(logits, candidates)
        prototypes = move_prototypes(
            state.shared["prototypes"],
            torch.cat([weak_features, strong_features]),
            torch.cat([predicted_labels(weak, candidates), predicted_labels(strong, candidates)]),
            momentum_after(step.epoch, self.epochs, *PROTOTYPE_MOMENTUM),
        )
        weights = self.new_weights(weak, candidates, state, step)
        if self.base is not None:
            based = self.base.update(weak, candidates, state_of(state), step)
            state = joined_state(state, based)
        return state.with_rows(weights=weights).with_shared(prototypes=prototypes)

    def _split(self, outputs: Tensor, candidates: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Logits and unit vectors of both views and of both mixtures."""
        k = candidates.shape[-1]
        parts = full_precision(outputs).chunk(4, -1)
        return [(part[:, :k], part[:, k:]) for part in parts]


@dataclass(frozen=True)
class PaPi(MultiViewMethod):
    """Prototypical partial-label learning guided by the classifier.

    The classifier's predictions move the label weights of a row. Prototypes in a projected feature space
    learn from these weights on mixtures of rows, and so shape the features that the classifier shares.

    Attributes:
        temperature: of the prototypes' prediction; 0.3 for CIFAR, 1 for Fashion-MNIST.
        mixing: a of the Beta(a, a) distribution of a mixture's share.
        weight: full weight of the prototypes' divergence.
        ramp_epochs: epochs until it is reached.
        dimension: length of the projected vectors.
        first_momentum: momentum of the label weights in the second epoch.
        last_momentum: momentum of the label weights at the end.
        base: name of the objective of the classification term; None: cross-entropy with the label weights.

    Notes:
        The authors train ResNet-18 for 500 epochs. The prototypes after a batch are those of their loop over
        rows, computed at once (`move_prototypes`).
    """

    temperature: float = 0.3
    mixing: float = 8.0
    weight: float = 1.0
    ramp_epochs: float = 10.0
    dimension: int = 128
    first_momentum: float = 0.95
    last_momentum: float = 0.80
    base: str | None = None

    name, title, reference = "papi", "PaPi", "xia2023towards"
    assumes = "augmented views of a row have its label; classes can be told apart by one prototype each"
    use_when = "For images, as PiCO, without a queue of features or a second encoder."
    memory = "k label weights, prototypes"
    cost = "4 forward + 3 backward"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, dimension=1)

    def objective(self, recipe: Recipe) -> PrototypePhase:
        """The objective for the recipe's epochs."""
        return PrototypePhase(
            base=base_objective(self.base),
            views=n_views(recipe),
            epochs=recipe.epochs,
            dimension=self.dimension,
            temperature=self.temperature,
            mixing=self.mixing,
            first_momentum=self.first_momentum,
            last_momentum=self.last_momentum,
            weight=self.weight,
            ramp_epochs=self.ramp_epochs,
            balance=Balance.of(recipe),
        )

    def training_net(self, net: NetFactory | nn.Module) -> NetFactory:
        """The network with a projection head, on four inputs per row."""
        return ProjectedOf(net, self.dimension, views=4, passes="separate")

    def scoring_objective(self) -> Objective:
        """The objective that decodes the logits of the classifier."""
        return base_objective(self.base) or self.objective(Recipe())

    def fitted(self, trained: NetClassifier) -> NetClassifier:
        """The classifier without its projection, with the final label weights."""
        assert isinstance(trained.net, ProjectedNetwork)
        based = state_of(trained.state)
        state = based.with_rows(weights=trained.state.rows["weights"])
        return NetClassifier(trained.net.classifier, self.scoring_objective(), state)

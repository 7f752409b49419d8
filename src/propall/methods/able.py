"""ABLE (Xia et al.): contrastive learning in which ambiguous rows attract every class they may belong to."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import one_hot

from propall.methods._contrast import ProjectedNetwork, ProjectedOf, contrastive_losses
from propall.methods._label_weights import weighted_cross_entropy
from propall.methods._multiview import (
    NO_BALANCE,
    Balance,
    MultiViewMethod,
    base_objective,
    joined_state,
    n_views,
    state_of,
    two_views,
)
from propall.methods._prototypes import predicted_labels
from propall.numerics import full_precision, restricted_softmax, uniform_weights
from propall.registry import check_integers
from propall.training.contract import NetFactory, Objective, State, Step, weighted_mean
from propall.training.networks import NetClassifier
from propall.training.recipe import Recipe

#: Temperature that the loss is scaled to.
BASE_TEMPERATURE = 0.07


def ambiguity_contrast(
    features: Float[Tensor, "m d"],
    labels: Int[Tensor, "b"],
    weights: Float[Tensor, "b k"],
    temperature: float | Tensor,
) -> Float[Tensor, "m"]:
    r"""Contrastive loss in which a row attracts the others by its own weight of their labels.

    .. math:: -\frac{\tau}{0.07} \sum_{l \ne i} \frac{w_{i, \hat y_l}}{n(\hat y_l)}
        \log \operatorname{softmax}_{l \ne i} \bigl(f_i^\top f_l / \tau\bigr)_l

    over both views of all rows, where n(y) is the number of rows of the batch with predicted label y.

    Args:
        features: unit vectors f of the first view of all rows, then of the second.
        labels: predicted labels, one per row.
        weights: label weights w.
        temperature: tau.

    References:
        [xia2022ambiguity].
    """
    member = one_hot(labels, weights.shape[-1]).to(weights.dtype)
    shares = member / member.sum(0).clamp(min=1)
    attraction = (weights @ shares.mT).to(features).repeat(2, 2)
    place = torch.arange(features.shape[0], device=features.device)
    others = place[:, None] != place
    losses = contrastive_losses(features, features, attraction * others, others, temperature)
    return temperature / BASE_TEMPERATURE * losses


@dataclass(frozen=True)
class AmbiguityPhase(Objective):
    """ABLE as an objective on the outputs of `ProjectedNetwork`; a row remembers its label weights.

    Attributes:
        base: replaces the cross-entropy with the label weights.
        views: views of a row in a batch, 1 or 2.
        dimension: length of the projected vectors.
        temperature: tau.
        contrast: factor of the contrastive loss.
        balance: of the weak view's predictions.
    """

    base: Objective | None
    views: int
    dimension: int = 128
    temperature: float = 0.1
    contrast: float = 1.0
    balance: Balance = NO_BALANCE

    name, title, reference = "able_phase", "ABLE", "xia2022ambiguity"
    handles_views = True

    @property
    def needs_noise(self) -> bool:  # type: ignore[override]
        """Whether the base objective draws noise."""
        return self.base is not None and self.base.needs_noise

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """Equal weights on the candidates."""
        own = State(rows={"weights": uniform_weights(candidates)})
        return own if self.base is None else joined_state(own, self.base.init(candidates, weight))

    def network_inputs(
        self, x: Float[Tensor, "v ..."], uniform: Float[Tensor, "b k"] | None
    ) -> Float[Tensor, "w ..."]:
        """Both views."""
        return two_views(x, self.views)

    def loss(
        self, logits: Float[Tensor, "b m"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> Float[Tensor, ""]:
        """Classification loss of the weak view, and `ambiguity_contrast` with the stored label weights."""
        weak, features = self._split(logits, candidates)
        weights = state.rows["weights"]
        labels = predicted_labels(weak.detach(), candidates)
        losses = ambiguity_contrast(features, labels, weights, self.temperature)
        contrast = weighted_mean(losses.unflatten(0, (2, -1)).mean(0), step.weight)
        if self.base is None:
            classified = weighted_mean(weighted_cross_entropy(weak, weights), step.weight)
        else:
            classified = self.base.loss(weak, candidates, state_of(state), step)
        return self.balance.add_to(classified + self.contrast * contrast, weak, step)

    def update(
        self, logits: Float[Tensor, "b m"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> State:
        """Label weights from the weak view of this step."""
        weak, _ = self._split(logits, candidates)
        if self.base is not None:
            state = joined_state(state, self.base.update(weak, candidates, state_of(state), step))
        return state.with_rows(weights=restricted_softmax(weak, candidates))

    def _split(self, outputs: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of the weak view, and the unit vectors of both views along the rows."""
        k = candidates.shape[-1]
        first, second = full_precision(outputs).chunk(2, -1)
        return first[:, :k], torch.cat([first[:, k:], second[:, k:]])


@dataclass(frozen=True)
class ABLE(MultiViewMethod):
    """Ambiguity-induced contrastive learning.

    Attributes:
        contrast: factor of the contrastive loss.
        temperature: of the contrastive loss.
        dimension: length of the projected vectors.
        base: name of the objective of the classification term; None: cross-entropy with the label weights.

    Notes:
        The authors train ResNet-18 for 500 epochs. Their contrastive term reads the label weights by the
        row's position in the batch; here, as in the paper, it reads those of the row itself.
    """

    contrast: float = 1.0
    temperature: float = 0.1
    dimension: int = 128
    base: str | None = None

    name, title, reference = "able", "ABLE", "xia2022ambiguity"
    assumes = "wrong labels resemble the row (instance-dependent sets); views of a row have its label"
    use_when = (
        "For images whose wrong candidates look like the true class; it needs two views "
        "and no momentum encoder."
    )
    memory = "k label weights"
    cost = "2 forward + 2 backward"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, dimension=1)

    def objective(self, recipe: Recipe) -> AmbiguityPhase:
        """The objective on two views."""
        return AmbiguityPhase(
            base=base_objective(self.base),
            views=n_views(recipe),
            dimension=self.dimension,
            temperature=self.temperature,
            contrast=self.contrast,
            balance=Balance.of(recipe),
        )

    def training_net(self, net: NetFactory | nn.Module) -> NetFactory:
        """The network with a projection head, on two views."""
        return ProjectedOf(net, self.dimension)

    def scoring_objective(self) -> Objective:
        """The objective that decodes the logits of the classifier."""
        return base_objective(self.base) or self.objective(Recipe())

    def fitted(self, trained: NetClassifier) -> NetClassifier:
        """The classifier without its projection, with the final label weights."""
        assert isinstance(trained.net, ProjectedNetwork)
        state = state_of(trained.state).with_rows(weights=trained.state.rows["weights"])
        return NetClassifier(trained.net.classifier, self.scoring_objective(), state)

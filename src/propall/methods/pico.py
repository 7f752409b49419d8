"""PiCO (Wang et al.): contrastive representations, and prototypes that disambiguate the candidates."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from propall.methods._contrast import MomentumNetwork, MomentumOf, contrastive_losses
from propall.methods._label_weights import weighted_cross_entropy
from propall.methods._multiview import NO_BALANCE, Balance, MultiViewMethod, n_views, two_views
from propall.methods._prototypes import momentum_after, move_prototypes, predicted_labels
from propall.numerics import full_precision, uniform_weights
from propall.registry import check_integers
from propall.training.contract import NetFactory, Objective, State, Step, weighted_mean
from propall.training.networks import NetClassifier
from propall.training.recipe import Recipe

#: Label of a place in the queue that no key has taken yet.
EMPTY = -1
#: Added to the sum of exponentials in the contrastive loss.
FLOOR = 1e-12


def supervised_contrast(
    features: Float[Tensor, "m d"], labels: Int[Tensor, "m"], anchors: int, temperature: float | Tensor
) -> Float[Tensor, "a"]:
    r"""Contrastive loss whose positives are all rows with the anchor's label, the anchor excluded.

    The mean over the positives of each anchor; see `contrastive_losses`.

    Args:
        features: unit vectors of the batch's queries, its keys and the queue.
        labels: their pseudo-labels; rows with a label below 0 are ignored.
        anchors: number of rows at the start that are anchors.
        temperature: tau.

    References:
        [wang2022pico], [khosla2020supervised].
    """
    place = torch.arange(features.shape[0], device=features.device)
    others = (place[:anchors, None] != place) & (labels >= 0)
    positives = (others & (labels[:anchors, None] == labels)).to(features.dtype)
    weights = positives / positives.sum(-1, keepdim=True).clamp(min=1)
    return contrastive_losses(features[:anchors], features, weights, others, temperature, floor=FLOOR)


def instance_contrast(
    queries: Float[Tensor, "b d"],
    keys: Float[Tensor, "b d"],
    queue: Float[Tensor, "m d"],
    is_filled: Bool[Tensor, "m"],
    temperature: float | Tensor,
) -> Float[Tensor, "b"]:
    r"""Cross-entropy of recognizing the own key among the keys of a queue (MoCo).

    Args:
        queries: unit vectors.
        keys: unit vectors of other views of the same rows.
        queue: unit vectors of other rows.
        is_filled: which of them exist.
        temperature: tau.

    References:
        [he2020momentum].
    """
    own = (queries * keys).sum(-1, keepdim=True) / temperature
    others = (queries @ queue.mT / temperature).masked_fill(~is_filled, -torch.inf)
    return torch.cat([own, others], -1).logsumexp(-1) - own.squeeze(-1)


def prototype_weights(
    weights: Float[Tensor, "b k"],
    scores: Float[Tensor, "b k"],
    candidates: Bool[Tensor, "b k"],
    momentum: float | Tensor,
) -> Float[Tensor, "b k"]:
    r"""Move label weights toward the candidate whose prototype is nearest.

    .. math:: w \leftarrow \phi w + (1 - \phi) \operatorname{onehot}(\arg\max_{j \in S} q^\top \mu_j)

    Args:
        weights: w.
        scores: similarity of the row to every prototype.
        candidates: True on S.
        momentum: phi.

    References:
        [wang2022pico].
    """
    nearest = torch.nn.functional.one_hot(predicted_labels(scores, candidates), scores.shape[-1])
    return momentum * weights + (1 - momentum) * nearest.to(weights.dtype)


@dataclass(frozen=True)
class ContrastivePhase(Objective):
    """PiCO as an objective on the outputs of `MomentumNetwork`.

    A row remembers its label weights. Shared are the prototypes and a queue of keys with their pseudo-labels.
    The loss sees prototypes and queue as they were before the step, but the label weights after it.

    Attributes:
        views: views of a row in a batch, 1 or 2.
        epochs: number of epochs of the schedule.
        dimension: length of the projected vectors.
        queue: number of keys in the queue.
        start: epochs without prototypes.
        temperature: tau.
        prototype_momentum: momentum of the prototypes.
        first_momentum: momentum of the label weights in the second epoch.
        last_momentum: momentum of the label weights at the end.
        contrast: factor of the contrastive loss.
        balance: of the weak view's predictions.
    """

    views: int
    epochs: int
    dimension: int = 128
    queue: int = 8192
    start: int = 1
    temperature: float = 0.07
    prototype_momentum: float = 0.99
    first_momentum: float = 0.95
    last_momentum: float = 0.80
    contrast: float = 0.5
    balance: Balance = NO_BALANCE

    name, title, reference = "pico_phase", "PiCO", "wang2022pico"
    handles_views = True

    def init(self, candidates: Bool[Tensor, "n k"], weight: Float[Tensor, "n"] | None = None) -> State:
        """Equal weights on the candidates, prototypes 0 and an empty queue."""
        device, k = candidates.device, candidates.shape[1]
        shared = {
            "prototypes": torch.zeros(k, self.dimension, device=device),
            "queue": torch.zeros(self.queue, self.dimension, device=device),
            "queue_labels": torch.full((self.queue,), EMPTY, device=device),
            "position": torch.zeros((), dtype=torch.int64, device=device),
        }
        return State(rows={"weights": uniform_weights(candidates)}, shared=shared)

    def network_inputs(
        self, x: Float[Tensor, "v ..."], uniform: Float[Tensor, "b k"] | None
    ) -> Float[Tensor, "w ..."]:
        """Both views."""
        return two_views(x, self.views)

    def new_weights(
        self,
        queries: Float[Tensor, "b d"],
        candidates: Bool[Tensor, "b k"],
        state: State,
        step: Step,
    ) -> Float[Tensor, "b k"]:
        """Label weights after the step: `prototype_weights` with the old prototypes, once these count."""
        old = state.rows["weights"]
        scores = queries.detach() @ state.shared["prototypes"].mT
        momentum = momentum_after(step.epoch, self.epochs, self.first_momentum, self.last_momentum)
        moved = prototype_weights(old, scores, candidates, momentum)
        return torch.where(step.epoch >= self.start, moved, old)

    def loss(
        self, logits: Float[Tensor, "b m"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> Float[Tensor, ""]:
        """Cross-entropy with the new label weights, and the contrastive loss."""
        classified, queries, keys = self._split(logits, candidates)
        labels = predicted_labels(classified.detach(), candidates)
        weights = self.new_weights(queries, candidates, state, step)
        queue, queue_labels = state.shared["queue"], state.shared["queue_labels"]
        everything = torch.cat([queries, keys, queue.to(queries)])
        by_label = supervised_contrast(
            everything, torch.cat([labels, labels, queue_labels]), len(labels), self.temperature
        )
        by_instance = instance_contrast(
            queries, keys, queue.to(queries), queue_labels != EMPTY, self.temperature
        )
        contrast = torch.where(step.epoch >= self.start, by_label, by_instance)
        per_row = weighted_cross_entropy(classified, weights) + self.contrast * contrast
        return self.balance.add_to(weighted_mean(per_row, step.weight), classified, step)

    def update(
        self, logits: Float[Tensor, "b m"], candidates: Bool[Tensor, "b k"], state: State, step: Step
    ) -> State:
        """New label weights; prototypes that follow the queries; the keys enter the queue."""
        classified, queries, keys = self._split(logits, candidates)
        labels = predicted_labels(classified, candidates)
        shared = state.shared
        prototypes = move_prototypes(shared["prototypes"], queries, labels, self.prototype_momentum)
        kept = min(len(labels), self.queue)
        place = (shared["position"] + torch.arange(kept, device=labels.device)) % self.queue
        new = state.with_rows(weights=self.new_weights(queries, candidates, state, step))
        return new.with_shared(
            prototypes=prototypes,
            queue=shared["queue"].scatter(
                0, place[:, None].expand(-1, self.dimension), keys[-kept:].to(shared["queue"])
            ),
            queue_labels=shared["queue_labels"].scatter(0, place, labels[-kept:]),
            position=(shared["position"] + kept) % self.queue,
        )

    def _split(self, outputs: Tensor, candidates: Tensor) -> tuple[Tensor, ...]:
        k = candidates.shape[-1]
        return full_precision(outputs).tensor_split((k, k + self.dimension), -1)


@dataclass(frozen=True)
class PiCO(MultiViewMethod):
    """Contrastive label disambiguation.

    The label weights of a row move toward the candidate whose prototype is nearest to its projected features.
    The features are trained to be near those of rows with the same predicted label: in the batch, in another
    view of it seen by a moving average of the network, and in a queue of earlier keys.

    Attributes:
        start: epochs before prototypes move label weights and predicted labels define positives.
        contrast: factor of the contrastive loss.
        temperature: of the contrastive loss.
        queue: number of keys in the queue.
        dimension: length of the projected vectors.
        key_momentum: momentum of the network that computes keys.
        prototype_momentum: momentum of the prototypes.
        first_momentum: momentum of the label weights in the second epoch.
        last_momentum: momentum of the label weights at the end.

    Notes:
        The authors train ResNet-18 for 800 epochs. Their queue starts with random vectors; here it starts
        empty, so it adds nothing until it is filled, and its size need not be a multiple of the batch size.
    """

    start: int = 1
    contrast: float = 0.5
    temperature: float = 0.07
    queue: int = 8192
    dimension: int = 128
    key_momentum: float = 0.999
    prototype_momentum: float = 0.99
    first_momentum: float = 0.95
    last_momentum: float = 0.80

    name, title, reference = "pico", "PiCO", "wang2022pico"
    assumes = "augmented views of a row have its label; rows of a class form one cluster"
    use_when = "For images, with a GPU and hundreds of epochs. Training any loss with views needs less time."
    memory = "k label weights, queue of 8192 vectors"
    cost = "2 forward + 1 backward, queue"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, start=0, queue=1, dimension=1)

    def objective(self, recipe: Recipe) -> ContrastivePhase:
        """The objective for the recipe's epochs."""
        return ContrastivePhase(
            views=n_views(recipe),
            epochs=recipe.epochs,
            dimension=self.dimension,
            queue=self.queue,
            start=self.start,
            temperature=self.temperature,
            prototype_momentum=self.prototype_momentum,
            first_momentum=self.first_momentum,
            last_momentum=self.last_momentum,
            contrast=self.contrast,
            balance=Balance.of(recipe),
        )

    def training_net(self, net: NetFactory | nn.Module) -> NetFactory:
        """The network with a projection head, and its moving average."""
        return MomentumOf(net, self.dimension, self.key_momentum)

    def scoring_objective(self) -> Objective:
        """The training objective; the logits are the scores."""
        return self.objective(Recipe())

    def fitted(self, trained: NetClassifier) -> NetClassifier:
        """The classifier without its projection, with the final label weights."""
        assert isinstance(trained.net, MomentumNetwork)
        rows = {"weights": trained.state.rows["weights"]}
        return NetClassifier(trained.net.classifier, trained.objective, State(rows=rows))

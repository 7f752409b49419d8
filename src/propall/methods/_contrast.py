"""Parts of contrastive methods: a projection head, a network that follows by momentum, the loss."""

import copy
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from propall.methods._multiview import copy_of
from propall.numerics import full_precision
from propall.training.contract import NetFactory
from propall.training.networks import InitializedFromData


def contrastive_losses(
    anchors: Float[Tensor, "a d"],
    contrasts: Float[Tensor, "m d"],
    weights: Float[Tensor, "a m"],
    others: Bool[Tensor, "a m"],
    temperature: float | Tensor,
    *,
    floor: float = 0.0,
) -> Float[Tensor, "a"]:
    r"""Weighted negative log-probability of the contrasts that should be near each anchor.

    .. math:: -\sum_b w_{ab} \Bigl(l_{ab} - \log \bigl(\textstyle\sum_{c \in O_a} e^{l_{ac}} + \epsilon\bigr)
        \Bigr), \qquad l_{ab} = f_a^\top f_b / \tau - \max_c f_a^\top f_c / \tau

    Args:
        anchors: unit vectors.
        contrasts: unit vectors.
        weights: w, 0 outside O.
        others: the set O of each anchor, which excludes the anchor itself.
        temperature: tau.
        floor: epsilon.

    References:
        [khosla2020supervised].
    """
    similarity = anchors @ contrasts.mT / temperature
    similarity = similarity - similarity.detach().amax(-1, keepdim=True)
    if floor:
        total = ((similarity.exp() * others).sum(-1, keepdim=True) + floor).log()
    else:
        total = similarity.masked_fill(~others, -torch.inf).logsumexp(-1, keepdim=True)
    return -(weights * (similarity - total)).sum(-1)


class ProjectedNetwork(nn.Module):
    """A classifier with a second head, which maps its features to unit vectors.

    In evaluation mode the output is that of the classifier. In training mode x holds several views of b rows,
    and the output (b, v (k + d)) holds the logits and the unit vectors of each view side by side.

    Args:
        classifier: has `features(x)` and a linear layer `head`.
        dimension: length d of the projected vectors.
        views: number of views v.
        together: batch norm sees all views together; otherwise each view is a forward pass of its own.
        is_new: the classifier has not been trained, and may set weights from the training inputs.
    """

    def __init__(
        self,
        classifier: nn.Module,
        dimension: int,
        *,
        views: int = 2,
        together: bool = True,
        is_new: bool = True,
    ) -> None:
        super().__init__()
        head = getattr(classifier, "head", None)
        if not isinstance(head, nn.Linear) or not hasattr(classifier, "features"):
            raise ValueError(
                f"net: {type(classifier).__name__} lacks features(x) or a linear layer named head, which a "
                "projection of the features needs. Add both, such that net(x) is net.head(net.features(x))."
            )
        self.classifier, self.views, self.together, self.is_new = classifier, views, together, is_new
        width = head.in_features
        self.projection = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, dimension))

    def initialize_from(self, x: Float[Tensor, "n ..."]) -> None:
        """Set the weights of the classifier that depend on the training inputs."""
        if self.is_new and isinstance(self.classifier, InitializedFromData):
            self.classifier.initialize_from(x)

    def both_heads(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n m"]:
        """Logits and unit vectors side by side."""
        features = self.classifier.features(x)  # type: ignore[operator]
        logits, projected = self.classifier.head(features), self.projection(features)  # type: ignore[operator]
        return torch.cat([full_precision(logits), normalize(full_precision(projected), dim=-1)], -1)

    def forward(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "b m"]:
        """See the class."""
        if not self.training:
            scores: Tensor = self.classifier(x)
            return scores
        if self.together:
            return torch.cat(self.both_heads(x).chunk(self.views), -1)
        return torch.cat([self.both_heads(view) for view in x.chunk(self.views)], -1)


class MomentumNetwork(nn.Module):
    """A projected network and a copy of it whose weights follow by a moving average (a key encoder).

    In training mode x holds two views; the output (b, k + 2 d) is the logits and the unit vectors of the
    first view, and the copy's unit vectors of the second. The copy moves before it is used.

    Args:
        query: the network that is trained.
        n_classes: number of classes.
        momentum: weight of the copy's old weights.
    """

    def __init__(self, query: ProjectedNetwork, n_classes: int, momentum: float) -> None:
        super().__init__()
        self.query, self.n_classes, self.momentum = query, n_classes, momentum
        self.key = copy.deepcopy(query)
        # Buffers change in the forward pass, like batch norm's; the optimizer does not see them.
        for module in self.key.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                delattr(module, name)
                module.register_buffer(name, parameter.detach().clone())

    def extra_repr(self) -> str:
        """The momentum, which checkpoints depend on."""
        return f"momentum={self.momentum}"

    @property
    def classifier(self) -> nn.Module:
        """The network that predicts."""
        return self.query.classifier

    @torch.no_grad()
    def initialize_from(self, x: Float[Tensor, "n ..."]) -> None:
        """Set the weights that depend on the training inputs."""
        self.query.initialize_from(x)
        self.key.load_state_dict(self.query.state_dict())

    @torch.no_grad()
    def _move_key(self) -> None:
        for name, parameter in self.query.named_parameters():
            self.key.get_buffer(name).mul_(self.momentum).add_(parameter.detach(), alpha=1 - self.momentum)

    def forward(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "b m"]:
        """See the class."""
        if not self.training:
            scores: Tensor = self.query(x)
            return scores
        first, second = x.chunk(2)
        with torch.no_grad():
            self._move_key()
            key = self.key.both_heads(second)[:, self.n_classes :]
        return torch.cat([self.query.both_heads(first), key], -1)


@dataclass(frozen=True)
class ProjectedOf:
    """Builds a `ProjectedNetwork` around a network; equal for equal networks.

    Attributes:
        inner: the network.
        dimension: length of the projected vectors.
        views: number of inputs per row.
        passes: "joint" or "separate" forward passes of the views; see `ProjectedNetwork`.
    """

    inner: NetFactory | nn.Module
    dimension: int = 128
    views: int = 2
    passes: Literal["joint", "separate"] = "joint"

    def __call__(self, in_shape: tuple[int, ...], n_classes: int) -> ProjectedNetwork:
        """The network with a new projection head."""
        classifier = copy_of(self.inner, in_shape, n_classes)
        return ProjectedNetwork(
            classifier,
            self.dimension,
            views=self.views,
            together=self.passes == "joint",
            is_new=not isinstance(self.inner, nn.Module),
        )


@dataclass(frozen=True)
class MomentumOf:
    """Builds a `MomentumNetwork` around a network; equal for equal networks.

    Attributes:
        inner: the network.
        dimension: length of the projected vectors.
        momentum: weight of the copy's old weights.
    """

    inner: NetFactory | nn.Module
    dimension: int = 128
    momentum: float = 0.999

    def __call__(self, in_shape: tuple[int, ...], n_classes: int) -> MomentumNetwork:
        """The network with a new projection head, and its copy."""
        query = ProjectedOf(self.inner, self.dimension)(in_shape, n_classes)
        return MomentumNetwork(query, n_classes, self.momentum)

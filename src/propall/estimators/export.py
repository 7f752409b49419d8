"""A fitted estimator as a torch module."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from propall.estimators.ensemble import Standardization, log_mixture
from propall.methods import LinearClassifier
from propall.nets.mlp import Linear
from propall.training.contract import Classifier, State
from propall.training.networks import NetClassifier


class FittedNetwork(nn.Module):
    """Raw features to logits, by networks or linear classifiers; see `PartialLabelClassifier.to_torch`."""

    mean: Tensor | None
    scale: Tensor | None
    floor: Tensor | None

    def __init__(
        self, classifiers: Sequence[Classifier], standardization: Standardization, temperature: float = 1.0
    ) -> None:
        super().__init__()
        self.members = nn.ModuleList(_as_module(classifier) for classifier in classifiers)
        reference = next(self.members.parameters())
        for name, values in standardization._asdict().items():
            self.register_buffer(name, None if values is None else torch.as_tensor(values).to(reference))
        self.temperature = temperature

    def forward(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
        """Return logits whose softmax gives the probabilities."""
        if self.floor is not None:
            x = (x - self.floor).clamp_min(0).sqrt()
        if self.mean is not None and self.scale is not None:
            x = (x - self.mean) / self.scale
        outputs = [member(x) for member in self.members]
        return outputs[0] / self.temperature if len(outputs) == 1 else log_mixture(outputs, self.temperature)


class _DecodedNet(nn.Module):
    """A trained network followed by its objective's decoding."""

    def __init__(self, classifier: NetClassifier) -> None:
        super().__init__()
        self.net, self.objective = copy.deepcopy(classifier.net), classifier.objective
        self._state_names = {part: list(getattr(classifier.state, part)) for part in ("shared", "trained")}
        for part, names in self._state_names.items():
            for name in names:
                self.register_buffer(f"{part}_{name}", getattr(classifier.state, part)[name].clone())

    def forward(self, x: Tensor) -> Tensor:
        parts = {
            part: {name: getattr(self, f"{part}_{name}") for name in names}
            for part, names in self._state_names.items()
        }
        return self.objective.scores(self.net(x), State(**parts))


def linear_map(
    classifiers: Sequence[Classifier], standardization: Standardization
) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Weights (k, d) and constants (k,) from raw features to scores; None if the model is not linear."""
    if len(classifiers) != 1 or standardization.floor is not None:
        return None
    classifier = classifiers[0]
    if isinstance(classifier, LinearClassifier):
        weight, bias = classifier.weight, classifier.bias
    elif isinstance(classifier, NetClassifier) and isinstance(classifier.net, Linear):
        head = classifier.net.head
        weight, bias = head.weight, head.bias
        # An objective may decode its outputs by another map than the identity.
        probe = torch.eye(len(bias), dtype=weight.dtype, device=weight.device)
        if not torch.equal(classifier.objective.scores(probe, classifier.state), probe):
            return None
    else:
        return None
    matrix, constant = (part.detach().cpu().numpy().copy() for part in (weight, bias))
    if standardization.mean is not None and standardization.scale is not None:
        matrix = matrix / standardization.scale.reshape(-1)
        constant = constant - matrix @ standardization.mean.reshape(-1)
    return matrix, constant


def _as_module(classifier: Classifier) -> nn.Module:
    if isinstance(classifier, NetClassifier):
        return _DecodedNet(classifier)
    if isinstance(classifier, LinearClassifier):
        classes, features = classifier.weight.shape
        layer = nn.utils.skip_init(nn.Linear, features, classes).to(classifier.weight)
        layer.load_state_dict({"weight": classifier.weight, "bias": classifier.bias})
        return nn.Sequential(nn.Flatten(), layer)
    raise ValueError(
        f"to_torch: a {classifier.name!r} classifier compares new rows with the training rows and is not a "
        "network. Use `predict_proba`, or a method with a network."
    )

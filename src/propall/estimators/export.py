"""A fitted estimator as a torch module."""

import copy
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from propall.estimators.ensemble import Standardization, log_mixture
from propall.methods import LinearClassifier
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

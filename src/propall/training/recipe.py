"""How a network is trained, apart from its loss: epochs, batches, optimizer."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from torch import Tensor

from propall.registry import check_choices, check_integers
from propall.training.views import Views, check_views

#: Precision of matrix products.
Precision = Literal["float32", "tf32", "bfloat16"]


#: Fields that version 0.1.0 did not have.
ADDED_FIELDS = ("schedule", "warm_up", "nesterov", "norm_rate", "lookahead", "views")


@dataclass(frozen=True)
class Recipe:
    """Epochs, batches, optimizer, schedule, augmentation, precision.

    Attributes:
        epochs: number of epochs.
        batch_size: instances per step; the whole training set if it is smaller.
        optimizer: "sgd" (with momentum) or "adam".
        learning_rate: initial learning rate.
        momentum: of SGD.
        weight_decay: factor of the L2 penalty on all parameters, added to the gradient for both optimizers.
        decay: factor of the learning rate, applied every `decay_every` epochs.
        decay_every: epochs between two decays.
        smooth_decay: spread the factor evenly over these epochs.
        last_batch: "keep" or "drop" an incomplete last batch. A single row is always dropped: batch norm
            needs two.
        augmentation: of images, drawn anew in every epoch: "none", "flip_crop" (horizontal flip, shift by up
            to 4 pixels) or "rotate_flip" (rotation by up to 30 degrees, horizontal flip).
        precision: "float32" keeps the precision of the data; "tf32" lets a GPU round the factors of matrix
            products to 10 bits; "bfloat16" runs the network under autocast.
        schedule: "decay" multiplies the learning rate by `decay`; "linear" and "cosine" lower it to 0 over
            training; "one_cycle" raises it along a cosine from a 25th, then lowers it to nearly 0
            [smith2019super].
        warm_up: share of the steps over which "linear" and "cosine" first raise it from a fifth, and
            "one_cycle" from a 25th.
        nesterov: use Nesterov momentum.
        norm_rate: factor on the learning rate of normalization layers; their weight decay is divided by it.
        lookahead: average the weights with their past every so many steps, with a weight on the past that
            falls to 0 over training; 0: never [zhang2019lookahead].
        views: weak and strong views of every row; None: one view, augmented by `augmentation`.

    Examples:
        >>> recipe = Recipe(epochs=20, batch_size=128, optimizer="adam", learning_rate=1e-3)
        >>> recipe.batch_sizes(300)  # of an epoch on 300 rows; the rest is dropped
        [128, 128]
    """

    epochs: int = 500
    batch_size: int = 256
    optimizer: Literal["sgd", "adam"] = "sgd"
    learning_rate: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 0.0
    decay: float = 1.0
    decay_every: int = 1
    smooth_decay: bool = False
    last_batch: Literal["keep", "drop"] = "drop"
    augmentation: Literal["none", "flip_crop", "rotate_flip"] = "none"
    precision: Precision = "float32"
    schedule: Literal["decay", "linear", "cosine", "one_cycle"] = "decay"
    warm_up: float = 0.0
    nesterov: bool = False
    norm_rate: float = 1.0
    lookahead: int = 0
    views: Views | None = None

    def __post_init__(self) -> None:
        check_integers(self, epochs=0, batch_size=1, decay_every=1, lookahead=0)
        for name in ("learning_rate", "weight_decay", "momentum", "decay"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name}: got {value!r}; expected a finite number of at least 0.")
        check_choices(self)
        check_views(self.views)

    @property
    def has_constant_rate(self) -> bool:
        """Whether the learning rate never changes."""
        return self.schedule == "decay" and self.decay == 1

    def rate_factor(self, epoch: Tensor, progress: Tensor) -> Tensor:
        """Factor on the learning rate after `epoch` epochs, `progress` being the share of steps taken."""
        if self.schedule != "decay":
            falling = (1 - progress) / (1 - self.warm_up)
            if self.schedule != "linear":
                falling = (1 - torch.cos(torch.pi * falling)) / 2
            rising = progress / max(self.warm_up, 1e-9)
            if self.schedule == "one_cycle":
                rising = 0.04 + 0.96 * (1 - torch.cos(torch.pi * rising)) / 2
            else:
                rising = 0.2 + 0.8 * rising
            return torch.where(progress < self.warm_up, rising, falling)
        periods = epoch / self.decay_every
        return self.decay ** (periods if self.smooth_decay else periods.floor())

    def to_dict(self) -> dict[str, Any]:
        """The recipe as plain JSON values, without later additions that are not used.

        So the recipe of a stored result keeps its key.
        """
        values = dataclasses.asdict(self)
        values["views"] = None if self.views is None else self.views.to_dict()
        return {name: values[name] for name in self._used_fields()}

    def __repr__(self) -> str:
        # Checkpoints and cached teachers are named by a digest of it.
        return f"Recipe({', '.join(f'{name}={getattr(self, name)!r}' for name in self._used_fields())})"

    def _used_fields(self) -> list[str]:
        names = [field.name for field in dataclasses.fields(self)]
        return [n for n in names if n not in ADDED_FIELDS or getattr(self, n) != getattr(Recipe, n)]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The recipe that `to_dict` wrote."""
        views = values.get("views")
        return cls(**{**values, "views": None if views is None else Views.from_dict(views)})

    def batch_sizes(self, n: int) -> list[int]:
        """Sizes of the batches of one epoch on n rows."""
        size = min(self.batch_size, n)
        whole, rest = divmod(n, size)
        keep = self.last_batch == "keep" and rest > 1
        return [size] * whole + [rest] * keep

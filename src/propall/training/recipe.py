"""How a network is trained, apart from its loss: epochs, batches, optimizer."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from propall.registry import check_choices, check_integers

#: Precision of matrix products.
Precision = Literal["float32", "tf32", "bfloat16"]


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

    def __post_init__(self) -> None:
        check_integers(self, epochs=0, batch_size=1, decay_every=1)
        for name in ("learning_rate", "weight_decay", "momentum", "decay"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name}: got {value!r}; expected a finite number of at least 0.")
        check_choices(self)

    def rate_factor(self, epoch: Tensor) -> Tensor:
        """Factor of the learning rate after `epoch` completed epochs."""
        periods = epoch / self.decay_every
        return self.decay ** (periods if self.smooth_decay else periods.floor())

    def batch_sizes(self, n: int) -> list[int]:
        """Sizes of the batches of one epoch on n rows."""
        size = min(self.batch_size, n)
        whole, rest = divmod(n, size)
        keep = self.last_batch == "keep" and rest > 1
        return [size] * whole + [rest] * keep

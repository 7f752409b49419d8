"""How long and with what a network is trained; the loss is the objective's business."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from propall.registry import check_choices, check_integers

#: What matrix products are computed in.
Precision = Literal["float32", "tf32", "bfloat16"]


@dataclass(frozen=True)
class Recipe:
    """Epochs, batches, optimiser, schedule, augmentation.

    Attributes:
        epochs: passes over the training set.
        batch_size: instances per step; the whole set where it is smaller.
        optimizer: "sgd" (with momentum) or "adam"; weight decay is the coupled L2 penalty of both, on
            every parameter.
        learning_rate: the start of the schedule.
        momentum: of SGD.
        weight_decay: factor of the L2 penalty.
        decay: the learning rate is multiplied by this ...
        decay_every: ... every so many epochs.
        smooth_decay: spread that factor over all epochs instead of stepping.
        last_batch: "keep" an incomplete last batch of an epoch, or "drop" it. One of a single row is always
            dropped: batch norm has no variance there.
        augmentation: "none", "flip_crop" (mirror, and shift by up to 4 pixels) or "rotate_flip" (up to 30
            degrees either way, and mirror) for images, fresh at every visit.
        precision: "float32" computes in the data's own precision; "tf32" lets a GPU's tensor cores round the
            factors of matrix products to 10 bits; "bfloat16" runs the network under autocast.
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
                raise ValueError(f"{name}: {value!r} given; a finite number of at least 0 is needed.")
        check_choices(self)

    def rate_factor(self, epoch: Tensor) -> Tensor:
        """What the schedule multiplies the learning rate by after `epoch` completed epochs."""
        periods = epoch / self.decay_every
        return self.decay ** (periods if self.smooth_decay else periods.floor())

    def batch_sizes(self, n: int) -> list[int]:
        """The sizes of an epoch's batches on n rows."""
        size = min(self.batch_size, n)
        whole, rest = divmod(n, size)
        keep = self.last_batch == "keep" and rest > 1
        return [size] * whole + [rest] * keep

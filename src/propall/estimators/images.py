"""Image arrays as features of an estimator: their layout, their scale, and views of them."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from propall.nets import NETS
from propall.nets.network import ImageNetwork
from propall.training.image_views import default_views
from propall.training.named_views import VIEWS
from propall.training.views import Views

#: Sizes of an axis that holds gray, color, or color and transparency values.
CHANNELS = (1, 3, 4)
#: Value of a white pixel of a byte.
WHITE = 255
#: Values that pixels from 0 to 1 may reach when images are resized: interpolation exceeds black and white.
LOWEST_UNIT, HIGHEST_UNIT = -0.5, 2.0
#: Pixels may be this many times as large as the largest one in `fit`.
BRIGHTER = 8
#: Images that are searched for fractions at once, to limit the memory that it takes.
SEARCHED = 1024


def takes_images(estimator: Any) -> bool:
    """Whether an estimator trains on views or a named network for images."""
    if getattr(estimator, "views", None):
        return True
    net = getattr(estimator, "net", None)
    return isinstance(net, str) and issubclass(NETS[net], ImageNetwork)


@dataclass(frozen=True)
class PixelScale:
    """The values that the pixels of the training images have.

    Attributes:
        low: the smallest value, after bytes were divided by 255.
        high: the largest value.
        whole: whether all of them are whole numbers.
    """

    low: float
    high: float
    whole: bool

    @classmethod
    def of(cls, images: NDArray[Any]) -> "PixelScale":
        """The scale of training images."""
        return cls(float(images.min()), float(images.max()), not _has_fractions(images))

    @property
    def is_unit(self) -> bool:
        """Whether black is 0 and white 1."""
        return self.low >= 0 and self.high <= 1

    @property
    def is_byte(self) -> bool:
        """Whether the values are those of bytes, stored as other numbers."""
        # Resized images have fractions. So do other measurements, but these seldom have the range of bytes.
        is_pixel = self.whole or self.high > WHITE / 2
        return self.low >= 0 and 1 < self.high <= WHITE and is_pixel

    def check(self, images: NDArray[Any]) -> None:
        """Raise an error if images clearly have another scale than those that the model was fitted on."""
        if not self.is_unit and not self.is_byte:
            return
        low, high = float(images.min()), float(images.max())
        advice = "Scale X like the training images."
        if self.is_unit:
            mismatch = low < LOWEST_UNIT or high > HIGHEST_UNIT
            if low >= 0 and WHITE / 2 < high <= WHITE and self.high > 0.5:
                advice = "Divide X by 255."
        else:
            # Nearly black bytes are 0 and 1: they have no fractions.
            mismatch = low >= 0 and high <= 1 and _has_fractions(images)
            if self.high > WHITE / 2:
                advice = "Multiply X by 255."
        if mismatch or high > BRIGHTER * self.high > 0:
            raise ValueError(
                f"X: got pixels from {low:.4g} to {high:.4g}; the model was fitted on pixels from "
                f"{self.low:.4g} to {self.high:.4g} (after dividing bytes by 255). {advice}"
            )


def _has_fractions(images: NDArray[Any]) -> bool:
    """Whether not all values are whole numbers."""
    parts = (images[start : start + SEARCHED] for start in range(0, len(images), SEARCHED))
    return any(bool((part != np.floor(part)).any()) for part in parts)


def scale_bytes(images: NDArray[np.uint8], fitted: PixelScale | None = None) -> NDArray[np.float32]:
    """Images of bytes as numbers from 0 to 1, or on the scale of the images that a model was fitted on."""
    if fitted is None or fitted.is_unit:
        return images.astype(np.float32) / np.float32(WHITE)
    if not fitted.is_byte:
        low, high = images.min(initial=WHITE), images.max(initial=0)
        raise ValueError(
            f"X: got pixels from {low} to {high} (uint8); the model was fitted on pixels from "
            f"{fitted.low:.4g} to {fitted.high:.4g}. Scale X like the training images."
        )
    return images.astype(np.float32)


def channels_first(features: NDArray[Any]) -> NDArray[Any]:
    """Arrange images as (n, c, h, w); rows of other shapes stay as they are.

    (n, h, w) are gray images. The channels of four axes are the second if it has 1, 3 or 4 entries, else the
    last if that has, else the second.
    """
    if features.ndim == 3:
        return features[:, None]
    if features.ndim == 4 and features.shape[1] not in CHANNELS and features.shape[3] in CHANNELS:
        return np.ascontiguousarray(features.transpose(0, 3, 1, 2))
    return features


def resolve_views(views: bool | str | Views | None, in_shape: tuple[int, ...]) -> Views | None:
    """The views of rows of this shape: none, those given, or named ones; for True, the defaults.

    Named and default views are augmented by kind of image.
    """
    if not views:
        return None
    if not isinstance(views, bool | str | Views):
        raise TypeError(f"views: got {views!r}; expected True, None, a name or a Views.")
    named = VIEWS[views].with_base() if isinstance(views, str) else None
    if len(in_shape) != 3:
        side = math.isqrt(math.prod(in_shape))
        square = len(in_shape) == 1 and side**2 == in_shape[0]
        shape = f"(n, {side}, {side})" if square else "(n, h, w), (n, h, w, c) or (n, c, h, w)"
        raise ValueError(
            f"views: rows of X have shape {tuple(in_shape)}, which are no images. Reshape X to {shape}, or "
            "use views=None."
        )
    if isinstance(views, Views):
        return views
    default = default_views(in_shape)
    return default if named is None else replace(named, weak=default.weak, strong=default.strong)

"""Image arrays as features of an estimator: their layout, their scale, and views of them."""

import math
from dataclasses import replace
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


def takes_images(estimator: Any) -> bool:
    """Whether an estimator trains on views or a named network for images."""
    if getattr(estimator, "views", None):
        return True
    net = getattr(estimator, "net", None)
    return isinstance(net, str) and issubclass(NETS[net], ImageNetwork)


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

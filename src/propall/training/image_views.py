"""Augmented views of images as a function of seed, epoch, row and view."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from propall import counter_rng
from propall.data.augmentation import ALTERNATING, Augmentation
from propall.numerics import check_finite_rows
from propall.training.views import Views, check_views

#: Images with fewer pixels per side get gentler operations: a few pixels carry their meaning.
TINY = 16
#: Factor of the balance term, and share of training over which it falls to 0: see results/balance_term.csv.
BALANCE, BALANCE_FADE = 0.5, 0.5
#: Color and transparency; a last axis this short beside a longer second one holds the channels.
MOST_CHANNELS = 4


def default_views(in_shape: tuple[int, ...], *, mirrored: bool | None = None) -> Views:
    """Views that suit images of this shape, with a balance term in the first half of training.

    Args:
        in_shape: (channels, height, width).
        mirrored: whether an image may be mirrored; by default color images are, gray images are not, since
            many of those show digits or characters.

    Examples:
        >>> views = default_views((3, 32, 32))
        >>> views.balance, views.balance_fade  # for the first half of training
        (0.5, 0.5)
    """
    if not isinstance(in_shape, tuple) or len(in_shape) != 3:
        raise ValueError(
            f"in_shape: got {in_shape!r}; expected (channels, height, width) of one image, such as "
            "(3, 32, 32)."
        )
    channels, height, width = in_shape
    size, flip = min(height, width), channels == 3 if mirrored is None else mirrored
    if size < TINY:
        weak = Augmentation(flip=flip, crop=0)
        strong = Augmentation(flip=flip, crop=1, operations=1, strength=0.3, cutout=2)
    else:
        weak, strong = Augmentation.weak(size, flip=flip), Augmentation.strong(size, flip=flip)
    return Views(weak=weak, strong=strong, balance=BALANCE, balance_fade=BALANCE_FADE)


class PixelRange(NamedTuple):
    """The values of a black and of a white pixel, per channel or per image and channel."""

    low: Float[Tensor, "*n c 1 1"]
    high: Float[Tensor, "*n c 1 1"]


def pixel_range(images: Float[Tensor, "*r n c h w"]) -> PixelRange:
    """The darkest and the brightest value of each channel, which stand for black and white."""
    low, high = (extreme((-4, -2, -1))[..., None, None] for extreme in (images.amin, images.amax))
    return PixelRange(low, high)


def augment_views(
    images: Float[Tensor, "n c h w"],
    views: Views,
    seed: Int[Tensor, "*#rb"],
    epoch: Int[Tensor, "*#rb"],
    keys: Int[Tensor, "*rb"],
    pixels: PixelRange,
) -> list[Float[Tensor, "n c h w"]]:
    """The weak view of every image, then each strong view.

    Args:
        images: one per key, those of the first run first.
        views: number of views and their augmentations.
        seed: from `counter_rng.seed_for`, broadcast over the keys.
        epoch: number of completed epochs, broadcast over the keys.
        keys: integers that identify the rows.
        pixels: see `pixel_range`.
    """
    odd = (epoch % 2 == 1).expand(keys.shape).flatten()
    parts = []
    for number in range(1 + views.n_strong):
        augmentation = views.strong if number else views.weak
        slots = torch.arange(augmentation.n_draws, device=keys.device)
        times = epoch[..., None]
        if augmentation.flip == ALTERNATING:  # the first draw, which decides on the flip, is that of epoch 0
            times = times * (slots > 0)
        draws = counter_rng.uniform(
            seed[..., None], times, keys[..., None], number, slots, dtype=images.dtype
        )
        parts.append(augmentation(images, draws.flatten(0, -2), odd, low=pixels.low, high=pixels.high))
    return parts


class ImageViews:
    """Weak and strong views of images for custom training loops.

    A view depends on seed, epoch and the index of its row, not on the batch: any number of workers or
    processes, and a resumed run, see the same images. The views of a seed are those that
    `propall.training.trainer.Trainer` trains on.

    Args:
        images: training images (n, c, h, w), from which the values of black and white are read.
        views: augmentations and number of strong views; by default `default_views` of the images' shape.
        seed: random seed.

    Examples:
        >>> import torch
        >>> images = torch.rand(8, 3, 16, 16)
        >>> index = torch.arange(4)
        >>> augment = ImageViews(images)
        >>> weak, *strong = augment(images[index], index, epoch=0)
        >>> weak.shape, len(strong)
        (torch.Size([4, 3, 16, 16]), 1)
    """

    def __init__(
        self, images: Float[Tensor, "n c h w"], views: Views | None = None, *, seed: int = 0
    ) -> None:
        check_images(images)
        check_views(views)
        if not len(images):
            raise ValueError(
                "images: got none; expected the training images, for the values of their pixels."
            )
        channels, last = images.shape[1], images.shape[-1]
        if channels > MOST_CHANNELS and last <= MOST_CHANNELS:
            raise ValueError(
                f"images: got shape {tuple(images.shape)}, whose channels seem to be last; expected "
                "(n, c, h, w). Use images.permute(0, 3, 1, 2)."
            )
        self.views = default_views(tuple(images.shape[1:])) if views is None else views
        check_finite_rows(images, "images")
        self._pixels = pixel_range(images)
        self._compared = False
        self._seed = counter_rng.seed_for(seed, "views")

    def __call__(
        self, images: Float[Tensor, "b c h w"], index: Int[Tensor, "b"], *, epoch: int = 0
    ) -> list[Float[Tensor, "b c h w"]]:
        """The weak view of every image, then each strong view, on the device of the images.

        Args:
            images: a batch of images.
            index: their positions in the training set.
            epoch: number of completed epochs.
        """
        check_images(images)
        if not isinstance(index, Tensor) or index.is_floating_point() or index.dtype == torch.bool:
            kind = index.dtype if isinstance(index, Tensor) else type(index).__name__
            raise TypeError(f"index: got {kind}; expected a tensor of integers. Use torch.as_tensor(index).")
        if index.shape != images.shape[:1]:
            raise ValueError(
                f"index: got shape {tuple(index.shape)} for {len(images)} images; expected the position of "
                "each image in the training set."
            )
        self._check_like_training_images(images)
        device = images.device
        seed, number = (torch.tensor(value, device=device) for value in (self._seed, epoch))
        pixels = PixelRange(*(value.to(images) for value in self._pixels))
        return augment_views(images, self.views, seed, number, index.to(device), pixels)

    def _check_like_training_images(self, images: Tensor) -> None:
        """Raise an error for other channels or another scale.

        The scale is looked at once only: for a batch on a GPU, it would have to wait.
        """
        low, high = (value.flatten() for value in self._pixels)
        if images.shape[1] != len(high):
            raise ValueError(f"images: got {images.shape[1]} channels; the training images had {len(high)}.")
        if self._compared or torch.compiler.is_compiling() or not images.numel():
            return
        self._compared = True
        largest, span = float(images.max()), float((high - low).max())
        if largest > float(high.max()) + span:
            raise ValueError(
                f"images: got values up to {largest:g}; those of the training images reach "
                f"{float(high.max()):g}. Scale both alike, for example by a division by 255."
            )


def check_images(x: Tensor) -> None:
    """Raise an error unless x is a batch of floating-point images."""
    if not isinstance(x, Tensor):
        raise TypeError(f"images: got {type(x).__name__}; expected a tensor. Use torch.as_tensor(images).")
    if x.dim() != 4:
        raise ValueError(
            f"views: augmented views need images of shape (n, c, h, w); x has shape {tuple(x.shape)}. "
            "Reshape x, or use views=None."
        )
    if not x.is_floating_point():
        raise TypeError(f"images: got {x.dtype}; expected floating point. Use images.float() / 255.")

"""Random image augmentation on the data's device, as a pure function of uniform draws.

Every operation has static shapes and reads its randomness from draws that the caller makes with
`propall.counter_rng`. Augmented images are therefore reproducible per (seed, epoch, row, view), and the
operations can be captured in a CUDA graph.
"""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Final, Literal, Self

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, pad

from propall.registry import check_integers

#: Weights of red, green and blue in a gray image.
LUMA = (0.299, 0.587, 0.114)
#: Value of `Augmentation.flip`.
ALTERNATING: Final = "alternating"
#: Draws per random operation: which one, its strength, a second strength (translation).
DRAWS_PER_OPERATION = 3


@dataclass(frozen=True)
class Augmentation:
    """A random transformation of images.

    The steps in order: mirror, shifted crop, random operations, cutout.

    Attributes:
        flip: mirror half of the images left to right: drawn anew in every epoch, or "alternating": half of
            them in even epochs and the other half in odd ones, so that two epochs show both versions.
        crop: largest shift in pixels; the border is filled by reflection.
        operations: number of random operations per image, each drawn uniformly from ten: four geometric
            (rotate, shear x, shear y, translate), brightness, contrast, saturation, solarize, posterize and
            autocontrast. Saturation leaves gray images unchanged.
        strength: scale of the operations; 1 rotates by up to 30 degrees, shears by up to 0.3, translates by
            up to 15 % of the side and changes brightness, contrast and saturation by up to 90 %.
        cutout: side of a square hole at a random position, clipped at the border; 0 for none.

    References:
        [cubuk2020randaugment] for the operations, [devries2017cutout] for cutout, [jordan2024airbench] for
        alternating flips.
    """

    flip: bool | Literal["alternating"] = True
    crop: int = 4
    operations: int = 0
    strength: float = 1.0
    cutout: int = 0

    #: Kinds of operations that a draw chooses from; the first four are geometric.
    KINDS: ClassVar[int] = 10

    def __post_init__(self) -> None:
        if self.flip not in (False, True, ALTERNATING):
            raise ValueError(f"flip: got {self.flip!r}; expected True, False or {ALTERNATING!r}.")
        check_integers(self, crop=0, operations=0, cutout=0)
        strength: Any = self.strength
        if not isinstance(strength, Real) or not 0 <= float(strength) < math.inf:
            raise ValueError(f"strength: got {self.strength!r}; expected a finite number, 0 or more.")

    @classmethod
    def weak(cls, size: int = 32, *, flip: bool | Literal["alternating"] = True) -> Self:
        """Mirror, and shift by up to an eighth of the image's side."""
        return cls(flip=flip, crop=size // 8)

    @classmethod
    def strong(cls, size: int = 32, *, flip: bool | Literal["alternating"] = True) -> Self:
        """Mirror, shift, two random operations and a hole of half the image's side.

        Images that must not be mirrored, such as digits, get operations of half the strength and a hole of a
        third of the side.
        """
        crop = size // 8
        if flip:
            return cls(flip=flip, crop=crop, operations=2, cutout=size // 2)
        return cls(flip=False, crop=crop, operations=2, strength=0.5, cutout=size // 3)

    @property
    def n_draws(self) -> int:
        """Uniform draws per image."""
        return 5 + DRAWS_PER_OPERATION * self.operations

    def __call__(
        self,
        images: Float[Tensor, "n c h w"],
        draws: Float[Tensor, "n d"],
        odd_epoch: Tensor | bool = False,
        *,
        low: Float[Tensor, "*#n c 1 1"],
        high: Float[Tensor, "*#n c 1 1"],
    ) -> Float[Tensor, "n c h w"]:
        """Augment every image with its own draws.

        Args:
            images: pixels in any affine scale, for example normalized by mean and standard deviation.
            draws: uniform on (0, 1), `n_draws` per image.
            odd_epoch: whether to mirror the other half of the images. With alternating flips, the first draw
                of an image is to be the same in every epoch; `propall.training.image_views` does so.
            low: value of a black pixel, per channel or per image and channel.
            high: value of a white pixel, likewise.
        """
        if self.flip:
            mirrored = (draws[:, 0] < 0.5) ^ odd_epoch
            images = torch.where(mirrored[:, None, None, None], images.flip(-1), images)
        if self.crop:
            images = shifted_crop(images, draws[:, 1:3], self.crop)
        if self.operations:
            per_operation = draws[:, 5:].unflatten(1, (self.operations, DRAWS_PER_OPERATION))
            span = high - low
            # A constant channel, such as full opacity, stays as it is.
            unit = (images - low) / span.where(span > 0, 1)
            unit = self._transform(unit, per_operation)
            images = (unit * span + low).to(images.dtype)
        if self.cutout:
            images = cut_out(images, draws[:, 3:5], self.cutout)
        return images

    def _transform(
        self, images: Float[Tensor, "n c h w"], draws: Float[Tensor, "n o 3"]
    ) -> Float[Tensor, "n c h w"]:
        """Apply the random operations to images on [0, 1].

        The geometric operations of an image are composed into one resampling, which comes first.
        """
        kind = (draws[..., 0] * self.KINDS).long()
        amount = (2 * draws[..., 1:] - 1) * self.strength
        images = warp(images, kind, amount)
        for i in range(self.operations):
            images = change_colors(images, kind[:, i] - 4, amount[:, i, 0])
        return images


def shifted_crop(
    images: Float[Tensor, "n c h w"], draws: Float[Tensor, "n 2"], reach: int, border: str = "reflect"
) -> Float[Tensor, "n c h w"]:
    """Shift every image by up to `reach` pixels in each direction; `border` is a mode of `pad`."""
    n, _, height, width = images.shape
    if border == "reflect" and reach >= min(height, width):
        raise ValueError(
            f"crop: got {reach} for images of {height} x {width} pixels; expected less than the shorter "
            "side. Enlarge the images, or use Augmentation(crop=0)."
        )
    padded = pad(images, [reach] * 4, mode=border)
    start = (draws * (2 * reach + 1)).long()
    rows = start[:, :1] + torch.arange(height, device=images.device)
    columns = start[:, 1:] + torch.arange(width, device=images.device)
    item = torch.arange(n, device=images.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[item, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def cut_out(
    images: Float[Tensor, "n c h w"], draws: Float[Tensor, "n 2"], size: int
) -> Float[Tensor, "n c h w"]:
    """Set a square hole of every image to 0, centered anywhere in the image and clipped at its border."""
    height, width = images.shape[-2:]
    if size > max(height, width):
        raise ValueError(
            f"cutout: got {size} for images of {height} x {width} pixels, which such holes would hide; "
            f"expected at most the longer side. Use Augmentation.strong({min(height, width)})."
        )
    inside = []
    for side, chance in zip(images.shape[-2:], draws.unbind(1), strict=True):
        start = (chance * side).floor() - size // 2
        offset = torch.arange(side, device=images.device) - start[:, None]
        inside.append((offset >= 0) & (offset < size))
    hole = inside[0][:, None, :, None] & inside[1][:, None, None, :]
    return images.masked_fill(hole, 0)


@torch.library.custom_op("propall::resample", mutates_args=())
def _resample(images: Tensor, grid: Tensor) -> Tensor:
    """`grid_sample` that a compiler does not look into.

    PyTorch's compiler for CPUs (2.13) fuses it with the extremes of an image for automatic contrast, and
    computes other images than `grid_sample` does.
    """
    return grid_sample(images, grid, align_corners=False)


@_resample.register_fake
def _(images: Tensor, grid: Tensor) -> Tensor:
    return images.new_empty(images.shape[:2] + grid.shape[1:3])


def warp(
    images: Float[Tensor, "n c h w"], kind: Tensor, amount: Float[Tensor, "n o 2"]
) -> Float[Tensor, "n c h w"]:
    """Rotate (kind 0), shear (1, 2) or translate (3) images; other kinds leave them as they are."""
    first, second = amount.unbind(-1)
    angle = torch.where(kind == 0, first * (math.pi / 6), 0.0)
    shear_x = torch.where(kind == 1, 0.3 * first, 0.0)
    shear_y = torch.where(kind == 2, 0.3 * first, 0.0)
    move_x, move_y = (torch.where(kind == 3, 0.3 * part, 0.0) for part in (first, second))
    zero, one = torch.zeros_like(angle), torch.ones_like(angle)
    rows = [
        [angle.cos(), shear_x - angle.sin(), move_x],
        [angle.sin() + shear_y, angle.cos(), move_y],
        [zero, zero, one],
    ]
    matrices = torch.stack([torch.stack(row, -1) for row in rows], -2)
    theta = matrices[:, 0]
    for i in range(1, matrices.shape[1]):
        theta = theta @ matrices[:, i]
    grid = affine_grid(theta[:, :2].float(), list(images.shape), align_corners=False)
    grid = grid.to(images.dtype)
    if torch.compiler.is_compiling() and images.device.type == "cpu":
        resampled: Tensor = _resample(images, grid)
        return resampled
    return grid_sample(images, grid, align_corners=False)


def change_colors(
    images: Float[Tensor, "n c h w"], kind: Tensor, amount: Float[Tensor, "n"]
) -> Float[Tensor, "n c h w"]:
    """Change pixel values on [0, 1].

    Kinds: brightness 0, contrast 1, saturation 2, solarize 3, posterize 4, autocontrast 5; others leave the
    image as it is.
    """
    kind, amount = kind[:, None, None, None], amount[:, None, None, None]
    gray = images.mean(1, keepdim=True)
    if images.shape[1] == 3:
        # Not a tensor of weights: a captured graph cannot copy it to the device.
        red, green, blue = images.split(1, 1)
        gray = LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue
    # Brightness, contrast and saturation move pixels away from black, the mean gray and their own gray.
    anchor = torch.where(kind == 1, gray.mean((2, 3), keepdim=True), 0.0)
    anchor = torch.where(kind == 2, gray, anchor)
    factor = torch.where((kind >= 0) & (kind <= 2), 1 + 0.9 * amount, 1.0)
    changed = anchor + (images - anchor) * factor
    changed = torch.where((kind == 3) & (images > (amount + 1) / 2), 1 - images, changed)
    levels = torch.exp2(3 + ((amount + 1) / 2 * 5).floor().clamp(0, 4))
    changed = torch.where(kind == 4, (images * levels).floor() / levels, changed)
    lowest, highest = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    changed = torch.where(kind == 5, (images - lowest) / (highest - lowest + 1e-6), changed)
    return changed.clamp(0, 1)

"""The data of a stack, resident on its device, and the random streams that order, augment and perturb it."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from propall import counter_rng
from propall.data.augmentation import shifted_crop
from propall.training import data_parallel
from propall.training.contract import Run
from propall.training.image_views import PixelRange, augment_views, check_images, pixel_range
from propall.training.recipe import Recipe
from propall.training.views import Views, mix, mixing_weights

#: Maximum shift of an image in pixels, and maximum rotation.
CROP_REACH, ROTATION_REACH = 4, math.radians(30)
#: Numbers gathered at once when several batches are assembled together: about what a core's cache holds.
NUMBERS_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class Batch:
    """The batch of one step of a stack: r runs, b instances each, v views of an instance."""

    index: Int[Tensor, "r b"]
    x: Float[Tensor, "r vb ..."]
    candidates: Bool[Tensor, "r b k"]
    weight: Float[Tensor, "r b"] | None
    keys: Int[Tensor, "r b"]
    teacher: Float[Tensor, "r b k"] | None = None
    mixing: Float[Tensor, "r b"] | None = None


class Labels(NamedTuple):
    """The fields of a `Batch` besides index and features."""

    candidates: Bool[Tensor, "r b k"]
    weight: Float[Tensor, "r b"] | None
    keys: Int[Tensor, "r b"]


def _identity(tensor: Tensor) -> tuple[object, ...]:
    """Equal for two views of the same memory."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _shared_or_stacked(tensors: Sequence[Tensor]) -> Tensor:
    """(n, ...) if all runs hold the same tensor, else (r, n, ...)."""
    first = tensors[0]
    if all(t is first or _identity(t) == _identity(first) for t in tensors):
        return first
    return torch.stack(list(tensors))


class Stream:
    """The training sets of stacked runs; data that all runs share is stored once."""

    def __init__(self, runs: Sequence[Run], recipe: Recipe) -> None:
        train = self._data = runs[0].train
        self.recipe = recipe
        self.device = train.x.device
        self.n = len(train)
        self.n_classes = train.n_classes
        self.batch_sizes = recipe.batch_sizes(self.n)
        self.x = _shared_or_stacked([run.train.x for run in runs])
        self._x_is_shared = self.x.dim() == train.x.dim()
        if self._x_is_shared and self.x.dim() == 4 and self.device.type == "cuda":
            # CUDA convolutions read channels last; any other layout would be converted in every step.
            self.x = self.x.contiguous(memory_format=torch.channels_last)
        self.candidates = _shared_or_stacked([run.train.candidates for run in runs])
        self.weight = self._weights(runs)
        index = torch.arange(self.n, device=self.device)
        keys = [index if run.keys is None else run.keys.to(self.device) for run in runs]
        self.keys = _shared_or_stacked(keys)
        self._row = torch.arange(len(runs), device=self.device)[:, None]
        self._seeds = {
            purpose: torch.tensor(
                [counter_rng.seed_for(run.seed, purpose) for run in runs], device=self.device
            )
            for purpose in ("order", "noise", "augmentation", *(["views"] if recipe.views else []))
        }
        if recipe.views is not None:
            check_images(train.x)
            # Of each run by itself: its views do not depend on which runs share its stack.
            self.pixels = pixel_range(self.x)
        if recipe.augmentation != "none" and train.x.dim() != 4:
            raise ValueError(
                f"augmentation: {recipe.augmentation!r} needs images of shape (n, c, h, w); "
                f"x has shape {tuple(train.x.shape)}. Reshape x, or use augmentation='none'."
            )

    def _weights(self, runs: Sequence[Run]) -> Tensor | None:
        if all(run.weight is None for run in runs):
            return None
        ones = torch.ones(self.n, dtype=self.x.dtype, device=self.device)
        return _shared_or_stacked([ones if run.weight is None else run.weight.to(ones) for run in runs])

    def copy_data(self) -> None:
        """Replace the data by copies, which may be overwritten without changing the caller's."""
        self.x, self.candidates, self.keys = self.x.clone(), self.candidates.clone(), self.keys.clone()
        self.weight = None if self.weight is None else self.weight.clone()

    def tensors(self) -> list[Tensor]:
        """The data and the seeds."""
        weight = [] if self.weight is None else [self.weight]
        pixel_range = self.pixels if self.recipe.views is not None else ()
        return [self.x, self.candidates, self.keys, *weight, *self._seeds.values(), *pixel_range]

    def order(self, epoch: int) -> Int[Tensor, "r n"]:
        """The order of every run's rows in one epoch."""
        return self._orders(range(epoch, epoch + 1))[:, 0]

    def _orders(self, epochs: range) -> Int[Tensor, "r e n"]:
        keys = self.keys if self.keys.dim() == 2 else self.keys[None]
        numbers = torch.arange(epochs.start, epochs.stop, device=self.device)
        return counter_rng.order(self._seeds["order"][:, None, None], numbers[:, None], keys[:, None])

    def batches(
        self, epochs: range, noisy: Sequence[slice | None], first: int = 0
    ) -> Iterator[tuple[Batch, list[Tensor | None]]]:
        """The batches of some epochs, each with its `noises`.

        Args:
            epochs: which epochs.
            noisy: see `noises`.
            first: number of batches to skip.
        """
        sizes, per_epoch = self.batch_sizes, len(self.batch_sizes)
        if first == per_epoch * len(epochs):
            return
        size, rows = sizes[0], sum(sizes)
        # Several batches are gathered at once and split again.
        room = NUMBERS_AT_ONCE // (len(self._row) * size)
        at_once = max(1, room // self.n_classes)
        for some_epochs in _split(epochs, max(1, at_once // per_epoch)):
            order = self._orders(some_epochs)[..., :rows].flatten(1)
            for block in _split(range(first, per_epoch * len(some_epochs)), at_once):
                block_sizes = (sizes * len(some_epochs))[block.start : block.stop]
                start = block.start * size
                index = order[:, start : start + sum(block_sizes)]
                place = torch.arange(start, start + index.shape[1], device=order.device)
                steps = (some_epochs.start + place // rows) * per_epoch + place % rows // size
                yield from self._gather(index, steps, block_sizes, noisy, room)
            first = 0

    def _gather(
        self, index: Tensor, steps: Tensor, sizes: list[int], noisy: Sequence[slice | None], room: int
    ) -> Iterator[tuple[Batch, list[Tensor | None]]]:
        """Several batches at once, split by their sizes."""
        if data_parallel.share() != (0, 1):
            rows, sizes = data_parallel.own_rows(sizes)
            index, steps = index[:, rows], steps[rows]

        def split(tensor: Tensor | None) -> Iterator[Tensor | None]:
            return itertools.repeat(None) if tensor is None else iter(tensor.split(sizes, 1))

        labels = self.labels(index)
        noises = [split(noise) for noise in self.noises(noisy, steps, labels.keys)]
        mixing = zip(split(self.mixing(labels.keys, steps)), split(labels.weight), strict=False)
        mixing_by_batch = [_with_counted(*next(mixing)) for _ in sizes]
        x = self._features_in_blocks(index, labels.keys, steps, sizes, mixing_by_batch, room)
        parts = zip(index.split(sizes, 1), x, *map(split, labels), mixing_by_batch, strict=False)
        for rows, features, candidates, weight, keys, shares in parts:
            batch = Batch(rows, features, candidates, weight, keys, mixing=shares)
            yield batch, [next(noise) for noise in noises]

    def _features_in_blocks(
        self,
        index: Tensor,
        keys: Tensor,
        steps: Tensor,
        sizes: list[int],
        mixing: Sequence[Tensor | None],
        room: int,
    ) -> Iterator[Tensor]:
        """Features of several batches, one batch at a time."""
        at_once = max(1, room // math.prod(self.x.shape[1 if self._x_is_shared else 2 :]))
        if self.recipe.views is not None:
            at_once = 1  # the views of a batch stand together
        start = 0
        for block in range(0, len(sizes), at_once):
            block_sizes = sizes[block : block + at_once]
            rows = slice(start, start := start + sum(block_sizes))
            features = self.features(index[:, rows], keys[:, rows], steps[rows], mixing[block])
            yield from [features] if len(block_sizes) == 1 else features.split(block_sizes, 1)

    def _take(self, table: Tensor, index: Int[Tensor, "r b"], per_run: bool) -> Tensor:
        if self.device.type != "cpu":
            return table[self._row, index] if per_run else table[index]
        # On a CPU, copying whole rows is several times faster than advanced indexing.
        if per_run:
            table, index = table.flatten(0, 1), index + self._row * self.n
        return table.index_select(0, index.flatten()).view(*index.shape, *table.shape[1:])

    def batch(self, index: Int[Tensor, "r b"], step: Int[Tensor, "*#rb"]) -> Batch:
        """The given rows, augmented as the recipe says; `step` is one number, or one per row."""
        labels = self.labels(index)
        mixing = _with_counted(self.mixing(labels.keys, step), labels.weight)
        return Batch(index, self.features(index, labels.keys, step, mixing), *labels, mixing=mixing)

    def labels(self, index: Int[Tensor, "r b"]) -> Labels:
        """Candidates, weights and keys of the given rows."""
        weight = None if self.weight is None else self._take(self.weight, index, self.weight.dim() == 2)
        candidates = self._take(self.candidates, index, self.candidates.dim() == 3)
        return Labels(candidates, weight, self._take(self.keys, index, self.keys.dim() == 2))

    def features(
        self,
        index: Int[Tensor, "r b"],
        keys: Int[Tensor, "r b"],
        step: Int[Tensor, "*#rb"],
        mixing: Float[Tensor, "r b"] | None,
    ) -> Float[Tensor, "r vb ..."]:
        """Features of the given rows, augmented as the recipe says; `mixing` has their weights in mixup."""
        in_files = self._data.in_files
        x = self._data.read(index) if in_files else self._take(self.x, index, not self._x_is_shared)
        if self.recipe.views is not None:
            return self._views(x, keys, step, self.recipe.views, mixing)
        return x if self.recipe.augmentation == "none" else self._augment(x, keys, step)

    def _views(
        self,
        x: Float[Tensor, "r b c h w"],
        keys: Int[Tensor, "r b"],
        step: Int[Tensor, "*#rb"],
        views: Views,
        mixing: Float[Tensor, "r b"] | None,
    ) -> Float[Tensor, "r vb c h w"]:
        """The weak view of all rows, each strong view, and with `mixing` the weak views again, mixed.

        A function of seed, epoch, row and view.
        """
        epoch = torch.div(step, len(self.batch_sizes), rounding_mode="floor")
        seeds = self._seeds["views"][:, None]
        pixels = self.pixels
        if not self._x_is_shared:
            pixels = PixelRange(*(value.repeat_interleave(x.shape[1], 0) for value in pixels))
        parts = augment_views(x.flatten(0, 1), views, seeds, epoch, keys, pixels)
        parts = [part.view_as(x) for part in parts]
        if mixing is not None:
            parts.append(mix(parts[0], mixing))
        together = torch.cat(parts, 1)
        if self.device.type != "cuda":
            return together
        # CUDA convolutions read channels last.
        flat = together.flatten(0, 1).contiguous(memory_format=torch.channels_last)
        stacked: Tensor = flat.unflatten(0, together.shape[:2])
        return stacked

    def mixing(self, keys: Int[Tensor, "r b"], step: Int[Tensor, "*#rb"]) -> Float[Tensor, "r b"] | None:
        """Weights of the rows in mixup; None without it."""
        views = self.recipe.views
        if views is None or not views.mixup:
            return None
        epoch = torch.div(step, len(self.batch_sizes), rounding_mode="floor")
        slots = torch.arange(2 * views.mixup - 1, device=self.device)
        seeds = self._seeds["views"][:, None, None]
        place = (epoch[..., None], keys[..., None], 1 + views.n_strong, slots)
        return mixing_weights(counter_rng.uniform(seeds, *place, dtype=self.x.dtype))

    def noises(
        self, noisy: Sequence[slice | None], steps: Int[Tensor, "*#rb"], keys: Int[Tensor, "r b"]
    ) -> list[Tensor | None]:
        """Uniform draws for several slices of the runs; None gives None."""
        return [None if runs is None else self.noise(runs, steps, keys[runs]) for runs in noisy]

    def noise(
        self, runs: slice, steps: Int[Tensor, "*#rb"], keys: Int[Tensor, "r b"]
    ) -> Float[Tensor, "r b k"]:
        """Uniform draws for the rows of some runs.

        Args:
            runs: whose seeds to draw from.
            steps: number of the training step, one for all rows or one per row.
            keys: the rows' keys.
        """
        seeds = self._seeds["noise"][runs][:, None, None]
        classes = torch.arange(self.n_classes, device=self.device)
        return counter_rng.uniform(seeds, steps[..., None], keys[..., None], classes, dtype=self.x.dtype)

    def _augment(
        self, x: Float[Tensor, "r b c h w"], keys: Int[Tensor, "r b"], step: Int[Tensor, "*#rb"]
    ) -> Float[Tensor, "r b c h w"]:
        seeds = self._seeds["augmentation"][:, None, None]
        purposes = torch.arange(3, device=self.device)
        u = counter_rng.uniform(seeds, step[..., None], keys[..., None], purposes, dtype=x.dtype)
        images, chance = x.flatten(0, 1), u.flatten(0, 1)
        mirrored = (chance[:, 0] < 0.5)[:, None, None, None]
        images = torch.where(mirrored, images.flip(-1), images)
        if self.recipe.augmentation == "flip_crop":
            # Zeros are the normalized mean.
            images = shifted_crop(images, chance[:, 1:], CROP_REACH, border="constant")
        else:
            images = _rotated(images, (2 * chance[:, 1] - 1) * ROTATION_REACH)
        return images.view_as(x)


def _with_counted(
    shares: Float[Tensor, "r b"] | None, weight: Float[Tensor, "r b"] | None
) -> Float[Tensor, "r b"] | None:
    """Weights of the rows in mixup; 1 for a row whose partner, the row before it, has weight 0."""
    if shares is None or weight is None:
        return shares
    return torch.where(weight.roll(1, -1) > 0, shares, 1)


def _rotated(images: Float[Tensor, "n c h w"], angle: Float[Tensor, "n"]) -> Float[Tensor, "n c h w"]:
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    theta = torch.stack([cos, -sin, zero, sin, cos, zero], dim=1).view(-1, 2, 3)
    grid = torch.nn.functional.affine_grid(theta, list(images.shape), align_corners=False)
    return torch.nn.functional.grid_sample(images, grid, align_corners=False)


def _split(whole: range, length: int) -> Iterator[range]:
    """Consecutive pieces of a range."""
    return (whole[start : start + length] for start in range(0, len(whole), length))

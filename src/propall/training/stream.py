"""A stack's data, resident on its device, and the random streams that order, blur and augment it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from propall import counter_rng
from propall.training.contract import Run
from propall.training.recipe import Recipe

CROP_REACH = 4
ROTATION_REACH = math.radians(30)


@dataclass(frozen=True)
class Batch:
    """What one step of a stack works on: r runs, b instances each."""

    index: Int[Tensor, "r b"]
    x: Float[Tensor, "r b ..."]
    candidates: Bool[Tensor, "r b k"]
    weight: Float[Tensor, "r b"] | None
    keys: Int[Tensor, "r b"]


class Labels(NamedTuple):
    """What belongs to rows besides their features: see `Batch`."""

    candidates: Bool[Tensor, "r b k"]
    weight: Float[Tensor, "r b"] | None
    keys: Int[Tensor, "r b"]


def _place(tensor: Tensor) -> tuple[object, ...]:
    """What two views of the very same numbers have in common."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _shared_or_stacked(tensors: Sequence[Tensor]) -> Tensor:
    """(n, ...) where all runs hold the very same tensor, else (r, n, ...)."""
    first = tensors[0]
    if all(t is first or _place(t) == _place(first) for t in tensors):
        return first
    return torch.stack(list(tensors))


class Stream:
    """The training sets of stacked runs; data that runs share is held once."""

    def __init__(self, runs: Sequence[Run], recipe: Recipe) -> None:
        train = runs[0].train
        self.recipe = recipe
        self.device = train.x.device
        self.n = len(train)
        self.n_classes = train.n_classes
        self.x = _shared_or_stacked([run.train.x for run in runs])
        self._x_is_shared = self.x.dim() == train.x.dim()
        if self._x_is_shared and self.x.dim() == 4 and self.device.type == "cuda":
            # Convolutions there read channels last; other layouts would be turned around in every step.
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
            for purpose in ("order", "noise", "augmentation")
        }
        if recipe.augmentation != "none" and train.x.dim() != 4:
            raise ValueError(
                f"augmentation: {recipe.augmentation!r} works on images (n, c, h, w); "
                f"x has shape {tuple(train.x.shape)}. Reshape x, or use augmentation='none'."
            )

    def _weights(self, runs: Sequence[Run]) -> Tensor | None:
        if all(run.weight is None for run in runs):
            return None
        ones = torch.ones(self.n, dtype=self.x.dtype, device=self.device)
        return _shared_or_stacked([ones if run.weight is None else run.weight.to(ones) for run in runs])

    def own(self) -> None:
        """Copy the data sets, so that they may be written over; the caller's stay as they are."""
        self.x, self.candidates, self.keys = self.x.clone(), self.candidates.clone(), self.keys.clone()
        self.weight = None if self.weight is None else self.weight.clone()

    def tensors(self) -> list[Tensor]:
        """The data sets and the seeds."""
        weight = [] if self.weight is None else [self.weight]
        return [self.x, self.candidates, self.keys, *weight, *self._seeds.values()]

    def order(self, epoch: int) -> Int[Tensor, "r n"]:
        """Every run's own shuffling of its rows for one epoch."""
        return self.orders(range(epoch, epoch + 1))[:, 0]

    def orders(self, epochs: range) -> Int[Tensor, "r e n"]:
        """Every run's own shuffling of its rows for each of some epochs."""
        keys = self.keys if self.keys.dim() == 2 else self.keys[None]
        numbers = torch.arange(epochs.start, epochs.stop, device=self.device)
        return counter_rng.order(self._seeds["order"][:, None, None], numbers[:, None], keys[:, None])

    def _take(self, table: Tensor, index: Int[Tensor, "r b"], per_run: bool) -> Tensor:
        if self.device.type != "cpu":
            return table[self._row, index] if per_run else table[index]
        # There, whole rows are copied several times faster than elements are looked up.
        if per_run:
            table, index = table.flatten(0, 1), index + self._row * self.n
        return table.index_select(0, index.flatten()).view(*index.shape, *table.shape[1:])

    def batch(self, index: Int[Tensor, "r b"], step: Int[Tensor, "*#rb"]) -> Batch:
        """Rows of one step, or each of a step of its own, augmented where the recipe says so."""
        labels = self.labels(index)
        return Batch(index, self.features(index, labels.keys, step), *labels)

    def labels(self, index: Int[Tensor, "r b"]) -> "Labels":
        """What belongs to rows besides their features."""
        weight = None if self.weight is None else self._take(self.weight, index, self.weight.dim() == 2)
        candidates = self._take(self.candidates, index, self.candidates.dim() == 3)
        return Labels(candidates, weight, self._take(self.keys, index, self.keys.dim() == 2))

    def features(
        self, index: Int[Tensor, "r b"], keys: Int[Tensor, "r b"], step: Int[Tensor, "*#rb"]
    ) -> Float[Tensor, "r b ..."]:
        """Features of rows, augmented where the recipe says so."""
        x = self._take(self.x, index, not self._x_is_shared)
        return x if self.recipe.augmentation == "none" else self._augment(x, keys, step)

    def noise(
        self, runs: slice, steps: Int[Tensor, "*#rb"], keys: Int[Tensor, "r b"]
    ) -> Float[Tensor, "r b k"]:
        """Uniform draws for some of the runs' rows.

        Args:
            runs: whose seeds to draw from.
            steps: the number of the training step, of all rows or of each.
            keys: the rows' names.
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
            images = _shifted(images, chance[:, 1:])
        else:
            images = _rotated(images, (2 * chance[:, 1] - 1) * ROTATION_REACH)
        return images.view_as(x)


def _shifted(images: Float[Tensor, "n c h w"], chance: Float[Tensor, "n 2"]) -> Float[Tensor, "n c h w"]:
    """Each image moved by up to four pixels either way, zeros (the normalised mean) moving in."""
    n, _, height, width = images.shape
    padded = torch.nn.functional.pad(images, [CROP_REACH] * 4)
    start = (chance * (2 * CROP_REACH + 1)).long()
    rows = start[:, :1] + torch.arange(height, device=images.device)
    columns = start[:, 1:] + torch.arange(width, device=images.device)
    item = torch.arange(n, device=images.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[item, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def _rotated(images: Float[Tensor, "n c h w"], angle: Float[Tensor, "n"]) -> Float[Tensor, "n c h w"]:
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    theta = torch.stack([cos, -sin, zero, sin, cos, zero], dim=1).view(-1, 2, 3)
    grid = torch.nn.functional.affine_grid(theta, list(images.shape), align_corners=False)
    return torch.nn.functional.grid_sample(images, grid, align_corners=False)

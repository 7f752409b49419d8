"""Objectives as `nn.Module`, for custom training loops."""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from propall.labels.candidates import CandidateLabels, check
from propall.labels.inputs import describe_type
from propall.methods.propall import ProPaLL, propall_loss
from propall.numerics import is_traced
from propall.training.consistency import ConsistentObjective
from propall.training.contract import Algorithm, Objective, RowwiseObjective, State, Step, check_weight
from propall.training.views import Views, check_views
from propall.wording import plural

#: Matrix with True (or 1) on the candidates of each row.
CandidateMatrix = Tensor | CandidateLabels | NDArray[np.generic]
Reduction = Literal["mean", "sum", "none"]


@torch.library.custom_op("propall::gather_memory", mutates_args=())
def _gather_memory(memory: Tensor, index: Tensor) -> Tensor:
    """Copy rows of a memory as they are now.

    A compiled backward pass may recompute cheap operations instead of saving their results; by then the
    memory has been overwritten. The result of an opaque operator is saved.
    """
    return memory[index]


@_gather_memory.register_fake
def _(memory: Tensor, index: Tensor) -> Tensor:
    return memory.new_empty(index.shape + memory.shape[1:])


def _tied_to_time(value: Tensor, step: Step) -> Tensor:
    """The same value, to a compiler a function of the time.

    One that finds the time unused compiles anew for each of its values, and soon gives up.
    """
    return value + 0 * (step.progress + step.epoch) if torch.compiler.is_compiling() else value


def _rows_that_count(index: Int[Tensor, "b"], counted: Bool[Tensor, "b"]) -> Int[Tensor, "b"]:
    """For each row of a batch, a row of the same instance that counts, if there is any.

    A batch that is filled up with copies of weight 0 holds an instance several times.
    """
    order = (2 * index + counted).argsort()
    last = torch.searchsorted(index[order], index.contiguous(), right=True) - 1
    return order[last]


def _as_tensor(candidates: CandidateMatrix) -> Tensor:
    if isinstance(candidates, Tensor):
        return candidates
    if candidates is None:
        raise TypeError("candidates: got None; expected a tensor with True on the candidates of each row.")
    return candidates.mask if isinstance(candidates, CandidateLabels) else torch.as_tensor(candidates)


def _row_weights(weight: Tensor, batch: list[int]) -> Tensor:
    """Flatten weights given per instance, or per position (such as a pixel) of each instance."""
    if not isinstance(weight, Tensor):
        raise TypeError(
            f"weight: got {describe_type(weight)}; expected a tensor. Use torch.as_tensor(weight)."
        )
    if list(weight.shape) != batch[: weight.dim()]:
        dense = f", or {tuple(batch)}" if len(batch) > 1 else ""
        raise ValueError(
            f"weight: got shape {tuple(weight.shape)}; expected {tuple(batch[:1])}, one per instance{dense}."
        )
    if weight.device.type == "cpu" and not is_traced():
        check_weight(weight)
    return weight.reshape(*weight.shape, *[1] * (len(batch) - weight.dim())).expand(batch).reshape(-1)


def _neutralize(
    rows: Bool[Tensor, "b"], logits: Float[Tensor, "vb k"], sets: Bool[Tensor, "b k"]
) -> tuple[Float[Tensor, "vb k"], Bool[Tensor, "b k"]]:
    """Make some rows harmless: their loss might be infinite, and 0 times infinity is NaN.

    One label is excluded there, which every objective accepts. The logits are those of one or more views.
    """
    harmless = torch.arange(sets.shape[-1], device=sets.device) > 0
    in_views = rows.repeat(len(logits) // max(1, len(rows)))
    return logits.masked_fill(in_views[:, None], 0), torch.where(rows[:, None], harmless, sets)


def _check_binary(candidates: Tensor) -> None:
    if candidates.dtype != torch.bool and not ((candidates == 0) | (candidates == 1)).all():
        wrong = candidates[(candidates != 0) & (candidates != 1)][0].item()
        raise ValueError(
            f"candidates: contains {wrong!r}; expected True or 1 on candidates, False or 0 elsewhere. "
            "To ignore a row, give it weight 0."
        )


def _check_index(index: Tensor, n: int) -> None:
    if index.is_floating_point() or index.dtype == torch.bool:
        raise TypeError(f"index: got {index.dtype}; expected integers, the positions of the rows.")
    if index.shape != (n,):
        raise ValueError(
            f"index: got shape {tuple(index.shape)} for {n} rows of logits; expected ({n},), the position of "
            "each row in the training set. Each pixel of dense logits is a row."
        )


def check_objective(objective: object) -> None:
    """Raise TypeError for a name or an algorithm in place of an objective."""
    if not isinstance(objective, Objective):
        hint = "To look one up by name, use propall.methods.METHODS[name]()."
        if isinstance(objective, Algorithm):
            hint = f"{objective.title} has its own training loop; use PartialLabelClassifier."
        raise TypeError(f"objective: got {objective!r}; expected an objective such as ProPaLL(). {hint}")


class PartialLabelLoss(nn.Module):
    """Loss of an objective on logits and candidate sets.

    Objectives with memory (PRODEN, RC, ...) need the `candidates` of the training set once and the `index` of
    the rows in every call. Their memory is kept in buffers, so it moves with `.to(device)` and is part of
    `state_dict()`. In training mode, a call also updates the memory of its rows; objectives that evaluate the
    network again after the optimizer's step (`objective.fresh_logits`) are updated by `refresh` instead.

    Args:
        objective: any objective of `propall.methods`, such as `PRODEN()`.
        candidates: (n, k) candidate matrix of the whole training set, for objectives with memory. It is
            validated once; without it every batch is validated, on a GPU only the first.
        reduction: "mean", "sum" or "none"; losses defined on a batch as a whole accept only "mean".
        dim: class dimension of logits and candidates; 1 as in `torch.nn.CrossEntropyLoss`, so dense logits
            (n, k, h, w) work as they are.

    Examples:
        >>> import torch
        >>> from propall.methods.proden import PRODEN
        >>> net, x = torch.nn.Linear(3, 4), torch.zeros(6, 3)
        >>> candidates = torch.tensor([[True, True, False, False]] * 6)
        >>> criterion = PartialLabelLoss(PRODEN(), candidates=candidates)
        >>> index = torch.tensor([0, 5])
        >>> loss = criterion(net(x[index]), candidates[index], index=index)
        >>> loss.shape
        torch.Size([])
    """

    def __init__(
        self,
        objective: Objective,
        candidates: CandidateMatrix | None = None,
        *,
        reduction: Reduction = "mean",
        dim: int = 1,
    ) -> None:
        super().__init__()
        check_objective(objective)
        if reduction not in get_args(Reduction):
            raise ValueError(f"reduction: got {reduction!r}; expected 'mean', 'sum' or 'none'.")
        if reduction != "mean" and not isinstance(objective, RowwiseObjective):
            raise ValueError(
                f"reduction: got {reduction!r}, but {objective.title} is defined on a batch as a whole, not "
                "per instance. Use reduction='mean'."
            )
        self.objective, self.reduction, self.dim = objective, reduction, dim
        self._names: dict[str, list[str]] = {"rows": [], "shared": [], "trained": []}
        self._validated = False
        self._classes: int | None = None
        if candidates is not None:
            matrix = _as_tensor(candidates)
            _check_binary(matrix)
            check(matrix.bool(), quiet=True)
            self._register(objective.init(matrix.bool()))
            self._classes = matrix.shape[1]

    def extra_repr(self) -> str:
        """Settings that `print` shows."""
        return f"{self.objective!r}, reduction={self.reduction!r}, dim={self.dim}"

    def _register(self, state: State) -> None:
        for part, tensors in state._asdict().items():
            for name, tensor in tensors.items():
                if part == "trained":
                    self.register_parameter(f"{part}_{name}", nn.Parameter(tensor))
                else:
                    self.register_buffer(f"{part}_{name}", tensor)
                self._names[part].append(name)
        self._validated = True

    def _validate(self, candidates: Tensor, sets: Bool[Tensor, "b k"], counted: Tensor | None) -> None:
        """Reject sets of counted rows that the objective cannot take, unless that waits for a GPU."""
        if self._validated or is_traced():
            return
        _check_binary(candidates)
        sets = sets if counted is None else sets[counted]
        if not len(sets):
            return
        check(sets, quiet=True)
        if any(self.objective.init(sets)):
            raise ValueError(
                f"candidates: {self.objective.title} keeps a memory of the training set, so it needs all of "
                f"it first: {type(self).__name__}(..., candidates=train_candidates)."
            )
        self._validated = sets.device.type != "cpu"  # checking every batch would wait for the GPU

    def _state(self, index: Int[Tensor, "b"] | None, n: int) -> State:
        """Read the memory of a batch of n rows."""
        if self._names["rows"] and index is None:
            raise ValueError(
                f"index: missing, but {self.objective.title} keeps a memory of every training instance. Pass "
                "the positions of the rows in the training set: criterion(..., index=index)."
            )
        if self._names["rows"]:
            index = torch.as_tensor(index)
            _check_index(index, n)
        rows = {}
        for name in self._names["rows"]:
            memory = getattr(self, f"rows_{name}")
            rows[name] = _gather_memory(memory, index) if torch.compiler.is_compiling() else memory[index]
        # A copy: `update` may overwrite the memory before the caller's backward pass reads it.
        shared = {name: getattr(self, f"shared_{name}").clone() for name in self._names["shared"]}
        trained = {name: getattr(self, f"trained_{name}") for name in self._names["trained"]}
        return State(rows, shared, trained)

    def _draws_noise(self) -> bool:
        return self.training and self.objective.needs_noise

    def _simple_mean(self, logits: Tensor, sets: Bool[Tensor, "b k"]) -> Tensor | None:
        """Mean loss of a batch without weights if it needs neither state nor step; None otherwise."""
        return None

    def _step(
        self,
        sets: Bool[Tensor, "b k"],
        device: torch.device,
        progress: float | Tensor,
        epoch: float | Tensor,
    ) -> Step:
        uniform = None
        if self._draws_noise():
            uniform = torch.rand(sets.shape, device=device).clamp(1e-7, 1 - 1e-7)
        if not torch.compiler.is_compiling() and not isinstance(progress, Tensor) and not 0 <= progress <= 1:
            raise ValueError(
                f"progress: got {progress!r}; expected the completed share of training, from 0 to 1, such as "
                "epoch / epochs."
            )
        # Not `as_tensor` or `full`: a compiler would compile anew for every number.
        time = [
            t.to(device, torch.float32)
            if isinstance(t, Tensor)
            else torch.ones((), dtype=torch.float32, device=device) * t
            for t in (progress, epoch)
        ]
        return Step(time[0], time[1], uniform)

    def _flatten(self, logits: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor, list[int]]:
        """Return logits and candidates as (rows, classes), and the batch dimensions."""
        if not isinstance(logits, Tensor) or not logits.is_floating_point():
            what = str(logits.dtype) if isinstance(logits, Tensor) else describe_type(logits)
            raise TypeError(f"logits: got {what}; expected a floating-point tensor.")
        shape = logits.shape
        if shape != candidates.shape:
            raise ValueError(
                f"candidates: got shape {tuple(candidates.shape)} for logits of shape {tuple(shape)}; "
                "expected the same shape."
            )
        dim = self.dim if len(shape) > 1 else 0
        if not -len(shape) <= dim < len(shape):
            text = f"dim: got {self.dim} for logits of shape {tuple(shape)}; expected the class dimension."
            raise ValueError(text)
        dim %= len(shape)
        k = shape[dim]
        if self._classes not in (None, k):
            raise ValueError(
                f"logits: got {k} classes in dimension {dim}; expected {self._classes}, as in the candidates "
                "of the training set."
            )
        batch = [*shape[:dim], *shape[dim + 1 :]]
        sets = candidates.bool()
        if len(shape) == 2 and dim == 1:
            return logits, sets, batch
        return logits.movedim(dim, -1).reshape(-1, k), sets.movedim(dim, -1).reshape(-1, k), batch

    def forward(
        self,
        logits: Float[Tensor, "..."],
        candidates: CandidateMatrix,
        *,
        index: Int[Tensor, "b"] | None = None,
        weight: Tensor | None = None,
        progress: float | Tensor = 0.0,
        epoch: float | Tensor = 0.0,
    ) -> Tensor:
        """Compute the loss of a batch.

        Args:
            logits: scores of any floating-point type; half precision is computed in float32.
            candidates: True (or 1) on the candidates, shaped like the logits; or `CandidateLabels`.
            index: positions of the instances in the training set, for objectives with memory.
            weight: one weight per instance or, for dense logits, per position; "mean" is the weighted mean.
                Rows of weight 0 are ignored, regardless of their logits and candidates.
            progress: completed share of training, from 0 to 1, for schedules such as ProPaLL's noise.
            epoch: number of completed epochs, for schedules that count them.
        """
        candidates = _as_tensor(candidates)
        rows, sets, batch = self._flatten(logits, candidates)
        row_weight = self._row_weights(candidates, sets, batch, weight)
        if row_weight is None and (mean := self._simple_mean(rows, sets)) is not None:
            return mean
        step = self._step(sets, rows.device, progress, epoch)._replace(weight=row_weight)
        return self._evaluate(rows, sets, batch, index, step)

    def _row_weights(
        self, candidates: Tensor, sets: Bool[Tensor, "b k"], batch: list[int], weight: Tensor | None
    ) -> Tensor | None:
        """Weights of the rows; the sets of rows that count are validated."""
        row_weight = None if weight is None else _row_weights(weight, batch)
        self._validate(candidates, sets, None if row_weight is None else row_weight > 0)
        return row_weight

    def _evaluate(
        self,
        logits: Float[Tensor, "vb k"],
        sets: Bool[Tensor, "b k"],
        batch: list[int],
        index: Int[Tensor, "b"] | None,
        step: Step,
    ) -> Tensor:
        """Loss of a batch, and the update of its memory."""
        state, row_weight, counted = self._state(index, len(sets)), step.weight, None
        scored, allowed = logits, sets
        if row_weight is not None:
            counted = row_weight > 0
            scored, allowed = _neutralize(~counted, logits, sets)
            if step.teacher is not None:
                step = step._replace(teacher=step.teacher.masked_fill(~counted[:, None], 0))
        if self.reduction == "mean":
            loss = self.objective.loss(scored, allowed, state, step)
        else:
            assert isinstance(self.objective, RowwiseObjective)
            losses = self.objective.losses(scored, allowed, state, step)
            losses = losses if row_weight is None else losses * row_weight
            loss = losses.sum() if self.reduction == "sum" else losses.view(batch)
        loss = _tied_to_time(loss, step)
        if self.training and not self.objective.fresh_logits:
            self._remember(scored, allowed, state, step._replace(weight=None), index, counted)
        return loss

    def refresh(
        self,
        logits: Float[Tensor, "..."],
        candidates: CandidateMatrix,
        *,
        index: Int[Tensor, "b"],
        weight: Tensor | None = None,
        progress: float | Tensor = 0.0,
        epoch: float | Tensor = 0.0,
    ) -> None:
        """Update the memory from logits computed after the optimizer's step (RC, CAVL, LWS, LWC).

        Args:
            logits: scores of the updated network, shaped like those of the step.
            candidates: those of the step.
            index: positions of the instances in the training set.
            weight: those of the step; instances without a row of positive weight keep their memory.
            progress: completed share of training, from 0 to 1.
            epoch: number of completed epochs.
        """
        rows, sets, batch = self._flatten(logits, _as_tensor(candidates))
        step = self._step(sets, rows.device, progress, epoch)
        self._refresh(rows, sets, batch, index, weight, step)

    def _refresh(
        self,
        logits: Float[Tensor, "vb k"],
        sets: Bool[Tensor, "b k"],
        batch: list[int],
        index: Int[Tensor, "b"],
        weight: Tensor | None,
        step: Step,
    ) -> None:
        counted = None if weight is None else _row_weights(weight, batch) > 0
        if counted is not None:
            logits, sets = _neutralize(~counted, logits, sets)
        state = self._state(index, len(sets))
        self._remember(_tied_to_time(logits, step), sets, state, step, index, counted)

    @torch.no_grad()
    def _remember(
        self,
        logits: Tensor,
        candidates: Tensor,
        state: State,
        step: Step,
        index: Tensor | None,
        counted: Bool[Tensor, "b"] | None = None,
    ) -> None:
        """Write the memory after a step; instances without a row that counts keep theirs."""
        if not self.objective.updates_state:
            return
        new = self.objective.update(logits.detach(), candidates, state, step)
        rows_that_count = None
        if counted is not None and new.rows:
            assert index is not None, "needed to read the memory"
            rows_that_count = _rows_that_count(torch.as_tensor(index, device=counted.device), counted)
        for name, rows in new.rows.items():
            memory = getattr(self, f"rows_{name}")
            if rows_that_count is not None and counted is not None:
                rows = rows[rows_that_count]
                is_new = counted[rows_that_count].view(-1, *[1] * (rows.dim() - 1))
                rows = torch.where(is_new, rows.to(memory.dtype), state.rows[name])
            memory[index] = rows.to(memory.dtype)
        for name, value in new.shared.items():
            getattr(self, f"shared_{name}").copy_(value)


class ProPaLLLoss(PartialLabelLoss):
    """The ProPaLL loss; see `propall.propall_loss` for the formula.

    Args:
        noise: scale of the logistic noise on the logits in training mode; the paper trains with 1. Pass
            `progress=` to the call to anneal it.
        reduction: "mean", "sum" or "none".
        dim: class dimension.

    Examples:
        >>> import torch
        >>> criterion = ProPaLLLoss()
        >>> criterion(torch.zeros(1, 3), torch.tensor([[True, True, False]]))
        tensor(0.9808)
    """

    objective: ProPaLL

    def __init__(self, *, noise: float = 0.0, reduction: Reduction = "mean", dim: int = 1) -> None:
        if not isinstance(noise, (int, float)) or not noise >= 0:
            raise ValueError(f"noise: got {noise!r}; expected a number, 0 or more.")
        super().__init__(ProPaLL(noise=noise), reduction=reduction, dim=dim)

    def _draws_noise(self) -> bool:
        return super()._draws_noise() and self.objective.noise != 0

    def _simple_mean(self, logits: Tensor, sets: Bool[Tensor, "b k"]) -> Tensor | None:
        if self.reduction != "mean" or self._draws_noise():
            return None
        return propall_loss(logits, sets, reduction="mean")  # a kernel may compute the mean itself


class ConsistencyLoss(PartialLabelLoss):
    """Loss of an objective on a weak view and strong views of every row, which are to agree.

    The formula is that of `propall.training.consistency`: the base loss on the views, the cross-entropy
    between a target and the views, and a balance term, as `propall.Views` says.

    Args:
        objective: the base loss, any objective such as `ProPaLL()`.
        views: the targets, masks and weights, such as `augment.views` for what an `ImageViews` chose by the
            shape of the images; `Views()` by default, with one strong view and no balance term.
        candidates: (n, k) candidate matrix of the whole training set, for objectives or targets with memory.
        dim: class dimension of logits and candidates.

    Notes:
        One forward pass on `torch.cat([weak, strong])`, then `chunk`, is faster than two and normalizes all
        views together in batch norm, as `propall.training.trainer.Trainer` does.

    Examples:
        >>> import torch
        >>> images = torch.rand(8, 3, 16, 16)
        >>> index = torch.arange(4)
        >>> from propall import ImageViews, Views
        >>> from propall.methods.propall import ProPaLL
        >>> net, views = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 3)), Views()
        >>> candidates = torch.tensor([[True, True, False]] * 8)
        >>> augment, criterion = ImageViews(images, views), ConsistencyLoss(ProPaLL(noise=0), views)
        >>> weak, strong = augment(images[index], index, epoch=2)
        >>> criterion(net(weak), net(strong), candidates[index], progress=2 / 20).shape
        torch.Size([])
    """

    objective: ConsistentObjective

    def __init__(
        self,
        objective: Objective,
        views: Views | None = None,
        candidates: CandidateMatrix | None = None,
        *,
        dim: int = 1,
    ) -> None:
        check_objective(objective)
        views = Views() if views is None else views
        check_views(views)
        views.check_own_loop()
        super().__init__(ConsistentObjective(objective, views), candidates, dim=dim)

    def forward(  # type: ignore[override]
        self,
        weak: Float[Tensor, "..."],
        strong: Float[Tensor, "..."] | Sequence[Float[Tensor, "..."]],
        candidates: CandidateMatrix,
        *,
        index: Int[Tensor, "b"] | None = None,
        weight: Tensor | None = None,
        progress: float | Tensor = 0.0,
        epoch: float | Tensor = 0.0,
        teacher: Float[Tensor, "..."] | None = None,
    ) -> Tensor:
        """Compute the loss of a batch.

        Args:
            weak: logits of the weak view.
            strong: logits of the strong view, or a sequence of those of each.
            candidates: True (or 1) on the candidates, shaped like the weak logits; or `CandidateLabels`.
            index: positions of the instances in the training set, for objectives or targets with memory.
            weight: one weight per instance or, for dense logits, per position.
            progress: completed share of training, from 0 to 1; the weight of the consistency term rises with
                it, and that of a balance term that fades falls. Without it, both stay as at the start.
            epoch: number of completed epochs, for objectives that count them.
            teacher: logits of an averaged network for `Views.teacher_view`, if targets come from there.
        """
        candidates = _as_tensor(candidates)
        logits, sets, batch = self._flatten_views(weak, strong, candidates)
        row_weight = self._row_weights(candidates, sets, batch, weight)
        step = self._step(sets, logits.device, progress, epoch)._replace(weight=row_weight)
        if self.objective.views.targets == "teacher":
            if teacher is None:
                view = self.objective.views.teacher_view
                raise ValueError(
                    "teacher: missing, but the views take their targets from an averaged network. Pass its "
                    f"logits of the {'first ' * (view == 'strong')}{view} view, for example from "
                    "torch.optim.swa_utils.AveragedModel."
                )
            step = step._replace(teacher=self._flatten(teacher, candidates)[0].detach())
        return self._evaluate(logits, sets, batch, index, step)

    def refresh(  # type: ignore[override]
        self,
        weak: Float[Tensor, "..."],
        strong: Float[Tensor, "..."] | Sequence[Float[Tensor, "..."]],
        candidates: CandidateMatrix,
        *,
        index: Int[Tensor, "b"],
        weight: Tensor | None = None,
        progress: float | Tensor = 0.0,
        epoch: float | Tensor = 0.0,
    ) -> None:
        """Update the memory from logits computed after the optimizer's step (RC, CAVL, LWS, LWC).

        Args:
            weak: logits of the weak view by the updated network.
            strong: likewise of the strong view, or a sequence of those of each.
            candidates: those of the step.
            index: positions of the instances in the training set.
            weight: those of the step; instances without a row of positive weight keep their memory.
            progress: completed share of training, from 0 to 1.
            epoch: number of completed epochs.
        """
        logits, sets, batch = self._flatten_views(weak, strong, _as_tensor(candidates))
        step = self._step(sets, logits.device, progress, epoch)
        self._refresh(logits, sets, batch, index, weight, step)

    def _flatten_views(
        self, weak: Tensor, strong: Tensor | Sequence[Tensor], candidates: Tensor
    ) -> tuple[Tensor, Tensor, list[int]]:
        """Logits of all views one below the other, candidates as (rows, classes), batch dimensions."""
        rows, sets, batch = self._flatten(weak, candidates)
        others = [strong] if isinstance(strong, Tensor) else list(strong)
        n_strong = self.objective.views.n_strong
        if len(others) != n_strong:
            raise ValueError(
                f"strong: got the logits of {plural(len(others), 'view')}; expected {n_strong}, as in "
                f"Views(n_strong={n_strong}). Pass one tensor per strong view."
            )
        for view in others:
            if view.shape != weak.shape:
                raise ValueError(
                    f"strong: got logits of shape {tuple(view.shape)}; expected {tuple(weak.shape)}, as of "
                    "the weak view."
                )
        return torch.cat([rows, *(self._flatten(view, candidates)[0] for view in others)]), sets, batch

"""Objectives as `nn.Module`, for custom training loops."""

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
from propall.training.contract import Objective, RowwiseObjective, State, Step, check_weight

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
    rows: Bool[Tensor, "b"], logits: Float[Tensor, "b k"], sets: Bool[Tensor, "b k"]
) -> tuple[Float[Tensor, "b k"], Bool[Tensor, "b k"]]:
    """Make some rows harmless: their loss might be infinite, and 0 times infinity is NaN.

    One label is excluded there, which every objective accepts.
    """
    harmless = torch.arange(sets.shape[-1], device=sets.device) > 0
    return logits.masked_fill(rows[:, None], 0), torch.where(rows[:, None], harmless, sets)


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

    Example:
        >>> criterion = PartialLabelLoss(PRODEN(), candidates=candidates)
        >>> loss = criterion(net(x[index]), candidates[index], index=index)
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
        if not isinstance(objective, Objective):
            raise TypeError(
                f"objective: got {objective!r}; expected an objective such as ProPaLL(). "
                "To look one up by name, use propall.methods.METHODS[name]()."
            )
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
                "it first: PartialLabelLoss(objective, candidates=train_candidates)."
            )
        self._validated = sets.device.type != "cpu"  # checking every batch would wait for the GPU

    def _state(self, index: Int[Tensor, "b"] | None, n: int) -> State:
        """Read the memory of a batch of n rows."""
        if self._names["rows"] and index is None:
            raise ValueError(
                f"index: missing, but {self.objective.title} keeps a memory of every training instance. Pass "
                "the positions of the rows in the training set: criterion(logits, candidates, index=index)."
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

    def _step(self, logits: Tensor, progress: float | Tensor, epoch: float | Tensor) -> Step:
        uniform = None
        if self._draws_noise():
            uniform = torch.rand(logits.shape, device=logits.device).clamp(1e-7, 1 - 1e-7)
        time = [torch.as_tensor(t, dtype=torch.float32, device=logits.device) for t in (progress, epoch)]
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
        row_weight = None if weight is None else _row_weights(weight, batch)
        counted = None if row_weight is None else row_weight > 0
        self._validate(candidates, sets, counted)
        scored, allowed = (rows, sets) if counted is None else _neutralize(~counted, rows, sets)
        if row_weight is None and (mean := self._simple_mean(rows, sets)) is not None:
            return mean
        state, step = self._state(index, len(rows)), self._step(rows, progress, epoch)
        if self.reduction == "mean":
            loss = self.objective.loss(scored, allowed, state, step._replace(weight=row_weight))
        else:
            assert isinstance(self.objective, RowwiseObjective)
            losses = self.objective.losses(scored, allowed, state, step)
            losses = losses if row_weight is None else losses * row_weight
            loss = losses.sum() if self.reduction == "sum" else losses.view(batch)
        if self.training and not self.objective.fresh_logits:
            self._remember(rows, sets, state, step, index)
        return loss

    def refresh(
        self,
        logits: Float[Tensor, "..."],
        candidates: CandidateMatrix,
        *,
        index: Int[Tensor, "b"],
        progress: float | Tensor = 0.0,
        epoch: float | Tensor = 0.0,
    ) -> None:
        """Update the memory from logits computed after the optimizer's step (RC, CAVL, LWS, LWC)."""
        rows, sets, _ = self._flatten(logits, _as_tensor(candidates))
        self._remember(rows, sets, self._state(index, len(rows)), self._step(rows, progress, epoch), index)

    @torch.no_grad()
    def _remember(
        self, logits: Tensor, candidates: Tensor, state: State, step: Step, index: Tensor | None
    ) -> None:
        if not self.objective.updates_state:
            return
        new = self.objective.update(logits.detach(), candidates, state, step)
        for name, rows in new.rows.items():
            memory = getattr(self, f"rows_{name}")
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

    Example:
        >>> criterion = ProPaLLLoss()
        >>> loss = criterion(logits, candidates)
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

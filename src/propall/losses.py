"""Any objective as an `nn.Module`, for people with their own loop."""

from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from propall.labels.candidates import CandidateLabels, check
from propall.labels.parsing import described
from propall.methods.propall import ProPaLL
from propall.numerics import is_traced
from propall.training.contract import Objective, RowwiseObjective, State, Step, check_weight

#: True (or 1) on the candidates of each row.
CandidateMatrix = Tensor | CandidateLabels | NDArray[np.generic]


@torch.library.custom_op("propall::recall", mutates_args=())
def _recall(memory: Tensor, index: Tensor) -> Tensor:
    """Rows of a memory as they are now.

    A compiled backward pass may compute cheap operations again instead of keeping their results; by then the
    memory has been written to. An operator it cannot look into is kept.
    """
    return memory[index]


@_recall.register_fake
def _(memory: Tensor, index: Tensor) -> Tensor:
    return memory.new_empty(index.shape + memory.shape[1:])


def _as_tensor(candidates: CandidateMatrix) -> Tensor:
    if isinstance(candidates, Tensor):
        return candidates
    if candidates is None:
        raise TypeError("candidates: None given; expected a tensor, True on the candidates of each row.")
    return candidates.mask if isinstance(candidates, CandidateLabels) else torch.as_tensor(candidates)


def _one_each(weight: Tensor, rest: list[int]) -> Tensor:
    """Weights of instances, or of all that instances hold, such as pixels; flat."""
    if not isinstance(weight, Tensor):
        raise TypeError(f"weight: {described(weight)} given; expected a tensor. Use torch.as_tensor(weight).")
    if list(weight.shape) != rest[: weight.dim()]:
        each = f", or {tuple(rest)}" if len(rest) > 1 else ""
        raise ValueError(
            f"weight: shape {tuple(weight.shape)} given; expected {tuple(rest[:1])}, one per instance{each}."
        )
    if weight.device.type == "cpu" and not is_traced():
        check_weight(weight)
    return weight.reshape(*weight.shape, *[1] * (len(rest) - weight.dim())).expand(rest).reshape(-1)


def _ignoring(
    rows: Bool[Tensor, "b"], logits: Float[Tensor, "b k"], sets: Bool[Tensor, "b k"]
) -> tuple[Float[Tensor, "b k"], Bool[Tensor, "b k"]]:
    """The same with some rows made harmless: 0 times what they would cost may be no number.

    One label is excluded there, which every objective can take.
    """
    harmless = torch.arange(sets.shape[-1], device=sets.device) > 0
    return logits.masked_fill(rows[:, None], 0), torch.where(rows[:, None], harmless, sets)


def _refuse_other_numbers(candidates: Tensor) -> None:
    if candidates.dtype != torch.bool and not ((candidates == 0) | (candidates == 1)).all():
        wrong = candidates[(candidates != 0) & (candidates != 1)][0].item()
        raise ValueError(
            f"candidates: {wrong!r} is among them; expected True or 1 on candidates, False or 0 elsewhere. "
            "Rows are ignored by weight=, with 0."
        )


def _refuse_other_positions(index: Tensor, n: int) -> None:
    if index.is_floating_point() or index.dtype == torch.bool:
        raise TypeError(f"index: {index.dtype} given; expected whole numbers, the rows' positions.")
    if index.shape != (n,):
        raise ValueError(
            f"index: shape {tuple(index.shape)} given for {n} rows of logits; expected ({n},), the "
            "position of each in the training set. Pixels of dense logits are rows of their own."
        )


class PartialLabelLoss(nn.Module):
    """The loss of an objective on logits and candidate sets.

    Objectives with memory (PRODEN, RC, ...) need the training set's `candidates` once and the rows' `index`
    in every call; their memory lives in buffers, so it moves with `.to(device)` and is part of
    `state_dict()`. In training mode a call also updates the memory of its rows; objectives that look at the
    network again after the optimiser's step (`objective.fresh_logits`) are updated by `refresh` instead.

    Args:
        objective: any objective of `propall.methods`, such as `PRODEN()`.
        candidates: (n, k) candidate matrix of the whole training set, for objectives that remember. It is
            looked at once; without it every batch is, on a GPU only the first.
        reduction: "mean", "sum" or "none"; losses that are defined on a batch as a whole take only "mean".
        dim: the class dimension of logits and candidates; 1 as in `torch.nn.CrossEntropyLoss`, so dense
            logits (n, k, h, w) work as they are.

    Example:
        >>> criterion = PartialLabelLoss(PRODEN(), candidates=candidates)
        >>> loss = criterion(net(x[index]), candidates[index], index=index)
    """

    def __init__(
        self,
        objective: Objective,
        candidates: CandidateMatrix | None = None,
        *,
        reduction: Literal["mean", "sum", "none"] = "mean",
        dim: int = 1,
    ) -> None:
        super().__init__()
        if not isinstance(objective, Objective):
            raise TypeError(
                f"objective: {objective!r} given; expected an objective such as ProPaLL(). "
                "A name is looked up with propall.methods.METHODS[name]()."
            )
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"reduction: {reduction!r} given; expected mean, sum or none.")
        if reduction != "mean" and not isinstance(objective, RowwiseObjective):
            raise ValueError(
                f"reduction: {reduction!r} given, but {objective.title} is defined on a batch as a whole, "
                "not per instance; use reduction='mean'."
            )
        self.objective, self.reduction, self.dim = objective, reduction, dim
        self._names: dict[str, list[str]] = {"rows": [], "shared": [], "trained": []}
        self._ready = False
        self._draws = objective.needs_noise
        self._classes: int | None = None
        if candidates is not None:
            whole = _as_tensor(candidates)
            _refuse_other_numbers(whole)
            check(whole.bool(), quiet=True)
            self._keep(objective.init(whole.bool()))
            self._classes = whole.shape[1]

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"{self.objective!r}, reduction={self.reduction!r}, dim={self.dim}"

    def _keep(self, state: State) -> None:
        for part, tensors in state._asdict().items():
            for name, tensor in tensors.items():
                if part == "trained":
                    self.register_parameter(f"{part}_{name}", nn.Parameter(tensor))
                else:
                    self.register_buffer(f"{part}_{name}", tensor)
                self._names[part].append(name)
        self._ready = True

    def _inspect(self, candidates: Tensor, sets: Bool[Tensor, "b k"], counts: Tensor | None) -> None:
        """Refuse sets that the objective cannot take, as far as nobody has to wait for that.

        Args:
            candidates: as given.
            sets: the same, flat.
            counts: which rows have a weight above 0; None for all.
        """
        if self._ready or is_traced():
            return
        _refuse_other_numbers(candidates)
        sets = sets if counts is None else sets[counts]
        if not len(sets):
            return
        check(sets, quiet=True)
        if any(self.objective.init(sets)):
            raise ValueError(
                f"candidates: {self.objective.title} remembers the training set, so it has to see all of it "
                "first: PartialLabelLoss(objective, candidates=train_candidates)."
            )
        # Every batch is looked at; but a GPU would be waited for, so there the first has to do.
        self._ready = sets.device.type != "cpu"

    def _state(self, index: Int[Tensor, "b"] | None, n: int) -> State:
        """What is remembered of the rows of a batch of n."""
        if self._names["rows"] and index is None:
            raise ValueError(
                f"index: {self.objective.title} remembers every training instance; pass the rows' positions "
                "in the training set, criterion(logits, candidates, index=index)."
            )
        if self._names["rows"]:
            index = torch.as_tensor(index)
            _refuse_other_positions(index, n)
        rows = {}
        for name in self._names["rows"]:
            memory = getattr(self, f"rows_{name}")
            rows[name] = _recall(memory, index) if torch.compiler.is_compiling() else memory[index]
        # A copy: `update` may write to the memory before the caller's backward pass reads it.
        shared = {name: getattr(self, f"shared_{name}").clone() for name in self._names["shared"]}
        trained = {name: getattr(self, f"trained_{name}") for name in self._names["trained"]}
        return State(rows, shared, trained)

    def _step(self, logits: Tensor, progress: float | Tensor, epoch: float | Tensor) -> Step:
        uniform = None
        if self.objective.needs_noise:
            # A uniform of one half is a logistic of zero: no noise outside training.
            shape, device = logits.shape, logits.device
            if self.training and self._draws:
                uniform = torch.rand(shape, device=device).clamp(1e-7, 1 - 1e-7)
            else:
                uniform = torch.full(shape, 0.5, device=device)
        time = [torch.as_tensor(t, dtype=torch.float32, device=logits.device) for t in (progress, epoch)]
        return Step(time[0], time[1], uniform)

    def _flat(self, logits: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor, int]:
        if not isinstance(logits, Tensor) or not logits.is_floating_point():
            what = str(logits.dtype) if isinstance(logits, Tensor) else described(logits)
            raise TypeError(f"logits: {what} given; expected a tensor of a floating type.")
        if logits.shape != candidates.shape:
            raise ValueError(
                f"candidates: shape {tuple(candidates.shape)} given for logits of shape "
                f"{tuple(logits.shape)}; they have to agree."
            )
        dim = self.dim if logits.dim() > 1 else 0
        if not -logits.dim() <= dim < logits.dim():
            raise ValueError(
                f"dim: {self.dim} is no dimension of logits of shape {tuple(logits.shape)}; give that of the "
                "classes."
            )
        k = logits.shape[dim]
        if self._classes not in (None, k):
            raise ValueError(
                f"logits: {k} classes in dimension {dim}, but the training set's candidates have "
                f"{self._classes}; they have to agree."
            )
        flat = (t.movedim(dim, -1).reshape(-1, k) for t in (logits, candidates.bool()))
        return *flat, dim  # type: ignore[return-value]

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
        """The loss of a batch.

        Args:
            logits: scores of any floating type; half precisions are computed in float32.
            candidates: True (or 1) on the candidates, shaped like the logits; or `CandidateLabels`.
            index: the instances' positions in the training set, for objectives that remember.
            weight: one weight per instance, or for dense logits one each; "mean" is the weighted mean. Rows
                of weight 0 are ignored, whatever their logits and candidates.
            progress: share of training done, from 0 to 1, for schedules such as ProPaLL's noise.
            epoch: completed epochs, for schedules that count them.
        """
        candidates = _as_tensor(candidates)
        flat, sets, dim = self._flat(logits, candidates)
        rest = [size for i, size in enumerate(logits.shape) if i != dim % logits.dim()]
        flat_weight = None if weight is None else _one_each(weight, rest)
        counts = None if flat_weight is None else flat_weight > 0
        self._inspect(candidates, sets, counts)
        state, step = self._state(index, len(flat)), self._step(flat, progress, epoch)
        scored, allowed = (flat, sets) if counts is None else _ignoring(~counts, flat, sets)
        if self.reduction == "mean":
            loss = self.objective.loss(scored, allowed, state, step._replace(weight=flat_weight))
        else:
            assert isinstance(self.objective, RowwiseObjective)
            losses = self.objective.losses(scored, allowed, state, step)
            losses = losses if flat_weight is None else losses * flat_weight
            loss = losses.sum() if self.reduction == "sum" else losses.view(rest)
        if self.training and not self.objective.fresh_logits:
            self._remember(flat, sets, state, step, index)
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
        """Update the memory from logits computed after the optimiser's step (RC, CAVL, LWS, LWC)."""
        flat, sets, _ = self._flat(logits, _as_tensor(candidates))
        self._remember(flat, sets, self._state(index, len(flat)), self._step(flat, progress, epoch), index)

    @torch.no_grad()
    def _remember(
        self, logits: Tensor, candidates: Tensor, state: State, step: Step, index: Tensor | None
    ) -> None:
        if type(self.objective).update is Objective.update:
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
            `progress=` to the call so that it is annealed.
        reduction: "mean", "sum" or "none".
        dim: the class dimension.

    Example:
        >>> criterion = ProPaLLLoss()
        >>> loss = criterion(logits, candidates)
    """

    def __init__(
        self, *, noise: float = 0.0, reduction: Literal["mean", "sum", "none"] = "mean", dim: int = 1
    ) -> None:
        if not isinstance(noise, (int, float)) or not noise >= 0:
            raise ValueError(f"noise: {noise!r} given; expected a number, 0 or more.")
        super().__init__(ProPaLL(noise=noise), reduction=reduction, dim=dim)
        self._draws = noise != 0

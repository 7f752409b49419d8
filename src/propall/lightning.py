"""Train any network and objective with Lightning's Trainer: several devices, nodes, precisions, callbacks.

Several processes compute what one process would. Each runs the network on its share of the global batch;
then the logits of all shares are gathered, and every process evaluates the objective on the global batch.
Losses defined on a batch as a whole (GA, NN) therefore stay the same, shares of unequal length are weighted
properly, and every process keeps the complete row memory.
"""

import dataclasses
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from propall import counter_rng
from propall.data.dataset import PartialDataset
from propall.labels.candidates import check
from propall.numerics import check_finite_rows, full_precision
from propall.training.consistency import with_views, without_views
from propall.training.contract import Objective, Run, State, Step
from propall.training.networks import NetClassifier
from propall.training.optim import ADAM_BETAS, ADAM_EPSILON
from propall.training.recipe import Recipe
from propall.training.stream import Stream

try:
    from lightning.pytorch import Callback, LightningDataModule, LightningModule
    from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy, SingleDeviceStrategy
except ImportError as error:
    raise ImportError("propall.lightning needs Lightning 2: pip install 'propall[lightning]'.") from error

#: Validation rows scored at once, over all processes.
VALIDATION_BATCH = 4096


@dataclass(frozen=True)
class GlobalBatch:
    """The batch of all processes, the same in each of them: their shares in the order of the ranks."""

    index: Int[Tensor, "b"]
    logits: Float[Tensor, "vb k"]  # all rows of one view after the other
    candidates: Bool[Tensor, "b k"]
    shares: list[int]
    step: Step


class Memory(nn.Module):
    """The state of an objective as buffers and parameters of a module."""

    def __init__(self, state: State | None = None) -> None:
        super().__init__()
        parts = (state or State())._asdict()
        self._names = {part: tuple(tensors) for part, tensors in parts.items()}
        for part, tensors in parts.items():
            for name, tensor in tensors.items():
                if part == "trained":
                    self.register_parameter(f"{part}_{name}", nn.Parameter(tensor.clone()))
                else:
                    self.register_buffer(f"{part}_{name}", tensor.clone())

    @classmethod
    def shaped_like(cls, saved: dict[str, Tensor]) -> "Memory":
        """A memory into which this `state_dict` can be loaded."""
        parts: dict[str, dict[str, Tensor]] = {part: {} for part in State._fields}
        for key, tensor in saved.items():
            part, _, name = key.partition("_")
            parts[part][name] = tensor
        return cls(State(**parts))

    def state(self, index: Int[Tensor, "b"] | None = None) -> State:
        """The state of the given rows, or of all."""
        rows, shared, trained = (
            {name: getattr(self, f"{part}_{name}") for name in self._names[part]} for part in State._fields
        )
        if index is not None:
            # Copies: the backward pass runs after `write` has changed the memory.
            rows = {name: memory[index] for name, memory in rows.items()}
            shared = {name: memory.clone() for name, memory in shared.items()}
        return State(rows, shared, trained)

    def write(self, index: Int[Tensor, "b"], shares: list[int], new: State) -> None:
        """Store the result of the objective's `update` for the given rows."""
        stored = self.state()
        for name, rows in new.rows.items():
            memory = stored.rows[name]
            # Share by share: if two processes have the same row, the later one wins everywhere. Within one
            # write to a CUDA tensor, either of them could.
            for part, values in zip(index.split(shares), rows.to(memory.dtype).split(shares), strict=True):
                memory[part] = values
        for name, value in new.shared.items():
            stored.shared[name].copy_(value)


class ResumeHint(Callback):
    """Notes in the error of one of several processes where it stopped: often because another one failed."""

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Add the note."""
        if trainer.world_size > 1 and isinstance(exception, RuntimeError):
            exception.add_note(
                f"propall: rank {trainer.global_rank} of {trainer.world_size} stopped after batch "
                f"{int(pl_module.batches_seen)}. If the connection to another rank was lost, that rank "
                "failed first; see its output. Checkpoints contain the complete row memory: resume from the "
                "last one with Trainer.fit(..., ckpt_path=...)."
            )


def _check_recipe(recipe: Recipe) -> None:
    """Reject settings that only `propall.training.trainer.Trainer` supports."""
    targets = None if recipe.views is None else recipe.views.targets
    unsupported = [
        ("lookahead", recipe.lookahead, recipe.lookahead != 0),
        ("norm_rate", recipe.norm_rate, recipe.norm_rate != 1),
        ("views.targets", targets, targets == "teacher"),
    ]
    for name, value, is_used in unsupported:
        if is_used:
            raise ValueError(
                f"recipe: {name}={value!r} is not supported with Lightning. Use its default, or train with "
                "propall.training.trainer.Trainer."
            )


def _differences(one: Any, other: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every field in which two recipes differ, down to those of their views, with the value of each."""
    for field in dataclasses.fields(one):
        name, mine, theirs = prefix + field.name, getattr(one, field.name), getattr(other, field.name)
        if mine == theirs:
            continue
        if dataclasses.is_dataclass(mine) and type(mine) is type(theirs):
            yield from _differences(mine, theirs, f"{name}.")
        else:
            yield f"{name}={mine!r}", f"{name}={theirs!r}"


class PartialLabelModule(LightningModule):
    """A network and an objective for Lightning's Trainer.

    The Trainer controls devices, nodes, precision, checkpoints, loggers and callbacks; the recipe controls
    optimizer and schedule. `recipe.batch_size` is the global batch size over all processes. Any number of
    processes gives the same weights and row memory up to rounding. Checkpoints are complete: row memory,
    tensors trained by the objective, number of batches seen. Training resumes from any of them, written
    within an epoch or at its end, with any number of processes.

    Logs `train_loss`, the mean over the batches of an epoch, and `val_accuracy` if there is validation data.
    `fit` without `ckpt_path` starts from the current weights with a new memory.

    Args:
        net: any network from x to (b, k) logits.
        objective: any objective, such as `PRODEN()`.
        recipe: epochs (the maximum for the Trainer), global batch size, optimizer, schedule, views.
        candidates: (n, k) candidate sets of the whole training set, for objectives that need them in
            advance; `PartialLabelData` provides them.
        seed: of the noise; None: that of `PartialLabelData`, or 0.

    Notes:
        - Any loader of (index, x, candidates) with a length can replace `PartialLabelData`; `index` is the
          position of a row in the training set. With views, x is the weak view of all rows, then each strong
          view of all rows; `propall.ImageViews` makes them, best in the hook `on_after_batch_transfer`, where
          `self.current_epoch` is known. When Lightning splits such a loader over
          processes, it repeats a few rows to make the shares equal; `PartialLabelData` repeats none.
        - Batch norm uses the share of a process; `Trainer(sync_batchnorm=True)` makes it global on GPUs.
          Dropout and other random layers differ between processes and after a resume.
        - With gradient accumulation, every batch counts as a step of the objective. Objectives that evaluate
          the network again after the optimizer's step (`objective.fresh_logits`: RC, CAVL, LWS, LWC) do not
          support it.
        - Several processes need the strategy "ddp". If a process is lost, the others fail at the next
          exchange; `DDPStrategy(timeout=...)` limits how long they wait.

    Examples:
        >>> import torch
        >>> from propall.data import PartialDataset
        >>> from propall.methods.proden import PRODEN
        >>> candidates = torch.tensor([[True, False], [True, True]]).repeat(20, 1)
        >>> train = PartialDataset(torch.randn(40, 3), candidates)
        >>> recipe = Recipe(epochs=2, batch_size=16)
        >>> module = PartialLabelModule(torch.nn.Linear(3, 2), PRODEN(), recipe)
        >>> data = PartialLabelData(train, recipe)
        >>> import lightning
        >>> quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
        >>> trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", enable_checkpointing=False, **quiet)
        >>> trainer.fit(module, data)
        >>> trainer.global_step
        4
    """

    batches_seen: Tensor

    def __init__(
        self,
        net: nn.Module,
        objective: Objective,
        recipe: Recipe | None = None,
        *,
        candidates: Bool[Tensor, "n k"] | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(objective, Objective):
            raise TypeError(
                f"objective: got {objective!r}; expected an objective such as ProPaLL(). Methods with their "
                "own training loop (VALEN, PL-KNN, ...) are trained by `fit`."
            )
        self.net = net
        self.recipe = recipe or Recipe()
        if self.recipe.views is not None:
            self.recipe.views.check_own_loop()
        self.objective = with_views(objective, self.recipe.views)
        _check_recipe(self.recipe)
        self.memory = Memory()
        self.register_buffer("batches_seen", torch.zeros((), dtype=torch.int64))
        self._candidates, self._seed = candidates, seed
        self._noise_seed = self._fingerprint = 0
        self._to_refresh: tuple[Tensor, Any, Tensor, Step] | None = None
        self._correct = self._total = 0

    def forward(self, x: Any) -> Float[Tensor, "b k"]:
        """Logits of the network."""
        logits: Tensor = self.net(x)
        return logits

    def classifier(self) -> NetClassifier:
        """The trained network with `scores`, `predict` and `probabilities`."""
        state = State(*({name: t.detach() for name, t in part.items()} for part in self.memory.state()))
        return NetClassifier(self.net, *without_views(self.objective, state))

    @property
    def _base_objective(self) -> Objective:
        return without_views(self.objective, State())[0]

    # Before the first batch

    def setup(self, stage: str) -> None:
        """Create a new memory, into which a checkpoint may be loaded afterwards."""
        continues = self.trainer.global_step > 0 and int(self.batches_seen) > 0
        if stage != "fit" or continues:
            return
        data = self.trainer.datamodule
        seed, candidates = self._seed, self._candidates
        if isinstance(data, PartialLabelData):
            if data.recipe != self.recipe:
                of_data, own = map(", ".join, zip(*_differences(data.recipe, self.recipe), strict=True))
                raise ValueError(
                    f"recipe: the data module has {of_data}, the module {own}; expected the same. Pass one "
                    "recipe to both."
                )
            seed = data.seed if seed is None else seed
            candidates = data.train.candidates if candidates is None else candidates
        elif self.recipe.augmentation != "none":
            raise ValueError(
                f"recipe: augmentation={self.recipe.augmentation!r} needs PartialLabelData; with another "
                "loader, augment there and use augmentation='none'."
            )
        self._noise_seed = counter_rng.seed_for(seed or 0, "noise")
        self.batches_seen.zero_()
        self.memory = Memory(self._initial_state(candidates))
        self._fingerprint = int(counter_rng.digest(candidates, str(self._noise_seed))[:15], 16)
        # All processes write the same values here; DDP need not broadcast them at every step.
        names = [name for name, _ in self.named_buffers() if name.split(".")[0] in ("memory", "batches_seen")]
        # torch has no public name for this.
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(self, names)  # noqa: SLF001

    def _initial_state(self, candidates: Tensor | None) -> State:
        if candidates is None:
            views = self.recipe.views
            remembers_targets = views is not None and views.targets == "memory"
            if type(self._base_objective).init is Objective.init and not remembers_targets:
                return State()
            raise ValueError(
                f"candidates: missing; {self.objective.title} needs those of the whole training set. Use "
                "PartialLabelData, or PartialLabelModule(..., candidates=train.candidates)."
            )
        check(candidates, quiet=True)
        like = next(self.net.parameters())
        return State(
            *(
                {n: t.to(like.dtype) if t.is_floating_point() else t for n, t in part.items()}
                for part in self.objective.init(candidates)
            )
        )

    def on_fit_start(self) -> None:
        """Reject settings of the Trainer that would silently train something else."""
        strategy, precision = self.trainer.strategy, self.trainer.precision
        is_ddp = isinstance(strategy, DDPStrategy) and not isinstance(strategy, DeepSpeedStrategy)
        if not is_ddp and not isinstance(strategy, SingleDeviceStrategy):
            raise ValueError(
                f"strategy: got {type(strategy).__name__}; every process must have the whole network. Use "
                "Trainer(strategy='ddp')."
            )
        if len({int(f) for f in self._from_all(torch.tensor(self._fingerprint, device=self.device))}) > 1:
            raise ValueError(
                f"candidates: sets or seed differ between ranks (this is rank {self.trainer.global_rank}); "
                "create the training set in the same way in every process, from a fixed seed."
            )
        if any(t.is_floating_point() and t.dtype.itemsize < 4 for t in self.memory.state_dict().values()):
            raise ValueError(
                f"precision: {precision!r} would store the memory of {self.objective.title} in half "
                "precision; use 'bf16-mixed' or '16-mixed'."
            )
        if self.recipe.precision == "bfloat16" and precision != "bf16-mixed":
            raise ValueError(
                f"precision: the recipe has bfloat16, the Trainer {precision!r}; use "
                "Trainer(precision='bf16-mixed')."
            )

    def on_train_start(self) -> None:
        """Reject a Trainer that continues after the recipe's last epoch; warn of one that stops before it."""
        per_epoch = self.trainer.num_training_batches
        if math.isinf(per_epoch):
            raise ValueError(
                "train_dataloaders: the loader has no length, which schedules need. Define __len__."
            )
        planned = self.recipe.epochs * math.ceil(per_epoch / self.trainer.accumulate_grad_batches)
        steps = self.trainer.estimated_stepping_batches
        problem = (
            f"max_epochs: the Trainer would take {steps} steps (max_epochs={self.trainer.max_epochs}), but "
            f"the recipe ends after {planned} ({self.recipe.epochs} epochs)"
        )
        if steps > planned:
            raise ValueError(f"{problem}. Use Trainer(max_epochs=recipe.epochs).")
        # A trial run or a limit on steps stops early on purpose.
        is_limited = bool(self.trainer.fast_dev_run) or steps == self.trainer.max_steps
        if steps < planned and not is_limited and self.trainer.is_global_zero:
            warnings.warn(
                f"{problem}; the schedule will stay short of its end. Use Trainer(max_epochs=recipe.epochs), "
                "or a recipe with fewer epochs.",
                stacklevel=2,
            )

    def configure_optimizers(self) -> dict[str, Any]:
        """Optimizer and schedule of the recipe, for the network and what the objective trains."""
        recipe, parameters = self.recipe, self.parameters()
        rates: dict[str, Any] = {"lr": recipe.learning_rate, "weight_decay": recipe.weight_decay}
        optimizer: torch.optim.Optimizer
        if recipe.optimizer == "sgd":
            optimizer = torch.optim.SGD(
                parameters, momentum=recipe.momentum, nesterov=recipe.nesterov, **rates
            )
        else:
            optimizer = torch.optim.Adam(parameters, betas=ADAM_BETAS, eps=ADAM_EPSILON, **rates)

        interval, total = "epoch", recipe.epochs
        if recipe.schedule != "decay":
            self.trainer.estimated_stepping_batches  # noqa: B018 - sets the number of batches
            per_epoch = math.ceil(self.trainer.num_training_batches / self.trainer.accumulate_grad_batches)
            interval, total = "step", recipe.epochs * per_epoch

        def factor(done: int) -> float:
            count = torch.tensor(done, dtype=torch.float64)
            return float(recipe.rate_factor(count, (count / max(1, total)).clamp(max=1)))

        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": interval}}

    def configure_callbacks(self) -> list[Callback]:
        """A hint in the error of a process that lost another."""
        return [ResumeHint()]

    # One batch

    def training_step(self, batch: Sequence[Any], batch_idx: int) -> Float[Tensor, ""]:
        """Loss of the global batch; its gradient flows into the share of this process.

        Args:
            batch: index, x and candidates of the share.
            batch_idx: unused.
        """
        index, x, candidates = batch
        if self.objective.fresh_logits and self.trainer.accumulate_grad_batches > 1:
            raise ValueError(
                f"accumulate_grad_batches: got {self.trainer.accumulate_grad_batches}; expected 1, because "
                f"{self.objective.title} evaluates the network again after the step of every batch."
            )
        logits = self.net(x)
        n, k = candidates.shape
        rows = self._n_views * n
        if logits.shape != (rows, k):
            in_views = f" and {self._n_views} views" if self._n_views > 1 else ""
            if isinstance(x, Tensor) and x.shape[:1] != (rows,):
                remedy = "Use torch.cat(ImageViews(images, recipe.views)(x, index, epoch=epoch))."
                raise ValueError(
                    f"x: got {x.shape[:1].numel()} rows for {n} candidate sets{in_views}; expected {rows}. "
                    f"{remedy if in_views else 'Return one row of x for each set.'}"
                )
            raise ValueError(
                f"net: returned shape {tuple(logits.shape)} for candidates of shape {(n, k)}{in_views}; "
                "expected one score per class."
            )
        # The objective is evaluated in full precision.
        with torch.autocast(self.device.type, enabled=False):
            together = self._global_batch(index, logits, candidates)
            state = self.memory.state(together.index)
            loss = self.objective.loss(together.logits, together.candidates, state, together.step)
            if self.objective.fresh_logits:
                self._to_refresh = (index, x, candidates, together.step)
            else:
                self._remember(together)
        self.batches_seen += 1
        self.log(
            "train_loss",
            loss.detach(),
            on_step=False,
            on_epoch=True,
            prog_bar=True,
            batch_size=len(together.index),
            sync_dist=True,
        )
        return loss

    def optimizer_step(
        self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None
    ) -> None:
        """The optimizer's step, then the update from fresh logits for objectives that use them.

        Not at the end of the batch: callbacks run before the module there, so a checkpoint would miss the
        update.
        """
        super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        if self._to_refresh is None:
            return
        (index, x, candidates, step), self._to_refresh = self._to_refresh, None
        with torch.no_grad():
            with self.trainer.precision_plugin.train_step_context():
                logits = self.net(x)
            self._remember(self._global_batch(index, logits, candidates, step))

    def _global_batch(
        self,
        index: Int[Tensor, "b"],
        logits: Float[Tensor, "vb k"],
        candidates: Tensor,
        step: Step | None = None,
    ) -> GlobalBatch:
        logits, candidates = full_precision(logits), candidates.bool()
        shares = [len(index)]
        if self.trainer.world_size > 1:
            # The views of a row side by side, so that its share stays together.
            by_row = logits.unflatten(0, (self._n_views, -1)).movedim(0, 1).flatten(1)
            index, by_row, candidates, shares = self._gather(index, by_row, candidates)
            logits = by_row.unflatten(1, (self._n_views, -1)).movedim(1, 0).flatten(0, 1)
        return GlobalBatch(index, logits, candidates, shares, step or self._step(index, logits))

    @property
    def _n_views(self) -> int:
        return 1 if self.recipe.views is None else self.recipe.views.n_views

    def _step(self, index: Tensor, logits: Tensor) -> Step:
        seen, per_epoch = self.batches_seen.clone(), int(self.trainer.num_training_batches)
        progress = seen.to(logits.dtype) / max(1, self.recipe.epochs * per_epoch)
        epoch = seen.div(per_epoch, rounding_mode="floor").to(logits.dtype)
        uniform = None
        if self.objective.needs_noise:
            classes = torch.arange(logits.shape[1], device=logits.device)
            uniform = counter_rng.uniform(self._noise_seed, seen, index[:, None], classes, dtype=logits.dtype)
        return Step(progress, epoch, uniform)

    def _gather(
        self, index: Tensor, logits: Tensor, candidates: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, list[int]]:
        """The rows of all processes by rank, with the logits of this process still attached to its graph."""
        length = torch.tensor(len(index), device=logits.device)
        shares: list[int] = torch.stack(self._from_all(length)).tolist()
        columns = [index[:, None], logits.detach(), candidates]
        as_bytes = torch.cat([column.contiguous().view(torch.uint8) for column in columns], dim=1)
        # One exchange: the three columns of a row as bytes, every share padded to the longest.
        padded = nn.functional.pad(as_bytes, (0, 0, 0, max(shares) - len(index)))
        gathered = zip(self._from_all(padded), shares, strict=True)
        rows = torch.cat([part[:share] for part, share in gathered])
        widths = [column.shape[1] * column.dtype.itemsize for column in columns]
        all_index, all_logits, all_candidates = (
            part.contiguous().view(column.dtype)
            for part, column in zip(rows.split(widths, dim=1), columns, strict=True)
        )
        if logits.requires_grad:
            # DDP averages the gradients of the processes, but those of the shares must be added. What the
            # objective trains has the full gradient in every process, so there the average is right.
            logits.register_hook(lambda gradient: gradient * len(shares))
            before = sum(shares[: self.trainer.global_rank])
            all_logits = torch.cat([all_logits[:before], logits, all_logits[before + len(index) :]])
        return all_index.squeeze(1), all_logits, all_candidates, shares

    def _from_all(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of all processes, by rank."""
        if self.trainer.world_size == 1:
            return [tensor]
        tensors = [torch.empty_like(tensor) for _ in range(self.trainer.world_size)]
        torch.distributed.all_gather(tensors, tensor)
        return tensors

    @torch.no_grad()
    def _remember(self, batch: GlobalBatch) -> None:
        if self.objective.updates_state:
            state = self.memory.state(batch.index)
            new = self.objective.update(batch.logits.detach(), batch.candidates, state, batch.step)
            self.memory.write(batch.index, batch.shares, new)

    # Scores

    def predict_step(self, batch: Any, batch_idx: int = 0) -> Float[Tensor, "b k"]:
        """Scores of a batch of x, as decoded by the objective."""
        return self.objective.scores(full_precision(self.net(batch)), self.memory.state())

    def on_validation_epoch_start(self) -> None:
        """Reset the counts."""
        self._correct, self._total = 0, 0

    def validation_step(self, batch: Sequence[Any], batch_idx: int) -> None:
        """Count correct predictions.

        Args:
            batch: x and true classes.
            batch_idx: unused.
        """
        x, truth = batch
        self._correct += int((self.predict_step(x).argmax(-1) == truth).sum())
        self._total += len(truth)

    def on_validation_epoch_end(self) -> None:
        """Log `val_accuracy` over the rows of all processes."""
        counts = torch.tensor([self._correct, self._total], device=self.device)
        correct, total = self.trainer.strategy.reduce(counts, reduce_op="sum").tolist()
        self.log("val_accuracy", correct / max(1, total), prog_bar=True, sync_dist=True)

    # Checkpoints

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the name of the objective."""
        checkpoint["propall"] = {"objective": self._base_objective.name}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Reject the memory of another objective."""
        saved = checkpoint.get("propall", {}).get("objective")
        if saved is not None and saved != self._base_objective.name:
            raise ValueError(
                f"ckpt_path: the checkpoint has the memory of {saved!r}; the objective of this module is "
                f"{self._base_objective.name!r}. Create the module with the objective that was trained."
            )

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load the state of a trained module, including its memory if this one has none yet."""
        if not self.memory.state_dict():
            prefix = "memory."
            saved = {n.removeprefix(prefix): t for n, t in state_dict.items() if n.startswith(prefix)}
            self.memory = Memory.shaped_like(saved).to(self.batches_seen.device)
        return super().load_state_dict(state_dict, strict=strict, assign=assign)


class PartialLabelData(LightningDataModule):
    """A training set in batches that do not depend on the number of processes.

    The order of an epoch is a function of seed and epoch, the same as in `propall.training.trainer.Trainer`.
    Each global batch is split into consecutive shares, one per process, whose lengths differ by at most one.
    `PartialLabelModule` counts the batches, so that training resumed within an epoch continues with the first
    batch it has not seen. Without a Trainer, the loaders give the batches of the first epoch and all
    validation rows, for a look at them.

    Args:
        train: features and candidate sets, kept in memory by every process.
        recipe: batches and augmentation; the same as the module's.
        seed: of order, augmentation and noise.
        validation: x and true classes for `val_accuracy`.

    Examples:
        >>> import torch
        >>> from propall.data import PartialDataset
        >>> from propall.methods.cc import CC
        >>> candidates = torch.tensor([[True, False], [True, True]]).repeat(20, 1)
        >>> train = PartialDataset(torch.randn(40, 3), candidates)
        >>> recipe = Recipe(epochs=1, batch_size=16)
        >>> data = PartialLabelData(train, recipe, validation=(torch.randn(10, 3), torch.zeros(10).long()))
        >>> import lightning
        >>> quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
        >>> trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", enable_checkpointing=False, **quiet)
        >>> trainer.fit(PartialLabelModule(torch.nn.Linear(3, 2), CC(), recipe), data)
        >>> sorted(trainer.callback_metrics)
        ['train_loss', 'val_accuracy']
    """

    def __init__(
        self,
        train: PartialDataset,
        recipe: Recipe | None = None,
        *,
        seed: int = 0,
        validation: tuple[Float[Tensor, "m ..."], Int[Tensor, "m"]] | None = None,
    ) -> None:
        super().__init__()
        check(train.candidates, quiet=True)
        if not train.in_files:  # those were checked when they were written
            check_finite_rows(train.x)
        self.train, self.recipe, self.seed, self.validation = train, recipe or Recipe(), seed, validation
        self.stream = Stream([Run(train, seed)], self.recipe)

    def setup(self, stage: str = "fit") -> None:
        """Disable validation if there is no validation data."""
        if self.trainer is not None and stage == "fit" and self.validation is None:
            self.trainer.limit_val_batches = 0

    def train_dataloader(self) -> "TrainingShares":
        """The shares of this process in the global batches."""
        if self.trainer is None:
            return TrainingShares(self)
        if not isinstance(self.trainer.lightning_module, PartialLabelModule):
            raise TypeError(
                f"model: got {type(self.trainer.lightning_module).__name__}; expected a PartialLabelModule, "
                "which counts the batches of PartialLabelData."
            )
        smallest = min(self.stream.batch_sizes, default=0)
        if smallest < self.trainer.world_size:
            raise ValueError(
                f"recipe: {len(self.train)} rows in batches of {self.recipe.batch_size} give a batch of "
                f"{smallest}, too few for {self.trainer.world_size} processes. Use another batch_size, or "
                "last_batch='drop'."
            )
        return TrainingShares(self)

    def val_dataloader(self) -> "ValidationShares":
        """The shares of this process in the validation rows."""
        if self.validation is None:
            raise ValueError("validation: missing; use PartialLabelData(..., validation=(x, truth)).")
        return ValidationShares(self)

    def share(self, rows: Tensor) -> Tensor:
        """The part of this process in rows that all processes have."""
        if self.trainer is None:
            return rows
        part: Tensor = rows.tensor_split(self.trainer.world_size)[self.trainer.global_rank]
        return part

    @cached_property
    def _candidates_digest(self) -> str:
        return counter_rng.digest(self.train.candidates)

    def state_dict(self) -> dict[str, Any]:
        """What identifies the batches of a run."""
        return {
            "seed": self.seed,
            "rows": len(self.train),
            "batch_size": self.recipe.batch_size,
            "last_batch": self.recipe.last_batch,
            "candidates": self._candidates_digest,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Reject the checkpoint of a run on other data or in another order."""
        differences = [
            f"{name} {value!r} (checkpoint: {state_dict[name]!r})"
            for name, value in self.state_dict().items()
            if value != state_dict[name]
        ]
        if differences:
            raise ValueError(
                f"ckpt_path: the checkpoint belongs to a run with other batches: {', '.join(differences)}. "
                "Resume with the data, seed and recipe of that run."
            )


class TrainingShares:
    """The rest of the current epoch as shares of this process: (index, x, candidates)."""

    def __init__(self, data: PartialLabelData) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data.stream.batch_sizes)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        data, trainer = self.data, self.data.trainer
        seen, per_epoch = 0, len(self)
        if trainer is not None:
            # Read at the first batch: by then a checkpoint has been restored.
            seen, per_epoch = int(trainer.lightning_module.batches_seen), int(trainer.num_training_batches)
        epoch, position = divmod(seen, per_epoch)
        batches = data.stream.order(epoch)[0].split(data.recipe.batch_size)
        for number in range(position, per_epoch):
            index = data.share(batches[number])
            step = torch.tensor(epoch * per_epoch + number, device=index.device)
            batch = data.stream.batch(index[None], step)
            yield batch.index[0], batch.x[0], batch.candidates[0]

    def state_dict(self) -> dict[str, Any]:
        """Empty, because the module counts the batches; its presence tells Lightning that it may resume."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing to restore."""


class ValidationShares:
    """Shares of this process in the validation rows, with the same number of batches in every process."""

    def __init__(self, data: PartialLabelData) -> None:
        assert data.validation is not None
        self.data = data
        self.x, self.truth = data.validation

    def __len__(self) -> int:
        return math.ceil(len(self.truth) / VALIDATION_BATCH)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for index in torch.arange(len(self.truth)).split(VALIDATION_BATCH):
            share = self.data.share(index)
            yield self.x[share], self.truth[share]

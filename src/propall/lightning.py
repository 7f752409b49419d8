"""Any network and any objective under Lightning's Trainer: several devices and nodes, precisions, callbacks.

What several processes compute together is what one would compute alone. Each runs the network on its share of
the global batch; the shares' logits are gathered, and the objective sees the global batch everywhere. So its
loss is that of the whole batch (also where it is defined on a batch, as GA's and NN's), shares of unequal
length count as they should, and every process keeps the whole row memory by making every row's update itself.
"""

import math
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
from propall.numerics import full_precision
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

#: Rows that are validated at once, over all processes.
VALIDATION_BATCH = 4096


@dataclass(frozen=True)
class Visit:
    """A global batch as the objective sees it, the same in every process, in the order of the shares."""

    index: Int[Tensor, "b"]
    logits: Float[Tensor, "b k"]
    candidates: Bool[Tensor, "b k"]
    shares: list[int]
    step: Step


class Memory(nn.Module):
    """An objective's state as buffers and parameters, where devices, checkpoints and optimisers find it."""

    def __init__(self, state: State | None = None) -> None:
        super().__init__()
        state = state or State()
        self._names = {part: tuple(tensors) for part, tensors in state._asdict().items()}
        for part, tensors in state._asdict().items():
            for name, tensor in tensors.items():
                if part == "trained":
                    self.register_parameter(f"{part}_{name}", nn.Parameter(tensor.clone()))
                else:
                    self.register_buffer(f"{part}_{name}", tensor.clone())

    @classmethod
    def shaped_like(cls, saved: dict[str, Tensor]) -> "Memory":
        """A memory that takes this `state_dict`."""
        parts: dict[str, dict[str, Tensor]] = {part: {} for part in State._fields}
        for key, tensor in saved.items():
            part, _, name = key.partition("_")
            parts[part][name] = tensor
        return cls(State(**parts))

    def state(self, index: Int[Tensor, "b"] | None = None) -> State:
        """The state of some rows, or of all."""
        rows, shared, trained = (
            {name: getattr(self, f"{part}_{name}") for name in self._names[part]} for part in State._fields
        )
        if index is not None:
            # Copies: the gradient is taken after `write` has changed what is kept.
            rows = {name: memory[index] for name, memory in rows.items()}
            shared = {name: memory.clone() for name, memory in shared.items()}
        return State(rows, shared, trained)

    def write(self, index: Int[Tensor, "b"], shares: list[int], new: State) -> None:
        """Keep what an objective's `update` returned for these rows."""
        kept = self.state()
        for name, rows in new.rows.items():
            memory = kept.rows[name]
            # Share by share: a row that two processes were handed ends as the later one's everywhere, while
            # within one write to a CUDA tensor any of the two could win.
            for part, values in zip(index.split(shares), rows.to(memory.dtype).split(shares), strict=True):
                memory[part] = values
        for name, value in new.shared.items():
            kept.shared[name].copy_(value)


class ResumeHint(Callback):
    """Says where a process of several stood when it failed: often it failed because another one did."""

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Adds a note to the exception."""
        if trainer.world_size > 1 and isinstance(exception, RuntimeError):
            exception.add_note(
                f"propall: rank {trainer.global_rank} of {trainer.world_size} stopped after batch "
                f"{int(pl_module.batches_seen)}. If the connection to another rank was lost, that rank ended "
                "first and its own output says why. A checkpoint holds the whole row memory: go on from the "
                "last one with Trainer.fit(..., ckpt_path=...)."
            )


class PartialLabelModule(LightningModule):
    """A network that learns an objective by a recipe, under Lightning's Trainer.

    The Trainer owns devices, nodes, precision, checkpoints, loggers and callbacks; the recipe owns optimiser
    and schedule, and `recipe.batch_size` is the global batch, over all processes. One process or several, the
    same global batches give the same weights and row memory to rounding. What a checkpoint holds is complete:
    row memory, tensors that the objective trains, the number of batches seen. Training goes on from any of
    Lightning's, written at the end of an epoch or within one, with the same or another number of processes.

    Logged are `train_loss`, the mean over an epoch's batches, and `val_accuracy` where there is validation
    data. `fit` without `ckpt_path` starts from the network's present weights with a new memory.

    Args:
        net: any network from x to (b, k) logits.
        objective: any objective, such as `PRODEN()`.
        recipe: epochs (give the Trainer no more than these), global batch, optimiser, schedule.
        candidates: (n, k) candidate sets of the whole training set, for objectives that remember or count
            them; only needed without `PartialLabelData`, which brings them.
        seed: of the noise; that of `PartialLabelData` (or 0) by default.

    Example:
        >>> recipe = Recipe(epochs=20, batch_size=256)
        >>> module = PartialLabelModule(net, PRODEN(), recipe)
        >>> data = PartialLabelData(train, recipe, validation=(test_x, test_truth))
        >>> lightning.Trainer(max_epochs=recipe.epochs, devices=4, strategy="ddp").fit(module, data)

    Notes:
        - Data from elsewhere: any loader of (index, x, candidates) with a length will do, `index` being a
          row's place in the training set. Where Lightning splits it over processes, it repeats a few rows to
          make the shares equal; `PartialLabelData` repeats none.
        - Batch norm works on a process's share; `Trainer(sync_batchnorm=True)` makes it global on GPUs.
          Networks that draw random numbers themselves (dropout) draw others in every process and after a
          resume.
        - Gradient accumulation counts every batch as a step of the objective. Objectives that look at the
          network again after the optimiser's step (`objective.fresh_logits`: RC, CAVL, LWS, LWC) refuse it.
        - Several processes take the strategy "ddp". A process that has lost another fails at the next
          exchange; `DDPStrategy(timeout=...)` limits how long it waits for one that is silent.
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
                f"objective: {objective!r} given; expected an objective such as ProPaLL(). "
                "Methods with a loop of their own (VALEN, PL-KNN, ...) are fitted with `fit`."
            )
        self.net = net
        self.objective = objective
        self.recipe = recipe or Recipe()
        self.memory = Memory()
        self.register_buffer("batches_seen", torch.zeros((), dtype=torch.int64))
        self._candidates, self._seed = candidates, seed
        self._noise_seed = self._fingerprint = 0
        self._to_refresh: tuple[Tensor, Any, Tensor, Step] | None = None
        self._hits = self._asked = 0

    def forward(self, x: Any) -> Float[Tensor, "b k"]:
        """The network's logits."""
        logits: Tensor = self.net(x)
        return logits

    def classifier(self) -> NetClassifier:
        """The trained network as the rest of the library knows it: `scores`, `predict`, `probabilities`."""
        state = State(*({name: t.detach() for name, t in part.items()} for part in self.memory.state()))
        return NetClassifier(self.net, self.objective, state)

    # Before the first batch

    def setup(self, stage: str) -> None:
        """A new memory for a new training; a checkpoint is read into it afterwards."""
        goes_on = self.trainer.global_step > 0 and int(self.batches_seen) > 0
        if stage != "fit" or goes_on:
            return
        data = self.trainer.datamodule
        seed, candidates = self._seed, self._candidates
        if isinstance(data, PartialLabelData):
            if data.recipe != self.recipe:
                raise ValueError(
                    f"recipe: the data module has {data.recipe}, the module {self.recipe}; "
                    "give both the same."
                )
            seed = data.seed if seed is None else seed
            candidates = data.train.candidates if candidates is None else candidates
        elif self.recipe.augmentation != "none":
            raise ValueError(
                f"recipe: augmentation={self.recipe.augmentation!r} is done by PartialLabelData; augment in "
                "your own data loader and use augmentation='none'."
            )
        self._noise_seed = counter_rng.seed_for(seed or 0, "noise")
        self.batches_seen.zero_()
        self.memory = Memory(self._first_state(candidates))
        self._fingerprint = int(counter_rng.digest(candidates, str(self._noise_seed))[:15], 16)
        # Every process writes the same into these; broadcasting them at every step would be a waste.
        own = [name for name, _ in self.named_buffers() if name.split(".")[0] in ("memory", "batches_seen")]
        # torch has no public name for this.
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(self, own)  # noqa: SLF001

    def _first_state(self, candidates: Tensor | None) -> State:
        if candidates is None:
            if type(self.objective).init is Objective.init:
                return State()
            raise ValueError(
                f"candidates: {self.objective.title} has to see those of the whole training set first; train "
                "on a PartialLabelData, or give PartialLabelModule(..., candidates=train.candidates)."
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
        """Refuses settings of the Trainer that would train something else than asked for."""
        strategy, precision = self.trainer.strategy, self.trainer.precision
        averaging = isinstance(strategy, DDPStrategy) and not isinstance(strategy, DeepSpeedStrategy)
        if not averaging and not isinstance(strategy, SingleDeviceStrategy):
            raise ValueError(
                f"strategy: {type(strategy).__name__} given; the global batch is put together for processes "
                "that each hold the whole network. Use Trainer(strategy='ddp')."
            )
        if len({int(f) for f in self._from_all(torch.tensor(self._fingerprint, device=self.device))}) > 1:
            raise ValueError(
                f"candidates: sets or seed differ between ranks (this is rank {self.trainer.global_rank}); "
                "make the training set in the same way in every process, from a fixed seed."
            )
        if any(t.is_floating_point() and t.dtype.itemsize < 4 for t in self.memory.state_dict().values()):
            raise ValueError(
                f"precision: {precision!r} would keep the memory of {self.objective.title} in half "
                "precision; use 'bf16-mixed' or '16-mixed'."
            )
        if self.recipe.precision == "bfloat16" and precision != "bf16-mixed":
            raise ValueError(
                f"precision: the recipe asks for bfloat16, the Trainer has {precision!r}; use "
                "Trainer(precision='bf16-mixed')."
            )

    def on_train_start(self) -> None:
        """Refuses a Trainer that would go on after the recipe's last epoch."""
        per_epoch = self.trainer.num_training_batches
        if math.isinf(per_epoch):
            raise ValueError("train_dataloaders: the loader has no length; schedules need an epoch's.")
        planned = self.recipe.epochs * math.ceil(per_epoch / self.trainer.accumulate_grad_batches)
        if self.trainer.estimated_stepping_batches > planned:
            raise ValueError(
                f"max_epochs: the Trainer would make {self.trainer.estimated_stepping_batches} steps "
                f"(max_epochs={self.trainer.max_epochs}), the recipe plans {planned} in {self.recipe.epochs} "
                "epochs and its schedules end there. Use Trainer(max_epochs=recipe.epochs)."
            )

    def configure_optimizers(self) -> dict[str, Any]:
        """The recipe's optimiser, on the network and on what the objective trains, and its schedule."""
        recipe = self.recipe
        optimizer: torch.optim.Optimizer
        if recipe.optimizer == "sgd":
            optimizer = torch.optim.SGD(
                self.parameters(),
                lr=recipe.learning_rate,
                momentum=recipe.momentum,
                weight_decay=recipe.weight_decay,
            )
        else:
            optimizer = torch.optim.Adam(
                self.parameters(),
                lr=recipe.learning_rate,
                betas=ADAM_BETAS,
                eps=ADAM_EPSILON,
                weight_decay=recipe.weight_decay,
            )

        def factor(epoch: int) -> float:
            done = torch.tensor(epoch, dtype=torch.float64)
            return float(recipe.rate_factor(done, done / max(1, recipe.epochs)))

        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "epoch"}}

    def configure_callbacks(self) -> list[Callback]:
        """A hint in the error of a process that others left alone."""
        return [ResumeHint()]

    # One batch

    def training_step(self, batch: Sequence[Any], batch_idx: int) -> Float[Tensor, ""]:
        """The loss of the global batch; its gradient flows into this process's share of it.

        Args:
            batch: index, x and candidates of the share.
            batch_idx: its number in the epoch, not used.
        """
        index, x, candidates = batch
        if self.objective.fresh_logits and self.trainer.accumulate_grad_batches > 1:
            raise ValueError(
                f"accumulate_grad_batches: {self.trainer.accumulate_grad_batches} given, but "
                f"{self.objective.title} looks at the network again after every batch's step; use 1."
            )
        logits = self.net(x)
        if logits.shape != candidates.shape:
            raise ValueError(
                f"net: it returns shape {tuple(logits.shape)} for candidates of shape "
                f"{tuple(candidates.shape)}; expected a score for every class."
            )
        # The objective computes in full precision whatever the network's is.
        with torch.autocast(self.device.type, enabled=False):
            visit = self._global_visit(index, logits, candidates)
            state = self.memory.state(visit.index)
            loss = self.objective.loss(visit.logits, visit.candidates, state, visit.step)
            if self.objective.fresh_logits:
                self._to_refresh = (index, x, candidates, visit.step)
            else:
                self._remember(visit)
        self.batches_seen += 1
        self.log(
            "train_loss",
            loss.detach(),
            on_step=False,
            on_epoch=True,
            prog_bar=True,
            batch_size=len(visit.index),
            sync_dist=True,
        )
        return loss

    def optimizer_step(
        self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None
    ) -> None:
        """The optimiser's step, then the second look at the network where the objective takes one.

        Here rather than at the batch's end: callbacks are called before the module there, and a checkpoint
        among them would miss the batch's update.
        """
        super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        if self._to_refresh is None:
            return
        (index, x, candidates, step), self._to_refresh = self._to_refresh, None
        with torch.no_grad():
            with self.trainer.precision_plugin.train_step_context():
                logits = self.net(x)
            self._remember(self._global_visit(index, logits, candidates, step))

    def _global_visit(
        self,
        index: Int[Tensor, "b"],
        logits: Float[Tensor, "b k"],
        candidates: Tensor,
        step: Step | None = None,
    ) -> Visit:
        logits, candidates = full_precision(logits), candidates.bool()
        shares = [len(index)]
        if self.trainer.world_size > 1:
            index, logits, candidates, shares = self._gathered(index, logits, candidates)
        return Visit(index, logits, candidates, shares, step or self._step(index, logits))

    def _step(self, index: Tensor, logits: Tensor) -> Step:
        seen, per_epoch = self.batches_seen.clone(), int(self.trainer.num_training_batches)
        progress = seen.to(logits.dtype) / max(1, self.recipe.epochs * per_epoch)
        epoch = seen.div(per_epoch, rounding_mode="floor").to(logits.dtype)
        uniform = None
        if self.objective.needs_noise:
            classes = torch.arange(logits.shape[1], device=logits.device)
            uniform = counter_rng.uniform(self._noise_seed, seen, index[:, None], classes, dtype=logits.dtype)
        return Step(progress, epoch, uniform)

    def _gathered(
        self, index: Tensor, logits: Tensor, candidates: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, list[int]]:
        """The shares of all processes, one after the other, with this process's own logits still attached."""
        own = torch.tensor(len(index), device=logits.device)
        shares: list[int] = torch.stack(self._from_all(own)).tolist()
        columns = [index[:, None], logits.detach(), candidates]
        as_bytes = torch.cat([column.contiguous().view(torch.uint8) for column in columns], dim=1)
        # A row's three entries travel together as bytes, and every share as long as the longest.
        padded = nn.functional.pad(as_bytes, (0, 0, 0, max(shares) - len(index)))
        gathered = zip(self._from_all(padded), shares, strict=True)
        rows = torch.cat([part[:share] for part, share in gathered])
        widths = [column.shape[1] * column.dtype.itemsize for column in columns]
        parts = [
            part.contiguous().view(column.dtype)
            for part, column in zip(rows.split(widths, dim=1), columns, strict=True)
        ]
        everything = parts[1]
        if logits.requires_grad:
            # The processes' gradients are averaged in the end, but those of the shares have to be added up.
            # What the objective trains has the whole gradient in every process, and the average is right.
            logits.register_hook(lambda gradient: gradient * len(shares))
            before = sum(shares[: self.trainer.global_rank])
            everything = torch.cat([everything[:before], logits, everything[before + len(index) :]])
        return parts[0].squeeze(1), everything, parts[2], shares

    def _from_all(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of all processes, in the order of their ranks."""
        if self.trainer.world_size == 1:
            return [tensor]
        tensors = [torch.empty_like(tensor) for _ in range(self.trainer.world_size)]
        torch.distributed.all_gather(tensors, tensor)
        return tensors

    @torch.no_grad()
    def _remember(self, visit: Visit) -> None:
        if type(self.objective).update is Objective.update:
            return
        state = self.memory.state(visit.index)
        new = self.objective.update(visit.logits.detach(), visit.candidates, state, visit.step)
        self.memory.write(visit.index, visit.shares, new)

    # Scores

    def predict_step(self, batch: Any, batch_idx: int = 0) -> Float[Tensor, "b k"]:
        """Scores of a batch of x, as the objective decodes the network's outputs."""
        return self.objective.scores(full_precision(self.net(batch)), self.memory.state())

    def on_validation_epoch_start(self) -> None:
        """Nothing counted yet."""
        self._hits, self._asked = 0, 0

    def validation_step(self, batch: Sequence[Any], batch_idx: int) -> None:
        """Counts how often the best score is that of the true class.

        Args:
            batch: x and true classes.
            batch_idx: its number, not used.
        """
        x, truth = batch
        self._hits += int((self.predict_step(x).argmax(-1) == truth).sum())
        self._asked += len(truth)

    def on_validation_epoch_end(self) -> None:
        """Logs `val_accuracy`, over the rows of all processes."""
        counts = torch.tensor([self._hits, self._asked], device=self.device)
        hits, asked = self.trainer.strategy.reduce(counts, reduce_op="sum").tolist()
        self.log("val_accuracy", hits / max(1, asked), prog_bar=True, sync_dist=True)

    # Checkpoints

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """The objective's name goes with its memory."""
        checkpoint["propall"] = {"objective": self.objective.name}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuses the memory of another objective."""
        saved = checkpoint.get("propall", {}).get("objective")
        if saved is not None and saved != self.objective.name:
            raise ValueError(
                f"ckpt_path: the checkpoint holds the memory of {saved!r}, the module's objective is "
                f"{self.objective.name!r}; build the module with the objective that was trained."
            )

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Takes a trained module's state; a module that has no memory yet makes room for it."""
        if not self.memory.state_dict():
            prefix = "memory."
            saved = {n.removeprefix(prefix): t for n, t in state_dict.items() if n.startswith(prefix)}
            self.memory = Memory.shaped_like(saved).to(self.batches_seen.device)
        return super().load_state_dict(state_dict, strict=strict, assign=assign)


class PartialLabelData(LightningDataModule):
    """A training set in batches that do not depend on the number of processes.

    An epoch's order is a function of seed and epoch, and the same as in `propall.training.trainer.Trainer`.
    Each global batch is cut into consecutive shares, one per process, whose lengths differ by one at most.
    Together with `PartialLabelModule`, which counts the batches, training resumed within an epoch goes on
    with the first batch that it has not seen.

    Args:
        train: features and candidate sets, held in memory by every process.
        recipe: batches and augmentation; the module's own.
        seed: of order, augmentation and noise.
        validation: x and true classes to measure `val_accuracy` on.
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
        self.train, self.recipe, self.seed, self.validation = train, recipe or Recipe(), seed, validation
        self.batch_sizes = self.recipe.batch_sizes(len(train))
        self.stream = Stream([Run(train, seed)], self.recipe)

    def setup(self, stage: str) -> None:
        """Turns validation off where there is nothing to validate on."""
        assert self.trainer is not None
        if stage == "fit" and self.validation is None:
            self.trainer.limit_val_batches = 0

    def train_dataloader(self) -> "GlobalBatches":
        """This process's shares of the global batches."""
        assert self.trainer is not None
        if not isinstance(self.trainer.lightning_module, PartialLabelModule):
            raise TypeError(
                f"model: {type(self.trainer.lightning_module).__name__} given; the batches of "
                "PartialLabelData are counted by a PartialLabelModule."
            )
        smallest = min(self.batch_sizes, default=0)
        if smallest < self.trainer.world_size:
            raise ValueError(
                f"recipe: a batch of {smallest} rows (of {len(self.train)} in batches of "
                f"{self.recipe.batch_size}) has none for some of {self.trainer.world_size} processes; use "
                "another batch_size, or last_batch='drop'."
            )
        return GlobalBatches(self)

    def val_dataloader(self) -> "ValidationShares":
        """This process's shares of the validation rows."""
        if self.validation is None:
            raise ValueError("validation: there is none; give PartialLabelData(..., validation=(x, truth)).")
        return ValidationShares(self)

    def share(self, rows: Tensor) -> Tensor:
        """This process's part of rows that all processes hold."""
        assert self.trainer is not None
        part: Tensor = rows.tensor_split(self.trainer.world_size)[self.trainer.global_rank]
        return part

    @cached_property
    def _candidates_digest(self) -> str:
        return counter_rng.digest(self.train.candidates)

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run is recognised by."""
        return {
            "seed": self.seed,
            "rows": len(self.train),
            "batch_size": self.recipe.batch_size,
            "last_batch": self.recipe.last_batch,
            "candidates": self._candidates_digest,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Refuses the checkpoint of a run on other data, or in another order."""
        differences = [
            f"{name} {value!r} (checkpoint: {state_dict[name]!r})"
            for name, value in self.state_dict().items()
            if value != state_dict[name]
        ]
        if differences:
            raise ValueError(
                f"ckpt_path: the checkpoint is of a run on other batches: {', '.join(differences)}. Resume "
                "with the data, seed and recipe it was started with."
            )


class GlobalBatches:
    """The rest of the epoch that the module is in, in this process's shares: (index, x, candidates)."""

    def __init__(self, data: PartialLabelData) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data.batch_sizes)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        data, trainer = self.data, self.data.trainer
        assert trainer is not None
        # Read when the first batch is asked for: by then a checkpoint has been restored.
        seen, per_epoch = int(trainer.lightning_module.batches_seen), int(trainer.num_training_batches)
        epoch, position = divmod(seen, per_epoch)
        batches = data.stream.order(epoch)[0].split(data.recipe.batch_size)
        for number in range(position, per_epoch):
            index = data.share(batches[number])
            step = torch.tensor(epoch * per_epoch + number, device=index.device)
            batch = data.stream.batch(index[None], step)
            yield batch.index[0], batch.x[0], batch.candidates[0]

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the module counts the batches. Lightning looks for the method to know it may resume."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing to restore."""


class ValidationShares:
    """This process's shares of the validation rows, the same number of batches in every process."""

    def __init__(self, data: PartialLabelData) -> None:
        assert data.validation is not None
        self.data = data
        self.x, self.truth = data.validation

    def __len__(self) -> int:
        return math.ceil(len(self.truth) / VALIDATION_BATCH)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for index in torch.arange(len(self.truth)).split(VALIDATION_BATCH):
            own = self.data.share(index)
            yield self.x[own], self.truth[own]

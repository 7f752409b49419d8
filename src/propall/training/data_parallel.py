"""Training by several processes: each computes the gradients of its share of every batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, distributed

from propall.training.backend import Backend, Group, SectionInputs, StepTime
from propall.training.contract import State
from propall.training.optim import Tensors

if TYPE_CHECKING:
    from propall.training.stack import Stack
    from propall.training.stream import Batch

#: Rank of this process and number of processes that train together.
_share: ContextVar[tuple[int, int]] = ContextVar("share", default=(0, 1))


def share() -> tuple[int, int]:
    """Rank of this process and number of processes that train together; (0, 1) outside `data_parallel`."""
    return _share.get()


@contextmanager
def data_parallel(rank: int, workers: int, rendezvous: str) -> Iterator[None]:
    """Train together with the processes that enter this block with the same rendezvous.

    The batches are those of a single process. Every process reads its share of the rows of a batch; the
    gradients are averaged, so all have the same weights, which differ from those of a single process by
    rounding only.

    Args:
        rank: number of this process, from 0.
        workers: number of processes.
        rendezvous: where they meet, as `init_method` of `torch.distributed.init_process_group`.
    """
    distributed.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=workers)
    token = _share.set((rank, workers))
    try:
        yield
    finally:
        _share.reset(token)
        distributed.destroy_process_group()


def own_rows(sizes: list[int]) -> tuple[list[int], list[int]]:
    """Positions of this process's rows in several batches one after the other, and their number per batch."""
    rank, workers = share()
    rows: list[int] = []
    own_sizes, start = [], 0
    for size in sizes:
        own = range(start + size * rank // workers, start + size * (rank + 1) // workers)
        rows += own
        own_sizes.append(len(own))
        start += size
    return rows, own_sizes


class DataParallelBackend(Backend):
    """Averages the gradients of another backend over all processes."""

    def __init__(self, stack: "Stack", backend: Backend) -> None:
        if stack.buffers or any(section.objective.updates_state for section in stack.sections):
            raise ValueError(
                "workers: batch norm and objectives with memory need whole batches. Use a network and a "
                "method without them, such as 'mlp' and 'propall', or one worker."
            )
        self.backend = backend

    @property
    def groups(self) -> list[Group]:  # type: ignore[override]
        """The groups of the other backend."""
        return self.backend.groups

    def section_inputs(
        self, section: int, batch: "Batch", time: StepTime, noise: Tensor | None
    ) -> SectionInputs:
        """What a section sees of this process's rows."""
        return self.backend.section_inputs(section, batch, time, noise)

    def losses_and_gradients(
        self, batch: "Batch", inputs: list[SectionInputs]
    ) -> tuple[Float[Tensor, "r"], Tensor, list[Tensors]]:
        """Means over the rows of all processes."""
        rows = batch.index.shape[1]
        if rows:
            losses, logits, gradients = self.backend.losses_and_gradients(batch, inputs)
        else:  # of a last batch with fewer rows than processes
            losses, logits = torch.zeros(len(batch.index)), torch.zeros(len(batch.index), 0, 0)
            gradients = [{k: torch.zeros_like(v) for k, v in group.tensors.items()} for group in self.groups]
        tensors = [losses, *(tensor for group in gradients for tensor in group.values())]
        flat = torch.cat([*(tensor.flatten() * rows for tensor in tensors), torch.tensor([float(rows)])])
        distributed.all_reduce(flat)
        means = (flat[:-1] / flat[-1]).split([tensor.numel() for tensor in tensors])
        averaged = [mean.view_as(tensor) for mean, tensor in zip(means, tensors, strict=True)]
        parts = iter(averaged[1:])
        return averaged[0], logits, [{name: next(parts) for name in group} for group in gradients]

    def update(self, section: int, batch: "Batch", section_inputs: SectionInputs, logits: Tensor) -> State:
        """Nothing is remembered."""
        return section_inputs.state

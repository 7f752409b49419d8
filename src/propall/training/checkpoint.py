"""Checkpoints of training runs, identified by a fingerprint of everything the result depends on."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from propall import atomic_files


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file; it appears under its name only when it is complete.

    Unlike `safetensors.torch.save_file`, it gives the file the permissions of any new file.
    """
    atomic_files.write_bytes(path, save(tensors, metadata))


class TimeLimitReached(Exception):
    """Training has stopped at its time limit, with a checkpoint from which the same training continues."""


def is_past(deadline: float | None) -> bool:
    """Whether a Unix time is over; None never is."""
    return deadline is not None and time.time() >= deadline


class Saved(NamedTuple):
    """Contents of a checkpoint: completed epochs, tensors of the stack, state of the monitor."""

    epoch: int
    tensors: dict[str, Tensor]
    monitor: dict[str, Tensor]


@dataclass
class Checkpoint:
    """A folder with one file per stack of runs, named by the stack's fingerprint.

    A process killed while saving leaves the previous file. Other data, seeds or settings have another
    fingerprint and hence another file.

    Attributes:
        folder: created if it does not exist.
        seconds: time between saves; the last epoch is always saved.
        deadline: Unix time by which training stops with `TimeLimitReached` at the end of an epoch, which is
            saved; None for no limit. An epoch that would end later than it, if it takes as long as the one
            before, does not start; the first one after a start always does.
    """

    folder: Path
    seconds: float = 30.0
    deadline: float | None = None
    _last: float = field(default_factory=time.monotonic, repr=False)

    def path(self, fingerprint: str) -> Path:
        """The file of one stack."""
        return self.folder / f"{fingerprint}.safetensors"

    def open(self, fingerprint: str) -> Saved | None:
        """The checkpoint of a stack, or None."""
        path = self.path(fingerprint)
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                header = json.loads((file.metadata() or {})["propall"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, KeyError, json.JSONDecodeError, OSError) as error:
            raise ValueError(
                f"checkpoint: {path} is not a readable checkpoint ({error}). Delete it to start over."
            ) from error
        parts: dict[str, dict[str, Tensor]] = {"stack": {}, "monitor": {}}
        for name, tensor in tensors.items():
            part, _, name_in_part = name.partition(":")
            parts[part][name_in_part] = tensor
        return Saved(int(header["epoch"]), parts["stack"], parts["monitor"])

    def due(self, epoch: int, epochs: int) -> bool:
        """Whether to save after this epoch, apart from the deadline."""
        return epoch == epochs or time.monotonic() - self._last >= self.seconds

    def save(
        self, fingerprint: str, epoch: int, tensors: dict[str, Tensor], monitor: dict[str, Tensor]
    ) -> None:
        """Replace the checkpoint of a stack."""
        named = {f"stack:{name}": tensor for name, tensor in tensors.items()}
        named |= {f"monitor:{name}": tensor for name, tensor in monitor.items()}
        named = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in named.items()}
        write_tensors(self.path(fingerprint), named, {"propall": json.dumps({"epoch": epoch})})
        self._last = time.monotonic()

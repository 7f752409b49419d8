"""Run tasks in several processes of this machine, or on a Ray cluster, and train with them."""

import multiprocessing
import os
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from propall.data.stored import StoredDataset
from propall.estimators.classifier import PartialLabelClassifier
from propall.training.data_parallel import data_parallel

Launcher = Literal["local", "ray"]


@dataclass(frozen=True)
class Workers:
    """Processes that share the work.

    Attributes:
        count: number of processes.
        launcher: "local": processes of this machine; "ray": tasks on a Ray cluster, see `connect_to_ray`.
            Files must have the same path on all machines.
    """

    count: int = 1
    launcher: Launcher = "local"

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"workers: got {self.count}; expected at least 1.")

    def map(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a function with each tuple of arguments; at most `count` at once, results in order."""
        if self.launcher == "ray":
            ray = connect_to_ray()
            remote = ray.remote(num_cpus=1, max_retries=0)(function)
            pending: list[Any] = []
            results: list[Any] = []
            for task in tasks:
                if len(pending) - len(results) >= self.count:
                    results.append(ray.get(pending[len(results)]))
                pending.append(remote.remote(*task))
            results += ray.get(pending[len(results) :])
            return results
        if self.count == 1:
            return [function(*task) for task in tasks]
        # Forking a process that has threads can hang.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(self.count, mp_context=context, initializer=_use_one_thread) as pool:
            return list(pool.map(function, *zip(*tasks, strict=True)))

    def fit(
        self, model: PartialLabelClassifier, folder: Path, classes: NDArray[Any]
    ) -> PartialLabelClassifier:
        """Fit an estimator to stored rows by all workers together, each on its share of every batch.

        The weights are those of `fit_stored` up to rounding.

        Args:
            model: as in `fit_stored`.
            folder: of a `StoredDataset`, visible to all workers.
            classes: class names in order.
        """
        if self.launcher == "ray":
            free = int(connect_to_ray().cluster_resources().get("CPU", 0))
            if free < self.count:
                raise ValueError(
                    f"workers: got {self.count}; the Ray cluster has {free} CPUs. They train together, so "
                    "use fewer workers, or add machines."
                )
        meeting = (folder.resolve() / f"meeting-{uuid.uuid4().hex}").as_uri()
        tasks = [(model, folder, classes, rank, self.count, meeting) for rank in range(self.count)]
        fitted: PartialLabelClassifier = self.map(_train, tasks)[0]
        return fitted


#: This process alone.
ONE_PROCESS = Workers()


def _use_one_thread() -> None:
    torch.set_num_threads(1)


def _train(
    model: PartialLabelClassifier,
    folder: Path,
    classes: NDArray[np.str_],
    rank: int,
    workers: int,
    meeting: str,
) -> PartialLabelClassifier | None:
    """What one worker does; the first one returns the model."""
    from propall.estimators.stored_fitting import fit_stored

    torch.set_num_threads(1)
    data = StoredDataset.open(folder)
    try:
        with data_parallel(rank, workers, meeting):
            fitted = fit_stored(model, data, classes)
    finally:
        data.close()
    return fitted if rank == 0 else None


def connect_to_ray() -> Any:
    """Return the module `ray`, connected to the cluster at RAY_ADDRESS, or to one started here."""
    try:
        import ray
    except ImportError as error:
        hint = "run pip install 'propall[ray]', or use launcher=local."
        raise ValueError(f"launcher: ray is not installed; {hint}") from error
    if not ray.is_initialized():
        address = os.environ.get("RAY_ADDRESS")
        try:
            ray.init(
                address=address, log_to_driver=False, include_dashboard=False if address is None else None
            )
        except ConnectionError as error:
            hint = "start one with `ray start --head`, or unset RAY_ADDRESS to use this machine."
            raise ValueError(f"launcher: there is no Ray cluster at {address!r}; {hint}") from error
    return ray

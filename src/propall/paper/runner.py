"""Specs to results: what can be stacked is trained at once."""

import dataclasses
import math
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import one_hot

from propall import atomic_files, counter_rng
from propall.data import DATASETS, load
from propall.data.dataset import PartialDataset, Problem, Source
from propall.data.files import data_root
from propall.methods.cc import CC
from propall.nets import NETS
from propall.paper.monitors import LATE_EPOCHS, AccuracyListener, CurveRecorder
from propall.paper.results import RunResult
from propall.paper.specs import TEACHER, Spec
from propall.provenance import commit, hardware
from propall.training import compiled
from propall.training.checkpoint import Checkpoint, write_tensors
from propall.training.compiled import best_device
from propall.training.contract import Algorithm, Classifier, Monitor, Objective, Run, TrainingSetup
from propall.training.metrics import Together
from propall.training.recipe import Recipe
from propall.training.trainer import Trainer

#: The file in a folder of progress that says whose it is.
_KEYS = "runs.txt"
#: What the name of such a folder ends with while it is being removed.
_GONE = ".gone"


def teacher_scores(
    spec: Spec,
    source: Source,
    device: torch.device,
    cache: Path | None = None,
    checkpoint: Path | None = None,
) -> Tensor:
    """Logits of a network trained on the clean labels, for instance-dependent candidate sets.

    Trained by `spec.teacher` with the run's own network, once: the logits are kept under a name made of data
    and recipe.

    Args:
        spec: the run that needs them.
        source: its data.
        device: where to train.
        cache: folder the logits are kept in; by default `teachers` under the folder of the data sets.
        checkpoint: folder for the training's progress; None for none.
    """
    recipe = spec.teacher or TEACHER
    clean = PartialDataset(source.x.to(device), one_hot(source.truth, source.n_classes).bool().to(device))
    constants = repr(source.scaling)
    name = counter_rng.digest("teacher", spec.net, repr(recipe), constants, source.raw, source.truth)
    folder = cache or data_root() / "teachers"
    path = folder / f"{source.name}-{name}.safetensors"
    progress = None if checkpoint is None else checkpoint / f"teacher-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    # Of several processes that need the same teacher one trains it, and the others wait.
    with _alone(path.with_suffix(".lock")):
        if not path.exists():
            trainer = Trainer(CC(), NETS[spec.net], recipe, progress)
            (classifier,) = trainer.fit([Run(clean, counter_rng.seed_for(0, "teacher"))])
            scores = classifier.scores(clean.x).float().cpu().contiguous()
            write_tensors(path, {"scores": scores})
        if progress is not None:
            shutil.rmtree(progress, ignore_errors=True)
    stored: Tensor = load_file(path)["scores"]
    return stored


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold a lock that a dead process gives back; where the system has none, go on without."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
        path.unlink(missing_ok=True)


def run_specs(
    specs: Sequence[Spec],
    *,
    device: torch.device | str = "auto",
    monitor: Monitor | None = None,
    checkpoint: Path | None = None,
    root: Path | None = None,
    every: int = 1,
) -> Iterator[RunResult]:
    """Run specs and yield their results, stack by stack.

    Args:
        specs: what to run.
        device: where.
        monitor: looks on, beside the measurements.
        checkpoint: folder for progress within stacks; None for none.
        root: folder of the data sets.
        every: epochs between measurements of the test accuracy.
    """
    for group in stackable(specs):
        for results in run_stacks(
            group, device=device, monitor=monitor, checkpoint=checkpoint, root=root, every=every
        ):
            yield from results


def stackable(specs: Sequence[Spec]) -> list[list[Spec]]:
    """Groups that are trained at once: same data, network and recipe up to rates; folds may differ.

    A method without a network is not stacked, so each of its specs is a group of its own; so is each run that
    is timed.
    """
    groups: dict[Any, list[Spec]] = {}
    for spec in specs:
        recipe = dataclasses.replace(spec.recipe, learning_rate=0.0, weight_decay=0.0)
        split = dataclasses.replace(spec.split, fold=None if spec.split.fold is None else 0)
        together: Any = "objectives"
        if not isinstance(spec.method, Objective):
            together = repr(spec.method) if spec.trains_a_net else spec.key
        if spec.is_timed:
            together = spec.key
        group = (spec.data, split, spec.scaling, spec.net, recipe, together)
        groups.setdefault(group, []).append(spec)
    return list(groups.values())


def run_stacks(
    specs: Sequence[Spec],
    *,
    device: torch.device | str = "auto",
    monitor: Monitor | None = None,
    checkpoint: Path | None = None,
    root: Path | None = None,
    teachers: Path | None = None,
    every: int = 1,
    confusions: Callable[[Spec], bool] = lambda spec: False,
    recalls: Callable[[Spec], bool] = lambda spec: False,
) -> Iterator[list[RunResult]]:
    """Run one group of `stackable` and yield the results of each stack, as many runs as memory takes.

    Args:
        specs: the group.
        device: where.
        monitor: looks on, beside the measurements; a `AccuracyListener` is also told the accuracies.
        checkpoint: folder for progress; every stack has a folder of its own in it, gone when the next
            results are asked for. None for none.
        root: folder of the data sets.
        teachers: folder the teachers' scores are kept in, see `teacher_scores`.
        every: epochs between measurements of the test accuracy.
        confusions: says for which specs confusion matrices are kept.
        recalls: says for which specs the accuracy is kept class by class.
    """
    device = best_device(device) if isinstance(device, str) else device
    source = specs[0].source(load(specs[0].data, root))
    problems = _Problems(
        source, device, teachers or (None if root is None else root / "teachers"), checkpoint
    )
    first = problems.of(specs[0])
    most = compiled.stack_limit(
        NETS[specs[0].net], specs[0].recipe, Run(first.train, specs[0].seed), len(specs)
    )
    for start in range(0, len(specs), most):
        part = specs[start : start + most]
        own = [problems.of(spec) for spec in part]
        curves = CurveRecorder(
            own,
            every=every,
            confusions=[i for i, spec in enumerate(part) if confusions(spec)],
            recalls=[i for i, spec in enumerate(part) if recalls(spec)],
            watcher=monitor if isinstance(monitor, AccuracyListener) else None,
        )
        watching = Together(curves, *([] if monitor is None else [monitor]))
        folder = None if checkpoint is None else _progress_folder(part, checkpoint)
        yield _run_stack(part, own, device, watching, curves, folder)
        if folder is not None:
            _remove(folder)


def _progress_folder(specs: Sequence[Spec], folder: Path) -> Path:
    """A folder for a stack's progress, in which the keys of its runs are written down."""
    keys = [spec.key for spec in specs]
    own = folder / counter_rng.digest(*keys)[:16]
    own.mkdir(parents=True, exist_ok=True)
    atomic_files.write_text(own / _KEYS, "\n".join(keys))
    return own


def _remove(folder: Path) -> None:
    """Remove a stack's progress: first its name, so that what a kill leaves of it is not taken for any."""
    gone = folder.with_suffix(_GONE)
    shutil.rmtree(gone, ignore_errors=True)
    with suppress(FileNotFoundError):  # another process was quicker
        folder.replace(gone)
    shutil.rmtree(gone, ignore_errors=True)


def tidy_progress(folder: Path, finished: Collection[str]) -> None:
    """Remove the progress of stacks whose runs (by key) are all finished: a kill may have come in between."""
    for own in folder.iterdir() if folder.exists() else ():
        keys = own / _KEYS
        if own.suffix == _GONE:
            shutil.rmtree(own, ignore_errors=True)
        elif keys.exists() and set(keys.read_text(encoding="utf-8").split()) <= set(finished):
            _remove(own)


def _run_stack(
    specs: Sequence[Spec],
    problems: Sequence[Problem],
    device: torch.device,
    monitor: Monitor,
    curves: CurveRecorder,
    checkpoint: Path | None,
) -> list[RunResult]:
    runs = [
        Run(
            problem.train,
            spec.seed,
            objective=spec.method if isinstance(spec.method, Objective) else None,
            learning_rate=spec.recipe.learning_rate,
            weight_decay=spec.recipe.weight_decay,
        )
        for spec, problem in zip(specs, problems, strict=True)
    ]
    classifiers = _algorithm(specs[0], checkpoint).fit(runs, monitor=monitor)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    seconds = curves.seconds / len(specs)
    return [
        _result(spec, problem, classifier, curves, i, seconds, device)
        for i, (spec, problem, classifier) in enumerate(zip(specs, problems, classifiers, strict=True))
    ]


def _result(
    spec: Spec,
    problem: Problem,
    classifier: Classifier,
    curves: CurveRecorder,
    position: int,
    seconds: float,
    device: torch.device,
) -> RunResult:
    curve = curves.accuracies(position)
    if curve:
        accuracy = curve[max(curve)]
    else:
        accuracy = float((classifier.predict(problem.test_x) == problem.test_truth).double().mean())
    last = [value for epoch, value in curve.items() if epoch > max(curve) - LATE_EPOCHS]
    scores = classifier.scores(problem.train.x)
    candidates = problem.train.candidates
    inside = candidates.gather(1, scores.argmax(-1, keepdim=True))
    resolved = scores.masked_fill(~candidates, -torch.inf).argmax(-1)
    return RunResult(
        spec=spec,
        accuracy=accuracy,
        last10=sum(last) / len(last) if last else accuracy,
        covered=float(inside.double().mean()),
        transductive=float((resolved == problem.truth).double().mean()),
        candidates=float(candidates.sum(-1).double().mean()),
        seconds=seconds,
        curve=curve,
        confusions=curves.confusion_matrices(position),
        recalls=curves.sensitivities(position),
        times=curves.times(),
        stack=len(curves.problems),
        commit=commit(),
        hardware=hardware(device),
        when=datetime.now(UTC).isoformat(timespec="seconds"),
    )


class _Problems:
    """The problems of a group's specs on the device; what is the same for several is held once."""

    def __init__(
        self, source: Source, device: torch.device, teachers: Path | None, checkpoint: Path | None
    ) -> None:
        self.source, self.device, self.teachers, self.checkpoint = source, device, teachers, checkpoint
        self._drawn: dict[Any, Problem] = {}
        self._of_split: dict[Any, Problem] = {}
        self._scores: dict[Any, Tensor] = {}

    def of(self, spec: Spec) -> Problem:
        """A spec's problem."""
        # Candidate sets that are the data's own do not depend on the seed.
        drawn_by = None if spec.corruption is None else (spec.corruption, spec.teacher, spec.seed)
        key = (spec.split, drawn_by)
        if key not in self._drawn:
            problem = spec.split.problem(self.source, spec.corruption, spec.seed, self._teacher(spec))
            if spec.recipe.augmentation != "none" and self.source.scaling is not None:
                problem = _as_images(problem)
            shared = self._of_split.setdefault(spec.split, problem.to(self.device))
            candidates = problem.train.candidates.to(self.device)
            self._drawn[key] = dataclasses.replace(shared, train=PartialDataset(shared.train.x, candidates))
        return self._drawn[key]

    def _teacher(self, spec: Spec) -> Tensor | None:
        if spec.corruption is None or not spec.corruption.needs_scores:
            return None
        key = (spec.net, spec.teacher)
        if key not in self._scores:
            self._scores[key] = teacher_scores(spec, self.source, self.device, self.teachers, self.checkpoint)
        return self._scores[key]


def _as_images(problem: Problem) -> Problem:
    """Flat square images get their height and width back: augmentation moves pixels."""
    side = math.isqrt(problem.train.x.shape[1])
    if problem.train.x.dim() != 2 or side**2 != problem.train.x.shape[1]:
        return problem
    train = PartialDataset(problem.train.x.view(-1, 1, side, side), problem.train.candidates)
    return dataclasses.replace(problem, train=train, test_x=problem.test_x.view(-1, 1, side, side))


def _algorithm(spec: Spec, checkpoint: Path | None) -> Algorithm:
    saved = None if checkpoint is None else Checkpoint(checkpoint)
    return spec.method.with_training(TrainingSetup(NETS[spec.net], spec.recipe, saved))


def default_setting(data: str) -> tuple[str, Recipe]:
    """The network and recipe a data set is trained with where nothing else is asked for."""
    loader = DATASETS[data]
    if loader.kind == "real-world":
        return "linear", Recipe(epochs=200, batch_size=100, learning_rate=0.05, weight_decay=1e-4)
    if len(loader.shape) == 3:
        return "resnet32", Recipe(epochs=200, batch_size=256, learning_rate=0.05)
    if loader.kind == "images":
        return "mlp5", Recipe(epochs=50, batch_size=256, learning_rate=0.05, weight_decay=1e-6)
    return "mlp", Recipe(epochs=60, batch_size=64, learning_rate=0.05, weight_decay=1e-4)

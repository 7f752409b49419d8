"""Train runs and measure them: a `RunTask` becomes a list of `RunResult`.

Runs of one group share data, network and recipe. As many of them as fit in memory are trained at once, as one
stack. `scheduler` chooses the groups, `workers` calls `run_stacks` for each.
"""

import dataclasses
import json
import math
import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import one_hot

from propall import atomic_files, counter_rng
from propall.data import load
from propall.data.dataset import PartialDataset, Problem, Source
from propall.data.files import data_root
from propall.methods.cc import CC
from propall.nets import NETS
from propall.nets.network import ImageNetwork
from propall.paper.monitors import LATE_EPOCHS, AccuracyListener, CurveRecorder
from propall.paper.results import RunResult
from propall.paper.specs import TEACHER, Spec, Teacher
from propall.provenance import commit, hardware
from propall.training import compiled
from propall.training.checkpoint import Checkpoint, TimeLimitReached, is_past, write_tensors
from propall.training.compiled import best_device, restored_generators, synchronize
from propall.training.contract import (
    Classifier,
    Monitor,
    NetFactory,
    Objective,
    Run,
    RunScores,
    TrainingSetup,
)
from propall.training.metrics import CombinedMonitor
from propall.training.networks import NetClassifier
from propall.training.recipe import Recipe
from propall.training.trainer import Trainer

#: Rows whose batch statistics published annotators use, see `Teacher`.
PUBLIC_BATCH = 2000
#: Seconds between attempts to take a lock that another process holds.
LOCK_SECONDS = 0.5
#: File in the checkpoint folder of a stack that lists the keys of its runs.
_KEYS_FILE = "runs.txt"
#: Suffix of a checkpoint folder while it is being removed.
_REMOVED_SUFFIX = ".gone"


@dataclass(frozen=True)
class RunTask:
    """Runs to execute, and how; survives a round trip through JSON."""

    specs: Sequence[Spec]
    device: str = "auto"
    every: int = 1  # epochs between measurements of the test accuracy
    checkpoint: Path | None = None  # folder for checkpoints; None disables them
    root: Path | None = None  # folder of the data sets; None for the default
    teachers: Path | None = None  # folder of the teachers' scores; None for the default
    confusions: Collection[str] = ()  # keys of the runs whose confusion matrices are recorded
    recalls: Collection[str] = ()  # keys of the runs whose per-class recalls are recorded
    fast: bool | None = None  # see `TrainingSetup`
    deadline: float | None = None  # Unix time at which to stop, see `run_stacks`

    def to_json(self) -> str:
        """Return one line of JSON."""
        paths = {name: path and str(path) for name, path in vars(self).items() if name in _PATHS}
        return json.dumps(vars(self) | paths | {"specs": [spec.to_dict() for spec in self.specs]})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        values = json.loads(text)
        paths = {name: Path(values[name]) for name in _PATHS if values[name] is not None}
        return cls(**values | paths | {"specs": [Spec.from_dict(spec) for spec in values["specs"]]})


_PATHS = ("checkpoint", "root", "teachers")


def run_specs(task: RunTask, monitor: Monitor | None = None) -> Iterator[RunResult]:
    """Run all specs of a task, group by group, and yield their results."""
    for group in group_stackable(task.specs):
        for results in run_stacks(dataclasses.replace(task, specs=group), monitor):
            yield from results


def group_stackable(specs: Sequence[Spec]) -> list[list[Spec]]:
    """Group specs that can be trained at once: same data, network and recipe; rates and folds may differ.

    Timed runs and methods without a network are not stacked: each is its own group.
    """
    groups: dict[Any, list[Spec]] = {}
    for spec in specs:
        recipe = dataclasses.replace(spec.recipe, learning_rate=0.0, weight_decay=0.0)
        split = dataclasses.replace(spec.split, fold=None if spec.split.fold is None else 0)
        method: Any = "objectives"
        if spec.is_timed or not spec.trains_network:
            method = spec.key
        elif not isinstance(spec.method, Objective):
            method = repr(spec.method)
        group = (spec.data, split, spec.scaling, spec.net, recipe, method)
        groups.setdefault(group, []).append(spec)
    return list(groups.values())


def run_stacks(task: RunTask, monitor: Monitor | None = None) -> Iterator[list[RunResult]]:
    """Run one group of `group_stackable` and yield the results of each stack.

    Each stack has its own checkpoint folder, which is removed when the next results are requested. A monitor
    that is an `AccuracyListener` also receives the accuracies. After the deadline no stack starts, and one
    that trains networks with a checkpoint stops at the end of an epoch: both raise `TimeLimitReached`.
    """
    _check_time(task)
    device = best_device(task.device)
    first = task.specs[0]
    source = first.source(load(first.data, task.root))
    teachers = task.teachers or (None if task.root is None else task.root / "teachers")
    problems = ProblemCache(source, device, teachers, task.checkpoint, deadline=task.deadline)
    run = Run(problems.get(first).train, first.seed)
    limit = compiled.stack_limit(NETS[first.net], first.recipe, run, len(task.specs))
    for start in range(0, len(task.specs), limit):
        _check_time(task)
        specs = task.specs[start : start + limit]
        listener = monitor if isinstance(monitor, AccuracyListener) else None
        if listener is not None:
            listener.starting(specs)
        curves = CurveRecorder(
            [problems.get(spec) for spec in specs],
            every=task.every,
            confusions=[i for i, spec in enumerate(specs) if spec.key in task.confusions],
            recalls=[i for i, spec in enumerate(specs) if spec.key in task.recalls],
            listener=listener,
        )
        folder = None if task.checkpoint is None else _create_checkpoint_folder(specs, task.checkpoint)
        saved = None if folder is None else Checkpoint(folder, deadline=task.deadline)
        yield _run_stack(specs, curves, monitor, saved, task.fast)
        if folder is not None:
            _remove_checkpoint(folder)


def _check_time(task: RunTask) -> None:
    if is_past(task.deadline):
        raise TimeLimitReached


def _run_stack(
    specs: Sequence[Spec],
    curves: CurveRecorder,
    monitor: Monitor | None,
    checkpoint: Checkpoint | None,
    fast: bool | None,
) -> list[RunResult]:
    """Train some runs as one stack and measure them on the problems of `curves`."""
    runs = [
        Run(
            problem.train,
            spec.seed,
            objective=spec.method if isinstance(spec.method, Objective) else None,
            learning_rate=spec.recipe.learning_rate,
            weight_decay=spec.recipe.weight_decay,
        )
        for spec, problem in zip(specs, curves.problems, strict=True)
    ]
    setup = TrainingSetup(NETS[specs[0].net], specs[0].recipe, checkpoint, fast)
    classifiers = specs[0].method.with_training(setup).fit(runs, monitor=CombinedMonitor(curves, monitor))
    synchronize(runs[0].train.x.device)
    seconds = curves.seconds / len(specs)
    return [
        _measure(spec, classifier, curves, i, seconds)
        for i, (spec, classifier) in enumerate(zip(specs, classifiers, strict=True))
    ]


def _measure(
    spec: Spec, classifier: Classifier, curves: CurveRecorder, position: int, seconds: float
) -> RunResult:
    problem, curve = curves.problems[position], curves.accuracies(position)
    if curve:
        last = [value for epoch, value in curve.items() if epoch > max(curve) - LATE_EPOCHS]
        accuracy, last10 = curve[max(curve)], sum(last) / len(last)
    else:
        hits = classifier.predict(problem.test_x) == problem.test_truth
        accuracy = last10 = float(hits.double().mean())
    scores = classifier.scores(problem.train.x)
    candidates = problem.train.candidates
    covered = candidates.gather(1, scores.argmax(-1, keepdim=True))
    resolved = scores.masked_fill(~candidates, -torch.inf).argmax(-1)
    return RunResult(
        spec=spec,
        accuracy=accuracy,
        last10=last10,
        covered=float(covered.double().mean()),
        transductive=float((resolved == problem.truth).double().mean()),
        candidates=float(candidates.sum(-1).double().mean()),
        seconds=seconds,
        curve=curve,
        confusions=curves.confusion_matrices(position),
        recalls=curves.class_recalls(position),
        times=curves.times(),
        stack=len(curves.problems),
        commit=commit(),
        hardware=hardware(candidates.device),
        when=datetime.now(UTC).isoformat(timespec="seconds"),
    )


class ProblemCache:
    """The problems of a group's specs on the device; tensors that specs share are held once."""

    def __init__(
        self,
        source: Source,
        device: torch.device,
        *teacher_folders: Path | None,
        deadline: float | None = None,
    ) -> None:
        self.source, self.device, self.teacher_folders = source, device, teacher_folders
        self.deadline = deadline
        self._problems: dict[Any, Problem] = {}
        self._by_split: dict[Any, Problem] = {}
        self._scores: dict[Any, Tensor] = {}

    def get(self, spec: Spec) -> Problem:
        """Return the problem of a spec."""
        # Candidate sets that come with the data do not depend on the seed.
        drawn_by = None if spec.corruption is None else (spec.corruption, spec.teacher, spec.seed)
        on_images = self.source.scaling is not None and (
            _takes_images(spec.net, spec.recipe, spec.trains_network)
        )
        key = (spec.split, on_images, drawn_by)
        if key not in self._problems:
            problem = spec.split.problem(self.source, spec.corruption, spec.seed, self.teacher(spec))
            if on_images:
                problem = _unflatten(problem)
            shared = self._by_split.setdefault((spec.split, on_images), problem.to(self.device))
            train = PartialDataset(shared.train.x, problem.train.candidates.to(self.device))
            self._problems[key] = dataclasses.replace(shared, train=train)
        return self._problems[key]

    def teacher(self, spec: Spec) -> Tensor | None:
        """Return the logits of a spec's teacher; None if its candidate sets need none."""
        if spec.corruption is None or not spec.corruption.needs_scores:
            return None
        key = spec.teacher if isinstance(spec.teacher, Teacher) else (spec.net, spec.teacher)
        if key not in self._scores:
            self._scores[key] = teacher_scores(
                spec, self.source, self.device, *self.teacher_folders, deadline=self.deadline
            )
        return self._scores[key]


def _takes_images(net: str, recipe: Recipe, trains_network: bool = True) -> bool:
    augments = recipe.augmentation != "none" or recipe.views is not None
    return augments or (trains_network and issubclass(NETS[net], ImageNetwork))


def square_images(x: Tensor) -> Tensor:
    """Restore height and width of flattened square gray images; other rows stay as they are."""
    side = math.isqrt(x.shape[1])
    return x.view(-1, 1, side, side) if x.dim() == 2 and side**2 == x.shape[1] else x


def _unflatten(problem: Problem) -> Problem:
    train = PartialDataset(square_images(problem.train.x), problem.train.candidates)
    return dataclasses.replace(problem, train=train, test_x=square_images(problem.test_x))


def teacher_scores(
    spec: Spec,
    source: Source,
    device: torch.device,
    cache: Path | None = None,
    checkpoint: Path | None = None,
    *,
    deadline: float | None = None,
) -> Tensor:
    """Return logits of a network trained on clean labels, for instance-dependent candidate sets.

    The teacher (by default the network of the run) is trained with its recipe, once: its logits are cached in
    a file named after data and recipe, by default in the folder `teachers` of the data sets.
    """
    teacher = spec.teacher
    if not isinstance(teacher, Teacher):
        teacher = Teacher(spec.net, teacher or TEACHER)
    recipe = teacher.recipe
    # As `repr` was before recipes had further fields, so that cached files keep their names.
    recipe_text = f"Recipe({', '.join(f'{name}={value!r}' for name, value in recipe.to_dict().items())})"
    settings = ["teacher", teacher.net, recipe_text, repr(source.scaling)]
    settings += [] if teacher.scoring == "eval" else [teacher.scoring]
    settings += [f"dropout {teacher.dropout}"] if teacher.dropout else []
    name = counter_rng.digest(*settings, source.raw, source.truth)
    folder = cache or data_root() / "teachers"
    path = folder / f"{source.name}-{name}.safetensors"
    progress = None if checkpoint is None else checkpoint / f"teacher-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    # Of several processes that need the same teacher, one trains it and the others wait.
    with _file_lock(path.with_suffix(".lock"), deadline):
        if not path.exists():
            x = source.x.to(device)
            if _takes_images(teacher.net, recipe):
                x = square_images(x)
            clean = PartialDataset(x, one_hot(source.truth, source.n_classes).bool().to(device))
            saved = None if progress is None else Checkpoint(progress, deadline=deadline)
            trainer = Trainer(CC(), _teacher_net(teacher), recipe, saved)
            seed = counter_rng.seed_for(0, "teacher")
            with restored_generators(device):
                monitor = _DropoutSeeds(seed) if teacher.dropout else None
                (classifier,) = trainer.fit([Run(clean, seed)], monitor=monitor)
                if teacher.scoring == "public":
                    scores = public_scores(classifier, source.raw.view(x.shape))
                else:
                    scores = classifier.scores(x)
            write_tensors(path, {"scores": scores.float().cpu().contiguous()})
        if progress is not None:
            shutil.rmtree(progress, ignore_errors=True)
    stored: Tensor = load_file(path)["scores"]
    return stored


def _teacher_net(teacher: Teacher) -> NetFactory:
    net = NETS[teacher.net]
    return partial(net, dropout=teacher.dropout) if teacher.dropout else net


class _DropoutSeeds(Monitor):
    """Seeds PyTorch's generators anew for every epoch, so that dropout is the same after an interruption."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def begin(self, epochs: int, runs: Sequence[int], done: int) -> None:
        """Seed the first epoch of this process."""
        torch.manual_seed(counter_rng.seed_for(self.seed, f"dropout {done}"))

    def epoch(self, epoch: int, runs: Sequence[int], losses: Tensor, scores: RunScores) -> None:
        """Seed the next epoch; after the last one, what draws the scores."""
        self.begin(epoch, runs, epoch)


@torch.no_grad()
def public_scores(classifier: Classifier, pixels: Tensor) -> Tensor:
    """Return the outputs of a network in training mode on pixels as they are stored."""
    assert isinstance(classifier, NetClassifier)
    net, device = classifier.net.train(), next(classifier.net.parameters()).device
    return torch.cat([net(rows.to(device).float()) for rows in pixels.split(PUBLIC_BATCH)])


@contextmanager
def _file_lock(path: Path, deadline: float | None) -> Iterator[None]:
    """Hold a lock that the system releases if the process dies; does nothing on systems without one.

    While another process holds it, this one waits until the deadline, then raises `TimeLimitReached`.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if is_past(deadline):
                    raise TimeLimitReached from None
                time.sleep(LOCK_SECONDS)
        yield
        path.unlink(missing_ok=True)


def _create_checkpoint_folder(specs: Sequence[Spec], parent: Path) -> Path:
    keys = [spec.key for spec in specs]
    folder = parent / counter_rng.digest(*keys)[:16]
    atomic_files.write_text(folder / _KEYS_FILE, "\n".join(keys))
    return folder


def _remove_checkpoint(folder: Path) -> None:
    """Remove a checkpoint folder; renamed first, so that a half-removed one is never resumed from."""
    removed = folder.with_suffix(_REMOVED_SUFFIX)
    shutil.rmtree(removed, ignore_errors=True)
    with suppress(FileNotFoundError):  # another process removed it first
        folder.replace(removed)
    shutil.rmtree(removed, ignore_errors=True)


def remove_finished_checkpoints(parent: Path, finished: Collection[str]) -> None:
    """Remove checkpoints whose runs (by key) are all finished, which a killed process may leave behind."""
    for folder in parent.iterdir() if parent.exists() else ():
        keys = folder / _KEYS_FILE
        if folder.suffix == _REMOVED_SUFFIX:
            shutil.rmtree(folder, ignore_errors=True)
        elif keys.exists() and set(keys.read_text(encoding="utf-8").split()) <= set(finished):
            _remove_checkpoint(folder)

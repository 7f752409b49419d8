"""Specs to results: what can be stacked is trained at once."""

import dataclasses
import functools
import platform
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import one_hot

from propall import __version__, draws
from propall.data import DATASETS, load
from propall.data.dataset import PartialDataset, Problem, Source
from propall.data.files import data_root
from propall.experiments.spec import TEACHER, Spec
from propall.methods import METHODS
from propall.nets import NETS
from propall.training.checkpoint import Checkpoint
from propall.training.contract import Algorithm, Monitor, Objective, Run
from propall.training.engine import Trainer
from propall.training.metrics import History, Together
from propall.training.recipe import Recipe


@dataclass(frozen=True)
class Result:
    """What came of a run, and where.

    Attributes:
        spec: the run.
        accuracy: share of test rows whose prediction is true, after the last epoch.
        last10: mean of that over the last ten epochs; equal to `accuracy` for methods without epochs.
        covered: share of training rows whose prediction is one of their candidates.
        transductive: share of training rows whose likeliest candidate is the true label.
        candidates: mean number of candidates.
        seconds: time the run took; its share where it was trained together with others.
        curve: accuracy by epoch.
        version: of propall.
        commit: of propall's source, where it is known.
        torch: version of torch.
        hardware: the device, in words.
        when: date and time, UTC.
    """

    spec: Spec
    accuracy: float
    last10: float
    covered: float
    transductive: float
    candidates: float
    seconds: float
    curve: dict[int, float] = field(default_factory=dict)
    version: str = __version__
    commit: str = ""
    torch: str = torch.__version__
    hardware: str = ""
    when: str = ""


@functools.cache
def commit() -> str:
    """The commit of the source tree this runs from, marked where it was changed; empty elsewhere."""
    here = Path(__file__).resolve().parent
    try:
        command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def hardware(device: torch.device | str) -> str:
    """A device in words."""
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"


def best_device(name: str = "auto") -> torch.device:
    """The named device, or for "auto" a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def teacher_scores(spec: Spec, source: Source, device: torch.device, cache: Path | None = None) -> Tensor:
    """Logits of a network trained on the clean labels, for instance-dependent candidate sets.

    Trained by `spec.teacher` with the run's own network, once: the logits are kept under a name made of data
    and recipe.
    """
    recipe = spec.teacher or TEACHER
    clean = PartialDataset(source.x.to(device), one_hot(source.truth, source.n_classes).bool().to(device))
    name = draws.digest("teacher", spec.net, repr(recipe), source.raw, source.truth)
    folder = cache or data_root() / "teachers"
    path = folder / f"{source.name}-{name}.safetensors"
    if path.exists():
        return load_file(path)["scores"]
    trainer = Trainer(METHODS["cc"](), NETS[spec.net], recipe)
    (classifier,) = trainer.fit([Run(clean, draws.seed_for(0, "teacher"))])
    scores = classifier.scores(clean.x).float().cpu().contiguous()
    folder.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    save_file({"scores": scores}, part)
    part.replace(path)
    return scores


def run_specs(
    specs: Sequence[Spec],
    *,
    device: torch.device | str = "auto",
    monitor: Monitor | None = None,
    checkpoint: Path | None = None,
    root: Path | None = None,
    every: int = 1,
) -> Iterator[Result]:
    """Run specs and yield their results, stack by stack.

    Args:
        specs: what to run.
        device: where.
        monitor: looks on, beside the measurements.
        checkpoint: folder for progress within stacks; None for none.
        root: folder of the data sets.
        every: epochs between measurements of the test accuracy.
    """
    device = best_device(device) if isinstance(device, str) else device
    for group in _stackable(specs):
        yield from _run_together(group, device, monitor, checkpoint, root, every)


def _stackable(specs: Sequence[Spec]) -> list[list[Spec]]:
    """Groups that may share a stack: same data, rows, network and recipe up to rates."""
    groups: dict[Any, list[Spec]] = {}
    for spec in specs:
        recipe = dataclasses.replace(spec.recipe, learning_rate=0.0, weight_decay=0.0)
        together: Any = isinstance(spec.method, Objective) or (type(spec.method), repr(spec.method))
        groups.setdefault((spec.data, spec.split, spec.net, recipe, together), []).append(spec)
    return list(groups.values())


def _run_together(
    specs: list[Spec],
    device: torch.device,
    monitor: Monitor | None,
    checkpoint: Path | None,
    root: Path | None,
    every: int,
) -> Iterator[Result]:
    first = specs[0]
    source = first.split.source(load(first.data, root))
    problems = _problems(specs, source, device, root)
    algorithm = _algorithm(first, checkpoint)
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
    history = History(problems[0].test_x, problems[0].test_truth, every=every)
    start = time.perf_counter()
    watchers = Together(history, *([] if monitor is None else [monitor]))
    classifiers = algorithm.fit(runs, monitor=watchers)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    seconds = (time.perf_counter() - start) / len(specs)
    for i, (spec, problem, classifier) in enumerate(zip(specs, problems, classifiers, strict=True)):
        curve = history.accuracies(i)
        correct = classifier.predict(problem.test_x) == problem.test_truth
        accuracy = float(correct.double().mean())
        last = [value for epoch, value in curve.items() if epoch > spec.recipe.epochs - 10]
        scores = classifier.scores(problem.train.x)
        candidates = problem.train.candidates
        inside = candidates.gather(1, scores.argmax(-1, keepdim=True))
        resolved = scores.masked_fill(~candidates, -torch.inf).argmax(-1)
        yield Result(
            spec=spec,
            accuracy=accuracy,
            last10=sum(last) / len(last) if last else accuracy,
            covered=float(inside.double().mean()),
            transductive=float((resolved == problem.truth).double().mean()),
            candidates=float(candidates.sum(-1).double().mean()),
            seconds=seconds,
            curve=curve,
            commit=commit(),
            hardware=hardware(device),
            when=datetime.now(UTC).isoformat(timespec="seconds"),
        )


def _problems(specs: list[Spec], source: Source, device: torch.device, root: Path | None) -> list[Problem]:
    """Each spec's problem on the device; what is the same for several is held once."""
    drawn: dict[Any, Problem] = {}
    shared: Problem | None = None
    problems = []
    for spec in specs:
        key = (spec.corruption, spec.seed if spec.corruption is not None else None)
        if key not in drawn:
            scores = None
            if spec.corruption is not None and spec.corruption.needs_scores:
                cache = None if root is None else root / "teachers"
                scores = teacher_scores(spec, source, device, cache)
            problem = spec.split.problem(source, spec.corruption, spec.seed, scores).to(device)
            if shared is None:
                shared = problem
            train = PartialDataset(shared.train.x, problem.train.candidates)
            drawn[key] = dataclasses.replace(shared, train=train)
        problems.append(drawn[key])
    return problems


def _algorithm(spec: Spec, checkpoint: Path | None) -> Algorithm:
    net = NETS[spec.net]
    if isinstance(spec.method, Objective):
        return Trainer(spec.method, net, spec.recipe, None if checkpoint is None else Checkpoint(checkpoint))
    given = {"net": net, "recipe": spec.recipe}
    own = {f.name for f in dataclasses.fields(spec.method)}  # type: ignore[arg-type]
    return dataclasses.replace(spec.method, **{k: v for k, v in given.items() if k in own})  # type: ignore[type-var]


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

"""Which base loss finds the true label among confusable candidates, with and without views, and why.

With instance-dependent candidates, the wrong candidates are labels that a teacher confuses with the truth.
The study trains the same network with ProPaLL, with CC and with the non-candidate term alone, on the sets of
teachers that differ in confidence (epochs, augmentation) and rate. After every epoch it measures on training
rows, with true labels that training never sees:

- how often the highest-scoring candidate is the true label, and the entropy of the soft targets;
- how often a wrong winner is the candidate that the teacher finds most probable (the most confusable one);
- how strongly the base loss pushes the logits of the truth, of the most confusable candidate, of the other
  candidates and of the labels outside the set (the negative gradient, mean over rows).

It is behind `propall base-losses`.
"""

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from propall import __version__, atomic_files
from propall.data import load
from propall.data.corruption import InstanceDependent
from propall.data.dataset import Problem
from propall.methods import METHODS
from propall.methods.propall import ProPaLL
from propall.nets import NETS
from propall.numerics import restricted_softmax
from propall.paper.custom_runs import choose_setting
from propall.paper.runner import ProblemCache
from propall.paper.specs import Spec, Split, Teacher
from propall.provenance import commit, hardware
from propall.registry import UnknownNameError
from propall.training.compiled import best_device
from propall.training.contract import Monitor, Objective, RowwiseObjective, Run, RunScores, State, Step
from propall.training.trainer import Trainer

#: Name of the study's file beside a store or in a folder of results.
FILE_NAME = "base_losses.json"
#: Base losses in the order of tables; those that are not registered are left out.
BASES = ("propall", "cc", "non_candidates")


@dataclass(frozen=True)
class TeacherKind:
    """A teacher of instance-dependent candidate sets.

    Attributes:
        epochs: number of epochs.
        augmented: whether it is trained on shifted and mirrored images. Without, it has seen the very images
            that it labels, and is more confident.
        rate: of the candidate sets.
    """

    epochs: int = 20
    augmented: bool = True
    rate: float = 0.4

    @property
    def name(self) -> str:
        """Name on the command line."""
        return f"{self.epochs}-{'augmented' if self.augmented else 'plain'}-{self.rate:g}"

    @property
    def title(self) -> str:
        """Description in tables."""
        images = "augmented" if self.augmented else "plain"
        return f"{self.epochs} epochs, {images} images, rate {self.rate:g}"


#: Teachers of the study: three lengths of training, two without augmentation, two other rates.
TEACHERS = (
    TeacherKind(),
    TeacherKind(augmented=False),
    TeacherKind(epochs=5),
    TeacherKind(epochs=45),
    TeacherKind(epochs=45, augmented=False),
    TeacherKind(rate=0.2),
    TeacherKind(rate=0.8),
)


@dataclass(frozen=True)
class BaseLossSetting:
    """Data and training of the study."""

    data: str = "cifar10"
    net: str | None = None  # None for the fast network
    epochs: int = 45
    per_class: int | None = None  # training rows per class; None for all
    measured_rows: int = 10_000  # training rows that are measured after every epoch
    seed: int = 0


@dataclass(frozen=True)
class Condition:
    """One run of the study."""

    base: str
    with_views: bool
    teacher: TeacherKind

    @property
    def name(self) -> str:
        """Name on the command line, such as `cc/views/20-augmented-0.4`."""
        return f"{self.base}/{'views' if self.with_views else 'one-view'}/{self.teacher.name}"

    def spec(self, setting: BaseLossSetting) -> Spec:
        """Return the run as a spec."""
        changes = {"epochs": setting.epochs}
        net, recipe = choose_setting(setting.data, "fast", net=setting.net, changes=changes)
        assert recipe.views is not None
        weak_only = replace(recipe, views=replace(recipe.views, n_strong=0))
        taught = replace(
            weak_only if self.teacher.augmented else replace(recipe, views=None), epochs=self.teacher.epochs
        )
        return Spec(
            setting.data,
            _base_loss(self.base),
            net,
            recipe if self.with_views else weak_only,
            InstanceDependent(self.teacher.rate),
            Split(per_class=setting.per_class),
            teacher=Teacher(net, taught),
            protocol="base-losses",
            seed=setting.seed,
        )


def _base_loss(name: str) -> Objective:
    """Return a base loss; ProPaLL without noise, as in the table of images with views."""
    method = ProPaLL(noise=0.0) if name == ProPaLL.name else METHODS[name]()
    assert isinstance(method, Objective)
    return method


def list_conditions(only: Sequence[str] | None = None) -> list[Condition]:
    """Return the conditions, the most important first; `only` holds names or patterns such as `cc/*`.

    Without views, only the first two teachers are used.
    """
    bases = [base for base in BASES if base in METHODS]
    conditions = [Condition(base, True, teacher) for teacher in TEACHERS for base in bases]
    conditions += [Condition(base, False, teacher) for teacher in TEACHERS[:2] for base in bases]
    if only is None:
        return conditions
    chosen = [c for pattern in only for c in conditions if fnmatchcase(c.name, pattern)]
    if not chosen:
        names = ", ".join(condition.name for condition in conditions)
        raise UnknownNameError(f"only: no condition is called {', '.join(only)}; expected some of {names}.")
    return list(dict.fromkeys(chosen))


class CandidateRecorder(Monitor):
    """Measures after every epoch what a network makes of the candidates of some training rows.

    Args:
        problem: with the true labels.
        teacher: the teacher's logits of all training rows.
        base: the base loss whose gradients are measured.
        rows: number of rows to measure, from the start of the training set.
    """

    def __init__(self, problem: Problem, teacher: Float[Tensor, "n k"], base: Objective, rows: int) -> None:
        train = problem.train
        self.problem, self.base = problem, base
        self._x, self._candidates = train.x[:rows], train.candidates[:rows]
        self._truth = problem.truth[:rows].to(self._x.device)
        self._confusable = most_confusable(teacher[:rows].to(self._x.device), self._candidates, self._truth)
        self.epochs: list[dict[str, float]] = []

    def epoch(self, epoch: int, runs: Sequence[int], losses: Tensor, scores: RunScores) -> None:
        """Measure test accuracy and the training rows."""
        hits = scores(self.problem.test_x)[0].argmax(-1) == self.problem.test_truth
        measured = measure_candidates(
            scores(self._x)[0], self._candidates, self._truth, self._confusable, self.base
        )
        self.epochs.append({"epoch": epoch, "test": float(hits.double().mean()), **measured})

    def state(self) -> dict[str, Tensor]:
        """The measurements so far."""
        if not self.epochs:
            return {}
        return {name: torch.tensor([e[name] for e in self.epochs]).double() for name in self.epochs[0]}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from earlier measurements."""
        columns = {name: values.tolist() for name, values in state.items()}
        self.epochs = [
            dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
        ]


def most_confusable(
    teacher: Float[Tensor, "n k"], candidates: Bool[Tensor, "n k"], truth: Int[Tensor, "n"]
) -> Int[Tensor, "n"]:
    """Return the wrong candidate that the teacher finds most probable; -1 where the truth is alone."""
    wrong = candidates.scatter(1, truth[:, None], False)
    best = teacher.masked_fill(~wrong, -torch.inf).argmax(-1)
    return torch.where(wrong.any(-1), best, -1)


def measure_candidates(
    logits: Float[Tensor, "n k"],
    candidates: Bool[Tensor, "n k"],
    truth: Int[Tensor, "n"],
    confusable: Int[Tensor, "n"],
    base: Objective,
) -> dict[str, float]:
    """Return what some logits make of ambiguous candidate sets; rows with one candidate are left out.

    The pushes are those of the base loss without noise: negative gradients, a mean over rows.
    """
    rows = (confusable >= 0).nonzero().squeeze(-1)
    logits, candidates = logits[rows].float(), candidates[rows]
    truth, confusable = truth[rows, None], confusable[rows, None]
    target = restricted_softmax(logits, candidates)
    winner = target.argmax(-1, keepdim=True)
    resolved = winner == truth
    entropy = torch.special.entr(target).sum(-1)
    pushes = -_gradients(base, logits, candidates)
    named = torch.zeros_like(candidates).scatter(1, torch.cat([truth, confusable], 1), True)
    wrong_winners = (~resolved).sum().clamp(min=1)
    values = {
        "resolved": resolved.double().mean(),
        "entropy": entropy.double().mean(),
        "confusable_wins": ((winner == confusable) & ~resolved).sum() / wrong_winners,
        "push_truth": pushes.gather(1, truth).double().mean(),
        "push_confusable": pushes.gather(1, confusable).double().mean(),
        "push_others": (pushes * (candidates & ~named)).sum(-1).double().mean(),
        "push_outside": (pushes * ~candidates).sum(-1).double().mean(),
    }
    return {name: float(value) for name, value in values.items()}


def _gradients(base: Objective, logits: Tensor, candidates: Tensor) -> Tensor:
    assert isinstance(base, RowwiseObjective)
    now = Step(torch.ones((), device=logits.device), torch.zeros((), device=logits.device))
    return base.losses_and_gradients(logits, candidates, State(), now)[1]


def run_study(
    path: Path,
    conditions: Sequence[Condition],
    *,
    setting: BaseLossSetting | None = None,
    device: str = "auto",
    root: Path | None = None,
    note: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Run the conditions that a file lacks and add them to it; returns the content of the file.

    The file is written after every condition, so that a killed study resumes. Another setting needs another
    file.
    """
    setting = setting or BaseLossSetting()
    report = read_study(path)
    if report and report["setting"] != dataclasses.asdict(setting):
        raise ValueError(f"out: {path} has another setting ({report['setting']}); choose another file.")
    on = best_device(device)
    fresh = {"setting": dataclasses.asdict(setting), "version": __version__, "commit": commit(), "runs": {}}
    report = report or {**fresh, "hardware": hardware(on)}
    missing = [condition for condition in conditions if condition.name not in report["runs"]]
    for number, condition in enumerate(missing, 1):
        note(f"{condition.name} ({number} of {len(missing)})")
        report["runs"][condition.name] = _run(condition, setting, path.parent, on, root)
        atomic_files.write_text(path, json.dumps(report, indent=1) + "\n")
    return report


def read_study(path: Path) -> dict[str, Any]:
    """Return the content of a study's file; empty if there is none."""
    if not path.exists():
        return {}
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _run(
    condition: Condition, setting: BaseLossSetting, folder: Path, device: torch.device, root: Path | None
) -> dict[str, Any]:
    spec = condition.spec(setting)
    problems = ProblemCache(spec.source(load(spec.data, root)), device, folder / "teachers")
    problem, teacher = problems.get(spec), problems.teacher(spec)
    assert teacher is not None
    assert isinstance(spec.method, Objective)
    recorder = CandidateRecorder(problem, teacher, spec.method, setting.measured_rows)
    start = time.perf_counter()
    fast = True if device.type == "cuda" else None
    trainer = Trainer(spec.method, NETS[spec.net], spec.recipe, folder / "progress" / spec.key, fast)
    trainer.fit([Run(problem.train, spec.seed)], monitor=recorder)
    clean = teacher.softmax(-1).gather(1, problem.truth.cpu()[:, None])
    return {
        **dataclasses.asdict(condition),
        "candidates": float(problem.train.candidates.sum(-1).double().mean()),
        "teacher_confidence": float(clean.double().mean()),
        "seconds": time.perf_counter() - start,
        "epochs": recorder.epochs,
    }


def gaps(report: Mapping[str, Any], *, other: str = "cc") -> dict[tuple[bool, str], float]:
    """Return ProPaLL's test accuracy minus another base loss's, in points, by (with views, teacher)."""
    last = {name: run["epochs"][-1]["test"] for name, run in report["runs"].items()}
    found = {}
    for name, run in report["runs"].items():
        partner = name.replace("propall/", f"{other}/", 1)
        if run["base"] == "propall" and partner in last:
            found[run["with_views"], TeacherKind(**run["teacher"]).name] = 100 * (last[name] - last[partner])
    return found

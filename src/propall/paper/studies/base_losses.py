"""Which base loss finds the true label among confusable candidates, with and without views, and why.

With instance-dependent candidates, the wrong candidates are labels that a teacher confuses with the truth.
The study trains the same network with ProPaLL, with CC and with the non-candidate term alone, on the sets of
teachers that differ in confidence (epochs, augmentation) and rate. After every epoch it measures on training
rows, with true labels that training never sees:

- how often the highest-scoring candidate is the true label, and the entropy of the soft targets;
- how often a wrong winner is the candidate that the teacher finds most probable (the most confusable one);
- how strongly the base loss pushes the logits of the truth, of the most confusable candidate, of the other
  candidates and of the labels outside the set (the negative gradient, mean over rows);
- which class the rows of every class are resolved to. A class that loses most of its rows is swallowed.

It is behind `propall base-losses`. `paired_classes` is a small experiment on the same question.
"""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from scipy.optimize import brentq
from torch import Tensor

from propall import __version__
from propall.data import load
from propall.data.corruption import InstanceDependent
from propall.data.dataset import Problem
from propall.methods import METHODS
from propall.methods.propall import PROPALL_WITH_VIEWS, ProPaLL
from propall.nets import NETS
from propall.numerics import restricted_softmax
from propall.paper.custom_runs import COMPLEMENTARY_BALANCE, choose_setting
from propall.paper.runner import ProblemCache
from propall.paper.specs import Spec, Split, Teacher
from propall.paper.studies.class_resolution import (
    Swallowed,
    candidate_shares,
    class_accuracies,
    class_means,
    resolution_matrix,
    swallowed_classes,
)
from propall.paper.studies.head_starts import base_gradients
from propall.paper.studies.study_files import read_json, run_missing, select_names
from propall.provenance import commit, hardware
from propall.training.compiled import best_device
from propall.training.contract import Monitor, Objective, Run, RunScores
from propall.training.trainer import Trainer
from propall.training.views import Views

#: Name of the study's file beside a store or in a folder of results.
FILE_NAME = "base_losses.json"
#: Base losses in the order of tables; those that are not registered are left out.
BASES = ("propall", "cc", "non_candidates")
#: Largest logarithm of a factor on a teacher's logits.
MAX_LOG_FACTOR = 4.0


@dataclass(frozen=True)
class TeacherKind:
    """A teacher of instance-dependent candidate sets.

    Attributes:
        epochs: number of epochs.
        augmented: whether it is trained on shifted and mirrored images. Without, it has seen the very images
            that it labels, and is more confident.
        rate: of the candidate sets.
        cutout: side of a hole in the augmented images; 0 for none.
        candidates: mean number of candidates. The teacher's logits are multiplied by the factor that gives
            it; None leaves them as they are.
        by_class: every row gets the mean wrong-label probabilities of its class, so that the sets depend on
            the class alone and the labels that resemble it are in nearly all of them.
    """

    epochs: int = 20
    augmented: bool = True
    rate: float = 0.4
    cutout: int = 0
    candidates: float | None = None
    by_class: bool = False

    @property
    def changes(self) -> str:
        """What is done to the teacher's scores, as a part of names; empty for nothing."""
        size = "" if self.candidates is None else f"-size-{self.candidates:g}"
        return f"{'-by-class' if self.by_class else ''}{size}"

    @property
    def name(self) -> str:
        """Name on the command line."""
        return f"{self.epochs}-{self._images}-{self.rate:g}{self.changes}"

    @property
    def title(self) -> str:
        """Description in tables."""
        parts = [f"{self.epochs} epochs, {self._images} images, rate {self.rate:g}"]
        parts += ["class means"] * self.by_class
        parts += [] if self.candidates is None else [f"scaled to {self.candidates:g} candidates"]
        return ", ".join(parts)

    @property
    def _images(self) -> str:
        if self.cutout:
            return f"cutout{self.cutout}"
        return "augmented" if self.augmented else "plain"

    def train_on(self, views: Views) -> Views | None:
        """Return the views that the teacher is trained on; None for the images as they are."""
        if not self.augmented:
            return None
        weak = replace(views.weak, cutout=self.cutout) if self.cutout else views.weak
        return replace(views, weak=weak, n_strong=0)

    def change_scores(self, scores: Float[Tensor, "n k"], truth: Int[Tensor, "n"]) -> Float[Tensor, "n k"]:
        """Return the scores that the candidate sets are drawn from."""
        if self.by_class:
            scores = _class_means(scores, truth)
        if self.candidates is not None:
            scores = _scale_to_size(scores, truth, self.rate, self.candidates)
        return scores


def _class_means(scores: Tensor, truth: Tensor) -> Tensor:
    """Replace the distribution over wrong labels by its mean over the rows of the class, as logits."""
    wrong = scores.double().scatter(1, truth[:, None], -torch.inf).softmax(-1)
    # The score of the true label has no effect on the sets; it only has to be finite.
    return class_means(wrong, truth)[truth].clamp_min(1e-12).log().to(scores.dtype)


def _scale_to_size(scores: Tensor, truth: Tensor, rate: float, candidates: float) -> Tensor:
    """Multiply logits by the factor with which the sets have this many candidates on average."""
    law = InstanceDependent(rate)

    def excess(log_factor: float) -> float:
        return law.mean_size(scores * math.exp(log_factor), truth) - candidates

    low, high = -MAX_LOG_FACTOR, MAX_LOG_FACTOR
    if not excess(high) <= 0 <= excess(low):
        sizes = f"{excess(high) + candidates:.2f} to {excess(low) + candidates:.2f}"
        raise ValueError(
            f"candidates: got {candidates:g}; factors on the teacher's logits give {sizes} at rate {rate:g}."
        )
    return scores * math.exp(brentq(excess, low, high, xtol=1e-3))


#: Teachers of the study: three lengths of training, two without augmentation, two other rates; then teachers
#: whose sets are smaller, and one whose sets depend on the class alone.
TEACHERS = (
    TeacherKind(),
    TeacherKind(augmented=False),
    TeacherKind(epochs=5),
    TeacherKind(epochs=45),
    TeacherKind(epochs=45, augmented=False),
    TeacherKind(rate=0.2),
    TeacherKind(rate=0.8),
    TeacherKind(cutout=12),
    TeacherKind(candidates=3.4),
    TeacherKind(candidates=2.5),
    TeacherKind(by_class=True),
)


@dataclass(frozen=True)
class BaseLossSetting:
    """Data and training of the study."""

    data: str = "cifar10"
    net: str | None = None  # None for the fast network
    epochs: int = 45
    per_class: int | None = None  # training rows per class; None for all
    measured_rows: int = 10_000  # training rows that are measured after every epoch


@dataclass(frozen=True)
class Condition:
    """One run of the study."""

    base: str
    with_views: bool
    teacher: TeacherKind
    balance: float = 0.0  # factor of the balance term of the views
    seed: int = 0

    def __post_init__(self) -> None:
        if self.balance and not self.with_views:
            raise ValueError(f"balance: got {self.balance:g} without views; expected 0.")

    @property
    def training(self) -> str:
        """How it is trained: `one-view`, `views` or `balanced`."""
        return ("balanced" if self.balance else "views") if self.with_views else "one-view"

    @property
    def name(self) -> str:
        """Name on the command line, such as `cc/views/20-augmented-0.4`; seeds but 0 are at the end."""
        seed = f"/seed-{self.seed}" if self.seed else ""
        return f"{self.base}/{self.training}/{self.teacher.name}{seed}"

    def spec(self, setting: BaseLossSetting) -> Spec:
        """Return the run as a spec."""
        changes = {"epochs": setting.epochs}
        net, recipe = choose_setting(setting.data, "fast", net=setting.net, changes=changes)
        assert recipe.views is not None
        views = replace(recipe.views, balance=self.balance)
        if not self.with_views:
            views = replace(views, n_strong=0)
        taught = replace(recipe, views=self.teacher.train_on(recipe.views), epochs=self.teacher.epochs)
        return Spec(
            setting.data,
            base_loss(self.base),
            net,
            replace(recipe, views=views),
            InstanceDependent(self.teacher.rate),
            Split(per_class=setting.per_class),
            teacher=Teacher(net, taught),
            protocol=f"base-losses{self.teacher.changes}",
            seed=self.seed,
        )


def base_loss(name: str) -> Objective:
    """Return a base loss; ProPaLL without noise, as in the table of images with views."""
    method = PROPALL_WITH_VIEWS if name == ProPaLL.name else METHODS[name]()
    assert isinstance(method, Objective)
    return method


def list_conditions(only: Sequence[str] | None = None, seeds: Sequence[int] = (0,)) -> list[Condition]:
    """Return the conditions, the most important first; `only` holds names or patterns such as `cc/*`.

    Without views, the teachers are the first two and the last. The balance term is tried on the last: its
    classes are the hardest to tell apart.

    Args:
        only: patterns of names without the seed; None for all conditions.
        seeds: every condition is repeated with each of these.
    """
    bases = [base for base in BASES if base in METHODS]
    conditions = [Condition(base, True, teacher) for teacher in TEACHERS for base in bases]
    conditions += [
        Condition(base, False, teacher) for teacher in (*TEACHERS[:2], TEACHERS[-1]) for base in bases
    ]
    conditions += [Condition(base, True, TEACHERS[-1], balance=COMPLEMENTARY_BALANCE) for base in bases]
    by_name = {condition.name: condition for condition in conditions}
    chosen = select_names(only, by_name, "condition")
    return [replace(by_name[name], seed=seed) for seed in seeds for name in chosen]


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
        #: After every epoch, the share of the rows of each class that are resolved to it.
        self.class_resolved: list[list[float]] = []
        #: After the last epoch, `resolution_matrix` and the test accuracy of each class.
        self.resolution = self.class_test = torch.zeros(0)

    def epoch(self, epoch: int, runs: Sequence[int], losses: Tensor, scores: RunScores) -> None:
        """Measure test accuracy and the training rows."""
        # One after the other: the outputs of a captured network are valid until its next call.
        logits = scores(self.problem.test_x)[0]
        accuracy = float((logits.argmax(-1) == self.problem.test_truth).double().mean())
        self.class_test = class_accuracies(logits, self.problem.test_truth).cpu()
        logits = scores(self._x)[0]
        measured = measure_candidates(logits, self._candidates, self._truth, self._confusable, self.base)
        self.epochs.append({"epoch": epoch, "test": accuracy, **measured})
        self.resolution = resolution_matrix(logits, self._candidates, self._truth).cpu()
        self.class_resolved.append(self.resolution.diagonal().tolist())

    def state(self) -> dict[str, Tensor]:
        """The measurements so far."""
        if not self.epochs:
            return {}
        return {
            **{name: _column([e[name] for e in self.epochs]) for name in self.epochs[0]},
            "class_resolved": _column(self.class_resolved),
            "resolution": self.resolution,
            "class_test": self.class_test,
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from earlier measurements."""
        columns = {name: values.tolist() for name, values in state.items()}
        if not columns:
            return
        self.class_resolved = columns.pop("class_resolved")
        self.resolution, self.class_test = state["resolution"], state["class_test"]
        del columns["resolution"], columns["class_test"]
        self.epochs = [
            dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
        ]


def _column(values: Sequence[Any]) -> Tensor:
    # Not `.double()` afterwards: the values would be rounded to float32 first.
    return torch.tensor(values, dtype=torch.float64)


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
    pushes = -base_gradients(base, logits, candidates)
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
    on = best_device(device)
    parts = {
        condition.name: functools.partial(_run, condition, setting, path.parent, on, root)
        for condition in conditions
    }
    return run_missing(
        path,
        read_study(path),
        setting=dataclasses.asdict(setting),
        key="runs",
        parts=parts,
        device=on,
        note=note,
    )


def read_study(path: Path) -> dict[str, Any]:
    """Return the content of a study's file; empty if there is none."""
    content = read_json(path)
    # The first files had one seed for all runs.
    if content and "seed" in content["setting"]:
        seed = content["setting"].pop("seed")
        runs = [run | {"seed": seed} for run in content["runs"].values()]
        content["runs"] = {condition_of(run).name: run for run in runs}
    return content


def _run(
    condition: Condition, setting: BaseLossSetting, folder: Path, device: torch.device, root: Path | None
) -> dict[str, Any]:
    spec = condition.spec(setting)
    problems = _Problems(condition.teacher, spec.source(load(spec.data, root)), device, folder / "teachers")
    problem, teacher = problems.get(spec), problems.teacher(spec)
    assert isinstance(spec.method, Objective)
    recorder = CandidateRecorder(problem, teacher, spec.method, setting.measured_rows)
    start = time.perf_counter()
    fast = True if device.type == "cuda" else None
    trainer = Trainer(spec.method, NETS[spec.net], spec.recipe, folder / "progress" / spec.key, fast)
    trainer.fit([Run(problem.train, spec.seed)], monitor=recorder)
    confidence = problems.original.softmax(-1).gather(1, problem.truth.cpu()[:, None])
    sizes = problem.train.candidates.sum(-1)
    shares = candidate_shares(problem.train.candidates, problem.truth.to(sizes.device))
    return {
        **dataclasses.asdict(condition),
        "candidates": float(sizes.double().mean()),
        "single_candidates": float((sizes == 1).double().mean()),
        "teacher_confidence": float(confidence.double().mean()),
        "seconds": time.perf_counter() - start,
        "version": __version__,
        "commit": commit(),
        "hardware": hardware(device),
        "classes": list(problem.classes),
        "candidate_shares": _rounded(shares),
        "resolution": _rounded(recorder.resolution),
        "class_test": _rounded(recorder.class_test),
        "class_resolved": _rounded(torch.tensor(recorder.class_resolved)),
        "epochs": recorder.epochs,
    }


class _Problems(ProblemCache):
    """Problems whose teacher's scores are changed as a `TeacherKind` says."""

    def __init__(self, kind: TeacherKind, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.kind = kind
        self.original = torch.zeros(0)  # the scores before the change

    def teacher(self, spec: Spec) -> Tensor:
        """Return the changed scores."""
        scores = super().teacher(spec)
        assert scores is not None
        self.original = scores
        return self.kind.change_scores(scores, self.source.truth.long())


def _rounded(values: Tensor) -> Any:
    return (
        [[round(v, 4) for v in row] for row in values.tolist()]
        if values.dim() == 2
        else [round(v, 4) for v in values.tolist()]
    )


def condition_of(run: Mapping[str, Any]) -> Condition:
    """Return the condition of a stored run."""
    fields = {field.name: run[field.name] for field in dataclasses.fields(Condition) if field.name in run}
    return Condition(**fields | {"teacher": TeacherKind(**run["teacher"])})


def gaps(report: Mapping[str, Any], *, other: str = "cc") -> dict[tuple[str, str], list[float]]:
    """Return ProPaLL's test accuracy minus another base loss's in points, for every seed.

    The keys are `Condition.training` and the name of the teacher.
    """
    last = {condition_of(run): run["epochs"][-1]["test"] for run in report["runs"].values()}
    differences: dict[tuple[str, str], list[float]] = {}
    for condition, accuracy in last.items():
        partner = replace(condition, base=other)
        if condition.base == ProPaLL.name and partner in last:
            key = (condition.training, condition.teacher.name)
            differences.setdefault(key, []).append(100 * (accuracy - last[partner]))
    return differences


def find_swallowed(run: Mapping[str, Any]) -> list[Swallowed] | None:
    """Return the swallowed classes of a stored run; None if they were not measured."""
    return swallowed_classes(torch.tensor(run["resolution"])) if "resolution" in run else None


def describe_swallowed(run: Mapping[str, Any]) -> str:
    """Return the swallowed classes of a stored run in words, such as `cat (12 %) by dog (70 %)`."""
    found = find_swallowed(run)
    if found is None:
        return "not measured"
    names = run["classes"]
    words = [
        f"{names[one.label]} ({100 * one.resolved:.0f} %) by {names[one.by]} ({100 * one.share:.0f} %)"
        for one in found
    ]
    return ", ".join(words) or "none"


def table_rows(report: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the columns and rows of a table of all runs after the last epoch."""
    columns = ["condition", "candidates", "test %", "resolved %", "confusable wins %", "entropy", "swallowed"]
    rows = []
    for name, run in report["runs"].items():
        last = run["epochs"][-1]
        shares = [f"{100 * last[key]:.2f}" for key in ("test", "resolved", "confusable_wins")]
        swallowed = find_swallowed(run)
        count = "" if swallowed is None else str(len(swallowed))
        rows.append([name, f"{run['candidates']:.2f}", *shares, f"{last['entropy']:.3f}", count])
    return columns, rows

"""Three annotators label every image of CIFAR-10N and disagree: candidate sets against majority votes.

The candidate set of an image is the union of its annotators' answers. The study measures, with true labels
that training never sees, how many labels are correct after out-of-fold resolution, after a majority vote and
for each annotator; and the test accuracy of networks trained on candidate sets and on majority votes. It is
behind `propall annotators`.
"""

import dataclasses
import functools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from safetensors.torch import load_file
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn.functional import one_hot

from propall import __version__, atomic_files, counter_rng
from propall.data import load
from propall.data.dataset import PartialDataset, Source
from propall.estimators.calibration import cross_calibrate, log_softmax, reliability
from propall.estimators.folds import CandidateStratifiedKFold, Fold
from propall.estimators.resolution import Resolution
from propall.labels.annotators import CrowdAnswers, combine_answers
from propall.methods import METHODS
from propall.nets import NETS
from propall.provenance import commit, hardware
from propall.training.checkpoint import write_tensors
from propall.training.compiled import best_device
from propall.training.contract import Classifier, Monitor, Objective, Run, RunScores
from propall.training.metrics import CombinedMonitor, History
from propall.training.recipe import Recipe
from propall.training.trainer import Trainer

#: Names of the annotators in the data set.
ANNOTATORS = ("random_label1", "random_label2", "random_label3")
#: Number of measurements and messages during training.
REPORTS = 6
#: Version of the results file.
LAYOUT = 1

Note = Callable[[str], None]


@dataclass(frozen=True)
class StudySetting:
    """Everything that the numbers depend on, except the device."""

    net: str = "resnet32"
    epochs: int = 60
    batch_size: int = 256
    learning_rate: float = 0.05  # initially; it decays exponentially to a hundredth
    weight_decay: float = 5e-4
    augmentation: Literal["none", "flip_crop", "rotate_flip"] = "flip_crop"
    precision: str = "bfloat16"
    folds: int = 2  # for out-of-fold resolution
    rows: int | None = None  # training images, the first of every class; None for all 50 000
    seed: int = 0

    @property
    def recipe(self) -> Recipe:
        """Recipe of the networks."""
        names = ("epochs", "batch_size", "learning_rate", "weight_decay", "augmentation", "precision")
        decay = 0.01 ** (1 / max(1, self.epochs))
        return Recipe(**{name: getattr(self, name) for name in names}, decay=decay, smooth_decay=True)


@dataclass(frozen=True)
class TrainingJob:
    """One thing to train."""

    method: str  # an objective; "cc" on single labels is cross-entropy
    labels: Literal["candidates", "majority"]  # majority: one label per image
    held_out: bool  # train once per fold and resolve the held-out rows, instead of once on all rows

    @property
    def name(self) -> str:
        """Description for tables."""
        if (self.method, self.labels) == ("cc", "majority"):
            return "cross-entropy on majority votes"
        labels = "majority votes" if self.labels == "majority" else "candidate sets"
        return f"{METHODS[self.method].title} on {labels}"

    @property
    def key(self) -> str:
        """Unique name in the results file."""
        return f"{self.method}/{self.labels}/{'held out' if self.held_out else 'whole'}"


def list_jobs(methods: Sequence[str] = ("propall", "cc", "proden")) -> list[TrainingJob]:
    """Return what is trained, the most important first; `methods` are objectives for the candidate sets."""
    first, *others = methods
    planned: list[tuple[str, Literal["candidates", "majority"], bool]] = [
        (first, "candidates", False),
        ("cc", "majority", False),
        (first, "candidates", True),
        *((method, "candidates", held_out) for method in others for held_out in (True, False)),
        ("cc", "majority", True),
        (first, "majority", False),
    ]
    return [TrainingJob(*job) for job in dict.fromkeys(planned)]


def majority_vote(answers: Int[Tensor, "n m"], n_classes: int, seed: int = 0) -> Int[Tensor, "n"]:
    """Return the most frequent answer of each row, with ties broken at random."""
    votes = one_hot(answers, n_classes).sum(1)
    rows = torch.arange(len(votes))[:, None]
    # Random fractions below 1 break ties and change nothing else.
    fractions = counter_rng.uniform(counter_rng.seed_for(seed, "ties"), rows, torch.arange(n_classes))
    return (votes + fractions).argmax(1)


@dataclass(frozen=True)
class AnnotatedImages:
    """Images with the answer of each annotator and majority votes; true labels are for measuring only."""

    source: Source
    answers: Int[Tensor, "n m"]
    majority: Int[Tensor, "n"]

    @classmethod
    def read(cls, setting: StudySetting, root: Path | None = None) -> "AnnotatedImages":
        """Read CIFAR-10N, or its first images of every class."""
        source = load("cifar10n", root)
        if setting.rows is not None:
            source = source.first_per_class(setting.rows // source.n_classes)
        answers = torch.stack([source.annotations[name] for name in ANNOTATORS], dim=1)
        return cls(source, answers, majority_vote(answers, source.n_classes, setting.seed))

    @property
    def candidates(self) -> Bool[Tensor, "n k"]:
        """The union of the answers."""
        return self.source.candidate_sets()

    def training_labels(self, job: TrainingJob) -> Bool[Tensor, "n k"]:
        """Return the candidate sets that a job is trained on; single labels are sets of one."""
        if job.labels == "candidates":
            return self.candidates
        return one_hot(self.majority, self.source.n_classes).bool()

    def summarize(self) -> dict[str, Any]:
        """Return how often annotators and majority votes are correct, as fractions of rows."""
        truth, votes = self.source.truth, one_hot(self.answers, self.source.n_classes).sum(1)
        most = votes == votes.amax(1, keepdim=True)
        sizes = self.candidates.sum(1)
        covered = self.candidates.gather(1, truth[:, None])[:, 0]
        return {
            "rows": len(truth),
            "candidates": float(sizes.double().mean()),
            "annotators": (self.answers == truth[:, None]).double().mean(0).tolist(),
            "majority": float((self.majority == truth).double().mean()),
            # Expected value over the random ties.
            "majority_expected": float((most.gather(1, truth[:, None])[:, 0] / most.sum(1)).double().mean()),
            **self._answers_alone(),
            "without_truth": float((~covered).double().mean()),
            "by_size": _by_size(sizes.numpy(), (self.majority == truth).numpy()),
        }

    def _answers_alone(self) -> dict[str, float]:
        """Share of correct labels from the answers alone, with class frequencies estimated or known."""
        answers = CrowdAnswers.from_matrix(self.answers.numpy(), self.source.n_classes)
        truth = self.source.truth.numpy()
        shares = {}
        for priors in ("estimated", "uniform"):
            labels = combine_answers(None, answers, class_priors=priors).log_probabilities.argmax(1)
            shares[f"answers_alone_{priors}_classes"] = float((labels == truth).mean())
        return shares


def _by_size(sizes: NDArray[Any], correct: NDArray[Any]) -> dict[str, dict[str, float]]:
    return {
        str(size): {"rows": int((sizes == size).sum()), "right": float(correct[sizes == size].mean())}
        for size in np.unique(sizes).tolist()
    }


class _ProgressNotes(Monitor):
    """Reports a few times how far training is."""

    def __init__(self, name: str, runs: int, note: Note) -> None:
        self.name, self.runs, self.note = name, runs, note
        self._epochs, self._start = 0, 0.0

    def begin(self, epochs: int, runs: Sequence[int], done: int) -> None:
        """Store the number of epochs."""
        self._epochs, self._start = epochs, time.perf_counter()

    def epoch(self, epoch: int, runs: Sequence[int], losses: Tensor, scores: RunScores) -> None:
        """Report the first epoch and a few others."""
        if epoch != 1 and epoch % max(1, self._epochs // REPORTS):
            return
        of = "" if self.runs == 1 else f", {', '.join(str(run + 1) for run in runs)} of {self.runs}"
        loss, seconds = float(losses.mean()), time.perf_counter() - self._start
        self.note(f"{self.name}{of}: epoch {epoch} of {self._epochs}, loss {loss:.3f}, {seconds:.0f} s")


@dataclass(frozen=True)
class JobRunner:
    """Runs jobs on annotated images; `note` receives lines of progress."""

    data: AnnotatedImages
    setting: StudySetting
    device: torch.device
    note: Note = print

    def run(self, job: TrainingJob) -> tuple[dict[str, Any], Float[Tensor, "n k"] | None]:
        """Return the numbers of a job, and for held-out jobs the log-probabilities of all training rows."""
        start = time.perf_counter()
        numbers, logs = self._resolve_held_out(job) if job.held_out else (self._test(job), None)
        seconds = time.perf_counter() - start
        provenance = {
            "version": __version__,
            "commit": commit(),
            "torch": torch.__version__,
            "hardware": hardware(self.device),
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        return {"name": job.name, **numbers, "seconds": seconds, **provenance}, logs

    def _fit(self, job: TrainingJob, parts: list[Tensor], history: History | None = None) -> list[Classifier]:
        objective = METHODS[job.method]()
        if not isinstance(objective, Objective):
            problem = "is not a loss for a network; use the name of an objective."
            raise ValueError(f"methods: {job.method} {problem}")
        x, candidates = self._x, self.data.training_labels(job).to(self.device)
        runs = []
        for number, rows in enumerate(parts):
            selected = slice(None) if len(rows) == len(x) else rows.to(self.device)  # a slice copies nothing
            train = PartialDataset(x[selected], candidates[selected])
            runs.append(Run(train, counter_rng.seed_for(self.setting.seed, f"part {number}")))
        monitor = CombinedMonitor(_ProgressNotes(job.key, len(parts), self.note), history)
        return Trainer(objective, NETS[self.setting.net], self.setting.recipe).fit(runs, monitor=monitor)

    @functools.cached_property
    def _x(self) -> Tensor:
        return self.data.source.x.to(self.device)

    def _test(self, job: TrainingJob) -> dict[str, Any]:
        source = self.data.source
        assert source.test_x is not None
        assert source.test_truth is not None
        test_x, test_truth = source.test_x.to(self.device), source.test_truth.to(self.device)
        history = History(test_x, test_truth, every=max(1, self.setting.epochs // REPORTS))
        (classifier,) = self._fit(job, [torch.arange(len(source))], history)
        accuracy = float((classifier.predict(test_x) == test_truth).double().mean())
        self.note(f"{job.key}: {100 * accuracy:.2f} % test accuracy")
        return {"accuracy": accuracy, "curve": history.accuracies(0)}

    def _resolve_held_out(self, job: TrainingJob) -> tuple[dict[str, Any], Tensor]:
        truth, mask = self.data.source.truth.numpy(), self.data.candidates.numpy()
        fold = CandidateStratifiedKFold(self.setting.folds, random_state=self.setting.seed).assign(mask)
        folds = [(np.flatnonzero(fold != i), np.flatnonzero(fold == i)) for i in range(self.setting.folds)]
        classifiers = self._fit(job, [torch.from_numpy(fit) for fit, _ in folds])
        x, logs = self._x, torch.empty(mask.shape)
        for (_, hold), classifier in zip(folds, classifiers, strict=True):
            rows = torch.from_numpy(hold)
            logs[rows] = classifier.scores(x[rows.to(self.device)]).float().log_softmax(-1).cpu()
        numbers = score_resolution(logs.numpy(), mask, self.data.answers.numpy(), truth, folds)
        self.note(f"{job.key}: {100 * numbers['resolved']:.2f} % of the resolved labels correct")
        return numbers, logs


def score_resolution(
    logs: NDArray[Any],
    candidates: NDArray[np.bool_],
    answers: NDArray[np.int64],
    truth: NDArray[np.int64],
    folds: Sequence[Fold],
) -> dict[str, Any]:
    """Measure how correct and how calibrated out-of-fold predictions are.

    Returns a dictionary: `resolved`, fraction of rows whose most likely candidate is true; `by_size`, the
    same by number of candidates; `predicted`, fraction of rows whose most likely class is true; `weighed`,
    the same after combining the model with the annotators' answers, each weighted by reliability;
    `error_before` and `error_after`, expected calibration error of the resolved labels before and after
    temperature scaling of each fold with the others; `doubt_auc`, area under the ROC curve of the doubt as a
    detector of candidate sets without the true label.
    """
    before = Resolution(log_softmax(logs), candidates, np.arange(candidates.shape[1]))
    tempered = cross_calibrate(before.log_probabilities, candidates, folds)
    after = Resolution(tempered, candidates, before.classes)
    correct = after.column == truth
    combined = combine_answers(before.log_probabilities, answers)
    lacks = ~candidates[np.arange(len(truth)), truth]
    return {
        "resolved": float(correct.mean()),
        "by_size": _by_size(candidates.sum(1), correct),
        "predicted": float((tempered.argmax(1) == truth).mean()),
        "weighed": float((combined.log_probabilities.argmax(1) == truth).mean()),
        "error_before": reliability(before.probability, before.column == truth).error,
        "error_after": reliability(after.probability, correct).error,
        "doubt_auc": float(roc_auc_score(lacks, after.doubt)) if 0 < lacks.sum() < len(lacks) else None,
    }


def run_study(
    out: Path,
    *,
    setting: StudySetting | None = None,
    methods: Sequence[str] = ("propall", "cc", "proden"),
    root: Path | None = None,
    device: str = "auto",
    note: Note = print,
) -> dict[str, Any]:
    """Run the jobs that a results file (JSON) lacks and save each: a second call resumes.

    Held-out log-probabilities are saved under the same name with the suffix `.safetensors`.
    """
    setting = setting or StudySetting()
    report = _open_report(out, setting)
    missing = [job for job in list_jobs(methods) if job.key not in report["jobs"]]
    if missing or "people" not in report:
        data = AnnotatedImages.read(setting, root)
        report["people"] = data.summarize()
        correct = 100 * report["people"]["majority"]
        note(f"{len(data.source)} images, majority vote correct for {correct:.2f} %")
        runner = JobRunner(data, setting, best_device(device), note)
        for job in missing:
            report["jobs"][job.key], logs = runner.run(job)
            _save(out, report, job, logs)
    return report


def _open_report(out: Path, setting: StudySetting) -> dict[str, Any]:
    empty = {"layout": LAYOUT, "data": "cifar10n", "setting": dataclasses.asdict(setting), "jobs": {}}
    if not out.exists():
        return empty
    try:
        report: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        same = all(report[name] == empty[name] for name in ("layout", "data", "setting"))
    except (ValueError, KeyError, TypeError) as error:
        problem = f"is not a results file of this study ({error}); choose another name."
        raise ValueError(f"out: {out} {problem}") from error
    if not same:
        raise ValueError(f"out: {out} holds results of another setting; choose another name.")
    return report


def _save(out: Path, report: dict[str, Any], job: TrainingJob, logs: Tensor | None) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    if logs is not None:
        scores = out.with_suffix(".safetensors")
        known = load_file(scores) if scores.exists() else {}
        write_tensors(scores, {**known, job.key: logs.half()})
    atomic_files.write_text(out, json.dumps(report, indent=1))


def table_rows(report: dict[str, Any]) -> dict[str, list[tuple[str, float]]]:
    """Return the printed tables: accuracy of training labels and on test images, in percent."""
    people = report["people"]
    labels = [(f"annotator {i}", accuracy) for i, accuracy in enumerate(people["annotators"], 1)]
    labels += [("majority vote, ties broken at random", people["majority_expected"])]
    names = {"estimated": "answers alone, weighed", "uniform": "answers alone, classes known to be balanced"}
    for priors, name in names.items():  # results of version 0.1.0 lack them
        if (share := people.get(f"answers_alone_{priors}_classes")) is not None:
            labels.append((name, share))
    labels += [("any annotator", 1 - people["without_truth"])]
    tests = []
    for job in report["jobs"].values():
        if "accuracy" in job:
            tests.append((job["name"], job["accuracy"]))
        else:
            labels.append((f"resolved: {job['name']}", job["resolved"]))
            labels.append((f"  combined with the answers: {job['name']}", job["weighed"]))
    tables = {"training labels": labels, "test images": tests}
    return {title: [(name, 100 * accuracy) for name, accuracy in rows] for title, rows in tables.items()}

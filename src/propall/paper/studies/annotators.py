"""Three people label every image and disagree: candidate sets against the majority vote, on CIFAR-10N.

The union of what the annotators of an image said is its candidate set. What is measured, with true labels
that no training sees: how many labels are right after out-of-fold resolving, after a majority vote, and as
each annotator gave them; and how well networks trained on candidate sets and on majority votes do on test
images. `propall annotators` prints it.
"""

import dataclasses
import functools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast

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
from propall.methods import METHODS
from propall.nets import NETS
from propall.provenance import commit, hardware
from propall.tables.consensus import combine_answers
from propall.training.checkpoint import write_tensors
from propall.training.compiled import best_device
from propall.training.contract import Classifier, Monitor, Objective, Run
from propall.training.metrics import History, Together
from propall.training.recipe import Precision, Recipe
from propall.training.trainer import Trainer

#: The data set's annotators, as its source names them.
ANNOTATORS = ("random_label1", "random_label2", "random_label3")
#: Measurements and messages along a training.
LOOKS = 6
#: Layout of the file of results.
LAYOUT = 1

Note = Callable[[str], None]


@dataclass(frozen=True)
class Setting:
    """Everything that the numbers depend on, but for the device.

    Attributes:
        net: name of the network.
        epochs: passes over the rows.
        batch_size: rows per step.
        learning_rate: at the start; it falls evenly, in the logarithm, to a hundredth.
        weight_decay: factor of the L2 penalty.
        augmentation: of the images, see `Recipe`.
        precision: of the network's products, see `Recipe`.
        folds: parts for out-of-fold resolving.
        rows: training images, the first of every class; None for all 50 000.
        seed: of everything drawn.
    """

    net: str = "resnet32"
    epochs: int = 60
    batch_size: int = 256
    learning_rate: float = 0.05
    weight_decay: float = 5e-4
    augmentation: Literal["none", "flip_crop", "rotate_flip"] = "flip_crop"
    precision: str = "bfloat16"
    folds: int = 2
    rows: int | None = None
    seed: int = 0

    @property
    def recipe(self) -> Recipe:
        """How the networks are trained."""
        return Recipe(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            decay=0.01 ** (1 / max(1, self.epochs)),
            smooth_decay=True,
            augmentation=self.augmentation,
            precision=cast(Precision, self.precision),
        )


@dataclass(frozen=True)
class Job:
    """One thing to train.

    Attributes:
        method: name of an objective; "cc" on single labels is cross-entropy.
        labels: what it learns from: the candidate sets, or one label per image by majority vote.
        held_out: once per fold, to resolve the rows of each, instead of once on all rows to predict.
    """

    method: str
    labels: Literal["candidates", "majority"]
    held_out: bool

    @property
    def name(self) -> str:
        """In words."""
        title = METHODS[self.method].title
        if self.labels == "majority":
            return f"{'cross-entropy' if self.method == 'cc' else title} on majority votes"
        return f"{title} on candidate sets"

    @property
    def key(self) -> str:
        """Unique among all jobs."""
        return f"{self.method}/{self.labels}/{'held out' if self.held_out else 'whole'}"


def jobs(methods: Sequence[str] = ("propall", "cc", "proden")) -> list[Job]:
    """What is trained, in the order of its weight: a training cut short has the essential.

    Args:
        methods: names of objectives for the candidate sets.
    """
    first, *others = methods
    wanted = [Job(first, "candidates", False), Job("cc", "majority", False), Job(first, "candidates", True)]
    wanted += [Job(method, "candidates", held_out) for method in others for held_out in (True, False)]
    wanted += [Job("cc", "majority", True), Job(first, "majority", False)]
    return list(dict.fromkeys(wanted))


def majority_vote(answers: Int[Tensor, "n m"], n_classes: int, seed: int = 0) -> Int[Tensor, "n"]:
    """The label that most annotators gave each row; of several one at random.

    Args:
        answers: labels by row and annotator.
        n_classes: number of classes.
        seed: of the draw.
    """
    votes = one_hot(answers, n_classes).sum(1)
    n = torch.arange(len(votes))[:, None]
    # A fraction below 1 on top of whole votes decides between equal numbers of votes and nothing else.
    return (
        votes + counter_rng.uniform(counter_rng.seed_for(seed, "ties"), n, torch.arange(n_classes))
    ).argmax(1)


@dataclass(frozen=True)
class Annotated:
    """Images, what was said about them, and the truth that only measures.

    Attributes:
        source: the images.
        answers: labels by image and annotator.
        majority: one label per image by majority vote, ties at random.
    """

    source: Source
    answers: Int[Tensor, "n m"]
    majority: Int[Tensor, "n"]

    @classmethod
    def read(cls, setting: Setting, root: Path | None = None) -> "Annotated":
        """CIFAR-10N, or its first images of every class."""
        source = load("cifar10n", root)
        if setting.rows is not None:
            source = source.first_per_class(setting.rows // source.n_classes)
        return cls.of(source, setting.seed)

    @classmethod
    def of(cls, source: Source, seed: int = 0) -> "Annotated":
        """A source that knows its annotators."""
        answers = torch.stack([source.annotations[name] for name in ANNOTATORS], dim=1)
        return cls(source, answers, majority_vote(answers, source.n_classes, seed))

    @property
    def candidates(self) -> Bool[Tensor, "n k"]:
        """What any annotator said."""
        return self.source.candidate_sets()

    def learnt_from(self, job: Job) -> Bool[Tensor, "n k"]:
        """The candidate sets that a job sees; single labels are sets of one."""
        if job.labels == "candidates":
            return self.candidates
        return one_hot(self.majority, self.source.n_classes).bool()

    def summary(self) -> dict[str, Any]:
        """How right people are: shares of rows."""
        truth, votes = self.source.truth, one_hot(self.answers, self.source.n_classes).sum(1)
        most = votes == votes.amax(1, keepdim=True)
        sizes = self.candidates.sum(1)
        held = self.candidates.gather(1, truth[:, None])[:, 0]
        return {
            "rows": len(truth),
            "candidates": float(sizes.double().mean()),
            "annotators": (self.answers == truth[:, None]).double().mean(0).tolist(),
            "majority": float((self.majority == truth).double().mean()),
            # Over all ways in which the ties can fall.
            "majority_expected": float((most.gather(1, truth[:, None])[:, 0] / most.sum(1)).double().mean()),
            "without_truth": float((~held).double().mean()),
            "by_size": _by_size(sizes.numpy(), (self.majority == truth).numpy()),
        }


def _by_size(sizes: NDArray[Any], right: NDArray[Any]) -> dict[str, dict[str, float]]:
    return {
        str(size): {"rows": int((sizes == size).sum()), "right": float(right[sizes == size].mean())}
        for size in np.unique(sizes).tolist()
    }


class _Notes(Monitor):
    """Says now and then how far a training is."""

    def __init__(self, what: str, runs: int, note: Note) -> None:
        self.what, self.runs, self.note = what, runs, note
        self._epochs, self._start = 0, 0.0

    def begin(self, epochs: int, runs: Sequence[int], done: int) -> None:
        """Remember how long training lasts."""
        self._epochs, self._start = epochs, time.perf_counter()

    def epoch(
        self,
        epoch: int,
        runs: Sequence[int],
        losses: Float[Tensor, "r"],
        scores: Callable[[Tensor], Float[Tensor, "r n k"]],
    ) -> None:
        """A line at the first epoch and at a few others."""
        if epoch != 1 and epoch % max(1, self._epochs // LOOKS):
            return
        of = "" if self.runs == 1 else f", {', '.join(str(run + 1) for run in runs)} of {self.runs}"
        seconds = time.perf_counter() - self._start
        loss = float(losses.mean())
        self.note(f"{self.what}{of}: epoch {epoch} of {self._epochs}, loss {loss:.3f}, {seconds:.0f} s")


@dataclass(frozen=True)
class Measurement:
    """Runs jobs on annotated images.

    Attributes:
        data: the images.
        setting: how to train.
        device: where.
        note: is told what happens.
    """

    data: Annotated
    setting: Setting
    device: torch.device
    note: Note = print

    def run(self, job: Job) -> tuple[dict[str, Any], Float[Tensor, "n k"] | None]:
        """A job's numbers, and for held-out jobs the log-probabilities of every training row."""
        start = time.perf_counter()
        numbers, logs = self._held_out(job) if job.held_out else (self._whole(job), None)
        seconds = time.perf_counter() - start
        origin = {
            "version": __version__,
            "commit": commit(),
            "torch": torch.__version__,
            "hardware": hardware(self.device),
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        return {"name": job.name, **numbers, "seconds": seconds, **origin}, logs

    def _fit(self, job: Job, parts: Sequence[Tensor], history: History | None = None) -> list[Classifier]:
        objective = METHODS[job.method]()
        if not isinstance(objective, Objective):
            raise ValueError(f"methods: {job.method} does not train a network by a loss; name one that does.")
        x, candidates = self._x, self.data.learnt_from(job).to(self.device)
        runs = []
        for number, rows in enumerate(parts):
            own = rows.to(self.device)
            train = (
                PartialDataset(x, candidates)
                if len(own) == len(x)
                else PartialDataset(x[own], candidates[own])
            )
            runs.append(Run(train, counter_rng.seed_for(self.setting.seed, f"part {number}")))
        notes = _Notes(job.key, len(parts), self.note)
        watching = Together(notes, *([] if history is None else [history]))
        return Trainer(objective, NETS[self.setting.net], self.setting.recipe).fit(runs, monitor=watching)

    @functools.cached_property
    def _x(self) -> Tensor:
        return self.data.source.x.to(self.device)

    def _whole(self, job: Job) -> dict[str, Any]:
        source = self.data.source
        assert source.test_x is not None
        assert source.test_truth is not None
        test_x, test_truth = source.test_x.to(self.device), source.test_truth.to(self.device)
        history = History(test_x, test_truth, every=max(1, self.setting.epochs // LOOKS))
        (classifier,) = self._fit(job, [torch.arange(len(source))], history)
        accuracy = float((classifier.predict(test_x) == test_truth).double().mean())
        self.note(f"{job.key}: {100 * accuracy:.2f} % of the test images right")
        return {"accuracy": accuracy, "curve": history.accuracies(0)}

    def _held_out(self, job: Job) -> tuple[dict[str, Any], Tensor]:
        source, mask = self.data.source, self.data.candidates.numpy()
        splitter = CandidateStratifiedKFold(self.setting.folds, random_state=self.setting.seed)
        fold = splitter.assign(mask)
        every = np.arange(len(mask))
        folds: list[Fold] = [
            (every[fold != number], every[fold == number]) for number in range(splitter.n_splits)
        ]
        classifiers = self._fit(job, [torch.from_numpy(fit) for fit, _ in folds])
        x, logs = self._x, torch.empty(mask.shape)
        for (_, hold), classifier in zip(folds, classifiers, strict=True):
            rows = torch.from_numpy(hold)
            logs[rows] = classifier.scores(x[rows.to(self.device)]).float().log_softmax(-1).cpu()
        numbers = resolved(logs.numpy(), mask, self.data.answers.numpy(), source.truth.numpy(), folds)
        self.note(f"{job.key}: {100 * numbers['resolved']:.2f} % of the resolved labels right")
        return numbers, logs


def resolved(
    logs: NDArray[Any],
    candidates: NDArray[np.bool_],
    answers: NDArray[np.int64],
    truth: NDArray[np.int64],
    folds: Sequence[Fold],
) -> dict[str, Any]:
    """How right and how sure out-of-fold answers are.

    Of the numbers returned, `resolved` is the share of rows whose likeliest candidate is true, `by_size` the
    same by number of candidates, `predicted` the share whose likeliest class is; `weighed` is the share where
    the annotators' single answers count beside the model, each as far as that annotator can be trusted.
    `error_before` and `error_after` are the expected calibration errors of the resolved labels' probabilities
    before and after every fold was brought to the temperature of the others. `doubt_auc` is how well the
    doubt tells the sets that lack the truth: the probability that it is larger for one of them than for
    another set.

    Args:
        logs: (n, k) held-out log-probabilities.
        candidates: (n, k) True on the candidates.
        answers: (n, m) what each annotator said.
        truth: (n,) true classes.
        folds: how the rows were held out.
    """
    before = Resolution(log_softmax(logs), candidates, np.arange(candidates.shape[1]))
    tempered = cross_calibrate(before.log_probabilities, candidates, folds)
    after = Resolution(tempered, candidates, before.classes)
    right = after.column == truth
    weighed = combine_answers(tempered, answers)
    lacks = ~candidates[np.arange(len(truth)), truth]
    return {
        "resolved": float(right.mean()),
        "by_size": _by_size(candidates.sum(1), right),
        "predicted": float((tempered.argmax(1) == truth).mean()),
        "weighed": float((weighed.log_probabilities.argmax(1) == truth).mean()),
        "error_before": reliability(before.probability, before.column == truth).error,
        "error_after": reliability(after.probability, right).error,
        "doubt_auc": float(roc_auc_score(lacks, after.doubt)) if 0 < lacks.sum() < len(lacks) else None,
    }


def measure(
    out: Path,
    *,
    setting: Setting | None = None,
    methods: Sequence[str] = ("propall", "cc", "proden"),
    root: Path | None = None,
    device: str = "auto",
    note: Note = print,
) -> dict[str, Any]:
    """Do what a file of results lacks, and keep it after every job: a second call goes on.

    Held-out log-probabilities are kept beside it, under the same name with the ending `.safetensors`.

    Args:
        out: the file of results, JSON.
        setting: how to train.
        methods: names of objectives for the candidate sets, the most important one first.
        root: folder of the data sets.
        device: where to train.
        note: is told what happens.
    """
    setting = setting or Setting()
    wanted = jobs(methods)
    report = _opened(out, setting)
    missing = [job for job in wanted if job.key not in report["jobs"]]
    if missing or "people" not in report:
        data = Annotated.read(setting, root)
        report["people"] = data.summary()
        note(f"{len(data.source)} images, majority right in {100 * report['people']['majority']:.2f} %")
        measurement = Measurement(data, setting, best_device(device), note)
        for job in missing:
            report["jobs"][job.key], logs = measurement.run(job)
            _keep(out, report, job, logs)
    return report


def _opened(out: Path, setting: Setting) -> dict[str, Any]:
    fresh = {"layout": LAYOUT, "data": "cifar10n", "setting": dataclasses.asdict(setting), "jobs": {}}
    if not out.exists():
        return fresh
    try:
        report: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        same = all(report[name] == fresh[name] for name in ("layout", "data", "setting"))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"out: {out} is no file of such results ({error}); give another name.") from error
    if not same:
        raise ValueError(f"out: {out} holds results of another setting; give another name.")
    return report


def _keep(out: Path, report: dict[str, Any], job: Job, logs: Tensor | None) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    if logs is not None:
        scores = out.with_suffix(".safetensors")
        known = load_file(scores) if scores.exists() else {}
        write_tensors(scores, {**known, job.key: logs.half()})
    atomic_files.write_text(out, json.dumps(report, indent=1))


def lines(report: dict[str, Any]) -> dict[str, list[tuple[str, float]]]:
    """What a table prints: shares of training labels that are right, and of test images, both in percent."""
    people = report["people"]
    labels = [(f"annotator {i + 1}", share) for i, share in enumerate(people["annotators"])]
    labels += [("majority vote, ties at random", people["majority_expected"])]
    labels += [("any annotator", 1 - people["without_truth"])]
    tests = []
    for job in report["jobs"].values():
        if "accuracy" in job:
            tests.append((job["name"], job["accuracy"]))
        else:
            labels.append((f"resolved: {job['name']}", job["resolved"]))
            labels.append((f"  and answers weighed: {job['name']}", job["weighed"]))
    return {
        "training labels": [(what, 100 * share) for what, share in labels],
        "test images": [(what, 100 * share) for what, share in tests],
    }

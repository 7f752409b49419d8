"""Candidate sets from a weak model's scores train a student with views, against labels and soft labels.

A teacher, three networks trained on parts of a small share of the images with their true labels, plays a
zero-shot model with three prompts. A fifth of these images is kept to calibrate it. Students see the other
images without true labels, all with the same network and views: the top label of the teacher's mean
probabilities, these probabilities (distillation), their top-k, mass and conformal sets, and the union of the
three top labels; some also with tolerance for sets without the true class. FixMatch also sees the labeled
images, and starts from one of the three networks; "labeled" students see them too. True labels of the other
images are used for measuring only.

Run it from the repository root. CIFAR-10 with the fast network on an H200: about 350 seconds expected for one
seed with the defaults. Small images on a CPU::

    python results/scripts/model_made_sets.py OUT --root DATA --device cuda
    python results/scripts/model_made_sets.py OUT --data digits --share 0.05 --net small_cnn --seeds 0 1 2

It writes OUT/model_made_sets.csv after every student.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from sklearn.model_selection import train_test_split
from torch import Tensor
from torch.nn.functional import one_hot

from propall import CandidateLabels, __version__, counter_rng
from propall.data import load
from propall.data.dataset import PartialDataset
from propall.labels.predictions import Conformal, estimate_miss_rate
from propall.methods.cc import CC
from propall.methods.propall import ProPaLL
from propall.nets import NETS
from propall.paper.custom_runs import choose_setting
from propall.paper.runner import square_images
from propall.provenance import commit, hardware
from propall.training.compiled import best_device
from propall.training.contract import NetFactory, Objective, RowwiseObjective, Run, State, Step
from propall.training.missing_truth import estimate_miss_rate as estimate_from_margins
from propall.training.missing_truth import log_margins
from propall.training.named_views import VIEWS
from propall.training.networks import NetClassifier
from propall.training.recipe import Recipe
from propall.training.trainer import Trainer
from propall.training.views import cross_entropy

#: Share of the labeled images that calibrates the teacher.
CALIBRATION = 0.2
#: Batch size of the teacher, which sees few images.
TEACHER_BATCH = 128
#: FixMatch learns from predictions that are at least this probable.
CONFIDENT = 0.95
#: Share of labeled images in the rows of students that see them, as in the article of FixMatch.
LABELED_SHARE = 1 / 8
#: Students in the order in which they are trained.
STUDENTS = (
    *("top 1", "union", "mass 0.9", "soft labels", "FixMatch", "union, tolerant", "mass 0.9, tolerant"),
    *("top 2", "top 1, tolerant", "conformal 0.1", "conformal 0.1, tolerant", "top 3", "top 2, tolerant"),
    *("top 3, tolerant", "union, ALIM", "mass 0.9, ALIM", "top 1 and another"),
    *("top 1, labeled", "union, labeled", "mass 0.9, labeled"),
)
#: Networks of the teacher, each trained on this share of the labeled images.
TEACHERS, TEACHER_SHARE = 3, 0.7


@dataclass(frozen=True, eq=False, repr=False)
class Probabilities:
    """A teacher's probabilities (n, k)."""

    values: Tensor


@dataclass(frozen=True)
class Distillation(RowwiseObjective):
    """Cross-entropy to a teacher's probabilities."""

    teacher: Probabilities

    name: ClassVar[str] = "distillation"
    title: ClassVar[str] = "distillation"
    reference: ClassVar[str] = ""

    def init(self, candidates: Tensor, weight: Tensor | None = None) -> State:
        """The teacher's probabilities."""
        return State(rows={"teacher": self.teacher.values})

    def losses(self, logits: Tensor, candidates: Tensor, state: State, step: Step) -> Tensor:
        """One cross-entropy per row."""
        return cross_entropy(state.rows["teacher"], logits)


@dataclass(frozen=True)
class FixMatch(Objective):
    """Cross-entropy on labeled rows, and on strong views of rows whose weak view is predicted confidently.

    Rows whose candidates are all classes are not labeled.
    """

    threshold: float = CONFIDENT

    name: ClassVar[str] = "fixmatch"
    title: ClassVar[str] = "FixMatch"
    reference: ClassVar[str] = ""
    handles_views: ClassVar[bool] = True

    def loss(self, logits: Tensor, candidates: Tensor, state: State, step: Step) -> Tensor:
        """The loss of both kinds of rows, each divided by its own number of rows."""
        each = logits.float().unflatten(0, (-1, len(candidates)))
        is_labeled = (~candidates.all(-1)).to(each.dtype)
        labels = cross_entropy(candidates.to(each.dtype), each[0]) * is_labeled
        highest, guess = each[0].detach().softmax(-1).max(-1)
        classes = torch.arange(each.shape[-1], device=each.device)
        target = (classes == guess[:, None]).to(each.dtype)
        is_used = (highest >= self.threshold).to(each.dtype) * (1 - is_labeled)
        guesses = cross_entropy(target, each[1]) * is_used
        rest = (1 - is_labeled).sum().clamp_min(1)
        total: Tensor = labels.sum() / is_labeled.sum().clamp_min(1) + guesses.sum() / rest
        return total


class Images(NamedTuple):
    """Images and true classes of training and test rows, on the device."""

    x: Tensor
    truth: Tensor
    test_x: Tensor
    test_truth: Tensor


def read_images(options: argparse.Namespace, device: torch.device) -> Images:
    """Read the training and test images."""
    source = load(options.data, options.root)
    if source.test_x is None or source.test_truth is None:
        parts = train_test_split(source.x.numpy(), source.truth.numpy(), test_size=0.3, random_state=0)
        x, test_x, truth, test_truth = (torch.from_numpy(part) for part in parts)
    else:
        if options.images is not None:
            source = source.first_per_class(options.images // source.n_classes)
        most = None if options.images is None else 2 * options.images
        assert source.test_x is not None
        assert source.test_truth is not None
        x, truth, test_x, test_truth = source.x, source.truth, source.test_x[:most], source.test_truth[:most]
    return Images(*(part.to(device) for part in (square_images(x), truth, square_images(test_x), test_truth)))


class Study:
    """A teacher and what its students are trained with."""

    def __init__(self, images: Images, options: argparse.Namespace, seed: int) -> None:
        self.images, self.options, self.seed = images, options, seed
        self.device = images.x.device
        n, k = len(images.x), int(images.truth.max()) + 1
        draw = np.random.default_rng(seed)
        order = draw.permutation(n)
        labeled = order[: max(k, int(options.share * n))]
        kept = max(1, int(CALIBRATION * len(labeled)))
        self.calibration, self.labeled, self.rest = labeled[:kept], labeled[kept:], order[len(labeled) :]
        self.k, self.truth = k, images.truth.cpu().numpy()
        changes: dict[str, Any] = {"epochs": options.epochs}
        if self.device.type == "cpu":  # which computes bfloat16 slowly
            changes["precision"] = "float32"
        self.net, self.recipe = choose_setting(options.data, "fast", net=options.net, changes=changes)

    def rows(self, rows: NDArray[np.int64]) -> Tensor:
        """Return some training images."""
        return self.images.x[torch.from_numpy(rows).to(self.device)]

    def singletons(self, labels: NDArray[np.int64]) -> Tensor:
        """Return labels as sets of one, on the device."""
        return one_hot(torch.from_numpy(labels), self.k).bool().to(self.device)

    def fit(
        self, objective: Objective, recipe: Recipe, x: Tensor, sets: Tensor, net: Any = None
    ) -> NetClassifier:
        """Train one network."""
        factory: NetFactory = NETS[self.net]
        trainer = Trainer(objective, factory if net is None else net, recipe)
        (classifier,) = trainer.fit([Run(PartialDataset(x, sets), self.seed)])
        assert isinstance(classifier, NetClassifier)
        return classifier

    def teacher_recipe(self) -> Recipe:
        """Return the recipe of the teacher: smaller batches, with a learning rate in proportion."""
        recipe = replace(self.recipe, epochs=self.options.teacher_epochs)
        if recipe.batch_size <= TEACHER_BATCH:
            return recipe
        rate = recipe.learning_rate * TEACHER_BATCH / recipe.batch_size
        return replace(recipe, batch_size=TEACHER_BATCH, learning_rate=rate)

    def fit_teachers(self) -> list[NetClassifier]:
        """Train the networks of the teacher on parts of the labeled images, and calibrate each."""
        recipe = self.teacher_recipe()
        draw = np.random.default_rng(self.seed + 1)
        teachers, self.temperatures = [], list[float]()
        true = torch.from_numpy(self.truth[self.calibration]).to(self.device)
        for _ in range(TEACHERS):
            part = draw.permutation(self.labeled)[: max(1, int(TEACHER_SHARE * len(self.labeled)))]
            teacher = self.fit(CC(), recipe, self.rows(part), self.singletons(self.truth[part]))
            logits = teacher.scores(self.rows(self.calibration)).double()

            def cost(log_temperature: float, logits: Tensor = logits) -> float:
                return float(torch.nn.functional.cross_entropy(logits / np.exp(log_temperature), true))

            best = minimize_scalar(cost, bounds=(-2, 3), method="bounded").x
            self.temperatures.append(float(np.exp(best)))
            teachers.append(teacher)
        return teachers

    def probabilities(self, teachers: list[NetClassifier], x: Tensor) -> NDArray[np.float64]:
        """Return the calibrated probabilities (m, n, k) of every network."""
        parts = zip(teachers, self.temperatures, strict=True)
        scaled = [(net.scores(x).double() / temperature).softmax(-1) for net, temperature in parts]
        values: NDArray[np.float64] = torch.stack(scaled).cpu().numpy()
        return values

    def train(
        self, name: str, teachers: list[NetClassifier], each: NDArray[np.float64]
    ) -> tuple[NetClassifier, dict[str, Any]]:
        """Train one student; returns it and a description of its sets."""
        x, recipe, own = self.rows(self.rest), self.recipe, self.recipe.views
        p = each.mean(0)
        assert own is not None
        if name == "soft labels":
            soft = Probabilities(torch.from_numpy(p).float().to(self.device))
            one_term = replace(recipe, views=replace(own, weight=0.0))
            full = torch.ones(p.shape, dtype=torch.bool, device=self.device)
            return self.fit(Distillation(soft), one_term, x, full), {}
        if name == "FixMatch":
            full = torch.ones(p.shape, dtype=torch.bool, device=self.device)
            # It starts from a trained network, which the full rate would destroy.
            gentle = replace(recipe, learning_rate=self.teacher_recipe().learning_rate)
            return self.fit(FixMatch(), gentle, *self.with_labeled(x, full), net=teachers[0].net), {}
        rule, _, how = name.partition(", ")
        kind, _, amount = rule.partition(" ")
        if kind == "conformal":
            scores = self.probabilities(teachers, self.rows(self.calibration)).mean(0)
            known = Conformal(scores, self.truth[self.calibration], float(amount))
            labels = CandidateLabels.from_scores(p, conformal=known)
        elif amount == "1 and another":
            # As large as the top 2, but the second class is random: it is no class's usual companion.
            top = p.argmax(1)
            other = (top + np.random.default_rng(self.seed).integers(1, self.k, len(p))) % self.k
            labels = CandidateLabels.from_matrix(
                np.eye(self.k, dtype=bool)[top] | np.eye(self.k, dtype=bool)[other]
            )
        elif kind == "union":
            labels = CandidateLabels.from_scores(list(each), top_k=1)
        elif kind == "mass":
            labels = CandidateLabels.from_scores(p, mass=float(amount))
        else:
            labels = CandidateLabels.from_scores(p, top_k=int(amount))
        sets = labels.to_numpy()
        objective: Objective = ProPaLL(noise=0.0) if kind != "top" or amount != "1" else CC()
        if how == "tolerant":
            recipe = replace(recipe, views=replace(own, mask="widened", tolerance="auto"))
        elif how == "ALIM":
            named = VIEWS["alim_scale"]
            views = replace(named.views, weak=own.weak, strong=own.strong)
            recipe, objective = replace(recipe, views=views), CC()
        rows, candidates = x, torch.from_numpy(sets).to(self.device)
        if how == "labeled":
            rows, candidates = self.with_labeled(rows, candidates)
        student = self.fit(objective, recipe, rows, candidates)
        quality = {
            "mean_size": float(sets.sum(1).mean()),
            "missing": float((~sets[np.arange(len(sets)), self.truth[self.rest]]).mean()),
            "missing_by_teacher": estimate_miss_rate(sets, [p]),
            "missing_by_student": self.missing_by(student, x, sets),
        }
        return student, quality

    def with_labeled(self, x: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
        """Append copies of the labeled images: else few of the 1024 images of a batch are labeled."""
        copies = round(LABELED_SHARE / (1 - LABELED_SHARE) * len(x) / len(self.labeled))
        labeled = np.tile(self.labeled, max(1, copies))
        return torch.cat([x, self.rows(labeled)]), torch.cat([sets, self.singletons(self.truth[labeled])])

    def missing_by(self, student: NetClassifier, x: Tensor, sets: NDArray[np.bool_]) -> float:
        """Return the share of sets without the true class as the student's predictions tell it."""
        logs = student.scores(x).double().log_softmax(-1).cpu()
        return float(estimate_from_margins(log_margins(logs, torch.from_numpy(sets))).estimate)

    def measure(self) -> Iterator[dict[str, Any]]:
        """Yield the accuracy of the teacher and of every student."""
        start = time.perf_counter()
        teachers = self.fit_teachers()
        each = self.probabilities(teachers, self.rows(self.rest))
        test = self.probabilities(teachers, self.images.test_x)
        seconds = time.perf_counter() - start
        alone = [(net.argmax(1) == self.images.test_truth.cpu().numpy()).mean() for net in test]
        yield {
            **self.row("teacher", test.mean(0).argmax(1), each.mean(0).argmax(1), seconds),
            "labeled": len(self.labeled),
            "mean_of_single_networks": float(np.mean(alone)),
        }
        for name in [name for name in STUDENTS if name in self.options.students]:
            start = time.perf_counter()
            student, quality = self.train(name, teachers, each)
            test_labels = student.predict(self.images.test_x).cpu().numpy()
            labels = student.predict(self.rows(self.rest)).cpu().numpy()
            yield {**self.row(name, test_labels, labels, time.perf_counter() - start), **quality}

    def row(
        self, name: str, test_labels: NDArray[np.int64], labels: NDArray[np.int64], seconds: float
    ) -> dict[str, Any]:
        """Measure labels of the test images and of the images without labels."""
        return {
            "trained_on": name,
            "test_accuracy": float((test_labels == self.images.test_truth.cpu().numpy()).mean()),
            "unlabeled_accuracy": float((labels == self.truth[self.rest]).mean()),
            "seconds": seconds,
        }


def run(options: argparse.Namespace) -> None:
    """Measure every seed; the file is written after every student."""
    options.out.mkdir(parents=True, exist_ok=True)
    device = best_device(options.device)
    images = read_images(options, device)
    found: list[dict[str, Any]] = []
    for seed in options.seeds:
        study = Study(images, options, counter_rng.seed_for(seed, "model-made sets") % 2**31)
        key = {
            "data": options.data,
            "images": len(images.x),
            "share": options.share,
            "net": study.net,
            "epochs": options.epochs,
            "teacher_epochs": options.teacher_epochs,
            "seed": seed,
        }
        provenance = {
            "version": __version__,
            "commit": commit(),
            "torch": torch.__version__,
            "hardware": hardware(device),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        for row in study.measure():
            found.append({**key, **row, **provenance})
            file = options.out / "model_made_sets.csv"
            pd.DataFrame(found).to_csv(file, index=False, float_format="%.5g")
            shown = {name: round(v, 4) if isinstance(v, float) else v for name, v in row.items()}
            print(options.data, seed, shown, flush=True)
    table = pd.DataFrame(found).groupby("trained_on", sort=False)
    print(table[["test_accuracy", "unlabeled_accuracy"]].agg(["mean", "std"]).round(4).to_string())


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("out", type=Path, help="folder for the results")
    parser.add_argument("--root", type=Path, help="folder of the data sets (default: PROPALL_DATA)")
    parser.add_argument("--data", default="cifar10", help="a registered data set of images")
    parser.add_argument("--images", type=int, help="only the first images of every class")
    parser.add_argument("--share", type=float, default=0.02, help="share of images that the teacher sees")
    parser.add_argument("--net", help="instead of the fast network")
    parser.add_argument("--epochs", type=int, default=20, help="of students")
    parser.add_argument("--teacher-epochs", type=int, default=150)
    parser.add_argument("--students", nargs="+", choices=STUDENTS, default=list(STUDENTS[:8]))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--device", default="auto")
    run(parser.parse_args())


if __name__ == "__main__":
    main()

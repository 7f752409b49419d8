"""Classes that are candidates together: how often does training drop one of them?

A controlled experiment for the question of `base_losses`, on a small data set with several seeds, base losses
and kinds of training. It has two parts:

- Pairs: the classes are paired at random. A set contains the partner of the true label with probability r
  and every other wrong label with probability q. At r = 1 nothing in the sets tells the partners apart;
  below, the share 1 - r of the rows does. Counted are the pairs that end with one class swallowed.
- Teacher: instance-dependent sets of several rates, as in `base_losses`. Counted are the swallowed classes.

`head_starts` is a model of the pairs without randomness, and is computed along with them. All of it is behind
`propall base-losses --pairs`.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from propall import counter_rng
from propall.data import load
from propall.data.corruption import Corruption, Exactly, InstanceDependent, Rows
from propall.data.dataset import PartialDataset, Problem
from propall.methods.cc import CC
from propall.nets import NETS
from propall.paper.custom_runs import COMPLEMENTARY_BALANCE, choose_setting
from propall.paper.runner import square_images
from propall.paper.studies.base_losses import base_loss
from propall.paper.studies.class_resolution import SWALLOWED_BELOW, resolution_matrix, swallowed_classes
from propall.paper.studies.head_starts import smallest_head_starts
from propall.paper.studies.study_files import read_json, run_missing, select_names, write_json
from propall.provenance import commit
from propall.training.compiled import best_device
from propall.training.contract import Run
from propall.training.recipe import Recipe
from propall.training.trainer import Trainer

#: Name of the file beside a store or in a folder of results.
FILE_NAME = "paired_classes.json"
#: Base losses in the order of tables.
BASES = ("propall", "cc", "non_candidates", "proden")
#: Those whose gradient depends on nothing but the logits, for `head_starts`.
MODELED_BASES = ("propall", "cc", "non_candidates")
#: End of the names of cells with the sets of a teacher.
TEACHER_PART = "/teacher"
#: How the network is trained, and its title in tables: the weak view alone, with a strong view, and with the
#: balance term as well.
TRAININGS = {"one-view": "one view", "views": "views", "balanced": "views and balance term"}


@dataclass(frozen=True)
class PairSetting:
    """Data and training of the experiment."""

    data: str = "digits"
    net: str = "mlp"
    epochs: int = 30
    seeds: int = 10
    q: float = 0.2
    together: tuple[float, ...] = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)  # values of r
    rates: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4)  # of the teacher's sets
    teacher_epochs: int = 20

    def recipe(self, training: str) -> Recipe:
        """Return the recipe of one of `TRAININGS`."""
        # float32: bfloat16 is slower on most CPUs.
        changes = {"epochs": self.epochs, "precision": "float32"}
        recipe = choose_setting(self.data, "fast", net=self.net, changes=changes).recipe
        assert recipe.views is not None
        views = recipe.views
        if training == "one-view":
            views = replace(views, n_strong=0)
        elif training == "balanced":
            views = replace(views, balance=COMPLEMENTARY_BALANCE)
        return replace(recipe, views=views)


@dataclass(frozen=True)
class PairedClasses(Corruption):
    """The partner of the true label is a candidate with probability r, every other wrong label with q.

    Attributes:
        partner: the partner of every class.
        together: r.
        q: probability of the other labels.

    Examples:
        >>> PairedClasses((1, 0, 3, 2), together=1.0, q=0.0)(torch.tensor([0, 3]), 4, seed=0).int().tolist()
        [[1, 1, 0, 0], [0, 0, 1, 1]]
    """

    partner: tuple[int, ...]
    together: float
    q: float

    name, title, reference = "paired_classes", "pairs of classes", ""

    def draw(self, rows: Rows) -> Bool[Tensor, "n k"]:
        """Toss a coin per wrong label."""
        partner = torch.tensor(self.partner, device=rows.truth.device)[rows.truth]
        is_partner = partner[:, None] == torch.arange(rows.n_classes, device=partner.device)
        share = torch.where(is_partner, self.together, self.q)
        return (rows.uniform_per_label(0) < share) | rows.true_sets()


def draw_pairs(n_classes: int, seed: int) -> tuple[int, ...]:
    """Pair the classes at random and return the partner of each; of an odd number, one is its own partner."""
    order = counter_rng.order(counter_rng.seed_for(seed, "pairs"), 0, torch.arange(n_classes)).tolist()
    partner = list(range(n_classes))
    for one, other in zip(order[::2], order[1::2], strict=False):
        partner[one], partner[other] = other, one
    return tuple(partner)


def run_pairs(
    path: Path,
    *,
    setting: PairSetting | None = None,
    cells: Sequence[str] | None = None,
    device: str = "cpu",
    root: Path | None = None,
    note: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Run what a file lacks and add it; returns the content of the file.

    A cell is a base loss and a training, such as `cc/views`, in the part of pairs and `cc/views/teacher` in
    the other; all its runs are trained as one stack. Once all cells are there, `model_head_starts` is added.
    """
    setting = setting or PairSetting()
    plain = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in dataclasses.asdict(setting).items()
    }
    on = best_device(device)
    parts = {name: functools.partial(_run_cell, name, setting, on, root) for name in cells or list_cells()}
    report = run_missing(path, read_json(path), setting=plain, key="cells", parts=parts, device=on, note=note)
    if "head_starts" not in report and set(list_cells()) <= set(report["cells"]):
        report["head_starts"] = model_head_starts(setting)
        write_json(path, report)
    return report


def model_head_starts(setting: PairSetting) -> dict[str, list[float | None]]:
    """Compute `smallest_head_starts` for every r, by base loss and training; None for none."""
    starts = {
        f"{base}/{training}": smallest_head_starts(
            base_loss(base), setting.together, q=setting.q, consistency=consistency
        )
        for training, consistency in (("one-view", 0.0), ("views", 1.0))
        for base in MODELED_BASES
    }
    return {name: [round(v, 3) if isfinite(v) else None for v in values] for name, values in starts.items()}


def list_cells(only: Sequence[str] | None = None) -> list[str]:
    """Return the names of the cells; `only` holds names or patterns such as `cc/*`."""
    names = [
        f"{base}/{training}{part}" for part in ("", TEACHER_PART) for training in TRAININGS for base in BASES
    ]
    return select_names(only, names, "cell")


def _run_cell(name: str, setting: PairSetting, device: torch.device, root: Path | None) -> dict[str, Any]:
    base, training = name.removesuffix(TEACHER_PART).split("/")
    source = load(setting.data, root)
    clean = source.fold(0, corruption=Exactly(1))
    clean = replace(clean, train=PartialDataset(square_images(clean.train.x), clean.train.candidates))
    clean = replace(clean, test_x=square_images(clean.test_x)).to(device)
    draw = _teacher_sets if name.endswith(TEACHER_PART) else _paired_sets
    drawn = draw(clean, setting)
    runs = [Run(PartialDataset(clean.train.x, sets), described["seed"]) for described, _, sets in drawn]
    start = time.perf_counter()
    fitted = Trainer(base_loss(base), NETS[setting.net], setting.recipe(training)).fit(runs)
    seconds = time.perf_counter() - start
    measured = []
    for (described, partner, sets), classifier in zip(drawn, fitted, strict=True):
        resolution = resolution_matrix(classifier.scores(clean.train.x), sets, clean.truth)
        hits = classifier.predict(clean.test_x) == clean.test_truth
        counts = count_classes(resolution) if partner is None else count_pairs(resolution, partner)
        measured.append(described | {"test": round(float(hits.double().mean()), 4)} | counts)
    return {"seconds": round(seconds, 2), "commit": commit(), "runs": measured}


#: What a run is called, the partners of the classes in the part of pairs, and the candidate sets.
_Drawn = tuple[dict[str, Any], tuple[int, ...] | None, Tensor]


def _paired_sets(clean: Problem, setting: PairSetting) -> list[_Drawn]:
    k = len(clean.classes)
    drawn: list[_Drawn] = []
    for r in setting.together:
        for seed in range(setting.seeds):
            partner = draw_pairs(k, seed)
            sets = PairedClasses(partner, r, setting.q)(clean.truth, k, seed)
            drawn.append(({"together": r, "seed": seed}, partner, sets))
    return drawn


def _teacher_sets(clean: Problem, setting: PairSetting) -> list[_Drawn]:
    recipe = replace(setting.recipe("one-view"), epochs=setting.teacher_epochs)
    teacher = Run(clean.train, counter_rng.seed_for(0, "teacher"))
    scores = Trainer(CC(), NETS[setting.net], recipe).fit([teacher])[0].scores(clean.train.x)
    drawn: list[_Drawn] = []
    for rate in setting.rates:
        for seed in range(setting.seeds):
            sets = InstanceDependent(rate)(clean.truth, len(clean.classes), seed, scores=scores)
            size = round(float(sets.sum(-1).double().mean()), 3)
            drawn.append(({"rate": rate, "seed": seed, "candidates": size}, None, sets))
    return drawn


def count_classes(resolution: Tensor) -> dict[str, int]:
    """Count the swallowed classes."""
    return {"swallowed": len(swallowed_classes(resolution))}


def count_pairs(resolution: Tensor, partner: Sequence[int]) -> dict[str, int]:
    """Count the pairs that are told apart, that ended with one class swallowed, and that were swapped.

    A pair is swapped if both of its classes are swallowed.
    """
    lost = (resolution.diagonal() < SWALLOWED_BELOW).tolist()
    pairs = [(one, other) for one, other in enumerate(partner) if one < other]
    both = [lost[one] + lost[other] for one, other in pairs]
    return {"pairs": len(pairs), "swallowed": both.count(1), "swapped": both.count(2)}


def swallowed_shares(report: Mapping[str, Any], name: str) -> list[float]:
    """Return the share of pairs with one class swallowed for every r of a cell."""
    return _by_r(report, name, lambda runs: sum(r["swallowed"] for r in runs) / sum(r["pairs"] for r in runs))


def mean_accuracies(report: Mapping[str, Any], name: str) -> list[float]:
    """Return the mean test accuracy for every r of a cell."""
    return _by_r(report, name, lambda runs: sum(r["test"] for r in runs) / len(runs))


def _by_r(
    report: Mapping[str, Any], name: str, reduce: Callable[[list[dict[str, Any]]], float]
) -> list[float]:
    runs = report["cells"][name]["runs"]
    return [reduce([run for run in runs if run["together"] == r]) for r in report["setting"]["together"]]


def teacher_runs(report: Mapping[str, Any], name: str, rate: float) -> list[dict[str, Any]]:
    """Return the runs of a cell of the teacher's part with one rate, by seed."""
    runs = report["cells"][f"{name}{TEACHER_PART}"]["runs"]
    return sorted((run for run in runs if run["rate"] == rate), key=lambda run: run["seed"])


def table_rows(report: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the columns and rows of a table: pairs with one class swallowed in percent, by r.

    In the part of the teacher, the mean number of swallowed classes, by rate.
    """
    setting = report["setting"]
    columns = ["swallowed pairs %", *(f"r = {r:g}" for r in setting["together"])]
    rows = [
        [name, *(f"{100 * share:.0f}" for share in swallowed_shares(report, name))]
        for name in report["cells"]
        if not name.endswith(TEACHER_PART)
    ]
    for name in (name for name in report["cells"] if name.endswith(TEACHER_PART)):
        cells = []
        for rate in setting["rates"]:
            runs = teacher_runs(report, name.removesuffix(TEACHER_PART), rate)
            cells.append(f"{fmean(run['swallowed'] for run in runs):.1f} at rate {rate:g}")
        rows.append([name, *cells, *[""] * (len(columns) - 1 - len(cells))][: len(columns)])
    return columns, rows

"""The demo's experiment: digits with several candidate labels each, three methods and two yardsticks."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from propall import counter_rng
from propall.data import load
from propall.data.corruption import PRODENBinomialMin2
from propall.data.dataset import PartialDataset, Problem
from propall.methods import METHODS
from propall.nets import NETS
from propall.training.contract import Classifier, Monitor, Run
from propall.training.metrics import History, Together
from propall.training.recipe import Recipe
from propall.training.trainer import Trainer

RECIPE = Recipe(epochs=60, batch_size=64, learning_rate=0.05, weight_decay=1e-4)
WIDTHS = (128,)
METHOD_NAMES = ("propall", "proden", "cc")
#: Trained with cross-entropy, which CC is on single labels: one candidate drawn at random, and the truth.
GUESS, CLEAN = "random candidate", "clean labels"


@dataclass(frozen=True)
class DemoRuns:
    """What was measured: for each contender the accuracy of every seed, final and by epoch.

    Attributes:
        accuracy: contender to one share per seed.
        curves: contender to (epochs, seeds) shares.
        problem: the first seed's data.
        resolved: the candidate ProPaLL's first seed settles on for every training row.
    """

    accuracy: dict[str, list[float]]
    curves: dict[str, Tensor]
    problem: Problem
    resolved: Tensor


def _guessed(candidates: Tensor, seed: int) -> Tensor:
    """One candidate of every row, drawn uniformly."""
    n, k = candidates.shape
    rows = torch.arange(n)[:, None]
    chance = counter_rng.uniform(counter_rng.seed_for(seed, "guess"), rows, torch.arange(k))
    return one_hot(chance.masked_fill(~candidates, -1.0).argmax(-1), k).bool()


def run_demo(*, q: float = 0.5, seeds: int = 5, monitor: Monitor | None = None) -> DemoRuns:
    """Train every contender with every seed, all in one stack.

    Args:
        q: probability with which each wrong label becomes a candidate.
        seeds: runs per contender.
        monitor: looks on.
    """
    source = load("digits")
    problems = [source.problem(PRODENBinomialMin2(q), seed) for seed in range(seeds)]
    x, truth = problems[0].train.x, problems[0].truth
    clean = one_hot(truth, source.n_classes).bool()
    contenders: list[tuple[str, Run]] = []
    for seed, problem in enumerate(problems):
        candidates = problem.train.candidates
        for name in METHOD_NAMES:
            method = METHODS[name]
            run = Run(PartialDataset(x, candidates), seed, objective=method())  # type: ignore[arg-type]
            contenders.append((method.title, run))
        for name, labels in ((GUESS, _guessed(candidates, seed)), (CLEAN, clean)):
            contenders.append((name, Run(PartialDataset(x, labels), seed, objective=METHODS["cc"]())))  # type: ignore[arg-type]
    history = History(problems[0].test_x, problems[0].test_truth)
    watchers = Together(history, *([] if monitor is None else [monitor]))
    trainer = Trainer(METHODS["cc"](), partial(NETS["mlp"], widths=WIDTHS), RECIPE)  # type: ignore[arg-type]
    classifiers = trainer.fit([run for _, run in contenders], monitor=watchers)
    curves: dict[str, list[list[float]]] = {}
    for i, (name, _) in enumerate(contenders):
        curves.setdefault(name, []).append(list(history.accuracies(i).values()))
    shown = next(c for (name, _), c in zip(contenders, classifiers, strict=True) if name == "ProPaLL")
    return DemoRuns(
        accuracy={name: [curve[-1] for curve in own] for name, own in curves.items()},
        curves={name: torch.tensor(own).T for name, own in curves.items()},
        problem=problems[0],
        resolved=_resolved(shown, problems[0].train),
    )


def _resolved(classifier: Classifier, train: PartialDataset) -> Tensor:
    return classifier.scores(train.x).masked_fill(~train.candidates, -torch.inf).argmax(-1)

"""The experiment of `propall demo`: digits with candidate labels, three methods and two references."""

import time
from datetime import UTC, datetime
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from propall import __version__, counter_rng
from propall.data import load
from propall.data.corruption import PRODENBinomialMin2
from propall.data.dataset import PartialDataset
from propall.methods import METHODS
from propall.methods.cc import CC
from propall.nets import NETS
from propall.paper.pages.demo import BASELINE, CEILING, DemoResults
from propall.provenance import commit, hardware
from propall.training.contract import Monitor, Objective, Run
from propall.training.metrics import CombinedMonitor, History
from propall.training.recipe import Recipe
from propall.training.trainer import Trainer

RECIPE = Recipe(epochs=60, batch_size=64, learning_rate=0.05, weight_decay=1e-4)
WIDTHS = (128,)
METHOD_NAMES = ("propall", "proden", "cc")
#: Number of training images on the page.
SHOWN_IMAGES = 40


def run_demo(*, q: float = 0.5, seeds: int = 5, monitor: Monitor | None = None) -> DemoResults:
    """Train every method with every seed, all in one stack.

    The references are trained with cross-entropy (CC on single labels): on one candidate drawn at random, and
    on the true labels.

    Args:
        q: probability that a wrong label becomes a candidate.
        seeds: runs per method.
        monitor: receives the progress of training.
    """
    start = time.perf_counter()
    source = load("digits")
    corruption = PRODENBinomialMin2(q)
    problems = [source.problem(corruption, seed) for seed in range(seeds)]
    first = problems[0]
    clean = one_hot(first.truth, source.n_classes).bool()
    runs: list[tuple[str, Run]] = []
    for seed, problem in enumerate(problems):
        candidates = problem.train.candidates
        labels = [(METHODS[name].title, name, candidates) for name in METHOD_NAMES]
        labels += [(BASELINE, "cc", _draw_candidate(candidates, seed)), (CEILING, "cc", clean)]
        for title, name, matrix in labels:
            method = METHODS[name]()
            assert isinstance(method, Objective)
            runs.append((title, Run(PartialDataset(first.train.x, matrix), seed, objective=method)))
    history = History(first.test_x, first.test_truth)
    monitors = CombinedMonitor(history, monitor)
    trainer = Trainer(CC(), partial(NETS["mlp"], widths=WIDTHS), RECIPE)
    classifiers = trainer.fit([run for _, run in runs], monitor=monitors)
    curves: dict[str, list[list[float]]] = {}
    for i, (title, _) in enumerate(runs):
        curves.setdefault(title, []).append(list(history.accuracies(i).values()))
    accuracy = {title: [curve[-1] for curve in title_curves] for title, title_curves in curves.items()}
    baseline, ceiling = accuracy.pop(BASELINE), accuracy.pop(CEILING)
    shown = first.train.candidates[:SHOWN_IMAGES]
    scores = classifiers[0].scores(first.train.x)[:SHOWN_IMAGES]  # of ProPaLL with the first seed
    return DemoResults(
        accuracy=accuracy,
        curves={title: torch.tensor(curves[title]).T.numpy() for title in accuracy},
        baseline=baseline,
        ceiling=ceiling,
        images=first.train.x[:SHOWN_IMAGES].reshape(-1, 8, 8).numpy(),
        candidates=shown.numpy(),
        recovered=scores.masked_fill(~shown, -torch.inf).argmax(-1).numpy(),
        truth=first.truth[:SHOWN_IMAGES].numpy(),
        classes=first.classes,
        provenance={
            "data": f"digits, {len(first.train)} training and {len(first.test_x)} test images",
            "corruption": corruption.name,
            "q": f"{q:g}",
            "protocol": "fixed split, test accuracy after the last epoch",
            "seeds": str(seeds),
            "epochs": str(RECIPE.epochs),
            "hardware": hardware("cpu"),
            "version": __version__,
            "commit": commit() or "unknown",
            "date": datetime.now(UTC).date().isoformat(),
        },
        seconds=time.perf_counter() - start,
        mean_candidates=float(first.train.candidates.sum(-1).double().mean()),
    )


def _draw_candidate(candidates: Tensor, seed: int) -> Tensor:
    """Draw one candidate of every row, uniformly; returns a mask with one True per row."""
    n, k = candidates.shape
    rows = torch.arange(n)[:, None]
    chance = counter_rng.uniform(counter_rng.seed_for(seed, "guess"), rows, torch.arange(k))
    return one_hot(chance.masked_fill(~candidates, -1.0).argmax(-1), k).bool()

"""Cross-validated comparison of methods on real-world candidate sets, for `propall compare`."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from propall.data import DATASETS, load
from propall.methods import METHODS
from propall.paper import scheduler
from propall.paper.progress import ProgressListener
from propall.paper.results import RunResult
from propall.paper.specs import Spec
from propall.paper.store import Store
from propall.paper.tables import real
from propall.paper.tables.paper_table import PaperCell, PublishedAccuracy
from propall.report.numbers import mean_and_std
from propall.training.contract import Objective
from propall.wording import duration

#: The rows of the paper's table, some methods in two settings.
ALL = tuple(row.name for row in real.ROWS)


@dataclass(frozen=True)
class Contender:
    """A method on one data set."""

    data: str
    name: str  # of the method, or of a row of the paper's table
    title: str  # as printed
    specs: list[Spec]
    refused: str  # why it cannot learn from this data; empty if it can
    published: PublishedAccuracy | None
    in_paper: bool  # whether the setting is from the paper's table; others use ProPaLL's recipe


@dataclass(frozen=True)
class ContenderScore:
    """Accuracy of a contender in percent, mean and sample deviation over folds of the mean over seeds.

    `covered` is the percentage of training rows whose prediction is a candidate, `seconds` a sum over runs.
    """

    contender: Contender
    mean: float
    std: float | None
    covered: float
    seconds: float


def find_contenders(
    data: Sequence[str],
    methods: Sequence[str] = ALL,
    *,
    folds: int = real.FOLDS,
    seeds: int = 1,
    epochs: int | None = None,
    root: Path | None = None,
) -> list[Contender]:
    """Return methods on data sets, with the settings of the paper's table of real-world candidate sets.

    `methods` may name rows of the table. Another number of `epochs` is reported as another protocol.
    """
    titles = {row.name: row.title for row in real.ROWS}
    contenders = []
    for name in data:
        source = load(name, root)
        if source.candidates is None:
            known = ", ".join(other for other, loader in DATASETS.items() if loader.kind == "real-world")
            hint = f"use `propall train {name}` to draw them, or one of {known}."
            raise ValueError(f"data: {name} has no candidate sets; {hint}")
        for method in methods:
            specs = _specs(name, method, folds, seeds, epochs)
            in_paper = method in titles and name in real.DATA
            title = titles[method] if method in titles else METHODS[method].title
            refused = _refusal(specs[0].method, source.candidates)
            cell = PaperCell(real.TABLE.name, name, method)
            published = real.TABLE.published(cell) if in_paper else None
            contenders.append(Contender(name, method, title, specs, refused, published, in_paper))
    return contenders


def _specs(data: str, name: str, folds: int, seeds: int, epochs: int | None) -> list[Spec]:
    setting = real.settings(data, name)
    recipe, protocol = setting.recipe, f"folds{folds}"
    if epochs is not None:
        recipe, protocol = replace(recipe, epochs=epochs), f"folds{folds}, {epochs} epochs"
    return [
        Spec(data, setting.method, setting.net, recipe, split=split, protocol=protocol, seed=seed)
        for seed in range(seeds)
        for split in real.splits(folds)
    ]


def _refusal(method: object, candidates: torch.Tensor) -> str:
    """Return why an objective rejects these candidate sets, before the first step; empty if it does not."""
    if isinstance(method, Objective):
        try:
            method.init(candidates)
        except ValueError as error:
            return str(error)
    return ""


def compare_methods(
    contenders: Sequence[Contender],
    store: Store,
    *,
    device: str = "auto",
    root: Path | None = None,
    progress: ProgressListener | None = None,
) -> list[ContenderScore]:
    """Run what the store lacks; returns the scores of all contenders that can learn from the data."""
    accepted = [contender for contender in contenders if not contender.refused]
    specs = [spec for contender in accepted for spec in contender.specs]
    plan = scheduler.run_missing(specs, store, device=device, root=root, progress=progress)
    if plan.failures:
        raise RuntimeError("; ".join(map(str, plan.failures)))
    results = store.find(specs)
    return [score(contender, [results[spec.key] for spec in contender.specs]) for contender in accepted]


def score(contender: Contender, results: Sequence[RunResult]) -> ContenderScore:
    """Return mean and deviation over folds."""
    by_fold: dict[int | None, list[float]] = {}
    for result in results:
        by_fold.setdefault(result.spec.split.fold, []).append(100 * result.accuracy)
    mean, std = mean_and_std([statistics.fmean(values) for values in by_fold.values()])
    covered = 100 * statistics.fmean(result.covered for result in results)
    return ContenderScore(contender, mean, std, covered, sum(result.seconds for result in results))


def as_dicts(contenders: Sequence[Contender], scores: Sequence[ContenderScore]) -> list[dict[str, Any]]:
    """Return one plain dictionary per contender; those that cannot learn from the data have the reason."""
    by_name = {(score.contender.data, score.contender.name): score for score in scores}
    rows = []
    for contender in contenders:
        row: dict[str, Any] = {
            "data": contender.data,
            "method": contender.name,
            "title": contender.title,
            "protocol": contender.specs[0].protocol,
            "in_paper": contender.in_paper,
            "published": None if contender.published is None else contender.published._asdict(),
        }
        if contender.refused:
            row["refused"] = contender.refused
        else:
            values = by_name[contender.data, contender.name]
            row |= {name: getattr(values, name) for name in ("mean", "std", "covered", "seconds")}
            row["keys"] = [spec.key for spec in contender.specs]
        rows.append(row)
    return rows


def summarize_scores(scores: Sequence[ContenderScore], seconds: float) -> str:
    """Return one line: how much was run in which time, and the best method on each data set."""
    best: dict[str, ContenderScore] = {}
    for score in scores:
        data = score.contender.data
        best[data] = max(best.get(data, score), score, key=lambda score: score.mean)
    winners = [f"{DATASETS[data].title} {top.contender.title} {top.mean:.1f}" for data, top in best.items()]
    runs = sum(len(score.contender.specs) for score in scores)
    return f"{runs} runs; wall-clock time of this call {duration(seconds)}. Best: {', '.join(winners)}."

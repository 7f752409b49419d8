"""What `propall compare` does: methods on real-world candidate sets, cross-validated, beside the paper."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from propall.data import DATASETS, load
from propall.methods import METHODS
from propall.paper import scheduler
from propall.paper.results import RunResult
from propall.paper.specs import Spec
from propall.paper.store import Store
from propall.paper.tables import real
from propall.paper.tables.paper_table import PaperCell, PublishedAccuracy
from propall.report.numbers import mean_and_std
from propall.training.contract import Objective
from propall.wording import duration

#: What "all" stands for: the lines of the paper's table, some of them in two settings.
ALL = tuple(row.name for row in real.ROWS)


@dataclass(frozen=True)
class Contender:
    """A method on one data set: its runs, or the reason why it has none.

    Attributes:
        data: name of the data set.
        name: what the method is asked for by.
        title: what tables print.
        specs: its runs.
        refused: why it cannot learn from this data; empty where it can.
        published: the paper's number, where it has one.
        in_paper: whether the setting is from the paper's table, rather than ProPaLL's recipe for a method or
            data set outside it.
    """

    data: str
    name: str
    title: str
    specs: list[Spec]
    refused: str
    published: PublishedAccuracy | None
    in_paper: bool


@dataclass(frozen=True)
class ContenderScore:
    """What came of a contender, in percent.

    Attributes:
        contender: whose it is.
        mean: mean over folds, of the mean over seeds.
        std: sample standard deviation over folds; None for one fold.
        covered: share of training rows whose prediction is a candidate, over all runs.
        seconds: time of all its runs; runs trained together share theirs equally.
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
    """Methods on data sets with the settings of the paper's table of real-world candidate sets.

    Args:
        data: names of data sets with candidate sets of their own.
        methods: names of methods or of the table's lines.
        folds: number of folds of the fixed split.
        seeds: runs per fold.
        epochs: in place of the settings' own; named as another protocol.
        root: folder of the data sets.
    """
    titles = {row.name: row.title for row in real.ROWS}
    found = []
    for of in data:
        source = load(of, root)
        if source.candidates is None:
            raise ValueError(
                f"data: {of} has no candidate sets of its own; `propall train {of}` draws some. Here: "
                f"{', '.join(name for name, loader in DATASETS.items() if loader.kind == 'real-world')}."
            )
        for name in methods:
            specs = _specs(of, name, folds, seeds, epochs)
            method = specs[0].method
            known = name in titles and of in real.DATA
            found.append(
                Contender(
                    of,
                    name,
                    titles[name] if name in titles else METHODS[name].title,
                    specs,
                    _refusal(method, source.candidates),
                    real.TABLE.published(PaperCell(real.TABLE.name, of, name)) if known else None,
                    known,
                )
            )
    return found


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
    """Why an objective cannot take these candidate sets; it says so itself before the first step."""
    if isinstance(method, Objective):
        try:
            method.init(candidates)
        except ValueError as error:
            return str(error)
    return ""


def compare_methods(
    entered: Sequence[Contender],
    store: Store,
    *,
    device: str = "auto",
    root: Path | None = None,
    progress: scheduler.RunProgress | None = None,
) -> list[ContenderScore]:
    """Run what the store does not hold yet; the scores of all contenders that were not refused."""
    able = [contender for contender in entered if not contender.refused]
    specs = [spec for contender in able for spec in contender.specs]
    carried_out = scheduler.run_missing(specs, store, device=device, root=root, progress=progress)
    if carried_out.failures:
        raise RuntimeError("; ".join(map(str, carried_out.failures)))
    results = store.find(specs)
    return [score(contender, [results[spec.key] for spec in contender.specs]) for contender in able]


def score(contender: Contender, results: Sequence[RunResult]) -> ContenderScore:
    """Mean and spread over folds."""
    by_fold: dict[int | None, list[float]] = {}
    for result in results:
        by_fold.setdefault(result.spec.split.fold, []).append(100 * result.accuracy)
    mean, std = mean_and_std([statistics.fmean(values) for values in by_fold.values()])
    return ContenderScore(
        contender,
        mean,
        std,
        100 * statistics.fmean(result.covered for result in results),
        sum(result.seconds for result in results),
    )


def as_dicts(entered: Sequence[Contender], scores: Sequence[ContenderScore]) -> list[dict[str, Any]]:
    """One plain dictionary per contender, the refused ones with their reason."""
    by_name = {(score.contender.data, score.contender.name): score for score in scores}
    rows = []
    for contender in entered:
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
            found = by_name[contender.data, contender.name]
            row |= {name: getattr(found, name) for name in ("mean", "std", "covered", "seconds")}
            row["keys"] = [spec.key for spec in contender.specs]
        rows.append(row)
    return rows


def summary(scores: Sequence[ContenderScore], seconds: float) -> str:
    """One line: how much was run in which time, and what came first on each data set."""
    best: dict[str, ContenderScore] = {}
    for found in scores:
        if found.contender.data not in best or found.mean > best[found.contender.data].mean:
            best[found.contender.data] = found
    first = ", ".join(
        f"{DATASETS[data].title} {found.contender.title} {found.mean:.1f}" for data, found in best.items()
    )
    runs = sum(len(found.contender.specs) for found in scores)
    return f"{runs} runs, {duration(seconds)} now. Best: {first}."

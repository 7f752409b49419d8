"""What `propall train` does: specs from words, a folder of results that a second call goes on from."""

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from propall import counter_rng
from propall.data import CORRUPTIONS, DATASETS
from propall.data.corruption import Corruption
from propall.methods import METHODS
from propall.nets import NETS
from propall.paper.results import RunResult
from propall.paper.runner import default_setting, run_specs
from propall.paper.specs import Spec, Split
from propall.training.contract import Monitor


class MethodSummary(NamedTuple):
    """One method's accuracy in percent over its runs, with the sample standard deviation."""

    method: str
    mean: float
    std: float | None
    runs: int
    seconds: float


def build_specs(
    data: str,
    *,
    methods: Sequence[str],
    corruption: str | None = None,
    corruption_fields: Mapping[str, Any] | None = None,
    net: str | None = None,
    seeds: int = 3,
    folds: int | None = None,
    recipe: Mapping[str, Any] | None = None,
) -> list[Spec]:
    """The runs of several methods on one data set.

    Args:
        data: name of the data set.
        methods: names of methods.
        corruption: name of the law of the candidate sets; a data set's own where it has some.
        corruption_fields: the law's settings; None values are left at its defaults.
        net: name of the network; a sensible one for the data if not named.
        seeds: runs per method and fold.
        folds: cross-validation; None: the official test part, or 5 folds where there is none.
        recipe: fields of the recipe that differ from the data set's default.
    """
    loader = DATASETS[data]
    default_net, default_recipe = default_setting(data)
    has_own = loader.kind in ("real-world", "human annotations")
    law = _corruption(has_own, corruption, corruption_fields or {})
    if folds is None and not loader.n_test:
        folds = 5
    splits = [Split()] if folds is None else [Split(fold=i, folds=folds) for i in range(folds)]
    if net is not None:
        NETS[net]
    return [
        Spec(
            data=data,
            method=METHODS[name](),
            net=net or default_net,
            recipe=dataclasses.replace(default_recipe, **(recipe or {})),
            corruption=law,
            split=split,
            protocol="own",
            seed=seed,
        )
        for name in methods
        for split in splits
        for seed in range(seeds)
    ]


def _corruption(has_own: bool, name: str | None, fields: Mapping[str, Any]) -> Corruption | None:
    given = {key: value for key, value in fields.items() if value is not None}
    if name is None:
        if has_own and not given:
            return None
        name = "exactly" if "n" in given else "proden_binomial_min2"
    law = CORRUPTIONS[name]
    own = {f.name for f in dataclasses.fields(law)}  # type: ignore[arg-type]
    for key in given.keys() - own:
        raise ValueError(f"{key}: {name} has no such setting; it has {', '.join(sorted(own)) or 'none'}.")
    return law(**given)


def train_runs(
    specs: Sequence[Spec], out: Path, *, device: str = "auto", monitor: Monitor | None = None
) -> tuple[Path, list[RunResult]]:
    """Run what the folder does not hold yet; returns the folder and all results in the specs' order."""
    folder = out / f"{specs[0].data}-{counter_rng.digest(*sorted(spec.key for spec in specs))[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "results.jsonl"
    results = _read(file)
    missing = [spec for spec in specs if spec.key not in results]
    for result in run_specs(missing, device=device, monitor=monitor, checkpoint=folder / "progress"):
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(result.to_dict()) + "\n")
        results[result.spec.key] = result
    return folder, [results[spec.key] for spec in specs]


def _read(file: Path) -> dict[str, RunResult]:
    if not file.exists():
        return {}
    results = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            values = json.loads(line)
        except json.JSONDecodeError:
            continue  # a line cut short by a kill; its run is done again
        result = RunResult.from_dict(values)
        results[result.spec.key] = result
    return results


def summarize(results: Sequence[RunResult]) -> list[MethodSummary]:
    """Mean and spread by method, best first."""
    by_method: dict[str, list[RunResult]] = {}
    for result in results:
        by_method.setdefault(result.spec.method.title, []).append(result)
    rows = []
    for title, own in by_method.items():
        values = [100 * result.accuracy for result in own]
        std = statistics.stdev(values) if len(values) > 1 else None
        rows.append(
            MethodSummary(
                title, statistics.fmean(values), std, len(own), sum(result.seconds for result in own)
            )
        )
    return sorted(rows, key=lambda row: -row.mean)

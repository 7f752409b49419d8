"""The provenance of results: data, corruption, protocol, seeds, hardware, versions and dates."""

from collections.abc import Iterable

from propall.data import DATASETS
from propall.paper.reproduction import CellResult
from propall.paper.results import RunResult


def entry_provenance(entries: Iterable[CellResult]) -> dict[str, str]:
    """Return the provenance of all runs behind some entries of a table."""
    return run_provenance(result for entry in entries for result in entry.results)


def run_provenance(results: Iterable[RunResult]) -> dict[str, str]:
    """Return where the numbers of some runs come from, by field; empty fields are omitted."""
    runs = list(results)
    if not runs:
        return {}
    specs = [run.spec for run in runs]
    corruptions = [spec.corruption for spec in specs]
    epochs = {spec.recipe.epochs for spec in specs if spec.trains_network}
    folds = {spec.split.fold for spec in specs}
    days = sorted({run.when[:10] for run in runs})
    fields = {
        "data": _listed(DATASETS[spec.data].title for spec in specs),
        "corruption": _listed("real-world candidates" if c is None else c.name for c in corruptions),
        **{
            name: _listed(f"{getattr(c, name):g}" for c in corruptions if hasattr(c, name))
            for name in ("q", "rate")
        },
        "protocol": _listed(spec.protocol for spec in specs),
        "runs": str(len(runs)),
        "seeds": _span({spec.seed for spec in specs}),
        "folds": _span({fold for fold in folds if fold is not None}),
        "epochs": _listed(map(str, sorted(epochs))),
        "precision": _listed(spec.recipe.precision for spec in specs if spec.trains_network),
        "hardware": _listed(run.hardware for run in runs),
        "propall": _listed(run.version for run in runs),
        "commit": _listed(run.commit for run in runs),
        "torch": _listed(run.torch for run in runs),
        "date": days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}",
    }
    return {name: value for name, value in fields.items() if value}


def _listed(words: Iterable[str], limit: int = 6) -> str:
    distinct = [word for word in dict.fromkeys(words) if word]
    more = f" and {len(distinct) - limit} more" if len(distinct) > limit else ""
    return ", ".join(distinct[:limit]) + more


def _span(numbers: set[int]) -> str:
    ordered = sorted(numbers)
    if len(ordered) > 2 and ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"{ordered[0]}-{ordered[-1]}"
    return ", ".join(map(str, ordered))

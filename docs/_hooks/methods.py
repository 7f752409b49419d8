"""Writes a page for every method, from its file, the references and the stored results."""

import functools
from collections.abc import Sequence
from pathlib import Path

from api import public_names
from bibliography import references

from propall.data import DATASETS
from propall.methods import METHODS
from propall.nets import NETS
from propall.paper import modern, results_io
from propall.paper.evidence import Evidence
from propall.paper.reproduction import CellResult
from propall.paper.tables import TABLES
from propall.paper.tables.rows import build_method
from propall.training.contract import Algorithm, Objective

ROOT = Path(__file__).resolve().parents[2]

USAGE = """\
```python
import numpy as np
from sklearn.datasets import load_iris
from propall import CandidateLabels, PartialLabelClassifier

X, truth = load_iris(return_X_y=True)
wrong = (truth + 1 + np.arange(150) % 2) % 3  # one class that each flower is known not to be
y = CandidateLabels.from_complementary(wrong, [0, 1, 2])
classifier = PartialLabelClassifier(method="{name}", {options}random_state=0).fit(X, y)
print(classifier.score(X, truth))
```
"""
USAGE_LOSS = """\
As a loss in your own loop; `index` holds the numbers of the rows in the batch:

```python
import torch
from propall import PartialLabelLoss
from propall.methods.{module} import {cls}

net, x, candidates = torch.nn.Linear(4, 3), torch.tensor(X, dtype=torch.float32), y.mask
criterion = PartialLabelLoss({cls}(), candidates=candidates)
index = torch.arange(32)
loss = criterion(net(x[index]), candidates[index], index=index)
loss.backward()
```
"""


@functools.cache
def evidence() -> Evidence:
    """The stored results of the repository."""
    return Evidence(results_io.open_folder(ROOT / "results"))


def usage(name: str) -> str:
    """Code that uses a method, as Markdown."""
    method = METHODS[name]
    trains_own_network = issubclass(method, Algorithm) and method.trains_network
    text = USAGE.format(name=name, options="epochs=5, " if trains_own_network else "")
    if issubclass(method, Objective):
        text += "\n" + USAGE_LOSS.format(module=_module(method), cls=method.__name__)
    return text


def _module(method: type[Objective] | type[Algorithm]) -> str:
    return method.__module__.rpartition(".")[2]


def method_page(name: str) -> str:
    """The page of one method."""
    method = METHODS[name]
    module = method.__module__
    first = (__import__(module, fromlist=["__doc__"]).__doc__ or "").strip().partition("\n")[0]
    facts = {
        "Name": f"`{name}`",
        "Kind": method.kind,
        "Use it": method.use_when,
        "Assumes": f"{method.assumes[0].upper()}{method.assumes[1:]}.",
        "Memory per row": method.memory,
        "Cost of a step": method.cost,
        "Reference": references()[method.reference].link,
    }
    parts = [
        f"# {method.title}",
        first,
        "\n".join(["| | |", "| --- | --- |", *(f"| {key} | {value} |" for key, value in facts.items())]),
        "## Formula and settings",
        *_reference_blocks(module),
        "## Use",
        usage(name),
        "## Results",
        *results_of(name),
        "## Source",
        f'??? quote "`{module.replace(".", "/")}.py`"\n\n    ```python\n'
        f'    --8<-- "src/{module.replace(".", "/")}.py"\n    ```',
    ]
    return "\n\n".join(parts) + "\n"


def _reference_blocks(module: str) -> list[str]:
    """The public functions and classes of a module, without what the contract asks of every method."""
    hidden = ["_.*", "losses", "loss", "update", "init", "losses_and_gradients", "formula", "instead"]
    hidden += ["name", "title", "reference", "kind", "memory", "cost", "assumes", "use_when"]
    filters = ", ".join(f'"!^{name}$"' for name in hidden)
    options = f"    options:\n      heading_level: 3\n      filters: [{filters}]"
    return [f"::: {module}.{name}\n{options}" for name in public_names(module)]


def results_of(name: str) -> list[str]:
    """Paragraphs and tables with the stored results of a method."""
    parts = []
    for table in TABLES:
        entries = [
            entry
            for entry in evidence().entries(table)
            if entry.mean is not None and build_method(entry.cell.row).name == name
        ]
        if entries:
            parts += [f"### {TABLES[table].title}", _paper_table(entries)]
    rows = [
        row
        for row in modern.row_results(modern.select_rows(), evidence().results)
        if row.mean is not None and row.row.spec.method.name == name
    ]
    if rows:
        parts += ["### Images trained with views", _modern_table(rows)]
    if not parts:
        return ["No stored results. `propall train digits --method " + name + "` tries it in seconds."]
    note = (
        "Test accuracy in percent, mean (standard deviation) over seeds or folds, next to the number in the "
        "paper [struski2022propall]. [The paper, reproduced](../reproduction.md) has all methods, the "
        "settings and the provenance of every run."
    ).replace("[struski2022propall]", references()["struski2022propall"].link)
    return [note, *parts]


def mean_and_deviation(mean: float | None, std: float | None) -> str:
    """As printed in tables: mean (deviation), two decimals."""
    if mean is None:
        return ""
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ({std:.2f})"


def _paper_table(entries: Sequence[CellResult]) -> str:
    if all(entry.cell.candidates is not None for entry in entries):
        return _table_by_candidates(entries)
    header = ["data", "measured", "published", "runs"]
    if len({entry.title for entry in entries}) > 1:
        header.insert(0, "setting")
    lines = [header, ["---" if name in ("setting", "data") else "--:" for name in header]]
    for entry in entries:
        published = mean_and_deviation(*entry.published) if entry.published else ""
        line = [DATASETS[entry.cell.data].title, mean_and_deviation(entry.mean, entry.std), published]
        line.append(f"{entry.runs} of {entry.expected}")
        lines.append([entry.title, *line] if header[0] == "setting" else line)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _table_by_candidates(entries: Sequence[CellResult]) -> str:
    """A row per number of candidates, a column per data set."""
    data = list(dict.fromkeys(entry.cell.data for entry in entries))
    lines = [["candidates", *(DATASETS[name].title for name in data)], ["--:"] * (1 + len(data))]
    for number in sorted({entry.cell.candidates or 0 for entry in entries}):
        line = [str(number)]
        for name in data:
            cell = next((e for e in entries if e.cell.data == name and e.cell.candidates == number), None)
            published = f" / {cell.published[0]:.2f}" if cell and cell.published else ""
            line.append(f"{cell.mean:.2f}{published}" if cell and cell.mean is not None else "")
        lines.append(line)
    runs = sorted({f"{entry.runs} of {entry.expected}" for entry in entries})
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"Measured / published; runs: {', '.join(runs)}.\n\n{table}"


def _modern_table(rows: Sequence[modern.RowResult]) -> str:
    lines = ["| candidate sets | network | epochs | measured | runs |", "| --- | --- | --: | --: | --: |"]
    for result in rows:
        spec, title = result.row.spec, result.row.law.title
        data = "" if spec.data == "cifar10n" else f"{DATASETS[spec.data].title}, "
        accuracy = mean_and_deviation(result.mean, result.std)
        runs = f"{len(result.results)} of {len(result.keys)}"
        cells = [data + title, NETS[spec.net].title, str(spec.recipe.epochs), accuracy, runs]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def index_page() -> str:
    """The list of methods by kind, with links."""
    parts = [
        "# All methods",
        "One page per method, generated from its file, its reference and the stored results. "
        "[Methods](../methods.md) has the settings for views and for pruning.",
    ]
    for kind in dict.fromkeys(method.kind for method in METHODS.values()):
        rows = ["| method | use it | assumes |", "| --- | --- | --- |"]
        for name, method in METHODS.items():
            if method.kind == kind:
                cells = [f"[{method.title}]({name}.md)", method.use_when, method.assumes]
                rows.append(f"| {' | '.join(cells)} |")
        parts += [f"## {kind.capitalize()}", "\n".join(rows)]
    return "\n\n".join(parts) + "\n"

"""Replaces `{{ expression }}` on a page by a number from `results/` or `benchmarks/`, so that none is typed.

Names in an expression are the keys of `NAMES`. Code is not looked into.
"""

import csv
import functools
import json
import re
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import base_losses
import comparison
import headline
import jinja2
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

from propall import __version__
from propall.methods import METHODS

ROOT = Path(__file__).resolve().parents[2]

_EXPRESSION = re.compile(r"\{\{(.+?)\}\}", re.DOTALL)
_CODE = re.compile(r"(^ *(?P<fence>```+).*?^ *(?P=fence) *$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Runs:
    """Some runs of `results/`; accuracies in percent with two decimals."""

    rows: list[dict[str, str]]

    def _values(self, column: str) -> list[float]:
        return [float(row[column]) for row in self.rows]

    @property
    def accuracy(self) -> str:
        """Mean test accuracy after the last epoch."""
        return f"{100 * statistics.fmean(self._values('accuracy')):.2f}"

    @property
    def std(self) -> str:
        """Sample standard deviation of the accuracy."""
        return f"{100 * statistics.stdev(self._values('accuracy')):.2f}"

    @property
    def seconds(self) -> str:
        """Mean time of a run with evaluation, in whole seconds."""
        return f"{statistics.fmean(self._values('seconds')):.0f}"

    @property
    def candidates(self) -> str:
        """Mean number of candidates per row."""
        return f"{statistics.fmean(self._values('candidates')):.2f}"

    def __len__(self) -> int:
        return len(self.rows)

    def __getattr__(self, column: str) -> str:
        values = list(dict.fromkeys(row[column] for row in self.rows))
        return ", ".join(values)


@functools.cache
def _table(name: str) -> list[dict[str, str]]:
    with (ROOT / "results" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def result(cell: str, **columns: object) -> Runs:
    """The runs of a cell, such as `modern/uniform-0.5` or `uniform/mnist/propall`.

    Args:
        cell: as in the column `cell` of `results/TABLE.csv`.
        columns: values that other columns must have, such as `method="propall"`.
    """
    rows = [
        row
        for row in _table(cell.partition("/")[0])
        if row["cell"] == cell and all(row[name] == str(value) for name, value in columns.items())
    ]
    if not rows:
        raise LookupError(f"result: no run has cell {cell!r} and {columns}.")
    return Runs(rows)


def stored(path: str) -> Any:
    """A file of the repository: JSON, or the rows of a CSV file as dictionaries."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines())) if path.endswith(".csv") else json.loads(text)


def benchmark(name: str, subject: str, case: str = "") -> dict[str, Any]:
    """A measurement of `benchmarks/NAME.json`: its `value`, `ratio` and `more`.

    Args:
        name: of the file, without `.json`.
        subject: its `what`, or the beginning of it.
        case: its `case`, or the beginning of it.
    """
    for line in stored(f"benchmarks/{name}.json")["lines"]:
        if line["what"].startswith(subject) and line["case"].startswith(case):
            return dict(line)
    raise LookupError(f"benchmark: {name}.json has no measurement of {subject!r} in {case!r}.")


NAMES = {
    "result": result,
    "stored": stored,
    "benchmark": benchmark,
    "methods": METHODS,
    "published_tables": comparison.published_tables,
    "methods_table": comparison.methods_table,
    "ranking_note": comparison.ranking_note,
    "digits_hours": comparison.digits_hours,
    "annotator_table": comparison.annotator_table,
    "base_losses_table": base_losses.base_losses_table,
    "base_losses_summary": base_losses.base_losses_summary,
    "paired_classes_table": base_losses.paired_classes_table,
    "head_starts_table": base_losses.head_starts_table,
    "balance_term_table": base_losses.balance_term_table,
    "lost_classes": base_losses.lost_classes,
    "teacher_classes_table": base_losses.teacher_classes_table,
    "teacher_gaps": base_losses.teacher_gaps,
    "annotator_bars": headline.annotator_bars,
    "image_bars": headline.image_bars,
    "table_bars": headline.table_bars,
    "speed_sentence": headline.speed_sentence,
    "version": __version__,
}


def fill_in(markdown: str) -> str:
    """Replace the expressions outside of code.

    Raises:
        ValueError: for an expression that has no value.
    """
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)

    def evaluate(match: re.Match[str]) -> str:
        try:
            return environment.from_string(match[0]).render(NAMES)
        except Exception as error:
            raise ValueError(f"{match[0]}: {error}") from error

    parts, end = [], 0
    for code in _CODE.finditer(markdown):
        parts += [_EXPRESSION.sub(evaluate, markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, _EXPRESSION.sub(evaluate, markdown[end:])])


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in the numbers of a page."""
    try:
        return fill_in(markdown)
    except ValueError as error:
        raise ValueError(f"{page.file.src_uri}: {error}") from error

"""What several people answered, to candidates: votes, annotators' columns, Label Studio exports."""

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from propall.labels.parsing import (
    Marks,
    described,
    entries,
    is_blank,
    is_collection,
    is_frame,
    mark,
    numbers,
    read_matrix,
    refuse_rows,
)
from propall.wording import listed

#: Which labels stay: all with a vote, those with the most votes, or those with at least so many.
Rule = Literal["union", "plurality"] | int

#: What one row's annotators answered: for each answer, the labels in it.
Answers = Sequence[Sequence[Sequence[Hashable]]]


def chosen(counts: NDArray[np.int64], rule: Rule) -> NDArray[np.bool_]:
    """Which labels a rule keeps; a row without a vote keeps none."""
    named: NDArray[np.bool_] = counts > 0
    if rule == "union":
        return named
    if rule == "plurality":
        most: NDArray[np.bool_] = counts == counts.max(1, keepdims=True)
        return named & most
    if isinstance(rule, bool) or not isinstance(rule, int | np.integer) or rule < 1:
        raise ValueError(f"rule: {rule!r}; expected 'union', 'plurality' or a number of votes of at least 1.")
    agreed = counts >= rule
    # Where nobody agrees enough, the disagreement itself is all that is known.
    kept: NDArray[np.bool_] = np.where(agreed.any(1, keepdims=True), agreed, named)
    return kept


def read_counts(counts: Any, classes: Iterable[Hashable] | None, rule: Rule, parameter: str) -> Marks:
    """A matrix of votes, a column per class."""
    values = numbers(counts, parameter)
    bad = ~(np.isfinite(values) & (values >= 0) & (values == np.floor(values)))
    refuse_rows(
        bad.any(1),
        parameter,
        ("holds what is no count", "hold what is no count"),
        "votes are whole numbers from 0 on. Round scores first, or use from_matrix with a threshold.",
        lambda row: f"{values[row][bad[row]][0]:g} in column {int(bad[row].argmax())}",
    )
    kept = chosen(values.astype(np.int64), rule)
    if not is_frame(counts):
        return read_matrix(kept, classes, parameter)
    # A frame of the same type as came, so that the names of its columns are read as everywhere else.
    return read_matrix(_Named(list(counts.columns), kept), classes, parameter)


class _Named:
    """A matrix with named columns: as much of a data frame as reading one needs."""

    def __init__(self, columns: list[Hashable], values: NDArray[Any]) -> None:
        self.columns, self._values = columns, values

    def to_numpy(self) -> NDArray[Any]:
        return self._values


def read_answers(
    answers: Any, classes: Iterable[Hashable] | None, rule: Rule, parameter: str, *, items: Any = None
) -> Marks:
    """A column per annotator, or one answer per entry with the item it belongs to."""
    rows = _table_of_answers(answers, parameter) if items is None else _by_item(answers, items, parameter)
    return tallied([[_one_answer(cell) for cell in row] for row in rows], classes, rule, parameter)


def tallied(answers: Answers, classes: Iterable[Hashable] | None, rule: Rule, parameter: str) -> Marks:
    """The candidates of each row from its answers; an answer counts a label once."""
    said = [Counter(chain.from_iterable(map(dict.fromkeys, row))) for row in answers]
    labels = list(chain.from_iterable(said))
    rows = np.repeat(np.arange(len(said)), [len(row) for row in said])
    named = mark(labels, rows, len(said), classes, parameter)
    place = {name: column for column, name in enumerate(named.classes)}
    counts = np.zeros(named.mask.shape, dtype=np.int64)
    for row, own in enumerate(said):
        for label, times in own.items():
            counts[row, place[label]] = times
    return Marks(torch.from_numpy(chosen(counts, rule)), named.classes)


def _one_answer(cell: Any) -> Sequence[Hashable]:
    if is_collection(type(cell)):
        return list(cell)
    return () if is_blank(cell) else (cell,)


def _table_of_answers(answers: Any, parameter: str) -> list[Sequence[Any]]:
    """Rows of answers, whatever they came in."""
    if is_frame(answers):
        columns = [entries(answers[name], parameter) for name in answers.columns]
    elif isinstance(answers, Mapping):
        columns = [entries(column, parameter) for column in answers.values()]
    else:
        if isinstance(answers, Tensor):
            answers = answers.detach().cpu().numpy()
        rows = answers.tolist() if isinstance(answers, np.ndarray) else list(answers)
        alone = np.array([not is_collection(type(row)) for row in rows], dtype=bool)
        refuse_rows(
            alone,
            parameter,
            ("is no list of answers", "are no lists of answers"),
            "a row holds one entry per annotator. For one answer per entry pass items=, the instance each "
            "belongs to.",
            lambda row: described(rows[row]),
            TypeError,
        )
        return rows
    lengths = {len(column) for column in columns}
    if len(lengths) != 1:
        raise ValueError(
            f"{parameter}: annotators' columns have {listed(sorted(lengths))} entries; give each one per "
            "instance, None where there is no answer."
        )
    return list(zip(*columns, strict=True))


def _by_item(answers: Any, items: Any, parameter: str) -> list[Sequence[Any]]:
    given, of = entries(answers, parameter), entries(items, "items")
    if len(given) != len(of):
        raise ValueError(f"items: {len(of)} for {len(given)} {parameter}; give one for each.")
    unnamed = np.array([is_blank(item) for item in of], dtype=bool)
    refuse_rows(
        unnamed,
        "items",
        ("names no item", "name no item"),
        "every answer belongs to an instance. Drop these answers.",
    )
    by_item: dict[Hashable, list[Any]] = {}
    for item, answer in zip(of, given, strict=True):
        by_item.setdefault(item, []).append(answer)
    return list(by_item.values())


def label_studio_tasks(export: Any, parameter: str) -> list[dict[str, Any]]:
    """The tasks of an export, from its list, its text or its file."""
    if isinstance(export, Path) or (isinstance(export, str) and not export.lstrip().startswith("[")):
        export = Path(export).read_text(encoding="utf-8")
    if isinstance(export, str):
        try:
            export = json.loads(export)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"{parameter}: not JSON ({error}); export the project as JSON, not as JSON-MIN or CSV."
            ) from error
    if not isinstance(export, Sequence) or not all(isinstance(task, Mapping) for task in export):
        raise TypeError(f"{parameter}: {described(export)}; expected a list of tasks.")
    if not export:
        raise ValueError(f"{parameter}: there are no tasks; export a project that has some.")
    bad = np.array(["annotations" not in task and "completions" not in task for task in export])
    refuse_rows(
        bad,
        parameter,
        ("is a task without annotations", "are tasks without annotations"),
        "every task has a list of them, empty or not. Export the project as JSON, not as JSON-MIN or CSV.",
    )
    return [dict(task) for task in export]


def label_studio_answers(tasks: Sequence[Mapping[str, Any]], name: str | None, parameter: str) -> Answers:
    """For each task one answer per annotation that was not skipped: the choices in it."""
    results = [
        [
            [result for result in annotation.get("result", ()) if result.get("type") == "choices"]
            for annotation in task.get("annotations", task.get("completions", ()))
            if not (annotation.get("was_cancelled") or annotation.get("skipped"))
        ]
        for task in tasks
    ]
    found = list(dict.fromkeys(r["from_name"] for task in results for own in task for r in own))
    if not found:
        raise ValueError(f"{parameter}: no annotation holds choices; only those are labels of a whole task.")
    if name is None and len(found) > 1:
        raise ValueError(f"name: the tasks have the choices {listed(found)}; say which to read with name=.")
    if name is not None and name not in found:
        raise ValueError(f"name: {name!r} names no choices of the tasks; they have {listed(found)}.")
    wanted = found[0] if name is None else name
    return [
        [
            [
                choice
                for result in own
                if result["from_name"] == wanted
                for choice in result["value"]["choices"]
            ]
            for own in task
        ]
        for task in results
    ]

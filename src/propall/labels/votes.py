"""Combine the answers of several annotators: vote counts, annotator columns, Label Studio exports."""

import json
from collections.abc import Hashable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from propall.input_files import read_input
from propall.labels.inputs import (
    Classes,
    describe_type,
    is_blank,
    is_collection,
    is_frame,
    reject_rows,
    row_entries,
)
from propall.labels.parsing import ParsedLabels, build_mask, name_columns, to_float_matrix
from propall.wording import list_names

#: Which labels are kept: all with a vote, those with the most votes, or those with at least so many votes.
Rule = Literal["union", "plurality"] | int

#: The answers on each row, each a list of labels.
Answers = Sequence[Sequence[Sequence[Hashable]]]


def apply_rule(counts: NDArray[np.int64], rule: Rule) -> NDArray[np.bool_]:
    """Return which labels a rule keeps; a row without votes keeps none."""
    voted: NDArray[np.bool_] = counts > 0
    if rule == "union":
        return voted
    if rule == "plurality":
        most: NDArray[np.bool_] = counts == counts.max(1, keepdims=True)
        return voted & most
    if isinstance(rule, bool) or not isinstance(rule, int | np.integer) or rule < 1:
        raise ValueError(
            f"rule: got {rule!r}; expected 'union', 'plurality' or a number of votes of at least 1."
        )
    agreed = counts >= rule
    # Without agreement, every answer remains possible.
    kept: NDArray[np.bool_] = np.where(agreed.any(1, keepdims=True), agreed, voted)
    return kept


def is_count(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether each value is a non-negative integer."""
    valid: NDArray[np.bool_] = np.isfinite(values) & (values >= 0) & (values == np.floor(values))
    return valid


def read_counts(counts: Any, classes: Classes, rule: Rule, parameter: str) -> ParsedLabels:
    """Read a matrix of vote counts with one column per class."""
    values = to_float_matrix(counts, parameter)
    bad = ~is_count(values)
    reject_rows(
        bad.any(1),
        parameter,
        ("has values that are not counts", "have values that are not counts"),
        "votes must be non-negative integers. Round scores first, or use from_matrix with a threshold.",
        lambda row: f"{values[row][bad[row]][0]:g} in column {int(bad[row].argmax())}",
    )
    mask = torch.from_numpy(apply_rule(values.astype(np.int64), rule))
    return name_columns(mask, list(counts.columns) if is_frame(counts) else None, classes, parameter)


def read_answers(
    answers: Any, classes: Classes, rule: Rule, parameter: str, *, items: Any = None
) -> ParsedLabels:
    """Read one column per annotator, or one answer per entry with the item it belongs to."""
    rows = _answer_rows(answers, parameter) if items is None else _group_by_item(answers, items, parameter)
    return tally([[_labels_in(cell) for cell in row] for row in rows], classes, rule, parameter)


def tally(answers: Answers, classes: Classes, rule: Rule, parameter: str) -> ParsedLabels:
    """Count votes and apply the rule; an answer counts each label once."""
    votes = [
        (row, label) for row, cells in enumerate(answers) for cell in cells for label in dict.fromkeys(cell)
    ]
    rows = np.array([row for row, _ in votes], dtype=np.int64)
    mask, names, _ = build_mask([label for _, label in votes], rows, len(answers), classes, parameter)
    column = {name: i for i, name in enumerate(names)}
    counts = np.zeros(mask.shape, dtype=np.int64)
    for row, label in votes:
        counts[row, column[label]] += 1
    return ParsedLabels(torch.from_numpy(apply_rule(counts, rule)), names)


def _labels_in(cell: Any) -> Sequence[Hashable]:
    if is_collection(type(cell)):
        return list(cell)
    return () if is_blank(cell) else (cell,)


def _answer_rows(answers: Any, parameter: str) -> list[Sequence[Any]]:
    if is_frame(answers):
        columns = [row_entries(answers[name], parameter) for name in answers.columns]
    elif isinstance(answers, Mapping):
        columns = [row_entries(column, parameter) for column in answers.values()]
    else:
        if isinstance(answers, Tensor):
            answers = answers.detach().cpu().numpy()
        rows = answers.tolist() if isinstance(answers, np.ndarray) else list(answers)
        reject_rows(
            [not is_collection(type(row)) for row in rows],
            parameter,
            ("is not a list of answers", "are not lists of answers"),
            "a row needs one entry per annotator. For one answer per entry, pass the instance of each as "
            "items=.",
            lambda row: describe_type(rows[row]),
            TypeError,
        )
        return rows
    lengths = {len(column) for column in columns}
    if len(lengths) != 1:
        raise ValueError(
            f"{parameter}: annotators' columns have {list_names(sorted(lengths))} entries; expected one per "
            "instance, None if there is no answer."
        )
    return list(zip(*columns, strict=True))


def _group_by_item(answers: Any, items: Any, parameter: str) -> list[Sequence[Any]]:
    answer_list, item_list = row_entries(answers, parameter), row_entries(items, "items")
    if len(answer_list) != len(item_list):
        raise ValueError(
            f"items: got {len(item_list)} for {len(answer_list)} {parameter}; pass one for each."
        )
    reject_rows(
        list(map(is_blank, item_list)),
        "items",
        ("has no item", "have no item"),
        "every answer must belong to an instance. Drop these answers.",
    )
    by_item: dict[Hashable, list[Any]] = {}
    for item, answer in zip(item_list, answer_list, strict=True):
        by_item.setdefault(item, []).append(answer)
    return list(by_item.values())


def label_studio_tasks(export: Any, parameter: str) -> list[dict[str, Any]]:
    """Read the tasks of an export from a list, its text or its file."""
    if isinstance(export, Path) or (isinstance(export, str) and not export.lstrip().startswith("[")):
        data = read_input(Path(export), parameter)
        try:
            export = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{parameter}: it is not UTF-8 (byte {error.start + 1}); export it again."
            ) from error
    if isinstance(export, str):
        try:
            export = json.loads(export)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{parameter}: not JSON ({error}); export the project as JSON, not as JSON-MIN or CSV."
            ) from error
    if not isinstance(export, Sequence) or not all(isinstance(task, Mapping) for task in export):
        raise TypeError(f"{parameter}: got {describe_type(export)}; expected a list of tasks.")
    if not export:
        raise ValueError(f"{parameter}: there are no tasks; export a project that has some.")
    reject_rows(
        ["annotations" not in task and "completions" not in task for task in export],
        parameter,
        ("is a task without annotations", "are tasks without annotations"),
        "every task needs a list of them, even if empty. Export the project as JSON, not as JSON-MIN or CSV.",
    )
    for number, task in enumerate(export, 1):
        if problem := _task_problem(task):
            raise ValueError(
                f"{parameter}: task {number}: {problem}. Correct it, or export the project again as JSON."
            )
    return [dict(task) for task in export]


def _task_problem(task: Mapping[str, Any]) -> str:
    """Return what is wrong with the structure of a task; empty if nothing is."""
    key = "annotations" if "annotations" in task else "completions"
    annotations = task[key]
    if not isinstance(annotations, list | None):
        return f"{key} is {describe_type(annotations)}; expected a list"
    for annotation in annotations or ():
        if not isinstance(annotation, Mapping):
            return f"an annotation is {describe_type(annotation)}; expected an object"
        results = annotation.get("result")
        if not isinstance(results, list | None):
            return f"result is {describe_type(results)}; expected a list"
        for result in results or ():
            if not isinstance(result, Mapping):
                return f"an entry of result is {describe_type(result)}; expected an object"
            if result.get("type") == "choices" and (problem := _choices_problem(result)):
                return problem
    return ""


def _choices_problem(result: Mapping[str, Any]) -> str:
    name, value = result.get("from_name"), result.get("value")
    if not isinstance(name, str) or not name:
        return f"from_name is {name!r}; expected the name of the choices"
    chosen = value.get("choices") if isinstance(value, Mapping) else None
    if not isinstance(chosen, list) or not all(isinstance(label, str) and label.strip() for label in chosen):
        return f"the choices {name!r} are {value!r:.80}; expected a list of labels"
    return ""


def completed_annotations(task: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the annotations of a Label Studio task that were not skipped."""
    annotations = task.get("annotations", task.get("completions")) or ()
    return [a for a in annotations if not (a.get("was_cancelled") or a.get("skipped"))]


def label_studio_names(tasks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names (`from_name`) of all choices in completed annotations."""
    annotations = chain.from_iterable(map(completed_annotations, tasks))
    return list(dict.fromkeys(choice["from_name"] for a in annotations for choice in _choices(a)))


def label_studio_answers(tasks: Sequence[Mapping[str, Any]], name: str | None, parameter: str) -> Answers:
    """Return the labels chosen in each completed annotation of each task."""
    names = label_studio_names(tasks)
    if not names:
        raise ValueError(f"{parameter}: no annotation has choices; only those label a whole task.")
    if name is None and len(names) > 1:
        raise ValueError(f"name: the tasks have the choices {list_names(names)}; select one with name=.")
    if name is not None and name not in names:
        raise ValueError(f"name: the tasks have no choices {name!r}; they have {list_names(names)}.")
    selected = names[0] if name is None else name
    return [
        [
            [label for c in _choices(a) if c["from_name"] == selected for label in c["value"]["choices"]]
            for a in completed_annotations(task)
        ]
        for task in tasks
    ]


def label_studio_annotators(tasks: Sequence[Mapping[str, Any]]) -> list[list[str]] | None:
    """Return who made each completed annotation; None if that is missing for any."""
    users = [[a.get("completed_by") for a in completed_annotations(task)] for task in tasks]
    names = [[u.get("email", u.get("id")) if isinstance(u, dict) else u for u in row] for row in users]
    if any(name is None for row in names for name in row):
        return None
    return [[str(name) for name in row] for row in names]


def _choices(annotation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [result for result in annotation.get("result") or () if result.get("type") == "choices"]

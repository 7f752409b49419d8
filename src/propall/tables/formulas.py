"""Text cells of CSV files that a spreadsheet program would run as formulas.

CSV has no way to say that a cell is text. In the columns that propall writes, a text that begins like a
formula gets an apostrophe in front, and loses it when propall reads the file. A person's own columns stay as
they are: another program would read the apostrophe as part of the value. They are noted instead.
"""

import re
from collections.abc import Callable
from typing import Any

import pandas as pd

from propall.tables.arrow_text import begins_with, is_arrow_text
from propall.wording import guard_formula, unguard_formula

#: Prefix of columns that propall adds, so that they do not clash with the table's columns.
PREFIX = "propall_"
#: Columns that are added to a table; `p_` and the name of a class stand for the probability of that class.
ANSWERS = ("label", "probability", "margin", "doubt", "alternatives", "note", "by")
_ANSWER_COLUMN = re.compile(rf"{PREFIX}({'|'.join(ANSWERS)}|p_.*)(_\d+)?", re.DOTALL)
#: A formula, a function call or a call of another program (`+cmd|'/C ...'!A0`); not a phone number or a name.
_CALL = re.compile(r"=.|[+\-@]\w+([(!]|\|.*!)", re.DOTALL)


def is_answer_column(name: str) -> bool:
    """Whether a column has the name of one that `resolve` or `predict` adds, and so is no feature."""
    return _ANSWER_COLUMN.fullmatch(name) is not None


def guard_answers(frame: pd.DataFrame) -> pd.DataFrame:
    """Guard the columns that propall added."""
    return map_columns(frame, guard_formula, _answer_columns(frame))


def unguard_answers(frame: pd.DataFrame) -> pd.DataFrame:
    """Undo `guard_answers`."""
    return map_columns(frame, unguard_formula, _answer_columns(frame))


def _answer_columns(frame: pd.DataFrame) -> list[Any]:
    return [name for name in frame.columns if is_answer_column(str(name))]


def map_columns(frame: pd.DataFrame, function: Callable[[str], str], names: list[Any]) -> pd.DataFrame:
    """Apply a function to the texts in some columns."""
    changed = {}
    for name in names:
        if frame[name].dtype.kind in "biufcmM":
            continue
        cells = [function(cell) if isinstance(cell, str) else cell for cell in frame[name]]
        changed[name] = pd.Series(cells, index=frame.index, dtype=object)
    return frame.assign(**changed) if changed else frame


def find_formulas(frame: pd.DataFrame) -> dict[str, tuple[str, list[int]]]:
    """Return the columns in which cells begin like formulas, with an example and the rows."""
    found = {}
    for name in frame.columns:
        if is_answer_column(str(name)):
            continue
        column = frame[name]
        if is_arrow_text(column):
            column = column[begins_with(column, "=+-@")]
        calls = [isinstance(cell, str) and _CALL.match(cell) is not None for cell in column]
        if any(calls):
            found[str(name)] = (column[calls].iloc[0], column.index[calls].tolist())
    return found


def may_have_formulas(text: str) -> bool:
    """Whether the text of a CSV file may hold a formula; a quick test that most tables of numbers fail."""
    return "=" in text or (("+" in text or "-" in text or "@" in text) and ("(" in text or "!" in text))

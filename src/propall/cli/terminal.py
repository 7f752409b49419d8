"""Options and terminal output that the commands share."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

import typer

from propall.wording import printable

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
#: Line width of output that is not a terminal.
PIPED_WIDTH = 160
Device = Annotated[str, typer.Option(help="auto (a GPU if available), cpu, cuda, cuda:1, ...")]


def open_console(*, stderr: bool = False) -> Any:
    """Open a console; output that is piped or redirected is wrapped at `PIPED_WIDTH` only."""
    from rich.console import Console

    console = Console(stderr=stderr)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    return console


def print_line(text: str = "", **style: Any) -> None:
    """Print text literally, without markup and control characters; the terminal wraps the lines."""
    line = printable(text)
    open_console().print(line, highlight=False, markup=False, emoji=False, soft_wrap=True, **style)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], numbers: slice = slice(0)) -> None:
    """Print a table without borders; the columns in `numbers` are right-aligned, and cells are literal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    right = range(len(columns))[numbers]
    for i, column in enumerate(columns):
        justify: Literal["left", "right"] = "right" if i in right else "left"
        table.add_column(Text(printable(column)), justify=justify, no_wrap=column == "name")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(printable(str(cell))) for cell in row))
    open_console().print(table, highlight=False)


def print_json(value: Any) -> None:
    """Print a value as JSON, with paths as text."""
    typer.echo(json.dumps(value, indent=2, default=str))


def print_note(line: str) -> None:
    """Print a line to standard error, so that standard output holds only the result."""
    typer.echo(printable(line), err=True)


def split_words(text: str) -> list[str]:
    """Split text at commas; double quotes protect a comma, as in a CSV file."""
    lines = csv.reader(io.StringIO(text, newline=None), skipinitialspace=True)
    return [word.strip() for words in lines for word in words if word.strip()]


def join_words(words: Iterable[str]) -> str:
    """Join words with commas, as `split_words` reads them."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(list(words))
    return line.getvalue()

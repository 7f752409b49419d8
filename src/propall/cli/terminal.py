"""What commands share: options, and how text is put on a terminal."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of a table.")]
PIPED_WIDTH = 160
Device = Annotated[str, typer.Option(help="auto (a GPU where there is one), cpu, cuda, cuda:1, ...")]


def open_console(*, stderr: bool = False) -> Any:
    """A console to print on; piped output is not wrapped at a terminal's edge."""
    from rich.console import Console

    console = Console(stderr=stderr)
    if not console.is_terminal:
        console.width = PIPED_WIDTH  # a file has no edge to wrap at
    return console


def plain_table(*columns: str, numbers: Iterable[str] = ()) -> Table:
    """A table without borders; the columns named in `numbers` are set right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    numeric = set(numbers)
    for column in columns:
        table.add_column(column, justify="right" if column in numeric else "left", no_wrap=column == "name")
    return table


def print_json(value: Any) -> None:
    """Print for programs."""
    typer.echo(json.dumps(value, indent=2))


def note_aside(line: str) -> None:
    """A remark beside the result: it goes where errors go."""
    typer.echo(line, err=True)


def split_words(text: str) -> list[str]:
    """Words between commas; one that holds commas itself stands in double quotes, as in a CSV file."""
    lines = csv.reader(io.StringIO(text, newline=None), skipinitialspace=True)
    return [word.strip() for words in lines for word in words if word.strip()]


def join_words(words: Iterable[str]) -> str:
    """What `split_words` reads as these words."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(list(words))
    return line.getvalue()

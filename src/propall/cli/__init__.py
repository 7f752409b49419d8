"""The command line: translates words into calls of the library and prints the results.

These modules import only typer at the top, so that `--help` is fast: torch and the rest are imported by the
commands that need them.
"""

# In the order in which `propall --help` lists the commands.
from propall.cli import catalog, doctor, tables, paper, bench  # isort: skip  # noqa: F401
from propall.cli.app import app, main

__all__ = ["app", "main"]

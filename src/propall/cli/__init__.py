"""Words on the command line to calls, and what they return to text. No logic of its own.

Of other libraries these modules import typer alone: torch and the rest wait until a command needs them, so
--help is quick.
"""

# In the order in which `propall --help` lists their commands.
from propall.cli import catalog, tables, paper, report, bench  # isort: skip  # noqa: F401
from propall.cli.app import app, main

__all__ = ["app", "bench", "experiments", "learning", "main", "people", "report"]

"""The command-line application that the other modules add commands to."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from propall.cli.terminal import open_console

app = typer.Typer(
    name="propall",
    help="Learn from ambiguous labels: partial and complementary labels.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

#: Exit status of a command interrupted by Ctrl-C.
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an error is printed as one line, or with its traceback after `--debug`."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    if debug:
        words.remove("--debug")
    try:
        app(args=words, prog_name="propall")
    except (ValueError, OSError, KeyError, RuntimeError) as error:
        if debug:
            raise
        open_console(stderr=True).print(f"error: {error}", style="bold red", highlight=False, markup=False)
        raise SystemExit(1) from None
    except (KeyboardInterrupt, SystemExit) as stop:
        # Typer may turn an interrupt into this exit status without printing anything.
        if isinstance(stop, SystemExit) and stop.code != INTERRUPTED:
            raise
        open_console(stderr=True).print("Interrupted; finished work is kept.", highlight=False)
        raise SystemExit(INTERRUPTED) from None


def _print_version(requested: bool) -> bool:
    if requested:
        from propall import __version__

        typer.echo(f"propall {__version__}")
        raise typer.Exit
    return requested


@app.callback()
def _global_options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Declare the global options; `main` has removed `--debug` before typer parses the words."""

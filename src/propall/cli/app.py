"""The application that commands are added to, and how it is run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from propall.cli.terminal import open_console

app = typer.Typer(
    name="propall",
    help="Learn from labels that are not certain: partial and complementary labels.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

#: The status a shell gives a command that was stopped by Ctrl-C.
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; errors are one line, with `--debug` a traceback."""
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
        # Typer itself may turn an interrupt into this status, without a word.
        if isinstance(stop, SystemExit) and stop.code != INTERRUPTED:
            raise
        open_console(stderr=True).print("stopped; finished work is kept.", highlight=False)
        raise SystemExit(INTERRUPTED) from None


def _show_version(wanted: bool) -> bool:
    if wanted:
        from propall import __version__

        typer.echo(f"propall {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Options of every command; `main` takes --debug out before it gets here."""

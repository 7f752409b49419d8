"""The command-line application that the other modules add commands to."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from propall.cli.terminal import open_console
from propall.wording import printable


def _without_types_of_flags(parameters: list[Any]) -> list[Any]:
    """Parameters whose help does not show `<bool>` beside a flag, which takes no value."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


class Command(TyperCommand):
    """A command whose help shows types of options that take a value."""

    #: Help and default of the keys of `--options` that have no flag.
    settings: ClassVar[dict[str, tuple[str, str]]] = {}

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, `--help` among them."""
        return _without_types_of_flags(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words; an option that takes one value may be given once, else the last would count."""
        if not ctx.resilient_parsing:  # completion sees unfinished words
            given: list[Any] = self.make_parser(ctx).parse_args(args=list(args))[2]
            for option in given:
                if given.count(option) > 1 and not (option.multiple or option.count or option.is_flag):
                    ctx.fail(f"{max(option.opts, key=len)} was given twice; it takes one value.")
        return super().parse_args(ctx, args)


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types_of_flags(super().get_params(ctx))


class Application(typer.Typer):
    """An application, or a group of its commands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=_Group, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Any:
        """Add a command, of class `Command` unless `cls` is another."""
        return super().command(name, **{"cls": Command, **settings})


app = Application(
    name="propall",
    help="Learn from ambiguous labels: partial and complementary labels.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

#: Headings of `propall --help`.
FIRST_STEPS = "First steps"
OWN_TABLE = "Your own table"
EXPERIMENTS = "Experiments and benchmarks"

#: Errors whose message is written for the person at the terminal.
EXPECTED = (ValueError, OSError, KeyError, RuntimeError)
#: Kinds of these that Python raises by itself.
FOREIGN = (UnicodeError, NotImplementedError, RecursionError)
#: Exit status of a command interrupted by Ctrl-C.
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; errors and warnings are one line each.

    After `--debug` or with PROPALL_DEBUG=1, an error is a traceback and a warning says where it comes from.
    """
    # Threads that wait for each other sleep instead of spinning: on a busy machine a spinning thread keeps
    # the core that the other one needs, and training takes ten times as long. Read when torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    if debug:
        words.remove("--debug")
    debug = debug or os.environ.get("PROPALL_DEBUG", "") not in ("", "0")
    try:
        with warnings.catch_warnings():
            if not debug:
                warnings.showwarning = _print_warning
            app(args=words, prog_name="propall")
    except Exception as error:
        if debug:
            raise
        _print_to_stderr(f"error: {_describe(error)}", "bold red")
        raise SystemExit(1) from None
    except (KeyboardInterrupt, SystemExit) as stop:
        # Typer may turn an interrupt into this exit status without printing anything.
        if isinstance(stop, SystemExit) and stop.code != INTERRUPTED:
            raise
        open_console(stderr=True).print(
            "Interrupted; results that were already written are kept.", highlight=False
        )
        raise SystemExit(INTERRUPTED) from None


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning without the file, line and source that Python shows."""
    _print_to_stderr(f"warning: {' '.join(str(message).split())}", "yellow")


def _print_to_stderr(text: str, style: str) -> None:
    console = open_console(stderr=True)
    console.print(printable(text), style=style, highlight=False, markup=False, emoji=False)


def _describe(error: Exception) -> str:
    """Describe an error: our own by its message, any other also by its type and how to see its origin."""
    if isinstance(error, MemoryError):
        return "memory: not enough for this input. Use fewer rows, columns or classes, or a larger machine."
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}. Check the path, its permissions and the free space."
    text = str(error.args[0]) if type(error) is KeyError and error.args else str(error)
    foreign = not isinstance(error, EXPECTED) or isinstance(error, FOREIGN)
    # Our messages name an argument first: `rule: got ...`.
    if text and (re.match(r"[\w .\-]+: ", text) or not foreign) and " " in text:
        return text
    name = type(error).__name__
    return f"{name}{': ' if text else ''}{text}. PROPALL_DEBUG=1 shows where; please report it as a defect."


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

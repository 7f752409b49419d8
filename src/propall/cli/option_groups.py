"""Option groups: a dataclass whose fields are flags of a command, or settings for its `--options`.

Several commands can share a group, and a command takes it as one parameter. A field annotated with
`typer.Option` is a flag. A field annotated with `Setting` has no flag: it is set with `--options KEY=VALUE`,
or in a file passed to `--options`. Such a file may set flags too; the command line has priority.
"""

from __future__ import annotations

import inspect
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

from propall.cli.app import Command
from propall.cli.terminal import join_words, split_words
from propall.wording import did_you_mean

OptionSources = Annotated[
    list[str] | None,
    typer.Option(
        "--options",
        "-O",
        metavar="FILE|KEY=VALUE",
        help="A .toml or .json file of options, or one of the settings below; repeatable.",
        rich_help_panel="Settings",
    ),
]
#: Keys of all commands: a file may set options of several commands, and each uses its own.
_KNOWN_KEYS: set[str] = set()


@dataclass(frozen=True)
class Setting:
    """Marks a field that is set with `--options`: its help text, and the smallest number allowed."""

    help: str
    minimum: int = 0


@dataclass(frozen=True)
class _Option:
    """A field of a group."""

    key: str
    annotation: Any
    default: Any

    @property
    def mark(self) -> Setting | OptionInfo:
        mark: Setting | OptionInfo = get_args(self.annotation)[1]
        return mark

    @property
    def kind(self) -> Any:
        """The type of its value, without `None`."""
        kind = get_args(self.annotation)[0]
        return get_args(kind)[0] if isinstance(kind, UnionType) else kind

    @property
    def is_flag(self) -> bool:
        return isinstance(self.mark, OptionInfo)

    @property
    def flag(self) -> str:
        """The flag as it is typed."""
        declared = getattr(self.mark, "default", None)  # in annotations, typer has the first name there
        return declared if isinstance(declared, str) else f"--{self.key.replace('_', '-')}"


def grouped_command(
    app: typer.Typer, *, panel: str | None = None, hints: Mapping[str, str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a command to an application; its parameters that are dataclasses become groups of options.

    Args:
        app: the application.
        panel: heading of the command in the help of the application.
        hints: what to do if a flag is unknown or missing, by flag.
    """

    def add(command: Callable[..., None]) -> Callable[..., None]:
        types = get_type_hints(command, include_extras=True)
        groups: dict[str, Any] = {name: kind for name, kind in types.items() if is_dataclass(kind)}
        options = {option.key: option for group in groups.values() for option in _options_of(group)}
        has_settings = any(not option.is_flag for option in options.values())
        if has_settings:
            _KNOWN_KEYS.update(options)

        def run(**values: Any) -> None:
            settings = _read_sources(values.pop("options", None) or (), options)
            for key, option in options.items():
                if option.is_flag and (value := values.pop(key)) not in (option.default, None, []):
                    settings[key] = value
            for name, group in groups.items():
                keys = {option.key for option in _options_of(group)}
                values[name] = group(**{key: value for key, value in settings.items() if key in keys})
            try:
                command(**values)
            except ValueError as error:
                _name_flag(error, options)
                raise

        run.__name__, run.__module__ = command.__name__, command.__module__
        # Typer keeps the line breaks of a docstring; without them the terminal wraps its paragraphs.
        run.__doc__ = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(command) or "")
        signature = _expanded_signature(command, types, has_settings)
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {name: p.annotation for name, p in signature.parameters.items()}
        app.command(cls=_command_class(options, hints or {}), rich_help_panel=panel)(run)
        return command

    return add


def _options_of(group: Any) -> list[_Option]:
    types = get_type_hints(group, include_extras=True)
    return [_Option(field.name, types[field.name], field.default) for field in fields(group)]


def _expanded_signature(
    command: Callable[..., None], types: Mapping[str, Any], has_settings: bool
) -> inspect.Signature:
    """The parameters of a command with the flags of its groups in place of the groups, and `--options`."""
    parameters = []

    def add(name: str, annotation: Any, default: Any) -> None:
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(name, kind, default=default, annotation=annotation))

    for name, parameter in inspect.signature(command).parameters.items():
        if is_dataclass(types[name]):
            for option in _options_of(types[name]):
                if option.is_flag:
                    add(option.key, option.annotation, option.default)
        else:
            add(name, types[name], parameter.default)
    if has_settings:
        add("options", OptionSources, None)
    return inspect.Signature(parameters)


def _command_class(options: Mapping[str, _Option], hints: Mapping[str, str]) -> type[Command]:
    class GroupedCommand(Command):
        """Lists its settings in its help, and answers an unknown or missing flag with what to type."""

        settings = _described_settings(options)

        def format_help(self, ctx: Any, formatter: Any) -> None:
            super().format_help(ctx, formatter)
            _print_settings(self.settings)

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            try:
                return super().parse_args(ctx, args)
            except Exception as error:  # NoSuchOption or MissingParameter, of click or typer's copy of it
                parameter = getattr(error, "param", None)
                flag = getattr(error, "option_name", "") if parameter is None else parameter.opts[0]
                hint = hints.get(flag) or _setting_hint(flag, options)
                if hint:
                    message = getattr(error, "message", "")
                    vars(error).update(message=f"{message}. {hint}" if message else hint, possibilities=())
                raise

    return GroupedCommand


def _name_flag(error: ValueError, options: Mapping[str, _Option]) -> None:
    """Name the flag, where a message begins with the name of an argument that has another one."""
    argument, colon, rest = str(error).partition(":")
    option = options.get(argument)
    if colon and option is not None and option.is_flag and option.flag != f"--{argument}":
        error.args = (f"{option.flag}:{rest}", *error.args[1:])


def _described_settings(options: Mapping[str, _Option]) -> dict[str, tuple[str, str]]:
    """Help and default ("" without one) of the settings that have no flag, by key."""
    return {
        key: (option.mark.help, "" if option.default in (None, ()) else _as_text(option.default))
        for key, option in options.items()
        if isinstance(option.mark, Setting)
    }


def _print_settings(settings: Mapping[str, tuple[str, str]]) -> None:
    """Print the settings that have no flag as a panel of the help."""
    from rich.console import Console
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1, 0, 0))
    for key, (text, default) in settings.items():
        shown = f" [default: {default}]" if default else ""
        table.add_row(Text(key, style="bold cyan"), Text(text).append(shown, style="dim"))
    if table.row_count:
        Console().print(Panel(table, title="Settings for --options", title_align="left", border_style="dim"))


def _setting_hint(flag: str, options: Mapping[str, _Option]) -> str:
    """How to set an option that has no flag."""
    key = flag.lstrip("-").replace("-", "_")
    bare = key.removeprefix("no_")
    if bare not in options or options[bare].is_flag:
        return ""
    return f"Use --options {bare}={'VALUE' if bare == key else 'false'}."


def _read_sources(sources: Sequence[str], options: Mapping[str, _Option]) -> dict[str, Any]:
    """Read files and KEY=VALUE pairs; later ones have priority."""
    settings: dict[str, Any] = {}
    for source in sources:
        pair = re.fullmatch(r"([\w-]+)=(.*)", source, re.DOTALL)
        for name, value in ({pair[1]: pair[2]} if pair else _read_file(Path(source))).items():
            key = name.replace("-", "_")
            if key in options:
                if value is not None:
                    settings[key] = _convert(options[key], value)
            elif pair or key not in _KNOWN_KEYS:
                where = "" if pair else f" in {source}"
                hint = did_you_mean(key, options) or f"expected {', '.join(sorted(options))}."
                raise ValueError(f"options: unknown key {name!r}{where}; {hint}")
    return settings


def _read_file(path: Path) -> dict[str, Any]:
    suffix = path.suffix.lower()
    if suffix not in (".toml", ".json"):
        raise ValueError(f"options: {str(path)!r} is neither KEY=VALUE nor a .toml or .json file.")
    if not path.is_file():
        raise FileNotFoundError(f"options: {path} does not exist.")
    text = path.read_text(encoding="utf-8")
    try:
        values = tomllib.loads(text) if suffix == ".toml" else json.loads(text)
    except ValueError as error:
        raise ValueError(f"options: {path} is not valid {suffix[1:].upper()} ({error}).") from error
    if not isinstance(values, dict):
        raise ValueError(f"options: {path} holds a {type(values).__name__}; expected keys and values.")
    return values


def _convert(option: _Option, value: Any) -> Any:
    """Convert a value from a file or the command line to the type of its field."""
    kind, text = option.kind, str(value)
    if kind is bool:
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        expected = "true or false"
    elif kind is int:
        minimum = option.mark.minimum if isinstance(option.mark, Setting) else 0
        if re.fullmatch(r"\d+", text) and int(text) >= minimum:
            return int(text)
        expected = f"a whole number of at least {minimum}"
    elif get_origin(kind) is Literal:
        if value in get_args(kind):
            return value
        expected = " or ".join(get_args(kind))
    elif isinstance(value, dict | bool):
        expected = "text"
    elif get_origin(kind) in (tuple, list):
        return get_origin(kind)(map(str, value) if isinstance(value, list) else split_words(text))
    else:
        return kind(join_words(map(str, value)) if isinstance(value, list) else text)
    raise ValueError(f"options: {option.key} is {value!r}; expected {expected}.")


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return join_words(map(str, value)) if isinstance(value, tuple | list) else str(value)


def as_dict(*groups: Any) -> dict[str, Any]:
    """Convert groups to plain JSON that `--options` reads; unset options are left out."""
    values = {field.name: getattr(group, field.name) for group in groups for field in fields(group)}
    return {
        key: str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value
        for key, value in values.items()
        if value not in (None, (), [])
    }


def flags_of(group: Any) -> dict[str, Any]:
    """Return the values of the flags of a group, by the names that are typed."""
    return {option.flag: getattr(group, option.key) for option in _options_of(type(group)) if option.is_flag}


def as_words(group: Any) -> list[str]:
    """Write the options of a group that differ from their defaults as they are typed in a shell."""
    words = []
    for option in _options_of(type(group)):
        value = getattr(group, option.key)
        if value != option.default:
            text = _as_text(value)
            words += [option.flag, text] if option.is_flag else ["--options", f"{option.key}={text}"]
    return [shlex.quote(word) for word in words]

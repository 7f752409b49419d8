"""Writes the page of the command line from the commands themselves: what `--help` says, on one page."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import typer

from propall.cli import app

#: Path of the page.
PAGE = "commands.md"
_EXAMPLE = re.compile(r"^Example(?:, (?P<when>[^:]+))?: (?P<line>propall\b.*)$", re.DOTALL)
_BRACKETS = re.compile(r"  \[(?P<inside>[^\[\]]*)\]$")
INTRODUCTION = """\
# Command line

What `propall COMMAND --help` prints, for every command. Errors are one line; `propall --debug COMMAND` shows
where they come from. `propall --install-completion` makes the Tab key complete commands and options.
"""


@dataclass(frozen=True)
class Entry:
    """A command: the words that call it, typer's object, and the context in which it is called."""

    words: tuple[str, ...]
    command: Any
    context: Any

    @property
    def anchor(self) -> str:
        """Of its section on the page."""
        return "-".join(self.words[1:])

    @property
    def paragraphs(self) -> list[str]:
        """Its help without the examples."""
        return [text for text in self._texts() if not _EXAMPLE.match(text)]

    @property
    def examples(self) -> list[tuple[str, str]]:
        """Its examples: when to use one, or "", and its line."""
        matches = (_EXAMPLE.match(text) for text in self._texts())
        return [(match["when"] or "", match["line"]) for match in matches if match]

    @property
    def panel(self) -> str:
        """The heading of `propall --help` that it is listed under."""
        return _panel(self.command, "Commands")

    def parameters(self) -> dict[str, list[Any]]:
        """Its arguments and options by heading, in the order of `--help`, without `--help` itself."""
        panels: dict[str, list[Any]] = {}
        for parameter in self.command.get_params(self.context):
            if parameter.name != "help" and not getattr(parameter, "hidden", False):
                kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
                panels.setdefault(_panel(parameter, kind), []).append(parameter)
        return panels

    def _texts(self) -> list[str]:
        text = inspect.cleandoc(self.command.help or "")
        return [" ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph.strip()]


def _panel(thing: Any, otherwise: str) -> str:
    panel = getattr(thing, "rich_help_panel", None)
    return panel if isinstance(panel, str) else otherwise


def entries() -> list[Entry]:
    """All commands, those of a group after the group, in the order of `propall --help`."""

    def walk(command: Any, words: tuple[str, ...], parent: Any) -> Iterator[Entry]:
        context = command.context_class(command, info_name=words[-1], parent=parent)
        yield Entry(words, command, context)
        for name, child in getattr(command, "commands", {}).items():
            yield from walk(child, (*words, name), context)

    return list(walk(typer.main.get_command(app), ("propall",), None))


def code(text: str) -> str:
    """Text as code."""
    return f"`{text}`"


def _prose(text: str) -> str:
    """Help text as Markdown: what looks like markup is shown as it is."""
    prose_and_code = re.split(r"(`[^`]+`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([\\<*_\[\]|])", r"\\\1", part) for part in prose_and_code
    )


def _sentence(text: str) -> str:
    """Help text that ends with a period."""
    text = _prose(text.strip())
    return text if text.endswith((".", "...")) else f"{text}."


def parameter_entry(parameter: Any, context: Any) -> str:
    """An entry of a list: how it is written, and its help with default and range."""
    usage, text = parameter.get_help_record(context)
    facts = _BRACKETS.search(text)
    meaning = _sentence(_BRACKETS.sub("", text))
    notes = [note for note in (facts["inside"].split("; ") if facts else []) if note != "required"]
    if parameter.required:
        notes.insert(0, "required")
    return f"{code(usage.replace(' range>', '>'))}\n:   {meaning}{_notes(notes)}"


def _notes(notes: list[str]) -> str:
    """Default, range and whether it is required, as sentences after the meaning."""
    sentences = []
    for note in notes:
        name, colon, value = note.partition(": ")
        if colon:
            sentences.append(f"{name.capitalize()}: {code(value)}.")
        else:
            sentences.append(
                re.sub(r"^x>=(\S+)$", r"At least \1", note.capitalize().replace("X>", "x>")) + "."
            )
    return "".join(f" {sentence}" for sentence in sentences)


def _list(heading: str, listed: list[str]) -> str:
    """Terms and their meaning, below a heading that is not in the table of contents."""
    return "\n\n".join([f"**{heading}**", *listed])


def entry_text(entry: Entry) -> str:
    """The section of a command."""
    level = "#" * (len(entry.words) + 1)
    parts = [f"{level} {' '.join(entry.words)} {{ #{entry.anchor} }}"]
    parts += [_prose(text) for text in entry.paragraphs]
    for when, line in entry.examples:
        parts.append(f"{when[0].upper() + when[1:]}:" if when else "")
        parts.append(f"```console\n$ {line}\n```")
    if not hasattr(entry.command, "commands"):
        for heading, parameters in entry.parameters().items():
            parts.append(_list(heading, [parameter_entry(p, entry.context) for p in parameters]))
        if settings := entry.command.settings:
            rows = [
                f"{code(key)}\n:   {_sentence(text)}{_notes([f'default: {default}'] if default else [])}"
                for key, (text, default) in settings.items()
            ]
            parts.append(_list("Settings for --options", rows))
    return "\n\n".join(part for part in parts if part)


def commands_page() -> str:
    """The page: an overview by heading, then a section per command."""
    root, *commands = entries()
    panels: dict[str, list[Entry]] = {}
    for entry in commands:
        top = entry if len(entry.words) == 2 else next(e for e in commands if e.words == entry.words[:2])
        panels.setdefault(top.panel, []).append(entry)
    overview = []
    for panel, listed in panels.items():
        rows = [
            f"[{code(' '.join(entry.words))}](#{entry.anchor})\n:   {_prose(entry.paragraphs[0])}"
            for entry in listed
            if not hasattr(entry.command, "commands")
        ]
        overview.append(_list(panel, rows))
    rows = [parameter_entry(p, root.context) for group in root.parameters().values() for p in group]
    parts = [INTRODUCTION, *overview, _list("Options of propall itself", rows)]
    for panel, listed in panels.items():
        parts += [f"## {panel}", *(entry_text(entry) for entry in listed)]
    return "\n\n".join(parts) + "\n"

"""Reads the code blocks of a Markdown page."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: Languages whose blocks run.
EXECUTED = ("python", "console")
#: Languages that look as if they ran, with the one to use instead.
NOT_USED = {"bash": "console", "sh": "console", "shell": "console", "py": "python", "pycon": "python"}

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,})(?P<info>[^`]*)$")
_OPTION = re.compile(r"^ *<!-- run: (?P<text>.*?)(?P<end> -->)?$")
_TITLE = re.compile(r'title="([^"]+)"')
_INCLUDED = re.compile(r'^-{2,}8<-{2,} "(?P<path>[^"]+)"$')
_PICTURE = re.compile(r"!\[[^\]]*\]\(([^)\s#]+)[^)]*\)|<img[^>]*\ssrc=\"([^\"#]+)")


class PageError(ValueError):
    """A page that cannot be run as it is written."""


@dataclass(frozen=True)
class Span:
    """Lines of a page: from `start` up to, not including, `stop`, counted from 0."""

    start: int
    stop: int


@dataclass(frozen=True)
class Command:
    """A command of a console block, and the lines below it."""

    line: str
    output: str
    span: Span


@dataclass(frozen=True)
class Block:
    """A code block.

    Attributes:
        kind: "python", "console", "script" (an included file), "hidden" (Python that is not shown) or "file".
        line: of its first line of code in the page, counted from 1.
        code: without indentation; of a script, its path in the repository.
        indent: number of spaces before each line.
        span: its lines of code in the page.
        title: of a file, its name.
        skipped: why it does not run, or "".
        tolerance: relative difference that numbers of the output may have.
        output: what the page says it prints; None if the page does not say.
        output_span: lines of the output in the page.
    """

    kind: str
    line: int
    code: str
    indent: int = 0
    span: Span = Span(0, 0)
    title: str = ""
    skipped: str = ""
    tolerance: float = 0.0
    output: str | None = None
    output_span: Span | None = None

    @property
    def commands(self) -> list[Command]:
        """The commands of a console block."""
        found: list[Command] = []
        lines = self.code.splitlines()
        number = 0
        while number < len(lines):
            if not lines[number].startswith("$ "):
                raise PageError(f"line {self.line + number}: a console block begins with a command, `$ ...`.")
            command = [lines[number].removeprefix("$ ")]
            number += 1
            while command[-1].endswith("\\") and number < len(lines):
                command.append(lines[number].removeprefix("> "))
                number += 1
            start = number
            while number < len(lines) and not lines[number].startswith("$ "):
                number += 1
            output = "\n".join(lines[start:number])
            found.append(
                Command("\n".join(command), output, Span(self.span.start + start, self.span.start + number))
            )
        return found


@dataclass(frozen=True)
class _Options:
    skipped: str = ""
    tolerance: float = 0.0


def _read_options(text: str, number: int) -> _Options:
    word, _, rest = text.partition(" ")
    if word == "no," and rest:
        return _Options(skipped=rest)
    if word == "tolerance":
        try:
            return _Options(tolerance=float(rest))
        except ValueError:
            pass
    raise PageError(
        f"line {number}: run: got {text!r}; expected `no, REASON`, `tolerance NUMBER` or `hidden`."
    )


def read_blocks(text: str) -> list[Block]:
    """The blocks of a page that run or write a file, from top to bottom.

    Raises:
        PageError: for a block that is not written as CONTRIBUTING.md asks.
    """
    lines = text.splitlines()
    blocks: list[Block] = []
    options = _Options()
    number = 0
    while number < len(lines):
        option = _OPTION.match(lines[number])
        if option and option["text"] == "hidden":
            stop = next((n for n in range(number, len(lines)) if lines[n].strip() == "-->"), None)
            if stop is None:
                raise PageError(f"line {number + 1}: the comment has no end, `-->` alone on a line.")
            blocks.append(Block("hidden", number + 2, "\n".join(lines[number + 1 : stop]) + "\n"))
            number = stop + 1
            continue
        if option:
            options = _read_options(option["text"], number + 1)
            number += 1
            continue
        fence = _FENCE.match(lines[number])
        if fence is None:
            if lines[number].strip():
                options = _Options()
            number += 1
            continue
        closing = re.compile(rf"^ *{fence['fence']}`* *$")
        stop = next((n for n in range(number + 1, len(lines)) if closing.match(lines[n])), None)
        if stop is None:
            raise PageError(f"line {number + 1}: the code block has no end.")
        indent = len(fence["indent"])
        span = Span(number + 1, stop)
        code = "\n".join(line[indent:] for line in lines[span.start : span.stop])
        _add_block(blocks, fence["info"].strip(), code, span, indent, options)
        options = _Options()
        number = stop + 1
    return blocks


def _add_block(blocks: list[Block], info: str, code: str, span: Span, indent: int, options: _Options) -> None:
    language = info.split(" ")[0].strip("{}.")
    if not language or language in NOT_USED:
        use = NOT_USED.get(language, "console, python, output or text")
        raise PageError(f"line {span.start}: a code block of language {language!r}; use {use}.")
    if language == "output":
        last = blocks[-1] if blocks else None
        if last is None or last.kind not in ("python", "script") or last.output is not None:
            raise PageError(f"line {span.start}: an output follows a python block.")
        blocks[-1] = Block(**{**vars(last), "output": code, "output_span": span})
        return
    title = _TITLE.search(info)
    kind = language if language in EXECUTED and title is None else "file"
    if kind == "file" and title is None:
        return
    included = _INCLUDED.match(code.strip())
    if included:
        code, kind = included["path"], "script" if kind == "python" else kind
        if kind == "file":
            code = (ROOT / code).read_text(encoding="utf-8").rstrip("\n")
    blocks.append(
        Block(
            kind,
            span.start + 1,
            code,
            indent,
            span,
            title[1] if title else "",
            options.skipped,
            options.tolerance,
        )
    )


def has_code(text: str) -> bool:
    """Whether a page has a code block, shown or hidden."""
    return "```" in text or "<!-- run: hidden" in text


def shown_pictures(text: str) -> list[str]:
    """Relative addresses of the pictures of a page."""
    found = [first or second for first, second in _PICTURE.findall(re.sub(r"(?ms)^ *```.*?^ *```", "", text))]
    return [picture for picture in dict.fromkeys(found) if "://" not in picture and "{{" not in picture]


def all_pages() -> list[Path]:
    """The pages of the repository whose code runs."""
    docs = ROOT / "docs"
    pages = [
        path for path in sorted(docs.rglob("*.md")) if not path.relative_to(docs).parts[0].startswith("_")
    ]
    return [ROOT / "README.md", *pages]

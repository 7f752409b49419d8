"""Runs the blocks of one page in a folder of its own."""

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from tests.documentation.comparison import matches
from tests.documentation.pages import ROOT, Block, PageError, Span, read_blocks, shown_pictures

#: Seconds that one command or script may take.
LIMIT = 600
#: What a page may hold; see `Block.kind`.
KINDS = ("file", "python", "script", "console", "hidden")


@dataclass
class BlockResult:
    """What happened to a block: wall-clock and CPU seconds, and a problem or ""."""

    kind: str
    line: int
    title: str
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    skipped: str = ""
    problem: str = ""


@dataclass
class PageResult:
    """What happened to a page.

    Attributes:
        page: path in the repository.
        blocks: in order; the blocks after one that raised are not there.
        replacements: lines of the page that are to hold another output.
        pictures: addresses of the pictures copied from the run.
        problem: of the page as a whole, or "".
    """

    page: str
    blocks: list[BlockResult] = field(default_factory=list)
    replacements: list[tuple[Span, list[str]]] = field(default_factory=list)
    pictures: list[str] = field(default_factory=list)
    problem: str = ""

    @property
    def problems(self) -> list[str]:
        """One message per problem."""
        found = [f"{self.page}: {self.problem}"] if self.problem else []
        return found + [
            f"{self.page}:{block.line}: {block.problem}" for block in self.blocks if block.problem
        ]


def environment(folder: Path) -> dict[str, str]:
    """Variables for commands: this interpreter as `python`, this source as `propall`, text 100 wide."""
    programs = folder / "bin"
    programs.mkdir()
    for name, arguments in {"python": "", "propall": " -m propall"}.items():
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}"{arguments} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    return {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "MPLBACKEND": "Agg",
        "OMP_NUM_THREADS": "1",
    }


def run_page(page: Path, pictures: Path | None = None, kinds: Collection[str] = KINDS) -> PageResult:
    """Run the blocks of a page from top to bottom, in a temporary folder.

    Args:
        page: a Markdown file.
        pictures: folder for the pictures that the page shows and the run wrote.
        kinds: which blocks to run.
    """
    name = page.relative_to(ROOT).as_posix() if page.is_relative_to(ROOT) else page.name
    text = page.read_text(encoding="utf-8")
    result = PageResult(name)
    try:
        blocks = [block for block in read_blocks(text) if block.kind in kinds]
    except PageError as error:
        result.problem = str(error)
        return result
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "page"
        folder.mkdir()
        (folder / "examples").symlink_to(ROOT / "examples")
        with patch.dict(os.environ, environment(Path(root))), contextlib.chdir(folder):
            os.environ.pop("PROPALL_DATA", None)  # a page must not depend on data that its reader has not got
            _run_blocks(blocks, folder, result)
        if not result.problems:
            _take_pictures(page, text, folder, pictures, result)
    return result


def _run_blocks(blocks: list[Block], folder: Path, result: PageResult) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks:
        report = BlockResult(block.kind, block.line, _title(block), skipped=block.skipped)
        result.blocks.append(report)
        if block.skipped:
            continue
        start, cpu_start = time.perf_counter(), _cpu_seconds()
        try:
            if block.kind == "file":
                (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
                (folder / block.title).write_text(block.code + "\n", encoding="utf-8")
            elif block.kind == "console":
                _run_console(block, report, result)
            elif block.kind == "script":
                _compare(block, _run_command(["python", str(ROOT / block.code)]), report, result)
            else:
                _compare(block, _run_python(block, result.page, names), report, result)
        except (Exception, SystemExit) as error:
            report.problem = _explanation(error)
            return  # the blocks below it need what it would have made
        finally:
            report.seconds = time.perf_counter() - start
            report.cpu_seconds = _cpu_seconds() - cpu_start


def _cpu_seconds() -> float:
    """CPU time of this process and of the commands that it has run."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _title(block: Block) -> str:
    code = [line.strip() for line in block.code.splitlines() if line.strip()]
    return block.title or next((line for line in code if not line.startswith(("import ", "from ", "#"))), "")


def _explanation(error: BaseException) -> str:
    lines = traceback.format_exception(error)
    inside = [line for line in lines if "tests/documentation/running.py" not in line]
    return "".join(inside).rstrip()


def _run_python(block: Block, page: str, names: dict[str, object]) -> str:
    printed = io.StringIO()
    # Empty lines before the code give the page's line numbers in a traceback.
    code = compile("\n" * (block.line - 1) + block.code, page, "exec")
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    return printed.getvalue()


def _run_console(block: Block, report: BlockResult, result: PageResult) -> None:
    for command in block.commands:
        printed = _run_command(["bash", "-e", "-c", command.line], errors=subprocess.STDOUT)
        if command.output.strip() and not matches(command.output, printed, block.tolerance):
            report.problem = f"the page shows another output of `{command.line}`:\n{printed.rstrip()}"
            result.replacements.append((command.span, _indented(printed, block.indent)))


def _run_command(words: list[str], errors: int = subprocess.PIPE) -> str:
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=LIMIT)
    if done.returncode:
        raise RuntimeError(f"{words[-1]} ended with {done.returncode}:\n{done.stdout}{done.stderr or ''}")
    return done.stdout


def _compare(block: Block, printed: str, report: BlockResult, result: PageResult) -> None:
    if block.output is None or block.output_span is None or matches(block.output, printed, block.tolerance):
        return
    report.problem = f"the page shows another output than\n{printed.rstrip()}"
    result.replacements.append((block.output_span, _indented(printed, block.indent)))


def _indented(text: str, indent: int) -> list[str]:
    return [(" " * indent + line).rstrip() for line in text.strip("\n").splitlines()]


def _take_pictures(page: Path, text: str, folder: Path, pictures: Path | None, result: PageResult) -> None:
    """Copy the shown pictures that are not files of the repository out of the run's folder."""
    for picture in shown_pictures(text):
        if (page.parent / picture).is_file():
            continue
        if not (folder / picture).is_file():
            result.problem = f"shows {picture}, which is neither a file nor written by a block."
            return
        result.pictures.append(picture)
        if pictures is not None:
            target = pictures / Path(result.page).parent / picture
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / picture, target)


def with_replacements(text: str, replacements: list[tuple[Span, list[str]]]) -> str:
    """The page with other lines in place of some."""
    lines = text.splitlines()
    for span, new in sorted(replacements, key=lambda pair: pair[0].start, reverse=True):
        lines[span.start : span.stop] = new
    return "\n".join(lines) + "\n"

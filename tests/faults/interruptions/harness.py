"""Interrupt a command at chosen changes of files; judge what is on disk, what it says, and a second run.

A command runs in a forked child, in which the interposer counts the calls that change files under its output
folder. A first run counts them; further runs go wrong at chosen ones.
"""

import ctypes
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.faults.harness import CommandError, read_text, run_forked
from tests.faults.interruptions.scenarios import NotWholeError, Parts, Scenario

#: Interruptions, in the order of the interposer's numbers: the process is killed; the disk is full from then
#: on; writing is not permitted from then on; the output is moved away. Two processes write at once.
KINDS = ("kill", "disk full", "no permission", "output deleted", "two at once")
HEADINGS = (
    "command",
    "interruption",
    "moments",
    "old",
    "new",
    "between",
    "damaged",
    "bad message",
    "differs",
)


@dataclass
class Row:
    """Counts of one command and one interruption."""

    command: str
    kind: str
    moments: int = 0
    old: int = 0
    new: int = 0
    between: int = 0  # every file is whole; some are old and some are new, or some results were added
    damaged: int = 0
    bad_messages: int = 0
    differs: int = 0  # a second run fails or ends with other outputs
    faults: list[str] = field(default_factory=list)

    def cells(self) -> list[str]:
        """The row as text."""
        counts = (self.moments, self.old, self.new, self.between)
        return [self.command, self.kind, *map(str, (*counts, self.damaged, self.bad_messages, self.differs))]


@dataclass(frozen=True)
class _Ended:
    """How a child ended: its exit status (negative: a signal) and standard error."""

    status: int
    errors: str


def examine(scenario: Scenario, moments: int, kinds: Sequence[str] = KINDS) -> Iterator[Row]:
    """Interrupt one command in every way."""
    with _prepared(scenario) as folder:
        old = scenario.read(folder)
        ended = _run(scenario, folder)
        calls = _interposer().fault_count()
        if ended.status:
            raise RuntimeError(f"{scenario.name} fails without interruption: {ended.errors}")
        new = scenario.read(folder)
    if old == new:
        raise RuntimeError(f"{scenario.name} writes what was there")
    count = min(moments, calls)
    chosen = sorted({1 + i * (calls - 1) // max(1, count - 1) for i in range(count)})
    for kind in kinds:
        row = Row(scenario.name, kind)
        for moment in chosen[:3] if kind == "two at once" else chosen:
            row.moments += 1
            with _prepared(scenario) as folder:
                _judge(row, scenario, folder, moment, old, new)
        yield row


@contextmanager
def _prepared(scenario: Scenario) -> Iterator[Path]:
    """A temporary folder with the inputs and old outputs of a command."""
    with tempfile.TemporaryDirectory(prefix="interrupted") as name:
        folder = Path(name).resolve()
        shutil.copytree(_original(scenario.name, scenario.prepare).name, folder, dirs_exist_ok=True)
        yield folder


@cache
def _original(name: str, prepare: Callable[[Path], None]) -> "tempfile.TemporaryDirectory[str]":
    """Inputs and old outputs, prepared once per command."""
    folder: tempfile.TemporaryDirectory[str] = tempfile.TemporaryDirectory(prefix="original")
    prepare(Path(folder.name))
    return folder


def _judge(
    row: Row, scenario: Scenario, folder: Path, moment: int, old: dict[str, Parts], new: dict[str, Parts]
) -> None:
    if row.kind == "two at once":
        ended, call = _run_two(scenario, folder), ""
    else:
        ended = _run(scenario, folder, KINDS.index(row.kind) + 1, moment)
        call = f" ({_interposer().fault_call().decode()})"
    where = f"{scenario.name}, {row.kind} at change {moment}{call}: "
    try:
        present = scenario.read(folder)
        _count(row, scenario, present, old, new)
        if ended.status == 0 and present != new and not _was_complete(scenario, folder, new):
            raise NotWholeError("it reports success without the new output")
    except NotWholeError as error:
        row.damaged += 1
        row.faults.append(f"{where}{error}")
    if row.kind != "kill" and (problem := _message_problem(scenario, ended)):
        row.bad_messages += 1
        row.faults.append(f"{where}{problem}")
    if row.kind not in ("kill", "output deleted", "no permission") and (left := scenario.leftovers(folder)):
        row.damaged += 1
        row.faults.append(f"{where}leaves {left}")
    again = _run(scenario, folder)
    try:
        same = again.status == 0 and scenario.read(folder) == new
    except NotWholeError as error:
        again, same = _Ended(again.status, str(error)), False
    if not same and not (row.kind == "output deleted" and again.status == 0):
        row.differs += 1
        row.faults.append(f"{where}the second run differs: {again.status} {again.errors[-300:]}")


def _was_complete(scenario: Scenario, folder: Path, new: dict[str, Parts]) -> bool:
    """Whether the output that was moved away is the new one: then nothing could be noticed."""
    name, reader = next(iter(scenario.outputs.items()))
    moved = folder / "aside" / Path(*Path(name).parts[1:])
    try:
        return moved.exists() and reader(moved) == new[name]
    except Exception:
        return False


def _count(
    row: Row, scenario: Scenario, present: dict[str, Parts], old: dict[str, Parts], new: dict[str, Parts]
) -> None:
    if present == new:
        row.new += 1
    elif present == old:
        row.old += 1
    else:
        for name, parts in present.items():
            gone = row.kind == "output deleted" and not parts
            grown = scenario.grows and parts <= new[name]
            if parts not in (old[name], new[name]) and not gone and not grown:
                raise NotWholeError(f"{name} is neither the old nor the new one")
        row.between += 1


def _message_problem(scenario: Scenario, ended: _Ended) -> str:
    if ended.status == 0:
        return ""
    if ended.status < 0:
        return f"ended by signal {-ended.status}"
    line = " ".join(ended.errors.split())
    names = [Path(name).parts[0] for name in scenario.outputs]
    if "Traceback" in line or "please report it as a defect" in line or "error:" not in line:
        return f"bad message: {line[-300:]}"
    if not any(name in line for name in names) and "work" not in line:
        return f"the message names no output: {line[-300:]}"
    if not any(remedy in line for remedy in ("Check", "Run", "Use", "choose", "Restore", "resumes")):
        return f"the message says not what to do: {line[-300:]}"
    return ""


def _run(scenario: Scenario, folder: Path, action: int = 0, moment: int = 0) -> _Ended:
    """Run a command in a child, to its end or its interruption."""
    interposer = _interposer()
    interposer.fault_prepare()
    output = next(iter(scenario.outputs)).split("/")[0]
    victim, aside = str(folder / "work" / output), str(folder / "aside")

    def child() -> int:
        interposer.fault_arm(action, moment, str(folder / "work").encode(), victim.encode(), aside.encode())
        return _command(scenario, folder)

    return _ended(child, folder)


def _run_two(scenario: Scenario, folder: Path) -> _Ended:
    """Run a command in two processes at once."""

    def child() -> int:
        other = os.fork()
        status = _command(scenario, folder)
        if other == 0:
            os._exit(status)
        return status or os.waitstatus_to_exitcode(os.waitpid(other, 0)[1])

    return _ended(child, folder)


def _command(scenario: Scenario, folder: Path) -> int:
    os.environ["PROPALL_DATA"] = str(folder / "data")
    os.environ["PROPALL_VERIFY_DATA"] = "0"
    try:
        scenario.run(folder)
    except CommandError:
        return 1
    return 0


def _ended(child: Callable[[], int], folder: Path) -> _Ended:
    status, _, finished = run_forked(child, folder)
    if not finished or status is None:
        return _Ended(1, "error: no end within the time limit; Traceback")
    return _Ended(os.waitstatus_to_exitcode(status), read_text(folder / ".stderr"))


def _interposer() -> ctypes.CDLL:
    library = ctypes.CDLL(None)
    library.fault_count.restype = ctypes.c_long
    library.fault_call.restype = ctypes.c_char_p
    library.fault_arm.argtypes = (ctypes.c_int, ctypes.c_long, *[ctypes.c_char_p] * 3)
    return library


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (HEADINGS, *(row.cells() for row in rows))]
    lines.insert(1, "| --- | --- |" + " --: |" * (len(HEADINGS) - 2))
    return "\n".join(lines)

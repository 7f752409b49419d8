"""Run a callable on malformed inputs in child processes with limits on time and memory; judge the outcome.

A server process imports the library once and forks for every input, so that a crash, a hang or an allocation
of terabytes ends one child only. The outcome of an input is one of:

accepted   the call returned, and the door's own check found the reading right
clean      one line `error: ...` that names the file (or what the door says it must name) and no traceback
bare       an error line that names neither the file nor a remedy
traceback  an exception reached the top
crash      the interpreter died of a signal
hang       the time limit passed
wrong      the call returned, but the door's check found that the file was silently misread
"""

import contextlib
import io
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Seconds per input.
TIME_LIMIT = 20.0
#: Bytes of address space that a child may add to the server's.
MEMORY_LIMIT = 2 << 30
OUTCOMES = ("accepted", "clean", "bare", "traceback", "crash", "hang", "wrong")
#: Outcomes that must not occur.
FAULTS = ("bare", "traceback", "crash", "hang", "wrong")


@dataclass(frozen=True)
class Case:
    """One malformed input.

    Attributes:
        name: how it was made, with the seed.
        content: bytes of the file.
        suffix: file name ending, such as `.csv`.
    """

    name: str
    content: bytes
    suffix: str


@dataclass(frozen=True)
class Door:
    """An entrance for files: what reads them, and how inputs are made.

    Attributes:
        name: printed name.
        call: reads the file; called in a child process whose working directory is empty. It may print and
            raise as the command line does; it returns anything that `check` understands.
        cases: malformed inputs for (number of inputs, seed).
        check: gets the case and the call's result; returns what is wrong with the reading, or "".
        names: text that a clean error must hold besides the file's name being acceptable; any of these.
    """

    name: str
    call: Callable[[Path], Any]
    cases: Callable[[int, int], Iterator[Case]]
    check: Callable[[Case, Any], str] = lambda case, result: ""
    names: tuple[str, ...] = ()


@dataclass
class Verdict:
    """What happened to one input."""

    case: Case
    outcome: str
    message: str
    seconds: float
    megabytes: float


@dataclass
class DoorReport:
    """All verdicts of one door."""

    door: str
    verdicts: list[Verdict] = field(default_factory=list)

    def counts(self) -> Counter[str]:
        """Inputs per outcome."""
        return Counter(verdict.outcome for verdict in self.verdicts)

    def faults(self) -> list[Verdict]:
        """Verdicts that must not occur."""
        return [verdict for verdict in self.verdicts if verdict.outcome in FAULTS]

    def row(self) -> list[str]:
        """A row of the table: door, inputs, outcomes, largest memory, longest time."""
        counts = self.counts()
        return [
            self.door,
            str(len(self.verdicts)),
            *(str(counts[outcome]) for outcome in OUTCOMES),
            f"{max((v.megabytes for v in self.verdicts), default=0):.0f}",
            f"{max((v.seconds for v in self.verdicts), default=0):.1f}",
        ]


HEADINGS = ("reader", "inputs", *OUTCOMES, "peak MB", "longest s")


def command(*arguments: str) -> int:
    """Run a propall command; its exit status, with the error line on standard error."""
    from propall.cli import main

    try:
        main(list(arguments))
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


class CommandError(Exception):
    """A command ended with a status other than 0; its error line is on standard error already."""


def run_command(*arguments: str) -> None:
    """Run a propall command and raise if it fails."""
    if status := command(*arguments):
        raise CommandError(str(status))


def examine(door: Door, count: int, seed: int = 0) -> DoorReport:
    """Send `count` inputs through a door."""
    report = DoorReport(door.name)
    for case in door.cases(count, seed):
        report.verdicts.append(judge(door, case))
    return report


def judge(door: Door, case: Case) -> Verdict:
    """Send one input through a door, in a forked child with limits."""
    with tempfile.TemporaryDirectory(prefix="faults") as folder:
        path = Path(folder) / f"input{case.suffix}"
        path.write_bytes(case.content)
        before = time.monotonic()
        status, megabytes, ended = run_forked(lambda: _child(door, case, path, Path(folder)), Path(folder))
        seconds = time.monotonic() - before
        errors = read_text(Path(folder) / ".stderr")
        outcome, message = _classified(door, path, status, ended, errors, Path(folder))
    return Verdict(case, outcome, message, seconds, megabytes)


def _classified(
    door: Door, path: Path, status: int | None, ended: bool, errors: str, folder: Path
) -> tuple[str, str]:
    if not ended:
        return "hang", f"no end within {TIME_LIMIT:.0f} s"
    assert status is not None
    if os.WIFSIGNALED(status):
        return "crash", signal.Signals(os.WTERMSIG(status)).name
    if "Traceback (most recent call last)" in errors:
        return "traceback", errors.strip().splitlines()[-1]
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        wrong = read_text(folder / ".wrong")
        return ("wrong", wrong) if wrong else ("accepted", "")
    line = " ".join(errors.split())
    if "error:" not in line.lower():
        return "bare", line or f"exit status {code} without a message"
    named = (path.name, path.stem, *door.names)
    return ("clean" if any(name in line for name in named) else "bare"), line


def _child(door: Door, case: Case, path: Path, folder: Path) -> int:
    os.chdir(folder)
    try:
        result = door.call(path)
    except CommandError:
        return 1
    except SystemExit as stop:
        return int(stop.code or 0)
    except (ValueError, OSError) as error:  # the two that a library call documents
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    wrong = door.check(case, result)
    if wrong:
        (folder / ".wrong").write_text(wrong, encoding="utf-8")
    return 0


def run_forked(action: Callable[[], int], folder: Path) -> tuple[int | None, float, bool]:
    """Run an action in a forked child; its wait status, peak memory in MB, and whether it ended in time."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        status = 70
        try:
            os.setsid()
            _redirect(folder)
            size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY_LIMIT, size + MEMORY_LIMIT))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            status = action()
        except BaseException:
            with contextlib.suppress(BaseException):
                traceback.print_exc()
        finally:
            with contextlib.suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)
    deadline = time.monotonic() + TIME_LIMIT
    pause = 0.0005
    while time.monotonic() < deadline:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            return status, usage.ru_maxrss / 1024, True
        time.sleep(pause)
        pause = min(0.02, pause * 1.5)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    return status, usage.ru_maxrss / 1024, False


def _redirect(folder: Path) -> None:
    for descriptor, name in ((1, ".stdout"), (2, ".stderr")):
        file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, descriptor)
        os.close(file)
    sys.stdout = io.TextIOWrapper(open(1, "wb", closefd=False), encoding="utf-8", errors="replace")  # noqa: SIM115
    sys.stderr = io.TextIOWrapper(open(2, "wb", closefd=False), encoding="utf-8", errors="replace")  # noqa: SIM115


def read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def table(reports: Sequence[DoorReport]) -> str:
    """The reports as a Markdown table."""
    rows = [HEADINGS, *(report.row() for report in reports)]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "| --- |" + " --: |" * (len(HEADINGS) - 1))
    return "\n".join(lines)

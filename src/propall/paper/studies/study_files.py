"""Files of studies whose parts run one after the other: selecting parts, running what is missing, JSON."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch

from propall import __version__, atomic_files
from propall.provenance import commit, hardware
from propall.registry import UnknownNameError


def select_names(only: Sequence[str] | None, names: Iterable[str], what: str) -> list[str]:
    """Return the names that match one of some patterns, in the order of the patterns.

    Args:
        only: names or patterns such as `cc/*`; None for all names.
        names: of all parts.
        what: what a part is called in an error.
    """
    known = list(names)
    if only is None:
        return known
    chosen = [name for pattern in only for name in known if fnmatchcase(name, pattern)]
    if not chosen:
        raise UnknownNameError(
            f"only: no {what} is called {', '.join(only)}; expected some of {', '.join(known)}."
        )
    return list(dict.fromkeys(chosen))


def run_missing(
    path: Path,
    report: dict[str, Any],
    *,
    setting: Mapping[str, Any],
    key: str,
    parts: Mapping[str, Callable[[], dict[str, Any]]],
    device: torch.device,
    note: Callable[[str], None],
) -> dict[str, Any]:
    """Run the parts that a report lacks, and write the file after each, so that a killed study resumes.

    Args:
        path: the file.
        report: its content so far; empty if there is none.
        setting: of the study, as plain JSON values; another one needs another file.
        key: where the report holds the results of the parts.
        parts: a function for every part, by name.
        device: where they run.
        note: receives progress messages.
    """
    if report and report["setting"] != setting:
        raise ValueError(f"out: {path} has another setting ({report['setting']}); choose another file.")
    fresh = {"setting": setting, "version": __version__, "commit": commit(), "hardware": hardware(device)}
    report = report or {**fresh, key: {}}
    missing = [name for name in parts if name not in report[key]]
    for number, name in enumerate(missing, 1):
        note(f"{name} ({number} of {len(missing)})")
        report[key][name] = parts[name]()
        write_json(path, report)
    return report


def write_json(path: Path, report: Mapping[str, Any]) -> None:
    """Write indented JSON with lists of numbers on one line."""
    text = json.dumps(report, indent=1)
    text = re.sub(r"\[[\s\d.,e+-]+\]", lambda match: " ".join(match[0].split()), text)
    atomic_files.write_text(path, text + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Return the content of a file; empty if there is none."""
    if not path.exists():
        return {}
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content

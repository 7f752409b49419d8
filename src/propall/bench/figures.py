"""The table of figures in the README, made from the files that benchmarks wrote."""

import json
from pathlib import Path
from typing import Any

from propall.bench.sheet import Target


def figures(folder: Path) -> str:
    """A Markdown table of all that was aimed at and what was found, file by file.

    Args:
        folder: where `propall bench NAME --json FILE` wrote its files.
    """
    rows = ["| measured | aimed at | found | |", "| --- | --- | --: | --- |"]
    for path in sorted(folder.glob("*.json")):
        sheet: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        rows.append(f"| **{sheet['title']}** ({sheet['machine']['hardware']}) | | | |")
        for found in sheet["targets"]:
            target = Target(*(found[name] for name in ("claim", "value", "least", "most")))
            met = "met" if target.met else "missed"
            rows.append(f"| {target.claim} | {target.wanted} | {target.value:.3g} | {met} |")
    return "\n".join(rows)

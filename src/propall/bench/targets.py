"""The table of targets in `benchmarks/README.md`, generated from the files that benchmarks wrote."""

import json
from pathlib import Path
from typing import Any

from propall.bench.results import Target


def targets_table(folder: Path) -> str:
    """Return a Markdown table of all targets and measured values, file by file.

    Args:
        folder: folder of files written by `propall bench NAME --json FILE`.
    """
    rows = ["| | target | measured | |", "| --- | --- | --: | --- |"]
    for path in sorted(folder.glob("*.json")):
        result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        rows.append(f"| **{result['title']}** ({result['machine']['hardware']}) | | | |")
        for entry in result["targets"]:
            target = Target(*(entry[key] for key in ("claim", "value", "least", "most")))
            rows.append(f"| {target.claim} | {target.range} | {target.value:.3g} | {target.verdict} |")
    return "\n".join(rows)

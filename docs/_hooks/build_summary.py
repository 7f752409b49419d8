"""Counts what the site holds and what of it was executed; writes `build/documentation/summary.json`."""

import json
import time
from pathlib import Path
from typing import Any

from api import api_names, docstring_examples
from blocks import RUN
from commands import entries
from methods import usage
from mkdocs.config.defaults import MkDocsConfig

from propall.methods import METHODS

ROOT = Path(__file__).resolve().parents[2]
_started: dict[str, float] = {}


def on_startup(command: str, dirty: bool) -> None:
    """Start the clocks."""
    _started.update(wall=time.perf_counter(), cpu=time.process_time())


def executed_blocks() -> dict[str, Any]:
    """Number, pages and time of the blocks that the last run of `python -m tests.documentation` executed."""
    if not (RUN / "blocks.json").is_file():
        return {"blocks_executed": 0}
    record = json.loads((RUN / "blocks.json").read_text(encoding="utf-8"))
    blocks = [block for page in record["pages"] for block in page["blocks"] if block["kind"] != "file"]
    ran = [block for block in blocks if not block["skipped"]]
    return {
        "blocks_executed": len(ran),
        "blocks_skipped": len(blocks) - len(ran),
        "pages_with_blocks": len(record["pages"]),
        "blocks_seconds": round(record["seconds"], 1),
        "blocks_cpu_seconds": round(sum(block["cpu_seconds"] for block in ran), 1),
        "slowest_block_cpu_seconds": round(max(block["cpu_seconds"] for block in ran), 1),
    }


def contents(site: Path) -> dict[str, Any]:
    """What the built site holds; docstrings and the pages of methods are executed by `make test`."""
    files = [path for path in site.rglob("*") if path.is_file()]
    commands = [entry for entry in entries() if not hasattr(entry.command, "commands")]
    sources = sorted((ROOT / "src" / "propall").rglob("*.py"))
    examples = [text for path in sources for _, _, text in docstring_examples(path)]
    return {
        "site_pages": sum(path.suffix == ".html" for path in files),
        "site_mebibytes": round(sum(path.stat().st_size for path in files) / 2**20, 1),
        "api_names": len(api_names()),
        "docstrings_with_examples": len(examples),
        "docstring_statements": sum(text.count(">>> ") for text in examples),
        "method_pages": len(METHODS),
        "method_page_blocks": sum(usage(name).count("```python") for name in METHODS),
        "commands": len(commands),
        "command_options": sum(len(panel) for entry in commands for panel in entry.parameters().values()),
    }


def on_post_build(config: MkDocsConfig) -> None:
    """Write the summary and print it on one line."""
    summary = {
        **executed_blocks(),
        **contents(Path(config.site_dir)),
        "build_seconds": round(time.perf_counter() - _started["wall"], 1),
        "build_cpu_seconds": round(time.process_time() - _started["cpu"], 1),
    }
    RUN.mkdir(parents=True, exist_ok=True)
    (RUN / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in summary.items()))

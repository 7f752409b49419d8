"""`python -m tests.documentation [PAGE ...] [--update] [--list]`: run the code on the pages of the docs."""

import argparse
import json
import multiprocessing
import os
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path

from tests.documentation.pages import ROOT, all_pages, has_code
from tests.documentation.running import PageResult, run_page, with_replacements

#: What a run leaves for the site: the pictures, and the time of every block.
OUT = ROOT / "build" / "documentation"
#: Imported once, before a process is forked for every page.
PRELOADED = [
    "torch",
    "pandas",
    "sklearn.ensemble",
    "sklearn.model_selection",
    "matplotlib.pyplot",
    "propall.estimators",
]


def main() -> int:
    """Run the pages, print the problems and a summary; with `--list`, also the time of every block."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", type=Path, help="Markdown files; default: README.md and docs/.")
    parser.add_argument("--update", action="store_true", help="Write the real outputs into the pages.")
    parser.add_argument("--list", action="store_true", help="Print every block with its seconds.")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="Pages run at a time.")
    arguments = parser.parse_args()
    pages = [path.resolve() for path in arguments.pages] or all_pages()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # pages run side by side
    start = time.perf_counter()
    results = run_pages(
        [page for page in pages if has_code(page.read_text(encoding="utf-8"))], arguments.jobs
    )
    seconds = time.perf_counter() - start
    problems = [problem for result in results for problem in result.problems]
    if arguments.update:
        for result in results:
            if result.replacements:
                page = ROOT / result.page
                text = with_replacements(page.read_text(encoding="utf-8"), result.replacements)
                page.write_text(text, encoding="utf-8")
                print(f"updated {result.page}")
    if not arguments.pages:
        OUT.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"seconds": seconds, "pages": [asdict(result) for result in results]}, indent=1)
        (OUT / "blocks.json").write_text(text, encoding="utf-8")
        (OUT / "blocks.txt").write_text("\n".join([*block_lines(results), ""]), encoding="utf-8")
    if arguments.list:
        print(*block_lines(results), sep="\n")
    print(*problems, sep="\n\n")
    blocks = [block for result in results for block in result.blocks if block.kind != "file"]
    skipped = sum(bool(block.skipped) for block in blocks)
    print(
        f"{len(blocks) - skipped} blocks of {len(results)} pages ran in {seconds:.0f} s "
        f"({sum(block.cpu_seconds for block in blocks):.0f} s of CPU time), "
        f"{skipped} were skipped, {len(problems)} problems."
    )
    return bool(problems)


def run_pages(pages: list[Path], jobs: int) -> list[PageResult]:
    """Run every page in a process of its own, `jobs` at a time."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with ProcessPoolExecutor(jobs, mp_context=context, max_tasks_per_child=1) as pool:
        # Pages with many blocks first, so that none of them is the last to end.
        running: dict[Path, Future[PageResult]] = {
            page: pool.submit(run_page, page, OUT / "pictures")
            for page in sorted(pages, key=lambda page: -page.read_text(encoding="utf-8").count("```"))
        }
        return [running[page].result() for page in pages]


def block_lines(results: list[PageResult]) -> list[str]:
    """A line per block: time, page, line, kind, and how it begins."""
    lines = []
    for result in results:
        for block in result.blocks:
            seconds = (
                "  skipped" if block.skipped else f"{block.seconds:7.2f} s, CPU {block.cpu_seconds:6.2f} s"
            )
            title = f"{block.title[:60]}{block.skipped and f' ({block.skipped})'}"
            lines.append(f"{seconds}  {result.page}:{block.line}  {block.kind}  {title}")
    return lines


if __name__ == "__main__":
    sys.exit(main())

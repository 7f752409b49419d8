"""The command that shows stored results: a page, files for articles, and text for a repository."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from propall import atomic_files
from propall.cli.app import app
from propall.cli.paper import STORE


class Blocks(StrEnum):
    """What the ranks of critical-difference diagrams are taken over."""

    data_sets = "data-sets"
    runs = "runs"


@app.command()
def report(
    store: Annotated[Path, typer.Option(help="File of results that `reproduce` filled.")] = STORE,
    results: Annotated[
        Path | None, typer.Option(help="Folder that `results export` wrote, in place of a file of results.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("runs/report.html"),
    export: Annotated[
        Path | None, typer.Option(help="Folder for every table and figure as CSV, LaTeX, SVG and PNG.")
    ] = None,
    markdown: Annotated[Path | None, typer.Option(help="Text to write, claim by claim.")] = None,
    blocks: Annotated[
        Blocks, typer.Option(help="What methods are ranked on: data sets, or (overstated) single runs.")
    ] = Blocks.data_sets,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Tables and figures of the paper from stored results, the published numbers beside ours, on one page."""
    import webbrowser

    from propall.paper import pages, results_io
    from propall.paper.evidence import Evidence
    from propall.paper.store import Store

    with Store(store, create=False) if results is None else results_io.open_folder(results) as opened:
        evidence = Evidence(opened)
        page = pages.report_page(evidence, blocks="runs" if blocks is Blocks.runs else "data sets")
        page.write(out)
        typer.echo("\n".join([page.finding, *pages.cost_sentences(evidence)]))
        typer.echo(f"{out} ({max(0.1, out.stat().st_size / 1e6):.1f} MB)")
        if markdown is not None:
            atomic_files.write_text(markdown, pages.reproduction_text(evidence))
            typer.echo(f"{markdown}")
        if export is not None:
            typer.echo(f"{len(pages.export(page, export))} files in {export}")
    if open_page:
        webbrowser.open(out.resolve().as_uri())

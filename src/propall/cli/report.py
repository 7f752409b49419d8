"""The command that reports stored results as a page, as files and as Markdown."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from propall.cli.app import app
from propall.cli.paper import STORE


class RankBlocks(StrEnum):
    """What critical-difference diagrams rank over."""

    data_sets = "data-sets"
    runs = "runs"


@app.command()
def report(
    store: Annotated[Path, typer.Option(help="Results file written by `propall reproduce`.")] = STORE,
    results: Annotated[
        Path | None,
        typer.Option(help="Folder written by `propall results export`, instead of --store."),
    ] = None,
    out: Annotated[Path, typer.Option(help="HTML page to write.")] = Path("runs/report.html"),
    export: Annotated[
        Path | None, typer.Option(help="Folder for every table and figure as CSV, LaTeX, SVG and PNG.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Markdown file to write: claims, verdicts and tables.")
    ] = None,
    blocks: Annotated[
        RankBlocks,
        typer.Option(help="Rank over data sets, or over single runs (overstates significance)."),
    ] = RankBlocks.data_sets,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Report stored results next to the paper's tables and figures, as one HTML page.

    Example: propall report --results results/ --out report.html
    """
    import webbrowser

    from propall import atomic_files
    from propall.paper import pages, results_io
    from propall.paper.evidence import Evidence
    from propall.paper.store import Store
    from propall.report.exhibits import export_exhibits

    with Store(store, create=False) if results is None else results_io.open_folder(results) as opened:
        evidence = Evidence(opened)
        page = pages.report_page(evidence, blocks="runs" if blocks is RankBlocks.runs else "data sets")
        page.write(out)
        typer.echo("\n".join([page.finding, *pages.describe_costs(evidence)]))
        typer.echo(f"{out} ({max(0.1, out.stat().st_size / 1e6):.1f} MB)")
        if markdown is not None:
            atomic_files.write_text(markdown, pages.reproduction_markdown(evidence))
            typer.echo(f"{markdown}")
        if export is not None:
            typer.echo(f"{len(export_exhibits(page, export))} files in {export}")
    if open_page:
        webbrowser.open(out.resolve().as_uri())

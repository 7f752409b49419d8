"""Shows what `python -m tests.documentation` left: pictures of the runs, and why a block did not run."""

import json
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
#: Where the run of the blocks leaves its pictures and times.
RUN = ROOT / "build" / "documentation"

_NOT_RUN = re.compile(
    r"^(?P<indent> *)<!-- run: no, (?P<reason>.*?) -->\n+(?P<block> *(?P<fence>```+).*?^ *(?P=fence) *\n)",
    re.MULTILINE | re.DOTALL,
)


def with_reasons(markdown: str) -> str:
    """The page with a line below every block that is not run, which says why."""
    return _NOT_RUN.sub(
        lambda m: f"{m['block']}\n{m['indent']}*Not run when this page is checked: {m['reason']}.*\n",
        markdown,
    )


def times_page() -> str:
    """A page with the time of every block, from the last run."""
    text = (
        "# Executed code\n\nEvery code block of this documentation runs when the site is built; its output "
        "is compared with the one the page shows ([how](contributing.md#documentation)).\n"
    )
    if not (RUN / "blocks.json").is_file():
        return text + "\nThis copy of the site was built without running them.\n"
    record = json.loads((RUN / "blocks.json").read_text(encoding="utf-8"))
    rows = []
    for page in record["pages"]:
        name = page["page"].removeprefix("docs/")
        for block in page["blocks"]:
            if block["kind"] in ("file", "hidden"):
                continue
            time = f"not run: {block['skipped']}" if block["skipped"] else f"{block['cpu_seconds']:.2f}"
            title = block["title"].replace("|", "\\|")
            link = f"[{name}]({name})" if page["page"].startswith("docs/") else name
            rows.append(f"| {link} | {block['line']} | {block['kind']} | `{title[:60]}` | {time} |")
    summary = f"{len(rows)} blocks on {len(record['pages'])} pages took {record['seconds']:.0f} s"
    header = ["| page | line | kind | begins with | CPU seconds |", "| --- | --: | --- | --- | --: |"]
    return "\n".join([text, f"{summary}, two pages at a time.", "", *header, *rows, ""])


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pictures that the pages' code drew, and the page of times."""
    folder = RUN / "pictures" / "docs"
    for picture in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = picture.relative_to(folder).as_posix()
        if files.get_file_from_path(name) is None:
            files.append(File.generated(config, name, abs_src_path=str(picture)))
    files.append(File.generated(config, "executed_blocks.md", content=times_page()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Say below a block that is not run why."""
    return with_reasons(markdown)

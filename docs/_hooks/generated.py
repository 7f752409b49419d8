"""Adds generated pages (methods, references, commands, API) and links names and citation keys to them."""

import re

from api import api_pages
from bibliography import references_page, with_citations
from commands import PAGE as COMMANDS
from commands import commands_page
from methods import index_page, method_page
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from propall.methods import METHODS


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    pages = {"references.md": references_page(), "methods/index.md": index_page(), **api_pages()}
    pages[COMMANDS] = commands_page()
    pages |= {f"methods/{name}.md": method_page(name) for name in METHODS}
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Link citation keys; in the tables of methods also bare keys, and the names of methods."""
    if page.file.src_uri == "methods.md":
        markdown = re.sub(r"^\| `(\w+)` \|", _method_link, markdown, flags=re.MULTILINE)
        markdown = re.sub(r"\| (\w+\d{4}\w+) \|$", r"| [\1] |", markdown, flags=re.MULTILINE)
    return with_citations(markdown)


def _method_link(match: re.Match[str]) -> str:
    return f"| [`{match[1]}`](methods/{match[1]}.md) |" if match[1] in METHODS else match[0]
